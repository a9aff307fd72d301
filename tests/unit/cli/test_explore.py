"""`gatekeeper explore` against a service that answers as the real one does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from gatekeeper.catalog import get_policy, get_suite
from gatekeeper.domain.documents import parse_change
from gatekeeper.domain.plan import make_plan
from gatekeeper.domain.verdict import Verdict
from gatekeeper.embedded.bundled_model import bundled_model
from tests.unit.cli.fake_service import RUN, FakeService
from tests.unit.reporting.samples import delta, document

Run = Callable[..., Result]
FILE = """
suite: smoke
policy: fast
deployment: {max_context: 640, decode_tokens: 128}
candidates:
  - {name: e4m3, candidate: {quantization: {scheme: fp8_e4m3}}}
  - {name: e5m2, candidate: {quantization: {scheme: fp8_e5m2}}}
  - {name: window, candidate: {eviction: {policy: sliding_window, window: 160}}}
  - {name: kivi, candidate: {quantization: {scheme: kivi, bits: 2}}}
"""
REFUSAL = {"field": "candidate.quantization", "problem": "vLLM has no KV cache for kivi", "allowed": "none"}


@pytest.fixture
def candidates(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(FILE)
    return path


def plan_of(candidate: dict[str, Any]) -> dict[str, Any]:
    change = parse_change(
        {"model": "smollm2-135m", "candidate": candidate, "suite": "smoke", "policy": "fast",
         "deployment": {"max_context": 640, "decode_tokens": 128}}
    )  # fmt: skip
    made = make_plan(
        change, model=bundled_model(Path("nowhere")), suite=get_suite("smoke"), policy=get_policy("fast"),
        device="cpu", allowed_arguments=frozenset(),
    )  # fmt: skip
    return {"plan": made.model_dump(mode="json")}


def finished(verdict: Verdict, nll: float, retrieved: float) -> dict[str, Any]:
    deltas = [delta("decode_nll", nll, None, None), delta("retrieval_accuracy", retrieved, None, None),
              delta("decode_kl", 0.5, None, None, mode="warm")]  # fmt: skip
    return document(verdict, deltas=[one.model_dump(mode="json") for one in deltas])


def plays(service: FakeService, *runs: dict[str, Any]) -> None:
    service.reply(
        "POST /api/v1/plan",
        plan_of({"quantization": {"scheme": "fp8_e4m3"}}),
        plan_of({"quantization": {"scheme": "fp8_e5m2"}}),
        plan_of({"eviction": {"policy": "sliding_window", "window": 160}}),
        (422, {"title": "Refused", "detail": "no", "errors": [REFUSAL]}),
    )
    service.plays(*runs)


def test_each_candidate_has_its_bytes_quality_and_verdict(
    service: FakeService, run: Run, candidates: Path
) -> None:
    plays(
        service,
        finished(Verdict.PASS, 0.028, -0.01),
        finished(Verdict.FAIL, 0.117, -0.05),
        finished(Verdict.FAIL, 0.30, -0.60),
    )
    result = run("explore", "smollm2-135m", "--candidates", candidates, "--server", service.url)
    assert result.exit_code == 0
    assert "baseline: 16 bit, full cache" in result.stdout
    table = [line.split() for line in result.stdout.splitlines()]
    assert ["*", "e4m3", "PASS", "11,520", "+0.0280", "-1.0"] in table
    assert ["e5m2", "FAIL", "11,520", "+0.1170", "-5.0"] in table
    assert ["*", "window", "FAIL", "5,760", "+0.3000", "-60.0"] in table
    assert ["kivi", "REFUSED", "-", "-", "-"] in table
    assert "The smallest cache that passes: e4m3, 11,520 bytes per token." in result.stdout
    assert "vLLM has no KV cache for kivi" in result.stdout
    assert len(service.bodies("POST /api/v1/runs")) == 3


def test_the_table_comes_as_json_and_markdown(
    service: FakeService, run: Run, candidates: Path, tmp_path: Path
) -> None:
    plays(service, finished(Verdict.FAIL, 0.5, -0.2))
    words = ("explore", "smollm2-135m", "--candidates", candidates, "--server", service.url)
    result = run(*words, "--format", "json")
    assert result.exit_code == 1
    shown = json.loads(result.stdout)
    assert (shown["name"], shown["context"], shown["baseline"]) == (
        "mine",
        640,
        {"kv_bytes_per_token": 23_040},
    )
    assert [one["on_front"] for one in shown["candidates"]] == [False, False, True, False]
    assert shown["candidates"][0]["run_id"] == "r-1"
    plays(service, finished(Verdict.PASS, 0.5, -0.2))
    target = tmp_path / "table.md"
    assert run(*words, "--format", "markdown", "--output", target).exit_code == 0
    assert "| \\* | window | PASS | 5,760 | +0.5000 | -20.0 |" in target.read_text()


def test_suite_and_policy_of_the_command_line_win(service: FakeService, run: Run, candidates: Path) -> None:
    plays(service, finished(Verdict.PASS, 0.5, -0.2))
    run(
        "explore",
        "m",
        "--candidates",
        candidates,
        "--server",
        service.url,
        "--suite",
        "deep",
        "--policy",
        "strict",
    )
    assert {
        (body["suite"], body["policy"], body["model"]) for body in service.bodies("POST /api/v1/plan")
    } == {("deep", "strict", "m")}


def test_if_all_are_refused_the_input_was(service: FakeService, run: Run, candidates: Path) -> None:
    service.reply("POST /api/v1/plan", (422, {"title": "Refused", "detail": "no", "errors": [REFUSAL]}))
    result = run("explore", "m", "--candidates", candidates, "--server", service.url)
    assert result.exit_code == 4
    assert "None of them passed." in result.stdout


def test_an_error_is_no_verdict(service: FakeService, run: Run, candidates: Path) -> None:
    plays(service, document(Verdict.ERROR))
    assert run("explore", "m", "--candidates", candidates, "--server", service.url).exit_code == 3
    assert service.bodies(f"POST {RUN}/cancel") == []


def test_a_wrong_file_or_name_is_refused_before_anything_runs(
    service: FakeService, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("candidates: [{name: a, candidate: {quantization: {scheme: int3}}}]\n")
    result = run("explore", "m", "--candidates", path, "--server", service.url)
    assert (result.exit_code, service.seen) == (4, [])
    assert "int3" in result.stderr
    assert "rag, reasoning, video" in run("explore", "m", "--preset", "no", "--server", service.url).stderr
    assert "exactly one of --preset" in run("explore", "m", "--server", service.url).stderr
