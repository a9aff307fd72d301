"""The part of a run's document that a report shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from gatekeeper.domain.differences import Difference, differences
from gatekeeper.domain.errors import GatekeeperError
from gatekeeper.domain.meaning import Meaning, meaning_of
from gatekeeper.domain.verdict import Delta, EngineInfo, Finding, Noise, SettingRow, Verdict
from gatekeeper.domain.waiver import Waiver


class UnknownFormat(GatekeeperError):
    """The service's answer is not in the form that this version knows."""


class RunView(BaseModel):
    """A run as it is shown. Keys that no report needs are ignored, so a newer service may add some."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str | None
    """None: the results of another program, without a run and an engine of ours."""
    name: str
    state: str
    model: str | None = None
    change: dict[str, Any] = {}
    verdict: Verdict | None = None
    sentence: str | None = None
    findings: tuple[Finding, ...] = ()
    deltas: tuple[Delta, ...] = ()
    noise: Noise | None = None
    requested: dict[str, Any] = {}
    settings: tuple[SettingRow, ...] = ()
    engine: EngineInfo | None = None
    notes: tuple[str, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    url: str | None = None

    @property
    def suite(self) -> str:
        """The suite that the change names."""
        return str(self.change.get("suite", ""))

    @property
    def word(self) -> str:
        """The verdict, or the state of a run that has none."""
        return str(self.verdict) if self.verdict else self.state.upper()

    @property
    def meaning(self) -> Meaning | None:
        """What the verdict means for the rollout; None before there is one."""
        if self.verdict is None:
            return None
        engine = self.engine.name if self.engine else None
        return meaning_of(self.verdict, findings=self.findings, waivers=self.waivers, engine=engine)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What the change changes; nothing where the configurations are not both known."""
        if not {"baseline", "candidate"} <= self.requested.keys():
            return ()
        return differences(self.requested["baseline"], self.requested["candidate"])

    @property
    def unruled_deltas(self) -> tuple[Delta, ...]:
        """What was measured without a rule that speaks of it."""
        ruled = {
            (found.delta.metric, found.delta.mode, found.delta.group)
            for found in self.findings
            if found.delta
        }
        return tuple(delta for delta in self.deltas if (delta.metric, delta.mode, delta.group) not in ruled)


def read_run(document: Mapping[str, Any]) -> RunView:
    """Read a run's document. Raises UnknownFormat."""
    try:
        return RunView.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UnknownFormat(f"{where}: {first['msg']}; the format json shows it as it is") from error
