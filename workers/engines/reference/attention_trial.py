"""Which models' attention this engine computes: tried on the model, against its own, before any request."""

from __future__ import annotations

from typing import Any, Final

import torch

from gatekeeper.domain.kv_config import KVConfig
from workers.engines.reference.layers import ATTENTION
from workers.engines.reference.runner import Runner

TRIED_TOKENS: Final = 12
"""Half of them are a prompt, half are decoded."""
TOLERANCE: Final = 0.05
"""KL in nats between the next-token distributions. Thirty layers differ by 0.00006 in 32 bits, by 0.002 in bfloat16."""


def check_attention(model: Any) -> None:
    """Raises ValueError where a model with our attention fails, or thinks otherwise than with its own."""
    why = _why_not(model)
    if why is not None:
        raise ValueError(
            f"the reference engine does not compute the attention of {type(model).__name__}: {why}"
        )


def _why_not(model: Any) -> str | None:
    """Tokens spread over the vocabulary, without its ends, where the special ones are."""
    size = model.config.get_text_config().vocab_size
    tokens = [size * (place + 1) // (TRIED_TOKENS + 2) for place in range(TRIED_TOKENS)]
    try:
        expected = _of_its_own(model, tokens)
        found = _of_this_engine(model, tokens)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - what a model makes of attention that it does not know is up to it
        return f"{type(error).__name__}: {error}"
    kl = float((expected.exp() * (expected - found)).sum())
    return None if kl < TOLERANCE else f"its next token has a KL of {kl:.3f} from that of its own attention"


@torch.inference_mode()
def _of_its_own(model: Any, tokens: list[int]) -> torch.Tensor:
    """Log-probabilities after the tokens, [vocabulary]."""
    model.set_attn_implementation("eager")
    logits = model(input_ids=torch.tensor([tokens], device=model.device), use_cache=False).logits
    model.set_attn_implementation(ATTENTION)
    return torch.as_tensor(logits[0, -1]).float().log_softmax(-1).cpu()


def _of_this_engine(model: Any, tokens: list[int]) -> torch.Tensor:
    """The same with the full 16-bit cache, [vocabulary]."""
    runner = Runner(model=model, config=KVConfig(), piece=None, rows=1)
    context = runner.read_prompt(tokens[: TRIED_TOKENS // 2])
    for token in tokens[TRIED_TOKENS // 2 :]:
        runner.advance([context], [token])
    return context.next_logprobs.cpu()
