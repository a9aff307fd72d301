"""The top of a run's page: the verdict and its sentence, gain against cost, and what can be done now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.meaning import Meaning, meaning_of
from gatekeeper.domain.run import RunState
from gatekeeper.domain.sentence import GAIN_FLOOR, in_parts
from gatekeeper.domain.verdict import Delta, Finding, Verdict
from gatekeeper.services.views import RunDetail
from gatekeeper.web import badges, figures, links
from gatekeeper.web.badges import Badge
from gatekeeper.web.run_list import OPEN_STATES, ProgressView, progress_view
from gatekeeper.web.sections.next_steps import Step, next_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """A button; with `command`, what to run in a shell instead, because the service wants a token."""

    label: str
    url: str
    command: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The verdict in words. `progress`: only while there is none.

    `reasons`: the findings that decided, where the sentence begins with them; `sentence` is then the rest.
    """

    badge: Badge
    reasons: tuple[str, ...]
    sentence: str
    gate: str
    advice: str
    progress: ProgressView | None
    steps: tuple[Step, ...]
    actions: tuple[Action, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """One figure at a glance."""

    label: str
    value: str
    unit: str = ""
    detail: str = ""
    badge: Badge | None = None
    is_measured: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiles:
    """What the change buys and what it costs."""

    gain: tuple[Tile, ...]
    cost: tuple[Tile, ...]


GAIN: Final = {"kv_capacity_ratio": "KV capacity", "throughput_ratio": "Throughput"}
COST: Final = {"decode_kl": "Decode KL", "top1_agreement": "Top-1 agreement", "accuracy": "Accuracy"}

WAITING: Final = {
    RunState.QUEUED: "Queued: the first free worker takes it.",
    RunState.RUNNING: "Running: the engine is being measured.",
    RunState.CANCELLED: "Cancelled before a verdict was reached.",
    RunState.FINISHED: "Finished.",
}


def answer(run: RunDetail, *, base_url: str, needs_token: bool) -> Answer:
    """The verdict, or where the run is."""
    meaning = _meaning(run)
    reasons, sentence = (
        in_parts(run.verdict, run.sentence, run.findings)
        if run.verdict and run.sentence
        else ((), WAITING[run.state])
    )
    return Answer(
        badge=badges.of_run(run.state, run.verdict),
        reasons=tuple(map(_capitalised, reasons)),
        sentence=_capitalised(sentence),
        gate=meaning.gate if meaning else "Gate closed",
        advice=meaning.advice if meaning else "Only PASS opens the gate.",
        progress=progress_view(run),
        steps=next_steps(run, meaning, can_waive=not needs_token),
        actions=tuple(_actions(run, base_url, needs_token=needs_token)),
    )


def _meaning(run: RunDetail) -> Meaning | None:
    if run.verdict is None:
        return None
    engine = run.engine.name if run.engine else None
    return meaning_of(run.verdict, findings=run.findings, waivers=run.waivers, engine=engine)


def tiles(run: RunDetail) -> Tiles | None:
    """Gain and cost of a measured run; None where nothing was compared."""
    if not run.deltas:
        return None
    return Tiles(
        gain=tuple(_tile(run, metric, label) for metric, label in GAIN.items()),
        cost=tuple(_tile(run, metric, label) for metric, label in COST.items()),
    )


def _actions(run: RunDetail, base_url: str, *, needs_token: bool) -> Iterator[Action]:
    def action(verb: str, label: str) -> Action:
        address = f"{base_url.rstrip('/')}{links.api_action(run.run_id, verb)}"
        command = f'curl -X POST -H "Authorization: Bearer $GATEKEEPER_API_TOKEN" {address}'
        return Action(
            label=label, url=links.action(run.run_id, verb), command=command if needs_token else None
        )

    if run.state in OPEN_STATES and not run.cancel_requested:
        yield action("cancel", "Cancel run")
    if run.state is RunState.CANCELLED or run.verdict is Verdict.ERROR:
        yield action("retry", "Run again")


def _tile(run: RunDetail, metric: str, label: str) -> Tile:
    """The cold mode's figure; other modes are named in the detail."""
    deltas = [delta for delta in run.deltas if delta.metric == metric and delta.group == "all"]
    main = next((delta for delta in deltas if delta.mode == "cold"), None) or next(iter(deltas), None)
    if main is None:
        return Tile(label=label, value=figures.NOT_MEASURED, is_measured=False)
    others = [
        f"{delta.mode} {figures.number(metric, delta.estimate)}" for delta in deltas if delta is not main
    ]
    return Tile(
        label=label,
        value=figures.number(metric, main.estimate).removesuffix(" pts"),
        unit="points" if metric == "accuracy" else figures.unit(metric),
        detail=", ".join([_detail(main), *others]),
        badge=_badge(run.findings, main),
    )


def _detail(delta: Delta) -> str:
    if delta.baseline is not None and delta.candidate is not None:
        before, after = (figures.level(delta.metric, value) for value in (delta.baseline, delta.candidate))
        unit = f" {before.split(' ', 1)[1]}" if " " in before else ""
        return f"{before.removesuffix(unit)} \N{RIGHTWARDS ARROW} {after}"
    return figures.bounds(delta)


def _badge(findings: tuple[Finding, ...], delta: Delta) -> Badge | None:
    finding = next((finding for finding in findings if finding.delta == delta), None)
    if finding is not None:
        return badges.of_finding(finding.outcome, finding.rule.severity)
    if delta.metric != "kv_capacity_ratio":
        return None
    if delta.estimate >= GAIN_FLOOR:
        return Badge(word="Gain", symbol="check", tone="pass")
    return Badge(word="No gain" if delta.estimate > 0.98 else "Loss", symbol="dash", tone="quiet")


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
