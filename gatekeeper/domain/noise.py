"""The noise floor: how far two independent launches of the same baseline differ."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.delta import Basis, deltas_between
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.verdict import Delta, Noise


def noise_between(baseline: ArmRecord, control: ArmRecord, basis: Basis) -> Noise:
    """Compare the control launch with the baseline exactly as a candidate would be."""
    deltas = tuple(delta for delta in deltas_between(baseline, control, basis) if delta.group == "all")
    estimates = {delta.metric: delta.estimate for delta in deltas if delta.mode == "cold"}
    flips = [
        ((delta.lost or 0) + (delta.gained or 0)) / delta.n for delta in deltas if METRICS[delta.metric].kind == "binary"
    ]
    return Noise(
        decode_kl=estimates.get("decode_kl"),
        top1_agreement=estimates.get("top1_agreement"),
        accuracy_flip_rate=max(flips, default=None),
        throughput_ratio=estimates.get("throughput_ratio"),
        deltas=deltas,
    )


def widened(deltas: Iterable[Delta], noise: Noise) -> tuple[Delta, ...]:
    """Widen the interval of every speed ratio by the ratio that the control launch showed.

    Rounds within one launch do not see what differs between launches (memory placement, page cache, clock), so their
    interval alone is too narrow. The control's own ratio is the measured size of that effect; it multiplies the bounds
    outward. Without a control the speed bounds are unknown, and are dropped.
    """
    floor = {delta.metric: abs(math.log(delta.estimate)) for delta in noise.deltas if _is_speed(delta)}
    return tuple(_widen(delta, floor.get(delta.metric)) if _is_speed(delta) else delta for delta in deltas)


def _is_speed(delta: Delta) -> bool:
    return METRICS[delta.metric].kind == "speed"


def _widen(delta: Delta, log_noise: float | None) -> Delta:
    if log_noise is None or delta.lower is None or delta.upper is None:
        return delta.model_copy(update={"lower": None, "upper": None})
    factor = math.exp(log_noise)
    return delta.model_copy(
        update={
            "lower": delta.lower / factor,
            "upper": delta.upper * factor,
            "method": f"{delta.method}; widened by the control launch's ratio",
        }
    )
