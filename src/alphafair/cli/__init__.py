"""The command line: one file per command, imported when it is run."""

import importlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import alphafair
from alphafair.errors import InvalidArgument, MissingExtra
from alphafair.extras import require

COMMANDS = {  # in the order of the help, which needs no imports
    "reproduce": "Reproduce the paper: run its experiments and write a report.",
    "arena": "Compare all policies in all scenarios: how much of the gap to the optimum each closes.",
    "simulate": "Compare policies: how much arms earn, and how fairly.",
    "offline": "Compute the fair optimum in hindsight.",
    "evaluate": "Estimate what policies would have earned on a log, and how fairly.",
    "frontier": "Estimate what fairness costs, from a log.",
    "doctor": "Check whether a log can be used for evaluation.",
    "check": "Run the conformance checks on your own policy.",
    "verify": "Prove that an engine's log leads to its state.",
    "history": "List who changed an experiment, when and how.",
    "export": "Write an experiment's decisions as a table.",
    "backup": "Copy an engine's file or database into a new file, while it is in use.",
    "restore": "Make a new file or database from a backup, verified.",
    "copy": "Copy an engine's file or database to a new file or database, verified.",
    "erase": "Remove a context's label permanently.",
    "serve": "Serve decisions over HTTP; every answer is on disk before it is sent.",
    "keys": "Create, list, rotate and revoke keys of the service.",
    "data": "Download public data sets, and list them.",
    "compile": "Compile policies ahead of time.",
}
EXTRAS = {  # of the commands that need more than typer; `export` needs polars alone, which two extras have
    **dict.fromkeys(("reproduce", "arena", "simulate", "offline", "evaluate", "frontier", "doctor"), "lab"),
    "serve": "service",
}


class _Commands(Mapping[str, Any]):
    """The modules of this package, each with a `command`, or an `app` of several."""

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        if name in EXTRAS:
            require(EXTRAS[name], f"alphafair {name}")
        module = importlib.import_module(f"alphafair.cli.{name}")
        if hasattr(module, "app"):
            return typer.main.get_group(module.app)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(module.command)
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _OneLine(logging.Handler):
    """Print log messages of an engine, each once and without a traceback."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message not in self.printed:
            self.printed.add(message)
            typer.echo(f"warning: {message}", err=True)


@contextmanager
def _engine_warnings() -> Iterator[None]:
    """Print warnings of an engine, such as a failing policy; `serve` has its own logging."""
    logger, handler = logging.getLogger("alphafair.engine"), _OneLine()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Program(TyperGroup):
    """Print errors that the user can repair as one line.

    Exit code 2: an invalid argument, or an extra that is not installed. Exit code 1: a file that cannot be used, a
    policy that fails, a failed download. Any other error keeps its traceback.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:  # a click.Context; its module depends on the version of typer
        try:
            with _engine_warnings():
                return super().invoke(ctx)
        except ValueError as problem:
            if not isinstance(problem, InvalidArgument):
                raise
            typer.echo(f"error: {problem}", err=True)
            raise typer.Exit(1 if getattr(problem, "code", None) == "policy_failed" else 2) from None
        except Exception as problem:
            if type(problem).__module__ not in ("alphafair.errors", "alphafair.data.downloads"):
                raise
            typer.echo(f"error: {problem}", err=True)
            raise typer.Exit(2 if isinstance(problem, MissingExtra) else 1) from None


app = typer.Typer(
    cls=_Program,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: the same in a terminal, a pipe and docs/cli.md
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


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
