"""Token-level comparison of two arms that scored the same reference tokens.

KL(baseline || candidate) is computed from each arm's top k with everything else merged into a tail. Merging outcomes
never raises a KL divergence (data-processing inequality; Cover & Thomas 2006, section 2.8), so the figure is a lower
bound of the full-vocabulary KL, and exactly 0 for identical arms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from gatekeeper.domain.measurement import TokenTrace

FloatArray = NDArray[np.float64]
TAIL_FLOOR = 1e-9
"""The least mass of the tail bucket: logprobs come as 32-bit floats, so their sum may exceed 1 by rounding."""


class TracesDiffer(ValueError):
    """The two arms did not score the same tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenDeltas:
    """Per scored token of one item, shape (tokens,): KL in nats, NLL change in nats, top-1 agreement as 0 or 1.

    `rank_shift`: how many tokens the candidate puts before the baseline's most probable one; k if that is not among its
    k most probable ones.
    """

    kl: FloatArray
    nll: FloatArray
    agreement: FloatArray
    rank_shift: FloatArray


def compare_traces(baseline: TokenTrace, candidate: TokenTrace) -> TokenDeltas:
    """Compare two traces of the same item. Raises TracesDiffer; NaN where an arm returned no finite logprob."""
    if tuple(baseline.token_ids) != tuple(candidate.token_ids):
        raise TracesDiffer(f"item {baseline.item_id}: the scored tokens differ")
    places = range(len(baseline.token_ids))
    kl = [
        token_kl(
            dict(zip(baseline.top_ids[i], baseline.top_logprobs[i], strict=True)),
            dict(zip(candidate.top_ids[i], candidate.top_logprobs[i], strict=True)),
        )
        for i in places
    ]
    nll = _numbers(baseline.token_logprobs) - _numbers(candidate.token_logprobs)
    agreement = [float(baseline.top_ids[i][0] == candidate.top_ids[i][0]) for i in places]
    shifts = [float(_place(candidate.top_ids[i], baseline.top_ids[i][0])) for i in places]
    broken = np.isnan(kl)
    return TokenDeltas(
        kl=np.array(kl),
        nll=nll,
        agreement=np.where(broken, np.nan, agreement),
        rank_shift=np.where(broken, np.nan, shifts),
    )


def _place(ids: Sequence[int], token: int) -> int:
    """Where a token stands, from 0; the length if it is not there."""
    return list(ids).index(token) if token in ids else len(ids)


def token_kl(baseline: Mapping[int, float | None], candidate: Mapping[int, float | None]) -> float:
    """KL in nats between two top-k distributions given as token id -> log-probability, or NaN.

    Bins: each token in both top k; the baseline's tokens that the candidate dropped from its top k, merged; the rest.
    The candidate's mass on the dropped bin is unknown, but no dropped token is above its k-th probability, nor all of
    them together above what its top k leaves over. The bin takes the mass within that cap that makes the divergence
    least, so the figure stays a lower bound.
    """
    shared = [token for token in baseline if token in candidate]
    p, q = (np.exp(_numbers([arm[token] for token in shared])) for arm in (baseline, candidate))
    dropped = np.exp(_numbers([baseline[token] for token in baseline if token not in candidate]))
    kept = np.exp(_numbers(list(candidate.values())))
    if np.isnan(p).any() or np.isnan(q).any() or np.isnan(dropped).any() or np.isnan(kept).any():
        return math.nan
    cap = min(len(dropped) * float(kept.min()), max(1.0 - float(kept.sum()), TAIL_FLOOR))
    p_dropped = float(dropped.sum())
    p_rest = max(1.0 - float(p.sum()) - p_dropped, TAIL_FLOOR)
    q_tail = max(1.0 - float(q.sum()), TAIL_FLOOR)
    q_dropped = min(cap, q_tail * p_dropped / (p_dropped + p_rest)) if len(dropped) else 0.0
    q_rest = max(q_tail - q_dropped, TAIL_FLOOR)
    return max(float(rel_entr(p, q).sum() + rel_entr(p_dropped, q_dropped) + rel_entr(p_rest, q_rest)), 0.0)


def _numbers(values: Sequence[float | None]) -> FloatArray:
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)
