"""The form that proposes a change."""

from __future__ import annotations

from typing import Any

import pytest

from gatekeeper.domain.change import Change, Deployment, Ref, Slo
from gatekeeper.domain.documents import parse_change
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.web.rendering import render
from gatekeeper.web.submitting import (
    ChangeForm,
    change_document,
    change_form,
    known_fields,
    problems,
)

GIVEN = {
    "model": "smollm2-135m",
    "suite": "smoke",
    "name": "42",
    "candidate.quantization.scheme": "kivi",
    "candidate.quantization.bits": "2",
    "candidate.reuse.prefix_caching": "true",
    "candidate.scheduling.block_size": "",
    "deployment.max_context": "2048",
    "ref.commit": "1234567",
}


def form(given: dict[str, str]) -> ChangeForm:
    return change_form(
        given,
        models=["smollm2-135m"],
        suites=["smoke", "standard"],
        policies=["default"],
        arguments=["dtype", "seed"],
    )


def proposed(given: dict[str, str]) -> Change:
    return parse_change(change_document(known_fields(given, form(given))))


def page(given: dict[str, str], refusal: InvalidInput | None = None) -> str:
    found = problems(refusal.problems, form(given)) if refusal else ()
    values: dict[str, Any] = {"form": form(given), "problems": found, "outlook": None, "needs_token": False}
    return bytes(render("submit.html", **values).body).decode()


def test_what_is_filled_in_is_the_change() -> None:
    change = proposed(GIVEN)
    assert (change.name, change.ref.commit, change.suite) == ("42", "1234567", "smoke")
    assert change.candidate.quantization.model_dump(include={"scheme", "bits"}) == {
        "scheme": "kivi",
        "bits": 2,
    }
    assert change.candidate.reuse.prefix_caching is True
    assert change.deployment.max_context == 2048


def test_a_scheme_brings_its_own_parameters() -> None:
    quantization, eviction, *_ = form(GIVEN).groups
    assert [field.label for field in quantization.fields] == [
        "bits",
        "group_size",
        "residual_length",
        "skip_layers",
    ]
    assert [field.hint for field in quantization.fields] == ["needed", "else 32", "else 128", "such as 0, 1"]
    assert [option.value for option in quantization.fields[0].options] == ["2", "4"]
    assert eviction.fields == ()


def test_layers_are_listed_with_commas_and_an_id_of_digits_stays_text() -> None:
    for written in ("0, 29", "[0, 29]"):
        document = change_document({"candidate.quantization.skip_layers": written})
        assert document["candidate"]["quantization"]["skip_layers"] == [0, 29]
    document = change_document(
        {"candidate.quantization.skip_layers": "3", "candidate.quantization.calibration": "12"}
    )
    assert document["candidate"]["quantization"] == {"skip_layers": [3], "calibration": "12"}


def test_policies_that_are_made_of_others_are_typed_in_as_a_file_has_them() -> None:
    place = "candidate.eviction"
    chosen = {"model": "m", f"{place}.policy": "composed"}
    _, eviction, *_ = form(chosen).groups
    assert [field.label for field in eviction.fields] == ["prompt", "decode", "skip_layers"]
    example = {f"{place}.{field.label}": field.hint.removeprefix("such as ") for field in eviction.fields[:2]}
    filled = chosen | example
    change = parse_change(change_document(known_fields(filled, form(filled))))
    assert change.label == "h2o(0.5) then streaming_llm(4, 508)"
    layers = {"model": "m", f"{place}.policy": "per_layer"}
    _, eviction, *_ = form(layers).groups
    groups, other = eviction.fields
    filled = layers | {
        groups.name: groups.hint.removeprefix("such as "),
        other.name: other.hint.removeprefix("such as ").partition(", else")[0],
    }
    change = parse_change(change_document(known_fields(filled, form(filled))))
    assert change.label == "layers 0-1 full, others sliding_window(512)"


def test_parameters_of_another_scheme_fall_away() -> None:
    given = GIVEN | {"candidate.quantization.scheme": "fp8_e4m3", "strange": "x"}
    kept = known_fields(given, form(given))
    assert "candidate.quantization.bits" not in kept
    assert "strange" not in kept


def test_an_empty_form_names_the_usual_suite_and_leaves_the_policy_to_it() -> None:
    chosen = {o.value for choice in form({}).choices for o in choice.options if o.is_chosen}
    assert chosen == {"smollm2-135m", "standard"}
    assert proposed(GIVEN).policy is None
    assert proposed(GIVEN | {"policy": "default"}).policy == "default"


def test_the_first_choice_of_a_policy_is_the_suites_own() -> None:
    html = page({})
    policies = html[html.index('<select id="policy" name="policy">') :]
    first, second, *_ = policies[: policies.index("</select>")].split("<option")[1:]
    assert first.startswith(' value="">the suite&#39;s own</option>')
    assert second.startswith(">default</option>")
    assert html.count("the suite&#39;s own") == 1


def test_everything_that_a_change_can_say_can_be_said_in_the_form() -> None:
    said = form({"baseline": "stated"} | GIVEN)
    places = {field.name for group in said.all_groups for field in group.fields}
    places |= {group.choice.name for group in said.all_groups if group.choice}
    places |= {choice.name for choice in said.choices}
    known = {place.split(".")[0] for place in places}
    assert known == set(Change.model_fields)
    for place, kind in (
        ("deployment", Deployment),
        ("deployment.slo", Slo),
        ("ref", Ref),
        ("candidate", KVConfig),
    ):
        for field in kind.model_fields:
            assert any(f"{name}.".startswith(f"{place}.{field}.") for name in places), f"{place}.{field}"


def test_engine_load_and_limits_are_part_of_the_change() -> None:
    change = proposed(
        GIVEN
        | {
            "engine": "reference",
            "candidate.engine_args": "dtype=bfloat16\n\n--seed = 7\n",
            "deployment.request_rate": "2.5",
            "deployment.scenario": "chat",
            "deployment.slo.ttft_ms": "200",
            "deployment.slo.tpot_ms": "50",
        }
    )
    assert change.engine == "reference"
    assert change.candidate.engine_args == {"dtype": "bfloat16", "seed": 7}
    assert (change.deployment.request_rate, change.deployment.scenario) == (2.5, "chat")
    assert change.deployment.slo == Slo(ttft_ms=200, tpot_ms=50)


def test_a_baseline_is_the_usual_one_the_promoted_one_or_stated() -> None:
    assert proposed(GIVEN).baseline is None
    kept = known_fields(GIVEN | {"baseline": "promoted"}, form(GIVEN | {"baseline": "promoted"}))
    assert change_document(kept)["baseline"] == "promoted"
    stated = GIVEN | {
        "baseline": "stated",
        "baseline.reuse.prefix_caching": "false",
        "baseline.scheduling.max_num_seqs": "8",
        "baseline.engine_args": "seed=3",
    }
    baseline = proposed(stated).baseline
    assert baseline is not None
    assert (baseline.reuse.prefix_caching, baseline.scheduling.max_num_seqs) == (False, 8)
    assert baseline.engine_args == {"seed": 3}
    assert "baseline.scheduling.max_num_seqs" not in known_fields(
        stated | {"baseline": "promoted"}, form(stated | {"baseline": "promoted"})
    )


def test_what_few_changes_need_is_folded_away_until_it_is_filled_in() -> None:
    assert [fold.is_open for fold in form({}).folds] == [False] * 4
    assert [fold.summary for fold in form({"deployment.slo.ttft_ms": "9"}).folds if fold.is_open] == [
        "Arrivals and latency limits"
    ]
    assert [fold.summary for fold in form({"baseline": "promoted"}).folds if fold.is_open] == ["Baseline"]


@pytest.mark.parametrize(
    ("name", "value", "named", "anchor"),
    [
        ("deployment.slo.ttft_ms", "fast", "deployment.slo.ttft_ms", "deployment.slo.ttft_ms"),
        ("deployment.request_rate", "-1", "deployment.request_rate", "deployment.request_rate"),
        ("engine", "abacus", "engine", "engine"),
        ("candidate.engine_args", "seed 7", "candidate.engine_args", "candidate.engine_args"),
        ("candidate.eviction.policy", "h2o", "candidate.eviction", "candidate.eviction"),
    ],
)
def test_an_error_names_its_field_and_leads_to_it(name: str, value: str, named: str, anchor: str) -> None:
    given = GIVEN | {name: value}
    with pytest.raises(InvalidInput) as refusal:
        proposed(given)
    assert [problem.field for problem in refusal.value.problems] == [named]
    found = problems(refusal.value.problems, form(given))
    assert {problem.anchor for problem in found} == {anchor}
    html = page(given, refusal.value)
    assert f'<a href="#{anchor}">' in html
    assert f'id="{anchor}"' in html


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("candidate.eviction.prompt", "{policy: h2o, policy: tova}", "'policy' appears twice"),
        ("candidate.eviction.prompt", "[&a [x], *a, *a]", "aliases are not accepted"),
        ("candidate.eviction.prompt", "[" * 1_900, "nested deeper"),
        ("candidate.eviction.prompt", "{policy: h2o", "expected"),
        ("candidate.eviction.prompt", "{budget_tokens: 0x_}", "'0x_' is no int"),
        ("candidate.eviction.skip_layers", "2026-99-99", "is no timestamp"),
    ],
)
def test_a_list_or_mapping_that_cannot_be_read_is_refused_at_its_field(
    name: str, value: str, said: str
) -> None:
    with pytest.raises(InvalidInput, match=said) as refusal:
        proposed(GIVEN | {"candidate.eviction.policy": "composed", name: value})
    assert [problem.field for problem in refusal.value.problems] == [name]


@pytest.mark.parametrize(
    "value", ["0x_", "2026-99-99", "!!bool x", "&a [*a]", "*a", "@", "9" * 1_000, "1e400"]
)
def test_what_is_no_value_at_all_is_refused_by_the_type_of_its_field(value: str) -> None:
    for name in ("candidate.quantization.group_size", "deployment.request_rate", "deployment.scenario"):
        with pytest.raises(InvalidInput) as refusal:
            proposed(GIVEN | {name: value})
        assert [problem.field for problem in refusal.value.problems] == [name]


def test_an_engine_argument_is_named_once() -> None:
    with pytest.raises(InvalidInput, match="appears twice") as refusal:
        proposed(GIVEN | {"candidate.engine_args": "seed=1\n--seed=2"})
    assert [problem.field for problem in refusal.value.problems] == ["candidate.engine_args.seed"]


def test_a_baseline_that_the_form_does_not_offer_is_not_taken_for_the_usual_one() -> None:
    for choice in ("reference", "STATED", "<script>"):
        with pytest.raises(InvalidInput, match="allowed: promoted, stated") as refusal:
            proposed(GIVEN | {"baseline": choice})
        assert [problem.field for problem in refusal.value.problems] == ["baseline"]
