"""Domain values as JSON documents, and back."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from gatekeeper.domain.answer import Answer
from gatekeeper.domain.change import Change
from gatekeeper.domain.measurement import EffectiveConfig, Exercise, Stop, TokenTrace
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.run import ArmFailure
from gatekeeper.storage.base import Json


def dump_change(change: Change) -> Json:
    """Return the document of `change`; its arms keep only what they named, as `resolved_candidate` needs."""
    document = change.model_dump(mode="json")
    for arm in ("baseline", "candidate"):
        config = getattr(change, arm)
        if config is not None:
            document[arm] = {
                key: value for key, value in document[arm].items() if key in config.model_fields_set
            }
    return document


def dump_plan(plan: Plan) -> Json:
    """Return a plan's document, with every default spelled out so that later defaults cannot change it."""
    return plan.model_dump(mode="json", exclude={"change"}) | {"change": dump_change(plan.change)}


def load_plan(document: Json) -> Plan:
    """Return the plan that `dump_plan` wrote."""
    return Plan.model_validate(document)


def dump_effective(effective: EffectiveConfig) -> Json:
    """Return the document of what an engine runs with."""
    return effective.document


def load_effective(document: Json) -> EffectiveConfig:
    """Return what `dump_effective` wrote."""
    return EffectiveConfig(**document)


def dump_failure(failure: ArmFailure) -> Json:
    """Return the document of a failure."""
    return dataclasses.asdict(failure)


def load_failure(document: Json) -> ArmFailure:
    """Return what `dump_failure` wrote."""
    return ArmFailure(**document)


def dump_exercise(exercise: Exercise) -> Json:
    """Return the document of an exercise."""
    return dataclasses.asdict(exercise)


def load_exercise(document: Json) -> Exercise:
    """Return what `dump_exercise` wrote."""
    return Exercise(**document)


def dump_stop(stop: Stop) -> Json:
    """Return the document of a stop."""
    return dataclasses.asdict(stop)


def load_stop(document: Json) -> Stop:
    """Return what `dump_stop` wrote."""
    return Stop(**document)


def dump_trace(trace: TokenTrace) -> Json:
    """Return the payload of a trace; log-probabilities that are not finite become null."""
    length = {} if trace.context_tokens is None else {"context_tokens": trace.context_tokens}
    return length | {
        "token_ids": list(trace.token_ids),
        "token_logprobs": _finite(trace.token_logprobs),
        "top_ids": [list(ids) for ids in trace.top_ids],
        "top_logprobs": [_finite(logprobs) for logprobs in trace.top_logprobs],
    }


def load_trace(*, suite: str, mode: Any, item_id: str, cluster: str, batch: int, payload: Json) -> TokenTrace:
    """Return the trace of a payload that `dump_trace` wrote."""
    return TokenTrace(suite=suite, mode=mode, item_id=item_id, cluster=cluster, batch=batch, **payload)


def dump_answer(answer: Answer) -> Json:
    """Return the payload of an answer: all but its place."""
    document = dataclasses.asdict(answer)
    return {name: value for name, value in document.items() if name not in ("suite", "mode", "item_id")}


def load_answer(*, suite: str, mode: Any, item_id: str, payload: Json) -> Answer:
    """Return the answer of a payload that `dump_answer` wrote."""
    lists = {
        "options": tuple((text, share) for text, share in payload["options"]),
        "places": tuple(tuple((text, share) for text, share in place) for place in payload["places"]),
    }
    return Answer(suite=suite, mode=mode, item_id=item_id, **payload | lists)


def canonical_json(document: Any) -> str:
    """One text for each value that JSON can hold, so that what was stored and what is at hand can be compared.

    As RFC 8785 has it, keys are sorted and a number is its value: JSONB keeps no -0.0, and 1e22 without exponent.
    """
    return json.dumps(
        _plain_numbers(document), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def _plain_numbers(value: Any) -> Any:
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {key: _plain_numbers(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain_numbers(entry) for entry in value]
        case _:
            return value


def _finite(values: Sequence[float | None]) -> list[float | None]:
    return [float(value) if value is not None and math.isfinite(value) else None for value in values]
