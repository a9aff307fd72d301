"""What the changes that vLLM itself can run cost in every suite: real gates, one after the other, against one baseline.

    python benchmarks/engine_changes.py STORE [CANDIDATE ...]     # gates them all, or those named; keeps each report
    python benchmarks/engine_changes.py STORE --table             # prints the table of docs/suites.md

Reports that are in STORE are not measured again. Candidates and suite are in `engine_changes/`, the service is an
embedded one under GATEKEEPER_HOME, so the bundled model has to be there (`make env`, `scripts/bootstrap.py model`).
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from gatekeeper.cli.environment import embedded_service, load_settings
from gatekeeper.cli.gating import gate_change
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.policy import ALL
from gatekeeper.domain.preset import Preset
from gatekeeper.domain.sentence import bounds
from gatekeeper.domain.verdict import Delta

FOLDER: Final = Path(__file__).parent / "engine_changes"
MODEL: Final = "smollm2-135m"


def preset() -> Preset:
    """The candidates and how they are gated."""
    document = yaml.safe_load((FOLDER / "candidates.yaml").read_text(encoding="utf-8"))
    return Preset.model_validate({"name": "engine changes", **document})


def gate_all(store: Path, names: Sequence[str]) -> None:
    """Gate what is not there yet; a candidate that the service refuses is kept with the reason."""
    os.environ["GATEKEEPER_CATALOG_DIR"] = str(FOLDER)
    with embedded_service(load_settings()) as service:
        for name, change in preset().changes(MODEL).items():
            path = store / f"{name}.json"
            if path.exists() or (names and name not in names):
                continue
            try:
                document = dict(gate_change(service, change).document)
            except InvalidInput as error:
                document = {"verdict": "refused", "sentence": str(error)}
            path.write_text(json.dumps(document), encoding="utf-8")
            print(name, str(document["verdict"]).upper(), document["sentence"], flush=True)


def table(store: Path) -> Iterator[str]:
    """A row per metric and state of the engine, a column per change."""
    reports = {
        name: json.loads(path.read_text(encoding="utf-8"))
        for name in preset().changes(MODEL)
        if (path := store / f"{name}.json").exists()
    }
    judged = {name: report for name, report in reports.items() if report["verdict"] != "refused"}
    yield f"| measured | {' | '.join(judged)} |"
    yield f"| --- |{' --- |' * len(judged)}"
    yield f"| verdict | {' | '.join(str(report['verdict']).upper() for report in judged.values())} |"
    cells = {name: dict(_cells(report)) for name, report in judged.items()}
    for row in dict.fromkeys(row for of_one in cells.values() for row in of_one):
        yield f"| {row} | {' | '.join(of_one.get(row, '–') for of_one in cells.values())} |"
    for name, report in reports.items():
        yield f"\n{name}: {report['sentence']}"


def _cells(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What a row is called, and the estimate with its bounds."""
    for delta in map(Delta.model_validate, report["deltas"]):
        if delta.group == ALL:
            metric = METRICS[delta.metric]
            yield f"{metric.title}, {delta.mode}", bounds(metric, delta)


def main() -> None:
    """Gate, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("candidates", nargs="*", metavar="CANDIDATE")
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    arguments.store.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        print("\n".join(table(arguments.store)))
    else:
        gate_all(arguments.store, arguments.candidates)


if __name__ == "__main__":
    main()
