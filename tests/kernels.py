"""Compile the kernels of the suite once, before its workers start: `python -m tests.kernels`.

Without this every worker compiles what it needs, and most of it is what another worker compiles at the same time.
Machine code that is on disk already is only loaded, so that a second call takes a few seconds.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import as_completed
from functools import partial

import numpy as np

from alphafair import (
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
from alphafair.executors import ProcessPool
from alphafair.jit import Kernels
from alphafair.precompile import compile_kernels, every_kernel, small_policy


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


def main() -> int:
    os.environ |= {"ALPHAFAIR_JIT": "now", "NUMBA_DISABLE_JIT": "0"}
    work: list[Callable[[], None]] = [compile_offline, compile_evaluation]
    work += [partial(compile_policy, kernels) for kernels in every_kernel()]
    with ProcessPool() as pool:
        for done in as_completed([pool.submit(each) for each in work]):
            done.result()
    print(f"machine code in {jit.cache_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
