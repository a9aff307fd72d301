"""An engine in memory whose tokens are words, for probes that tokenize and force."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from gatekeeper.domain.plan import ArmPlan
from tests.fakes.engine import fake_plan
from workers.suites.base import GENERATED, PREFIX_HITS

Think = Callable[[int], tuple[float | None, float | None]]
"""Place of a forced token -> log-probabilities of that token and of the best one."""


def certain(_place: int) -> tuple[float | None, float | None]:
    """Every forced token is the best one."""
    return -0.1, -0.1


@dataclass(kw_only=True)
class WordServer:
    """Tokens are words with the space before them; digits stand alone, and a period swallows a newline.

    So the end of one text can tokenize otherwise when more text follows, as in real vocabularies.
    `refusal`: the status of every answer with log-probabilities, and of those without them unless it `completes`.
    `forces`: whether it decodes the tokens that it is given.
    """

    think: Think = certain
    refusal: int | None = None
    completes: bool = True
    forces: bool = True
    has_template: bool = True
    plan: ArmPlan = field(default_factory=lambda: fake_plan().candidate)
    known: dict[str, int] = field(default_factory=dict)
    tokenized: int = 0
    completed: int = 0

    def post(self, path: str, body: dict[str, Any]) -> dict[str, object]:
        if path == "/tokenize":
            self.tokenized += 1
            return {"tokens": self.tokens(body["prompt"] if "prompt" in body else self._rendered(body))}
        if path == "/detokenize":
            return {"prompt": self.text(body["tokens"])}
        self.completed += 1
        if self.refusal is not None and ("logprobs" in body or not self.completes):
            raise _refused(path, self.refusal, "the words of the engine")
        forced = body.get("vllm_xargs", {}).get("forced_token_ids", [1])
        said = forced if self.forces else [0 for _ in forced]
        return {"choices": [{"text": "", "logprobs": self._logprobs(said)}]}

    def check(self) -> None:
        """The run goes on."""

    def metrics(self) -> dict[str, float]:
        return {GENERATED: float(self.completed), PREFIX_HITS: 0.0}

    def tokens(self, text: str) -> list[int]:
        words = re.findall(r"\.\n|\n|\d| ?[^\s\d.]+|.", text)
        return [self.known.setdefault(word, len(self.known)) for word in words]

    def text(self, tokens: Sequence[int]) -> str:
        words = {number: word for word, number in self.known.items()}
        return "".join(words.get(token, f"<{token}>") for token in tokens)

    def _rendered(self, body: dict[str, Any]) -> str:
        if not self.has_template:
            raise _refused("/tokenize", 400, "no chat template")
        *turns, last = [f"<{turn['role']}>{turn['content']}" for turn in body["messages"]]
        is_open = body.get("continue_final_message", False)
        tail = "" if is_open else "</>\n" + ("<assistant>" if body["add_generation_prompt"] else "")
        return "</>\n".join([*turns, last]) + tail

    def _logprobs(self, tokens: Sequence[int]) -> dict[str, Any]:
        thoughts = [self.think(place) for place in range(len(tokens))]
        pairs = list(zip(tokens, thoughts, strict=True))
        return {
            "tokens": [f"token_id:{token}" for token in tokens],
            "token_logprobs": [chosen for chosen, _ in thoughts],
            "top_logprobs": [
                {f"token_id:{token}": chosen} | ({} if chosen == best else {f"token_id:{token + 1}": best})
                for token, (chosen, best) in pairs
            ],
        }


def _refused(path: str, status: int, words: str) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", f"http://engine{path}")
    return httpx.HTTPStatusError(words, request=request, response=httpx.Response(status, text=words))
