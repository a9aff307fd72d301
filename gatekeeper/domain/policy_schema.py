"""The policy language as JSON Schema, for editors that complete and check while a policy is written."""

from __future__ import annotations

from typing import Any, Final

from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.policy import LIMIT_FORMS, Policy

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def policy_schema() -> dict[str, Any]:
    """The schema of a policy file. It knows which limit and which scope fits which metric."""
    schema = Policy.model_json_schema()
    rule = schema["$defs"]["Rule"]
    for name, field in rule["properties"].items():
        rule["properties"][name] = _without_null(field)
    rule["oneOf"] = [{"required": [form]} for form in LIMIT_FORMS]
    rule["dependentRequired"] = {
        "at_most_noise_multiple": ["limit_floor"],
        "limit_floor": ["at_most_noise_multiple"],
    }
    rule["allOf"] = [_for_metric(metric) for metric in METRICS.values()]
    return {"$schema": DIALECT, **schema, "title": "gatekeeper policy"}


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """An optional key is left out in YAML; offering null as a value would only puzzle."""
    members: list[dict[str, Any]] = [
        member for member in field.get("anyOf", ()) if member != {"type": "null"}
    ]
    if len(members) != 1:
        return field
    kept = {key: value for key, value in field.items() if key not in ("anyOf", "default", "title")}
    return members[0] | kept


def _for_metric(metric: Metric) -> dict[str, Any]:
    """What a rule on this metric may not say."""
    refused: list[str] = [form for form in LIMIT_FORMS if form not in metric.forms]
    refused += ["group"] if not metric.has_tasks else []
    refused += ["decode_position"] if not metric.has_modes else []
    refused += ["input_tokens"] if not metric.has_loads else []
    refused += ["mode"] if not (metric.has_modes or metric.has_loads) else []
    unit = f"{metric.title}, in {metric.unit}; takes {' or '.join(metric.forms)}"
    return {
        "if": {"properties": {"metric": {"const": metric.name}}, "required": ["metric"]},
        "then": {"description": unit, "properties": dict.fromkeys(refused, False)},
    }
