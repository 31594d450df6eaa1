"""`alphafair offline`: compute the fair optimum in hindsight of a table of rewards, with its certificate."""

import itertools
import json
import math
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from alphafair.cli._groups import GroupsFile, PullFloor, group_settings, read_groups
from alphafair.cli._shared import (
    ALPHA_HELP,
    Arms,
    AsJson,
    Context,
    RewardRange,
    Time,
    make_folder,
    plain_table,
    read_rounds,
)
from alphafair.extras import polars as pl
from alphafair.formatting import ALPHA, counted, exact, fitting, json_alpha


def command(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="CSV, Parquet, Arrow or JSON lines: a column of contexts, and one of rewards per arm."
        ),
    ],
    context: Context = "context",
    arm: Arms = None,
    time: Time = None,
    reward_range: RewardRange = None,
    alpha: Annotated[
        list[float] | None, typer.Option(metavar="X", help=f"Fairness, {ALPHA_HELP}; may be repeated.")
    ] = None,
    context_share: Annotated[
        list[float] | None,
        typer.Option(
            metavar="S", help="Promise every context this share of its best, from 0 to 1; may be repeated. Default: 0."
        ),
    ] = None,
    groups_file: GroupsFile = None,
    pull_floor: PullFloor = 0.0,
    tolerance: Annotated[float, typer.Option(metavar="X", help="Relative gap at which to stop.")] = 1e-9,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Write shares, a figure and numbers there. Default: no files."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compute the fair optimum in hindsight.

    All rewards are known. Rows of the same context are added up, so the table may have one row per context or one row
    per round, in any order. By default it is solved for alpha 0, 0.5, 0.9, 1, 2 and inf. With --output, the
    distributions are written as one CSV per alpha. With --groups, rewards are reported by group. With --context-share,
    every context gets at least that share of the most that one arm would have given it.
    """
    from alphafair import figures, metrics, validate
    from alphafair.offline import CertificateWarning, context_reward_totals, offline_optimum
    from alphafair.tables import escape_labels

    promises = list(dict.fromkeys(validate.context_share(value) for value in context_share or (0.0,)))
    alphas = list(dict.fromkeys(validate.alpha(value) for value in alpha or (0.0, 0.5, 0.9, 1.0, 2.0, math.inf)))
    tolerance = validate.number("--tolerance", tolerance, low=0.0, high=1.0)
    stream = read_rounds(table, context, arm, time, reward_range, most=math.inf)
    totals = context_reward_totals(stream)
    folder = None if output is None else make_folder(output)
    arms = list(stream.arm_labels or ())
    groups = read_groups(groups_file, arms, len(arms), pull_floor)
    names = [str(label) for label in groups.labels] if groups.named else arms
    contexts = list(stream.context_labels or ())
    found: list[dict[str, Any]] = []
    shares = {}
    for value, promised in itertools.product(alphas, promises):
        name = exact(value) if context_share is None else f"{exact(value)}, {exact(promised)}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CertificateWarning)  # the table marks such rows
            best = offline_optimum(totals, value, tolerance=tolerance, groups=groups, context_share=promised)
        shares[value if context_share is None else name] = metrics.shares(best.accounts)
        path = None if folder is None else folder / f"distributions-{name.replace(', ', '-')}.csv"
        if path is not None:
            first, *headers = escape_labels([context, *arms])
            columns = {first: escape_labels(contexts)} | dict(zip(headers, best.distributions.T, strict=True))
            pl.DataFrame(columns).write_csv(path)
        found.append(
            {
                "alpha": json_alpha(value),
                **({} if context_share is None else {"context_share": promised}),
                "value": best.value,
                "gap": best.gap,
                "welfare": best.welfare,
                "welfare_gap": best.welfare_gap,
                "certified": best.certified,
                "jain_index": metrics.jain_index(best.accounts, groups=groups),
                "average_reward": metrics.average_reward(best.accounts),
                "cumulative_rewards": dict(zip(arms, best.cumulative_rewards.tolist(), strict=True)),
                "accounts": dict(zip(names, best.accounts.tolist(), strict=True)),
                "least_context_share": float(best.context_shares.min()),
                "distributions": None if path is None else str(path),
            }
        )
    about = {"contexts": len(contexts), "arms": len(arms), **group_settings(groups)}
    text = json.dumps({**about, "optima": found}, indent=2)
    saved = ""
    if folder is not None:
        by = ALPHA if context_share is None else f"{ALPHA}, promise"
        (folder / "offline.json").write_text(text + "\n", encoding="utf-8")
        picture = figures.save(figures.fair_optimum(shares, names, by), folder / "offline.png")
        saved = f"\nFigure: {picture}\nDistributions and numbers: {folder}"
    if as_json:
        typer.echo(text)
        return
    who = counted(len(arms), "arm") + (f" in {counted(groups.n_groups, 'group')}" if groups.named else "")
    kept = ["the floors"] * (groups.floored or groups.arm_floor > 0.0) + ["the promise"] * any(promises)
    rivals = f"No split that keeps {' and '.join(kept)}" if kept else "No split"
    _report(found, len(contexts), who, rivals, "group" if groups.named else "arm")
    if saved:
        typer.echo(saved)


def _report(found: list[dict[str, Any]], n_contexts: int, who: str, rivals: str, unit: str) -> None:
    from rich.console import Console

    from alphafair import validate
    from alphafair.metrics import METRICS

    console = Console(highlight=False)
    console.print(f"The fair optimum of {counted(n_contexts, 'context')} and {who}\n")
    steep = [validate.alpha(row["alpha"]) >= 1.0 for row in found]  # where the welfare takes the place of the value
    table = plain_table()
    table.add_column("\nalpha", justify="right", overflow="fold")
    worth = "\nvalue" if not any(steep) else METRICS["welfare"].heading if all(steep) else "value or\nwelfare"
    promised = "context_share" in found[0]
    if promised:
        table.add_column("\npromise", justify="right", no_wrap=True)
    last_heading = ["worst\ncontext"] if promised else []
    rewards = (METRICS["average_reward"].heading, "least\nreward", "greatest\nreward")
    for heading in (
        worth,
        "certified\ngap",
        METRICS["jain_index"].heading,
        *rewards,
        *last_heading,
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for row, in_welfare in zip(found, steep, strict=True):
        sums = row["accounts"].values()
        value, gap = row["value"], row["gap"]
        if in_welfare:
            value, gap = row["welfare"], row["welfare"] * row["welfare_gap"]
        mark = "" if row["certified"] else " (!)"
        earned = (fitting(each, 2) for each in (row["average_reward"], min(sums), max(sums)))
        alpha = exact(validate.alpha(row["alpha"]))
        first, last = [alpha], []
        if promised:
            first, last = [alpha, f"{row['context_share']:.0%}"], [f"{row['least_context_share']:.1%}"]
        cells = fitting(value, 4), f"{gap:.1e}{mark}", f"{row['jain_index']:.4f}", *earned
        table.add_row(*first, *cells, *last)
    console.print(table)
    bounds = [] if all(steep) else ["is worth more than value + gap"]
    if any(steep):
        bounds.append(f"has a welfare above welfare + gap{'' if all(steep) else ' from alpha 1 on'}")
    console.print(f"\n{rivals} {', or '.join(bounds)}. Rewards include an initial 1 per {unit}.")
    if not all(row["certified"] for row in found):
        console.print("(!) the gap is larger than --tolerance; the value is correct to within the gap.")
