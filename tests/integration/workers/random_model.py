"""A small random model for the reference engine, and plans that gate it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.decoders import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gatekeeper.domain.change import Change
from gatekeeper.domain.kv_memory import ModelShape
from gatekeeper.domain.plan import Model, Plan, make_plan
from gatekeeper.domain.policy import Policy
from gatekeeper.domain.suite import Suite
from workers.suites.documents import bundled_texts

VOCABULARY = 320
SUITE: Mapping[str, Any] = {
    "name": "tiny",
    "description": "every way in which suites ask an engine",
    "probes": [
        {
            "probe": "modes", "modes": ["first_batch", "boundary", "greedy", "prefill"], "documents": 9,
            "context_tokens": 130, "decode_tokens": 4, "top_k": 5,
        },
        {"probe": "capacity"},
        {"probe": "fidelity", "documents": 8, "context_tokens": 96, "decode_tokens": 8, "top_k": 20},
        {"probe": "performance", "prompts": 4, "input_tokens": 16, "output_tokens": 4, "rounds": 2, "seed": 1},
    ],
}  # fmt: skip
POLICY: Mapping[str, Any] = {
    "name": "p",
    "rules": [
        {"metric": "decode_kl", "at_most": 0.05, "reason": "r"},
        {"metric": "throughput_ratio", "at_least": 0.9, "reason": "r"},
    ],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A random Llama with a tokenizer of its own and a chat template, as a directory."""
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=512, initializer_range=0.3,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    pieces.train_from_iterator([text for _, text in bundled_texts(2)], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=pieces, bos_token="<s>", eos_token="</s>")
    fast.chat_template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
    fast.save_pretrained(folder)
    shape = ModelShape.from_hf_config(json.loads((folder / "config.json").read_text()))
    return Model(name="m", source=str(folder), shape=shape)


def plan_of(model: Model, candidate: Mapping[str, Any], **change: Any) -> Plan:
    document = {"model": "m", "candidate": dict(candidate), "suite": "tiny", "policy": "p", **change}
    return make_plan(
        Change.model_validate(document), model=model, suite=Suite.model_validate(SUITE),
        policy=Policy.model_validate(POLICY), device="cpu", allowed_arguments=frozenset(),
    )  # fmt: skip
