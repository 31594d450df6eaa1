"""The command line: one file per command, registered by one line; nothing heavy loads before a command runs."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import alphafair
from alphafair.cli import (
    arena,
    backup,
    check,
    data,
    doctor,
    erase,
    evaluate,
    export,
    frontier,
    keys,
    offline,
    reproduce,
    restore,
    serve,
    simulate,
    verify,
)


class _OneLineRefusals(TyperGroup):
    """What the door refuses is the user's to repair: one line, exit code 2. Any other error keeps its traceback.

    A file that cannot be used, or an extra that is not installed, is one line too, exit code 1.
    """

    def invoke(self, ctx: Any) -> Any:  # a click.Context; where it comes from depends on typer's version
        try:
            return super().invoke(ctx)
        except ValueError as problem:
            from alphafair.validate import Refusal  # loads NumPy, which a command has loaded by now

            if not isinstance(problem, Refusal):
                raise
            typer.echo(f"error: {problem}", err=True)
            raise typer.Exit(2) from None
        except Exception as problem:
            extra = isinstance(problem, ImportError) and "pip install 'alphafair[" in str(problem)
            if not extra and type(problem).__module__ != "alphafair.engine.errors":
                raise
            typer.echo(f"error: {problem}", err=True)
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_OneLineRefusals,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: the same in a terminal, a pipe and docs/cli.md
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("reproduce")(reproduce.command)
app.command("arena")(arena.command)
app.command("simulate")(simulate.command)
app.command("offline")(offline.command)
app.command("evaluate")(evaluate.command)
app.command("frontier")(frontier.command)
app.command("doctor")(doctor.command)
app.command("check")(check.command)
app.command("verify")(verify.command)
app.command("export")(export.command)
app.command("backup")(backup.command)
app.command("restore")(restore.command)
app.command("erase")(erase.command)
app.command("serve")(serve.command)
app.add_typer(keys.app, name="keys")
app.add_typer(data.app, name="data")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"alphafair {alphafair.__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Online decisions that are fair over time, with a guarantee."""
