"""What every KV method costs a model, on the reference engine: likelihood, divergence, passkeys, bytes, time.

`python benchmarks/methods.py MODEL STORE [METHOD ...]` measures the methods named, or all, against the 16-bit full
cache, and keeps each result as STORE/<method>.json; what is there is not measured again.
A result has the figures of the table, and every item by itself, of which `method_verdicts` makes a verdict.
`python benchmarks/methods.py MODEL STORE --table` prints the table of docs/methods.md from what is there.

Texts: bundled ones, `CONTEXT` tokens of prompt and `DECODED` forced tokens each, so prompt-compressing methods have
compressed before the first token is scored. Passkeys: a five-digit number somewhere in filler of about `CONTEXT`
tokens; the question comes after the prompt has been compressed, and counts as answered if every token of the number is
the most probable one. METHODS_CONTEXT and METHODS_DECODED in the environment change both lengths, for another STORE.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

import torch
from method_verdicts import Items, cell, judged, plan_of, suite_of, unanswered
from pydantic import TypeAdapter
from transformers import AutoTokenizer

from gatekeeper.calibrations import list_calibrations
from gatekeeper.domain.calibration import calibrated
from gatekeeper.domain.errors import InvalidInput
from gatekeeper.domain.kv_config import KVConfig, KvQuant
from gatekeeper.domain.kv_memory import ModelShape, kv_bytes_per_token
from gatekeeper.domain.measurement import Measurement, TokenTrace
from gatekeeper.domain.plan import Model
from gatekeeper.settings import Settings
from workers.engines.reference.calibrated import load_layers
from workers.engines.reference.layers import SequenceLayer
from workers.engines.reference.loading import load_model
from workers.engines.reference.policies import Selector
from workers.engines.reference.runner import Context, Runner
from workers.suites.documents import bundled_texts

CONTEXT: Final = int(os.environ.get("METHODS_CONTEXT", "512"))
DECODED: Final = int(os.environ.get("METHODS_DECODED", "64"))
TEXTS: Final = 8
PASSKEYS: Final = 10
FULL: Final = "full cache"
RANDOM: Final = "random 0.5"
"""A control, which nobody can ask of the product: the budget of another policy, tokens drawn by lot for each head."""
LONGEST_PASSKEY: Final = CONTEXT + 64
"""Prompt, question and answer have no more tokens."""
TOP_K: Final = 20
"""Most probable tokens that are kept of each place, as suites do."""
DIGITS: Final = 5
"""Decimals that are kept of log-probabilities."""
SUITE: Final = suite_of(
    texts=TEXTS, context=CONTEXT, decoded=DECODED, passkeys=PASSKEYS, longest=LONGEST_PASSKEY
)
_ITEMS: Final = TypeAdapter(Items)


def half(policy: str, share: float = 0.5, **more: object) -> dict[str, Any]:
    """An eviction policy with a share of the prompt evicted."""
    return {"eviction": {"policy": policy, "evicted_fraction": share, **more}}


def scheme(name: str, **parameters: object) -> dict[str, Any]:
    """A quantization scheme."""
    return {"quantization": {"scheme": name, **parameters}}


def then_window(sinks: int, window: int) -> dict[str, Any]:
    """Half of the prompt by H2O, and while decoding the first and the last of what is held."""
    bound = {"policy": "streaming_llm", "sinks": sinks, "window": window}
    return {"eviction": {"policy": "composed", "prompt": half("h2o")["eviction"], "decode": bound}}


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
    "PyramidKV 0.5": half("pyramidkv"),
    "TOVA 0.5": half("tova"),
    "expected attention 0.5": half("expected_attention"),
    "KeyDiff 0.5": half("keydiff"),
    "Knorm 0.5": half("knorm"),
    RANDOM: half("knorm"),
    "top-k 128": {"eviction": {"policy": "topk", "k": 128}},
    "top-k 32": {"eviction": {"policy": "topk", "k": 32}},
    "INT8 + SnapKV 0.5": {**scheme("int8"), **half("snapkv")},
    "FP8 e4m3 + H2O 0.5": {**scheme("fp8_e4m3"), **half("h2o")},
    "FP8 e4m3 + H2O 0.5, then 4+252": {**scheme("fp8_e4m3"), **then_window(4, 252)},
    "FP8 e4m3 + H2O 0.5, then 256+16": {**scheme("fp8_e4m3"), **then_window(256, 16)},
}


class ByLot(Runner):
    """Which tokens of a prompt stay is drawn by lot; how many, its policy says."""

    def new_layers(self) -> list[SequenceLayer]:
        """The same draw for every prompt of a length."""
        drawn = torch.Generator().manual_seed(1)
        layers = super().new_layers()
        for layer in layers:
            assert isinstance(layer.policy, Selector)
            layer.policy.score = lambda prompt: torch.rand(prompt.keys.shape[:2], generator=drawn)
        return layers


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


def asked(runner: Runner, keys: Sequence[Passkey]) -> Iterator[Measurement]:
    """Of each passkey whether it is answered with exactly its number, and the mean probability of that one's tokens."""
    contexts = [runner.read_prompt(key.prompt) for key in keys]
    rows = list(forced(runner, contexts, [[*key.question, *key.answer] for key in keys]))
    for number, key in enumerate(keys):
        answered = torch.stack([row[number] for row in rows[len(key.question) :]])
        tokens = torch.tensor(key.answer)
        found = float((answered.argmax(-1) == tokens).all())
        probability = float(answered.exp().gather(-1, tokens[:, None]).mean())
        length = len(key.prompt) + len(key.question) + len(key.answer)
        for metric, value in (("retrieved", found), ("answer_probability", round(probability, DIGITS))):
            yield Measurement.of(
                suite="retrieval", mode="cold", item_id=f"passkey {number}", cluster="needle", metric=metric,
                value=value, context_tokens=length,
            )  # fmt: skip


def trace_of(name: str, tokens: Sequence[int], logprobs: torch.Tensor) -> TokenTrace:
    """A text's forced tokens with the most probable ones at their places; `logprobs`: [tokens, vocabulary]."""
    best = logprobs.topk(TOP_K, dim=-1)
    chosen = logprobs.gather(-1, torch.tensor(tokens)[:, None]).squeeze(-1)
    return TokenTrace(
        suite="fidelity", mode="cold", item_id=name, cluster=name, token_ids=tokens,
        token_logprobs=_rounded(chosen), top_ids=best.indices.tolist(),
        top_logprobs=[_rounded(row) for row in best.values],
    )  # fmt: skip


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(value, DIGITS) for value in values.tolist()]


def measure(
    runner: Runner, tokenizer: Any, baseline: torch.Tensor | None
) -> tuple[dict[str, Any], torch.Tensor]:
    """A method's figures and items, and its log-probabilities, [tokens, texts, vocabulary]."""
    began = time.monotonic()
    texts = documents(tokenizer)
    contexts = [runner.read_prompt(text[:CONTEXT]) for text in texts]
    compressed = contexts[0].nbytes / contexts[0].seen_tokens, contexts[0].held_tokens
    decoded = [text[CONTEXT:] for text in texts]
    logprobs = torch.stack(list(forced(runner, contexts, decoded)))
    reference = torch.tensor(decoded).T.unsqueeze(-1)
    base = logprobs if baseline is None else baseline
    figures = {
        "context": CONTEXT,
        "decoded": DECODED,
        "nll": -float(logprobs.gather(-1, reference).mean()),
        "nll_change": float((base - logprobs).gather(-1, reference).mean()),
        "kl": float((base.exp() * (base - logprobs)).sum(-1).mean()),
        "top1": float((base.argmax(-1) == logprobs.argmax(-1)).float().mean()),
        "bytes_per_token": compressed[0],
        "held_tokens": compressed[1],
        "seconds": time.monotonic() - began,
    }
    items = Items(
        traces=tuple(trace_of(f"text {n}", text, logprobs[:, n]) for n, text in enumerate(decoded)),
        measurements=tuple(asked(runner, list(passkeys(tokenizer)))),
    )
    found = sum(row.value == 1 for row in items.measurements if row.metric == "retrieved")
    return figures | {"passkeys": found, "items": _ITEMS.dump_python(items, mode="json")}, logprobs


def measure_all(source: str, store: Path, names: Sequence[str]) -> None:
    """Measure what is not there yet, the full cache first."""
    tokenizer = AutoTokenizer.from_pretrained(source)
    model = load_model(source, dtype=torch.float32, device="cpu")
    kept, baseline = store / "full-cache.pt", None
    for name in dict.fromkeys((FULL, *names)):
        baseline = torch.load(kept) if kept.exists() else None
        path = store / f"{name}.json"
        if path.exists() and "items" in stored(path):
            continue
        figures, logprobs = measure(make_runner(model, name, source), tokenizer, baseline)
        if name == FULL:
            torch.save(logprobs, kept)
        path.write_text(json.dumps(figures), encoding="utf-8")
        print(name, json.dumps({key: value for key, value in figures.items() if key != "items"}), flush=True)


def stored(path: Path) -> dict[str, Any]:
    """A result. Raises ValueError for one of other lengths."""
    figures: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    lengths = (figures.get("context", 512), figures.get("decoded", 64))
    if lengths != (CONTEXT, DECODED):
        raise ValueError(f"{path} was measured with METHODS_CONTEXT and METHODS_DECODED of {lengths}")
    return figures


def make_runner(model: Any, method: str, source: str) -> Runner:
    """A model with a method, by the newest calibration of GATEKEEPER_HOME where it needs one. Raises InvalidInput."""
    root, name = Settings().root, Path(source).name
    config, lacking = calibrated(
        KVConfig.model_validate(METHODS[method]), arm="method", name=name, source=source, revision=None,
        known=list_calibrations(root),
    )  # fmt: skip
    if lacking:
        raise InvalidInput(lacking)
    quantization = config.quantization
    nuq = load_layers(root, quantization, model, name=name) if isinstance(quantization, KvQuant) else ()
    kind = ByLot if method == RANDOM else Runner
    return kind(model=model, config=config, piece=None, rows=PASSKEYS, nuq=nuq)


def table(source: str, store: Path) -> Iterator[str]:
    """The rows of docs/methods.md, and what their verdicts leave open."""
    shape = ModelShape.from_hf_config(json.loads((Path(source) / "config.json").read_text(encoding="utf-8")))
    model = Model(name=Path(source).name, source=source, shape=shape)
    results = {name: stored(path) for name in METHODS if (path := store / f"{name}.json").exists()}
    columns = (
        "NLL change | KL | top-1 | passkeys | bytes per token, computed | measured | held tokens | seconds"
    )
    yield f"| method | verdict | {columns} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, seen in results.items():
        computed = kv_bytes_per_token(shape, KVConfig.model_validate(METHODS[name]).quantization)
        yield (
            f"| {name} | {verdict(name, results, model)} | {seen['nll_change']:+.3f} | {seen['kl']:.4f} |"
            f" {seen['top1']:.3f} | {seen['passkeys']} of {PASSKEYS} | {computed:,.0f} |"
            f" {seen['bytes_per_token']:,.0f} | {seen['held_tokens']:,.0f} | {seen['seconds']:.0f} |"
        )
    rules = ", ".join(rule.metric for rule in unanswered(SUITE))
    yield f"\nRules of the default policy that these items can't answer: {rules}."


def verdict(name: str, results: Mapping[str, Mapping[str, Any]], model: Model) -> str:
    """What the judge says of a method; a dash for the baseline itself, and for a result without items."""
    if name == FULL or "items" not in results[name] or "items" not in results.get(FULL, {}):
        return "–"
    baseline, candidate = (_ITEMS.validate_python(results[each]["items"]) for each in (FULL, name))
    plan = plan_of(METHODS[name], model, SUITE, calibrations=list_calibrations(Settings().root))
    return cell(judged(plan, baseline, candidate))


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
