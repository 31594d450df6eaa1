"""`alphafair compile`: compile policies ahead of time."""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="KERNELS", help="What to compile; default: all policies."),
    ] = None,
    slates: Annotated[bool, typer.Option("--slates", help="Compile decisions of several arms too.")] = False,
    others: Annotated[
        bool, typer.Option("--others", help="Compile policies that have observed decisions of others too.")
    ] = False,
) -> None:
    """Compile policies ahead of time.

    Without it a policy starts interpreted, and a helper process compiles it in the background. Machine code is stored
    in the folder NUMBA_CACHE_DIR, or in the user's cache; what is already there is not compiled again.

    KERNELS is a policy, such as alpha-fair-adaptive, for its kernels with groups, with features and with any alpha, or
    POLICY+FEEDBACK[+FLAG-FLAG] for some: alpha-fair-adaptive+bandit, alpha-fair-adaptive+bandit+groups-welfare. Flags:
    groups, features, welfare (alpha from 1 on), slates (several arms per decision), others (decisions of others), sides
    (a context weight or a context share, with welfare).
    """
    from alphafair import jit
    from alphafair.precompile import compile_all, every_kernel, parse
    from alphafair.progress import progress_bar

    wanted = [kernels for name in names or () for kernels in parse(name, slates=slates, others=others)]
    wanted = wanted if names else every_kernel(slates=slates, others=others)
    folder = jit.cache_folder()
    if folder is None:
        typer.echo("error: there is no folder for machine code: set NUMBA_CACHE_DIR.", err=True)
        raise typer.Exit(1)
    if jit.mode() == "off":
        typer.echo("error: compiling is turned off: unset NUMBA_DISABLE_JIT and ALPHAFAIR_JIT.", err=True)
        raise typer.Exit(1)
    with progress_bar() as bar:
        task = bar.add_task("compile", total=len(wanted))
        compile_all(wanted, lambda done: bar.advance(task, done))
    typer.echo(f"{len(wanted)} compiled in {folder}")
