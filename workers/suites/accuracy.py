"""lm-eval tasks against the engine's completions API, one program run per arm, every sample logged."""

from __future__ import annotations

import json
import math
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
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
    bench.advance(0, 1)
    with exercised(bench, suite=SUITE, mode="cold", expected="still"):
        run_tool(bench, command(probe, bench, output), name="lm-eval", environment=environment(probe, bench))
    rows = list(read_samples(output))
    if not rows:
        raise ProbeFailed(f"lm-eval logged no sample of {', '.join(probe.tasks)}")
    bench.sink.measurements(rows)
    items = len({row.item_id for row in rows})
    bench.advance(items, items)


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


def subset(probe: AccuracyProbe) -> list[str]:
    """The flags that take a seeded subset of bundled tasks, or the first items where a task's size is unknown."""
    if probe.items_per_task is None:
        return []
    sizes = {task: bundled_size(task) for task in probe.tasks}
    if not all(sizes.values()):
        return ["--limit", str(probe.items_per_task)]
    chosen = {
        task: sorted(
            random.Random(f"{probe.seed}/{task}").sample(range(size), min(size, probe.items_per_task))
        )
        for task, size in sizes.items()
    }
    return ["--samples", json.dumps(chosen)]


def bundled_size(task: str) -> int:
    """The number of items of a bundled task, 0 if it is none."""
    path = BUNDLED_TASKS / f"{task}.jsonl"
    return sum(1 for line in path.read_text(encoding="utf-8").splitlines() if line) if path.is_file() else 0


def environment(probe: AccuracyProbe, bench: Bench) -> dict[str, str]:
    """Bundled tasks need no hub: lm-eval is kept off the network, its caches inside the arm's directory."""
    variables = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    if all(bundled_size(task) for task in probe.tasks):
        variables |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(bench.workdir / "hf")}
    return variables


def read_samples(output: Path) -> Iterator[Measurement]:
    """Measurements from every `samples_<task>_<time>.jsonl` below `output`."""
    for path in sorted(output.rglob("samples_*.jsonl")):
        task = path.stem.removeprefix("samples_").rpartition("_")[0]
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield from measurements_of(task, json.loads(line))


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
