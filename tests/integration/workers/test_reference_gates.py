"""Whole gates on the reference engine, over real subprocesses and HTTP, with a small random model."""

import uuid

import pytest

from gatekeeper.domain.judge import judge
from gatekeeper.domain.plan import Model, Plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.verdict import Report, Verdict
from tests.fakes.engine import MemoryRun
from tests.integration.workers.random_model import model, plan_of
from workers.execute import Bounds, Job, execute
from workers.suites.base import PREFIX_HITS

__all__ = ["model"]
pytestmark = pytest.mark.timeout(300)


def gate(plan: Plan) -> tuple[MemoryRun, Report]:
    recorder = MemoryRun(plan=plan)
    bounds = Bounds(start_seconds=120, stall_seconds=60, tasks_dir=None, gpu=None, check=lambda: None)
    execute(Job(run_id=uuid.uuid4().hex, plan=plan, dead_roles=frozenset()), recorder, bounds)
    return recorder, judge(plan, recorder.records)


def test_a_lossless_scheme_passes_a_whole_gate_and_speed_does_not_apply(model: Model) -> None:
    recorder, report = gate(plan_of(model, {"quantization": {"scheme": "int8"}}))
    assert report.verdict is Verdict.PASS, report.sentence
    assert {finding.metric for finding in report.findings} == {"decode_kl"}
    assert any("does not apply" in note and "not comparable" in note for note in report.notes)
    assert any("reference engine: vLLM" in note for note in report.notes)
    assert report.noise.decode_kl == 0.0
    assert report.engine is not None
    assert report.engine.name == "reference"
    assert dict(recorder.arms["candidate"].left_out).keys() == {"performance"}


def test_reused_prefixes_of_an_evicting_quantizing_engine_are_gated_warm_with_hits_counted(
    model: Model,
) -> None:
    candidate = {
        "quantization": {"scheme": "int8"},
        "eviction": {"policy": "snapkv", "evicted_fraction": 0.5, "observation_window": 16},
        "reuse": {"prefix_caching": True},
    }
    rules = [{"metric": "consistency_kl", "at_most": 0.001, "reason": "r"}]
    policy = Policy.model_validate({"name": "p", "rules": rules})
    recorder, report = gate(plan_of(model, candidate).model_copy(update={"policy": policy}))
    assert report.verdict is Verdict.PASS, report.sentence
    arm = recorder.arms["candidate"]
    hits = {proof.mode: proof.moved for proof in arm.proofs if proof.counter == PREFIX_HITS}
    assert hits == {"cold": 0, "warm": 8 * 64, "boundary": 9 * 64, "greedy": 0, "prefill": 0}
    assert {trace.mode for trace in arm.scored} == {*hits, "first_batch"}
    assert all(proof.happened for proof in arm.proofs)


@pytest.mark.long
def test_a_method_that_loses_most_of_the_context_fails_a_whole_gate(model: Model) -> None:
    _, report = gate(plan_of(model, {"eviction": {"policy": "streaming_llm", "sinks": 1, "window": 4}}))
    assert report.verdict is Verdict.FAIL, report.sentence
