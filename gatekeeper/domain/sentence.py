"""The words of a verdict: one sentence that names the figures it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.verdict import Delta, Finding, Outcome, Verdict

GAIN_FLOOR = 1.02
"""Below this ratio of capacity or speed a change is said to buy nothing."""


def amount(metric: Metric, value: float) -> str:
    """A value in the metric's unit, such as `0.098 nats/token`, `80.6%`, `-2.5 points`, `0.96x`."""
    match metric.unit:
        case "share" if metric.form == "max_drop":
            return f"{100 * value:+.1f} points"
        case "share":
            return f"{100 * value:.1f}%"
        case "x":
            return f"{value:.2f}x"
        case unit:
            return f"{value:.3f} {unit}"


def bounds(metric: Metric, delta: Delta) -> str:
    """An estimate with its one-sided bounds."""
    estimate = amount(metric, delta.estimate)
    if delta.lower is None or delta.upper is None or delta.lower == delta.upper:
        return estimate
    low, high = (amount(metric, value).split(" ")[0] for value in (delta.lower, delta.upper))
    return f"{estimate} ({100 * delta.confidence:g}% bounds {low} to {high})"


def summary(
    verdict: Verdict, findings: Sequence[Finding], deltas: Sequence[Delta], coverage_gaps: Sequence[str]
) -> str:
    """The verdict's sentence: what decided it first, then the other quality figures, then gain and speed."""
    blocking = [finding for finding in findings if finding.rule.severity == "block"]
    deciding = [finding for finding in blocking if finding.outcome in _DECIDES[verdict]]
    first = [_phrase(finding) for finding in deciding]
    if verdict is Verdict.INVALID and coverage_gaps:
        first.insert(0, f"coverage: {', '.join(coverage_gaps)}")
    named = {(finding.metric, finding.mode) for finding in deciding}
    rest = [
        _figure(delta)
        for delta in deltas
        if METRICS[delta.metric].kind in ("token", "binary")
        and delta.group == "all"
        and (delta.metric, delta.mode) not in named
        and delta.metric in ("decode_kl", "top1_agreement", "accuracy")
    ]
    gains = [
        _figure(delta)
        for name in ("kv_capacity_ratio", "throughput_ratio")
        for delta in deltas
        if delta.metric == name
    ]
    tail = f" {', '.join(gains)}." if gains else ""
    return f"{verdict}: {'; '.join([*first, *rest])}.{tail}"


_DECIDES = {
    Verdict.PASS: (),
    Verdict.FAIL: (Outcome.REGRESSED,),
    Verdict.INCONCLUSIVE: (Outcome.INCONCLUSIVE,),
    Verdict.INVALID: (Outcome.NOT_EXERCISED, Outcome.MISSING),
    Verdict.ERROR: (Outcome.ERRORED,),
}


def _title(metric: str, mode: str) -> str:
    return METRICS[metric].title + (f" ({mode})" if mode != "cold" else "")


def _phrase(finding: Finding) -> str:
    title = _title(finding.metric, finding.mode)
    if finding.outcome is Outcome.REGRESSED and finding.delta is not None:
        metric = METRICS[finding.metric]
        verb = {"at_most": "exceeds", "at_least": "is below", "max_drop": "is a proven loss, margin"}[
            metric.form
        ]
        return f"{title} {bounds(metric, finding.delta)} {verb} {amount(metric, finding.rule.bound)}"
    return f"{title}: {finding.detail}"


def _figure(delta: Delta) -> str:
    metric = METRICS[delta.metric]
    shown = bounds(metric, delta) if metric.kind in ("token", "binary") else amount(metric, delta.estimate)
    return f"{_title(delta.metric, delta.mode)} {shown}"


def no_gain(deltas: Sequence[Delta]) -> tuple[str, ...]:
    """A note for a safe change that neither holds more tokens nor runs faster."""
    capacity = [delta.estimate for delta in deltas if delta.metric == "kv_capacity_ratio"]
    speed = [
        delta.lower for delta in deltas if delta.metric == "throughput_ratio" and delta.lower is not None
    ]
    latency = [
        delta.upper for delta in deltas if delta.metric == "ttft_p50_ratio" and delta.upper is not None
    ]
    gained = any(ratio >= GAIN_FLOOR for ratio in [*capacity, *speed]) or any(
        r <= 1 / GAIN_FLOOR for r in latency
    )
    return () if gained else ("The change is safe here, but no gain in capacity or speed was shown.",)
