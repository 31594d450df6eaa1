"""The rows of a log in memory or in a file: batches of them, and their clusters for the bootstrap."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial, reduce
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.extras import polars as pl
from alphafair.tables import count_rows, open_table, refuse_other_columns, table_files
from alphafair.tasks import in_order
from alphafair.values import Log
from alphafair.values.arrays import Indices
from alphafair.values.available import AvailableArms
from alphafair.values.log import entries_per_decision, refuse_slates, refuse_unknown_propensities
from alphafair.values.log_table import AVAILABLE, Decisions, Labels, LogColumns, LogTable

Advance = Callable[[int], None]  # called with the number of rows, or replicates, that were processed
LEAST_PROPENSITY = 1e-100  # so that squares of weights are finite
BATCH = 1 << 18  # rows at once
PART = 1 << 20  # rows whose sums are begun anew, at least
PIECE = 1 << 20  # rows of a Parquet file that are read at a time
PART_PER_CELL = 8  # rows of a part per context and arm, at least: merging its sums takes less than making them
LONGEST = 4096  # rows after the end of a piece in which its last decision must end, or the next piece is joined to it
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
        table, decision = self.open(), self.columns.decision
        frames = table.rewarded.batches() if decision is None else _rewarded(table, decision)
        for frame in frames:
            if len(frame):
                yield table, frame

    def scan(self) -> Scanned:
        """Check the rows, and find what all workers must know of them."""
        checks, found = self.columns.checks(), Scanned({}, {}, 0, -math.inf, {})
        for table, frame in self.frames():
            contexts, arms = table.labels_in(frame)
            rewards, propensities = (table.table.column(frame, checks[name]) for name in ("reward", "propensity"))
            self._at_least(checks["reward"].name, rewards.min(), 0.0, "Map the rewards onto [0, 1] first.")
            self._at_least(checks["propensity"].name, propensities.min(), LEAST_PROPENSITY, IMPROBABLE)
            most_shown = {} if self.columns.decision is None else self._most_shown(table, frame, contexts, arms)
            found = found.merge(Scanned(contexts, arms, len(frame), rewards.to_numpy().max(), most_shown))
        return found

    def _most_shown(
        self, table: LogTable, frame: Any, contexts: dict[Any, None], arms: dict[Any, None]
    ) -> dict[str, int]:
        """The most arms that a decision of each context shows; a log checks that the rows of decisions agree."""
        labels = Labels.of(contexts, arms)
        log = Log.from_decisions(table.decode(frame, labels), labels)
        return dict(zip(labels.contexts, log.most_shown.tolist(), strict=True))

    def _at_least(self, name: str, value: Any, low: float, repair: str) -> None:
        if value < low:
            raise InvalidArgument(f"{self.path}: {name}", f"at least {low:g}", float(value), repair)


class Scanned(NamedTuple):
    """The labels of contexts and arms, the number of rows with a reward, the greatest reward, and the most arms that a
    decision of each context shows, where decisions may show several."""

    contexts: dict[Any, None]
    arms: dict[Any, None]
    n_rows: int
    most_reward: float
    most_shown: dict[str, int]

    def merge(self, later: Scanned) -> Scanned:
        most = max(self.most_reward, later.most_reward)
        shown = dict(self.most_shown)
        for label, k in later.most_shown.items():
            shown[label] = max(k, shown.get(label, 1))
        contexts, arms = self.contexts | later.contexts, self.arms | later.arms
        return Scanned(contexts, arms, self.n_rows + later.n_rows, most, shown)


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
        decision: str | None = None,
        executor: Executor | None = None,
    ) -> None:
        files = [each.absolute() for each in table_files(Path(path))]
        asked = LogColumns(context, arm, reward, propensity, user=user, available=available, decision=decision)
        first, others = LogTable.open(files[0], asked), (open_table(file) for file in files[1:])
        for other in others:
            refuse_other_columns(other, open_table(files[0]))
        self.has_users, self.has_available = user is not None, first.columns.available is not None
        self._pieces = [piece for file in files for piece in _pieces(file, first.columns)]
        scanned = list(in_order([piece.scan for piece in self._pieces], executor))
        found = reduce(Scanned.merge, scanned)
        self.has_decisions = first.columns.decision is not None
        self._rewarded = [each.n_rows for each in scanned]
        self.n_rounds, self.most_reward = found.n_rows, found.most_reward
        first.refuse_empty(self.n_rounds)
        self.labels = Labels.of(found.contexts, found.arms)
        self.context_labels, self.arm_labels = (tuple(each) for each in self.labels)
        self.n_contexts, self.n_arms = len(self.context_labels), len(self.arm_labels)
        self.most_shown = np.array([found.most_shown.get(label, 1) for label in self.labels.contexts], dtype=np.int32)

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
    firsts = [0, *(_next_decision(file, columns, first) for first in range(PIECE, n_rows, PIECE))]
    for first, last in pairwise(sorted({*firsts, n_rows} - {-1})):
        yield Piece(file, columns, first, last - first)


def _next_decision(file: Path, columns: LogColumns, row: int) -> int:
    """The first row from `row` on that begins a decision; -1 if there is none near."""
    if columns.decision is None:
        return row
    near = open_table(file).select(columns.decision, first=row - 1, n_rows=LONGEST).read()[columns.decision]
    length = int((near.rle_id() == 0).sum())  # of what is left of the decision before
    return row - 1 + length if length < len(near) else -1


def _rewarded(table: LogTable, decision: str) -> Iterator[Any]:
    """Batches of the rows with a reward; no decision is in two of them."""
    rest: Any = None
    for frame in table.table.batches():
        whole = frame if rest is None else pl.concat([rest, frame])
        if len(whole):
            runs = whole[decision].rle_id()
            cut = int((runs < runs[-1]).sum())
            rest = whole[cut:]
            yield whole[:cut].filter(table.has_reward)
    if rest is not None:
        yield rest.filter(table.has_reward)


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
    refuse_unknown_propensities(log)
    if log.propensities.min() < LEAST_PROPENSITY:
        row = int(log.propensities.argmin())
        argument, got = f"log.propensities[{row}]", float(log.propensities[row])
        raise InvalidArgument(argument, f"at least {LEAST_PROPENSITY:g}", got, IMPROBABLE)


def check_in_memory(log: object) -> Log:
    """Check that a policy can learn from the rows in their order."""
    if not isinstance(log, Log):
        raise InvalidArgument("log", "a Log", log, "Make one with Log.from_table: a policy learns from rows in order.")
    return log


def check_single(log: AnyLog) -> None:
    """Check that every decision shows one arm."""
    if isinstance(log, Log):
        refuse_slates(log)
    elif (log.most_shown > 1).any():
        got = f"{log.most_shown.max()} arms in a decision"
        raise InvalidArgument("log", "one with one arm per decision", got, "Use evaluate.")


def most_reward(log: AnyLog) -> float:
    return log.most_reward if isinstance(log, LogFile) else float(log.values.max())


def reward_unit(log: AnyLog) -> float:
    """The power of two at or just below the greatest reward; 1 where all rewards are 0.

    Rewards are added up in this unit, so that their squares neither overflow nor underflow, and a log whose rewards are
    multiplied by a power of two gives the same digits.
    """
    most = most_reward(log)
    return math.ldexp(1.0, math.frexp(most)[1] - 1) if 0.0 < most < math.inf else 1.0


def select_rows(log: Log, rows: Any, least: float = 0.0) -> Log:
    """Some rows of a log, with propensities raised to at least `least`."""
    columns = (log.contexts, log.arms, log.values, np.maximum(log.propensities, least))
    features = None if log.features is None else log.features[rows]
    available = None if log.available is None else log.available.take(rows)
    return Log(
        *(column[rows] for column in columns),
        n_contexts=log.n_contexts,
        n_arms=log.n_arms,
        features=features,
        available=available,
        decisions=None if log.decisions is None else log.decisions[rows],
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
    shown: Any  # the number of arms that the decision of each row shows
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

    A cluster is resampled as a whole in the bootstrap: all rows of a user, or else of a decision, are in one. Where
    there are more rows than clusters, rows are assigned to them at random: sums over such clusters vary as rows do, so
    a few thousand of them show the same spread as a hundred million rows.
    """
    n_clusters, unit, every = cluster_count(log), reward_unit(log), AvailableArms.every(BATCH, log.n_arms)
    ones = np.ones(BATCH, dtype=np.int32)
    begin, part_rows = (0, part_size(log)) if share is None else (share.first, share.part_rows)
    first = begin
    for piece, n_shown in _decisions(log, share):
        n_rows, start = len(piece.contexts), 0
        while start < n_rows:
            part, offset = divmod(first + start - begin, part_rows)
            stop = min(start + BATCH, start + part_rows - offset, n_rows)
            rows = slice(start, stop)
            units = piece.decisions if piece.users is None else piece.users
            own = np.arange(first + start, first + stop) if units is None else units[rows]
            is_own = units is None and log.n_rounds <= n_clusters
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
            shown = ones[: stop - start] if n_shown is None else n_shown[rows]
            yield part, Rows(*columns, clusters, of_rounds, sets, shown, first + start)
            start = stop
        first += n_rows


def _decisions(log: AnyLog, share: Share | None) -> Iterator[tuple[Decisions, Indices | None]]:
    """The rows in batches, with the number of arms that the decision of each shows; None where all show one."""
    if isinstance(log, LogFile):
        for piece in log.decisions() if share is None else log._decisions(share.pieces):
            yield piece, None if piece.decisions is None else entries_per_decision(piece.decisions)
        return
    rows = slice(None) if share is None else slice(share.first, share.first + share.n_rows)
    users = None if log.users is None else log.users[rows]
    available = None if log.available is None else log.available.take(rows)
    columns = (log.contexts[rows], log.arms[rows], log.values[rows], log.propensities[rows], users)
    decisions, shown = (None, None) if log.decisions is None else (log.decisions[rows], log.n_shown[rows])
    yield Decisions(*columns, positions=None, times=None, available=available, decisions=decisions), shown


def cluster_count(log: AnyLog) -> int:
    """The number of clusters: limited by memory, and by the rows where there are neither users nor decisions."""
    most = min(MOST_CLUSTERS, max(256, MOST_SCORES // log.n_arms))
    return most if log.has_users or has_decisions(log) else min(log.n_rounds, most)


def has_decisions(log: AnyLog) -> bool:
    """Whether rows say which decision they are of."""
    return log.has_decisions if isinstance(log, LogFile) else log.decisions is not None


def folds_of(n_clusters: int) -> NDArray[np.int64]:
    """A fold for every cluster, 0 or 1 at random."""
    return (scatter(np.arange(n_clusters) + n_clusters) >> np.uint64(63)).astype(np.int64)


def scatter(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A pseudorandom number for every number: the finalizer of SplitMix64 (Steele et al., 2014)."""
    x = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
