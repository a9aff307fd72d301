"""llama.cpp: argv, what its recorded log says, and the translation of requests before a native server of our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gatekeeper.domain.change import Change
from gatekeeper.domain.effective import compare, mismatches
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model, Plan, make_plan
from tests.fakes.engine import fake_plan
from workers.engines import ENGINES
from workers.engines.base import parse_metrics
from workers.engines.llama_cpp.server import parse
from workers.engines.llama_cpp.translate import Refused, Translator, shared_prefix

RECORDED = Path(__file__).resolve().parents[2] / "data" / "llama_cpp"
SHAPE = ModelShape(layers=30, attention_heads=9, kv_heads=3, head_dim=64, max_context=8192)
SERVED = {"data": [{"id": "m", "max_model_len": 2048}]}


def plan_for(quantization: dict[str, Any], *, prefix_caching: bool = False) -> Plan:
    base = fake_plan()
    change = Change.model_validate(
        {"model": "m", "engine": "llama_cpp", "candidate": {"quantization": quantization},
         "baseline": {"scheduling": {"max_model_len": 2048, "max_num_seqs": 2},
                      "reuse": {"prefix_caching": prefix_caching}}}
    )  # fmt: skip
    return make_plan(
        change, model=Model(name="m", source="/models/m.gguf", shape=SHAPE), suite=base.suite, policy=base.policy,
        device="cpu", allowed_arguments=frozenset(),
    )  # fmt: skip


def test_the_argv_gives_every_slot_the_context_and_reads_back() -> None:
    plan = plan_for({"scheme": "q8_0", "values": "q4_0"})
    argv = ENGINES["llama_cpp"].argv(plan.candidate, port=8000)
    arguments = parse(argv[3:])
    assert (arguments.cache_type_k, arguments.cache_type_v, arguments.flash_attn) == ("q8_0", "q4_0", "on")
    assert (arguments.ctx_size, arguments.parallel, arguments.cache_prompt) == (4096, 2, False)
    baseline = parse(ENGINES["llama_cpp"].argv(plan.baseline, port=8000)[3:])
    assert (baseline.cache_type_k, baseline.cache_type_v, baseline.flash_attn) == ("f16", "f16", "on")


@pytest.mark.parametrize(
    ("name", "quantization", "per_token", "prefix_caching"),
    [
        ("q8_0", {"scheme": "q8_0"}, 11_520 * 8.5 / 8, False),
        ("q8_0_q4_0", {"scheme": "q8_0", "values": "q4_0"}, 11_520 * 6.5 / 8, True),
    ],
)
def test_the_recorded_allocation_is_what_was_requested_to_the_byte(
    name: str, quantization: dict[str, Any], per_token: float, *, prefix_caching: bool
) -> None:
    plan = plan_for(quantization, prefix_caching=prefix_caching)
    effective = ENGINES["llama_cpp"].effective("", SERVED, (RECORDED / f"{name}.log").read_text())
    assert plan.candidate.predicted_kv_bytes_per_token == per_token
    assert effective.kv_bytes_per_token == pytest.approx(per_token, rel=0.001)
    assert effective.kv_cache_tokens == 4096
    rows = compare(plan.candidate, effective)
    assert mismatches(rows) == ()
    known = {row.setting for row in rows if row.agrees}
    assert known == {
        "cache_dtype", "stored_type", "kv_bytes_per_token", "prefix_caching", "max_num_seqs", "max_model_len"
    }  # fmt: skip


def test_a_cache_of_another_type_is_a_mismatch() -> None:
    plan = plan_for({"scheme": "q4_0"})
    effective = ENGINES["llama_cpp"].effective("", SERVED, (RECORDED / "q8_0.log").read_text())
    assert [row.setting for row in mismatches(compare(plan.candidate, effective))] == [
        "cache_dtype",
        "kv_bytes_per_token",
    ]


# --- translation -----------------------------------------------------------------------------------------------------


class Native(ThreadingHTTPServer):
    """Answers as llama.cpp does: the next token is the last one plus one, all others are less and less probable."""

    seen: list[dict[str, Any]]


class NativeHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append({"path": self.path, **body})  # type: ignore[attr-defined]
        content = json.dumps(getattr(self, self.path.strip("/").replace("-", "_"))(body)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def tokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"tokens": [ord(letter) for letter in body["content"]]}

    def detokenize(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"content": "".join(map(chr, body["tokens"]))}

    def apply_template(self, body: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": "".join(message["content"] for message in body["messages"])}

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        rows, last = [], body["prompt"][-1]
        for _ in range(body["n_predict"]):
            top = [
                {"id": last + 1 + rank, "logprob": -0.5 - rank} for rank in range(min(body["n_probs"], 5_000))
            ]
            rows.append({"id": last + 1, "logprob": -0.5, "top_logprobs": top})
            last += 1
        return {"content": "x" * len(rows), "completion_probabilities": rows}

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def translator(*, slots: int = 2, reuses: bool = False) -> Iterator[tuple[Translator, list[dict[str, Any]]]]:
    with Native(("127.0.0.1", 0), NativeHandler) as native:
        native.seen = []
        thread = threading.Thread(target=lambda: native.serve_forever(poll_interval=0.02))
        thread.start()
        address = f"http://127.0.0.1:{native.server_port}"
        try:
            yield Translator(address, alias="m", slots=slots, longest=100, reuses=reuses), native.seen
        finally:
            native.shutdown()
            thread.join()


def request(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": [10, 11], "max_tokens": 3, "logprobs": 2, "temperature": 0.0} | fields


def test_forced_tokens_are_decoded_one_by_one_in_one_slot() -> None:
    with translator() as (translate, seen):
        answer = translate.complete(request(vllm_xargs={"forced_token_ids": [12, 13, 20]}))
    logprobs = answer["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["token_id:12", "token_id:13", "token_id:20"]
    assert logprobs["token_logprobs"] == [-0.5, -0.5, -6.5]
    assert logprobs["top_logprobs"][2] == {"token_id:14": -0.5, "token_id:15": -1.5}
    assert [step["prompt"] for step in seen] == [[10, 11], [10, 11, 12], [10, 11, 12, 13], [10, 11, 12, 13]]
    # Only the first step computes the prompt; the last one is asked again for less probable tokens.
    assert [step["cache_prompt"] for step in seen] == [False, True, True, True]
    assert [step["n_probs"] for step in seen] == [2, 2, 2, 1_000]
    assert len({step["id_slot"] for step in seen}) == 1


def test_free_decoding_shows_the_engines_own_tokens() -> None:
    with translator() as (translate, seen):
        answer = translate.complete(request(ignore_eos=True))
    assert answer["choices"][0]["logprobs"]["tokens"] == ["token_id:12", "token_id:13", "token_id:14"]
    assert (answer["choices"][0]["text"], answer["usage"]["completion_tokens"]) == ("xxx", 3)
    assert (seen[0]["n_predict"], seen[0]["ignore_eos"]) == (3, True)


def test_a_prefix_is_met_again_only_where_that_is_on_and_the_salt_is_the_same() -> None:
    prompt = {"prompt": [10, 11, 12, 13]}
    for reuses, salt, hits in ((True, "a", 3), (True, "b", 0), (False, "a", 0)):
        with translator(reuses=reuses) as (translate, seen):
            translate.complete(request(cache_salt="a", **prompt))
            translate.complete(request(cache_salt=salt, **prompt))
            counted = parse_metrics(translate.metrics())
        assert counted["vllm:prefix_cache_hits_total"] == hits
        assert seen[1]["cache_prompt"] == bool(hits)
        assert (counted["vllm:request_success_total"], counted["vllm:generation_tokens_total"]) == (2, 6)
        assert counted["vllm:num_requests_running"] == 0


def test_what_llama_cpp_does_not_offer_is_refused() -> None:
    with translator() as (translate, seen):
        for fields in ({"echo": True}, {"prompt_logprobs": 2}, {"stream": True}, {"max_tokens": 99}):
            with pytest.raises(Refused):
                translate.complete(request(**fields))
    assert seen == []


def test_texts_and_chats_are_tokenized() -> None:
    with translator() as (translate, seen):
        assert translate.tokenize({"prompt": "ab", "add_special_tokens": False})["tokens"] == [97, 98]
        assert translate.tokenize({"messages": [{"role": "user", "content": "c"}]})["tokens"] == [99]
        assert translate.detokenize({"tokens": [100, 101]}) == {"prompt": "de"}
    assert [step.get("add_special") for step in seen] == [False, None, False, None]


def test_shared_prefixes_are_counted() -> None:
    assert [shared_prefix([1, 2, 3], other) for other in ([1, 2, 4], [1, 2], [], [1, 2, 3, 4])] == [
        2,
        2,
        0,
        3,
    ]
