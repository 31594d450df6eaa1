"""Text in CSV files that people open in spreadsheets.

A spreadsheet runs a cell that begins with `=`, `+`, `-`, `@`, a tab or a carriage return as a formula, and labels come
from anybody. Such text is written with an apostrophe before it, which makes it text in a spreadsheet. Text that begins
with apostrophes before such a character gets one more, so that taking one away gives back what was there. Plain numbers
are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

_FORMULA = r"^'*[=+\-@\t\r]"
_NUMBER = r"^[+-]?[0-9]+(\.[0-9]+)?$"
_MARKED = r"^'('*[=+\-@\t\r])"


def marked(text: pl.Expr) -> pl.Expr:
    """Text as it is written."""
    import polars as pl

    risky = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    return pl.when(~risky).then(text).otherwise(pl.lit("'") + text)  # in this order, it keeps the column's name


def unmarked(text: pl.Expr) -> pl.Expr:
    """What `marked` was given."""
    return text.str.replace(_MARKED, "$1")


def marked_labels(labels: Sequence[str]) -> list[str]:
    """Labels as they are written, such as the names of columns."""
    import polars as pl

    return pl.select(marked(pl.lit(pl.Series(labels, dtype=pl.String)))).to_series().to_list()


def unmarked_table(rows: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
    """A table that was read from a file, with its text in some columns, and all their names, as they were."""
    import polars as pl

    names = rows.collect_schema().names()
    before = pl.select(unmarked(pl.lit(pl.Series(names, dtype=pl.String)))).to_series().to_list()
    return rows.with_columns(unmarked(pl.col(*columns).cast(pl.String))).rename(dict(zip(names, before, strict=True)))
