"""Another alpha in the middle of a run: against the oracle, and what the certificate becomes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alphafair import (
    AlphaFair,
    Decision,
    Hedge,
    InvalidArgument,
    State,
    Stream,
    load_policy,
    metrics,
    offline_optimum,
    simulate,
    streams,
)
from alphafair.algorithms import POLICIES
from alphafair.offline import context_reward_totals
from tests import naive, naive_adaptive
from tests.algorithms.test_policies import PAIRS, make_pair

FAIR = [name for name, (kind, _, options) in PAIRS.items() if "alpha" in options and kind.name in POLICIES]


@pytest.mark.parametrize("name", FAIR)
def test_matches_the_oracle_before_and_after(name: str) -> None:
    rng = np.random.default_rng(3)
    contexts, rewards = rng.integers(0, 3, 120), rng.random((120, 4))
    ours, oracle = make_pair(name, 3, 4, rng)
    feedback: Any = ours.feedback.value
    for part, alpha in ((slice(0, 60), None), (slice(60, 90), 0.3), (slice(90, 120), 0.95)):
        if alpha is not None:
            ours.set_alpha(alpha)
            for policy in [oracle, *getattr(oracle, "copies", ())]:
                policy.alpha = alpha  # type: ignore[attr-defined]
        rounds = Stream.from_arrays(contexts[part], rewards[part], n_contexts=3)
        uniforms = np.random.default_rng(5).random(rounds.n_rounds)
        naive.play(oracle, contexts[part].tolist(), rewards[part], uniforms, feedback)
        simulate(ours, rounds, seed=5)
        for context in range(3):
            np.testing.assert_allclose(ours.probabilities(context), oracle.probabilities(context), rtol=0, atol=1e-10)
    again = load_policy(State.from_bytes(ours.snapshot().to_bytes()))
    np.testing.assert_array_equal(again.probabilities(1), ours.probabilities(1))


def test_expected_rewards_keep_their_credit() -> None:
    ours, oracle = make_pair("adaptive", 1, 3, np.random.default_rng(0))
    assert isinstance(oracle, naive_adaptive.AlphaFairAdaptive)
    for arm, reward in ((0, 1.0), (1, 0.4), (2, 0.7)):
        ours.update(Decision(0, arm, 0.3, None), reward)  # type: ignore[arg-type]
        oracle.learn(0, arm, 0.3, np.empty(0), reward)
    ours.expect(Decision(0, 1, 0.3, None))  # type: ignore[arg-type]
    oracle.expect(1)
    ours.set_alpha(0.2)
    oracle.alpha = 0.2
    np.testing.assert_allclose(ours.probabilities(0), oracle.probabilities(0), rtol=0, atol=1e-10)


def test_the_certificate_covers_rounds_after_the_change() -> None:
    first, second = streams.ratings(2_000, 4, 5, seed=0), streams.ratings(3_000, 4, 5, seed=1)
    policy = AlphaFair(4, 5, alpha=0.2)
    simulate(policy, first)
    policy.set_alpha(0.8)
    initial = policy.accounts
    simulate(policy, second)
    best = offline_optimum(context_reward_totals(second), 0.8, initial=initial)
    achieved = metrics.alpha_performance(policy.accounts, 0.8)
    assert best.value <= metrics.approximation_factor(0.8) * achieved + metrics.regret_certificate(policy)


def test_changing_alpha_of_a_policy_without_alpha_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="hedge has no alpha"):
        Hedge(1, 2).set_alpha(0.5)
    with pytest.raises(InvalidArgument, match="alpha must be a number of at least 0"):
        AlphaFair(1, 2).set_alpha(-1.0)
