"""The form that proposes a change."""

from __future__ import annotations

from gatekeeper.domain.documents import parse_change
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
    assert [field.label for field in quantization.fields] == ["bits", "group_size", "residual_length"]
    assert [field.hint for field in quantization.fields] == ["needed", "else 32", "else 128"]
    assert eviction.fields == ()


def test_parameters_of_another_scheme_fall_away() -> None:
    given = GIVEN | {"candidate.quantization.scheme": "fp8_e4m3", "strange": "x"}
    kept = known_fields(given, form(given))
    assert "candidate.quantization.bits" not in kept
    assert "strange" not in kept


def test_an_empty_form_names_the_usual_suite_and_policy() -> None:
    chosen = {o.value for choice in form({}).choices for o in choice.options if o.is_chosen}
    assert chosen == {"smollm2-135m", "standard", "default"}
