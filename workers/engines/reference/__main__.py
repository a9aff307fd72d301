"""The engine as a program: `python -m workers.engines.reference --model DIR --port P --quantization JSON ...`."""

from __future__ import annotations

import argparse
import json

import torch
import uvicorn
from transformers import AutoTokenizer

from gatekeeper.domain.kv_config import Kivi, KVConfig, KvQuant
from gatekeeper.settings import Settings
from workers.engines.reference.calibrated import load_layers
from workers.engines.reference.loading import load_model
from workers.engines.reference.meter import Meter, measure_cache, tell
from workers.engines.reference.prefix_cache import PrefixCache
from workers.engines.reference.runner import Runner
from workers.engines.reference.scheduler import Scheduler
from workers.engines.reference.server import Service, create_app


def parse() -> argparse.Namespace:
    """The command line; configurations are JSON, as a change states them."""
    parser = argparse.ArgumentParser(prog="reference engine", description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--revision")
    parser.add_argument("--served-model-name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--max-model-len", type=int, required=True)
    parser.add_argument("--max-num-batched-tokens", type=int)
    parser.add_argument("--enable-prefix-caching", action="store_true")
    parser.add_argument("--rows", type=int, default=16, help="sequences that decode together")
    parser.add_argument("--quantization", type=json.loads, default={"scheme": "none"})
    parser.add_argument("--eviction", type=json.loads, default={"policy": "none"})
    return parser.parse_args()


def main() -> None:
    """Load, measure the cache, serve."""
    options = parse()
    config = KVConfig.model_validate(
        {
            "quantization": options.quantization,
            "eviction": options.eviction,
            "reuse": {"prefix_caching": options.enable_prefix_caching},
        }
    )
    model = load_model(
        options.model, revision=options.revision, dtype=getattr(torch, options.dtype), device=options.device
    )
    tokenizer = AutoTokenizer.from_pretrained(options.model, revision=options.revision)
    name, piece = options.served_model_name or options.model, options.max_num_batched_tokens
    scheme = config.quantization
    nuq = load_layers(Settings().root, scheme, model, name=name) if isinstance(scheme, KvQuant) else ()
    runner = Runner(model=model, config=config, piece=piece, rows=options.rows, nuq=nuq)
    step = scheme.residual_length or 1 if isinstance(scheme, Kivi) else 1
    vocabulary = model.config.vocab_size
    measured = measure_cache(runner, longest=options.max_model_len, vocabulary=vocabulary, step=step)
    tell(measured, config, max_model_len=options.max_model_len, compute=options.dtype, piece=piece)
    prefixes = PrefixCache(config) if options.enable_prefix_caching else None
    meter = Meter(config=config, measured=measured, block_size=1 if prefixes is None else prefixes.block_size)
    ends = model.generation_config.eos_token_id
    service = Service(
        name=name, max_model_len=options.max_model_len, tokenizer=tokenizer,
        eos_ids=frozenset(ends if isinstance(ends, list) else [ends] if ends is not None else []),
        vocabulary=vocabulary, scheduler=Scheduler(runner, meter, prefixes), meter=meter,
    )  # fmt: skip
    uvicorn.run(create_app(service), host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
