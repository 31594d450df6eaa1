"""`alphafair keys`: who may use the service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from alphafair.cli.serve import Database

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make, list and revoke keys of the service.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
ThereIs = Annotated[Path, typer.Option("--db", metavar="FILE", exists=True, dir_okay=False, help="The ledger.")]


@app.command("create")
def create(
    db: Database,
    role: Annotated[str, typer.Option("--role", help="read, write (read too) or admin (everything).")],
    name: Annotated[str, typer.Option("--name", help="Whose key it is.")],
) -> None:
    """Make a key and print it, this once: the file keeps its hash alone.

    A service that runs on the file knows it within a second.
    """
    from alphafair.service import keys

    was_there = db.exists()
    typer.echo(keys.create(db, role, name))
    if not was_there:
        typer.echo(f"{db} was not there: a new file was made.", err=True)
    typer.echo("Send it as `Authorization: Bearer KEY`. It is not shown again.", err=True)


@app.command("list")
def show_list(db: ThereIs) -> None:
    """Show all keys that were ever made, without their secrets."""
    from alphafair.service import keys

    for key in keys.all_of(db):
        made, gone = (
            at and time.strftime("%Y-%m-%d %H:%M", time.gmtime(at / 1e6)) for at in (key.created_at, key.revoked_at)
        )
        typer.echo(f"{key.id}  {key.role:<5}  {made} UTC  {f'revoked {gone}' if gone else 'valid':<24}  {key.name}")


@app.command("revoke")
def revoke(db: ThereIs, id: Annotated[str, typer.Argument(metavar="ID", help="The id that the list shows.")]) -> None:
    """Revoke a key. A service that runs on the file refuses it within a second."""
    from alphafair.service import keys

    keys.revoke(db, id)
