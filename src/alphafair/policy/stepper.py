"""The steps of a policy on what it has learned: draw, learn, expect, forgo, whole runs and logs.

A `Stepper` belongs to one algorithm, its flags and the current arms; `BasePolicy` makes another when one of them
changes. Kernels are interpreted at first, machine code later: see `alphafair.jit`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alphafair import jit
from alphafair.errors import InvalidArgument
from alphafair.math.distributions import all_within, is_distribution, mask_alone
from alphafair.math.slates import SHOWN, mask_slate
from alphafair.policy.loops import LEARN, LogSteps, loop
from alphafair.policy.memory import LearnedState
from alphafair.policy.slate_loops import SlateSteps, slate_fold, slate_loop
from alphafair.values import Feedback
from alphafair.values.arrays import Indices, Matrix, Vector, frozen

MOST_ROUNDS = 1 << 16  # per call: progress bars and other threads get their turn between calls


class Stepper:
    """Steps on `learned`; arms are columns, the live ones, except in `draw_among` and in logs.

    `draw`, `mask`, `prepare`, `learn`, `expect`, `forgo` and `observe` run the kernels of the algorithm. They are
    interpreted; machine code replaces them in the instance, and must then get arguments of exactly the same types,
    which are not checked. Who writes to memory with them raises `learned.version`.

    What `draw` leaves in scratch serves `learn`, as long as the context is `drawn` and `learned` has the version
    `drawn_at`; else `prepare` comes first.
    """

    def __init__(
        self,
        learned: LearnedState,
        feedback: Feedback,
        flags: Mapping[str, bool],
        bundle: jit.Bundle,
        lock: Any,
        *,
        whole_runs: bool,
        slate_bundle: jit.Bundle | None = None,
    ) -> None:
        self.learned, self.algorithm, self.feedback = learned, learned.algorithm, feedback
        self.flags, self.bundle, self.lock = flags, bundle, lock
        self.whole_runs = whole_runs  # whether its rounds consist of kernels alone
        self.rows: list[tuple[Vector, Vector]] = []  # for the distributions of decisions, each with a read-only view
        self.slate_bundle = bundle if slate_bundle is None else slate_bundle  # of the kernels of slates
        self.drawn: int | tuple[int, int] = -1  # the context, and the number of arms of a slate
        self.drawn_at = -1

    # kernels, interpreted or as machine code

    def _call(self, name: str, kernel: Any, rounds: float, arguments: tuple[Any, ...], **flags: bool) -> Any:
        """Run a kernel, and count the time if it runs interpreted; machine code takes the place of method `name`."""
        return self._run(self.bundle, name, kernel, rounds, arguments, **flags)

    def _run(
        self, bundle: jit.Bundle, name: str, kernel: Any, rounds: float, arguments: tuple[Any, ...], **flags: bool
    ) -> Any:
        if bundle.use_machine_code():
            dispatcher = jit.compiled(kernel, **flags)
            answer = dispatcher(*arguments)
            setattr(self, name, jit.entry_point(dispatcher))
            return answer
        started = time.perf_counter()
        with np.errstate(all="ignore"):
            answer = kernel(*arguments)
        bundle.spend(time.perf_counter() - started, rounds)
        return answer

    def draw(self, *arguments: Any) -> tuple[int, float]:
        arm, propensity = self._call("draw", self.algorithm.draw, 0.5, arguments, **self.flags)
        return int(arm), float(propensity)

    def mask(self, *arguments: Any) -> tuple[int, float]:
        arm, propensity = self._call("mask", self.algorithm.mask or mask_alone, 0.0, arguments, **self.flags)
        return int(arm), float(propensity)

    def prepare(self, *arguments: Any) -> None:
        if self.algorithm.prepare is not None:
            self._call("prepare", self.algorithm.prepare, 0.0, arguments, **self.flags)

    def learn(self, *arguments: Any) -> bool | None:
        answer = self._call("learn", self.algorithm.learn, 0.5, arguments, **self.flags)
        return None if answer is None else bool(answer)

    def expect(self, *arguments: Any) -> None:
        if self.algorithm.expect is not None:
            self._call("expect", self.algorithm.expect, 0.0, arguments, **self.flags)

    def forgo(self, *arguments: Any) -> None:
        if self.algorithm.forgo is not None:
            self._call("forgo", self.algorithm.forgo, 0.0, arguments, **self.flags)

    def observe(self, *arguments: Any) -> None:
        self._call("observe", self.algorithm.observe, 0.5, arguments, **self.flags)

    def draw_slate(self, *arguments: Any) -> int:
        return int(self._run(self.slate_bundle, "draw_slate", self.algorithm.draw_slate, 0.5, arguments, **self.flags))

    def mask_slate(self, *arguments: Any) -> int:
        return int(self._run(self.slate_bundle, "mask_slate", mask_slate, 0.0, arguments, **self.flags))

    def prepare_slate(self, *arguments: Any) -> None:
        if self.algorithm.prepare_slate is not None:
            self._run(self.slate_bundle, "prepare_slate", self.algorithm.prepare_slate, 0.0, arguments, **self.flags)

    def learn_slate(self, *arguments: Any) -> bool | None:
        answer = self._run(self.slate_bundle, "learn_slate", self.algorithm.learn_slate, 0.5, arguments, **self.flags)
        return None if answer is None else bool(answer)

    def all_within(self, *arguments: Any) -> bool:
        """Whether every entry of a vector lies between two numbers."""
        return bool(self._call("all_within", all_within, 0.0, arguments))

    def is_distribution(self, *arguments: Any) -> bool:
        """Whether a vector is a distribution."""
        return bool(self._call("is_distribution", is_distribution, 0.0, arguments))

    # single steps

    def show(self, features: NDArray[np.float64]) -> None:
        """Write the features of a round to memory."""
        learned, show, changed = self.learned, self.algorithm.show, False
        if learned.regressors is not None:
            predicted, changed = learned.regressors.predict(self._own(features)), True
            learned.memory.scratch[learned.layout.scratch.from_features] = predicted
        elif show is not None:
            with np.errstate(all="ignore"):
                changed = show(learned.memory, feature_table(features[None], learned.live_arms), 0)
        learned.version += 1 if changed else 0

    def _own(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the features of a round for live arms."""
        return features if features.ndim == 1 else features[self.learned.live_arms]

    def draw_live(self, context: int, uniform: float, out: Vector) -> tuple[int, float]:
        """Write the distribution over live arms to `out`, draw a column, and return it with its probability."""
        learned = self.learned
        answer = self.draw(learned.memory, context, uniform, out)
        self.drawn, self.drawn_at = context, learned.version
        return answer

    def draw_among(
        self, context: int, uniform: float, out: Vector, available: NDArray[np.bool_] | None
    ) -> tuple[int, float]:
        """The same for all arms, of which some are retired or not available."""
        learned = self.learned
        if learned.all_live:
            answer = self.draw_live(context, uniform, out)
            return answer if available is None else self.mask(learned.memory, out, available, uniform)
        live = np.empty(len(learned.live_arms))
        column, propensity = self.draw_live(context, uniform, live)
        if available is not None:
            column, propensity = self.mask(learned.memory, live, available[learned.live_arms], uniform)
        out[:] = 0.0
        out[learned.live_arms] = live
        return int(learned.live_arms[column]), propensity

    def draw_alone(self, context: int, uniform: float) -> tuple[int, float]:
        """Return the arm and the propensity that `choose` draws with this uniform number, without validation."""
        with self.lock:
            learned = self.learned
            out = np.empty(learned.n_arms)
            if learned.all_live:  # without the two calls that do the same
                arm, propensity = self.draw(learned.memory, context, uniform, out)
                self.drawn, self.drawn_at = context, learned.version
            else:
                arm, propensity = self.draw_among(context, uniform, out, None)
            if not propensity > 0.0:
                raise damaged(context, out)
            return arm, propensity

    def learn_late(self, context: int, *seen: Any) -> bool | None:
        """Learn from `column, propensity, reward` or from `probabilities, rewards`; False for a refused propensity."""
        learned = self.learned
        if self.drawn != context or self.drawn_at != learned.version:
            self.prepare(learned.memory, context)
        learned.version += 1
        return self.learn(learned.memory, context, *seen)

    def draw_slate_among(
        self, context: int, k: int, uniform: float, out: Vector, available: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Write the probabilities of all arms to be in a slate of k to `out`, and return the arms of one.

        `k` is at most the number of live arms; fewer arms are shown if fewer are available.
        """
        if k == 1:
            arm, propensity = self.draw_among(context, uniform, out, available)
            return np.array([arm] if propensity > 0.0 else [], dtype=np.int64)
        learned = self.learned
        n_live = len(learned.live_arms)
        live, slate = np.empty(n_live), np.zeros((2, n_live), dtype=np.int64)
        n_shown = self.draw_slate(learned.memory, context, k, uniform, live, slate)
        self.drawn, self.drawn_at = (context, k), learned.version
        if available is not None:
            n_shown = self.mask_slate(learned.memory, live, available[learned.live_arms], k, uniform, slate)
        out[:] = 0.0
        out[learned.live_arms] = live
        return learned.live_arms[slate[SHOWN, :n_shown]]

    def learn_slate_late(self, context: int, k: int, *seen: Any) -> bool | None:
        """Learn from `columns, propensities, rewards, first` or from `probabilities, rewards` of a slate of k arms."""
        learned = self.learned
        if k == 1:
            if self.feedback is Feedback.FULL:
                return self.learn_late(context, *seen)
            columns, propensities, rewards, _ = seen
            return self.learn_late(context, int(columns[0]), float(propensities[0]), float(rewards[0]))
        k = min(k, len(learned.live_arms))
        if self.drawn != (context, k) or self.drawn_at != learned.version:
            self.prepare_slate(learned.memory, context, k)
        learned.version += 1
        return self.learn_slate(learned.memory, context, k, *seen)

    def earn_less(self, column: int, amount: float) -> None:
        """Lower the account of an arm whose reward was learned as that of the first slot."""
        with np.errstate(all="ignore"):
            self.algorithm.earn_less(self.learned.memory, column, amount)  # type: ignore[misc]

    def impossible_slate(self, context: int, k: int, propensity: float) -> InvalidArgument:
        """Return the error for a propensity of a slate that the policy cannot have used."""
        least = self.algorithm.least_shown(self.learned.memory, context, k)
        return InvalidArgument(
            "decision.propensities",
            f"at least {least:.3g}, the smallest propensity of this policy in context {context} with {k} arms",
            propensity,
            "It may come from the log of another policy, or from a decision made after the restored snapshot. "
            "To learn from it anyway, raise it to that number.",
        )

    def fit(self, features: NDArray[np.float64], column: int, reward: float) -> None:
        """Fit the regressor of an arm, or the shared one, to its reward minus the mean reward."""
        learned = self.learned
        if learned.regressors is not None:
            names, numbers = learned.layout.scalars, learned.memory.scalars
            with np.errstate(all="ignore"):
                mean = numbers[names.reward_sum] / numbers[names.seen]
            learned.regressors.fit(column, self._own(features), float(reward - mean))

    def least_propensity(self, context: int) -> float:
        """Return the smallest probability with which this policy can ever have drawn an arm in this context."""
        memory, groups = self.learned.memory, self.learned.groups
        least = self.algorithm.least_propensity(memory, context)
        return least if groups is None else groups.least_drawn(memory, least)

    def impossible(self, context: int, propensity: float, entry: int | None = None) -> InvalidArgument:
        """Return the error for a propensity that the policy cannot have used, of a decision or of an entry of a log."""
        least = self.least_propensity(context)
        return InvalidArgument(
            "decision.propensity" if entry is None else f"log.propensities[{entry}]",
            f"at least {least:.3g}, the smallest propensity of this policy in context {context}",
            propensity,
            "It may come from the log of another policy, or from a decision made after the restored snapshot. "
            "To learn from it anyway, raise it to that number.",
        )

    @property
    def bytes_per_context(self) -> int:
        """The memory of one context."""
        return self.learned.bytes_per_context

    def kernels(self) -> dict[str, Any]:
        """Return the kernels of single steps that are machine code by now, as they were compiled."""
        own = {"draw": self.algorithm.draw, "learn": self.algorithm.learn, "mask": self.algorithm.mask or mask_alone}
        own |= {"prepare": self.algorithm.prepare, "expect": self.algorithm.expect, "forgo": self.algorithm.forgo}
        own |= {"observe": self.algorithm.observe}
        own |= {"draw_slate": self.algorithm.draw_slate, "learn_slate": self.algorithm.learn_slate}
        own |= {"prepare_slate": self.algorithm.prepare_slate, "mask_slate": mask_slate}
        return {name: jit.compiled(kernel, **self.flags) for name, kernel in own.items() if name in vars(self)}

    def add_rows(self) -> None:
        """Allocate a block of rows for the distributions of decisions."""
        n_arms = self.learned.n_arms
        block = np.empty((max(1, min(64, 4096 // n_arms)), n_arms))
        self.rows.extend(zip(block, frozen(block), strict=True))

    # whole runs and logs in one call; `alphafair.run` validates the arguments

    def run(self, live: NDArray[np.int64], job: str, n_rounds: int, *arguments: Any, in_order: bool = False) -> Any:
        """Play `n_rounds` rounds in one call; arms are numbered among the `live` ones."""
        with self.lock:
            learned = self.learned
            self._check_live(live)
            learned.version += 1
            run = loop(job, self.feedback.value, self.algorithm, in_order)
            return self._play(run, n_rounds, learned.memory, *arguments)

    def run_slates(self, live: NDArray[np.int64], job: str, n_rounds: int, *arguments: Any) -> None:
        """The same for decisions of several arms."""
        with self.lock:
            learned = self.learned
            self._check_live(live)
            learned.version += 1
            run = slate_loop(job, self.feedback.value, self.algorithm)
            self._play(run, n_rounds, learned.memory, *arguments, bundle=self.slate_bundle)

    def _check_live(self, live: NDArray[np.int64]) -> None:
        learned = self.learned
        if not np.array_equal(live, learned.live_arms):
            allowed = f"a policy with the live arms {live.tolist()} during the whole run"
            got = f"one with {learned.live_arms.tolist()}"
            raise InvalidArgument("policy", allowed, got, "Change arms before or after a run.")

    def rounds_per_call(self, n_rounds: int, *, slates: bool = False) -> int:
        """Return how many of the next rounds to play in one call: few while interpreted."""
        bundle = self.slate_bundle if slates else self.bundle
        return min(bundle.rounds_per_call(n_rounds), n_rounds, MOST_ROUNDS)

    def _calls(self, n_rounds: int) -> Iterator[tuple[int, int]]:
        """Yield the first round of each call and the one after its last."""
        start = 0
        while start < n_rounds:
            stop = start + self.rounds_per_call(n_rounds - start)
            yield start, stop
            start = stop

    def _play(self, run: Any, n_rounds: int, *arguments: Any, bundle: jit.Bundle | None = None) -> Any:
        """Run a loop over rounds, compiled or interpreted."""
        bundle = self.bundle if bundle is None else bundle
        if bundle.use_machine_code():
            return jit.compiled(run, **self.flags)(*arguments)
        started = time.perf_counter()
        with np.errstate(all="ignore"):
            answer = run.function(*arguments)
        bundle.spend(time.perf_counter() - started, n_rounds)
        return answer

    def fold(self, log: LogSteps) -> int:
        """Take the steps of a log under bandit feedback; return the first one that was refused, or -1."""
        learned, arms = self.learned, log.arms
        learned.version += 1
        log = log._replace(features=feature_table(log.features, learned.live_arms))
        if learned.all_live:
            return self._fold(log._replace(arms=arms.astype(np.int64)))
        is_live = learned.live[arms]
        masks = np.ascontiguousarray(log.masks[:, learned.live_arms]) if len(log.masks) else log.masks
        log = log._replace(arms=np.searchsorted(learned.live_arms, arms), masks=masks[:0])
        late, rows = ~is_live & (log.steps == LEARN), np.arange(len(arms))
        for piece in np.split(rows, np.flatnonzero(late)) if learned.in_order else [rows]:
            gone, kept = piece[late[piece]], piece[is_live[piece]]
            learned.book_late(log.contexts[gone], arms[gone], log.rewards[gone])
            part = LogSteps(*(column[kept] if len(column) else column for column in log))._replace(masks=masks)
            refused = self._fold(part)
            log.drawn[kept] = part.drawn
            if refused >= 0:
                return int(kept[refused])
        return -1

    def _fold(self, log: LogSteps) -> int:
        """The same for steps of live arms only, numbered by column."""
        columns = {name: frozen(value) for name, value in log._asdict().items() if name != "drawn"}
        steps = log._replace(**columns)  # read-only columns have one type, so the loop is compiled once
        fold = loop("fold", "bandit", self.algorithm, False)
        out = np.empty(len(self.learned.live_arms))
        for start, stop in self._calls(len(steps.steps)):
            some = steps.part(slice(start, stop))
            refused = int(self._play(fold, stop - start, self.learned.memory, some, out))
            if refused >= 0:
                return start + refused
        return -1

    def fold_slates(self, log: SlateSteps) -> int:
        """Take the steps of slates of a log under bandit feedback; return the first one that was refused, or -1.

        All arms are live, and rounds have no features.
        """
        learned = self.learned
        learned.version += 1
        columns = {name: frozen(value) for name, value in log._asdict().items() if name != "drawn"}
        steps, n = log._replace(**columns), len(learned.live_arms)
        out, slate, start = np.empty(n), np.zeros((2, n), dtype=np.int64), 0
        while start < len(log.steps):
            stop = start + self.rounds_per_call(len(log.steps) - start, slates=True)
            given = (learned.memory, steps, out, slate, start, stop)
            refused = int(self._play(slate_fold(self.algorithm), stop - start, *given, bundle=self.slate_bundle))
            if refused >= 0:
                return refused
            start = stop
        return -1

    def fold_full(
        self, contexts: Indices, probabilities: Matrix, rewards: Matrix, features: NDArray[np.float64] | None = None
    ) -> None:
        """Learn from a log under full information, in its order."""
        with self.lock:
            learned = self.learned
            learned.version += 1
            used, seen = (np.ascontiguousarray(table[:, learned.live_arms]) for table in (probabilities, rewards))
            fold = loop("fold", "full", self.algorithm, False)
            table = feature_table(features, learned.live_arms)
            with np.errstate(all="ignore"):
                gone = np.where(learned.live, 0.0, probabilities * rewards)
            cuts = np.flatnonzero(gone.any(axis=1) & learned.in_order).tolist()
            for first, last in pairwise([0, *cuts, len(contexts)]):
                learned.book_retired(contexts[first:last], gone[first:last])
                for start, stop in self._calls(last - first):
                    part = slice(first + start, first + stop)
                    shown = table[part] if len(table) else table
                    self._play(fold, stop - start, learned.memory, shown, contexts[part], used[part], seen[part])


def damaged(context: int, probabilities: Vector) -> InvalidArgument:
    """Return the error for probabilities that no valid memory can produce."""
    repair = "The memory of the policy is damaged: restore a snapshot, or learn from the log again."
    return InvalidArgument(f"the distribution of context {context}", "one that sums to 1", probabilities, repair)


def feature_table(features: NDArray[np.float64] | None, live: NDArray[np.int64]) -> Matrix:
    """Return features as kernels take them: a row per round, live arms side by side; an empty table without any."""
    if features is None:
        return frozen(np.empty((0, 0)))
    if features.ndim == 3 and len(live) < features.shape[1]:
        features = features[:, live]
    return frozen(np.ascontiguousarray(features).reshape(len(features), math.prod(features.shape[1:])))
