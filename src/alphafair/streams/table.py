"""Anyone's own rounds as a stream: one row a round, one column for the context, one column of rewards an arm."""

from __future__ import annotations

import csv
import difflib
import gzip
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from alphafair import validate
from alphafair.types import Matrix, Stream

if TYPE_CHECKING:
    import polars as pl

_FORMATS = ".csv, .tsv, .csv.gz, .parquet, .arrow, .ipc or .feather"


def table(
    source: Any, *, context: str = "context", arm_columns: Sequence[str] | None = None, time: str | None = None
) -> Stream:
    """A stream from a table in a file or in memory.

    Parameters
    ----------
    source
        A path (.csv, .tsv, .csv.gz, .parquet, .arrow, .ipc, .feather), a polars DataFrame or LazyFrame, a pandas
        DataFrame, any Arrow table, or a mapping of columns.
    context
        The column that says who or what is served: any labels, text or numbers. Contexts are numbered in their
        order, whole numbers by size and all else by the alphabet.
    arm_columns
        The columns of rewards, one an arm, in the order that the arms shall have. By default all other columns, and
        then each of them must hold numbers.
    time
        A column of numbers or dates to sort the rounds by; rows of equal time keep their order. By default the
        rounds come in the order of the rows.

    >>> stream = table({"context": ["new", "old", "new"], "jazz": [1, 0, 0.2], "rock": [0, 1, 1]})
    >>> stream.context_labels, stream.arm_labels, stream.contexts.tolist(), stream.rewards(2).tolist()
    (('new', 'old'), ('jazz', 'rock'), [0, 1, 0], [0.2, 1.0])
    """
    import polars as pl

    lazy, label, first_line = _opened(source, context)
    columns = lazy.collect_schema().names()
    twice = [name for name in columns if f"{name}_duplicated_0" in columns]  # so polars renames the second of two
    if twice:
        raise validate.refusal(f"{label}: columns", "different names", twice, "Rename all but one of them.")
    special = [context] if time is None else [context, time]
    named_columns(label, columns, special[:1], " (context, --context)")
    named_columns(label, columns, special[1:], " (time, --time)")
    arms = [name for name in columns if name not in special] if arm_columns is None else _arm_list(arm_columns)
    named_columns(label, columns, arms, " (arm_columns, --arm)")
    if not arms:
        repair = "Add one column of rewards an arm."
        raise validate.refusal(f"{label}: columns", "the context and at least one arm", columns, repair)
    frame = collected(lazy.select(list(dict.fromkeys([*special, *arms]))), label)
    if not len(frame):
        got = "none" if first_line is None else "a header alone"
        raise validate.refusal(label, "a table with rows", got, "Give one row a round.")

    _refuse_empty(frame, label, first_line, special)
    rewards = _rewards(frame, label, first_line, arms)
    names = frame[context].cast(pl.String)
    labels = _in_order(names.unique().to_list())
    contexts = names.replace_strict(labels, range(len(labels)), return_dtype=pl.Int32).to_numpy()
    rows = np.arange(len(frame)) if time is None else _by_time(frame[time], label, first_line)
    return Stream(contexts[rows], rows.astype(np.int32), rewards, tuple(labels), tuple(arms))


def scan(path: Path, **text: Any) -> pl.LazyFrame:
    """A file of rows, opened lazily by its extension; `text` are settings for CSV."""
    import polars as pl

    if not path.is_file():
        got = "a folder" if path.is_dir() else "none of that name"
        raise validate.refusal(str(path), "a file", got, "Correct the path.")
    readers: dict[str, Any] = {
        ".csv": lambda: pl.scan_csv(path, **text),
        ".csv.gz": lambda: pl.scan_csv(path, **text),
        ".tsv": lambda: pl.scan_csv(path, separator="\t", **text),
        ".parquet": lambda: pl.scan_parquet(path),
        ".arrow": lambda: pl.scan_ipc(path),
        ".ipc": lambda: pl.scan_ipc(path),
        ".feather": lambda: pl.scan_ipc(path),
    }
    for extension, reader in readers.items():
        if path.name.lower().endswith(extension):
            if not path.stat().st_size:
                raise _empty(str(path))
            try:
                lazy: pl.LazyFrame = reader()
                lazy.collect_schema()
            except (pl.exceptions.PolarsError, OSError) as problem:
                raise _unreadable(str(path), problem) from problem
            return lazy
    raise validate.refusal(str(path), f"a file that ends in {_FORMATS}", path.suffix, "Save it as one of these.")


def named_columns(label: str, columns: Sequence[str], wanted: Sequence[str], setting: str = "") -> None:
    """All of them must be there; where one is not, say which column comes closest, or which setting names it."""
    for name in wanted:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
            repair = f"Did you mean {close[0]!r}?" if close else f"Name the column that you mean{setting}."
            if len(columns) == 1 and ";" in columns[0]:
                repair = "Save it with commas between the columns."
            raise validate.refusal(f"{label}: columns", f"names with {name!r} among them", list(columns), repair)


def collected(lazy: pl.LazyFrame, label: str) -> pl.DataFrame:
    """The rows themselves; where a line has too many fields, say which."""
    import polars as pl

    try:
        return lazy.collect()
    except (pl.exceptions.PolarsError, OSError) as problem:
        raise _ragged(Path(label)) or _unreadable(label, problem) from problem


def place(path: Path, row: int) -> str:
    """Where a row of a file is, counted from 0: by its line in a text file."""
    return _row(str(path), 2 if _is_text(path) else None, row)


def _is_text(path: Path) -> bool:
    return path.name.lower().endswith((".csv", ".tsv", ".csv.gz"))


def _ragged(path: Path) -> ValueError | None:
    """The first line of a text file that has more fields than the header, as a refusal."""
    if not _is_text(path):
        return None
    name = path.name.lower()
    opened: Any = gzip.open if name.endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        lines = csv.reader(file, delimiter="\t" if name.endswith(".tsv") else ",")
        n_columns = len(next(lines))
        for fields in lines:
            if len(fields) > n_columns:
                repair = "Delete what is too much, or put quotes around text that holds the separator."
                return validate.refusal(f"{path}, line {lines.line_num}", f"{n_columns} fields", fields, repair)
    return None


def _empty(label: str) -> ValueError:
    return validate.refusal(label, "a table with a header and rows", "an empty file", "Save it again.")


def _unreadable(label: str, problem: Exception) -> ValueError:
    import polars as pl

    if isinstance(problem, pl.exceptions.NoDataError):
        return _empty(label)
    repair = f"It may be cut off; save it again ({_reason(problem)})."
    return validate.refusal(label, "a table that can be read", type(problem).__name__, repair)


def _reason(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0].rstrip(".")


def _opened(source: Any, context: str) -> tuple[pl.LazyFrame, str, int | None]:
    """The rows, what to call the table, and the line of the first row where it has lines."""
    import polars as pl

    if isinstance(source, str | os.PathLike):
        path = Path(source)
        text: dict[str, Any] = {
            "schema_overrides": {context: pl.String},  # "007" stays what it is
            "infer_schema_length": None,
            "try_parse_dates": True,
        }
        lazy = scan(path, **text)
        return lazy, str(path), 2 if _is_text(path) else None
    if isinstance(source, pl.LazyFrame):
        return source, "source", None
    if isinstance(source, pl.DataFrame):
        return source.lazy(), "source", None
    try:
        frame = pl.DataFrame(_plain(source), strict=False)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as problem:
        repair = f"Pass a path, a polars or pandas frame, an Arrow table or a mapping of columns: {_reason(problem)}."
        raise validate.refusal("source", "a table", source, repair) from problem
    return frame.lazy(), "source", None


def _plain(source: Any) -> Any:
    """What polars takes: a mapping and Arrow as they are, a pandas frame column by column, without pandas."""
    if isinstance(source, Mapping):
        return dict(source)
    if all(hasattr(source, name) for name in ("columns", "isna", "iloc")):
        return {str(name): _plain_column(source.iloc[:, k]) for k, name in enumerate(source.columns)}
    if hasattr(source, "__arrow_c_stream__"):
        return source
    raise TypeError(f"{type(source).__name__!r} is none of these")


def _plain_column(column: Any) -> Any:
    missing = column.isna()
    if column.dtype.kind in "biuf" and not missing.any():
        return column.to_numpy()
    return [None if gap else value for value, gap in zip(column, missing, strict=True)]


def _arm_list(arm_columns: Sequence[str]) -> list[str]:
    arms = [arm_columns] if isinstance(arm_columns, str) else list(arm_columns)
    if len(set(arms)) != len(arms):
        raise validate.refusal("arm_columns", "different columns", arms, "Name each one once.")
    return arms


def _row(label: str, first_line: int | None, row: int) -> str:
    """Where a row is: by its line in a text file, else counted from 0."""
    return f"{label}, row {row}" if first_line is None else f"{label}, line {first_line + row}"


def _refuse_empty(frame: pl.DataFrame, label: str, first_line: int | None, columns: Sequence[str]) -> None:
    for name in columns:
        column = frame[name]
        empty = (column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()).arg_true()
        if len(empty):
            where = f"{_row(label, first_line, empty[0])}: {name}"
            raise validate.refusal(where, "a value", column[empty[0]], "Fill it in or leave that row out.")


def _rewards(frame: pl.DataFrame, label: str, first_line: int | None, arms: Sequence[str]) -> Matrix:
    """The rewards as rounds by arms."""
    import polars as pl

    rewards = np.empty((len(frame), len(arms)))
    for k, name in enumerate(arms):
        column = frame[name]
        readable = column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)
        numbers = column.cast(pl.Float64, strict=False) if readable else pl.repeat(None, len(column), eager=True)
        wrong = (~numbers.cast(pl.Float64).is_finite().fill_null(False)).arg_true()
        if len(wrong):
            where = f"{_row(label, first_line, wrong[0])}: {name}"
            repair = "Correct it, leave that row out, or name the columns of rewards (arm_columns, --arm)."
            raise validate.refusal(where, "a finite number", column[wrong[0]], repair)
        rewards[:, k] = numbers.to_numpy()
    return rewards


def _in_order(labels: Sequence[str]) -> list[str]:
    """Whole numbers by size, all else by the alphabet."""
    whole = all(label.removeprefix("-").isdecimal() and str(int(label)) == label for label in labels)
    return sorted(labels, key=int) if whole else sorted(labels)


def _by_time(column: pl.Series, label: str, first_line: int | None) -> np.ndarray[Any, np.dtype[np.intp]]:
    if not (column.dtype.is_numeric() or column.dtype.is_temporal()):
        where = f"{_row(label, first_line, 0)}: {column.name}"
        repair = "Write dates as 2024-05-31 or 2024-05-31T12:00:00, all in one form."
        raise validate.refusal(where, "a number or a date", column[0], repair)
    return np.argsort(column.to_physical().to_numpy(), kind="stable")
