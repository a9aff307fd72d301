"""Which calibration a change gets, that it is refused without one, and that figures of two are told apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.calibrations import list_calibrations, path_of, read_calibration
from gatekeeper.domain.calibration import Calibration, calibrated
from gatekeeper.domain.change import Change
from gatekeeper.domain.change_key import change_key
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_config import KVConfig, KvQuant
from gatekeeper.domain.measurement import EffectiveConfig
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.domain.reference_engine import unsupported
from tests.fakes.engine import POLICY, SHAPE, SUITE

KVQUANT = {"scheme": "kvquant", "bits": 3}
MODEL = Model(name="m", source="/nowhere", shape=SHAPE)


def calibration(**fields: Any) -> Calibration:
    usual = {
        "bits": 3, "outlier_fraction": 0.01, "source": "/nowhere", "weights": "w", "texts": "t", "tokens": 4096,
        "context_tokens": 512,
    }  # fmt: skip
    return Calibration.model_validate(usual | fields)


def planned(known: Sequence[Calibration], **fields: Any) -> Plan:
    document = {
        "model": "m",
        "candidate": {"quantization": KVQUANT | fields},
        "suite": "tiny",
        "policy": "kl only",
    }
    return make_plan(
        Change.model_validate(document), model=MODEL, suite=SUITE, policy=POLICY, device="cpu",
        allowed_arguments=frozenset(), calibrations=known,
    )  # fmt: skip


def quantization(plan: Plan) -> KvQuant:
    found = plan.candidate.config.quantization
    assert isinstance(found, KvQuant)
    return found


@pytest.mark.parametrize(
    "other",
    [
        {"bits": 4},
        {"outlier_fraction": 0.02},
        {"source": "/elsewhere"},
        {"revision": "a1"},
        {"procedure": 0},
    ],
    ids=str,
)
def test_without_a_calibration_of_its_own_a_change_is_refused_with_the_command_that_makes_one(
    other: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput) as refusal:
        planned([calibration(**other)])
    (problem,) = refusal.value.problems
    assert problem.field == "candidate.quantization.calibration"
    assert "no calibration of m for kvquant with bits 3 and outlier_fraction 0.01" in problem.problem
    assert "`gatekeeper calibrate m --scheme kvquant --bits 3`" in problem.allowed


def test_the_plan_names_the_preferred_calibration_and_so_does_the_engines_command() -> None:
    first, second = calibration(texts="a"), calibration(texts="b")
    plan = planned([first, second])
    assert (plan.candidate.engine, quantization(plan).calibration) == ("reference", first.id)
    assert any(first.id in flag for flag in plan.candidate.serve_flags)
    assert plan.change.candidate.quantization.model_dump()["calibration"] is None


def test_a_change_may_name_its_calibration_which_then_has_to_be_there() -> None:
    first, second = calibration(texts="a"), calibration(texts="b")
    assert quantization(planned([first, second], calibration=second.id)).calibration == second.id
    with pytest.raises(InvalidInput, match=f"no calibration {second.id} of m"):
        planned([first], calibration=second.id)


@pytest.mark.parametrize(
    "other",
    [{"texts": "u"}, {"weights": "v"}, {"tokens": 4097}, {"bits": 2}, {"outlier_fraction": 0.0}],
    ids=str,
)
def test_all_that_decides_a_calibration_is_in_its_id(other: dict[str, Any]) -> None:
    assert calibration(**other).id != calibration().id


def test_changes_with_different_calibrations_are_different_changes() -> None:
    plans = [planned([calibration(texts=text)]) for text in ("a", "b", "a")]
    keys = [change_key(plan) for plan in plans]
    assert keys[0] == keys[2] != keys[1]


def test_an_engine_with_another_calibration_or_none_has_not_applied_the_change() -> None:
    plan = planned([calibration()])
    for seen in (None, "0123456789abcdef"):
        effective = EffectiveConfig(cache_dtype="kvquant", calibration=seen)
        (unlike,) = mismatches(compare(plan.candidate, effective))
        assert unlike.sentence.startswith(
            f"quantization.calibration: requested {calibration().id}, effective "
        )
    applied = EffectiveConfig(cache_dtype="kvquant", calibration=calibration().id)
    assert mismatches(compare(plan.candidate, applied)) == ()


def test_other_schemes_need_none() -> None:
    config = KVConfig.model_validate({"quantization": {"scheme": "int8"}})
    assert calibrated(config, arm="a", name="m", source="/", revision=None, known=()) == (config, [])


def test_policies_that_treat_heads_alike_go_with_it_and_others_do_not() -> None:
    for policy, fields in (("streaming_llm", {"window": 8}), ("tova", {"budget_tokens": 8})):
        config = KVConfig.model_validate({"quantization": KVQUANT, "eviction": {"policy": policy, **fields}})
        assert unsupported(config, arm="candidate", shape=SHAPE) == []
    h2o = {"policy": "h2o", "budget_tokens": 8}
    (problem,) = unsupported(
        KVConfig.model_validate({"quantization": KVQUANT, "eviction": h2o}), arm="candidate", shape=SHAPE
    )
    assert problem.field == "candidate.eviction.policy"


def test_files_that_are_no_calibrations_are_not_listed(tmp_path: Path) -> None:
    folder = path_of(tmp_path, "x").parent
    folder.mkdir()
    for name, content in (
        ("empty", b""),
        ("long", b"\xff" * 16),
        ("text", b"\x05\0\0\0\0\0\0\0hello"),
        ("list", b"\x02\0\0\0\0\0\0\0[]"),
        ("plain", b"\x02\0\0\0\0\0\0\0{}"),
    ):
        (folder / f"{name}.safetensors").write_bytes(content)
    assert list_calibrations(tmp_path) == ()
    assert read_calibration(folder / "absent.safetensors") is None


@pytest.mark.parametrize(
    ("dtype", "fields"), [("bfloat16", []), ("float16", ["candidate.engine_args.dtype"])]
)
def test_it_computes_in_types_in_which_a_calibration_knows_its_model(dtype: str, fields: list[str]) -> None:
    config = KVConfig.model_validate({"quantization": KVQUANT, "engine_args": {"dtype": dtype}})
    assert [problem.field for problem in unsupported(config, arm="candidate", shape=SHAPE)] == fields
