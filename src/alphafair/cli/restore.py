"""`alphafair restore`: a new file from a backup that proves itself."""

from __future__ import annotations

import typer

from alphafair.cli._shared import Copy, EngineFile


def command(file: EngineFile, copy: Copy) -> None:
    """Make a new file from a backup, verified.

    The backup is verified first, as by `alphafair verify`; nothing is overwritten.
    """
    from alphafair.engine import restore as restore_file

    typer.echo(f"{copy}: {restore_file(file, copy):,} events, verified")
