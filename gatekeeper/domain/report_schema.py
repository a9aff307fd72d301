"""The JSON Schema of a verdict's report, for programs that read it."""

from __future__ import annotations

from typing import Any, Final

from gatekeeper.domain.verdict import Report

VERSION: Final = 1
"""Raised when a key is removed or means something else. New keys are no new version: readers pass over what they don't
know."""


def report_schema() -> dict[str, Any]:
    """The schema (JSON Schema 2020-12). A run as the API serves it meets it too, once it has finished."""
    schema = Report.model_json_schema(mode="serialization")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:gatekeeper:schema:report:{VERSION}",
    }
    opened: dict[str, Any] = _opened(schema)
    return head | opened


def _opened(value: Any) -> Any:
    """The same without `additionalProperties: false`, which would forbid later versions to tell more."""
    match value:
        case dict():
            kept = {
                key: entry for key, entry in value.items() if (key, entry) != ("additionalProperties", False)
            }
            return {key: _opened(entry) for key, entry in kept.items()}
        case list():
            return [_opened(entry) for entry in value]
        case _:
            return value
