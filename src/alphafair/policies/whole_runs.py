"""Whole runs and logs in one compiled call, made of a policy's own kernels; `alphafair.drive` is their door."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.kernels.loops import LEARN, loop
from alphafair.types import frozen

if TYPE_CHECKING:
    from alphafair.kernels import Kernels
    from alphafair.policies.memory import Memory
    from alphafair.types import Feedback, Indices, Matrix, Vector

NO_MASKS = np.empty((0, 0), dtype=np.bool_)


class WholeRuns:
    """The part of `BasePolicy` that calls compiled loops."""

    feedback: Feedback
    kernels: Kernels
    _pooled: bool = False  # whether arms have accounts in common
    _lock: threading.Lock
    _memory: Memory
    _work: Matrix

    if TYPE_CHECKING:

        def _make_work(self, n_live: int) -> Matrix: ...
        def _retired_earned(self, arms: NDArray[Any], amounts: Vector) -> None: ...

    def _least_propensity(self, context: int) -> float:
        """The least probability that this policy can ever have drawn an arm with, in this context."""
        return 0.0

    def _refuse_propensity(self, context: int, propensity: float, argument: str = "decision.propensity") -> None:
        least = self._least_propensity(context)
        raise validate.Refusal(
            argument,
            f"at least {least:.3g}, the least this policy can have drawn with in context {context}",
            propensity,
            "Look for its source: other policies' logs, or decisions made after the snapshot that was restored. "
            "To learn from it all the same, raise it to that number.",
        )

    def run(self, live: NDArray[np.int64], job: str, *arguments: Any, in_order: bool = False) -> Any:
        """A whole run in one compiled call; arms are columns of `live` ones here."""
        with self._lock:
            if not np.array_equal(live, self._memory.live_arms):
                allowed = f"one that keeps its arms {live.tolist()} while it plays"
                raise validate.Refusal("policy", allowed, self, "Change arms from other threads before or after a run.")
            learn = (self.kernels.learn_in_order if in_order else None) or self.kernels.learn
            run = loop(job, self.feedback.value, self.kernels, learn)
            return run(self._work, self._memory.shared, self._memory.learners, *arguments)

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
            kept = memory.retired_accounts.copy(), memory.group_accounts.copy()
            before = memory.shared.copy(), memory.learners.copy(), *kept, self._work
            self._work = self._make_work(len(memory.live_arms))  # what is in the old one belongs to the memory of then
            steps = np.full(len(contexts), LEARN, dtype=np.int8)
            refused = self._fold(steps, contexts, arms, propensities, rewards, features=features)
            if refused >= 0:
                memory.shared[...], memory.learners[...], memory.retired_accounts[...], *rest = before
                memory.group_accounts, self._work = rest
                self._refuse_propensity(
                    int(contexts[refused]), float(propensities[refused]), f"log.propensities[{refused}]"
                )

    def follow(
        self,
        steps: NDArray[np.int8],
        contexts: Indices,
        arms: Indices,
        propensities: Vector,
        rewards: Vector,
        masks: NDArray[np.bool_] = NO_MASKS,
        mask_of: Indices | None = None,
        drawn: Vector | None = None,
    ) -> None:
        """Do again what a log says, in its order: see `alphafair.kernels.loops` for the steps.

        `drawn` takes the probability that a DRAW step finds for its arm, among the arms of row `mask_of` of `masks`
        where that is not -1. A propensity that is refused ends it there, with what came before learned.
        """
        with self._lock:
            refused = self._fold(steps, contexts, arms, propensities, rewards, masks, mask_of, drawn)
            if refused >= 0:
                self._refuse_propensity(
                    int(contexts[refused]), float(propensities[refused]), f"propensities[{refused}]"
                )

    def _fold(
        self,
        steps: NDArray[np.int8],
        contexts: Indices,
        arms: Indices,
        propensities: Vector,
        rewards: Vector,
        masks: NDArray[np.bool_] = NO_MASKS,
        mask_of: Indices | None = None,
        drawn: Vector | None = None,
        features: NDArray[np.float64] | None = None,
    ) -> int:
        """Do the steps; the first that was refused, or -1. Late rewards of retired arms are booked, and no more.

        Where they count for a group, that is done when their turn comes: the log is cut before each of them.
        """
        memory = self._memory
        n_live = len(memory.live_arms)
        mask_of = np.full(len(steps), -1, dtype=np.int32) if mask_of is None else mask_of
        found = np.empty(len(steps)) if drawn is None else drawn
        log: list[Any] = [steps, contexts, arms.astype(np.int64), propensities, rewards, mask_of]
        fold = loop("fold", "bandit", self.kernels, self.kernels.learn)
        arrays = memory.shared, memory.learners
        table = feature_table(features, memory.live_arms)
        if memory.all_live:
            return int(fold(self._work, *arrays, table, *log, masks, found, np.empty(n_live)))
        is_live = memory.live[arms]
        log[2] = np.searchsorted(memory.live_arms, arms)
        masks = np.ascontiguousarray(masks[:, memory.live_arms]) if masks.size else masks
        late, rows = ~is_live & (steps == LEARN), np.arange(len(steps))
        for piece in np.split(rows, np.flatnonzero(late)) if self._pooled else [rows]:
            gone, kept = piece[late[piece]], piece[is_live[piece]]
            memory.book_late(contexts[gone], arms[gone], rewards[gone])
            self._retired_earned(arms[gone], rewards[gone])
            found_live = np.zeros(len(kept))
            columns = (column[kept] for column in log)
            shown = table[kept] if len(table) else table
            refused = int(fold(self._work, *arrays, shown, *columns, masks, found_live, np.empty(n_live)))
            found[kept] = found_live
            if refused >= 0:
                return int(kept[refused])
        return -1

    def fold_full_log(
        self, contexts: Indices, probabilities: Matrix, rewards: Matrix, features: NDArray[np.float64] | None = None
    ) -> None:
        """Learn from decisions under full information, in their order."""
        with self._lock:
            memory = self._memory
            used, seen = (np.ascontiguousarray(table[:, memory.live_arms]) for table in (probabilities, rewards))
            fold = loop("fold", "full", self.kernels, self.kernels.learn)
            self._work = self._make_work(len(memory.live_arms))
            table = feature_table(features, memory.live_arms)
            gone = np.where(memory.live, 0.0, probabilities * rewards)
            cuts = np.flatnonzero(gone.any(axis=1) & self._pooled).tolist()
            for first, last in pairwise([0, *cuts, len(contexts)]):
                part = slice(first, last)
                self._book_retired(contexts[part], gone[part])
                shown = table[part] if len(table) else table
                fold(self._work, memory.shared, memory.learners, shown, contexts[part], used[part], seen[part])

    def _book_retired(self, contexts: Any, earned: Matrix) -> None:
        """What retired arms have earned in some rounds."""
        memory = self._memory
        if not memory.all_live:
            memory.book_retired(contexts, earned)
            gone = np.flatnonzero(~memory.live)
            self._retired_earned(gone, earned[:, gone].sum(axis=0))


def feature_table(features: NDArray[np.float64] | None, live: NDArray[np.int64]) -> Matrix:
    """Features as kernels have them: a row per round, those of live arms side by side; without any, an empty table."""
    if features is None:
        return frozen(np.empty((0, 0)))
    if features.ndim == 3 and len(live) < features.shape[1]:
        features = features[:, live]
    return frozen(np.ascontiguousarray(features).reshape(len(features), -1))
