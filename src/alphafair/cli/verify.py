"""`alphafair verify`: prove that the event log of a file leads to its state."""

from __future__ import annotations

import typer

from alphafair.cli._shared import EngineFile


def command(file: EngineFile) -> None:
    """Prove that an engine's log leads to its state.

    Checks that decisions, contexts, labels and ids belong together, replays the whole log and compares every
    propensity, snapshot and state, bit by bit. Events that an older version wrote cannot be repeated: they are accepted
    up to the state saved at the upgrade, and the output says so. The file may be in use. A file of an older version is
    left as it is: a copy beside it is migrated, verified and removed. Exit code 0: everything is equal; 1: the first
    difference is printed.
    """
    from functools import partial

    from alphafair.engine.copies import for_verification
    from alphafair.progress import progress_bar

    with for_verification(file) as (engine, is_copy), progress_bar() as bar:
        n_events = engine.verify(partial(bar.advance, bar.add_task("replaying", total=engine.position)))
        upgrades = [
            (name, each.position)
            for name in engine.experiments()
            for each in engine.history(name)
            if each.kind == "upgrade"
        ]
    typer.echo(f"{n_events:,} events replayed: every propensity, snapshot and state is equal to the last bit.")
    if is_copy:
        typer.echo(f"{file} is of an older version, and was left as it is: a migrated copy was verified.")
    for name, position in dict(upgrades).items():
        typer.echo(
            f"{name}: events before position {position:,} were made by an older version, and accepted as they are."
        )
