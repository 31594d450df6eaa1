"""What the commands about logs share: the options for a table of decisions, and how they tell what they found."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alphafair.cli._shared import plain_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from alphafair.evaluation import LogFile
    from alphafair.groups import ArmGroups
    from alphafair.lab.log_report import LogReport

File = Annotated[
    Path,
    typer.Argument(
        metavar="LOG", help="CSV, Parquet, Arrow or JSON lines: one row per decision, as alphafair export writes."
    ),
]
Context = Annotated[str, typer.Option(metavar="COLUMN", help="The log's column of contexts.")]
Arm = Annotated[str, typer.Option(metavar="COLUMN", help="The log's column of arms shown.")]
Reward = Annotated[str, typer.Option(metavar="COLUMN", help="The log's column of rewards; rows without are left out.")]
Propensity = Annotated[str, typer.Option(metavar="COLUMN", help="The log's column of probabilities, in (0, 1].")]
User = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Whose decision it was: bands are then over users, not rounds.")
]
Available = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="The log's column of lists of available arms, read if it is there; '' for none: every arm, always.",
    ),
]
Alpha = Annotated[float, typer.Option(metavar="X", help="Fairness in [0, 1): 0 is efficiency, toward 1 equality.")]
Confidence = Annotated[float, typer.Option(metavar="X", help="How surely intervals shall hold.")]
Replicates = Annotated[int, typer.Option(metavar="N", help="Of the bootstrap.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Of the bootstrap and of a policy's draws.")]
Output = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Where page, picture and numbers go; default: output.")
]

LONGEST_NUMBER = 40  # letters, with its interval
SHORT = 15  # letters: a column of so few is not broken
LONGEST_WORD = 20  # letters that are not broken in a table
ASSUMPTIONS = (
    "Rounds are alike: contexts and rewards of tomorrow are like those of the log, and what one round shows changes "
    "nothing in the next.",
    "Propensities are true, and every arm that the policy would show was shown now and then in the same context.",
    "Accounts, of arms or of groups, are what the policy earns on average on as many rounds as the log has, and an "
    "initial 1 each.",
)


def said() -> str:
    """The command as it was typed."""
    return shlex.join(["alphafair", *sys.argv[1:]])


def interval(found: tuple[float, float, float], written: str = "{:.4g}") -> str:
    """A number and its interval; a dash where there is none."""
    if any(side != side for side in found):
        return "-"
    value, low, high = (written.format(side) for side in found)
    return f"{value} ({low} to {high})"


def tell(report: LogReport, draw: Callable[[], Figure], folder: Path | None, as_json: bool) -> None:
    """Write the page and its files if there is a folder for them, and print the table, or the numbers as JSON."""
    from alphafair.lab.log_report import write_log_report

    page = None if folder is None else write_log_report(report, draw(), folder)
    if as_json:
        typer.echo(json.dumps(report.numbers, indent=2, allow_nan=False))
        return
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    console.print(f"{report.lead}\n")
    table = plain_table()
    for place, heading in enumerate(report.headings):
        is_prose = place == 0 or max((len(row[place]) for row in report.rows), default=0) > LONGEST_NUMBER
        table.add_column(heading, justify="left" if is_prose else "right", overflow="fold")
    for column, width in zip(table.columns, widths([report.headings, *report.rows], console.width), strict=True):
        column.width = width
    for row in report.rows:
        table.add_row(*row)
    console.print(table)
    for sentence in report.sentences:
        console.print(f"\n{sentence}")
    console.print(f"\n{report.caption}")
    if page is not None:
        console.print(f"\nPage: {page}\nNumbers: {page.with_suffix('.json')}", soft_wrap=True)


def widths(rows: Sequence[Sequence[str]], room: int) -> list[int | None]:
    """How wide the columns of a table shall be, with a blank behind each, so that no word is broken.

    A column gets its longest word, or all of it if it is short, and those that lack most share what room is left. None
    where everything has room, or not even the words have.
    """
    columns = list(zip(*rows, strict=True))
    whole = [max(map(len, column)) for column in columns]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    found = [all_ if all_ <= SHORT else min(word, LONGEST_WORD) for all_, word in zip(whole, words, strict=True)]
    spare = room - sum(found) - len(columns)
    if sum(whole) + len(columns) <= room or spare < 0:
        return [None] * len(columns)
    for _ in range(spare):
        lacks = [all_ - given for all_, given in zip(whole, found, strict=True)]
        found[lacks.index(max(lacks))] += 1
    return [*found]


def sizes(log: LogFile, groups: ArmGroups) -> str:
    """How much there is to learn from, and about whom."""
    from alphafair.formatting import counted, listed

    numbers = {"round": log.n_rounds, "context": log.n_contexts, "arm": log.n_arms}
    in_groups = f" in {counted(groups.n_groups, 'group')}" if groups.named else ""
    return listed([counted(number, noun) for noun, number in numbers.items()]) + in_groups
