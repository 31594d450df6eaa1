"""Capped distributions and slates: reference values, naive forms, and frequencies in exact bands."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from alphafair.jit import repeated
from alphafair.math import capped, slates
from tests import FULL, ROOT, naive_slates

GOLDEN: dict[str, list[dict[str, Any]]] = json.loads((ROOT / "tests/fixtures/golden_slates.json").read_text())
ERROR = 1e-9  # that a band is left although the frequency is right


def drawn(p: Any, k: int, uniform: float, draw: Any = slates.draw_slate) -> list[int]:
    slate = np.zeros((2, len(p)), dtype=np.int64)
    assert draw(np.asarray(p), k, uniform, slate) == k
    found: list[int] = slate[0, :k].tolist()
    return found


def projected(v: Any, top: float) -> np.ndarray:
    out = np.empty(len(v))
    capped.settle_capped(np.asarray(v), top, out)
    return out


def barrier(distances: Any, top: float, guess: float = 1.0) -> tuple[float, np.ndarray]:
    out = np.empty(len(distances))
    return capped.capped_barrier(np.asarray(distances), top, guess, out), out


def restricted(p: Any, available: Any, k: int, floor: float) -> tuple[int, np.ndarray]:
    out = np.array(p)
    return slates.restrict(out, np.asarray(available, dtype=bool), k, floor), out


def test_reference_values() -> None:
    for case in GOLDEN["shuffle"]:
        order = np.zeros(case["n"], dtype=np.int64)
        slates.shuffle(case["uniform"], order)
        assert order.tolist() == case["order"]
    for case in GOLDEN["draw_slate"]:
        assert drawn(case["p"], case["k"], case["uniform"]) == case["arms"]
    for case in GOLDEN["project_capped"]:
        np.testing.assert_allclose(projected(case["v"], case["top"]), case["x"], rtol=0, atol=1e-12)
    for case in GOLDEN["barrier_capped"]:
        level, y = barrier(case["distances"], case["top"])
        assert level == pytest.approx(case["uncapped_level"], rel=1e-12)
        np.testing.assert_allclose(y, case["y"], rtol=1e-12)
    for case in GOLDEN["mask"]:
        k, p = restricted(case["p"], case["available"], case["k"], case["floor"])
        assert k == case["k_shown"]
        np.testing.assert_allclose(p, case["masked"], rtol=1e-12, atol=1e-15)


def problems(seed: int) -> tuple[np.random.Generator, int, int, float, float]:
    """A random generator, n, k, a floor and the cap that they give."""
    rng = np.random.default_rng([7, seed])
    n = int(rng.integers(2, 12))
    k = int(rng.integers(1, n + 1))
    floor = float(rng.choice([0.0, rng.uniform(0, 1 / n), 1 / n]))
    return rng, n, k, floor, capped.frame(n, k, floor)[1]


@pytest.mark.parametrize("seed", range(60))
def test_naive_forms_agree(seed: int) -> None:
    rng, n, k, floor, top = problems(seed)
    v = rng.normal(size=n) * 10 ** rng.uniform(-2, 2)
    if rng.random() < 0.3:
        v[: n // 2] = v[0]
    x = projected(v, top)
    np.testing.assert_allclose(x, naive_slates.project(v, top), atol=1e-11 * max(1.0, np.abs(v).max()))
    distances = np.abs(v) - np.abs(v).min()
    for guess in (1.0, 1e3):
        y = barrier(distances, top, guess)[1]
        np.testing.assert_allclose(y, naive_slates.leader(distances, top), rtol=1e-9)
    for point in (x, y):
        assert abs(point.sum() - 1) <= 1e-12
        assert 0.0 <= point.min() <= point.max() <= top * (1 + 1e-12)
    assert capped.bar(v, k, np.empty(n)) == np.sort(v)[::-1][k - 1]
    keep, top, spread = capped.frame(n, k, floor)
    p = np.array([capped.inclusion(n, k, floor, keep, each) for each in x])
    assert abs(p.sum() - k) <= 1e-12
    assert floor * (1 - 1e-12) <= p.min()
    other = projected(rng.normal(size=n), top)
    assert np.linalg.norm(x - other) <= np.sqrt(2) * spread * (1 + 1e-12)
    available = rng.random(n) < 0.7
    available[rng.integers(n)] = True
    k_shown, masked = restricted(p, available, k, floor)
    assert k_shown == min(k, available.sum())
    assert abs(masked.sum() - k_shown) <= 1e-13
    np.testing.assert_allclose(masked, naive_slates.restrict(p, available, k, floor), atol=1e-12)
    assert (masked[available] >= p[available] * (1 - 1e-12)).all()  # so least propensities stay valid


@pytest.mark.parametrize("seed", range(3))
def test_frequencies_are_exact(seed: int) -> None:
    """Of inclusion, and of every arm in every slot; and no pair of arms is excluded, as in a fixed order."""
    rng = np.random.default_rng([3, seed])
    n, n_draws = 6, 200_000 if FULL else 6_000
    k = 2 + seed
    p = k * (0.3 / n + 0.7 * projected(rng.normal(size=n) * 0.3, 1 / k))
    draw = repeated(slates.draw_slate, n_draws) if FULL else slates.draw_slate
    counts, pairs = np.zeros((k, n), dtype=int), np.zeros((n, n), dtype=int)
    for uniform in rng.random(n_draws).tolist():
        arms = drawn(p, k, uniform, draw)
        counts[range(k), arms] += 1
        pairs[np.ix_(arms, arms)] += 1
    for found, chance in ((counts.sum(axis=0), p), (counts, np.tile(p / k, (k, 1)))):
        low, high = binom.interval(1 - ERROR, n_draws, np.minimum(chance, 1.0))
        assert ((low <= found) & (found <= high)).all()
    assert (pairs > 0).all()


def test_a_slate_when_rounding_leaves_arms_out() -> None:
    assert sorted(drawn([0.5, 0.5 - 1e-13, 0.0, 0.5, 0.5], 2, 1 - 1e-16)).count(2) == 0
    assert len({*drawn([1.0 - 1e-12, 1.0 - 1e-12, 0.0], 2, 1.0 - 2**-53)}) == 2
    slate = np.zeros((2, 3), dtype=np.int64)
    assert slates.draw_slate(np.array([0.0, 1.0, 0.0]), 2, 0.5, slate) == 1  # damaged: callers check the number
    assert slates.draw_slate(np.full(3, np.nan), 2, 0.5, slate) == 0


def test_extreme_distances_keep_the_sum() -> None:
    for distances in ([0.0, 0.0, 1e290, 1e290], [0.0, 1e-12, 1e100, 1e300], [0.0, 0.0, 0.0, 1e305]):
        _, y = barrier(distances, 0.5)
        assert abs(y.sum() - 1.0) <= 1e-12
        assert (y >= 0.0).all()
    assert projected([5.0, 5.0, 1.0, 0.0], 0.5).tolist() == [0.5, 0.5, 0.0, 0.0]
