"""The noise floor: how far two independent launches of the same baseline differ."""

from __future__ import annotations

import math

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.basis import Basis
from gatekeeper.domain.delta import deltas_between
from gatekeeper.domain.measurement import Mode
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.policy import ALL
from gatekeeper.domain.sample import WHOLE, Parts
from gatekeeper.domain.verdict import Delta, Noise


def noise_between(baseline: ArmRecord, control: ArmRecord, basis: Basis, *, parts: Parts = WHOLE) -> Noise:
    """Compare the control launch with the baseline exactly as a candidate would be."""
    deltas = deltas_between(baseline, control, basis, parts=parts)
    estimates = {delta.metric: delta.estimate for delta in deltas if _is_whole(delta)}
    flips = [
        ((delta.lost or 0) + (delta.gained or 0)) / delta.n
        for delta in deltas
        if delta.metric == "accuracy" and delta.group == ALL
    ]
    return Noise(
        decode_kl=estimates.get("decode_kl"),
        top1_agreement=estimates.get("top1_agreement"),
        accuracy_flip_rate=max(flips, default=None),
        throughput_ratio=estimates.get("throughput_ratio"),
        deltas=deltas,
    )


def speed_noise(noise: Noise) -> dict[tuple[str, Mode, str], tuple[float, ...]]:
    """By speed metric, mode and group, the log ratio of each pair of launches of the baseline."""
    return {
        (delta.metric, delta.mode, delta.group): delta.launches or (math.log(delta.estimate),)
        for delta in noise.deltas
        if METRICS[delta.metric].kind == "speed"
    }


def floor_of(noise: Noise, metric: str, group: str = ALL) -> float | None:
    """How far the two launches differ in a metric, as an amount, cold; None: not measured."""
    found = [
        abs(delta.estimate)
        for delta in noise.deltas
        if (delta.metric, delta.mode, delta.group) == (metric, "cold", group)
    ]
    return found[0] if found else None


def _is_whole(delta: Delta) -> bool:
    return delta.mode == "cold" and delta.group == ALL
