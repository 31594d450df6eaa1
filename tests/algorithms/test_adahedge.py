"""The share by AdaHedge against the oracle, its bound, and compiled against interpreted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair.jit import compiled
from alphafair.math import adahedge
from tests import naive_alpha


def gains(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drift = rng.choice([-0.5, -0.1, 0.0, 0.1, 0.5], 4)
    return np.concatenate([rng.normal(mean, rng.choice([0.1, 1.0]), 60) for mean in drift])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-130, 1e-6, 1.0, 1e9]))
def test_shares_are_those_of_the_oracle_and_keep_the_bound(seed: int, scale: float) -> None:
    ahead = gaps = mixed = 0.0
    oracle = naive_alpha.AdaHedge()
    for d in (scale * gains(seed)).tolist():
        h = adahedge.share(ahead, gaps)
        assert h == pytest.approx(oracle.share, rel=1e-9, abs=1e-300)
        mixed += h * d
        gaps = adahedge.add_gap(ahead, gaps, d)
        ahead += d
        oracle.step(d)
        assert gaps == pytest.approx(oracle.gaps, rel=1e-10)
        assert max(ahead, 0.0) - mixed <= 2 * gaps * (1 + 1e-12)


def test_the_first_gain_splits_the_difference() -> None:
    assert adahedge.share(0.0, 0.0) == 0.5
    assert adahedge.add_gap(0.0, 0.0, 3.0) == adahedge.add_gap(0.0, 0.0, -3.0) == 1.5
    assert adahedge.add_gap(0.0, 0.0, 0.0) == 0.0


def test_a_power_of_two_changes_no_share() -> None:
    one = other = (0.0, 0.0)
    for d in gains(1).tolist():
        one = one[0] + d, adahedge.add_gap(*one, d)
        small = 2.0**-60 * d
        other = other[0] + small, adahedge.add_gap(*other, small)
        assert adahedge.share(*one) == adahedge.share(*other)


def test_one_that_is_always_ahead_takes_all() -> None:
    ahead, gaps = 0.0, 0.0
    for _ in range(2000):
        gaps = adahedge.add_gap(ahead, gaps, 1.0)
        ahead += 1.0
    assert adahedge.share(ahead, gaps) > 1 - 1e-12
    assert gaps < 2.0
    assert adahedge.share(-1e300, 1.0) == pytest.approx(0.0, abs=1e-300)
    assert adahedge.share(1e300, 1.0) == 1.0
    assert adahedge.add_gap(1e300, 1.0, 1e6) == pytest.approx(1.0)


@pytest.mark.compiled
def test_compiled_and_interpreted_give_the_same_bits() -> None:
    share, add_gap = compiled(adahedge.share), compiled(adahedge.add_gap)
    ahead = gaps = 0.0
    for d in gains(2).tolist():
        assert adahedge.share(ahead, gaps) == share(ahead, gaps)
        assert adahedge.add_gap(ahead, gaps, d) == add_gap(ahead, gaps, d)
        ahead, gaps = ahead + d, add_gap(ahead, gaps, d)
