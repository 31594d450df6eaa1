"""`alphafair restore`: a new file from a backup that proves itself."""

from __future__ import annotations

import typer

from alphafair.cli._shared import Copy, EngineFile


def command(file: EngineFile, copy: Copy) -> None:
    """Make a new file from a backup, verified.

    The copy is verified, as by `alphafair verify`, before it takes its name. Nothing is overwritten: move the old file
    away first, with FILE-wal, FILE-shm and FILE-journal if they are there.
    """
    from alphafair.engine import restore as restore_file

    typer.echo(f"{copy}: {restore_file(file, copy):,} events, verified")
