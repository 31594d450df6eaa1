"""What several commands share: options, the reading of a table of rounds, the folder for results, pages."""

from __future__ import annotations

import importlib
import math
import os
import shlex
import webbrowser
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from alphafair.values import Stream

Context = Annotated[str, typer.Option("--context", metavar="COLUMN", help="The file's column of contexts.")]
Arms = Annotated[
    list[str] | None,
    typer.Option("--arm", metavar="COLUMN", help="A column of rewards of the file; repeat. Default: all others."),
]
Time = Annotated[
    str | None,
    typer.Option("--time", metavar="COLUMN", help="The file's column to sort rounds by. Default: as the rows come."),
]
RewardRange = Annotated[
    tuple[float, float] | None,
    typer.Option("--reward-range", metavar="LOW HIGH", help="Map the file's rewards from this range onto [0.2, 1]."),
]
Copy = Annotated[Path, typer.Argument(metavar="COPY", help="A new file.", show_default=False)]
EngineFile = Annotated[Path, typer.Argument(metavar="FILE", help="An engine's file.", show_default=False)]
Experiment = Annotated[
    str, typer.Option("--experiment", "-e", metavar="NAME", help="Which of those in the file.", show_default=False)
]

AsJson = Annotated[
    bool, typer.Option("--json", help="Print the numbers as JSON and nothing else; write files only with --output.")
]
Jobs = Annotated[int | None, typer.Option("--jobs", metavar="N", help="Threads at work; default: one per core.")]
Show = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


def read_rounds(
    path: Path,
    context: str,
    arms: list[str] | None,
    time: str | None,
    reward_range: tuple[float, float] | None,
    *,
    most: float,
) -> Stream:
    """The rounds of a file: rewards in [0, most], or mapped onto [0.2, 1] where their range is given."""
    import numpy as np

    from alphafair import rescale_rewards, streams
    from alphafair.data.table import place
    from alphafair.formatting import exact

    low, high = reward_range or (0.0, most)
    if reward_range is not None and not -math.inf < low < high < math.inf:
        repair = "Say the lower number first."
        raise InvalidArgument("--reward-range", "two numbers, LOW below HIGH", [low, high], repair)
    stream = streams.table(path, context=context, arm_columns=arms, time=time)
    rewards = stream.reward_table
    outside = np.argwhere((rewards < low) | (rewards > high))
    if len(outside):
        row, arm = (int(i) for i in outside[0])
        where = f"{place(path, row)}: {(stream.arm_labels or ())[arm]}"
        allowed = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        least, greatest = float(rewards.min()), float(rewards.max())
        if least == greatest:  # no range: take 0 in
            least, greatest = min(least, 0.0), max(greatest, 0.0)
        repair = f"Say --reward-range {exact(least)} {exact(greatest)}, or name the --arm columns."
        if reward_range is None and most == math.inf and stream.n_rounds == stream.n_contexts:
            repair = "These look like totals: map the rewards before adding them up, or name the --arm columns."
        raise InvalidArgument(where, allowed, float(rewards[row, arm]), repair)
    return stream if reward_range is None else replace(stream, reward_table=rescale_rewards(rewards, low, high))


def plain_table(title: str | None = None) -> Table:
    """A table without lines, to be filled."""
    from rich.table import Table

    return Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="bold")


def make_folder(path: Path) -> Path:
    """The folder, made if it is not there."""

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        repair = f"{problem.strerror}: choose another."
        raise InvalidArgument("--output", "a folder, there or to be made", str(path), repair) from None
    if not os.access(path, os.W_OK):
        raise InvalidArgument("--output", "a folder that can be written", str(path), "Choose another.")
    return path


def output_folder(output: Path | None, as_json: bool) -> Path | None:
    """The folder for results, made: the one that was asked for, or else `output`, or none where JSON is printed."""
    return None if output is None and as_json else make_folder(output or Path("output"))


def make_page(
    make: Callable[..., Any], show_results: Callable[[Console, Any], None], output: Path, words: list[str], show: bool
) -> None:
    """Make a page under bars, print what was found and where the page is; `words` are the command that it names."""
    from rich.console import Console

    from alphafair.progress import progress_bar

    make_folder(output)
    with progress_bar() as bar:

        def progress(title: str, total: int) -> Callable[[int], None]:
            return partial(bar.advance, bar.add_task(title, total=total))

        results = make(output, command=shlex.join(words), progress=progress)
    console = Console(highlight=False)
    show_results(console, results)
    page = output / "index.html"
    console.print(f"\nPage: {page}")
    if show:
        webbrowser.open(page.resolve().as_uri())


def service_module(name: str) -> Any:
    """A module of the service, or a sentence about what has to be installed for it."""
    try:
        return importlib.import_module(f"alphafair.service.{name}")
    except ModuleNotFoundError as problem:
        typer.echo(f'error: {problem.name} is not installed. Run: pip install "alphafair[service]"', err=True)
        raise typer.Exit(1) from None


def actor() -> str:
    """How changes that are made from the command line are recorded."""
    import getpass

    try:
        return f"{getpass.getuser()} (command line)"
    except OSError:  # a user without a name, as in some containers
        return f"user {os.getuid()} (command line)"
