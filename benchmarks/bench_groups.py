"""Whole runs with groups, entitlements and floors, against the same policy without; changes of many arms."""

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


def change_arms(n: int) -> float:
    """Construct a policy with `n` arms in groups of two, add one and retire one."""

    def work() -> None:
        policy = AlphaFairAdaptive(2, n, groups=Groups([arm // 2 for arm in range(n)]))
        policy.grow(n_arms=n + 1, groups=[n])
        policy.retire(0)

    return seconds(work)


def changes() -> Iterator[Row]:
    """Changes of many arms, where work in proportion to their number is ten times that of a tenth of them."""
    times = best({"many": partial(change_arms, 10_000), "few": partial(change_arms, 1_000)}, REPEATS)
    ratio = times["many"] / times["few"]
    job, ours, theirs = "construct, grow and retire, 10,000 arms", duration(times["many"]), duration(times["few"])
    yield Row(f"{job} in groups of 2", ours, "1,000 arms", theirs, f"{ratio:.1f} x", "at most 20 x", ratio <= 20.0)


def rows() -> Iterator[Row]:
    yield from changes()
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
