"""Snapshots, fresh starts, the size of the memory, threads."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from alphafair.checks.subject import NOT_HERE, Subject, go_the_same_way, is_sound, memory, reward_of, rounds
from alphafair.run import has_whole_runs
from alphafair.values import Feedback, Policy, State


def snapshot_and_go_on(subject: Subject) -> None:
    policy = subject.trained()
    policy.choose(0)
    taken = policy.snapshot()
    before = taken.to_bytes()
    state = State.from_bytes(before)
    twin = subject.make()
    twin.restore(state)
    assert memory(twin) == memory(policy), "restore lost something"
    stream = rounds(200, 3, 4, seed=2)
    go_the_same_way(policy, twin, stream)
    kept = memory(twin)
    policy.update(policy.choose(0), reward_of(policy, policy.choose(0), stream.rewards(0)))
    assert memory(twin) == kept, "the snapshot shares memory with the policy"
    assert taken.to_bytes() == before, "what the policy has learned since has changed the snapshot"


def fresh_forgets(subject: Subject) -> None:
    policy = subject.trained()
    assert memory(policy.fresh()) == memory(subject.make()), "fresh remembers something"
    assert policy.fresh().choose(0)[:3] == subject.make().choose(0)[:3], "fresh does not start its seed over"


def memory_does_not_grow(subject: Subject) -> str | None:
    """With the number of rounds; one that keeps all it has seen may be sound, but has no place in compiled runs."""
    if not has_whole_runs(subject.make()):
        return f"{NOT_HERE}: the policy offers no whole runs, and may remember what it likes"
    sizes = {n: sum(a.nbytes for a in subject.trained(n).snapshot().arrays.values()) for n in (100, 1000)}
    assert sizes[100] == sizes[1000], f"bytes after 100 and after 1,000 rounds: {sizes}"
    return None


N_THREADS, N_CALLS = 8, 300


def threads_may_share_a_policy(subject: Subject) -> None:
    """Eight threads at once: no distribution is torn, and where a policy keeps accounts every reward is booked once."""
    policy = subject.make(3, 40)
    before = _booked(policy)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(N_THREADS) as pool:
            earned = list(pool.map(lambda seed: _choose_and_learn(policy, seed, N_CALLS), range(N_THREADS)))
    finally:
        sys.setswitchinterval(interval)
    is_sound(policy, "after eight threads: ")
    if before is not None:
        booked, total = _booked(policy) - before, sum(earned)
        assert abs(booked - total) <= 1e-9 * total, f"rewards of {total!r} were handed in and {booked!r} booked"


def _choose_and_learn(policy: Policy, seed: int, n_rounds: int) -> float:
    """What was handed in: in expectation under full information, as the accounts are kept."""
    rng, earned = np.random.default_rng(seed), 0.0
    full = policy.feedback is Feedback.FULL
    for _ in range(n_rounds):
        decision = policy.choose(int(rng.integers(policy.n_contexts)))
        total = math.fsum(decision.probabilities)
        assert abs(total - 1.0) <= 1e-12, f"a decision's probabilities sum to {total!r}"
        rewards = rng.random(policy.n_arms)
        policy.update(decision, reward_of(policy, decision, rewards))
        earned += float(decision.probabilities @ rewards) if full else float(rewards[decision.arm])
    return earned


def _booked(policy: Policy) -> Any:
    """The sum of all rewards, or None where none are kept."""
    return None if policy.cumulative_rewards is None else float(np.sum(policy.cumulative_rewards))
