"""`alphafair doctor`: what is wrong with a log, and with which rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from alphafair.cli import _logs
from alphafair.cli._shared import AsJson, make_folder


def command(
    log: _logs.File,
    context: _logs.Context = "context",
    arm: _logs.Arm = "arm",
    reward: _logs.Reward = "reward",
    propensity: _logs.Propensity = "propensity",
    time: Annotated[str | None, typer.Option(metavar="COLUMN", help="When: it should not go backwards.")] = None,
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="Which decision: no two should be the same.")] = None,
    available: _logs.Available = "available",
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write page, picture and numbers there. Default: no file is written."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Is a log fit to learn from?

    What is wrong, with which rows, in plain words: propensities in (0, 1] that add up, arms never shown,
    contexts with few rounds, repeated ids, time going backwards. Exits with 1 if something must be mended.
    """
    from alphafair.evaluation import doctor
    from alphafair.lab.log_report import LogReport
    from alphafair.lab.pictures import logs as pictures

    columns = {"context": context, "arm": arm, "reward": reward, "propensity": propensity}
    found = doctor(log, **columns, time=time, id=id, available=available or None)
    words = {"wrong": "must be mended", "look": "have a look", "fine": "fine"}
    report = LogReport(
        name="doctor",
        title="Is the log fit to learn from?",
        lead=f"{log.name}: {'nothing must be mended' if found.is_sound else 'something must be mended'}",
        headings=("", "finding"),
        rows=[[words[finding.grade], finding.what] for finding in found.findings],
        caption="What cannot be checked: whether rounds influence each other, and whether the future is like the past.",
        sentences=[],
        assumptions=["Inverse propensities of an arm average to 1 over all rounds if, and only if, they are true."],
        command=_logs.said(),
        numbers={"log": log.name, **found.as_dict()},
    )
    folder = None if output is None else make_folder(output)
    _logs.tell(report, partial(pictures.propensities, found), folder, as_json)
    if not found.is_sound:
        raise typer.Exit(1)
