"""The rows of a log in memory or in a file: batches of them, and their clusters for the bootstrap."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial, reduce
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.tables import count_rows, open_table, refuse_other_columns, table_files
from alphafair.tasks import in_order
from alphafair.values import Log
from alphafair.values.available import AvailableArms
from alphafair.values.log_table import AVAILABLE, Decisions, Labels, LogColumns, LogTable

Advance = Callable[[int], None]  # called with the number of rows, or replicates, that were processed
LEAST_PROPENSITY = 1e-100  # so that squares of weights are finite
BATCH = 1 << 18  # rows at once
PART = 1 << 20  # rows whose sums are begun anew, at least
PIECE = 1 << 20  # rows of a Parquet file that are read at a time
PART_PER_CELL = 8  # rows of a part per context and arm, at least: merging its sums takes less than making them
MOST_CLUSTERS, MOST_SCORES = 4096, 1 << 22


class Piece(NamedTuple):
    """Some rows of a file, which a worker reads by itself: all of them, or `n_rows` from `first` on."""

    path: Path
    columns: LogColumns
    first: int = 0
    n_rows: int | None = None

    def open(self) -> LogTable:
        return LogTable.open(self.path, self.columns, self.first, self.n_rows)

    def frames(self) -> Iterator[tuple[LogTable, Any]]:
        """Batches of the rows with a reward, with the table that they are of."""
        table = self.open()
        for frame in table.rewarded.batches():
            if len(frame):
                yield table, frame

    def scan(self) -> Scanned:
        """Check the rows, and find what all workers must know of them."""
        checks, found = self.columns.checks(), Scanned({}, {}, 0, -math.inf)
        for table, frame in self.frames():
            contexts, arms = table.labels_in(frame)
            rewards, propensities = (table.table.column(frame, checks[name]) for name in ("reward", "propensity"))
            self._at_least(checks["reward"].name, rewards.min(), 0.0, "Map the rewards onto [0, 1] first.")
            self._at_least(checks["propensity"].name, propensities.min(), LEAST_PROPENSITY, IMPROBABLE)
            found = found.merge(Scanned(contexts, arms, len(frame), rewards.to_numpy().max()))
        return found

    def _at_least(self, name: str, value: Any, low: float, repair: str) -> None:
        if value < low:
            raise InvalidArgument(f"{self.path}: {name}", f"at least {low:g}", float(value), repair)


class Scanned(NamedTuple):
    """The labels of contexts and arms, the number of rows with a reward, and the greatest reward."""

    contexts: dict[Any, None]
    arms: dict[Any, None]
    n_rows: int
    most_reward: float

    def merge(self, later: Scanned) -> Scanned:
        most = max(self.most_reward, later.most_reward)
        return Scanned(self.contexts | later.contexts, self.arms | later.arms, self.n_rows + later.n_rows, most)


class LogFile:
    """A table of decisions in a file, or in a folder of Parquet files, which is read in batches.

    `evaluate` and `frontier` accept it instead of a `Log`. Parameters are those of `Log.from_table` without the time,
    since the order of rows makes no difference. With an `executor`, see `alphafair.executors`, its workers check the
    files; they need the same paths.

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
        executor: Executor | None = None,
    ) -> None:
        files = [each.absolute() for each in table_files(Path(path))]
        asked = LogColumns(context, arm, reward, propensity, user=user, available=available)
        first, others = LogTable.open(files[0], asked), (open_table(file) for file in files[1:])
        for other in others:
            refuse_other_columns(other, open_table(files[0]))
        self.has_users, self.has_available = user is not None, first.columns.available is not None
        self._pieces = [piece for file in files for piece in _pieces(file, first.columns)]
        scanned = list(in_order([piece.scan for piece in self._pieces], executor))
        found = reduce(Scanned.merge, scanned)
        self._rewarded = [each.n_rows for each in scanned]
        self.n_rounds, self.most_reward = found.n_rows, found.most_reward
        first.refuse_empty(self.n_rounds)
        self.labels = Labels.of(found.contexts, found.arms)
        self.context_labels, self.arm_labels = (tuple(each) for each in self.labels)
        self.n_contexts, self.n_arms = len(self.context_labels), len(self.arm_labels)

    def decisions(self) -> Iterator[Decisions]:
        """The rows in batches; one pass over the file."""
        return self._decisions(self._pieces)

    def _decisions(self, pieces: Iterable[Piece]) -> Iterator[Decisions]:
        for piece in pieces:
            for table, frame in piece.frames():
                yield table.decode(frame, self.labels)

    def _shares(self, part_rows: int) -> Iterator[Share]:
        """Pieces with so many rows or more, each the work of one task."""
        first, n_rows = 0, 0
        pieces: list[Piece] = []
        for piece, rewarded in zip(self._pieces, self._rewarded, strict=True):
            pieces, n_rows = [*pieces, piece], n_rows + rewarded
            if n_rows >= part_rows:
                yield Share(first, n_rows, part_rows, tuple(pieces))
                first, n_rows, pieces = first + n_rows, 0, []
        if n_rows:
            yield Share(first, n_rows, part_rows, tuple(pieces))


def _pieces(file: Path, columns: LogColumns) -> Iterator[Piece]:
    """A Parquet file in pieces of `PIECE` rows; any other file as it is."""
    n_rows = count_rows(file)
    if n_rows is None:
        yield Piece(file, columns)
        return
    for first in range(0, n_rows, PIECE):
        yield Piece(file, columns, first, min(PIECE, n_rows - first))


class Share(NamedTuple):
    """Consecutive rows of a log, the work of one task; `pieces` are those of a `LogFile`."""

    first: int  # the number of its first row in the log
    n_rows: int
    part_rows: int  # the number of rows after which sums are begun anew
    pieces: tuple[Piece, ...] = ()


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

    @property
    def sums(self) -> Any:
        """What was added up: all that travels from a worker."""

    def merge(self, later: Any) -> None:
        """Add the sums over later rows."""


Make = Callable[[AnyLog], Sequence[Any]]  # makes empty sums for a log; it must be picklable


def add_up(log: AnyLog, make: Make, advance: Advance = silent, executor: Executor | None = None) -> list[Any]:
    """One pass over a log that adds up several sums at once.

    Sums are made anew for each share of the log, by any worker, and merged in the order of shares. So the executor
    makes no difference to a single bit.
    """
    total, todo = [*make(log)], list(shares(log))
    tasks = (partial(_share_sums, log, make, share) for share in todo)
    for share, found in zip(todo, in_order(tasks, executor, shared=(log, make)), strict=True):
        for own, sums in zip(total, found, strict=True):
            own.merge(sums)
        advance(share.n_rows)
    return total


def _share_sums(log: AnyLog, make: Make, share: Share) -> list[Any]:
    """The sums over a share; those of a large one, such as a text file, are begun anew for each part of it."""
    total: Sequence[Any] = ()
    for _, part in groupby(batches(log, share), key=itemgetter(0)):
        own = make(log)
        for _, rows in part:
            for each in own:
                each.add(rows)
        for each, later in zip(total, own, strict=bool(total)):
            each.merge(later.sums)
        total = total or own
    return [each.sums for each in total]


def part_size(log: AnyLog) -> int:
    """The number of rows of a part, whose sums are begun anew."""
    return max(PART, PART_PER_CELL * log.n_contexts * log.n_arms)


def shares(log: AnyLog) -> Iterator[Share]:
    """The shares of a log, which depend on the log alone: parts of one in memory, pieces of files with as many rows."""
    size = part_size(log)
    if isinstance(log, LogFile):
        yield from log._shares(size)
        return
    for first in range(0, log.n_rounds, size):
        yield Share(first, min(size, log.n_rounds - first), size)


def batches(log: AnyLog, share: Share | None = None) -> Iterator[tuple[int, Rows]]:
    """The rows of a log or of a share in their order, with the number of the part that each batch belongs to.

    A cluster is resampled as a whole in the bootstrap. Where there are more rows than clusters, rows are assigned to
    them at random: sums over such clusters vary as rows do, so a few thousand of them show the same spread as a hundred
    million rows. All rows of a user are in one cluster.
    """
    n_clusters, unit, every = cluster_count(log), reward_unit(log), AvailableArms.every(BATCH, log.n_arms)
    begin, part_rows = (0, part_size(log)) if share is None else (share.first, share.part_rows)
    first = begin
    for piece in _decisions(log, share):
        n_rows, start = len(piece.contexts), 0
        while start < n_rows:
            part, offset = divmod(first + start - begin, part_rows)
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


def _decisions(log: AnyLog, share: Share | None) -> Iterator[Decisions]:
    if isinstance(log, LogFile):
        yield from log.decisions() if share is None else log._decisions(share.pieces)
        return
    rows = slice(None) if share is None else slice(share.first, share.first + share.n_rows)
    users = None if log.users is None else log.users[rows]
    available = None if log.available is None else log.available.take(rows)
    columns = (log.contexts[rows], log.arms[rows], log.rewards[rows], log.propensities[rows], users)
    yield Decisions(*columns, positions=None, times=None, available=available)


def cluster_count(log: AnyLog) -> int:
    """The number of clusters: limited by memory, and by the rows where there are no users."""
    most = min(MOST_CLUSTERS, max(256, MOST_SCORES // log.n_arms))
    return most if log.has_users else min(log.n_rounds, most)


def folds_of(n_clusters: int) -> NDArray[np.int64]:
    """A fold for every cluster, 0 or 1 at random."""
    return (scatter(np.arange(n_clusters) + n_clusters) >> np.uint64(63)).astype(np.int64)


def scatter(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A pseudorandom number for every number: the finalizer of SplitMix64 (Steele et al., 2014)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
