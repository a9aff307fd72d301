"""What a suite says of its retrieval probe before anything runs, and what it refuses."""

from typing import Any

import pytest
from pydantic import ValidationError

from gatekeeper import catalog
from gatekeeper.domain.documents import field_problems
from gatekeeper.domain.probes import RetrievalProbe
from gatekeeper.domain.suite import Suite
from workers.suites.context.families import FAMILIES


def suite(**fields: Any) -> Suite:
    probe = {
        "probe": "retrieval",
        "families": ["needle", "copy"],
        "context_tokens": [256, 700],
        "items_per_cell": 3,
    }
    return Suite.model_validate({"name": "s", "description": "", "probes": [probe | fields]})


def refused(**fields: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        suite(**fields)
    (problem,) = field_problems(caught.value, Suite)
    return str(problem)


def test_items_tokens_and_lengths_are_known_beforehand() -> None:
    made = suite()
    (probe,) = made.probes
    assert isinstance(probe, RetrievalProbe)
    assert probe.items == {"needle": 6, "copy": 6}
    assert probe.tokens == 2 * 3 * (256 + 700)
    assert (made.longest_request, made.quality_context, made.quality_decode) == (700, 700, 0)


def test_an_unknown_family_is_told_the_known_ones() -> None:
    told = refused(families=["needle", "haystack"])
    assert "unknown 'haystack'" in told
    assert all(family in told for family in FAMILIES)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"families": []}, "families"),
        ({"families": ["copy", "copy"]}, "families: an entry is there twice"),
        ({"context_tokens": [256, 256]}, "context_tokens: an entry is there twice"),
        ({"context_tokens": [100]}, "greater than or equal to 256"),
        ({"context_tokens": []}, "context_tokens"),
        ({"items_per_cell": 0}, "greater than or equal to 1"),
        ({"depths": [0.5]}, "unknown key"),
    ],
)
def test_what_cannot_be_measured_is_refused(fields: dict[str, Any], words: str) -> None:
    assert words in refused(**fields)


def test_the_suites_can_name_every_family_that_is_written() -> None:
    assert set(suite(families=sorted(FAMILIES)).probes[0].items) == set(FAMILIES)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["standard", "classic", "reuse", "deep"])
def test_bundled_suites_hold_every_family_and_enough_items_to_pass(name: str) -> None:
    (probe,) = (p for p in catalog.get_suite(name).probes if isinstance(p, RetrievalProbe))
    assert set(probe.families) == set(FAMILIES)
    assert sum(probe.items.values()) >= 32
