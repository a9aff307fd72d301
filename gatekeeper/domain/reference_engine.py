"""The reference engine: what it implements of a KV configuration, its flags, and what on it proves nothing.

It runs methods that no serving engine has, on Hugging Face transformers, one token after the other in plain torch. It
answers whether a model survives a method, never how fast that is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from gatekeeper.domain.errors import FieldProblem
from gatekeeper.domain.eviction import policies_at, single_policies
from gatekeeper.domain.kv_config import (
    Fp8,
    Int4,
    Kivi,
    KVConfig,
    KvQuant,
    Nf4,
)
from gatekeeper.domain.kv_memory import ModelShape

SCHEMES: Final = ("none", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "nf4", "kivi", "kvquant")
POLICIES: Final[tuple[str, ...]] = (
    "none", "sliding_window", "streaming_llm", "h2o", "snapkv", "pyramidkv", "tova", "expected_attention", "knorm",
    "keydiff", "topk",
)  # fmt: skip
KEYS_SHARE: Final = "KIVI's keys share scales in groups of tokens, from which none can leave alone"
FREES_NOTHING: Final[tuple[str, ...]] = ("none", "topk")
"""Single policies that go with KIVI: tokens whose keys share scales can't leave one by one."""

HEADS_SHARE: Final = (
    "KVQuant's tokens share scales and outliers over all heads, so one can't stay in some of them only"
)
ALIKE_IN_ALL_HEADS: Final[tuple[str, ...]] = ("none", "topk", "sliding_window", "streaming_llm", "tova")
"""Single policies that go with KVQuant, whose tokens have one scale and one list of outliers for all heads."""

REUSABLE: Final = (
    "none", "sliding_window", "streaming_llm", "snapkv", "pyramidkv", "tova", "knorm", "keydiff", "topk",
)  # fmt: skip
"""Policies that go with prefix caching: of the prompt's queries they look at the last ones only, which are computed."""

BLOCK_TOKENS: Final = 64
"""Tokens that prefix caching keeps and computes at once, but for KIVI. Fewer take longer; it divides suites' 128."""

SCHEDULING: Final = ("max_model_len", "max_num_batched_tokens")
DTYPES: Final = ("float32", "bfloat16", "float16")
KVQUANT_DTYPES: Final = ("float32", "bfloat16")
"""A calibration knows its model by weights rounded to bfloat16, which are others once they have been float16."""

LEAVES_OUT: Final = {
    "performance": "reference engine: its speed is not comparable with a serving engine's",
    "saturated": "reference engine: it has no pool of blocks that could be saturated",
}
"""Suite or mode -> why nothing measured there on this engine would speak of the change."""


def unsupported(config: KVConfig, *, arm: str, shape: ModelShape | None) -> list[FieldProblem]:
    """Return what the reference engine cannot do of `config`; field paths start with `arm`."""
    return [
        *_quantization(config, arm, shape),
        *_eviction(config, arm),
        *_reuse(config, arm),
        *_rest(config, arm),
    ]


def _quantization(config: KVConfig, arm: str, shape: ModelShape | None) -> Iterator[FieldProblem]:
    quantization, field = config.quantization, f"{arm}.quantization"
    if quantization.scheme not in SCHEMES:
        problem = f"the reference engine has no KV cache for {quantization.scheme}"
        yield FieldProblem(field=f"{field}.scheme", problem=problem, allowed=", ".join(SCHEMES))
    if isinstance(quantization, Fp8) and quantization.scales != "unit":
        problem = "the reference engine has no scales for FP8"
        yield FieldProblem(field=f"{field}.scales", problem=problem, allowed="unit")
    match quantization:
        case Int4(group_size=int(size)):
            name = "group_size"
        case Nf4(block_size=size):
            name = "block_size"
        case Kivi(group_size=size):
            name = "group_size"
            if quantization.residual_length % size:
                problem = f"not a multiple of group_size {size}"
                yield FieldProblem(
                    field=f"{field}.residual_length", problem=problem, allowed=f"0, {size}, {2 * size} …"
                )
        case _:
            return
    if shape is not None and shape.head_dim % size:
        problem = f"{size} does not divide the model's head_dim"
        allowed = f"a divisor of {shape.head_dim}"
        yield FieldProblem(field=f"{field}.{name}", problem=problem, allowed=allowed)


def _eviction(config: KVConfig, arm: str) -> Iterator[FieldProblem]:
    match config.quantization:
        case Kivi():
            allowed, problem = FREES_NOTHING, KEYS_SHARE
        case KvQuant():
            allowed, problem = ALIKE_IN_ALL_HEADS, HEADS_SHARE
        case _:
            allowed, problem = POLICIES, "the reference engine does not implement it"
    for place, part in single_policies(config.eviction):
        if part.policy not in allowed:
            known = [name for name in allowed if name in policies_at(place)]
            where = place if known else ""
            yield FieldProblem(
                field=f"{arm}.eviction{where}.policy", problem=problem, allowed=", ".join(known or allowed)
            )


def _reuse(config: KVConfig, arm: str) -> Iterator[FieldProblem]:
    """What a prompt that starts from another's keys and values could not do as if it had been read whole."""
    if not config.reuse.prefix_caching:
        return
    for place, part in single_policies(config.eviction):
        if part.policy in POLICIES and part.policy not in REUSABLE:
            known = ", ".join(name for name in REUSABLE if name in policies_at(place))
            problem = f"{part.policy} looks at all of a prompt's queries; a reused prefix has none"
            allowed = f"absent or false; true with eviction{place}.policy {known}"
            yield FieldProblem(field=f"{arm}.reuse.prefix_caching", problem=problem, allowed=allowed)
    yield from _pieces_of_reused(config, arm)


def _pieces_of_reused(config: KVConfig, arm: str) -> Iterator[FieldProblem]:
    """Where prefixes are reused, prompts are computed block by block, so larger pieces would be there in name only."""
    piece, field = config.scheduling.max_num_batched_tokens, f"{arm}.scheduling.max_num_batched_tokens"
    if piece is None:
        return
    if isinstance(config.quantization, Kivi):
        problem = (
            "which of KIVI's tokens a piece of a prompt meets in 16 bits depends on where pieces end, and after a "
            "reused prefix they end elsewhere"
        )
        yield FieldProblem(field=field, problem=problem, allowed="absent with prefix_caching: true")
    elif piece > BLOCK_TOKENS:
        problem = (
            f"with prefix_caching prompts are computed in blocks of {BLOCK_TOKENS}, so never in larger pieces"
        )
        allowed = f"absent, or 1 to {BLOCK_TOKENS}, with prefix_caching: true"
        yield FieldProblem(field=field, problem=problem, allowed=allowed)


def _rest(config: KVConfig, arm: str) -> Iterator[FieldProblem]:
    """Fields that would have no effect."""
    if config.reuse.offload_gib is not None:
        problem = "the reference engine has no memory to offload to"
        yield FieldProblem(field=f"{arm}.reuse.offload_gib", problem=problem, allowed="absent")
    for name in config.scheduling.model_dump(exclude_none=True):
        if name not in SCHEDULING:
            problem = "without effect on the reference engine"
            yield FieldProblem(
                field=f"{arm}.scheduling.{name}", problem=problem, allowed=", ".join(SCHEDULING)
            )
    yield from _arguments(config, arm)


def _arguments(config: KVConfig, arm: str) -> Iterator[FieldProblem]:
    is_calibrated = isinstance(config.quantization, KvQuant)
    for name, value in config.engine_args.items():
        field = f"{arm}.engine_args.{name}"
        if name != "dtype" or value not in DTYPES:
            problem = "the reference engine has no such argument"
            yield FieldProblem(field=field, problem=problem, allowed=f"dtype: {', '.join(DTYPES)}")
        elif is_calibrated and value not in KVQUANT_DTYPES:
            problem = f"the engine can't tell in {value} whether a calibration is of these weights"
            yield FieldProblem(field=field, problem=problem, allowed=", ".join(KVQUANT_DTYPES))


def serve_flags(config: KVConfig, *, max_model_len: int) -> tuple[str, ...]:
    """Return the flags of the engine that put `config` into effect, in a fixed order."""
    flags = ["--max-model-len", str(max_model_len)]
    for axis, part in (("--quantization", config.quantization), ("--eviction", config.eviction)):
        flags += [axis, json.dumps(part.model_dump(mode="json", exclude_none=True), separators=(",", ":"))]
    if config.scheduling.max_num_batched_tokens is not None:
        flags += ["--max-num-batched-tokens", str(config.scheduling.max_num_batched_tokens)]
    if config.reuse.prefix_caching:
        flags.append("--enable-prefix-caching")
    if "dtype" in config.engine_args:
        flags += ["--dtype", str(config.engine_args["dtype"])]
    return tuple(flags)
