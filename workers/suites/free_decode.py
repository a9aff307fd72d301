"""Long free decoding: what the model writes when nobody forces it, and whether that is still sound after many tokens.

Small errors of a cache add up over a long answer in ways that scoring token by token along a given text doesn't show.
Texts are sampled with a seed per item, the same in both arms, and never compared word by word: equal engines differ in
wording as soon as batches differ. What counts is whether an answer is sound.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

import httpx

from gatekeeper.domain.answer import MOST_PROMPT, MOST_TEXT, Answer, excerpt
from gatekeeper.domain.measurement import Measurement
from gatekeeper.domain.probes import FreeDecodeProbe
from workers.engines.base import Server
from workers.engines.errors import ProbeFailed
from workers.engines.token_ids import token_id
from workers.suites.base import Bench, exercised, in_parallel
from workers.suites.degeneration import (
    MOST_STUTTER,
    distinct_share,
    loop_tokens,
    stutter_share,
    valid_records,
)
from workers.suites.documents import bundled_texts

SUITE: Final = "free_decode"
KEYS: Final = ("id", "item", "colour", "price", "stock")
RECORDS: Final = 5
"""Lines of an answer that must be records; a good one has many more."""
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
    """What is to be continued. `task`: `prose` or `json`."""

    item_id: str
    task: str
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
    """The same prompts for the same probe: beginnings of the bundled texts, and lists of records to go on with."""
    for number, (name, text) in enumerate(bundled_texts(probe.prompts)):
        beginning = text[:PROSE_CHARACTERS].rsplit(" ", 1)[0]
        yield Prompt(item_id=f"prose/{name}", task="prose", text=beginning, seed=probe.seed + number)
    for number in range(probe.prompts):
        rng = Random(f"{probe.seed}/{number}")
        records = "".join(_record(rng, line) for line in range(1, 7))
        text = f"Inventory of shop {number + 1}, one JSON object per line:\n{records}"
        yield Prompt(item_id=f"json/{number:02}", task="json", text=text, seed=probe.seed + number)


def _record(rng: Random, number: int) -> str:
    values = (number, rng.choice(ITEMS), rng.choice(COLOURS), rng.randrange(5, 500), rng.randrange(40))
    return json.dumps(dict(zip(KEYS, values, strict=True))) + "\n"


def continued(probe: FreeDecodeProbe, server: Server, prompt: Prompt) -> tuple[list[Measurement], Answer]:
    """Have one prompt continued. Raises ProbeFailed if the engine refuses."""
    body: dict[str, object] = {
        "model": server.plan.model.name, "prompt": prompt.text, "max_tokens": probe.decode_tokens,
        "temperature": TEMPERATURE, "ignore_eos": True, "logprobs": 1, "return_tokens_as_token_ids": True,
        "cache_salt": uuid.uuid4().hex, "seed": prompt.seed,
    }  # fmt: skip
    try:
        answer: Any = server.post("/v1/completions", body)
    except httpx.HTTPStatusError as error:
        raise ProbeFailed(f"{prompt.item_id}: {error.response.text[:300]}") from error
    choice = answer["choices"][0]
    tokens = [token_id(token) for token in choice["logprobs"]["tokens"]]
    said = Answer(
        suite=SUITE, mode="cold", item_id=prompt.item_id, prompt=excerpt(prompt.text, MOST_PROMPT), expected=None,
        text=excerpt(choice["text"], MOST_TEXT),
    )  # fmt: skip
    return measurements_of(prompt, choice["text"], tokens), said


def measurements_of(prompt: Prompt, text: str, tokens: list[int]) -> list[Measurement]:
    """`sound` as 0 or 1, and the share of distinct n-grams for prose; records repeat themselves by nature."""
    place = partial(Measurement.of, suite=SUITE, mode="cold", item_id=prompt.item_id, cluster=prompt.task)
    if prompt.task == "json":
        return [place(metric="sound", value=float(valid_records(text, KEYS, count=RECORDS) == RECORDS))]
    sound = bool(text.strip()) and loop_tokens(tokens) == 0 and stutter_share(text) < MOST_STUTTER
    return [
        place(metric="sound", value=float(sound)),
        place(metric="distinct_share", value=distinct_share(tokens)),
    ]
