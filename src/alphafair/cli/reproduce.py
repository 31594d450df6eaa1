"""`alphafair reproduce`: the paper's experiments on real ratings, and a report of them."""

from __future__ import annotations

import shlex
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alphafair.cli._shared import make_folder

if TYPE_CHECKING:
    from rich.console import Console


def command(
    data: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A MovieLens folder or zip of yours; default: the one in the package."),
    ] = None,
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report and the runs are kept.")] = Path(
        "report"
    ),
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Threads at work; default: one a core.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="The same on a few hundred rows, in seconds.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Reproduce the paper: its experiments, and a report of them.

    The report has every claim with its numbers and every figure. Results are kept as they come: a stopped run goes on
    where it was, and a second one reuses everything.
    """
    from functools import partial

    from rich.console import Console

    from alphafair import validate
    from alphafair.experiments.reproduce import Data, reproduce
    from alphafair.progress import progress_bar

    if jobs is not None:
        validate.integer("--jobs", jobs, low=1)
    if data is not None and not data.exists():
        raise validate.Refusal("--data", "a folder or zip that exists", str(data), "Try `alphafair data get 25m`.")
    make_folder(output)
    words = ["alphafair", "reproduce", *(["--data", str(data)] if data else []), *(["--smoke"] if smoke else [])]
    with progress_bar() as bar:

        def started(title: str, total: int) -> Callable[[int], None]:
            return partial(bar.advance, bar.add_task(title, total=total))

        page = reproduce(Data(data), output, smoke=smoke, jobs=jobs, command=shlex.join(words), started=started)
    console = Console(highlight=False)
    _print_claims(console, page.parent / "results.json")
    console.print(f"\nReport: {page}")
    if show:
        webbrowser.open(page.resolve().as_uri())


def _print_claims(console: Console, path: Path) -> None:
    import json

    from rich.table import Table

    from alphafair.experiments.claims import FAILS, HOLDS, OPEN

    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for heading in ("claim", "source", "verdict", "measured"):
        table.add_column(heading)
    for claim in json.loads(path.read_text(encoding="utf-8"))["claims"]:
        colour = {HOLDS: "green", FAILS: "red", OPEN: "yellow"}[claim["verdict"]]
        verdict = f"[{colour}]{claim['verdict']}[/]"
        table.add_row(f"{claim['id']}  {claim['claim']}", claim["source"], verdict, claim["measured"])
    console.print(table)
