"""Welfare and certificates for every alpha: golden values, the oracle, the kernel, invariants of runs, refusals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    Groups,
    InvalidArgument,
    Stream,
    Uniform,
    context_reward_totals,
    metrics,
    offline_optimum,
    simulate,
    streams,
)
from alphafair.math import welfare as kernels
from alphafair.streams import synthetic
from tests import naive_alpha
from tests.certificates import check_certificates
from tests.offline.test_alpha import Drawn

inf = math.inf
ALPHAS = (0.0, 0.5, 0.9, 1 - 1e-12, 1.0, 1 + 1e-12, 1.5, 2.0, 5.0, 16.0, 64.0, 100.0, inf)


def near(value: Any, tolerance: float = 1e-12) -> Any:
    return pytest.approx(value, rel=tolerance, abs=0)


# golden values; numbers in comments are those of the list that they come from


def test_welfare_is_the_power_mean() -> None:  # 1, 2, 3
    values = {
        0: 4.666666666666667, 0.5: 4, 1: 3.301927248894627, 2: 108 / 49, 5: 1.314742013935084, 64: 1.017591224960223,
        inf: 1, 1 - 1e-12: 3.301927248895985, 1 + 1e-12: 3.301927248893268,
    }  # fmt: skip
    for alpha, value in values.items():
        assert metrics.welfare([1, 4, 9], alpha) == near(value)
    entitled = {0: 2.833333333333333, 1: 2.803965795552201, 2: 2.769230769230769, 5: 2.636225726782154, inf: 2}
    for alpha, value in entitled.items():
        assert metrics.welfare([2, 6, 9], alpha, groups=Groups(entitlements=[1, 2, 3])) == near(value)


def test_certificates() -> None:  # 4 by the kernel, 5, 6, 7
    assert kernels.ln_alpha(50.0, 1 + 1e-9) == near(3.912022997776184)
    totals = [[8, 3], [2, 6]]
    ratios = {0.5: 1.452277442494834, 1: 1.45, 2: 1.445454545454545, 5: 1.432535137948985}
    regrets = {0.5: 1.922060227535543, 1: 0.7431271128649661, 2: 0.1129979035639413, 5: 0.0004521146668695153}
    for alpha, ratio in ratios.items():
        found = metrics.certificates(totals, [6, 5], alpha)
        assert found.welfare_ratio == near(ratio)
        assert found.standard_regret == near(regrets[alpha])
    entitled = Groups(entitlements=[1, 2])
    for alpha, ratio in {1: 1.433333333333333, 2: 1.683908045977011}.items():
        assert metrics.certificates(totals, [6, 5], alpha, groups=entitled).welfare_ratio == near(ratio)


def test_boxed_certificates() -> None:  # 10, 11
    totals = [[10, 1, 0], [0, 4, 1]]
    values = {1: (2.160402683649786, 2.277777777777778), 2: (1.780487804878049, 1.944444444444444)}
    for alpha, (boxed, ratio) in values.items():
        found = metrics.certificates(totals, [3, 2, 1.5], alpha)
        assert found.boxed_welfare_ratio == near(boxed)
        assert found.welfare_ratio == near(ratio)


def test_certificates_of_a_short_run() -> None:  # 13, 15
    stream = Stream.from_arrays([0, 0, 0], [[1, 0.5], [0.25, 1], [1, 1]])
    values = {
        1: (2.103477572482828, 7.443810604375774, 2.266068417935229),
        2: (2.103645360414212, 13.86808183463941, 2.252494369327293),
    }
    for alpha, (welfare, a_priori, certified) in values.items():
        policy = AlphaFair(1, 2, alpha=alpha)
        trace = simulate(policy, stream)
        assert metrics.welfare(trace.final, alpha) == near(welfare)
        assert metrics.welfare_certificate(policy) * welfare == near(a_priori)
        assert metrics.certificates(context_reward_totals(stream), trace, alpha).welfare == near(certified)


def test_lower_bounds() -> None:  # 16, 17
    assert synthetic._bound(np.array([1e15, 4e15]), 0.5) == near((3 / (2 * math.sqrt(2))) ** 2)
    values = {2: 1.414213562373095, 5: 2.605171084697352, 10: 4.528728688116765, 20: 8.304361203739343}
    for n, value in values.items():
        assert synthetic._bound(10.0 ** (12.0 * np.arange(1, n + 1)), 1.0) == near(value, 1e-9)


def test_discounted_and_carried_accounts() -> None:  # 19, 20
    for alpha, ratio in {0.5: 1.11779846637575, 1: 1.112308279074836, 2: 1.101328886916795}.items():
        assert metrics.certificates([[2.035, 2.305]], [1.88, 1.9525], alpha).welfare_ratio == near(ratio)
    for alpha, ratio in {1: 1.05, 2: 1.1625}.items():
        assert metrics.certificates([[4, 3]], [5, 3], alpha, initial=[3, 1.5]).welfare_ratio == near(ratio)


# the oracle and the kernel


@pytest.mark.parametrize("alpha", ALPHAS)
def test_welfare_against_oracle_and_kernel(alpha: float) -> None:
    rng = np.random.default_rng(0)
    for spread in (0.0, 1.0, 30.0, 140.0):
        accounts = 10.0 ** rng.uniform(-spread, spread, (7, 5))
        s = 10.0 ** rng.uniform(-2.0, 2.0, 5)
        many = metrics.welfare(accounts, alpha, groups=Groups(entitlements=s))
        for row, found in zip(accounts, many, strict=True):
            assert found == near(naive_alpha.welfare(row, alpha, s), 1e-12 * (1 + spread))
            assert found == near(kernels.welfare(row / s, s, alpha), 1e-13 * (1 + spread))
        assert metrics.welfare(accounts[0], alpha) == near(naive_alpha.welfare(accounts[0], alpha), 1e-11)
    assert metrics.welfare([1e-150, 1e250], alpha) == near(naive_alpha.welfare([1e-150, 1e250], alpha), 1e-10)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_certificates_against_the_oracle(alpha: float) -> None:
    rng = np.random.default_rng(1)
    for seed in range(12):
        drawn = Drawn(seed)
        accounts = drawn.problem.a + 40.0 * rng.random(len(drawn.problem.a))
        for prices in (None, 1.0 + 30.0 * rng.random(len(accounts))):
            terms: Any = {"initial": drawn.initial, "groups": drawn.groups, "present": drawn.present}
            found = metrics.certificates(drawn.totals, accounts, alpha, **terms, prices=prices)
            expected = naive_alpha.certificate(drawn.problem, accounts, alpha, prices)
            assert found.welfare == near(expected.optimum, 1e-11)
            assert found.boxed_welfare_ratio == near(expected.boxed_ratio, 1e-10)
            if alpha < inf:
                assert found.standard_regret == near(expected.standard_regret, 1e-8)
            else:
                assert found.standard_regret is None
            check_certificates(drawn.totals, accounts, alpha, **terms, prices=prices)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
def test_prices_below_one(alpha: float) -> None:
    """The accounts themselves as prices give what no prices give; other prices give valid bounds."""
    drawn = Drawn(5)
    accounts = drawn.problem.a + np.arange(1.0, 1.0 + len(drawn.problem.a))
    terms: Any = {"initial": drawn.initial, "groups": drawn.groups, "present": drawn.present}
    plain = metrics.certificates(drawn.totals, accounts, alpha, **terms)
    same = metrics.certificates(drawn.totals, accounts, alpha, **terms, prices=accounts)
    assert same[:-1] == pytest.approx(plain[:-1], rel=1e-9, abs=1e-9)  # the last is of two sides
    other = metrics.certificates(drawn.totals, accounts, alpha, **terms, prices=np.sqrt(accounts))
    assert drawn.solve(alpha).value <= other.optimum * (1 + 1e-9)


# runs


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 5.0, 16.0, inf])
@pytest.mark.parametrize("kind", ["plain", "groups"])
def test_certificates_of_runs(kind: str, alpha: float) -> None:
    groups = None
    if kind == "groups":
        groups = Groups(["a", "b", "a", "c"], entitlements={"a": 2.0}, pull_floor=0.05)
    for stream in (streams.ratings(400, 3, 4, seed=2), streams.dying_arms(4, 400, alpha=alpha)):
        totals = context_reward_totals(stream)
        for made in (AlphaFair, AlphaFairAdaptive):
            options: Any = {"feedback": "full"} if made is AlphaFairAdaptive else {}
            policy: Any = made(stream.n_contexts, 4, alpha=alpha, groups=groups, **options)
            simulate(policy, stream)
            check_certificates(totals, policy.accounts, alpha, groups=policy.groups, policy=policy)


def test_a_bound_known_without_rewards_follows_entry_accounts() -> None:
    """Theorem C with carried accounts is the budget of the oracle."""
    stream = streams.ratings(300, 2, 3, seed=1)
    for alpha in (0.5, 1.0, 2.0, 16.0):
        policy = AlphaFair(2, 3, alpha=alpha, groups=Groups(entitlements=[1.0, 2.0, 3.0]))
        simulate(policy, stream)
        policy.new_period(carry=0.5)
        entry = np.array(policy.accounts)
        simulate(policy, stream)
        s, bound = policy.groups.entitlements, policy.surrogate_regret_bound
        budget = naive_alpha.a_priori_budget(policy.accounts, alpha, bound, s, entry)
        money = float(naive_alpha.slopes(policy.accounts / s, alpha) @ policy.accounts)
        assert metrics.welfare_certificate(policy) == near(budget / money, 1e-9)
        check_certificates(
            context_reward_totals(stream), policy.accounts, alpha, initial=entry, groups=policy.groups, policy=policy
        )


def test_the_budget_in_expectation() -> None:
    stream = streams.ratings(500, 2, 3, seed=1)
    for alpha in (0.5, 1.0, 2.0, 5.0):
        policy = AlphaFairAdaptive(2, 3, alpha=alpha)
        simulate(policy, stream)
        if alpha < 1.0:
            assert metrics.bound_in_expectation(policy) > 0.0
        bound = policy.expected_surrogate_regret_bound
        assert bound is not None
        budget = naive_alpha.a_priori_budget(policy.accounts, alpha, bound)
        assert metrics.expected_welfare_budget(policy) == near(budget, 1e-10)


# gaps


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 16.0, inf])
@pytest.mark.parametrize("s", [None, [1.0, 4.0, 0.5]])
def test_gaps_in_welfare(alpha: float, s: Any) -> None:
    groups = None if s is None else Groups(entitlements=s)
    uniform = np.array([600.0, 1500.0, 700.0])
    options: Any = {"groups": groups, "in_welfare": True}
    grown = 1.0 + (uniform - 1.0) * (1.0 + 1e-6)
    more = metrics.welfare(grown, alpha, groups=groups)
    assert metrics.gap_to_close(more, uniform, alpha, **options) == pytest.approx(1e-6, rel=1e-4)
    best, floor = 2.0 * more, metrics.welfare(uniform, alpha, groups=groups)
    assert metrics.gap_closed(best, uniform, uniform, alpha, **options) == 0.0
    assert metrics.gap_closed(best, uniform, uniform * 1.5, alpha, **options) == pytest.approx(
        0.5 * floor / (best - floor)
    )
    assert metrics.has_gap(best, uniform, alpha, **options)
    assert not metrics.has_gap(best, uniform, alpha, certified=best, **options)
    if alpha >= 1.0:
        assert metrics.gap_closed(best, uniform, grown, alpha, groups=groups) == metrics.gap_closed(
            best, uniform, grown, alpha, **options
        )
    assert metrics.gap_to_close(2.0, [1.0, 1.0], alpha, in_welfare=True) == 0.0


def test_gaps_in_alpha_performance_stay_below_one() -> None:
    value = metrics.alpha_performance([9.0, 9.0], 0.5)
    assert metrics.gap_closed(value, [4.0, 4.0], [9.0, 4.0], 0.5) == 0.5
    with pytest.raises(InvalidArgument, match="finite for a sum of utilities"):
        metrics.gap_closed(9.0, [4.0, 4.0], [9.0, 4.0], inf, in_welfare=False)


# refusals, and sums of utilities


def test_sums_of_utilities_from_one_on() -> None:
    accounts = [2.0, 5.0]
    assert metrics.utility(2.0, 1.0) == near(math.log(2.0))
    assert metrics.utility(2.0, 3.0) == -0.125
    assert metrics.marginal_utility(2.0, 3.0) == 0.125
    assert metrics.alpha_performance(accounts, 1.0) == near(math.log(10.0))
    s = Groups(entitlements=[1.0, 3.0])
    assert metrics.alpha_performance(accounts, 1.0, groups=s) == near(math.log(2.0) + 3 * math.log(5.0))
    assert metrics.alpha_performance(accounts, 3.0, groups=s) == near(-(0.25 + 27 / 25) / 2)
    assert metrics.standard_regret(0.0, accounts, 2.0) == near(0.7)
    assert metrics.alpha_performance([1e-100, 1.0], 64.0) == -inf


BELOW_ONE: dict[str, Any] = {
    "approximation_factor": lambda alpha: metrics.approximation_factor(alpha),
    "approximate_regret": lambda alpha: metrics.approximate_regret(9.0, [2.0, 3.0], alpha),
    "performance_ratio": lambda alpha: metrics.performance_ratio(9.0, [2.0, 3.0], alpha),
    "is_vacuous": lambda alpha: metrics.is_vacuous(9.0, 9.0, 2, alpha),
    "most_worth": lambda alpha: metrics.most_worth(9.0, 2, alpha),
    "regret_certificate": lambda alpha: metrics.regret_certificate(AlphaFair(1, 2, alpha=alpha)),
}


@pytest.mark.parametrize("alpha", [1.0, 2.0, inf])
@pytest.mark.parametrize("name", BELOW_ONE)
def test_measures_with_a_factor_refuse_alpha_from_one_on(name: str, alpha: float) -> None:
    with pytest.raises(InvalidArgument, match=r"alpha must be below 1 for .*use metrics\.(most_)?welfare"):
        BELOW_ONE[name](alpha)


def test_refusals_name_the_welfare_ratio() -> None:
    with pytest.raises(InvalidArgument, match=r"below 1 for c_alpha-regret; got 1.0.*metrics\.welfare_ratio"):
        metrics.approximate_regret(9.0, [2.0, 3.0], 1.0)
    policy = AlphaFairAdaptive(2, 3, alpha=1.0)
    simulate(policy, streams.ratings(50, 2, 3))
    with pytest.raises(InvalidArgument, match="expected_welfare_budget"):
        metrics.bound_in_expectation(policy)
    for metric in (metrics.utility, metrics.marginal_utility, metrics.alpha_performance):
        with pytest.raises(InvalidArgument, match="finite for a sum of utilities"):
            metric([2.0], inf)
    for metric in (metrics.welfare_certificate, metrics.expected_welfare_budget):
        with pytest.raises(InvalidArgument, match="policy"):
            metric(Uniform(2, 3))
    with pytest.raises(InvalidArgument, match="prices"):
        metrics.certificates([[1.0, 2.0]], [2.0, 3.0], 1.0, prices=[[2.0, 3.0]])
    with pytest.raises(InvalidArgument, match="welfare of an offline_optimum"):
        metrics.welfare_ratio([1.0, 2.0, 3.0], [2.0, 3.0], 1.0)


def test_a_certificate_above_the_mean_says_nothing() -> None:
    totals = [[1000.0, 0.0], [0.0, 1000.0]]
    assert not metrics.certificates(totals, [1001.0, 1001.0], 2.0).vacuous
    assert metrics.certificates(totals, [1001.0, 1001.0], inf).welfare_ratio == near(1.0)
    assert metrics.certificates([[1000.0, 1.0]], [2.0, 900.0], 1.0).vacuous
    assert metrics.most_welfare(8.0, 2, groups=Groups(entitlements=[1.0, 3.0])) == 2.0


# dying arms


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 1.0, 2.0, 16.0, inf])
def test_dying_arms(alpha: float) -> None:
    for n, t in ((2, 2), (3, 3), (4, 1_000), (10, 40_000)):
        stream = streams.dying_arms(n, t, alpha=alpha, seed=3)
        lengths = np.bincount(stream.contexts, minlength=n)
        assert stream.n_rounds == t == lengths.sum()
        assert (lengths >= 1).all()
        assert (np.diff(stream.contexts) >= 0).all()
        living = [int(stream.rewards(int(start)).sum()) for start in np.cumsum(lengths) - lengths]
        assert living == list(range(n, 0, -1))
        bound = streams.dying_arms_bound(n, t, alpha=alpha)
        assert bound == near(naive_alpha.dying_arms_bound(lengths, alpha), 1e-11)
        best = offline_optimum(context_reward_totals(stream), alpha)
        order = 1.0 + lengths
        assert best.welfare >= naive_alpha.welfare(order, alpha) * (1 - 1e-9)
    assert (streams.dying_arms(5, 100, seed=1).reward_table != streams.dying_arms(5, 100, seed=2).reward_table).any()


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_no_policy_beats_dying_arms(alpha: float) -> None:
    """In the mean over all orders of three arms; a run in one order has the others by renaming arms."""
    n, t = 3, 60
    seen: dict[tuple[int, ...], float] = {}
    for seed in itertools.count():
        stream = streams.dying_arms(n, t, alpha=alpha, seed=seed)
        order = tuple(stream.reward_table.sum(axis=0).astype(int).tolist())
        if order not in seen:
            seen[order] = metrics.welfare(simulate(AlphaFair(n, n, alpha=alpha), stream).final, alpha)
        if len(seen) == 6:
            break
    best = metrics.welfare(1.0 + np.bincount(stream.contexts), alpha)
    assert best / np.mean([*seen.values()]) >= streams.dying_arms_bound(n, t, alpha=alpha) * (1 - 1e-9)


@pytest.mark.compiled
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0])
def test_the_adaptive_policy_meets_the_bound(alpha: float) -> None:
    stream = streams.dying_arms(10, 40_000, alpha=alpha)
    trace = simulate(AlphaFairAdaptive(10, 10, alpha=alpha, feedback="full"), stream)
    best = offline_optimum(context_reward_totals(stream), alpha).welfare
    ratio = metrics.welfare_ratio(best, trace.final, alpha)
    assert ratio == pytest.approx(streams.dying_arms_bound(10, 40_000, alpha=alpha), rel=0.01)
