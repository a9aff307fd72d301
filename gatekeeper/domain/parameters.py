"""The number of a model's parameters, from its Hugging Face `config.json`.

Sum of the matrices of the decoder: embedding, output head unless tied, and per layer attention, feed-forward and norms.
Only architectures whose layers are known here are counted; docs/memory.md names the models it was compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """What tells the known decoders apart. `experts_key` and `expert_width_key`: where a config says them."""

    qkv_bias: bool = False
    qk_norm: bool = False
    experts_key: str | None = None
    expert_width_key: str = "intermediate_size"


ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "llama": Architecture(),
    "mistral": Architecture(),
    "qwen2": Architecture(qkv_bias=True),
    "qwen3": Architecture(qk_norm=True),
    "mixtral": Architecture(experts_key="num_local_experts"),
    "qwen3_moe": Architecture(
        qk_norm=True, experts_key="num_experts", expert_width_key="moe_intermediate_size"
    ),
}
"""By `model_type`."""


def count_parameters(config: Mapping[str, Any]) -> int | None:
    """All parameters, or None for an architecture that is not known here. Raises KeyError where a size is missing."""
    architecture = ARCHITECTURES.get(str(config.get("model_type")))
    if architecture is None or config.get("attention_bias") or config.get("mlp_bias"):
        return None
    hidden, layers = int(config["hidden_size"]), int(config["num_hidden_layers"])
    embedding = int(config["vocab_size"]) * hidden
    per_layer = _attention(architecture, config, hidden) + _feed_forward(architecture, config, hidden)
    tied = bool(config.get("tie_word_embeddings", False))
    return embedding * (1 if tied else 2) + layers * (per_layer + 2 * hidden) + hidden


def _attention(architecture: Architecture, config: Mapping[str, Any], hidden: int) -> int:
    heads = int(config["num_attention_heads"])
    head_dim = int(config.get("head_dim") or hidden // heads)
    queries = heads * head_dim
    keys = int(config.get("num_key_value_heads") or heads) * head_dim
    bias = queries + 2 * keys if architecture.qkv_bias else 0
    norms = 2 * head_dim if architecture.qk_norm else 0
    return 2 * hidden * queries + 2 * hidden * keys + bias + norms


def _feed_forward(architecture: Architecture, config: Mapping[str, Any], hidden: int) -> int:
    """Gate, up and down; of every expert, and then the router too."""
    one = 3 * hidden * int(config[architecture.expert_width_key])
    if architecture.experts_key is None:
        return one
    experts = int(config[architecture.experts_key])
    return experts * one + experts * hidden
