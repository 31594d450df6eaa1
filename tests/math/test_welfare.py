"""Kernels of the welfare against the oracle, against exact fractions, and compiled against interpreted."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair.jit import compiled
from alphafair.math import welfare as kernels
from tests import naive_alpha

inf = math.inf
NEAR_1 = (1 - 1e-3, 1 - 1e-9, 1 - 1e-12, 1 - 2**-53, 1.0, 1 + 2**-52, 1 + 1e-12, 1 + 1e-9, 1 + 1e-3)
ALPHAS = (0.0, 1e-9, 0.25, 0.5, 0.9, *NEAR_1, 1.5, 2.0, 5.0, 16.0, 64.0, 1e3, inf)
some = settings(max_examples=200, deadline=None, derandomize=True)
alphas = st.sampled_from(ALPHAS) | st.floats(0, 100)
levels = st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=8)


def ones(values: Any) -> np.ndarray:
    return np.ones(len(values))


def test_golden_values() -> None:
    values = {
        0.0: 4.666666666666667, 0.5: 4.0, 1.0: 3.301927248894627, 2.0: 108 / 49, 5.0: 1.314742013935084,
        64.0: 1.017591224960223, inf: 1.0, 1 - 1e-12: 3.301927248895985, 1 + 1e-12: 3.301927248893268,
    }  # fmt: skip
    y = np.array([1.0, 4.0, 9.0])
    for alpha, value in values.items():
        assert kernels.welfare(y, ones(y), alpha) == pytest.approx(value, rel=1e-15 * 8)
    entitled, s = np.array([2.0, 3.0, 3.0]), np.array([1.0, 2.0, 3.0])
    for alpha, value in {
        0.0: 2.833333333333333, 1.0: 2.803965795552201, 2.0: 2.769230769230769, 5.0: 2.636225726782154, inf: 2.0,
    }.items():  # fmt: skip
        assert kernels.welfare(entitled, s, alpha) == pytest.approx(value, rel=1e-14)
    for alpha, value in {
        0.5: 12.14213562373095, 1.0: 3.912023005428146, 1 + 1e-9: 3.912022997776184, 2.0: 0.98, 5.0: 0.24999996,
    }.items():  # fmt: skip
        assert kernels.ln_alpha(50.0, alpha) == pytest.approx(value, rel=1e-14)


@some
@given(levels, alphas, st.integers(0, 2**32 - 1))
def test_welfare_agrees_with_the_oracle(values: list[float], alpha: float, seed: int) -> None:
    y, s = np.array(values), np.random.default_rng(seed).choice([1e-6, 0.5, 1.0, 3.0, 1e6], len(values))
    found = kernels.welfare(y, s, alpha)
    assert found == pytest.approx(naive_alpha.welfare(y * s, alpha, s), rel=1e-13)
    assert y.min() * (1 - 1e-14) <= found <= y.max() * (1 + 1e-14)


@pytest.mark.parametrize("alpha", [2, 3, 5, 16])
def test_welfare_agrees_with_exact_fractions(alpha: int) -> None:
    """At whole numbers the sum is rational; only its root is not."""
    y = [Fraction(7, 4), Fraction(5), Fraction(1000, 8), Fraction(3, 2)]
    mean = sum(v ** (1 - alpha) for v in y) / len(y)
    found = kernels.welfare(np.array([float(v) for v in y]), np.ones(4), float(alpha))
    assert float(Fraction(found) ** (1 - alpha) / mean) == pytest.approx(1, rel=1e-15 * 8 * alpha)


def test_welfare_is_continuous_at_1() -> None:
    y = np.array([1.0, 50.0, 3.0, 2e5])
    found = [kernels.welfare(y, ones(y), alpha) for alpha in NEAR_1]
    assert all(later <= earlier * (1 + 1e-15) for earlier, later in itertools.pairwise(found))
    assert found[3] == pytest.approx(found[4], rel=1e-14)
    assert found[5] == pytest.approx(found[4], rel=1e-14)
    logs = [kernels.ln_alpha(50.0, alpha) for alpha in NEAR_1]
    assert logs[3] == pytest.approx(math.log(50.0), rel=1e-14)
    assert logs == sorted(logs, reverse=True)
    assert kernels.ln_alpha(0.1, 1e3) == -inf


def test_accounts_far_apart() -> None:
    y = np.array([1e-150, 1.0, 1e250])
    assert kernels.welfare(y, ones(y), 0.0) == pytest.approx(1e250 / 3, rel=1e-13)
    assert kernels.welfare(y, ones(y), 1.0) == pytest.approx(10 ** (100 / 3), rel=1e-13)
    assert kernels.welfare(y, ones(y), 2.0) == pytest.approx(3e-150, rel=1e-13)
    assert kernels.welfare(y, ones(y), inf) == 1e-150
    assert kernels.welfare(np.array([5.0]), np.array([2.0]), 0.3) == 5.0
    equal = np.full(7, 0.1)
    assert all(kernels.welfare(equal, ones(equal), alpha) == 0.1 for alpha in ALPHAS)


def test_a_poor_account_of_little_weight() -> None:
    """Its weight is all that is left of the sum: no digit of it may be lost."""
    y, s = np.array([1.0, 1e6]), np.array([1e-6, 1e6])
    for alpha in (2.0, 5.0, 64.0):
        assert kernels.welfare(y, s, alpha) == pytest.approx(naive_alpha.welfare(y * s, alpha, s), rel=1e-13)


@some
@given(levels, st.sampled_from([0.0, 0.5, 1.0, 2.0, 16.0, 64.0, inf]))
def test_relative_slopes(values: list[float], alpha: float) -> None:
    y = np.array(values)
    out = np.empty(len(y))
    assert kernels.relative_slopes(y, alpha, out) == y.min()
    assert out.max() == 1.0
    assert (out[y == y.min()] == 1.0).all()
    if alpha < inf:
        expected = np.exp(-alpha * (np.log(y) - np.log(y.min())))
        np.testing.assert_allclose(out, expected, rtol=1e-12 * max(1.0, alpha), atol=1e-300)
        np.testing.assert_allclose(out, naive_alpha.relative_slopes(y, alpha), rtol=1e-13, atol=1e-300)
    else:
        assert out.tolist() == (y == y.min()).astype(float).tolist()


@some
@given(levels, st.floats(kernels.STEEP, 64), st.integers(0, 2**32 - 1))
def test_welfare_from_slopes_that_are_known(values: list[float], alpha: float, seed: int) -> None:
    y, s = np.array(values), np.random.default_rng(seed).choice([0.5, 1.0, 3.0], len(values))
    unit = 2.0 ** math.floor(math.log2(y.min()))
    slopes = (y / unit) ** -alpha
    found = kernels.welfare_of_slopes(y, s, slopes, unit, alpha)
    assert found == pytest.approx(naive_alpha.welfare(y * s, alpha, s), rel=2e-13)


def test_slopes_of_the_rich_vanish() -> None:
    out = np.empty(3)
    kernels.relative_slopes(np.array([1.0, 2.0, 1e7]), 64.0, out)
    assert out.tolist() == [1.0, 2.0**-64, 0.0]


@some
@given(levels, st.sampled_from([0.0, 0.5, 0.9, 1.0, 1.5, 2.0, 16.0, 64.0]), st.integers(0, 2**32 - 1))
def test_prices_are_the_gradient(values: list[float], alpha: float, seed: int) -> None:
    y, s = np.array(values), np.random.default_rng(seed).choice([0.5, 1.0, 3.0], len(values))
    out = np.empty(len(y))
    mean = kernels.prices(y, s, alpha, out)
    assert mean == kernels.welfare(y, s, alpha)
    assert out @ (y * s) == pytest.approx(mean, rel=1e-12)  # W scales with R: <dW, R> = W
    np.testing.assert_allclose(out, naive_alpha.prices(y * s, alpha, s), rtol=1e-12, atol=1e-300)
    if alpha > 1 and (s == 1).all():
        assert out.max() <= len(y) ** (1 / (alpha - 1)) * (1 + 1e-12)


def test_prices_at_infinity_are_those_of_the_poorest() -> None:
    out = np.empty(3)
    assert kernels.prices(np.array([4.0, 2.0, 2.5]), np.array([1.0, 2.0, 1.0]), inf, out) == 2.0
    assert out.tolist() == [0.0, 0.25, 0.0]


def test_columns_that_share_an_account_share_its_weight() -> None:
    """A group of two arms with entitlement 3 is two columns of weight 1.5."""
    for alpha in (0.5, 1.0, 2.0, 16.0):
        whole = kernels.welfare(np.array([4.0, 7.0]), np.array([3.0, 1.0]), alpha)
        parts = kernels.welfare(np.array([4.0, 4.0, 7.0]), np.array([1.5, 1.5, 1.0]), alpha)
        assert parts == pytest.approx(whole, rel=1e-15 * 4)


@pytest.mark.compiled
def test_compiled_and_interpreted_give_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    fast = {name: compiled(getattr(kernels, name)) for name in ("welfare", "ln_alpha", "relative_slopes", "prices")}
    known = compiled(kernels.welfare_of_slopes)
    for _ in range(300):
        n, alpha = int(rng.integers(1, 20)), float(rng.choice([*ALPHAS[:-1], 200 * rng.random()]))
        y, s = np.exp(rng.uniform(-3, 14, n)), np.exp(rng.uniform(-2, 2, n))
        one, other = np.empty(n), np.empty(n)
        assert kernels.welfare(y, s, alpha) == fast["welfare"](y, s, alpha)
        assert kernels.ln_alpha(y[0], alpha) == fast["ln_alpha"](y[0], alpha)
        assert kernels.relative_slopes(y, alpha, one) == fast["relative_slopes"](y, alpha, other)
        assert one.tobytes() == other.tobytes()
        assert kernels.prices(y, s, alpha, one) == fast["prices"](y, s, alpha, other)
        assert one.tobytes() == other.tobytes()
        steep = max(alpha, kernels.STEEP)
        assert kernels.welfare_of_slopes(y, s, one, y.min(), steep) == known(y, s, one, y.min(), steep)
    assert kernels.welfare(y, s, inf) == fast["welfare"](y, s, inf)
