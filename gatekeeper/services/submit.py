"""Accept a change: validate, resolve, store, ring. And the same without storing: what would be done."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy.orm import Session

from gatekeeper import tracing
from gatekeeper.domain.change import Change
from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.foresight import Foresight
from gatekeeper.domain.kv_account import MemoryQuestion, memory_account
from gatekeeper.domain.plan import ArmPlan, Plan
from gatekeeper.domain.run import RunState
from gatekeeper.queue import Ring
from gatekeeper.services.bell import ring_after_commit
from gatekeeper.services.intake import engine_flags, read_change, resolve
from gatekeeper.services.outlook import foresight_of
from gatekeeper.services.promote import with_reference
from gatekeeper.settings import Settings
from gatekeeper.storage import events, runs
from gatekeeper.storage.codec import dump_change, load_plan
from gatekeeper.storage.database import Sessions, transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """The run of a change. `created` False: an earlier request with the same idempotency key made it.

    `coverage_gaps`: what keeps the verdict from being PASS; `foresight`: which of its rules the run can decide.
    """

    run_id: UUID
    created: bool
    coverage_gaps: tuple[str, ...]
    foresight: tuple[Foresight, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmPreview:
    """One arm as it would be launched. None where the model's shape is unknown."""

    flags: tuple[str, ...]
    kv_bytes_per_token: float | None
    kv_pool_bytes: float | None
    """For as many sequences of `max_model_len` tokens as are in flight, by the memory account."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    """What a run of a change would do."""

    plan: Plan
    arms: dict[str, ArmPreview]
    coverage_gaps: tuple[str, ...]
    foresight: tuple[Foresight, ...]


@tracing.span("submit")
def submit(
    sessions: Sessions,
    document: dict[str, Any] | Change,
    *,
    settings: Settings,
    ring: Ring,
    idempotency_key: str | None = None,
) -> Submitted:
    """Queue a run for a change. Raises InvalidInput, and Conflict if the key was used for another change."""
    change = read_change(with_reference(sessions, document), settings=settings)
    request_hash = _hash(change)
    with transaction(sessions) as session:
        if idempotency_key is not None:
            runs.lock_key(session, idempotency_key)
            earlier = runs.find_by_key(session, idempotency_key)
            if earlier is not None and earlier.request_hash != request_hash:
                raise Conflict(f"the idempotency key {idempotency_key!r} belongs to another change")
            if earlier is not None:
                return _submitted(session, earlier.id, load_plan(earlier.plan), created=False)
        plan = resolve(session, change, settings=settings)
        run_id = uuid4()
        runs.add_run(session, run_id, plan, key=idempotency_key, request_hash=request_hash)
        events.add_event(session, run_id, "state", {"state": RunState.QUEUED, "attempt": 1})
        submitted = _submitted(session, run_id, plan, created=True)
    tracing.note(run_id=run_id)
    ring_after_commit(ring, run_id, plan.candidate.device)
    return submitted


def _submitted(session: Session, run_id: UUID, plan: Plan, *, created: bool) -> Submitted:
    return Submitted(
        run_id=run_id,
        created=created,
        coverage_gaps=plan.coverage_gaps,
        foresight=foresight_of(session, plan),
    )


def preview(sessions: Sessions, document: dict[str, Any] | Change, *, settings: Settings) -> Preview:
    """Say what a run of a change would do; store and start nothing. Raises InvalidInput."""
    change = read_change(with_reference(sessions, document), settings=settings)
    with transaction(sessions) as session:
        plan = resolve(session, change, settings=settings)
        seen = foresight_of(session, plan)
    flags = engine_flags(plan)
    arms = {"baseline": plan.baseline, "candidate": plan.candidate}
    return Preview(
        plan=plan,
        arms={role: _arm(arm, flags[role], plan) for role, arm in arms.items()},
        coverage_gaps=plan.coverage_gaps,
        foresight=seen,
    )


def _arm(arm: ArmPlan, flags: tuple[str, ...], plan: Plan) -> ArmPreview:
    shape, pool = arm.model.shape, None
    if shape is not None:
        question = MemoryQuestion(
            quantization=arm.config.quantization,
            eviction=arm.config.eviction,
            block_size=arm.config.scheduling.block_size,
            context=arm.max_model_len,
            decode_tokens=min(plan.change.deployment.decode_tokens or 0, arm.max_model_len - 1),
            concurrency=plan.concurrency,
        )
        pool = memory_account(shape, question).total_bytes
    return ArmPreview(flags=flags, kv_bytes_per_token=arm.predicted_kv_bytes_per_token, kv_pool_bytes=pool)


def _hash(change: Change) -> str:
    return hashlib.sha256(json.dumps(dump_change(change), sort_keys=True).encode()).hexdigest()
