"""`alphafair verify`: prove that the event log of a file leads to its state."""

from __future__ import annotations

import typer

from alphafair.cli._shared import EngineFile


def command(file: EngineFile) -> None:
    """Prove that an engine's log leads to its state.

    Checks that decisions, contexts, labels and ids belong together, replays the whole log and compares every
    propensity, snapshot and state, bit by bit. Events that an older version wrote cannot be repeated: they are accepted
    up to the state saved at the upgrade, and the output says so. The file may be in use. Exit code 0: everything is
    equal; 1: the first difference is printed.
    """
    from functools import partial

    from alphafair.engine import Engine
    from alphafair.progress import progress_bar

    with Engine.open(file, read_only=True) as engine, progress_bar() as bar:
        n_events = engine.verify(partial(bar.advance, bar.add_task("replaying", total=engine.position)))
        upgrades = [
            (name, each.position)
            for name in engine.experiments()
            for each in engine.history(name)
            if each.kind == "upgrade"
        ]
    typer.echo(f"{n_events:,} events replayed: every propensity, snapshot and state is equal to the last bit.")
    for name, position in dict(upgrades).items():
        typer.echo(
            f"{name}: events before position {position:,} were made by an older version, and accepted as they are."
        )
