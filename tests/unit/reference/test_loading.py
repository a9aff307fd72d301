"""A model is loaded only if this engine's attention is the model's own."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    BloomConfig,
    FalconConfig,
    GPT2Config,
    PreTrainedConfig,
    Qwen2Config,
    StableLmConfig,
)
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from tests.unit.reference.tiny import model
from workers.engines.reference.attention_trial import check_attention
from workers.engines.reference.layers import BatchLayer
from workers.engines.reference.loading import load_model

SMALL = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
NO_SPECIAL = {"bos_token_id": 0, "eos_token_id": 0}


def stored(config: PreTrainedConfig, folder: Path) -> str:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("config", [Qwen2Config(**SMALL), GPT2Config(**SMALL, **NO_SPECIAL)])
def test_models_whose_attention_is_ours_are_loaded(config: PreTrainedConfig, tmp_path: Path) -> None:
    source = stored(config, tmp_path)
    assert load_model(source, dtype=torch.float32, device="cpu").config.model_type == config.model_type


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (StableLmConfig(**SMALL), "the attention of StableLmForCausalLM: TypeError"),
        (BloomConfig(**SMALL), "the attention of BloomForCausalLM: RuntimeError"),
        (FalconConfig(**SMALL), "can't be loaded with the attention of this engine"),
    ],
)
def test_models_that_go_about_attention_their_own_way_are_refused(
    config: PreTrainedConfig, reason: str, tmp_path: Path
) -> None:
    source = stored(config, tmp_path)
    with pytest.raises(ValueError, match=reason):
        load_model(source, dtype=torch.float32, device="cpu")


def test_attention_that_comes_to_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def sharper(self: Any, query: torch.Tensor, scaling: float) -> torch.Tensor:
        return attend(self, query, scaling * 3)

    attend = BatchLayer.attend
    check_attention(model())
    monkeypatch.setattr(BatchLayer, "attend", sharper)
    with pytest.raises(ValueError, match=r"the attention of LlamaForCausalLM: .* a KL of \d"):
        check_attention(model())
