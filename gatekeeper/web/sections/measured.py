"""Everything that was measured, rule or not, and the noise floor under it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.plan import Plan
from gatekeeper.domain.verdict import Delta, Noise
from gatekeeper.services.views import RunDetail
from gatekeeper.web import badges, figures
from gatekeeper.web.badges import Badge

KINDS: Final = ("token", "binary", "score", "speed", "capacity")
MISSING: Final = figures.NOT_MEASURED


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaLine:
    """One delta. `is_part`: of the line above it, such as one task of the accuracy suite."""

    metric: str
    is_part: bool
    mode: str
    baseline: str
    candidate: str
    estimate: str
    bounds: str
    sample: str
    flips: str
    harm_p: str
    method: str
    noise: str
    badge: Badge | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NoiseFigure:
    """How far two launches of the same baseline differ, in one metric."""

    label: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredSection:
    """The table of deltas, what it lacks, and the noise floor. `is_noise_measured` False: there was no control arm."""

    lines: tuple[DeltaLine, ...]
    lacking: tuple[str, ...]
    noise: tuple[NoiseFigure, ...]
    is_noise_measured: bool


def measured_section(run: RunDetail, plan: Plan) -> MeasuredSection | None:
    """The deltas of a run; None where nothing was compared."""
    if not run.deltas:
        return None
    found = [
        (finding.delta, badges.of_finding(finding.outcome, finding.rule.severity)) for finding in run.findings
    ]
    ordered = sorted(run.deltas, key=_order)
    probes = {probe.probe for probe in plan.suite.probes}
    present = {delta.metric for delta in run.deltas}
    return MeasuredSection(
        lines=tuple(
            _line(delta, run.noise, [badge for of, badge in found if of == delta]) for delta in ordered
        ),
        lacking=tuple(
            figures.title(name)
            for name, metric in METRICS.items()
            if name not in present
            and metric.suite in probes
            and (plan.suite.has_context_lengths or not metric.is_over_contexts)
            and metric.modes_of([delta.mode for delta in run.deltas])
        ),
        noise=noise_figures(run.noise),
        is_noise_measured=bool(run.noise.deltas),
    )


def noise_figures(noise: Noise) -> tuple[NoiseFigure, ...]:
    """The four figures of the noise floor; each may be missing."""
    flips = noise.accuracy_flip_rate
    return (
        NoiseFigure(label="Decode KL", text=_with_unit("decode_kl", noise.decode_kl)),
        NoiseFigure(label="Top-1 agreement", text=figures.number("top1_agreement", noise.top1_agreement)),
        NoiseFigure(label="Answers that flip", text=MISSING if flips is None else f"{100 * flips:.1f}%"),
        NoiseFigure(label="Throughput", text=figures.number("throughput_ratio", noise.throughput_ratio)),
    )


def _line(delta: Delta, noise: Noise, found: Sequence[Badge]) -> DeltaLine:
    is_part = delta.group != "all"
    floor = [
        control.estimate
        for control in noise.deltas
        if (control.metric, control.mode, control.group) == (delta.metric, delta.mode, delta.group)
    ]
    is_pair = METRICS[delta.metric].kind != "token" if delta.metric in METRICS else True
    return DeltaLine(
        metric=delta.group if is_part else figures.title(delta.metric),
        is_part=is_part,
        mode=delta.mode,
        baseline=figures.level(delta.metric, delta.baseline) if is_pair else "",
        candidate=figures.level(delta.metric, delta.candidate) if is_pair else "",
        estimate=_with_unit(delta.metric, delta.estimate),
        bounds=figures.bounds(delta),
        sample=figures.sample(delta) + (f", {delta.missing} missing" if delta.missing else ""),
        flips=""
        if delta.lost is None or delta.gained is None
        else f"{delta.lost} lost, {delta.gained} gained",
        harm_p=figures.probability(delta.harm_p),
        method=delta.method,
        noise=figures.number(delta.metric, floor[0]) if floor else "",
        badge=next(iter(found), None),
    )


def _with_unit(metric: str, value: float | None) -> str:
    text, unit = figures.number(metric, value), figures.unit(metric)
    return f"{text} {unit}" if unit and value is not None else text


def _order(delta: Delta) -> tuple[int, int, str, bool, str]:
    names = list(METRICS)
    known = METRICS.get(delta.metric)
    return (
        KINDS.index(known.kind) if known else len(KINDS),
        names.index(delta.metric) if known else len(names),
        delta.mode,
        delta.group != "all",
        delta.group,
    )
