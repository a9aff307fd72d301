"""The view model of two answers side by side: the text of each arm, with the first piece that differs marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gatekeeper.domain.answer import Chances
from gatekeeper.services.items import AnswersView, SaidView
from gatekeeper.web import plots

BEFORE, AFTER = 240, 480
"""Characters shown before the piece that differs and after it; the API has the others."""
LEFT_OUT: Final = "\N{HORIZONTAL ELLIPSIS}"
SHOWN: Final = str.maketrans(
    {"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}\n", "\t": "\N{RIGHTWARDS ARROW}\t"}
)
NOT_AMONG: Final = "not listed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """One arm's text, cut around the piece that differs: what comes before it, itself, and what follows."""

    before: str
    differing: str
    after: str

    @property
    def is_empty(self) -> bool:
        """Whether the arm said nothing."""
        return not (self.before or self.differing or self.after)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chance:
    """How probable both arms held one text; shares in per mille for the bars."""

    text: str
    is_expected: bool
    baseline: str
    candidate: str
    baseline_bar: float
    candidate_bar: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswersPanel:
    """What was asked, both answers, and how probable both arms held what could be said where they part."""

    prompt: str
    expected: str | None
    baseline: Said
    candidate: Said
    chances_of: str
    chances: tuple[Chance, ...]
    note: str


def answers_panel(answers: AnswersView) -> AnswersPanel:
    """Put the panel together."""
    at, baseline, candidate = answers.differ_at, answers.baseline, answers.candidate
    chances, what = tuple[Chance, ...](), ""
    if baseline.options and candidate.options:
        chances = _chances(baseline.options, candidate.options, expected=answers.expected)
        what = "each option"
    elif at is not None and at < min(len(baseline.chances), len(candidate.chances)):
        right = _expected_piece(answers, at)
        chances = _chances(baseline.chances[at], candidate.chances[at], expected=right)
        what = f"token {at + 1}, where the answers part"
    return AnswersPanel(
        prompt=answers.prompt,
        expected=answers.expected,
        baseline=_said(baseline, at),
        candidate=_said(candidate, at),
        chances_of=what,
        chances=chances,
        note="" if at is not None else "Both arms said the same; only the probabilities differ.",
    )


def _said(said: SaidView, at: int | None) -> Said:
    place = len(said.pieces) if at is None else at
    before, after = "".join(said.pieces[:place]), "".join(said.pieces[place + 1 :])
    differing = said.pieces[place] if place < len(said.pieces) else ""
    return Said(
        before=_visible(before if len(before) <= BEFORE else LEFT_OUT + before[-BEFORE:]),
        differing=_visible(differing),
        after=_visible(after if len(after) <= AFTER else after[:AFTER] + LEFT_OUT),
    )


def _expected_piece(answers: AnswersView, at: int) -> str | None:
    """The right token where the arms part: that of the arm that reads right up to it; None if neither does."""
    if answers.expected is None:
        return None
    for said in (answers.baseline, answers.candidate):
        if answers.expected.strip().startswith("".join(said.pieces[: at + 1]).strip()):
            return said.pieces[at]
    return None


def _chances(baseline: Chances, candidate: Chances, *, expected: str | None) -> tuple[Chance, ...]:
    """Every text that either arm lists, the baseline's most probable first."""
    before, after = dict(baseline), dict(candidate)
    return tuple(
        Chance(
            text=_visible(text).strip("\n") or "(nothing)",
            is_expected=text == expected,
            baseline=_share(before.get(text)),
            candidate=_share(after.get(text)),
            baseline_bar=plots.share(before.get(text, 0.0), 1.0),
            candidate_bar=plots.share(after.get(text, 0.0), 1.0),
        )
        for text in dict.fromkeys((*before, *after))
    )


def _share(value: float | None) -> str:
    return NOT_AMONG if value is None else f"{100 * value:.1f}%"


def _visible(text: str) -> str:
    return text.translate(SHOWN)
