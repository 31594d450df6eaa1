"""`alphafair compile`: machine code made beforehand."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    names: Annotated[list[str] | None, typer.Argument(metavar="POLICY", help="Policies; default: all.")] = None,
) -> None:
    """Compile policies beforehand, so that they are fast at once.

    Without it a policy starts at once too, interpreted, and is compiled by a process of its own while it is used.
    Machine code is kept in the folder NUMBA_CACHE_DIR, or in the user's cache; what is there already is not made again.
    A name may end in the feedback and in what kernels must be able to do: alpha-fair-adaptive+bandit,
    alpha-fair-adaptive+bandit+groups.
    """
    from alphafair import jit
    from alphafair.precompile import compile_all
    from alphafair.precompile import names as all_names
    from alphafair.progress import progress_bar

    wanted = all_names(names or ())
    folder = jit.cache_folder()
    if folder is None:
        typer.echo("error: there is no folder to keep machine code in: name one in NUMBA_CACHE_DIR.", err=True)
        raise typer.Exit(1)
    if jit.mode() == "off":
        typer.echo("error: machine code is turned off: unset NUMBA_DISABLE_JIT and ALPHAFAIR_JIT.", err=True)
        raise typer.Exit(1)
    with progress_bar() as bar:
        task = bar.add_task("compile", total=len(wanted))
        compile_all(wanted, lambda done: bar.advance(task, done))
    typer.echo(f"{len(wanted)} compiled in {folder}")
