"""What the probes make of what lm-eval, vLLM's benchmark and the completions API return."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest

from gatekeeper.domain.change import Deployment
from gatekeeper.domain.free_decode import FreeDecodeProbe
from gatekeeper.domain.measurement import Measurement, Stop
from gatekeeper.domain.probes import AccuracyProbe, FidelityProbe
from tests.fakes.engine import MemoryArm, fake_plan
from workers.engines.base import Server
from workers.engines.errors import ProbeFailed
from workers.suites import accuracy, free_decode, items, scoring, started_ahead
from workers.suites.base import RUNNING, WAITING, Bench, together
from workers.suites.documents import Document
from workers.suites.lm_eval_program import write_samples

SAMPLE = {
    "doc_id": 0, "doc": {"id": "recall-01", "choices": ["a", "b"], "answer": 1}, "target": "1",
    "filtered_resps": [["-8.44", "False"], ["-0.07", "True"]], "doc_hash": "6376c26b6fbf7cfb43feb0ac9ad4d545",
    "acc": 1.0,
}  # fmt: skip


def measured(tmp_path: Path, task: str, *samples: dict[str, object]) -> list[Measurement]:
    lines = [json.dumps(sample) for sample in samples]
    (tmp_path / f"samples_{task}_2026-11-30T12-03-13.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return [row for item in accuracy.read_items(tmp_path) for row in item.measurements]


def test_a_sample_gives_its_outcome_and_the_probability_of_the_right_choice(tmp_path: Path) -> None:
    correct, probability = measured(tmp_path, "gk_recall", SAMPLE)
    assert (correct.item_id, correct.cluster, correct.value) == ("gk_recall/recall-01", "gk_recall", 1.0)
    assert probability.value == pytest.approx(0.99977, abs=1e-4)


def test_a_sample_without_an_id_is_known_by_its_hash_and_a_generated_answer_has_no_choice(
    tmp_path: Path,
) -> None:
    sample = {"doc": {"q": "x"}, "doc_hash": "6376c26b6fbf7cfb43feb", "exact_match": 0.0, "target": "four",
              "filtered_resps": ["five"]}  # fmt: skip
    (only,) = measured(tmp_path, "gsm", sample)
    assert (only.item_id, only.value) == ("gsm/6376c26b6fbf7cfb", 0.0)


def test_samples_are_read_from_wherever_lm_eval_put_them(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "samples_gk_recall_2026-11-30T12-03-13.jsonl").write_text(
        json.dumps(SAMPLE) + "\n", encoding="utf-8"
    )
    assert {item.answer.item_id for item in accuracy.read_items(tmp_path)} == {"gk_recall/recall-01"}


def test_a_subset_of_bundled_tasks_depends_on_the_seed_alone() -> None:
    def taken(seed: int) -> list[items.Batch]:
        return items.batches(
            AccuracyProbe(probe="accuracy", tasks=("gk_facts", "gk_recall"), items_per_task=5, seed=seed)
        )

    assert taken(1) == taken(1) != taken(2)
    (only,) = taken(1)
    assert {task: len(indices) for task, indices in only.items()} == {"gk_facts": 5, "gk_recall": 5}


def test_batches_cut_the_same_items_and_a_smaller_probe_is_a_part_of_a_larger_one() -> None:
    whole = AccuracyProbe(probe="accuracy", tasks=("gk_facts", "gk_recall"), seed=3)
    in_batches = items.batches(whole.model_copy(update={"batches": 4}))
    (at_once,) = items.batches(whole)
    assert [sum(len(taken) for taken in batch.values()) for batch in in_batches] == [50, 50, 50, 50]
    for task, indices in at_once.items():
        assert sorted(index for batch in in_batches for index in batch.get(task, [])) == indices
    (part,) = items.batches(whole.model_copy(update={"items_per_task": 7}))
    assert all(set(part[task]) <= set(at_once[task]) for task in part)


def test_the_work_of_bundled_tasks_is_known_beforehand() -> None:
    probe = AccuracyProbe(probe="accuracy", tasks=("gk_facts", "gk_agreement"), items_per_task=5)
    assert items.workload(items.batches(probe)) == (10, 5 * 4 + 5 * 2)


def test_an_item_logged_once_per_filter_counts_once(tmp_path: Path) -> None:
    rows = measured(tmp_path, "t", SAMPLE, {**SAMPLE, "acc": 0.0})
    assert [row.value for row in rows if row.metric == "correct"] == [1.0]


def test_a_log_that_cannot_be_read_fails_the_probe(tmp_path: Path) -> None:
    with pytest.raises(ProbeFailed, match="jsonl:1 is no sample"):
        measured(tmp_path, "t", {"doc": {}})


def logged(output: Path, number: int, items_logged: int) -> None:
    """A finished batch, as the lm-eval program leaves it."""
    rows = [SAMPLE | {"doc": {"id": f"{number}-{i}"}} for i in range(items_logged)]
    write_samples({"t": rows}, output / f"batch-{number}", number)


def follower(
    tmp_path: Path, settled: Callable[[str, str, int], str | None]
) -> tuple[accuracy.Follower, MemoryArm]:
    arm = MemoryArm(role="candidate", plan=fake_plan().candidate)
    server = cast("Server", SimpleNamespace(metrics=dict))
    bench = Bench(
        server=server, sink=arm, run_id="r", workdir=tmp_path, deployment=Deployment(concurrency=1),
        modes=("cold",), tasks_dir=None, advance=lambda _done, _total: None, settled=settled,
        references=lambda _mode: {},
    )  # fmt: skip
    batches: list[items.Batch] = [{"gk_facts": [0]}, {"gk_facts": [1]}, {"gk_facts": [2]}]
    return accuracy.Follower(bench=bench, output=tmp_path, batches=batches), arm


def test_each_batch_is_stored_with_its_number_as_soon_as_it_is_finished(tmp_path: Path) -> None:
    follow, arm = follower(tmp_path, lambda *_: None)
    assert not follow.poll({})
    logged(tmp_path, 0, 2)
    assert not follow.poll({})
    assert {(row.item_id, row.batch) for row in arm.rows} == {("t/0-0", 0), ("t/0-1", 0)}
    logged(tmp_path, 1, 1)
    logged(tmp_path, 2, 1)
    assert not follow.poll({})
    assert {row.batch for row in arm.rows} == {0, 1, 2}
    assert arm.stops == []


def test_nothing_is_looked_at_after_the_last_batch_and_a_settled_probe_ends(tmp_path: Path) -> None:
    looks: list[int] = []

    def settled(_suite: str, _mode: str, batches: int) -> str | None:
        looks.append(batches)
        return "enough" if batches == 2 else None

    follow, arm = follower(tmp_path, settled)
    for number in range(2):
        logged(tmp_path, number, 1)
        assert follow.poll({}) == (number == 1)
    assert looks == [1, 2]
    assert arm.stops == [Stop(suite="accuracy", mode="cold", batches=2, reason="enough")]


def test_nobody_looks_how_many_requests_run_once_all_have_been_seen_to(tmp_path: Path) -> None:
    looks: list[float] = []

    def metrics() -> dict[str, float]:
        looks.append(min(len(looks) + 1.0, 2.0))
        return {RUNNING: looks[-1], WAITING: 0.0}

    arm = MemoryArm(role="candidate", plan=fake_plan().candidate)
    bench = Bench(
        server=cast("Server", SimpleNamespace(metrics=metrics)), sink=arm, run_id="r", workdir=tmp_path,
        deployment=Deployment(concurrency=2), modes=("cold",), tasks_dir=None, advance=lambda *_: None,
        settled=lambda *_: None, references=lambda _mode: {},
    )  # fmt: skip
    with together(bench, suite="fidelity", mode="cold"):
        time.sleep(0.3)
    assert looks == [1.0, 2.0]
    assert [(proof.counter, proof.moved) for proof in arm.proofs] == [
        (RUNNING, 2.0), ("requests at once beyond 1", 1.0),
    ]  # fmt: skip


def test_lm_eval_starts_before_the_engine_and_is_stopped_after_it(tmp_path: Path) -> None:
    probe, plan = AccuracyProbe(probe="accuracy", tasks=("gk_facts",)), fake_plan().candidate
    with started_ahead([probe], plan, run_id="r", workdir=tmp_path) as program:
        assert program is not None
        assert program.alive
    assert program.wait(0.0)
    with started_ahead(fake_plan().suite.probes, plan, run_id="r", workdir=tmp_path) as none:
        assert none is None, "no probe needs it"


def test_a_foreign_task_has_no_batches_of_ours() -> None:
    assert not items.all_bundled(AccuracyProbe(probe="accuracy", tasks=("gsm8k", "gk_facts")))


DOCUMENT = Document(item_id="d", cluster="d", prompt=(1, 2), reference=(7, 8))


def logprobs(tokens: list[str]) -> dict[str, object]:
    return {
        "tokens": tokens,
        "token_logprobs": [-5.0, -0.1],
        "top_logprobs": [{"token_id:3": -0.5, "token_id:7": -5.0, "token_id:4": -1.0}, {"token_id:8": -0.1}],
    }


def test_a_trace_keeps_the_best_tokens_and_drops_the_forced_one_where_it_is_not_among_them() -> None:
    trace = scoring.trace_of(logprobs(["token_id:7", "token_id:8"]), DOCUMENT, mode="cold", top_k=2)
    assert trace.top_ids == [[3, 4], [8]]
    assert trace.token_logprobs == [-5.0, -0.1]


def test_other_tokens_than_the_forced_ones_are_no_measurement() -> None:
    with pytest.raises(ProbeFailed, match="did not force"):
        scoring.trace_of(logprobs(["token_id:7", "token_id:9"]), DOCUMENT, mode="cold", top_k=2)


class NanServer:
    """Answers with a server error wherever log-probabilities are asked for, as an engine that computed NaN does."""

    plan = fake_plan().candidate

    def __init__(self, *, completes: bool) -> None:
        self._completes = completes

    def post(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        if "logprobs" in body or not self._completes:
            request = httpx.Request("POST", f"http://engine{path}")
            answer = httpx.Response(
                500, text="Out of range float values are not JSON compliant", request=request
            )
            answer.raise_for_status()
        return {"choices": [{"text": "x"}]}


FIDELITY = FidelityProbe(probe="fidelity", documents=2, context_tokens=2, decode_tokens=2)


def test_an_engine_that_cannot_write_its_logprobs_down_gives_a_trace_without_numbers() -> None:
    trace = scoring.score_forced(NanServer(completes=True), DOCUMENT, mode="cold", top_k=2)  # type: ignore[arg-type]
    assert trace.token_logprobs == [None, None]
    assert trace.token_ids == DOCUMENT.reference


def test_an_engine_that_answers_nothing_at_all_is_no_measurement() -> None:
    with pytest.raises(ProbeFailed, match="Out of range"):
        scoring.score_forced(NanServer(completes=False), DOCUMENT, mode="cold", top_k=2)  # type: ignore[arg-type]


FREE = FreeDecodeProbe(probe="free_decode", prompts=2, decode_tokens=256)


def test_free_text_of_an_engine_that_cannot_write_its_logprobs_down_has_no_figures() -> None:
    (prompt, *_) = free_decode.prompts_of(FREE)
    rows, said = free_decode.continued(FREE, NanServer(completes=True), prompt)  # type: ignore[arg-type]
    assert {row.metric for row in rows} >= {"sound", "distinct_share"}
    assert {(row.value, row.reason) for row in rows} == {(None, free_decode.NO_FIGURES)}
    assert said.text == ""


def test_free_text_of_an_engine_that_answers_nothing_at_all_is_no_measurement() -> None:
    (prompt, *_) = free_decode.prompts_of(FREE)
    with pytest.raises(ProbeFailed, match="Out of range"):
        free_decode.continued(FREE, NanServer(completes=False), prompt)  # type: ignore[arg-type]
