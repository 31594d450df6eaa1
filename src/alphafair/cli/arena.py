"""`alphafair arena`: compare all policies in all scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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

if TYPE_CHECKING:
    from rich.console import Console

    from alphafair.lab.results import ArenaResults, Match, Score
    from alphafair.values import Interval

SETTINGS = {"bandit": "bandit feedback", "full": "full information"}


def command(
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for the page and the runs.")] = Path(
        "arena"
    ),
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Seeds per scenario, 0 to N - 1; default: 20, for short runs 100, with many arms 10."
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            "--k", metavar="N", help="Show N arms in every decision, in seven scenarios with rivals of slates."
        ),
    ] = None,
    workers: Workers = None,
    dask: Dask = None,
    insecure: Insecure = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Use only a few hundred rounds, and synthetic ratings.")
    ] = False,
    show: Show = False,
) -> None:
    """Compare all policies in all scenarios: how much of the gap to the optimum each closes.

    Scenarios are ratings, stationary and changing rewards, short runs, many arms, clicks, purchases, heavy tails, tiny
    and late rewards, rounds with features, and adversaries that see the distribution; with --k seven of them, in which
    policies of single arms draw a slate one by one. The gap is that between uniform
    play and the optimum. Rivals with settings are shown with the best of them, tuned in hindsight. Results are saved as
    they are computed: an interrupted run continues where it stopped, and a second run reuses everything.
    """
    from alphafair import validate
    from alphafair.lab.arena import write_arena

    if seeds is not None:
        validate.integer("--seeds", seeds, low=1)
    if k is not None:
        validate.integer("--k", k, low=1)
    chosen = {"--seeds": seeds, "--k": k}
    words = [word for name, number in chosen.items() if number is not None for word in (name, str(number))]
    words = ["alphafair", "arena", *words, *(["--smoke"] if smoke else [])]
    with chosen_executor(workers, dask, insecure) as executor:
        make = partial(write_arena, smoke=smoke, n_seeds=seeds, k=k, executor=executor)
        make_page(make, _print_shares, output, words, show)


def _print_tuned(
    console: Console, what: str, matches: Sequence[Match], alpha: float, text: Callable[[Score], str]
) -> None:
    """The best setting of each tuned rival, and the lead of the adaptive policy over the best of all."""
    from alphafair.formatting import PLUS_MINUS

    if not matches[0].tuned:
        return
    table = plain_table(f"{what}: percent of the gap closed by rivals tuned in hindsight on these seeds")
    table.add_column("")
    first = matches[0].of("bandit", alpha)[0]
    for label in (first.label, *(f"{each.label}, best of {each.n_settings}" for each in matches[0].tuned_at(alpha))):
        table.add_column(label, justify="right")
    table.add_column("ahead of the best by", justify="right")
    for match in matches:
        best = match.best_tuned(alpha)
        lead = None if best is None else best.lead
        shown = f"{100.0 * lead.value:.1f} {PLUS_MINUS}{50.0 * (lead.high - lead.low):.1f}" if lead else ""
        rivals = (f"{text(each)} ({each.setting})" for each in match.tuned_at(alpha))
        table.add_row(match.title, text(match.of("bandit", alpha)[0]), *rivals, shown)
    console.print(table)
    console.print()


def _print_shares(console: Console, results: ArenaResults) -> None:
    """A table for each feedback and alpha: percent of the gap closed."""
    from alphafair.formatting import PLUS_MINUS
    from alphafair.lab.claims import HOLDS, verdict

    def text(score: Score) -> str:
        found = score.gap_closed
        if found is None:
            return "no gap"
        share = str(round(100.0 * found.value))
        return f"{share} {PLUS_MINUS}{50.0 * (found.high - found.low):.0f}" if found.random else share

    def ratio_text(found: Interval) -> str:
        half = (found.high - found.low) / 2.0
        return f"{found.value:.3f} {PLUS_MINUS}{half:.3f}" if half >= 5e-4 else f"{found.value:.3f}"

    with_features = (("rounds with features, ", results.with_features),) if results.with_features else ()
    steep = (("", results.steep),) if results.steep else ()
    for what, matches in (("", results.matches), *steep, *with_features):
        for feedback, setting in SETTINGS.items():
            for alpha in matches[0].alphas:
                table = plain_table(f"{what}alpha = {alpha:g}, {setting}: percent of the gap closed")
                table.add_column("")
                for score in matches[0].of(feedback, alpha):
                    table.add_column(score.label, justify="right")
                for match in matches:
                    table.add_row(match.title, *map(text, match.of(feedback, alpha)))
                console.print(table)
                console.print()
    for what, matches in (("", results.matches), *steep, *with_features):
        for alpha in matches[0].alphas:
            _print_tuned(console, f"{what}alpha = {alpha:g}", matches, alpha, text)
    for feedback, setting in SETTINGS.items() if results.dying else ():
        table = plain_table(f"dying arms, {setting}: welfare of the best fixed policy over that of the policy")
        table.add_column("")
        table.add_column("no policy below", justify="right")
        for score in results.dying[0].of(feedback, results.dying[0].alphas[0]):
            table.add_column(score.label, justify="right")
        for match in results.dying:
            ratios = [score.welfare_ratio for score in match.of(feedback, match.alphas[0])]
            table.add_row(match.title, f"{match.bound:.3f}", *(ratio_text(each) for each in ratios if each))
        console.print(table)
        console.print()
    slates = "" if results.k is None else f", of slates of {results.k}"
    console.print(
        f"0 is uniform play, 100 the best fixed policy in hindsight{slates}; "
        f"{PLUS_MINUS} half of a 95% interval over seeds."
    )
    if results.k is not None:
        return
    if with_features:
        console.print("On rounds with features 100 is the policy that knows every mean.")
    else:
        console.print(
            "Rounds with features need scikit-learn and are left out. Run: pip install 'alphafair[features]'."
        )
    verdicts = {
        f"{match.title}, {what}": verdict([lead]) for match in results.matches for what, lead in match.promises.items()
    }
    failed = [f"{what}: {word}" for what, word in verdicts.items() if word != HOLDS]
    if verdicts:
        count = f"{len(verdicts) - len(failed)} of {len(verdicts)}"
        console.print(f"Guarantees of the adaptive policy against adversaries that hold: {count}.", *failed, sep="\n")
