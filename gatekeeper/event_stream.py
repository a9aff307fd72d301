"""Server-sent events as a client reads them (WHATWG HTML, 9.2.6)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One server-sent event: its name and its data, parsed."""

    name: str
    data: dict[str, Any]


def parse_events(lines: Iterator[str]) -> Iterator[Event]:
    """Read an event stream (WHATWG HTML, 9.2.6); events whose data is no JSON mapping are skipped."""
    name, data = "message", list[str]()
    for line in lines:
        field_name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field_name:
            case "" if not line:
                document = _json_mapping("\n".join(data))
                if document is not None:
                    yield Event(name=name, data=document)
                name, data = "message", []
            case "event":
                name = value
            case "data":
                data.append(value)
            case _:
                pass


def _json_mapping(text: str) -> dict[str, Any] | None:
    with suppress(ValueError):
        document = json.loads(text)
        return document if isinstance(document, dict) else None
    return None
