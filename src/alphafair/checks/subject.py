"""The argument of checks, and helpers that they share."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from alphafair.run import simulate
from alphafair.streams import ratings
from alphafair.values import Decision, Feedback, Policy, Stream, Vector

Settings = Mapping[str, Any] | Callable[[int, int], Mapping[str, Any]]
NOT_APPLICABLE = "does not apply"


@dataclass(frozen=True)
class Subject:
    """A policy class with its settings, which may depend on the numbers of contexts and arms."""

    policy_class: type
    settings: Settings

    def make(self, n_contexts: int = 3, n_arms: int = 4, *, seed: int = 0, **more: Any) -> Policy:
        settings = self.settings(n_contexts, n_arms) if callable(self.settings) else self.settings
        policy: Policy = self.policy_class(n_contexts, n_arms, **{**settings, **more}, seed=seed)
        return policy

    def trained(self, n_rounds: int = 300, **sizes: Any) -> Policy:
        policy = self.make(**sizes)
        simulate(policy, rounds(n_rounds, policy.n_contexts, policy.n_arms), seed=5, compiled=False)
        return policy


def rounds(n_rounds: int, n_contexts: int, n_arms: int, seed: int = 1) -> Stream:
    return ratings(n_rounds, n_contexts, n_arms, n_items=50, seed=seed)


def assert_valid(policy: Policy, when: str = "") -> None:
    """Assert that every context has a distribution over all arms."""
    for context in range(policy.n_contexts):
        p = policy.probabilities(context)
        assert p.shape == (policy.n_arms,), f"{when}probabilities of shape {p.shape} for {policy.n_arms} arms"
        assert np.isfinite(p).all(), f"{when}probabilities {p}"
        assert (p >= 0.0).all(), f"{when}a negative probability: {p.min()}"
        assert abs(math.fsum(p) - 1.0) <= 1e-12, f"{when}probabilities sum to {math.fsum(p)!r}"


def reward_of(policy: Policy, decision: Decision, rewards: Vector) -> Any:
    return rewards if policy.feedback is Feedback.FULL else float(rewards[decision.arm])


def assert_same_path(policy: Policy, restored: Policy, stream: Stream, first: int = 0) -> None:
    """Assert that a policy and its restored copy, each with its own random numbers, play the same from a round on."""
    for t in range(first, stream.n_rounds):
        context = int(stream.contexts[t])
        one, two = policy.choose(context), restored.choose(context)
        assert one[:3] == two[:3], f"round {t} after restore differs"
        policy.update(one, reward_of(policy, one, stream.rewards(t)))
        restored.update(two, reward_of(restored, two, stream.rewards(t)))
    assert memory(restored) == memory(policy), "a restored policy learned differently"


def memory(policy: Policy) -> str:
    """Return a digest of everything that a policy has learned, without its random numbers."""
    digest = hashlib.sha256()
    state = policy.snapshot()
    for name in sorted(state.arrays):
        digest.update(name.encode() + np.ascontiguousarray(state.arrays[name]).tobytes())
    digest.update(json.dumps(dict(state.settings), sort_keys=True).encode())
    return digest.hexdigest()


class Counting:
    """A source of one fixed uniform number that counts its calls."""

    def __init__(self, uniform: float = 0.5) -> None:
        self.uniform, self.calls = uniform, 0

    def random(self) -> float:
        self.calls += 1
        return self.uniform
