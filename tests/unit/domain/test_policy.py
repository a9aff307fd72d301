"""What a policy may say, and how it is said back."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from gatekeeper import catalog
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.policy import LIMIT_FORMS, Policy, Rule
from gatekeeper.domain.policy_schema import policy_schema
from gatekeeper.domain.sentence import demand

BUNDLED = sorted((Path(catalog.__file__).parent / "policies").glob("*.yaml"))

GOOD: list[dict[str, Any]] = [
    {"metric": "accuracy", "max_drop": 0.02},
    {"metric": "accuracy", "at_least_of_baseline": 0.99, "group": "worst"},
    {"metric": "choice_probability", "max_drop": 0.01, "group": "gk_recall"},
    {"metric": "decode_kl", "at_most": 0.03, "mode": "warm"},
    {"metric": "decode_kl", "at_most_noise_multiple": 3, "limit_floor": 0.005},
    {"metric": "decode_nll", "at_most": 0.05, "decode_position": [64, 128]},
    {"metric": "top1_agreement", "at_least": 0.9},
    {"metric": "kv_capacity_ratio", "at_least": 1.8},
    {"metric": "ttft_p50_ratio", "at_most": 1.1, "severity": "warn"},
    {"metric": "ttft_p90_ratio", "at_most": 0.8, "mode": "warm"},
    {"metric": "goodput_ratio", "at_least": 0.95, "input_tokens": 1024},
]
BAD: list[tuple[dict[str, Any], str]] = [
    ({"metric": "speed", "at_most": 1}, "unknown metric 'speed'"),
    ({"metric": "decode_kl"}, "takes the limit at_most or at_most_noise_multiple, not none"),
    ({"metric": "decode_kl", "max_drop": 0.1}, "takes the limit at_most or at_most_noise_multiple"),
    (
        {"metric": "accuracy", "max_drop": 0.1, "at_least_of_baseline": 0.9},
        "not max_drop and at_least_of_bas",
    ),
    ({"metric": "accuracy", "max_drop": 2}, "less than or equal to 1"),
    ({"metric": "accuracy", "at_least_of_baseline": 99}, "less than or equal to 1"),
    ({"metric": "decode_kl", "at_most_noise_multiple": 3}, "limit_floor belong together"),
    ({"metric": "decode_kl", "at_most": 0.1, "limit_floor": 0.1}, "limit_floor belong together"),
    ({"metric": "top1_agreement", "at_least": 85}, "no possible limit"),
    ({"metric": "decode_kl", "at_most": True}, "a limit is a number, not true"),
    ({"metric": "throughput_ratio", "at_least": 0}, "no possible limit"),
    ({"metric": "throughput_ratio", "at_least": 1e-320}, "no possible limit"),  # its inverse is infinite
    ({"metric": "decode_kl", "at_most": -0.1}, "no possible limit"),
    ({"metric": "decode_kl", "at_most": 0.1, "group": "gk_recall"}, "has no tasks"),
    ({"metric": "accuracy", "max_drop": 0.1, "mode": "warm"}, "measured cold only"),
    ({"metric": "accuracy", "max_drop": 0.1, "decode_position": [0, 64]}, "of a token metric"),
    ({"metric": "decode_kl", "at_most": 0.1, "decode_position": [64, 64]}, "start < end"),
    ({"metric": "decode_kl", "at_most": 0.1, "mode": "hot"}, "'cold', 'warm', 'first_batch'"),
    ({"metric": "decode_kl", "at_most": 0.1, "input_tokens": 64}, "not measured by length"),
    ({"metric": "e2e_p99_ratio", "at_most": 1.1, "decode_position": [0, 64]}, "of a token metric"),
]
REFUSED_BY_SCHEMA = [
    bad for bad, words in BAD if not any(known in words for known in ("possible limit", "start < end"))
]


def rule(**fields: Any) -> Rule:
    return Rule.model_validate({"reason": "r"} | fields)


def policy(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"name": "p", "rules": [{"reason": "r"} | fields for fields in rules]}


@pytest.mark.parametrize("fields", GOOD, ids=str)
def test_every_form_and_scope_survives_json(fields: dict[str, Any]) -> None:
    read = rule(**fields)
    assert Rule.model_validate_json(read.model_dump_json()) == read


@pytest.mark.parametrize(("fields", "words"), BAD, ids=str)
def test_what_fits_no_metric_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        rule(**fields)


def test_two_rules_on_a_metric_need_different_scopes() -> None:
    kl = {"metric": "decode_kl", "at_most": 0.1}
    Policy.model_validate(policy(kl, kl | {"mode": "warm"}, kl | {"decode_position": [0, 64]}))
    with pytest.raises(ValidationError, match="same scope for decode_kl"):
        Policy.model_validate(policy(kl, kl | {"at_most": 0.2}))


def test_the_documented_policy_is_one() -> None:
    text = (Path(catalog.__file__).parents[2] / "docs" / "decision.md").read_text()
    document = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert is_valid(document)
    documented = Policy.model_validate(document)
    assert {one.form for one in documented.rules} == set(LIMIT_FORMS)


def test_some_rule_blocks() -> None:
    with pytest.raises(ValidationError, match="no rule blocks"):
        Policy.model_validate(policy({"metric": "accuracy", "max_drop": 0.1, "severity": "warn"}))


def test_a_policy_of_an_earlier_version_still_loads() -> None:
    stored = {"metric": "decode_kl", "max_drop": None, "at_most": 0.03, "at_least": None, "severity": "block"}
    assert rule(**stored).bound == 0.03


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"metric": "accuracy", "max_drop": 0.02}, "Accuracy change: falls by less than 2 points."),
        (
            {"metric": "accuracy", "at_least_of_baseline": 0.99, "group": "each"},
            "Accuracy change of each task by itself: stays above 99% of the baseline's.",
        ),
        (
            {"metric": "decode_kl", "at_most_noise_multiple": 3, "limit_floor": 0.005},
            "Decode KL: at most 3 times what the baseline's launches differ by, or 0.005 nats/token if that is more.",
        ),
        (
            {"metric": "decode_nll", "at_most": 0.05, "decode_position": [64, 128], "mode": "warm"},
            "Decode NLL change over decoded tokens 64 to 127, warm: at most 0.05 nats/token.",
        ),
        ({"metric": "top1_agreement", "at_least": 0.9}, "Top-1 agreement: at least 90%."),
        (
            {"metric": "ttft_p50_ratio", "at_most": 1.1, "input_tokens": 1024},
            "TTFT p50 with prompts of 1024 tokens: at most 1.1x the baseline's.",
        ),
        (
            {"metric": "kv_capacity_ratio", "at_least": 1.8, "severity": "warn"},
            "KV capacity: at least 1.8x the baseline's. This only warns.",
        ),
    ],
)  # fmt: skip
def test_a_rule_reads_as_a_sentence(fields: dict[str, Any], sentence: str) -> None:
    assert demand(rule(**fields)) == sentence


def test_a_ratio_beyond_one_demands_a_gain() -> None:
    demanding = {"kv_capacity_ratio": 1.8, "throughput_ratio": 0.9}
    found = {metric: rule(metric=metric, at_least=limit).demands_gain for metric, limit in demanding.items()}
    assert found == {"kv_capacity_ratio": True, "throughput_ratio": False}
    assert rule(metric="ttft_p50_ratio", at_most=0.8).demands_gain


# --- schema ----------------------------------------------------------------------------------------------------------


def is_valid(document: object) -> bool:
    validator = jsonschema.Draft202012Validator(policy_schema())
    return not list(validator.iter_errors(document))


def test_the_schema_is_one_and_describes_every_key() -> None:
    schema = policy_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    for part in (schema, schema["$defs"]["Rule"]):
        assert [name for name, field in part["properties"].items() if not field.get("description")] == []


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_the_schema_accepts_the_bundled_policies(path: Path) -> None:
    assert is_valid(yaml.safe_load(path.read_text()))


def test_the_schema_and_the_program_agree() -> None:
    assert [fields for fields in GOOD if not is_valid(policy(fields))] == []
    assert [fields for fields in REFUSED_BY_SCHEMA if is_valid(policy(fields))] == []


def test_every_metric_takes_a_known_limit() -> None:
    assert {form for metric in METRICS.values() for form in metric.forms} == set(LIMIT_FORMS)


@pytest.mark.parametrize("path", BUNDLED, ids=lambda path: path.stem)
def test_a_bundled_policy_has_its_name_and_says_what_it_is_for(path: Path) -> None:
    found = catalog.read_policy(path)
    assert (found.name, bool(found.description)) == (path.stem, True)


def test_bundled_fidelity_limits_cite_their_calibration() -> None:
    uncited = [
        (path.stem, one.metric)
        for path in BUNDLED
        for one in catalog.read_policy(path).rules
        if one.metric in ("decode_kl", "decode_nll", "top1_agreement")
        and one.mode != "warm"
        and one.decode_position is None
        and "docs/decision.md#calibration" not in one.reason
    ]
    assert uncited == []
