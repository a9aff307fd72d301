"""Where two arms that scored the same tokens part: the first place at which their greedy choices differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gatekeeper.domain.fidelity import TracesDiffer, compare_traces
from gatekeeper.domain.measurement import Mode, TokenTrace


@dataclass(frozen=True, kw_only=True, slots=True)
class Parting:
    """One document in one mode. Places count from 0; `first` None: the greedy choices agree everywhere.

    `context_tokens`: how many tokens came before the first scored one; None: not stored.
    `worst`: the place with the largest KL. Means are over all scored tokens, KL in nats per token.
    """

    suite: str
    mode: Mode
    item_id: str
    context_tokens: int | None
    tokens: int
    first: int | None
    differing: int
    worst: int
    worst_kl: float
    mean_kl: float


def part_of(baseline: TokenTrace | None, candidate: TokenTrace) -> Parting | None:
    """Compare two traces; None where they did not score the same tokens, or a value is not finite."""
    if baseline is None or not candidate.token_ids:
        return None
    try:
        deltas = compare_traces(baseline, candidate)
    except TracesDiffer:
        return None
    if not np.isfinite(deltas.kl).all():
        return None
    differing = np.flatnonzero(deltas.agreement == 0)
    worst = int(deltas.kl.argmax())
    return Parting(
        suite=candidate.suite,
        mode=candidate.mode,
        item_id=candidate.item_id,
        context_tokens=candidate.context_tokens,
        tokens=deltas.kl.size,
        first=int(differing[0]) if differing.size else None,
        differing=int(differing.size),
        worst=worst,
        worst_kl=float(deltas.kl[worst]),
        mean_kl=float(deltas.kl.mean()),
    )
