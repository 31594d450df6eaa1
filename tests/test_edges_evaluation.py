"""Evaluation, the offline problem and metrics at the edge of what is allowed: rewards of any size, and of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alphafair import Log
from alphafair.evaluation import frontier
from alphafair.evaluation.plausible import _drawn, plausible_totals
from alphafair.evaluation.scores import count_cells

SHAPES = {
    "clicks": lambda rng, n: (rng.random(n) < 0.3).astype(float),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 1.0, n),
    "purchases": lambda rng, n: (rng.random(n) < 0.05) * rng.lognormal(0.0, 1.0, n),
    "constant": lambda rng, n: np.full(n, 0.3),
}

SCALES = [1e-6, 1.0, 10.0, 1e50, np.logspace(-5, 5, 10)]  # the last: one per arm


def paid_log(shape: str, scale: Any = 1.0, *, seed: int = 0, n_rounds: int = 2000, n_contexts: int = 30) -> Log:
    """Ten arms shown alike; `scale` is one number, or one per arm."""
    rng = np.random.default_rng(seed)
    contexts, arms = rng.integers(0, n_contexts, n_rounds), rng.integers(0, 10, n_rounds)
    rewards = SHAPES[shape](rng, n_rounds) * np.broadcast_to(scale, 10)[arms]
    return Log(contexts, arms, rewards, np.full(n_rounds, 0.1), n_contexts=n_contexts, n_arms=10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: f"{np.mean(scale):g}")
def test_rewards_of_any_size_and_shape_have_plausible_totals(shape: str, scale: Any) -> None:
    """Clicks that pay 10 in place of 1 made a matrix that was not positive definite three times in four."""
    for seed in range(5):
        cells = count_cells(paid_log(shape, scale, seed=seed))
        for totals in plausible_totals(cells, 2, seed):
            assert np.isfinite(totals).all()
            assert (totals >= 0.0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_plausible_totals_scale_with_rewards(shape: str) -> None:
    """Per arm: what one arm pays is drawn the same, in its own units, whatever the others pay."""
    scale = np.array([1e-6, 10.0, 1.0, 1e50, 3.0, 1e-3, 1e6, 7.0, 1e20, 0.5])
    plain = list(plausible_totals(count_cells(paid_log(shape)), 3, seed=1))
    scaled = list(plausible_totals(count_cells(paid_log(shape, scale)), 3, seed=1))
    for one, other in zip(plain, scaled, strict=True):
        np.testing.assert_allclose(other, one * scale, rtol=1e-6)


def test_plausible_means_have_the_stated_mean_and_covariance() -> None:
    """100,000 draws of one context against (T^-1 + D)^-1, written out."""
    root = np.array([[1.0, 0.0, 0.0], [0.5, 0.4, 0.0], [-0.3, 0.2, 0.7]])
    precision, seen, apart = np.linalg.inv(root @ root.T), np.array([4.0, 0.0, 1.0]), np.array([0.5, 0.0, -1.0])
    n = 100_000
    drawn = _drawn(precision, np.tile(seen, (n, 1)), np.tile(apart, (n, 1)), np.random.default_rng(0))
    covariance = np.linalg.inv(precision + np.diag(seen))
    np.testing.assert_allclose(drawn.mean(axis=0), covariance @ (seen * apart), atol=5.0 / np.sqrt(n))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_frontier_of_money(shape: str) -> None:
    found = frontier(paid_log(shape, 10.0), [0.0, 0.9], n_replicates=100)
    for name in ("average_reward", "jain_index", "least_share", "greatest_share"):
        curve = found.curve(name)
        assert np.isfinite(curve).all()
        assert (curve.low <= curve.value).all()
        assert (curve.value <= curve.high).all()
