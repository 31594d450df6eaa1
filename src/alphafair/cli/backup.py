"""`alphafair backup` and `alphafair restore`: copies of an engine's file that prove themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from alphafair.cli._shared import EngineFile

Copy = Annotated[Path, typer.Argument(metavar="COPY", help="A new file.", show_default=False)]


def backup(file: EngineFile, copy: Copy) -> None:
    """Copy an engine's file while it is in use."""
    from alphafair.engine import Engine

    with Engine.open(file, read_only=True) as engine:
        engine.backup(copy)
        typer.echo(f"{copy}: {engine.position:,} events")


def restore(file: EngineFile, copy: Copy) -> None:
    """Make a new file from a backup, verified.

    The backup is verified first, as by `alphafair verify`; nothing is overwritten.
    """
    from alphafair.engine import restore as restore_file

    typer.echo(f"{copy}: {restore_file(file, copy):,} events, verified")
