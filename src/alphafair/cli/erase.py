"""`alphafair erase`: a context's label leaves a file for good."""

from __future__ import annotations

from typing import Annotated

import typer

from alphafair.cli._shared import EngineFile, Experiment, actor


def command(
    file: EngineFile,
    experiment: Experiment,
    context: Annotated[str, typer.Option("--context", metavar="LABEL", help="What to forget.", show_default=False)],
) -> None:
    """Forget a context's label for good.

    It leaves every table, and so do the ids of its decisions; the numbers stay, and the log still verifies.
    Stop the service first, or ask it: DELETE /v1/experiments/NAME/contexts?label=LABEL. Backups keep what they have.
    """
    from alphafair.engine import Engine

    with Engine.open(file, create=False) as engine, engine.acting_as(actor()):
        engine.erase(experiment, context)
    typer.echo(f"{file}: the label is gone from {experiment}")
