"""The rows of a log in memory or in a file: batches of them, and their clusters for the bootstrap."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.values import Log
from alphafair.values.available import AvailableArms
from alphafair.values.log_table import AVAILABLE, Decisions, Labels, LogColumns, LogTable

Advance = Callable[[int], None]  # called with the number of rows, or replicates, that were processed
LEAST_PROPENSITY = 1e-100  # so that squares of weights are finite
BATCH = 1 << 18  # rows at once
PART = 1 << 20  # rows whose sums are begun anew, at least
PART_PER_CELL = 8  # rows of a part per context and arm, at least: merging its sums takes less than making them
MOST_CLUSTERS, MOST_SCORES = 4096, 1 << 22


class LogFile:
    """A table of decisions in a file, which is read in batches: `evaluate` and `frontier` accept it instead of a `Log`.

    Parameters are those of `Log.from_table` without the time, since the order of rows makes no difference.

    >>> log = LogFile("log.parquet", context="user", arm="item", reward="click")  # doctest: +SKIP
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        context: str = "context",
        arm: str = "arm",
        reward: str = "reward",
        propensity: str = "propensity",
        user: str | None = None,
        available: str | None = AVAILABLE,
    ) -> None:
        columns = LogColumns(context, arm, reward, propensity, user=user, available=available)
        self._table = LogTable.open(path, columns)
        self.has_users, self.has_available = user is not None, self._table.columns.available is not None
        checks = self._table.columns.checks()
        self.n_rounds, self.most_reward = 0, -math.inf
        contexts: dict[Any, None] = {}
        arms: dict[Any, None] = {}
        for frame in self._table.rewarded.batches():
            if not len(frame):
                continue
            own_contexts, own_arms = self._table.labels_in(frame)
            contexts, arms = contexts | own_contexts, arms | own_arms
            rewards, propensities = (self._table.table.column(frame, checks[name]) for name in ("reward", "propensity"))
            self._at_least(reward, rewards.min(), 0.0, "Map the rewards onto [0, 1] first.")
            self._at_least(propensity, propensities.min(), LEAST_PROPENSITY, IMPROBABLE)
            self.n_rounds, self.most_reward = (
                self.n_rounds + len(frame),
                max(self.most_reward, rewards.to_numpy().max()),
            )
        self._table.refuse_empty(self.n_rounds)
        self.labels = Labels.of(contexts, arms)
        self.context_labels, self.arm_labels = (tuple(each) for each in self.labels)
        self.n_contexts, self.n_arms = len(self.context_labels), len(self.arm_labels)

    def _at_least(self, name: str, value: Any, low: float, repair: str) -> None:
        if value < low:
            raise InvalidArgument(f"{self._table.table.label}: {name}", f"at least {low:g}", float(value), repair)

    def decisions(self) -> Iterator[Decisions]:
        """The rows in batches; one pass over the file."""
        for frame in self._table.rewarded.batches():
            if len(frame):
                yield self._table.decode(frame, self.labels)


AnyLog = Log | LogFile
IMPROBABLE = "An arm with such a propensity is never shown in practice: correct it, or delete such rows."


def check_log(log: AnyLog) -> None:
    """Check that rewards are at least 0 and propensities are not too small to divide by."""
    if not isinstance(log, Log | LogFile):
        repair = "Make one with Log.from_table, or open a large file with evaluation.LogFile."
        raise InvalidArgument("log", "a Log or a LogFile", log, repair)
    if isinstance(log, LogFile):
        return  # it was checked when it was opened
    if log.rewards.min() < 0.0:
        repair = "Map them with alphafair.rescale_rewards: fairness is about the rewards that arms earn."
        raise InvalidArgument("log.rewards", "at least 0", float(log.rewards.min()), repair)
    if log.propensities.min() < LEAST_PROPENSITY:
        row = int(log.propensities.argmin())
        argument, got = f"log.propensities[{row}]", float(log.propensities[row])
        raise InvalidArgument(argument, f"at least {LEAST_PROPENSITY:g}", got, IMPROBABLE)


def check_in_memory(log: object) -> Log:
    """Check that a policy can learn from the rows in their order."""
    if not isinstance(log, Log):
        raise InvalidArgument("log", "a Log", log, "Make one with Log.from_table: a policy learns from rows in order.")
    return log


def most_reward(log: AnyLog) -> float:
    return log.most_reward if isinstance(log, LogFile) else float(log.rewards.max())


def reward_unit(log: AnyLog) -> float:
    """The power of two at or just below the greatest reward; 1 where all rewards are 0.

    Rewards are added up in this unit, so that their squares neither overflow nor underflow, and a log whose rewards are
    multiplied by a power of two gives the same digits.
    """
    most = most_reward(log)
    return math.ldexp(1.0, math.frexp(most)[1] - 1) if 0.0 < most < math.inf else 1.0


def select_rows(log: Log, rows: Any, least: float = 0.0) -> Log:
    """Some rows of a log, with propensities raised to at least `least`."""
    columns = (log.contexts, log.arms, log.rewards, np.maximum(log.propensities, least))
    features = None if log.features is None else log.features[rows]
    available = None if log.available is None else log.available.take(rows)
    return Log(
        *(column[rows] for column in columns),
        n_contexts=log.n_contexts,
        n_arms=log.n_arms,
        features=features,
        available=available,
    )


def arm_names(log: AnyLog) -> list[str]:
    return list(log.arm_labels) if log.arm_labels is not None else [str(arm) for arm in range(log.n_arms)]


def has_available(log: AnyLog) -> bool:
    """Whether the log has the arms that its decisions were drawn among."""
    return log.has_available if isinstance(log, LogFile) else log.available is not None


def silent(done: int) -> None:
    """No progress output."""


# Batches, and sums over them


class Rows(NamedTuple):
    """A batch of rows, with the cluster and the available arms of each; rewards are in units of `reward_unit`."""

    contexts: Any
    arms: Any
    rewards: Any
    propensities: Any
    clusters: Any
    of_sets: Any  # the row of `sets` that applies; -1 where every arm was available
    sets: Any  # (n_sets, n_arms)
    first: int = 0  # the number of the first row in the log


class Sum(Protocol):
    """A value that adds up something over rows."""

    def add(self, rows: Rows) -> None:
        """Add a batch."""

    def merge(self, later: Self) -> None:
        """Add the sum over later rows."""


def add_up(log: AnyLog, make: Callable[[], Iterable[Sum]], advance: Advance = silent) -> list[Any]:
    """One pass over a log that adds up several sums at once.

    Sums are made anew for each part of the log and merged in the order of parts. So parts can be added up by different
    workers with the same bits, as long as they are merged in order.
    """
    total: list[Any] = list(make())
    for number, part in groupby(batches(log), key=itemgetter(0)):
        own: list[Any] = total if number == 0 else list(make())
        for _, rows in part:
            for each in own:
                each.add(rows)
            advance(len(rows.contexts))
        if own is not total:
            for each, later in zip(total, own, strict=True):
                each.merge(later)
    return total


def batches(log: AnyLog) -> Iterator[tuple[int, Rows]]:
    """The rows in their order, with the number of the part that each batch belongs to.

    A cluster is resampled as a whole in the bootstrap. Where there are more rows than clusters, rows are assigned to
    them at random: sums over such clusters vary as rows do, so a few thousand of them show the same spread as a hundred
    million rows. All rows of a user are in one cluster.
    """
    n_clusters, unit = cluster_count(log), reward_unit(log)
    part_rows = max(PART, PART_PER_CELL * log.n_contexts * log.n_arms)
    every, first = AvailableArms.every(BATCH, log.n_arms), 0
    for piece in [_decisions(log)] if isinstance(log, Log) else log.decisions():
        n_rows, start = len(piece.contexts), 0
        while start < n_rows:
            part, offset = divmod(first + start, part_rows)
            stop = min(start + BATCH, start + part_rows - offset, n_rows)
            rows = slice(start, stop)
            own = np.arange(first + start, first + stop) if piece.users is None else piece.users[rows]
            is_own = not log.has_users and log.n_rounds <= n_clusters
            clusters = own if is_own else (scatter(own) % np.uint64(n_clusters)).astype(np.int64)
            sets, of_rounds = (
                (every.sets, every.of_rounds[: stop - start])
                if piece.available is None
                else (
                    piece.available.sets,
                    piece.available.of_rounds[rows],
                )
            )
            columns = (piece.contexts[rows], piece.arms[rows], piece.rewards[rows] / unit, piece.propensities[rows])
            yield part, Rows(*columns, clusters, of_rounds, sets, first + start)
            start = stop
        first += n_rows


def _decisions(log: Log) -> Decisions:
    columns = (log.contexts, log.arms, log.rewards, log.propensities, log.users)
    return Decisions(*columns, positions=None, times=None, available=log.available)


def cluster_count(log: AnyLog) -> int:
    """The number of clusters: limited by memory, and by the rows where there are no users."""
    most = min(MOST_CLUSTERS, max(256, MOST_SCORES // log.n_arms))
    return most if log.has_users else min(log.n_rounds, most)


def folds_of(n_clusters: int) -> NDArray[np.int64]:
    """A fold for every cluster, 0 or 1 at random."""
    return (scatter(np.arange(n_clusters) + n_clusters) >> np.uint64(63)).astype(np.int64)


def scatter(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A pseudorandom number for every number: the finaliser of SplitMix64 (Steele et al., 2014)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
