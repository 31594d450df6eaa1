"""`alphafair copy`: move a shop from a file to a database, or back."""

from __future__ import annotations

import typer

from alphafair.cli._shared import Copy, EngineFile


def command(file: EngineFile, copy: Copy) -> None:
    """Copy an engine's file or database to a new file or database, verified.

    All events, ids and keys are copied; positions are those of the target, where every experiment of a database has
    its own. The source may be in use; what is written to it later is not in the copy, so stop its service first to
    move a shop. The copy is verified, as by `alphafair verify`, before it gets its name.
    """
    from alphafair.engine import copy as copy_store
    from alphafair.engine.addresses import shown

    typer.echo(f"{shown(copy)}: {copy_store(file, copy):,} events, verified")
