"""What a verdict means for the rollout, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from gatekeeper.domain.findings import lack_of
from gatekeeper.domain.sentence import deciding, title_of
from gatekeeper.domain.verdict import Finding, Verdict
from gatekeeper.domain.waiver import Waiver

PROMOTE: Final = "`gatekeeper promote` makes it the model's reference."
SERVES_NOBODY: Final = "Nothing here can be rolled out, because the reference engine serves nobody."
BROKE_DOWN: Final = (
    "No rule decided this: the candidate broke down more than the baseline did. Keep the baseline; the engines' logs "
    "say what went wrong. No other margin and no waiver changes it."
)
NAMED: Final = 3
"""Lacks that an advice spells out; the findings have all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Meaning:
    """`gate`: whether the change may go on. Code in `advice` stands between backticks.

    `decided`: findings led to the verdict. `margins_help`, `waivers_help`: other margins, or waivers, could turn it.
    """

    gate: str
    advice: str
    decided: bool = False
    margins_help: bool = False
    waivers_help: bool = False


def meaning_of(
    verdict: Verdict, *, findings: Sequence[Finding], waivers: Sequence[Waiver], engine: str | None
) -> Meaning:
    """What to do after a verdict. `waivers`: those it rests on; `engine`: the name of the one that was measured."""
    decided = deciding(verdict, findings)
    match verdict:
        case Verdict.PASS:
            return Meaning(gate="Gate open", advice=_after_pass(waivers, engine))
        case Verdict.FAIL:
            advice, margins_help = _after_fail(decided), True
        case Verdict.INCONCLUSIVE:
            advice = _after_inconclusive(decided)
            margins_help = any(lack_of(finding).margin_helps for finding in decided)
        case Verdict.INVALID:
            advice = "The evidence does not speak about this change. Mend what the sentence names and submit it again."
            return Meaning(gate="Gate closed", advice=advice, decided=bool(decided))
        case Verdict.ERROR:
            advice = "The measurement broke off, which proves nothing about the candidate. Retry the run."
            return Meaning(gate="Gate closed", advice=advice, decided=bool(decided))
        case _:
            assert_never(verdict)
    are_figures = bool(decided) and all(finding.delta for finding in decided)
    return Meaning(
        gate="Gate closed",
        advice=advice,
        decided=bool(decided),
        margins_help=are_figures and margins_help,
        waivers_help=are_figures,
    )


def _after_pass(waivers: Sequence[Waiver], engine: str | None) -> str:
    held = "Every blocking rule was shown to hold"
    if waivers:
        ends = f"{min(waiver.expires_at for waiver in waivers):%Y-%m-%d}"
        held += " or is waived, until " + (ends if len(waivers) == 1 else f"{ends} at the earliest")
    if engine == "reference":
        return f"{held}. {'' if waivers else 'The model survives the method. '}{SERVES_NOBODY}"
    return f"{held}. Roll it out{' before then' if waivers else ''}; {PROMOTE}"


def _after_fail(decided: Sequence[Finding]) -> str:
    if not decided:
        return BROKE_DOWN
    if all(finding.rule.demands_gain for finding in decided):
        return "The change does not buy what it was for. Keep the baseline, or propose one that buys more."
    if not all(finding.delta for finding in decided):
        return (
            "The candidate has items without a finite value, where the baseline has one. Keep the baseline."
        )
    return "At least one rule proved a regression. Keep the baseline, or propose a gentler change."


def _after_inconclusive(decided: Sequence[Finding]) -> str:
    """Each lack with the metrics that have it, the first ones only."""
    lacking: dict[str, list[str]] = {}
    for finding in decided:
        title = title_of(finding.metric, finding.mode, finding.group)
        lacking.setdefault(lack_of(finding).words, []).append(title)
    said = [f" {_capitalised(_few(titles))}: {words}." for words, titles in list(lacking.items())[:NAMED]]
    if len(lacking) > NAMED:
        said.append(" The findings say what the others lack.")
    return "The evidence is sound but does not decide." + "".join(said).replace("`", "'")


def _few(titles: Sequence[str]) -> str:
    rest = len(titles) - NAMED
    return ", ".join(titles[:NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
