"""A model with the attention of this engine."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM

from workers.engines.reference.attention_trial import check_attention
from workers.engines.reference.layers import ATTENTION


def load_model(source: str, *, revision: str | None = None, dtype: torch.dtype, device: str) -> Any:
    """From a directory or a hub. Raises ValueError for models whose attention this engine does not compute."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            source, revision=revision, dtype=dtype, attn_implementation=ATTENTION
        )
    except KeyError as error:
        raise ValueError(
            f"the model of {source} can't be loaded with the attention of this engine: {error}"
        ) from error
    kinds = set(getattr(model.config, "layer_types", None) or ())
    if kinds - {"full_attention"} or getattr(model.config, "kv_lora_rank", None):
        raise ValueError(f"the reference engine computes full attention only, the model has {sorted(kinds)}")
    model.eval().to(device)
    check_attention(model)
    return model
