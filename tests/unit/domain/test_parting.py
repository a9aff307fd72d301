"""Where two arms' greedy choices part."""

from __future__ import annotations

from dataclasses import replace

from gatekeeper.domain.parting import part_of
from tests.unit.web import samples


def test_arms_that_agree_part_nowhere() -> None:
    trace = samples.traces(samples.EXACT)[0]
    parting = part_of(trace, trace)
    assert parting is not None
    assert (parting.first, parting.differing, parting.mean_kl) == (None, 0, 0.0)


def test_the_first_parting_is_the_first_place_with_another_greedy_choice() -> None:
    baseline, candidate = samples.traces(samples.EXACT)[3], samples.traces(samples.HARSH)[3]
    parting = part_of(baseline, candidate)
    assert parting is not None
    differing = [i for i, ids in enumerate(baseline.top_ids) if ids[0] != candidate.top_ids[i][0]]
    assert (parting.first, parting.differing) == (differing[0], len(differing))
    assert parting.worst_kl >= parting.mean_kl > 0


def test_other_tokens_or_broken_figures_cannot_be_compared() -> None:
    baseline = samples.traces(samples.EXACT)[0]
    other = replace(baseline, token_ids=[0] * len(baseline.token_ids))
    broken = replace(baseline, top_logprobs=[[None] * 8 for _ in baseline.top_logprobs])
    assert part_of(None, baseline) is None
    assert part_of(other, baseline) is None
    assert part_of(baseline, broken) is None
