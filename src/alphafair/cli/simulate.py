"""`alphafair simulate`: compare policies on one stream, as a table, a figure and a file of numbers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.cli._groups import GroupsFile, PullFloor, group_settings, read_groups
from alphafair.cli._shared import (
    Alpha,
    Arms,
    AsJson,
    Context,
    Dask,
    Insecure,
    RewardRange,
    Time,
    Workers,
    chosen_executor,
    output_folder,
    plain_table,
    read_rounds,
)
from alphafair.errors import InvalidArgument
from alphafair.formatting import counted, json_alpha

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from rich.table import Table

    from alphafair.groups import ArmGroups
    from alphafair.values import Policy, Stream, Trace

FILE_OPTIONS = ("context", "arm", "time", "reward_range")
STREAM_OPTIONS = ("stream", "rounds", "contexts", "arms")
SHOWN = (  # in the table, of `metrics.METRICS`
    "alpha_performance",
    "welfare",
    "gap_closed",
    "jain_index",
    "average_reward",
    "least_share",
)
BYTES_OF = {"rounds": 24, "contexts": 320, "arms": 8000}  # of a synthetic stream, at least


def command(
    ctx: typer.Context,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A policy, or your own as package.module:Class; repeat for several. Default: all built-in policies. "
            "An unknown name lists them.",
        ),
    ] = None,
    stream: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A synthetic stream: ratings, drifting-ratings, greedy-trap, dying-arms, impossibility, purchases, "
            "lognormal-rewards or pareto-rewards.",
        ),
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
    rounds: Annotated[int, typer.Option(metavar="N", help="Rounds of a synthetic stream.")] = 100_000,
    contexts: Annotated[
        int, typer.Option(metavar="N", help="Contexts of a synthetic stream; impossibility has 2.")
    ] = 33,
    arms: Annotated[int, typer.Option(metavar="N", help="Arms of a synthetic stream; impossibility has 2.")] = 19,
    k: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Arms that a decision shows, all of which earn; policies that show one arm are left out."
        ),
    ] = None,
    alpha: Alpha = 0.9,
    period: Annotated[
        int | None, typer.Option(metavar="N", help="Start a new period of all policies every so many rounds.")
    ] = None,
    carry: Annotated[
        float | None, typer.Option(metavar="X", help="The part of every account that a new period keeps; default: 0.5.")
    ] = None,
    context_weight: Annotated[
        float, typer.Option(metavar="X", help="The weight of contexts beside arms, in [0, 1), where a policy takes it.")
    ] = 0.0,
    context_share: Annotated[
        float,
        typer.Option(metavar="X", help="The part of its best arm promised to every context, where a policy takes it."),
    ] = 0.0,
    groups_file: GroupsFile = None,
    pull_floor: PullFloor = 0.0,
    seed: Annotated[int, typer.Option(metavar="N", help="The seed of the stream and of the policies' draws.")] = 0,
    record_every: Annotated[
        int | None, typer.Option(metavar="N", help="Rounds between two points of the figure; default: 200 points.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The folder for overview.png and results.json; default: output."),
    ] = None,
    workers: Workers = None,
    dask: Dask = None,
    insecure: Insecure = False,
    as_json: AsJson = False,
) -> None:
    """Compare policies: how much arms earn, and how fairly.

    Every policy plays the same rounds, synthetic or your own, with the same random numbers. A policy that supports full
    information and bandit feedback is simulated with both. With --groups all results are by group, and policies that
    accept groups are fair to them and keep their floors. Results are in alpha-performance below alpha 1 and in welfare
    from 1 on. With --period, welfare and optimum are averages over periods.
    """
    from alphafair import figures, validate
    from alphafair.algorithms import POLICIES
    from alphafair.memory_limit import memory_limit

    kinds = [_find(name) for name in dict.fromkeys(policy or POLICIES)]
    if k is not None:
        validate.integer("--k", k, low=1)
        kinds = kinds if policy else [kind for kind in kinds if kind.traits.slates]
    alpha = validate.alpha(alpha)
    sizes = {"rounds": rounds, "contexts": contexts, "arms": arms}
    for name, size in sizes.items():
        validate.integer(f"--{name}", size, low=1)
        most = memory_limit() // BYTES_OF[name]
        if size > most:
            repair = f"Choose --{name} inside that range."
            raise InvalidArgument(f"--{name}", f"at most {most}, which fit into memory", size, repair)
    validate.integer("--seed", seed, low=0)
    if period is not None:
        validate.integer("--period", period, low=1)
    elif carry is not None:
        raise InvalidArgument("--carry", "given with --period", carry, "Pass --period N as well.")
    carry = validate.number("--carry", 0.5 if carry is None else carry, low=0.0, high=1.0)
    if record_every is not None:
        validate.integer("--record-every", record_every, low=1)
    sides = {
        "context_weight": validate.context_weight(context_weight),
        "context_share": validate.context_share(context_share),
    }
    sides = {name: value for name, value in sides.items() if value > 0.0}
    _refuse_misplaced(ctx, data, stream)
    if data is None:
        played = make_stream(stream, **sizes, seed=seed)
    else:
        played = read_rounds(data, context, arm, time, reward_range, most=1.0)
    groups = read_groups(groups_file, played.arm_labels, played.n_arms, pull_floor)
    folder = output_folder(output, as_json)
    every = record_every or max(1, played.n_rounds // 200)
    made: list[Policy] = []
    for kind in kinds:
        try:
            made += variants(kind, played, alpha, groups, sides)
        except InvalidArgument as error:
            if policy or error.argument != "alpha":
                raise
            typer.echo(f"left out: {error}", err=True)
    options: dict[str, Any] = {"seed": seed, "record_every": every, "period": period, "carry": carry, "k": k}
    shown = 1 if k is None else k
    with chosen_executor(workers, dask, insecure) as executor:
        policies, traces = _simulate_all(made, played, options, executor)
    scores = hindsight(played, alpha, groups, period, shown)
    results: dict[str, Any] = {
        "stream": stream if data is None else data.name,
        "rounds": played.n_rounds,
        "contexts": played.n_contexts,
        "arms": played.n_arms,
        "alpha": json_alpha(alpha),
        "seed": seed,
        **({} if k is None else {"k": k}),
        **({} if period is None else {"period": period, "carry": carry}),
        **sides,
        **group_settings(groups),
        "hindsight": scores,
        "policies": [measure(trace, alpha, scores, groups) for trace in traces],
        "certificates": list(certificates(policies, traces, played, alpha, groups, scores, shown)),
        "bounds_in_expectation": [],
        **({"context_shares": [of_contexts(trace, played) for trace in traces]} if sides else {}),
    }
    if alpha < 1.0 and period is None:
        results["bounds_in_expectation"] = list(bounds_in_expectation(policies, alpha, groups, scores))
    text = json.dumps(results, indent=2, allow_nan=False)
    saved = ""
    if folder is not None:
        (folder / "results.json").write_text(text + "\n", encoding="utf-8")
        drawn = figures.overview(traces, alpha, arm_labels=played.arm_labels, groups=groups)
        picture = figures.save(drawn, folder / "overview.png")
        saved = f"\nFigure saved: {picture}\nNumbers saved: {folder / 'results.json'}"
    if as_json:
        typer.echo(text)
        return
    _report(results)
    for each in results.get("context_shares", ()):
        named = f"{each['policy']} ({each['feedback']})"
        typer.echo(f"{named}: worst context {each['worst']:.0%} of its best, a tenth below {each['tenth']:.0%}")
    typer.echo(saved)


def _find(name: str) -> type[Policy]:
    """The class of a policy by its name, built in or of `alphafair.notions`, or of a user's own."""
    from alphafair.algorithms import POLICIES
    from alphafair.cli.check import find_policy

    if ":" in name:
        return find_policy(name)
    if name in POLICIES:
        return POLICIES[name]
    from alphafair.notions import find

    return find(name, "--policy")


def _refuse_misplaced(ctx: typer.Context, data: Path | None, stream: str) -> None:
    """Refuse options without effect: of a file without --data, of a synthetic stream with it, or of other streams."""
    from alphafair.run import accepted

    def given(option: str) -> bool:
        source = ctx.get_parameter_source(option)
        return source is not None and source.name == "COMMANDLINE"

    for option in filter(given, FILE_OPTIONS if data is None else STREAM_OPTIONS):
        flag = f"--{option.replace('_', '-')}"
        if data is None:
            raise InvalidArgument("--data", f"given with {flag}", None, "Pass --data FILE as well.")
        raise InvalidArgument(flag, "left out with --data", ctx.params[option], "The file has its own rounds.")
    if data is None:
        for option in ("contexts", "arms"):
            if given(option) and not accepted(_maker(stream), {f"n_{option}": 1}):
                repair = f"This stream has its own number of {option}."
                raise InvalidArgument(f"--{option}", f"left out with --stream {stream}", ctx.params[option], repair)


def _maker(name: str) -> Callable[..., Stream]:
    """The function that makes a synthetic stream, by the name of the stream."""
    from alphafair import streams, validate

    makers = {word.replace("_", "-"): getattr(streams, word) for word in streams.__all__ if word != "dying_arms_bound"}
    modules = (streams.synthetic.__name__, streams.heavy_tails.__name__)
    synthetic: dict[str, Callable[..., Stream]] = {
        word: maker for word, maker in makers.items() if maker.__module__ in modules
    }
    return synthetic[validate.choice("--stream", name, synthetic)]


def make_stream(name: str, *, rounds: int, contexts: int, arms: int, seed: int) -> Stream:
    """A synthetic stream by its name, with those of the settings that it accepts."""
    from alphafair.run import accepted

    maker = _maker(name)
    offered = {"n_rounds": rounds, "n_half": (rounds + 1) // 2, "n_contexts": contexts, "n_arms": arms, "seed": seed}
    return maker(**accepted(maker, offered))


def of_contexts(trace: Trace, stream: Stream) -> dict[str, Any]:
    """What part of the rewards of its best arm contexts got: the worst served, and a tenth of all rounds."""
    import numpy as np

    from alphafair import metrics
    from alphafair.offline import context_reward_totals

    shares = metrics.context_shares(trace.context_rewards, context_reward_totals(stream))
    rounds = np.bincount(stream.contexts, minlength=stream.n_contexts)
    found = {part: float(metrics.context_share_at(shares, rounds, part)) for part in (0.0, 0.1)}
    return {"policy": trace.policy, "feedback": str(trace.feedback), "worst": found[0.0], "tenth": found[0.1]}


def variants(
    kind: type[Policy], stream: Stream, alpha: float, groups: ArmGroups, sides: Mapping[str, float]
) -> Iterator[Policy]:
    """The policy for a stream, with every setting that its constructor accepts and the stream determines.

    A policy that supports both kinds of feedback is made for both if it learns, and otherwise for full information
    alone, where accounts are expected values.
    """
    from alphafair import Groups
    from alphafair.cli.check import make
    from alphafair.run import accepted, known_settings

    settings = known_settings(kind, stream, alpha) | accepted(kind, sides)
    if not groups.is_default:
        settings |= accepted(kind, {"groups": Groups.of(groups)})
    choices: list[dict[str, Any]] = [{"feedback": feedback.value} for feedback in kind.traits.feedbacks] or [{}]
    for choice in choices if kind.traits.learns else choices[:1]:
        yield make(kind, stream.n_contexts, stream.n_arms, {**settings, **choice})


def measure(trace: Trace, alpha: float, scores: Mapping[str, Any] | None, groups: ArmGroups) -> dict[str, Any]:
    """The row of a run in the table and in results.json; welfare is that of a period where there are periods."""
    import numpy as np

    from alphafair import metrics

    found = {
        name: None
        if (name, alpha) == ("alpha_performance", math.inf)
        else metric.measure(trace.final, {"alpha": alpha}, groups)
        for name, metric in metrics.METRICS.items()
        if {*metric.needs} <= {"alpha"}
    }
    books = [1.0 + period.rewards for period in trace.periods] or [trace.final]
    welfare = float(np.mean([metrics.welfare(accounts, alpha, groups=groups) for accounts in books]))
    found["welfare"] = welfare
    achieved = found["welfare" if scores is None else scores["measure"]]
    return {
        "policy": trace.policy,
        "feedback": str(trace.feedback),
        **found,
        "gap_closed": gap_closed(achieved, scores),
        **({"least_share_of_periods": least_share(books, groups)} if trace.periods else {}),
    }


def least_share(books: Sequence[Any], groups: ArmGroups) -> float:
    """The least share within a period, averaged over the periods."""
    import numpy as np

    from alphafair import metrics

    return float(np.mean([metrics.shares(accounts, groups=groups).min() for accounts in books]))


def hindsight(
    stream: Stream, alpha: float, groups: ArmGroups, period: int | None = None, k: int = 1
) -> dict[str, Any] | None:
    """The scores of uniform play and of the best fixed policy that keeps the floors, and the gap between them.

    Decisions show k arms, or all that are present.

    Scores are alpha-performances, or from alpha = 1 on and with periods welfares; of a period, averages over the
    periods, each with its own best policy. None where rewards are negative, since neither is defined for them.
    """
    import numpy as np

    from alphafair import metrics
    from alphafair.offline import context_reward_totals, offline_optimum, present_arms

    if stream.reward_table.min() < 0.0:
        return None
    length = stream.n_rounds if period is None else period
    in_welfare = alpha >= 1.0 or period is not None
    rows = []
    for totals, present in zip(
        context_reward_totals(stream, period=length), present_arms(stream, period=length), strict=True
    ):
        n_present = present.sum(axis=1)
        shares = np.repeat(np.minimum(k, n_present) / n_present, stream.n_contexts)
        slates: dict[str, Any] = {} if k == 1 else {"k": k, "present": present}
        best, uniform = offline_optimum(totals, alpha, groups=groups, **slates), 1.0 + shares @ totals
        optimum, gap = (best.welfare, best.welfare * best.welfare_gap) if in_welfare else (best.value, best.gap)
        measure = metrics.welfare if in_welfare else metrics.alpha_performance
        to_close = metrics.gap_to_close(optimum, uniform, alpha, groups=groups, in_welfare=in_welfare)
        rows.append((optimum, gap, measure(uniform, alpha, groups=groups), to_close))
    optimum, gap, floor, to_close = (float(each) for each in np.mean(rows, axis=0))
    sure = 1.0 - (gap + 1e-9 * abs(optimum)) / max(optimum - floor, 1e-300)  # less what is not certified, and rounding
    return {
        "measure": "welfare" if in_welfare else "alpha_performance",
        "optimum": optimum,
        "gap": gap,
        "uniform": floor,
        "gap_to_close": to_close,
        "has_gap": sure * to_close >= metrics.LEAST_GAP,
    }


def gap_closed(achieved: float | None, scores: Mapping[str, Any] | None) -> float | None:
    """The share of the gap between uniform play and the optimum; None where there is no gap to close."""
    if scores is None or achieved is None or not scores["has_gap"]:
        return None
    share: float = (achieved - scores["uniform"]) / (scores["optimum"] - scores["uniform"])
    return round(share, 9) + 0.0  # uniform play closes 0, not -1e-15


def is_vacuous(bound: float, alpha: float, groups: ArmGroups, scores: Mapping[str, Any] | None) -> bool | None:
    """Whether a regret bound exceeds any possible regret; None without an optimum to compare with."""
    from alphafair import metrics

    if scores is None:
        return None
    return metrics.is_vacuous(bound, scores["optimum"], groups.n_arms, alpha, groups=groups)


def bounds_in_expectation(
    policies: Sequence[Policy], alpha: float, groups: ArmGroups, scores: Mapping[str, Any] | None
) -> Iterator[dict[str, Any]]:
    """The bounds of policies with bandit feedback that can bound their expected regret."""
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
    k: int = 1,
) -> Iterator[dict[str, Any]]:
    """The certificates of policies with full information that can bound their own regret, without the optimum."""
    import numpy as np

    from alphafair import metrics
    from alphafair.offline import context_reward_totals, present_arms

    for policy, trace in zip(policies, traces, strict=True):
        if policy.surrogate_regret_bound is None:
            continue  # it has no bound for a single run
        named = {"policy": policy.name, "feedback": str(policy.feedback)}
        if alpha < 1.0 and not trace.periods:
            present = None if k == 1 else present_arms(stream)
            seen = metrics.certificates(
                context_reward_totals(stream), trace, alpha, groups=groups, present=present, k=k
            )
            bound = metrics.regret_certificate(policy)
            yield {
                **named,
                "regret_bound": bound,
                "regret_bound_vacuous": is_vacuous(bound, alpha, groups, scores),
                "optimum_at_most": seen.optimum,
                "standard_regret_at_most": seen.standard_regret,
                "ratio_at_most": seen.performance_ratio,
                "welfare_at_most": seen.welfare,
                "welfare_ratio_at_most": seen.welfare_ratio,
                "vacuous": seen.vacuous,
            }
            continue
        length = stream.n_rounds
        played = [(trace.final, policy.accounts)]
        if trace.periods:
            length = trace.periods[0].last
            played = [(1.0 + period.rewards, period.accounts) for period in trace.periods]
        tables = context_reward_totals(stream, period=length), present_arms(stream, period=length)
        bounds = [
            metrics.certificates(totals, accounts, alpha, groups=groups, present=there, prices=prices, k=k)
            for totals, there, (accounts, prices) in zip(*tables, played, strict=True)
        ]
        at_most, achieved = np.mean([(each.welfare, each.welfare / each.welfare_ratio) for each in bounds], axis=0)
        yield {
            **named,
            "welfare_at_most": float(at_most),
            "welfare_ratio_at_most": float(at_most / achieved),
            "vacuous": all(each.vacuous for each in bounds),
        }


def _play(policy: Policy, stream: Stream, **options: Any) -> tuple[Policy, Trace]:
    """Simulate, maybe with a copy of the policy on a worker; return it in its final state, and the trace."""
    from alphafair.run import simulate

    trace = simulate(policy, stream, **options)
    return policy, trace


def _simulate_all(
    policies: Sequence[Policy], stream: Stream, options: Mapping[str, Any], executor: Executor
) -> tuple[list[Policy], list[Trace]]:
    """The policies in their final states, and their traces."""
    from alphafair.progress import progress_bar
    from alphafair.tasks import run_tasks

    tasks = {str(k): partial(_play, policy, stream, **options) for k, policy in enumerate(policies)}
    found = {}
    with progress_bar() as bar:
        task = bar.add_task("Simulating", total=len(tasks))
        for name, result in run_tasks(tasks, executor, shared=(stream,)):
            found[name] = result
            bar.advance(task)
    played, traces = zip(*(found[name] for name in tasks), strict=True)
    return list(played), list(traces)


def _report(results: Mapping[str, Any]) -> None:
    from rich.console import Console

    from alphafair import validate

    sizes = ", ".join(counted(results[noun], noun.removesuffix("s")) for noun in ("rounds", "contexts", "arms"))
    groups = results.get("groups", {})
    n_groups = len(dict.fromkeys(groups.get("labels") or range(results["arms"])))
    sizes += f" in {counted(n_groups, 'group')}" if groups.get("labels") else ""
    console = Console(highlight=False)
    alpha = validate.alpha(results["alpha"])
    sizes += f", {results['k']} per decision" if "k" in results else ""
    console.print(f"[bold]{results['stream']}[/bold] stream: {sizes}; alpha {alpha:g}, seed {results['seed']}\n")
    by_period = "period" in results
    in_welfare = by_period or alpha >= 1.0
    console.print(_table(results["policies"], "alpha_performance" if in_welfare else "welfare"))
    alike = "" if len({*(groups.get("entitlements") or ())}) < 2 else ", though entitlements differ"
    console.print(
        "\n* the best of its column. Shares are of all reward; an equal share is "
        f"{1 / n_groups:.2%}{alike}. Rewards are expected under full information, drawn under bandit feedback."
    )
    rival = "fixed policy that keeps the floors" if groups.get("pull_floor") else "fixed policy"
    if results["hindsight"] is not None:
        gap = (
            "Gap closed: the share of the gap between uniform play, which scores {uniform:.2f}, and the best {rival} "
            "in hindsight{each}, which scores {optimum:.2f} (proved to within {gap:.1g}){scores}."
        )
        none = (
            "No gap to close: the best {rival} in hindsight{each}, which scores {optimum:.2f} (proved to within "
            "{gap:.1g}), is worth only {gap_to_close:.2%} more reward than uniform play, which scores "
            "{uniform:.2f}{scores}."
        )
        sentence = gap if results["hindsight"]["has_gap"] else none
        each = " of every period" if by_period else ""
        unit = "welfare of a period, on average" if by_period else "welfare"
        scores = f"; scores are the {unit}" if in_welfare else ""
        console.print(sentence.format(**results["hindsight"], rival=rival, each=each, scores=scores))
    for certificate in results["certificates"]:
        sentence = (
            "\n[bold]Certificate of {policy} ({feedback}):[/bold] from this run alone, without a "
            "solver: no {rival} scores more than {optimum_at_most:.2f}, {ratio_at_most:.4f} times its own score."
        )
        if in_welfare:
            sentence = (
                "\n[bold]Certificate of {policy} ({feedback}):[/bold] by what it saw in this run, without a solver, no "
                "{rival} has a welfare above {welfare_at_most:.2f}, {welfare_ratio_at_most:.4f} times its own."
            )
        if certificate["vacuous"]:
            sentence += " It is vacuous: no division of all available reward is worth as much."
        console.print(sentence.format(**certificate, rival=rival))
    for bound in results["bounds_in_expectation"]:
        sentence = (
            "\n[bold]Bound in expectation of {policy} ({feedback}):[/bold] averaged over its draws, the best "
            "{rival} is ahead of c_alpha times its score by at most {regret_bound:.2f}. It does not hold for each run."
        )
        if bound["regret_bound_vacuous"]:
            sentence += " It is vacuous so far: accounts start with 1, so no run can have a larger regret."
        console.print(sentence.format(**bound, rival=rival))


def _table(rows: Sequence[Mapping[str, Any]], without: str) -> Table:
    from alphafair.metrics import METRICS

    columns = {name: METRICS[name] for name in SHOWN if name != without}
    table = plain_table()
    table.add_column("\npolicy", overflow="fold")
    table.add_column("\nfeedback")
    best = {}
    for name, metric in columns.items():
        table.add_column(metric.heading, justify="right", no_wrap=True)
        best[name] = max((metric.sign * row[name] for row in rows if row[name] is not None), default=None)
    for row in rows:
        cells = [row["policy"], row["feedback"]]
        for name, metric in columns.items():
            text = "-" if row[name] is None else metric.text(row[name])
            is_best = row[name] is not None and metric.sign * row[name] == best[name]
            cells.append(f"[bold green]* {text}[/]" if is_best else text)
        table.add_row(*cells)
    return table
