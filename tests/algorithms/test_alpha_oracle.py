"""The oracle for any alpha against golden values, other solvers, and the inequalities that every run must keep."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any, NamedTuple

import cvxpy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair import context_reward_totals, streams
from tests import naive, naive_adaptive, naive_groups
from tests.naive_alpha import (
    AdaHedge,
    AdaptiveBandit,
    AdaptiveFull,
    AlphaFair,
    AlphaFairBandit,
    Books,
    Matrix,
    Problem,
    Vector,
    a_priori_budget,
    a_priori_welfare,
    certificate,
    discounted,
    dying_arms,
    dying_arms_accounts,
    dying_arms_bound,
    ln_alpha,
    optimum,
    phi,
    played,
    prices,
    relative_slopes,
    slopes,
    welfare,
)

inf = math.inf
EXACT, CLOSE = 1e-12, 1e-9
ROUNDING = 1e-9  # relative; all that is allowed beside the inequalities
ALPHAS = (0.0, 0.25, 0.5, 0.9, 1.0, 1.5, 2.0, 5.0, 12.0, 16.0)
seeds = st.integers(0, 2**32 - 1)


def near(value: Any, tolerance: float = EXACT) -> Any:
    return pytest.approx(value, rel=tolerance, abs=0)


# golden values; the numbers are those of the list that they were taken from


def test_welfare_is_the_power_mean() -> None:  # 1, 2, 3
    values = {
        0: 4.666666666666667, 0.5: 4, 1: 3.301927248894627, 2: 108 / 49, 5: 1.314742013935084, 64: 1.017591224960223,
        inf: 1, 1 - 1e-12: 3.301927248895985, 1 + 1e-12: 3.301927248893268,
    }  # fmt: skip
    for alpha, value in values.items():
        assert welfare([1, 4, 9], alpha) == near(value, 1e-15 if value == 4 else EXACT)
    assert welfare([1, 4, 9], 1 - 1e-12) - welfare([1, 4, 9], 1) == pytest.approx(1.358e-12, rel=1e-3)
    entitled = {0: 2.833333333333333, 1: 2.803965795552201, 2: 2.769230769230769, 5: 2.636225726782154, inf: 2}
    for alpha, value in entitled.items():
        assert welfare([2, 6, 9], alpha, [1, 2, 3]) == near(value)


def test_generalized_logarithm() -> None:  # 4
    values = {0.5: 12.14213562373095, 1: 3.912023005428146, 1 + 1e-9: 3.912022997776184, 2: 0.98, 5: 0.24999996}
    for alpha, value in values.items():
        assert ln_alpha(50, alpha) == near(value)


TWO = Problem([[8, 3], [2, 6]])


def test_certificates() -> None:  # 5, 6, 7
    ratios = {0.5: 1.452277442494834, 1: 1.45, 2: 1.445454545454545, 5: 1.432535137948985}
    regrets = {0.5: 1.922060227535543, 1: 0.7431271128649661, 2: 0.1129979035639413, 5: 0.0004521146668695153}
    for alpha, ratio in ratios.items():
        found = certificate(TWO, [6, 5], alpha)
        assert found.ratio == near(ratio)
        assert found.standard_regret == near(regrets[alpha])
    entitled = Problem([[8, 3], [2, 6]], entitlements={1: 2.0})
    assert certificate(entitled, [6, 5], 1).ratio == near(1.433333333333333)
    assert certificate(entitled, [6, 5], 2).ratio == near(1.683908045977011)


def test_optimum_and_true_ratio() -> None:  # 8, 9
    values = {
        1: (7.937253933193772, (9, 7)),
        2: (7.875, (9, 7)),
        5: (7.712443789018393, (8.668400685540105, 7.124349742922461)),
        16: (7.596521461077043, (7.88649938278886, 7.417562731454178)),
        inf: (83 / 11, (83 / 11, 83 / 11)),
    }
    for alpha, (value, accounts) in values.items():
        found = optimum(TWO, alpha)
        assert found.welfare == near(value, CLOSE)
        assert found.welfare <= value * (1 + EXACT)
        assert value <= found.bound * (1 + EXACT)
        assert found.accounts == near(accounts, 1e-7)  # flat around its largest value
    for alpha, ratio in {1: 1.449137674618944, 2: 1.44375, 5: 1.431182770726648}.items():
        assert optimum(TWO, alpha).welfare / welfare([6, 5], alpha) == near(ratio, CLOSE)


def test_boxed_certificates() -> None:  # 10, 11
    problem = Problem([[10, 1, 0], [0, 4, 1]])
    for alpha, boxed, level, point, ratio in (
        (1, 2.160402683649786, 2.75, (8.25, 5.5, 2), 2.277777777777778),
        (2, 1.780487804878049, 2.433333333333333, (7.3, 4.866666666666667, 2), 1.944444444444444),
    ):
        found = certificate(problem, [3, 2, 1.5], alpha)
        assert found.boxed_ratio == near(boxed)
        assert found.level == near(level)
        assert found.point == near(point)
        assert found.ratio == near(ratio)


SHORT = np.array([[1, 0.5], [0.25, 1], [1, 1]])


def test_ascent_on_the_welfare() -> None:  # 12, 13, 14, 15
    values = {
        1: ((2.130381315195712, 2.076913586491804), 0.426772450641818, 1.127846974171948, 3.590439057838932,
            0.2353521470593483, 2.103477572482828, 7.443810604375774, 2.266068417935229),
        2: ((2.105744478927896, 2.10155042275962), 0.3805738626496855, 1.1842111808185, 3.218331542844223,
            0.164689330578719, 2.103645360414212, 13.86808183463941, 2.252494369327293),
    }  # fmt: skip
    for alpha, (accounts, x, norm, bound, regret, at, a_priori, certified) in values.items():
        policy = AlphaFair(1, Books([0, 1]), alpha=alpha)
        run = play(policy, [0, 0, 0], SHORT)
        assert run.accounts[-1] == near(accounts)
        assert policy.x[0, 0] == near(x)
        assert policy.norms[0] == near(norm)
        assert policy.bound == near(bound)
        assert policy.drift == 0
        assert surrogate_regret(run, alpha) == near(regret)
        assert welfare(accounts, alpha) == near(at)
        assert a_priori_welfare(run.accounts[-1], alpha, policy.bound) == near(a_priori)
        assert certificate(Problem([SHORT.sum(axis=0)]), run.accounts[-1], alpha).optimum == near(certified)


def test_lower_bounds_of_dying_arms() -> None:  # 16, 17
    best, reached = dying_arms_accounts([1, 4], entry=0.0)
    assert phi(best, 0.5).sum() / phi(reached, 0.5).sum() == near(3 / (2 * math.sqrt(2)))
    values = {2: 1.414213562373095, 5: 2.605171084697352, 10: 4.528728688116765, 20: 8.304361203739343}
    for n, value in values.items():
        assert math.factorial(n) ** (1 / n) == near(value)
        assert dying_arms_bound([10.0 ** (12 * k) for k in range(1, n + 1)], 1) == near(value, 1e-9)


def test_discounted_accounts() -> None:  # 18, 19
    booked = np.array([[0.5, 0.5], [1, 0], [0.25, 0.75]])
    earned, totals = discounted([0, 0, 0], SHORT, booked, 0.9, 1)
    assert earned == near((0.88, 0.9525))
    assert totals == near(np.array([[2.035, 2.305]]))
    for alpha, ratio in {0.5: 1.11779846637575, 1: 1.112308279074836, 2: 1.101328886916795}.items():
        assert certificate(Problem(totals), 1 + earned, alpha).ratio == near(ratio)


def test_carry() -> None:  # 20
    books = Books([0, 1], initial={0: 9.0, 1: 3.0})
    books.new_period(0.25)
    assert books.accounts == {0: 3.0, 1: 1.5} == books.entry
    problem = Problem([[4, 3]], initial=books.accounts)
    assert certificate(problem, [5, 3], 1).ratio == near(1.05)
    assert certificate(problem, [5, 3], 2).ratio == near(1.1625)


def test_optimum_of_real_ratings() -> None:
    totals = context_reward_totals(streams.movielens_small(), 5_000)
    problem = Problem(totals[totals.any(axis=1)])
    assert len(problem.totals) == 81
    assert optimum(problem, inf).welfare == near(91.6163761, CLOSE)
    for alpha, value in {1: 96.9944851, 2: 94.3064032, 5: 92.6790579}.items():
        reached = second_opinion(problem, alpha)
        assert reached == near(value, 1e-6)
    stationary = Problem(context_reward_totals(streams.stationary(60_000, 12, 10, seed=5)))
    values = {1: 5333.85332, 2: 5323.23598, 5: 5316.70417, 50: 5312.78894, inf: 5312.35411}
    for alpha, value in values.items():
        assert optimum(stationary, alpha).welfare == near(value, 2e-9)


def second_opinion(problem: Problem, alpha: float) -> float:
    """The welfare of what CVXPY with Clarabel finds, in units of uniform play; for 0 < alpha <= 5."""
    merged, base = problem.reduced()
    unit = welfare(base + merged.sum(axis=0) / len(base), alpha, problem.s)
    x = cvxpy.Variable(merged.shape, nonneg=True)
    y = cvxpy.multiply(1 / problem.s, base + cvxpy.sum(cvxpy.multiply(merged, x), axis=0)) / unit
    each = cvxpy.log(y) if alpha == 1 else cvxpy.power(y, 1 - alpha) / (1 - alpha)
    program = cvxpy.Problem(cvxpy.Maximize(cvxpy.sum(cvxpy.multiply(problem.s, each))), [cvxpy.sum(x, axis=1) == 1])
    program.solve(solver=cvxpy.CLARABEL)
    found = np.maximum(x.value, 0)
    found /= found.sum(axis=1, keepdims=True)
    return welfare(base + (merged * found).sum(axis=0), alpha, problem.s)


# identities


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, 7.5])
def test_identities_of_the_welfare(alpha: float) -> None:
    rng = np.random.default_rng(0)
    r, s = 1 + 20 * rng.random(4), 0.5 + rng.random(4)
    w, total, at = slopes(r / s, alpha), s.sum(), welfare(r, alpha, s)
    assert w @ r == near(total * at ** (1 - alpha), 1e-11)
    assert prices(r, alpha, s) == near(at**alpha / total * w, 1e-11)
    step = 1e-6
    for i, price in enumerate(prices(r, alpha, s)):
        change = welfare(r + step * np.eye(4)[i], alpha, s) - welfare(r - step * np.eye(4)[i], alpha, s)
        assert change / (2 * step) == pytest.approx(price, rel=1e-6, abs=1e-9)
    difference = (s**alpha * (phi(1.7 * r, alpha) - phi(r, alpha))).sum()
    assert difference == near(w @ r * ln_alpha(1.7, alpha), 1e-11)


def test_a_priori_bound_is_theorem_c() -> None:
    """W(R*) <= W^alpha (1 + ln_alpha W + Reg/N), from the budget of (A3) at the final prices."""
    rng = np.random.default_rng(1)
    for alpha in (0.0, 0.5, 1.0, 2.0, 5.0):
        r, bound = 1 + 9 * rng.random(5), float(rng.random())
        budget = a_priori_budget(r, alpha, bound)
        ratio = budget / float(slopes(r, alpha) @ r)
        assert ratio * welfare(r, alpha) == near(a_priori_welfare(r, alpha, bound), 1e-11)
        w = welfare(r, alpha)
        said = ln_alpha(w, 2 - alpha) + w ** (alpha - 1) * (1 + bound / 5)
        assert ratio == near(said, 1e-11)


# runs


class Run(NamedTuple):
    contexts: list[int]
    rewards: Matrix
    booked: Matrix
    accounts: list[Vector]  # before every round, and at the end; of groups


def play(policy: Any, contexts: Any, rewards: Any, *, masked: Any = None, adversarial: bool = False) -> Run:
    """Full information. `masked` are arms that are not available in some round; an adversary pays the least likely."""
    rewards, booked, states = np.array(rewards, dtype=float), [], [policy.books.vectors()[0]]
    for t, context in enumerate(contexts):
        p = policy.probabilities(context)
        if masked is not None and p[masked[t]] < 1:
            p[masked[t]] = 0.0
            p /= p.sum()
        if adversarial:
            rewards[t] = np.arange(len(p)) == p.argmin()
        policy.learn(context, p, rewards[t])
        booked.append(p)
        states.append(policy.books.vectors()[0])
    return Run(list(contexts), rewards, np.array(booked), states)


def gradients(run: Run, problem: Problem, alpha: float) -> Matrix:
    """g = w r of every round, with the slopes before it."""
    before = np.array(run.accounts[:-1]) / problem.s
    return slopes(before, alpha)[:, problem.of_arm] * run.rewards


def surrogate_regret(run: Run, alpha: float, problem: Problem | None = None) -> float:
    """max over fixed policies of sum_t <g_t, x - P_t>."""
    problem = problem_of(run) if problem is None else problem
    g = gradients(run, problem, alpha)
    best = sum(problem.most(j, totals_of(run, g, problem)[j]) for j in range(len(problem.totals)))
    return float(best - (g * run.booked).sum())


def totals_of(run: Run, rows: Matrix, problem: Problem) -> Matrix:
    return naive.context_reward_totals(run.contexts, rows, len(problem.totals))


def problem_of(run: Run, books: Books | None = None) -> Problem:
    totals = naive.context_reward_totals(run.contexts, run.rewards, max(run.contexts) + 1)
    if books is None:
        return Problem(totals)
    return Problem(totals, books.labels, books.entitlements, books.arm_floor, books.group_floors, dict(books.entry))


def check_lemma_a(run: Run, problem: Problem, alpha: float, bound: float) -> None:
    """(A1) for the best x at the final slopes, (A2), and (A3) with a bound of the surrogate regret."""
    s, a, final = problem.s, problem.a, run.accounts[-1]
    w, first = slopes(final / s, alpha), slopes(a / s, alpha)
    g, of_arms = gradients(run, problem, alpha), slopes(final / s, alpha)[problem.of_arm]
    gains = totals_of(run, g, problem)
    for j, row in enumerate(problem.totals):
        assert (row * of_arms <= gains[j] * (1 + ROUNDING) + 1e-300).all()
    booked = float((g * run.booked).sum())
    budget = float((s**alpha * (phi(final, alpha) - phi(a, alpha)) + first - w).sum())
    size = float((s**alpha * abs(phi(a, alpha))).sum() + first.sum() + booked)
    assert booked <= budget + ROUNDING * size
    whole = a_priori_budget(final, alpha, bound, s, a)
    assert problem.worth(w) <= whole + ROUNDING * (size + abs(bound))


def check_certificates(run: Run, problem: Problem, alpha: float, bound: float | None) -> None:
    """True ratio <= boxed <= lambda <= what was known beforehand."""
    final = run.accounts[-1]
    found, best = certificate(problem, final, alpha), optimum(problem, alpha, 1e-9)
    assert best.bound <= best.welfare * (1 + 1e-7)
    assert best.welfare <= found.boxed * (1 + ROUNDING)
    assert found.boxed <= found.optimum * (1 + ROUNDING)
    other = certificate(problem, final, alpha, priced_by=np.sqrt(final) + 1)
    assert best.welfare <= min(other.boxed, other.optimum) * (1 + ROUNDING)
    if alpha < inf:
        s = problem.s
        regret = (s**alpha * (phi(best.accounts, alpha) - phi(final, alpha))).sum()
        size = float((s**alpha * abs(phi(final, alpha))).sum())
        assert regret <= found.standard_regret + ROUNDING * size
    if bound is not None:
        budget = a_priori_budget(final, alpha, bound, problem.s, problem.a)
        assert found.ratio <= budget / float(slopes(final / problem.s, alpha) @ final) * (1 + ROUNDING)


def check_growth(run: Run, problem: Problem, alpha: float) -> None:
    """Theorem S's step: W(R_T) >= W(R_0) + sum <p, v> - alpha sum p v^2/R."""
    s, least = problem.s, welfare(run.accounts[0], alpha, problem.s)
    for before, after in itertools.pairwise(run.accounts):
        p, v = prices(before, alpha, s), after - before
        least += float(p @ v - alpha * (p * v**2 / before).sum())
    assert welfare(run.accounts[-1], alpha, s) >= least - ROUNDING * abs(least)


def check_poorest(run: Run, problem: Problem, alpha: float) -> None:
    """W <= N^(1/(alpha-1)) min R, where all are entitled alike."""
    if alpha > 1 and (problem.s == 1).all():
        n = len(problem.s)
        for accounts in run.accounts[:: max(1, len(run.accounts) // 5)]:
            assert welfare(accounts, alpha) <= n ** (1 / (alpha - 1)) * accounts.min() * (1 + ROUNDING)


KINDS = ("smooth", "zeros", "one pays", "adversarial")
TERMS: dict[str, Any] = {
    "plain": {},
    "entry": {"initial": {0: 3.0, 1: 1.5, 2: 8.0}},
    "groups": {"labels": [0, 1, 0, 2], "entitlements": {0: 2.0, 2: 0.5}},
    "arm floor": {"labels": [0, 1, 1], "pull_floor": 0.1},
    "group floors": {"labels": [0, 1, 0], "pull_floor": {0: 0.2, 1: 0.3}, "entitlements": {1: 3.0}},
}


def make_books(terms: str, n_arms: int) -> Books:
    options = dict(TERMS[terms])
    labels = options.pop("labels", list(range(n_arms)))
    return Books(labels, **options)


def make_rounds(kind: str, n_rounds: int, n_contexts: int, n_arms: int, seed: int) -> tuple[list[int], Matrix]:
    rng = np.random.default_rng(seed)
    contexts = rng.integers(0, n_contexts, n_rounds)
    contexts[0] = n_contexts - 1  # so that the number of contexts can be told from them
    means = rng.random((n_contexts, n_arms))
    rewards = means[contexts] * rng.random((n_rounds, n_arms))
    if kind == "zeros":
        rewards = (rng.random((n_rounds, n_arms)) < 0.3 * means[contexts]).astype(float)
    if kind == "one pays":
        rewards = np.eye(n_arms)[rng.integers(0, n_arms, n_rounds)]
    return contexts.tolist(), rewards


POLICIES: dict[str, Any] = {
    "before": lambda m, books, alpha: AlphaFair(m, books, alpha=alpha),
    "on welfare": lambda m, books, alpha: AlphaFair(m, books, alpha=alpha, on_welfare=True),
    "adaptive": lambda m, books, alpha: AdaptiveFull(m, books, alpha=alpha),
    "adaptive on welfare": lambda m, books, alpha: AdaptiveFull(m, books, alpha=alpha, on_welfare=True),
}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(POLICIES)),
    terms=st.sampled_from(sorted(TERMS)),
    kind=st.sampled_from(KINDS),
    alpha=st.sampled_from(ALPHAS),
    n_contexts=st.integers(1, 3),
    masked=st.booleans(),
    seed=seeds,
)
def test_every_run_keeps_the_inequalities(
    name: str, terms: str, kind: str, alpha: float, n_contexts: int, masked: bool, seed: int
) -> None:
    books = make_books(terms, 3)
    n_arms = len(books.labels)
    contexts, rewards = make_rounds(kind, 40, n_contexts, n_arms, seed)
    policy = POLICIES[name](n_contexts, books, alpha)
    away = np.random.default_rng(seed).integers(0, n_arms, 40) if masked else None
    run = play(policy, contexts, rewards, masked=away, adversarial=kind == "adversarial")
    problem = problem_of(run, policy.books)
    bound = policy.surrogate_regret_bound
    size = float((gradients(run, problem, alpha) * run.booked).sum()) + abs(bound)
    assert surrogate_regret(run, alpha, problem) <= bound + ROUNDING * size
    check_lemma_a(run, problem, alpha, bound)
    check_certificates(run, problem, alpha, bound)
    check_growth(run, problem, alpha)
    check_poorest(run, problem, alpha)
    assert all(later <= earlier * (1 + EXACT) for earlier, later in itertools.pairwise(policy.units))


class Anything:
    """A distribution at random, and accounts that keep no policy."""

    def __init__(self, books: Books, seed: int) -> None:
        self.books, self.rng = books, np.random.default_rng(seed)

    def probabilities(self, context: int) -> Vector:
        return self.rng.dirichlet(np.full(len(self.books.labels), 0.3))

    def learn(self, context: int, p: Vector, rewards: Vector) -> None:
        for i, amount in enumerate(p * rewards):
            self.books.earn(i, amount)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(KINDS), alpha=st.sampled_from((*ALPHAS, inf)), terms=st.sampled_from(sorted(TERMS)), seed=seeds
)
def test_any_play_keeps_them(kind: str, alpha: float, terms: str, seed: int) -> None:
    books = make_books(terms, 3)
    books.pull_floor = 0.0  # random play keeps none
    contexts, rewards = make_rounds(kind, 30, 2, len(books.labels), seed)
    run = play(Anything(books, seed), contexts, rewards, adversarial=kind == "adversarial")
    problem = problem_of(run, books)
    if alpha < inf:
        check_lemma_a(run, problem, alpha, max(0.0, surrogate_regret(run, alpha, problem)))
        check_growth(run, problem, alpha)
        check_poorest(run, problem, alpha)
    check_certificates(run, problem, alpha, None)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(("before", "adaptive", "adaptive on welfare")),
    terms=st.sampled_from(("plain", "groups", "arm floor", "group floors")),
    alpha=st.sampled_from((0.5, 1.0, 2.0, 5.0, 12.0)),
    account=st.sampled_from((None, 1.0, 4.0)),
    seed=seeds,
)
def test_arms_that_come_and_go(name: str, terms: str, alpha: float, account: float | None, seed: int) -> None:
    """One comparator per epoch and context: the bound, and the certificate with present and absent arms."""
    policy: Any = POLICIES[name](2, make_books(terms, 3), alpha)
    books: Books = policy.books
    rng, rows, present, regret = np.random.default_rng(seed), [], [], 0.0
    n_all = len(books.labels) + 1
    for epoch in range(3):
        if epoch == 1:
            policy.admit(["new"], account, {"new": 2.0} if books.entitlements else {})
        if epoch == 2:
            policy.retire(0)
        there = np.isin(np.arange(n_all), books.live)
        gains, totals, earned = np.zeros((2, n_all)), np.zeros((2, n_all)), 0.0
        for _ in range(25):
            context = int(rng.integers(0, 2))
            rewards = np.where(there, rng.random(n_all), 0.0)[: len(books.labels)]
            p, g = policy.probabilities(context), np.zeros(n_all)
            g[books.live] = slopes(books.levels(), alpha) * rewards[books.live]
            policy.learn(context, p, rewards)
            gains[context] += g
            totals[context, : len(rewards)] += rewards
            earned += float(g[: len(p)] @ p)
        labels = [*books.labels, *["new"] * (n_all - len(books.labels))]
        of_epoch = Problem(gains, labels, {}, books.arm_floor, books.group_floors, {}, there[None])
        regret += sum(of_epoch.most(j, gains[j]) for j in range(2)) - earned
        rows.append(totals)
        present.append(there)
    assert regret <= policy.surrogate_regret_bound * (1 + ROUNDING) + ROUNDING
    problem = Problem(
        np.vstack(rows), books.labels, books.entitlements, books.arm_floor, books.group_floors, books.entry, present
    )
    final = np.array([books.accounts[g] for g in problem.groups])
    found, best = certificate(problem, final, alpha), optimum(problem, alpha, 1e-9)
    assert best.welfare <= found.boxed * (1 + ROUNDING)
    assert found.boxed <= found.optimum * (1 + ROUNDING)
    budget = a_priori_budget(final, alpha, policy.surrogate_regret_bound, problem.s, problem.a)
    assert found.ratio <= budget / float(slopes(final / problem.s, alpha) @ final) * (1 + ROUNDING)


def test_every_epoch_adds_its_root_to_the_bound() -> None:
    """Whenever arms change, the other arm pays: one root of S_j per epoch is what that costs, and no constant does."""
    policy = AlphaFair(1, Books(["a", "b", "c"]), alpha=0.0, on_welfare=True)
    regret, rounds = 0.0, 0
    for epoch in range(14):
        gains, earned = np.zeros(2), 0.0
        for _ in range(max(2, math.isqrt(rounds))):
            rewards = np.zeros(len(policy.books.labels))
            rewards[epoch % 2] = 1.0
            p = policy.probabilities(0)
            policy.learn(0, p, rewards)
            gains[epoch % 2] += 1.0
            earned += p[epoch % 2]
            rounds += 1
        regret += gains.max() - earned
        if epoch % 2:
            policy.admit(["c"])
        else:
            policy.retire(policy.books.live[-1])
        assert regret <= policy.surrogate_regret_bound
    assert regret > 2 * math.sqrt(rounds)  # more than without an epoch


def test_infinity_is_played_as_16() -> None:
    contexts, rewards = make_rounds("smooth", 50, 2, 3, 0)
    runs = [play(AdaptiveFull(2, Books([0, 1, 2]), alpha=a), contexts, rewards).booked for a in (inf, 16.0, 100.0)]
    assert (runs[0] == runs[1]).all()
    assert (runs[0] == runs[2]).all()
    assert [played(a) for a in (0.0, 64.0, 64.5, inf)] == [0.0, 64.0, 16.0, 16.0]


# the ways in which it agrees with the older oracles


def test_alpha_0_is_algorithm_1() -> None:
    """With p = 1/N everywhere the ascent on the welfare is Algorithm 1, and so is its bound."""
    contexts, rewards = make_rounds("smooth", 60, 3, 4, 2)
    old, new = naive.AlphaFair(3, 4, alpha=0.0), AlphaFair(3, Books(range(4)), alpha=0.0, on_welfare=True)
    run = play(new, contexts, rewards)
    _, used, final = naive.play(old, contexts, rewards, np.full(60, 0.5), "full")
    assert run.booked == pytest.approx(used, abs=1e-13)
    assert run.accounts[-1] == near(final)
    assert new.bound == near(2 * np.sqrt(old.norms).sum())


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
def test_below_1_it_is_algorithm_1(alpha: float) -> None:
    contexts, rewards = make_rounds("zeros", 60, 3, 4, 3)
    old = naive.AlphaFair(3, 4, alpha=alpha)
    new = AlphaFair(3, Books(range(4)), alpha=alpha)
    run = play(new, contexts, rewards)
    assert run.booked == pytest.approx(naive.play(old, contexts, rewards, np.full(60, 0.5), "full")[1], abs=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
def test_below_1_it_is_the_adaptive_policy(alpha: float) -> None:
    contexts, rewards = make_rounds("smooth", 60, 3, 4, 4)
    old: Any = naive_adaptive.AlphaFairAdaptive(3, 4, alpha=alpha, feedback="full")
    new = AdaptiveFull(3, Books(range(4)), alpha=alpha)
    run = play(new, contexts, rewards)
    assert run.booked == pytest.approx(naive.play(old, contexts, rewards, np.full(60, 0.5), "full")[1], abs=1e-10)
    bound = 2 * np.sqrt(old.norms).sum() + math.sqrt(2 * old.spread)
    assert new.bound == near(bound, 1e-9)


def play_bandit(policy: Any, contexts: Any, rewards: Matrix, uniforms: Vector) -> tuple[list[int], Matrix]:
    arms, used = [], []
    for context, row, uniform in zip(contexts, rewards, uniforms, strict=True):
        p = policy.probabilities(context)
        arm = naive.draw(p, uniform)
        policy.learn(context, arm, float(p[arm]), float(row[arm]))
        arms.append(arm)
        used.append(p)
    return arms, np.array(used)


@pytest.mark.parametrize("alpha", [0.0, 0.9])
def test_below_1_it_is_the_bandit(alpha: float) -> None:
    contexts, rewards = make_rounds("smooth", 120, 2, 4, 5)
    uniforms = np.random.default_rng(5).random(120)
    pairs: list[tuple[Any, Any]] = [
        (naive_adaptive.AlphaFairAdaptive(2, 4, alpha=alpha), AdaptiveBandit(2, Books(range(4)), alpha=alpha)),
        (naive.AlphaFairBandit(2, 4, alpha=alpha), AlphaFairBandit(2, Books(range(4)), alpha=alpha)),
    ]
    for old, new in pairs:
        arms, used = play_bandit(new, contexts, rewards, uniforms)
        expected = naive.play(old, contexts, rewards, uniforms, "bandit")
        assert arms == expected[0]
        assert used == pytest.approx(expected[1], abs=1e-9)


@pytest.mark.parametrize("floor", [0.05, {"a": 0.1, "b": 0.3}])
def test_below_1_it_is_the_policy_with_groups(floor: Any) -> None:
    labels, entitled = ["a", "b", "a", "c"], {"b": 2.0}
    contexts, rewards = make_rounds("smooth", 80, 2, 4, 6)
    uniforms = np.random.default_rng(6).random(80)

    def owed() -> Any:
        return naive_groups.GroupTerms(labels, entitled, floor)

    def books() -> Books:
        return Books(labels, entitled, floor)

    full: list[tuple[Any, Any]] = [
        (naive_groups.AlphaFair(2, owed(), alpha=0.7), AlphaFair(2, books(), alpha=0.7)),
        (naive_groups.Adaptive(2, owed(), alpha=0.7, feedback="full"), AdaptiveFull(2, books(), alpha=0.7)),
    ]
    for old, new in full:
        run = play(new, contexts, rewards)
        assert run.booked == pytest.approx(naive.play(old, contexts, rewards, uniforms, "full")[1], abs=1e-9)
    old_bandit: Any = naive_groups.Adaptive(2, owed(), alpha=0.7)
    used = play_bandit(AdaptiveBandit(2, books(), alpha=0.7), contexts, rewards, uniforms)[1]
    assert used == pytest.approx(naive.play(old_bandit, contexts, rewards, uniforms, "bandit")[1], abs=1e-8)


# AdaHedge


def test_adahedge_keeps_its_bound() -> None:
    """Neither of the two is ahead of the mixture by more than 2 Delta, whatever the scale."""
    rng = np.random.default_rng(7)
    for scale in (1e-120, 1e-6, 1.0, 1e6):
        mixer, mixed, total = AdaHedge(), 0.0, 0.0
        for d in scale * (rng.random(300) - rng.choice([0.3, 0.5, 0.7])):
            mixed += mixer.share * d
            total += d
            mixer.step(d)
            assert max(total, 0.0) - mixed <= mixer.bound() * (1 + EXACT)
            assert mixer.gaps >= 0


def test_adahedge_does_not_know_the_scale() -> None:
    steps, one, other = np.random.default_rng(8).normal(size=100), AdaHedge(), AdaHedge()
    for d in steps:
        one.step(d)
        other.step(2.0**-40 * d)
        assert one.share == other.share


# bandit feedback


@pytest.mark.parametrize("alpha", [1.0, 2.0, 16.0, inf])
def test_bandits_earn_more_welfare_than_uniform_play(alpha: float) -> None:
    rng = np.random.default_rng(9)
    contexts = rng.integers(0, 2, 1500).tolist()
    means = np.array([[0.9, 0.1, 0.2], [0.1, 0.8, 0.5]])
    rewards = (rng.random((1500, 3)) < means[contexts]).astype(float)
    uniforms = rng.random(1500)
    uniform = welfare(1 + rewards.sum(axis=0) / 3, alpha)
    for kind in (AdaptiveBandit, AlphaFairBandit):
        policy: Any = kind(2, Books(range(3)), alpha=alpha)
        play_bandit(policy, contexts, rewards, uniforms)
        assert policy.books.welfare(alpha) > 1.15 * uniform


def test_bandit_slopes_may_vanish() -> None:
    """At alpha = 50 the slope of a rich arm is 0 beside that of the poorest; nothing breaks."""
    books = Books(range(3), initial={0: 1.0, 1: 1e7, 2: 5.0})
    assert relative_slopes(books.levels(), 50)[1] == 0.0
    policy = AdaptiveBandit(1, books, alpha=50.0)
    rng = np.random.default_rng(10)
    _, used = play_bandit(policy, [0] * 60, rng.random((60, 3)), rng.random(60))
    assert np.isfinite(used).all()
    assert used.sum(axis=1) == pytest.approx(np.ones(60), abs=1e-12)


def test_expected_bound_covers_the_mean_surrogate_regret() -> None:
    for alpha in (0.5, 1.0, 2.0):
        contexts, rewards = make_rounds("smooth", 100, 2, 3, 11)
        regrets, bounds = [], []
        for seed in range(8):
            policy = AdaptiveBandit(2, Books(range(3)), alpha=alpha)
            gains, earned = np.zeros((2, 3)), 0.0
            for context, row, uniform in zip(contexts, rewards, np.random.default_rng(seed).random(100), strict=True):
                p = policy.probabilities(context)
                arm = naive.draw(p, uniform)
                g = slopes(policy.books.levels(), alpha) * row
                gains[context] += g
                earned += g[arm]
                policy.learn(context, arm, float(p[arm]), float(row[arm]))
            regrets.append(gains.max(axis=1).sum() - earned)
            bounds.append(policy.expected_bound())
        assert np.mean(regrets) <= np.mean(bounds)


# periods


def hand_over(old: Any, new: Any) -> None:
    """What is kept over a boundary."""
    if isinstance(old, AdaptiveBandit):
        new.index, new.pending, new.n_updates = copy.deepcopy(old.index), old.pending.copy(), old.n_updates
    else:
        new.x = old.x.copy()
    if isinstance(old, AdaptiveFull):
        new.index = copy.deepcopy(old.index)
        if not old.on_welfare:
            new.mixer.share = old.mixer.share


@pytest.mark.parametrize("kind", [AlphaFair, AdaptiveFull, AdaptiveBandit, AlphaFairBandit])
@pytest.mark.parametrize("alpha", [0.9, 1.0, 5.0, inf])
@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_a_period_is_a_run_with_what_was_handed_over(kind: Any, alpha: float, floor: float) -> None:
    labels, entitled = ["a", "b", "a"], {"b": 2.0}
    old = kind(2, Books(labels, entitled, floor), alpha=alpha)
    contexts, rewards = make_rounds("smooth", 80, 2, 3, 12)
    uniforms = np.random.default_rng(12).random(80)
    bandit = kind in (AdaptiveBandit, AlphaFairBandit)

    def rounds(policy: Any, first: int, last: int) -> Matrix:
        if bandit:
            return play_bandit(policy, contexts[first:last], rewards[first:last], uniforms[first:last])[1]
        return play(policy, contexts[first:last], rewards[first:last]).booked

    rounds(old, 0, 40)
    before = dict(old.books.accounts)
    old.new_period(0.5)
    assert old.books.entry == {g: 1 + 0.5 * (r - 1) for g, r in before.items()}
    assert not old.books.period_rewards.any()
    assert old.books.period == 1
    new = kind(2, Books(labels, entitled, floor, initial=old.books.entry), alpha=alpha)
    if kind is not AlphaFairBandit:
        hand_over(old, new)
    assert (rounds(old, 40, 80) == rounds(new, 40, 80)).all()
    assert old.books.accounts == new.books.accounts
    if not bandit:
        assert old.surrogate_regret_bound == new.surrogate_regret_bound


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(("before", "adaptive", "adaptive on welfare")),
    alpha=st.sampled_from((0.5, 1.0, 2.0, 5.0)),
    carry=st.sampled_from((0.0, 0.25, 0.5, 1.0)),
    terms=st.sampled_from(("plain", "groups", "arm floor")),
    seed=seeds,
)
def test_every_period_has_its_own_guarantee(name: str, alpha: float, carry: float, terms: str, seed: int) -> None:
    policy: Any = POLICIES[name](2, make_books(terms, 3), alpha)
    contexts, rewards = make_rounds("zeros", 90, 2, len(policy.books.labels), seed)
    reached = certified = best = 0.0
    for k in range(3):
        part = slice(30 * k, 30 * (k + 1))
        run = play(policy, contexts[part], rewards[part])
        padded = Run([*run.contexts, 1], np.vstack([run.rewards, 0 * run.rewards[:1]]), run.booked, run.accounts)
        problem = problem_of(padded, policy.books)
        bound = policy.surrogate_regret_bound
        check_certificates(run, problem, alpha, bound)
        check_growth(run, problem, alpha)
        assert all(later <= earlier * (1 + EXACT) for earlier, later in itertools.pairwise(policy.units))
        found = certificate(problem, run.accounts[-1], alpha)
        reached += welfare(run.accounts[-1], alpha, problem.s)
        certified += found.optimum
        best += optimum(problem, alpha, 1e-9).welfare
        # the books: what was earned in this period, from 1, priced by the accounts that the policy played with
        problem.a = np.ones(len(problem.groups))
        earned = np.array([policy.books.accounts[g] - policy.books.entry[g] for g in problem.groups])
        booked = certificate(problem, 1 + earned, alpha, priced_by=run.accounts[-1])
        assert optimum(problem, alpha, 1e-9).welfare <= booked.boxed * (1 + ROUNDING)
        policy.new_period(carry)
    assert best <= certified * (1 + ROUNDING)
    assert reached > 0


def test_what_is_pending_is_paid_into_the_new_account() -> None:
    policy = AdaptiveBandit(1, Books([0, 1]), alpha=1.0)
    play_bandit(policy, [0] * 20, np.full((20, 2), 0.5), np.random.default_rng(13).random(20))
    policy.expect(0)
    policy.new_period(0.5)
    assert policy.pending.tolist() == [1.0, 0.0]
    assert policy.levels()[0] > policy.books.levels()[0]
    entry = policy.books.entry[0]
    policy.learn(0, 0, 0.5, 0.25)
    assert policy.books.accounts[0] == entry + 0.25
    assert policy.pending.tolist() == [0.0, 0.0]
    assert policy.books.period_rewards.tolist() == [0.25, 0.0]


def test_absent_groups_are_carried_too() -> None:
    policy = AlphaFair(1, Books(["a", "b"]), alpha=1.0)
    play(policy, [0] * 10, np.ones((10, 2)))
    policy.retire(1)
    left = policy.books.accounts["b"]
    policy.new_period(0.5)
    assert policy.books.accounts["b"] == 1 + 0.5 * (left - 1)
    policy.admit(["b"])
    assert policy.books.levels()[1] == 1 + 0.5 * (left - 1)


# Theorem D


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, inf])
def test_no_policy_beats_dying_arms(alpha: float) -> None:
    """The mean over all orders of W(R) is at most W(rho), and W(OPT) at least W(1 + T)."""
    lengths = (12, 18, 40)
    best, reached = dying_arms_accounts(lengths)
    for make in (AlphaFair, AdaptiveFull):
        found = []
        for order in itertools.permutations(range(3)):
            contexts, rewards = dying_arms(lengths, order)
            policy = make(3, Books(range(3)), alpha=alpha)
            run = play(policy, contexts, rewards)
            found.append(welfare(run.accounts[-1], alpha))
            assert optimum(problem_of(run), alpha).bound >= welfare(best, alpha) * (1 - ROUNDING)
        assert np.mean(found) <= welfare(reached, alpha) * (1 + ROUNDING)
        assert welfare(best, alpha) / np.mean(found) >= dying_arms_bound(lengths, alpha) * (1 - ROUNDING)


def test_uniform_play_meets_the_bound_for_large_alpha() -> None:
    """One common phase, then each of the others alone: the ratio tends to N."""
    assert dying_arms_bound([1e3, *[1e9] * 3], inf) == pytest.approx(4, rel=1e-2)
    for alpha in (1.0, 2.0, inf):
        for order in itertools.permutations(range(3)):
            contexts, rewards = dying_arms((5, 10, 30), order)
            uniform, best = 1 + rewards.sum(axis=0) / 3, optimum(problem_of(Run(contexts, rewards, rewards, [])), alpha)
            assert best.welfare <= 3 * welfare(uniform, alpha)


# the oracle's own optimum


@pytest.mark.parametrize("terms", sorted(TERMS))
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 5.0, inf])
def test_optimum_agrees_with_a_second_solver(terms: str, alpha: float) -> None:
    rng, books = np.random.default_rng(14), make_books(terms, 3)
    for _ in range(2):
        totals = 30 * rng.random((3, len(books.labels))) * (rng.random((3, len(books.labels))) < 0.7)
        problem = Problem(totals, books.labels, books.entitlements, books.arm_floor, books.group_floors, books.entry)
        found = optimum(problem, alpha)
        assert found.welfare <= found.bound <= found.welfare * (1 + 1e-8)
        if alpha < inf:
            reached = second_opinion(problem, alpha)
            assert found.welfare * (1 - 1e-6) <= reached <= found.bound * (1 + ROUNDING)
        else:
            for w in rng.random((100, len(problem.groups))):
                assert found.welfare <= problem.worth(w) / (problem.s @ w) * (1 + ROUNDING)
