"""Tables of decisions: one row per decision, with columns for context, arm, reward and propensity, and any labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.extras import polars as pl
from alphafair.tables import (
    ROW,
    Column,
    Table,
    Where,
    as_labels,
    column_names,
    different_labels,
    encode,
    is_label_type,
    is_text_type,
    label_codes,
    open_table,
    unescape_table,
    value_at,
)
from alphafair.values.arrays import Indices, Vector
from alphafair.values.available import ALL, MOST_CELLS, AvailableArms, SetNumbers
from alphafair.values.features import FEATURE, OPTIONAL, OTHER, FeatureSchema

AVAILABLE = "available"  # the column that is read by default where a table has it
EXPORTED = [  # the columns of a log that an engine exports
    *("seq", "id", "context", "arm", "propensity", "reward", "reward_source", "decided_at", "rewarded_at"),
    *("period", "policy_version", "available"),
]
SOURCE, BUCKET = "source", "bucket"  # columns of an exported log of several sources
EXPORTED_EARLIER = [name for name in EXPORTED if name != "period"]  # by versions without periods
EXPORTED_SLATES = [*EXPORTED[:5], "slot", "k", *EXPORTED[5:]]  # where some decision showed several arms
FILL_IN = "Fill it in or delete that row."
REPAIR = "Correct it, delete that row, or pass the name of another column."
DATES = "Write dates as 2024-05-31 or 2024-05-31T12:00:00, all in one form."


class LogColumns(NamedTuple):
    """The names of a log's columns; None for a column that it does not have."""

    context: str
    arm: str
    reward: str
    propensity: str | None
    time: str | None = None
    user: str | None = None
    position: str | None = None
    exposure: str | None = None
    available: str | None = None
    id: str | None = None
    decision: str | None = None

    def checks(self) -> dict[str, Column]:
        """The columns of single values, with their allowed values and repairs, by what they hold."""
        found = {
            "context": Column(self.context, repair=FILL_IN),
            "arm": Column(self.arm, repair=FILL_IN),
            "reward": Column(self.reward, "number", *validate.ANY_REWARD, repair=REPAIR),
        }
        if self.propensity is not None:
            allowed = "a number in (0, 1]"
            found["propensity"] = Column(self.propensity, "number", 0.0, 1.0, allowed, REPAIR, low_open=True)
        if self.time is not None:
            found["time"] = Column(self.time, "time", repair=DATES)
        if self.user is not None:
            found["user"] = Column(self.user, repair=FILL_IN)
        if self.position is not None:
            found["position"] = Column(self.position, "integer", 1.0, 1e6, "an integer of at least 1", REPAIR)
        if self.exposure is not None:
            found["exposure"] = Column(
                self.exposure, "number", validate.LEAST_EXPOSURE, 1.0, "a number in (0, 1]", REPAIR
            )
        return found


class Labels(NamedTuple):
    """The numbers of contexts and arms, by label."""

    contexts: dict[str, int]
    arms: dict[str, int]

    @classmethod
    def of(cls, contexts: Iterable[str], arms: Iterable[str]) -> Labels:
        return cls(label_codes(contexts), label_codes(arms))


class Decisions(NamedTuple):
    """Rows of a table of decisions, with contexts and arms as numbers."""

    contexts: Indices
    arms: Indices
    rewards: Vector
    propensities: Vector
    users: NDArray[np.int64] | None
    positions: Indices | None
    times: pl.Series | None
    available: AvailableArms | None
    decisions: NDArray[np.int64] | None = None
    features: NDArray[np.float64] | None = None  # as columns of their schema
    exposures: Vector | None = None


@dataclass(frozen=True)
class LogTable:
    """A table of decisions that was opened and not yet read."""

    table: Table  # rows with a reward or without, with their numbers
    columns: LogColumns
    features: FeatureSchema | None = None
    own: bool = False  # rows of an export with a source are left out

    @classmethod
    def open(
        cls,
        source: Any,
        columns: LogColumns,
        first: int = 0,
        n_rows: int | None = None,
        features: FeatureSchema | None = None,
    ) -> LogTable:
        """Open a table, or `n_rows` rows of it from `first` on, and refuse one that lacks a column."""
        named = [name for name in columns if name is not None]
        described = () if features is None else features.names
        table = open_table(source, [*named, *described, *(FEATURE + name for name in described)])
        found = table.columns
        without_features = [name for name in found if not name.startswith(FEATURE)]
        of_sources = without_features[-2:] == [SOURCE, BUCKET]
        without_features = without_features[:-2] if of_sources else without_features
        exported = without_features in (EXPORTED, EXPORTED_EARLIER, EXPORTED_SLATES)
        if without_features == EXPORTED_SLATES and columns.decision is None:
            columns = columns._replace(decision="seq", position=columns.position or "slot")
        if exported and table.label.lower().endswith((".csv", ".csv.gz")):
            texts = [FEATURE + name for name in described if features is not None and features.codes(name)]
            table = unescape_table(table, ["id", "context", "arm", *(name for name in texts if name in found)])
        optional = AVAILABLE not in found or AVAILABLE in (*columns[:-3], columns.id, columns.decision)
        if columns.available == AVAILABLE and optional:
            columns = columns._replace(available=None)
        for option, name in columns._asdict().items():
            if name is not None:
                table.require([name], f" ({option}=)")
        wanted = column_names("columns", [name for name in columns[:-1] if name is not None])
        if columns.decision is not None and columns.decision not in wanted:  # decisions may have the column of ids
            wanted.append(columns.decision)
        for name in described:
            own = feature_column(name, found)
            table.require([own], f" (features={name!r})")
            if own not in wanted:
                wanted.append(own)
        only_own = exported and of_sources
        if only_own and SOURCE not in wanted:
            wanted.append(SOURCE)
        table = table.select(*wanted, row_numbers=True, first=first, n_rows=n_rows)
        types, single = table.rows.collect_schema(), list(columns.checks().values())
        for column in [*single, *(Column(name) for name in (columns.id, columns.decision) if name is not None)]:
            column.refuse_type(types[column.name], table.label)
        return cls(table, columns, features, only_own)

    @property
    def has_reward(self) -> pl.Expr:
        """Whether a row has a reward, and all other rows of its decision as well; in an export, own decisions alone."""
        found = pl.col(self.columns.reward).is_not_null()
        if self.own:
            found &= pl.col(SOURCE).is_null()
        return found if self.columns.decision is None else found.all().over(pl.col(self.columns.decision).rle_id())

    @property
    def rewarded(self) -> Table:
        """The rows with a reward."""
        return self.table._replace(rows=self.table.rows.filter(self.has_reward))

    def where(self, frame: pl.DataFrame) -> Where:
        """How errors name the rows of a frame of this table."""
        numbers = frame[ROW]
        return lambda row: self.table.where(int(numbers[row]))

    def labels_in(self, frame: pl.DataFrame) -> tuple[dict[str, None], dict[str, None]]:
        """The different labels of contexts, and of arms that were shown or available."""
        columns = self.columns
        contexts, arms = (dict.fromkeys(different_labels(frame[name])) for name in (columns.context, columns.arm))
        if columns.available is not None:
            lists = _arm_lists(frame[columns.available], self.where(frame))
            arms |= dict.fromkeys(different_labels(lists.labels))
        return contexts, arms

    def decode(self, frame: pl.DataFrame, labels: Labels) -> Decisions:
        """The rows of a frame as numbers; an error names the first row that is wrong."""
        checks = self.columns.checks()

        def read(name: str) -> pl.Series:
            return self.table.column(frame, checks[name])

        def coded(name: str, codes: Mapping[str, int]) -> Indices:
            given = frame[checks[name].name]
            return encode(given if given.dtype.is_integer() and not given.null_count() else read(name), codes)

        users = read("user").hash(seed=0).reinterpret(signed=True).to_numpy() if "user" in checks else None
        positions = read("position").to_numpy().astype(np.int32) if "position" in checks else None
        contexts, arms = coded("context", labels.contexts), coded("arm", labels.arms)
        available = None
        if self.columns.available is not None:
            available = _available(frame[self.columns.available], arms, labels.arms, self.where(frame))
        times = read("time") if "time" in checks else None
        rewards = read("reward").to_numpy()
        known = "propensity" in checks
        propensities = read("propensity").to_numpy() if known else np.full(len(rewards), np.nan)
        decisions = None
        if self.columns.decision is not None:
            given = self.table.column(frame, Column(self.columns.decision, repair=FILL_IN))
            decisions = given.hash(seed=0).reinterpret(signed=True).to_numpy()
        described = None if self.features is None else _features(self.table, frame, self.features, self.where(frame))
        exposures = read("exposure").to_numpy() if "exposure" in checks else None
        columns = (contexts, arms, rewards, propensities, users, positions, times, available, decisions, described)
        return Decisions(*columns, exposures)

    def read(self) -> tuple[Decisions, Labels]:
        """The whole table, in the order of time where it has a column of times."""
        frame = self.rewarded.read()
        self.refuse_empty(len(frame))
        labels = Labels.of(*self.labels_in(frame))
        found = self.decode(frame, labels)
        if found.times is None:
            return found, labels
        return in_order(found, np.argsort(found.times.to_physical().to_numpy(), kind="stable")), labels

    def refuse_empty(self, n_rows: int) -> None:
        if not n_rows:
            repair = "Pass one row per decision; rows without a reward do not count."
            raise InvalidArgument(self.table.label, "a log with rewarded rows", "none", repair)


def feature_column(name: str, columns: Sequence[str]) -> str:
    """The column of a feature: `feature.age` in an exported log, `age` otherwise."""
    return FEATURE + name if FEATURE + name in columns else name


def _features(table: Table, frame: pl.DataFrame, schema: FeatureSchema, where: Where) -> NDArray[np.float64]:
    """The features of every row, as a policy gets them; an error names the first row that is wrong."""
    stored = []
    for name, kind in schema.declared.items():
        column, codes = feature_column(name, frame.columns), schema.codes(name)
        Column(column, "label" if codes else "number").refuse_type(frame.schema[column], table.label)
        if codes is not None:
            labels = Column(column).convert(frame[column])
            found = labels.replace_strict(codes, default=codes.get(OTHER), return_dtype=pl.Float64)
            repair = f'Correct it, or declare "{OTHER}" among the labels: it takes all others.'
            check = Column(column, allowed=f"one of {validate.listed(codes)}", repair=repair)
        else:
            repair = f'Correct it, or declare it as "{OPTIONAL}" if it may be missing.'
            allowed = f"a finite number of at most {validate.ANY_FEATURE:g} in size"
            check = Column(column, "number", -validate.ANY_FEATURE, validate.ANY_FEATURE, allowed, repair)
            found = check.convert(frame[column], table.decimal_comma)
        wrong = found.is_null() & (as_labels(frame[column]).is_not_null() if kind == OPTIONAL else True)
        if wrong.any():
            raise check.error(frame[column], int(wrong.arg_max() or 0), where, table.decimal_comma)
        stored.append(found.cast(pl.Float64).to_numpy())
    return schema.encoded(np.column_stack(stored))


def in_order(found: Decisions, order: NDArray[np.intp]) -> Decisions:
    """The same decisions in another order."""

    columns: dict[str, Any] = found._asdict()
    available = columns.pop("available")
    taken: dict[str, Any] = {name: None if column is None else column[order] for name, column in columns.items()}
    return Decisions(**taken, available=None if available is None else available.take(order))


def _available(column: pl.Series, shown: Indices, arms: Mapping[str, int], where: Where) -> AvailableArms:
    """The set of available arms of every row, which must contain the shown arm."""

    lists = _arm_lists(column, where)
    numbers, n_arms = SetNumbers(len(arms)), len(arms)
    of_lists = [np.empty(0, dtype=np.int32)]
    for lengths, labels in lists.parts(max(1, MOST_CELLS // n_arms)):
        table = np.zeros((len(lengths), n_arms), dtype=np.bool_)
        table[np.repeat(np.arange(len(lengths)), lengths), encode(labels, arms)] = True
        of_lists.append(numbers.add(table))
    of_rounds = np.append(np.concatenate(of_lists), np.int32(ALL))[lists.of_rows]
    found = numbers.available([of_rounds])
    missing = np.flatnonzero(~found.includes(shown))
    if len(missing):
        row = int(missing[0])
        allowed, got = f"a list with the shown arm, {list(arms)[shown[row]]!r}", value_at(column, row)
        repair = "List all arms that the decision was drawn among."
        raise InvalidArgument(f"{where(row)}: {column.name}", allowed, got, repair)
    return found


class ArmLists(NamedTuple):
    """Lists of arms: the labels of all of them, one after the other, and which list every row has: -1 for none."""

    labels: pl.Series
    lengths: NDArray[np.int64]
    of_rows: NDArray[np.int64]

    def parts(self, size: int) -> Iterator[tuple[NDArray[np.int64], pl.Series]]:
        """The lists, some at a time: their lengths, and their labels."""
        ends = np.append(0, np.cumsum(self.lengths))
        for first in range(0, len(self.lengths), size):
            begin, end = ends[first], ends[min(first + size, len(self.lengths))]
            yield self.lengths[first : first + size], self.labels[begin:end]


def _arm_lists(column: pl.Series, where: Where) -> ArmLists:
    """The lists of arms of a column; equal lists are one only if they are JSON."""

    def error(row: int) -> InvalidArgument:
        allowed = "a list of arms, in a text file as a JSON array, or empty where every arm was available"
        repair = "Correct it, or choose another column (available=; None or '' for none)."
        return InvalidArgument(f"{where(row)}: {column.name}", allowed, value_at(column, row), repair)

    is_text = is_text_type(column.dtype)
    given = as_labels(column) if is_text else column
    present = given.is_not_null().to_numpy()
    rows = np.where(present, np.cumsum(present) - 1, -1)
    given = given.drop_nulls()
    if is_text:
        texts = given.unique(maintain_order=True)
        parsed = [_parsed(text) for text in texts.to_list()]
        if None in parsed:
            raise error(int((as_labels(column) == texts[parsed.index(None)]).arg_max() or 0))
        rows[present] = given.replace_strict(texts, range(len(texts)), return_dtype=pl.Int64).to_numpy()
        given = pl.Series(parsed, dtype=pl.List(pl.String))
    if isinstance(given.dtype, pl.Array):
        given = given.arr.to_list()
    if not isinstance(given.dtype, pl.List) or not is_label_type(given.dtype.inner):
        raise error(int(present.argmax()))
    lengths = given.list.len().to_numpy().astype(np.int64)
    labels = given.filter(pl.Series(lengths > 0)).explode()
    labels = labels if labels.dtype.is_integer() else as_labels(labels)
    gaps = np.repeat(np.arange(len(lengths)), lengths)[labels.is_null().to_numpy()]
    wrong = np.append(np.flatnonzero(lengths == 0), gaps)
    if len(wrong):
        raise error(int(np.isin(rows, wrong).argmax()))
    return ArmLists(labels, lengths, rows)


def _parsed(text: str) -> list[str] | None:
    """The labels of a JSON array, numbers as they are written; None where the text is not one."""
    try:
        value = json.loads(text, parse_int=str, parse_float=str)
        if not isinstance(value, list) or not all(isinstance(each, str | bool) for each in value):
            return None
        labels = [json.dumps(each) if isinstance(each, bool) else each for each in value]
        "".join(labels).encode()  # an error for half of a surrogate pair
    except (ValueError, RecursionError):
        return None
    return labels
