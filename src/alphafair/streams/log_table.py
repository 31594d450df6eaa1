"""Anyone's log as a `Log`: one row per decision, with columns for context, arm, reward and propensity, any labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alphafair import validate
from alphafair.streams.table import Where, as_labels, by_time, collected, column_list, in_order, named_columns, opened
from alphafair.types import Log, Vector

if TYPE_CHECKING:
    import polars as pl


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


def open_table(source: Any, columns: Columns, extra: str | None = None) -> Table:
    """Refuses what has not all of the columns."""
    wanted = [name for name in (*columns, extra) if name is not None]
    column_list("columns", wanted)
    labels = [name for name in (columns.context, columns.arm, columns.user) if name is not None]
    lazy, label, where = opened(source, labels)
    found = lazy.collect_schema().names()
    for setting, name in columns._asdict().items():
        if name is not None:
            named_columns(label, found, [name], f" ({setting}=, --{setting})")
    if extra is not None:
        named_columns(label, found, [extra], " (id=, --id)")
    return Table(lazy.select(wanted).with_row_index(ROW), label, where, columns)


def read_log(source: Any, columns: Columns) -> Log:
    """The whole of a table, in the order of time if a column of it is named."""
    table = open_table(source, columns)
    frame = collected(table.rows, table.label)
    refuse_none(table.label, len(frame))
    contexts, arms = (label_codes(frame[name].unique().to_list()) for name in columns[:2])
    log = log_of(frame, table, contexts, arms)
    if columns.time is None:
        return log
    order = by_time(frame[columns.time], lambda row: table.where(frame[ROW][row]))
    return _reordered(log, order)


def refuse_none(label: str, n_rows: int) -> None:
    if not n_rows:
        repair = "Give one row per decision; rows without a reward do not count."
        raise validate.Refusal(label, "a log with rewarded rows", "none", repair)


def label_codes(labels: Sequence[Any]) -> dict[str, int]:
    """Numbers for labels: whole numbers by size, all else by the alphabet."""
    text = [str(label).lower() if isinstance(label, bool) else str(label) for label in labels if label is not None]
    ordered = in_order(text)  # true and false as polars writes them
    return {label: code for code, label in enumerate(ordered)}


def log_of(frame: pl.DataFrame, table: Table, contexts: Mapping[str, int], arms: Mapping[str, int]) -> Log:
    """The rows of a frame; the first that is wrong is refused by its place."""
    import polars as pl

    columns = table.columns

    def where(row: int) -> str:
        return table.where(frame[ROW][row])

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
    return Log(
        coded(columns.context, contexts),
        coded(columns.arm, arms),
        _numbers(frame[columns.reward], where, *validate.ANY_REWARD, "a finite number"),
        _numbers(frame[columns.propensity], where, 5e-324, 1.0, "a number in (0, 1]"),
        context_labels=tuple(contexts),
        arm_labels=tuple(arms),
        **extras,
    )


def _numbers(column: pl.Series, where: Where, low: float, high: float, allowed: str) -> Vector:
    import polars as pl

    readable = column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)
    numbers = (column if readable else column.cast(pl.String, strict=False)).cast(pl.Float64, strict=False)
    wrong = (~numbers.is_between(low, high).fill_null(False)).arg_true()  # false for NaN as well
    if len(wrong):
        repair = "Correct it, leave that row out, or name the right column."
        raise validate.Refusal(f"{where(wrong[0])}: {column.name}", allowed, column[wrong[0]], repair)
    return numbers.to_numpy()


def _refuse_null(column: pl.Series, where: Where) -> None:
    empty = column.is_null().arg_true()
    if len(empty):
        repair = "Fill it in or leave that row out."
        raise validate.Refusal(f"{where(empty[0])}: {column.name}", "a value", None, repair)


def _reordered(log: Log, order: Any) -> Log:
    """The same decisions in another order."""
    rows = ("contexts", "arms", "rewards", "propensities", "timestamps", "users", "positions")
    given = {name: getattr(log, name) for name in rows}
    columns: dict[str, Any] = {name: column if column is None else column[order] for name, column in given.items()}
    return Log(**columns, context_labels=log.context_labels, arm_labels=log.arm_labels)
