"""Shared mathematics, function by function: properties first, then the edges, then an independent answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair.algorithms import FairCB, fair_cb
from alphafair.algorithms.fair_cb import C, K
from alphafair.jit import repeated
from alphafair.math import log_barrier, simplex, utility
from alphafair.math.distributions import draw_arm, mask_distribution
from alphafair.math.gradient_ascent import added_bound
from alphafair.policy.memory import Memory, settings_vector
from tests import naive

some = settings(max_examples=60, deadline=None, derandomize=True)
finite = st.floats(-1e6, 1e6, allow_nan=False)


def projected(v: np.ndarray) -> np.ndarray:
    out = np.empty_like(v)
    repeated(simplex.project, 10**6)(v, out)
    return out


@some
@given(st.lists(finite, min_size=1, max_size=40))
def test_projection_is_the_nearest_point(values: list[float]) -> None:
    v = np.array(values)
    x = projected(v)
    assert (x >= 0.0).all()
    assert math.fsum(x) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(x, naive.project_on_simplex(v - v.max()), atol=1e-12)
    support = x > 0
    theta = (v - x)[support]
    assert np.ptp(theta) <= 1e-9 * (1.0 + np.abs(v).max())
    assert (v[~support] <= theta.min() + 1e-9 * (1.0 + np.abs(v).max())).all()


@some
@given(st.integers(0, 2**32 - 1), st.sampled_from(["normal", "ties", "geometric", "even", "flat"]))
def test_many_arms_take_the_pivot_and_get_the_same(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    v = {
        "normal": rng.normal(size=1000),
        "ties": rng.integers(0, 3, 1000) / 500.0,
        "geometric": 1.5 ** -np.arange(1000.0),
        "even": np.arange(1000) / 1000.0,
        "flat": np.zeros(1000),
    }[kind]
    few = v - v.max()
    x = projected(v)
    theta = (few[x > 0.0].sum() - 1.0) / (x > 0.0).sum()
    assert simplex._split_by_pivot(few) == pytest.approx(theta, abs=1e-9)
    np.testing.assert_allclose(projected(v), naive.project_on_simplex(few), atol=1e-12)


def test_the_log_of_a_product_out_of_range() -> None:
    factors = np.array([1e80, 1e80, 1e-3, 2.0, 1e-90, 1e-90, 1e-90, 5.0, 3.0, 1e200, 1e200])
    assert log_barrier.log_product(factors) == pytest.approx(np.log(factors).sum(), rel=1e-14)


def test_a_point_of_the_simplex_stays() -> None:
    x = np.array([0.25, 0.0, 0.75])
    assert np.array_equal(projected(x), x)
    assert projected(np.array([1e20, 0.0])).tolist() == [1.0, 0.0]
    assert projected(np.array([-7.0])).tolist() == [1.0]


@some
@given(st.floats(1e-9, 1e9), st.floats(0.0, 0.999))
def test_utility_and_its_slope(x: float, alpha: float) -> None:
    assert utility.utility(x, alpha) == pytest.approx(x ** (1 - alpha) / (1 - alpha), rel=1e-14)
    assert utility.marginal_utility(x, alpha) == pytest.approx(x**-alpha, rel=1e-14)
    h = 1e-6 * x
    slope = (utility.utility(x + h, alpha) - utility.utility(x - h, alpha)) / (2 * h)
    assert utility.marginal_utility(x, alpha) == pytest.approx(slope, rel=1e-5)


@some
@given(st.floats(0.0, 0.999), st.floats(1e-9, 1.0), st.integers(0, 2**32 - 1))
def test_accounts_follow_the_power_exactly(alpha: float, size: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    names, rows = utility.ACCOUNT, np.zeros((utility.ACCOUNT.size, 3))
    utility.open_accounts(rows, 1.0, alpha)
    numbers = settings_vector(utility.SETTINGS, utility.account_settings(alpha))
    for _ in range(200):
        utility.earn(rows, numbers, 1.0, np.ones(3), size * rng.random(3))
    np.testing.assert_allclose(rows[names.slope], rows[names.account] ** -alpha, rtol=2e-15)


def test_draw_covers_the_unit_interval() -> None:
    p = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    drawn = [draw_arm(p, u) for u in (0.0, 0.2499, 0.25, 0.7499, 0.75, math.nextafter(1.0, 0.0))]
    assert drawn == [1, 1, 3, 3, 4, 4]
    short = np.array([0.3, 0.7 - 1e-9, 0.0])
    assert draw_arm(short, math.nextafter(1.0, 0.0)) == 1


def test_mask_falls_back_to_uniform() -> None:
    p = np.array([0.5, 0.5, 0.0, 0.0])
    mask_distribution(p, np.array([False, False, True, True]))
    assert p.tolist() == [0.0, 0.0, 0.5, 0.5]


@some
@given(
    st.integers(2, 30),
    st.floats(-1e12, 1e12),
    st.sampled_from([1e-6, 1.0, 1e6]),
    st.integers(0, 2**32 - 1),
)
def test_stability_is_the_maximum(n: int, loss: float, eta: float, seed: int) -> None:
    """No q of the simplex does better, and the oracle's q does as well."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(n)) * 0.99 + 0.01 / n
    best = log_barrier.stability(p, eta, 1, loss, *np.empty((2, n)))
    estimate = np.zeros(n)
    estimate[1] = loss
    scale = 1.0 + abs(loss) + n / eta
    assert best == pytest.approx(naive.log_barrier_stability(p, estimate, eta), rel=1e-9, abs=1e-12 * scale)
    for _ in range(5):
        q = rng.dirichlet(np.ones(n))
        worth = estimate @ (p - q) - (q / p - 1 - np.log(q / p)).sum() / eta
        assert worth <= best + 1e-12 * scale


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_the_search_for_the_stability_begins_beside_its_end(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first guess solves sum_k 1/(mu + v_k) = 1 up to the square of the move, for odd numbers of arms, too."""
    p = np.random.default_rng(n).dirichlet(np.ones(n))
    level, missed = log_barrier.level, []

    def recorded(v: np.ndarray, guess: float, tolerance: float, w: np.ndarray) -> float:
        missed.append(abs((1.0 / (guess + v)).sum() - 1.0))
        return float(level(v, guess, tolerance, w))

    monkeypatch.setattr(log_barrier, "level", recorded)
    for move in (1e-3, -1e-3):
        log_barrier.stability(p, 1.0, n - 1, move, *np.empty((2, n)))
    assert max(missed) < 1e-5, missed


def test_stability_of_many_arms_does_not_overflow() -> None:
    """The product inside the logarithm is cut into pieces before it leaves the range of doubles."""
    n = 3000
    p, estimate = np.full(n, 1.0 / n), np.zeros(n)
    for loss in (-1e6, 1e6):
        estimate[0] = loss
        ours = log_barrier.stability(p, 50.0, 0, loss, *np.empty((2, n)))
        assert ours == pytest.approx(naive.log_barrier_stability(p, estimate, 50.0), rel=1e-9)


def prepared(weights: np.ndarray, losses: np.ndarray, rate: float) -> tuple[Memory, np.ndarray]:
    """The memory of FairCB with these losses, and multipliers of 0."""
    m, n = losses.shape
    memory = FairCB(m, n, horizon=10)._memory
    memory.context_scalars[:, K.weight], memory.contexts[:, C.losses] = weights, losses
    dual, weigh = np.zeros(n), repeated(fair_cb._weigh, 10**6)
    for context in range(m):
        weigh(memory, context, rate, dual)
    return memory, dual


def solved(weights: np.ndarray, losses: np.ndarray, rate: float, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """P and the multipliers, from a cold start."""
    memory, dual = prepared(weights, losses, rate)
    repeated(fair_cb.solve, 10**6)(memory, rate, floor, dual)
    return memory.contexts[:, C.p], dual


def test_contexts_of_weight_0_are_ignored() -> None:
    """The floors are met by the others alone, and a context of weight 0 keeps its own exponential weights."""
    weights = np.array([0.6, 0.0, 0.4])
    p, dual = solved(weights, np.array([[0.0, 5.0, 3.0], [0.0, 1.0, 2.0], [4.0, 9.0, 0.0]]), 0.5, 0.2)
    assert dual.max() > 0.0
    assert (weights @ p).min() >= 0.2 - 1e-12
    np.testing.assert_allclose(p[1], naive.softmax(-0.5 * np.arange(3.0)), rtol=1e-12)


def assert_optimal(
    weights: np.ndarray, losses: np.ndarray, rate: float, floor: float, p: np.ndarray, dual: np.ndarray
) -> None:
    """Karush, Kuhn and Tucker: floors held, multipliers only where they are reached, P the softmax of both."""
    marginals = weights @ p
    assert marginals.min() >= floor - 1e-12
    assert (dual >= 0.0).all()
    assert marginals[dual > 0.0] == pytest.approx(floor, abs=1e-12)
    np.testing.assert_allclose(p, naive.softmax(weights[:, None] * dual - rate * losses), rtol=1e-9, atol=1e-15)


# Nearly all weights are 0 or 1 on the way, and steps bent by arms that they sent to 0 missed a floor by up to 0.2. In
# 1069 such a step is not uphill; in 338 rounding lets the last one no further.
@pytest.mark.parametrize("seed", [385376, 340552, 161283, 295696, 130725, 212248, 364986, 117172, 157462, 1069, 338])
def test_floors_hold_from_far_away(seed: int) -> None:
    """Losses that saturate every weight: one climb sees no slope, the one that scales them up does."""
    rng = np.random.default_rng(seed)
    m, n, size = int(rng.integers(1, 9)), int(rng.integers(2, 9)), 10.0 ** rng.uniform(-1, 4.2)
    floor = rng.choice([0.01, 0.5, 0.9, 0.99, 0.999, 0.9999]) / n
    weights, losses = rng.dirichlet(np.ones(m) * rng.choice([0.3, 1.0, 5.0])), size * rng.random((m, n))
    losses = np.round(losses) if rng.random() < 0.3 else losses
    assert_optimal(weights, losses, 0.7, floor, *solved(weights, losses, 0.7, floor))


@pytest.mark.compiled
def test_floors_hold_in_random_problems() -> None:
    rng = np.random.default_rng(0)
    for _ in range(3000):
        m, n = int(rng.integers(1, 9)), int(rng.integers(2, 9))
        weights, losses = rng.dirichlet(np.ones(m)), 1e4 * rng.random((m, n))
        floor = rng.choice([0.5, 0.999]) / n
        assert_optimal(weights, losses, 0.7, floor, *solved(weights, losses, 0.7, floor))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.integers(1, 8),
    st.integers(2, 7),
    st.sampled_from([0.01, 0.5, 0.9, 0.999]),
    st.sampled_from([0.1, 1.0, 10.0, 300.0]),
    st.integers(0, 2**32 - 1),
)
def test_floors_hold_and_nothing_is_left_to_gain(m: int, n: int, tight: float, size: float, seed: int) -> None:
    """Cold starts, far harder than a run's warm ones: optimal by its own conditions, and as good as the oracle."""
    rng = np.random.default_rng(seed)
    weights, losses = rng.dirichlet(np.ones(m)), size * rng.random((m, n))
    floor, rate = tight / n, 0.7
    p, dual = solved(weights, losses, rate, floor)
    assert_optimal(weights, losses, rate, floor, p, dual)
    oracle, _ = naive.pull_floor_step(losses, weights, floor, rate)

    def objective(q: np.ndarray) -> float:
        return float((q * losses).sum() + (q * np.log(np.maximum(q, 1e-300))).sum() / rate)

    assert objective(p) <= objective(oracle) + 1e-8 * (1.0 + abs(objective(oracle)))
    np.testing.assert_allclose(p, oracle, atol=1e-7)


def test_a_step_adds_to_the_bound_what_the_roots_grow_by() -> None:
    assert added_bound(2.0, 9.0, 16.0, 0.0) == 2.0 * 2.0 * (4.0 - 3.0)
    assert added_bound(2.0, 9.0, 16.0, 1.0) == 2.0 * (2.0 * (4.0 - 3.0) + 3.0)  # a new arm may have lost all of before
    assert added_bound(2.0, 9.0, 9.0, 1.0) == 0.0  # no step
