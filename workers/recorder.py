"""Binds an execution to the database: one claim, one owner, every write fenced by the lease."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.errors import ServiceUnavailable
from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Measurement, Mode, Role, Stop, TokenTrace
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.run import ArmFailure
from gatekeeper.domain.verdict import EngineInfo
from gatekeeper.services import baselines, interim, record
from gatekeeper.services.claim import Claim
from gatekeeper.storage.database import Sessions

PROGRESS_SECONDS = 1.0
"""Progress is written at most this often, except where the stage changes."""

patiently = retry(
    retry=retry_if_exception_type(ServiceUnavailable),
    stop=stop_after_delay(60.0),
    wait=wait_fixed(2.0),
    reraise=True,
)
"""A database that is away for a moment must not cost an hour of measuring; the lease says when it was too long."""


@dataclass(frozen=True, kw_only=True)
class StoredArm:
    """One arm's place in the database."""

    sessions: Sessions
    claim: Claim
    owner: str
    role: Role
    arm_id: int

    @patiently
    def started(self, info: EngineInfo, effective: EffectiveConfig) -> None:
        """The engine is ready."""
        record.set_engine(self.sessions, self.arm_id, owner=self.owner, engine=info, effective=effective)

    @patiently
    def skipped(self, probe: str, reason: str) -> None:
        """A probe was left out."""
        record.add_skipped(self.sessions, self.arm_id, owner=self.owner, skipped=[(probe, reason)])

    @patiently
    def finished(self, *, complete: bool, failure: ArmFailure | None) -> None:
        """The arm is over."""
        record.finish_arm(self.sessions, self.arm_id, owner=self.owner, complete=complete, failure=failure)

    @patiently
    def measurements(self, rows: Sequence[Measurement]) -> None:
        """Store measurements."""
        record.add_measurements(self.sessions, self.arm_id, owner=self.owner, measurements=rows)

    @patiently
    def traces(self, rows: Sequence[TokenTrace]) -> None:
        """Store traces."""
        record.add_traces(self.sessions, self.arm_id, owner=self.owner, traces=rows)

    @patiently
    def answers(self, rows: Sequence[Answer]) -> None:
        """Store what the engine said."""
        record.add_answers(self.sessions, self.arm_id, owner=self.owner, answers=rows)

    @patiently
    def exercises(self, rows: Sequence[Exercise]) -> None:
        """Store the proofs that a mode happened."""
        record.add_exercises(self.sessions, self.arm_id, owner=self.owner, exercises=rows)

    @patiently
    def stopped(self, stop: Stop) -> None:
        """A probe was ended on purpose."""
        record.add_stop(self.sessions, self.arm_id, owner=self.owner, stop=stop)

    def artifact(self, name: str, text: str, *, truncated: bool) -> None:
        """Keep a log."""
        record.add_artifact(
            self.sessions, self.claim.run_id, owner=self.owner, role=self.role, name=name, content=text,
            truncated=truncated,
        )  # fmt: skip


@dataclass(kw_only=True)
class StoredRun:
    """One claimed run's place in the database."""

    sessions: Sessions
    claim: Claim
    owner: str
    baseline_max_age: timedelta
    _arms: dict[Role, int] = field(default_factory=dict)
    _last: tuple[str, Role] | None = None
    _written: float = 0.0

    def reuse_baseline(self, fingerprint: str) -> bool:
        """Take over the stored baseline and control of that fingerprint, if there are any."""
        found = baselines.find(self.sessions, fingerprint, max_age=self.baseline_max_age)
        if found is None:
            return False
        baseline_arm, control_arm = found
        record.use_baseline(
            self.sessions,
            self.claim.run_id,
            owner=self.owner,
            baseline_arm_id=baseline_arm,
            control_arm_id=control_arm,
        )
        return True

    def keep_baseline(self, fingerprint: str) -> None:
        """Store this run's baseline and control for later runs."""
        baselines.keep(
            self.sessions, self.claim.run_id, owner=self.owner, fingerprint=fingerprint,
            baseline_arm_id=self._arms["baseline"], control_arm_id=self._arms["control"],
        )  # fmt: skip

    def open_arm(self, role: Role, plan: ArmPlan, argv: Sequence[str], fingerprint: str | None) -> StoredArm:
        """Begin an arm."""
        arm_id = record.open_arm(
            self.sessions,
            self.claim.run_id,
            owner=self.owner,
            role=role,
            plan=plan,
            argv=argv,
            fingerprint=fingerprint,
        )
        self._arms[role] = arm_id
        return StoredArm(sessions=self.sessions, claim=self.claim, owner=self.owner, role=role, arm_id=arm_id)

    def certain_failure(self) -> str | None:
        """Why the verdict is sure to be FAIL with what is stored so far, or None while it is not."""
        return interim.certain_failure(self.sessions, self.claim.run_id)

    def settled(self, suite: str, mode: Mode, batches: int) -> str | None:
        """Why the rest of a probe is not needed in one mode after its first `batches` batches, or None while it is."""
        return interim.settled(self.sessions, self.claim.run_id, suite=suite, mode=mode, batches=batches)

    def references(self, mode: Mode) -> Mapping[str, Sequence[int]]:
        """By item, the tokens that the run's baseline scored in a mode."""
        return interim.references(self.sessions, self.claim.run_id, mode=mode)

    def speed_decided(self) -> bool:
        """Whether every rule on speed is decided with the pairs of launches so far."""
        return interim.speed_decided(self.sessions, self.claim.run_id)

    def progress(self, stage: str, role: Role, done: int, total: int) -> None:
        """Say how far the run is, at most once a second within a stage."""
        now = time.monotonic()
        if self._last == (stage, role) and done < total and now - self._written < PROGRESS_SECONDS:
            return
        self._last, self._written = (stage, role), now
        with suppress(
            ServiceUnavailable
        ):  # the next one will get through, and the heartbeat watches the database
            record.progress(
                self.sessions,
                self.claim.run_id,
                owner=self.owner,
                stage=stage,
                arm=role,
                done=done,
                total=total,
            )
