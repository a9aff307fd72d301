"""Family-wise error over rules."""

import math

import numpy as np
import pytest
from statsmodels.stats.multitest import multipletests

from gatekeeper.stats.multiple import holm


def test_holm_steps_down_in_the_order_given() -> None:
    assert holm([0.03, 0.01, 0.04], alpha=0.05) == [False, True, False]
    assert holm([0.02, 0.01, 0.04], alpha=0.05) == [True, True, True]


def test_an_empty_family_rejects_nothing() -> None:
    assert holm([], alpha=0.05) == []


def test_it_agrees_with_statsmodels() -> None:
    rng = np.random.default_rng(1)
    for size in (1, 4, 9):
        p = rng.beta(0.3, 3.0, size).tolist()
        assert holm(p, alpha=0.05) == multipletests(p, alpha=0.05, method="holm")[0].tolist()


@pytest.mark.parametrize("p", [math.nan, -0.1, 1.1])
def test_an_unknown_p_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="p-value"):
        holm([0.01, p], alpha=0.05)
