"""A policy without our base classes, from nothing but the `alphafair.Policy` protocol; broken ones derive from it."""

from __future__ import annotations

import threading
from typing import Any, ClassVar, Self

import numpy as np

from alphafair import Decision, Feedback, Policy, State, validate


class EpsilonGreedy(Policy):
    """Play the arm with the highest mean so far, of equal ones the first; with probability epsilon any arm."""

    name: ClassVar[str] = "epsilon-greedy"
    feedback = Feedback.BANDIT

    def __init__(self, n_contexts: int, n_arms: int, *, epsilon: float = 0.1, seed: int | None = None) -> None:
        self.n_contexts, self.n_arms, self.epsilon, self.seed = n_contexts, n_arms, epsilon, seed
        self.sums, self.counts = np.zeros((n_contexts, n_arms)), np.zeros((n_contexts, n_arms))
        self.live = np.ones(n_arms, dtype=bool)
        self.own_numbers = np.random.default_rng(seed)
        self.lock = threading.RLock()  # one call at a time

    def probabilities(self, context: int, *, available: Any = None) -> np.ndarray:
        with self.lock:
            context = validate.context(context, self.n_contexts)
            allowed = self.live if available is None else self.live & validate.available(available, self.n_arms)
            if not allowed.any():
                raise ValueError("available must be true for at least one arm that is not retired")
            means = self.sums[context] / np.maximum(self.counts[context], 1.0)
            p = np.where(allowed, self.epsilon / allowed.sum(), 0.0)
            p[np.where(allowed, means, -np.inf).argmax()] += 1.0 - self.epsilon
        p.setflags(write=False)
        return p

    def choose(self, context: int, *, rng: Any = None, available: Any = None) -> Decision:
        with self.lock:
            p = self.probabilities(context, available=available)
            uniform = (self.own_numbers if rng is None else rng).random()
        arm = int(np.searchsorted(np.cumsum(p), uniform, side="right"))
        arm = min(arm, int(np.flatnonzero(p)[-1]))  # where the sum fell short of 1 by rounding
        return Decision(int(context), arm, float(p[arm]), p)

    def update(self, decision: Decision, reward: Any) -> None:
        with self.lock:
            context, arm, _, _ = validate.decision(decision, self.n_contexts, self.n_arms)
            reward = validate.reward(reward)
            self.sums[context, arm] += reward
            self.counts[context, arm] += 1.0

    def grow(self, n_contexts: int | None = None, n_arms: int | None = None, account: Any = "least") -> None:
        """Nothing is known of newcomers, and there are no accounts to give them."""
        with self.lock:
            contexts = validate.integer("n_contexts", n_contexts or self.n_contexts, low=self.n_contexts)
            arms = validate.integer("n_arms", n_arms or self.n_arms, low=self.n_arms)
            validate.account(account)
            room = ((0, contexts - self.n_contexts), (0, arms - self.n_arms))
            self.sums, self.counts = np.pad(self.sums, room), np.pad(self.counts, room)
            self.live = np.pad(self.live, room[1], constant_values=True)
            self.n_contexts, self.n_arms = contexts, arms

    def retire(self, arm: int) -> None:
        with self.lock:
            arm = validate.integer("arm", arm, low=0, high=self.n_arms - 1)
            if not self.live[arm] or self.live.sum() == 1:
                raise ValueError(f"arm must be live, and not the last one; got {arm}")
            self.live[arm] = False

    def snapshot(self) -> State:
        with self.lock:
            settings = {"epsilon": self.epsilon, "seed": self.seed}
            arrays = {"sums": self.sums.copy(), "counts": self.counts.copy(), "live": self.live.copy()}
            return State(self.name, 1, settings, self.own_numbers.bit_generator.state, arrays)

    def restore(self, state: State) -> None:
        if (state.policy, state.version) != (self.name, 1):
            raise ValueError(f"state.policy must be {self.name!r}, version 1; got {state.policy!r}, {state.version}")
        with self.lock:
            self.epsilon, self.seed = state.settings["epsilon"], state.settings["seed"]
            self.sums, self.counts, self.live = (state.arrays[name].copy() for name in ("sums", "counts", "live"))
            self.n_contexts, self.n_arms = self.sums.shape
            self.own_numbers.bit_generator.state = state.rng

    def fresh(self) -> Self:
        another = type(self)(self.n_contexts, self.n_arms, epsilon=self.epsilon, seed=self.seed)
        another.live = self.live.copy()
        return another
