"""The fault proxy as the worker meets it: launched, read, measured through and ended, before a fake engine."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from gatekeeper.domain.judge import judge
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.probes import AccuracyProbe
from gatekeeper.domain.verdict import Verdict
from gatekeeper.marked import marked_processes
from tests.fakes.engine import FakeEngine, MemoryArm, MemoryRun, fake_plan
from tests.faults.engine import FaultyVllm, Running
from tests.faults.trial import BOUNDS, engine_in_use, judged
from workers.engines.base import launch
from workers.execute import Job, measure_arm
from workers.supervisor import MARKER

EXPECTED = [
    ("none", Verdict.PASS, "KV capacity 2.00x"),
    ("first_batch", Verdict.FAIL, "decode KL"),
    ("nan_everywhere", Verdict.FAIL, "no finite value"),
    ("setting_ignored", Verdict.INVALID, "requested fp8_e4m3, effective auto"),
    ("metrics_missing", Verdict.INVALID, "cache_dtype: requested fp8_e4m3, effective not reported"),
    ("empty_answers", Verdict.INVALID, "the engine did not force the reference tokens"),
]


ACCURACY = AccuracyProbe(probe="accuracy", tasks=("gk_facts",), items_per_task=3)


@dataclass(kw_only=True)
class FaultyFake(FaultyVllm, FakeEngine):
    """The fake engine behind the proxy."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A fake engine that is up, as the candidate asks."""
    log, plan = tmp_path_factory.mktemp("engine") / "engine.log", fake_plan().candidate
    with launch(
        FakeEngine(), plan, run_id=uuid.uuid4().hex, log=log, gpu=None, start_seconds=60, stall_seconds=20,
        check=lambda: None,
    ) as server:  # fmt: skip
        yield Running(base_url=server.base_url, log=log)


@pytest.fixture(scope="module")
def baseline() -> MemoryArm:
    """The baseline, measured without a proxy."""
    run = MemoryRun()
    with engine_in_use(FakeEngine()):
        job = Job(run_id=uuid.uuid4().hex, plan=run.plan, dead_roles=frozenset())
        assert measure_arm(job, "baseline", run, BOUNDS, None)
    return run.arms["baseline"]


@pytest.mark.parametrize(("fault", "verdict", "says"), EXPECTED, ids=[row[0] for row in EXPECTED])
def test_a_fault_before_a_running_engine_meets_its_verdict(
    running: Running, baseline: MemoryArm, fault: str, verdict: Verdict, says: str
) -> None:
    report, _ = judged(FaultyFake(fault=fault, running=running), fake_plan(), baseline)
    assert (report.verdict, says in report.sentence) == (verdict, True), report.sentence


def test_an_engine_of_its_own_starts_behind_the_proxy_and_ends_with_it(baseline: MemoryArm) -> None:
    run_id = uuid.uuid4().hex
    report, _ = judged(FaultyFake(fault="none"), fake_plan(), baseline, run_id=run_id)
    assert report.verdict is Verdict.PASS, report.sentence
    assert marked_processes(MARKER, run_id) == {}


def test_an_engine_behind_the_proxy_that_refuses_to_start_is_refused_in_its_own_words(
    baseline: MemoryArm,
) -> None:
    engine = FaultyFake(fault="none", candidate_flags=["--refuse"])
    report, _ = judged(engine, fake_plan(), baseline)
    assert report.verdict is Verdict.INVALID
    assert "ValueError: KV cache dtype int3 is not supported" in report.sentence


def test_nan_is_a_failure_although_a_later_probe_could_not_measure(
    running: Running, baseline: MemoryArm
) -> None:
    plan = fake_plan()
    suite = plan.suite.model_copy(
        update={"probes": (*plan.suite.probes, ACCURACY)}
    )  # its model has no tokenizer
    engine = FaultyFake(fault="nan_everywhere", running=running)
    report, run = judged(engine, plan.model_copy(update={"suite": suite}), baseline)
    assert run.arms["candidate"].failure is not None
    assert (report.verdict, "no finite value" in report.sentence) == (Verdict.FAIL, True), report.sentence


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tokenizer for lm-eval, which needs a model's own."""
    folder = tmp_path_factory.mktemp("tokenizer")
    letters = {letter: number for number, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}
    pieces = Tokenizer(models.BPE(vocab=letters, merges=[]))
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=pieces, eos_token="!").save_pretrained(folder)
    return str(folder)


def with_accuracy(plan: Plan, source: str) -> Plan:
    """A plan that measures accuracy alone, of a model with that source."""
    policy = plan.policy.model_dump() | {
        "rules": [{"metric": "accuracy", "max_drop": 0.05, "reason": "a test"}]
    }
    model = plan.candidate.model.model_copy(update={"source": source})
    changed = {
        arm: getattr(plan, arm).model_copy(update={"model": model}) for arm in ("baseline", "candidate")
    }
    suite = plan.suite.model_copy(update={"probes": (ACCURACY,)})
    return plan.model_copy(update={"suite": suite, "policy": Policy.model_validate(policy), **changed})


def test_nan_that_accuracy_meets_first_is_a_failure_unless_the_baseline_has_it_too(
    running: Running, baseline: MemoryArm, tokenizer: str
) -> None:
    plan = with_accuracy(fake_plan(), tokenizer)
    _, run = judged(FaultyFake(fault="nan_everywhere", running=running), plan, baseline)
    candidate = run.arms["candidate"]
    assert candidate.failure is None
    assert {(row.metric, row.value, row.reason) for row in candidate.rows} == {
        ("correct", None, "the engine returned nan"),
        ("right_choice_probability", None, "the engine returned nan"),
    }
    both = judge(
        plan, run.records | {"baseline": replace(run.records["baseline"], measurements=tuple(candidate.rows))}
    )
    sound = tuple(replace(row, value=1.0, reason=None) for row in candidate.rows)
    broken = judge(plan, run.records | {"baseline": replace(run.records["baseline"], measurements=sound)})
    assert (broken.verdict, "no finite value for 3 items" in broken.sentence) == (Verdict.FAIL, True), (
        broken.sentence
    )
    assert both.verdict is not Verdict.FAIL, both.sentence
    assert "the baseline itself has no finite value" in both.findings[0].detail


def test_a_stall_meets_its_deadline_and_counts_against_the_candidate_the_second_time(
    running: Running, baseline: MemoryArm
) -> None:
    engine, soon = FaultyFake(fault="stalled", running=running), replace(BOUNDS, stall_seconds=2)
    plan = fake_plan()
    longer = plan.suite.probes[1].model_copy(update={"documents": 32})
    plan = plan.model_copy(
        update={"suite": plan.suite.model_copy(update={"probes": (plan.suite.probes[0], longer)})}
    )
    verdicts = [
        judged(engine, plan, baseline, repeated=repeated, bounds=soon)[0].verdict
        for repeated in (False, True)
    ]
    assert verdicts == [Verdict.ERROR, Verdict.FAIL]
