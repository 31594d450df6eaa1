"""Compile the kernels of the suite once, before its workers start: `python -m tests.kernels`.

Without this every worker compiles what it needs, and most of it is what another worker compiles at the same time.
Machine code is kept on disk by the fingerprint of the files with kernels; a second call finds that it is complete.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from functools import partial
from pathlib import Path

import numpy as np

from alphafair import (
    POLICIES,
    Uniform,
    context_reward_totals,
    evaluation,
    jit,
    offline_curve,
    offline_optimum,
    simulate,
    simulate_against,
    streams,
)
from alphafair.code_version import code_digest
from alphafair.executors import ProcessPool
from alphafair.jit import Kernels
from alphafair.lab import arena, notions, reproduction
from alphafair.lab.runner import compile_here, compile_tasks
from alphafair.notions import NOTIONS
from alphafair.precompile import OTHERS, SLATES, compile_kernels, every_kernel, kernels_of, small_policy
from alphafair.tasks import Task

# the kernels of the variants that the conformance checks play with slates
BELOW_ONE, WELFARE = frozenset[str](), frozenset({"welfare"})
OF_SLATES = [("uniform", "full", BELOW_ONE), ("uniform", "bandit", BELOW_ONE)]
OF_SLATES += [("alpha-fair-adaptive", "bandit", BELOW_ONE), ("alpha-fair-adaptive", "bandit", WELFARE)]
OF_SLATES += [("alpha-fair-adaptive", "full", BELOW_ONE), ("alpha-fair-adaptive", "full", WELFARE)]
OF_SLATES += [("alpha-fair", "full", BELOW_ONE), ("alpha-fair", "full", WELFARE)]
OF_SLATES += [("alpha-fair-bandit", "bandit", BELOW_ONE), ("alpha-fair-bandit", "bandit", WELFARE)]


# the kernels of policies that have observed decisions of others
OF_OTHERS = [("alpha-fair-adaptive", "bandit", BELOW_ONE), ("alpha-fair-adaptive", "bandit", WELFARE)]


def of_variants() -> Iterator[Kernels]:
    """Yield those of the variants that the conformance checks play, with contexts as a second side too."""
    for kind in POLICIES.values():
        for settings in kind.traits.variants(3, 4).values():
            yield Kernels.of(kind(3, 4, **settings))


def compile_offline() -> None:
    stream = streams.ratings(20, 2, 3)
    for alpha in (0.9, 16.0, float("inf")):
        offline_optimum(context_reward_totals(stream), alpha)
    offline_curve(stream, 0.9, [10, 20])


def compile_evaluation() -> None:
    log = simulate(Uniform(2, 3, feedback="bandit"), streams.ratings(20, 2, 3), log=True).log
    assert log is not None
    evaluation.evaluate(log, np.full((2, 3), 1 / 3), alpha=0.9)


def compile_policy(kernels: Kernels) -> None:
    """What an installation compiles, and runs against an adversary."""
    compile_kernels(kernels)
    if not kernels.flags:
        adversary = streams.adversary("largest", n_rounds=10, n_contexts=1, n_arms=3)
        simulate_against(small_policy(kernels), adversary)


def of_plans() -> list[Callable[[], None]]:
    """What the small report, arena and benchmark of notions run on, with rivals: one piece of work per policy."""
    tasks: dict[str, list[Task]] = {}
    arenas = (arena.SCENARIOS, arena.FEATURE_SCENARIOS, arena.STEEP_SCENARIOS, arena.DYING_SCENARIOS)
    for plan in (*(each.smoke() for each in (reproduction.PLAN, *arenas)), notions.smoke_plan()):
        for policy, some in compile_tasks(plan).items():
            tasks.setdefault(policy, []).extend(some)
    return [partial(compile_here, some) for some in tasks.values()]


def marker() -> Path | None:
    """The file that says that all of it is on disk; None without a cache."""
    folder = jit.cache_folder()
    digest = code_digest(("algorithms/*.py", "notions/*.py", "lab/**/*.py", "precompile.py", "streams/*.py", "run.py"))
    own = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    return None if folder is None else folder / f"suite-{digest}-{own}-{jit._toolchain()}"


def main() -> int:
    os.environ |= {"ALPHAFAIR_JIT": "now", "NUMBA_DISABLE_JIT": "0"}
    complete = marker()
    if complete is not None and complete.exists():
        return 0
    work: list[Callable[[], None]] = [compile_offline, compile_evaluation]
    work += [partial(compile_policy, kernels) for kernels in {*every_kernel(), *of_variants()}]
    work += [partial(compile_policy, Kernels(name, feedback, flags | {SLATES})) for name, feedback, flags in OF_SLATES]
    work += [partial(compile_policy, Kernels(name, feedback, flags | {OTHERS})) for name, feedback, flags in OF_OTHERS]
    work += [partial(compile_kernels, kernels) for kind in NOTIONS for kernels in kernels_of(kind.name)]
    with ProcessPool() as pool:
        for part in (work, of_plans()):  # the second part shares kernels with the first
            for done in as_completed([pool.submit(each) for each in part]):
                done.result()
    if complete is not None:
        complete.touch(mode=0o600)
        print(f"machine code in {complete.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
