"""The kinds of faults: small functions over what a request was and what the engine answered. They hold no state.

A `Fault` may answer instead of the engine, change each choice of an answer, change what `/metrics` says, and change the
start-up log. What depends on the past (how many requests there were, what a prefix cache may hold) is worked out by the
proxy and is part of the `Request`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.faults.answers import Choice, Layout, changed, pieces
from tests.faults.damage import Place, Row, noised

STRENGTH = 1.0
"""Of planted damage, as the standard deviation of its noise on the logits: an FP8 (e5m2) cache is near 0.5."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A request for completion, and what was so when it came.

    `number`: requests for completion since boot, this one not counted. `reused_tokens`: how much of its prompt a prefix
    cache can have held. `in_flight`: other requests under way when it came. `preempted`: the engine's counter of
    preemptions moved while it was under way; always False before it was answered.
    """

    body: Mapping[str, Any]
    prompts: tuple[tuple[int, ...], ...]
    number: int = 0
    reused_tokens: int = 0
    in_flight: int = 0
    preempted: bool = False

    @property
    def is_forced(self) -> bool:
        """Whether the tokens to decode are given."""
        return "forced_token_ids" in (self.body.get("vllm_xargs") or {})

    @property
    def is_free(self) -> bool:
        """Whether it is for text that the engine chooses itself, with or without probabilities."""
        scores_prompt = self.body.get("prompt_logprobs") is not None or self.body.get("echo")
        return not (self.is_forced or scores_prompt)

    @property
    def is_scored(self) -> bool:
        """Whether it asks for log-probabilities."""
        return self.body.get("logprobs") is not None or self.body.get("prompt_logprobs") is not None

    def layout(self, index: int, *, offset: int) -> Layout:
        """How choice `index` lies."""
        prompt = self.prompts[index // (self.body.get("n") or 1)]
        return Layout(
            prompt_tokens=len(prompt),
            echoed=bool(self.body.get("echo")),
            forced=self.is_forced,
            offset=offset,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """An error instead of an answer."""

    status: int
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Silence:
    """No answer, ever."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoTokens:
    """An answer at once, without a token."""


Instead = Failure | Silence | NoTokens


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. `reads_tokens`: `choice` needs the tokens of free text, so that the proxy asks the engine for them.

    `choice(request, choice, offset)` is the choice that the client gets; `metrics(now, at_boot)` and `log(text)` are
    texts. `needs_preemptions`: the proxy has to watch that counter around every request. `needs_concurrency`: requests
    have to take as long as they do before an engine. `one_at_a_time`: the engine gets a request when it has answered
    the one before.
    """

    about: str
    instead: Callable[[Request], Instead | None] = lambda _request: None
    choice: Callable[[Request, Choice, int], Choice] | None = None
    metrics: Callable[[str, str], str] = lambda now, _at_boot: now
    log: Callable[[str], str] = lambda text: text
    needs_preemptions: bool = False
    needs_concurrency: bool = False
    one_at_a_time: bool = False


# --- answers ---------------------------------------------------------------------------------------------------------

Where = Callable[[Request, Place], bool]


def damaged(where: Where, *, strength: float = STRENGTH) -> Callable[[Request, Choice, int], Choice]:
    """Noise on the distribution at every place that `where` names."""

    def choice(request: Request, choice: Choice, offset: int) -> Choice:
        def change(place: Place, row: Row) -> Row:
            if not where(request, place):
                return row
            return noised(row, strength=strength, seed=f"{hash(request.prompts)}/{place.context}")

        return changed(choice, change, request.layout(choice["index"], offset=offset))

    return choice


def past_context(tokens: int) -> Where:
    """Where at least `tokens` tokens came before."""
    return lambda _request, place: place.context >= tokens


def after_decoded(tokens: int) -> Where:
    """Decoded token `tokens`, counted from 0, and all that follow."""
    return lambda _request, place: place.decoded is not None and place.decoded >= tokens


def on_prefix_hit(request: Request, _place: Place) -> bool:
    """Everywhere in a request whose prompt the prefix cache can have held in part."""
    return request.reused_tokens > 0


def when_preempted(request: Request, _place: Place) -> bool:
    """Everywhere in a request during which the scheduler preempted."""
    return request.preempted


def when_concurrent(requests: int) -> Where:
    """Everywhere in a request that came while at least `requests` others were under way."""
    return lambda request, _place: request.in_flight >= requests


def first_requests(requests: int) -> Where:
    """Everywhere in the first requests after boot."""
    return lambda request, _place: request.number < requests


def prompt_of(condition: Callable[[int], bool]) -> Where:
    """Decoded tokens after a prompt whose length in tokens meets the condition."""
    return lambda _request, place: place.decoded is not None and condition(place.context - place.decoded)


def every_second_doubled(request: Request, choice: Choice, offset: int) -> Choice:
    """Free text with every second of its tokens twice."""
    if not request.is_free:
        return choice
    doubled = [piece * (2 if index % 2 else 1) for index, piece in enumerate(pieces(choice), start=offset)]
    return {**choice, "text": "".join(doubled)}


def blank(request: Request, choice: Choice, _offset: int) -> Choice:
    """Free text without its text, though the engine generated its tokens."""
    return {**choice, "text": ""} if request.is_free else choice


# --- instead of an answer --------------------------------------------------------------------------------------------


def failing_every(requests: int) -> Callable[[Request], Instead | None]:
    """One request in so many fails."""
    failure = Failure(status=500, message="CUDA error: an illegal memory access was encountered")
    return lambda request: failure if request.number % requests == requests - 1 else None


def silent_after(requests: int) -> Callable[[Request], Instead | None]:
    """Nothing is answered any more after so many requests."""
    return lambda request: Silence() if request.number >= requests else None


def nan_past(tokens: int) -> Callable[[Request], Instead | None]:
    """What vLLM does with a NaN among log-probabilities: JSON cannot write it, so the request fails."""
    failure = Failure(status=500, message="Out of range float values are not JSON compliant: nan")

    def instead(request: Request) -> Instead | None:
        longest = max(map(len, request.prompts)) + int(request.body.get("max_tokens") or 0)
        return failure if request.is_scored and longest > tokens else None

    return instead


def no_tokens(_request: Request) -> Instead | None:
    """Every request is answered at once, with nothing."""
    return NoTokens()


def no_free_tokens(request: Request) -> Instead | None:
    """Free text ends before its first token, as after an end-of-text token that came too early."""
    return NoTokens() if request.is_free else None


# --- metrics and log -------------------------------------------------------------------------------------------------


def relabelled(metric: str, **labels: str | Callable[[str], str]) -> Callable[[str, str], str]:
    """A metric whose labels say something else. A function is given the label's true value."""

    def line(text: str) -> str:
        for name, value in labels.items():
            text = re.sub(
                rf'(?<=[{{,]){name}="([^"]*)"',
                lambda found, name=name, value=value: (  # type: ignore[misc]
                    f'{name}="{value if isinstance(value, str) else value(found[1])}"'
                ),
                text,
            )
        return text

    return lambda now, _at_boot: _by_line(now, lambda text: line(text) if _names(text, [metric]) else text)


def without(*metrics: str) -> Callable[[str, str], str]:
    """Metrics that are not served."""
    return lambda now, _at_boot: _by_line(now, lambda text: "" if _names(text, metrics) else text)


def frozen(*metrics: str) -> Callable[[str, str], str]:
    """Metrics that stay what they were at boot."""

    def at_boot_for(now: str, at_boot: str) -> str:
        kept = [text for text in at_boot.splitlines() if _names(text, metrics)]
        return "\n".join([*(text for text in now.splitlines() if not _names(text, metrics)), *kept, ""])

    return at_boot_for


def _by_line(text: str, change: Callable[[str], str]) -> str:
    return "\n".join(filter(None, map(change, text.splitlines()))) + "\n"


def _names(line: str, metrics: Sequence[str]) -> bool:
    """Whether a line is a sample of one of the metrics."""
    return line.partition("{")[0].partition(" ")[0] in metrics


SELF_REPORT = "gatekeeper self-report "


def accounting(**layer: object) -> Callable[[str], str]:
    """A worker's account in which every kind of layer has these figures; True stands for all its layers."""

    def log(text: str) -> str:
        lines = [_recounted(line, layer) if SELF_REPORT in line else line for line in text.splitlines()]
        return "\n".join([*lines, ""])

    return log


def unsaid(*words: str) -> Callable[[str], str]:
    """A log without the lines that hold one of these."""

    def log(text: str) -> str:
        return "\n".join([*(line for line in text.splitlines() if not any(w in line for w in words)), ""])

    return log


def _recounted(line: str, layer: Mapping[str, object]) -> str:
    before, found, account = line.partition(SELF_REPORT)
    document = json.loads(account)
    for kind in document["layers"]:
        kind |= {name: kind["count"] if value is True else value for name, value in layer.items()}
    return before + found + json.dumps(document)
