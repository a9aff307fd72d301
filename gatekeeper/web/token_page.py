"""The view model of one document's tokens: both arms' choices side by side, and their distributions at one place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from gatekeeper.domain.fidelity import token_kl
from gatekeeper.domain.measurement import TokenTrace
from gatekeeper.domain.parting import Parting
from gatekeeper.web import figures, links, plots

BEFORE, AFTER = 3, 52
"""Places shown before and after the one that is looked at."""
NOT_AMONG: Final = "not listed"
SHOWN: Final = str.maketrans(
    {"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\t": "\N{RIGHTWARDS ARROW}"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCell:
    """One scored place: what each arm would have written. `url`: the page that looks at this place."""

    place: int
    given: str
    baseline: str
    candidate: str
    differs: bool
    is_chosen: bool
    url: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbabilityRow:
    """One token at the place that is looked at; shares in per mille for the bars."""

    token: str
    token_id: int
    is_given: bool
    baseline: str
    candidate: str
    baseline_bar: float
    candidate_bar: float


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenPage:
    """One document in one mode."""

    item: str
    mode: str
    summary: str
    cells: tuple[TokenCell, ...]
    place: int
    place_note: str
    rows: tuple[ProbabilityRow, ...]
    has_texts: bool
    flips_url: str
    earlier_url: str | None
    later_url: str | None
    api_url: str


def token_page(
    run_id: UUID,
    measured: tuple[TokenTrace, TokenTrace, Parting],
    texts: Mapping[int, str],
    *,
    place: int | None,
) -> TokenPage:
    """Look at `place` (from 0), else at the first parting, else at the worst place."""
    baseline, candidate, parting = measured
    at = parting.first if place is None else place
    at = min(max(parting.worst if at is None else at, 0), parting.tokens - 1)

    def address(of: int) -> str:
        return links.tokens(run_id, mode=parting.mode, item_id=parting.item_id, place=of + 1)

    def cell(of: int) -> TokenCell:
        before, after = baseline.top_ids[of][0], candidate.top_ids[of][0]
        return TokenCell(
            place=of + 1,
            given=_text(texts, candidate.token_ids[of]),
            baseline=_text(texts, before),
            candidate=_text(texts, after),
            differs=before != after,
            is_chosen=of == at,
            url=address(of),
        )

    start, stop = max(at - BEFORE, 0), min(at + AFTER, parting.tokens)
    kl = token_kl(_distribution(baseline, at), _distribution(candidate, at))
    return TokenPage(
        item=parting.item_id,
        mode=parting.mode,
        summary=_summary(parting),
        cells=tuple(cell(of) for of in range(start, stop)),
        place=at + 1,
        place_note=f"KL {figures.number('decode_kl', kl)} nats",
        rows=_rows(baseline, candidate, at, texts),
        has_texts=bool(texts),
        flips_url=links.flips(run_id),
        earlier_url=address(max(start - AFTER, 0)) if start else None,
        later_url=address(stop) if stop < parting.tokens else None,
        api_url=links.api_tokens(run_id, mode=parting.mode, item_id=parting.item_id),
    )


def _summary(parting: Parting) -> str:
    if parting.first is None:
        return f"Both arms make the same greedy choice at all {parting.tokens} places."
    return (
        f"The greedy choices part at token {parting.first + 1} of {parting.tokens} for the first time, and differ at "
        f"{parting.differing} places. Mean KL {figures.number('decode_kl', parting.mean_kl)} nats/token."
    )


def _rows(
    baseline: TokenTrace, candidate: TokenTrace, at: int, texts: Mapping[int, str]
) -> tuple[ProbabilityRow, ...]:
    """Every token that either arm lists, the baseline's most probable first."""
    before, after = _distribution(baseline, at), _distribution(candidate, at)
    return tuple(
        ProbabilityRow(
            token=_text(texts, token),
            token_id=token,
            is_given=token == candidate.token_ids[at],
            baseline=_probability(before, token),
            candidate=_probability(after, token),
            baseline_bar=_bar(before, token),
            candidate_bar=_bar(after, token),
        )
        for token in dict.fromkeys((*before, *after))
    )


def _distribution(trace: TokenTrace, at: int) -> dict[int, float | None]:
    return dict(zip(trace.top_ids[at], trace.top_logprobs[at], strict=True))


def _probability(known: Mapping[int, float | None], token: int) -> str:
    logprob = known.get(token)
    return NOT_AMONG if logprob is None else f"{100 * math.exp(logprob):.2f}%"


def _bar(known: Mapping[int, float | None], token: int) -> float:
    logprob = known.get(token)
    return 0.0 if logprob is None else plots.share(math.exp(logprob), 1.0)


def _text(texts: Mapping[int, str], token: int) -> str:
    """A token's text with what does not print made visible; its id where the text is not known."""
    text = texts.get(token)
    return f"#{token}" if text is None else text.translate(SHOWN) or f"#{token}"
