"""A program that speaks just enough of vLLM's API for tests of our own logic, and misbehaves on demand.

`python -m tests.fakes.engine_server --port P [--refuse | --die-after N | --stall-after N] [--shift X] [--dtype D]`.
A forced completion waits until `--together` of them have come, ten seconds at most, and a little longer;
`--one-at-a-time` lets no other begin meanwhile.
`--config` is the configuration that it claims to have resolved; `--scale` is that of its FP8 cache.
Its distribution depends on the token alone; `--shift` moves it, as a damaged cache would, after prompts of
`--shift-from` tokens or more.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from contextlib import nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any, ClassVar

from workers.engines.vllm_effective import PIECES, SELF_REPORT

POOL_BYTES, TOKENS_16_BIT = 1_048_576, 512
LAYERS = 2


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--refuse", action="store_true")
    parser.add_argument("--die-after", type=int, default=10**9)
    parser.add_argument("--stall-after", type=int, default=10**9)
    parser.add_argument("--shift", type=float, default=0.0)
    parser.add_argument("--shift-from", type=int, default=0)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--prefix-caching", default="False")
    parser.add_argument("--chunk", type=int, default=10**9)
    parser.add_argument("--max-model-len", type=int, default=256)
    parser.add_argument("--frozen-counters", action="store_true")
    parser.add_argument("--pool-blocks", type=int, default=0)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--together", type=int, default=0)
    parser.add_argument("--one-at-a-time", action="store_true")
    parser.add_argument("--config", type=json.loads, default={})
    return parser.parse_args()


class Handler(BaseHTTPRequestHandler):
    """Counts requests over the life of the program."""

    options: argparse.Namespace
    completions, generated, hits, running, most = 0, 0, 0, 0, 0
    salts: ClassVar[set[object]] = set()
    turn: ClassVar[Lock] = Lock()

    def do_GET(self) -> None:
        if self.path == "/metrics":
            tokens = TOKENS_16_BIT * (1 if self.options.dtype == "auto" else 2)
            self._answer(
                "# TYPE vllm:cache_config_info gauge\n"
                f'vllm:cache_config_info{{cache_dtype="{self.options.dtype}",kv_cache_size_tokens="{tokens}",'
                f'kv_cache_memory_bytes="{POOL_BYTES}",block_size="16",num_gpu_blocks="{tokens // 16}",'
                f'enable_prefix_caching="{self.options.prefix_caching}",sliding_window="None"}} 1.0\n'
                f"# TYPE vllm:prefix_cache_hits counter\nvllm:prefix_cache_hits_total {Handler.hits}.0\n"
                "# TYPE vllm:num_preemptions counter\n"
                f"vllm:num_preemptions_total {Handler.completions * bool(self.options.pool_blocks)}.0\n"
                f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {Handler.running}.0\n"
                f"# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total {Handler.generated}.0\n"
                f"# TYPE vllm:request_success counter\nvllm:request_success_total {Handler.completions}.0\n"
            )
        elif self.path == "/v1/models":
            self._answer(json.dumps({"data": [{"id": "m", "max_model_len": self.options.max_model_len}]}))
        elif self.path == "/tokenizer_info":  # which lm-eval asks for, and vLLM does not serve unless told to
            self.send_error(404)
        else:
            self._answer("ok")

    def do_POST(self) -> None:
        with Handler.turn if self.options.one_at_a_time else nullcontext():
            Handler.running += 1
            try:
                self._complete()
            finally:
                Handler.running -= 1

    def _complete(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self._answer(json.dumps({"tokens": [ord(letter) for letter in body["prompt"]]}))
            return
        if "/" in (body.get("cache_salt") or ""):  # as vLLM's check of salts
            self.send_error(400)
            return
        Handler.completions += 1
        Handler.generated += not self.options.frozen_counters
        if Handler.completions > self.options.die_after:
            os._exit(3)
        if Handler.completions > self.options.stall_after:
            time.sleep(600)
        self._wait_for_company(body)
        prompt, length = body["prompt"], body.get("max_tokens", 1)
        pieces = math.ceil(len(prompt) / self.options.chunk)
        if pieces > 1 and "forced_token_ids" in body.get("vllm_xargs", {}):
            print(f"{PIECES}{pieces}", flush=True)
        if body.get("cache_salt", "") in Handler.salts and self.options.prefix_caching == "True":
            Handler.hits += len(prompt) // 16 * 16
        Handler.salts.add(body.get("cache_salt"))
        choice: dict[str, Any] = {"index": 0, "text": "x"}
        if body.get("logprobs"):
            forced = body.get("vllm_xargs", {}).get("forced_token_ids", [7] * length)
            choice["logprobs"] = self._logprobs(forced[:length], context=len(prompt))
        if body.get("prompt_logprobs"):
            rows = self._logprobs(prompt, context=len(prompt))["top_logprobs"]
            choice["prompt_logprobs"] = [
                {token.removeprefix("token_id:"): {"logprob": value} for token, value in row.items()}
                for row in rows
            ]
        self._answer(json.dumps({"choices": [choice]}))

    def _wait_for_company(self, body: dict[str, Any]) -> None:
        if not self.options.together or "vllm_xargs" not in body:
            return
        deadline = time.monotonic() + 10
        while Handler.most < self.options.together and time.monotonic() < deadline:
            Handler.most = max(Handler.most, Handler.running)
            time.sleep(0.01)
        time.sleep(0.5)

    def _logprobs(self, tokens: list[int], *, context: int) -> dict[str, Any]:
        shift = self.options.shift if context >= self.options.shift_from else 0.0
        rows = [
            {f"token_id:{token}": -0.2 - shift, f"token_id:{token + 1}": -2.0 + shift} for token in tokens
        ]
        return {
            "tokens": [f"token_id:{token}" for token in tokens],
            "token_logprobs": [-0.2 - shift for _ in tokens],
            "top_logprobs": rows,
        }

    def _answer(self, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def account(options: argparse.Namespace) -> dict[str, Any]:
    """What vLLM's worker would say of itself."""
    quantized = options.dtype != "auto"
    layers = {
        "count": LAYERS,
        "kv_cache_dtype": options.dtype,
        "stored_as": "uint8" if quantized else "bfloat16",
        "sliding_window": None,
        "scales": [options.scale, options.scale],
        "unit_scale_layers": LAYERS if options.scale == 1.0 else 0,
    }
    return {"layers": [layers], "cache_bytes": POOL_BYTES, "config": options.config}


def main() -> None:
    Handler.options = parse()
    if Handler.options.refuse:
        raise ValueError("KV cache dtype int3 is not supported")
    print(f"{SELF_REPORT}{json.dumps(account(Handler.options))}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", Handler.options.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
