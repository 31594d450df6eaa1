"""`alphafair frontier`: what each step of alpha costs, from a log."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from alphafair.cli import _logs
from alphafair.cli._groups import GroupsFile, PullFloor, read_groups
from alphafair.cli._logs import interval
from alphafair.cli._shared import AsJson, output_folder

WHOSE = {
    "realised": "the rewards that these very rounds would have paid, luck included",
    "expected": "what arms pay on average in these rounds' contexts",
}


def command(
    log: _logs.File,
    context: _logs.Context = "context",
    arm: _logs.Arm = "arm",
    reward: _logs.Reward = "reward",
    propensity: _logs.Propensity = "propensity",
    user: _logs.User = None,
    available: _logs.Available = "available",
    alpha: Annotated[
        list[float] | None,
        typer.Option(metavar="X", help="Points of the curve; repeat. Default: eleven from 0 to 0.99."),
    ] = None,
    least_share: Annotated[
        float | None,
        typer.Option(metavar="S", min=0, max=1, help="Ask for the alpha at which no arm gets less than this share."),
    ] = None,
    cost: Annotated[
        float | None,
        typer.Option(metavar="PERCENT", min=0, max=100, help="Ask for the alpha that costs at most so much reward."),
    ] = None,
    optimum: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Whose optimum the bands hold: realised, the best for the rewards of these very rounds, luck "
            "included, or expected, the best for what arms pay on average in their contexts.",
        ),
    ] = "realised",
    groups_file: GroupsFile = None,
    pull_floor: PullFloor = 0.0,
    confidence: _logs.Confidence = 0.95,
    replicates: _logs.Replicates = 1000,
    seed: _logs.Seed = 0,
    output: _logs.Output = None,
    as_json: AsJson = False,
) -> None:
    """What fairness costs, from a log.

    The best fixed policy at each alpha, valued on rounds that it has not seen. The band holds the curve of the
    optimum: what could be had if every arm's rewards in these rounds were known, or, with --optimum expected,
    what they are on average. The last sentence says how much more the best fixed
    policy would have been worth than the run that the log is of, at most.
    """
    from alphafair import validate
    from alphafair.evaluation import LogFile, frontier, regret
    from alphafair.evaluation.intervals import plain
    from alphafair.lab.log_report import LogReport
    from alphafair.lab.pictures import logs as pictures

    validate.choice("--optimum", optimum, WHOSE)
    columns = {"context": context, "arm": arm, "reward": reward, "propensity": propensity}
    file = LogFile(log, **columns, user=user, available=available or None)
    alphas = sorted({validate.alpha(value) for value in alpha or [*(k / 10 for k in range(10)), 0.99]})
    groups = read_groups(groups_file, file.arm_labels, file.n_arms, pull_floor)
    settings: dict[str, Any] = {"confidence": confidence, "n_replicates": replicates, "seed": seed, "groups": groups}
    found = frontier(file, alphas, optimum=optimum, **settings, progress=True)
    worst = regret(file, 0.9 if 0.9 in alphas else alphas[-1], **settings)
    answers = {}
    if least_share is not None:
        unit = "group" if groups.named else "arm"
        answers[f"no {unit} gets less than {least_share:.2%} of all reward"] = found.alpha_for_least_share(least_share)
    if cost is not None:
        answers[f"at most {cost:g}% of the average reward is lost"] = found.alpha_for_cost(cost)
    sizes = _logs.sizes(file, groups)
    sentences = [_answer(question, *answer) for question, answer in answers.items()]
    doubts = [f"The verdict is {found.verdict}: {'; '.join(found.reasons)}."] if found.reasons else []
    curves = {name: found.curve(name) for name in ("average_reward", "jain_index", "least_share", "greatest_share")}
    written = {"jain_index": "{:.3f}", "least_share": "{:.2%}", "greatest_share": "{:.2%}"}
    rows = []
    for k, value in enumerate(alphas):
        cells = [interval((c.value[k], c.low[k], c.high[k]), written.get(name, "{:.4g}")) for name, c in curves.items()]
        rows.append([f"{value:g}", *cells])
    numbers = {"log": log.name, **found.as_dict(), **plain({"curves": curves, "answers": answers, "regret": worst})}
    report = LogReport(
        name="frontier",
        title="What fairness costs",
        lead=f"What each step of fairness costs on {sizes} of {log.name}",
        headings=("alpha", "average reward", "Jain's index", "least share", "greatest share"),
        rows=rows,
        caption="Values are of policies learned from one half of the rounds and valued on the other; in brackets where "
        f"the curve of the optimum lies, at {confidence:.0%}: that of {WHOSE[optimum]}.",
        sentences=[*sentences, *doubts, f"{worst} (alpha {worst.alpha:g}; {worst.verdict})"],
        assumptions=_logs.ASSUMPTIONS,
        command=_logs.said(),
        numbers=numbers,
    )
    notes = (f"{log.name}: {sizes}", f"bands: where the optimum lies at {confidence:.0%}, that of {WHOSE[optimum]}")
    _logs.tell(report, partial(pictures.price, found, notes), output_folder(output, as_json), as_json)


def _answer(question: str, alpha: float | None, safe: float | None) -> str:
    if alpha is None:
        return f"At no alpha of the curve can it be expected that {question}."
    sure = "no alpha is sure to" if safe is None else f"on the safe side of the band, {safe:g}"
    return f"So that {question}: alpha {alpha:g}; {sure}."
