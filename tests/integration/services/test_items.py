"""Both arms' figures, item by item, from a real database."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from gatekeeper.domain.errors import NotFound
from gatekeeper.services import items
from gatekeeper.services.items import ItemFilters
from gatekeeper.services.models import register_model
from gatekeeper.storage.database import transaction
from tests.e2e.stored_runs import finished_run, running_run
from tests.integration.services.seeds import World
from tests.unit.web import samples


def test_items_are_paired_filtered_and_paged(world: World) -> None:
    register_model(world.sessions, samples.MODEL)
    run_id = finished_run(world.sessions, world.settings, samples.window())
    first = items.list_items(world.sessions, run_id, ItemFilters(metric="retrieved", flip="lost", limit=5))
    rest = items.list_items(
        world.sessions, run_id, ItemFilters(metric="retrieved", flip="lost", cursor=first.next_cursor)
    )
    found = [*first.items, *rest.items]
    assert (len(first.items), len(found), rest.next_cursor) == (5, 12, None)
    assert {(item.baseline, item.candidate) for item in found} == {(1.0, 0.0)}
    assert [item.item_id for item in found] == sorted({item.item_id for item in found})
    assert {item.answers for item in found} == {None}
    gained = items.list_items(world.sessions, run_id, ItemFilters(flip="gained", task="gk_facts"))
    assert [item.item_id for item in gained.items] == ["gk_facts/0"]


def test_items_are_filtered_by_the_tokens_of_their_context(world: World) -> None:
    register_model(world.sessions, samples.MODEL)
    run_id = finished_run(world.sessions, world.settings, samples.window())
    _note_lengths(world)

    def lengths(**bounds: Any) -> set[str]:
        asked = ItemFilters(limit=200, **bounds)
        return {item.item_id.split("/")[1] for item in items.list_items(world.sessions, run_id, asked).items}

    assert lengths(context_from=512) == {"512", "1024"}
    assert lengths(context_to=512) == {"256"}
    assert lengths(context_from=512, context_to=1024) == {"512"}
    assert lengths(context_from=1025) == set()


def _note_lengths(world: World) -> None:
    """As real measurements of retrieval have them; the others keep none."""
    with transaction(world.sessions) as session:
        session.execute(
            text(
                "update measurements set context_tokens = cast(split_part(item_id, '/', 2) as integer)"
                " where suite = 'retrieval'"
            )
        )


def test_what_both_arms_said_comes_where_it_is_asked_for(world: World) -> None:
    register_model(world.sessions, samples.MODEL)
    run_id = finished_run(world.sessions, world.settings, samples.window())
    asked = ItemFilters(metric="retrieved", flip="lost", include="answers", limit=1)
    (answers,) = (item.answers for item in items.list_items(world.sessions, run_id, asked).items)
    assert answers is not None
    assert (answers.expected, answers.differ_at) == (" 417", 3)
    assert ("".join(answers.baseline.pieces), "".join(answers.candidate.pieces)) == (" 417", " 419")
    assert answers.candidate.chances[3][0] == ("9", 0.41)
    _forget_answers(world, run_id)
    assert [item.answers for item in items.list_items(world.sessions, run_id, asked).items] == [None]


def _forget_answers(world: World, run_id: UUID) -> None:
    """As runs are that were measured before answers were kept."""
    with transaction(world.sessions) as session:
        session.execute(
            text("delete from answers using arms where id = arm_id and run_id = :run_id"), {"run_id": run_id}
        )


def test_partings_and_tokens_come_from_the_stored_traces(world: World) -> None:
    register_model(world.sessions, samples.MODEL)
    run_id = finished_run(world.sessions, world.settings, samples.failing())
    partings = items.list_partings(world.sessions, run_id, items.PartingFilters())
    assert len(partings) == samples.DOCUMENTS
    baseline, candidate, parting = items.get_tokens(world.sessions, run_id, mode="cold", item_id="doc-03")
    assert parting in partings
    assert parting.first is not None
    assert baseline.top_ids[parting.first][0] != candidate.top_ids[parting.first][0]
    with pytest.raises(NotFound, match="doc-99"):
        items.get_tokens(world.sessions, run_id, mode="cold", item_id="doc-99")


def test_a_run_without_both_arms_has_no_items(world: World) -> None:
    register_model(world.sessions, samples.MODEL)
    run_id = running_run(world.sessions, world.settings, "early")
    assert items.list_items(world.sessions, run_id, ItemFilters(metric="nothing")).items == ()
    with pytest.raises(NotFound):
        items.list_items(world.sessions, uuid4(), ItemFilters())
