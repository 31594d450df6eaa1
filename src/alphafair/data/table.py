"""Anyone's own rounds as a stream: one row per round, a column for the context, a column of rewards per arm."""

from __future__ import annotations

import codecs
import collections
import csv
import difflib
import gzip
import io
import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.memory_limit import memory_limit
from alphafair.values import Matrix, Stream

if TYPE_CHECKING:
    import polars as pl

Where = Callable[[int], str]  # the place of a row, counted from 0, in words
_TEXT = (".csv", ".tsv", ".csv.gz")
_BINARY = (".parquet", ".arrow", ".ipc", ".feather")
_FORMATS = (*_TEXT, ".jsonl", *_BINARY)
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = {  # byte order marks; that of UTF-32 begins like that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def table(
    source: Any, *, context: str = "context", arm_columns: Sequence[str] | None = None, time: str | None = None
) -> Stream:
    """A stream from a table in a file or in memory.

    Parameters
    ----------
    source
        A path (.csv, .tsv, .csv.gz, .jsonl, .parquet, .arrow, .ipc, .feather), a polars DataFrame or LazyFrame, a
        pandas DataFrame, any Arrow table, or a mapping of columns. Text files may have commas, semicolons (then with
        decimal commas, if you like), tabs or | between their columns; they are UTF-8, or UTF-16 with a byte order mark.
    context
        The column that says who or what is served: any labels, text or numbers. Contexts are numbered in their
        order, whole numbers by size and all else by the alphabet.
    arm_columns
        The columns of rewards, one per arm, in the order that the arms shall have. By default all other columns, and
        then each of them must hold numbers.
    time
        A column of numbers or dates to sort the rounds by; rows of equal time keep their order. By default the
        rounds come in the order of the rows.

    >>> stream = table({"context": ["new", "old", "new"], "jazz": [1, 0, 0.2], "rock": [0, 1, 1]})
    >>> stream.context_labels, stream.arm_labels, stream.contexts.tolist(), stream.rewards(2).tolist()
    (('new', 'old'), ('jazz', 'rock'), [0, 1, 0], [0.2, 1.0])
    """
    import polars as pl

    special = column_list("context", [context]) + column_list("time", [] if time is None else [time])
    lazy, label, where = opened(source, [context])
    columns = lazy.collect_schema().names()
    _refuse_log(label, columns, special, arm_columns)
    named_columns(label, columns, special[:1], " (context, --context)")
    named_columns(label, columns, special[1:], " (time, --time)")
    if arm_columns is None:
        arm_columns = [name for name in columns if name not in special]
    arms = column_list("arm_columns", arm_columns)
    named_columns(label, columns, arms, " (arm_columns, --arm)")
    if not arms:
        repair = "Add one column of rewards per arm."
        raise InvalidArgument(f"{label}: columns", "the context and at least one arm", columns, repair)
    clash = [name for name in arms if name in special]
    if clash:
        allowed = "other columns than the context and the time"
        raise InvalidArgument("arm_columns (--arm)", allowed, clash, "Leave them out: they are no rewards.")
    frame = whole(lazy.select([*dict.fromkeys(special), *arms]), label)
    if not len(frame):
        got = "a header alone" if _is_text(Path(label)) else "none"
        raise InvalidArgument(label, "a table with rows", got, "Give one row per round.")

    _refuse_empty(frame, where, special)
    rewards = _rewards(frame, where, arms)
    names = as_labels(frame[context], where)
    labels = in_order(names.unique().to_list())
    contexts = names.replace_strict(labels, range(len(labels)), return_dtype=pl.Int32).to_numpy()
    rows = np.arange(len(frame)) if time is None else by_time(frame[time], where)
    return Stream(contexts[rows], rows.astype(np.int32), rewards, tuple(labels), tuple(arms))


LOG_WORDS = {"arm": ("arm", "item", "item_id", "action"), "reward": ("reward", "click", "rating", "conversion")}


def _refuse_log(label: str, columns: Sequence[str], special: Sequence[str], arm_columns: Sequence[str] | None) -> None:
    """A log has one arm and one reward per row; a stream needs a reward of every arm."""
    rest = {name.lower(): name for name in columns if name not in special}
    found = [next((rest[word] for word in words if word in rest), None) for words in LOG_WORDS.values()]
    if arm_columns is None and all(found):
        repair = (
            "It looks like a log, which knows the reward of the shown arm only: make an alphafair.Log of its columns, "
            "or name the columns of rewards with arm_columns (--arm)."
        )
        raise InvalidArgument(f"{label}: columns", "the context and a column of rewards per arm", columns, repair)


def scan(path: Path, **text: Any) -> pl.LazyFrame:
    """A file of rows, opened lazily by its extension; `text` are settings for CSV."""
    import polars as pl

    if not path.is_file():
        got = "a folder" if path.is_dir() else "none of that name"
        raise InvalidArgument(str(path), "a file", got, "Correct the path.")
    if not path.name.lower().endswith(_FORMATS):
        allowed = f"a file that ends in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}"
        raise InvalidArgument(str(path), allowed, path.suffix, "Save it as one of these.")
    if not path.stat().st_size:
        raise _empty(str(path))
    try:
        if _is_text(path):
            lazy = _scan_text(path, **text)
        else:
            if path.suffix.lower() == ".jsonl":
                _refuse_repeated(str(path), _first_keys(path))
            scans: dict[str, Callable[[Path], pl.LazyFrame]] = {".parquet": pl.scan_parquet, ".jsonl": pl.scan_ndjson}
            lazy = scans.get(path.suffix.lower(), _scan_ipc)(path)
        lazy.collect_schema()
    except (pl.exceptions.PolarsError, UnicodeError, OSError) as problem:
        _refuse_fault(path)
        raise _unreadable(str(path), problem) from problem
    return lazy


def _scan_text(path: Path, **settings: Any) -> pl.LazyFrame:
    """CSV as it was found to be written; polars takes UTF-8 alone."""
    import polars as pl

    if path.suffix.lower() == ".gz":
        _refuse_growing(path)
    found = _text_format(path)
    if "\0" in "".join(found.header):
        got = "UTF-16 without one, it seems"
        raise InvalidArgument(str(path), "UTF-8, or UTF-16 with a byte order mark", got, "Save it as UTF-8.")
    if found.header and found.header[0].lower().startswith("sep="):
        got = found.separator.join(found.header)
        repair = "Delete that line: how columns are separated is seen from the others."
        raise InvalidArgument(str(path), "a table with a header in its first line", got, repair)
    if any("\udc80" <= letter <= "\udcff" for letter in "".join(found.header)):
        _refuse_fault(path)  # polars would put the same sign in place of every letter that it cannot read
    if not found.has_lines:
        allowed, got = "lines that end with line feeds", "carriage returns alone"
        raise InvalidArgument(str(path), allowed, got, "Save it with line feeds, as UTF-8.")
    _refuse_repeated(str(path), [name for name in found.header if name])
    source: Any = path
    if found.encoding != "utf-8-sig":
        with _open(path) as file:
            source = io.BytesIO(file.read().decode(found.encoding).encode())
    return pl.scan_csv(source, separator=found.separator, decimal_comma=found.separator == ";", **settings)


def _refuse_growing(path: Path) -> None:
    """A compressed file that has no place in memory, where polars puts it as a whole; it is unpacked piece by piece."""
    n_bytes, most = 0, memory_limit() // 2
    with suppress(EOFError, OSError, zlib.error), _open(path) as file:  # damaged: polars will say it
        while piece := file.read(1 << 20):
            n_bytes += len(piece)
            if n_bytes > most:
                allowed = f"at most {most} bytes once it is unpacked, for which there is memory"
                raise InvalidArgument(str(path), allowed, "more", "Unpack it, or convert it to Parquet.")


def _first_keys(path: Path) -> list[str]:
    """The names in the first line of JSON, each as often as it stands there."""
    with path.open("rb") as file:
        line = next((line for line in file if line.strip()), b"{}")
    try:
        pairs = json.loads(line, object_pairs_hook=list)
    except ValueError:
        return []
    return [pair[0] for pair in pairs] if isinstance(pairs, list) and all(map(_is_pair, pairs)) else []


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple)


def _refuse_repeated(label: str, names: Sequence[str]) -> None:
    """Of two columns with one name, nobody can say which is meant."""
    repeated = [name for name, count in collections.Counter(names).items() if count > 1]
    if repeated:
        raise InvalidArgument(f"{label}: columns", "different names", repeated, "Rename all but one of them.")


def _scan_ipc(path: Path) -> pl.LazyFrame:
    """Arrow's file format, or its stream format, which cannot be read lazily."""
    import polars as pl

    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    return pl.scan_ipc(path) if is_file else pl.read_ipc_stream(path).lazy()


def column_list(argument: str, names: str | Sequence[str]) -> list[str]:
    """Names of columns, each once."""
    found = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    if not all(isinstance(name, str) for name in found):
        raise InvalidArgument(argument, "names of columns", found, "Write them as text.")
    if len(set(found)) != len(found):
        raise InvalidArgument(argument, "different columns", found, "Name each one once.")
    return found


def named_columns(label: str, columns: Sequence[str], wanted: Sequence[str], setting: str = "") -> None:
    """All of them must be there; where one is not, say which column comes closest, or which setting names it."""
    for name in wanted:
        if name not in columns:
            close = difflib.get_close_matches(name, columns, n=1, cutoff=0.5)
            repair = f"Did you mean {close[0]!r}?" if close else f"Name the column that you mean{setting}."
            if len(columns) == 1 and ";" in columns[0]:
                repair = "Save it with commas between the columns."
            raise InvalidArgument(f"{label}: columns", f"names with {name!r} among them", list(columns), repair)


def collected(lazy: pl.LazyFrame, label: str) -> pl.DataFrame:
    """The rows themselves; where a line cannot be read, say which."""
    import polars as pl

    try:
        return lazy.collect()
    except (pl.exceptions.PolarsError, OSError) as problem:
        _refuse_fault(Path(label))
        raise _unreadable(label, problem) from problem


def whole(lazy: pl.LazyFrame, label: str) -> pl.DataFrame:
    """All rows of a table, as in `collected`; refused before they are read if there is no place for them in memory.

    A column in which every value is the same takes next to nothing in a Parquet file, and eight bytes per row here.
    """
    import polars as pl

    if label.lower().endswith(_BINARY):
        n_rows, n_columns = collected(lazy.select(pl.len()), label).item(), len(lazy.collect_schema())
        most = memory_limit() // (8 * n_columns)
        if n_rows > most:
            allowed = f"at most {most} rows, for which there is memory"
            raise InvalidArgument(f"{label}: rows", allowed, n_rows, "Split it, or use a larger machine.")
    return collected(lazy, label)


def place(path: Path, row: int) -> str:
    """Where a row of a file is, counted from 0: by the line that it begins on in a text file."""
    if not _is_text(path):
        return f"{path}, row {row}"
    line, _ = next(itertools.islice(_records(path), row + 1, None))
    return f"{path}, line {line}"


def records(lines: Iterable[str], label: str, repair: str, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The records of CSV with the line that each begins on: text in quotes may go over several.

    A quote that is left open, which would take all that follows for one long text, is refused.
    """
    table, line = csv.reader(lines, delimiter=separator, strict=True), 1
    try:
        for fields in table:
            yield line, fields
            line = table.line_num + 1
    except csv.Error as problem:
        where = f"{label}, line {line}"
        raise InvalidArgument(where, "a row with its quotes in order", str(problem), repair) from None


def _is_text(path: Path) -> bool:
    return path.name.lower().endswith(_TEXT)


class _TextFormat(NamedTuple):
    """How a text file is written."""

    encoding: str
    separator: str
    header: list[str]
    has_lines: bool = True  # that end as polars wants them to


def _text_format(path: Path) -> _TextFormat:
    """From the byte order mark, and from a header and a first row that a separator divides into as many fields."""
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with _open(path) as file:
            start = file.read(4)
        encoding = next((name for mark, name in _MARKS.items() if start.startswith(mark)), "utf-8-sig")
        errors = "surrogateescape" if encoding == "utf-8-sig" else "replace"
        with _open(path) as file, io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="") as text:
            head = list(itertools.islice((line for line in text if line.strip()), 2))
        rows = {each: [next(csv.reader([line], delimiter=each)) for line in head] for each in (usual, *_SEPARATORS)}
    except (EOFError, OSError, UnicodeError, csv.Error, zlib.error):  # polars will say it
        return _TextFormat("utf-8-sig", usual, [])
    agreed = [each for each, fields in rows.items() if len({len(row) for row in fields}) == 1 < len(fields[0])]
    several = [each for each, fields in rows.items() if fields and len(fields[0]) > 1]
    separator = (agreed or several or [usual])[0]
    has_lines = not any(line.endswith("\r") for line in head[:1])
    return _TextFormat(encoding, separator, rows[separator][0] if head else [], has_lines)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Header and rows of a text file, as polars counts them: empty lines before the header are none."""
    written = _text_format(path)
    with _open(path) as file:
        text = io.TextIOWrapper(file, encoding=written.encoding, newline="")
        found = records(text, str(path), "Close every quote, and double those inside.", written.separator)
        yield from itertools.dropwhile(lambda record: not record[1], found)


def _open(path: Path) -> IO[bytes]:
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    file: IO[bytes] = opened(path, "rb")
    return file


def _refuse_fault(path: Path) -> None:
    """Name the first line of a text file that cannot be decoded, leaves a quote open or has too many fields."""
    if not _is_text(path):
        return
    try:
        rows = _records(path)
        _, header = next(rows, (1, []))
        for line, fields in rows:
            if len(fields) > len(header):
                repair = "Delete what is too much, or put quotes around text that holds the separator."
                raise InvalidArgument(f"{path}, line {line}", f"{len(header)} fields", fields, repair)
    except UnicodeDecodeError:
        encoding = _text_format(path).encoding
        if encoding != "utf-8-sig":
            got = f"{encoding.upper()}, damaged or cut off"
            raise InvalidArgument(str(path), "text that can be decoded", got, "Save it as UTF-8.") from None
        with _open(path) as file:
            line, text = next(
                (n, text) for n, text in enumerate(file, 1) if text.decode(errors="ignore").encode() != text
            )
        raise InvalidArgument(f"{path}, line {line}", "UTF-8 text", text, "Save it as UTF-8.") from None
    except (EOFError, OSError, zlib.error):
        pass  # a .gz that is cut off or damaged: polars has said so


def _empty(label: str) -> ValueError:
    return InvalidArgument(label, "a table with a header and rows", "an empty file", "Save it again.")


def _unreadable(label: str, problem: Exception) -> ValueError:
    import polars as pl

    if isinstance(problem, pl.exceptions.NoDataError):
        return _empty(label)
    repair = f"It may be cut off; save it again ({_reason(problem)})."
    return InvalidArgument(label, "a table that can be read", type(problem).__name__, repair)


def _reason(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0].rstrip(".")


def opened(source: Any, labels: Sequence[str]) -> tuple[pl.LazyFrame, str, Where]:
    """The rows, what to call the table, and how to name a row of it; columns of labels are text."""
    import polars as pl

    if isinstance(source, str | os.PathLike):
        path = Path(source)
        texts = dict.fromkeys(labels, pl.String)  # "007" stays what it is
        lazy = scan(path, schema_overrides=texts, infer_schema_length=None, try_parse_dates=True)
        return lazy, str(path), partial(place, path)
    try:
        frame = (
            source if isinstance(source, pl.DataFrame | pl.LazyFrame) else pl.DataFrame(_plain(source), strict=False)
        )
    except InvalidArgument:
        raise
    except (TypeError, ValueError, pl.exceptions.PolarsError) as problem:
        repair = f"Pass a path, a polars or pandas frame, an Arrow table or a mapping of columns: {_reason(problem)}."
        raise InvalidArgument("source", "a table", source, repair) from problem
    return frame.lazy(), "source", "source, row {}".format


def _plain(source: Any) -> Any:
    """What polars takes: a mapping and Arrow as they are, a pandas frame column by column, without pandas."""
    if isinstance(source, Mapping):
        return dict(source)
    if all(hasattr(source, name) for name in ("columns", "isna", "iloc")):
        names = [str(name) for name in source.columns]
        _refuse_repeated("source", names)
        return {name: _plain_column(source.iloc[:, k]) for k, name in enumerate(names)}
    if hasattr(source, "__arrow_c_stream__"):
        return source
    raise TypeError(f"{type(source).__name__!r} is none of these")


def _plain_column(column: Any) -> Any:
    missing = column.isna()
    if column.dtype.kind in "biuf" and not missing.any():
        return column.to_numpy()
    values = (value.tolist() if isinstance(value, np.ndarray) else value for value in column)
    return [None if gap else value for value, gap in zip(values, missing, strict=True)]


def _refuse_empty(frame: pl.DataFrame, where: Where, columns: Sequence[str]) -> None:
    for name in columns:
        column = frame[name]
        empty = (column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()).arg_true()
        if len(empty):
            place = f"{where(empty[0])}: {name}"
            raise InvalidArgument(place, "a value", column[empty[0]], "Fill it in or leave that row out.")


def _rewards(frame: pl.DataFrame, where: Where, arms: Sequence[str]) -> Matrix:
    """The rewards as rounds by arms."""
    import polars as pl

    low, high = validate.ANY_REWARD
    rewards = np.empty((len(frame), len(arms)))
    for k, name in enumerate(arms):
        column = frame[name]
        readable = column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)
        cells = column.cast(pl.Float64, strict=False) if readable else pl.repeat(None, len(column), eager=True)
        numbers = cells.cast(pl.Float64)
        wrong = (~numbers.is_between(low, high).fill_null(False)).arg_true()  # false for NaN as well
        if len(wrong):
            row = wrong[0]
            too_large = numbers.is_finite()[row]
            allowed = f"a number in [{low:g}, {high:g}]" if too_large else "a finite number"
            repair = "Correct it, leave that row out, or name the columns of rewards (arm_columns, --arm)."
            raise InvalidArgument(f"{where(row)}: {name}", allowed, column[row], repair)
        rewards[:, k] = numbers.to_numpy()
    return rewards


def as_labels(column: pl.Series, where: Where) -> pl.Series:
    """Contexts, or arms, as text."""
    import polars as pl

    try:
        return column.cast(pl.String)
    except pl.exceptions.PolarsError:
        repair = "Write a label there, or make one of what is there."
        raise InvalidArgument(f"{where(0)}: {column.name}", "text or a number", column[0], repair) from None


def in_order(labels: Sequence[str]) -> list[str]:
    """Whole numbers by size, all else by the alphabet."""
    whole = all(label.removeprefix("-").isdecimal() and str(int(label)) == label for label in labels)
    return sorted(labels, key=int) if whole else sorted(labels)


def by_time(column: pl.Series, where: Where) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The order of time; text is read as numbers or as dates, whichever more of it can be."""
    import polars as pl

    moments, wrong = column, pl.Series([], dtype=pl.UInt32)
    if column.dtype == pl.String:
        numbers = column.cast(pl.Float64, strict=False).fill_nan(None)
        dates = column.str.to_datetime(time_zone="UTC", strict=False)
        moments = min(numbers, dates, key=pl.Series.null_count)
        wrong = moments.is_null().arg_true()
    elif not (column.dtype.is_numeric() or column.dtype.is_temporal()):
        wrong = pl.Series([0])
    if len(wrong):
        repair = "Write dates as 2024-05-31 or 2024-05-31T12:00:00, all in one form."
        raise InvalidArgument(f"{where(wrong[0])}: {column.name}", "a number or a date", column[wrong[0]], repair)
    return np.argsort(moments.to_physical().to_numpy(), kind="stable")
