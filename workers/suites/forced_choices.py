"""lm-eval's multiple choice, decoded: a choice is forced after its prompt instead of being read as a part of it.

What compresses a cache once the prompt is over does nothing to an item that is one prompt. Forced (see
`workers.engines.forced_tokens`), a choice is read as a served model would write it, with the compressed cache.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from workers.engines.token_ids import spelled


def forcing(base: Any) -> Any:
    """lm-eval's model for completions APIs, given as `base`, with choices forced; one item per request."""

    class Forcing(ForcedChoices, base):  # type: ignore[misc]  # lm-eval is imported by the program alone
        """lm-eval's model beneath the mixin."""

    return Forcing


class ForcedChoices:
    """Goes before lm-eval's model. Only the scoring of given choices differs; generation is lm-eval's own."""

    model: str
    context_tokens: Any = None

    def batch_loglikelihood_requests(self, chunks: Any) -> Any:
        """Each item's tokens, how many of them are its prompt, and more; the second is remembered."""
        beneath: Any = super()
        batch = beneath.batch_loglikelihood_requests(chunks)
        self.context_tokens = batch[1]
        return batch

    def model_call(self, messages: Any, **arguments: Any) -> Any:
        """One request at a time, each made of the batch that was last: here lengths are not handed on."""
        beneath: Any = super()
        return beneath.model_call(messages, context_tokens=self.context_tokens, **arguments)

    async def amodel_call(self, session: Any, sem: Any, messages: Any, **arguments: Any) -> Any:
        """Several at a time, whose lengths are handed on."""
        beneath: Any = super()
        tokens = arguments.get("ctxlens")
        return await beneath.amodel_call(session, sem, messages, context_tokens=tokens, **arguments)

    def _create_payload(
        self, messages: Any, generate: bool = False, *, context_tokens: Any = None, **others: Any
    ) -> Any:
        if generate:
            return super()._create_payload(messages, generate=True, **others)  # type: ignore[misc]  # lm-eval's
        (tokens,), (context,) = messages, context_tokens
        return request(self.model, tokens, context)

    @staticmethod
    def parse_logprobs(
        outputs: Any, tokens: Any = None, ctxlens: Any = None, **_others: Any
    ) -> list[tuple[float, bool]]:
        """Of each item, the log-probability of its choice and whether greedy decoding would write it."""
        answers = outputs if isinstance(outputs, list) else [outputs]
        return [
            score(answer["choices"][0]["logprobs"], sequence[context:])
            for answer, sequence, context in zip(answers, tokens, ctxlens, strict=True)
        ]


def request(model: str, tokens: Sequence[int], context: int) -> dict[str, Any]:
    """What is asked for an item whose first `context` tokens are its prompt; no item is read from another's cache."""
    return {
        "model": model, "prompt": list(tokens[:context]), "max_tokens": len(tokens) - context, "temperature": 0,
        "logprobs": 1, "ignore_eos": True, "return_tokens_as_token_ids": True,
        "cache_salt": uuid.uuid4().hex, "vllm_xargs": {"forced_token_ids": list(tokens[context:])},
    }  # fmt: skip


def score(logprobs: Mapping[str, Any], choice: Iterable[int]) -> tuple[float, bool]:
    """Log-probability in nats, and whether each token is the most probable one. Raises ValueError on other tokens."""
    if logprobs["tokens"] != [spelled(token) for token in choice]:
        raise ValueError("the engine did not force the tokens of the choice")
    own, best = logprobs["token_logprobs"], [max(row.values()) for row in logprobs["top_logprobs"]]
    return sum(own), all(value >= largest for value, largest in zip(own, best, strict=True))
