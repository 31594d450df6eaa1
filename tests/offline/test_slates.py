"""The optimum with several arms per decision: reference values, a second solver, its certificate."""

from __future__ import annotations

import json
import math
import warnings
from typing import Any

import numpy as np
import pytest

from alphafair import Groups, Stream, metrics, offline_curve, offline_optimum, offline_welfare_curve, present_arms
from alphafair.errors import InvalidArgument
from alphafair.offline import context_reward_totals, primal_dual
from tests import ROOT

GOLDEN: list[dict[str, Any]] = json.loads((ROOT / "tests/fixtures/golden_slates.json").read_text())["certificates"]


def groups_of(case: dict[str, Any]) -> Groups | None:
    labels, s = case["group_of_arm"], case["entitlements"]
    if labels is None and s is None and not case["pull_floor"]:
        return None
    return Groups(labels, dict(enumerate(s)) if s else None, pull_floor=case["pull_floor"] or None)


@pytest.mark.parametrize("number", range(len(GOLDEN)))
def test_reference_values(number: int) -> None:
    case = GOLDEN[number]
    alpha, groups, k = float(case["alpha"]), groups_of(case), case["k"]
    best = offline_optimum(case["totals"], alpha, k=k, groups=groups)
    assert best.certified
    assert best.welfare == pytest.approx(case["welfare_of_optimum"], rel=2e-9)
    found = metrics.certificates(case["totals"], case["accounts"], alpha, k=k, groups=groups)
    achieved = metrics.welfare(case["accounts"], alpha, groups=groups)
    assert achieved == pytest.approx(case["welfare"], rel=1e-12)
    if alpha < math.inf:
        assert found.welfare_ratio == pytest.approx(case["welfare_ratio_bound"], rel=1e-12)
    assert found.boxed_welfare_ratio <= found.welfare_ratio


def problem(seed: int) -> tuple[np.ndarray, np.ndarray, Groups | None, np.random.Generator]:
    """Totals with zeros, k of every row, and groups, entitlements or a floor."""
    rng = np.random.default_rng([5, seed])
    n, m = int(rng.integers(3, 10)), int(rng.integers(1, 12))
    totals = rng.random((m, n)) * 10 ** rng.uniform(0, 3)
    totals[rng.random((m, n)) < 0.2] = 0.0
    k = rng.integers(1, n + 1, m) if seed % 2 else np.full(m, rng.integers(2, n + 1))
    labels = [str(label) for label in rng.integers(0, n, n)] if seed % 3 else None
    s = {label: float(rng.uniform(0.3, 3)) for label in labels} if labels and seed % 3 == 2 else None
    floor = float(rng.uniform(0.0, 1 / n)) if seed % 4 == 1 else None
    plain = labels is None and floor is None
    return totals, k, None if plain else Groups(labels, s, pull_floor=floor), rng


def by_cvxpy(totals: np.ndarray, k: np.ndarray, groups: Groups | None, alpha: float) -> float:
    """The welfare of the same problem, by Clarabel."""
    import cvxpy as cp

    m, n = totals.shape
    resolved = (groups or Groups()).for_arms(n)
    of, s, nu = resolved.of_arms, resolved.entitlements, resolved.arm_floor
    x = cp.Variable((m, n))
    arms = cp.sum(cp.multiply(totals, x), axis=0)
    y = cp.hstack([(1 + cp.sum(arms[np.flatnonzero(of == g)])) / s[g] for g in range(len(s))])
    share = s / s.sum()
    if alpha == math.inf:
        objective = cp.min(y)
    elif alpha == 1.0:
        objective = share @ cp.log(y)
    elif alpha == 0.0:
        objective = share @ y
    else:
        objective = share @ cp.power(y, 1 - alpha) / (1 - alpha)
    task = cp.Problem(cp.Maximize(objective), [x >= nu, x <= 1, cp.sum(x, axis=1) == k])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task.solve(solver=cp.CLARABEL)
    inside = np.clip(x.value, nu, 1.0)
    accounts = 1 + np.bincount(of, (totals * inside).sum(axis=0), len(s))
    return float(metrics.welfare(accounts, alpha, groups=groups))


@pytest.mark.parametrize("seed", range(40))
def test_the_optimum_of_a_second_solver(seed: int) -> None:
    totals, k, groups, _ = problem(seed)
    for alpha in (0.0, 0.5, 1.0, 2.0, math.inf):
        best = offline_optimum(totals, alpha, k=k, groups=groups)
        other = by_cvxpy(totals, k, groups, alpha)
        assert best.certified
        assert best.welfare >= other * (1.0 - 1e-6)
        if alpha <= 1.0 or alpha == math.inf:
            assert best.welfare <= other * (1.0 + 1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9, 0.999, 0.9995, 1.0, 1.001, 2.0, 5.0, 16.0, 64.0, 200.0, math.inf])
def test_it_is_certified_and_feasible(alpha: float) -> None:
    for seed in range(8):
        totals, k, groups, rng = problem(100 + seed)
        nu = 0.0 if groups is None else (groups.pull_floor or 0.0)
        best = offline_optimum(totals, alpha, k=k, groups=groups)
        x = best.distributions
        assert best.certified
        np.testing.assert_allclose(x.sum(axis=1), k, rtol=1e-9)
        assert nu * (1 - 1e-9) <= x.min() <= x.max() <= 1.0 + 1e-12
        np.testing.assert_allclose(best.cumulative_rewards, (totals * x).sum(axis=0), rtol=1e-12)
        # no other policy is better, and certificates of any run hold
        free = rng.random(totals.shape)
        for j, each in enumerate(k):
            free[j] = (
                nu + (1 - nu) * primal_dual.greedy(free[j][None], np.array([(each - len(x[0]) * nu) / (1 - nu)]))[0]
            )
        resolved = (groups or Groups()).for_arms(len(x[0]))
        accounts = resolved.accounts(1.0 + (totals * free).sum(axis=0))
        assert metrics.welfare(accounts, alpha, groups=groups) <= best.welfare * (1.0 + best.welfare_gap)
        found = metrics.certificates(totals, accounts, alpha, k=k, groups=groups)
        assert found.boxed_welfare_ratio * metrics.welfare(accounts, alpha, groups=groups) >= best.welfare * (1 - 1e-9)


def test_a_wrong_constant_would_be_noticed() -> None:
    """The certificate of the optimum is tight: with one arm less, with w of another exponent, it fails."""
    totals, k = np.random.default_rng(6).random((9, 7)) * 100, 3
    best = offline_optimum(totals, 0.5, k=k)
    w = best.accounts**-0.5
    money = float((w * best.accounts).sum())

    def most(kappa: float, prices: np.ndarray) -> float:
        return float(prices.sum() + primal_dual.topsum(totals * prices, np.full(len(totals), kappa)).sum())

    assert most(k, w) == pytest.approx(money, rel=1e-8)
    assert most(k - 1, w) < money * (1 - 1e-3)
    assert most(k, best.accounts**-0.6) > (best.accounts**0.4).sum() * (1 + 1e-6)


def test_one_arm_is_the_landed_path() -> None:
    totals, _, groups, _ = problem(1)
    for k in (1, np.ones(len(totals), dtype=int)):
        assert (
            offline_optimum(totals, 0.5, k=k, groups=groups).value == offline_optimum(totals, 0.5, groups=groups).value
        )


def test_rows_of_zeros_and_of_all_arms() -> None:
    best = offline_optimum([[0.0, 0.0, 0.0], [5.0, 1.0, 2.0], [4.0, 2.0, 1.0]], 0.5, k=[2, 3, 7])
    np.testing.assert_allclose(best.distributions, [[2 / 3] * 3, [1.0] * 3, [1.0] * 3])
    assert best.accounts.tolist() == [10.0, 4.0, 4.0]
    assert best.certified


def test_arms_that_come_later() -> None:
    rewards = np.random.default_rng(1).random((30, 4))
    stream = Stream.from_arrays([0, 1] * 15, rewards, arrivals=[0, 0, 0, 15])
    totals, present = context_reward_totals(stream), present_arms(stream)
    for alpha in (0.5, 2.0):
        best = offline_optimum(totals, alpha, k=3, present=present, groups=Groups(pull_floor=0.05))
        assert best.certified
        np.testing.assert_allclose(best.distributions[:2], [[1.0, 1.0, 1.0, 0.0]] * 2)
        np.testing.assert_allclose(best.distributions.sum(axis=1), 3.0)
        two = offline_optimum(totals, alpha, k=2, present=present, groups=Groups(pull_floor=0.05))
        assert not two.distributions[:2, 3].any()
        assert two.welfare < best.welfare
        steps = list[int]()
        value, gap = offline_curve(stream, alpha, [10, 30], k=2, progress=steps.append)
        assert steps == [1, 1]
        alone = offline_optimum(totals, alpha, k=2, present=present)
        assert value[-1] == pytest.approx(alone.value)
        assert gap[-1] <= max(1e-9 * abs(alone.value), alone.gap)
        assert offline_welfare_curve(stream, alpha, [30], k=2)[0][0] == pytest.approx(alone.welfare)
        metrics.certificates(totals, alone.accounts, alpha, k=2, present=present)


def test_the_same_policy_with_one_arm_per_decision() -> None:
    """The slate solver at k = 1 finds what the landed one finds."""
    for alpha in (0.0, 0.5, 1.0, 3.0, math.inf):
        totals, _, _, _ = problem(3)
        m, n = totals.shape
        plain = offline_optimum(totals, alpha)
        found = primal_dual.solve(totals, np.ones(n), np.arange(n), np.ones(n), np.ones(m), alpha, 1e-9)
        assert metrics.welfare(found.accounts, alpha) == pytest.approx(plain.welfare, rel=3e-9)


@pytest.mark.parametrize("alpha", [0.5, math.inf])
def test_a_step_that_fails_leaves_the_best_so_far(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A singular system, or numbers that are none, end the search; the gap is valid, and the user is told."""
    totals, plain = np.random.default_rng(1).random((4, 5)) * 10, np.linalg.solve

    def singular(matrix: Any, right: Any) -> Any:
        raise np.linalg.LinAlgError

    for broken in (singular, lambda matrix, right: plain(matrix, right) * np.nan):
        monkeypatch.setattr(np.linalg, "solve", broken)
        with pytest.warns(UserWarning, match="certified to a relative gap"):
            found = offline_optimum(totals, alpha, k=2)
        monkeypatch.setattr(np.linalg, "solve", plain)
        best = offline_optimum(totals, alpha, k=2)
        assert not found.certified
        assert found.welfare <= best.welfare <= found.welfare * (1.0 + found.welfare_gap)


def test_refusals() -> None:
    totals = np.ones((2, 3))
    with pytest.raises(InvalidArgument, match="k must be 1 with a pull_floor by group"):
        offline_optimum(totals, 0.5, k=2, groups=Groups(["a", "a", "b"], pull_floor={"a": 0.1}))
    for k in (0, 1.5, [1, 2, 3], [0, 2]):
        with pytest.raises((InvalidArgument, TypeError)):
            offline_optimum(totals, 0.5, k=k)
