"""Every planted fault before a real engine: the verdict, who found the fault, and what lm-eval alone says of it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.embedded.bundled_model import bundled_model, is_built
from tests.faults.engine import FaultyVllm
from tests.faults.matrix import PLAIN, ROWS, Plain, Row, plain_answer
from tests.faults.trial import BOUNDS, SHORT_TASKS, Bed, baseline_probes, bed, judged, plan_for

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1500)]

HOME = Path(os.environ.get("GATEKEEPER_HOME", ".gatekeeper")).absolute()
ITEMS_PER_TASK = 30


def chosen(request: pytest.FixtureRequest, parameter: str) -> list[Any]:
    """The values of a parameter in the tests of this run."""
    calls = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    return [call[parameter] for call in calls if parameter in call]


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """One real engine for all faults, and the baseline measured on it by what the rows of this run need."""
    if not is_built(HOME):
        pytest.skip(f"the bundled model is not under {HOME}; `make test` builds it")
    probes = baseline_probes(row.probes for row in chosen(request, "row"))
    with bed(bundled_model(HOME), tmp_path_factory.mktemp("engine"), probes) as up:
        yield up


@pytest.fixture(scope="module")
def plain(
    engine: Bed, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Mapping[str, Any]]:
    """Fault -> what lm-eval says of it."""
    faults = dict.fromkeys(["none", *chosen(request, "fault")])
    output = tmp_path_factory.mktemp("lm-eval") / "results.json"
    command = [
        sys.executable, "-m", "tests.faults.plain_lm_eval",
        "--model", engine.model.name, "--tokenizer", engine.model.source, "--upstream", engine.running.base_url,
        "--items", str(ITEMS_PER_TASK), "--output", str(output), "--tasks", *SHORT_TASKS, "--faults", *faults,
    ]  # fmt: skip
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        command, check=False, env=os.environ | offline, capture_output=True, text=True, timeout=1400
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results: dict[str, dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))
    return results


def verdict_of(row: Row) -> Any:
    """A row as a parameter: one that the product does not find yet has to fail, until it does."""
    marks = [pytest.mark.xfail(reason=row.missing)] if row.missing else []
    return pytest.param(row, id=row.name, marks=marks)


@pytest.mark.parametrize("row", [verdict_of(row) for row in ROWS])
def test_a_planted_fault_meets_its_verdict_and_its_finder(
    engine: Bed, row: Row, record_property: Callable[[str, object], None]
) -> None:
    plan = plan_for(engine.model, row.probes, candidate=row.candidate, deployment=row.deployment)
    report, _ = judged(
        FaultyVllm(fault=row.fault, running=engine.running), plan, engine.baseline,
        repeated=row.repeated, bounds=replace(BOUNDS, stall_seconds=row.stall_seconds),
    )  # fmt: skip
    record_property("sentence", report.sentence)
    assert report.verdict is row.verdict, report.sentence
    assert row.is_said_by(report.sentence), report.sentence


@pytest.mark.parametrize(("fault", "answer"), PLAIN.items(), ids=list(PLAIN))
def test_what_lm_eval_on_short_prompts_says_of_the_fault(
    plain: Mapping[str, Mapping[str, Any]], fault: str, answer: Plain
) -> None:
    assert plain_answer(plain["none"], plain[fault]) == answer, plain[fault]
