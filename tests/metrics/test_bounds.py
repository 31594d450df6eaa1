"""Every bound that is published is at least the truth, without a tolerance: rounding must err upwards.

The truth is computed in fractions and with 60 digits. Rewards have one decimal and are of any power of ten, so that
accounts lie at their limits exactly and prices below the last digit of others; continuous rewards rarely show either.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from math import inf
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.random import Generator

from alphafair import (
    AlphaFair,
    Groups,
    Stream,
    context_reward_totals,
    metrics,
    offline_curve,
    offline_optimum,
    offline_welfare_curve,
    simulate,
)
from tests.naive_alpha import DIGITS, Problem, log_welfare, performance

ALPHAS = [0.0, 0.25, 0.5, 0.9, 0.999, 0.9995, 1.0, 1.001, 2.0, 5.0, 8.0, 16.0, 64.0, 256.0, 1000.0, inf]


def one_decimal(rng: Generator, shape: Any, powers: tuple[int, int] = (0, 6)) -> np.ndarray:
    return rng.integers(0, 10, shape) / 10 * 10.0 ** rng.integers(*powers, shape)


class Drawn(NamedTuple):
    """A problem, accounts of a policy for it, and other prices or None."""

    problem: Problem
    groups: Groups
    accounts: np.ndarray
    prices: np.ndarray | None


def drawn(rng: Generator, alpha: float, *, plain: bool) -> Drawn:
    m, n = int(rng.integers(1, 4)), int(rng.integers(2, 5))
    totals = one_decimal(rng, (m, n))
    labels = list(range(n)) if plain or rng.random() < 0.4 else rng.integers(0, n, n).tolist()
    k = len(set(labels))
    entitlements = initial = np.ones(k)
    floor: Any = 0.0
    if not plain and rng.random() < 0.5:
        entitlements = rng.integers(1, 10, k) * 10.0 ** rng.integers(-3, 4, k)
    if not plain and rng.random() < 0.5:
        initial = rng.integers(1, 10, k) / 10 * 10.0 ** rng.integers(-3, 5, k)
    if not plain and rng.random() < 0.5:
        floor = float(rng.choice([0.1, 0.05, 0.001])) if rng.random() < 0.5 else rng.integers(0, 3, k) / 20
    named, whole = list(dict.fromkeys(labels)), np.ndim(floor) == 0
    problem = Problem(
        totals,
        labels,
        dict(zip(named, entitlements, strict=True)),
        floor if whole else 0.0,
        {} if whole else dict(zip(named, floor, strict=True)),
        dict(zip(named, initial, strict=True)),
    )
    groups = Groups(None if labels == list(range(n)) else labels, entitlements=entitlements, pull_floor=floor)
    prices = None if plain or rng.random() < 0.6 else initial + one_decimal(rng, k)
    if rng.random() < 0.3:  # an optimal run
        accounts = offline_optimum(totals, alpha, initial=initial, groups=groups).accounts
    else:
        pure, even = np.eye(n)[rng.integers(0, n, m)], np.full((m, n), 1 / n)
        policies = pure, even, 0.5 * (pure + even), rng.dirichlet(np.ones(n), m)
        accounts = problem.accounts_of(policies[rng.integers(4)]).astype(np.float64)
    return Drawn(problem, groups, accounts, prices)


def above_the_truth(problem: Problem, accounts: Any, alpha: float, best: Any, found: Any) -> dict[str, Decimal]:
    """By how much every bound is above a policy that keeps the floors, the best one that `offline_optimum` knows."""
    reached, s = problem.accounts_of(best.distributions), problem.s
    with localcontext(DIGITS):
        most, achieved = (log_welfare(each, alpha, s).exp() for each in (reached, accounts))
        apart = {
            "welfare": Decimal(found.welfare) - most,
            "welfare_ratio": Decimal(found.welfare_ratio) - most / achieved,
            "boxed_welfare_ratio": Decimal(found.boxed_welfare_ratio) - most / achieved,
            "welfare_gap": Decimal(best.welfare) * (1 + Decimal(best.welfare_gap)) - most,
        }
        if alpha < inf:
            value, own = performance(reached, alpha, s), performance(accounts, alpha, s)
            apart["standard_regret"] = Decimal(found.standard_regret) - (value - own)
            if np.isfinite(best.value):  # at a large alpha it can be too large for a float
                apart["gap"] = Decimal(best.value) + Decimal(best.gap) - value
        if alpha < 1.0:
            factor = (1 - Decimal(alpha)) ** -(1 - Decimal(alpha))
            apart["optimum"] = Decimal(found.optimum) - value
            apart["approximate_regret"] = Decimal(found.approximate_regret) - (value - factor * own)
            apart["performance_ratio"] = Decimal(found.performance_ratio) - value / own
        return apart


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("plain", [True, False], ids=["arms", "groups"])
def test_certificates_are_above_the_truth(plain: bool, alpha: float) -> None:
    rng = np.random.default_rng(8)
    for _ in range(60):
        case = drawn(rng, alpha, plain=plain)
        terms: dict[str, Any] = {"initial": case.problem.a, "groups": case.groups}
        best = offline_optimum(case.problem.totals, alpha, **terms)
        found = metrics.certificates(case.problem.totals, case.accounts, alpha, **terms, prices=case.prices)
        for name, apart in above_the_truth(case.problem, case.accounts, alpha, best, found).items():
            assert apart >= 0, (name, case)
        assert found.boxed_welfare_ratio <= found.welfare_ratio


@pytest.mark.parametrize(
    ("totals", "accounts", "alpha"),
    [
        ([[0.9, 10.0]], [1.0, 11.0], inf),
        ([[0.9, 30.0]], [1.45, 16.0], inf),
        ([[0.6, 900.0]], [1.4, 301.0], 8.0),
        ([[0.8, 50000.0, 0.0], [0.7, 7.0, 80000.0]], [1.6166666666666667, 16667.666666666664, 40001.0], 5.0),
    ],
)
def test_a_price_below_the_last_digit_of_another(totals: Any, accounts: Any, alpha: float) -> None:
    best, found = offline_optimum(totals, alpha), metrics.certificates(totals, accounts, alpha)
    ratio = best.welfare / metrics.welfare(accounts, alpha)
    assert 1.0 < ratio <= found.boxed_welfare_ratio <= 1.2 * ratio
    assert min(above_the_truth(Problem(totals), accounts, alpha, best, found).values()) >= 0


@pytest.mark.parametrize("distance", [0.0, 1e-15, -1e-15, 1e-12, -1e-12, 1e-9, -1e-9, 1e-6, -1e-6, 1e-3])
@pytest.mark.filterwarnings("ignore::alphafair.CertificateWarning")
def test_a_tolerance_out_of_reach_next_to_one(distance: float) -> None:
    rng = np.random.default_rng(11)
    for _ in range(25):
        m, n = rng.integers((1, 2), (4, 5))
        totals = one_decimal(rng, (m, n))
        found, policy = (offline_optimum(totals, 1.0 + distance, tolerance=each) for each in (0.0, 1e-9))
        reached = Problem(totals).accounts_of(policy.distributions)
        with localcontext(DIGITS):
            most = log_welfare(reached, 1.0 + distance).exp()
            assert Decimal(found.welfare) * (1 + Decimal(found.welfare_gap)) >= most, totals


@pytest.mark.parametrize("alpha", [0.9995, 1.0, 1.001, 2.0, 6.0, 64.0, 65.0, 1e3, 1e300, inf])
@pytest.mark.filterwarnings("ignore::alphafair.CertificateWarning")
def test_totals_of_any_size_have_an_optimum(alpha: float) -> None:
    rng = np.random.default_rng(12)
    for _ in range(12):
        m, n = rng.integers((1, 2), (4, 5))
        totals = one_decimal(rng, (m, n), (0, 16))
        for tolerance in (0.0, 1e-9):
            assert offline_optimum(totals, alpha, tolerance=tolerance).welfare_gap >= 0.0, totals


@pytest.mark.parametrize("alpha", ALPHAS)
def test_what_a_policy_knows_without_rewards_is_above_the_truth(alpha: float) -> None:
    rng = np.random.default_rng(9)
    for seed in range(12):
        m, n, n_rounds = (int(each) for each in rng.integers(1, (4, 5, 13)))
        rewards = np.minimum(one_decimal(rng, (n_rounds, n), (-5, 2)), 1.0) * (seed % 4 > 0)
        labels = rng.integers(0, n, n).tolist()
        entitlements = np.ones(len(set(labels)))
        if alpha <= 16.0:  # beyond it values are too large for floats
            entitlements = rng.integers(1, 10, len(set(labels))) * 10.0 ** rng.integers(-3, 4, len(set(labels)))
        policy = AlphaFair(m, n, alpha=alpha, groups=Groups(labels, entitlements=entitlements), seed=seed)
        stream = Stream.from_arrays(rng.integers(0, m, n_rounds), rewards, n_contexts=m)
        simulate(policy, stream)
        totals, s = context_reward_totals(stream), policy.groups.entitlements
        problem = Problem(totals, labels, dict(zip(dict.fromkeys(labels), s, strict=True)))
        reached = problem.accounts_of(offline_optimum(totals, alpha, groups=policy.groups).distributions)
        with localcontext(DIGITS):
            ratio = (log_welfare(reached, alpha, s) - log_welfare(policy.accounts, alpha, s)).exp()
            assert Decimal(metrics.welfare_certificate(policy)) >= ratio
            if alpha < 1.0:
                factor = (1 - Decimal(alpha)) ** -(1 - Decimal(alpha))
                regret = performance(reached, alpha, s) - factor * performance(policy.accounts, alpha, s)
                assert Decimal(metrics.regret_certificate(policy)) >= regret


@pytest.mark.parametrize("alpha", ALPHAS)
def test_curves_of_the_optimum_are_above_the_truth(alpha: float) -> None:
    rng = np.random.default_rng(10)
    for _ in range(4):
        stream = Stream.from_arrays(rng.integers(0, 2, 6), one_decimal(rng, (6, 3)), n_contexts=2)
        rounds = [1, 2, 4, 6]
        welfare, welfare_gaps = offline_welfare_curve(stream, alpha, rounds)
        values, gaps = offline_curve(stream, alpha, rounds)
        for k, n_rounds in enumerate(rounds):
            totals = context_reward_totals(stream, n_rounds)
            reached = Problem(totals).accounts_of(offline_optimum(totals, alpha).distributions)
            with localcontext(DIGITS):
                most = log_welfare(reached, alpha).exp()
                assert Decimal(welfare[k]) * (1 + Decimal(welfare_gaps[k])) >= most
                if alpha < inf:
                    assert Decimal(values[k]) + Decimal(gaps[k]) >= performance(reached, alpha)
