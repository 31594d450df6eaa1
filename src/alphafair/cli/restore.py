"""`alphafair restore`: make a new file or database from a backup and verify it."""

from __future__ import annotations

from typing import Annotated

import typer

from alphafair.cli._shared import Copy, EngineFile


def command(
    file: EngineFile,
    copy: Copy,
    keep_keys: Annotated[
        bool, typer.Option("--keep-keys", help="Keep the keys of the backup, including keys revoked since.")
    ] = False,
) -> None:
    """Make a new file or database from a backup, verified.

    The copy is verified, as by `alphafair verify`, before it gets its name. Files are never overwritten: move the old
    file away first, with FILE-wal, FILE-shm and FILE-journal if they exist. Keys of the service are removed, because a
    key revoked since the backup would be valid again. Create new ones with `alphafair keys create`.
    """
    from alphafair.engine import restore
    from alphafair.engine.addresses import shown

    n_events = restore(file, copy, keep_keys=keep_keys)
    typer.echo(f"{shown(copy)}: {n_events:,} events, verified")
    if not keep_keys:
        typer.echo("It has no keys: create new ones with `alphafair keys create`.", err=True)
