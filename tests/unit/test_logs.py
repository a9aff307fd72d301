"""Logs as JSON lines."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any
from uuid import UUID

import pytest

from gatekeeper.logs import JsonFormatter, about_run

RUN_ID = UUID("3f2a91c0-1111-4222-8333-444455556666")


def line(message: str, *values: object, error: bool = False) -> dict[str, Any]:
    record = logging.LogRecord("gatekeeper.x", logging.WARNING, __file__, 1, message, values, None)
    if error:
        record.exc_info = sys.exc_info()
    written: dict[str, Any] = json.loads(JsonFormatter().format(record))
    return written


def test_a_line_is_one_object_with_time_level_and_message() -> None:
    written = line("engine says\n%s", "ü")
    assert (written["level"], written["logger"], written["message"]) == (
        "warning",
        "gatekeeper.x",
        "engine says\nü",
    )
    assert written["time"].endswith("+00:00")
    assert "run_id" not in written


@pytest.mark.parametrize(
    "message", [f"run {RUN_ID} failed", f'"GET /api/v1/runs/{RUN_ID}/events HTTP/1.1" 200']
)
def test_a_line_that_names_a_run_carries_its_id(message: str) -> None:
    assert line(message)["run_id"] == str(RUN_ID)


def test_lines_of_a_worker_carry_its_run_and_the_trace_of_what_went_wrong() -> None:
    with about_run(RUN_ID):
        written = _failing()
    assert written["run_id"] == str(RUN_ID)
    assert "ValueError: invalid literal" in written["exception"]
    assert "run_id" not in line("afterwards")


def _failing() -> dict[str, Any]:
    try:
        return {"number": int("x")}
    except ValueError:
        return line("failed", error=True)
