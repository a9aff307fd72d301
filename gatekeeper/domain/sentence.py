"""The words of a verdict: one sentence that names the figures it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.policy import ALL, EACH, WORST, Rule
from gatekeeper.domain.verdict import Delta, Finding, Outcome, Verdict

GAIN_FLOOR = 1.02
"""Below this ratio of capacity or speed a change is said to buy nothing."""
MOST_EXTRA = 5
"""Decimals more than usual; what differs by less is not worth telling apart."""
BUYS_NOTHING = "the change does not buy what it was for"


def amount(metric: Metric, value: float, extra: int = 0) -> str:
    """A value in the metric's unit, such as `0.098 nats/token`, `80.6%`, `-2.5 points`, `0.96x`.

    `extra`: how many decimals more.
    """
    match metric.unit:
        case "share" if metric.form == "max_drop":
            return f"{100 * value:+.{1 + extra}f} points"
        case "share":
            return f"{100 * value:.{1 + extra}f}%"
        case "x":
            return f"{value:.{2 + extra}f}x"
        case unit:
            return f"{value:.{3 + extra}f} {unit}"


def telling_decimals(metric: Metric, delta: Delta, bound: float | None) -> int:
    """How many decimals more keep every figure apart from a limit that it is not: 1.797x is below 1.800x."""
    if bound is None:
        return 0
    figures = [value for value in (delta.estimate, delta.lower, delta.upper) if value not in (None, bound)]
    for extra in range(MOST_EXTRA + 1):
        limit = amount(metric, bound, extra)
        if all(amount(metric, value, extra) != limit for value in figures):
            return extra
    return 0


def bounds(metric: Metric, delta: Delta, extra: int = 0) -> str:
    """An estimate with its one-sided bounds."""
    estimate = amount(metric, delta.estimate, extra)
    if delta.lower is None or delta.upper is None or delta.lower == delta.upper:
        return estimate
    low, high = (amount(metric, value, extra).split(" ")[0] for value in (delta.lower, delta.upper))
    return f"{estimate} ({100 * delta.confidence:g}% bounds {low} to {high})"


def limit_in_force(rule: Rule, bound: float | None, extra: int = 0) -> str:
    """The limit as it stood in a run, with where it comes from if it is relative."""
    stated = amount(METRICS[rule.metric], bound, extra) if bound is not None else "an unknown limit"
    if rule.at_least_of_baseline is not None:
        return f"{100 * rule.at_least_of_baseline:g}% of the baseline"
    if rule.at_most_noise_multiple is not None:
        return f"{stated} ({rule.at_most_noise_multiple:g} times the noise floor)"
    return stated


def kept(delta: Delta) -> str:
    """How much of the baseline's accuracy is kept."""
    if delta.kept is None or delta.kept_lower is None:
        return "the baseline has no right answer"
    return f"keeps {100 * delta.kept:.1f}% of the baseline, at least {100 * delta.kept_lower:.1f}%"


def demand(rule: Rule) -> str:
    """A rule as one sentence."""
    metric = METRICS[rule.metric]
    place = "".join([f" {_of_group(rule)}" if _of_group(rule) else "", f", {rule.mode}" if rule.mode else ""])
    severity = "" if rule.severity == "block" else " This only warns."
    subject = f"{metric.title}{place}"
    return f"{subject[0].upper()}{subject[1:]}: {_demanded(rule, metric)}.{severity}"


def _demanded(rule: Rule, metric: Metric) -> str:
    match rule.form:
        case "max_drop":
            return f"falls by less than {points(rule.max_drop or 0)}"
        case "at_least_of_baseline":
            return f"stays above {100 * (rule.at_least_of_baseline or 0):g}% of the baseline's"
        case "at_most_noise_multiple":
            noise = f"{rule.at_most_noise_multiple:g} times what the baseline's launches differ by"
            return f"at most {noise}, or {_plain(metric, rule.limit_floor)} if that is more"
        case "at_most":
            return f"at most {_plain(metric, rule.at_most)}"
        case "at_least":
            return f"at least {_plain(metric, rule.at_least)}"


def points(share: float) -> str:
    """A share of the items as points: `5 points`."""
    return f"{100 * share:.3g} point" + ("" if share == 0.01 else "s")


def _plain(metric: Metric, value: float | None) -> str:
    match metric.unit:
        case "share":
            return f"{100 * (value or 0):g}%"
        case "x":
            return f"{value:g}x the baseline's"
        case unit:
            return f"{value:g} {unit}"


def _of_group(rule: Rule) -> str:
    if rule.decode_position:
        start, end = rule.decode_position
        return f"over decoded tokens {start} to {end - 1}"
    if rule.context:
        start, end = rule.context
        is_token = METRICS[rule.metric].kind == "token"
        lengths = f"{start} to {end - 1} tokens"
        return f"after {lengths} of context" if is_token else f"of items of {lengths}"
    if rule.input_tokens:
        return f"with prompts of {rule.input_tokens} tokens"
    words = {ALL: "", EACH: "of each task by itself", WORST: "of the worst task"}
    return words.get(rule.group, f"of {rule.group}")


def summary(
    verdict: Verdict, findings: Sequence[Finding], deltas: Sequence[Delta], coverage_gaps: Sequence[str]
) -> str:
    """The verdict's sentence: what decided it first, then the other quality figures, then gain and speed."""
    named_first = _named_first(verdict, findings)
    first = [_phrase(finding) for finding in named_first]
    if verdict is Verdict.INVALID and coverage_gaps:
        first.insert(0, f"coverage: {', '.join(coverage_gaps)}")
    named = {(finding.metric, finding.mode, finding.group) for finding in named_first}
    rest = [
        _figure(delta)
        for delta in deltas
        if delta.metric in ("decode_kl", "top1_agreement", "accuracy")
        and delta.group == ALL
        and (delta.metric, delta.mode, delta.group) not in named
    ]
    gains = [
        _figure(delta)
        for name in ("kv_capacity_ratio", "throughput_ratio")
        for delta in deltas
        if (delta.metric, delta.group) == (name, ALL)
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


def deciding(verdict: Verdict, findings: Sequence[Finding]) -> list[Finding]:
    """The findings of blocking rules that led to the verdict; none where something else did."""
    outcomes = _DECIDES[verdict]
    return [found for found in findings if found.rule.severity == "block" and found.outcome in outcomes]


def _named_first(verdict: Verdict, findings: Sequence[Finding]) -> list[Finding]:
    waived = [
        found for found in findings if found.rule.severity == "block" and found.outcome is Outcome.WAIVED
    ]
    return deciding(verdict, findings) + waived


def in_parts(verdict: Verdict, sentence: str, findings: Sequence[Finding]) -> tuple[tuple[str, ...], str]:
    """A verdict's sentence without its word, for a list: what decided, finding by finding, and all else.

    No finding stands alone where the sentence does not begin with the findings that decided.
    """
    text = sentence.removeprefix(f"{verdict}: ")
    reasons = tuple(_phrase(finding) for finding in _named_first(verdict, findings))
    lead = "; ".join(reasons)
    return (reasons, text[len(lead) :].lstrip("; .")) if lead and text.startswith(lead) else ((), text)


def title_of(metric: str, mode: str, group: str) -> str:
    """A metric with its group and mode, where they are not the usual ones."""
    place = ", ".join(part for part, usual in ((group, ALL), (mode, "cold")) if part != usual)
    return METRICS[metric].title + (f" ({place})" if place else "")


def _phrase(finding: Finding) -> str:
    title = title_of(finding.metric, finding.mode, finding.group)
    if finding.outcome is Outcome.REGRESSED and finding.delta is not None:
        metric, rule = METRICS[finding.metric], finding.rule
        extra = telling_decimals(metric, finding.delta, finding.limit)
        limit = limit_in_force(rule, finding.limit, extra)
        tail = f": {BUYS_NOTHING}" if rule.demands_gain else ""
        return f"{title} {bounds(metric, finding.delta, extra)} {_verb(rule)} {limit}{tail}"
    return f"{title}: {finding.detail}"


def _verb(rule: Rule) -> str:
    match rule.form:
        case "at_most" | "at_most_noise_multiple":
            return "exceeds"
        case "at_least":
            return "is below the required" if rule.demands_gain else "is below"
        case "max_drop":
            return "is a proven loss, margin"
        case "at_least_of_baseline":
            return "is a proven loss and may leave less than"


def _figure(delta: Delta) -> str:
    metric = METRICS[delta.metric]
    shown = bounds(metric, delta) if metric.kind in ("token", "binary") else amount(metric, delta.estimate)
    return f"{title_of(delta.metric, delta.mode, delta.group)} {shown}"


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
