"""What the tests of storage, services and API begin with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.plan import Model
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.verdict import Delta, Finding, Outcome, Report, Verdict
from gatekeeper.domain.vllm_flags import Device
from gatekeeper.services import models, record
from gatekeeper.services.claim import Claim, claim
from gatekeeper.services.submit import submit
from gatekeeper.settings import Settings
from gatekeeper.storage.database import Sessions

SHAPE = ModelShape(layers=30, attention_heads=9, kv_heads=3, head_dim=64, max_context=8192)
MODEL = Model(name="tiny", source="/models/tiny", shape=SHAPE)


def make_settings(database_url: str | None, home: Path, **values: Any) -> Settings:
    """Settings that read nothing from the environment but what is given here."""
    return Settings(home=home, database_url=database_url, **values)


@dataclass
class Bell:
    """A doorbell that remembers who rang."""

    rung: list[UUID] = field(default_factory=list)
    is_down: bool = False

    def ring(self, run_id: UUID, device: Device) -> None:
        """Remember, or fail as a broker does."""
        assert device == "cpu"
        if self.is_down:
            raise ServiceUnavailable("broker: no answer")
        self.rung.append(run_id)


@dataclass(frozen=True, kw_only=True)
class World:
    """A service with one model and a doorbell."""

    sessions: Sessions
    settings: Settings
    bell: Bell

    def submit(self, *, key: str | None = None, **changed: Any) -> UUID:
        """Queue a run."""
        document = a_change(**changed)
        submitted = submit(
            self.sessions, document, settings=self.settings, ring=self.bell.ring, idempotency_key=key
        )
        return submitted.run_id

    def claim(self, run_id: UUID, owner: str = "worker-1", lease_seconds: float = 60.0) -> Claim:
        """Take a run that must be free."""
        held = claim(self.sessions, run_id, owner=owner, lease_seconds=lease_seconds)
        assert held is not None
        return held

    def arm(
        self, held: Claim, role: str = "baseline", *, owner: str = "worker-1", complete: bool = True
    ) -> int:
        """Launch an arm, measure one item and end it."""
        plan = held.plan.candidate if role == "candidate" else held.plan.baseline
        arm_id = record.open_arm(
            self.sessions, held.run_id, owner=owner, role=cast("Any", role), plan=plan, argv=["vllm"]
        )
        record.add_measurements(self.sessions, arm_id, owner=owner, measurements=[a_measurement()])
        record.finish_arm(self.sessions, arm_id, owner=owner, complete=complete)
        return arm_id


def make_world(sessions: Sessions, settings: Settings) -> World:
    """A service that knows MODEL."""
    models.register_model(sessions, MODEL)
    return World(sessions=sessions, settings=settings, bell=Bell())


def a_change(**changed: Any) -> dict[str, Any]:
    """A change's document."""
    candidate = {"quantization": {"scheme": "fp8_e4m3"}}
    return {"model": "tiny", "candidate": candidate, "suite": "smoke", "policy": "fast"} | changed


def a_measurement(item_id: str = "i1", value: float | None = 1.0) -> Measurement:
    """One measurement."""
    return Measurement(
        suite="accuracy", mode="cold", item_id=item_id, cluster="c1", metric="accuracy", value=value
    )


def a_delta(metric: str = "decode_kl", **changed: Any) -> Delta:
    """One delta."""
    values: dict[str, Any] = {
        "metric": metric,
        "suite": "fidelity",
        "mode": "cold",
        "unit": "nats/token",
        "n": 2048,
        "clusters": 16,
        "baseline": None,
        "candidate": None,
        "estimate": 0.027,
        "lower": 0.02,
        "upper": 0.03,
        "confidence": 0.95,
        "method": "cluster bootstrap",
    }
    return Delta(**values | changed)


def a_report(verdict: Verdict = Verdict.PASS) -> Report:
    """A report with one ruled delta and one without a rule."""
    ruled = a_delta()
    rule = Rule(metric="decode_kl", at_most=0.05, reason="small")
    outcome = Outcome.PASSED if verdict is Verdict.PASS else Outcome.REGRESSED
    finding = Finding(
        outcome=outcome, metric="decode_kl", mode="cold", rule=rule, delta=ruled, detail="0.027 is below 0.05"
    )
    other = a_delta("decode_nll", estimate=-0.001, lower=None, upper=None)
    return Report(
        verdict=verdict, sentence=f"{verdict}: so it is.", findings=(finding,), deltas=(ruled, other)
    )
