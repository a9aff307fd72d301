"""KL from top-k logprobs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.special import log_softmax, rel_entr

from gatekeeper.domain.fidelity import TracesDiffer, compare_traces, token_kl
from gatekeeper.domain.measurement import TokenTrace

VOCABULARY, TOP_K = 40, 8
Logits = arrays(np.float64, VOCABULARY, elements=st.floats(-8, 8))


def top(logits: np.ndarray) -> dict[int, float | None]:
    logs = log_softmax(logits)
    return {int(token): float(logs[token]) for token in np.argsort(-logs, kind="stable")[:TOP_K]}


@given(Logits, Logits)
def test_the_figure_never_exceeds_the_full_divergence(first: np.ndarray, second: np.ndarray) -> None:
    full = rel_entr(np.exp(log_softmax(first)), np.exp(log_softmax(second))).sum()
    assert 0 <= token_kl(top(first), top(second)) <= full + 1e-7


@given(Logits)
def test_identical_distributions_have_exactly_no_divergence(logits: np.ndarray) -> None:
    assert token_kl(top(logits), top(logits)) == 0.0


def test_distributions_on_other_tokens_are_far_apart() -> None:
    first = {token: math.log(0.12) for token in range(8)}
    second = {token + 100: math.log(0.12) for token in range(8)}
    assert token_kl(first, second) > 1.0


def test_a_missing_logprob_makes_the_figure_nan() -> None:
    assert math.isnan(token_kl({0: -0.1, 1: -3.0}, {0: None, 1: -3.0}))


def trace(tokens: list[int], best: list[int], logprob: float = -1.0) -> TokenTrace:
    return TokenTrace(
        suite="fidelity", mode="cold", item_id="d", cluster="d", token_ids=tokens,
        token_logprobs=[logprob] * len(tokens),
        top_ids=[[token, token + 1] for token in best],
        top_logprobs=[[-0.5, -1.5] for _ in best],
    )  # fmt: skip


def test_nll_rises_where_the_reference_token_gets_less_likely() -> None:
    deltas = compare_traces(trace([5, 6], [5, 6], -1.0), trace([5, 6], [5, 9], -1.25))
    assert deltas.nll.tolist() == [0.25, 0.25]
    assert deltas.agreement.tolist() == [1.0, 0.0]


def test_traces_of_other_tokens_cannot_be_compared() -> None:
    with pytest.raises(TracesDiffer):
        compare_traces(trace([5], [5]), trace([6], [5]))
