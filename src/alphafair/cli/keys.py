"""`alphafair keys`: create, list, rotate and revoke keys of the service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from alphafair.cli._shared import actor
from alphafair.cli.serve import Database

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, list, rotate and revoke keys of the service.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
ExistingDatabase = Annotated[str, typer.Option("--db", metavar="FILE|URL", help="The file or database.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The id that `keys list` shows.")]
USAGE = "Send it as `Authorization: Bearer KEY`. It is not shown again."


@app.command("create")
def create(
    db: Database,
    role: Annotated[
        str,
        typer.Option(
            "--role",
            help="metrics (only /metrics), read (also the state of experiments), write (also decide and reward), "
            "log (read, and download logs) or admin (everything).",
        ),
    ],
    name: Annotated[str, typer.Option("--name", help="The key's owner.")],
    experiment: Annotated[
        list[str] | None,
        typer.Option("--experiment", metavar="NAME", help="Limit the key to this experiment; can be repeated."),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            metavar="DURATION",
            help="How long it is valid: 90d, 12h, 30m or 45s. Default: until it is revoked.",
        ),
    ] = None,
) -> None:
    """Create a key and print it. It is not shown again: the database stores only its hash.

    A running service accepts it within a second.
    """
    from alphafair import validate
    from alphafair.engine.addresses import is_url
    from alphafair.service import keys

    existed = is_url(db) or Path(db).exists()
    seconds = None if expires is None else validate.duration("--expires", expires)
    typer.echo(keys.create(db, role, name, experiments=experiment or None, expires_in=seconds, by=actor()))
    if not existed:
        typer.echo(f"{db} did not exist: created a new file.", err=True)
    typer.echo(USAGE, err=True)


@app.command("list")
def show_list(db: ExistingDatabase) -> None:
    """List all keys, valid or not, without their secrets."""
    from alphafair.service import keys

    now = time.time_ns() // 1000
    for key in keys.all_of(_existing(db)):
        if key.revoked_at is not None:
            state = f"revoked {_moment(key.revoked_at)}"
        elif key.expires_at is None:
            state = "valid"
        else:
            state = f"{'valid until' if key.valid_at(now) else 'expired'} {_moment(key.expires_at)}"
        limits = "" if key.experiments is None else f"  (only {', '.join(key.experiments)})"
        typer.echo(f"{key.id}  {key.role:<7}  {_moment(key.created_at)} UTC  {state:<28}  {key.name}{limits}")


@app.command("rotate")
def rotate(
    db: ExistingDatabase,
    id: KeyId,
    grace: Annotated[
        str, typer.Option("--grace", metavar="DURATION", help="How long the old key stays valid: 1d, 2h, 30m or 0s.")
    ] = "0s",
) -> None:
    """Replace a key by a new one of the same name, role and limits, and print the new one."""
    from alphafair import validate
    from alphafair.service import keys

    typer.echo(keys.rotate(_existing(db), id, grace=validate.duration("--grace", grace), by=actor()))
    typer.echo(USAGE, err=True)


@app.command("revoke")
def revoke(db: ExistingDatabase, id: KeyId) -> None:
    """Revoke a key. A running service rejects it within a second."""
    from alphafair.service import keys

    keys.revoke(_existing(db), id, by=actor())


def _existing(db: str) -> str:
    from alphafair.engine.addresses import is_url
    from alphafair.errors import InvalidArgument

    if not is_url(db) and not Path(db).is_file():
        raise InvalidArgument("--db", "an existing file", db, "Check the path for a typo.")
    return db


def _moment(at: int) -> str:
    from alphafair.engine.dates import date_of

    return date_of(at).isoformat(" ", "minutes")[:16]
