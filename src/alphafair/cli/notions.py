"""`alphafair notions`: compare published notions of fairness."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alphafair.cli._shared import Dask, Insecure, Show, Workers, chosen_executor, make_page, plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from alphafair.lab.notions import NotionsResults

SHOWN = ("reward", "least_pulls", "lapse", "rate_shortfall", "merit", "favored", "envy", "proportional", "wait")


def command(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for the page and the runs.")] = Path(
        "notions"
    ),
    seeds: Annotated[int | None, typer.Option(metavar="N", help="Seeds per world, 0 to N - 1; default: 3.")] = None,
    workers: Workers = None,
    dask: Dask = None,
    insecure: Insecure = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Play a few policies for a few hundred rounds, on synthetic ratings.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print all measures as JSON in place of tables.")] = False,
    show: Show = False,
) -> None:
    """Compare published notions of fairness: how fair every policy is by each of them, and what it costs.

    35 policies play 20,000 rounds of four worlds: stationary rewards, ratings, clicks and changing rewards. Measured
    are reward and welfare, shares of pulls, promised rates, merit, envy, waiting and what visitors get. Results are
    saved as they are computed: an interrupted run continues where it stopped, and a second run reuses everything.
    """
    from alphafair import validate
    from alphafair.lab.notions import write_notions

    if seeds is not None:
        validate.integer("--seeds", seeds, low=1)
    words = ["alphafair", "notions", *(["--seeds", str(seeds)] if seeds else []), *(["--smoke"] if smoke else [])]
    with chosen_executor(workers, dask, insecure, processes=True) as executor:
        make = partial(write_notions, smoke=smoke, n_seeds=seeds, executor=executor)
        if json:
            from alphafair.cli._shared import make_folder
            from alphafair.lab.results import as_json

            typer.echo(as_json(make(make_folder(output))), nl=False)
        else:
            make_page(make, _print_measures, output, words, show)


def _print_measures(console: Console, results: NotionsResults) -> None:
    """A table for each world, with the measures that fit on a screen."""
    from alphafair.lab.fairness import MEASURES

    for world in results.worlds:
        table = plain_table(f"{world.title}: means over {len(world.seeds)} seeds")
        table.add_column("")
        for name in SHOWN:
            table.add_column(MEASURES[name].title, justify="right")
        for row in world.rows:
            values = {name: row.mean(name) for name in SHOWN}
            cells = ("" if value is None else MEASURES[name].text(value) for name, value in values.items())
            table.add_row(row.label, *cells)
        console.print(table)
        console.print()
    console.print("The page has every measure with a picture.")
