"""lm-eval tasks against the engine's completions API, one program run per arm, every sample logged.

On the reference engine choices are forced after their prompt, in both arms: some of its methods compress the cache when
the prompt is over, and would not touch an item that is one prompt.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.errors import UnreadableInput
from gatekeeper.domain.measurement import EVICTED_TOKENS, Measurement
from gatekeeper.domain.plan import ArmPlan
from gatekeeper.domain.probes import AccuracyProbe
from gatekeeper.importing import lm_eval
from workers.engines.base import Metrics
from workers.engines.errors import ProbeFailed
from workers.engines.process import Supervised, start
from workers.suites.base import ANSWERS, Bench, exercised
from workers.suites.items import BUNDLED_NAMES, BUNDLED_TASKS, Batch, all_bundled, batches, workload
from workers.suites.operator_tasks import copy_tasks
from workers.suites.tool import run_tool

SUITE = lm_eval.SUITE
REQUEST: Final = "lm-eval-request.json"
CORRECTNESS_METRICS: Final = ("acc", "exact_match")
"""lm-eval's per-sample metrics that are right or wrong, the first present one counts."""


def run(probe: AccuracyProbe, bench: Bench) -> None:
    """Run the tasks and store, per item, whether it was right and how probable the right choice was."""
    follow = Follower(
        bench=bench, output=bench.workdir / "lm-eval", batches=batches(probe) if all_bundled(probe) else []
    )
    with (
        _program(probe, bench) as running,
        exercised(bench, suite=SUITE, mode="cold", expected="still"),
        _evicting(bench),
    ):
        hand_over(bench.workdir / REQUEST, request(probe, bench, follow))
        run_tool(bench, running, follow.poll)
    if not follow.is_enough:
        follow.store()
    if not follow.items_stored:
        raise ProbeFailed(f"lm-eval logged no sample of {', '.join(probe.tasks)}")
    bench.advance(follow.items_stored, follow.items_stored)


def _evicting(bench: Bench) -> AbstractContextManager[None]:
    """Watches whether anything was evicted from items, where that is the arm's doing and the engine counts it."""
    plan = bench.server.plan
    if plan.engine != "reference" or plan.config.eviction.policy == "none":
        return nullcontext()
    return exercised(bench, suite=SUITE, mode="cold", expected="any", counter=EVICTED_TOKENS)


@dataclass(kw_only=True)
class Follower:
    """Stores each batch as it is finished, looks whether that is enough, and reports how far the present one is.

    How far is told by the engine's own counter of answers.
    """

    bench: Bench
    output: Path
    batches: Sequence[Batch]
    items_stored: int = 0
    batches_stored: int = 0
    is_enough: bool = False
    _answered_before: float | None = None

    def poll(self, counters: Metrics) -> bool:
        """Store finished batches and report progress; say whether what is stored is enough."""
        before = self.batches_stored
        self.store()
        if before < self.batches_stored < len(self.batches):
            self.is_enough = self.bench.is_enough(SUITE, "cold", self.batches_stored)
        items, requests = workload(self.batches)
        if requests:
            self.bench.advance(int(items * min(self._answered(counters) / requests, 1.0)), items)
        return self.is_enough

    def store(self) -> None:
        """Store the batches that were finished since, in their order."""
        while (folder := self.output / f"batch-{self.batches_stored}").is_dir():
            found = list(read_items(folder))
            rows = [replace(row, batch=self.batches_stored) for item in found for row in item.measurements]
            self.bench.sink.measurements(rows)
            self.bench.sink.answers([item.answer for item in found])
            self.items_stored += len(found)
            self.batches_stored += 1

    def _answered(self, counters: Metrics) -> float:
        """Requests that the engine has answered since this began."""
        now = counters.get(ANSWERS, 0.0)
        if self._answered_before is None:
            self._answered_before = now
        return now - self._answered_before


@contextmanager
def program(probe: AccuracyProbe, plan: ArmPlan, *, run_id: str, workdir: Path) -> Iterator[Supervised]:
    """Our lm-eval program, stopped at the end. It imports for ten seconds and then waits for its request."""
    running = start(
        [sys.executable, "-m", "workers.suites.lm_eval_program", str(workdir / REQUEST)],
        run_id=run_id, log=workdir / "lm-eval.log", environment=environment(probe, plan, workdir),
    )  # fmt: skip
    try:
        yield running
    finally:
        running.stop()


def _program(probe: AccuracyProbe, bench: Bench) -> AbstractContextManager[Supervised]:
    """The one that was started before the engine, and belongs to whoever did that; else a new one."""
    if bench.lm_eval is not None:
        return nullcontext(bench.lm_eval)
    return program(probe, bench.server.plan, run_id=bench.run_id, workdir=bench.workdir)


def hand_over(path: Path, content: Mapping[str, Any]) -> None:
    """Write the request that the program waits for; the file appears when it is complete."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.rename(path)


def request(probe: AccuracyProbe, bench: Bench, follow: Follower) -> dict[str, Any]:
    """What the lm-eval program is to do. Tasks that are not bundled run whole, or their first items."""
    model = bench.server.plan.model
    return {
        "model_args": {
            "base_url": f"{bench.server.base_url}/v1/completions",
            "model": model.name,
            "tokenizer": model.source,
            "revision": model.revision or "main",
            "num_concurrent": bench.concurrency,
            "max_retries": 1,
            "tokenized_requests": True,
            "max_length": bench.server.plan.max_model_len,
            "timeout": int(bench.server.stall_seconds),
        },
        "tasks": probe.tasks,
        "include_path": str(BUNDLED_TASKS if follow.batches else task_folder(bench)),
        "bundled_only": bool(follow.batches),
        "forced_choices": bench.server.plan.engine == "reference",
        "batches": follow.batches or [None],
        "limit": probe.items_per_task,
        "seed": probe.seed,
        "output": str(follow.output),
    }


def task_folder(bench: Bench) -> Path:
    """Where lm-eval finds local tasks: it takes one folder, so the operator's tasks are copied beside the bundled.

    Raises ProbeFailed naming a file of the operator's that can't be used.
    """
    if bench.tasks_dir is None:
        return BUNDLED_TASKS
    merged = bench.workdir / "tasks"
    shutil.copytree(BUNDLED_TASKS, merged / "bundled", dirs_exist_ok=True)
    try:
        copy_tasks(bench.tasks_dir, merged / "operator", taken=BUNDLED_NAMES)
    except UnreadableInput as error:
        raise ProbeFailed(error.detail) from error
    return merged


def environment(probe: AccuracyProbe, plan: ArmPlan, workdir: Path) -> dict[str, str]:
    """Bundled tasks on a local model need no hub: then lm-eval is kept off the network, its caches in the workdir."""
    variables = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    if all_bundled(probe) and Path(plan.model.source).is_absolute():
        variables |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(workdir / "hf")}
    return variables


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedItem:
    """What one item came to, and what the engine said."""

    measurements: tuple[Measurement, ...]
    answer: Answer


def read_items(output: Path) -> Iterator[LoggedItem]:
    """The items of every task below `output`.

    A task with several answer filters logs an item once per filter; the first one counts. Raises ProbeFailed.
    """
    try:
        for file in lm_eval.list_sample_files(output).values():
            seen: set[str] = set()
            for sample in lm_eval.read_samples(file):
                item_id = f"{file.task}/{sample.document_id or sample.doc_hash[:16]}"
                if item_id not in seen:
                    seen.add(item_id)
                    yield LoggedItem(
                        measurements=tuple(measurements_of(file.task, item_id, sample)),
                        answer=answer_of(item_id, sample),
                    )
    except UnreadableInput as error:
        raise ProbeFailed(str(error)) from error


def measurements_of(task: str, item_id: str, sample: lm_eval.Sample) -> Iterator[Measurement]:
    """One logged sample: `correct` as 0 or 1, and `right_choice_probability` for a multiple-choice item."""
    logged = (sample.values.get(metric) for metric in CORRECTNESS_METRICS)
    return lm_eval.measurements_of(
        item_id=item_id,
        cluster=task,
        correct=next((value for value in logged if value is not None), None),
        probability=sample.right_choice_probability,
    )


def answer_of(item_id: str, sample: lm_eval.Sample) -> Answer:
    """One logged sample as text."""
    said = sample.said
    return Answer(
        suite=SUITE, mode="cold", item_id=item_id, prompt=said.prompt, expected=said.expected, text=said.text,
        options=said.options,
    )  # fmt: skip
