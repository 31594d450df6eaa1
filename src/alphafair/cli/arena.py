"""`alphafair arena`: all policies on all courses."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from alphafair.cli._shared import Jobs, Show, make_page, plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from alphafair.lab.results import Arena, Score

SEEING = {"bandit": "sees one reward per round", "full": "sees all rewards"}


def command(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the page and the runs are kept.")] = Path(
        "arena"
    ),
    seeds: Annotated[int | None, typer.Option(metavar="N", help="Seeds per course: 0 to N - 1; default: 20.")] = None,
    jobs: Jobs = None,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="The same on a few hundred rounds, with synthetic ratings.")
    ] = False,
    show: Show = False,
) -> None:
    """Let all policies play all courses, and say who learns what.

    Ratings, stationary and changing worlds, clicks, tiny and late rewards, and adversaries that see the distribution:
    the share of the gap between uniform play and the optimum that every policy closes. Results are kept as they come: a
    stopped run goes on where it was, and a second one reuses everything.
    """
    from alphafair import validate
    from alphafair.lab.arena import arena

    for option, value in (("--jobs", jobs), ("--seeds", seeds)):
        if value is not None:
            validate.integer(option, value, low=1)
    words = ["alphafair", "arena", *(["--seeds", str(seeds)] if seeds else []), *(["--smoke"] if smoke else [])]
    make_page(partial(arena, smoke=smoke, n_seeds=seeds, jobs=jobs), _print_shares, output, words, show)


def _print_shares(console: Console, results: Arena) -> None:
    """A table per feedback and alpha: percent of the gap closed."""
    from alphafair.formatting import PLUS_MINUS
    from alphafair.lab.claims import HOLDS, verdict

    def text(score: Score) -> str:
        found = score.gap_closed
        if found is None:
            return "no gap"
        share = str(round(100.0 * found.mean))
        return f"{share} {PLUS_MINUS}{50.0 * (found.high - found.low):.0f}" if found.random else share

    described = (("rounds with features, ", results.described),) if results.described else ()
    for what, meetings in (("", results.meetings), *described):
        for feedback, sees in SEEING.items():
            for alpha in results.alphas:
                table = plain_table(f"{what}alpha = {alpha:g}, {sees}: percent of the gap closed")
                table.add_column("")
                for score in meetings[0].of(feedback, alpha):
                    table.add_column(score.label, justify="right")
                for meeting in meetings:
                    table.add_row(meeting.title, *map(text, meeting.of(feedback, alpha)))
                console.print(table)
                console.print()
    console.print("0 is uniform play, 100 the best fixed policy in hindsight; after it half of a 95% band over seeds.")
    if described:
        console.print("On rounds with features 100 is who knows every mean.")
    else:
        console.print("Rounds with features are left out: they need scikit-learn, pip install 'alphafair[features]'.")
    promises = [(meeting.title, lead) for meeting in results.meetings for lead in meeting.promises]
    doubtful = [f"{title}, {lead.what}: {verdict([lead])}" for title, lead in promises if verdict([lead]) != HOLDS]
    count = f"{len(promises) - len(doubtful)} of {len(promises)}"
    if promises:
        console.print(f"Promises of the adaptive policy against adversaries that hold: {count}.", *doubtful, sep="\n")
