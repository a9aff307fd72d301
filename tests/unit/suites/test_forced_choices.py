"""How lm-eval's choices are asked for and scored where they are forced after their prompt."""

import asyncio
from typing import Any

import pytest

from workers.suites.forced_choices import forcing, score


class LmEvalsModel:
    """What lm-eval's model for completions does with its arguments: those that it knows are not in the payload."""

    model = "m"

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def batch_loglikelihood_requests(self, chunks: Any) -> Any:
        return (
            [[*context, *choice] for context, choice in chunks],
            [len(context) for context, _ in chunks],
            [],
        )

    def _create_payload(self, *_messages: Any, generate: bool = False, **others: Any) -> dict[str, Any]:
        return {"generate": generate, **others}

    def model_call(self, messages: Any, **arguments: Any) -> Any:
        arguments.pop("gen_kwargs", None)
        self.sent.append(self._create_payload(messages, seed=1, **arguments))

    async def amodel_call(self, _session: Any, _sem: Any, messages: Any, **arguments: Any) -> Any:
        arguments.pop("ctxlens")
        self.sent.append(self._create_payload(messages, seed=1, **arguments))


FORCED = {
    "model": "m", "prompt": [1, 2, 3], "max_tokens": 2, "temperature": 0, "logprobs": 1, "ignore_eos": True,
    "return_tokens_as_token_ids": True, "vllm_xargs": {"forced_token_ids": [4, 5]},
}  # fmt: skip


def logprobs(*tokens: int) -> dict[str, Any]:
    return {
        "tokens": [f"token_id:{token}" for token in tokens],
        "token_logprobs": [-0.5, -2.0],
        "top_logprobs": [{"token_id:4": -0.5}, {"token_id:9": -0.25, "token_id:5": -2.0}],
    }


def test_a_choice_is_forced_after_its_prompt_alone_or_with_others() -> None:
    model = forcing(LmEvalsModel)()
    tokens, _, _ = model.batch_loglikelihood_requests([([1, 2, 3], [4, 5])])
    model.model_call(messages=tokens, generate=False)
    asyncio.run(model.amodel_call(None, None, tokens, generate=False, ctxlens=[3]))
    salts = [sent.pop("cache_salt") for sent in model.sent]
    assert model.sent == [FORCED, FORCED]
    assert len({*salts}) == 2


def test_what_is_to_be_generated_is_asked_for_as_lm_eval_does() -> None:
    model = forcing(LmEvalsModel)()
    model.model_call([[1, 2]], generate=True, gen_kwargs={})
    assert model.sent == [{"generate": True, "seed": 1}]


def test_a_choice_is_worth_the_sum_of_its_tokens_and_greedy_if_each_is_the_best() -> None:
    answer = {"choices": [{"logprobs": logprobs(4, 5)}]}
    parsed = forcing(LmEvalsModel).parse_logprobs(answer, tokens=[[1, 2, 3, 4, 5]], ctxlens=[3])
    assert parsed == [(-2.5, False)]
    one = {key: rows[:1] for key, rows in logprobs(4, 5).items()}
    assert score(one, [4]) == (-0.5, True)


def test_other_tokens_than_the_choice_are_no_score() -> None:
    with pytest.raises(ValueError, match="did not force"):
        score(logprobs(4, 6), [4, 5])
