"""What two arms measured on the same items, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, FromClause, and_, func, or_, select, tuple_
from sqlalchemy.orm import Session

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.measurement import Mode, TokenTrace
from gatekeeper.storage.arm_tables import AnswerRow, MeasurementRow, TraceRow
from gatekeeper.storage.codec import load_answer, load_trace

KEY: Final = ("suite", "mode", "item_id", "metric")
Flip = Literal["lost", "gained", "any"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ItemPair:
    """One figure of one item in both arms. None: that arm has none; `reason`: why a stored one has no value."""

    suite: str
    mode: Mode
    item_id: str
    metric: str
    task: str
    context_tokens: int | None
    baseline: float | None
    candidate: float | None
    reason: str | None


class _Sides:
    """The two arms' measurements, joined by item; a figure that only one of them has is there too."""

    def __init__(self, baseline_arm_id: int, candidate_arm_id: int) -> None:
        self.before = select(MeasurementRow).where(MeasurementRow.arm_id == baseline_arm_id).subquery()
        self.after = select(MeasurementRow).where(MeasurementRow.arm_id == candidate_arm_id).subquery()

    def either(self, name: str) -> ColumnElement[Any]:
        """What both arms say alike."""
        return func.coalesce(self.before.c[name], self.after.c[name])

    def flipped(self, way: Flip) -> ColumnElement[bool]:
        """Whether a figure fell from above zero (`lost`), rose from it (`gained`), or either."""
        before, after = self.before.c.value, self.after.c.value
        lost, gained = and_(before > 0, after <= 0), and_(before <= 0, after > 0)
        return {"lost": lost, "gained": gained, "any": or_(lost, gained)}[way]

    @property
    def joined(self) -> FromClause:
        """Both arms' rows."""
        same = and_(*(self.before.c[name] == self.after.c[name] for name in KEY))
        return self.before.join(self.after, same, full=True)


CONDITIONS: Final[Mapping[str, Callable[[_Sides, Any], ColumnElement[bool]]]] = {
    "suite": lambda sides, value: sides.either("suite") == value,
    "mode": lambda sides, value: sides.either("mode") == value,
    "task": lambda sides, value: sides.either("cluster") == value,
    "metric": lambda sides, value: sides.either("metric") == value,
    "metrics": lambda sides, values: sides.either("metric").in_(values),
    "items": lambda sides, values: sides.either("item_id").in_(values),
    "context_from": lambda sides, value: sides.either("context_tokens") >= value,
    "context_to": lambda sides, value: sides.either("context_tokens") < value,
    "flip": lambda sides, value: sides.flipped(value),
}
"""What can be asked for. An item of unknown length meets no condition on its context."""


def list_pairs(
    session: Session,
    arm_ids: tuple[int, int],
    conditions: Mapping[str, Any],
    *,
    after: Sequence[str] | None = None,
    limit: int,
) -> list[ItemPair]:
    """Figures of (baseline, candidate) that meet all conditions, in the byte order of KEY."""
    sides = _Sides(*arm_ids)
    key = [sides.either(name).collate("C") for name in KEY]
    statement = select(
        *(sides.either(name).label(name) for name in (*KEY, "context_tokens")),
        sides.either("cluster").label("task"),
        sides.before.c.value.label("baseline"),
        sides.after.c.value.label("candidate"),
        func.coalesce(sides.after.c.reason, sides.before.c.reason).label("reason"),
    )
    met = [CONDITIONS[name](sides, value) for name, value in conditions.items()]
    if after is not None:
        met.append(tuple_(*key) > tuple_(*after))
    rows = session.execute(statement.select_from(sides.joined).where(*met).order_by(*key).limit(limit))
    return [ItemPair(**row) for row in rows.mappings()]


def list_traces(
    session: Session, arm_ids: Sequence[int], *, mode: str | None = None, item_id: str | None = None
) -> dict[int, list[TokenTrace]]:
    """The scored tokens of these arms, by arm and in byte order of mode and item; of one mode or item, if named."""
    row = TraceRow
    wanted: list[ColumnElement[bool]] = [row.arm_id.in_(arm_ids)]
    wanted += [row.mode == mode] if mode is not None else []
    wanted += [row.item_id == item_id] if item_id is not None else []
    columns = select(row.arm_id, row.suite, row.mode, row.item_id, row.cluster, row.batch, row.payload)
    ordered = columns.where(*wanted).order_by(row.mode.collate("C"), row.item_id.collate("C"))
    found: dict[int, list[TokenTrace]] = {arm_id: [] for arm_id in arm_ids}
    for entry in session.execute(ordered).mappings():
        fields = dict(entry)
        found[fields.pop("arm_id")].append(load_trace(**fields))
    return found


def list_answers(
    session: Session, arm_ids: Sequence[int], places: Sequence[tuple[str, str, str]]
) -> dict[tuple[int, str, str, str], Answer]:
    """What these arms said at these places (suite, mode, item), by arm and place; arms of old runs said nothing."""
    row = AnswerRow
    place = (row.suite, row.mode, row.item_id)
    wanted = row.arm_id.in_(arm_ids), tuple_(*place).in_(places)
    rows = session.execute(select(row.arm_id, *place, row.payload).where(*wanted)) if places else ()
    return {
        (arm_id, suite, mode, item_id): load_answer(suite=suite, mode=mode, item_id=item_id, payload=payload)
        for arm_id, suite, mode, item_id, payload in rows
    }
