"""What every KV method costs a model, on the reference engine: likelihood, divergence, passkeys, bytes, time.

`python benchmarks/methods.py MODEL STORE [METHOD ...]` measures the methods named, or all, against the 16-bit full
cache, and keeps each result as STORE/<method>.json; what is there is not measured again.
`python benchmarks/methods.py MODEL STORE --table` prints the table of docs/methods.md from what is there.

Texts: bundled ones, `CONTEXT` tokens of prompt and `DECODED` forced tokens each, so prompt-compressing methods have
compressed before the first token is scored. Passkeys: a five-digit number somewhere in filler of about `CONTEXT`
tokens; the question comes after the prompt has been compressed, and counts as answered if every token of the number is
the most probable one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from gatekeeper.calibrations import list_calibrations
from gatekeeper.domain.calibration import calibrated
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_config import KVConfig, KvQuant
from gatekeeper.domain.kv_memory import ModelShape, kv_bytes_per_token
from gatekeeper.settings import Settings
from workers.engines.reference.calibrated import load_layers
from workers.engines.reference.layers import ATTENTION
from workers.engines.reference.runner import Context, Runner
from workers.suites.documents import bundled_texts

CONTEXT: Final = 512
DECODED: Final = 64
TEXTS: Final = 8
PASSKEYS: Final = 10
FULL: Final = "full cache"


def half(policy: str, share: float = 0.5, **more: object) -> dict[str, Any]:
    """An eviction policy with a share of the prompt evicted."""
    return {"eviction": {"policy": policy, "evicted_fraction": share, **more}}


def scheme(name: str, **parameters: object) -> dict[str, Any]:
    """A quantization scheme."""
    return {"quantization": {"scheme": name, **parameters}}


METHODS: Final[Mapping[str, Mapping[str, Any]]] = {
    FULL: {},
    "FP8 e4m3": scheme("fp8_e4m3"),
    "FP8 e5m2": scheme("fp8_e5m2"),
    "INT8": scheme("int8"),
    "INT4 g64": scheme("int4", group_size=64),
    "NF4 b64": scheme("nf4"),
    "KIVI-4": scheme("kivi", bits=4),
    "KIVI-2": scheme("kivi", bits=2),
    "KVQuant nuq4-1%": scheme("kvquant", bits=4),
    "KVQuant nuq3-1%": scheme("kvquant", bits=3),
    "KVQuant nuq2-1%": scheme("kvquant", bits=2),
    "StreamingLLM 4+252": {"eviction": {"policy": "streaming_llm", "sinks": 4, "window": 252}},
    "sliding window 256": {"eviction": {"policy": "sliding_window", "window": 256}},
    "H2O 0.5": half("h2o"),
    "H2O 0.8": half("h2o", 0.8),
    "SnapKV 0.5": half("snapkv"),
    "SnapKV 0.7": half("snapkv", 0.7),
    "TOVA 0.5": half("tova"),
    "KeyDiff 0.5": half("keydiff"),
    "Knorm 0.5": half("knorm"),
    "top-k 128": {"eviction": {"policy": "topk", "k": 128}},
    "top-k 32": {"eviction": {"policy": "topk", "k": 32}},
    "INT8 + SnapKV 0.5": {**scheme("int8"), **half("snapkv")},
    "FP8 e4m3 + H2O 0.5": {**scheme("fp8_e4m3"), **half("h2o")},
}


@dataclass(frozen=True, kw_only=True)
class Passkey:
    """A prompt that hides a number, and the question with its answer as tokens."""

    prompt: Sequence[int]
    question: Sequence[int]
    answer: Sequence[int]


def passkeys(tokenizer: Any) -> Iterator[Passkey]:
    """The same ones every time, their depths spread evenly."""
    filler = tokenizer(
        " The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
    )["input_ids"]
    for number in range(PASSKEYS):
        code = str(Random(f"passkey {number}").randrange(10_000, 100_000))
        needle = tokenizer(f" The pass key is {code}. Remember it. {code} is the pass key.")["input_ids"]
        before = round((CONTEXT - len(needle)) * (number + 0.5) / PASSKEYS)
        after = CONTEXT - len(needle) - before
        text = filler * (CONTEXT // len(filler) + 1)
        yield Passkey(
            prompt=[*text[:before], *needle, *text[:after]],
            question=tokenizer("\nWhat is the pass key? The pass key is")["input_ids"],
            answer=tokenizer(f" {code}")["input_ids"],
        )


def documents(tokenizer: Any) -> list[list[int]]:
    """The first bundled texts that are long enough."""
    texts = (tokenizer(text)["input_ids"] for _, text in bundled_texts())
    return [tokens[: CONTEXT + DECODED] for tokens in texts if len(tokens) >= CONTEXT + DECODED][:TEXTS]


def forced(
    runner: Runner, contexts: Sequence[Context], tokens: Sequence[Sequence[int]]
) -> Iterator[torch.Tensor]:
    """Log-probabilities before each of the forced tokens, [sequences, vocabulary]."""
    for column in zip(*tokens, strict=True):
        yield torch.stack([context.next_logprobs for context in contexts])
        runner.advance(contexts, column)


def found_passkeys(runner: Runner, keys: Sequence[Passkey]) -> int:
    """How many are answered with exactly their number."""
    contexts = [runner.read_prompt(key.prompt) for key in keys]
    rows = list(forced(runner, contexts, [[*key.question, *key.answer] for key in keys]))
    return sum(
        all(
            int(rows[len(key.question) + place][number].argmax()) == token
            for place, token in enumerate(key.answer)
        )
        for number, key in enumerate(keys)
    )


def measure(
    runner: Runner, tokenizer: Any, baseline: torch.Tensor | None
) -> tuple[dict[str, Any], torch.Tensor]:
    """A method's figures, and its log-probabilities, [tokens, texts, vocabulary]."""
    began = time.monotonic()
    texts = documents(tokenizer)
    contexts = [runner.read_prompt(text[:CONTEXT]) for text in texts]
    compressed = contexts[0].nbytes / contexts[0].seen_tokens, contexts[0].held_tokens
    logprobs = torch.stack(list(forced(runner, contexts, [text[CONTEXT:] for text in texts])))
    reference = torch.tensor([text[CONTEXT:] for text in texts]).T.unsqueeze(-1)
    base = logprobs if baseline is None else baseline
    figures = {
        "nll": -float(logprobs.gather(-1, reference).mean()),
        "nll_change": float((base - logprobs).gather(-1, reference).mean()),
        "kl": float((base.exp() * (base - logprobs)).sum(-1).mean()),
        "top1": float((base.argmax(-1) == logprobs.argmax(-1)).float().mean()),
        "bytes_per_token": compressed[0],
        "held_tokens": compressed[1],
        "seconds": time.monotonic() - began,
    }
    return figures | {"passkeys": found_passkeys(runner, list(passkeys(tokenizer)))}, logprobs


def measure_all(source: str, store: Path, names: Sequence[str]) -> None:
    """Measure what is not there yet, the full cache first."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, attn_implementation=ATTENTION
    ).eval()
    kept, baseline = store / "full-cache.pt", None
    for name in dict.fromkeys((FULL, *names)):
        baseline = torch.load(kept) if kept.exists() else None
        path = store / f"{name}.json"
        if path.exists():
            continue
        runner = make_runner(model, KVConfig.model_validate(METHODS[name]), source)
        figures, logprobs = measure(runner, tokenizer, baseline)
        if name == FULL:
            torch.save(logprobs, kept)
        path.write_text(json.dumps(figures), encoding="utf-8")
        print(name, json.dumps(figures), flush=True)


def make_runner(model: Any, config: KVConfig, source: str) -> Runner:
    """A model with a method, by the newest calibration of GATEKEEPER_HOME where it needs one. Raises InvalidInput."""
    root, name = Settings().root, Path(source).name
    known = list_calibrations(root)
    config, lacking = calibrated(config, arm="method", name=name, source=source, revision=None, known=known)
    if lacking:
        raise InvalidInput(lacking)
    runner = Runner(model=model, config=config, piece=None, rows=PASSKEYS)
    if isinstance(config.quantization, KvQuant):
        runner.nuq = load_layers(root, config.quantization, model, name=name, head_dim=runner.head_dim)
    return runner


def table(source: str, store: Path) -> Iterator[str]:
    """The rows of docs/methods.md."""
    shape = ModelShape.from_hf_config(json.loads((Path(source) / "config.json").read_text(encoding="utf-8")))
    columns = (
        "NLL change | KL | top-1 | passkeys | bytes per token, computed | measured | held tokens | seconds"
    )
    yield f"| method | {columns} |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, config in METHODS.items():
        path = store / f"{name}.json"
        if path.exists():
            seen = json.loads(path.read_text(encoding="utf-8"))
            computed = kv_bytes_per_token(shape, KVConfig.model_validate(config).quantization)
            yield (
                f"| {name} | {seen['nll_change']:+.3f} | {seen['kl']:.4f} | {seen['top1']:.3f} | {seen['passkeys']}"
                f" of {PASSKEYS} | {computed:,.0f} | {seen['bytes_per_token']:,.0f} | {seen['held_tokens']:,.0f}"
                f" | {seen['seconds']:.0f} |"
            )


def main() -> None:
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("store", type=Path)
    parser.add_argument("methods", nargs="*", choices=[*METHODS, []], metavar="METHOD")
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    given.store.mkdir(parents=True, exist_ok=True)
    if given.table:
        print("\n".join(table(given.model, given.store)))
    else:
        measure_all(given.model, given.store, given.methods or list(METHODS))


if __name__ == "__main__":
    main()
