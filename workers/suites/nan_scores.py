"""lm-eval's model for completions, made to go on where the engine computed NaN: such a choice scores NaN.

JSON has no NaN. Some engines write null instead, others answer with a server error, which would end lm-eval: the run
would be an ERROR, although the engine lives and the candidate alone may be to blame.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

NO_NUMBER: Final = (math.nan, False)
"""What lm-eval scores a choice with: its log-probability in nats, and whether greedy decoding would write it."""
SERVER_ERROR: Final = 500
"""Statuses from here on blame the engine, not the request."""


def scoring_nan(base: Any) -> Any:
    """lm-eval's model for completions APIs, given as `base`, whose choices may score NaN."""

    class ScoringNan(NanScores, base):  # type: ignore[misc]  # lm-eval is imported by the program alone
        """lm-eval's model beneath the mixin."""

    return ScoringNan


class NanScores:
    """Goes before lm-eval's model. Only answers without numbers differ; any other failure is raised as before."""

    model: str
    base_url: str
    header: Mapping[str, str]
    timeout: float

    def model_call(self, messages: Any, *, generate: bool = True, **arguments: Any) -> Any:
        """One request at a time; None where the engine could not write its log-probabilities down."""
        import requests

        beneath: Any = super()
        try:
            return beneath.model_call(messages, generate=generate, **arguments)
        except requests.HTTPError as error:
            status = 0 if error.response is None else error.response.status_code
            if generate or status < SERVER_ERROR or not self._completes(messages):
                raise
            return None

    async def amodel_call(
        self, session: Any, sem: Any, messages: Any, *, generate: bool = True, **arguments: Any
    ) -> Any:
        """Several at a time; the answers are scored already."""
        from aiohttp import ClientResponseError

        beneath: Any = super()
        try:
            return await beneath.amodel_call(session, sem, messages, generate=generate, **arguments)
        except ClientResponseError as error:
            blamed = error.status >= SERVER_ERROR and not generate
            if not (blamed and await asyncio.to_thread(self._completes, messages)):
                raise
            return [NO_NUMBER for _ in messages]

    def _completes(self, messages: Sequence[Sequence[int]]) -> bool:
        """Whether the engine answers the same prompts when it need not write log-probabilities."""
        import requests

        body: dict[str, Any] = {"model": self.model, "prompt": messages, "max_tokens": 1, "temperature": 0}
        return requests.post(self.base_url, json=body, headers=self.header, timeout=self.timeout).ok

    def parse_logprobs(self, outputs: Any, tokens: Any = None, ctxlens: Any = None, **others: Any) -> Any:
        """Score choices; `outputs` is None where the engine gave no answer."""
        if outputs is None:
            return [NO_NUMBER for _ in tokens]
        answers = outputs if isinstance(outputs, list) else [outputs]
        beneath: Any = super()
        return beneath.parse_logprobs(
            outputs=[with_nan(answer) for answer in answers], tokens=tokens, ctxlens=ctxlens, **others
        )


def with_nan(answer: Mapping[str, Any]) -> dict[str, Any]:
    """An answer with NaN wherever it has null for a log-probability."""
    return {**answer, "choices": [_choice_with_nan(choice) for choice in answer["choices"]]}


def _choice_with_nan(choice: Mapping[str, Any]) -> dict[str, Any]:
    own, best = choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]
    numbers = {
        "token_logprobs": [_number(value) for value in own],
        "top_logprobs": [{token: _number(value) for token, value in (row or {}).items()} for row in best],
    }
    return {**choice, "logprobs": {**choice["logprobs"], **numbers}}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
