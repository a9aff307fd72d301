"""Every state of the engine that a suite can ask for, over real subprocesses and HTTP, with a fake engine behind."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gatekeeper.domain.change import Deployment
from gatekeeper.domain.judge import judge
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Finding, Outcome, Report, Verdict
from tests.fakes.engine import FakeEngine, MemoryRun, fake_plan
from workers import engines
from workers.execute import Bounds, Job, execute
from workers.suites.base import RUNNING

MODES = {
    "probe": "modes", "modes": ["first_batch", "boundary", "greedy", "prefill"], "documents": 9,
    "context_tokens": 130, "decode_tokens": 8, "top_k": 2,
}  # fmt: skip
CHUNKED = MODES | {"modes": ["chunked"], "chunked_context_tokens": 192}
COLD = {"probe": "fidelity", "documents": 8, "context_tokens": 64, "decode_tokens": 8, "top_k": 2}
SATURATED = {"probe": "saturated", "documents": 8, "context_tokens": 64, "decode_tokens": 8, "top_k": 2}
FP8: dict[str, Any] = {"quantization": {"scheme": "fp8_e4m3"}}
KL = {"metric": "decode_kl", "at_most": 0.05, "reason": "r"}


def plan_of(
    *probes: Mapping[str, Any], candidate: Mapping[str, Any] = FP8, rules: Sequence[Mapping[str, Any]] = (KL,)
) -> Plan:
    suite = Suite.model_validate({"name": "s", "description": "", "probes": list(probes)})
    policy = Policy.model_validate({"name": "p", "rules": list(rules)})
    return fake_plan(candidate).model_copy(update={"suite": suite, "policy": policy})


def run(monkeypatch: pytest.MonkeyPatch, plan: Plan, *candidate_flags: str) -> tuple[MemoryRun, Report]:
    return run_on(FakeEngine(candidate_flags=candidate_flags), monkeypatch, plan)


def run_on(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, plan: Plan) -> tuple[MemoryRun, Report]:
    monkeypatch.setattr(engines, "ENGINES", {"vllm": engine})
    recorder = MemoryRun(plan=plan)
    bounds = Bounds(start_seconds=60, stall_seconds=20, tasks_dir=None, gpu=None, check=lambda: None)
    execute(Job(run_id=uuid.uuid4().hex, plan=plan, dead_roles=frozenset()), recorder, bounds)
    return recorder, judge(plan, recorder.records)


def by_mode(report: Report, metric: str = "decode_kl") -> dict[str, Finding]:
    return {finding.mode: finding for finding in report.findings if finding.metric == metric}


def test_every_mode_is_measured_in_both_arms_proven_and_judged_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder, report = run(monkeypatch, plan_of(MODES, COLD))
    assert report.verdict is Verdict.PASS, report.sentence
    assert set(by_mode(report)) == {"cold", "first_batch", "boundary", "greedy", "prefill"}
    for role in ("baseline", "control", "candidate"):
        proofs = recorder.arms[role].proofs
        assert {proof.mode for proof in proofs} == set(by_mode(report))
        assert all(proof.happened for proof in proofs)
        (running,) = (proof.moved for proof in proofs if proof.counter == RUNNING)
        assert running is not None


WAITING = ("--together", "12")


def concurrent(monkeypatch: pytest.MonkeyPatch, *flags: str) -> tuple[MemoryRun, Report]:
    """Eight documents for a deployment of twelve requests at once."""
    plan = plan_of(COLD)
    change = plan.change.model_copy(update={"deployment": Deployment(concurrency=12)})
    engine = FakeEngine(baseline_flags=WAITING, candidate_flags=flags)
    return run_on(engine, monkeypatch, plan.model_copy(update={"change": change}))


def test_as_many_requests_are_with_the_engine_as_the_deployment_declares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder, report = concurrent(monkeypatch, *WAITING)
    assert report.verdict is Verdict.PASS, report.sentence
    for arm in recorder.arms.values():
        assert [proof.moved for proof in arm.proofs if proof.counter == "requests at once beyond 11"] == [1]
        assert [proof.moved for proof in arm.proofs if proof.counter == RUNNING] == [12]
        assert len(arm.scored) == 8  # four were sent for company


def test_an_engine_that_is_given_one_request_at_a_time_has_not_met_the_declared_load(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, report = concurrent(monkeypatch, "--one-at-a-time")
    assert report.verdict is Verdict.INVALID
    assert "requests at once beyond 11 did not move in cold mode" in report.sentence


def test_boundary_prompts_end_before_at_and_after_a_whole_block(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, _ = run(monkeypatch, plan_of(MODES, COLD))
    traces = [trace for trace in recorder.arms["candidate"].scored if trace.mode == "boundary"]
    assert len(traces) == 9
    (proof,) = [p for p in recorder.arms["candidate"].proofs if "k-1, k and k+1" in p.counter]
    assert proof.moved == 1


def test_the_greedy_continuation_is_the_baselines_own_in_every_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, _ = run(monkeypatch, plan_of(MODES, COLD))
    scored = {
        role: {t.item_id: tuple(t.token_ids) for t in arm.scored if t.mode == "greedy"}
        for role, arm in recorder.arms.items()
    }
    assert scored["baseline"] == scored["control"] == scored["candidate"]
    assert set(scored["baseline"].values()) == {(7,) * 8}  # what the fake engine says of itself


def test_damage_shows_in_the_mode_in_which_it_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    _, report = run(monkeypatch, plan_of(MODES, COLD), "--shift", "1.0")
    assert report.verdict is Verdict.FAIL
    assert {finding.outcome for finding in by_mode(report).values()} == {Outcome.REGRESSED}


def test_a_first_batch_after_others_is_refused_in_the_suite() -> None:
    with pytest.raises(ValueError, match="first_batch is the first mode of the first probe"):
        plan_of(COLD, MODES)


def test_a_prompt_in_three_pieces_is_chunked_and_in_two_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    small = FP8 | {"scheduling": {"max_num_batched_tokens": 64}}
    plan = plan_of(CHUNKED, COLD, candidate=small)
    _, report = run(monkeypatch, plan, "--chunk", "64")
    assert by_mode(report)["chunked"].outcome is Outcome.PASSED
    _, unchunked = run(monkeypatch, plan, "--chunk", "96")
    assert unchunked.verdict is Verdict.INVALID
    assert "pieces per prompt beyond 2 did not move in chunked mode" in unchunked.sentence


def test_a_change_without_small_pieces_has_no_chunked_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, report = run(monkeypatch, plan_of(CHUNKED, COLD))
    assert set(by_mode(report)) == {"cold"}
    assert {trace.mode for trace in recorder.arms["baseline"].scored} == {"cold", "chunked"}


def test_a_saturated_pool_has_an_engine_of_its_own_and_must_preempt(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, report = run(monkeypatch, plan_of(COLD, SATURATED))
    assert by_mode(report)["saturated"].outcome is Outcome.PASSED
    (proof,) = [p for p in recorder.arms["candidate"].proofs if p.mode == "saturated"]
    assert proof.moved
    assert "engine-saturated.log" in recorder.arms["candidate"].artifacts
    _, idle = run(monkeypatch, plan_of(COLD, SATURATED), "--pool-blocks", "0")
    assert idle.verdict is Verdict.INVALID
    assert "vllm:num_preemptions_total did not move in saturated mode" in idle.sentence


def test_a_warm_cache_is_held_against_the_candidates_own_cold_one(monkeypatch: pytest.MonkeyPatch) -> None:
    consistency = {"metric": "consistency_kl", "at_most": 0.01, "reason": "r"}
    plan = plan_of(COLD, candidate=FP8 | {"reuse": {"prefix_caching": True}}, rules=(KL, consistency))
    _, report = run(monkeypatch, plan)
    assert report.verdict is Verdict.PASS, report.sentence
    assert set(by_mode(report, "consistency_kl")) == {"warm"}


def test_every_document_is_scored_at_every_length_of_context_and_damage_shows_where_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    probe = COLD | {"context_tokens": [16, 64]}
    long = KL | {"context": [60, 70]}
    plan = plan_of(probe, candidate=FP8 | {"reuse": {"prefix_caching": True}}, rules=(KL, long))
    recorder, report = run(monkeypatch, plan, "--shift", "1.0", "--shift-from", "64")
    scored = recorder.arms["candidate"].scored
    assert len(scored) == 8 * 2 * 2  # documents, lengths, states of the cache
    assert {(trace.item_id, trace.context_tokens) for trace in scored} == {
        (f"{trace.cluster}/{length}", length) for trace in scored for length in (16, 64)
    }
    assert len({tuple(trace.token_ids) for trace in scored}) == len({trace.cluster for trace in scored}) == 8
    assert {(f.mode, f.group) for f in report.findings if f.outcome is Outcome.REGRESSED} >= {
        ("cold", "context 60-70"), ("warm", "context 60-70"),
    }  # fmt: skip
    (cold,) = (d for d in report.deltas if (d.metric, d.mode, d.group) == ("decode_kl", "cold", "all"))
    assert [(point.context_tokens, point.estimate > 0) for point in cold.context_curve] == [
        (16, False),
        (64, True),
    ]


def test_an_engine_whose_counters_stand_still_has_exercised_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, report = run(monkeypatch, plan_of(COLD), "--frozen-counters")
    assert report.verdict is Verdict.INVALID
    assert "vllm:prefix_cache_hits_total is not counted by the engine, or" in report.sentence
