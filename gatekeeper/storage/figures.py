"""Figures about the service itself, for its metrics. Every query looks at little: an index, or the last day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from sqlalchemy import text
from sqlalchemy.orm import Session

Rows: TypeAlias = list[tuple[Any, ...]]

_QUEUE: Final = """
select device, state, count(*), coalesce(extract(epoch from clock_timestamp() - min(queued_at)), 0)
from runs where state in ('queued', 'running') group by device, state
"""
_VERDICTS: Final = """
select payload->>'verdict', count(*) from events where kind = 'state' and payload ? 'verdict' group by 1
"""
_DURATIONS: Final = """
select verdict, width_bucket(extract(epoch from finished_at - started_at), cast(:bounds as float8[])) as place,
    count(*), coalesce(sum(extract(epoch from finished_at - started_at)), 0)
from runs where state = 'finished' and started_at is not null group by verdict, place
"""
_STAGES: Final = """
with spans as (
    select coalesce(events.payload->>'arm', '') as arm, events.payload->>'stage' as stage,
        events.run_id, min(events.at) as began
    from runs join events on events.run_id = runs.id and events.kind = 'progress'
    where runs.created_at > now() - interval '2 days' and runs.finished_at > now() - interval '1 day'
    group by events.run_id, 1, 2
), ended as (
    select arm, stage, extract(epoch from coalesce(
        lead(began) over (partition by run_id order by began),
        (select finished_at from runs where runs.id = run_id)) - began) as seconds
    from spans
)
select arm, stage, count(*), percentile_cont(array[0.5, 0.95]) within group (order by seconds)
from ended group by arm, stage
"""
_FAILURES: Final = """
select role, failure->>'kind', count(*) from arms where failure is not null group by 1, 2
"""
_TAKEOVERS: Final = "select coalesce(sum(takeovers), 0) from runs"
_DELIVERIES: Final = """
select case when delivered_at is not null then 'arrived' when given_up_at is not null then 'given up'
    else 'waiting' end as state, count(*) from deliveries group by 1
"""
_WAIVERS: Final = "select count(*) from waivers where revoked_at is null and expires_at > now()"


def queue(session: Session) -> Rows:
    """(device, state, runs, age in seconds of the one that waits or runs longest)."""
    return _rows(session, _QUEUE)


def verdicts(session: Session) -> Rows:
    """(verdict, how often a run came to it)."""
    return _rows(session, _VERDICTS)


def durations(session: Session, bounds: Sequence[float]) -> Rows:
    """(verdict, number of the bucket between `bounds`, runs, seconds from first claim to verdict, summed)."""
    return _rows(session, _DURATIONS, bounds=list(bounds))


def stages(session: Session) -> Rows:
    """(arm, stage, how often, [median, 95th percentile] of its seconds) of the runs that finished within a day."""
    return _rows(session, _STAGES)


def failures(session: Session) -> Rows:
    """(role, kind, arms that failed so)."""
    return _rows(session, _FAILURES)


def takeovers(session: Session) -> int:
    """Leases that expired, of all present submissions."""
    return int(_rows(session, _TAKEOVERS)[0][0])


def deliveries(session: Session) -> Rows:
    """(state, messages of webhooks)."""
    return _rows(session, _DELIVERIES)


def waivers_in_force(session: Session) -> int:
    """Waivers that have neither expired nor been revoked."""
    return int(_rows(session, _WAIVERS)[0][0])


def _rows(session: Session, statement: str, **values: Any) -> Rows:
    return [tuple(row) for row in session.execute(text(statement), values)]
