"""Arms that are added and retired: streams against the slow oracle, renaming, certificates."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    AlphaFairAdaptive,
    AlphaFairBandit,
    FairCB,
    IndependentAlphaFair,
    InvalidArgument,
    Stream,
    load_policy,
    offline_curve,
    offline_optimum,
    simulate,
    streams,
)
from alphafair.lab.rivals import READINGS
from alphafair.offline import context_reward_totals
from alphafair.policy.base import BasePolicy
from tests import naive
from tests.algorithms.test_events import PlainPair
from tests.algorithms.test_policies import PAIRS, make_pair


@pytest.mark.parametrize("name", PAIRS)
def test_renaming_arms_renames_the_answer(name: str) -> None:
    order = np.array([2, 0, 1])
    plain, _ = make_pair(name, 1, 3, np.random.default_rng(0))
    renamed = plain.fresh()
    rng = np.random.default_rng(1)
    for t in range(120):
        if t == 40:
            plain.grow(n_arms=4)
            renamed.grow(n_arms=4)
            order = np.append(order, 3)
        if t == 80:
            plain.retire(2)
            renamed.retire(int(np.flatnonzero(order == 2)[0]))
        decision = plain.choose(0, rng=rng)
        rewards = rng.random(plain.n_arms)
        twin = decision._replace(
            arm=int(np.flatnonzero(order == decision.arm)[0]), probabilities=decision.probabilities[order]
        )
        full = plain.feedback == "full"
        plain.update(decision, rewards if full else float(rewards[decision.arm]))
        renamed.update(twin, rewards[order] if full else float(rewards[decision.arm]))
        np.testing.assert_allclose(plain.probabilities(0)[order], renamed.probabilities(0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", PAIRS)
def test_a_retired_arm_is_never_drawn(name: str) -> None:
    policy, _ = make_pair(name, 2, 4, np.random.default_rng(0))
    reward: Any = [1.0, 0.2, 0.6, 0.4] if policy.feedback == "full" else 0.5
    for _ in range(30):
        policy.update(policy.choose(0), reward)
    policy.retire(1)
    mask = np.array([True, True, False, False])
    for context in (0, 1):
        assert policy.probabilities(context)[1] == 0.0
        for _ in range(300):
            decision = policy.choose(context)
            assert decision.arm != 1
            assert decision.propensity == decision.probabilities[decision.arm] > 0.0
            masked = policy.choose(context, available=mask)
            assert (masked.arm, masked.propensity) == (0, 1.0)
    with pytest.raises(InvalidArgument, match="available must be true for at least one arm that is not retired"):
        policy.choose(0, available=[False, True, False, False])


def test_new_arms_start_with_the_account_argument() -> None:
    for kind in (AlphaFair, AlphaFairBandit):
        policy = kind(1, 2, alpha=0.5, seed=0)
        for _ in range(50):
            policy.update(policy.choose(0), [1.0, 0.5] if kind is AlphaFair else 0.7)
        least = policy.accounts.min()
        policy.grow(n_arms=3)
        policy.grow(n_arms=4, account="fresh")
        policy.grow(n_arms=5, account=7.5)
        assert policy.accounts[2:].tolist() == [least, 1.0, 7.5]
        policy.retire(3)
        policy.grow(n_arms=6)
        assert policy.accounts[5] == min(least, 7.5)
    alone = IndependentAlphaFair(2, 2, alpha=0.5)
    alone.update(alone.choose(1), [1.0, 0.5])
    alone.grow(n_arms=3)
    assert alone.accounts[:, 2].tolist() == [1.0, 1.25]


@pytest.mark.compiled
def test_a_new_arm_does_not_take_everything() -> None:
    """With an account of 1 it is served alone for a thousand rounds; with the least account it gets its share."""
    shares = {}
    for account in ("least", "fresh"):
        policy = AlphaFairBandit(1, 4, alpha=0.9, seed=3)
        pays, rng, pulls = [0.6, 0.5, 0.4, 0.3, 0.5], np.random.default_rng(5), 0
        for t in range(12_000):
            if t == 8000:
                policy.grow(n_arms=5, account=account)
            decision = policy.choose(0)
            pulls += decision.arm == 4
            policy.update(decision, float(rng.random() < pays[decision.arm]))
        shares[account] = pulls / 4000
    assert shares["fresh"] > 0.5 > 0.3 > shares["least"] > 0.05, shares


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: p.retire(3), r"arm must be an integer in \[0, 2\]; got 3"),
        (lambda p: p.retire("a"), r"arm must be an integer"),
        (
            lambda p: (p.retire(1), p.retire(1)),
            r"arm must be one of the live arms \[0, 2\]; got 1. It is already retired",
        ),
        (lambda p: (p.retire(1), p.retire(0), p.retire(2)), "arm must be one of at least two live arms"),
        (lambda p: p.grow(n_arms=2), "n_arms must be an integer of at least 3; got 2"),
        (lambda p: p.grow(1), "n_contexts must be an integer of at least 2; got 1"),
        (lambda p: p.grow(n_arms=4, account="most"), "account must be 'least', 'fresh' or a number of at least 1"),
        (lambda p: p.grow(n_arms=4, account=0.5), "account must be a number in"),
        (lambda p: p.grow(4, 5, account=float("nan")), "account must be a number in"),
    ],
)
def test_refused_calls_change_nothing(call: Any, words: str) -> None:
    for policy in (AlphaFair(2, 3, seed=0), AlphaFairBandit(2, 3, seed=0)):
        with pytest.raises(InvalidArgument, match=words):
            call(policy)
        assert policy.n_contexts == 2
        assert policy.n_arms == 3


def test_a_floor_that_no_longer_fits_is_refused() -> None:
    policy = FairCB(2, 3, horizon=100, pull_share=0.3)
    with pytest.raises(
        InvalidArgument, match=r"n_arms must be at most 3 live arms with this pull_share; got 4\. Retire an arm"
    ):
        policy.grow(n_arms=4)
    with pytest.raises(InvalidArgument, match="n_arms must be at most 3 live arms"):
        policy.grow(n_arms=np.int64(4))  # type: ignore[arg-type]
    policy.retire(0)
    policy.grow(n_arms=4)
    assert load_policy(policy.snapshot()).live_arms.tolist() == [1, 2, 3]
    assert np.array_equal(policy.distributions[0], policy.probabilities(0))


def coming_and_going(n_rounds: int = 900, n_arms: int = 5, seed: int = 0) -> Stream:
    """Two arms from the start, three that arrive, two that leave."""
    base = streams.ratings(n_rounds, 3, n_arms, seed=seed)
    arrivals = [0, 0, *np.linspace(200, 600, n_arms - 2).astype(int)]
    departures = [n_rounds // 2, *[n_rounds] * (n_arms - 2), 800]
    return replace(base, arrivals=arrivals, departures=departures)


@pytest.mark.parametrize("delay", [None, 37])
@pytest.mark.parametrize("name", PAIRS)
def test_streams_with_changing_arms_run_compiled_and_stepwise_alike(name: str, delay: int | None) -> None:
    stream = coming_and_going()
    results = []
    for compiled in (True, False):
        policy = made(name)
        trace = simulate(policy, stream, seed=3, record_every=50, delay=delay, compiled=compiled, log=True)
        assert trace.log is not None
        state = policy.snapshot()
        results.append((trace.accounts.tobytes(), trace.pulls.tolist(), trace.log.arms.tobytes(), state))
        assert trace.log.propensities.min() > 0.0
        for t in range(0, 900, 7):
            assert stream.present(t)[trace.log.arms[t]], f"an absent arm was drawn in round {t}"
        assert trace.pulls.sum() == 900
    (*one, first), (*two, second) = results
    assert one == two
    assert all(np.array_equal(first.arrays[key], second.arrays[key]) for key in first.arrays)


def short() -> Stream:
    plain = streams.ratings(300, 3, 5, seed=1)
    return replace(plain, arrivals=[0, 0, 60, 130, 130], departures=[150, 300, 300, 220, 300])


def made(name: str) -> BasePolicy:
    ours, _, options = PAIRS[name]
    options = {key: value for key, value in options.items() if key != "epochs"}
    if ours is FairCB:
        options |= {"horizon": 900, "pull_share": 0.1}
    return ours(3, 2, **options)


@pytest.mark.parametrize("name", PAIRS)
def test_a_stream_with_changing_arms_is_played_as_the_oracle_plays_it(name: str) -> None:
    stream = short()
    ours = made(name)
    options = PAIRS[name][2]
    if isinstance(ours, FairCB):
        options = {"pull_share": 0.1, "horizon": 900, "feedback": ours.feedback.value}
    oracle = PlainPair(ours, PAIRS[name][1](3, 2, **options))
    trace = simulate(ours, stream, seed=5)
    earned, pulls = np.ones(5), np.zeros(5)
    uniforms = np.random.default_rng(5).random(300)
    for t in range(300):
        before, now = stream.present(max(t - 1, 0)), stream.present(t)
        if t and (now & ~before).any():
            oracle.arms_added(int(np.flatnonzero(now & ~before)[-1]) + 1 - oracle.n_arms, None)
        for arm in np.flatnonzero(before & ~now):
            oracle.retire(int(arm))
        context, rewards = int(stream.contexts[t]), stream.rewards(t)[: oracle.n_arms]
        p = oracle.probabilities(context)
        arm = naive.draw(p, uniforms[t])
        full = ours.feedback == "full"
        oracle.learn((context, arm, float(p[arm]), p), rewards if full else float(rewards[arm]))
        earned[: oracle.n_arms] += p * rewards if full else np.eye(oracle.n_arms)[arm] * rewards
        pulls[arm] += 1
    np.testing.assert_allclose(trace.final, earned, rtol=1e-10)
    assert trace.pulls.tolist() == pulls.tolist()
    oracle.check()


@pytest.mark.compiled
@pytest.mark.parametrize("account", ["least", "fresh", 40.0])
@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("delay", [None, 120])
def test_the_certificate_holds_over_epochs(account: Any, reading: str, alpha: float, delay: int | None) -> None:
    """tests/conftest.py checks it in every run; these runs make it tight."""
    for seed in range(3):
        policy = READINGS[reading](3, 2, alpha=alpha)
        simulate(policy, coming_and_going(seed=seed), account=account, delay=delay)
        assert policy.surrogate_regret_bound is not None
        assert policy.surrogate_regret_bound > 2 * np.sqrt(policy.squared_gradient_norms).sum()


def test_the_certificate_over_epochs_is_nearly_attained() -> None:
    """Twelve epochs in which the best arm is now the one, now the other: 0.82 of the bound, three times what it would
    be without the terms of closed epochs."""
    n, n_epochs = 100, 12
    rewards = np.zeros((n * n_epochs, 1 + n_epochs))
    for epoch in range(n_epochs):
        rewards[n * epoch : n * (epoch + 1), epoch % 2] = 1.0
    arrivals = [0, 0, *(n * epoch for epoch in range(1, n_epochs))]
    stream = Stream.from_arrays(np.zeros(n * n_epochs, dtype=int), rewards, arrivals=arrivals)
    policy = AlphaFair(1, 2, alpha=0.0)
    simulate(policy, stream)
    regret = offline_optimum(context_reward_totals(stream), 0.0).value - policy.accounts.sum()
    bound = policy.surrogate_regret_bound
    assert bound is not None
    assert 3.0 * 2.0 * np.sqrt(policy.squared_gradient_norms).sum() < regret
    assert 0.8 * bound < regret <= bound


def test_the_offline_optimum_uses_only_available_arms() -> None:
    """Against the dense oracle with a row per epoch and context."""
    stream = short()
    totals = context_reward_totals(stream)
    edges = [0, *stream.epochs, 300]
    rows = []
    for first, last in pairwise(edges):
        dense = np.array([np.where(stream.present(first), stream.rewards(t), 0.0) for t in range(first, last)])
        rows.append(naive.context_reward_totals(stream.contexts[first:last].tolist(), dense, 3))
    np.testing.assert_allclose(totals, np.vstack(rows), rtol=1e-12)
    best = offline_optimum(totals, 0.5)
    _, value, _ = naive.offline_optimum(np.vstack(rows), 0.5)
    assert best.value == pytest.approx(value, rel=1e-8)
    values, _ = offline_curve(stream, 0.5, [100, 300])
    assert values[-1] == pytest.approx(best.value, rel=1e-8)
    head = offline_optimum(context_reward_totals(stream.head(100)), 0.5)
    assert values[0] == pytest.approx(head.value, rel=1e-8)


def test_an_optimum_from_other_accounts() -> None:
    """initial moves where R begins: one arm that already has much gets less."""
    totals = np.array([[8.0, 3.0], [2.0, 6.0]])
    assert offline_optimum(totals, 0.5, initial=1.0).value == offline_optimum(totals, 0.5).value
    best = offline_optimum(totals, 0.5, initial=[100.0, 1.0])
    share, earned = best.distributions[:, 0], best.accounts
    assert earned.tolist() == pytest.approx([100.0 + totals[:, 0] @ share, 1.0 + totals[:, 1] @ (1.0 - share)])
    grid = np.linspace(0.0, 1.0, 401)
    first, second = np.meshgrid(grid, grid)
    worth = 2 * np.sqrt(100 + 8 * first + 2 * second) + 2 * np.sqrt(1 + 3 * (1 - first) + 6 * (1 - second))
    assert worth.max() <= best.value + best.gap + 1e-12
    assert worth.max() == pytest.approx(best.value, rel=1e-4)
    for bad in (0.0, -1.0, [1.0], [1.0, np.nan], "x"):
        with pytest.raises(InvalidArgument, match="initial must be"):
            offline_optimum(totals, 0.5, initial=bad)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"arrivals": [1, 2]}, "arrivals must be non-decreasing rounds that start with 0"),
        ({"arrivals": [0]}, "arrivals must be 2 rounds; got 'shape .1,.'. Pass one per arm"),
        ({"arrivals": [0, 2], "departures": [1, 3]}, "the number of arms in round 1 must be at least 1; got 0"),
        ({"arrivals": [0, 2], "departures": [3, 2]}, r"departures\[1\] must be after round 2; got 2"),
        ({"departures": [0, 2]}, r"departures\[0\] must be integers in"),
    ],
)
def test_streams_refuse_impossible_arms(arguments: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Stream.from_arrays([0, 0, 0], np.ones((3, 2)), **arguments)


def test_an_error_in_the_middle_of_a_run_undoes_the_run() -> None:
    """The floor has no room for a third arm; what was played before it came is undone."""
    policy = FairCB(3, 2, horizon=900, pull_share=0.35)
    before = policy.snapshot().to_bytes()
    with pytest.raises(InvalidArgument, match="n_arms must be at most 2 live arms"):
        simulate(policy, coming_and_going())
    assert policy.snapshot().to_bytes() == before


def test_growing_step_by_step_costs_no_more_than_at_once() -> None:
    bounds = []
    for steps in ([6], range(3, 7)):
        policy = AlphaFair(2, 2, alpha=0.5, seed=0)
        for _ in range(20):
            policy.update(policy.choose(0), [1.0, 0.5])
        for n_arms in steps:
            policy.grow(n_arms=n_arms)
        bounds.append(policy.surrogate_regret_bound)
    assert bounds[0] == bounds[1]


@pytest.mark.parametrize("made", [AlphaFair, AlphaFairBandit, AlphaFairAdaptive, IndependentAlphaFair])
def test_cumulative_rewards_exclude_the_initial_accounts(made: Any) -> None:
    """An account is what an arm entered with and what it has earned since; the sum is of rewards alone."""
    rng = np.random.default_rng(0)
    policy = made(1, 2, seed=0)
    earned = np.zeros(5)
    for t in range(60):
        if t == 20:
            policy.grow(n_arms=4, account=5.0)
            policy.grow(n_arms=5)
        if t == 40:
            policy.retire(1)
            policy = load_policy(policy.snapshot())
        decision, rewards = policy.choose(0), rng.random(policy.n_arms)
        policy.update(decision, rewards if policy.feedback == "full" else float(rewards[decision.arm]))
        if policy.feedback == "full":
            earned[: policy.n_arms] += decision.probabilities * rewards
        else:
            earned[decision.arm] += rewards[decision.arm]
    np.testing.assert_allclose(np.ravel(policy.cumulative_rewards), earned, rtol=1e-12, atol=1e-12)
    assert np.ravel(policy.accounts)[2] == pytest.approx(5.0 + earned[2])
