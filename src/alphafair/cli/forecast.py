"""`alphafair forecast`: what fair policies would have earned, from the log of an experiment."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from alphafair.cli._shared import AsJson, EngineFile, Experiment

MOST_ROUNDS = 50_000  # rewarded decisions that are used: the latest


def command(
    file: EngineFile,
    experiment: Experiment,
    source: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Whose decisions: incumbent, for example. Default: the policy's."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Estimate what fair policies would have earned, from an experiment's log.

    As the page does: the best fixed policy at every alpha, learned on one half of the log and tested on the other, with
    95% bands. Decisions of a source need propensities. The file may be in use.
    """
    from alphafair.engine import Engine
    from alphafair.engine.reports import Reports
    from alphafair.service.page.calculate import what_if
    from alphafair.service.page.sentences import evaluated

    with Engine.open(file, read_only=True) as engine:
        job = Reports(engine.writers).what_if_job(experiment, MOST_ROUNDS, source)
    found = what_if(job)
    if as_json:
        typer.echo(json.dumps({**found, "sentence": evaluated(found, job)}))
        return
    typer.echo(evaluated(found, job))
    if (curve := found["curve"]) is None:
        return
    typer.echo(f"{'alpha':>6}  {'mean reward':>23}  {'Jain index':>23}")
    bands = [zip(*curve[name].values(), strict=True) for name in ("average_reward", "jain_index")]
    for alpha, *both in zip(curve["alphas"], *bands, strict=True):
        shown = (
            "-".rjust(23) if None in band else f"{band[0]:.3f} ({band[1]:.3f} to {band[2]:.3f})".rjust(23)
            for band in both
        )
        typer.echo("  ".join([f"{alpha:>6}", *shown]))
    typer.echo(f"Verdict: {curve['verdict']}.")
    for reason in curve["reasons"]:
        typer.echo(f"  {reason}")
