"""The reference engine over real subprocesses and HTTP, with a small random model: its contract."""

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gatekeeper.domain.change import Deployment
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.plan import Model
from gatekeeper.domain.probes import AccuracyProbe
from tests.fakes.engine import MemoryArm
from tests.integration.workers.random_model import VOCABULARY, model, plan_of
from workers.engines import choose
from workers.engines.base import Server, launch
from workers.suites import accuracy
from workers.suites.base import Bench

__all__ = ["model"]
pytestmark = pytest.mark.timeout(300)

EVICTED = "gatekeeper:kv_tokens_evicted_total"


@pytest.fixture(scope="module")
def server(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An engine that evicts and quantizes, with prompts in pieces."""
    candidate = {
        "quantization": {"scheme": "int8"},
        "eviction": {"policy": "snapkv", "evicted_fraction": 0.5},
        "scheduling": {"max_num_batched_tokens": 40},
    }
    plan = plan_of(model, candidate).candidate
    log = tmp_path_factory.mktemp("log") / "engine.log"
    with launch(
        choose(plan), plan, run_id=uuid.uuid4().hex, log=log, gpu=None, start_seconds=120, stall_seconds=60,
        check=lambda: None,
    ) as running:  # fmt: skip
        yield running


def complete(server: Server, **body: Any) -> dict[str, Any]:
    answer: Any = server.post("/v1/completions", {"model": "m", "temperature": 0.0, **body})
    choice: dict[str, Any] = answer["choices"][0]
    return choice


def test_an_evicting_quantizing_engine_shows_all_that_was_asked_of_it(server: Server) -> None:
    assert mismatches(compare(server.plan, server.effective)) == ()
    known = {row.setting: row.evidence for row in compare(server.plan, server.effective) if row.agrees}
    assert known["eviction"] == known["stored_type"] == "measured"
    assert known["cache_dtype"] == "reported"
    assert server.effective.kept_tokens == (server.effective.seen_tokens or 0) // 2


def test_forced_tokens_are_scored_and_answer_in_their_order(server: Server) -> None:
    choice = complete(
        server, prompt=list(range(2, 60)), max_tokens=3, logprobs=2, ignore_eos=True, cache_salt="a",
        return_tokens_as_token_ids=True, vllm_xargs={"forced_token_ids": [5, 1, 7]},
    )  # fmt: skip
    assert choice["logprobs"]["tokens"] == ["token_id:5", "token_id:1", "token_id:7"]
    assert choice["finish_reason"] == "length"
    assert all(2 <= len(row) <= 3 for row in choice["logprobs"]["top_logprobs"])


def test_a_prompt_in_pieces_is_told_in_the_log(server: Server) -> None:
    before = len(server.logged("gatekeeper prompt pieces "))
    complete(server, prompt=[3] * 100, max_tokens=1, vllm_xargs={"forced_token_ids": [5]})
    assert server.logged("gatekeeper prompt pieces ")[before:] == ["3"]


def test_echo_and_prompt_logprobs_score_the_same_tokens(server: Server) -> None:
    prompt = [9, 8, 7, 6, 5]
    echoed = complete(server, prompt=prompt, max_tokens=1, logprobs=1, echo=True, seed=1)["logprobs"]
    rows = complete(server, prompt=prompt, max_tokens=1, prompt_logprobs=1)["prompt_logprobs"]
    assert (len(echoed["tokens"]), echoed["token_logprobs"][0], rows[0]) == (6, None, None)
    scored = [row[str(token)]["logprob"] for token, row in zip(prompt[1:], rows[1:], strict=True)]
    assert echoed["token_logprobs"][1:5] == pytest.approx(scored)


def test_answers_repeat_whatever_runs_beside_them_and_seeds_decide_what_is_drawn(server: Server) -> None:
    body = {"prompt": [4] * 30, "max_tokens": 12, "temperature": 1.5, "ignore_eos": True}
    texts = [complete(server, **body, seed=seed)["text"] for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_a_stop_text_ends_the_answer_and_is_not_part_of_it(server: Server) -> None:
    body = {"prompt": [4] * 30, "max_tokens": 12, "ignore_eos": True}
    text = complete(server, **body)["text"]
    stopped = complete(server, **body, stop=[text[3:5]])
    assert stopped["text"] == text[: text.index(text[3:5])]
    assert stopped["finish_reason"] == "stop"


def test_a_stream_carries_what_the_whole_answer_has(server: Server) -> None:
    body = {"model": "m", "prompt": [4] * 30, "max_tokens": 6, "temperature": 0.0, "ignore_eos": True}
    whole: Any = server.post("/v1/completions", body)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    lines = httpx.post(f"{server.base_url}/v1/completions", json=body | options, timeout=60).text.split(
        "\n\n"
    )
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if "{" in line]
    assert lines[-2] == "data: [DONE]"
    assert "".join(c["text"] for chunk in chunks for c in chunk["choices"]) == whole["choices"][0]["text"]
    assert (
        chunks[-1]["usage"]
        == whole["usage"]
        == {"prompt_tokens": 30, "completion_tokens": 6, "total_tokens": 36}
    )


def test_a_chat_is_written_by_the_template_and_answered(server: Server) -> None:
    messages = [{"role": "user", "content": "hello"}]
    tokens: Any = server.post("/tokenize", {"messages": messages})
    text: Any = server.post("/detokenize", {"tokens": tokens["tokens"]})
    assert text["prompt"] == "[user] hello\n"
    body = {
        "model": "m",
        "messages": messages,
        "max_tokens": 3,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": 2,
    }
    answer: Any = server.post("/v1/chat/completions", body)
    assert len(answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]) == 2
    assert answer["usage"]["prompt_tokens"] == tokens["count"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": [5] * 600}, "max_tokens"),
        ({"prompt": [VOCABULARY]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1], "vllm_xargs": {"forced_token_ids": ["a"]}}, "forced_token_ids"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_its_field(
    server: Server, body: dict[str, Any], field: str
) -> None:
    with pytest.raises(httpx.HTTPStatusError) as refusal:
        complete(server, **body)
    assert refusal.value.response.status_code == 400
    assert field in refusal.value.response.json()["error"]["message"]


@pytest.mark.long
def test_choices_of_lm_eval_are_decoded_with_the_cache_that_is_left(server: Server, tmp_path: Path) -> None:
    arm = MemoryArm(role="candidate", plan=server.plan)
    bench = Bench(
        server=server, sink=arm, run_id="r", workdir=tmp_path, deployment=Deployment(concurrency=2),
        modes=("cold",), tasks_dir=None, advance=lambda _done, _total: None, settled=lambda *_: None,
        references=lambda _mode: {},
    )  # fmt: skip
    accuracy.run(AccuracyProbe(probe="accuracy", tasks=("gk_facts",), items_per_task=3), bench)
    assert len({row.item_id for row in arm.rows}) == 3
    assert all(0 <= (row.value or 0) <= 1 for row in arm.rows)
    evicted = {exercise.counter: exercise.moved for exercise in arm.proofs}
    assert (evicted[EVICTED] or 0) > 0


def test_counters_say_what_was_read_generated_kept_and_evicted(server: Server) -> None:
    before = server.metrics()
    complete(server, prompt=[3] * 80, max_tokens=1)
    moved = {name: value - before.get(name, 0) for name, value in server.metrics().items()}
    assert moved["vllm:prompt_tokens_total"] == 80
    assert moved["vllm:generation_tokens_total"] == moved["vllm:request_success_total"] == 1
    assert moved["gatekeeper:kv_tokens_kept_total"] == moved["gatekeeper:kv_tokens_evicted_total"] == 40


@pytest.mark.parametrize(
    ("eviction", "spread"),
    [
        ({"policy": "pyramidkv", "evicted_fraction": 0.5, "observation_window": 16}, True),
        pytest.param(
            {"policy": "expected_attention", "evicted_fraction": 0.5}, False, marks=pytest.mark.long
        ),
    ],
)
def test_layers_keep_what_their_budgets_say_and_forced_tokens_are_scored_on_that(
    model: Model, eviction: dict[str, Any], spread: bool, tmp_path: Path
) -> None:
    plan = plan_of(model, {"eviction": eviction}).candidate
    with launch(
        choose(plan), plan, run_id=uuid.uuid4().hex, log=tmp_path / "engine.log", gpu=None, start_seconds=120,
        stall_seconds=60, check=lambda: None,
    ) as server:  # fmt: skip
        effective, before = server.effective, server.metrics()
        body = {"prompt": list(range(2, 122)), "max_tokens": 3, "logprobs": 1, "ignore_eos": True}
        choice = complete(server, **body, vllm_xargs={"forced_token_ids": [5, 6, 7]})
        after = server.metrics()
    assert mismatches(compare(plan, effective)) == ()
    lowest, highest = effective.kept_by_layer["0"], effective.kept_by_layer["1"]
    assert lowest + highest == effective.seen_tokens
    assert (lowest > highest) == spread
    assert all(-20 < value < 0 for value in choice["logprobs"]["token_logprobs"])
    assert after[EVICTED] - before[EVICTED] == 60


TIGHT = {
    "policy": "composed",
    "prompt": {"policy": "h2o", "budget_tokens": 24},
    "decode": {"policy": "streaming_llm", "sinks": 24, "window": 4},
}
BY_LAYER = {
    "policy": "per_layer",
    "groups": [{"layers": [0], "eviction": {"policy": "sliding_window", "window": 40}}],
    "other": {"policy": "tova", "evicted_fraction": 0.5},
}


@pytest.mark.parametrize(
    ("eviction", "kept"), [(TIGHT, (28, 28)), (BY_LAYER, (40, 70))], ids=["turns", "layers"]
)
def test_policies_together_are_seen_in_effect_and_hold_what_they_say_while_decoding(
    model: Model, eviction: dict[str, Any], kept: tuple[int, int], tmp_path: Path
) -> None:
    plan = plan_of(model, {"quantization": {"scheme": "fp8_e4m3"}, "eviction": eviction}).candidate
    with launch(
        choose(plan), plan, run_id=uuid.uuid4().hex, log=tmp_path / "engine.log", gpu=None, start_seconds=120,
        stall_seconds=60, check=lambda: None,
    ) as server:  # fmt: skip
        observations, before = compare(plan, server.effective), server.metrics()
        body = {"prompt": list(range(2, 122)), "max_tokens": 11, "logprobs": 1, "ignore_eos": True}
        complete(server, **body, vllm_xargs={"forced_token_ids": list(range(11))})
        moved = {name: value - before.get(name, 0) for name, value in server.metrics().items()}
    (row,) = [row for row in observations if row.setting == "eviction"]
    assert (row.agrees, row.evidence) == (True, "measured"), row
    assert mismatches(observations) == ()
    assert moved["gatekeeper:kv_tokens_kept_total"] == sum(kept) / 2
