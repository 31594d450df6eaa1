"""Whole runs and logs in one compiled call, made of a policy's own kernels; `alphafair.drive` is their door."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.kernels.loops import LEARN, LogSteps, loop
from alphafair.types import frozen

if TYPE_CHECKING:
    from alphafair.kernels import Kernels
    from alphafair.policies.memory import Memory
    from alphafair.types import Feedback, Indices, Matrix, Vector


class WholeRuns:
    """The part of `BasePolicy` that calls compiled loops."""

    feedback: Feedback
    kernels: Kernels
    _pooled: bool = False  # whether arms have accounts in common
    _lock: threading.RLock
    _memory: Memory
    _work: Matrix

    if TYPE_CHECKING:

        def _make_work(self, n_live: int) -> Matrix: ...
        def _retired_earned(self, arms: NDArray[Any], amounts: Vector) -> None: ...

    def _least_propensity(self, context: int) -> float:
        """The least probability that this policy can ever have drawn an arm with, in this context."""
        return 0.0

    def _refuse_propensity(self, context: int, propensity: float, entry: int | None = None) -> None:
        """Of a decision, or of an entry of a log."""
        least = self._least_propensity(context)
        raise validate.Refusal(
            "decision.propensity" if entry is None else f"log.propensities[{entry}]",
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

    def fold_log(self, log: LogSteps) -> None:
        """Learn from decisions under bandit feedback, in their order: from all of them, or none."""
        with self._lock:
            memory = self._memory
            kept = memory.retired_accounts.copy(), memory.group_accounts.copy()
            before = memory.shared.copy(), memory.learners.copy(), *kept, self._work
            self._work = self._make_work(len(memory.live_arms))  # what is in the old one belongs to the memory of then
            refused = self._fold(log)
            if refused >= 0:
                memory.shared[...], memory.learners[...], memory.retired_accounts[...], *rest = before
                memory.group_accounts, self._work = rest
                self._refuse_propensity(int(log.contexts[refused]), float(log.propensities[refused]), refused)

    def follow(self, log: LogSteps) -> None:
        """Do again what a log says. A propensity that is refused ends it there, with what came before learned."""
        with self._lock:
            refused = self._fold(log)
            if refused >= 0:
                self._refuse_propensity(int(log.contexts[refused]), float(log.propensities[refused]), refused)

    def _fold(self, log: LogSteps) -> int:
        """Do the steps; the first that was refused, or -1. Late rewards of retired arms are booked, and no more.

        Where they count for a group, that is done when their turn comes: the log is cut before each of them.
        """
        memory, arms = self._memory, log.arms
        fold = loop("fold", "bandit", self.kernels, self.kernels.learn)

        def follow(part: LogSteps) -> int:
            steps = LogSteps._make([*map(frozen, part[:-1]), part.drawn])  # of one type, so compiled once
            return int(fold(self._work, memory.shared, memory.learners, steps, np.empty(len(memory.live_arms))))

        log = log._replace(features=feature_table(log.features, memory.live_arms))
        if memory.all_live:
            return follow(log._replace(arms=arms.astype(np.int64)))
        is_live = memory.live[arms]
        masks = np.ascontiguousarray(log.masks[:, memory.live_arms]) if len(log.masks) else log.masks
        log = log._replace(arms=np.searchsorted(memory.live_arms, arms), masks=masks[:0])
        late, rows = ~is_live & (log.steps == LEARN), np.arange(len(arms))
        for piece in np.split(rows, np.flatnonzero(late)) if self._pooled else [rows]:
            gone, kept = piece[late[piece]], piece[is_live[piece]]
            memory.book_late(log.contexts[gone], arms[gone], log.rewards[gone])
            self._retired_earned(arms[gone], log.rewards[gone])
            part = LogSteps(*(column[kept] if len(column) else column for column in log))._replace(masks=masks)
            refused = follow(part)
            log.drawn[kept] = part.drawn
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
