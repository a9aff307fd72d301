"""The engine as a program: `python -m workers.engines.reference --model DIR --port P --quantization JSON ...`."""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
import uvicorn
from transformers import AutoModelForCausalLM, AutoTokenizer

from gatekeeper.domain.kv_config import Kivi, KVConfig
from gatekeeper.settings import Settings
from workers.engines.reference.calibrated import load_layers
from workers.engines.reference.layers import ATTENTION
from workers.engines.reference.meter import Meter, measure_cache, tell
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
    parser.add_argument("--rows", type=int, default=16, help="sequences that decode together")
    parser.add_argument("--quantization", type=json.loads, default={"scheme": "none"})
    parser.add_argument("--eviction", type=json.loads, default={"policy": "none"})
    return parser.parse_args()


def load(options: argparse.Namespace) -> Any:
    """The model with our attention. Raises ValueError for models whose attention this engine does not compute."""
    model = AutoModelForCausalLM.from_pretrained(
        options.model,
        revision=options.revision,
        dtype=getattr(torch, options.dtype),
        attn_implementation=ATTENTION,
    ).to(options.device)
    kinds = set(getattr(model.config, "layer_types", None) or ())
    if kinds - {"full_attention"} or getattr(model.config, "kv_lora_rank", None):
        raise ValueError(f"the reference engine computes full attention only, the model has {sorted(kinds)}")
    return model.eval()


def main() -> None:
    """Load, measure the cache, serve."""
    options = parse()
    config = KVConfig.model_validate({"quantization": options.quantization, "eviction": options.eviction})
    model, piece = load(options), options.max_num_batched_tokens
    tokenizer = AutoTokenizer.from_pretrained(options.model, revision=options.revision)
    name = options.served_model_name or options.model
    nuq = load_layers(Settings().root, config.quantization, model, name=name)
    runner = Runner(model=model, config=config, piece=piece, rows=options.rows, nuq=nuq)
    step = config.quantization.residual_length or 1 if isinstance(config.quantization, Kivi) else 1
    vocabulary = model.config.vocab_size
    measured = measure_cache(runner, longest=options.max_model_len, vocabulary=vocabulary, step=step)
    tell(measured, config, max_model_len=options.max_model_len, compute=options.dtype, piece=piece)
    meter = Meter(config=config, measured=measured)
    ends = model.generation_config.eos_token_id
    service = Service(
        name=name, max_model_len=options.max_model_len, tokenizer=tokenizer,
        eos_ids=frozenset(ends if isinstance(ends, list) else [ends] if ends is not None else []),
        vocabulary=vocabulary, scheduler=Scheduler(runner, meter), meter=meter,
    )  # fmt: skip
    uvicorn.run(create_app(service), host=options.host, port=options.port, log_level="warning")


if __name__ == "__main__":
    main()
