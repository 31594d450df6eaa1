"""`alphafair backup`: copy an engine's file while it is in use."""

from __future__ import annotations

import typer

from alphafair.cli._shared import Copy, EngineFile


def command(file: EngineFile, copy: Copy) -> None:
    """Copy an engine's file while it is in use."""
    from alphafair.engine.backup import copy_database

    typer.echo(f"{copy}: {copy_database(file, copy):,} events")
