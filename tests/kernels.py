"""Compile the kernels of the suite once, before its workers start: `python -m tests.kernels`.

Without this every worker compiles what it needs, and most of it is what another worker compiles at the same time.
Machine code that is on disk already is only loaded, so that a second call takes a few seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

FLAGS = {  # the variants of kernels that tests use most, by policy; `alphafair.precompile` says what they mean
    "alpha-fair": ("full+groups", "full+readings", "full+groups-readings"),
    "alpha-fair-adaptive": ("bandit+groups", "bandit+features", "full+groups", "full+features"),
    "alpha-fair-bandit": ("bandit+groups",),
}
SHARES = 3  # processes, the one with most to do first


def share_of(name: str) -> int:
    """The process that compiles a policy: kernels of one algorithm have much in common, so they stay together."""
    if name.startswith("alpha-fair-adaptive+bandit"):
        return 1
    return 2 if name.startswith(("alpha-fair-adaptive", "fair-cb")) else 0


def compile_share(number: int) -> None:
    """Compile the policies of one process, and in the first one what is not a policy."""
    from alphafair import (
        Uniform,
        context_reward_totals,
        evaluation,
        jit,
        offline_curve,
        offline_optimum,
        precompile,
        simulate,
        simulate_against,
        streams,
    )

    everything = precompile.names() + [f"{policy}+{flags}" for policy, variants in FLAGS.items() for flags in variants]
    own = [name for name in everything if share_of(name) == number]
    precompile.compile_all(own)
    with jit.using_mode("now"):
        adversary = streams.adversary("largest", n_rounds=10, n_contexts=1, n_arms=3)
        for name in own:
            if name.count("+") < 2:
                for policy in precompile._policies(name):
                    simulate_against(policy, adversary)
        if number == 0:
            stream = streams.ratings(20, 2, 3)
            for alpha in (0.9, 16.0, float("inf")):
                offline_optimum(context_reward_totals(stream), alpha)
            offline_curve(stream, 0.9, [10, 20])
            log = simulate(Uniform(2, 3, feedback="bandit"), stream, log=True).log
            assert log is not None
            evaluation.evaluate(log, np.full((2, 3), 1 / 3), alpha=0.9)


def main() -> int:
    """Compile in one process per share, as many at a time as there are cores."""
    environment = {**os.environ, "ALPHAFAIR_JIT": "now", "NUMBA_DISABLE_JIT": "0"}
    waiting, running, failed = list(range(SHARES)), list[subprocess.Popen[bytes]](), 0
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            command = [sys.executable, "-m", "tests.kernels", str(waiting.pop(0))]
            running.append(subprocess.Popen(command, env=environment))
        failed += running.pop(0).wait() != 0
    return failed


if __name__ == "__main__":
    if len(sys.argv) > 1:
        compile_share(int(sys.argv[1]))
    else:
        sys.exit(main())
