"""The checks of decisions of others: what `observe` may change, and that all ways to observe are the same."""

import hashlib
from typing import Any

import numpy as np

from alphafair import jit
from alphafair.checks.conformance import TURNED_OFF, can_compile
from alphafair.checks.subject import NOT_APPLICABLE, Subject, assert_same_path, assert_valid, memory, rounds
from alphafair.run import has_whole_runs, simulate
from alphafair.values import Log, State

LEARNS_NOTHING = f"{NOT_APPLICABLE}: the policy learns nothing from others"


def others_earn_nothing(subject: Subject) -> None:
    """Rewards of others change no account; where nothing is learned from them, nothing else either."""
    policy: Any = subject.trained()
    learns, before, earned = policy.learns_from_others, memory(policy), np.copy(policy.cumulative_rewards)
    accounts = np.copy(policy.accounts)
    for t in range(40):
        answer = policy.observe(t % 3, t % 4, 0.25 * (t % 5))
        assert answer is learns, f"observe returned {answer}, and learns_from_others is {learns}"
    assert np.array_equal(accounts, np.copy(policy.accounts)), "a reward of somebody else changed an account"
    assert np.array_equal(earned, np.copy(policy.cumulative_rewards)), "a reward of somebody else was counted"
    assert learns or memory(policy) == before, "the policy learned from others, and learns_from_others is False"
    assert (policy.trust is not None) is learns, f"trust is {policy.trust}"
    assert_valid(policy, "after decisions of others: ")
    restored = subject.make()
    restored.restore(State.from_bytes(policy.snapshot().to_bytes()))
    assert restored.trust == policy.trust, "a snapshot forgot what others taught"
    assert_same_path(policy, restored, rounds(100, 3, 4, seed=2))
    assert policy.fresh().trust is None, "fresh remembers others"


def others_agree_in_every_mode(subject: Subject) -> str | None:
    policy: Any = subject.make()
    if not policy.learns_from_others or not has_whole_runs(policy):
        return LEARNS_NOTHING
    with jit.using_mode("off"):
        interpreted = observing_digest(subject, compiled=False)
        assert observing_digest(subject, compiled=True) == interpreted, "a log at once differs from single rows"
    if not can_compile():
        return TURNED_OFF
    with jit.using_mode("now"):
        for compiled in (True, False):
            assert observing_digest(subject, compiled=compiled) == interpreted, "machine code differs"
    return None


def observing_digest(subject: Subject, *, compiled: bool) -> str:
    """Return a digest of runs before, between and after decisions of others, compiled or step by step."""
    policy: Any = subject.make(3, 5)
    digest, rng = hashlib.sha256(), np.random.default_rng(3)
    for part in range(3):
        trace = simulate(policy, rounds(60, 3, 5, seed=part), seed=part, record_every=7, compiled=compiled)
        digest.update(trace.accounts.tobytes() + trace.pulls.tobytes())
        contexts, arms = (rng.integers(0, n, 50).astype(np.int32) for n in (3, 5))
        log = Log(contexts, arms, rng.random(50), np.ones(50), n_contexts=3, n_arms=5)
        if compiled:
            policy.observe_log(log)
        else:
            for context, arm, reward in zip(contexts.tolist(), arms.tolist(), log.rewards.tolist(), strict=True):
                policy.observe(context, arm, reward)
    digest.update(memory(policy).encode())
    return digest.hexdigest()
