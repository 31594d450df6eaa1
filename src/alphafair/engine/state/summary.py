"""What happened in an experiment over time, kept up to date by the same steps that policies learn from.

A `Summary` is a function of the event log alone: it is the same after live operation, after recovery from a snapshot
and after a replay of the whole log. Time is divided into buckets of equal width, at most `most_buckets` of them: when
the next would be one too many, neighbors are merged and the width doubles. So its size does not depend on the number
of events, and a page that shows it counts nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.state.sides import SideTables
from alphafair.engine.state.steps import CLIENT, DECIDED, DEFAULT, DEFERRED, EXPIRED, OWN, PAID_PARTLY, Steps

SECOND: Final = 1_000_000  # microseconds, the unit of time of the log
MOST_BUCKETS, LEAST_BUCKETS, MOST_CELLS = 512, 16, 1 << 15  # cells: buckets times arms
DELAY_BOUNDS: Final = tuple(int(SECOND * 10 ** (k / 4)) for k in range(-8, 29))  # 0.01 seconds to 116 days
MOST_WAITING: Final = 2_000  # steps that are counted together
Fairness = tuple[float, float]  # Jain's index and welfare; nan where they are not known
Measure = Callable[[], Fairness]
_NAMES: Final = (  # arrays with a row per bucket
    "rewards",
    "expired",
    "fairness",
    "arm_decisions",
    "arm_rewards",
    "source_rewards",
    "source_sums",
)
_NUMBERS: Final = (
    "start",
    "width",
    "bucket",
    "n_arms",
    "delay_sum",
    "last_event",
    "last_decision",
    "last_reward",
    "since_reward",
)


def most_buckets(n_arms: int) -> int:
    """Return how many buckets there may be: fewer with many arms, always a power of two."""
    room = MOST_CELLS // max(1, n_arms)
    return max(LEAST_BUCKETS, min(MOST_BUCKETS, 1 << max(0, room.bit_length() - 1)))


def unknown() -> Fairness:
    return math.nan, math.nan


class Recent(NamedTuple):
    """Counts of the last seconds, from whole buckets."""

    seconds: float
    decisions: NDArray[np.int64]  # by arm
    rewards: int
    expired: int


class Summary:
    """Counts per bucket and arm, decisions per context, and how long rewards took.

    Events come in the order of the log: `advance` moves to the bucket of a time, `count` adds steps to it. Fairness is
    measured when a bucket is left, so it is that of the accounts at its end.
    """

    def __init__(self, at: int, n_arms: int, reward_range: tuple[float, float] = (0.0, 1.0)) -> None:
        self.sides = SideTables(n_arms, *reward_range)
        self.start, self.width = at // SECOND * SECOND, SECOND  # microseconds
        self.bucket = 0  # the current one
        self.n_arms = n_arms
        self.contexts: NDArray[np.int64] = np.zeros(0, dtype=np.int64)  # decisions by context; may be longer
        self.delays: NDArray[np.int64] = np.zeros(len(DELAY_BOUNDS) + 1, dtype=np.int64)  # of rewards from clients
        self.delay_sum = 0  # microseconds
        self.last_event, self.last_decision, self.last_reward = at, 0, 0  # times; 0: there was none
        self.since_reward = 0  # decisions since the last reward
        n_buckets = most_buckets(n_arms)
        self.rewards: NDArray[np.int64] = np.zeros(n_buckets, dtype=np.int64)  # from clients, and default rewards
        self.expired: NDArray[np.int64] = np.zeros(n_buckets, dtype=np.int64)
        self.fairness: NDArray[np.float64] = np.full((n_buckets, 2), np.nan)  # at the end of every bucket that was left
        self.arm_decisions: NDArray[np.int64] = np.zeros((n_buckets, n_arms), dtype=np.int64)
        self.arm_rewards: NDArray[np.float64] = np.zeros((n_buckets, n_arms))  # sums
        self.source_rewards: NDArray[np.int64] = np.zeros((n_buckets, 0), dtype=np.int64)  # of others, by source
        self.source_sums: NDArray[np.float64] = np.zeros((n_buckets, 0))
        self._waiting: list[Steps] = []  # of the current bucket, counted together
        self._n_waiting = 0

    # the fold

    @property
    def ends(self) -> int:
        """When the current bucket ends."""
        return self.start + (self.bucket + 1) * self.width

    def advance(self, at: int, measure: Measure = unknown) -> None:
        """Move to the bucket of a time; if it is a later one, `measure` the fairness at the end of the current one."""
        if at >= self.ends:
            self.flush()
            self.fairness[self.bucket] = measure()
            while at >= self.start + len(self.rewards) * self.width:
                self._merge()
            self.bucket = (at - self.start) // self.width
        self.last_event = max(self.last_event, at)

    def _merge(self) -> None:
        """Merge neighbors, so that the width doubles. The fairness is the one at the later end, if it is known."""
        self.flush()
        half = len(self.rewards) // 2
        for name in _NAMES:
            values = getattr(self, name)
            first, second = values[0::2], values[1::2]
            merged = np.where(np.isnan(second), first, second) if name == "fairness" else first + second
            values[half:] = np.nan if name == "fairness" else 0
            values[:half] = merged
        self.width, self.bucket = 2 * self.width, self.bucket // 2

    def add_arm(self) -> None:
        """Count for one more arm."""
        self.flush()
        self.n_arms += 1
        self.sides.add_arm()
        while (half := len(self.rewards) // 2) >= most_buckets(self.n_arms):
            if self.bucket >= half:
                self._merge()
            for name in _NAMES:
                setattr(self, name, getattr(self, name)[:half].copy())
        self.arm_decisions = np.pad(self.arm_decisions, ((0, 0), (0, 1)))
        self.arm_rewards = np.pad(self.arm_rewards, ((0, 0), (0, 1)))

    def compare_sides(self, position: int) -> None:
        """Count the decisions of every side after a position, and forget those before it."""
        self.flush()
        self.sides.restart(position)

    def sides_now(self) -> SideTables:
        """Return the tables of sides with everything counted."""
        self.flush()
        return self.sides

    def add(self, steps: Steps) -> None:
        """Count steps of the current bucket, soon: many small commits are counted together."""
        self._waiting.append(steps)
        self._n_waiting += len(steps)
        if self._n_waiting >= MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Count what waits."""
        waiting, self._waiting, self._n_waiting = self._waiting, [], 0
        if len(waiting) == 1:
            self.count(waiting[0])
        elif waiting:
            self.count(Steps.joined(waiting))

    def parts(self, steps: Steps, measure: Measure) -> Iterator[Steps]:
        """Yield the steps of each bucket, moving from one to the next; the caller counts them and learns from them."""
        latest, first = np.maximum.accumulate(steps.at), 0
        while first < len(steps):
            last = int(np.searchsorted(latest, self.ends, side="left"))
            if last > first:
                yield steps[first:last]
                first = last
            if first < len(steps):
                self.advance(int(latest[first]), measure)

    def count(self, steps: Steps) -> None:
        """Count steps of the policy's own decisions that belong to the current bucket, in their order."""
        if len(steps):
            self.last_event = max(self.last_event, int(steps.at.max()))
            self.sides.count(steps)
            self._count_others(steps)
        steps = steps.own
        kind = steps.kind
        partly = kind == PAID_PARTLY
        decided, paid = (kind == DECIDED) | (kind == DEFERRED), (kind <= DEFAULT) | partly
        contexts = steps.context[decided]
        if len(contexts):
            self.arm_decisions[self.bucket] += np.bincount(steps.shown, minlength=self.n_arms)
            self._count_contexts(contexts)
            self.last_decision = int(steps.at[decided][-1])
            self.since_reward += len(contexts)
        if paid.any():
            np.add.at(self.arm_rewards[self.bucket], *steps.paid)  # one after the other
            self.rewards[self.bucket] += np.count_nonzero(kind <= DEFAULT)
            self.last_reward = int(steps.at[paid][-1])
            self.since_reward = int(np.count_nonzero(decided[np.flatnonzero(paid)[-1] :]))
            client = (kind == CLIENT) | partly
            delays = steps.at[client] - steps.since[client]
            self.delays += np.bincount(np.searchsorted(DELAY_BOUNDS, delays), minlength=len(self.delays))
            self.delay_sum += int(delays.sum())
        self.expired[self.bucket] += np.count_nonzero(kind == EXPIRED)

    def _count_others(self, steps: Steps) -> None:
        """Count rewards of decisions that others made."""
        paid = (steps.decided_by > OWN) & (steps.kind <= DEFAULT)
        if not paid.any():
            return
        sources = steps.decided_by[paid] - 1
        n_more = int(sources.max()) + 1 - self.source_sums.shape[1]
        if n_more > 0:
            self.source_rewards = np.pad(self.source_rewards, ((0, 0), (0, n_more)))
            self.source_sums = np.pad(self.source_sums, ((0, 0), (0, n_more)))
        np.add.at(self.source_rewards[self.bucket], sources, 1)
        np.add.at(self.source_sums[self.bucket], sources, steps.reward[paid])

    def _count_contexts(self, contexts: NDArray[Any]) -> None:
        n_contexts = int(contexts.max()) + 1
        if n_contexts > len(self.contexts):
            grown = np.zeros(max(n_contexts, 2 * len(self.contexts)), dtype=np.int64)
            grown[: len(self.contexts)] = self.contexts
            self.contexts = grown
        np.add.at(self.contexts, contexts, 1)

    # reading

    @property
    def n_buckets(self) -> int:
        """How many buckets there are, up to the current one."""
        return self.bucket + 1

    def copy(self, *, contexts: bool = True) -> Summary:
        """Return a copy, for readers: the original goes on. Without `contexts`, which may be many, it has none."""
        self.flush()
        copied = Summary.__new__(Summary)
        vars(copied).update(vars(self))
        for name in (*_NAMES, "delays"):
            setattr(copied, name, getattr(self, name).copy())
        copied.sides = self.sides.copy()
        copied.contexts = self.contexts.copy() if contexts else np.zeros(0, dtype=np.int64)
        copied._waiting = []
        return copied

    def recent(self, now: int, seconds: float) -> Recent:
        """Return the counts of the buckets that the last seconds belong to, and how many seconds those cover."""
        first = max(0, int((now - seconds * SECOND - self.start) // self.width))
        covered = (now - self.start - first * self.width) / SECOND
        return Recent(
            max(covered, 1.0),
            self.arm_decisions[first : self.n_buckets].sum(axis=0),
            int(self.rewards[first : self.n_buckets].sum()),
            int(self.expired[first : self.n_buckets].sum()),
        )

    def same_counts(self, other: Summary) -> bool:
        """Return whether everything but fairness is the same, and fairness where both know it."""
        self.flush()
        other.flush()
        if any(getattr(self, name) != getattr(other, name) for name in _NUMBERS) or not self.sides.same(other.sides):
            return False
        longest = max(len(self.contexts), len(other.contexts))
        ours, theirs = (np.pad(each.contexts, (0, longest - len(each.contexts))) for each in (self, other))
        if not np.array_equal(ours, theirs) or not np.array_equal(self.delays, other.delays):
            return False
        for name in _NAMES:
            first, second = getattr(self, name), getattr(other, name)
            known = ~(np.isnan(first) | np.isnan(second))
            if first.shape != second.shape or not np.array_equal(first[known], second[known]):
                return False
        return True

    # saving

    def to_bytes(self) -> bytes:
        """Return a line of JSON with the numbers, and the arrays one after the other."""
        self.flush()
        contexts = np.trim_zeros(self.contexts, "b")
        numbers: dict[str, Any] = {name: int(getattr(self, name)) for name in _NUMBERS}
        numbers |= {"n_contexts": len(contexts), "sides": self.sides.numbers}
        numbers["n_sources"] = self.source_sums.shape[1]
        arrays = (*(getattr(self, name)[: self.n_buckets] for name in _NAMES), self.delays, contexts)
        arrays += (*self.sides.tables.values(),)
        return b"".join([json.dumps(numbers).encode(), b"\n", *(array.tobytes() for array in arrays)])

    @classmethod
    def from_bytes(cls, blob: bytes | memoryview, reward_range: tuple[float, float] = (0.0, 1.0)) -> Self:
        """Return what `to_bytes` has written; raises `ValueError` for anything else."""
        head, _, rest = bytes(blob).partition(b"\n")
        try:
            numbers = json.loads(head)
            summary = cls(numbers["start"], numbers["n_arms"], reward_range)
            if "sides" in numbers:  # else it was written by an older version
                summary.sides = SideTables.of(numbers["sides"], numbers["n_arms"], *reward_range)
            for name in _NUMBERS:
                setattr(summary, name, int(numbers[name]))
            n_sources = numbers.get("n_sources", 0)
            summary.source_rewards = np.zeros((len(summary.rewards), n_sources), dtype=np.int64)
            summary.source_sums = np.zeros((len(summary.rewards), n_sources))
            summary.contexts, at = np.zeros(numbers["n_contexts"], dtype=np.int64), 0
            arrays = (
                *(getattr(summary, name)[: summary.n_buckets] for name in _NAMES),
                summary.delays,
                summary.contexts,
                *summary.sides.tables.values(),
            )
            for array in (each for each in arrays if each.size):
                array[:] = np.frombuffer(rest, array.dtype, array.size, at).reshape(array.shape)
                at += array.nbytes
        except (KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"these are not the bytes of a summary: {problem}") from problem
        return summary
