"""The form that proposes a change."""

from __future__ import annotations

from typing import Any

from gatekeeper.domain.documents import parse_change
from gatekeeper.web.rendering import render
from gatekeeper.web.submitting import ChangeForm, change_document, change_form, known_fields

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
    return change_form(given, models=["smollm2-135m"], suites=["smoke", "standard"], policies=["default"])


def test_what_is_filled_in_is_the_change() -> None:
    change = parse_change(change_document(known_fields(GIVEN, form(GIVEN))))
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
    assert parse_change(change_document(known_fields(GIVEN, form(GIVEN)))).policy is None
    named = GIVEN | {"policy": "default"}
    assert parse_change(change_document(known_fields(named, form(named)))).policy == "default"


def test_the_first_choice_of_a_policy_is_the_suites_own() -> None:
    values: dict[str, Any] = {"form": form({}), "problem": "", "outlook": None, "needs_token": False}
    html = bytes(render("submit.html", **values).body).decode()
    policies = html[html.index('<select name="policy">') :]
    first, second, *_ = policies[: policies.index("</select>")].split("<option")[1:]
    assert first.startswith(' value="">the suite&#39;s own</option>')
    assert second.startswith(">default</option>")
    assert html.count("the suite&#39;s own") == 1
