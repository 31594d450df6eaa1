"""`alphafair doctor`: check a log, and name the rows that are wrong."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from alphafair.cli import _logs
from alphafair.cli._shared import AsJson


def command(
    ctx: typer.Context,
    log: _logs.File,
    context: _logs.Context = "context",
    arm: _logs.Arm = "arm",
    reward: _logs.Reward = "reward",
    propensity: _logs.Propensity = "propensity",
    time: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The log's column of times, which should not go backwards.")
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The log's column of decision ids, which should be unique, except among the rows of a decision.",
        ),
    ] = None,
    available: _logs.Available = "available",
    decision: _logs.Decision = None,
    output: _logs.Output = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a log can be used for evaluation.

    Names the rows that are wrong, and checks that propensities are in (0, 1] and add up, arms never shown, contexts
    with few rounds, repeated ids, and times that go backwards. Exits with 1 if something must be corrected.
    """
    from alphafair.cli import with_options
    from alphafair.evaluation import doctor
    from alphafair.evaluation.log_pages import LogPage, draw_propensities

    columns = {"context": context, "arm": arm, "reward": reward, "propensity": propensity}
    found = doctor(log, **columns, time=time, id=id, available=available or None, decision=decision)
    words = {"wrong": "correct", "look": "check", "fine": "fine"}
    page = LogPage(
        name="doctor",
        title="Can the log be used for evaluation?",
        lead=f"{_logs.name_of(log)}: {'nothing' if found.is_sound else 'something'} must be corrected",
        headings=("", "finding"),
        rows=[[words[each.grade], with_options(each.what, ctx.command)] for each in found.findings],
        caption="Not checked: whether rounds influence each other, and whether the future is like the past.",
        sentences=[],
        assumptions=["Inverse propensities of an arm average to 1 over all rounds if propensities are true."],
        command=_logs.command_line(),
        numbers={"log": _logs.name_of(log), **found.as_dict()},
    )
    _logs.show(page, partial(draw_propensities, found), output, as_json)
    if not found.is_sound:
        raise typer.Exit(1)
