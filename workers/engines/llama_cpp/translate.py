"""Between the suites' requests and llama.cpp's native endpoints.

Forced decoding: one native request per token in a slot that keeps the sequence, so that every step decodes exactly the
token that was forced last, through the cache. Log-probabilities are the raw ones, before sampling.
"""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from workers.engines.token_ids import spelled

WIDER: Final = (1_000, 1_000_000)
"""How many of the most probable tokens to ask for, where a forced token was not among those that are shown."""
TIMEOUT_S: Final = 600.0


class Refused(Exception):
    """The request asks for what llama.cpp does not offer."""


@dataclass(kw_only=True)
class Slot:
    """A sequence that llama.cpp keeps. `salt`: the only one whose requests may meet what is in it."""

    number: int
    salt: str | None = None
    tokens: list[int] = field(default_factory=list)
    is_free: bool = True


def shared_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


class Translator:
    """Thread-safe. `reuses`: whether a prompt may start from what a slot holds; `longest`: tokens of a request."""

    def __init__(self, address: str, *, alias: str, slots: int, longest: int | None, reuses: bool) -> None:
        self._address = address.rstrip("/")
        self._longest = longest
        self._alias = alias
        self._reuses = reuses
        self._slots = [Slot(number=number) for number in range(slots)]
        self._changed = threading.Condition()
        self._counts = dict.fromkeys(
            ("prompt_tokens", "generation_tokens", "prefix_cache_hits", "request_success"), 0
        )
        self._running = 0

    def models(self) -> dict[str, Any]:
        """The one model, under its alias."""
        return {
            "object": "list",
            "data": [{"id": self._alias, "object": "model", "max_model_len": self._longest}],
        }

    def metrics(self) -> str:
        """The counters that the suites watch, under the names that they know. llama.cpp never preempts."""
        with self._changed:
            totals = [f"vllm:{name}_total {count}" for name, count in self._counts.items()]
            busy = sum(not slot.is_free for slot in self._slots)
            gauges = [
                f"vllm:num_requests_running {busy}", f"vllm:num_requests_waiting {self._running - busy}",
                "vllm:num_preemptions_total 0",
            ]  # fmt: skip
        return "\n".join([*totals, *gauges]) + "\n"

    def tokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Token ids of a text, or of messages in the model's chat template."""
        text, special = body.get("prompt"), bool(body.get("add_special_tokens", "messages" not in body))
        if text is None:
            text = self._post("/apply-template", {"messages": body["messages"]})["prompt"]
        answer = self._post(
            "/tokenize", {"content": text, "add_special": special, "parse_special": "messages" in body}
        )
        return {"tokens": answer["tokens"], "count": len(answer["tokens"])}

    def detokenize(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The text of token ids."""
        return {"prompt": self._post("/detokenize", {"tokens": list(body["tokens"])})["content"]}

    def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A completion with log-probabilities by token id. Raises Refused."""
        for name in ("prompt_logprobs", "echo", "stream"):
            if body.get(name):
                raise Refused(f"{name} is not offered by llama.cpp's server")
        prompt = body["prompt"]
        ids = self.tokenize({"prompt": prompt})["tokens"] if isinstance(prompt, str) else list(prompt)
        wanted = len(ids) + int(body.get("max_tokens") or 16)
        if self._longest is not None and wanted > self._longest:
            raise Refused(f"{wanted} tokens are more than the {self._longest} of a slot")
        forced = (body.get("vllm_xargs") or {}).get("forced_token_ids")
        shown = int(body.get("logprobs") or 0)
        with self._slot(ids, body.get("cache_salt")) as (slot, reused):
            if forced is None:
                rows, text = self._free(slot, ids, body, shown, reused)
            else:
                rows, text = self._forced(slot, ids, forced[: int(body["max_tokens"])], shown, reused), ""
            slot.tokens = [*ids, *(token for token, _, _ in rows)]
        self._count(len(ids), len(rows), reused)
        return self._answer(rows, text, len(ids), has_logprobs=body.get("logprobs") is not None)

    # --- slots -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _slot(self, ids: Sequence[int], salt: str | None) -> Iterator[tuple[Slot, int]]:
        """A free slot, the one that shares most with the prompt, and how many tokens of the prompt it has."""
        with self._changed:
            self._running += 1
            self._changed.wait_for(lambda: any(slot.is_free for slot in self._slots))
            free = [slot for slot in self._slots if slot.is_free]
            slot = max(free, key=lambda one: (self._reusable(one, ids, salt), -len(one.tokens)))
            reused = self._reusable(slot, ids, salt)
            slot.is_free = False
        try:
            slot.salt = salt
            yield slot, reused
        finally:
            with self._changed:
                slot.is_free = True
                self._running -= 1
                self._changed.notify()

    def _reusable(self, slot: Slot, ids: Sequence[int], salt: str | None) -> int:
        """The last token is computed in any case, since its output is what the request is for."""
        if not self._reuses or slot.salt != salt:
            return 0
        return min(shared_prefix(slot.tokens, ids), len(ids) - 1)

    def _count(self, prompt: int, generated: int, reused: int) -> None:
        with self._changed:
            self._counts["prompt_tokens"] += prompt
            self._counts["generation_tokens"] += generated
            self._counts["prefix_cache_hits"] += reused
            self._counts["request_success"] += 1

    # --- decoding --------------------------------------------------------------------------------------------------

    def _forced(
        self, slot: Slot, ids: Sequence[int], forced: Sequence[int], shown: int, reused: int
    ) -> list[Row]:
        rows: list[Row] = []
        sequence = list(ids)
        for token in forced:
            is_kept = bool(rows or reused)  # from the second step on the slot has this very sequence
            row = self._step(slot, sequence, max(shown, 1), is_kept=is_kept)
            probable, wider = dict(row), iter(WIDER)
            while token not in probable and (count := next(wider, None)):
                probable = dict(self._step(slot, sequence, count, is_kept=True))
            rows.append((token, probable.get(token), row))
            sequence.append(token)
        return rows

    def _step(self, slot: Slot, sequence: Sequence[int], shown: int, *, is_kept: bool) -> Probable:
        """The distribution after a sequence, of which the slot has all but the end if `is_kept`."""
        settings = {"n_predict": 1, "n_probs": shown, "cache_prompt": is_kept}
        return rows_of(self._native(slot, sequence, settings))[0][2]

    def _free(
        self, slot: Slot, ids: Sequence[int], body: Mapping[str, Any], shown: int, reused: int
    ) -> tuple[list[Row], str]:
        settings = {
            "n_predict": int(body.get("max_tokens") or 16),
            "n_probs": max(shown, 1),
            "cache_prompt": bool(reused),
            "ignore_eos": bool(body.get("ignore_eos")),
            "temperature": float(body.get("temperature", 1.0)),
            "seed": int(body.get("seed") or 0),
            "stop": body.get("stop") or [],
        }
        answer = self._native(slot, ids, settings)
        return rows_of(answer), str(answer.get("content", ""))

    def _native(self, slot: Slot, sequence: Sequence[int], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Samplers other than the temperature are off, as they are by default in vLLM."""
        plain = {
            "prompt": list(sequence), "id_slot": slot.number, "temperature": 0.0,
            "samplers": ["temperature"], "post_sampling_probs": False, "return_tokens": True,
        }  # fmt: skip
        return self._post("/completion", plain | dict(settings))

    def _answer(self, rows: Sequence[Row], text: str, prompt: int, *, has_logprobs: bool) -> dict[str, Any]:
        logprobs = {
            "tokens": [spelled(token) for token, _, _ in rows],
            "token_logprobs": [value for _, value, _ in rows],
            "top_logprobs": [{spelled(token): value for token, value in row} for _, _, row in rows],
        }
        usage = {"prompt_tokens": prompt, "completion_tokens": len(rows), "total_tokens": prompt + len(rows)}
        choice = {
            "index": 0,
            "text": text,
            "finish_reason": "length",
            "logprobs": logprobs if has_logprobs else None,
        }
        return {"object": "text_completion", "model": self._alias, "choices": [choice], "usage": usage}

    def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - the native server's own address
            self._address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - same
            document: dict[str, Any] = json.load(answer)
            return document


Probable = list[tuple[int, float | None]]
Row = tuple[int, float | None, Probable]
"""A token, its log-probability, and the most probable tokens with theirs."""


def rows_of(answer: Mapping[str, Any]) -> list[Row]:
    """The tokens of a native answer. Raises Refused where it has no log-probabilities."""
    told = answer.get("completion_probabilities")
    if told is None:
        raise Refused(f"llama.cpp showed no log-probabilities: {json.dumps(answer)[:300]}")
    return [
        (one["id"], one.get("logprob"), [(top["id"], top.get("logprob")) for top in one["top_logprobs"]])
        for one in told
    ]
