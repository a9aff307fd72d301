"""Reading a Hugging Face `config.json`: which layers cache what, and what the checkpoint says of its cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gatekeeper.domain.parameters import count_parameters

MOST_LAYERS: Final = 1_000
"""Many times those of any model; what a cache keeps is counted layer by layer."""

WINDOWED: Final = ("sliding_attention", "chunked_attention")
FULL: Final = ("full_attention", "attention")
RECURRENT: Final = ("linear_attention", "mamba", "conv")
"""Layers that keep a state of fixed size in place of a cache."""

WINDOW_EVERY: Final[Mapping[str, int]] = {"gemma2": 2, "cohere2": 4, "gemma3": 6, "gemma3_text": 6}
"""Model types whose older configs leave unsaid that only every n-th layer attends to everything."""


def shape_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a ModelShape (multimodal models: of their `text_config`).

    Raises KeyError, TypeError or ValueError for what is not a decoder's config.
    """
    text = config.get("text_config", config)
    heads, latent = int(text["num_attention_heads"]), int(text.get("kv_lora_rank") or 0)
    return {
        "layers": int(text["num_hidden_layers"]),
        "attention_heads": heads,
        "kv_heads": int(text.get("num_key_value_heads") or heads),
        "head_dim": int(text.get("head_dim") or int(text["hidden_size"]) // heads),
        "latent_dim": latent,
        "rope_dim": int(text.get("qk_rope_head_dim") or 0) if latent else 0,
        "value_dim": 0 if latent else int(text.get("v_head_dim") or 0),
        "max_context": int(text["max_position_embeddings"]),
        "checkpoint_kv_scheme": checkpoint_kv_scheme(config),
        "parameters": count_parameters(text) if text is config else None,
        **_layer_fields(text),
    }


def _layer_fields(text: Mapping[str, Any]) -> dict[str, int]:
    """Which layers have a window, and which no cache of their own.

    Raises ValueError for kinds of layers whose cache is not known here.
    """
    types = _layer_types(text)
    unknown = sorted({kind for kind in types if kind not in (*WINDOWED, *FULL, *RECURRENT)})
    if unknown:
        raise ValueError(f"layer_types {', '.join(unknown)}: their cache is not known")
    shared = int(text.get("num_kv_shared_layers") or 0)  # the last layers read an earlier layer's cache
    own = types[: len(types) - shared]
    windowed = sum(kind in WINDOWED for kind in own)
    window = int(text.get("sliding_window") or text.get("attention_chunk_size") or 0) if windowed else 0
    if windowed and not window:
        raise ValueError("sliding layers without a sliding_window")
    fields = {
        "window_layers": windowed,
        "window": window,
        "uncached_layers": shared + sum(kind in RECURRENT for kind in own),
        "global_head_dim": int(text.get("global_head_dim") or 0),
    }
    # Gemma 4's layers without a window have a number of KV heads of their own only then.
    if text.get("attention_k_eq_v"):
        fields["global_kv_heads"] = int(text.get("num_global_key_value_heads") or 0)
    return fields


def _layer_types(text: Mapping[str, Any]) -> Sequence[str]:
    """The kind of every layer, also where an older config leaves it to the code."""
    layers = int(text["num_hidden_layers"])
    if layers > MOST_LAYERS:
        raise ValueError(f"num_hidden_layers {layers}: at most {MOST_LAYERS:,}")
    types = text.get("layer_types") or text.get("layers_block_type")
    if types is not None:
        if len(types) != layers:
            raise ValueError(f"{len(types)} layer_types for {layers} layers")
        return [str(kind) for kind in types]
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return ["full_attention"] * layers
    every = int(
        text.get("sliding_window_pattern") or WINDOW_EVERY.get(str(text.get("model_type")), layers + 1)
    )
    first = int(text.get("max_window_layers") or 0) if text.get("use_sliding_window") else 0
    return [
        "full_attention" if index < first or (index + 1) % every == 0 else "sliding_attention"
        for index in range(layers)
    ]


def checkpoint_kv_scheme(config: Mapping[str, Any]) -> str | None:
    """What a checkpoint's `quantization_config` says of its KV cache, in words, or None.

    compressed-tensors writes a `kv_cache_scheme`, ModelOpt a `kv_cache_quant_algo` too, some of it one level deeper.
    """
    for section in (config, config.get("text_config")):
        outer = section.get("quantization_config") if isinstance(section, Mapping) else None
        for level in (outer, outer.get("quantization")) if isinstance(outer, Mapping) else ():
            if not isinstance(level, Mapping):
                continue
            scheme = level.get("kv_cache_scheme")
            if isinstance(scheme, Mapping):
                return f"{scheme.get('num_bits', '?')}-bit {scheme.get('type', '?')}"
            named = level.get("kv_cache_quant_algo") or scheme
            if isinstance(named, str) and named.casefold() not in ("none", "auto"):
                return named
    return None
