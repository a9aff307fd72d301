"""The lines of the baselines' page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from gatekeeper.services.baselines import BaselineView
from gatekeeper.storage.baselines import Dependents
from gatekeeper.web.kept import BaselineLine, baseline_lines
from tests.unit.web import samples

NOW = samples.NOW
RUN = UUID(int=7)


def line(**values: Any) -> BaselineLine:
    usual: dict[str, Any] = {
        "id": 1, "fingerprint": "f" * 64, "model": "m", "engine": None, "run_id": RUN, "baseline_arm_id": 2,
        "control_arm_id": 3, "created_at": NOW - timedelta(days=3), "pinned": False, "retired_at": None,
    }  # fmt: skip
    view = BaselineView(**usual | values)
    rests = Dependents(attempts=6, newest=((RUN, "fp8"), (UUID(int=8), "window")))
    [found] = baseline_lines([view], {1: rests}, max_age=timedelta(days=30), now=NOW)
    return found


@pytest.mark.parametrize(
    ("values", "state", "expires"),
    [
        ({}, "in use", "in 27 d"),
        ({"created_at": NOW - timedelta(days=31)}, "expired", "1 d ago"),
        ({"pinned": True, "created_at": NOW - timedelta(days=400)}, "pinned", None),
        ({"retired_at": NOW}, "retired", None),
    ],
)
def test_a_baseline_says_until_when_it_is_used(
    values: dict[str, Any], state: str, expires: str | None
) -> None:
    found = line(**values)
    assert (found.state, found.expires and found.expires.ago) == (state, expires)


def test_the_runs_that_rest_on_a_baseline_are_named() -> None:
    found = line()
    assert (found.attempts, found.runs[1]) == (6, (f"/runs/{UUID(int=8)}", "window"))
