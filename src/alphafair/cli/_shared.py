"""Options and functions that several commands share."""

from __future__ import annotations

import math
import os
import shlex
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rich.console import Console
    from rich.table import Table

    from alphafair.values import Stream

ALPHA_HELP = "0 to inf: 0 maximizes the sum of rewards, 1 proportional fairness, inf the poorest arm"
Alpha = Annotated[float, typer.Option("--alpha", metavar="X", help=f"Fairness, {ALPHA_HELP}.")]
Context = Annotated[str, typer.Option("--context", metavar="COLUMN", help="The file's column of contexts.")]
Arms = Annotated[
    list[str] | None,
    typer.Option(
        "--arm", metavar="COLUMN", help="A column of rewards in the file; may be repeated. Default: all other columns."
    ),
]
Time = Annotated[
    str | None,
    typer.Option("--time", metavar="COLUMN", help="The file's column to sort rounds by. Default: keep their order."),
]
RewardRange = Annotated[
    tuple[float, float] | None,
    typer.Option("--reward-range", metavar="LOW HIGH", help="Map the file's rewards from this range onto [0.2, 1]."),
]
Copy = Annotated[str, typer.Argument(metavar="COPY", help="The file or database to create.", show_default=False)]
EngineFile = Annotated[
    str,
    typer.Argument(metavar="FILE|URL", help="An engine's file, or postgresql://USER@HOST/NAME.", show_default=False),
]
Experiment = Annotated[
    str, typer.Option("--experiment", "-e", metavar="NAME", help="The name of the experiment.", show_default=False)
]

AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers", metavar="N", help="Number of threads, or of processes for a large log; default: one per core."
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Run on the Dask cluster of this scheduler: tcp://127.0.0.1:8786 or tls://…"),
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Connect without encryption to a cluster that is not on this machine.")
]
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
    """Read the rounds of a file: rewards in [0, most], or mapped onto [0.2, 1] if their range is given."""
    import numpy as np

    from alphafair import rescale_rewards, streams
    from alphafair.formatting import exact
    from alphafair.tables import place

    low, high = reward_range or (0.0, most)
    if reward_range is not None and not -math.inf < low < high < math.inf:
        repair = "Pass the lower number first."
        raise InvalidArgument("--reward-range", "two numbers, LOW below HIGH", [low, high], repair)
    stream = streams.table(path, context=context, arm_columns=arms, time=time)
    rewards = stream.reward_table
    outside = np.argwhere((rewards < low) | (rewards > high))
    if len(outside):
        row, arm = (int(i) for i in outside[0])
        where = f"{place(path, row)}: {(stream.arm_labels or ())[arm]}"
        allowed = f"at least {low:g}" if high == math.inf else f"in [{low:g}, {high:g}]"
        least, greatest = float(rewards.min()), float(rewards.max())
        if least == greatest:  # an empty range: include 0
            least, greatest = min(least, 0.0), max(greatest, 0.0)
        repair = f"Pass --reward-range {exact(least)} {exact(greatest)}, or the columns of rewards with --arm."
        if reward_range is None and most == math.inf and stream.n_rounds == stream.n_contexts:
            repair = "These look like totals: map the rewards before adding them up, or pass reward columns with --arm."
        raise InvalidArgument(where, allowed, float(rewards[row, arm]), repair)
    return stream if reward_range is None else replace(stream, reward_table=rescale_rewards(rewards, low, high))


def plain_table(title: str | None = None) -> Table:
    """An empty table without lines."""
    from rich.table import Table

    return Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), header_style="bold")


def make_folder(path: Path) -> Path:
    """Create a folder if it does not exist."""

    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        repair = f"{problem.strerror}: choose another."
        raise InvalidArgument("--output", "a folder that exists or can be created", str(path), repair) from None
    if not os.access(path, os.W_OK):
        raise InvalidArgument("--output", "a folder that can be written", str(path), "Choose another.")
    return path


def output_folder(output: Path | None, as_json: bool) -> Path | None:
    """Create and return the folder for results: the one passed, or else `output`, or None if JSON is printed."""
    return None if output is None and as_json else make_folder(output or Path("output"))


def make_page(
    make: Callable[..., Any], show_results: Callable[[Console, Any], None], output: Path, words: list[str], show: bool
) -> None:
    """Make a page, show progress bars, and print the results and the path; `words` is the command line to show."""
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


@contextmanager
def chosen_executor(
    workers: int | None,
    dask: str | None,
    insecure: bool,
    processes: bool = False,
) -> Iterator[Executor]:
    """Threads, or processes for work that threads do not make faster; or the workers of a Dask cluster."""
    from concurrent.futures import ThreadPoolExecutor

    from alphafair import executors, validate

    if workers is not None:
        validate.integer("--workers", workers, low=1)
        if dask is not None:
            raise InvalidArgument("--workers", "left out with --dask", workers, "The cluster has its own workers.")
    if dask is None:
        if insecure:
            raise InvalidArgument("--insecure", "given with --dask", insecure, "Pass --dask ADDRESS as well.")
        n_workers = workers or os.cpu_count() or 1
        pool = executors.ProcessPool if processes and n_workers > 1 else ThreadPoolExecutor
        with pool(n_workers) as own:
            yield own
        return
    with executors.connect(dask, insecure=insecure) as cluster:
        yield cluster


def actor() -> str:
    """The user name with which changes from the command line are recorded."""
    import getpass

    try:
        return f"{getpass.getuser()} (command line)"
    except OSError:  # the user has no name, as in some containers
        return f"user {os.getuid()} (command line)"
