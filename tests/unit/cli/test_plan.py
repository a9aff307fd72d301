"""`gatekeeper plan`, without a database."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_can_be_planned_and_are_covered(run: Run, path: Path) -> None:
    result = run("plan", path)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"plan  {path.stem} of smollm2-135m\n")
    assert "Coverage: the suite reaches all that the deployment declares" in result.stdout
    assert "640 tokens x 16" in result.stdout


def test_it_shows_bytes_argv_suite_and_policy(run: Run) -> None:
    text = run("plan", EXAMPLES / "fp8_e4m3.yaml").stdout
    assert "bytes per token  23,040     11,520     2.00x" in text
    assert "shape of the bundled model, not built yet" in text
    assert text.count("vllm serve") == 2
    assert "--kv-cache-dtype fp8_e4m3" in text
    assert "16 items, 8,192 tokens read, 2,048 decoded; 84 times what its easiest rule needs" in text
    assert "80 items: 20 each of gk_recall" in text
    assert "decode KL, nats/token" in text


def test_each_rule_says_whether_the_suite_can_decide_it(run: Run) -> None:
    text = run("plan", EXAMPLES / "fp8_e4m3.yaml").stdout
    assert "decidable: with 80 items and 9% flips (a planning value), a drop of 8.6 points shows" in text
    undecided = run("plan", EXAMPLES / "fp8_e4m3.yaml", "--policy", "default").stdout
    assert "NOT DECIDABLE: with 80 items and 9% flips (a planning value)" in undecided
    strict = run("plan", EXAMPLES / "fp8_e4m3.yaml", "--policy", "strict").stdout
    assert "accuracy change, points: worst" in strict
    assert "decode KL, nats/token: tokens 64-128" in strict


def test_prefix_caching_is_measured_cold_and_warm(run: Run) -> None:
    text = run("plan", EXAMPLES / "prefix_caching.yaml").stdout
    assert "cache states measured: cold, warm" in text
    assert "--no-enable-prefix-caching" in text
    assert "--enable-prefix-caching" in text


def test_what_the_suite_does_not_reach_is_a_gap(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.yaml"
    path.write_text(
        "model: smollm2-135m\ncandidate: {quantization: {scheme: fp8_e4m3}}\ndeployment: {max_context: 4096}\n"
    )
    text = run("plan", path).stdout
    assert "Coverage gaps: no PASS is possible (INVALID)" in text
    assert "max_context 4096 > 640 tokens reached" in text
    assert "The deployment declares no decode_tokens: the verdict speaks of sequences" in text


TOGETHER = """
model: smollm2-135m
candidate:
  quantization: {scheme: fp8_e4m3}
  eviction:
    policy: composed
    prompt: {policy: h2o, evicted_fraction: 0.5}
    decode: {policy: streaming_llm, sinks: 4, window: WINDOW}
deployment: {max_context: 640, decode_tokens: 128, concurrency: 16}
suite: smoke
policy: fast
"""


def test_policies_in_turn_go_to_the_reference_engine_and_each_has_to_be_reached(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "together.yaml"
    path.write_text(TOGETHER.replace("WINDOW", "316"))
    text = run("plan", path).stdout
    assert "engine: reference, vLLM does not implement composed" in text
    assert "640 tokens x 16  225.0 MiB  56.2 MiB" in text  # half the bytes of half the tokens
    assert "Coverage: the suite reaches all that the deployment declares" in text
    path.write_text(TOGETHER.replace("WINDOW", "600"))
    assert "streaming_llm while decoding keeps all of every sequence" in run("plan", path).stdout
    path.write_text("engine: vllm" + TOGETHER.replace("WINDOW", "316"))
    refused = run("plan", path)
    assert refused.exit_code == 4
    assert "candidate.eviction.policy" in refused.stderr


def test_a_serve_command_can_be_planned(run: Run) -> None:
    result = run(
        "plan", "--", "vllm", "serve", "smollm2-135m", "--kv-cache-dtype=fp8_e5m2", "--block-size", "32"
    )
    assert result.exit_code == 0
    assert "--kv-cache-dtype fp8_e5m2" in result.stdout


def test_an_unknown_model_is_refused_saying_that_the_registry_was_not_asked(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.yaml"
    path.write_text("model: llama\ncandidate: {quantization: {scheme: fp8_e4m3}}\n")
    result = run("plan", path)
    assert result.exit_code == 4
    assert "unknown 'llama' without the registry's database" in result.stderr


def test_a_database_that_does_not_answer_is_said_and_the_bundled_model_used(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    result = run("plan", EXAMPLES / "fp8_e4m3.yaml")
    assert result.exit_code == 0
    assert "the registry is not reachable" in result.stderr


def test_a_scheme_without_its_calibration_is_refused_with_the_command_that_makes_it(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "kvquant.yaml"
    path.write_text("model: smollm2-135m\ncandidate: {quantization: {scheme: kvquant, bits: 3}}\n")
    result = run("plan", path)
    assert result.exit_code == 4
    assert "candidate.quantization.calibration: there is no calibration of smollm2-135m" in result.stderr
    assert "gatekeeper calibrate smollm2-135m --scheme kvquant --bits 3" in result.stderr
