"""Whole runs with groups, entitlements and floors, against the same policy without."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from alphafair import AlphaFair, AlphaFairAdaptive, AlphaFairBandit, Groups, simulate
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS, common
from benchmarks.table import Row, duration
from benchmarks.timing import best, seconds

ROUNDS, REPEATS, N_GROUPS = 300_000, 7, 6
LABELS = [arm % N_GROUPS for arm in range(N_ARMS)]
GROUPS = {
    "6 groups": Groups(LABELS),
    "6 groups, entitlements": Groups(LABELS, entitlements=[1, 2, 3, 4, 5, 6]),
    "a floor for arms": Groups(pull_floor=0.01),
    "floors for 6 groups": Groups(LABELS, pull_floor=[0.05] * N_GROUPS),
}


def rows() -> Iterator[Row]:
    makers = {
        "AlphaFair": partial(AlphaFair, N_CONTEXTS, N_ARMS, alpha=ALPHA),
        "AlphaFairBandit": partial(AlphaFairBandit, N_CONTEXTS, N_ARMS, alpha=ALPHA),
        "AlphaFairAdaptive": partial(AlphaFairAdaptive, N_CONTEXTS, N_ARMS, alpha=ALPHA),
        "AlphaFairAdaptive, full": partial(AlphaFairAdaptive, N_CONTEXTS, N_ARMS, alpha=ALPHA, feedback="full"),
    }
    stream = common(ROUNDS)
    for name, make in makers.items():

        def run(groups: Groups | None, make: Any = make) -> float:
            policy = make(groups=groups)
            return seconds(lambda: simulate(policy, stream, seed=0)) / ROUNDS

        contenders = {"plain": partial(run, None)} | {words: partial(run, groups) for words, groups in GROUPS.items()}
        for contender in contenders.values():
            contender()  # compiles
        times = best(contenders, REPEATS)
        for words in GROUPS:
            ratio = times[words] / times["plain"]
            job, ours, theirs = f"simulate {name} with {words}", duration(times[words]), duration(times["plain"])
            yield Row(job, ours, f"{name} without", theirs, f"{ratio:.2f} x", "at most 1.3 x", ratio <= 1.3)
