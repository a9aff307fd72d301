"""Long free decoding: what the model writes when nobody forces it, and whether that is still sound after many tokens.

Small errors of a cache add up over a long answer in ways that scoring token by token along a given text doesn't show.
Texts are sampled with a seed per item, the same in both arms, and never compared word by word: equal engines differ in
wording as soon as batches differ. What counts is whether an answer is sound.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any, Final, assert_never

import httpx

from gatekeeper.domain.answer import MOST_PROMPT, MOST_TEXT, Answer, excerpt
from gatekeeper.domain.free_decode import FreeDecodeProbe, FreeText
from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.stretch import figure_in_stretch
from workers.engines.base import Server
from workers.engines.errors import ProbeFailed
from workers.engines.token_ids import token_id
from workers.suites.base import Bench, exercised, in_parallel
from workers.suites.degeneration import distinct_share, is_sound, valid_records
from workers.suites.documents import bundled_texts
from workers.suites.scoring import completes
from workers.suites.tool_calls import tool_prompt, valid_calls

SUITE: Final = "free_decode"
KEYS: Final = ("id", "item", "colour", "price", "stock")
RECORDS: Final = 5
"""Lines of an answer that must be records; a good one has many more."""
CALLS: Final = 2
"""Tool calls of an answer that must be valid; small models leave the format soon after."""
NO_FIGURES: Final = "the engine could not write its log-probabilities down"
PROSE_CHARACTERS: Final = 400
TEMPERATURE: Final = 0.7
ITEMS: Final = (
    "lamp",
    "kettle",
    "ladder",
    "bicycle",
    "violin",
    "basket",
    "tent",
    "clock",
    "mirror",
    "saddle",
)
COLOURS: Final = ("red", "green", "blue", "white", "black", "yellow", "brown", "grey")


@dataclass(frozen=True, kw_only=True, slots=True)
class Prompt:
    """What is to be continued."""

    item_id: str
    task: FreeText
    text: str
    seed: int


def run(probe: FreeDecodeProbe, bench: Bench) -> None:
    """Continue every prompt and store, per item, whether the text is sound and how varied it is."""
    prompts = list(prompts_of(probe))
    bench.advance(0, len(prompts))
    work = partial(continued, probe, bench.server)
    with exercised(bench, suite=SUITE, mode="cold", expected="still"):
        for done, (rows, answer) in enumerate(
            in_parallel(bench, prompts, work, concurrency=bench.concurrency), start=1
        ):
            bench.sink.measurements(rows)
            bench.sink.answers([answer])
            bench.advance(done, len(prompts))


def prompts_of(probe: FreeDecodeProbe) -> Iterator[Prompt]:
    """The same prompts for the same probe, kind by kind."""
    for kind in probe.kinds:
        yield from WRITERS[kind](probe)


def _prose(probe: FreeDecodeProbe) -> Iterator[Prompt]:
    """Beginnings of the bundled texts."""
    for number, (name, text) in enumerate(bundled_texts(probe.prompts)):
        beginning = text[:PROSE_CHARACTERS].rsplit(" ", 1)[0]
        yield Prompt(item_id=f"prose/{name}", task="prose", text=beginning, seed=probe.seed + number)


def _records(probe: FreeDecodeProbe) -> Iterator[Prompt]:
    """Lists of records to go on with."""
    for number in range(probe.prompts):
        rng = Random(f"{probe.seed}/{number}")
        records = "".join(_record(rng, line) for line in range(1, 7))
        text = f"Inventory of shop {number + 1}, one JSON object per line:\n{records}"
        yield Prompt(item_id=f"json/{number:02}", task="json", text=text, seed=probe.seed + number)


def _tool_calls(probe: FreeDecodeProbe) -> Iterator[Prompt]:
    """Requests that tools were called for, and one that is open."""
    for number in range(probe.prompts):
        text = tool_prompt(Random(f"{probe.seed}/{number}"))
        yield Prompt(item_id=f"tool_call/{number:02}", task="tool_call", text=text, seed=probe.seed + number)


WRITERS: Final[Mapping[FreeText, Callable[[FreeDecodeProbe], Iterator[Prompt]]]] = {
    "prose": _prose,
    "json": _records,
    "tool_call": _tool_calls,
}


def _record(rng: Random, number: int) -> str:
    values = (number, rng.choice(ITEMS), rng.choice(COLOURS), rng.randrange(5, 500), rng.randrange(40))
    return json.dumps(dict(zip(KEYS, values, strict=True))) + "\n"


def continued(probe: FreeDecodeProbe, server: Server, prompt: Prompt) -> tuple[list[Measurement], Answer]:
    """Have one prompt continued. Raises ProbeFailed if the engine refuses.

    One whose log-probabilities could not be written down, as where the engine computed NaN, has no figures.
    """
    body: dict[str, object] = {
        "model": server.plan.model.name, "prompt": prompt.text, "max_tokens": probe.decode_tokens,
        "temperature": TEMPERATURE, "ignore_eos": True, "logprobs": 1, "return_tokens_as_token_ids": True,
        "cache_salt": uuid.uuid4().hex, "seed": prompt.seed,
    }  # fmt: skip
    try:
        answer: Any = server.post("/v1/completions", body)
    except httpx.HTTPStatusError as error:
        if not (error.response.is_server_error and completes(server, prompt.text)):
            raise ProbeFailed(f"{prompt.item_id}: {error.response.text[:300]}") from error
        rows = measurements_of(prompt, "", [], probe.stretches)
        return [replace(row, value=None, reason=NO_FIGURES) for row in rows], _said(prompt, "")
    choice = answer["choices"][0]
    tokens = [token_id(token) for token in choice["logprobs"]["tokens"]]
    return measurements_of(prompt, choice["text"], tokens, probe.stretches), _said(prompt, choice["text"])


def _said(prompt: Prompt, text: str) -> Answer:
    return Answer(
        suite=SUITE, mode="cold", item_id=prompt.item_id, prompt=excerpt(prompt.text, MOST_PROMPT), expected=None,
        text=excerpt(text, MOST_TEXT),
    )  # fmt: skip


def measurements_of(
    prompt: Prompt, text: str, tokens: Sequence[int], stretches: Sequence[tuple[int, int]]
) -> list[Measurement]:
    """What an answer comes to. `sound` is 0 or 1; `stretches`: ranges [start, end) of its tokens."""
    match prompt.task:
        case "prose":
            figures = _prose_figures(text, tokens, stretches)
        case "json":
            figures = {"sound": valid_records(text, KEYS, count=RECORDS) == RECORDS}
        case "tool_call":
            figures = {"sound": valid_calls(text, count=CALLS) == CALLS}
        case _:
            assert_never(prompt.task)
    place = partial(Measurement.of, suite=SUITE, mode="cold", item_id=prompt.item_id, cluster=prompt.task)
    return [place(metric=metric, value=float(value)) for metric, value in figures.items()]


def _prose_figures(
    text: str, tokens: Sequence[int], stretches: Sequence[tuple[int, int]]
) -> dict[str, float]:
    """Beside the whole, whether each stretch is sound, and the share of distinct n-grams: others repeat by nature.

    A stretch has tokens but no words: where one ends within the text is not known. Blank text has nothing in any.
    """
    parts = {
        figure_in_stretch("sound", start, end): tokens[start:end] if text.strip() else ()
        for start, end in stretches
    }
    return {
        "sound": is_sound(tokens, text.split()),
        **{metric: is_sound(part, part) for metric, part in parts.items()},
        "distinct_share": distinct_share(tokens),
    }
