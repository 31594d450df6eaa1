"""Whole runs of a policy in one compiled call each, for `alphafair.drive`."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.kernels import Kernels
from alphafair.kernels.loops import loop
from alphafair.policies.memory import Memory
from alphafair.types import Feedback, Indices, Matrix, Vector, frozen


class WholeRuns:
    """What `BasePolicy` can do with many rounds at once; everything that it needs is `BasePolicy`'s."""

    feedback: Feedback
    kernels: Kernels
    _memory: Memory
    _work: Matrix
    _lock: threading.Lock

    def run(self, live: NDArray[np.int64], job: str, *arguments: Any, in_order: bool = False) -> None:
        """A whole run in one compiled call, made of this policy's own kernels; arms are columns of `live` ones here."""
        learn = (self.kernels.learn_in_order if in_order else None) or self.kernels.learn
        with self._lock:
            if not np.array_equal(live, self._memory.live_arms):
                allowed = f"one that keeps its arms {live.tolist()} while it plays"
                raise validate.Refusal("policy", allowed, self, "Change arms from other threads before or after a run.")
            kernels = self.kernels
            run = loop(job, self.feedback.value, kernels.draw, learn, kernels.expect, kernels.show)
            run(self._work, self._memory.shared, self._memory.learners, *arguments)

    def fold_log(
        self,
        contexts: Indices,
        arms: Indices,
        propensities: Vector,
        rewards: Vector,
        features: NDArray[np.float64] | None = None,
    ) -> None:
        """Learn from decisions under bandit feedback, in their order: from all of them, or none."""
        with self._lock:
            memory = self._memory
            is_live = memory.live[arms]
            columns = contexts, np.searchsorted(memory.live_arms, arms), propensities, rewards
            kept = None if features is None else features[is_live]
            refused = self._fold(kept, *(np.ascontiguousarray(column[is_live]) for column in columns))
            if refused >= 0:
                entry = int(np.flatnonzero(is_live)[refused])
                self._refuse_propensity(int(contexts[entry]), float(propensities[entry]), f"log.propensities[{entry}]")
            memory.book_late(contexts[~is_live], arms[~is_live], rewards[~is_live])

    def fold_full_log(
        self, contexts: Indices, probabilities: Matrix, rewards: Matrix, features: NDArray[np.float64] | None = None
    ) -> None:
        """Learn from decisions under full information, in their order."""
        with self._lock:
            live = self._memory.live_arms
            used, seen = np.ascontiguousarray(probabilities[:, live]), np.ascontiguousarray(rewards[:, live])
            self._fold(features, contexts, used, seen)
            if not self._memory.all_live:
                self._memory.book_retired(contexts, probabilities * rewards)

    def _fold(self, features: NDArray[np.float64] | None, *columns: NDArray[Any]) -> int:
        """The first entry that was refused, with the memory as it was before; or -1."""
        memory = self._memory
        shared, learners = memory.shared.copy(), memory.learners.copy()
        fold = loop("fold", self.feedback.value, self.kernels.draw, self.kernels.learn, show=self.kernels.show)
        work = self._make_work(len(memory.live_arms))  # what is in the policy's own belongs to its memory
        refused = int(fold(work, shared, learners, feature_table(features, memory.live_arms), *columns))
        if refused < 0:
            memory.shared[...], memory.learners[...] = shared, learners
            self._work = work
        return refused

    def _make_work(self, n_live: int) -> Matrix:
        raise NotImplementedError

    def _refuse_propensity(self, context: int, propensity: float, argument: str = "decision.propensity") -> None:
        raise NotImplementedError


def feature_table(features: NDArray[np.float64] | None, live: NDArray[np.int64]) -> Matrix:
    """Features as kernels have them: a row per round, those of live arms side by side; without any, an empty table."""
    if features is None:
        return frozen(np.empty((0, 0)))
    if features.ndim == 3 and len(live) < features.shape[1]:
        features = features[:, live]
    return frozen(np.ascontiguousarray(features).reshape(len(features), -1))
