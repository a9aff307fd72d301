"""A small random Llama with our attention, and the same weights with transformers' own."""

import functools
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from gatekeeper.domain.kv_config import KVConfig
from gatekeeper.domain.kv_memory import ModelShape
from workers.engines.reference.layers import ATTENTION
from workers.engines.reference.runner import Runner

LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 2, 4, 2, 32, 97
SHAPE = ModelShape(
    layers=LAYERS, attention_heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, max_context=512
)


@functools.cache
def model(attention: str = ATTENTION) -> Any:
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HEADS * HEAD_DIM, intermediate_size=64, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=512,
        attn_implementation=attention, initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def runner(config: dict[str, Any] | None = None, *, piece: int | None = None, rows: int = 2) -> Runner:
    return Runner(model=model(), config=KVConfig.model_validate(config or {}), piece=piece, rows=rows)


def tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    drawn: list[int] = torch.randint(VOCABULARY, (count,), generator=generator).tolist()
    return drawn


def decoded(run: Runner, text: list[int], *, prompt: int) -> torch.Tensor:
    """Log-probabilities after the prompt and after each further token of a text."""
    context = run.read_prompt(text[:prompt])
    rows = [context.next_logprobs]
    for token in text[prompt:]:
        run.advance([context], [token])
        rows.append(context.next_logprobs)
    return torch.stack(rows)


def masked(text: list[int], visible: torch.Tensor) -> torch.Tensor:
    """The log-probabilities of transformers' own full attention under a mask, [tokens, tokens]."""
    mask = torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)[None, None]
    with torch.no_grad():
        answer = model("eager")(input_ids=torch.tensor([text]), attention_mask=mask)
    logprobs: torch.Tensor = answer.logits[0].log_softmax(-1)
    return logprobs


def rotated(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Channel by channel, as the definition has it: pairs of channels turn by an angle that grows with the place."""
    half = HEAD_DIM // 2
    out = x.clone()
    for channel in range(half):
        angle = positions * 10_000.0 ** (-2 * channel / HEAD_DIM)
        first, second = x[..., channel], x[..., channel + half]
        out[..., channel] = first * angle.cos() - second * angle.sin()
        out[..., channel + half] = second * angle.cos() + first * angle.sin()
    return out
