"""Anyone's log as a `Log`: one row per decision, with columns for context, arm, reward and propensity, any labels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.data.csv_text import unmarked_table
from alphafair.data.table import Where, as_labels, by_time, column_list, in_order, named_columns, opened, whole
from alphafair.errors import InvalidArgument
from alphafair.values import Indices, Log, Vector
from alphafair.values.available import ALL, MOST_CELLS, AvailableArms, SetNumbers

if TYPE_CHECKING:
    import polars as pl


AVAILABLE = "available"  # the column that is read where a table has it, though nobody named it
EXPORTED = [  # the columns of a log that the engine has written
    *("seq", "id", "context", "arm", "propensity", "reward", "reward_source", "decided_at", "rewarded_at"),
    *("policy_version", "available"),
]
ROW = "\0row"  # where a table keeps the numbers of its rows: no file has a column of that name


class Columns(NamedTuple):
    """The names of a log's columns; None for those that it does not have."""

    context: str
    arm: str
    reward: str
    propensity: str
    time: str | None = None
    user: str | None = None
    position: str | None = None
    available: str | None = None

    def among(self, found: Sequence[str]) -> Columns:
        """Without the column of available arms if nobody named it and the table does not have it."""
        unnamed = self.available == AVAILABLE and (AVAILABLE not in found or AVAILABLE in self[:-1])
        return self._replace(available=None) if unnamed else self


class Table(NamedTuple):
    """A table of decisions, opened but not read."""

    all_rows: pl.LazyFrame  # with their numbers
    label: str
    where: Where
    columns: Columns

    @property
    def rows(self) -> pl.LazyFrame:
        """Those with a reward."""
        import polars as pl

        return self.all_rows.filter(pl.col(self.columns.reward).is_not_null())

    def place_in(self, frame: pl.DataFrame) -> Where:
        """How to name a row of a part of the table."""
        return lambda row: self.where(frame[ROW][row])


def open_table(source: Any, columns: Columns, extra: str | None = None) -> Table:
    """Refuses what has not all of the columns."""
    texts = (columns.context, columns.arm, columns.user, columns.available)
    lazy, label, where = opened(source, [name for name in texts if name is not None])
    found = lazy.collect_schema().names()
    if found == EXPORTED and label.lower().endswith((".csv", ".csv.gz")):
        lazy = unmarked_table(lazy, ["id", "context", "arm"])
    columns = columns.among(found)
    wanted = column_list("columns", [name for name in (*columns, extra) if name is not None])
    for setting, name in columns._asdict().items():
        if name is not None:
            named_columns(label, found, [name], f" ({setting}=, --{setting})")
    if extra is not None:
        named_columns(label, found, [extra], " (id=, --id)")
    return Table(lazy.select(wanted).with_row_index(ROW), label, where, columns)


def read_log(source: Any, columns: Columns) -> Log:
    """The whole of a table, in the order of time if a column of it is named."""
    table = open_table(source, columns)
    columns, frame = table.columns, whole(table.rows, table.label)
    refuse_none(table.label, len(frame))
    contexts, arms = label_codes(frame[columns.context].unique().to_list()), arm_codes(table, frame)
    log = log_of(frame, table, contexts, arms)
    if columns.time is None:
        return log
    order = by_time(frame[columns.time], table.place_in(frame))
    return _reordered(log, order)


def refuse_none(label: str, n_rows: int) -> None:
    if not n_rows:
        repair = "Give one row per decision; rows without a reward do not count."
        raise InvalidArgument(label, "a log with rewarded rows", "none", repair)


def label_codes(labels: Sequence[Any]) -> dict[str, int]:
    """Numbers for labels: whole numbers by size, all else by the alphabet."""
    text = [str(label).lower() if isinstance(label, bool) else str(label) for label in labels if label is not None]
    ordered = in_order(list(dict.fromkeys(text)))  # true and false as polars writes them
    return {label: code for code, label in enumerate(ordered)}


def arm_codes(table: Table, *frames: pl.DataFrame) -> dict[str, int]:
    """Numbers for all arms that were shown, or could have been."""
    columns, labels = table.columns, dict[Any, None]()
    for frame in frames:
        labels |= dict.fromkeys(frame[columns.arm].unique().to_list())
        if columns.available is not None:
            lists, _ = _arm_lists(frame[columns.available], table.place_in(frame))
            labels |= dict.fromkeys(lists.explode().unique().to_list())
    return label_codes(list(labels))


def log_of(frame: pl.DataFrame, table: Table, contexts: Mapping[str, int], arms: Mapping[str, int]) -> Log:
    """The rows of a frame; the first that is wrong is refused by its place."""
    import polars as pl

    columns, where = table.columns, table.place_in(frame)

    def coded(name: str, codes: Mapping[str, int]) -> Any:
        given = frame[name]
        _refuse_null(given, where)
        column = given if given.dtype.is_integer() else as_labels(given, where)  # numbers need not become text
        labels = pl.Series(list(codes)).cast(column.dtype)
        return column.replace_strict(labels, list(codes.values()), return_dtype=pl.Int32).to_numpy()

    extras: dict[str, Any] = {}
    if columns.time is not None and frame[columns.time].dtype.is_temporal():
        moments = frame[columns.time].cast(pl.Datetime("us"))
        _refuse_null(moments, where)
        extras["timestamps"] = moments.to_numpy()
    if columns.user is not None:
        users = as_labels(frame[columns.user], where)
        _refuse_null(users, where)
        extras["users"] = users.hash(seed=0).reinterpret(signed=True).to_numpy()
    if columns.position is not None:
        places = _numbers(frame[columns.position], where, 1.0, 1e6, "a whole number from 1")
        extras["positions"] = places.astype(np.int32)
    shown = coded(columns.arm, arms)
    if columns.available is not None:
        extras["available"] = _available(frame[columns.available], shown, arms, where)
    return Log(
        coded(columns.context, contexts),
        shown,
        _numbers(frame[columns.reward], where, *validate.ANY_REWARD, "a finite number"),
        _numbers(frame[columns.propensity], where, 5e-324, 1.0, "a number in (0, 1]"),
        context_labels=tuple(contexts),
        arm_labels=tuple(arms),
        **extras,
    )


def _available(column: pl.Series, shown: Indices, arms: Mapping[str, int], where: Where) -> AvailableArms:
    """The set of arms of every row, which the shown arm must be in."""
    import polars as pl

    lists, rows = _arm_lists(column, where)
    numbers, n_arms = SetNumbers(len(arms)), len(arms)
    of_lists = [np.empty(0, dtype=np.int32)]
    for first in range(0, len(lists), step := max(1, MOST_CELLS // n_arms)):
        part = lists.slice(first, step)
        codes = part.explode().replace_strict(list(arms), list(arms.values())).to_numpy()
        table = np.zeros((len(part), n_arms), dtype=np.bool_)
        table[np.repeat(np.arange(len(part)), part.list.len().to_numpy()), codes] = True
        of_lists.append(numbers.add(table))
    of_rounds = np.append(np.concatenate(of_lists), np.int32(ALL))[rows]
    found = numbers.available([of_rounds])
    missing = np.flatnonzero(~found.includes(shown))
    if len(missing):
        row = int(missing[0])
        allowed, got = f"a list with the shown arm, {list(arms)[shown[row]]!r}", column[row]
        repair = "Name the arms that the decision was drawn among."
        raise InvalidArgument(
            f"{where(row)}: {column.name}", allowed, got.to_list() if isinstance(got, pl.Series) else got, repair
        )
    return found


def _arm_lists(column: pl.Series, where: Where) -> tuple[pl.Series, NDArray[np.int64]]:
    """The different lists of arms as text, and which of them every row has: -1 where there is none.

    Lists of a column of lists are not compared with each other: there, every row has its own.
    """
    import polars as pl

    allowed = "a list of arms, as JSON in text files, or nothing where every arm could be shown"
    repair = f"Correct it, or name another column (available=, --{AVAILABLE}; None or '' for none)."

    def refusal(row: int) -> InvalidArgument:
        return InvalidArgument(f"{where(row)}: {column.name}", allowed, column[row], repair)

    given = column.drop_nulls()
    if given.dtype in (pl.Categorical, pl.Enum):
        given = given.cast(pl.String)
    present = column.is_not_null().to_numpy()
    rows = np.where(present, np.cumsum(present) - 1, -1)
    if given.dtype == pl.String:
        texts = given.unique()
        parsed = [_parsed(text) for text in texts.to_list()]
        if None in parsed:
            raise refusal(int((column.cast(pl.String) == texts[parsed.index(None)]).arg_max() or 0))
        order = given.replace_strict(texts, range(len(texts)), return_dtype=pl.Int64).to_numpy()
        rows[present], given = order, pl.Series(parsed, dtype=pl.List(pl.String))
    try:
        lists = given.cast(pl.List(pl.String)) if given.dtype.is_nested() or not len(given) else None
    except pl.exceptions.PolarsError:
        lists = None
    if lists is None:
        raise refusal(int(present.argmax()))
    wrong = ((lists.list.len() == 0) | lists.list.eval(pl.element().is_null()).list.any()).arg_true()
    if len(wrong):
        raise refusal(int((rows == wrong[0]).argmax()))
    return lists, rows


def _parsed(text: str) -> list[str] | None:
    """The labels of a JSON array; None where it is no such thing."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    if not isinstance(value, list) or not all(isinstance(each, str | int | float) for each in value):
        return None
    return [json.dumps(each) if not isinstance(each, str) else each for each in value]


def _numbers(column: pl.Series, where: Where, low: float, high: float, allowed: str) -> Vector:
    import polars as pl

    readable = column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)
    numbers = (column if readable else column.cast(pl.String, strict=False)).cast(pl.Float64, strict=False)
    wrong = (~numbers.is_between(low, high).fill_null(False)).arg_true()  # false for NaN as well
    if len(wrong):
        repair = "Correct it, leave that row out, or name the right column."
        raise InvalidArgument(f"{where(wrong[0])}: {column.name}", allowed, column[wrong[0]], repair)
    return numbers.to_numpy()


def _refuse_null(column: pl.Series, where: Where) -> None:
    empty = column.is_null().arg_true()
    if len(empty):
        repair = "Fill it in or leave that row out."
        raise InvalidArgument(f"{where(empty[0])}: {column.name}", "a value", None, repair)


def _reordered(log: Log, order: Any) -> Log:
    """The same decisions in another order."""
    rows = ("contexts", "arms", "rewards", "propensities", "timestamps", "users", "positions")
    given = {name: getattr(log, name) for name in rows}
    columns: dict[str, Any] = {name: column if column is None else column[order] for name, column in given.items()}
    available = None if log.available is None else log.available.take(order)
    return Log(**columns, available=available, context_labels=log.context_labels, arm_labels=log.arm_labels)
