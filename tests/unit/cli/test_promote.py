"""`gatekeeper promote` and `gatekeeper reference`."""

from __future__ import annotations

import json
from collections.abc import Callable

import yaml
from click.testing import Result

from tests.unit.cli.fake_service import RUN, FakeService

Run = Callable[..., Result]
PROMOTED = {
    "id": 1, "run_id": "r-1", "model": "org/m", "command": "vllm serve org/m --kv-cache-dtype fp8_e4m3",
    "flags": ["--kv-cache-dtype", "fp8_e4m3"], "measured_argv": ["python", "--model", "/m"],
}  # fmt: skip


def test_promoting_prints_what_to_roll_out(service: FakeService, run: Run) -> None:
    service.reply(f"POST {RUN}/promote", (201, PROMOTED))
    result = run("promote", "r-1", "--server", service.url)
    assert (result.exit_code, result.stdout) == (0, f"{PROMOTED['command']}\n")


def test_what_did_not_pass_is_refused(service: FakeService, run: Run) -> None:
    service.reply(f"POST {RUN}/promote", (409, {"title": "Only PASS", "detail": "run r-1 is FAIL"}))
    assert run("promote", "r-1", "--server", service.url).exit_code == 4


def test_the_reference_is_exported_in_several_forms(service: FakeService, run: Run) -> None:
    service.reply("GET /api/v1/references/org/m", PROMOTED)

    def export(name: str) -> str:
        return run("reference", "org/m", "--format", name, "--server", service.url).stdout

    assert yaml.safe_load(export("args")) == {"args": PROMOTED["flags"]}
    assert json.loads(export("measured")) == PROMOTED["measured_argv"]
    assert json.loads(export("json")) == PROMOTED
