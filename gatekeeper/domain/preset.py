"""Scenario presets: configurations worth trying for one kind of workload, with the suite and policy to try them by."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from gatekeeper.domain.base import Closed
from gatekeeper.domain.change import Deployment, EngineName, Name
from gatekeeper.domain.kv_config import KVConfig


class Candidate(Closed):
    """One configuration to try. `engine` None: whichever can run it. `reason`: why it is worth trying here."""

    name: Name
    candidate: KVConfig
    engine: EngineName | None = None
    reason: str = ""


class Preset(Closed):
    """Candidates that are held against one baseline. `baseline` None: 16 bits, full cache, nothing reused."""

    name: Name
    description: str = ""
    suite: Name = "standard"
    policy: Name = "default"
    deployment: Deployment = Deployment()
    baseline: KVConfig | None = None
    candidates: Annotated[tuple[Candidate, ...], Field(min_length=1, max_length=20)]

    @model_validator(mode="after")
    def _named_apart(self) -> Self:
        names = [candidate.name for candidate in self.candidates]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"candidates: a name is there twice: {', '.join(twice)}")
        return self

    def changes(self, model: str) -> dict[str, dict[str, Any]]:
        """A change's document per candidate, by its name. What is left out keeps its default."""
        shared = self.model_dump(mode="json", include={"deployment", "baseline"}, exclude_unset=True)
        return {
            one.name: {
                "name": f"{self.name}: {one.name}",
                "model": model,
                **one.model_dump(mode="json", include={"engine", "candidate"}, exclude_unset=True),
                **shared,
                "suite": self.suite,
                "policy": self.policy,
            }
            for one in self.candidates
        }
