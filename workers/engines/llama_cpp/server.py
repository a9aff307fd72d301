"""llama.cpp's server with the endpoints that the suites use beside its own.

`python -m workers.engines.llama_cpp.server --model FILE.gguf --alias NAME --port N`, and the flags of `engine_flags`.
The native server (from `xllamacpp`, in this process) listens on a port of its own; this one translates.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from workers.engines.llama_cpp.translate import Refused, Translator

PATHS = ("/v1/completions", "/tokenize", "/detokenize")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The flags, spelled as llama.cpp's own server spells them."""
    parser = argparse.ArgumentParser(prog="llama_cpp.server", allow_abbrev=False)
    parser.add_argument("--model", required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--cache-type-k", default="f16")
    parser.add_argument("--cache-type-v", default="f16")
    parser.add_argument("--flash-attn", choices=["on", "off", "auto"], default="auto")
    parser.add_argument("--ctx-size", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--ubatch-size", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cache-prompt", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args(words)


def start_native(arguments: argparse.Namespace, port: int) -> Any:
    """llama.cpp's own server; it lives as long as the object. Raises RuntimeError if it cannot load the model."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = arguments.model
    params.model_alias = {arguments.alias}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_ctx, params.n_parallel = arguments.ctx_size, arguments.parallel
    params.kv_unified = False  # every slot has the context to itself, as the plan says
    params.cache_type_k = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{arguments.cache_type_k.upper()}")
    params.cache_type_v = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{arguments.cache_type_v.upper()}")
    kinds = xllamacpp.llama_flash_attn_type
    params.flash_attn_type = {
        "on": kinds.LLAMA_FLASH_ATTN_TYPE_ENABLED,
        "off": kinds.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        "auto": kinds.LLAMA_FLASH_ATTN_TYPE_AUTO,
    }[arguments.flash_attn]
    for field, value in (("n_batch", arguments.batch_size), ("n_ubatch", arguments.ubatch_size)):
        if value is not None:
            setattr(params, field, value)
    if arguments.threads is not None:
        params.cpuparams.n_threads = arguments.threads
    params.cache_ram_mib = 0  # no second cache of prompts beside the slots
    params.ctx_shift = False
    params.verbosity = 4  # the allocation of the cache is told at this level
    return xllamacpp.Server(params)


class Handler(BaseHTTPRequestHandler):
    """One request. The server carries the translator."""

    protocol_version = "HTTP/1.1"

    @property
    def translator(self) -> Translator:
        """Shared by all requests."""
        translator: Translator = self.server.translator  # type: ignore[attr-defined]  # `serve` sets it
        return translator

    def do_GET(self) -> None:
        """Health, models and metrics."""
        match self.path:
            case "/health":
                self._answer(200, {"status": "ok"})
            case "/v1/models":
                self._answer(200, self.translator.models())
            case "/metrics":
                self._answer(200, self.translator.metrics())
            case _:
                self._answer(404, {"error": f"no {self.path}"})

    def do_POST(self) -> None:
        """Completions and tokens."""
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(content)
            match self.path:
                case "/v1/completions":
                    self._answer(200, self.translator.complete(body))
                case "/tokenize":
                    self._answer(200, self.translator.tokenize(body))
                case "/detokenize":
                    self._answer(200, self.translator.detokenize(body))
                case _:
                    self._answer(404, {"error": f"no {self.path}"})
        except (Refused, ValueError, KeyError, TypeError) as error:
            self._answer(400, {"error": f"{error}"})
        except OSError as error:
            self._answer(500, {"error": f"llama.cpp: {error}"})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing of single requests."""

    def _answer(self, status: int, answer: dict[str, Any] | str) -> None:
        content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        kind = "text/plain" if isinstance(answer, str) else "application/json"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def serve(words: Sequence[str]) -> None:
    """Start both servers and serve until the process is ended."""
    from workers.engines.base import free_port

    arguments = parse(words)
    native = start_native(arguments, free_port())
    print(f"gatekeeper: prefix caching is {'on' if arguments.cache_prompt else 'off'}", flush=True)
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler)
    server.daemon_threads = True
    server.translator = Translator(  # type: ignore[attr-defined]  # read by the handler
        native.listening_address,
        alias=arguments.alias,
        slots=arguments.parallel,
        longest=arguments.ctx_size // arguments.parallel or None,
        reuses=arguments.cache_prompt,
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    thread.join()


if __name__ == "__main__":
    serve(sys.argv[1:])
