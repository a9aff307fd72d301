"""Looking back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import update

from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.run import RunState
from gatekeeper.domain.verdict import Outcome, Verdict
from gatekeeper.services import history
from gatekeeper.services.history import DeltaFilters, RunFilters
from gatekeeper.services.judge import judge
from gatekeeper.storage.database import transaction
from gatekeeper.storage.tables import RunRow
from tests.integration.services.seeds import World, a_report


def finished(world: World, verdict: Verdict = Verdict.PASS, **changed: Any) -> UUID:
    """A run with a verdict."""
    run_id = world.submit(**changed)
    world.claim(run_id)
    judge(world.sessions, run_id, owner="worker-1", decide=lambda _plan, _arms: a_report(verdict))
    return run_id


def ids(world: World, **filters: Any) -> list[UUID]:
    """The ids of one page."""
    return [run.run_id for run in history.list_runs(world.sessions, RunFilters(**filters)).items]


def test_pages_cover_every_run_once_while_new_ones_arrive(world: World) -> None:
    before = [world.submit() for _ in range(7)]
    seen: list[UUID] = []
    cursor: str | None = None
    while True:
        page = history.list_runs(world.sessions, RunFilters(limit=3, cursor=cursor))
        seen += [run.run_id for run in page.items]
        world.submit()
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == before[::-1]


def test_a_queued_run_says_how_many_are_ahead_of_it(world: World) -> None:
    first, second, third = (world.submit() for _ in range(3))
    world.claim(first)
    listed = {run.run_id: run.ahead for run in history.list_runs(world.sessions, RunFilters()).items}
    assert listed == {first: None, second: 0, third: 1}
    assert {run_id: history.get_run(world.sessions, run_id).ahead for run_id in listed} == listed


def test_a_run_in_a_list_is_named_by_what_it_changes(world: World) -> None:
    world.submit(candidate={"reuse": {"prefix_caching": True}})
    world.submit(candidate={"scheduling": {"block_size": 32}})
    shown = [run.candidate for run in history.list_runs(world.sessions, RunFilters()).items]
    assert shown == ["block_size=32", "prefix caching"]


def test_runs_of_the_same_instant_are_neither_lost_nor_repeated(world: World) -> None:
    before = {world.submit() for _ in range(6)}
    with transaction(world.sessions) as session:
        session.execute(update(RunRow).values(created_at=datetime(2026, 1, 1, tzinfo=UTC)))
    first = history.list_runs(world.sessions, RunFilters(limit=4))
    second = history.list_runs(world.sessions, RunFilters(limit=4, cursor=first.next_cursor))
    pages = [run.run_id for run in (*first.items, *second.items)]
    assert len(pages) == 6
    assert set(pages) == before
    assert second.next_cursor is None


def test_runs_are_filtered_by_what_is_asked(world: World) -> None:
    failed = finished(world, Verdict.FAIL, candidate={"quantization": {"scheme": "fp8_e5m2"}})
    passed = finished(world, name="chat: 50_off", ref={"author": "Ada", "commit": "3f2a91c"})
    queued = world.submit()
    assert ids(world, verdict="FAIL") == [failed]
    assert ids(world, scheme="fp8_e4m3") == [queued, passed]
    assert ids(world, state="queued") == [queued]
    assert ids(world, model="tiny", state=RunState.FINISHED) == [passed, failed]
    assert ids(world, model="other") == []
    assert ids(world, q="50_OFF") == [passed]
    assert ids(world, q="c_at") == ids(world, q="%") == []
    assert ids(world, q="ada") == ids(world, q="3f2a") == [passed]
    assert ids(world, q=str(failed)) == [failed]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert ids(world, since=later) == []
    assert len(ids(world, since=datetime(2020, 1, 1))) == 3  # noqa: DTZ001 - without offset it is UTC


@pytest.mark.parametrize("cursor", ["abc", "ä", "W10", "WyJ4IiwgInkiXQ", "bnVsbA", "e30", "WzEsIDJd"])
def test_a_cursor_that_no_page_gave_is_refused(world: World, cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        history.list_runs(world.sessions, RunFilters(cursor=cursor))
    with pytest.raises(InvalidInput, match="cursor"):
        history.list_deltas(world.sessions, DeltaFilters(cursor=cursor))


def test_deltas_are_found_across_runs(world: World) -> None:
    failed = finished(world, Verdict.FAIL, candidate={"quantization": {"scheme": "fp8_e5m2"}})
    passed = finished(world)
    assert _deltas(world, metric="decode_kl") == [(passed, "decode_kl"), (failed, "decode_kl")]
    assert _deltas(world, finding=Outcome.REGRESSED) == [(failed, "decode_kl")]
    assert {run_id for run_id, _ in _deltas(world, scheme="fp8_e4m3")} == {passed}
    assert _deltas(world, model="other") == []
    assert _deltas(world, since=datetime.now(UTC) + timedelta(hours=1)) == []


def _deltas(world: World, **filters: Any) -> list[tuple[UUID, str]]:
    page = history.list_deltas(world.sessions, DeltaFilters(**filters))
    return [(delta.run_id, delta.metric) for delta in page.items]


def test_pages_of_deltas_cover_each_once(world: World) -> None:
    for _ in range(3):
        finished(world)
    first = history.list_deltas(world.sessions, DeltaFilters(limit=4))
    second = history.list_deltas(world.sessions, DeltaFilters(limit=4, cursor=first.next_cursor))
    assert len({delta.id for delta in (*first.items, *second.items)}) == 6
    assert second.next_cursor is None


def test_events_continue_after_the_last_one_seen(world: World) -> None:
    run_id = world.submit()
    first = history.events_after(world.sessions, run_id, 0)
    assert not first.last
    world.claim(run_id)
    second = history.events_after(world.sessions, run_id, first.events[-1].seq)
    assert [event.payload["state"] for event in second.events] == ["running"]


def test_runs_are_found_by_where_they_come_from_and_when(world: World) -> None:
    mine = world.submit(ref={"repo": "serving", "commit": "3f2a91c0", "author": "Ada"})
    window = world.submit(candidate={"eviction": {"policy": "sliding_window", "window": 128}})
    with transaction(world.sessions) as session:
        session.execute(
            update(RunRow).where(RunRow.id == mine).values(created_at=datetime(2026, 1, 2, tzinfo=UTC))
        )
    assert ids(world, author="Ada") == ids(world, ref="serving") == ids(world, ref="3f2a") == [mine]
    assert ids(world, ref="f2a") == ids(world, ref="serv") == ids(world, author="ada") == []
    assert ids(world, eviction="sliding_window") == [window]
    assert ids(world, until=datetime(2026, 1, 3, tzinfo=UTC)) == [mine]
    assert ids(world, since=datetime(2026, 1, 3, tzinfo=UTC)) == [window]


def test_a_list_shows_headlines_and_their_course(world: World) -> None:
    runs = [finished(world) for _ in range(3)]
    shown = history.list_runs_with_figures(world.sessions, RunFilters())
    assert [run.run_id for run in shown.page.items] == runs[::-1]
    headline = shown.headlines[runs[0], "decode_kl"]
    assert (headline.estimate, headline.finding, headline.severity) == (0.027, Outcome.PASSED, "block")
    assert [len(shown.trends[run_id]) for run_id in runs] == [1, 2, 3]
    older = history.list_runs_with_figures(
        world.sessions,
        RunFilters(limit=1, cursor=history.list_runs(world.sessions, RunFilters(limit=1)).next_cursor),
    )
    assert list(older.trends) == [runs[1]]
    nothing = history.list_runs_with_figures(world.sessions, RunFilters(q="nobody wrote this"))
    assert (nothing.page.items, nothing.headlines, nothing.trends) == ((), {}, {})
