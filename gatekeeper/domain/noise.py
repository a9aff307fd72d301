"""The noise floor: how far two independent launches of the same baseline differ."""

from __future__ import annotations

import math

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.delta import Basis, deltas_between
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.verdict import Noise


def noise_between(baseline: ArmRecord, control: ArmRecord, basis: Basis) -> Noise:
    """Compare the control launch with the baseline exactly as a candidate would be."""
    deltas = tuple(delta for delta in deltas_between(baseline, control, basis) if delta.group == "all")
    estimates = {delta.metric: delta.estimate for delta in deltas if delta.mode == "cold"}
    flips = [
        ((delta.lost or 0) + (delta.gained or 0)) / delta.n
        for delta in deltas
        if METRICS[delta.metric].kind == "binary"
    ]
    return Noise(
        decode_kl=estimates.get("decode_kl"),
        top1_agreement=estimates.get("top1_agreement"),
        accuracy_flip_rate=max(flips, default=None),
        throughput_ratio=estimates.get("throughput_ratio"),
        deltas=deltas,
    )


def speed_noise(noise: Noise) -> dict[str, float]:
    """By speed metric, the absolute log ratio between the two launches."""
    return {
        delta.metric: abs(math.log(delta.estimate))
        for delta in noise.deltas
        if METRICS[delta.metric].kind == "speed" and delta.mode == "cold"
    }
