"""The price of fairness from a log, regret with confidence, learning policies on logs, warm starts, real data."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import binom, binomtest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    Groups,
    InvalidArgument,
    Log,
    ScaleFree,
    Stream,
    Uniform,
    metrics,
    offline_optimum,
    run,
    simulate,
    streams,
)
from alphafair.evaluation import (
    ESTIMATORS,
    LogFile,
    evaluate,
    fair_policy,
    frontier,
    logged_policy,
    model_stream,
    regret,
    replay,
    simulate_model,
    warm_start,
)
from alphafair.evaluation.estimates import PLUG_IN
from alphafair.evaluation.optima import survey
from alphafair.evaluation.reward_model import plausible_totals
from alphafair.offline import context_reward_totals
from tests import ROOT, naive, naive_evaluation
from tests.evaluation.test_evaluate import made_log, scores_of, world

DATA = ROOT / "tests" / "fixtures"
CURVES = ("average_reward", "jain_index", "least_share", "greatest_share")


def uniform_log(stream: Stream, seed: int) -> Log:
    log = simulate(Uniform(stream.n_contexts, stream.n_arms, feedback="bandit"), stream, seed=seed, log=True).log
    assert log is not None
    return log


@pytest.mark.compiled
def test_the_curve_from_a_log_covers_the_true_one() -> None:
    """From one arm shown per round of MovieLens latest-small, against the curve that all rewards give."""
    stream, alphas = streams.movielens_small(), [0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.99]
    totals = context_reward_totals(stream)
    earned = [offline_optimum(totals, alpha).accounts for alpha in alphas]
    inside: dict[str, list[bool]] = {name: [] for name in CURVES}
    for seed in range(6):
        found = frontier(uniform_log(stream, seed), alphas, n_replicates=200)
        assert found.verdict != "do not use"
        for name in CURVES:
            truth = np.array([float(PLUG_IN[name](each, alpha)) for each, alpha in zip(earned, alphas, strict=True)])
            curve = found.curve(name)
            inside[name] += ((curve.low <= truth) & (truth <= curve.high)).tolist()
            assert (curve.low <= curve.value).all()
            assert (curve.value <= curve.high).all()
    assert all(np.mean(each) >= 0.95 for each in inside.values()), inside


def drawn_world(seed: int, n_contexts: int = 200, n_arms: int = 3, n_rounds: int = 6000) -> tuple[Log, Any, Any]:
    """A log of uniform play, with what its rounds would have paid and what they pay on average, by context and arm."""
    rng = np.random.default_rng([5, seed])
    means = np.clip(0.4 + 0.15 * rng.normal(size=(n_contexts, n_arms)), 0.02, 0.98)
    contexts, arms = rng.integers(0, n_contexts, n_rounds), rng.integers(0, n_arms, n_rounds)
    rewards = (rng.random((n_rounds, n_arms)) < means[contexts]).astype(float)
    shown = rewards[np.arange(n_rounds), arms]
    log = Log(contexts, arms, shown, np.full(n_rounds, 1.0 / n_arms), n_contexts=n_contexts, n_arms=n_arms)
    realized = np.zeros_like(means)
    np.add.at(realized, contexts, rewards)
    return log, realized, np.bincount(contexts, minlength=n_contexts)[:, None] * means


@pytest.mark.compiled
def test_the_optimum_is_of_the_rewards_that_were_asked_for() -> None:
    """At alpha 0 the best fixed policy shows the best arm of each context: it earns the sum of the rows' maxima."""
    truths, plausible = [], []
    for seed in range(30):
        log, realized, expected = drawn_world(seed)
        truths.append([totals.max(axis=1).sum() for totals in (realized, expected)])
        cells = survey(log).cells
        plausible.append(
            [
                np.mean([totals.max(axis=1).sum() for totals in plausible_totals(cells, 20, 0, expected=which)])
                for which in (False, True)
            ]
        )
    (lucky, fair), (lucky_found, fair_found) = np.mean(truths, axis=0), np.mean(plausible, axis=0)
    assert lucky > 1.03 * fair, "who knows the luck of single rounds earns more"
    assert lucky_found == pytest.approx(lucky, rel=0.01)
    assert fair_found == pytest.approx(fair, rel=0.01)


@pytest.mark.compiled
def test_bands_hold_the_optimum_that_was_asked_for() -> None:
    """Against a solver of its own, on rewards that the log does not show."""
    alphas, inside = [0.0, 0.5, 0.9], {"realized": [], "expected": []}  # type: ignore[var-annotated]
    for seed in range(4):
        log, *rewards = drawn_world(seed, n_contexts=40)
        for (which, held), totals in zip(inside.items(), rewards, strict=True):
            found = frontier(log, alphas, optimum=which, n_replicates=200)
            assert (found.optimum, found.as_dict()["optimum"]) == (which, which)
            for k, alpha in enumerate(alphas):
                shares, _, _ = naive.offline_optimum(totals, alpha)
                earned = 1.0 + (shares * totals).sum(axis=0)
                for name in CURVES:
                    interval, truth = found.plausible[k][name], float(PLUG_IN[name](earned, alpha))
                    assert found.curve(name).low[k] <= interval.low <= interval.high <= found.curve(name).high[k]
                    held.append(interval.low <= truth <= interval.high)
    assert all(np.mean(held) >= 0.95 for held in inside.values()), {
        name: np.mean(held) for name, held in inside.items()
    }


def test_the_estimator_is_of_the_held_out_policies() -> None:
    log, _, _ = drawn_world(0, n_contexts=4)
    plain, other = (frontier(log, [0.5], estimator=name, n_replicates=100) for name in ("dr", "ips"))
    assert (other.held_out[0].estimator, other.flattered[0].estimator) == ("ips", "dr")
    assert other.held_out[0].jain_index != plain.held_out[0].jain_index
    assert other.flattered[0].jain_index == plain.flattered[0].jain_index
    for name, words in (("optimum", "'realized', 'expected'"), ("estimator", "'ips'")):
        with pytest.raises(InvalidArgument, match=f"{name} must be one of .*{words}"):
            frontier(log, [0.5], **{name: "true"})


def test_held_out_is_not_flattered() -> None:
    """Pure noise: nothing can be learned, so no policy is worth more than uniform play; in hindsight it looks so."""
    rng = np.random.default_rng(0)
    log = Log(
        rng.integers(0, 40, 4000), rng.integers(0, 4, 4000), (rng.random(4000) < 0.5).astype(float), np.full(4000, 0.25)
    )
    found = frontier(log, [0.0], n_replicates=200)
    assert found.held_out[0].average_reward.low <= 501.0 <= found.held_out[0].average_reward.high
    assert found.flattered[0].average_reward.low > 501.0


def test_direct_answers() -> None:
    stream = streams.ratings(n_rounds=20_000, n_contexts=4, n_arms=3, seed=1)
    found = frontier(uniform_log(stream, 0), [0.0, 0.3, 0.6, 0.9], n_replicates=200)
    share = float(found.least_share.value[2])
    assert found.alpha_for_least_share(share).alpha == 0.6
    assert found.alpha_for_least_share(0.99) == (None, None)
    cost = 100.0 * (1.0 - float(found.average_reward.value[1] / found.average_reward.value[0]))
    assert found.alpha_for_cost(cost + 1e-9).alpha == 0.3
    assert found.alpha_for_cost(100.0) == (0.9, 0.9)
    with pytest.raises(InvalidArgument, match="percent must be a number"):
        found.alpha_for_cost(101.0)


@pytest.mark.parametrize("alphas", [[], [0.5, 0.1], [0.5, 0.5], [-1.0]])
def test_invalid_alphas_are_refused(alphas: list[float]) -> None:
    log = Log([0, 0], [0, 1], [1.0, 0.0], [0.5, 0.5])
    with pytest.raises(InvalidArgument, match="alpha"):
        frontier(log, alphas)


def test_a_frontier_of_two_rows_is_not_to_be_used() -> None:
    found = frontier(Log([0, 0], [0, 1], [1.0, 0.0], [0.5, 0.5]), [0.5], n_replicates=100)
    assert found.verdict == "do not use"
    assert np.isnan(found.average_reward.value).all()
    assert found.alpha_for_least_share(0.1) == found.alpha_for_cost(10.0) == (None, None)


def test_the_worst_reason_of_each_kind_has_its_alpha() -> None:
    rng = np.random.default_rng(0)
    arms = (rng.random(200) < 0.05).astype(int)  # the second arm is rare
    log = Log(np.zeros(200, dtype=int), arms, rng.random(200), np.where(arms == 1, 0.05, 0.95))
    found = frontier(log, [0.0, 0.5, 2.0], n_replicates=100)
    worst = {reason.kind: (alpha, reason) for alpha, reason in found.worst_reasons()}
    assert len(worst) == len(found.worst_reasons()) < len(found.reasons)
    for alpha, reason in worst.values():
        assert any(reason in each.reasons for each in (*found.held_out, *found.flattered) if each.alpha == alpha)
    same = pickle.loads(pickle.dumps(worst["one round"][1]))  # processes send it
    assert (same, same.kind, same.size) == (worst["one round"][1], "one round", worst["one round"][1].size)


def test_a_frontier_of_an_arm_never_shown_is_not_to_be_used() -> None:
    rng = np.random.default_rng(0)
    log = Log(np.zeros(3000, dtype=int), rng.integers(0, 2, 3000), rng.random(3000), np.full(3000, 0.5), n_arms=3)
    found = frontier(log, [0.5, 0.9], n_replicates=100)
    assert found.verdict == "do not use"
    assert np.isnan(found.jain_index.value).all()


def test_a_frontier_of_a_context_per_row_is_not_to_be_used() -> None:
    """Policies learned from the other half are uniform there; in hindsight anything can be had, so there is no band."""
    rng = np.random.default_rng(0)
    log = Log(np.arange(900), rng.integers(0, 3, 900), rng.random(900), np.full(900, 1 / 3))
    found = frontier(log, [0.5], n_replicates=100)
    assert found.verdict == "do not use"
    assert "rounds per context: 1" in found.reasons[0]
    assert np.isnan(found.jain_index).all()
    assert found.alpha_for_least_share(0.01) == found.alpha_for_cost(50.0) == (None, None)


@pytest.mark.parametrize("n_arms", [2, 5])
def test_contexts_seen_once_are_no_reason_against_a_frontier(n_arms: int) -> None:
    """Arms that earn the same everywhere need few rounds per context: only weights that do not add up show too few."""
    rng, n = np.random.default_rng(0), 900
    arms = rng.integers(n_arms, size=n)
    found = frontier(Log(np.arange(n), arms, np.ones(n), np.full(n, 1.0 / n_arms)), [0.5, 2.0], n_replicates=100)
    assert found.verdict == "trustworthy"
    assert [round(each.reward_per_round.value, 3) for each in found.held_out] == [1.0, 1.0]


@pytest.mark.compiled
def test_regret_is_at_most_what_is_stated() -> None:
    """In 95 of 100 runs at least; the bound is on the safe side, so in nearly all."""
    held, alpha = 0, 0.9
    for seed in range(60):
        stream = streams.ratings(n_rounds=3000, n_contexts=4, n_arms=4, seed=seed)
        policy = AlphaFairAdaptive(4, 4, alpha=alpha, groups=Groups(pull_floor=0.02))  # a log for evaluation
        log = simulate(policy, stream, seed=seed, log=True).log
        assert log is not None
        stated = regret(log, alpha, n_replicates=200)
        achieved = float(metrics.alpha_performance(1.0 + np.bincount(log.arms, log.rewards, minlength=4), alpha))
        assert stated.achieved == pytest.approx(achieved)
        truth = offline_optimum(context_reward_totals(stream), alpha).value - achieved
        held += truth <= stated.at_most
        assert "with 95% confidence" in str(stated)
    assert held >= 54


def test_a_vacuous_regret_bound_is_marked(tmp_path: Path) -> None:
    """A handful of rare rewards under small propensities: the interval reaches beyond what any rounds could pay."""
    rng = np.random.default_rng(3)
    arms = np.where(rng.random(2000) < 0.02, 1, 0)
    rewards = (rng.random(2000) < np.where(arms == 1, 0.9, 0.1)).astype(float)
    columns = {"arm": arms, "reward": rewards, "propensity": np.where(arms == 1, 0.02, 0.98), "context": 0 * arms}
    log = Log(columns["context"], arms, rewards, columns["propensity"])
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    for each in (log, LogFile(tmp_path / "log.parquet")):
        found = regret(each, 0.0, confidence=0.999, n_replicates=200)
        assert found.optimum_at_most > 2.0 + 2000.0
        assert found.vacuous
        assert str(found).endswith("every round would have to pay more than the greatest reward of the log.")
    plain = regret(uniform_log(streams.ratings(2000, 2, 3, seed=0), 0), 0.5, n_replicates=200)
    assert not plain.vacuous
    assert "says nothing" not in str(plain)


def test_fixed_policies_of_a_log() -> None:
    log = Log([0, 0, 0, 1], [0, 0, 1, 1], [1.0, 1.0, 0.0, 1.0], [0.5] * 4, n_contexts=3)
    assert logged_policy(log).tolist() == [[2 / 3, 1 / 3], [0.0, 1.0], [0.5, 0.5]]
    policy = fair_policy(log, 0.5)
    np.testing.assert_allclose(policy.sum(axis=1), 1.0)


# learning policies


def test_replay_is_the_policy_on_fewer_rounds() -> None:
    """Uneven propensities and all: what is replayed earns per round what the policy earns on as many real rounds."""
    means, visits, _, _ = world(3, 3, 3)
    rng = np.random.default_rng(3)
    logging = 0.5 * rng.dirichlet(np.full(3, 3.0), 3) + 0.5 / 3
    log = made_log(rng, 30_000, means, visits, logging)
    found = replay(log, AlphaFairAdaptive(3, 3, alpha=0.5), alpha=0.5, n_seeds=10)
    real = []
    for seed in range(10):
        contexts = np.random.default_rng(seed).choice(3, found.n_rounds, p=visits)
        rewards = (np.random.default_rng([1, seed]).random((found.n_rounds, 3)) < means[contexts]).astype(float)
        trace = simulate(AlphaFairAdaptive(3, 3, alpha=0.5), Stream.from_arrays(contexts, rewards), seed=seed)
        real.append((trace.final.sum() - 3) / found.n_rounds)
    assert found.reward_per_round.value == pytest.approx(np.mean(real), abs=0.02)
    assert "rounds are exchangeable" in found.assumes


@pytest.mark.compiled
@pytest.mark.parametrize(("n_contexts", "n_arms", "alpha"), [(2, 2, 0.0), (3, 3, 0.5)])
def test_bands_of_a_replay_are_of_the_log_as_well(n_contexts: int, n_arms: int, alpha: float) -> None:
    """All seeds share the rounds of one log: 40 logs, and what the policy earns on as many real rounds per round."""
    means, visits, _, _ = world(3, n_contexts, n_arms)
    even = np.full((n_contexts, n_arms), 1.0 / n_arms)
    policy = AlphaFairAdaptive(n_contexts, n_arms, alpha=alpha)
    found = [
        replay(made_log(np.random.default_rng([3, seed]), 3000, means, visits, even), policy, alpha=alpha, n_seeds=10)
        for seed in range(40)
    ]
    n_rounds, real = found[0].n_rounds, []
    for seed in range(100):
        contexts = np.random.default_rng([9, seed]).choice(n_contexts, n_rounds, p=visits)
        rewards = (np.random.default_rng([8, seed]).random((n_rounds, n_arms)) < means[contexts]).astype(float)
        stream = Stream.from_arrays(contexts, rewards, n_contexts=n_contexts)
        real.append((simulate(policy.fresh(), stream, seed=seed).final.sum() - n_arms) / n_rounds)
    inside = sum(each.reward_per_round.low <= np.mean(real) <= each.reward_per_round.high for each in found)
    assert inside >= binom.ppf(0.01, 40, 0.95), inside


def test_verdicts_of_policies_that_learn() -> None:
    means, visits, logging, _ = world(4, 3, 4)
    log = made_log(np.random.default_rng(4), 3000, means, visits, logging)
    policy = AlphaFairAdaptive(3, 4, alpha=0.5)
    replayed, modeled = replay(log, policy, n_seeds=3), simulate_model(log, policy, n_seeds=3)
    assert (replayed.verdict, modeled.verdict) == ("thin", "thin")
    assert f"{replayed.n_rounds / 30:.2g}% of the rounds matched" in replayed.reasons[0]
    assert "do not include the model's own error" in modeled.reasons[0]
    more_arms = Log(log.contexts, log.arms, log.rewards, log.propensities, n_contexts=3, n_arms=5)
    wrong = Log(log.contexts, log.arms, log.rewards, 0.5 * log.propensities, n_contexts=3, n_arms=4)
    nothing = Log(log.contexts, log.arms, 0.0 * log.rewards, log.propensities, n_contexts=3, n_arms=4)
    for bad, why, plays in (
        (more_arms, "arms never shown, which a learning policy would try: 4", (replay, simulate_model)),
        (wrong, "inverse propensities do not average to one", (replay,)),
        (nothing, "no round has a reward above 0", (replay, simulate_model)),
    ):
        for play in plays:
            found = play(bad, AlphaFairAdaptive(3, bad.n_arms, alpha=0.5), n_seeds=2)
            assert found.verdict == "do not use"
            assert why in found.reasons[0]
            assert np.isnan([*found.reward_per_round, *found.jain_index, *found.cumulative_rewards]).all()
            assert found.as_dict()["jain_index"]["value"] is None


def test_the_model_has_the_logs_means() -> None:
    means, visits, logging, _ = world(4, 3, 4)
    log = made_log(np.random.default_rng(4), 20_000, means, visits, logging)
    stream = model_stream(log, seed=1)
    assert np.array_equal(stream.contexts, log.contexts)
    for context in range(3):
        rows = stream.reward_table[stream.items[stream.contexts == context]]
        np.testing.assert_allclose(rows.mean(axis=0), means[context], atol=0.06)
    found = simulate_model(log, AlphaFairAdaptive(3, 4, alpha=0.0), alpha=0.0, n_seeds=3)
    best = float((visits * means.max(axis=1)).sum())
    assert 0.9 * best < found.reward_per_round.value < 1.02 * best
    assert "the model is true" in found.as_dict()["assumes"]


def test_invalid_replays_are_refused() -> None:
    rng = np.random.default_rng(0)
    uneven = Log(np.zeros(500, dtype=int), rng.integers(0, 2, 500), np.ones(500), np.r_[1e-6, np.full(499, 0.5)])
    with pytest.raises(InvalidArgument, match="rounds that could match"):
        replay(uneven, AlphaFairBandit(1, 2))
    with pytest.raises(InvalidArgument, match="policy must be one of 1 contexts and 2 arms"):
        replay(uneven, AlphaFairBandit(1, 3))
    with pytest.raises(InvalidArgument, match="a policy with bandit feedback"):
        replay(Log([0] * 100, [0, 1] * 50, [1.0] * 100, [0.5] * 100), AlphaFair(1, 2))


# warm starts


@pytest.mark.compiled
def test_a_warm_policy_earns_more_than_a_cold_one() -> None:
    """On half of MovieLens latest-small, shown at random, then the next thousand rounds: in 95 of 100 seeds."""
    stream = streams.movielens_small()
    half = stream.n_rounds // 2
    later = slice(half, half + 1000)
    then = Stream(stream.contexts[later], stream.items[later], stream.reward_table, n_contexts=stream.n_contexts)
    wins = 0
    for seed in range(100):
        log = uniform_log(stream.head(half), 1000 + seed)
        warm = warm_start(log, AlphaFairAdaptive, alpha=0.9, weight=0.5)
        cold = AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=0.9)
        earned = [simulate(policy, then, seed=seed).final.sum() for policy in (warm, cold)]
        wins += earned[0] > earned[1]
    assert wins >= 95, wins


@pytest.mark.parametrize("kind", [AlphaFairBandit, AlphaFairAdaptive])
def test_one_tiny_propensity_does_not_freeze_a_learner(kind: Any) -> None:
    """A single reward logged at 1e-6 moves a policy no further than one logged at 1/(2n)."""
    rows = {"contexts": np.zeros(50, dtype=int), "arms": np.arange(50) % 4, "rewards": np.full(50, 0.5)}
    tiny, plain = np.full(50, 0.25), np.full(50, 0.25)
    tiny[0], plain[0] = 1e-6, 0.125
    policies = [warm_start(Log(**rows, propensities=each), kind, alpha=0.0, seed=1) for each in (tiny, plain)]
    assert policies[0].snapshot().to_bytes() == policies[1].snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match="propensit"):
        run.over_log(kind(1, 4, alpha=0.0), Log(**rows, propensities=tiny))
    for _ in range(1000):
        decision = policies[0].choose(0)
        policies[0].update(decision, 1.0 if decision.arm == 3 else 0.1)
    assert policies[0].probabilities(0)[3] > 0.5, "it learns on"


def test_the_weight_of_the_past() -> None:
    log = uniform_log(streams.ratings(n_rounds=1000, n_contexts=2, n_arms=3, seed=0), 0)
    none, half, whole = (warm_start(log, AlphaFairBandit, alpha=0.5, weight=weight) for weight in (0.0, 0.5, 1.0))
    assert none.accounts.tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(whole.accounts, 1.0 + np.bincount(log.arms, log.rewards), rtol=1e-12)
    kept = slice(1, None, 2)  # evenly
    np.testing.assert_allclose(half.accounts, 1.0 + np.bincount(log.arms[kept], log.rewards[kept]), rtol=1e-12)
    again = warm_start(log, AlphaFairBandit, alpha=0.5, weight=0.5)
    assert all(np.array_equal(again.probabilities(c), half.probabilities(c)) for c in range(2))
    straight = AlphaFairBandit(2, 3, alpha=0.5)
    run.over_log(straight, log)
    np.testing.assert_array_equal(straight.probabilities(1), whole.probabilities(1))


def test_warm_starts_refuse_invalid_arguments() -> None:
    log = Log([0, 0], [0, 1], [2.0, 0.0], [0.5, 0.5])
    with pytest.raises(InvalidArgument, match=r"log.rewards\[0\] must be a number in \[0, 1\]"):
        warm_start(log, AlphaFairBandit)
    assert warm_start(log, ScaleFree).n_arms == 2, "one that takes any reward"
    with pytest.raises(InvalidArgument, match="weight must be a number"):
        warm_start(log, ScaleFree, weight=1.5)
    with pytest.raises(InvalidArgument, match="bandit feedback"):
        warm_start(Log([0, 0], [0, 1], [1.0, 0.0], [0.5, 0.5]), AlphaFair)


# real data


def open_bandit(name: str, context: str) -> Log:
    columns = {"context": context, "arm": "item_id", "reward": "click", "propensity": "propensity_score"}
    return Log.from_table(DATA / f"open-bandit-men-{name}.parquet", **columns)


@pytest.mark.parametrize("context", ["position", "user_feature_0"])
def test_each_log_estimates_what_the_other_policy_earned(context: str) -> None:
    """The uniform log's estimate of Thompson sampling's click rate agrees with what that policy's own log shows, within
    both intervals; the other way round the rate is within the estimate's, and the two overlap.

    Thompson sampling learned while it ran; the fixed policy that shows arms as often as it did, by context, stands in.
    """
    logs = {name: open_bandit(name, context) for name in ("random", "bts")}
    for own, other in (("bts", "random"), ("random", "bts")):
        shown = logged_policy(logs[own]) if own == "bts" else np.full((logs[own].n_contexts, 34), 1 / 34)
        rate = logs[own].rewards.mean()
        seen = binomtest(int(logs[own].rewards.sum()), logs[own].n_rounds).proportion_ci(method="wilson")
        for estimator in ESTIMATORS:
            found = evaluate(logs[other], shown, estimator=estimator)
            assert found.verdict == "thin", "46 and 69 clicks for 34 arms"
            value, low, high = found.reward_per_round
            assert low <= rate <= high, (own, estimator)
            if own == "bts":
                assert seen.low <= value <= seen.high, (own, estimator)
            assert max(low, seen.low) <= min(high, seen.high)


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
def test_open_bandit_estimates_agree_with_plain_python(estimator: str) -> None:
    log = open_bandit("bts", "position")
    part = Log(*(column[:3000] for column in (log.contexts, log.arms, log.rewards, log.propensities)), n_arms=34)
    uniform = np.full((part.n_contexts, 34), 1 / 34)
    found = scores_of(part, uniform, estimator).accounts()[0]
    np.testing.assert_allclose(found, naive_evaluation.accounts(part, uniform.tolist(), estimator), rtol=1e-9)


def test_a_log_without_information_gives_no_regret_bound() -> None:
    found = regret(Log([0, 0], [0, 1], [1.0, 0.0], [0.5, 0.5]), 0.9)
    assert found.verdict == "do not use"
    assert np.isnan(found.at_most)
    assert str(found) == "This log does not bound the difference between the best fixed policy and the logged run."


def test_the_regret_statement_is_in_welfare_from_alpha_1_on() -> None:
    stream = streams.ratings(8000, 3, 4, seed=1)
    log = simulate(Uniform(3, 4, feedback="bandit"), stream, log=True).log
    assert log is not None
    accounts = 1.0 + np.bincount(log.arms, log.rewards, minlength=4)
    for alpha in (1.0, 2.0, np.inf):
        found, best = (
            regret(log, alpha, n_replicates=200),
            offline_optimum(context_reward_totals(stream), alpha).welfare,
        )
        assert found.measure == "welfare"
        assert found.achieved == pytest.approx(metrics.welfare(accounts, alpha))
        assert best - found.achieved <= found.at_most <= 0.5 * found.achieved
        assert str(found).startswith("The welfare of the best fixed policy would have been at most")
    assert regret(log, 0.5, n_replicates=200).measure == "alpha_performance"


# a promise to contexts


def test_the_curve_of_a_promise_is_that_of_the_best_policies_that_keep_it() -> None:
    stream = streams.ratings(n_rounds=30_000, n_contexts=3, n_arms=4, seed=0)
    totals, shares = context_reward_totals(stream), [0.0, 0.6, 0.85]
    found = frontier(uniform_log(stream, 1), [1.0], context_shares=shares, n_replicates=100, confidence=0.9)
    assert found.context_shares is not None
    assert found.context_shares.tolist() == shares
    assert found.alphas.tolist() == [1.0]
    assert found.regrets == ()
    assert found.as_dict()["context_shares"] == shares
    curve = found.curve("welfare")
    for k, share in enumerate(shares):
        best = offline_optimum(totals, 1.0, context_share=share)
        assert curve.low[k] <= best.welfare <= curve.high[k]
        kept = metrics.context_shares((totals * found.distributions[k]).sum(axis=1), totals)
        assert kept.min() >= share - 0.03  # of what the log shows
    plain = frontier(uniform_log(stream, 1), [1.0], n_replicates=100, confidence=0.9)
    assert plain.context_shares is None
    assert curve.value[0] == pytest.approx(plain.welfare.value[0], rel=1e-4)
    assert curve.value[2] < curve.value[0]
    for question in (found.alpha_for_cost, found.alpha_for_least_share):
        with pytest.raises(InvalidArgument, match="alphas must be the points of the curve"):
            question(0.1)


@pytest.mark.parametrize(
    ("alphas", "shares", "terms", "message"),
    [
        ([0.5, 1.0], [0.5], {}, "context_shares must be used with one alpha; got 2. Pass one."),
        ([1.0], [0.6, 0.5], {}, "context_shares must be increasing, at least one; got .0.6, 0.5.. Sort them"),
        ([1.0], [], {}, "context_shares must be increasing, at least one"),
        ([1.0], [1.0], {}, "context_share must be a number in .0, 1.; got 1.0."),
        ([1.0], [0.5], {"groups": Groups(pull_floor=0.2)}, "context_share must be below 0.4, what the floors leave"),
    ],
)
def test_promises_that_are_refused(alphas: list[float], shares: list[float], terms: Any, message: str) -> None:
    log = uniform_log(streams.ratings(n_rounds=200, n_contexts=2, n_arms=3, seed=0), 0)
    with pytest.raises(InvalidArgument, match=message):
        frontier(log, alphas, context_shares=shares, **terms)


def test_promises_need_all_arms() -> None:
    sets = np.array([[True, True], [True, False]] * 100)
    log = Log([0] * 200, [0] * 200, [0.5] * 200, np.where(sets.all(axis=1), 0.5, 1.0), available=sets)
    with pytest.raises(InvalidArgument, match="context_shares must be left out where some arms were not available"):
        frontier(log, [1.0], context_shares=[0.5], n_replicates=100)
