"""Metrics against the oracle and against what they mean."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    Groups,
    Uniform,
    context_reward_totals,
    metrics,
    offline_optimum,
    rescale_rewards,
    simulate,
    streams,
)
from alphafair.algorithms.adaptive_bandit import N
from alphafair.checks.conformance import binomial_band
from alphafair.offline import OfflineOptimum
from tests import naive

rewards = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(rewards, st.floats(0.0, 0.999))
def test_against_the_oracle(values: list[float], alpha: float) -> None:
    earned = np.array(values)
    np.testing.assert_allclose(metrics.utility(earned, alpha), naive.utility(earned, alpha), rtol=1e-14)
    np.testing.assert_allclose(metrics.marginal_utility(earned, alpha), naive.marginal_utility(earned, alpha))
    assert metrics.alpha_performance(earned, alpha) == pytest.approx(naive.alpha_performance(earned, alpha), rel=1e-13)
    assert metrics.jain_index(earned) == pytest.approx(naive.jain_index(earned), rel=1e-12)
    assert metrics.average_reward(earned) == pytest.approx(earned.sum() / len(earned))
    assert metrics.shares(earned).sum() == pytest.approx(1.0)
    assert 1.0 / len(earned) - 1e-12 <= metrics.jain_index(earned) <= 1.0 + 1e-12


def test_many_rounds_at_once() -> None:
    earned = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    assert metrics.jain_index(earned).shape == (3,)
    assert metrics.shares(earned).tolist() == [[0.5, 0.5], [2 / 3, 1 / 3], [0.75, 0.25]]
    np.testing.assert_allclose(metrics.standard_regret([4.0, 5.0, 6.0], earned, 0.0), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(metrics.approximate_regret([4.0, 5.0, 6.0], earned, 0.0), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(metrics.performance_ratio([4.0, 6.0, 8.0], earned, 0.0), [2.0, 2.0, 2.0])


def test_a_trace_is_as_good_as_its_rewards() -> None:
    stream = streams.ratings(200, 2, 3, seed=0)
    trace = simulate(AlphaFair(2, 3), stream, record_every=50)
    uniform = simulate(Uniform(2, 3, feedback="full"), stream, record_every=50)
    optimum = metrics.alpha_performance(trace, 0.9) + 1.0
    assert metrics.standard_regret(optimum, trace, 0.9) == pytest.approx(np.ones(4))
    assert np.array_equal(metrics.jain_index(trace), metrics.jain_index(trace.accounts))
    assert metrics.gap_closed(optimum, uniform, uniform, 0.9) == pytest.approx(np.zeros(4))
    top = metrics.alpha_performance(trace, 0.9) > metrics.alpha_performance(uniform, 0.9)
    assert np.array_equal(metrics.gap_closed(optimum, uniform, trace, 0.9) > 0.0, top)


COMPARED = [metrics.standard_regret, metrics.approximate_regret, metrics.performance_ratio]
EVEN = np.full((3, 2), 1.0)


def gap_from_even(optimum: Any, earned: Any, alpha: float) -> Any:
    return metrics.gap_closed(optimum, np.ones(2), earned, alpha)


@pytest.mark.parametrize("metric", [*COMPARED, gap_from_even])
@pytest.mark.parametrize(
    ("optimum", "words"),
    [
        ([4.0, 5.0], r"as many as the records, shape \(3,\); got 'shape \(2,\)'. Pass the value of an offline_optimum"),
        ([4.0], r"as many as the records, shape \(3,\); got 'shape \(1,\)'"),
        (np.ones((2, 3)), r"as many as the records, shape \(3,\); got 'shape \(2, 3\)'"),
        (np.nan, r"optimum must be numbers in \[-1e\+150, 1e\+150\]; got "),
        ([4.0, np.inf, 5.0], r"optimum must be numbers in \[-1e\+150, 1e\+150\]; got "),
        (
            OfflineOptimum(EVEN, EVEN[0], EVEN[0], 4.0, 0.0, 1, True, 2.0, 0.0, *EVEN[:3]),
            "optimum must be one number, or one per record; got Offl",
        ),
    ],
)
def test_an_optimum_is_one_number_or_one_a_record(metric: Any, optimum: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        metric(optimum, EVEN + 1.0, 0.5)


@pytest.mark.parametrize("metric", COMPARED)
def test_one_optimum_a_record_serves_all_seeds(metric: Any) -> None:
    seeds = 1.0 + np.arange(24.0).reshape(4, 3, 2)
    optimum = np.array([50.0, 60.0, 70.0])
    expected = [metric(optimum, earned, 0.5) for earned in seeds]
    assert np.array_equal(metric(optimum, seeds, 0.5), expected)
    assert np.array_equal(metric(50.0, seeds, 0.5)[:, 0], np.array(expected)[:, 0])


def test_uniform_play_is_recorded_as_the_run_is() -> None:
    with pytest.raises(ValueError, match=r"uniform must be one number, or as many .* \(3,\); got 'shape \(2,\)'"):
        metrics.gap_closed(9.0, EVEN[:2], EVEN + 1.0, 0.0)
    with pytest.raises(ValueError, match=r"uniform must be .* \(\); got 'shape \(3,\)'. Record both runs at the same"):
        metrics.gap_closed(9.0, EVEN, EVEN[0] + 1.0, 0.0)


@pytest.mark.parametrize("lossy", [np.array([1.0 + 1.0j, 2.0]), np.ma.masked_array([1.0, 2.0], [False, True])])
def test_complex_and_masked_numbers_are_refused(lossy: Any) -> None:
    for measure in (metrics.jain_index, metrics.average_over_seeds, lambda earned: rescale_rewards(earned, 0, 5)):
        with pytest.raises(ValueError, match=r"; got '(complex numbers|masked entries)'. Pass real numbers"):
            measure(lossy)
    assert metrics.jain_index(np.ma.masked_array([1.0, 1.0], [False, False])) == 1.0


def test_gap_closed_needs_a_gap() -> None:
    with pytest.raises(ValueError, match="optimum must be above the performance of uniform play; got 4"):
        metrics.gap_closed(4.0, [2.0, 2.0], [2.0, 2.0], 0.0)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("groups", [None, Groups(entitlements=[1.0, 4.0, 0.5])])
def test_a_bound_that_no_run_can_exceed_is_vacuous(alpha: float, groups: Groups | None) -> None:
    start = metrics.alpha_performance(np.ones(3), alpha, groups=groups)
    worst = 100.0 - metrics.approximation_factor(alpha) * float(start)  # of a run that earns nothing
    assert metrics.approximate_regret(100.0, np.ones(3), alpha, groups=groups) == pytest.approx(worst)
    assert metrics.is_vacuous(worst + 1e-9, 100.0, 3, alpha, groups=groups)
    assert not metrics.is_vacuous(worst - 1e-9, 100.0, 3, alpha, groups=groups)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("s", [None, [1.0, 4.0, 0.5]])
def test_no_split_is_worth_more_than_the_most(alpha: float, s: Any) -> None:
    rng, groups = np.random.default_rng(0), Groups(entitlements=s)
    most = metrics.most_worth(60.0, 3, alpha, groups=groups)
    splits = 60.0 * rng.dirichlet(np.ones(3), 1000) + 1e-9
    assert (metrics.alpha_performance(splits, alpha, groups=groups) <= most * (1 + 1e-9)).all()
    best = 60.0 * np.array(s or np.ones(3)) / np.sum(s or np.ones(3))
    assert metrics.alpha_performance(best, alpha, groups=groups) == pytest.approx(most)


def test_a_vacuous_certificate_is_marked() -> None:
    """Who starves an arm certifies little: less than that there are only so many rewards."""
    totals = np.full((4, 3), 1000.0)
    starved, even = (metrics.certificates(totals, earned, 0.9) for earned in ([3998.0, 2.0, 3.0], np.full(3, 1334.0)))
    assert starved.vacuous
    assert starved.optimum > metrics.most_worth(4003.0, 3, 0.9)
    assert not even.vacuous
    assert even.optimum == pytest.approx(metrics.most_worth(4003.0, 3, 0.9), rel=1e-3)
    assert not metrics.certificates([[5.0]], [6.0], 0.5).vacuous, "one arm: the bound is the optimum"


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_the_gap_to_close_is_in_rewards(alpha: float, size: float) -> None:
    """Uniform play with 1% more reward for everybody is 1% ahead, whatever alpha and the size of rewards."""
    uniform, s = 1.0 + size * np.array([3.0, 8.0, 1.0]), [1.0, 2.0, 0.5]
    for more in (0.001, 0.004, 0.006, 0.02):
        best = 1.0 + (1.0 + more) * (uniform - 1.0)
        for groups in (None, Groups(entitlements=s)):
            optimum = metrics.alpha_performance(best, alpha, groups=groups)
            found = metrics.gap_to_close(optimum, uniform, alpha, groups=groups)
            assert found == pytest.approx(more, rel=0.02)
            assert metrics.has_gap(optimum, uniform, alpha, groups=groups) == (more > metrics.LEAST_GAP)
    assert metrics.gap_to_close([6.0, 8.0], [[2.0, 3.0], [2.0, 2.0]], 0.0).tolist() == [1.0 / 3.0, 2.0]
    assert metrics.gap_to_close(2.0, [1.0, 1.0], 0.0) == 0.0
    assert not metrics.has_gap(2.0, [1.0, 1.0], 0.0)
    assert not metrics.has_gap(11.0, [5.0, 5.0], 0.0, certified=1.0)


def test_student_quantile_against_scipy() -> None:
    degrees = [1, 2, 3, 4, 5, 9, 29, 100, 5000, 1_000_000]
    probabilities = [0.6, 0.95, 0.975, 0.999, 0.4, 1e-3, 5e-8, 5e-10, 1e-15, 2.0**-54]
    found = [[metrics.student_quantile(p, each) for each in degrees] for p in probabilities]
    np.testing.assert_allclose(found, scipy.stats.t.ppf(np.c_[probabilities], degrees), rtol=1e-10)


@pytest.mark.parametrize("level", [0.95, 1 - 1e-7, 1 - 1e-9, 1 - 2.0**-53])
@pytest.mark.parametrize("n_seeds", [2, 4, 5, 30])
def test_bands_of_any_level_agree_with_scipy(n_seeds: int, level: float) -> None:
    samples = np.arange(float(n_seeds))
    band = metrics.average_over_seeds(samples, level=level)
    half = scipy.stats.t.isf((1.0 - level) / 2.0, n_seeds - 1) * scipy.stats.sem(samples)
    assert (float(band.low), float(band.high)) == pytest.approx((band.value - half, band.value + half), rel=1e-9)


def test_seed_bands() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        band = metrics.average_over_seeds(rng.normal(3.0, 2.0, size=(10, 1)))
        covered += int(band.low[0] <= 3.0 <= band.high[0])
    low, high = binomial_band(400, 0.95, 1e-4)
    assert low <= covered <= high
    one = metrics.average_over_seeds([[1.0, 2.0]])
    assert one.low.tolist() == one.value.tolist() == one.high.tolist() == [1.0, 2.0]
    for bad in ([], 1.0, [[np.nan]], "many", [[1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"samples must be numbers in \[.*\], one row per seed"):
            metrics.average_over_seeds(bad)


def test_jain_survives_huge_rewards() -> None:
    assert metrics.jain_index([1e200, 1e200]) == 1.0


def test_approximation_factor_is_bounded() -> None:
    factors = [metrics.approximation_factor(alpha) for alpha in np.linspace(0.0, 0.999, 500)]
    assert min(factors) >= 1.0
    assert max(factors) <= np.exp(1 / np.e)


@pytest.mark.parametrize("bad", [[0.0, 1.0], [-1.0, 1.0], [np.nan, 1.0], [np.inf, 1.0], []])
def test_accounts_must_be_positive(bad: list[float]) -> None:
    with pytest.raises(ValueError, match=r"must be numbers in \[1e-150, 1e\+250\]"):
        metrics.jain_index(bad)


def test_rescale_keeps_order_and_ends() -> None:
    out = rescale_rewards([[-5.0, 0.0], [2.5, 5.0]], -5, 5, floor=0.1)
    np.testing.assert_allclose(out, [[0.1, 0.55], [0.775, 1.0]])
    assert rescale_rewards([0.1, 0.2, 0.3], 0.1, 0.3, floor=0.0).max() == 1.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([6.0], 0, 5), r"rewards\[0\] must be numbers in \[0, 5\]; got 6.0"),
        ((np.nan, 0, 5), r"rewards must be numbers in \[0, 5\]; got nan"),
        (([1.0], 5, 5), r"high must be a number in \(5, inf\); got 5"),
        (([1.0], 0, 5, 1.0), r"floor must be a number in \[0, 1\); got 1.0"),
    ],
)
def test_rescale_refusals(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        rescale_rewards(*arguments[:3], **({"floor": arguments[3]} if len(arguments) > 3 else {}))  # type: ignore[arg-type]


def test_certificates_by_hand() -> None:
    """Two arms that pay 3 and 1 in the only context, played evenly: R = (2.5, 1.5); at alpha = 0 the ceiling is OPT."""
    linear = metrics.certificates([[3.0, 1.0]], [2.5, 1.5], alpha=0.0)
    assert linear[:4] == pytest.approx((5.0, 1.0, 1.0, 1.25))
    fair = metrics.certificates([[3.0, 1.0]], [2.5, 1.5], alpha=0.5)
    w, achieved = np.array([2.5, 1.5]) ** -0.5, 2 * (2.5**0.5 + 1.5**0.5)
    ratio = ((w.sum() + 3 * w[0]) / (0.5 * achieved)) ** 0.5
    assert fair[:4] == pytest.approx((ratio * achieved, (ratio - 2**0.5) * achieved, (ratio - 1) * achieved, ratio))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.integers(1, 5), st.integers(1, 5), st.floats(0.0, 0.99), st.sampled_from([1e-3, 1.0, 1e4]), st.integers(0, 2**32)
)
def test_certificates_hold_for_any_rewards_at_all(m: int, n: int, alpha: float, scale: float, seed: int) -> None:
    """R need not come from a run; at the optimum the ceiling is the optimum."""
    rng = np.random.default_rng(seed)
    totals = scale * rng.random((m, n)) * (rng.random((m, n)) < 0.8)
    first = 1.0 + rng.random(n)
    best = offline_optimum(totals, alpha, initial=first)
    for earned in (0.1 + scale * rng.random(n), best.accounts):
        found = metrics.certificates(totals, earned, alpha, initial=first)
        slack = 1e-10 * found.optimum
        assert best.value <= found.optimum + slack
        assert metrics.approximate_regret(best.value, earned, alpha) <= found.approximate_regret + slack
        assert metrics.standard_regret(best.value, earned, alpha) <= found.standard_regret + slack
        assert metrics.performance_ratio(best.value, earned, alpha) <= found.performance_ratio * (1 + 1e-10)
    assert found.optimum <= best.value + best.gap + slack


def test_certificates_take_the_last_record_of_a_trace() -> None:
    stream = streams.ratings(n_rounds=50, n_contexts=2, n_arms=3, seed=0)
    trace = simulate(Uniform(2, 3, feedback="full"), stream, record_every=10)
    totals = context_reward_totals(stream)
    assert metrics.certificates(totals, trace, 0.5) == metrics.certificates(totals, trace.final, 0.5)


@pytest.mark.parametrize(
    ("changed", "argument"),
    [
        ({"context_reward_totals": [1.0, 2.0]}, "context_reward_totals"),
        ({"context_reward_totals": [[1.0]]}, "context_reward_totals"),
        ({"context_reward_totals": [[1.0, -2.0]]}, "context_reward_totals"),
        ({"context_reward_totals": [[1.0, np.nan]]}, "context_reward_totals"),
        ({"accounts": [[1.0, 2.0]]}, "accounts"),
        ({"accounts": [0.0, 2.0]}, "accounts"),
        ({"initial": [1.0, 1.0, 1.0]}, "initial"),
        ({"initial": -1.0}, "initial"),
        ({"alpha": -1.0}, "alpha"),
    ],
)
def test_certificates_refuse(changed: dict[str, Any], argument: str) -> None:
    good = {"context_reward_totals": [[1.0, 2.0]], "accounts": [1.0, 2.0], "alpha": 0.5}
    with pytest.raises(ValueError, match=argument):
        metrics.certificates(**(good | changed))


def test_accounts_of_groups() -> None:
    trace = simulate(Uniform(2, 3, feedback="full"), streams.ratings(50, 2, 3, seed=0), record_every=10)
    accounts = metrics.group_accounts(trace, ["b", "a", "b"])
    expected = np.column_stack([trace.accounts[:, [0, 2]].sum(axis=1) - 1.0, trace.accounts[:, 1]])
    np.testing.assert_allclose(accounts, expected, rtol=1e-14)
    with pytest.raises(ValueError, match="groups must be 3 labels, one per arm"):
        metrics.group_accounts(trace, ["a", "b"])
    with pytest.raises(ValueError, match=r"must be numbers in \[1e-150, .*; got .* Accounts start at 1: add it"):
        metrics.group_accounts([0.2, 0.3, 4.0], ["a", "a", "b"])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(1e-3, 1e9), st.floats(1e-6, 1e6)), min_size=1, max_size=9), st.floats(0.0, 0.99))
def test_entitlements_against_the_oracle(pairs: list[tuple[float, float]], alpha: float) -> None:
    earned, s = np.array(pairs).T
    achieved = float((s**alpha * naive.utility(earned, alpha)).sum())
    said: dict[str, Any] = {"groups": Groups(entitlements=s)}
    assert metrics.alpha_performance(earned, alpha, **said) == pytest.approx(achieved, rel=1e-13)
    assert metrics.jain_index(earned, **said) == pytest.approx(naive.jain_index(earned / s), rel=1e-12)
    top = 2.0 * achieved
    assert metrics.standard_regret(top, earned, alpha, **said) == pytest.approx(achieved, rel=1e-12)
    factor = naive.approximation_factor(alpha)
    assert metrics.approximate_regret(top, earned, alpha, **said) == pytest.approx((2.0 - factor) * achieved, rel=1e-12)
    assert metrics.performance_ratio(top, earned, alpha, **said) == pytest.approx(2.0, rel=1e-12)
    low = float((s**alpha * naive.utility(0.5 * earned, alpha)).sum())
    closed = metrics.gap_closed(top, 0.5 * earned, earned, alpha, **said)
    assert closed == pytest.approx((achieved - low) / (top - low), rel=1e-9)


def test_an_entitlement_of_one_for_all_changes_no_bit() -> None:
    earned = 1.0 + np.random.default_rng(0).gamma(1.0, 50.0, (4, 6))
    for metric in (metrics.alpha_performance, lambda r, alpha, **said: metrics.jain_index(r, **said)):
        for same in (Groups(), Groups(entitlements=[1.0] * 6), Groups(entitlements={3: 1.0}), list("abcdef")):
            assert np.array_equal(metric(earned, 0.7, groups=same), metric(earned, 0.7))
    alike = Groups(entitlements=[7.0] * 6)
    assert np.array_equal(metrics.jain_index(earned, groups=alike).round(12), metrics.jain_index(earned).round(12))
    with pytest.raises(ValueError, match="entitlements must be 6 finite numbers, one per group"):
        metrics.alpha_performance(earned, 0.7, groups=Groups(entitlements=[1.0, 2.0]))


def test_accounts_may_be_those_of_arms_or_of_groups() -> None:
    """As a policy that is fair to groups has them, and as the trace of any run has them."""
    stream = streams.ratings(300, 2, 4, seed=0)
    groups = Groups(["a", "b", "a", "c"], entitlements={"b": 3.0})
    policy = AlphaFair(2, 4, alpha=0.5, groups=groups)
    trace = simulate(policy, stream)
    for each in (groups, policy.groups):
        for metric in (
            lambda r, g: metrics.alpha_performance(r, 0.5, groups=g),
            lambda r, g: metrics.jain_index(r, groups=g),
            lambda r, g: metrics.average_reward(r, groups=g),
            lambda r, g: metrics.shares(r, groups=g).min(),
            lambda r, g: metrics.standard_regret(500.0, r, 0.5, groups=g),
            lambda r, g: metrics.certificates(context_reward_totals(stream), r, 0.5, groups=g).optimum,
        ):
            assert metric(policy.accounts, each) == pytest.approx(metric(trace.final, each), rel=1e-12)
    s = np.array([1.0, 3.0, 1.0])
    by_hand = float((s**0.5 * naive.utility(metrics.group_accounts(trace.final, groups), 0.5)).sum())
    assert metrics.alpha_performance(trace.final, 0.5, groups=groups) == pytest.approx(by_hand, rel=1e-14)
    for bad in ([1.0, 2.0], np.ones(5)):
        with pytest.raises(ValueError, match="accounts must be one number for each of 4 arms, or of 3 groups; got"):
            metrics.jain_index(bad, groups=groups)
        with pytest.raises(ValueError, match="accounts must be one number for each of 4 arms, or of 3 groups; got"):
            metrics.certificates(context_reward_totals(stream), bad, 0.5, groups=policy.groups)
    with pytest.raises(ValueError, match="groups must be groups of 3 arms; got 4"):
        metrics.group_accounts([1.0, 2.0, 3.0], policy.groups)


def test_one_run_gives_floats_that_json_holds_and_many_give_arrays() -> None:
    stream = streams.ratings(60, 2, 3, seed=0)
    trace = simulate(AlphaFair(2, 3, alpha=0.5), stream, record_every=20)
    totals = context_reward_totals(stream)
    uniform = 1.0 + totals.sum(axis=0) / 3
    for groups in (None, ["a", "b", "a"]):
        said: dict[str, Any] = {"groups": groups}
        metric = {
            "alpha_performance": lambda r, said=said: metrics.alpha_performance(r, 0.5, **said),
            "jain_index": lambda r, said=said: metrics.jain_index(r, **said),
            "average_reward": lambda r, said=said: metrics.average_reward(r, **said),
            "standard_regret": lambda r, said=said: metrics.standard_regret(100.0, r, 0.5, **said),
            "approximate_regret": lambda r, said=said: metrics.approximate_regret(100.0, r, 0.5, **said),
            "performance_ratio": lambda r, said=said: metrics.performance_ratio(100.0, r, 0.5, **said),
            "gap_to_close": lambda r, said=said: metrics.gap_to_close(100.0, r, 0.5, **said),
        }
        one = {name: found(trace.final) for name, found in metric.items()}
        one["gap_closed"] = metrics.gap_closed(100.0, uniform, trace.final, 0.5, **said)
        one["most_worth"] = metrics.most_worth(100.0, 3, 0.5, **said)
        bounds = metrics.certificates(totals, trace, 0.5, **said)._asdict()
        assert bounds.pop("two_sided_welfare_ratio") is None
        one |= {f"{name} at most": bound for name, bound in bounds.items()}
        assert json.loads(json.dumps(one)) == one
        assert {type(each) for name, each in one.items() if "vacuous" not in name} == {float}
        for name, found in metric.items():
            many = found(trace)
            assert isinstance(many, np.ndarray)
            assert many.shape == (3,)
            assert many[-1] == one[name]
    assert type(metrics.utility(4.0, 0.5)) is type(metrics.marginal_utility(4.0, 0.5)) is float
    assert json.dumps(metrics.average_over_seeds([1.0, 2.0, 4.0])._asdict())
    assert [type(side) for side in metrics.average_over_seeds([1.0])] == [float] * 3


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    m=st.integers(1, 5),
    n=st.integers(2, 6),
    alpha=st.floats(0.0, 0.99),
    scale=st.sampled_from([1e-3, 1.0, 1e4]),
    floors=st.sampled_from(["none", "arms", "groups"]),
    seed=st.integers(0, 2**32),
)
def test_certificates_of_groups_hold_for_any_rewards_at_all(
    m: int, n: int, alpha: float, scale: float, floors: str, seed: int
) -> None:
    """The optimum is solved for; R of arms need not come from a run, and at the optimum the ceiling is the optimum."""
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n, n).tolist()
    k = len(set(groups))
    floor = {"none": 0.0, "arms": rng.random() / n, "groups": rng.random() * rng.dirichlet(np.ones(k))}[floors]
    fair = Groups(groups, entitlements=10.0 ** rng.uniform(-2, 2, k), pull_floor=floor)
    said: dict[str, Any] = {"groups": fair, "initial": 0.5 + rng.random(k)}
    totals = scale * rng.random((m, n)) * (rng.random((m, n)) < 0.8)
    best = offline_optimum(totals, alpha, **said)
    for earned in (1.0 + scale * rng.random(n), best.accounts):
        found = metrics.certificates(totals, earned, alpha, **said)
        slack, compared = 1e-10 * found.optimum, (best.value, earned, alpha)
        assert best.value <= found.optimum + slack
        assert metrics.approximate_regret(*compared, groups=fair) <= found.approximate_regret + slack
        assert metrics.standard_regret(*compared, groups=fair) <= found.standard_regret + slack
        assert metrics.performance_ratio(*compared, groups=fair) <= found.performance_ratio * (1 + 1e-10)
    assert found.optimum <= best.value + best.gap + slack


def test_certificates_of_groups_by_hand() -> None:
    """Two sellers of three arms, 1 and 4 entitled, every arm promised a tenth: A = <w, 1> + .1 <V, w> + .7 max V w."""
    earned, totals = [3.0, 2.0, 7.0], np.array([[5.0, 6.0, 2.0]])
    said: dict[str, Any] = {"labels": ["a", "a", "b"], "entitlements": {"b": 4.0}}
    w = np.array([4.0**-0.5, (7.0 / 4.0) ** -0.5])
    achieved = 2.0 * (4.0**0.5 + 2.0 * 7.0**0.5)
    floor = w.sum() + 0.1 * (11.0 * w[0] + 2.0 * w[1])
    found = metrics.certificates(totals, earned, 0.5, groups=Groups(pull_floor=0.1, **said))
    assert found.optimum == pytest.approx(((floor + 0.7 * 6.0 * w[0]) / (0.5 * achieved)) ** 0.5 * achieved)
    promised = w.sum() + 0.25 * 6.0 * w[0] + 0.5 * 2.0 * w[1] + 0.25 * 6.0 * w[0]
    floors = {"a": 0.25, "b": 0.5}
    found = metrics.certificates(totals, earned, 0.5, groups=Groups(pull_floor=floors, **said))
    assert found.optimum == pytest.approx((promised / (0.5 * achieved)) ** 0.5 * achieved)


def test_the_additive_term_counts_what_groups_are_entitled_to() -> None:
    factor = metrics.approximation_factor(0.5)
    assert metrics.regret_certificate(AlphaFair(2, 3, alpha=0.5)) == 3 * factor
    sellers = AlphaFair(2, 3, alpha=0.5, groups=Groups(["a", "b", "a"], entitlements={"a": 4.0, "b": 9.0}))
    assert metrics.regret_certificate(sellers) == pytest.approx(5.0 * factor)


@pytest.mark.parametrize("promised", [0.0, 0.1, 0.5, 1.0])
def test_the_bound_in_expectation_counts_what_a_floor_leaves(promised: float) -> None:
    """As docs/background/theory.md has it: (1 - N nu) of all but the master's part."""
    policy = AlphaFairAdaptive(2, 4, alpha=0.5, groups=Groups(pull_floor=promised / 4), seed=0)
    simulate(policy, streams.ratings(400, 2, 4, seed=0), seed=1)
    numbers, log = policy._memory.scalars, np.log(400.0)
    others = (log + 1.0 + np.sqrt(5 / 4)) * numbers[N.learner_roots] + numbers[N.explored]
    mixing = (0.5 * log + 2.4) * numbers[N.mixing_roots] + 16.0 * numbers[N.head_start]
    bound = (1.0 - promised) * (others + 2.0 * numbers[N.peaks] / 400) + mixing
    assert policy.expected_surrogate_regret_bound == pytest.approx(bound, rel=1e-12)


def test_every_metric_of_the_table_knows_which_way_is_better() -> None:
    """Rewards of 8 of two arms, divided equally or not, against the optimum that divides them equally."""
    even, uneven, uniform = [5.0, 5.0], [2.0, 6.0], [3.0, 3.0]
    for alpha in (0.0, 0.5, 1.0, 2.0):
        best = metrics.welfare(even, alpha)
        known = {"alpha": alpha, "best_welfare": best, "uniform": uniform}
        known["optimum"] = metrics.alpha_performance(even, alpha) if alpha < 1.0 else best
        for name, metric in metrics.METRICS.items():
            if alpha >= 1.0 and name in ("approximate_regret", "standard_regret", "ratio"):
                continue
            good, bad = metric.measure(even, known), metric.measure(uneven, known)
            assert metric.sign * good > metric.sign * bad, (name, alpha)
            assert metric.text(good) != metric.text(bad), (name, alpha)


def test_a_metric_is_written_for_arms_and_for_groups() -> None:
    jain, worth = metrics.METRICS["jain_index"], metrics.METRICS["alpha_performance"]
    assert (jain.axis(), jain.axis("group")) == (
        "Jain's index (1: all arms alike)",
        "Jain's index (1: all groups alike)",
    )
    assert metrics.METRICS["welfare"].headline("group") == "Welfare: what each group would earn if all earned alike"
    assert (worth.label, worth.heading) == ("\N{GREEK SMALL LETTER ALPHA}-performance", "alpha\nperformance")
