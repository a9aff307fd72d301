"""Looks within a probe: when a run may stop, what it may then say, and what the looks cost."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.change import Change
from gatekeeper.domain.interim import settled
from gatekeeper.domain.judge import judge
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.looks import Schedule, schedule_of
from gatekeeper.domain.measurement import EffectiveConfig, Measurement, Role, Stop, TokenTrace
from gatekeeper.domain.plan import ArmPlan, Model, Plan, make_plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Delta, Report, Verdict
from gatekeeper.stats.binary import mcnemar_exact, paired_difference_interval
from gatekeeper.stats.sequential import harm_p, wang_tsiatis

ITEMS, BATCHES, DOCUMENTS, PARTS = 240, 12, 32, 4
SHAPE = ModelShape(layers=2, attention_heads=4, kv_heads=4, head_dim=64, max_context=4096)
SUITE = Suite.model_validate(
    {
        "name": "s",
        "description": "",
        "stop_early": True,
        "probes": [
            {"probe": "fidelity", "documents": 32, "context_tokens": 64, "decode_tokens": 16, "batches": PARTS},
            {"probe": "accuracy", "tasks": ["t"], "batches": BATCHES},
        ],
    }
)  # fmt: skip
ACCURACY = {"metric": "accuracy", "max_drop": 0.1, "reason": "r"}
KL = {"metric": "decode_kl", "at_most": 0.05, "reason": "r"}


def plan_of(*rules: dict[str, object]) -> Plan:
    change = Change.model_validate({"model": "m", "candidate": {"quantization": {"scheme": "fp8_e4m3"}}})
    return make_plan(
        change, model=Model(name="m", source="/m", shape=SHAPE), suite=SUITE, device="cpu",
        policy=Policy.model_validate({"name": "p", "rules": list(rules)}), allowed_arguments=frozenset(),
    )  # fmt: skip


def answers(right: Sequence[bool]) -> tuple[Measurement, ...]:
    """Items in equal batches, in order."""
    return tuple(
        Measurement(suite="accuracy", mode="cold", item_id=f"t/{i:04}", cluster="t", metric="correct",
                    value=float(value), batch=i * BATCHES // ITEMS)
        for i, value in enumerate(right)
    )  # fmt: skip


def traces(damage: float, documents: int = DOCUMENTS) -> tuple[TokenTrace, ...]:
    made = []
    for number in range(documents):
        moved = damage * (0.8 + 0.4 * (number % 5) / 4)
        made.append(
            TokenTrace(
                suite="fidelity", mode="cold", item_id=f"d{number:02}", cluster=f"d{number:02}", token_ids=[1, 2],
                token_logprobs=[-0.3 - moved] * 2, top_ids=[[1, 2]] * 2,
                top_logprobs=[[-0.3 - moved, -1.6 + moved]] * 2, batch=number * PARTS // DOCUMENTS,
            )
        )  # fmt: skip
    return tuple(made)


def arm(role: Role, plan: ArmPlan, right: Sequence[bool], damage: float = 0.0) -> ArmRecord:
    is_fp8 = plan.config.quantization.scheme != "none"
    slots = 1024 if is_fp8 else 512
    effective = EffectiveConfig(
        cache_dtype="fp8_e4m3" if is_fp8 else "auto", kv_cache_tokens=slots, kv_cache_slots=slots,
        kv_cache_bytes=1_048_576, prefix_caching=False, max_model_len=plan.max_model_len,
    )  # fmt: skip
    return ArmRecord(
        role=role, plan=plan, effective=effective, measurements=answers(right), traces=traces(damage), complete=True
    )  # fmt: skip


def arms_of(
    plan: Plan, *, lost: float = 0.0, gained: float = 0.0, damage: float = 0.0
) -> dict[Role, ArmRecord]:
    """A third wrong under the baseline; the given shares of right and of wrong ones flip, all over the items."""
    rng = np.random.default_rng(5)
    before = rng.random(ITEMS) > 1 / 3
    flips = np.where(before, rng.random(ITEMS) < lost, rng.random(ITEMS) < gained)
    return {
        "baseline": arm("baseline", plan.baseline, list(before)),
        "control": arm("control", plan.baseline, list(before)),
        "candidate": arm("candidate", plan.candidate, list(before ^ flips), damage),
    }


def after(arms: dict[Role, ArmRecord], batches: int, stops: tuple[Stop, ...] = ()) -> dict[Role, ArmRecord]:
    """The same with only the first batches of the candidate's items measured."""
    candidate = arms["candidate"]
    measured = tuple(m for m in candidate.measurements if m.batch < batches)
    return {**arms, "candidate": replace(candidate, measurements=measured, stops=stops)}


def first_stop(plan: Plan, arms: dict[Role, ArmRecord]) -> tuple[int, str] | None:
    """After how many batches of items the run stops, and why."""
    for batches in range(1, BATCHES):
        reason = settled(plan, after(arms, batches), "accuracy", "cold", batches)
        if reason is not None:
            return batches, reason
    return None


def stopped(plan: Plan, arms: dict[Role, ArmRecord]) -> tuple[int, Report]:
    """The report of a run that ends where it may."""
    found = first_stop(plan, arms)
    assert found is not None
    stop = Stop(suite="accuracy", mode="cold", batches=found[0], reason=found[1])
    return found[0], judge(plan, after(arms, found[0], (stop,)))


def delta_of(report: Report, metric: str = "accuracy") -> Delta:
    return next(delta for delta in report.deltas if delta.metric == metric and delta.group == "all")


def test_a_plain_loss_of_answers_fails_with_a_part_of_the_items() -> None:
    plan = plan_of(ACCURACY)
    batches, report = stopped(plan, arms_of(plan, lost=0.4))
    assert batches <= BATCHES // 3
    assert report.verdict is Verdict.FAIL
    assert delta_of(report).n == ITEMS * batches // BATCHES
    assert delta_of(report).planned == ITEMS
    assert any("the verdict was certain: accuracy" in note for note in report.notes)


def test_a_change_without_loss_passes_with_a_part_of_the_items() -> None:
    plan = plan_of(ACCURACY)
    batches, report = stopped(plan, arms_of(plan, lost=0.02, gained=0.05))
    assert batches < BATCHES
    assert report.verdict is Verdict.PASS
    assert any("all blocking rules on it passed" in note for note in report.notes)


def test_a_rule_that_the_rest_would_not_decide_stops_the_probe_as_inconclusive() -> None:
    """A margin of half a point needs thousands of items when one in ten flips either way."""
    plan = plan_of(ACCURACY | {"max_drop": 0.005})
    _, report = stopped(plan, arms_of(plan, lost=0.1, gained=0.22))
    assert report.verdict is Verdict.INCONCLUSIVE
    assert any("would not decide accuracy" in note for note in report.notes)


def test_items_after_a_deliberate_stop_are_not_missing_and_lost_ones_before_it_are() -> None:
    plan = plan_of(ACCURACY)
    stop = Stop(suite="accuracy", mode="cold", batches=6, reason="enough")
    arms = after(arms_of(plan), 6, (stop,))
    assert delta_of(judge(plan, arms)).missing == 0
    fewer = replace(arms["candidate"], measurements=arms["candidate"].measurements[3:])
    assert delta_of(judge(plan, {**arms, "candidate": fewer})).missing == 3
    assert judge(plan, {**arms, "candidate": fewer}).verdict is Verdict.INVALID


def test_a_probe_that_ended_early_without_a_stop_on_record_lacks_its_items() -> None:
    plan = plan_of(ACCURACY)
    report = judge(plan, after(arms_of(plan), 6))
    assert report.verdict is Verdict.INVALID
    assert delta_of(report).missing == ITEMS // 2


def test_bounds_and_p_value_are_those_of_the_group_sequential_design() -> None:
    plan = plan_of(ACCURACY)
    arms = arms_of(plan, lost=0.1, gained=0.1)
    stop = Stop(suite="accuracy", mode="cold", batches=5, reason="enough")
    delta = delta_of(judge(plan, after(arms, 5, (stop,))))
    design = wang_tsiatis(tuple(k / BATCHES for k in range(1, BATCHES + 1)), alpha=0.05)
    pairs = [
        (a.value, b.value)
        for a, b in zip(arms["baseline"].measurements, arms["candidate"].measurements, strict=True)
    ]
    ends = [ITEMS * k // BATCHES for k in range(1, 6)]
    lost, gained = ([sum(pair == kind for pair in pairs[:n]) for n in ends] for kind in ((1, 0), (0, 1)))
    expected = paired_difference_interval(
        lost=lost[-1], gained=gained[-1], n=ends[-1], confidence=1 - design.nominal_alphas[4]
    )
    assert (delta.lower, delta.upper) == pytest.approx((expected.lower, expected.upper))
    assert delta.harm_p == harm_p(lost, [a + b for a, b in zip(lost, gained, strict=True)], design)
    assert delta.confidence == pytest.approx(0.95)
    assert "look 5 of 12" in delta.method


def test_a_baseline_in_one_batch_is_judged_at_its_full_number_without_any_price() -> None:
    plan = plan_of(ACCURACY)
    whole = {
        role: replace(record, measurements=tuple(replace(m, batch=0) for m in record.measurements))
        for role, record in arms_of(plan, lost=0.1, gained=0.1).items()
    }
    delta = delta_of(judge(plan, whole))
    assert delta.harm_p == mcnemar_exact(lost=delta.lost or 0, gained=delta.gained or 0)
    assert "look" not in delta.method


def test_looking_often_widens_the_bounds_of_the_last_look_a_little() -> None:
    plan = plan_of(ACCURACY)
    arms = arms_of(plan, lost=0.1, gained=0.1)
    looked = delta_of(judge(plan, arms))
    whole = delta_of(
        judge(
            plan,
            {
                role: replace(record, measurements=tuple(replace(m, batch=0) for m in record.measurements))
                for role, record in arms.items()
            },
        )
    )
    assert looked.lower is not None
    assert looked.upper is not None
    assert whole.lower is not None
    assert whole.upper is not None
    assert looked.lower < whole.lower
    assert looked.upper > whole.upper


def test_documents_stop_a_run_too_and_never_before_sixteen_of_them() -> None:
    plan = plan_of(KL)
    arms = arms_of(plan, damage=0.6)

    def reason(parts: int) -> str | None:
        candidate = arms["candidate"]
        measured = tuple(t for t in candidate.traces if t.batch < parts)
        some = {**arms, "candidate": replace(candidate, traces=measured, measurements=())}
        return settled(plan, some, "fidelity", "cold", parts)

    assert reason(1) is None
    assert "the verdict was certain: decode_kl" in (reason(2) or "")


@pytest.mark.parametrize("harmless", [0.0, 0.01])
def test_harmless_documents_pass_at_the_first_look(harmless: float) -> None:
    plan = plan_of(KL)
    arms = arms_of(plan, damage=harmless)
    measured = tuple(t for t in arms["candidate"].traces if t.batch < 2)
    some = {**arms, "candidate": replace(arms["candidate"], traces=measured, measurements=())}
    assert settled(plan, some, "fidelity", "cold", 2) == "all blocking rules on it passed"


def test_a_schedule_leaves_out_early_looks_and_counts_only_measured_items() -> None:
    planned = [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8
    schedule = schedule_of(planned, [0] * 8 + [1] * 7, batches_done=2, fewest=16)
    assert schedule == Schedule(fractions=(0.5, 0.75, 1.0), seen=(15,), planned=32)
    assert schedule_of(planned, [0] * 8, batches_done=1, fewest=16).seen == ()


def test_batches_need_a_suite_that_stops_early() -> None:
    document = SUITE.model_dump() | {"stop_early": False}
    with pytest.raises(ValueError, match="fidelity, accuracy: batches are for a suite with stop_early"):
        Suite.model_validate(document)
