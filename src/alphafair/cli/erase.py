"""`alphafair erase`: remove a context's label from a file permanently."""

from __future__ import annotations

from typing import Annotated

import typer

from alphafair.cli._shared import EngineFile, Experiment, actor


def command(
    file: EngineFile,
    experiment: Experiment,
    context: Annotated[
        str, typer.Option("--context", metavar="LABEL", help="The context's label.", show_default=False)
    ],
) -> None:
    """Remove a context's label permanently.

    The label and the ids of its decisions are removed from every table; the numbers stay, and the log still verifies.
    Stop the service of a file first, or send it DELETE /v1/experiments/NAME/contexts?label=LABEL. Backups stay as
    they are.
    """
    from alphafair.engine import Engine
    from alphafair.engine.addresses import shown

    with Engine.open(file, create=False) as engine, engine.acting_as(actor()):
        engine.erase(experiment, context)
    typer.echo(f"{shown(file)}: the label was removed from {experiment}")
