"""Evaluation, the offline problem and metrics at the edge of what is allowed: rewards of any size, and of any shape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm, t

from alphafair import AlphaFairAdaptive, Groups, InvalidArgument, Log, metrics, offline_optimum, rescale_rewards
from alphafair.evaluation import (
    ESTIMATORS,
    Estimate,
    LogFile,
    doctor,
    evaluate,
    frontier,
    regret,
    replay,
    simulate_model,
    warm_start,
)
from alphafair.evaluation.estimates import METRICS
from alphafair.evaluation.log_rows import reward_unit
from alphafair.evaluation.optima import survey
from alphafair.evaluation.reward_model import _drawn, plausible_totals
from tests import search_evaluation as search
from tests import searching
from tests.evaluation.test_evaluate import scores_of

SHAPES = {
    "clicks": lambda rng, n: (rng.random(n) < 0.3).astype(float),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 1.0, n),
    "purchases": lambda rng, n: (rng.random(n) < 0.05) * rng.lognormal(0.0, 1.0, n),
    "constant": lambda rng, n: np.full(n, 0.3),
}

SCALES = [1e-6, 1.0, 10.0, 1e50, np.logspace(-5, 5, 10)]  # the last: one per arm


def paid_log(shape: str, scale: Any = 1.0, *, seed: int = 0, n_rounds: int = 2000, n_contexts: int = 30) -> Log:
    """Ten arms shown alike; `scale` is one number, or one per arm."""
    rng = np.random.default_rng(seed)
    contexts, arms = rng.integers(0, n_contexts, n_rounds), rng.integers(0, 10, n_rounds)
    rewards = SHAPES[shape](rng, n_rounds) * np.broadcast_to(scale, 10)[arms]
    return Log(contexts, arms, rewards, np.full(n_rounds, 0.1), n_contexts=n_contexts, n_arms=10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", SCALES, ids=lambda scale: f"{np.mean(scale):g}")
def test_rewards_of_any_size_and_shape_have_plausible_totals(shape: str, scale: Any) -> None:
    """Clicks that pay 10 in place of 1 made a matrix that was not positive definite three times in four."""
    for seed in range(5):
        cells = survey(paid_log(shape, scale, seed=seed)).cells
        for totals in plausible_totals(cells, 2, seed):
            assert np.isfinite(totals).all()
            assert (totals >= 0.0).all()


@pytest.mark.parametrize("shape", SHAPES)
def test_plausible_totals_scale_with_rewards(shape: str) -> None:
    """Per arm: what one arm pays is drawn the same, in its own units, whatever the others pay."""
    scale = np.array([1e-6, 10.0, 1.0, 1e50, 3.0, 1e-3, 1e6, 7.0, 1e20, 0.5])
    plain = list(plausible_totals(survey(paid_log(shape)).cells, 3, seed=1))
    scaled = list(plausible_totals(survey(paid_log(shape, scale)).cells, 3, seed=1))
    for one, other in zip(plain, scaled, strict=True):
        np.testing.assert_allclose(other / scale, one, rtol=1e-6, atol=1e-9 * one.max())


def test_plausible_means_have_the_stated_mean_and_covariance() -> None:
    """100,000 draws of one context against (T^-1 + D)^-1, written out."""
    root = np.array([[1.0, 0.0, 0.0], [0.5, 0.4, 0.0], [-0.3, 0.2, 0.7]])
    precision, seen, apart = np.linalg.inv(root @ root.T), np.array([4.0, 0.0, 1.0]), np.array([0.5, 0.0, -1.0])
    n = 100_000
    drawn = _drawn(precision, np.tile(seen, (n, 1)), np.tile(apart, (n, 1)), np.random.default_rng(0))
    covariance = np.linalg.inv(precision + np.diag(seen))
    np.testing.assert_allclose(drawn.mean(axis=0), covariance @ (seen * apart), atol=5.0 / np.sqrt(n))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.01)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_frontier_of_money(shape: str) -> None:
    found = frontier(paid_log(shape, 10.0), [0.0, 0.9], n_replicates=100)
    for name in ("average_reward", "jain_index", "least_share", "greatest_share"):
        curve = found.curve(name)
        assert np.isfinite(curve).all()
        assert (curve.low <= curve.value).all()
        assert (curve.value <= curve.high).all()


# rewards of any size: nothing overflows, and no verdict depends on the currency

TARGET = np.full((30, 10), 0.05) + np.eye(10)[np.arange(30) % 10] * 0.5


def scaled(log: Log, scale: Any) -> Log:
    rewards = log.rewards * np.broadcast_to(scale, log.n_arms)[log.arms]
    columns = (log.contexts, log.arms, rewards, log.propensities)
    return Log(*columns, n_contexts=log.n_contexts, n_arms=log.n_arms, users=log.users)


def checked(found: Estimate) -> Estimate:
    """Every number finite, ordered and possible; none at all where it is not to be used."""
    n = len(found.accounts)
    ends = {"jain_index": (1.0 / n, 1.0), "least_share": (0.0, 1.0 / n), "greatest_share": (1.0 / n, 1.0)}
    for name in METRICS:
        interval = getattr(found, name)
        if found.verdict == "do not use":
            assert np.isnan(interval).all()
            continue
        low, high = ends.get(name, (1.0, np.inf))
        assert np.isfinite(interval).all(), (name, interval)
        assert low <= interval.low <= interval.value <= interval.high <= high, (name, interval)
    assert np.isfinite(found.effective_sample_size)
    return found


@pytest.mark.compiled
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("shape", SHAPES)
def test_results_do_not_depend_on_the_unit_of_rewards(shape: str, estimator: str) -> None:
    log = paid_log(shape, n_rounds=6000)
    options: dict[str, Any] = {"alpha": 0.5, "estimator": estimator, "n_replicates": 100}
    plain = checked(evaluate(log, TARGET, **options))
    assert plain.verdict in ("trustworthy", "thin")
    for scale in (1e-6, 1e-3, 7.0, 1e9, 1e50, 1e90, 1e100 / log.rewards.max()):
        found = checked(evaluate(scaled(log, scale), TARGET, **options))
        assert (found.verdict, found.reasons) == (plain.verdict, plain.reasons)
        assert found.effective_sample_size == plain.effective_sample_size
        np.testing.assert_allclose(found.cumulative_rewards, scale * plain.cumulative_rewards, rtol=1e-12)
        if scale > 1e6:  # the initial 1 does not matter any more
            np.testing.assert_allclose(found.reward_per_round, scale * np.array(plain.reward_per_round), rtol=0.02)


@pytest.mark.parametrize("scale", [2.0**-300, 2.0**40, 2.0**325])
def test_a_power_of_two_changes_no_digit(scale: float) -> None:
    log = paid_log("purchases")
    one, other = (scores_of(each, TARGET, "dr") for each in (log, scaled(log, scale)))
    assert other.unit == scale * one.unit
    assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("sums", "shares", "arm_weights"))


@pytest.mark.compiled
def test_frontier_and_regret_in_any_unit_of_rewards() -> None:
    """From rewards so large that the initial 1 does not matter, the best policies are the same."""
    log = paid_log("purchases", 1e9, n_rounds=6000)
    settings: dict[str, Any] = {"n_replicates": 100}
    plain, stated = frontier(log, [0.0, 0.9], **settings), regret(log, 0.5, **settings)
    for scale in (1e-15, 1e3, 1e50, 1e88):
        found = frontier(scaled(log, scale), [0.0, 0.9], **settings)
        assert found.verdict == plain.verdict
        assert found.reasons == plain.reasons or scale < 1.0
        for each in (*found.held_out, *found.flattered):
            checked(each)
        for name in METRICS:
            curve = found.curve(name)
            assert np.isfinite(curve).all()
            assert ((curve.low <= curve.value) & (curve.value <= curve.high)).all()
        other = regret(scaled(log, scale), 0.5, **settings)
        assert other.verdict == stated.verdict
        assert 0.0 <= other.at_most < np.inf


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("reward", [5e-324, 1.0, 1e100])
def test_a_tiny_propensity_is_never_trusted(estimator: str, reward: float) -> None:
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, 3, 2000), rng.integers(0, 2, 2000), np.full(2000, reward)]
    for propensity in (1e-9, 1e-99, 1e-100):
        log = Log(*columns, np.r_[propensity, np.full(1999, 0.5)])
        found = checked(evaluate(log, np.full((3, 2), 0.5), estimator=estimator, n_replicates=100))
        assert found.verdict == "do not use"
        assert all(len(reason) < 200 for reason in found.reasons)
        assert not doctor(log).is_sound
    log = Log(*columns, np.r_[np.full(1999, 0.5), 5e-324])
    for refused in (evaluate, lambda log, _: frontier(log), lambda log, _: regret(log)):
        with pytest.raises(InvalidArgument, match=r"log.propensities\[1999\] must be at least 1e-100; got 5e-324"):
            refused(log, np.full((3, 2), 0.5))
    assert "1 row has a propensity below" in doctor(log).findings[0].what


def test_a_log_file_with_a_tiny_propensity_is_refused_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("context,arm,reward,propensity\na,x,1,0.5\na,y,1,1e-200\n")
    with pytest.raises(InvalidArgument, match=r"log.csv: propensity must be at least 1e-100; got 1e-200"):
        LogFile(path)


def test_a_log_file_is_in_the_same_unit_as_the_log(tmp_path: Path) -> None:
    log = paid_log("purchases", 3e40)
    columns = {"context": log.contexts, "arm": log.arms, "reward": log.rewards, "propensity": log.propensities}
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    file = LogFile(tmp_path / "log.parquet")
    assert reward_unit(file) == reward_unit(log) == 2.0 ** np.floor(np.log2(log.rewards.max()))
    one, other = (evaluate(each, TARGET, n_replicates=100) for each in (log, file))
    np.testing.assert_allclose(one.cumulative_rewards, other.cumulative_rewards, rtol=1e-12)


@pytest.mark.parametrize("reward", [1e-5, 0.3, 1.0, 1e-100])
@pytest.mark.parametrize("n_arms", [1, 2, 3])
def test_constant_rewards_can_be_replayed(reward: float, n_arms: int) -> None:
    log = Log(np.zeros(900, int), np.arange(900) % n_arms, np.full(900, reward), np.full(900, 1.0 / n_arms))
    found = replay(log, AlphaFairAdaptive(1, n_arms), n_seeds=3)
    assert found.verdict == "thin"
    for interval in (found.reward_per_round, *(getattr(found, name) for name in METRICS)):
        assert np.isfinite(interval).all()
        assert interval.low <= interval.value <= interval.high
    assert found.jain_index.low >= 1.0 / n_arms
    assert found.greatest_share.low >= 1.0 / n_arms >= found.least_share.high


def test_bands_of_learners_end_where_metrics_do() -> None:
    """Three arms, two of them next to never rewarded: the band of Jain's index reached below a third."""
    rng = np.random.default_rng(1)
    arms = rng.integers(0, 3, 600)
    log = Log(np.zeros(600, int), arms, np.where(arms == 0, 1.0, 0.01), np.full(600, 1 / 3))
    for found in (play(log, AlphaFairAdaptive(1, 3, alpha=0.0), n_seeds=2) for play in (replay, simulate_model)):
        assert 1.0 / 3.0 <= found.jain_index.low <= found.jain_index.value <= found.jain_index.high <= 1.0
        assert found.least_share.high <= 1.0 / 3.0 <= found.greatest_share.low


def test_bands_of_estimates_end_where_metrics_do() -> None:
    """One arm has nearly all rewards, in a handful of rounds: no index below one over the number of arms."""
    log = paid_log("purchases", np.r_[1e4, np.full(9, 1e-3)], n_contexts=1, n_rounds=500)
    found = evaluate(log, np.full((1, 10), 0.1), estimator="ips", confidence=0.999, n_replicates=100)
    assert checked(found).verdict == "thin"


def test_refusals_name_what_was_passed() -> None:
    log = Log([0, 0, 0, 0], [0, 1, 0, 1], [0.5, 0.5, 0.5, 7.0], [0.5] * 4)
    policy = AlphaFairAdaptive(1, 2)
    for play in (replay, simulate_model):
        with pytest.raises(InvalidArgument, match=r"log.rewards\[3\] must be a number in \[0, 1\]; got 7.0"):
            play(log, policy)
    with pytest.raises(InvalidArgument, match=r"log.rewards\[3\] must be a number in \[0, 1\]; got 7.0"):
        warm_start(log, AlphaFairAdaptive, weight=0.5)


# metrics, and the offline problem


@pytest.mark.parametrize("degrees", [99_999, 100_001, 10**6, 10**9, 10**12, 10**18, 10**400])
def test_students_t_with_many_degrees(degrees: int) -> None:
    for probability in (0.975, 0.6, 1e-3, 1e-15, 1e-300):
        found = metrics.student_quantile(probability, degrees)
        if degrees < 10**9:
            assert found == pytest.approx(t.ppf(probability, degrees), rel=1e-9)
        else:
            assert found == pytest.approx(norm.ppf(probability), rel=1e-6)
    for probability, degrees in ((0.0, 5), (1.0, 5), (0.5, 0)):
        with pytest.raises(InvalidArgument):
            metrics.student_quantile(probability, degrees)


def test_rewards_of_the_widest_range_are_rescaled() -> None:
    found = rescale_rewards([-1e308, -5e307, 0.0, 1e308], -1e308, 1e308)
    np.testing.assert_allclose(found, [0.2, 0.4, 0.6, 1.0], rtol=1e-12)


@pytest.mark.parametrize("size", [1e-150, 1e-100, 1.0, 1e100, 1e200, 1e250])
def test_metrics_of_any_size(size: float) -> None:
    earned, groups = size * np.array([1.0, 1.0]), Groups(entitlements=[1e-6, 1e6])
    assert metrics.shares(earned).tolist() == [0.5, 0.5]
    assert metrics.jain_index(earned) == 1.0
    assert metrics.jain_index(earned, groups=groups) == pytest.approx(0.5)
    assert metrics.average_reward(earned) == size
    for alpha in (0.0, 0.5, 0.99, 1.0 - 1e-12):
        for found in (metrics.utility(earned, alpha), metrics.marginal_utility(earned, alpha)):
            assert np.isfinite(found).all()
            assert (found > 0.0).all()
        assert np.isfinite(metrics.alpha_performance(earned, alpha, groups=groups))
        for totals in ([[0.0, 0.0]], [[1e-300, 1e100]], [[1.0, 2.0]]):
            for initial in (1e-150, 1.0, 1e100):
                bounds = metrics.certificates(totals, earned, alpha, initial=initial)
                assert np.isfinite([bound for bound in bounds if bound is not None]).all()


@pytest.mark.parametrize("beyond", [5e-324, 1e-151, 1e251, 1.7e308])
def test_accounts_beyond_floating_point_are_refused_by_name(beyond: float) -> None:
    for metric in (metrics.shares, metrics.jain_index, metrics.average_reward):
        with pytest.raises(InvalidArgument, match=r"accounts must be numbers in \[1e-150, 1e\+250\]; got"):
            metric([1.0, beyond])
    with pytest.raises(InvalidArgument, match="accounts"):
        metrics.certificates([[1.0, 1.0]], [1.0, beyond], 0.9)


@pytest.mark.parametrize("size", [5e-324, 1e-200, 1e154, 1e200, 1e250])
def test_bands_over_seeds_of_any_size(size: float) -> None:
    band = metrics.average_over_seeds([0.0, size, 2.0 * size] if size < 1e250 else [-size, 0.0, size])
    half = band.high - band.value
    assert half == pytest.approx(2.484 * size, rel=1e-3) or size == 5e-324
    with pytest.raises(InvalidArgument, match="samples must be numbers in"):
        metrics.average_over_seeds([1e251, 0.0])


def test_bands_over_seeds_end_where_the_metric_does() -> None:
    assert metrics.average_over_seeds([0.26, 0.25, 0.9], within=(0.25, 1.0))[1:] == (0.25, 1.0)


@pytest.mark.parametrize("initial", [5e-324, 1e-300, 1e-151, 0.0, -1.0, np.nan, 1e101])
def test_an_optimum_from_tiny_accounts_is_refused(initial: float) -> None:
    """At 5e-324 products lose all their digits, and the certificate with them."""
    for refused in (
        lambda: offline_optimum([[0.0]], 1e-6, initial=initial),
        lambda: metrics.certificates([[0.0]], [1.0], 1e-6, initial=initial),
    ):
        with pytest.raises(InvalidArgument, match=r"initial must be a number in \[1e-150, 1e\+100\]"):
            refused()
    assert offline_optimum([[0.0]], 1e-6, initial=1e-150).value == pytest.approx(1e-150 ** (1 - 1e-6) / (1 - 1e-6))


# the search: some cases of every kind here, as many as there is time for by hand

N_CASES = {"evaluate": 60, "offline": 60, "metrics": 150, "frontier": 12, "curve": 60, "regret": 40, "learning": 13}


@pytest.mark.compiled
@pytest.mark.parametrize("kind", search.KINDS)
def test_the_search_finds_nothing(kind: str) -> None:
    for number in range(N_CASES[kind]):
        search.Case(number, kind, size=0.3).run()


def planted(kind: str, n_cases: int = 40) -> searching.Failure | None:
    """What the search says first, if anything."""
    for number in range(n_cases):
        try:
            search.Case(number, kind, size=0.1).run()
        except searching.Failure as failure:
            return failure
    return None


def test_the_search_finds_what_is_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap that is not true, a band that goes too far, an overflow: each is found within 40 cases."""
    solved = search.offline_optimum
    with monkeypatch.context() as patch:
        patch.setattr(search, "offline_optimum", lambda *args, **said: replace(solved(*args, **said), gap=0.0))
        assert "value" in str(planted("offline"))
    with monkeypatch.context() as patch:
        patch.setattr("alphafair.values.Interval.clip", lambda interval, low, high: interval)
        assert " in [" in str(planted("evaluate"))
    with monkeypatch.context() as patch:
        patch.setattr("alphafair.evaluation.estimators.reward_unit", lambda log: 1.0)
        assert "times" in str(planted("evaluate"))
    with monkeypatch.context() as patch:
        patch.setattr("alphafair.metrics.shares", lambda earned: earned / (earned**2).sum())
        assert planted("metrics") is not None
