"""`alphafair backup`: a copy of an engine's file while it is in use."""

from __future__ import annotations

import typer

from alphafair.cli._shared import Copy, EngineFile


def command(file: EngineFile, copy: Copy) -> None:
    """Copy an engine's file while it is in use."""
    from alphafair.engine import Engine

    with Engine.open(file, read_only=True) as engine:
        engine.backup(copy)
        typer.echo(f"{copy}: {engine.position:,} events")
