"""Metrics against the oracle and against what they mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair import metrics, rescale_rewards
from tests import naive

rewards = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rewards, st.floats(0.0, 0.999))
def test_against_the_oracle(values: list[float], alpha: float) -> None:
    earned = np.array(values)
    np.testing.assert_allclose(metrics.utility(earned, alpha), naive.utility(earned, alpha), rtol=1e-14)
    np.testing.assert_allclose(metrics.marginal_utility(earned, alpha), naive.marginal_utility(earned, alpha))
    assert metrics.alpha_performance(earned, alpha) == pytest.approx(naive.alpha_performance(earned, alpha), rel=1e-13)
    assert metrics.jain_index(earned) == pytest.approx(naive.jain_index(earned), rel=1e-12)
    assert metrics.average_reward(earned) == pytest.approx(earned.sum() / len(earned))
    assert metrics.shares(earned).sum() == pytest.approx(1.0)
    assert 1.0 / len(earned) - 1e-12 <= metrics.jain_index(earned) <= 1.0 + 1e-12


def test_many_rounds_at_once() -> None:
    earned = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    assert metrics.jain_index(earned).shape == (3,)
    assert metrics.shares(earned).tolist() == [[0.5, 0.5], [2 / 3, 1 / 3], [0.75, 0.25]]
    np.testing.assert_allclose(metrics.standard_regret([4.0, 5.0, 6.0], earned, 0.0), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(metrics.approximate_regret([4.0, 5.0, 6.0], earned, 0.0), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(metrics.performance_ratio([4.0, 6.0, 8.0], earned, 0.0), [2.0, 2.0, 2.0])


def test_jain_survives_huge_rewards() -> None:
    assert metrics.jain_index([1e200, 1e200]) == 1.0


def test_approximation_factor_is_bounded() -> None:
    factors = [metrics.approximation_factor(alpha) for alpha in np.linspace(0.0, 0.999, 500)]
    assert min(factors) >= 1.0
    assert max(factors) <= np.exp(1 / np.e)


@pytest.mark.parametrize("bad", [[0.0, 1.0], [-1.0, 1.0], [np.nan, 1.0], [np.inf, 1.0], []])
def test_cumulative_rewards_must_be_positive(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="must be positive and finite"):
        metrics.jain_index(bad)


def test_rescale_keeps_order_and_ends() -> None:
    out = rescale_rewards([[-5.0, 0.0], [2.5, 5.0]], -5, 5, floor=0.1)
    np.testing.assert_allclose(out, [[0.1, 0.55], [0.775, 1.0]])
    assert rescale_rewards([0.1, 0.2, 0.3], 0.1, 0.3, floor=0.0).max() == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([6.0], 0, 5), r"rewards\[0\] must be numbers in \[0, 5\]; got 6.0"),
        ((np.nan, 0, 5), r"rewards must be numbers in \[0, 5\]; got nan"),
        (([1.0], 5, 5), r"high must be a number in \(5, inf\]; got 5"),
        (([1.0], 0, 5, 1.0), r"floor must be a number in \[0, 1\); got 1.0"),
    ],
)
def test_rescale_refusals(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rescale_rewards(*arguments[:3], **({"floor": arguments[3]} if len(arguments) > 3 else {}))  # type: ignore[arg-type]
