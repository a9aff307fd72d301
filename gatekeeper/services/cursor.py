"""Cursors: where a page ended, as opaque text."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.services.views import DeltaView, RunSummary


def encode_run(run: RunSummary) -> str:
    """The cursor after `run` in a list of runs."""
    return _encode([run.created_at.isoformat(), str(run.run_id)])


def decode_run(cursor: str) -> tuple[datetime, UUID]:
    """Creation time and id of the run that a page ended with. Raises InvalidInput."""
    try:
        created_at, run_id = _decode(cursor)
        return datetime.fromisoformat(created_at).astimezone(UTC), UUID(run_id)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise _refused() from error


def encode_delta(delta: DeltaView) -> str:
    """The cursor after `delta` in a list of deltas."""
    return _encode([delta.id])


def decode_delta(cursor: str) -> int:
    """The id of the delta that a page ended with. Raises InvalidInput."""
    try:
        (delta_id,) = _decode(cursor)
    except (ValueError, TypeError) as error:
        raise _refused() from error
    if type(delta_id) is not int or not 0 <= delta_id < 2**63:
        raise _refused()
    return delta_id


def encode_item(key: Sequence[str]) -> str:
    """The cursor after the figure with this key in a list of items."""
    return _encode(list(key))


def decode_item(cursor: str) -> tuple[str, ...]:
    """The key of the figure that a page ended with: suite, mode, item and metric. Raises InvalidInput."""
    try:
        key = _decode(cursor)
    except ValueError as error:
        raise _refused() from error
    if not isinstance(key, list) or len(key) != 4 or not all(isinstance(part, str) for part in key):
        raise _refused()
    return tuple(key)


def _encode(values: list[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _decode(cursor: str) -> Any:
    try:
        return json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, UnicodeError) as error:
        raise ValueError(cursor) from error


def _refused() -> InvalidInput:
    return InvalidInput(
        [FieldProblem(field="cursor", problem="not a cursor of this list", allowed="next_cursor of a page")]
    )
