"""What is said of a rule before a run."""

from collections.abc import Sequence
from typing import Any

import pytest

from gatekeeper import catalog
from gatekeeper.domain.change import Change
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.foresight import Foresight, foresee
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.probes import AccuracyProbe
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.verdict import Delta, Noise

SHAPE = ModelShape(layers=30, attention_heads=9, kv_heads=3, head_dim=64, max_context=8192)
ACCURACY = {"metric": "accuracy", "max_drop": 0.05}
KL = {"metric": "decode_kl", "at_most": 0.03}
SPEED = {"metric": "throughput_ratio", "at_least": 0.9}


ALONE = Suite.model_validate(
    {"name": "alone", "description": "Each arm in a launch of its own.", "probes": [
        {"probe": "performance", "prompts": 16, "input_tokens": 128, "output_tokens": 64, "rounds": 3}]}
)  # fmt: skip


def plan_of(
    *rules: dict[str, Any],
    suite: str | Suite = "smoke",
    policy: Policy | None = None,
    prefix_caching: bool = False,
) -> Plan:
    candidate = {"quantization": {"scheme": "fp8_e4m3"}, "reuse": {"prefix_caching": prefix_caching}}
    change = Change.model_validate({"model": "m", "candidate": candidate})
    stated = [{"reason": "r"} | rule for rule in rules]
    return make_plan(
        change,
        model=Model(name="m", source="/m", shape=SHAPE),
        suite=catalog.get_suite(suite) if isinstance(suite, str) else suite,
        policy=policy or Policy.model_validate({"name": "p", "rules": stated}),
        device="cpu",
        allowed_arguments=frozenset(),
    )


def seen(rule: dict[str, Any], *, suite: str | Suite = "smoke", noise: Noise | None = None) -> Foresight:
    (outlook,) = foresee(plan_of(rule, suite=suite), noise)
    assert (outlook.metric, outlook.severity) == (rule["metric"], "block")
    return outlook


def measured(metric: str, estimate: float, *, launches: Sequence[float] = (), **more: Any) -> Noise:
    fixed: dict[str, Any] = {
        "suite": "s", "mode": "cold", "unit": "x", "n": 1, "clusters": 1, "baseline": None, "candidate": None,
        "lower": None, "upper": None, "confidence": 0.95, "method": "m",
    }  # fmt: skip
    return Noise(deltas=(Delta(**fixed, metric=metric, estimate=estimate, launches=tuple(launches)),), **more)


def fidelity(**fields: Any) -> Suite:
    probe = {"probe": "fidelity", "documents": 16, "context_tokens": 64, "decode_tokens": 64} | fields
    return Suite.model_validate({"name": "s", "description": "", "probes": [probe]})


def test_a_margin_that_the_items_cannot_decide_is_said_with_the_number_that_could() -> None:
    few = seen(ACCURACY)
    assert few.outlook == "undecidable"
    assert few.sentence == (
        "with 80 items and 9% flips (a planning value), a drop of 8.6 points shows reliably; the margin is 5 points, "
        "for which about 240 items would do"
    )
    assert seen(ACCURACY, suite="standard").outlook == "decidable"
    assert seen(ACCURACY | {"max_drop": 0.1}).outlook == "decidable"


def test_the_number_of_items_that_would_do_is_never_one_that_the_suite_has() -> None:
    sizes = {"gk_recall": 120, "gk_agreement": 120, "gk_plausible": 120, "gk_facts": 80}
    probe = {"probe": "accuracy", "tasks": list(sizes), "items_per_task": 15, "expected_items": sizes}
    small = Suite.model_validate({"name": "s", "description": "", "probes": [probe]})
    close = seen(ACCURACY | {"max_drop": 0.1}, suite=small)
    assert close.outlook == "undecidable"
    assert "with 60 items" in close.sentence
    assert int(close.sentence.split("about ")[1].split(" items")[0]) > 60


def test_a_measured_flip_rate_above_the_planned_one_counts() -> None:
    noisy = seen(ACCURACY, suite="standard", noise=Noise(accuracy_flip_rate=0.3))
    assert noisy.outlook == "undecidable"
    assert "30% flips, a drop" in noisy.sentence


def test_one_percent_of_the_baseline_needs_thousands_of_items() -> None:
    relative = seen({"metric": "accuracy", "at_least_of_baseline": 0.99}, suite="standard")
    assert relative.outlook == "undecidable"
    assert relative.margin == pytest.approx(0.0075)
    assert "about 11," in relative.sentence


def test_looks_cost_a_little_of_what_the_items_could_show() -> None:
    standard = catalog.get_suite("standard")
    probes = [
        probe.model_dump() | ({"batches": 1} if "batches" in type(probe).model_fields else {})
        for probe in standard.probes
    ]
    at_once = Suite.model_validate(standard.model_dump() | {"probes": probes})
    drops = [seen(ACCURACY, suite=suite).detectable for suite in (at_once, standard)]
    assert drops[0] is not None
    assert drops[1] is not None
    assert drops[0] < drops[1] < 1.15 * drops[0]


def test_the_score_decides_where_answers_cannot() -> None:
    assert seen({"metric": "choice_probability", "max_drop": 0.02}).outlook == "decidable"


def test_a_rule_on_tasks_is_as_decidable_as_the_smallest_of_them() -> None:
    worst = seen(ACCURACY | {"group": "worst"}, suite="standard")
    assert "80 items of gk_facts" in worst.sentence
    assert seen(ACCURACY | {"group": "gk_recall", "max_drop": 0.1}, suite="standard").outlook == "decidable"
    other = seen(ACCURACY | {"group": "gsm8k"})
    assert (other.outlook, other.sentence.startswith("the suite has no task gsm8k")) == ("undecidable", True)


def test_unknown_tasks_leave_it_open() -> None:
    probe = {"probe": "accuracy", "tasks": ["gsm8k"]}
    suite = Suite.model_validate({"name": "s", "description": "", "probes": [probe]})
    assert seen(ACCURACY, suite=suite).outlook == "unknown"


def test_a_suite_without_the_probe_decides_nothing() -> None:
    suite = fidelity()
    assert [seen(rule, suite=suite).outlook for rule in (ACCURACY, SPEED)] == ["undecidable"] * 2
    assert seen(KL, suite=suite).outlook == "decidable"


@pytest.mark.parametrize(
    ("rule", "suite", "words"),
    [
        (KL, fidelity(documents=4), "4 documents pass nothing, 8 are needed"),
        (KL | {"decode_position": [64, 128]}, fidelity(), "decodes 64 tokens only"),
        ({"metric": "decode_nll", "at_most": 0.005}, fidelity(), "an unchanged setup may not pass"),
    ],
)  # fmt: skip
def test_fidelity_needs_documents_length_and_room(rule: dict[str, Any], suite: Suite, words: str) -> None:
    outlook = seen(rule, suite=suite)
    assert outlook.outlook == "undecidable"
    assert words in outlook.sentence


def test_a_noise_floor_beyond_the_limit_makes_a_fidelity_rule_undecidable() -> None:
    assert seen(KL, noise=measured("decode_kl", 0.002)).outlook == "decidable"
    beyond = seen(KL, noise=measured("decode_kl", 0.04))
    assert beyond.outlook == "undecidable"
    assert "two launches of the baseline differ by 0.040 nats/token" in beyond.sentence


def test_a_limit_relative_to_the_noise_is_known_once_the_noise_is() -> None:
    rule = {"metric": "decode_kl", "at_most_noise_multiple": 3, "limit_floor": 0.005}
    assert seen(rule).outlook == "unknown"
    assert seen(rule, noise=measured("decode_kl", 0.01)).outlook == "decidable"


def test_speed_is_undecidable_within_the_noise_between_launches() -> None:
    planned = seen(SPEED, suite=ALONE)
    assert planned.outlook == "undecidable"
    assert "differ by 12% (a planning value)" in planned.sentence
    quiet = measured("throughput_ratio", 1.002)
    assert seen(SPEED | {"at_least": 0.8}, suite=ALONE, noise=quiet).outlook == "decidable"
    assert "(measured)" in seen(SPEED, suite=ALONE, noise=quiet).sentence


def test_of_a_demanded_gain_it_is_said_how_large_it_must_be() -> None:
    assert "reliably" in seen(SPEED | {"at_least": 1.5}, suite=ALONE).sentence
    capacity = {"metric": "kv_capacity_ratio", "at_least": 1.8}
    assert seen(capacity).sentence == "the engine reports it exactly; by formula it comes to 2.00x"
    assert "so it cannot reach 2.5x" in seen(capacity | {"at_least": 2.5}).sentence


def test_a_rule_on_a_mode_that_is_not_asked_for_is_idle() -> None:
    idle = seen(KL | {"mode": "warm"})
    assert (idle.outlook, "asks for no warm mode" in idle.sentence) == ("idle", True)
    against_itself = seen({"metric": "consistency_kl", "at_most": 0.01})
    assert (against_itself.outlook, "None" in against_itself.sentence) == ("idle", False)


@pytest.mark.parametrize(
    ("policy", "suite"),
    [("default", "standard"), ("fast", "smoke"), ("strict", "standard"), ("deep", "deep")],
)
def test_every_blocking_rule_of_a_bundled_policy_is_decidable_on_its_suite(policy: str, suite: str) -> None:
    quantized = foresee(plan_of(suite=suite, policy=catalog.get_policy(policy)))
    reusing = foresee(plan_of(suite=suite, policy=catalog.get_policy(policy), prefix_caching=True))
    assert {one.outlook for one in quantized if one.severity == "block"} <= {"decidable", "idle"}
    assert {one.outlook for one in reusing if one.severity == "block"} == {"decidable"}


def test_what_is_expected_of_the_items_identifies_no_suite() -> None:
    suite = catalog.get_suite("smoke")
    bare = suite.model_copy(
        update={
            "probes": tuple(
                probe.model_copy(update={"expected_items": {}}) if isinstance(probe, AccuracyProbe) else probe
                for probe in suite.probes
            )
        }
    )
    assert bare != suite
    assert bare.fingerprint == suite.fingerprint


def speed_suite(**fields: Any) -> Suite:
    load = {"probe": "performance", "prompts": 4, "input_tokens": 128, "output_tokens": 8, "rounds": 4}
    return Suite.model_validate({"name": "s", "description": "", "probes": [load | fields]})


def test_turns_decide_what_single_launches_cannot() -> None:
    in_turns = seen(SPEED, suite=speed_suite(turns={"launches": 3}))
    assert in_turns.outlook == "decidable"
    assert (
        "pairs of launches of the baseline that take turns differ by 4% (a planning value)"
        in in_turns.sentence
    )
    assert seen(SPEED, suite=speed_suite(turns={"launches": 1})).outlook == "undecidable"
    quiet = measured("throughput_ratio", 1.0, launches=[0.001, -0.002, 0.001])
    tight = seen(SPEED | {"at_least": 0.99}, suite=speed_suite(turns={"launches": 3}), noise=quiet)
    assert tight.outlook == "decidable"
    assert "(measured)" in tight.sentence


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"metric": "goodput_ratio", "at_least": 0.9}, "the deployment states no slo"),
        (SPEED | {"input_tokens": 64}, "prompts of 128 tokens only"),
    ],
)
def test_a_load_that_no_round_has_is_said(rule: dict[str, Any], words: str) -> None:
    outlook = seen(rule, suite=speed_suite())
    assert outlook.outlook == "undecidable"
    assert words in outlook.sentence


def test_a_length_among_several_is_known() -> None:
    several = speed_suite(input_tokens=[64, 128], turns={"launches": 3})
    assert seen(SPEED | {"input_tokens": 64}, suite=several).outlook == "decidable"
    assert "64 and 128 tokens" in seen(SPEED | {"input_tokens": 32}, suite=several).sentence


def test_the_classic_shape_is_refused_for_a_model_whose_context_it_exceeds() -> None:
    with pytest.raises(InvalidInput, match="9216 tokens are beyond the model's context"):
        plan_of(SPEED, suite="classic")
