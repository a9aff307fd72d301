"""`runs`, `show`, `deltas`, `baseline`, `retry`, `cancel`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from gatekeeper.domain.verdict import Verdict
from tests.unit.cli.fake_service import RUN, FakeService
from tests.unit.reporting.samples import KL, document

Run = Callable[..., Result]
SUMMARY = {
    "run_id": "0b9d7a0e-1111", "verdict": "FAIL", "state": "finished", "name": "fp8_e5m2", "model": "smollm2-135m",
    "created_at": "2026-11-30T12:00:00+00:00",
}  # fmt: skip


def test_runs_are_listed_with_their_verdicts(service: FakeService, run: Run) -> None:
    unfinished = SUMMARY | {"verdict": None, "state": "running"}
    service.reply("GET /api/v1/runs", {"items": [SUMMARY, unfinished], "next_cursor": "abc"})
    result = run("runs", "--server", service.url, "--verdict", "FAIL", "--since", "2026-11-01")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1].split()[:3] == ["FAIL", "fp8_e5m2", "smollm2-135m"]
    assert lines[2].split()[0] == "running"
    assert lines[3] == "more: --cursor abc"
    assert service.seen[0][0] == "GET /api/v1/runs?verdict=FAIL&since=2026-11-01&limit=20"


def test_no_runs_are_said_to_be_none(service: FakeService, run: Run) -> None:
    service.reply("GET /api/v1/runs", {"items": [], "next_cursor": None})
    assert run("runs", "--server", service.url).stdout == "nothing found\n"


def test_the_services_own_answer_can_be_had(service: FakeService, run: Run) -> None:
    page = {"items": [SUMMARY], "next_cursor": None}
    service.reply("GET /api/v1/runs", page)
    assert json.loads(run("runs", "--server", service.url, "--json").stdout) == page


def test_deltas_are_listed_in_their_units(service: FakeService, run: Run) -> None:
    item = KL.model_dump(mode="json") | {
        "finding": "Regressed",
        "label": "fp8_e5m2",
        "model": "m",
        "run_id": "0b9d7a0e-1",
    }
    service.reply("GET /api/v1/deltas", {"items": [item], "next_cursor": None})
    [_, line] = run("deltas", "--server", service.url, "--metric", "decode_kl").stdout.splitlines()
    assert " ".join(line.split()) == "decode KL, nats/token cold all 0.0271 Regressed fp8_e5m2 m 0b9d7a0e-1"


def test_a_report_can_be_shown_again_whatever_the_verdict(service: FakeService, run: Run) -> None:
    service.reply(f"GET {RUN}", document(Verdict.FAIL))
    result = run("show", "r-1", "--server", service.url)
    assert (result.exit_code, result.stdout.splitlines()[0]) == (0, "FAIL  fp8_e4m3")
    assert f"{service.url}/runs/r-1" in result.stdout


def test_waiting_for_a_run_ends_by_its_verdict(service: FakeService, run: Run) -> None:
    service.reply(f"GET {RUN}", document(Verdict.FAIL))
    assert run("show", "--wait", "r-1", "--server", service.url).exit_code == 1


def test_an_unknown_run_is_refused(service: FakeService, run: Run) -> None:
    assert run("show", "r-9", "--server", service.url).exit_code == 4


def test_retry_and_cancel_tell_the_new_state(service: FakeService, run: Run) -> None:
    service.reply(f"POST {RUN}/retry", (202, document(None, state="queued")))
    service.reply(f"POST {RUN}/cancel", (202, document(None)))
    assert "fp8_e4m3 is queued" in run("retry", "r-1", "--server", service.url).stdout
    assert "told to stop" in run("cancel", "r-1", "--server", service.url).stdout


def test_a_retry_that_makes_no_sense_is_refused(service: FakeService, run: Run) -> None:
    service.reply(f"POST {RUN}/retry", (409, {"detail": "the run is not in ERROR"}))
    result = run("retry", "r-1", "--server", service.url)
    assert result.exit_code == 4
    assert "the run is not in ERROR" in result.stderr


@pytest.mark.parametrize("verb", ["pin", "unpin", "refresh"])
def test_baselines_can_be_changed(service: FakeService, run: Run, verb: str) -> None:
    service.reply(f"POST /api/v1/baselines/7/{verb}", {"id": 7})
    result = run("baseline", verb, "7", "--server", service.url)
    assert result.exit_code == 0
    assert result.stdout.startswith("baseline 7 is ")


def test_baselines_are_listed(service: FakeService, run: Run) -> None:
    item = {
        "id": 7,
        "model": "m",
        "pinned": True,
        "created_at": "2026-11-30T12:00:00Z",
        "fingerprint": "f" * 64,
        "run_id": "r",
    }
    service.reply("GET /api/v1/baselines", {"items": [item]})
    [_, line] = run("baseline", "list", "--server", service.url).stdout.splitlines()
    assert line.split()[:3] == ["7", "m", "yes"]
    assert "ffffffffffff" in line


def test_without_a_service_the_way_to_one_is_named(run: Run) -> None:
    result = run("runs")
    assert result.exit_code == 3
    assert "gatekeeper up" in result.stderr


def test_deltas_are_exported_to_a_file_whose_name_says_the_format(
    service: FakeService, run: Run, tmp_path: Path
) -> None:
    service.reply("GET /api/v1/export/deltas", "id,run_id\r\n")
    target = tmp_path / "deltas.csv"
    assert run("deltas", "--metric", "accuracy", "--export", target, "--server", service.url).exit_code == 0
    assert target.read_bytes() == b"id,run_id\r\n"
    assert service.seen[0][0] == "GET /api/v1/export/deltas?format=csv&metric=accuracy"
    assert run("deltas", "--export", tmp_path / "deltas.xlsx", "--server", service.url).exit_code == 4
