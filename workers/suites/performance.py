"""Serving speed by vLLM's own benchmark: rounds of random prompts at the deployed concurrency, the first discarded."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from gatekeeper.domain.measurement import Exercise, Measurement
from gatekeeper.domain.suite import PerformanceProbe
from workers.suites.base import PREEMPTIONS, Bench, exercised
from workers.suites.tool import run_tool

SUITE = "performance"
FIGURES: Final[Mapping[str, str]] = {
    "output_throughput_tok_s": "output_throughput",
    "ttft_p50_ms": "p50_ttft_ms",
    "ttft_p99_ms": "p99_ttft_ms",
    "itl_p50_ms": "p50_itl_ms",
    "itl_p99_ms": "p99_itl_ms",
}
"""Our metric -> the key in the benchmark's result."""


def run(probe: PerformanceProbe, bench: Bench) -> None:
    """Run the rounds and store one measurement per figure and round, and the requests that failed."""
    results = bench.workdir / "rounds"
    results.mkdir(exist_ok=True)
    total = probe.rounds + 1
    expected: Literal["moved", "still"] = (
        "moved" if probe.shared_prefix_tokens and "warm" in bench.modes else "still"
    )
    with (
        exercised(bench, suite=SUITE, mode="cold", expected=expected),
        exercised(bench, suite=SUITE, mode="cold", expected="any", counter=PREEMPTIONS),
    ):
        run_tool(
            bench,
            command(probe, bench, results),
            name="serving-benchmark",
            environment=bench.server.engine.environment(bench.server.plan, gpu=None)
            | {"OMP_NUM_THREADS": "1"},
            poll=partial(_report, bench, results, total),
        )
    failed = 0
    for number in range(1, total):
        result = json.loads((results / f"round-{number}.json").read_text(encoding="utf-8"))
        failed += failed_requests(result, probe)
        bench.sink.measurements(measurements_of(result, number, probe))
    proof = Exercise(suite=SUITE, mode="cold", counter="failed requests", moved=failed, expected="still")
    bench.sink.exercises([proof])
    bench.advance(total, total)


def _report(bench: Bench, results: Path, total: int) -> Literal[False]:
    """Say how many rounds are done; all are needed."""
    bench.advance(len(list(results.glob("round-*.json"))), total)
    return False


def failed_requests(result: Mapping[str, Any], probe: PerformanceProbe) -> int:
    """Requests of a round that came to nothing: failed, or without a token."""
    completed = int(result["completed"]) if int(result["total_output_tokens"]) else 0
    return probe.prompts - completed


def command(probe: PerformanceProbe, bench: Bench, results: Path) -> list[str]:
    """The benchmark's argv. Prompts end by length alone, so every arm does the same work."""
    model = bench.server.plan.model
    return [
        sys.executable, "-m", "workers.suites.serving_benchmark",
        "--rounds", str(probe.rounds + 1), "--seed", str(probe.seed), "--results", str(results), "--",
        "--backend", "openai", "--endpoint", "/v1/completions", "--base-url", bench.server.base_url,
        "--model", model.source, "--served-model-name", model.name,
        "--dataset-name", "random", "--num-prompts", str(probe.prompts),
        "--random-input-len", str(probe.input_tokens), "--random-output-len", str(probe.output_tokens),
        "--random-prefix-len", str(probe.shared_prefix_tokens), "--ignore-eos", "--temperature", "0",
        "--max-concurrency", str(bench.concurrency), "--request-rate", "inf",
        "--percentile-metrics", "ttft,itl,e2el", "--metric-percentiles", "50,90,99", "--disable-tqdm",
    ]  # fmt: skip


def measurements_of(result: Mapping[str, Any], number: int, probe: PerformanceProbe) -> list[Measurement]:
    """One round's figures. A round with failed requests measured nothing but that."""
    place = partial(Measurement.of, suite=SUITE, mode="cold", item_id=f"round-{number}", cluster="launch")
    failed = failed_requests(result, probe)
    figures = {} if failed else {metric: float(result[key]) for metric, key in FIGURES.items()}
    return [
        place(metric=metric, value=value) for metric, value in (figures | {"failed_requests": failed}).items()
    ]
