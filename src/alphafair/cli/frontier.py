"""`alphafair frontier`: estimate the price of fairness from a log."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from alphafair.cli import _logs
from alphafair.cli._groups import GroupsFile, PullFloor, read_groups
from alphafair.cli._logs import interval
from alphafair.cli._shared import AsJson, Dask, Insecure, Workers, chosen_executor

CURVES = ("welfare", "average_reward", "jain_index", "least_share", "greatest_share")
OPTIMA = {
    "realized": "the rewards of all arms in these rounds, including chance",
    "expected": "the expected rewards of all arms in these rounds' contexts",
}


def command(
    log: _logs.File,
    context: _logs.Context = "context",
    arm: _logs.Arm = "arm",
    reward: _logs.Reward = "reward",
    propensity: _logs.Propensity = "propensity",
    user: _logs.User = None,
    available: _logs.Available = "available",
    decision: _logs.Decision = None,
    alpha: Annotated[
        list[float] | None,
        typer.Option(metavar="X", help="A point of the curve; may be repeated. Default: fifteen points from 0 to inf."),
    ] = None,
    context_share: Annotated[
        list[float] | None,
        typer.Option(
            metavar="S",
            help="Promise every context this share of its best, from 0 to 1, with one --alpha; may be repeated. The "
            "curve is then along these shares.",
        ),
    ] = None,
    least_share: Annotated[
        float | None,
        typer.Option(
            metavar="S", min=0, max=1, help="Find the alpha at which no arm has less than this share of all reward."
        ),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT", min=0, max=100, help="Find the alpha that costs at most this percentage of the reward."
        ),
    ] = None,
    optimum: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The optimum that the bands cover: realized, the best for the rewards of these rounds, including "
            "chance, or expected, the best for the expected rewards in their contexts.",
        ),
    ] = "realized",
    groups_file: GroupsFile = None,
    pull_floor: PullFloor = 0.0,
    confidence: _logs.Confidence = 0.95,
    replicates: _logs.Replicates = 1000,
    seed: _logs.Seed = 0,
    workers: Workers = None,
    dask: Dask = None,
    insecure: Insecure = False,
    output: _logs.Output = None,
    as_json: AsJson = False,
) -> None:
    """Estimate what fairness costs, from a log.

    Finds the best fixed policy at each alpha and scores it on rounds that it was not learned from. The band covers the
    optimum for the rewards of all arms in these rounds or, with --optimum expected, for their expectations. The last
    sentence bounds how much more the best fixed policy would have been worth than the logged run; there is none where
    decisions show several arms, or contexts have a promise.
    """
    from alphafair import validate
    from alphafair.errors import InvalidArgument
    from alphafair.evaluation import LogFile, frontier
    from alphafair.evaluation.estimates import plain
    from alphafair.evaluation.log_pages import LogPage, draw_frontier
    from alphafair.evaluation.price import ALPHAS
    from alphafair.metrics import METRICS
    from alphafair.values import Interval

    validate.choice("--optimum", optimum, OPTIMA)
    columns: dict[str, Any] = {"context": context, "arm": arm, "reward": reward, "propensity": propensity}
    columns["decision"] = decision
    alphas = sorted({validate.alpha(value) for value in alpha or ALPHAS})
    promises = sorted({validate.context_share(value) for value in context_share or ()})
    if promises and len(alphas) > 1:
        raise InvalidArgument("--context-share", "used with one --alpha", len(alphas), "Pass one.")
    if promises and (least_share is not None or cost is not None):
        repair = "Leave out --least-share and --cost."
        raise InvalidArgument("--context-share", "used without questions about alpha", promises, repair)
    along: dict[str, Any] = {"context_shares": promises} if promises else {}
    settings: dict[str, Any] = {"confidence": confidence, "n_replicates": replicates, "seed": seed, "progress": True}
    processes = _logs.is_large(log)
    with chosen_executor(workers, dask, insecure, processes) as executor:
        file = LogFile(log, **columns, user=user, available=available or None, executor=executor)
        groups = read_groups(groups_file, file.arm_labels, file.n_arms, pull_floor)
        found = frontier(file, alphas, optimum=optimum, **along, **settings, groups=groups, executor=executor)
    worst = found.regrets[alphas.index(0.9) if 0.9 in alphas else -1] if found.regrets else None
    answers = {}
    if least_share is not None:
        unit = "group" if groups.named else "arm"
        answers[f"no {unit} gets less than {least_share:.2%} of all reward"] = found.alpha_for_least_share(least_share)
    if cost is not None:
        answers[f"at most {cost:g}% of the average reward is lost"] = found.alpha_for_cost(cost)
    sizes = _logs.sizes(file, groups)
    sentences = [_answer(question, *answer) for question, answer in answers.items()]
    doubts = [f"The verdict is {found.verdict}: {'; '.join(found.reasons)}."] if found.reasons else []
    curves = {name: found.curve(name) for name in CURVES}
    written = {"jain_index": "{:.3f}", "least_share": "{:.2%}", "greatest_share": "{:.2%}"}
    rows = []
    for k, value in enumerate([f"{share:g}" for share in promises] or [f"{value:g}" for value in alphas]):
        cells = [
            interval(Interval(*(side[k] for side in c)), written.get(name, "{:.4g}")) for name, c in curves.items()
        ]
        rows.append([value, *cells])
    numbers = {
        "log": _logs.name_of(log),
        **found.as_dict(),
        **plain({"curves": curves, "answers": answers, "regret": worst}),  # no regret where decisions show several arms
    }
    promised = f"Alpha is {alphas[0]:g}, and every context gets the share of its best. " if promises else ""
    page = LogPage(
        name="frontier",
        title="What fairness costs",
        lead=f"What {'a promise to contexts' if promises else 'each step of fairness'} costs on {sizes} of "
        f"{_logs.name_of(log)}",
        headings=("share" if promises else "alpha", *(METRICS[name].title for name in CURVES)),
        rows=rows,
        caption=f"{promised}Values are of policies learned from one half of the rounds and scored on the other; "
        f"in brackets the {confidence:.0%} band of the optimum, for {OPTIMA[optimum]}.",
        sentences=[*sentences, *doubts, *([f"{worst} (alpha {worst.alpha:g}; {worst.verdict})"] if worst else [])],
        assumptions=_logs.assumptions(file),
        command=_logs.command_line(),
        numbers=numbers,
    )
    notes = (f"{_logs.name_of(log)}: {sizes}", f"bands: the optimum at {confidence:.0%}, for {OPTIMA[optimum]}")
    _logs.show(page, partial(draw_frontier, found, notes), output, as_json)


def _answer(question: str, alpha: float | None, safe: float | None) -> str:
    if alpha is None:
        return f"At no alpha of the curve is it expected that {question}."
    sure = "no alpha is on the safe side of the band" if safe is None else f"on the safe side of the band, {safe:g}"
    return f"So that {question}: alpha {alpha:g}; {sure}."
