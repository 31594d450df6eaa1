"""`alphafair evaluate`: what policies would have earned on the rounds of a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.cli import _logs
from alphafair.cli._groups import GroupsFile, PullFloor, read_groups
from alphafair.cli._logs import interval

if TYPE_CHECKING:
    from alphafair.evaluation import LogFile
    from alphafair.types import Log, Matrix

FIXED = ("logged", "uniform", "fair")


def command(
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
    alpha: _logs.Alpha = 0.9,
    groups: GroupsFile = None,
    pull_floor: PullFloor = 0.0,
    estimator: Annotated[str, typer.Option(metavar="NAME", help="ips, snips, dr, clipped or switch.")] = "dr",
    confidence: _logs.Confidence = 0.95,
    replicates: _logs.Replicates = 1000,
    seed: _logs.Seed = 0,
    output: _logs.Output = Path("output"),
    as_json: _logs.AsJson = False,
) -> None:
    """What policies would have earned on a log, and how fairly.

    From decisions with the probabilities of the arms that were shown. Every number comes with its interval,
    and every policy with a verdict: trustworthy, thin, or do not use. A learning policy is replayed on the rounds that
    match its draws, and played against a model of the log: both say what they assume.
    """
    from alphafair import Log
    from alphafair.evaluation import LogFile, evaluate, frontier
    from alphafair.experiments.log_report import LogReport
    from alphafair.experiments.pictures import logs as pictures

    named: dict[str, Any] = {"context": context, "arm": arm, "reward": reward, "propensity": propensity, "user": user}
    file = LogFile(log, **named)
    settings: dict[str, Any] = {"confidence": confidence, "n_replicates": replicates, "seed": seed, "progress": True}
    owed = read_groups(groups, file.arm_labels, file.n_arms, pull_floor)
    said = owed.settings()
    fair_to = {name: value for name, value in said.items() if name != "pull_floor"}
    found: dict[str, Any] = {}
    for name in dict.fromkeys(policy or FIXED):
        if name == "fair":
            found[name] = frontier(file, [alpha], **said, **settings).held_out[0]
        elif (table := fixed_policy(name, file)) is not None:
            found[name] = evaluate(file, table, alpha=alpha, estimator=estimator, **fair_to, **settings)
        else:
            found |= _learning(name, Log.from_table(log, **named), alpha, said, fair_to)
    sizes = _logs.sizes(file, owed)
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
        caption=f"In brackets {confidence:.0%} intervals; of learning policies, 95% bands. Worth: as many rounds of "
        "the policy itself would tell as much.",
        sentences=[*reasons, *assumed],
        assumptions=_logs.ASSUMPTIONS,
        command=_logs.said(),
        numbers={"log": log.name, "alpha": alpha, "policies": {name: each.as_dict() for name, each in found.items()}},
    )
    notes = (f"{log.name}: {sizes}", f"intervals at {confidence:.0%}")
    _logs.tell(report, pictures.policies(found, notes), output, as_json)


def fixed_policy(name: str, log: LogFile) -> Matrix | None:
    """Distributions by the policy's name, or from a file; None for a policy that learns."""
    import numpy as np

    from alphafair.evaluation import logged_policy

    if name == "logged":
        return logged_policy(log)
    if name == "uniform":
        return np.full((log.n_contexts, log.n_arms), 1.0 / log.n_arms)
    return read_distributions(Path(name), log) if name.lower().endswith((".csv", ".parquet")) else None


def read_distributions(path: Path, log: LogFile) -> Matrix:
    """A table with a row per context, named in the first column, and a column per arm of the log."""
    import numpy as np
    import polars as pl

    from alphafair import validate
    from alphafair.csv_text import unmarked_table
    from alphafair.streams.table import collected, named_columns, scan

    rows = scan(path)
    first = rows.collect_schema().names()[0]
    if path.suffix.lower() == ".csv":  # such as `alphafair offline` writes
        rows = unmarked_table(rows, [first])
    frame = collected(rows, str(path))
    frame = frame.with_columns(pl.col(frame.columns[0]).cast(pl.String))
    named_columns(str(path), frame.columns[1:], log.arm_labels)
    by_label = dict(zip(frame[frame.columns[0]].to_list(), frame.select(log.arm_labels).rows(), strict=True))
    missing = [label for label in log.context_labels if label not in by_label]
    if missing:
        repair = "Give one row per context of the log."
        raise validate.Refusal(
            f"{path}: rows", f"{log.n_contexts} contexts with {missing[0]!r}", list(by_label), repair
        )
    return np.array([by_label[label] for label in log.context_labels], dtype=np.float64)


def _learning(name: str, log: Log, alpha: float, said: dict[str, Any], fair_to: dict[str, Any]) -> dict[str, Any]:
    """A policy that learns, on the rounds that match and against the model."""
    from alphafair import validate
    from alphafair.cli.check import find_policy, make
    from alphafair.evaluation import replay, simulate_model
    from alphafair.policies import POLICIES
    from alphafair.policies.fitting import accepted

    known = [each for each, kind in POLICIES.items() if "bandit" in (kind.feedbacks or (vars(kind).get("feedback"),))]
    names = dict.fromkeys([*FIXED, *known])
    kind = find_policy(name) if ":" in name else POLICIES[validate.choice("--policy", name, names)]
    offered = accepted(kind, {"alpha": alpha, "horizon": log.n_rounds, "feedback": "bandit", **said})
    player = make(kind, log.n_contexts, log.n_arms, offered)
    found: dict[str, Any] = {}
    for how, play in (("replayed", replay), ("on the model", simulate_model)):
        try:
            found[f"{name}, {how}"] = play(log, player, alpha=alpha, **fair_to)
        except validate.Refusal as refusal:
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
