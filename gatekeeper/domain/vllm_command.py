"""From a `vllm serve` command to the typed configuration. Checked against vLLM 0.32. Pure: strings in, values out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

from gatekeeper.domain.errors import FieldProblem, InvalidInput
from gatekeeper.domain.vllm_flags import FORBIDDEN_ARGUMENTS, SCALAR_FLAGS, SWITCHES

SKIP_LAYERS: Final = "kv-cache-dtype-skip-layers"
"""The one flag that takes several words."""


def words_of(flag: str, following: Sequence[str]) -> Sequence[str]:
    """The value of a flag, of the words up to the next one."""
    return following if flag == SKIP_LAYERS else following[:1]


def parse_serve_command(argv: Sequence[str], *, allowed_arguments: frozenset[str]) -> dict[str, Any]:
    """Translate `vllm serve MODEL …` into the document of a change (to be validated as any other).

    The baseline is the same command without its KV quantization, offload and explicit prefix caching. What the command
    leaves out is vLLM's default in both arms. Raises InvalidInput naming each flag that is unknown or forbidden.
    """
    words = list(argv)
    if words[:2] != ["vllm", "serve"] or len(words) < 3 or words[2].startswith("-"):
        raise InvalidInput(
            [FieldProblem(field="command", problem="not a serve command", allowed="vllm serve MODEL …")]
        )
    candidate: dict[str, Any] = {"reuse": {}, "scheduling": {}, "engine_args": {}}
    problems = []
    for name, value in _flag_pairs(words[3:]):
        problem = _take_flag(candidate, name, value, allowed_arguments)
        if problem:
            problems.append(problem)
    quantization = candidate.get("quantization", {})
    if "skip_layers" in quantization and quantization.get("scheme", "none") == "none":
        what = "skips layers of a cache that is not quantized"
        field = f"command --{SKIP_LAYERS}"
        problems.append(FieldProblem(field=field, problem=what, allowed="with --kv-cache-dtype"))
    if problems:
        raise InvalidInput(problems)
    baseline = {key: candidate[key] for key in ("scheduling", "engine_args")}
    if "prefix_caching" in candidate["reuse"]:
        baseline["reuse"] = {"prefix_caching": False}
    return {"model": words[2], "engine": "vllm", "baseline": baseline, "candidate": candidate}


def _flag_pairs(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield (name with dashes, value or None for a switch)."""
    index = 0
    while index < len(words):
        word = words[index]
        if not word.startswith("--"):
            raise InvalidInput(
                [FieldProblem(field="command", problem=f"unexpected word {word!r}", allowed="--flag")]
            )
        name, equals, value = word[2:].partition("=")
        index += 1
        name = name.replace("_", "-")
        following = list(takewhile(lambda word: not word.startswith("--"), words[index:]))
        if equals:
            yield name, value
        elif following:
            taken = words_of(name, following)
            yield name, " ".join(taken)
            index += len(taken)
        else:
            yield name, None


def _take_flag(
    candidate: dict[str, Any], name: str, value: str | None, allowed_arguments: frozenset[str]
) -> FieldProblem | None:
    """Put one flag into `candidate`, or say why not."""
    field = f"command --{name}"
    switches = {switch: place for place, switch in SWITCHES.items()}
    scalars = {flag[2:]: ("scheduling", key, kind) for key, (flag, kind) in SCALAR_FLAGS.items()}
    scalars["kv-offloading-size"] = ("reuse", "offload_gib", float)
    if name.removeprefix("no-") in switches and value is None:
        axis, key = switches[name.removeprefix("no-")]
        candidate[axis][key] = not name.startswith("no-")
        return None
    if name in scalars and value is not None:
        axis, key, kind = scalars[name]
        try:
            candidate[axis][key] = kind(value)
        except ValueError:
            return FieldProblem(field=field, problem=f"{value!r} is not a number", allowed=kind.__name__)
        return None
    if name == "kv-cache-dtype":
        return _take_cache_dtype(candidate, value)
    if name == SKIP_LAYERS:
        return _take_skipped_layers(candidate, value)
    if name in FORBIDDEN_ARGUMENTS:
        return FieldProblem(field=field, problem="this flag is forbidden", allowed="the operator sets it")
    if name.removeprefix("no-") not in allowed_arguments:
        allowed = sorted({*switches, *scalars, "kv-cache-dtype", SKIP_LAYERS, *allowed_arguments})
        return FieldProblem(field=field, problem="unknown or not allowed", allowed=", ".join(allowed))
    candidate["engine_args"][name.removeprefix("no-")] = (
        value if value is not None else not name.startswith("no-")
    )
    return None


def _take_cache_dtype(candidate: dict[str, Any], value: str | None) -> FieldProblem | None:
    schemes: dict[str, str] = {
        "auto": "none",
        "bfloat16": "none",
        "float16": "none",
        "fp8": "fp8_e4m3",
        "fp8_e4m3": "fp8_e4m3",
        "fp8_e5m2": "fp8_e5m2",
        "int8_per_token_head": "int8",
        "int4_per_token_head": "int4",
        "nvfp4": "nvfp4",
        "turboquant_k8v4": "turboquant_k8v4",
        "turboquant_4bit_nc": "turboquant_4bit_nc",
        "turboquant_k3v4_nc": "turboquant_k3v4_nc",
        "turboquant_3bit_nc": "turboquant_3bit_nc",
    }
    if value not in schemes:
        return FieldProblem(
            field="command --kv-cache-dtype", problem=f"unknown {value!r}", allowed=", ".join(schemes)
        )
    candidate.setdefault("quantization", {})["scheme"] = schemes[value]
    return None


def _take_skipped_layers(candidate: dict[str, Any], value: str | None) -> FieldProblem | None:
    """Numbers of layers; names of attention types, which vLLM takes too, are no field here."""
    layers = (value or "").split()
    if not layers or not all(layer.isdecimal() for layer in layers):
        return FieldProblem(
            field=f"command --{SKIP_LAYERS}", problem=f"got {value!r}", allowed="numbers of layers from 0"
        )
    candidate.setdefault("quantization", {})["skip_layers"] = [int(layer) for layer in layers]
    return None
