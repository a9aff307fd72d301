"""Which tokens of a prompt later queries can be expected to attend to (Devoto et al. 2025, Expected Attention)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch

from workers.engines.reference.policies import Prompt
from workers.engines.reference.rotary import Rotary

SINKS: Final = 4
"""The first tokens stay, and no statistic has their queries, which are unlike all others (as in NVIDIA's kvpress)."""


@dataclass(frozen=True, kw_only=True)
class ExpectedAttention:
    """Queries before rotation are taken as Gaussian, and as rotated by the mean over the next `future_tokens` places.

    With mean m and covariance C of a query head, E[exp(q.k / sqrt d)] = exp(m.k / sqrt d + k.C k / 2d), the moment
    generating function; over all tokens that is made to add up to 1, then averaged over the query heads of a KV head,
    and times the norm of the token's value it is what the token is expected to add to the output.
    """

    rotary: Rotary
    future_tokens: int

    def __call__(self, prompt: Prompt) -> torch.Tensor:
        """The score of each token; `prompt.queries` are those of the whole prompt."""
        heads, held = prompt.keys.shape[:2]
        if held <= SINKS:
            return torch.full((heads, held), math.inf, device=prompt.keys.device)
        mean, covariance = self._statistics(prompt)
        keys = prompt.keys[:, None, SINKS:].float()
        linear = (keys @ mean[..., None]).squeeze(-1) * prompt.scaling
        quadratic = ((keys @ covariance) * keys).sum(-1) * prompt.scaling**2 / 2
        expected = (linear + quadratic).softmax(-1).mean(1) * prompt.values[:, SINKS:].float().norm(dim=-1)
        return torch.nn.functional.pad(expected, (SINKS, 0), value=math.inf)

    def _statistics(self, prompt: Prompt) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean, [KV heads, heads of each, channels], and covariance of the queries to come."""
        heads, held = prompt.keys.shape[:2]
        places = torch.arange(held + self.future_tokens, device=prompt.keys.device)
        seen = self.rotary.undo(prompt.queries.float(), places[:held])[:, SINKS:].unflatten(0, (heads, -1))
        mean = seen.mean(-2)
        centred = seen - mean.unsqueeze(-2)
        covariance = centred.transpose(-1, -2) @ centred / centred.shape[-2]
        turn = self.rotary.mean_matrix(places[held:], like=seen)
        return mean @ turn.T, turn @ covariance @ turn.T
