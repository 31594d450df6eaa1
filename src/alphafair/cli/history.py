"""`alphafair history`: list who changed an experiment, when and how."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from alphafair.cli._shared import EngineFile, Experiment


def command(
    file: EngineFile,
    experiment: Experiment,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """List who changed an experiment, when and how.

    Its creation, alpha, arms, pauses, rollbacks and erasures, oldest first, each with the name of the key that made
    it. The file may be in use.
    """
    from alphafair.engine import Engine
    from alphafair.formatting import visible

    with Engine.open(file, read_only=True) as engine:
        for change in engine.history(experiment):
            if as_json:
                typer.echo(json.dumps({**change._asdict(), "at": change.at.isoformat()}))
            else:
                details = ", ".join(f"{key}={json.dumps(value)}" for key, value in change.details.items())
                moment = f"{change.at:%Y-%m-%d %H:%M:%S}"
                by = visible(change.by or "-")
                typer.echo(f"{change.position:>9}  {moment} UTC  {change.kind:<10}  {by:<24}  {details}")
