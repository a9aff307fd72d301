"""The verdict over synthetic arms: what passes, what fails, and what the evidence cannot say."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.change import Change
from gatekeeper.domain.interim import certain_failure
from gatekeeper.domain.judge import judge
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Measurement, Mode, Role, TokenTrace
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.plan import ArmPlan, Model, Plan, make_plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.run import ArmFailure
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Outcome, Report, Verdict

SHAPE = ModelShape(layers=2, attention_heads=4, kv_heads=4, head_dim=64, max_context=4096)
SUITE = Suite.model_validate(
    {"name": "s", "description": "", "probes": [
        {"probe": "fidelity", "documents": 8, "context_tokens": 64, "decode_tokens": 16}]}
)  # fmt: skip
RULES: list[dict[str, object]] = [
    {"metric": "decode_kl", "at_most": 0.05, "reason": "r"},
    {"metric": "accuracy", "max_drop": 0.05, "reason": "r"},
    {"metric": "throughput_ratio", "at_least": 0.9, "severity": "warn", "reason": "r"},
]
ITEMS = 200


def plan_of(
    candidate: Mapping[str, object] | None = None,
    rules: Sequence[Mapping[str, object]] = RULES,
    **deployment: int,
) -> Plan:
    change = Change.model_validate(
        {
            "model": "m",
            "candidate": candidate or {"quantization": {"scheme": "fp8_e4m3"}},
            "deployment": deployment,
        }
    )
    policy = Policy.model_validate({"name": "p", "rules": list(rules)})
    model = Model(name="m", source="/m", shape=SHAPE)
    return make_plan(
        change, model=model, suite=SUITE, policy=policy, device="cpu", allowed_arguments=frozenset()
    )


def traces(shift: float, mode: Mode = "cold") -> tuple[TokenTrace, ...]:
    """Eight documents whose distribution moves by about `shift`, differently in each."""
    made = []
    for number in range(8):
        moved = shift * (0.5 + number / 8)
        made.append(
            TokenTrace(
                suite="fidelity", mode=mode, item_id=f"d{number}", cluster=f"d{number}", token_ids=[1, 2, 3],
                token_logprobs=[-0.3 - moved] * 3, top_ids=[[1, 2]] * 3,
                top_logprobs=[[-0.3 - moved, -1.6 + moved]] * 3,
            )
        )  # fmt: skip
    return tuple(made)


def outcomes(lost: int = 0, gained: int = 0, n: int = ITEMS) -> tuple[Measurement, ...]:
    """Right on two thirds of the items; the first `lost` right ones turn wrong, the last `gained` wrong ones right."""
    right = [item % 3 != 0 for item in range(n)]
    flips = [i for i in range(n) if right[i]][:lost] + [i for i in range(n) if not right[i]][:gained]
    return tuple(
        Measurement(suite="accuracy", mode="cold", item_id=f"t/{i}", cluster="t", metric="correct",
                    value=float(right[i] != (i in flips)))
        for i in range(n)
    )  # fmt: skip


def rounds(*throughputs: float) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(suite="performance", mode="cold", item_id=f"round-{i}", cluster="launch",
                    metric="output_throughput_tok_s", value=value)
        for i, value in enumerate(throughputs)
    )  # fmt: skip


def arm(role: Role, plan: ArmPlan, *, shift: float = 0.0, lost: int = 0, gained: int = 0) -> ArmRecord:
    quantized = plan.config.quantization.scheme != "none"
    effective = EffectiveConfig(
        cache_dtype=plan.config.quantization.scheme if quantized else "auto",
        kv_cache_tokens=1024 if quantized else 512,
        kv_cache_slots=1024 if quantized else 512,
        kv_cache_bytes=1_048_576,
        prefix_caching=plan.config.reuse.prefix_caching,
        max_model_len=plan.max_model_len,
    )
    measured = (*outcomes(lost, gained), *rounds(100, 101, 102))
    return ArmRecord(
        role=role, plan=plan, effective=effective, traces=traces(shift), measurements=measured, complete=True
    )


def arms_of(plan: Plan, *, shift: float = 0.0, lost: int = 0, gained: int = 0) -> dict[Role, ArmRecord]:
    return {
        "baseline": arm("baseline", plan.baseline),
        "control": arm("control", plan.baseline),
        "candidate": arm("candidate", plan.candidate, shift=shift, lost=lost, gained=gained),
    }


def judged(plan: Plan, arms: Mapping[Role, ArmRecord]) -> Report:
    report = judge(plan, arms)
    assert report.sentence.startswith(f"{report.verdict}: ")
    assert Report.model_validate_json(report.model_dump_json()) == report
    return report


def test_no_harm_at_all_passes_and_says_what_it_gains() -> None:
    plan = plan_of()
    report = judged(plan, arms_of(plan))
    assert report.verdict is Verdict.PASS
    assert {finding.outcome for finding in report.findings} == {Outcome.PASSED}
    assert "KV capacity 2.00x, throughput 1.00x" in report.sentence


def test_proven_token_damage_fails() -> None:
    plan = plan_of()
    report = judged(plan, arms_of(plan, shift=0.6))
    assert report.verdict is Verdict.FAIL
    assert "decode KL" in report.sentence
    assert "exceeds 0.050 nats/token" in report.sentence


def test_a_proven_loss_of_answers_fails() -> None:
    plan = plan_of()
    report = judged(plan, arms_of(plan, lost=30, gained=2))
    assert report.verdict is Verdict.FAIL
    assert "accuracy change -14.0 points" in report.sentence


def test_too_little_evidence_says_how_many_more_items_would_decide() -> None:
    plan = plan_of()
    report = judged(plan, arms_of(plan, lost=12, gained=8))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "more items would decide" in report.sentence
    assert "harm shows reliably from -" in report.sentence


def test_fail_needs_holms_correction_over_the_blocking_rules() -> None:
    """Eleven lost against three gained is p = 0.029: a regression alone, not one among two rules."""
    alone = plan_of(rules=RULES[1:2])
    among = plan_of()
    assert judged(alone, arms_of(alone, lost=11, gained=3)).verdict is Verdict.FAIL
    assert judged(among, arms_of(among, lost=11, gained=3)).verdict is Verdict.INCONCLUSIVE


def test_speed_within_the_noise_of_two_launches_is_not_a_regression() -> None:
    plan = plan_of(rules=[*RULES[:2], RULES[2] | {"severity": "block"}])
    arms = arms_of(plan)
    arms["candidate"] = replace(arms["candidate"], measurements=(*outcomes(), *rounds(85, 86, 87)))
    slow = judged(plan, arms)
    assert slow.verdict is Verdict.FAIL
    arms["control"] = replace(arms["control"], measurements=(*outcomes(), *rounds(87, 88, 89)))
    assert judged(plan, arms).verdict is Verdict.INCONCLUSIVE


def test_without_a_control_launch_speed_has_no_bounds() -> None:
    plan = plan_of()
    arms = arms_of(plan)
    del arms["control"]
    report = judged(plan, arms)
    assert report.findings[-1].outcome is Outcome.INCONCLUSIVE
    assert report.verdict is Verdict.PASS
    assert "noise floor" in report.notes[-1]


def test_nan_is_a_failure_of_the_candidate_alone() -> None:
    plan = plan_of()
    arms = arms_of(plan)
    broken = replace(arms["candidate"].traces[0], token_logprobs=[None, -1.0, -1.0])
    arms["candidate"] = replace(arms["candidate"], traces=(broken, *arms["candidate"].traces[1:]))
    report = judged(plan, arms)
    assert report.verdict is Verdict.FAIL
    assert "decode KL: the candidate has no finite value for 1 items" in report.sentence
    assert "exceeds" not in report.sentence, "the documents that are left decide nothing"
    arms["baseline"] = replace(arms["baseline"], traces=(broken, *arms["baseline"].traces[1:]))
    assert judged(plan, arms).verdict is Verdict.INVALID


def test_a_rule_without_data_is_invalid_never_passed() -> None:
    plan = plan_of()
    arms = arms_of(plan)
    arms["candidate"] = replace(arms["candidate"], measurements=rounds(100, 101))
    report = judged(plan, arms)
    assert report.verdict is Verdict.INVALID
    assert "accuracy change: no data" in report.sentence


def test_items_that_lack_a_counterpart_are_missing() -> None:
    plan = plan_of()
    arms = arms_of(plan)
    arms["baseline"] = replace(arms["baseline"], measurements=(*outcomes(n=ITEMS - 1), *rounds(100, 101)))
    assert "1 of 200 items have no counterpart" in judged(plan, arms).sentence


def test_items_and_documents_that_the_candidate_lost_are_missing_not_overlooked() -> None:
    plan = plan_of()
    arms = arms_of(plan)
    fewer = replace(arms["candidate"], measurements=(*outcomes(n=100), *rounds(100, 101)))
    assert "100 of 200 items have no counterpart" in judged(plan, {**arms, "candidate": fewer}).sentence
    cut = replace(arms["candidate"], traces=arms["candidate"].traces[:6])
    report = judged(plan, {**arms, "candidate": cut})
    assert report.verdict is Verdict.INVALID
    assert "2 of 8 items have no counterpart" in report.sentence


def test_nan_in_both_arms_warm_caches_is_not_the_candidates_doing() -> None:
    plan = plan_of({"reuse": {"prefix_caching": True}})
    arms = arms_of(plan)
    warm = traces(0, "warm")
    broken = (replace(warm[0], token_logprobs=[None, -1.0, -1.0]), *warm[1:])
    both: dict[Role, ArmRecord] = {
        role: replace(record, traces=(*record.traces, *broken)) for role, record in arms.items()
    }
    assert judged(plan, both).verdict is Verdict.INVALID


def test_a_declared_context_beyond_the_suite_cannot_pass_but_can_fail() -> None:
    plan = plan_of(max_context=2048, decode_tokens=500)
    report = judged(plan, arms_of(plan))
    assert report.verdict is Verdict.INVALID
    assert (
        "coverage: max_context 2048 > 80 tokens reached, decode_tokens 500 > 16 tokens decoded"
        in report.sentence
    )
    assert judged(plan, arms_of(plan, shift=0.6)).verdict is Verdict.FAIL


def test_a_change_that_nothing_verifies_passes_nothing() -> None:
    plan = plan_of({"scheduling": {"chunked_prefill": False}})
    arms = arms_of(plan)
    report = judged(plan, arms)
    assert report.verdict is Verdict.INVALID
    assert "nothing that the change sets could be verified: chunked_prefill: requested off" in report.sentence
    seen = replace(arms["candidate"].effective, chunked_prefill=False)  # type: ignore[type-var]
    assert (
        judged(plan, {**arms, "candidate": replace(arms["candidate"], effective=seen)}).verdict
        is Verdict.PASS
    )


def test_what_could_not_be_verified_and_what_was_left_open_is_noted() -> None:
    plan = plan_of({"quantization": {"scheme": "fp8_e4m3"}, "scheduling": {"max_num_batched_tokens": 64}})
    notes = judged(plan, arms_of(plan)).notes
    assert "Not verified: max_num_batched_tokens 64, the engine did not say." in notes
    assert any(
        note.startswith("The deployment declares no max_context and no decode_tokens") for note in notes
    )


def test_dropped_scales_and_a_quantized_baseline_are_invalid_by_name() -> None:
    plan = plan_of({"quantization": {"scheme": "fp8_e4m3", "scales": "checkpoint"}})
    arms = arms_of(plan)
    assert "quantization.scales: requested checkpoint, effective not reported" in judged(plan, arms).sentence
    unit = replace(arms["candidate"].effective, unit_scale_layers=2, scaled_layers=0)  # type: ignore[type-var]
    dropped = judged(plan, {**arms, "candidate": replace(arms["candidate"], effective=unit)})
    assert dropped.verdict is Verdict.INVALID
    assert "quantization.scales: requested checkpoint, effective 1.0 in all 2 layers" in dropped.sentence
    quantized = replace(arms["baseline"].effective, stored_types={"float8_e4m3fn": 2})  # type: ignore[type-var]
    unsound = judged(plan, {**arms, "baseline": replace(arms["baseline"], effective=quantized)})
    assert unsound.sentence.startswith("INVALID: baseline is unsound: stored_type: requested 16-bit")


def test_prefix_caching_is_judged_warm_too_and_only_if_prefixes_were_hit() -> None:
    plan = plan_of({"reuse": {"prefix_caching": True}})
    arms = arms_of(plan)
    cold_only = judged(plan, arms)
    assert cold_only.verdict is Verdict.INVALID

    def with_hits(hits: float) -> Report:
        proof = Exercise(suite="fidelity", mode="warm", counter="hits", moved=hits, expected="moved")
        warmed = replace(arms["candidate"], traces=(*traces(0), *traces(0, "warm")), exercises=(proof,))
        return judged(plan, {**arms, "candidate": warmed})

    assert with_hits(512).verdict is Verdict.PASS
    assert "hits did not move in warm mode" in with_hits(0).sentence


def test_an_unexpected_prefix_hit_invalidates_the_round_it_flattered() -> None:
    plan = plan_of(rules=[*RULES[:2], RULES[2] | {"severity": "block"}])
    arms = arms_of(plan)
    proof = Exercise(suite="performance", mode="cold", counter="hits", moved=64, expected="still")
    arms["candidate"] = replace(arms["candidate"], exercises=(proof,))
    assert "hits moved by 64 in cold mode" in judged(plan, arms).sentence


@pytest.mark.parametrize(
    ("role", "kind", "repeated", "verdict"),
    [
        ("candidate", "refused", False, Verdict.INVALID),
        ("candidate", "died", False, Verdict.ERROR),
        ("candidate", "died", True, Verdict.FAIL),
        ("candidate", "stalled", True, Verdict.FAIL),
        ("candidate", "infrastructure", True, Verdict.ERROR),
        ("baseline", "refused", False, Verdict.INVALID),
        ("baseline", "died", True, Verdict.ERROR),
        ("control", "died", False, Verdict.PASS),
    ],
)
def test_who_failed_and_how_decides_what_it_means(
    role: Role, kind: str, repeated: bool, verdict: Verdict
) -> None:
    plan = plan_of()
    arms = arms_of(plan)
    failure = ArmFailure(role=role, kind=kind, cause="the cause", repeated=repeated)  # type: ignore[arg-type]
    arms[role] = replace(arms[role], failure=failure, complete=False)
    report = judged(plan, arms)
    assert report.verdict is verdict
    assert role == "control" or "the cause" in report.sentence


def test_a_failure_is_certain_once_holm_must_reject_it_whatever_comes() -> None:
    plan = plan_of()

    def reason(shift: float) -> str | None:
        arms = arms_of(plan, shift=shift)
        arms["candidate"] = replace(arms["candidate"], measurements=(), complete=False)
        return certain_failure(plan, arms)

    assert reason(0.0) is None
    assert (reason(0.6) or "").startswith("decode_kl: ")


def test_missing_arms_are_errors() -> None:
    plan = plan_of()
    arms = arms_of(plan)
    assert judged(plan, {}).verdict is Verdict.ERROR
    assert judged(plan, {"baseline": arms["baseline"]}).verdict is Verdict.ERROR


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 0.4), st.integers(0, 20), st.integers(0, 20), st.randoms(use_true_random=False))
def test_the_order_of_items_changes_nothing(
    shift: float, lost: int, gained: int, random: np.random.Generator
) -> None:
    plan = plan_of()
    arms = arms_of(plan, shift=shift, lost=lost, gained=gained)
    shuffled = list(arms["candidate"].measurements), list(arms["candidate"].traces)
    random.shuffle(shuffled[0])
    random.shuffle(shuffled[1])
    permuted = replace(arms["candidate"], measurements=tuple(shuffled[0]), traces=tuple(shuffled[1]))
    first, second = judged(plan, arms), judged(plan, {**arms, "candidate": permuted})
    assert (first.verdict, first.sentence) == (second.verdict, second.sentence)


@pytest.mark.parametrize(("shift", "verdict"), [(0.6, Verdict.FAIL), (0.0, Verdict.ERROR)])
def test_what_was_proven_stands_although_a_later_probe_could_not_measure(
    shift: float, verdict: Verdict
) -> None:
    plan = plan_of()
    arms = arms_of(plan, shift=shift)
    failure = ArmFailure(role="candidate", kind="infrastructure", cause="lm-eval ended with status 1")
    only_tokens = replace(arms["candidate"], measurements=(), complete=False, failure=failure)
    report = judged(plan, {**arms, "candidate": only_tokens})
    assert report.verdict is verdict
    assert "lm-eval ended with status 1" in (report.sentence + " ".join(report.notes))


def test_no_bound_is_beyond_what_is_possible() -> None:
    plan = plan_of()
    arms = arms_of(plan, shift=0.3)
    others = [replace(trace, top_ids=[[2, 1]] * 3) for trace in traces(0.3)]
    odd = replace(arms["candidate"], traces=(*traces(0.3)[:2], *others[2:]))
    for delta in judged(plan, {**arms, "candidate": odd}).deltas:
        least, largest = METRICS[delta.metric].possible
        bounds = [(point.lower, point.upper) for point in delta.curve]
        for lower, upper in [(delta.lower, delta.upper), *bounds]:
            assert lower is None or lower >= least
            assert upper is None or upper <= largest
