"""What a sample that lm-eval logged was asked and answered, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gatekeeper.domain.answer import MOST_PROMPT, MOST_TEXT, Chances, excerpt


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """Excerpts where they are long; `options`: of multiple choice, the most probable first."""

    prompt: str
    expected: str
    text: str
    options: Chances = ()


def choice_probabilities(document: Mapping[str, Any]) -> list[float] | None:
    """Softmax over the choices' log-likelihoods; None for anything but multiple choice with a target among them.

    A generated answer is a text, not a pair of log-likelihood and greediness. With `acc_mutual_info` lm-eval logs every
    choice twice, with and without its question.
    """
    responses = document.get("filtered_resps")
    if not isinstance(responses, list) or len(responses) < 2 or "acc_mutual_info" in document:
        return None
    if not all(isinstance(response, list | tuple) and response for response in responses):
        return None
    try:
        scores = [float(response[0]) for response in responses]
        if not 0 <= right_choice(document) < len(scores):
            return None
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    weights = [math.exp(score - max(scores)) for score in scores]
    total = sum(weights)
    return [weight / total if total else math.nan for weight in weights]


def right_choice(document: Mapping[str, Any]) -> int:
    """The index of the right choice. Raises TypeError, ValueError, KeyError or OverflowError where there is none."""
    return int(document["target"])


def has_nan(document: Mapping[str, Any]) -> bool:
    """Whether a log-likelihood that the item was decided by is NaN.

    Such a response is a pair of log-likelihood and greediness; a generated answer may well be the text `nan`.
    """
    responses = document.get("filtered_resps")
    listed = responses if isinstance(responses, list) else []
    pairs = [response for response in listed if isinstance(response, list | tuple) and len(response) == 2]
    return any(str(score) == "nan" and str(greedy) in ("True", "False") for score, greedy in pairs)


def said_in(document: Mapping[str, Any], shares: Sequence[float] | None) -> Said:
    """Question and answer of a logged sample; `shares` by choice, of multiple choice."""
    requests = _requests(document.get("arguments"))
    prompt = excerpt(str(requests[0][0]) if requests else "", MOST_PROMPT)
    target = str(document.get("target", ""))
    if shares is None or len(requests) != len(shares):
        responses = document.get("filtered_resps")
        first = responses[0] if isinstance(responses, list) and responses else ""
        text = first if isinstance(first, str) else ""
        return Said(prompt=prompt, expected=excerpt(target, MOST_TEXT), text=excerpt(text, MOST_TEXT))
    choices = [excerpt(choice, MOST_PROMPT) for choice in _choices(requests)]
    ranked = sorted(zip(choices, shares, strict=True), key=lambda option: -option[1])
    finite = all(math.isfinite(share) for share in shares)
    return Said(
        prompt=prompt,
        expected=choices[right_choice(document)],
        text=ranked[0][0] if finite else "",
        options=tuple(ranked) if finite else (),
    )


def _requests(logged: Any) -> list[Sequence[Any]]:
    """(context, continuation or settings) of every request: a mapping of mappings now, a list of lists once."""
    entries = logged.values() if isinstance(logged, Mapping) else logged if isinstance(logged, list) else []
    pairs = [list(entry.values()) if isinstance(entry, Mapping) else entry for entry in entries]
    return [pair for pair in pairs if isinstance(pair, list | tuple) and len(pair) > 1]


def _choices(requests: Sequence[Sequence[Any]]) -> list[str]:
    """The continuations; tasks that put the choice into the context have the same one everywhere."""
    continuations = [str(pair[1]).strip() for pair in requests]
    return continuations if len(set(continuations)) > 1 else [str(pair[0]) for pair in requests]
