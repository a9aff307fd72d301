"""From two measured arms to samples: every metric, mode and group that both arms support."""

from __future__ import annotations

from gatekeeper.domain.arm import ArmRecord
from gatekeeper.domain.item_samples import item_samples
from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.sample import WHOLE, Parts, Sample, capacity_samples, round_samples
from gatekeeper.domain.token_samples import token_samples


def samples_between(baseline: ArmRecord, candidate: ArmRecord, *, parts: Parts = WHOLE) -> tuple[Sample, ...]:
    """Every sample that the two arms support, by the candidate's modes; one the baseline lacks is held against cold."""
    with_items = [metric for metric in METRICS.values() if metric.has_tasks]
    return (
        *token_samples(baseline, candidate, parts),
        *(
            sample
            for metric in with_items
            for sample in item_samples(metric, baseline, candidate, parts.contexts)
        ),
        *round_samples(baseline.measurements, candidate.measurements),
        *capacity_samples(baseline, candidate),
    )
