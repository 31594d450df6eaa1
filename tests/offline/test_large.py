"""The optimum of many contexts and arms, by candidates and LAPACK, against the compiled loops and dense algebra.

`SIZE` is moved, so that small problems are solved in the way of large ones.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from alphafair import Groups, offline_optimum
from alphafair.offline import CertificateWarning, hindsight, large
from tests.offline.test_optimum import recomputed

RNG = np.random.default_rng(35)
SPARSE = np.zeros((30, 25))
SPARSE[RNG.integers(0, 30, 80), RNG.integers(0, 25, 80)] = 100.0 * RNG.random(80)
PROBLEMS = {
    "square": RNG.random((20, 20)) * 50.0,
    "integers": RNG.integers(0, 3, (24, 20)).astype(float),
    "all alike": np.ones((12, 10)),
    "mostly zero": SPARSE,
    "wide": RNG.pareto(1.0, (10, 60)),
    "tall": RNG.pareto(1.0, (90, 12)),
    "of every size": 10.0 ** RNG.uniform(0.0, 8.0, (15, 20)),
    "decided": np.diag(np.arange(1.0, 11.0)),
    "tiny": 1e-8 * RNG.random((12, 10)),
}


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "SIZE", 2)
    monkeypatch.setattr(large, "LAPACK_SIZE", 2)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("alpha", [0.02, 0.5, 0.9, 1.0, 2.0])
def test_both_sides_of_the_crossover_agree(name: str, alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    totals = PROBLEMS[name]
    loops = offline_optimum(totals, alpha)
    monkeypatch.setattr(large, "SIZE", 2)
    monkeypatch.setattr(large, "LAPACK_SIZE", 15)
    monkeypatch.setattr(hindsight, "solve", None)  # it is not needed
    lapack = offline_optimum(totals, alpha)
    assert loops.certified
    assert lapack.certified
    assert lapack.welfare == pytest.approx(loops.welfare, rel=2e-9)
    assert abs(lapack.value - loops.value) <= lapack.gap + loops.gap
    np.testing.assert_allclose(lapack.distributions.sum(axis=1), 1.0, rtol=1e-12)
    assert (lapack.distributions >= 0.0).all()
    if alpha < 1.0:
        value, gap = recomputed(totals, lapack.distributions, alpha)
        assert lapack.value == pytest.approx(value, rel=1e-12)
        assert lapack.gap >= gap - 1e-13 * value


def test_groups_and_accounts_that_are_not_one(small_is_large: None) -> None:
    totals, groups = PROBLEMS["wide"], Groups(np.arange(60) % 7, entitlements=range(1, 8), pull_floor=0.001)
    best = offline_optimum(totals, 0.9, groups=groups, initial=5.0)
    large.SIZE = 10**9  # the fixture restores it
    loops = offline_optimum(totals, 0.9, groups=groups, initial=5.0)
    assert best.value == pytest.approx(loops.value, rel=2e-9)
    np.testing.assert_allclose(best.accounts, loops.accounts, rtol=1e-4)


def test_what_is_left_out_is_found_by_the_certificate(small_is_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """With rough prices and no margin the first candidates are wrong: rounds add the missing ones."""
    monkeypatch.setattr(large, "RESPONSES", 0)
    monkeypatch.setattr(large, "LEAST_MARGIN", 1e-3)
    monkeypatch.setattr(large, "MOST_ROUNDS", 30)
    rounds: list[int] = []
    follow = large.follow

    def counted(some: large.Candidates, *rest: Any) -> Any:
        rounds.append(len(some.weight))
        return follow(some, *rest)

    monkeypatch.setattr(large, "follow", counted)
    monkeypatch.setattr(hindsight, "solve", None)
    assert offline_optimum(PROBLEMS["square"], 0.9).certified
    assert len(rounds) > 1
    assert rounds == sorted(rounds)


@pytest.mark.parametrize("failure", ["breaks down", "too few rounds", "too few steps"])
def test_where_it_fails_the_loops_answer(failure: str, small_is_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    change = {
        "breaks down": (large, "_cholesky", lambda square: np.full_like(square, np.nan)),
        "too few rounds": (large, "MOST_ROUNDS", 0),
        "too few steps": (large, "MOST_STEPS", 2),
    }[failure]
    monkeypatch.setattr(*change)
    best = offline_optimum(PROBLEMS["square"], 0.9)
    assert best.certified
    value, _ = recomputed(PROBLEMS["square"], best.distributions, 0.9)
    assert best.value == pytest.approx(value, rel=1e-12)


def test_a_singular_system_is_given_a_slightly_larger_diagonal() -> None:
    square = np.ones((3, 3))
    lower = large._cholesky(square.copy())
    np.testing.assert_allclose(lower @ lower.T, square, atol=1e-8)
    with pytest.raises(np.linalg.LinAlgError):
        large._cholesky(-np.eye(2))


def test_an_indefinite_system_ends_the_steps(small_is_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def indefinite(square: np.ndarray) -> np.ndarray:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(large, "_cholesky", indefinite)
    assert offline_optimum(PROBLEMS["square"], 0.9).certified


@pytest.mark.parametrize("lapack", [2, 100])
@pytest.mark.parametrize("blas", [False, True])
@pytest.mark.parametrize("shape", [(9, 5), (5, 9)])
def test_the_newton_system_is_that_of_the_docstring(
    shape: tuple[int, int], blas: bool, lapack: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large, "LAPACK_SIZE", lapack)
    monkeypatch.setattr(large, "SPARSE", 0.0 if blas else 1.0)
    monkeypatch.setattr(large, "BLOCK", 2)
    m, n = shape
    rng = np.random.default_rng(1)
    kept = rng.random(shape) < 0.7
    kept[:, 0], kept[0] = True, True
    kept[1, 2:] = False
    row, arm = np.nonzero(kept)
    weight, x, z, stiffness = rng.random((4, len(row)))[:, :] + 0.1
    first = np.searchsorted(row, np.arange(m))
    newton = large._Newton(large.Candidates(row, arm, weight, first), m, n)
    newton.factor(x, z, stiffness[:n])
    by_row, by_arm = rng.random(m), rng.random(n)
    dmu, dw = newton.solve(by_row.copy(), by_arm.copy())
    d, flow = np.zeros(shape), np.zeros(shape)
    d[row, arm], flow[row, arm] = x / z, weight * x / z
    whole = np.zeros((n + m, n + m))
    whole[:n, :n] = np.diag(stiffness[:n] + np.bincount(arm, weight**2 * x / z, n))
    whole[:n, n:], whole[n:, :n] = -flow.T, -flow
    whole[n:, n:] = np.diag(d.sum(axis=1))
    expected = np.linalg.solve(whole, np.append(by_arm, by_row))
    np.testing.assert_allclose(np.append(dw, dmu), expected, rtol=1e-9)


def test_a_tolerance_that_cannot_be_reached_is_reported(small_is_large: None) -> None:
    with pytest.warns(CertificateWarning, match="tolerance=0"):
        best = offline_optimum(PROBLEMS["tall"], 0.5, tolerance=0.0)
    assert 0.0 < best.gap < 1e-9 * best.value


def test_no_floating_point_warning_escapes(small_is_large: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for totals in PROBLEMS.values():
            assert offline_optimum(totals, 2.0).certified
