"""`alphafair export`: write the exploration log of an experiment as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from alphafair.cli._shared import EngineFile, Experiment


def command(
    file: EngineFile,
    experiment: Experiment,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The suffix sets the format. Default: NAME.parquet."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", metavar="FORMAT", help="parquet, csv or jsonl; default: by the suffix."),
    ] = None,
) -> None:
    """Write an experiment's decisions as a table.

    One row each: context, arm, propensity, reward, times, version of the policy, available arms. The file may be
    in use. The reward is empty while the decision is pending.
    """
    from alphafair.engine import Engine

    with Engine.open(file, read_only=True) as engine:
        target = output or Path(f"{experiment}.{format or 'parquet'}")
        n_rows = engine.export(experiment, target, format)
    typer.echo(f"{target}: {n_rows:,} decisions")
