"""Machine code for all that the experiments use, made before they start, so that their bars tell of their own work.

Numba compiles one kernel at a time in a process, so each of the three that take longest gets a process; what
those compile is loaded from the disk cache afterwards. Where all code is in the cache already this takes a second.
"""

import subprocess
import sys
from collections.abc import Callable

from alphafair import streams
from alphafair.jit import cache_folder, using_mode
from alphafair.lab import experiment, paper
from alphafair.lab.courses import BANDIT, COURSES, GUARANTEED
from alphafair.lab.match import Match

OPTIMUM = "optimum"
APART = ("alpha-fair-adaptive", "fair-cb", OPTIMUM)
CONTENDERS = {contender for each in (*paper.EXPERIMENTS, paper.TOY) for contender in each.contenders}
CONTENDERS |= {*BANDIT} - {GUARANTEED}  # of the arena; that one has the adaptive policy's kernels
ADVERSARY = next(course for course in COURSES if course.maker == "adversary").smoke()
NAMES = (*sorted({contender.policy for contender in CONTENDERS} - {*APART}), *APART)  # the longest last


def compiled(name: str) -> None:
    """A policy, or the optimum, on two rounds, in machine code."""
    with using_mode("now"):
        _play(name)


def _play(name: str) -> None:
    stream, alpha = streams.impossibility(1), 0.5
    if name == OPTIMUM:
        experiment.optimum(stream, alpha, n_records=1)
        paper.IMPOSSIBILITY[0].played(0)
    for contender in CONTENDERS:
        if contender.policy == name:
            contender.played(stream, alpha, n_seeds=1, n_records=1)
            if contender in BANDIT:
                Match(ADVERSARY, (contender,), (alpha,)).played(0)


def compile_all(*, jobs: int | None = None, advance: Callable[[int], None] = lambda names: None) -> None:
    """All of `NAMES`; `advance` is told of every one that is ready. One job means one process."""
    apart = APART if jobs != 1 and cache_folder() is not None else ()
    helpers = {name: _helper(name) for name in apart}
    try:
        for name in NAMES:
            if name in helpers:
                helpers[name].wait()
            compiled(name)
            advance(1)
    finally:
        for helper in helpers.values():
            helper.kill()
            helper.wait()


def _helper(name: str) -> subprocess.Popen[bytes]:
    """A process that compiles one of them into the cache; should it fail, it is compiled here, and that tells why."""
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-P", "-m", __name__, name]
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)  # noqa: S603 - this Python, our own names


if __name__ == "__main__":
    compiled(sys.argv[1])
