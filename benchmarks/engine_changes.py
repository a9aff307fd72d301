"""What the changes that vLLM itself can run cost in every suite: real gates, one after the other, against one baseline.

    python benchmarks/engine_changes.py STORE [CANDIDATE ...]     # gates them all, or those named; keeps each report
    python benchmarks/engine_changes.py STORE --table             # prints the table of docs/suites.md
    python benchmarks/engine_changes.py STORE --suite engine_speed [--table]  # the same of speed, on an idle machine

Reports that are in STORE are not measured again. Candidates and suites are in `engine_changes/`, the service is an
embedded one under GATEKEEPER_HOME, so the bundled model has to be there (`make env`, `scripts/bootstrap.py model`).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from gatekeeper.cli.environment import embedded_service, load_settings
from gatekeeper.cli.gating import gate_change
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.policy import ALL
from gatekeeper.domain.preset import Preset
from gatekeeper.domain.verdict import Delta

FOLDER: Final = Path(__file__).parent / "engine_changes"
MODEL: Final = "smollm2-135m"
QUALITY: Final = (
    ("decode KL after 1,280 tokens of context, cold", "decode_kl", "cold"),
    ("– warm", "decode_kl", "warm"),
    ("– after 256: the first batch", "decode_kl", "first_batch"),
    ("– block boundary", "decode_kl", "boundary"),
    ("– greedy continuation", "decode_kl", "greedy"),
    ("– scored as prefill", "decode_kl", "prefill"),
    ("– saturated pool", "decode_kl", "saturated"),
    ("– after 1,024 in four pieces", "decode_kl", "chunked"),
    ("KL of the warm cache to its own cold one", "consistency_kl", "warm"),
    ("decode NLL change after 1,280", "decode_nll", "cold"),
    ("top-1 agreement after 1,280, %", "top1_agreement", "cold"),
    ("KL drift along the decode", "kl_drift", "cold"),
    ("accuracy, points", "accuracy", "cold"),
    ("retrieval, right answers, points", "retrieval_accuracy", "cold"),
    ("retrieval, probability, points", "retrieval_probability", "cold"),
    ("sound free text, points", "sound_text", "cold"),
    ("KV capacity, times", "kv_capacity_ratio", "cold"),
)
"""Title, metric and state of the engine."""
SPEED: Final = (
    ("output tokens per second", "throughput_ratio", "cold"),
    ("time to first token, p50", "ttft_p50_ratio", "cold"),
    ("time between tokens, p50", "itl_p50_ratio", "cold"),
    ("end-to-end latency, p50", "e2e_p50_ratio", "cold"),
    ("with a shared prefix: output tokens per second", "throughput_ratio", "warm"),
    ("– time to first token, p50", "ttft_p50_ratio", "warm"),
)
ROWS: Final = {"engine_changes": QUALITY, "engine_speed": SPEED}
"""By suite, the rows of its table."""


def preset(suite: str) -> Preset:
    """The candidates and how they are gated."""
    document = yaml.safe_load((FOLDER / "candidates.yaml").read_text(encoding="utf-8"))
    return Preset.model_validate({"name": "engine changes", **document, "suite": suite})


def report_path(store: Path, suite: str, name: str) -> Path:
    """Where the report of a candidate is kept."""
    return store / f"{suite}, {name}.json"


def gate_all(store: Path, suite: str, names: Sequence[str]) -> None:
    """Gate what is not there yet; a candidate that the service refuses is kept with the reason."""
    os.environ["GATEKEEPER_CATALOG_DIR"] = str(FOLDER)
    with embedded_service(load_settings()) as service:
        for name, change in preset(suite).changes(MODEL).items():
            path = report_path(store, suite, name)
            if path.exists() or (names and name not in names):
                continue
            try:
                document = dict(gate_change(service, change).document)
            except InvalidInput as error:
                document = {"verdict": "refused", "sentence": str(error)}
            path.write_text(json.dumps(document), encoding="utf-8")
            print(name, str(document["verdict"]).upper(), document["sentence"], flush=True)


def table(store: Path, suite: str) -> Iterator[str]:
    """A row per metric and state of the engine, a column per change."""
    reports = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in preset(suite).changes(MODEL)
        if (path := report_path(store, suite, name)).exists()
    }
    judged = {name: report for name, report in reports.items() if report["verdict"] != "refused"}
    yield f"| measured | {' | '.join(judged)} |"
    yield f"| --- |{' --- |' * len(judged)}"
    if suite == "engine_changes":  # speed alone passes nothing
        yield f"| verdict | {' | '.join(str(report['verdict']).upper() for report in judged.values())} |"
    for title, metric, mode in ROWS[suite]:
        yield f"| {title} | {' | '.join(cell(report, metric, mode) for report in judged.values())} |"
    for name, report in reports.items():
        yield f"\n{name}: {report['sentence']}"


def cell(report: Mapping[str, Any], metric: str, mode: str) -> str:
    """The estimate with its bounds, in the unit of the row; a dash where there is none."""
    found = [
        Delta.model_validate(row)
        for row in report["deltas"]
        if (row["metric"], row["mode"]) == (metric, mode)
    ]
    for delta in found:
        if delta.group == ALL:
            written, exact = partial(_written, METRICS[metric]), METRICS[metric].kind == "capacity"
            if exact or delta.lower is None or delta.upper is None or delta.lower == delta.upper:
                return written(delta.estimate)
            return f"{written(delta.estimate)} ({written(delta.lower)} to {written(delta.upper)})"
    return "–"


def _written(metric: Metric, value: float) -> str:
    """A figure without its unit; a change has a sign."""
    sign = "+" if metric.possible[0] < 0 else ""
    return f"{100 * value:{sign}.1f}" if metric.unit == "share" else f"{value:{sign}.3f}"


def main() -> None:
    """Gate, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("candidates", nargs="*", metavar="CANDIDATE")
    parser.add_argument("--suite", choices=sorted(ROWS), default="engine_changes")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    arguments.store.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        print("\n".join(table(arguments.store, arguments.suite)))
    else:
        gate_all(arguments.store, arguments.suite, arguments.candidates)


if __name__ == "__main__":
    main()
