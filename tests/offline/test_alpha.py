"""The offline optimum for alpha above 0.999 and for max-min: closed forms, second solvers, properties, hard cases."""

from __future__ import annotations

import math
import warnings
from decimal import Decimal, localcontext
from itertools import pairwise
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from alphafair import (
    Groups,
    Stream,
    context_reward_totals,
    metrics,
    offline_curve,
    offline_optimum,
    offline_welfare_curve,
    present_arms,
    streams,
)
from alphafair.offline import CertificateWarning, hindsight, interior_point, steep
from tests import naive_alpha
from tests.naive_alpha import Problem

inf = math.inf
TWO = np.array([[8.0, 3.0], [2.0, 6.0]])


@pytest.mark.parametrize("alpha", [1.001, 1.0 + 1e-6, 1.0 + 1e-9, 1.0])
def test_the_gap_of_a_value_covers_its_rounding(alpha: float) -> None:
    """One arm has nothing to choose, so OPT is the value, which is huge near alpha = 1: only rounding is left."""
    excess = 0.0
    with localcontext(prec=60):
        for earned in (0.0, 0.1, 1.7, 12.3, 457.9):
            found, exponent = offline_optimum(np.array([[earned]]), alpha), 1 - Decimal(alpha)
            account = 1 + Decimal(earned)
            exact = account.ln() if alpha == 1.0 else account**exponent / exponent
            error = abs(Decimal(found.value) - exact)
            assert error <= Decimal(found.gap) < Decimal("1e-13") * (1 + abs(exact)), (earned, error, found.gap)
            excess = max(excess, float(error))
    assert found.gap > 0.0
    assert excess > 0.0, "no value was rounded, so this test shows nothing"


def test_golden_values() -> None:
    optima = {
        1: (7.937253933193772, (9, 7)),
        2: (7.875, (9, 7)),
        5: (7.712443789018393, (8.668400685540105, 7.124349742922461)),
        16: (7.596521461077043, (7.88649938278886, 7.417562731454178)),
        inf: (83 / 11, (83 / 11, 83 / 11)),
    }
    for alpha, (welfare, accounts) in optima.items():
        best = offline_optimum(TWO, alpha)
        assert best.certified
        assert best.welfare == pytest.approx(welfare, rel=1e-9)
        assert best.welfare * (1 - 1e-14) <= welfare <= best.welfare * (1 + best.welfare_gap)
        assert best.accounts == pytest.approx(np.array(accounts), rel=1e-6)  # the optimum is flat
    for alpha, ratio in {1: 1.449137674618944, 2: 1.44375, 5: 1.431182770726648}.items():
        assert metrics.welfare_ratio(offline_optimum(TWO, alpha).welfare, [6, 5], alpha) == pytest.approx(
            ratio, rel=1e-9
        )


def test_real_ratings() -> None:
    ratings = context_reward_totals(streams.movielens_small(), 5_000)
    values = {1: 96.9944851, 2: 94.3064032, 5: 92.6790579, 50: 91.7222695, inf: 91.6163761}
    for alpha, welfare in values.items():
        assert offline_optimum(ratings, alpha).welfare == pytest.approx(welfare, rel=1e-9)
    stationary = context_reward_totals(streams.stationary(60_000, 12, 10, seed=5))
    values = {1: 5333.85332, 2: 5323.23598, 5: 5316.70417, 50: 5312.78894, inf: 5312.35411}
    for alpha, welfare in values.items():
        assert offline_optimum(stationary, alpha).welfare == pytest.approx(welfare, rel=1e-9)


# random problems with zeros, groups, entitlements, floors, initial accounts, and arms that come and go


class Drawn:
    """A random problem, for the package and for the oracle."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n, n_epochs = int(rng.integers(2, 9)), int(rng.integers(1, 3))
        rows = int(rng.integers(1, 13)) * n_epochs
        self.totals = np.exp(rng.normal(3.0, 1.5, (rows, n))) * (rng.random((rows, n)) < 0.7)
        self.present = None
        if n_epochs > 1:
            self.present = rng.random((n_epochs, n)) < 0.8
            self.present[:, 0] = True
            self.totals[np.repeat(~self.present, rows // n_epochs, axis=0)] = 0.0
        labels = rng.integers(0, max(2, n - 2), n).tolist() if seed % 2 else list(range(n))
        names = list(dict.fromkeys(labels))
        entitlements = dict(zip(names, np.exp(rng.normal(0.0, 0.7, len(names))), strict=True)) if seed % 3 else {}
        floor = float(rng.choice([0.0, 0.5])) / n
        by_group = {names[0]: 0.3} if seed % 5 == 0 else {}
        floor = 0.0 if by_group else floor
        initial = 1.0 + 5.0 * rng.random(len(names)) if seed % 4 == 0 else np.ones(len(names))
        self.groups = Groups(labels, entitlements or None, by_group or floor)
        self.initial = initial
        self.problem = Problem(
            self.totals, labels, entitlements, floor, by_group, dict(zip(names, initial, strict=True)), self.present
        )

    def solve(self, alpha: float) -> Any:
        return offline_optimum(self.totals, alpha, initial=self.initial, groups=self.groups, present=self.present)


def clarabel(problem: Problem, alpha: float, accounts: np.ndarray) -> float:
    """The welfare of what CVXPY with Clarabel finds; 0 if it gives up.

    Levels are in units of those of `accounts`, and groups that nothing pays are left out: else it has no digits left at
    a large alpha.
    """
    merged, base = problem.reduced()
    paid = merged.any(axis=0)
    s, some = problem.s[paid], merged[:, paid]
    unit = naive_alpha.welfare(accounts[paid], alpha, s)
    x = cp.Variable(some.shape, nonneg=True)
    y = cp.multiply(1 / s / unit, base[paid] + cp.sum(cp.multiply(some, x), axis=0))
    each = cp.log(y) if alpha == 1 else cp.power(y, 1 - alpha) / (1 - alpha)
    program = cp.Problem(cp.Maximize(cp.sum(cp.multiply(s, each))), [cp.sum(x, axis=1) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of inaccuracy
        try:
            program.solve(solver=cp.CLARABEL)
        except cp.SolverError:
            return 0.0
    if x.value is None:
        return 0.0
    found = np.maximum(x.value, 0)
    found /= found.sum(axis=1, keepdims=True)
    reached = base.copy()
    reached[paid] += (some * found).sum(axis=0)
    return naive_alpha.welfare(reached, alpha, problem.s)


def compare(seed: int, alpha: float) -> float:
    """Check one optimum in itself, and return how far a second solver is below it."""
    drawn = Drawn(seed)
    best, problem = drawn.solve(alpha), drawn.problem
    accounts, s = best.accounts, problem.s
    assert best.certified
    assert best.welfare_gap <= 1e-9
    assert (best.distributions >= 0.0).all()
    np.testing.assert_allclose(best.distributions.sum(axis=1), 1.0, rtol=1e-12)
    assert best.welfare == pytest.approx(naive_alpha.welfare(accounts, alpha, s), rel=1e-12)
    earned = problem.a.copy()
    np.add.at(earned, problem.of_arm, best.cumulative_rewards)
    np.testing.assert_allclose(accounts, earned, rtol=1e-9)
    np.testing.assert_allclose(best.cumulative_rewards, (drawn.totals * best.distributions).sum(axis=0), rtol=1e-12)
    if alpha < inf:
        performance = metrics.alpha_performance(accounts, alpha, groups=drawn.groups)
        assert best.value == pytest.approx(performance, rel=1e-10, abs=1e-10)
        certificate = naive_alpha.certificate(problem, accounts, alpha)
        assert certificate.optimum <= best.welfare * (1 + 1e-9)
    second = naive_alpha.optimum(problem, alpha).welfare if alpha == inf else clarabel(problem, alpha, accounts)
    assert second <= best.welfare * (1 + best.welfare_gap + 1e-9 * (alpha == inf))
    return 1.0 - second / best.welfare


@pytest.mark.compiled
@pytest.mark.parametrize("alpha", [1.0, 2.0, 20.0, inf])
def test_second_solvers_agree(alpha: float) -> None:
    """CVXPY with Clarabel, and HiGHS at inf, on a sample; Clarabel may give up on single problems."""
    behind = sorted(compare(seed, alpha) for seed in range(12))
    assert behind[-3 if alpha < inf else -1] <= 1e-6


@pytest.mark.parametrize("alpha", [1 - 1e-9, 1.0, 1 + 1e-9, 1.5, 3.0, 7.0, 64.0, inf])
def test_the_oracle_agrees(alpha: float) -> None:
    for seed in range(1, 5):
        drawn = Drawn(seed)
        best, second = drawn.solve(alpha), naive_alpha.optimum(drawn.problem, alpha, 1e-9)
        assert best.welfare <= second.bound * (1 + 1e-12)
        assert second.welfare <= best.welfare * (1 + best.welfare_gap + 1e-9)


HARD = {
    "one context": [[3.0, 5.0, 1.0]],
    "one arm": [[3.0], [4.0]],
    "no rewards": np.zeros((3, 4)),
    "tiny rewards": 1e-12 * np.arange(1.0, 13.0).reshape(4, 3),
    "huge rewards": 1e100 * np.arange(1.0, 13.0).reshape(4, 3) / 13,
    "an arm that nothing pays": [[5.0, 0.0, 3.0], [2.0, 0.0, 9.0]],
    "identical rows": np.tile([[50.0, 3.0, 0.0, 7.0]], (9, 1)),
    "more arms than contexts": 1.0 + np.arange(60.0).reshape(3, 20) % 7,
    "separate": [[1e6, 0.0], [0.0, 1.0]],
}


@pytest.mark.parametrize("alpha", [1 - 1e-9, 1.0, 1 + 1e-12, 2.0, 5.0, 16.0, 64.0, inf])
@pytest.mark.parametrize("name", HARD)
def test_hard_cases(name: str, alpha: float) -> None:
    best = offline_optimum(HARD[name], alpha)
    assert best.certified
    problem = Problem(np.asarray(HARD[name], dtype=float))
    assert best.welfare == pytest.approx(naive_alpha.welfare(best.accounts, alpha), rel=1e-12)
    if alpha <= steep.STAGED:  # above, the proof has prices of its own
        assert naive_alpha.certificate(problem, best.accounts, alpha).optimum <= best.welfare * (1 + 1e-9)
    elif name != "huge rewards":  # too large for the oracle
        second = naive_alpha.optimum(problem, alpha, 1e-9)
        assert best.welfare <= second.bound * (1 + 1e-12)
        assert second.welfare <= best.welfare * (1 + best.welfare_gap + 1e-12)
    assert np.isfinite([best.gap, best.welfare_gap]).all()


@pytest.mark.parametrize("alpha", [1.0, 2.0, 64.0, inf])
def test_arms_that_nothing_pays_do_not_spoil_the_others(alpha: float) -> None:
    best = offline_optimum([[8.0, 0.0, 3.0], [2.0, 0.0, 6.0]], alpha)
    alone = offline_optimum(TWO, alpha)
    np.testing.assert_allclose(best.accounts[[0, 2]], alone.accounts, rtol=1e-6)
    assert best.accounts[1] == 1.0
    assert (best.distributions[:, 1] == 0.0).all()


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("alpha", [1.0, 16.0, 64.0, inf])
def test_entitlements_far_from_one(alpha: float, scale: float) -> None:
    """A common factor of entitlements changes the welfare by its inverse and nothing else."""
    best = offline_optimum(TWO, alpha, groups=Groups(entitlements=[scale, scale]))
    plain = offline_optimum(TWO, alpha)
    assert best.welfare == pytest.approx(plain.welfare / scale, rel=1e-9)
    np.testing.assert_allclose(best.accounts, plain.accounts, rtol=1e-6)


def test_near_one_the_tolerance_is_in_welfare() -> None:
    """A gap relative to the value is empty here: uniform play would pass for the optimum."""
    totals = context_reward_totals(streams.ratings(5_000, 8, 5, seed=0))
    uniform = metrics.welfare(1.0 + totals.sum(axis=0) / 5, 1 - 1e-9)
    best = offline_optimum(totals, 1 - 1e-9)
    assert best.welfare > 1.05 * uniform
    assert best.welfare == pytest.approx(offline_optimum(totals, 1.0).welfare, rel=1e-7)
    assert best.value == pytest.approx(metrics.alpha_performance(best.accounts, 1 - 1e-9), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.999])
def test_below_one_the_welfare_is_that_of_the_value(alpha: float) -> None:
    drawn = Drawn(7)
    best = drawn.solve(alpha)
    assert best.welfare == pytest.approx(metrics.welfare(best.accounts, alpha, groups=drawn.groups), rel=1e-12)
    exact = metrics.welfare(best.accounts * (1 + best.welfare_gap), alpha, groups=drawn.groups)
    worth = metrics.alpha_performance(best.accounts * (1 + best.welfare_gap), alpha, groups=drawn.groups)
    assert exact == pytest.approx(best.welfare * (1 + best.welfare_gap), rel=1e-12)
    assert worth <= best.value + best.gap * (1 + 1e-6) + 1e-12 * best.value


def test_welfare_falls_with_alpha() -> None:
    totals = Drawn(3).totals
    found = [offline_optimum(totals, alpha).welfare for alpha in (0, 0.5, 0.999, 1, 2, 5, 16, 64, inf)]
    assert all(high * (1 + 1e-9) >= low for high, low in pairwise(found))


@pytest.mark.parametrize("orders", [0, 2, 12])
@pytest.mark.parametrize("alpha", [1 - 1e-7, 2.0, 5.0, 16.0, 64.0, 256.0, 1e4, 1e6, 1e12, inf])
def test_any_exponent_and_any_entitlements_are_certified(alpha: float, orders: int) -> None:
    """Columns and entitlements that differ by orders of magnitude, and zeros; the bound of Theorem B is the proof."""
    rng = np.random.default_rng(1)
    for k in range(12):
        m, n = int(rng.integers(1, 30)), int(rng.integers(2, 15))
        totals = rng.random((m, n)) * 10 ** rng.uniform(0, 4) * 10 ** rng.uniform(-2 * (k % 2), 2 * (k % 2), n)
        totals[rng.random((m, n)) < rng.choice([0.0, 0.3, 0.7])] = 0.0
        s = 10.0 ** rng.uniform(-orders / 2, orders / 2, n)
        best = offline_optimum(totals, alpha, groups=Groups(entitlements=s))
        assert best.certified
        assert best.welfare == pytest.approx(naive_alpha.welfare(best.accounts, alpha, s), rel=1e-12)


@pytest.mark.parametrize("alpha", [64.0, 256.0, 1e4, 1e6, 1e12])
def test_very_large_exponents_lie_between_max_min_and_smaller_ones(alpha: float) -> None:
    """min y <= W(y) <= n^(1/(alpha-1)) min y, and W falls with alpha: bounds that no step of the solver enters."""
    for seed in range(1, 9):
        totals = Drawn(seed).totals
        best, smaller, least = (offline_optimum(totals, each) for each in (alpha, 32.0, inf))
        assert least.welfare * (1 - 1e-9) <= best.welfare <= smaller.welfare * (1 + 1e-9)
        n = totals.shape[1]
        assert best.welfare <= least.welfare * n ** (1 / (alpha - 1)) * (1 + 1e-9)


def test_a_gap_that_is_too_large_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steep, "MOST_STEPS", 2)
    with pytest.warns(CertificateWarning, match="certified to a relative gap"):
        best = offline_optimum(TWO, inf)
    assert not best.certified
    assert best.welfare <= 83 / 11 <= best.welfare * (1 + best.welfare_gap)
    stream = Stream.from_arrays([0, 1], [[8.0, 3.0], [2.0, 6.0]])
    with pytest.warns(CertificateWarning):
        welfare, gaps = offline_welfare_curve(stream, inf, [2])
    assert welfare[0] <= 83 / 11 <= welfare[0] * (1 + gaps[0])


def test_steps_that_are_not_numbers_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(weight: Any, *rest: Any) -> int:
        rest[-2][:] = np.nan  # x
        return 1

    monkeypatch.setattr(steep, "follow", broken)
    assert offline_optimum(TWO, 5.0).certified  # by the dual

    def far(*arguments: Any) -> None:
        interior_point.eliminate(*arguments)
        arguments[-1][:] = np.eye(2) * np.nan

    monkeypatch.setattr(steep, "eliminate", far)
    for alpha, welfare in ((5.0, 7.712443789018393), (16.0, 7.596521461077043), (inf, 83 / 11)):
        with pytest.warns(CertificateWarning):
            best = offline_optimum(TWO, alpha)
        assert best.welfare <= welfare <= best.welfare * (1 + best.welfare_gap)


def test_a_singular_system_ends_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def singular(*arguments: Any) -> None:
        raise np.linalg.LinAlgError

    monkeypatch.setattr(np.linalg, "solve", singular)
    with pytest.warns(CertificateWarning):
        best = offline_optimum(TWO, inf)
    assert best.welfare <= 83 / 11 <= best.welfare * (1 + best.welfare_gap)


def test_the_certificate_reads_levels_in_any_unit() -> None:
    x, out = np.array([[0.3, 0.7], [0.6, 0.4]]), np.empty(2)
    found = [
        hindsight.certify(TWO, np.ones(2), np.ones(2), x, 3.0, unit, np.empty(2), out) for unit in (1.0, 2.0, 1e-3)
    ]
    ratios = [gap / money for money, gap in found]
    assert ratios == pytest.approx([ratios[0]] * 3, rel=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 16.0, inf])
def test_curves_are_single_solves(alpha: float) -> None:
    stream = streams.ratings(300, 4, 5, seed=3)
    rounds, calls = [1, 2, 50, 300], []
    welfare, gaps = offline_welfare_curve(stream, alpha, rounds, progress=calls.append)
    assert sum(calls) == 4
    assert (gaps <= 1e-9).all()
    for n, reached in zip(rounds, welfare, strict=True):
        best = offline_optimum(context_reward_totals(stream, n), alpha)
        assert reached == pytest.approx(best.welfare, rel=3e-9)
    values, value_gaps = offline_curve(stream, alpha, rounds)
    assert values[-1] == pytest.approx(best.value, rel=1e-8, abs=1e-8)
    assert value_gaps[-1] >= 0.0


def test_curves_of_groups_and_changing_arms() -> None:
    rewards = np.random.default_rng(0).random((60, 4))
    stream = Stream.from_arrays([0, 1] * 30, rewards, arrivals=[0, 0, 0, 20], departures=[60, 40, 60, 60])
    groups = Groups(["a", "b", "c", "a"], entitlements={"a": 2.0}, pull_floor=0.05)
    welfare, _ = offline_welfare_curve(stream, 2.0, [30, 60], groups=groups)
    best = offline_optimum(context_reward_totals(stream), 2.0, groups=groups, present=present_arms(stream))
    assert welfare[-1] == pytest.approx(best.welfare, rel=2e-9)


# periods


def test_totals_of_periods_add_up() -> None:
    stream = streams.ratings(250, 4, 5, seed=3)
    tables = context_reward_totals(stream, period=100)
    assert [table.shape for table in tables] == [(4, 5)] * 3
    np.testing.assert_allclose(sum(tables), context_reward_totals(stream), rtol=1e-12)
    np.testing.assert_allclose(tables[1], context_reward_totals(stream, 200) - context_reward_totals(stream, 100))
    np.testing.assert_array_equal(context_reward_totals(stream, 150, period=100)[0], tables[0])
    assert len(context_reward_totals(stream, 150, period=100)) == 2
    (whole,) = context_reward_totals(stream, period=1_000)
    np.testing.assert_array_equal(whole, context_reward_totals(stream))


def test_periods_have_rows_for_their_epochs() -> None:
    rewards = np.ones((60, 3))
    stream = Stream.from_arrays([0, 1] * 30, rewards, arrivals=[0, 0, 20], departures=[60, 40, 60])
    tables, there = context_reward_totals(stream, period=30), present_arms(stream, period=30)
    assert [len(table) for table in tables] == [4, 4]  # both periods meet two epochs
    assert [rows.tolist() for rows in there] == [
        [[True, True, False], [True, True, True]],
        [[True, True, True], [True, False, True]],
    ]
    assert tables[0].tolist() == [[10, 10, 0], [10, 10, 0], [5, 5, 5], [5, 5, 5]]
    assert [len(table) for table in context_reward_totals(stream, period=20)] == [2, 2, 2]
    for table, rows in zip(tables, there, strict=True):
        assert offline_optimum(table, inf, present=rows, groups=Groups(pull_floor=0.1)).certified


@pytest.mark.parametrize("period", [0, -1, 1.5, "x"])
def test_periods_are_checked(period: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="period"):
        context_reward_totals(streams.ratings(10, 2, 3), period=period)
