"""Tables in files and in memory: one reader for all of them.

A `Column` is a value: its name, the kind of its values, which of them are allowed, and how to repair others. A `Table`
is a file or a frame that was opened but not read. Text files and JSON lines are read as text, and columns convert it;
so no pass over the file is needed to infer types, and an error shows a value as the file has it.

Labels are made from values by `as_labels` and nothing else, so that they are the same wherever they are made. A label
that is missing, or an empty string, is null.

Labels come from anybody, and a spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return
as a formula. `escape_formulas` puts an apostrophe before such text, and `unescape_formulas` takes it away again.
"""

from __future__ import annotations

import codecs
import collections
import csv
import difflib
import gzip
import io
import itertools
import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from numbers import Number
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.errors import InvalidArgument
from alphafair.extras import polars as pl
from alphafair.memory_limit import memory_limit

Where = Callable[[int], str]  # the place of a row, counted from 0, as errors name it
ROW = "\0row"  # the column of row numbers; no file has a column of that name
BATCH_ROWS = 1 << 20
_TEXT = (".csv", ".tsv", ".csv.gz")
_BINARY = (".parquet", ".arrow", ".ipc", ".feather")
_FORMATS = (*_TEXT, ".jsonl", *_BINARY)
_SEPARATORS = (",", ";", "\t", "|")
_MOST_DAYS = 95_000_000  # before and after 1970: 260,000 years
_FIRST_ROWS = 100  # of JSON lines, that are searched for names of columns
_BYTE_ORDER_MARKS = {  # that of UTF-32 begins like that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_FORMULA = r"^'*[=+\-@\t\r]"
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?$"
_ESCAPED = r"^'('*[=+\-@\t\r])"
_INTEGER = re.compile("0|-?[1-9][0-9]*")
CORRECT = "Correct it or delete that row."


# Columns


@dataclass(frozen=True)
class Column:
    """A column: its name, the kind of its values, the allowed range in numbers and in words, and the repair.

    >>> import polars as pl
    >>> rating = Column("rating", "number", 0.0, 5.0)
    >>> rating.read(pl.Series(["4", "0.5"]), "row {}".format).to_list()
    [4.0, 0.5]
    >>> rating.read(pl.Series(["4", "6"]), "row {}".format)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    alphafair_client.answers.InvalidArgument: row 1: rating must be a number in [0, 5]; got 6.0. Correct it...
    """

    name: str
    kind: Literal["number", "integer", "label", "time"] = "label"
    low: float = -math.inf
    high: float = math.inf
    allowed: str = ""
    repair: str = CORRECT
    low_open: bool = False
    time_format: str | None = field(default=None, kw_only=True)  # of text; None for ISO 8601 or numbers

    def refuse_type(self, dtype: pl.DataType, label: str) -> None:
        """Refuse a column of a type whose values cannot be converted."""
        if not is_label_type(dtype) or (dtype.is_temporal() and self.kind in ("number", "integer")):
            allowed = {"label": "strings, numbers, dates or booleans", "time": "numbers or dates"}
            got = f"{_article(name := dtype.base_type().__name__.lower())} {name} column"
            argument, allowed_column = f"{label}: {self.name}", f"a column of {allowed.get(self.kind, 'numbers')}"
            raise InvalidArgument(argument, allowed_column, got, "Convert it, or choose another column.")

    def convert(self, values: pl.Series, decimal_comma: bool = False) -> pl.Series:
        """The values in this column's type; null for a value that is missing or not allowed."""
        if self.kind == "label":
            return as_labels(values)
        if self.kind == "time":
            return self._times(values)
        numbers = _numbers(values, decimal_comma)
        side: Literal["both", "right"] = "right" if self.low_open else "both"
        inside = numbers.is_finite() & numbers.is_between(self.low, self.high, closed=side)
        if self.kind == "integer":
            inside &= numbers.floor() == numbers
        return pl.select(pl.when(inside.fill_null(False)).then(numbers)).to_series().alias(values.name)

    def bad_rows(self, values: pl.Series, decimal_comma: bool = False) -> list[int]:
        """The numbers of rows with a value that is missing or not allowed."""
        return self.convert(values, decimal_comma).is_null().arg_true().to_list()

    def read(self, values: pl.Series, where: Where, decimal_comma: bool = False) -> pl.Series:
        """The values in this column's type; an error names the first row whose value is missing or not allowed."""
        found = self.convert(values, decimal_comma)
        if found.null_count():
            raise self.error(values, int(found.is_null().arg_max() or 0), where, decimal_comma)
        return found

    def read_optional(self, values: pl.Series, where: Where, decimal_comma: bool = False) -> pl.Series:
        """The same for a column whose values may be missing: null for those."""
        found = self.convert(values, decimal_comma)
        wrong = (found.is_null() & values.is_not_null()).arg_true()
        if len(wrong):
            raise self.error(values, int(wrong[0]), where, decimal_comma)
        return found

    def error(self, values: pl.Series, row: int, where: Where, decimal_comma: bool = False) -> InvalidArgument:
        """The error for the value of a row."""
        number = _numbers(values[row : row + 1], decimal_comma)[0] if self.kind in ("number", "integer") else None
        is_finite = number is not None and math.isfinite(number)
        got = number if is_finite else value_at(values, row)
        is_date = values.dtype.is_temporal() and got is not None
        return InvalidArgument(f"{where(row)}: {self.name}", self._allowed(got, is_finite, is_date), got, self.repair)

    def _allowed(self, got: object, is_finite: bool, is_date: bool) -> str:
        if self.allowed:
            return self.allowed
        if self.kind == "label":
            return "UTF-8 text" if isinstance(got, bytes) and got else "a date in calendars" if is_date else "a value"
        if self.kind == "time":
            return "a value" if got is None else "a number or a date"
        return "a finite number" if self.kind == "number" and not is_finite else self.allowed_numbers

    @property
    def allowed_numbers(self) -> str:
        """The allowed range of a column of numbers."""
        if self.allowed:
            return self.allowed
        noun = "an integer" if self.kind == "integer" else "a number"
        low, high = (f"{side:g}" for side in (self.low, self.high))
        if self.high == math.inf:
            return f"{noun} of at least {low}" if self.low > -math.inf else noun
        return f"{noun} in {'(' if self.low_open else '['}{low}, {high}]"

    def _times(self, values: pl.Series) -> pl.Series:
        """Dates or numbers, whichever more of the text can be read as."""
        if values.dtype.is_temporal():
            return _in_calendar(values)
        if values.dtype.is_numeric():
            is_wide = values.dtype in (pl.Decimal, pl.Int128, pl.UInt128)  # for NumPy
            numbers = values.cast(pl.Float64) if is_wide else values
            return numbers.fill_nan(None) if numbers.dtype.is_float() else numbers
        values = _text(values)
        if self.time_format is not None:
            return values.str.to_datetime(self.time_format, time_zone="UTC", time_unit="us", strict=False)
        numbers = values.cast(pl.Float64, strict=False).fill_nan(None)
        dates = values.str.to_datetime(time_zone="UTC", strict=False)
        return min(numbers, dates, key=pl.Series.null_count)


def _numbers(values: pl.Series, decimal_comma: bool) -> pl.Series:
    """As floats; null for what is not a number."""
    if values.dtype.is_numeric() or values.dtype == pl.Boolean:
        return values.cast(pl.Float64)
    text = _text(values)
    numbers = (text.str.replace(",", ".", literal=True) if decimal_comma else text).cast(pl.Float64, strict=False)
    if numbers.null_count() == text.null_count():
        return numbers
    booleans = text.replace_strict({"true": 1.0, "false": 0.0}, default=None, return_dtype=pl.Float64)
    return numbers.fill_null(booleans)


def value_at(values: pl.Series, row: int) -> object:
    """The value of a row as errors show it; its type if Python has no such value, such as a date in the year 10000."""
    one = values[row : row + 1]
    try:
        if _in_calendar(one).null_count() > one.null_count():
            raise OverflowError  # polars would panic
        return one.to_list()[0]
    except (ValueError, OverflowError, pl.exceptions.PanicException):
        return f"a {values.dtype.base_type().__name__.lower()} that Python lacks"


def is_label_type(dtype: Any) -> bool:
    """Whether values of a type can be labels."""
    is_date = dtype.is_temporal() and dtype != pl.Duration
    return dtype.is_numeric() or is_date or dtype == pl.Boolean or is_text_type(dtype)


def is_text_type(dtype: pl.DataType) -> bool:
    """Whether values of a type are read as strings; a column without any value is of a type of its own."""
    return dtype in (pl.String, pl.Categorical, pl.Enum, pl.Binary, pl.Null)


def _text(values: pl.Series) -> pl.Series:
    """As strings; null for bytes that are not UTF-8, and for dates beyond those of calendars."""
    try:
        return _in_calendar(values).cast(pl.String)
    except pl.exceptions.PolarsError:
        if values.dtype != pl.Binary:
            raise
        decoded = (None if each is None else each.decode(errors="ignore") for each in values.to_list())
        text = pl.Series(values.name, decoded, dtype=pl.String)
        return pl.select(pl.when(text.cast(pl.Binary) == values).then(text)).to_series()


def _in_calendar(values: pl.Series) -> pl.Series:
    """Null in place of dates that polars can store and not show; the others as they are."""
    dtype = values.dtype
    if isinstance(dtype, pl.Datetime):
        per_day = 86_400 * {"ms": 10**3, "us": 10**6, "ns": 10**9}[dtype.time_unit]
        most = min(_MOST_DAYS * per_day, 2**63 - 1)
    elif dtype == pl.Date:
        most = _MOST_DAYS
    else:
        return values
    return values.set(~values.to_physical().is_between(-most, most), None)


def as_labels(values: pl.Series) -> pl.Series:
    """Values as labels; null for what is missing: an empty string, or NaN.

    >>> import polars as pl
    >>> as_labels(pl.Series([0.1, -0.0, float("nan")])).to_list(), as_labels(pl.Series([b"x", b""])).to_list()
    (['0.1', '0.0', None], ['x', None])
    """
    if values.dtype.is_float():
        return values.fill_nan(None).cast(pl.String).replace("-0.0", "0.0")
    text = _text(values)
    return text.set(text == "", None) if is_text_type(values.dtype) else text


def different_labels(values: pl.Series) -> list[str]:
    """The labels of a column, each once."""
    found: list[str] = as_labels(values.unique()).drop_nulls().unique().to_list()
    return found


def sort_labels(labels: Iterable[str]) -> list[str]:
    """Labels in order: by size if all are integers, else alphabetically.

    >>> sort_labels(["10", "9", "-2", "-10", "0"]), sort_labels(["10", "9", "x"]), sort_labels(["10", "09"])
    (['-10', '-2', '0', '9', '10'], ['10', '9', 'x'], ['09', '10'])
    """
    found = sorted(labels)
    if not all(map(_INTEGER.fullmatch, found)):
        return found
    found.sort(key=len)  # not by `int`, which takes at most 4,300 digits
    below = [label for label in found if label.startswith("-")]
    return [*sorted(below, key=lambda label: (len(label), label), reverse=True), *(x for x in found if x[0] != "-")]


def label_codes(labels: Iterable[str]) -> dict[str, int]:
    """A number for every label, in their order."""
    return {label: code for code, label in enumerate(sort_labels(dict.fromkeys(labels)))}


def encode(values: pl.Series, codes: Mapping[str, int]) -> NDArray[np.int32]:
    """The number of every label, all of which have one; integers need not become strings."""
    if values.dtype.is_integer():
        labels = pl.Series([*codes], dtype=pl.String)
        integers = labels.cast(values.dtype, strict=False)
        own = (integers.cast(pl.String) == labels).fill_null(False)  # not "x", and not "07" beside "7"
        numbers = pl.Series([*codes.values()], dtype=pl.Int32)
        return values.replace_strict(integers.filter(own), numbers.filter(own), return_dtype=pl.Int32).to_numpy()
    return values.cast(pl.Enum(list(codes))).to_physical().cast(pl.Int32).to_numpy()


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"


# Tables


class Table(NamedTuple):
    """A table that was opened and not yet read, and how errors name it and its rows."""

    rows: pl.LazyFrame
    label: str
    where: Where = "source, row {}".format
    decimal_comma: bool = False  # in the numbers of a text file

    @property
    def columns(self) -> list[str]:
        return self.rows.collect_schema().names()

    @property
    def is_text(self) -> bool:
        return self.label.lower().endswith(_TEXT)

    def require(self, names: Sequence[str], option: str = "") -> None:
        """Check that columns exist; the error names the most similar one, or the option that chooses another."""
        found = self.columns
        for name in names:
            if name in found:
                continue
            close = difflib.get_close_matches(name, found, n=1, cutoff=0.5)
            repair = f"Did you mean {close[0]!r}?" if close else f"Pass the name of a column{option}."
            if len(found) == 1 and ";" in found[0]:
                repair = "Save it with commas between the columns."
            raise InvalidArgument(f"{self.label}: columns", f"names with {name!r} among them", found, repair)

    def select(self, *names: str, row_numbers: bool = False, first: int = 0, n_rows: int | None = None) -> Table:
        """Some of the columns, with the number of each row where asked for; all rows, or `n_rows` from `first` on.

        Of a Parquet file, other rows are not read.
        """
        rows = (self.rows if n_rows is None else self.rows.slice(first, n_rows)).select(names)
        return self._replace(rows=rows.with_row_index(ROW, offset=first) if row_numbers else rows)

    def read(self) -> pl.DataFrame:
        """Read the whole table; refused beforehand where there is no memory for it.

        A column of equal values takes next to nothing in a Parquet file, and eight bytes per row in memory.
        """
        with self._readable():
            if self.label.lower().endswith(_BINARY):
                n_rows, n_columns = self.rows.select(pl.len()).collect().item(), len(self.columns)
                most = memory_limit() // (8 * n_columns)
                if n_rows > most:
                    allowed, repair = f"at most {most}, which fit into memory", "Split the file."
                    raise InvalidArgument(f"{self.label}: number of rows", allowed, n_rows, repair)
            return self.rows.collect()

    def batches(self) -> Iterator[pl.DataFrame]:
        """Read the table once, a million rows at a time."""
        with self._readable():
            yield from self.rows.collect_batches(chunk_size=BATCH_ROWS, maintain_order=True)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn a failure of the reader into an error that names the line, where it can be found."""
        try:
            yield
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
            _refuse_damaged_line(Path(self.label))
            if self.label.lower().endswith(_BINARY):
                names = [name for name in self.columns if name != ROW]
                _refuse_column(self.label, names, lambda name: self.rows.select(name).head(1).collect())
            raise _unreadable(self.label, problem) from problem

    def column(self, frame: pl.DataFrame, column: Column) -> pl.Series:
        """A column of a frame that was read from this table, in its type; an error names the first bad row."""
        column.refuse_type(frame.schema[column.name], self.label)
        numbers = frame[ROW] if ROW in frame.columns else range(len(frame))
        return column.read(frame[column.name], lambda row: self.where(int(numbers[row])), self.decimal_comma)


def open_table(source: Any, names: Iterable[str] | None = None) -> Table:
    """A table from a path (its extension is its format), a polars or pandas frame, an Arrow table or a mapping.

    A folder of Parquet files is the table of all their rows, in the order of their names. `names` are the columns that
    will be read: to find all columns of JSON lines, every row must be read.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return _open_folder(path) if path.is_dir() else _open_file(path, names)
    is_frame = isinstance(source, pl.DataFrame | pl.LazyFrame)
    try:
        frame = source if is_frame else pl.DataFrame(_plain(source), strict=False)
    except InvalidArgument:
        raise
    except (TypeError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
        if isinstance(source, Mapping) or _is_pandas(source):
            _refuse_column("source", list(source), lambda name: pl.Series(_plain_column(name, source[name])))
        else:
            names = getattr(source, "column_names", ())
            _refuse_column("source", names, lambda name: pl.DataFrame(source.select([name])))
        repair = f"Pass a path, a polars or pandas frame, an Arrow table or a mapping of columns: {_reason(problem)}."
        raise InvalidArgument("source", "a table", source, repair) from problem
    return Table(frame.lazy(), "source")


def column_names(argument: str, names: str | Sequence[str]) -> list[str]:
    """Names of columns, each once."""
    found = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    if not all(isinstance(name, str) for name in found):
        raise InvalidArgument(argument, "names of columns", found, "Pass strings.")
    if len(set(found)) != len(found):
        raise InvalidArgument(argument, "different columns", found, "Pass each name once.")
    return found


# Spreadsheets


def escape_formulas(text: pl.Expr) -> pl.Expr:
    """Text as it is written to a CSV file."""
    risky = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    return pl.when(~risky).then(text).otherwise(pl.lit("'") + text)  # in this order, it keeps the column's name


def unescape_formulas(text: pl.Expr) -> pl.Expr:
    """The text that `escape_formulas` was given."""
    return text.str.replace(_ESCAPED, "$1")


def escape_labels(labels: Sequence[str]) -> list[str]:
    """Labels as they are written to a CSV file, such as the names of columns."""
    return pl.select(escape_formulas(pl.lit(pl.Series(labels, dtype=pl.String)))).to_series().to_list()


def unescape_table(table: Table, columns: Sequence[str]) -> Table:
    """A table whose text in some columns, and whose column names, were escaped."""
    names = table.columns
    before = pl.select(unescape_formulas(pl.lit(pl.Series(names, dtype=pl.String)))).to_series().to_list()
    rows = table.rows.with_columns(unescape_formulas(pl.col(*columns).cast(pl.String)))
    return table._replace(rows=rows.rename(dict(zip(names, before, strict=True))))


# Files


def table_files(path: Path) -> list[Path]:
    """The file itself, or the Parquet files of a folder and its subfolders, in the order of their names.

    Names that begin with a dot or an underscore are left out: programs that write such folders mark their own so.
    """
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for folder, folders, names in os.walk(path, onerror=_refuse_folder):
        folders[:] = [name for name in folders if not name.startswith((".", "_"))]
        parquet = (name for name in names if name.endswith(".parquet") and not name.startswith((".", "_")))
        found += [each for name in parquet if (each := Path(folder, name)).is_file()]
    found.sort(key=lambda each: each.relative_to(path))
    if not found:
        raise InvalidArgument(str(path), "a file, or a folder of Parquet files", "a folder", "Correct the path.")
    return found


def _refuse_folder(problem: OSError) -> None:
    repair = f"{problem.strerror}: correct the path, or the permissions."
    raise InvalidArgument(str(problem.filename), "a folder that can be listed", "one that cannot", repair)


def _open_folder(path: Path) -> Table:
    """All rows of a folder's files, which must have the same columns."""
    tables = [_open_file(each) for each in table_files(path)]
    for table in tables[1:]:
        refuse_other_columns(table, tables[0])
    rows = pl.concat([table.rows for table in tables], how="vertical_relaxed")
    return Table(rows, str(path), partial(place, path))


def refuse_other_columns(table: Table, first: Table) -> None:
    """Refuse a file of a folder that lacks columns of the first, or has others."""
    if sorted(table.columns) != sorted(first.columns):
        repair = "Write all files of the folder with the same columns."
        raise InvalidArgument(f"{table.label}: columns", f"those of {first.label}", table.columns, repair)


def count_rows(path: Path) -> int | None:
    """The number of rows that a Parquet file states; None for other files, which must be read to count them."""
    if path.suffix.lower() != ".parquet":
        return None
    table = _open_file(path)
    with table._readable():
        n_rows: int = table.rows.select(pl.len()).collect().item()
    return n_rows


def _open_file(path: Path, names: Iterable[str] | None = None) -> Table:
    """A file, opened by its extension; the columns of text files and of JSON lines are strings."""
    if not path.is_file():
        allowed = "a file, or a folder of Parquet files"
        raise InvalidArgument(str(path), allowed, "a path that does not exist", "Correct the path.")
    if not path.name.lower().endswith(_FORMATS):
        allowed = f"a file that ends in {', '.join(_FORMATS[:-1])} or {_FORMATS[-1]}"
        raise InvalidArgument(str(path), allowed, path.suffix, "Save it in one of these formats.")
    if not path.stat().st_size:
        raise _empty(str(path))
    decimal_comma = False
    try:
        if _is_text(path):
            lazy, decimal_comma = _scan_text(path)
        elif path.suffix.lower() == ".jsonl":
            lazy = pl.scan_ndjson(path, schema=dict.fromkeys(_json_names(path, names), pl.String))
        else:
            lazy = pl.scan_parquet(path) if path.suffix.lower() == ".parquet" else _scan_ipc(path)
        lazy.collect_schema()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, UnicodeError, OSError) as problem:
        _refuse_damaged_line(path)
        raise _unreadable(str(path), problem) from problem
    return Table(lazy, str(path), partial(place, path), decimal_comma)


def _scan_text(path: Path) -> tuple[pl.LazyFrame, bool]:
    """A text file as strings, and whether its numbers may have decimal commas; polars reads UTF-8 only."""
    if path.suffix.lower() == ".gz":
        _refuse_large(path)
    found = _text_format(path)
    if "\0" in "".join(found.header):
        got = "UTF-16 without one, it seems"
        raise InvalidArgument(str(path), "UTF-8, or UTF-16 with a byte order mark", got, "Save it as UTF-8.")
    if found.header and found.header[0].lower().startswith("sep="):
        got = found.separator.join(found.header)
        repair = "Delete that line: the separator is found from the others."
        raise InvalidArgument(str(path), "a table with a header in its first line", got, repair)
    if any("\udc80" <= letter <= "\udcff" for letter in "".join(found.header)):
        _refuse_damaged_line(path)  # polars would replace all characters that it cannot decode by the same one
    if not found.has_lines:
        allowed, got = "lines that end with line feeds", "carriage returns alone"
        raise InvalidArgument(str(path), allowed, got, "Save it with line feeds, as UTF-8.")
    _refuse_repeated(str(path), [name for name in found.header if name])
    source: Any = path
    if found.encoding != "utf-8-sig":
        with _open(path) as file:
            source = io.BytesIO(file.read().decode(found.encoding).encode())
    return pl.scan_csv(source, separator=found.separator, infer_schema=False), found.separator == ";"


def _refuse_large(path: Path) -> None:
    """Refuse a compressed file that is too large for memory once unpacked, since polars unpacks it as a whole."""
    n_bytes, most = 0, memory_limit() // 2
    with suppress(EOFError, OSError, zlib.error), _open(path) as file:  # damaged: polars reports it
        while piece := file.read(1 << 20):
            n_bytes += len(piece)
            if n_bytes > most:
                allowed = f"at most {most} bytes once unpacked, which fit into memory"
                raise InvalidArgument(str(path), allowed, "more", "Unpack it, or convert it to Parquet.")


def _json_names(path: Path, wanted: Iterable[str] | None) -> list[str]:
    """The names in all rows of JSON lines; or those in the first hundred, and others that are wanted and occur."""
    names: dict[str, None] = {}
    with path.open("rb") as file:
        lines = ((number, line) for number, line in enumerate(file, 1) if line.strip())
        for row, (number, line) in enumerate(lines if wanted is None else itertools.islice(lines, _FIRST_ROWS)):
            pairs = _json_row(path, number, line)
            if not row:
                _refuse_repeated(str(path), [name for name, _ in pairs])
            names.update(dict.fromkeys(name for name, _ in pairs))
    return [*names, *(name for name in wanted or () if name not in names and _mentions(path, name))]


def _json_row(path: Path, number: int, line: bytes) -> list[tuple[str, Any]]:
    """A line of JSON lines as pairs of names and values; repeated names included."""
    try:
        found = json.loads(line.decode(), object_pairs_hook=_Pairs, parse_constant=_refuse_constant, parse_int=str)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, _Pairs):
        text = line.decode(errors="replace").strip()
        raise InvalidArgument(f"{path}, line {number}", "a JSON object", text, CORRECT)
    return found


class _Pairs(list[tuple[str, Any]]):
    """The names and values of a JSON object."""


def _refuse_constant(name: str) -> None:
    raise ValueError(name)  # NaN, Infinity: not JSON


def _mentions(path: Path, name: str) -> bool:
    """Whether a file has a name in quotes: where it is that of a column, JSON lines have the column."""
    wanted = {json.dumps(name, ensure_ascii=plain).encode(errors="replace") for plain in (True, False)}
    with path.open("rb") as file:
        kept = b""
        while piece := file.read(1 << 20):
            if any(each in kept + piece for each in wanted):
                return True
            kept = piece[-max(map(len, wanted)) :]
    return False


def _refuse_repeated(label: str, names: Sequence[str]) -> None:
    """Refuse two columns of one name, since either could be meant."""
    repeated = [name for name, count in collections.Counter(names).items() if count > 1]
    if repeated:
        raise InvalidArgument(f"{label}: columns", "different names", repeated, "Rename all but one of them.")


def _scan_ipc(path: Path) -> pl.LazyFrame:
    """Arrow's file format, or its stream format, which cannot be read lazily."""
    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    return pl.scan_ipc(path) if is_file else pl.read_ipc_stream(path).lazy()


def place(path: Path, row: int) -> str:
    """The place of a row, counted from 0: in a text file, the line on which it begins."""
    if not _is_text(path):
        return f"{path}, row {row}"
    line, _ = next(itertools.islice(_records(path), row + 1, None))
    return f"{path}, line {line}"


def records(lines: Iterable[str], label: str, repair: str, separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The records of a CSV file, each with the line on which it begins; text in quotes may span several lines.

    A quote that is not closed is refused: all that follows it would be one long text.
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
    """The encoding, the separator and the header of a text file."""

    encoding: str
    separator: str
    header: list[str]
    has_lines: bool = True  # that end with line feeds, as polars requires


def _text_format(path: Path) -> _TextFormat:
    """From the byte order mark, and from a header and a first row that a separator divides into as many fields."""
    usual = "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with _open(path) as file:
            start = file.read(4)
        encoding = next((name for mark, name in _BYTE_ORDER_MARKS.items() if start.startswith(mark)), "utf-8-sig")
        errors = "surrogateescape" if encoding == "utf-8-sig" else "replace"
        with _open(path) as file, io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="") as text:
            head = list(itertools.islice((line for line in text if line.strip()), 2))
        rows = {each: [next(csv.reader([line], delimiter=each)) for line in head] for each in (usual, *_SEPARATORS)}
    except (EOFError, OSError, UnicodeError, csv.Error, zlib.error):  # polars reports it
        return _TextFormat("utf-8-sig", usual, [])
    agreed = [each for each, fields in rows.items() if len({len(row) for row in fields}) == 1 < len(fields[0])]
    several = [each for each, fields in rows.items() if fields and len(fields[0]) > 1]
    separator = (agreed or several or [usual])[0]
    has_lines = not any(line.endswith("\r") for line in head[:1])
    return _TextFormat(encoding, separator, rows[separator][0] if head else [], has_lines)


def _records(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Header and rows of a text file, as polars counts them: without empty lines before the header."""
    written = _text_format(path)
    with _open(path) as file:
        text = io.TextIOWrapper(file, encoding=written.encoding, newline="")
        found = records(text, str(path), "Close every quote, and double those inside.", written.separator)
        yield from itertools.dropwhile(lambda record: not record[1], found)


def _open(path: Path) -> IO[bytes]:
    opened: Any = gzip.open if path.name.lower().endswith(".gz") else open
    file: IO[bytes] = opened(path, "rb")
    return file


def _refuse_damaged_line(path: Path) -> None:
    """Refuse the first line of a text file that cannot be decoded, leaves a quote open or has too many fields.

    Of JSON lines, the first that is not an object.
    """
    if path.suffix.lower() == ".jsonl":
        _json_names(path, None)
    if not _is_text(path):
        return
    try:
        rows = _records(path)
        _, header = next(rows, (1, []))
        for line, fields in rows:
            if len(fields) > len(header):
                repair = "Delete the extra fields, or put quotes around text that contains the separator."
                raise InvalidArgument(f"{path}, line {line}", f"{len(header)} fields", fields, repair)
    except UnicodeDecodeError:
        encoding = _text_format(path).encoding
        if encoding != "utf-8-sig":
            got = f"{encoding.upper()}, damaged or truncated"
            raise InvalidArgument(str(path), "text that can be decoded", got, "Save it as UTF-8.") from None
        with _open(path) as file:
            line, text = next(
                (n, text) for n, text in enumerate(file, 1) if text.decode(errors="ignore").encode() != text
            )
        raise InvalidArgument(f"{path}, line {line}", "UTF-8 text", text, "Save it as UTF-8.") from None
    except (EOFError, OSError, zlib.error):
        pass  # a .gz that is truncated or damaged: polars has reported it


def _empty(label: str) -> ValueError:
    return InvalidArgument(label, "a table with a header and rows", "an empty file", "Save it again.")


def _unreadable(label: str, problem: Exception) -> ValueError:
    if isinstance(problem, pl.exceptions.NoDataError):
        return _empty(label)
    if isinstance(problem, pl.exceptions.PanicException):  # no column of a file can be read if one type is unknown
        repair = f"Convert that column (times: to UTC), or leave it out ({_reason(problem)})."
        return InvalidArgument(label, "a table of column types that polars has", "another", repair)
    repair = f"It may be truncated; save it again ({_reason(problem)})."
    return InvalidArgument(label, "a table that can be read", type(problem).__name__, repair)


def _refuse_column(label: str, names: Sequence[str], read: Callable[[str], object]) -> None:
    """Refuse the first column that cannot be read, where others can: it is of a type that polars lacks, or damaged."""
    problems: dict[str, Exception] = {}
    for name in names:
        try:
            read(name)
        except (TypeError, ValueError, OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as problem:
            problems[name] = problem
    if 0 < len(problems) < len(names):
        name, cause = next(iter(problems.items()))
        repair = f"Convert it (times: to UTC), or leave it out ({_reason(cause)})."
        raise InvalidArgument(f"{label}: {name}", "a column that can be read", "one that cannot", repair) from cause


def _reason(problem: Exception) -> str:
    """What went wrong, in one line; a panic has it in the middle."""
    text = str(problem).strip()
    found = re.search(r'ErrString\("(.*?)(?:\\n|")', text)
    return (found[1] if found else text.partition("\n")[0]).rstrip(".")


def _plain(source: Any) -> Any:
    """The source in a form that polars accepts: a pandas frame column by column, without importing pandas."""
    if isinstance(source, Mapping):
        return {name: _plain_column(name, column) for name, column in source.items()}
    if _is_pandas(source) and hasattr(source, "columns"):
        names = [str(name) for name in source.columns]
        _refuse_repeated("source", names)
        return {name: _plain_column(name, source.iloc[:, k]) for k, name in enumerate(names)}
    if hasattr(source, "__arrow_c_stream__"):
        for column in getattr(source, "schema", ()):
            if "decimal256" in str(getattr(column, "type", "")):  # polars panics
                got, repair = "a decimal256 column", "Convert it to decimal128, to floats or to strings."
                raise InvalidArgument(f"source: {column.name}", "a column of a type that polars has", got, repair)
        return source
    raise TypeError(f"{type(source).__name__!r} is not one of these")


def _is_pandas(source: Any) -> bool:
    return hasattr(source, "isna") and hasattr(source, "iloc")


def _plain_column(name: Any, column: Any) -> Any:
    """A column of a mapping or of a pandas frame in a form that polars accepts; missing values are None.

    NaN among numbers of a mapping is a number, and refused as such: it may be a mistake in their computation.
    """
    if isinstance(column, np.ndarray) and column.dtype.kind in "mM":
        return column.astype(f"{column.dtype.kind}8[us]")
    if _is_pandas(column):
        missing = column.isna()
        if column.dtype.kind in "biuf" and not missing.any():
            return column.to_numpy()
        found = [None if gap else value for value, gap in zip(column, missing, strict=True)]
    elif isinstance(column, list | tuple) or str(getattr(column, "dtype", "")) == "object":
        are_numbers = all(_is_missing(value) or isinstance(value, Number) for value in column)
        kept: Any = (float, np.floating) if are_numbers else ()
        found = [None if _is_missing(value) and not isinstance(value, kept) else value for value in column]
    else:
        return column
    return _all_values(name, [value.tolist() if isinstance(value, np.ndarray) else value for value in found])


def _is_missing(value: object) -> bool:
    """Whether a value is None, NaN, or pandas' NaT or NA."""
    is_nan = isinstance(value, float | np.floating) and value != value
    return is_nan or value is None or type(value).__name__ in ("NaTType", "NAType")


def _all_values(name: Any, values: list[Any]) -> pl.Series:
    """Values as a column; refused if polars would drop some that are not of the type of the others."""
    found = pl.Series(values, strict=False)
    if found.null_count() != sum(value is None for value in values):
        dropped = (row for row, gap in enumerate(found.is_null()) if gap and values[row] is not None)
        row = next(dropped)
        repair = "Convert the column to one type, such as strings."
        raise InvalidArgument(f"source, row {row}: {name}", "a value of the type of the others", values[row], repair)
    return found
