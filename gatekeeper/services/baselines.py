"""Baselines: measured once per fingerprint, then reused until they are old, refreshed or replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from gatekeeper.domain.errors import Conflict
from gatekeeper.domain.measurement import Role
from gatekeeper.services.views import View
from gatekeeper.storage import arms, baselines, runs
from gatekeeper.storage.arm_tables import ArmRow, BaselineRow
from gatekeeper.storage.base import NOW
from gatekeeper.storage.baselines import Dependents
from gatekeeper.storage.database import Sessions, transaction

SHOWN: Final = 5
"""Runs that rest on a baseline and are named."""
NONE: Final = Dependents(attempts=0, newest=())


class BaselineView(View):
    """A baseline as it is listed; `run_id` measured it."""

    id: int
    fingerprint: str
    model: str
    engine: dict[str, Any] | None
    run_id: UUID
    baseline_arm_id: int
    control_arm_id: int
    created_at: datetime
    pinned: bool
    retired_at: datetime | None


def find(sessions: Sessions, fingerprint: str, *, max_age: timedelta) -> tuple[int, int] | None:
    """(baseline arm id, control arm id) to reuse, or None: measure."""
    with transaction(sessions) as session:
        row = baselines.find_baseline(session, fingerprint, max_age=max_age)
        return None if row is None else (row.baseline_arm_id, row.control_arm_id)


def keep(
    sessions: Sessions,
    run_id: UUID,
    *,
    owner: str,
    fingerprint: str,
    baseline_arm_id: int,
    control_arm_id: int,
) -> bool:
    """Put two complete arms of this run into use for later ones, if both are sound; say whether they were.

    Raises LeaseLost and Conflict.
    """
    with transaction(sessions) as session:
        runs.get_held_run(session, run_id, owner)
        offered: tuple[tuple[Role, int], ...] = (("baseline", baseline_arm_id), ("control", control_arm_id))
        for role, arm_id in offered:
            arm = arms.get_arm(session, arm_id)
            if arm.role != role or not arm.complete or arm.run_id != run_id:
                raise Conflict(f"arm {arm_id} is not a complete {role} of run {run_id}")
            if not arms.load_record(session, role, arm).sound:
                return False
        baselines.add_baseline(
            session, fingerprint, baseline_arm_id=baseline_arm_id, control_arm_id=control_arm_id
        )
        return True


def list_baselines(sessions: Sessions, *, retired: bool = False, limit: int = 200) -> list[BaselineView]:
    """The newest baselines; `retired` adds those no longer in use."""
    with transaction(sessions) as session:
        return [
            _view(row, arm) for row, arm in baselines.list_baselines(session, retired=retired, limit=limit)
        ]


def list_dependents(sessions: Sessions, listed: Sequence[BaselineView]) -> Mapping[int, Dependents]:
    """By id of the baseline, what rests on it, with the newest SHOWN runs."""
    with transaction(sessions) as session:
        found = baselines.list_dependents(session, [view.baseline_arm_id for view in listed], newest=SHOWN)
    return {view.id: found.get(view.baseline_arm_id, NONE) for view in listed}


def expires_at(view: BaselineView, *, max_age: timedelta) -> datetime | None:
    """From when on it is measured anew instead of used; None for one that is pinned or retired."""
    return None if view.pinned or view.retired_at else view.created_at + max_age


def pin(sessions: Sessions, baseline_id: int) -> BaselineView:
    """Keep a baseline in use however old it gets. Raises NotFound, and Conflict if it is retired."""
    return _change(sessions, baseline_id, pinned=True)


def unpin(sessions: Sessions, baseline_id: int) -> BaselineView:
    """Let a baseline grow old again. Raises NotFound, and Conflict if it is retired."""
    return _change(sessions, baseline_id, pinned=False)


def refresh(sessions: Sessions, baseline_id: int) -> BaselineView:
    """Retire a baseline, pinned or not: the next run of its fingerprint measures anew. Raises like `pin`."""
    return _change(sessions, baseline_id, pinned=False, retired_at=NOW)


def _change(sessions: Sessions, baseline_id: int, **values: Any) -> BaselineView:
    with transaction(sessions) as session:
        row = baselines.get_active(session, baseline_id)
        for name, value in values.items():
            setattr(row, name, value)
        session.flush()
        session.refresh(row)
        return _view(row, arms.get_arm(session, row.baseline_arm_id))


def _view(row: BaselineRow, arm: ArmRow) -> BaselineView:
    return BaselineView(
        id=row.id,
        fingerprint=row.fingerprint,
        model=arm.plan["model"]["name"],
        engine=arm.engine,
        run_id=arm.run_id,
        baseline_arm_id=row.baseline_arm_id,
        control_arm_id=row.control_arm_id,
        created_at=row.created_at,
        pinned=row.pinned,
        retired_at=row.retired_at,
    )
