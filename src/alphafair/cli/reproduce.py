"""`alphafair reproduce`: run the paper's experiments on real ratings and write a report."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alphafair.cli._shared import (
    Dask,
    Insecure,
    Show,
    Workers,
    chosen_executor,
    make_page,
    plain_table,
)
from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console

    from alphafair.lab.results import Results


def command(
    data: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A MovieLens folder or zip; default: latest-small."),
    ] = None,
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for the report and the runs.")] = Path(
        "report"
    ),
    workers: Workers = None,
    dask: Dask = None,
    insecure: Insecure = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Use only a few hundred ratings, synthetic ones without --data.")
    ] = False,
    show: Show = False,
) -> None:
    """Reproduce the paper: run its experiments and write a report.

    The report has every claim with its numbers and every figure. Results are saved as they are computed: an interrupted
    run continues where it stopped, and a second run reuses everything.

    Without --data the ratings are MovieLens latest-small: the repository's copy, or a download (1 MB, once).
    """
    from alphafair.data.downloads import LICENSE
    from alphafair.lab.reproduction import Data, reproduce

    if data is not None and not data.exists():
        raise InvalidArgument("--data", "a folder or zip that exists", str(data), "Try `alphafair data get 25m`.")
    words = ["alphafair", "reproduce", *(["--data", str(data)] if data else []), *(["--smoke"] if smoke else [])]
    with chosen_executor(workers, dask, insecure) as executor:
        if data is None and not smoke:
            typer.echo(LICENSE, err=True)
        make = partial(reproduce, Data(data), smoke=smoke, executor=executor)
        make_page(make, _print_claims, output, words, show)


def _print_claims(console: Console, results: Results) -> None:
    from rich.markup import escape

    from alphafair.lab.claims import FAILS, HOLDS, OPEN

    part = results.data.part
    if part is not None:
        console.print(f"A part of {part.of}: {part.found:,} of its {part.complete:,} ratings were found.\n")
    table = plain_table()
    for heading in ("verdict", "claim", "measured", "source"):
        table.add_column(heading)
    for claim in results.claims:
        color = {HOLDS: "green", FAILS: "red", OPEN: "yellow"}[claim.verdict]
        cells = (f"{claim.id}  {claim.claim}", claim.measured, claim.source)
        table.add_row(f"[{color}]{claim.verdict}[/]", *map(escape, cells))
    console.print(table)
