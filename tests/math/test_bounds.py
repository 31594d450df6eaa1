"""Upper bounds of a mean by relative entropy, optimistic merits, and equal shares of the largest scores."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from alphafair.math.distributions import play_largest
from alphafair.math.kl_bound import kl, kl_ceiling, kl_entropy, kl_upper
from alphafair.math.merit import merits, optimistic_merit
from alphafair.notions import guaranteed_revenue
from alphafair.notions._counts import C
from tests import naive_notions


def test_kl_bounds_solve_their_equation() -> None:
    rng = np.random.default_rng(0)
    means = [*rng.random(60), *10.0 ** -rng.uniform(1, 12, 20), *(1.0 - 10.0 ** -rng.uniform(1, 12, 20)), 0.0, 1.0, 0.5]
    for mean, level in itertools.product(means, (0.0, 1e-9, 1e-3, 0.1, 1.0, 30.0)):
        found, expected = kl_upper(mean, level), naive_notions.kl_upper(mean, level)
        assert found == pytest.approx(expected, rel=1e-12, abs=1e-11)
        assert mean <= found <= kl_ceiling(mean, level) * (1.0 + 1e-12) <= 1.0 + 1e-12
        if 1e-3 < mean < found < 1.0 - 1e-6 and level >= 1e-3:
            assert kl(mean, found) == pytest.approx(level, rel=1e-9)
    assert kl_upper(0.3, math.inf) == 1.0
    assert kl(0.3, 1.0) == math.inf
    assert kl(1.0, 1.0) == kl(0.0, 0.0) == 0.0


@pytest.mark.parametrize("nearby", [1e-6, 0.01, 0.3, 1.0, 5.0, 36.0])
def test_the_arms_with_the_largest_bound_are_found_from_any_start(nearby: float) -> None:
    rng = np.random.default_rng(2)
    for _ in range(60):
        n = int(rng.integers(1, 8))
        counts = rng.integers(0, 4, n) if rng.random() < 0.2 else np.ceil(10.0 ** rng.uniform(0, 5, n))
        means = rng.random(n) ** rng.choice([1.0, 8.0])
        means[rng.random(n) < 0.2] = rng.choice([0.0, 1.0, 0.5])
        rates = rng.random(n) * rng.choice([0.0, 0.1, 1.0])
        rows, visits = np.zeros((guaranteed_revenue.C.size, n)), float(counts.sum() + 1)
        rows[C.counts], rows[C.sums] = counts, means * counts
        rows[guaranteed_revenue.C.entropy] = [k * kl_entropy(m) for k, m in zip(counts, means, strict=True)]
        ceiling, found = np.empty((2, n))
        guaranteed_revenue.newton_steps(rows, visits, nearby, ceiling)
        guaranteed_revenue.largest_bound(rows, visits, rates, ceiling, found)
        level = 2.0 * math.log(visits)
        each = [naive_notions.kl_upper(m, level / k) if k else 1.0 for m, k in zip(means, counts, strict=True)]
        expected = np.maximum(rates, each)
        assert (-np.log1p(-np.minimum(each, 1.0 - 1e-15)) <= ceiling * (1.0 + 1e-9) + 1e-9).all()
        np.testing.assert_allclose(np.where(found >= 0.0, found, expected), expected, rtol=1e-12)
        assert (found[expected >= expected.max() * (1.0 - 1e-11)] >= 0.0).all()


def test_optimistic_merit_is_the_best_corner_of_the_box_and_no_point_inside_is_better() -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        n, slope = int(rng.integers(1, 5)), float(rng.uniform(0.0, 20.0))
        low, high = np.sort(rng.random((2, n)), axis=0)
        ends, upper = (np.empty(n), np.empty(n)), np.empty(n)
        for end, out in zip((low, high), ends, strict=True):
            merits(end, slope, out)
        value = optimistic_merit(low, high, *ends, upper)
        grid = np.array(list(itertools.product(*np.linspace(low, high, 5).T)))
        weights = np.exp(slope * grid)
        values = (weights * grid).sum(axis=1) / weights.sum(axis=1)
        assert value >= values.max() - 1e-12
        corner = np.where(upper == 1.0, high, low)
        assert value == pytest.approx(np.exp(slope * corner) @ corner / np.exp(slope * corner).sum())


def test_largest_scores_tie() -> None:
    for given, expected in (
        ([1.0, 1.0 + 1e-14, 0.5], [0.5, 0.5, 0.0]),
        ([math.inf, 3.0, math.inf], [0.5, 0.0, 0.5]),
        ([-2.0, -1.0, -1.5], [0.0, 1.0, 0.0]),
        ([0.0, 0.0, 0.0], [1 / 3] * 3),
    ):
        scores = np.array(given)
        play_largest(scores, 1.0)
        np.testing.assert_allclose(scores, expected)
