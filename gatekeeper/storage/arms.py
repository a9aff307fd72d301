"""Arms and what was measured on them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

from sqlalchemy import and_, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.errors import Conflict, LeaseLost, NotFound
from gatekeeper.domain.measurement import Measurement, Role, TokenTrace
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import EngineInfo
from gatekeeper.storage.arm_tables import AnswerRow, ArmRow, MeasurementRow, RunArmRow, TraceRow
from gatekeeper.storage.base import Json
from gatekeeper.storage.codec import (
    dump_answer,
    dump_trace,
    load_effective,
    load_exercise,
    load_failure,
    load_stop,
    load_trace,
)
from gatekeeper.storage.tables import RunRow


def add_arm(
    session: Session, run: RunRow, *, role: Role, plan: ArmPlan, argv: Sequence[str], fingerprint: str | None
) -> int:
    """Add an arm that plays `role` in the run's present attempt; return its id."""
    arm = ArmRow(
        run_id=run.id,
        attempt=run.attempt,
        role=role,
        fingerprint=fingerprint,
        plan=plan.model_dump(mode="json"),
        argv=list(argv),
    )
    session.add(arm)
    session.flush()
    set_role(session, run, role, arm.id)
    return arm.id


def set_role(session: Session, run: RunRow, role: Role, arm_id: int) -> None:
    """Let an arm, whoever launched it, play `role` in the run's present attempt."""
    statement = upsert(RunArmRow).values(run_id=run.id, attempt=run.attempt, role=role, arm_id=arm_id)
    keys = [RunArmRow.run_id, RunArmRow.attempt, RunArmRow.role]
    session.execute(statement.on_conflict_do_update(index_elements=keys, set_={"arm_id": arm_id}))


def get_arm(session: Session, arm_id: int) -> ArmRow:
    """The arm. Raises NotFound."""
    row = session.get(ArmRow, arm_id)
    if row is None:
        raise NotFound(f"arm {arm_id}")
    return row


def get_held_arm(session: Session, arm_id: int, owner: str) -> ArmRow:
    """The arm of a run that `owner` holds, in its present attempt; locks the run. Raises LeaseLost."""
    held = and_(
        ArmRow.id == arm_id,
        RunRow.state == RunState.RUNNING,
        RunRow.lease_owner == owner,
        RunRow.attempt == ArmRow.attempt,
    )
    statement = select(ArmRow).join(RunRow, RunRow.id == ArmRow.run_id).where(held)
    row = session.scalars(statement.with_for_update(of=RunRow, key_share=True)).one_or_none()
    if row is None:
        raise LeaseLost(f"arm {arm_id}, worker {owner}")
    return row


def set_columns(session: Session, arm_id: int, **values: Any) -> None:
    """Change columns of an arm."""
    session.execute(update(ArmRow).where(ArmRow.id == arm_id).values(**values))


def add_measurements(session: Session, arm_id: int, measurements: Sequence[Measurement]) -> None:
    """Add measurements in bulk. Raises Conflict if one is there already."""
    rows = [
        {
            **_place(arm_id, measurement),
            "metric": measurement.metric,
            "cluster": measurement.cluster,
            "value": measurement.value,
            "reason": measurement.reason,
            "batch": measurement.batch,
            "context_tokens": measurement.context_tokens,
        }
        for measurement in map(_finite, measurements)
    ]
    _add_all(session, MeasurementRow, rows)


def add_traces(session: Session, arm_id: int, traces: Sequence[TokenTrace]) -> None:
    """Add traces in bulk. Raises Conflict if one is there already."""
    rows = [
        {
            **_place(arm_id, trace),
            "cluster": trace.cluster,
            "batch": trace.batch,
            "payload": dump_trace(trace),
        }
        for trace in traces
    ]
    _add_all(session, TraceRow, rows)


def add_answers(session: Session, arm_id: int, answers: Sequence[Answer]) -> None:
    """Add answers in bulk. Raises Conflict if one is there already."""
    rows = [{**_place(arm_id, answer), "payload": dump_answer(answer)} for answer in answers]
    _add_all(session, AnswerRow, rows)


def _place(arm_id: int, row: Measurement | TokenTrace | Answer) -> Json:
    """The columns that say what a row is of."""
    return {"arm_id": arm_id, "suite": row.suite, "mode": row.mode, "item_id": row.item_id}


def _add_all(session: Session, table: type[MeasurementRow | TraceRow | AnswerRow], rows: list[Json]) -> None:
    if not rows:
        return
    try:
        session.connection().execute(insert(table), rows)
    except IntegrityError as error:
        raise Conflict(f"{table.__tablename__}: {error.orig}") from error


def _finite(measurement: Measurement) -> Measurement:
    """The same with its value checked: whoever builds one without `Measurement.of` may have let NaN in."""
    value = measurement.value
    if value is None:
        return replace(measurement, reason=measurement.reason or "no value")
    return (
        measurement
        if math.isfinite(value)
        else replace(measurement, value=None, reason=f"the value is {value}")
    )


def list_arms(session: Session, run_id: UUID, attempt: int) -> list[tuple[Role, ArmRow]]:
    """The arms of an attempt with the roles they play, the candidate last."""
    statement = (
        select(RunArmRow.role, ArmRow)
        .join(ArmRow, ArmRow.id == RunArmRow.arm_id)
        .where(RunArmRow.run_id == run_id, RunArmRow.attempt == attempt)
    )
    rows = dict(session.execute(statement).all())
    order: tuple[Role, ...] = ("baseline", "control", "candidate")
    return [(role, rows[role]) for role in order if role in rows]


def list_roles(session: Session, run_id: UUID, attempt: int) -> dict[str, int]:
    """By role, the id of the arm that plays it in an attempt."""
    played = select(RunArmRow.role, RunArmRow.arm_id).where(
        RunArmRow.run_id == run_id, RunArmRow.attempt == attempt
    )
    return dict(session.execute(played).all())


def list_dead_roles(session: Session, run_id: UUID, *, before_attempt: int) -> frozenset[Role]:
    """The roles whose engine died or stalled after a good start in earlier attempts of the run."""
    kind = ArmRow.failure["kind"].astext
    statement = select(ArmRow.role).where(
        ArmRow.run_id == run_id, ArmRow.attempt < before_attempt, kind.in_(("died", "stalled"))
    )
    return frozenset(cast("Role", role) for role in session.scalars(statement))


def load_records(session: Session, run_id: UUID, attempt: int) -> Mapping[Role, ArmRecord]:
    """Everything that judging an attempt needs."""
    return {role: load_record(session, role, arm) for role, arm in list_arms(session, run_id, attempt)}


def load_record(session: Session, role: Role, arm: ArmRow) -> ArmRecord:
    """An arm with everything that was measured on it."""
    return ArmRecord(
        role=role,
        plan=ArmPlan.model_validate(arm.plan),
        argv=tuple(arm.argv),
        engine=EngineInfo.model_validate(arm.engine) if arm.engine is not None else None,
        effective=load_effective(arm.effective) if arm.effective is not None else None,
        measurements=_measurements(session, arm.id),
        traces=_traces(session, arm.id),
        exercises=tuple(load_exercise(document) for document in arm.exercises),
        skipped=tuple((probe, reason) for probe, reason in arm.skipped),
        stops=tuple(load_stop(document) for document in arm.stops),
        failure=load_failure(arm.failure) if arm.failure is not None else None,
        complete=arm.complete,
    )


def _measurements(session: Session, arm_id: int) -> tuple[Measurement, ...]:
    row = MeasurementRow
    about = (row.suite, row.mode, row.item_id, row.cluster, row.metric, row.batch, row.context_tokens)
    columns = select(*about, row.value, row.reason)
    ordered = columns.where(row.arm_id == arm_id).order_by(
        *_in_byte_order(row.suite, row.mode, row.item_id, row.metric)
    )
    return tuple(Measurement(**entry) for entry in session.execute(ordered).mappings())


def _traces(session: Session, arm_id: int) -> tuple[TokenTrace, ...]:
    row = TraceRow
    columns = select(row.suite, row.mode, row.item_id, row.cluster, row.batch, row.payload)
    ordered = columns.where(row.arm_id == arm_id).order_by(*_in_byte_order(row.suite, row.mode, row.item_id))
    return tuple(load_trace(**entry) for entry in session.execute(ordered).mappings())


def _in_byte_order(*columns: Any) -> list[Any]:
    """An order that no database's locale changes: the last bit of a sum of floats depends on it."""
    return [column.collate("C") for column in columns]
