"""lm-eval tasks against the engine's completions API, one program run per arm, every sample logged."""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.suite import AccuracyProbe
from workers.engines.errors import ProbeFailed
from workers.suites.base import Bench, exercised
from workers.suites.tool import run_tool

SUITE = "accuracy"
BUNDLED_TASKS: Final = Path(__file__).parent / "tasks"
CORRECTNESS_METRICS: Final = ("acc", "exact_match")
"""lm-eval's per-sample metrics that are right or wrong, the first present one counts."""


def run(probe: AccuracyProbe, bench: Bench) -> None:
    """Run the tasks and store, per item, whether it was right and how probable the right choice was."""
    output = bench.workdir / "lm-eval"
    items, requests = workload(probe)
    answered = _requests_answered(bench)

    def poll() -> None:
        if requests:
            share = (_requests_answered(bench) - answered) / requests
            bench.advance(int(items * min(share, 1.0)), items)

    poll()
    with exercised(bench, suite=SUITE, mode="cold", expected="still"):
        run_tool(
            bench,
            command(probe, bench, output),
            name="lm-eval",
            environment=environment(probe, bench),
            poll=poll,
        )
    rows = list(read_samples(output))
    if not rows:
        raise ProbeFailed(f"lm-eval logged no sample of {', '.join(probe.tasks)}")
    bench.sink.measurements(rows)
    measured = len({row.item_id for row in rows})
    bench.advance(measured, measured)


def _requests_answered(bench: Bench) -> float:
    return bench.server.metrics().get("vllm:request_success_total", 0.0)


def command(probe: AccuracyProbe, bench: Bench, output: Path) -> list[str]:
    """lm-eval's argv."""
    model = bench.server.plan.model
    model_args = {
        "base_url": f"{bench.server.base_url}/v1/completions",
        "model": model.name,
        "tokenizer": model.source,
        "num_concurrent": bench.concurrency,
        "max_retries": 1,
        "tokenized_requests": True,
        "max_length": bench.server.plan.max_model_len,
        "timeout": int(bench.server.stall_seconds),
    }
    return [
        sys.executable, "-m", "lm_eval", "run", "--model", "local-completions",
        "--model_args", json.dumps(model_args), "--tasks", ",".join(probe.tasks),
        "--include_path", str(task_folder(bench)), "--log_samples",
        "--output_path", str(output), "--seed", str(probe.seed),
        *subset(probe),
    ]  # fmt: skip


def task_folder(bench: Bench) -> Path:
    """Where lm-eval finds local tasks: it takes one folder, so the operator's tasks are copied beside the bundled."""
    if bench.tasks_dir is None:
        return BUNDLED_TASKS
    merged = bench.workdir / "tasks"
    shutil.copytree(bench.tasks_dir, merged / "operator", dirs_exist_ok=True)
    shutil.copytree(BUNDLED_TASKS, merged / "bundled", dirs_exist_ok=True)
    return merged


def chosen(probe: AccuracyProbe) -> dict[str, list[int]] | None:
    """The indices of the items to take of each task: a seeded subset. None where a task's items are not bundled."""
    sizes = {task: len(bundled_items(task)) for task in probe.tasks}
    if not all(sizes.values()):
        return None
    wanted = probe.items_per_task
    return {
        task: sorted(random.Random(f"{probe.seed}/{task}").sample(range(size), min(size, wanted or size)))
        for task, size in sizes.items()
    }


def subset(probe: AccuracyProbe) -> list[str]:
    """lm-eval's flags for the chosen items, or for the first ones where a task's size is unknown."""
    if probe.items_per_task is None:
        return []
    indices = chosen(probe)
    if indices is None:
        return ["--limit", str(probe.items_per_task)]
    return ["--samples", json.dumps(indices)]


def workload(probe: AccuracyProbe) -> tuple[int, int]:
    """(items, requests) of a probe: one request per choice. (0, 0) where a task's items are not bundled."""
    indices = chosen(probe)
    if indices is None:
        return 0, 0
    requests = sum(
        len(bundled_items(task)[index]["choices"]) for task, taken in indices.items() for index in taken
    )
    return sum(len(taken) for taken in indices.values()), requests


@lru_cache
def bundled_items(task: str) -> tuple[Mapping[str, Any], ...]:
    """The items of a bundled task, none if it is not one."""
    path = BUNDLED_TASKS / f"{task}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return tuple(json.loads(line) for line in lines if line)


def environment(probe: AccuracyProbe, bench: Bench) -> dict[str, str]:
    """Bundled tasks need no hub: lm-eval is kept off the network, its caches inside the arm's directory."""
    variables = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    if all(bundled_items(task) for task in probe.tasks):
        variables |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(bench.workdir / "hf")}
    return variables


def read_samples(output: Path) -> Iterator[Measurement]:
    """Measurements from every `samples_<task>_<time>.jsonl` below `output`.

    A task with several answer filters logs an item once per filter; the first one counts.
    """
    seen: set[tuple[str, str]] = set()
    for path in sorted(output.rglob("samples_*.jsonl")):
        task = path.stem.removeprefix("samples_").rpartition("_")[0]
        with path.open(encoding="utf-8") as lines:
            for row in (row for line in lines for row in measurements_of(task, json.loads(line))):
                if (row.item_id, row.metric) not in seen:
                    seen.add((row.item_id, row.metric))
                    yield row


def measurements_of(task: str, sample: Mapping[str, Any]) -> Iterator[Measurement]:
    """One logged sample: `correct` as 0 or 1, and `right_choice_probability` for a multiple-choice item."""
    document = sample["doc"] if isinstance(sample.get("doc"), Mapping) else {}
    item = str(document.get("id") or sample["doc_hash"][:16])
    place = partial(Measurement.of, suite=SUITE, mode="cold", item_id=f"{task}/{item}", cluster=task)
    known = [metric for metric in CORRECTNESS_METRICS if metric in sample]
    if known:
        yield place(metric="correct", value=float(sample[known[0]]))
    probability = right_choice_probability(sample.get("filtered_resps", []), str(sample.get("target")))
    if probability is not None:
        yield place(metric="right_choice_probability", value=probability)


def right_choice_probability(responses: Sequence[Any], target: str) -> float | None:
    """Softmax over the choices' log-likelihoods at the target index; None for anything but multiple choice."""
    try:
        scores = [float(response[0]) for response in responses]
        index = int(target)
        weights = [math.exp(score - max(scores)) for score in scores]
        return weights[index] / sum(weights)
    except (TypeError, ValueError, IndexError, KeyError):
        return None
