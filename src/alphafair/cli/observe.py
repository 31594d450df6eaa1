"""`alphafair observe`: record the decisions of a log in an experiment, which learns from them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from alphafair.cli import _logs
from alphafair.cli._shared import Experiment
from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    import polars as pl

    from alphafair.tables import Column, Table

BATCH: Final = 1000  # rows of a commit, or of a request
TIMEOUT: Final = 60.0  # seconds for a request
SHOWN: Final = 5  # rows that were refused
Observe = Callable[[list[dict[str, Any]]], Iterable[Any]]


def command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL",
            help="An engine's file, postgresql://USER@HOST/NAME, or the address of a service, http://HOST:PORT.",
            show_default=False,
        ),
    ],
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG", help="CSV, Parquet, Arrow or JSON lines: one row per decision.", show_default=False
        ),
    ],
    experiment: Experiment,
    context: _logs.Context = "context",
    arm: _logs.Arm = "arm",
    reward: _logs.Reward = "reward",
    propensity: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="The log's column of probabilities. Default: propensity, if there is one."),
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The log's column of ids. Default: id, if there is one.")
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The log's column of the units that decisions were made for.")
    ] = None,
    source: Annotated[str, typer.Option(metavar="LABEL", help="Who made the decisions.")] = "history",
    key: Annotated[
        str | None, typer.Option(metavar="KEY", envvar="ALPHAFAIR_KEY", help="A key of the service, of role write.")
    ] = None,
) -> None:
    """Record the decisions of a log in an experiment, which learns from them.

    Rows are recorded in the order of the log; those without a reward are left out. Ids are those of the log, or
    follow from the file and the row, so a second run records nothing. Features of the experiment are read from
    columns of their names. Exit code 1: some rows were refused, and the first of them are printed.
    """
    from alphafair.formatting import visible
    from alphafair.progress import progress_bar

    with ExitStack() as stack:
        observe, features = _opened(target, experiment, key, stack)
        columns = {"context": context, "arm": arm, "reward": reward, "propensity": propensity, "id": id, "unit": user}
        items, n_without, where = _items(log, columns, features, source)
        bar = stack.enter_context(progress_bar())
        task = bar.add_task("recording", total=len(items))
        counts = {"recorded": 0, "repeated": 0}
        refused: list[tuple[int, Exception]] = []
        for some in (items[first : first + BATCH] for first in range(0, len(items), BATCH)):
            for (row, _), answer in zip(some, observe([item for _, item in some]), strict=True):
                outcome = getattr(answer, "outcome", None)
                if outcome in counts:
                    counts[outcome] += 1
                else:
                    refused.append((row, answer if isinstance(answer, Exception) else ValueError(outcome)))
            bar.advance(task, len(some))
    typer.echo(
        f"{experiment}: {counts['recorded']:,} decisions of {source!r} recorded, {counts['repeated']:,} were there."
    )
    if n_without:
        typer.echo(f"Left out, without a reward: {n_without:,}.")
    if refused:
        typer.echo(f"Refused: {len(refused):,}.", err=True)
        for row, problem in refused[:SHOWN]:
            typer.echo(f"{where(row)}: {visible(str(problem))}", err=True)
        raise typer.Exit(1)


def _opened(
    target: str, experiment: str, key: str | None, stack: ExitStack
) -> tuple[Observe, Mapping[str, Any] | None]:
    """Return what records a batch, and the features that the experiment declares."""
    if target.startswith(("http://", "https://")):
        from alphafair_client import Client

        client = stack.enter_context(Client(target, key=key, timeout=TIMEOUT))
        return lambda items: client.observe_many(experiment, items), client.experiment(experiment).features
    from alphafair.engine import Engine

    engine = stack.enter_context(Engine.open(target, create=False))
    return lambda items: engine.observe_many(experiment, items), engine.experiment(experiment).features


def _items(
    log: Path, columns: Mapping[str, str | None], features: Mapping[str, Any] | None, source: str
) -> tuple[list[tuple[int, dict[str, Any]]], int, Callable[[int], str]]:
    """Return the number of every row with a reward and what it tells, how many have none, and how errors name one."""
    from alphafair.tables import ROW, Column, open_table
    from alphafair.values.log_table import REPAIR, feature_column

    declared = features or {}
    table = open_table(log)
    wanted = dict(columns)
    for name in ("propensity", "id"):  # by default those that are there
        wanted[name] = wanted[name] or (name if name in table.columns else None)
    described = {name: feature_column(name, table.columns) for name in declared}
    for name, option in [*wanted.items()]:
        if option is not None:
            table.require([option], f" (--{'user' if name == 'unit' else name})")
    present = {name: column for name, column in described.items() if column in table.columns}
    names = [name for name in (*wanted.values(), *present.values()) if name is not None]
    table = table.select(*dict.fromkeys(names), row_numbers=True)
    whole = table.read()
    frame = whole.drop_nulls(wanted["reward"])
    told: dict[str, list[Any]] = {}
    for name, option in wanted.items():
        if option is not None:
            is_number = name in ("reward", "propensity")
            check = Column(option, "number", repair=REPAIR) if is_number else Column(option)
            told[name] = _values(table, frame, check, may_lack=name in ("propensity", "unit"))
    for name, option in present.items():
        check = Column(option) if isinstance(declared[name], list) else Column(option, "number", repair=REPAIR)
        told[f"features.{name}"] = _values(table, frame, check, may_lack=True)
    rows = frame[ROW].to_list()
    if "id" not in told:
        digest = _digest(log)
        told["id"] = [f"{digest}-{row}" for row in rows]
    items = []
    for k, row in enumerate(rows):
        item: dict[str, Any] = {name: values[k] for name, values in told.items() if "." not in name}
        if features is not None:
            item["features"] = {name: told[f"features.{name}"][k] for name in present}
        items.append((row, {**item, "source": source}))
    return items, len(whole) - len(frame), table.where


def _values(table: Table, frame: pl.DataFrame, check: Column, *, may_lack: bool) -> list[Any]:
    """Return a column as plain values; an error names the first row that is wrong."""
    from alphafair.tables import ROW

    given = frame[check.name]
    check.refuse_type(given.dtype, table.label)
    if not may_lack:
        return table.column(frame, check).to_list()
    found = check.convert(given, table.decimal_comma)
    wrong = found.is_null() & given.is_not_null()
    if wrong.any():
        numbers = frame[ROW]
        first = int(wrong.arg_max() or 0)
        raise check.error(given, first, lambda row: table.where(int(numbers[row])), table.decimal_comma)
    return found.to_list()


def _digest(log: Path) -> str:
    """Return the first digits of the digest of a file."""
    try:
        with log.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:12]
    except OSError as problem:
        repair = "Pass a file, or a folder with a column of ids (--id)."
        raise InvalidArgument("LOG", "a file that can be read", str(log), repair) from problem
