"""Options of the commands about logs, and the output of their results."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alphafair.cli._shared import make_folder, plain_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from alphafair.evaluation.log_pages import LogPage
    from alphafair.evaluation.log_rows import AnyLog
    from alphafair.groups import ArmGroups
    from alphafair.values import Interval


def _make_before_the_work(ctx: typer.Context, path: Path | None) -> Path | None:
    """Create the folder for results at once, since a log may take hours; it is removed if nothing is written there."""
    if path is not None and not path.exists():
        make_folder(path)
        ctx.call_on_close(partial(_remove_if_empty, path))
    return None if path is None else make_folder(path)


def _remove_if_empty(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()


File = Annotated[
    Path,
    typer.Argument(
        metavar="LOG",
        help="CSV, Parquet, Arrow or JSON lines, or a folder of Parquet files: one row per shown arm, as "
        "alphafair export writes.",
    ),
]
Context = Annotated[str, typer.Option(metavar="COLUMN", help="The log's column of contexts.")]
Arm = Annotated[str, typer.Option(metavar="COLUMN", help="The log's column of arms shown.")]
Reward = Annotated[
    str, typer.Option(metavar="COLUMN", help="The log's column of rewards; rows without a reward are left out.")
]
Propensity = Annotated[str, typer.Option(metavar="COLUMN", help="The log's column of probabilities, in (0, 1].")]
User = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The log's column of users, whose rounds are then resampled together."),
]
Decision = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="The log's column that says which rows are of one decision, where decisions show several arms. Found by "
        "itself in files of alphafair export.",
    ),
]
Available = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="The log's column of lists of available arms, if it exists; '' if all arms were always available.",
    ),
]
Confidence = Annotated[float, typer.Option(metavar="X", help="Confidence level of the intervals, 0.5 to 0.999.")]
Replicates = Annotated[int, typer.Option(metavar="N", help="Number of bootstrap replicates, 100 to 100,000.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of the bootstrap and of the draws of policies that learn.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FOLDER",
        help="Write a page, its figure and numbers there. Default: no files.",
        callback=_make_before_the_work,
    ),
]

LARGE = 1 << 26  # rows of Parquet files: fewer take less time than processes take to start
LONGEST_NUMBER = 40  # characters, with its interval
SHORT = 15  # characters: a column of at most as many is not broken
LONGEST_WORD = 20  # characters that are not broken in a table
ASSUMPTIONS = (
    "Rounds are exchangeable: future contexts and rewards are distributed as in the log, and the arm shown in one "
    "round does not affect later rounds.",
    "Propensities are true, and every arm that the policy would show was sometimes shown in the same context.",
    "Accounts, of arms or of groups, are the expected rewards of the policy on as many rounds as the log has, plus an "
    "initial 1 each.",
)


SLATES = (
    "Every decision shows several arms. What an arm earns does not depend on which others are shown with it; slots are "
    "averaged over."
)


def assumptions(log: AnyLog) -> tuple[str, ...]:
    """What the estimates from a log assume."""
    return (*ASSUMPTIONS, SLATES) if (log.most_shown > 1).any() else ASSUMPTIONS


def is_large(path: Path) -> bool:
    """Whether processes read a log faster than threads, although they must be started: see docs/howto/use_a_cluster.md.

    Only the pieces of Parquet files are read at the same time.
    """
    from alphafair.tables import count_rows, table_files

    return sum(count_rows(file) or 0 for file in table_files(path)) >= LARGE


def name_of(path: Path) -> str:
    """The name of a log: that of its file or folder, also of the folder where the command was entered."""
    return path.name or path.resolve().name or str(path)


def command_line() -> str:
    """The command as it was entered."""
    return shlex.join(["alphafair", *sys.argv[1:]])


def interval(found: Interval, written: str = "{:.4g}") -> str:
    """A number and its interval; a dash where it is NaN."""
    if any(side != side for side in found):
        return "-"
    value, low, high = (written.format(side) for side in found)
    return f"{value} ({low} to {high})"


def show(page: LogPage, draw: Callable[[], Figure], output: Path | None, as_json: bool) -> None:
    """Print the table, or the numbers as JSON; write the page and its files only into a given folder."""
    from alphafair.evaluation.log_pages import write_log_page
    from alphafair.formatting import visible

    rows, sentences = [[visible(cell) for cell in row] for row in page.rows], [visible(each) for each in page.sentences]
    page = page._replace(lead=visible(page.lead), rows=rows, sentences=sentences, command=visible(page.command))
    path = None if output is None else write_log_page(page, draw(), output)
    if as_json:
        typer.echo(json.dumps(page.numbers, indent=2, allow_nan=False))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(f"{page.lead}\n")
    table = plain_table()
    for place, heading in enumerate(page.headings):
        is_prose = place == 0 or max((len(row[place]) for row in page.rows), default=0) > LONGEST_NUMBER
        table.add_column(heading, justify="left" if is_prose else "right", overflow="fold")
    for column, width in zip(table.columns, widths([page.headings, *page.rows], console.width), strict=True):
        column.width = width
    for row in page.rows:
        table.add_row(*row)
    console.print(table)
    for sentence in page.sentences:
        console.print(f"\n{sentence}")
    console.print(f"\n{page.caption}")
    if path is not None:
        written = (visible(str(each)) for each in (path, path.with_suffix(".json")))
        console.print("\nPage: {}\nNumbers: {}".format(*written), soft_wrap=True)


def widths(rows: Sequence[Sequence[str]], width: int) -> list[int | None]:
    """The widths of the columns of a table of `width` characters, with a blank after each, so that no word is broken.

    A column gets its longest word, or all of it if it is short, and the rest goes to the columns that lack most. None
    where everything fits, or not even the words do.
    """
    columns = list(zip(*rows, strict=True))
    whole = [max(map(len, column)) for column in columns]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    found = [all_ if all_ <= SHORT else min(word, LONGEST_WORD) for all_, word in zip(whole, words, strict=True)]
    spare = width - sum(found) - len(columns)
    if sum(whole) + len(columns) <= width or spare < 0:
        return [None] * len(columns)
    for _ in range(spare):
        lacks = [all_ - given for all_, given in zip(whole, found, strict=True)]
        found[lacks.index(max(lacks))] += 1
    return [*found]


def sizes(log: AnyLog, groups: ArmGroups) -> str:
    """The numbers of rounds, contexts, arms and groups."""
    from alphafair.formatting import counted, listed

    numbers = {"round": log.n_rounds, "context": log.n_contexts, "arm": log.n_arms}
    in_groups = f" in {counted(groups.n_groups, 'group')}" if groups.named else ""
    return listed([counted(number, noun) for noun, number in numbers.items()]) + in_groups
