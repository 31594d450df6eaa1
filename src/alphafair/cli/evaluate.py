"""`alphafair evaluate`: estimate what policies would have earned on the rounds of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.cli import _logs
from alphafair.cli._groups import GroupsFile, PullFloor, read_groups
from alphafair.cli._logs import interval
from alphafair.cli._shared import (
    Alpha,
    AsJson,
    Dask,
    Insecure,
    Workers,
    chosen_executor,
)
from alphafair.errors import InvalidArgument
from alphafair.formatting import json_alpha

if TYPE_CHECKING:
    from alphafair.evaluation.estimates import Measured
    from alphafair.evaluation.log_rows import AnyLog
    from alphafair.groups import ArmGroups
    from alphafair.values import Matrix, Policy

FIXED = ("logged", "uniform", "fair")
OF_FIXED = ("user", "estimator", "replicates")  # options that have no effect on policies that learn


def command(
    ctx: typer.Context,
    log: _logs.File,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="logged (the frequencies of arms in the log), uniform, fair (the best fixed policy, held out), a CSV "
            "of distributions as alphafair offline writes, a learning policy by its name, or package.module:Class. "
            "May be repeated. Default: the first three.",
        ),
    ] = None,
    context: _logs.Context = "context",
    arm: _logs.Arm = "arm",
    reward: _logs.Reward = "reward",
    propensity: _logs.Propensity = "propensity",
    user: _logs.User = None,
    available: _logs.Available = "available",
    decision: _logs.Decision = None,
    alpha: Alpha = 0.9,
    groups_file: GroupsFile = None,
    pull_floor: PullFloor = 0.0,
    estimator: Annotated[
        str, typer.Option(metavar="NAME", help="Estimator for fixed policies: ips, snips, dr, clipped or switch.")
    ] = "dr",
    confidence: _logs.Confidence = 0.95,
    replicates: _logs.Replicates = 1000,
    seed: _logs.Seed = 0,
    workers: Workers = None,
    dask: Dask = None,
    insecure: Insecure = False,
    output: _logs.Output = None,
    as_json: AsJson = False,
) -> None:
    """Estimate what policies would have earned on a log, and how fairly.

    The log has decisions with the probabilities of the arms that were shown. Every number has an interval, and every
    policy a verdict: trustworthy, thin, or do not use. A learning policy is replayed on the rounds that match its
    draws, and simulated on a model of the log; both state their assumptions. An option that affects none of the
    policies is an error; for one that affects only some of them the output lists the others.
    """
    from alphafair import Log
    from alphafair.evaluation import Learned, LogFile, evaluate_all
    from alphafair.evaluation.log_pages import LogPage, draw_policies
    from alphafair.metrics import METRICS

    columns: dict[str, Any] = {"context": context, "arm": arm, "reward": reward, "propensity": propensity, "user": user}
    columns["decision"] = decision
    names = list(dict.fromkeys(policy or FIXED))
    learning = {name: _learning_kind(name) for name in names if not _is_fixed(name)}
    processes = not learning and _logs.is_large(log)  # policies that learn have the log in memory
    with chosen_executor(workers, dask, insecure, processes) as executor:
        read = Log.from_table if learning else partial(LogFile, executor=executor)
        source: AnyLog = read(log, **columns, available=available or None)
        groups = read_groups(groups_file, source.arm_labels, source.n_arms, pull_floor)
        unaffected = list(_unaffected(ctx, names, learning, groups))
        common: dict[str, Any] = {"alpha": alpha, "groups": groups, "confidence": confidence, "seed": seed}
        common["executor"] = executor
        tables = {
            name: name if name in FIXED else read_distributions(Path(name), source) for name in names if _is_fixed(name)
        }
        fixed = (
            evaluate_all(source, tables, **common, estimator=estimator, n_replicates=replicates, progress=True)
            if tables
            else {}
        )
        found: dict[str, Measured] = {}
        for name in names:
            if name in fixed:
                found[name] = fixed[name]
            else:
                found |= _learned(name, source, _make_policy(learning[name], source, alpha, groups), common)
    sizes = _logs.sizes(source, groups)
    reasons = [
        f"{name}: {each.verdict}, because {'; '.join(each.reasons)}." for name, each in found.items() if each.reasons
    ]
    assumed = [f"{name} assumes that {each.assumes}." for name, each in found.items() if isinstance(each, Learned)]
    worth, jain, least = (
        METRICS[name].title for name in ("alpha_performance" if alpha < 1.0 else "welfare", "jain_index", "least_share")
    )
    page = LogPage(
        name="evaluate",
        title="What policies would have earned",
        lead=f"What policies would have earned on {sizes} of {_logs.name_of(log)}, at alpha {alpha:g}",
        headings=("policy", worth, jain, "reward per round", least, "worth", "verdict"),
        rows=[_row(name, each) for name, each in found.items()],
        caption=f"In brackets: {confidence:.0%} intervals; for policies that learn, bands over seeds. Worth: the "
        "number of the policy's own rounds with as much information.",
        sentences=[*reasons, *assumed, *unaffected],
        assumptions=_logs.assumptions(source),
        command=_logs.command_line(),
        numbers={
            "log": _logs.name_of(log),
            "alpha": json_alpha(alpha),
            "policies": {name: each.as_dict() for name, each in found.items()},
        },
    )
    notes = (f"{_logs.name_of(log)}: {sizes}", f"intervals at {confidence:.0%}")
    _logs.show(page, partial(draw_policies, found, notes), output, as_json)


def _is_fixed(name: str) -> bool:
    return name in FIXED or name.lower().endswith((".csv", ".parquet"))


def _unaffected(
    ctx: typer.Context, names: list[str], learning: Mapping[str, type[Policy]], groups: ArmGroups
) -> Iterator[str]:
    """A sentence for each given option that does not affect some of the policies; refused if it affects none."""
    from alphafair.formatting import listed
    from alphafair.run import accepted

    for option in OF_FIXED:
        source = ctx.get_parameter_source(option)
        if not learning or source is None or source.name != "COMMANDLINE":
            continue
        if len(learning) == len(names):
            repair = "Replays and simulations on the model use neither an estimator nor a bootstrap."
            raise InvalidArgument(f"--{option}", "omitted where every policy learns", ctx.params[option], repair)
        yield f"--{option} is for fixed policies: it has no effect on {listed([*learning])}."
    if groups.floored or groups.arm_floor > 0.0:
        keeps = [name for name, kind in learning.items() if accepted(kind, {"groups": None})]
        without = [name for name in names if name != "fair" and name not in keeps]
        if len(without) == len(names):
            repair = "fair keeps floors, and so do alpha-fair-adaptive and alpha-fair-bandit."
            got = ctx.params["pull_floor"] or "a column floor in --groups"
            raise InvalidArgument("--pull-floor", "omitted where no policy keeps floors", got, repair)
        if without:
            keep = "keeps" if len(names) - len(without) == 1 else "keep"
            some = listed([name for name in names if name not in without])
            yield f"Floors have no effect on {listed(without)}: only {some} {keep} them."


def read_distributions(path: Path, log: AnyLog) -> Matrix:
    """Read a table with a row per context, whose label is in the first column, and a column per arm of the log."""
    import numpy as np

    from alphafair.tables import Column, open_table, unescape_table

    table = open_table(path)
    first = table.columns[0]
    if path.suffix.lower() == ".csv":  # such as `alphafair offline` writes
        table = unescape_table(table, [first])
    arms, contexts = log.arm_labels or (), log.context_labels or ()
    table.require(arms)
    frame = table.read()
    first = frame.columns[0]
    labels = table.column(frame, Column(first)).to_list()
    places = {label: row for row, label in enumerate(labels)}
    missing = [label for label in contexts if label not in places]
    if missing:
        repair = "Add one row per context of the log."
        raise InvalidArgument(f"{path}: rows", f"{len(contexts)} contexts with {missing[0]!r}", labels, repair)
    columns = [table.column(frame, Column(arm, "number", 0.0, 1.0)).to_numpy() for arm in arms]
    return np.stack(columns, axis=1)[[places[label] for label in contexts]]


def _learning_kind(name: str) -> type[Policy]:
    """A policy of this package with bandit feedback, by its name, or a user's own class."""
    from alphafair import validate
    from alphafair.algorithms import POLICIES
    from alphafair.cli.check import find_policy

    kinds = dict(POLICIES)
    if ":" not in name and name not in kinds:
        from alphafair.notions import NOTIONS
        from alphafair.run import requires

        kinds |= {kind.name: kind for kind in NOTIONS if not requires(kind, "rates")}  # a log does not determine them
    known = [
        each for each, kind in kinds.items() if "bandit" in (kind.traits.feedbacks or (vars(kind).get("feedback"),))
    ]
    names = dict.fromkeys([*FIXED, *known])
    if name in kinds and name not in known:
        allowed = "one that learns from the reward of the shown arm alone"
        repair = f"It learns from the rewards of all arms, which a log does not have: choose one of {', '.join(known)}."
        raise InvalidArgument("--policy", allowed, name, repair)
    return find_policy(name) if ":" in name else kinds[validate.choice("--policy", name, names)]


def _make_policy(kind: type[Policy], log: AnyLog, alpha: float, groups: ArmGroups) -> Policy:
    from alphafair import Groups
    from alphafair.cli.check import make
    from alphafair.run import accepted

    offered: dict[str, Any] = {"alpha": alpha, "horizon": log.n_rounds, "feedback": "bandit"}
    if not groups.is_default:
        offered["groups"] = Groups.of(groups)
    made: Policy = make(kind, log.n_contexts, log.n_arms, accepted(kind, offered))
    return made


def _learned(name: str, log: Any, policy: Policy, settings: dict[str, Any]) -> dict[str, Any]:
    """The results of a policy that learns: replayed on the rounds that match, and simulated on the model."""
    from alphafair.evaluation import replay, simulate_model
    from alphafair.formatting import visible

    found: dict[str, Any] = {}
    for how, play in (("replayed", replay), ("on the model", simulate_model)):
        try:
            found[f"{name}, {how}"] = play(log, policy, **settings)
        except InvalidArgument as error:
            if how != "replayed" or error.argument != "log":
                raise
            typer.echo(f"not replayed: {visible(str(error))}", err=True)
    return found


def _row(name: str, found: Any) -> list[str]:
    from alphafair.evaluation import Learned

    learned = isinstance(found, Learned)
    worth = found.n_rounds if learned else found.effective_sample_size
    fewer = learned and found.how == "replay"  # rounds, so sums are not comparable
    return [
        name,
        "-" if fewer else interval(found.alpha_performance if found.alpha < 1.0 else found.welfare),
        interval(found.jain_index, "{:.3f}"),
        interval(found.reward_per_round),
        interval(found.least_share, "{:.2%}"),
        f"{worth:,.0f}",
        found.verdict,
    ]
