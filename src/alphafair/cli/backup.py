"""`alphafair backup`: copy an engine's file or database into a file while it is in use."""

from __future__ import annotations

import typer

from alphafair.cli._shared import Copy, EngineFile


def command(file: EngineFile, copy: Copy) -> None:
    """Copy an engine's file or database into a new file, while it is in use.

    The copy of a database is verified before it gets its name.
    """
    from alphafair.engine.copies import backup

    typer.echo(f"{copy}: {backup(file, copy):,} events")
