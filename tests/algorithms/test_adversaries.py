"""Adversaries that see the distribution, and the rival of the arena: against the slow oracle, and stepwise."""

from __future__ import annotations

import numpy as np
import pytest

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, InvalidArgument, Stream, Uniform, simulate, streams
from alphafair.checks import run_checks
from alphafair.lab.rivals.frank_wolfe import OptimisticFrankWolfe, upper_bound
from alphafair.policy.base import BasePolicy
from alphafair.run import simulate_against
from alphafair.values import ADVERSARIES, Adversary
from tests import naive, naive_adversaries

# One context is visited often enough to have three favorites lowered for good; 2 x 60 visits halve several.
SIZES = {"settled": (3200, 1, 4), "largest": (500, 2, 4), "halving": (900, 2, 3)}


@pytest.mark.parametrize("kind", ADVERSARIES)
@pytest.mark.parametrize("full", [False, True])
def test_adversaries_match_the_oracle(kind: str, full: bool) -> None:
    adversary = streams.adversary(kind, *SIZES[kind], seed=3)
    stream, (_, m, n) = adversary.stream, SIZES[kind]
    policy, oracle = (AlphaFair, naive.AlphaFair) if full else (AlphaFairBandit, naive.AlphaFairBandit)
    uniforms = np.random.default_rng(5).random(stream.n_rounds)
    slow = naive_adversaries.ADVERSARIES[kind](stream.reward_table)
    contexts = stream.contexts.tolist()
    earned, paid = naive_adversaries.face(oracle(m, n, alpha=0.5), slow, contexts, uniforms, full=full)
    trace, met = simulate_against(policy(m, n, alpha=0.5), adversary, seed=5)
    np.testing.assert_allclose(met.reward_table[met.items], paid, rtol=1e-10)
    np.testing.assert_allclose(trace.final, earned, rtol=1e-10)
    assert np.array_equal(met.contexts, stream.contexts)
    assert (paid != stream.reward_table[stream.contexts]).any(), "nobody was lowered"


def test_the_last_two_arms_are_never_lowered() -> None:
    """Three favorites are lowered, one every 1,000 visits, of four arms only two."""
    _, met = simulate_against(AlphaFair(1, 4), streams.adversary("settled", *SIZES["settled"], seed=3))
    assert [int((row == 0.05).sum()) for row in met.reward_table[[999, 1000, 2000, 3000]]] == [0, 1, 2, 2]


POLICIES: list[BasePolicy] = [
    AlphaFairAdaptive(2, 4),
    AlphaFairAdaptive(2, 4, feedback="full"),
    AlphaFair(2, 4),
    OptimisticFrankWolfe(2, 4),
    Uniform(2, 4, feedback="bandit"),
]


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_stepwise_equals_compiled(policy: BasePolicy) -> None:
    adversary = streams.adversary("halving", 300, 2, 4, seed=1)
    runs = []
    for compiled in (True, False):
        trace, met = simulate_against(policy.fresh(), adversary, seed=2, record_every=70, compiled=compiled)
        records = trace.accounts.tobytes(), trace.rounds.tolist(), trace.pulls.tolist()
        runs.append((records, met.reward_table.tobytes()))
    assert runs[0] == runs[1]


def test_replaying_the_rewards_of_an_adversary_earns_the_same() -> None:
    """An adversary's stream is a stream: the same policy with the same draws goes the same way on it."""
    adversary = streams.adversary("largest", 300, 2, 4, seed=1)
    trace, met = simulate_against(AlphaFairBandit(2, 4), adversary, seed=2)
    assert simulate(AlphaFairBandit(2, 4), met, seed=2).final.tobytes() == trace.final.tobytes()


def test_invalid_adversaries_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="kind must be one of 'settled', 'largest', 'halving'; got 'larges'"):
        streams.adversary("larges", 10, 2, 3)
    with pytest.raises(InvalidArgument, match=r"stream\.reward_table must be a row for each of 2 contexts; got 1"):
        Adversary("largest", Stream.from_arrays([0], [[0.5, 0.5]], n_contexts=2))
    with pytest.raises(InvalidArgument, match="stream must be a stream with 2 arms in its first round; got 3"):
        simulate_against(AlphaFair(2, 2), streams.adversary("largest", 10, 2, 3))


# the rival


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.9])
def test_the_rival_matches_the_oracle(alpha: float) -> None:
    stream = streams.sparse_clicks(500, 3, 4, rates=(0.1, 0.9), seed=4)
    uniforms = np.random.default_rng(1).random(500)
    oracle = naive_adversaries.OptimisticFrankWolfe(3, 4, alpha=alpha)
    arms, _, earned = naive.play(oracle, stream.contexts.tolist(), stream.reward_table, uniforms, "bandit")
    trace = simulate(OptimisticFrankWolfe(3, 4, alpha=alpha), stream, seed=1, log=True)
    assert trace.log is not None
    assert trace.log.arms.tolist() == arms
    np.testing.assert_allclose(trace.final, earned, rtol=1e-12)


def test_the_bound_is_above_that_of_the_divergence() -> None:
    """n kl(m, u) = L, solved by bisection, is below what the kernel says."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        count, log_rounds = float(rng.integers(1, 2000)), float(rng.uniform(0.0, 12.0))
        mean = float(rng.choice([rng.random(), 0.01 * rng.random()]))
        low, high = mean, 1.0
        for _ in range(60):
            u = (low + high) / 2
            divergence = mean * np.log(mean / u) + (1 - mean) * np.log((1 - mean) / (1 - u))
            low, high = (u, high) if count * divergence < log_rounds else (low, u)
        assert low - 1e-9 <= upper_bound(count, count * mean, log_rounds) <= 1.0


@pytest.mark.compiled
def test_the_rival_keeps_the_promises_of_a_policy() -> None:
    """At alpha = 0: with more fairness it takes longer than the check does to lean toward what pays."""
    results = run_checks(OptimisticFrankWolfe, {"alpha": 0.0})
    assert {result.name: result.message for result in results if not result.passed} == {}


def test_new_arms_of_the_rival_start_with_the_least_account() -> None:
    policy = OptimisticFrankWolfe(1, 2, alpha=0.5)
    for _ in range(300):
        decision = policy.choose(0)
        policy.update(decision, 0.1 + 0.1 * decision.arm)
    before = policy._learned.accounts
    policy.grow(n_arms=3)
    assert policy._learned.accounts.tolist() == [[*before[0], before.min()]]
    assert policy.probabilities(0).tolist() == [0.0, 0.0, 1.0], "of an arm never seen one may hope for 1"
