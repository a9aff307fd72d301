"""Numbers as a page shows them. What has no value reads "not measured"; nothing missing ever looks like a zero."""

from __future__ import annotations

from typing import Final, assert_never

from gatekeeper.domain.metric import METRICS, Metric
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.verdict import Delta

NOT_MEASURED: Final = "not measured"
MINUS: Final = "\N{MINUS SIGN}"
TIMES: Final = "\N{MULTIPLICATION SIGN}"

SIGNED: Final = frozenset(name for name, metric in METRICS.items() if metric.form == "max_drop") | {
    "decode_nll"
}
"""Metrics that are differences, so that their sign says something."""

LEVEL_UNITS: Final = {"_tok_s": " tok/s", "_ms": " ms"}
"""Suffix of a measured figure's name -> its unit."""


def title(metric: str) -> str:
    """A metric's name for a heading."""
    text = METRICS[metric].title if metric in METRICS else metric
    return text[:1].upper() + text[1:]


def unit(metric: str) -> str:
    """The unit that a figure of this metric does not carry itself."""
    known = METRICS.get(metric)
    return known.unit if known and known.unit not in ("share", "x") else ""


def of_group(metric: str, group: str) -> str:
    """A metric's name with the part of the items that it speaks of."""
    return title(metric) + ("" if group == "all" else f": {group}")


def number(metric: str, value: float | None) -> str:
    """A value of the judged metric: `+1.2 pts`, `90.3%`, `2.00×`, `0.0271`."""
    if value is None:
        return NOT_MEASURED
    is_signed = metric in SIGNED
    match METRICS.get(metric):
        case Metric(unit="share", form="max_drop"):
            return _fixed(100 * value, 1, is_signed=is_signed) + " pts"
        case Metric(unit="share"):
            return _fixed(100 * value, 1) + "%"
        case Metric(unit="x"):
            return _fixed(value, 2) + TIMES
        case _:
            return _fixed(value, 4, is_signed=is_signed)


def bounds(delta: Delta) -> str:
    """The one-sided bounds of a delta, `0.0243 to 0.0312`; an open end is named, and so is a missing spread."""
    if delta.lower is None and delta.upper is None:
        return "bounds unknown"
    is_exact = METRICS[delta.metric].kind == "capacity" if delta.metric in METRICS else False
    return span(delta.metric, delta.lower, delta.upper) or ("exact" if is_exact else "no spread")


def span(metric: str, lower: float | None, upper: float | None) -> str:
    """Two bounds in words, or nothing where they say no more than the estimate."""
    if lower == upper:
        return ""
    low = "unbounded" if lower is None else _bare(metric, lower)
    return f"{low} to {'unbounded' if upper is None else number(metric, upper)}"


def limit(rule: Rule) -> str:
    """What a rule demands: `≤ 0.05`, `≥ 85%`, `drop < 5 pts`."""
    match rule.form:
        case "max_drop":
            return f"drop < {100 * (rule.max_drop or 0):g} pts"
        case "at_least_of_baseline":
            return f"> {100 * (rule.at_least_of_baseline or 0):g}% of the baseline"
        case "at_most":
            return f"≤ {_demand(rule.metric, rule.at_most)}"
        case "at_most_noise_multiple":
            floor = _demand(rule.metric, rule.limit_floor)
            return f"≤ {rule.at_most_noise_multiple:g}{TIMES} the noise floor, or {floor}"
        case "at_least":
            return f"≥ {_demand(rule.metric, rule.at_least)}"
        case _:
            assert_never(rule.form)


def bound_mark(metric: str, bound: float) -> str:
    """A limit as a mark on an axis."""
    known = METRICS.get(metric)
    is_drop = known is not None and known.form == "max_drop"
    return _typeset(f"{100 * bound:.3g} pts") if is_drop else _demand(metric, bound)


def neutral(metric: str) -> float:
    """The value of an unchanged setup: 1 for ratios and agreement, else 0."""
    known = METRICS.get(metric)
    return 1.0 if known and known.unit in ("share", "x") and known.form != "max_drop" else 0.0


def level(metric: str, value: float | None) -> str:
    """What one arm showed: `67.5%`, `46,592 tokens`, `107 tok/s`."""
    if value is None:
        return NOT_MEASURED
    known = METRICS.get(metric)
    match known:
        case Metric(unit="share"):
            return _fixed(100 * value, 1) + "%"
        case Metric(kind="capacity"):
            return f"{value:,.0f} tokens"
        case Metric(source=source) if source:
            suffix = next((text for end, text in LEVEL_UNITS.items() if source.endswith(end)), "")
            return f"{plain(value)}{suffix}"
        case _:
            return plain(value)


def plain(value: float) -> str:
    """A number without a unit, with about four significant digits."""
    return _typeset(f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}")


def probability(value: float | None) -> str:
    """A p-value."""
    if value is None:
        return ""
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}"


def sample(delta: Delta) -> str:
    """How much a delta rests on, in the metric's own words."""
    kind = METRICS[delta.metric].kind if delta.metric in METRICS else ""
    of_planned = f" of {delta.planned:,}" if delta.planned and delta.planned > delta.n else ""
    match kind:
        case "token":
            if delta.n != delta.clusters:
                return f"{delta.n} items, {delta.clusters} documents"
            return f"{delta.n}{of_planned} documents"
        case "speed":
            pairs = f", {delta.clusters} pairs of launches" if delta.clusters > 1 else ""
            return f"{delta.n} rounds{pairs}"
        case "capacity":
            return "engine's report"
        case _:
            return f"{delta.n}{of_planned} items"


def size(size_bytes: float) -> str:
    """Bytes in the largest fitting binary unit."""
    for name in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.0f} {name}" if name == "B" else f"{size_bytes:.1f} {name}"
        size_bytes /= 1024
    return f"{size_bytes:.2f} GiB"


def _bare(metric: str, value: float) -> str:
    return number(metric, value).removesuffix(" pts").removesuffix("%").removesuffix(TIMES)


def _demand(metric: str, value: float | None) -> str:
    known = METRICS.get(metric)
    value = value or 0.0
    match known:
        case Metric(unit="share"):
            return f"{100 * value:g}%"
        case Metric(unit="x"):
            return f"{value:.2f}{TIMES}"
        case _:
            return _typeset(f"{value:g}")


def _fixed(value: float, digits: int, *, is_signed: bool = False) -> str:
    """Fixed decimals; what rounds to zero has no sign."""
    text = f"{value:{'+' if is_signed else ''}.{digits}f}"
    return _typeset(text if text.strip("+-0.") else text.lstrip("+-"))


def _typeset(text: str) -> str:
    return text.replace("-", MINUS)
