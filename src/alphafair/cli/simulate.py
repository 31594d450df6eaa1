"""`alphafair simulate`: every policy on one stream, as a table, a picture and a file of numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.cli._groups import GroupsFile, PullFloor, group_settings, read_groups
from alphafair.cli._shared import Arms, AsJson, Context, RewardRange, Time, output_folder, plain_table, read_rounds
from alphafair.errors import InvalidArgument
from alphafair.formatting import amount, counted, fixed

if TYPE_CHECKING:
    from rich.table import Table

    from alphafair.groups import ArmGroups
    from alphafair.values import Policy, Stream, Trace

OF_A_FILE = ("context", "arm", "time", "reward_range")
MADE_HERE = ("stream", "rounds", "contexts", "arms")


def command(
    ctx: typer.Context,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A policy, or your own as package.module:Class; repeat for several. Default: all of ours. "
            "A wrong name lists them.",
        ),
    ] = None,
    stream: Annotated[
        str, typer.Option(metavar="NAME", help="Made here: ratings, drifting-ratings, greedy-trap or impossibility.")
    ] = "ratings",
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Your own rounds instead: CSV, Parquet, Arrow or JSON lines, one row per round."
        ),
    ] = None,
    context: Context = "context",
    arm: Arms = None,
    time: Time = None,
    reward_range: RewardRange = None,
    rounds: Annotated[int, typer.Option(metavar="N", help="Made here: how many rounds.")] = 100_000,
    contexts: Annotated[int, typer.Option(metavar="N", help="Made here: how many contexts; impossibility has 2.")] = 33,
    arms: Annotated[int, typer.Option(metavar="N", help="Made here: how many arms; impossibility has 2.")] = 19,
    alpha: Annotated[
        float, typer.Option(metavar="X", help="Fairness in [0, 1): 0 is efficiency, toward 1 equality.")
    ] = 0.9,
    groups_file: GroupsFile = None,
    pull_floor: PullFloor = 0.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the stream and of the policies' draws.")] = 0,
    record_every: Annotated[
        int | None, typer.Option(metavar="N", help="Rounds between two points of the picture; by default 200 points.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where overview.png and results.json are written; default: output."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare policies: how much arms earn, and how fairly.

    Every policy plays the same rounds, synthetic ones or yours, with the same random numbers. A policy that can learn
    from all rewards or from one is simulated both ways. With --groups all is counted by group, for all policies; ours
    that are fair to groups then are, and keep the floors.
    """
    from alphafair import figures, validate
    from alphafair.algorithms import POLICIES

    kinds = [_find(name) for name in dict.fromkeys(policy or POLICIES)]
    alpha = validate.alpha(alpha)
    sizes = {"rounds": rounds, "contexts": contexts, "arms": arms}
    for name, size in sizes.items():
        validate.integer(f"--{name}", size, low=1)
    validate.integer("--seed", seed, low=0)
    if record_every is not None:
        validate.integer("--record-every", record_every, low=1)
    _refuse_misplaced(ctx, data)
    if data is None:
        played = make_stream(stream, **sizes, seed=seed)
    else:
        played = read_rounds(data, context, arm, time, reward_range, most=1.0)
    groups = read_groups(groups_file, played.arm_labels, played.n_arms, pull_floor)
    folder = output_folder(output, as_json)
    every = record_every or max(1, played.n_rounds // 200)
    policies = [made for kind in kinds for made in variants(kind, played, alpha, groups)]
    traces = _simulate_all(policies, played, seed, every)
    scores = hindsight(played, alpha, groups)
    results: dict[str, Any] = {
        "stream": stream if data is None else data.name,
        "rounds": played.n_rounds,
        "contexts": played.n_contexts,
        "arms": played.n_arms,
        "alpha": alpha,
        "seed": seed,
        **group_settings(groups),
        "hindsight": scores,
        "policies": [measure(trace, alpha, scores, groups) for trace in traces],
        "certificates": list(certificates(policies, traces, played, alpha, groups, scores)),
        "bounds_in_expectation": list(bounds_in_expectation(policies, alpha, groups, scores)),
    }
    text = json.dumps(results, indent=2)
    saved = ""
    if folder is not None:
        (folder / "results.json").write_text(text + "\n", encoding="utf-8")
        drawn = figures.overview(traces, alpha, arm_labels=played.arm_labels, groups=groups)
        picture = figures.save(drawn, folder / "overview.png")
        saved = f"\nPicture saved: {picture}\nNumbers saved: {folder / 'results.json'}"
    if as_json:
        typer.echo(text)
        return
    _report(results)
    typer.echo(saved)


def _find(name: str) -> type[Policy]:
    """One of ours by its name, or a user's own class."""
    from alphafair import validate
    from alphafair.algorithms import POLICIES
    from alphafair.cli.check import find_policy

    return find_policy(name) if ":" in name else POLICIES[validate.choice("--policy", name, POLICIES)]


def _refuse_misplaced(ctx: typer.Context, data: Path | None) -> None:
    """Options for a file need one, and those for a stream made here have no say in a file."""

    for option in OF_A_FILE if data is None else MADE_HERE:
        source = ctx.get_parameter_source(option)
        if source is not None and source.name == "COMMANDLINE":
            flag = f"--{option.replace('_', '-')}"
            if data is None:
                raise InvalidArgument("--data", f"given with {flag}", None, "Pass --data FILE as well.")
            raise InvalidArgument(flag, "left out with --data", ctx.params[option], "The file has its own rounds.")


def make_stream(name: str, *, rounds: int, contexts: int, arms: int, seed: int) -> Stream:
    """A synthetic stream by its name, with as many of the settings as it takes."""
    from alphafair import streams, validate
    from alphafair.run import accepted

    makers = {word.replace("_", "-"): getattr(streams, word) for word in streams.__all__}
    synthetic = {word: maker for word, maker in makers.items() if maker.__module__ == streams.synthetic.__name__}
    maker: Callable[..., Stream] = synthetic[validate.choice("--stream", name, synthetic)]
    offered = {"n_rounds": rounds, "n_half": (rounds + 1) // 2, "n_contexts": contexts, "n_arms": arms, "seed": seed}
    return maker(**accepted(maker, offered))


def variants(kind: type[Policy], stream: Stream, alpha: float, groups: ArmGroups) -> Iterator[Policy]:
    """The policy made for a stream, with as much of what is known about it as the constructor takes.

    One that may see all rewards or one is made for both if it learns, else for the first alone: what it is shown makes
    no difference to it, and expected rewards are the less noisy book.
    """
    from alphafair import Groups
    from alphafair.cli.check import make
    from alphafair.run import accepted, known_settings

    settings = known_settings(kind, stream, alpha)
    if not groups.is_default:
        settings |= accepted(kind, {"groups": Groups.of(groups)})
    choices: list[dict[str, Any]] = [{"feedback": feedback.value} for feedback in kind.traits.feedbacks] or [{}]
    for choice in choices if kind.traits.learns else choices[:1]:
        yield make(kind, stream.n_contexts, stream.n_arms, {**settings, **choice})


def measure(trace: Trace, alpha: float, scores: Mapping[str, float] | None, groups: ArmGroups) -> dict[str, Any]:
    """The row of a run: what the table shows and results.json keeps."""
    from alphafair import metrics

    shares = metrics.shares(trace.final, groups=groups)
    achieved = metrics.alpha_performance(trace.final, alpha, groups=groups)
    return {
        "policy": trace.policy,
        "feedback": str(trace.feedback),
        "alpha_performance": achieved,
        "gap_closed": gap_closed(achieved, scores),
        "jain_index": metrics.jain_index(trace.final, groups=groups),
        "average_reward": metrics.average_reward(trace.final, groups=groups),
        "least_share": float(shares.min()),
        "greatest_share": float(shares.max()),
    }


def hindsight(stream: Stream, alpha: float, groups: ArmGroups) -> dict[str, Any] | None:
    """What uniform play and the best fixed policy that keeps the floors score, and how much there is between them.

    None where rewards are negative and there is no such thing.
    """
    import numpy as np

    from alphafair import metrics
    from alphafair.offline import context_reward_totals, offline_optimum

    if stream.reward_table.min() < 0.0:
        return None
    totals = context_reward_totals(stream)
    n_present = np.array([stream.present(t).sum() for t in (0, *stream.epochs)])
    shares = np.repeat(1.0 / n_present, stream.n_contexts)
    best, uniform = offline_optimum(totals, alpha, groups=groups), 1.0 + shares @ totals
    return {
        "optimum": best.value,
        "gap": best.gap,
        "uniform": metrics.alpha_performance(uniform, alpha, groups=groups),
        "gap_to_close": metrics.gap_to_close(best.value, uniform, alpha, groups=groups),
        "has_gap": metrics.has_gap(best.value, uniform, alpha, certified=best.gap, groups=groups),
    }


def gap_closed(achieved: float, scores: Mapping[str, float] | None) -> float | None:
    """Of the way from uniform play to the optimum; None where there is no gap to close."""
    if scores is None or not scores["has_gap"]:
        return None
    share = (achieved - scores["uniform"]) / (scores["optimum"] - scores["uniform"])
    return round(share, 9) + 0.0  # uniform play closes nothing, not -1e-15


def is_vacuous(bound: float, alpha: float, groups: ArmGroups, scores: Mapping[str, Any] | None) -> bool | None:
    """Whether a regret bound says nothing; None where there is no optimum to tell it by."""
    from alphafair import metrics

    if scores is None:
        return None
    return metrics.is_vacuous(bound, scores["optimum"], groups.n_arms, alpha, groups=groups)


def bounds_in_expectation(
    policies: Sequence[Policy], alpha: float, groups: ArmGroups, scores: Mapping[str, Any] | None
) -> Iterator[dict[str, Any]]:
    """For every policy that sees one reward per round and can bound its mean regret."""
    from alphafair import metrics

    for policy in policies:
        if policy.expected_surrogate_regret_bound is not None:
            bound = metrics.bound_in_expectation(policy)
            vacuous = is_vacuous(bound, alpha, groups, scores)
            named = {"policy": policy.name, "feedback": str(policy.feedback)}
            yield {**named, "regret_bound": bound, "regret_bound_vacuous": vacuous}


def certificates(
    policies: Sequence[Policy],
    traces: Sequence[Trace],
    stream: Stream,
    alpha: float,
    groups: ArmGroups,
    scores: Mapping[str, Any] | None,
) -> Iterator[dict[str, Any]]:
    """For every policy that sees all rewards and can bound its own regret: what it can prove without the optimum."""
    from alphafair import metrics
    from alphafair.offline import context_reward_totals

    for policy, trace in zip(policies, traces, strict=True):
        if policy.surrogate_regret_bound is None:
            continue  # it promises nothing about a single run
        seen = metrics.certificates(context_reward_totals(stream), trace, alpha, groups=groups)
        bound = metrics.regret_certificate(policy)
        yield {
            "policy": policy.name,
            "feedback": str(policy.feedback),
            "regret_bound": bound,
            "regret_bound_vacuous": is_vacuous(bound, alpha, groups, scores),
            "optimum_at_most": seen.optimum,
            "standard_regret_at_most": seen.standard_regret,
            "ratio_at_most": seen.performance_ratio,
            "vacuous": seen.vacuous,
        }


def _simulate_all(policies: Sequence[Policy], stream: Stream, seed: int, record_every: int) -> list[Trace]:
    """One display, a bar per policy."""
    from alphafair.progress import progress_bar
    from alphafair.run import simulate

    traces, twins = [], Counter(policy.name for policy in policies)
    titles = [policy.name + (f" ({policy.feedback})" if twins[policy.name] > 1 else "") for policy in policies]
    with progress_bar() as bar:
        tasks = [bar.add_task(title, total=stream.n_rounds, start=False) for title in titles]
        for policy, task in zip(policies, tasks, strict=True):
            bar.start_task(task)
            advance = partial(bar.advance, task)
            traces.append(simulate(policy, stream, seed=seed, record_every=record_every, progress=advance))
    return traces


_COLUMNS: dict[str, tuple[str, Callable[[float], str]]] = {  # heading, and how a number is written
    "alpha_performance": ("alpha\nperformance", partial(fixed, decimals=2)),
    "gap_closed": ("gap\nclosed", "{:.0%}".format),
    "jain_index": ("Jain's\nindex", partial(fixed, decimals=3)),
    "average_reward": ("average\nreward", amount),
    "least_share": ("least\nshare", "{:.2%}".format),
}


def _report(results: Mapping[str, Any]) -> None:
    from rich.console import Console

    sizes = ", ".join(counted(results[noun], noun.removesuffix("s")) for noun in ("rounds", "contexts", "arms"))
    groups = results.get("groups", {})
    n_groups = len(dict.fromkeys(groups.get("labels") or range(results["arms"])))
    sizes += f" in {counted(n_groups, 'group')}" if groups.get("labels") else ""
    console = Console(highlight=False)
    console.print(
        f"[bold]{results['stream']}[/bold] stream: {sizes}; alpha {results['alpha']:g}, seed {results['seed']}\n"
    )
    console.print(_table(results["policies"]))
    alike = "" if len({*(groups.get("entitlements") or ())}) < 2 else ", though not all are entitled alike"
    console.print(
        "\n* the best of its column. Shares are of all reward; an equal share is "
        f"{1 / n_groups:.2%}{alike}. Rewards are expected ones under full feedback, realised ones under bandit."
    )
    rival = "fixed policy that keeps the floors" if groups.get("pull_floor") else "fixed policy"
    if results["hindsight"] is not None:
        gap = (
            "Gap closed: of the way from uniform play, which scores {uniform:.2f}, to the best {rival} in "
            "hindsight, which scores {optimum:.2f} (proved to within {gap:.1g})."
        )
        none = (
            "No gap to close: the best {rival} in hindsight, which scores {optimum:.2f} (proved to within {gap:.1g}), "
            "is worth only {gap_to_close:.2%} more reward than uniform play, which scores {uniform:.2f}."
        )
        sentence = gap if results["hindsight"]["has_gap"] else none
        console.print(sentence.format(**results["hindsight"], rival=rival))
    for certificate in results["certificates"]:
        sentence = (
            "\n[bold]Certificate of {policy} ({feedback}):[/bold] from what it saw on this very run, without solving "
            "anything, no {rival} scores more than {optimum_at_most:.2f}, {ratio_at_most:.4f} times its own score."
        )
        if certificate["vacuous"]:
            sentence += " That says nothing: no split of all there was to earn is worth so much."
        console.print(sentence.format(**certificate, rival=rival))
    for bound in results["bounds_in_expectation"]:
        sentence = (
            "\n[bold]Bound in expectation of {policy} ({feedback}):[/bold] averaged over its draws, the best "
            "{rival} is ahead of c_alpha times its score by at most {regret_bound:.2f}. No statement about one run."
        )
        if bound["regret_bound_vacuous"]:
            sentence += " It says nothing yet: from accounts that begin with 1 no run can be farther behind."
        console.print(sentence.format(**bound, rival=rival))


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = plain_table()
    table.add_column("\npolicy", overflow="fold")
    table.add_column("\nfeedback")
    for heading, _ in _COLUMNS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    best = {key: max((row[key] for row in rows if row[key] is not None), default=None) for key in _COLUMNS}
    for row in rows:
        cells = [row["policy"], row["feedback"]]
        for key, (_, written) in _COLUMNS.items():
            text = "-" if row[key] is None else written(row[key])
            cells.append(f"[bold green]* {text}[/]" if row[key] is not None and row[key] == best[key] else text)
        table.add_row(*cells)
    return table
