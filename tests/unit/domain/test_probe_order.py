"""Which probe comes first, and what each costs."""

from typing import Any

import pytest

from gatekeeper.catalog import get_policy, get_suite
from gatekeeper.domain.change import Change
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.probe_order import Work, in_order, information, work_of
from gatekeeper.domain.probes import AccuracyProbe, FidelityProbe, ModesProbe
from gatekeeper.domain.suite import Suite
from gatekeeper.domain.vllm_flags import Device
from tests.fakes.engine import SHAPE

FIDELITY: dict[str, Any] = {"probe": "fidelity", "documents": 16, "context_tokens": 512, "decode_tokens": 128}
ACCURACY: dict[str, Any] = {
    "probe": "accuracy", "tasks": ["a"], "expected_items": {"a": 120}, "choices": 2, "tokens_per_request": 50,
}  # fmt: skip
SPEED: dict[str, Any] = {
    "probe": "performance", "prompts": 4, "input_tokens": 64, "output_tokens": 16, "rounds": 3,
}  # fmt: skip
MODES: dict[str, Any] = {
    "probe": "modes", "modes": ["boundary", "prefill"], "documents": 12, "context_tokens": 256, "decode_tokens": 32,
}  # fmt: skip


def plan_of(*probes: dict[str, Any], policy: str = "fast", device: Device = "cpu", **candidate: Any) -> Plan:
    suite = Suite.model_validate({"name": "s", "description": "", "probes": list(probes)})
    return planned(suite, get_policy(policy, extra=None), device, **candidate)


def planned(suite: Suite, policy: Policy, device: Device = "cpu", **candidate: Any) -> Plan:
    change = Change.model_validate({
        "model": "m", "candidate": candidate or {"quantization": {"scheme": "fp8_e4m3"}}, "suite": suite.name,
    })  # fmt: skip
    model = Model(name="m", source="/nowhere", shape=SHAPE.model_copy(update={"max_context": 16_384}))
    return make_plan(
        change, model=model, suite=suite, policy=policy, device=device, allowed_arguments=frozenset()
    )


def order(plan: Plan) -> list[str]:
    return [probe.probe for probe in in_order(plan)]


def test_what_shows_more_in_a_second_comes_first_wherever_it_stands_in_the_file() -> None:
    assert order(plan_of(SPEED, ACCURACY, MODES, FIDELITY, {"probe": "capacity"})) == [
        "capacity", "modes", "fidelity", "accuracy", "performance",
    ]  # fmt: skip
    few = FIDELITY | {"documents": 2, "context_tokens": 4_000}
    assert order(plan_of(few, ACCURACY)) == ["accuracy", "fidelity"]  # two documents pass nothing


def test_a_first_batch_needs_a_fresh_engine_and_a_small_pool_one_of_its_own() -> None:
    saturated = {"probe": "saturated", "documents": 16, "context_tokens": 320, "decode_tokens": 128}
    first = MODES | {"modes": ["first_batch"], "documents": 2}
    assert order(plan_of(first, saturated, FIDELITY, ACCURACY, SPEED | {"turns": {"launches": 2}})) == [
        "modes", "fidelity", "accuracy", "saturated", "performance",
    ]  # fmt: skip
    assert order(plan_of(saturated, SPEED, FIDELITY)) == ["fidelity", "performance", "saturated"]


def test_what_no_rule_foresees_keeps_its_place_after_the_rest() -> None:
    unknown = {"probe": "accuracy", "tasks": ["own"]}
    free = {"probe": "free_decode", "prompts": 4, "decode_tokens": 256}
    assert order(plan_of(unknown, free, FIDELITY)) == ["fidelity", "accuracy", "free_decode"]


def test_information_is_the_margin_over_what_shows_squared() -> None:
    plan = plan_of(FIDELITY, ACCURACY)
    assert information(plan, plan.suite.probes[0]) == pytest.approx(84, abs=1)  # top-1: 15 points, 1.6 show
    assert information(plan, plan.suite.probes[1]) == pytest.approx(3.1, abs=0.1)


def test_four_times_the_items_have_four_times_the_information() -> None:
    few, many = (
        plan_of(ACCURACY | {"expected_items": {"a": items}}, policy="default") for items in (200, 800)
    )
    ratio = information(many, many.suite.probes[0]) / information(few, few.suite.probes[0])
    assert ratio == pytest.approx(4, rel=0.03)


def test_a_probe_has_the_work_of_every_state_that_it_is_measured_in() -> None:
    fidelity = FidelityProbe.model_validate(FIDELITY | {"context_tokens": [128, 512]})
    cold = Work(items=32, read_tokens=16 * 640, decoded_tokens=32 * 128)
    assert work_of(fidelity, ("cold",)) == cold
    assert work_of(fidelity, ("cold", "warm")) == Work(
        items=64, read_tokens=32 * 640, decoded_tokens=64 * 128
    )
    modes = ModesProbe.model_validate(MODES)
    assert work_of(modes, ("cold", "prefill")) == Work(items=12, read_tokens=12 * 256, decoded_tokens=12 * 32)
    assert work_of(AccuracyProbe.model_validate(ACCURACY), ("cold",)) == Work(
        items=120, read_tokens=240 * 50, decoded_tokens=240
    )
    assert work_of(AccuracyProbe.model_validate({"probe": "accuracy", "tasks": ["own"]}), ("cold",)) is None


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "name", ["smoke", "standard", "deep", "rag", "chat", "documents", "edge", "reasoning"]
)
def test_bundled_suites_begin_with_what_tells_most(name: str, device: Device) -> None:
    suite = get_suite(name, extra=None)
    first = order(planned(suite, get_policy(suite.policy, extra=None), device))
    forced = [probe for probe in first if probe in ("modes", "fidelity")]
    assert first[: 1 + len(forced)] == ["capacity", *forced]
