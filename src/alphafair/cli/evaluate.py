"""`alphafair evaluate`: what policies would have earned on the rounds of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.cli import _logs
from alphafair.cli._groups import GroupsFile, PullFloor, read_groups
from alphafair.cli._logs import interval
from alphafair.cli._shared import AsJson, output_folder
from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    from alphafair.evaluation import LogFile
    from alphafair.groups import ArmGroups
    from alphafair.values import Log, Matrix, Policy

FIXED = ("logged", "uniform", "fair")
OF_FIXED = ("user", "estimator", "replicates")  # options that policies which learn have no use for


def command(
    ctx: typer.Context,
    log: _logs.File,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="logged (as the log shows arms), uniform, fair (the best fixed policy, held out), a CSV of "
            "distributions as alphafair offline writes, a learning policy by its name, or package.module:Class; "
            "repeat. Default: the first three.",
        ),
    ] = None,
    context: _logs.Context = "context",
    arm: _logs.Arm = "arm",
    reward: _logs.Reward = "reward",
    propensity: _logs.Propensity = "propensity",
    user: _logs.User = None,
    available: _logs.Available = "available",
    alpha: _logs.Alpha = 0.9,
    groups_file: GroupsFile = None,
    pull_floor: PullFloor = 0.0,
    estimator: Annotated[
        str, typer.Option(metavar="NAME", help="Of fixed policies: ips, snips, dr, clipped or switch.")
    ] = "dr",
    confidence: _logs.Confidence = 0.95,
    replicates: _logs.Replicates = 1000,
    seed: _logs.Seed = 0,
    output: _logs.Output = None,
    as_json: AsJson = False,
) -> None:
    """What policies would have earned on a log, and how fairly.

    From decisions with the probabilities of the arms that were shown. Every number comes with its interval,
    and every policy with a verdict: trustworthy, thin, or do not use. A learning policy is replayed on the rounds that
    match its draws, and played against a model of the log: both say what they assume. An option that reaches none of
    the policies is refused; one that reaches some of them says which it does not.
    """
    from alphafair import Log
    from alphafair.evaluation import LogFile, evaluate, frontier
    from alphafair.lab.log_report import LogReport
    from alphafair.lab.pictures import logs as pictures

    named: dict[str, Any] = {"context": context, "arm": arm, "reward": reward, "propensity": propensity, "user": user}
    named["available"] = available or None
    file = LogFile(log, **named)
    names = list(dict.fromkeys(policy or FIXED))
    learning = {name: _learning_kind(name) for name in names if not _is_fixed(name)}
    groups = read_groups(groups_file, file.arm_labels, file.n_arms, pull_floor)
    unreached = list(_unreached(ctx, names, learning, groups))
    sure: dict[str, Any] = {"confidence": confidence, "seed": seed}
    settings: dict[str, Any] = {**sure, "estimator": estimator, "n_replicates": replicates, "progress": True}
    found: dict[str, Any] = {}
    for name in names:
        if name == "fair":
            found[name] = frontier(file, [alpha], groups=groups, **settings).held_out[0]
        elif name not in learning:
            found[name] = evaluate(file, fixed_policy(name, file), alpha, groups=groups, **settings)
        else:
            player = _player(learning[name], file, alpha, groups)
            found |= _learning(name, Log.from_table(log, **named), player, {"alpha": alpha, "groups": groups, **sure})
    sizes = _logs.sizes(file, groups)
    reasons = [
        f"{name}: {each.verdict}, because {'; '.join(each.reasons)}." for name, each in found.items() if each.reasons
    ]
    assumed = [f"{name} assumes that {each.assumes}." for name, each in found.items() if hasattr(each, "assumes")]
    report = LogReport(
        name="evaluate",
        title="What policies would have earned",
        lead=f"What policies would have earned on {sizes} of {log.name}, at alpha {alpha:g}",
        headings=("policy", "alpha performance", "Jain's index", "reward per round", "least share", "worth", "verdict"),
        rows=[_row(name, each) for name, each in found.items()],
        caption=f"In brackets {confidence:.0%} intervals; of learning policies, bands over seeds. Worth: as many "
        "rounds of the policy itself would tell as much.",
        sentences=[*reasons, *assumed, *unreached],
        assumptions=_logs.ASSUMPTIONS,
        command=_logs.said(),
        numbers={"log": log.name, "alpha": alpha, "policies": {name: each.as_dict() for name, each in found.items()}},
    )
    notes = (f"{log.name}: {sizes}", f"intervals at {confidence:.0%}")
    _logs.tell(report, partial(pictures.policies, found, notes), output_folder(output, as_json), as_json)


def _is_fixed(name: str) -> bool:
    return name in FIXED or name.lower().endswith((".csv", ".parquet"))


def _unreached(
    ctx: typer.Context, names: list[str], learning: Mapping[str, type[Policy]], groups: ArmGroups
) -> Iterator[str]:
    """Which policies an option that was given changes nothing in, in words; refused if that is all of them."""
    from alphafair.formatting import listed
    from alphafair.run import accepted

    for option in OF_FIXED:
        source = ctx.get_parameter_source(option)
        if not learning or source is None or source.name != "COMMANDLINE":
            continue
        if len(learning) == len(names):
            repair = "Replays and runs on the model have neither an estimator nor a bootstrap."
            raise InvalidArgument(f"--{option}", "left out where every policy learns", ctx.params[option], repair)
        yield f"--{option} is for fixed policies: it changes nothing in {listed([*learning])}."
    if groups.floored or groups.arm_floor > 0.0:
        keeps = [name for name, kind in learning.items() if accepted(kind, {"groups": None})]
        without = [name for name in names if name != "fair" and name not in keeps]
        if len(without) == len(names):
            repair = "fair keeps floors, and so do alpha-fair-adaptive and alpha-fair-bandit."
            got = ctx.params["pull_floor"] or "a column floor in --groups"
            raise InvalidArgument("--pull-floor", "left out where no policy keeps floors", got, repair)
        if without:
            keep = "keeps" if len(names) - len(without) == 1 else "keep"
            some = listed([name for name in names if name not in without])
            yield f"Floors change nothing in {listed(without)}: only {some} {keep} them."


def fixed_policy(name: str, log: LogFile) -> Matrix:
    """Distributions by the policy's name, or from a file."""
    import numpy as np

    from alphafair.evaluation import logged_policy

    if name == "logged":
        return logged_policy(log)
    if name == "uniform":
        return np.full((log.n_contexts, log.n_arms), 1.0 / log.n_arms)
    return read_distributions(Path(name), log)


def read_distributions(path: Path, log: LogFile) -> Matrix:
    """A table with a row per context, named in the first column, and a column per arm of the log."""
    import numpy as np
    import polars as pl

    from alphafair.data.csv_text import unmarked_table
    from alphafair.data.table import named_columns, scan, whole

    rows = scan(path)
    first = rows.collect_schema().names()[0]
    if path.suffix.lower() == ".csv":  # such as `alphafair offline` writes
        rows = unmarked_table(rows, [first])
    frame = whole(rows, str(path))
    frame = frame.with_columns(pl.col(frame.columns[0]).cast(pl.String))
    named_columns(str(path), frame.columns[1:], log.arm_labels)
    by_label = dict(zip(frame[frame.columns[0]].to_list(), frame.select(log.arm_labels).rows(), strict=True))
    missing = [label for label in log.context_labels if label not in by_label]
    if missing:
        repair = "Give one row per context of the log."
        raise InvalidArgument(f"{path}: rows", f"{log.n_contexts} contexts with {missing[0]!r}", list(by_label), repair)
    return np.array([by_label[label] for label in log.context_labels], dtype=np.float64)


def _learning_kind(name: str) -> type[Policy]:
    """One of ours with bandit feedback by its name, or a user's own class."""
    from alphafair import validate
    from alphafair.algorithms import POLICIES
    from alphafair.cli.check import find_policy

    known = [
        each for each, kind in POLICIES.items() if "bandit" in (kind.traits.feedbacks or (vars(kind).get("feedback"),))
    ]
    names = dict.fromkeys([*FIXED, *known])
    return find_policy(name) if ":" in name else POLICIES[validate.choice("--policy", name, names)]


def _player(kind: type[Policy], log: LogFile, alpha: float, groups: ArmGroups) -> Policy:
    from alphafair import Groups
    from alphafair.cli.check import make
    from alphafair.run import accepted

    offered: dict[str, Any] = {"alpha": alpha, "horizon": log.n_rounds, "feedback": "bandit"}
    if not groups.is_default:
        offered["groups"] = Groups.of(groups)
    made: Policy = make(kind, log.n_contexts, log.n_arms, accepted(kind, offered))
    return made


def _learning(name: str, log: Log, player: Policy, settings: dict[str, Any]) -> dict[str, Any]:
    """A policy that learns, on the rounds that match and against the model."""
    from alphafair.evaluation import replay, simulate_model

    found: dict[str, Any] = {}
    for how, play in (("replayed", replay), ("on the model", simulate_model)):
        try:
            found[f"{name}, {how}"] = play(log, player, **settings)
        except InvalidArgument as refusal:
            if how != "replayed" or refusal.argument != "log":
                raise
            typer.echo(f"not replayed: {refusal}", err=True)
    return found


def _row(name: str, found: Any) -> list[str]:
    learned = hasattr(found, "assumes")
    worth = found.n_rounds if learned else found.effective_sample_size
    return [
        name,
        "-" if learned and found.how == "replay" else interval(found.alpha_performance),  # of fewer rounds
        interval(found.jain_index, "{:.3f}"),
        interval(found.reward_per_round),
        interval(found.least_share, "{:.2%}"),
        f"{worth:,.0f}",
        found.verdict,
    ]
