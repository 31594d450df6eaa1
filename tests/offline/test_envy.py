"""Envy and shares at the alpha-fair optimum: the proposition of docs/background/envy.md, on random instances."""

from __future__ import annotations

import numpy as np
import pytest

from alphafair import metrics, offline_optimum

ALPHAS = (0.0, 0.3, 0.5, 0.9, 1.0, 1.5, 2.0, 5.0)


def instance(seed: int) -> np.ndarray:
    """Rewards of every arm in every context: even, rare, or of very different sizes."""
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 8)), int(rng.integers(2, 7))
    sizes = (rng.random((m, n)), rng.binomial(3, 0.3, (m, n)).astype(float), rng.pareto(1.0, (m, n)))[seed % 3]
    return np.asarray(sizes * 10.0 ** rng.integers(0, 4))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_envy_is_bounded_by_a_power_of_the_ratio_of_accounts(alpha: float) -> None:
    for seed in range(25):
        totals = instance(seed)
        best = offline_optimum(totals, alpha)
        r, values = best.accounts, totals.T @ best.distributions
        np.testing.assert_allclose(1.0 + np.diag(values), r, rtol=1e-9)
        bound = r[:, None] * (r[None, :] / r[:, None]) ** (1.0 - alpha)
        slack = 1e-4 * (1.0 + bound)  # the optimum is certified in value, not in its distributions
        assert (values <= bound + slack).all(), (seed, alpha)
        assert (totals.sum(axis=0) / len(r) <= (bound + slack).mean(axis=1)).all(), (seed, alpha)


def test_at_alpha_one_nobody_envies_anybody_by_more_than_the_first_account() -> None:
    for seed in range(40):
        totals = instance(seed)
        best = offline_optimum(totals, 1.0)
        values = totals.T @ best.distributions
        assert metrics.envy(values) <= 1.0 / best.accounts.min() + 1e-4
        r = best.accounts
        assert metrics.proportional_share(values) >= (r / (1.0 + r)).min() - 1e-4


def test_another_policy_is_envied() -> None:
    """The bound is about the optimum: giving everything to one arm breaks it."""
    totals = np.array([[4.0, 3.0], [2.0, 5.0]])
    values = totals.T @ np.array([[1.0, 0.0], [1.0, 0.0]])
    assert metrics.envy(values) == 8.0
    assert metrics.proportional_share(values) == pytest.approx(1.0 / 5.0)
