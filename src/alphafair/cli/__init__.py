"""The command line: one file per command, imported when it is run."""

import importlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import alphafair
from alphafair.errors import InvalidArgument, MissingExtra
from alphafair.extras import require
from alphafair.formatting import visible

COMMANDS = {  # in the order of the help, which needs no imports
    "reproduce": "Reproduce the paper: run its experiments and write a report.",
    "arena": "Compare all policies in all scenarios: how much of the gap to the optimum each closes.",
    "notions": "Compare published notions of fairness: how fair every policy is by each, and what it costs.",
    "simulate": "Compare policies: how much arms earn, and how fairly.",
    "offline": "Compute the fair optimum in hindsight.",
    "evaluate": "Estimate what policies would have earned on a log, and how fairly.",
    "frontier": "Estimate what fairness costs, from a log.",
    "doctor": "Check whether a log can be used for evaluation.",
    "check": "Run the conformance checks on your own policy.",
    "verify": "Prove that an engine's log leads to its state.",
    "history": "List who changed an experiment, when and how.",
    "export": "Write an experiment's decisions as a table.",
    "forecast": "Estimate what fair policies would have earned, from an experiment's log.",
    "observe": "Record the decisions of a log in an experiment, which learns from them.",
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
    **dict.fromkeys(("reproduce", "arena", "notions", "simulate", "offline", "evaluate", "frontier", "doctor"), "lab"),
    "observe": "lab",
    "forecast": "service",
    "serve": "service",
}


OPTIONS_OF = {  # arguments of the library whose options have other names
    "n_replicates": "replicates",
    "n_rounds": "rounds",
    "n_contexts": "contexts",
    "n_arms": "arms",
    "arm_columns": "arm",
    "address": "dask",
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
            typer.echo(f"warning: {visible(message)}", err=True)


@contextmanager
def _engine_warnings() -> Iterator[None]:
    """Print warnings of an engine, such as a failing policy; `serve` has its own logging."""
    logger, handler = logging.getLogger("alphafair.engine"), _OneLine()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def with_options(text: str, command: Any) -> str:
    """The text of an error of the library with the options of a command in place of its own arguments."""
    names: dict[str, str] = {param.name: max(param.opts, key=len) for param in getattr(command, "params", ())}
    options = {name: option for name, option in names.items() if option.startswith("--")}
    options |= {argument: options[name] for argument, name in OPTIONS_OF.items() if name in options}
    text = re.sub(
        r"^(\w+)(?= must be )|(?<=Choose )(\w+)(?= inside that range)",
        lambda found: options.get(found[0], found[0]),
        text,
    )
    return re.sub(r"\b(\w+)=(?=[,;)])", lambda found: options.get(found[1], found[0]), text)


class _Program(TyperGroup):
    """Print errors that the user can repair as one line.

    Exit code 2: an invalid argument, or an extra that is not installed. Exit code 1: a file that cannot be used, or
    may not be, a service that refuses or does not answer, a policy that fails, a failed download, too little memory.
    Any other error keeps its traceback.
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
            text = with_options(str(problem), self.commands.get(ctx.invoked_subcommand))
            typer.echo(f"error: {visible(text)}", err=True)
            raise typer.Exit(1 if getattr(problem, "code", None) == "policy_failed" else 2) from None
        except PermissionError as problem:
            where = "" if problem.filename is None else f"{problem.filename}: "
            repair = "Use an account that may, such as that of the service."
            typer.echo(
                f"error: {visible(where)}{(problem.strerror or 'permission denied').lower()}. {repair}", err=True
            )
            raise typer.Exit(1) from None
        except MemoryError as problem:
            detail = f" ({problem})" if str(problem) else ""
            typer.echo(f"error: there is not enough memory for this{detail}. Choose smaller sizes.", err=True)
            raise typer.Exit(1) from None
        except Exception as problem:
            known = ("alphafair.errors", "alphafair.data.downloads", "alphafair_client.answers")
            if type(problem).__module__ not in known and type(problem) is not ConnectionError:  # that of a client
                raise
            typer.echo(f"error: {visible(str(problem))}", err=True)
            raise typer.Exit(2 if isinstance(problem, MissingExtra) else 1) from None


app = typer.Typer(
    cls=_Program,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain help: the same in a terminal, a pipe and the site
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
