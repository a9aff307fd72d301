"""What lm-eval's model for completions makes of an engine that computed NaN, before a server that answers as told."""

import asyncio
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
import requests
from aiohttp import ClientResponseError, ClientSession

from workers.suites.nan_scores import scoring_nan

CHOICE = {
    "token_logprobs": [None, -1.0, -0.5, -9.0],
    "top_logprobs": [None, {"a": -1.0}, {"b": -0.5}, {"c": -9.0}],
}
Answers = dict[bool, tuple[int, Any]]
"""Whether log-probabilities are asked for -> status and document of the answer."""


class LmEvalsModel:
    """What lm-eval's model for completions does with requests and answers."""

    model, timeout = "m", 10
    header: ClassVar[dict[str, str]] = {}

    def __init__(self, url: str) -> None:
        self.base_url = url

    def model_call(self, messages: Any, *, generate: bool) -> Any:
        answer = requests.post(self.base_url, json=self._body(messages, generate), timeout=10)
        answer.raise_for_status()
        return answer.json()

    async def amodel_call(
        self, session: Any, _sem: Any, messages: Any, *, generate: bool, ctxlens: Any
    ) -> Any:
        async with session.post(self.base_url, json=self._body(messages, generate)) as response:
            response.raise_for_status()
            return self.parse_logprobs(outputs=await response.json(), tokens=messages, ctxlens=ctxlens)

    @staticmethod
    def parse_logprobs(outputs: Any, tokens: Any, ctxlens: Any) -> list[tuple[float, bool]]:
        del tokens
        found = []
        for answer, length in zip(outputs, ctxlens, strict=True):
            logprobs = answer["choices"][0]["logprobs"]
            rows = list(zip(logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True))[length:-1]
            found.append((sum(own for own, _ in rows), all(own == max(row.values()) for own, row in rows)))
        return found

    @staticmethod
    def _body(messages: Any, generate: bool) -> dict[str, Any]:
        return {"prompt": messages, **({} if generate else {"logprobs": 1})}


@contextmanager
def answering(answers: Answers) -> Iterator[Any]:
    """The model before an engine that gives these answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, document = answers["logprobs" in body]
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield scoring_nan(LmEvalsModel)(f"http://127.0.0.1:{server.server_port}/v1/completions")
        finally:
            server.shutdown()
            thread.join()


def one_by_one(model: Any) -> Any:
    outputs = model.model_call([[1, 2, 3]], generate=False)
    return model.parse_logprobs(outputs=outputs, tokens=[[1, 2, 3]], ctxlens=[1])


def at_once(model: Any) -> Any:
    async def ask() -> Any:
        async with ClientSession() as session:
            return await model.amodel_call(session, None, [[1, 2, 3]], generate=False, ctxlens=[1])

    return asyncio.run(ask())


WAYS = pytest.mark.parametrize("score", [one_by_one, at_once])
TEXT = (200, {"choices": [{"text": "x"}]})
NAN = (500, {"error": {"message": "Out of range float values are not JSON compliant: nan"}})


@WAYS
def test_numbers_are_scored_as_lm_eval_does(score: Any) -> None:
    with answering({True: (200, {"choices": [{"logprobs": CHOICE}]})}) as model:
        assert score(model) == [(-1.5, True)]


@WAYS
@pytest.mark.parametrize(
    "answer", [NAN, (200, {"choices": [{"logprobs": CHOICE | {"token_logprobs": [None] * 4}}]})]
)
def test_a_choice_whose_probabilities_cannot_be_written_down_scores_nan(score: Any, answer: Any) -> None:
    with answering({True: answer, False: TEXT}) as model:
        ((logprob, is_greedy),) = score(model)
    assert math.isnan(logprob)
    assert not is_greedy


@WAYS
@pytest.mark.parametrize(
    "answers",
    [{True: NAN, False: NAN}, {True: (400, {"error": "too long"}), False: TEXT}],
    ids=["answers nothing at all", "refuses"],
)
def test_any_other_failure_stays_one(score: Any, answers: Answers) -> None:
    with answering(answers) as model, pytest.raises((requests.HTTPError, ClientResponseError)):
        score(model)


def test_text_that_could_not_be_generated_is_no_nan() -> None:
    with answering({True: TEXT, False: NAN}) as model, pytest.raises(requests.HTTPError):
        model.model_call([[1, 2, 3]], generate=True)
