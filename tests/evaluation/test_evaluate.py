"""What a policy would have earned: estimators against plain Python, verdicts, refusals, intervals that cover."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, norm
from scipy.stats import t as student

from alphafair import (
    AlphaFairAdaptive,
    AlphaFairBandit,
    Groups,
    InvalidArgument,
    Log,
    Stream,
    evaluation,
    metrics,
    offline_optimum,
    simulate,
)
from alphafair.evaluation import ESTIMATORS, LogFile, evaluate, evaluate_all, frontier, intervals, logged_policy
from alphafair.evaluation.estimates import METRICS, PLUG_IN, rewarded_rounds
from alphafair.evaluation.estimators import Scores, ScoreSums, Scoring, score
from alphafair.evaluation.intervals import Level
from alphafair.evaluation.log_rows import add_up, batches, cluster_count
from alphafair.evaluation.optima import SituationCounts, survey
from alphafair.evaluation.reward_model import FoldCells, fit
from tests import FULL
from tests import naive_evaluation as naive


def world(seed: int, n_contexts: int, n_arms: int) -> tuple[Any, Any, Any, Any]:
    """Mean rewards, how often contexts come, the logging policy, another policy."""
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.2, 1.0, (n_contexts, n_arms))
    visits = rng.dirichlet(np.full(n_contexts, 5.0))
    logging = 0.8 * rng.dirichlet(np.full(n_arms, 2.0), n_contexts) + 0.2 / n_arms
    target = 0.9 * rng.dirichlet(np.full(n_arms, 0.7), n_contexts) + 0.1 / n_arms
    return means, visits, logging, target


def made_log(rng: Any, n_rounds: int, means: Any, visits: Any, logging: Any, **more: Any) -> Log:
    n_contexts, n_arms = means.shape
    contexts = rng.choice(n_contexts, n_rounds, p=visits)
    arms = np.minimum((rng.random(n_rounds)[:, None] > logging.cumsum(axis=1)[contexts]).sum(axis=1), n_arms - 1)
    rewards = (rng.random(n_rounds) < means[contexts, arms]).astype(float)
    sizes = {"n_contexts": n_contexts, "n_arms": n_arms}
    return Log(contexts, arms, rewards, logging[contexts, arms], **sizes, **more)


def small_log(n_rounds: int = 300, seed: int = 3) -> tuple[Log, Any]:
    means, visits, logging, target = world(seed, 5, 4)
    return made_log(np.random.default_rng(seed), n_rounds, means, visits, logging), target


def scores_of(log: Any, policy: Any, estimator: str) -> Scores:
    """The scores of one policy, with the model of the log where the estimator has one."""
    chosen = ESTIMATORS[estimator]
    model = fit(survey(log).cells) if chosen.with_model else None
    return score(log, [Scoring(np.asarray(policy)[None], chosen, model)])[0]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("n_rounds", [40, 300])
def test_estimators_agree_with_plain_python(estimator: str, n_rounds: int) -> None:
    log, target = small_log(n_rounds)
    sharp = np.eye(4)[[0, 1, 2, 3, 0]]  # weights above the root of 40 rows: clipping and switching show
    for policy in (target, sharp):
        found = scores_of(log, policy, estimator).accounts()[0]
        expected = naive.accounts(log, policy.tolist(), estimator)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_clipping_and_switching_do_something() -> None:
    log, _ = small_log(40)
    sharp = np.eye(4)[[0, 1, 2, 3, 0]]
    found = {name: scores_of(log, sharp, name).accounts() for name in ESTIMATORS}
    assert not np.array_equal(found["ips"], found["clipped"])
    assert not np.array_equal(found["dr"], found["switch"])


def test_shrinkage_is_that_of_random_effects() -> None:
    log, _ = small_log()
    assert fit(survey(log).cells).shrinkage == pytest.approx(naive.shrinkage(log), rel=1e-9)
    one = Log(np.zeros(9, dtype=int), [0, 1, 2] * 3, np.linspace(0, 1, 9), np.full(9, 1 / 3))
    model = fit(survey(one).cells)
    assert math.isinf(model.shrinkage), "one context: there is nothing but the arm's mean"
    np.testing.assert_allclose(model.means[0], [one.rewards[arm::3].mean() for arm in range(3)])


def test_the_logging_policy_is_estimated_at_what_it_earned() -> None:
    means, visits, logging, _ = world(4, 3, 4)
    log = made_log(np.random.default_rng(4), 3000, means, visits, logging)
    earned = 1.0 + np.bincount(log.arms, log.rewards, minlength=4)
    found = evaluate(log, logging, estimator="ips", n_replicates=100)
    np.testing.assert_allclose(found.accounts, earned, rtol=1e-12)
    np.testing.assert_allclose(found.cumulative_rewards, earned - 1.0, rtol=1e-12)
    assert found.effective_sample_size == pytest.approx(3000)
    assert found.reward_per_round.value == pytest.approx(log.rewards.mean())


def test_clusters_are_rows_where_there_are_few_and_users_where_there_are_any() -> None:
    log, target = small_log()
    ((_, rows),) = batches(log)
    assert rows.clusters.tolist() == list(range(300))
    users = np.repeat(np.arange(30) + 2**40, 10)
    with_users = Log(log.contexts, log.arms, log.rewards, log.propensities, n_contexts=5, n_arms=4, users=users)
    ((_, rows),) = batches(with_users)
    assert all(len(set(rows.clusters[users == user])) == 1 for user in users)
    assert len(set(rows.clusters.tolist())) == 30
    estimate = evaluate(with_users, target, n_replicates=100)
    assert estimate.verdict == "thin"
    assert "there are only 30 users" in estimate.reasons


def test_a_log_in_pieces_is_the_same_log(tmp_path: Path, monkeypatch: Any) -> None:
    means, visits, logging, target = world(6, 3, 4)
    log = made_log(np.random.default_rng(6), 5000, means, visits, logging)
    frame = pl.DataFrame(
        {
            "context": log.contexts,
            "arm": [f"item {arm}" for arm in log.arms],
            "reward": log.rewards,
            "propensity": log.propensities,
        }
    )
    frame.write_parquet(tmp_path / "log.parquet", row_group_size=700)
    monkeypatch.setattr("alphafair.tables.BATCH_ROWS", 1000)
    monkeypatch.setattr("alphafair.evaluation.log_rows.BATCH", 512)
    file = LogFile(tmp_path / "log.parquet")
    assert (file.n_rounds, file.n_contexts, file.n_arms) == (5000, 3, 4)
    assert sum(len(part.contexts) for part in file.decisions()) == 5000
    assert cluster_count(file) < 5000, "rows are assigned to clusters at random"
    whole, parts = evaluate(log, target, n_replicates=200), evaluate(file, target, n_replicates=200)
    np.testing.assert_allclose(parts.cumulative_rewards, whole.cumulative_rewards, rtol=1e-12)
    assert parts.jain_index == pytest.approx(whole.jain_index, rel=1e-9)


def test_sums_of_parts_merge_in_order_to_the_same_bits(monkeypatch: Any) -> None:
    """Parts that are added up on their own, as workers would, and merged in order give the bits of a single pass."""
    means, visits, logging, target = world(6, 3, 4)
    log = made_log(np.random.default_rng(6), 5000, means, visits, logging)
    log = replace(log, rewards=log.rewards * np.random.default_rng(7).random(5000))
    monkeypatch.setattr("alphafair.evaluation.log_rows.PART", 700)
    folds, model = np.arange(5000) % 2, fit(survey(log).cells)
    policies = np.stack([target, logging])

    def sums(log: Log) -> list[Any]:
        scoring = Scoring(policies, ESTIMATORS["dr"], model, folds)
        return [ScoreSums(scoring, log), FoldCells(folds, 3, 4, 1.0), SituationCounts(5000, 4)]

    monkeypatch.setattr("alphafair.evaluation.log_rows.MOST_CLUSTERS", 5000)
    whole, parts = add_up(log, sums), {}
    for number, rows in batches(log):
        for each in parts.setdefault(number, sums(log)):
            each.add(rows)
    assert len(parts) == 8
    first = parts.pop(0)
    for number in sorted(parts):
        for each, later in zip(first, parts[number], strict=True):
            each.merge(later.sums)
    for one, other in zip(whole[0].tally, first[0].tally, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(whole[1].table, first[1].table)
    assert whole[2].found == first[2].found
    monkeypatch.setattr("alphafair.evaluation.log_rows.PART", 1 << 20)
    one_part = add_up(log, sums)
    for one, other in zip(whole[0].tally, one_part[0].tally, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    assert whole[2].found == one_part[2].found


def test_several_policies_at_once_are_each_policy_alone() -> None:
    log, target = small_log()
    together = evaluate_all(log, {"a": target, "b": "uniform", "c": "fair", "d": "logged"}, 0.5, n_replicates=100)
    alone = {"a": target, "b": np.full((5, 4), 0.25), "d": logged_policy(log)}
    for name, policy in alone.items():
        assert together[name].as_dict() == evaluate(log, policy, 0.5, n_replicates=100).as_dict()
    assert together["c"].as_dict() == frontier(log, [0.5], n_replicates=100).held_out[0].as_dict()
    with pytest.raises(InvalidArgument, match="policies must be one of 'logged', 'uniform', 'fair'; got 'best'"):
        evaluate_all(log, {"a": "best"})


def test_random_clusters_have_the_spread_of_rows(monkeypatch: Any) -> None:
    """The spread of a bootstrap over 1,000 clusters is that over 8,000 rows, up to the noise of both."""
    means, visits, logging, target = world(7, 3, 4)
    log = made_log(np.random.default_rng(7), 8000, means, visits, logging)
    widths = []
    for n_clusters in (1000, 8000):
        monkeypatch.setattr("alphafair.evaluation.log_rows.MOST_CLUSTERS", n_clusters)
        found = evaluate(log, target, estimator="ips", n_replicates=1000).average_reward
        widths.append(found.high - found.low)
    assert widths[0] / widths[1] == pytest.approx(1.0, abs=0.12)


def learned_log(rng: Any, n_rounds: int, means: Any, visits: Any, policy: Any) -> Log:
    """A log of a policy that learns while it runs."""
    contexts = rng.choice(len(means), n_rounds, p=visits)
    rewards = (rng.random((n_rounds, means.shape[1])) < means[contexts]).astype(float)
    stream = Stream.from_arrays(contexts, rewards, n_contexts=len(means))
    log = simulate(policy, stream, seed=int(rng.integers(2**31)), log=True).log
    assert log is not None
    return log


def greedy_log(rng: Any, n_rounds: int, means: Any, visits: Any, epsilon: float) -> Log:
    """A log of an epsilon-greedy policy that looks at its rewards after every fiftieth of the rounds."""
    n_contexts, n_arms = means.shape
    contexts = rng.choice(n_contexts, n_rounds, p=visits)
    rewards = (rng.random((n_rounds, n_arms)) < means[contexts]).astype(float)
    arms, propensities = np.zeros(n_rounds, dtype=int), np.zeros(n_rounds)
    counts, sums = np.full(means.shape, 1e-9), np.zeros(means.shape)
    for rows in np.array_split(np.arange(n_rounds), 50):
        shown = np.full(means.shape, epsilon / n_arms)
        shown[np.arange(n_contexts), (sums / counts).argmax(axis=1)] += 1.0 - epsilon
        drawn = (rng.random(len(rows))[:, None] > shown.cumsum(axis=1)[contexts[rows]]).sum(axis=1)
        arms[rows] = np.minimum(drawn, n_arms - 1)
        propensities[rows] = shown[contexts[rows], arms[rows]]
        np.add.at(counts, (contexts[rows], arms[rows]), 1.0)
        np.add.at(sums, (contexts[rows], arms[rows]), rewards[rows, arms[rows]])
    return Log(contexts, arms, rewards[np.arange(n_rounds), arms], propensities, n_contexts=n_contexts, n_arms=n_arms)


def bought(rng: Any, log: Log, means: Any, spread: float) -> Log:
    """The same rounds, of which one in three is paid for: very different sums, of the same means."""
    sums = 3.0 * rng.lognormal(-(spread**2) / 2.0, spread, log.n_rounds) * (rng.random(log.n_rounds) < 1 / 3)
    rewards = sums * means[log.contexts, log.arms]
    return Log(log.contexts, log.arms, rewards, log.propensities, n_contexts=log.n_contexts, n_arms=log.n_arms)


N_LOGS, LEVEL = 500 if FULL else 100, 0.02
AS_SURE, AT_LEAST = ("alpha_performance", "welfare", "jain_index", "average_reward"), ("least_share", "greatest_share")


def covers(inside: int, n: int, *, at_most: float = 0.98) -> bool:
    """Whether so many of n can be of intervals that cover 92 to 98 of 100 times: either end is given up only where so
    few, or so many, would be one chance in fifty."""
    return bool(binom.cdf(inside, n, 0.92) > LEVEL and binom.sf(inside - 1, n, at_most) > LEVEL)


WORLDS = (  # contexts, arms, rounds, alpha, and the kind of log
    (4, 5, 2000, 0.9, "uneven"),
    (4, 5, 2000, 0.9, "fair"),
    (10, 8, 4000, 0.5, "uneven"),
    (1, 6, 2500, 0.9, "uneven"),
    (4, 5, 20_000, 0.9, "rare"),
    (3, 4, 6000, 0.7, "revenue"),
    (4, 5, 3000, 0.9, "learner"),
    (3, 4, 6000, 0.9, "greedy"),
)


def test_coverage_tests_can_fail_on_both_sides() -> None:
    """Exact: all logs together, and 500 of one world, tell 87% and 99.7% from what is asked for nine times in ten, and
    let 95% pass, as those of one world do."""
    for n in {N_LOGS, 500, len(WORLDS) * N_LOGS}:
        passes = np.array([covers(inside, n) for inside in range(n + 1)])
        for truth in (0.87, 0.997) if n >= 500 else ():
            assert binom.pmf(np.arange(n + 1), n, truth)[passes].sum() < 0.1
        assert binom.pmf(np.arange(n + 1), n, 0.95)[passes].sum() > 0.999


@pytest.mark.compiled
def test_intervals_cover(monkeypatch: pytest.MonkeyPatch) -> None:
    """95% intervals that are called trustworthy cover 92 to 98 of 100 times, in every world and in all together: logs
    with uneven propensities, rare clicks, purchases of very different worth, of a fair learner and of an epsilon-greedy
    one; 100 logs of each, and in the soak 500.

    The least and the greatest share may cover more often, since nobody knows whose they are. Where no weight is cut,
    "clipped" and "switch" are "ips" and "dr".
    """
    monkeypatch.setattr("alphafair.evaluation.log_rows.MOST_CLUSTERS", 400)
    together: dict[Any, list[bool]] = defaultdict(list)
    for world_of_logs in WORLDS:
        for (estimator, name), inside in covered(*world_of_logs).items():
            assert len(inside) >= 0.9 * N_LOGS, "the others are called thin"
            at_most = 0.98 if name in AS_SURE else 1.0
            words = (world_of_logs, estimator, name, sum(inside), len(inside))
            assert covers(sum(inside), len(inside), at_most=at_most), words
            together[estimator, name] += inside
    for (estimator, name), inside in together.items():
        at_most = 0.98 if name in AS_SURE else 1.0
        assert covers(sum(inside), len(inside), at_most=at_most), (estimator, name, sum(inside), len(inside))


def covered(n_contexts: int, n_arms: int, n_rounds: int, alpha: float, kind: str) -> dict[Any, list[bool]]:
    """Whether the interval of a log contains the truth, by estimator and metric, where it is trustworthy."""
    means, visits, logging, target = world(1, n_contexts, n_arms)
    if kind == "fair":
        target = offline_optimum(n_rounds * visits[:, None] * means, alpha).distributions
    if kind == "rare":
        means = 0.05 * means
    earned = 1.0 + n_rounds * (visits[:, None] * target * means).sum(axis=0)
    truth = {name: float(PLUG_IN[name](earned, alpha)) for name in METRICS}
    found_in: dict[Any, list[bool]] = {(each, name): [] for each in ("ips", "snips", "dr") for name in METRICS}
    for seed in range(N_LOGS):
        rng = np.random.default_rng([11, seed])
        if kind == "learner":
            log = learned_log(rng, n_rounds, means, visits, AlphaFairBandit(n_contexts, n_arms, alpha=0.9))
        elif kind == "greedy":
            log = greedy_log(rng, n_rounds, means, visits, 0.2)
        else:
            log = made_log(rng, n_rounds, means, visits, logging)
        log = bought(rng, log, means, 1.0) if kind == "revenue" else log
        for estimator in ("ips", "snips", "dr"):
            found = evaluate(log, target, alpha=alpha, estimator=estimator, n_replicates=200, seed=seed)
            for name in METRICS if found.verdict == "trustworthy" else ():
                interval = getattr(found, name)
                found_in[estimator, name].append(interval.low <= truth[name] <= interval.high)
        for limited, plain in (("clipped", "ips"), ("switch", "dr")) if seed < 10 else ():
            ours, other = (scores_of(log, target, each) for each in (limited, plain))
            np.testing.assert_array_equal(ours.sums, other.sums)
    return found_in


def test_uneven_rewards_count_for_less() -> None:
    """The formula row by row in plain Python, for clicks and for purchases."""
    log, target = small_log()
    for spread in (0.0, 0.8, 2.0):
        sizes = np.exp(spread * np.random.default_rng(1).normal(size=log.n_rounds))
        worth = Log(log.contexts, log.arms, log.rewards * sizes, log.propensities, n_contexts=5, n_arms=4)
        found = rewarded_rounds(scores_of(worth, target, "ips").arm_weights)
        np.testing.assert_allclose(found, naive.rewarded_rounds(worth, target.tolist()), rtol=1e-9)
        assert (found[0] == found[1]).all() == (spread == 0.0), "all clicks pay alike"


@pytest.mark.compiled
@pytest.mark.parametrize(("spread", "trusted"), [(1.0, 60), (1.75, 0)])
def test_very_uneven_rewards_are_not_trusted_because_the_largest_are_missing(spread: float, trusted: int) -> None:
    """Of 60 logs alike all are trusted or none: how uneven rewards are does not depend on the few largest."""
    means, visits, logging, target = world(1, 3, 4)
    found = []
    for seed in range(60):
        rng = np.random.default_rng([14, seed])
        log = bought(rng, made_log(rng, 8000, means, visits, logging), means, spread)
        found.append(good(log, target, estimator="ips"))
    assert sum(each.verdict == "trustworthy" for each in found) == trusted
    if not trusted:
        assert all("rewards are so uneven that those of " in each.reasons[0] for each in found)


@pytest.mark.compiled
@pytest.mark.parametrize("alpha", [0.0, 0.9])
def test_where_a_learner_avoids_arms_its_log_is_not_called_trustworthy(alpha: float) -> None:
    """What the uniform policy would earn, from 15 logs of learners that show some arms once in hundreds of rounds."""
    means, visits, _, _ = world(2, 4, 5)
    for seed in range(15):
        policy = AlphaFairAdaptive(4, 5, alpha=alpha)
        log = learned_log(np.random.default_rng([12, seed]), 4000, means, visits, policy)
        for estimator in ESTIMATORS:
            assert evaluate(log, np.full((4, 5), 0.2), estimator=estimator, n_replicates=100).verdict != "trustworthy"


def test_intervals_reach_as_far_as_students_t() -> None:
    """At 5 degrees of freedom, wider by the ratio of quantiles; and of 99 replicates the 2.5th and the 97.5th count."""
    drawn = np.exp(np.linspace(-0.5, 0.5, 99))
    normal = np.quantile(np.log(drawn), [0.975, 0.025], method="weibull")
    assert normal[0] == pytest.approx(-0.5 + (97.5 - 1.0) / 98.0)
    found = intervals.smooth(1.0, drawn, Level(0.95, 5))
    np.testing.assert_allclose(np.log([found.low, found.high]), -normal * student.ppf(0.975, 5) / norm.ppf(0.975))


def test_clipped_weights_are_a_reason() -> None:
    """Large weights that are cut make a value lean to one side, which no interval knows: thin, unless cut by little."""
    rng = np.random.default_rng(5)
    log = made_log(rng, 40_000, np.full((1, 2), 0.5), np.ones(1), np.array([[0.996, 0.004]]))  # weights of 125
    target = np.array([[0.5, 0.5]])
    limit = math.sqrt(40_000)
    assert limit > 0.5 / 0.004
    assert good(log, target, estimator="clipped").reasons == ()
    rare = made_log(rng, 40_000, np.full((1, 2), 0.5), np.ones(1), np.array([[0.998, 0.002]]))  # and of 250
    for estimator in ("clipped", "switch"):
        found = good(rare, target, estimator=estimator)
        part = "20%" if estimator == "clipped" else "100%"  # of 250, down to 200 or to nothing
        assert f"{part} of the weight of arm 1 was cut" in found.reasons[0]
        assert found.verdict == "thin"
    assert good(rare, target, estimator="ips").verdict == "trustworthy"


def test_degrees_of_freedom_of_a_spread() -> None:
    """As many as groups for normal sums, twice the rewards for a few alike, and never below 1."""
    rng = np.random.default_rng(0)

    def freedom(added: Any) -> int:
        blank = np.zeros(1)
        scores = Scores(len(added), 1, ["0"], added[:, None], np.ones(len(added)), blank, blank[None], blank, blank)
        return scores.freedom(np.ones(1))

    assert np.mean([freedom(rng.normal(size=400)) for _ in range(50)]) == pytest.approx(400, rel=0.05)
    assert freedom(np.r_[np.ones(12), np.zeros(100_000)]) == pytest.approx(24, abs=1)
    assert freedom(np.r_[1e6, np.ones(50)]) <= 2
    assert freedom(np.ones(10)) == 1000, "nothing varies"


def test_jain_interval_contains_all_values_within_z_standard_errors() -> None:
    """The closed form against a scan of every x."""
    rng = np.random.default_rng(0)
    earned = rng.uniform(50, 150, 6)
    drawn = earned * np.exp(rng.normal(0.0, 0.1, (500, 6)))
    found = intervals.jain(earned, drawn, Level(0.95, 1000))
    d = earned / earned.mean() - 1.0
    covariance = np.cov((drawn / drawn.mean(axis=1, keepdims=True) - 1.0).T)
    estimate, along = (d @ d - np.trace(covariance)) / 6, d @ covariance @ d / (d @ d) / 6
    x = np.linspace(0.0, 1.0, 2_000_001)
    inside = x[(x - estimate) ** 2 <= student.ppf(0.975, 1000) ** 2 * (4 * x * along + 2 * (covariance**2).sum() / 36)]
    assert found.high == pytest.approx(1 / (1 + inside[0]), abs=1e-5)
    assert found.low == pytest.approx(1 / (1 + inside[-1]), abs=1e-5)


def test_least_share_with_ties_is_not_taken_for_smaller_than_it_is() -> None:
    """Twenty arms that earn alike: the plug-in is too low, and its interval reaches to the truth."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(200):
        earned = 1.0 + rng.poisson(100.0, 20)
        drawn = 1.0 + rng.poisson(earned - 1.0, (200, 20))
        found = intervals.least_share(earned, drawn, Level(0.95, 1000))
        inside += found.low <= 0.05 <= found.high
        assert found.value < 0.05
    assert inside >= 184


def good(log: Log, policy: Any, **more: Any) -> Any:
    return evaluate(log, policy, n_replicates=100, **more)


def test_verdicts_in_plain_words() -> None:
    means, visits, logging, target = world(8, 3, 4)
    log = made_log(np.random.default_rng(8), 4000, means, visits, logging)
    assert good(log, target).verdict == "trustworthy"
    assert good(log, target).reasons == ()
    few = made_log(np.random.default_rng(8), 60, means, visits, logging)
    assert good(few, target).verdict in ("thin", "do not use")
    wrong = Log(log.contexts, log.arms, log.rewards, np.minimum(1.0, 2.0 * log.propensities), n_contexts=3, n_arms=4)
    found = good(wrong, target)
    assert found.verdict == "do not use"
    assert "times what they should" in found.reasons[0]


def test_metrics_are_nan_if_the_verdict_is_do_not_use() -> None:
    means, visits, logging, target = world(8, 3, 4)
    log = made_log(np.random.default_rng(8), 4000, means, visits, logging)
    more_arms = Log(log.contexts, log.arms, log.rewards, log.propensities, n_contexts=3, n_arms=5)
    wanted = np.full((3, 5), 0.2)
    found = good(more_arms, wanted)
    assert found.verdict == "do not use"
    assert found.reasons[0] == "arm 4 was never shown, and the policy would show it in 20% of rounds"
    assert all(math.isnan(side) for name in METRICS for side in getattr(found, name))
    assert np.isnan(found.cumulative_rewards).all()
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False))["jain_index"]["value"] is None
    unwanted = np.hstack([target, np.zeros((3, 1))])
    assert good(more_arms, unwanted).verdict == "trustworthy", "who never shows an arm needs not know it"
    assert good(more_arms, unwanted).cumulative_rewards[4] == 0.0


def test_one_context_one_arm_one_row() -> None:
    single = Log(np.zeros(500, dtype=int), np.zeros(500, dtype=int), np.tile([0.0, 1.0], 250), np.ones(500))
    found = good(single, [[1.0]])
    assert found.accounts.tolist() == [251.0]
    assert found.cumulative_rewards.tolist() == [250.0]
    assert found.jain_index == (1.0, 1.0, 1.0)
    lone = good(Log([0], [0], [1.0], [0.5], n_arms=2), [[0.5, 0.5]])
    assert lone.verdict == "do not use"
    nothing = good(Log(np.zeros(500, dtype=int), np.arange(500) % 2, np.zeros(500), np.full(500, 0.5)), [[0.5, 0.5]])
    assert nothing.verdict == "do not use", "an interval of no width would be a lie"
    assert "has a reward above 0" in nothing.reasons[0]
    assert np.isnan(nothing.cumulative_rewards).all()


def test_a_context_per_row_is_too_thin() -> None:
    """The logged policy of such a log shows what was shown, and nothing can be said of its propensities."""
    rng = np.random.default_rng(0)
    log = Log(np.arange(900), rng.integers(0, 3, 900), rng.random(900), np.full(900, 1 / 3))
    found = good(log, evaluation.logged_policy(log))
    assert found.verdict == "do not use"
    assert found.reasons == (
        "rounds per context: 1, fewer than arms, which are too few to estimate what a policy earns in each",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"distributions": [[0.5, 0.5]]}, r"distributions must be of shape \(5, 4\); got \(1, 2\)"),
        ({"distributions": np.full((5, 4), 0.3)}, r"distributions: sum of row \[0\] must be 1; got 1.2"),
        (
            {"distributions": np.tile([1.5, -0.5, 0.0, 0.0], (5, 1))},
            r"distributions\[0, 0\] must be a number in \[0, 1\]",
        ),
        ({"estimator": "drr"}, "estimator must be one of .*Did you mean 'dr'"),
        ({"confidence": 1.0}, "confidence must be a number in"),
        ({"n_replicates": 10}, "n_replicates must be an integer in"),
        ({"alpha": -0.1}, "alpha must be a number of at least 0, or inf"),
        ({"log": [1, 2]}, "log must be a Log or a LogFile"),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, Any], words: str) -> None:
    log, target = small_log()
    with pytest.raises(InvalidArgument, match=words):
        evaluate(**{"log": log, "distributions": target, **change})


def test_negative_rewards_are_refused() -> None:
    log = Log([0, 0], [0, 1], [0.5, -0.5], [0.5, 0.5])
    with pytest.raises(InvalidArgument, match=r"log.rewards must be at least 0; got -0.5. Map them"):
        evaluate(log, [[0.5, 0.5]])


def test_the_same_seed_gives_the_same_numbers() -> None:
    log, target = small_log()
    assert evaluate(log, target, seed=5).as_dict() == evaluate(log, target, seed=5).as_dict()
    assert evaluate(log, target, seed=5).jain_index != evaluate(log, target, seed=6).jain_index


def test_bias_of_the_plug_in_is_stated() -> None:
    """Concave utility of noisy sums: too low, by about half of phi'' times the variance."""
    means, visits, logging, target = world(9, 3, 4)
    errors, stated = [], []
    for seed in range(150):
        log = made_log(np.random.default_rng([9, seed]), 200, means, visits, logging)
        earned = scores_of(log, target, "ips").accounts()[0]
        truth = metrics.alpha_performance(1.0 + 200 * (visits[:, None] * target * means).sum(axis=0), 0.9)
        errors.append(float(metrics.alpha_performance(earned, 0.9) - truth))
        stated.append(evaluate(log, target, estimator="ips", n_replicates=100).bias["alpha_performance"])
    noise = np.std(errors) / math.sqrt(150)
    assert np.nanmean(stated) < 0.0
    assert abs(np.mean(errors) - np.nanmean(stated)) < 4.0 * noise


def test_public_names() -> None:
    assert all(hasattr(evaluation, name) for name in evaluation.__all__)


@pytest.mark.compiled
@pytest.mark.parametrize(
    ("n_contexts", "n_arms", "n_rounds", "scale"), [(4, 5, 2000, 1.0), (20, 10, 3000, 1.0), (4, 5, 5000, 0.05)]
)
def test_doubly_robust_is_never_much_worse_than_inverse_propensity(
    n_contexts: int, n_arms: int, n_rounds: int, scale: float
) -> None:
    """Root mean squared errors of every arm's reward over 100 logs, together: at most a tenth above."""
    means, visits, logging, target = world(1, n_contexts, n_arms)
    means = scale * means  # rare clicks
    truth = 1.0 + n_rounds * (visits[:, None] * target * means).sum(axis=0)
    errors: dict[str, list[Any]] = {"ips": [], "dr": []}
    for seed in range(100):
        log = made_log(np.random.default_rng([13, seed]), n_rounds, means, visits, logging)
        for name, found in errors.items():
            found.append(scores_of(log, target, name).accounts()[0] - truth)
    ips, dr = (float(np.sqrt(np.mean(np.square(found)))) for found in errors.values())
    assert dr <= 1.1 * ips, (dr, ips)


def test_an_arm_that_part_of_the_traffic_never_saw_is_not_trusted() -> None:
    """One context of twelve always shows arm 0: nothing tells what the others pay there, whatever the totals say."""
    rng = np.random.default_rng(0)
    contexts = (rng.random(5_000) < 0.08).astype(np.int32)
    arms = np.where(contexts == 1, 0, rng.integers(0, 3, 5_000)).astype(np.int32)
    pays = np.array([[0.2, 0.4, 0.6], [0.5, 0.0, 0.0]])
    rewards = (rng.random(5_000) < pays[contexts, arms]).astype(np.float64)
    log = Log(contexts, arms, rewards, np.where(contexts == 1, 1.0, 1 / 3))
    uniform, alike = np.full((2, 3), 1 / 3), np.array([[1 / 3] * 3, [1.0, 0.0, 0.0]])
    found = evaluate(log, uniform)
    assert found.verdict != "trustworthy"
    assert any("where the log never did" in reason for reason in found.reasons)
    assert evaluate(log, alike).verdict == "trustworthy"  # a policy that asks for nothing unseen


@pytest.mark.parametrize("alpha", [1.0, 2.0, 5.0, math.inf])
@pytest.mark.parametrize("groups", [None, Groups(["a", "a", "b"], entitlements={"a": 2.0, "b": 1.0})])
def test_welfare_and_performance_from_alpha_1_on(alpha: float, groups: Any) -> None:
    """The value is that of the accounts, the interval contains it, and both measures have one order."""
    log = made_log(np.random.default_rng(4), 4000, np.array([[0.7, 0.5, 0.2]]), np.ones(1), np.full((1, 3), 1 / 3))
    found = evaluate(log, np.array([[0.2, 0.3, 0.5]]), alpha, groups=groups, n_replicates=200)
    plain = metrics.welfare(found.accounts, alpha, groups=groups)
    assert found.welfare.low <= found.welfare.value <= found.welfare.high
    assert found.welfare.value == pytest.approx(plain, rel=0.05)
    assert found.welfare.low < plain < found.welfare.high
    if alpha == math.inf:
        assert all(math.isnan(side) for side in found.alpha_performance)
        assert found.as_dict()["alpha"] == "inf"
    else:
        worth = metrics.alpha_performance(found.accounts, alpha, groups=groups)
        assert found.alpha_performance.low < worth < found.alpha_performance.high


def test_welfare_intervals_of_max_min_and_of_nash_cover_the_truth() -> None:
    """Of 60 logs each, 95% intervals miss in at most 8, which correct ones do with a probability of 99.5%."""
    means, visits = np.array([[0.6, 0.3, 0.4], [0.2, 0.5, 0.3]]), np.array([0.5, 0.5])
    logging, policy = np.full((2, 3), 1 / 3), np.array([[0.2, 0.4, 0.4], [0.4, 0.2, 0.4]])
    earned = 1.0 + 3000 * (visits[:, None] * policy * means).sum(axis=0)
    for alpha in (1.0, math.inf):
        truth, missed = float(metrics.welfare(earned, alpha)), 0
        for seed in range(60):
            log = made_log(np.random.default_rng(seed), 3000, means, visits, logging)
            found = evaluate(log, policy, alpha, n_replicates=200, seed=seed).welfare
            missed += not found.low <= truth <= found.high
        assert missed <= 8, (alpha, missed)
