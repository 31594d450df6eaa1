"""Measure slates with late rewards, missing arms, groups, and any k: `python -m tools.measure_slates`.

Prints the table of docs/background/arena.md: the share of the gap between random slates and the best fixed ones that
the adaptive policy closes with bandit feedback. Worlds have 20 contexts and 10 arms.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alphafair import AlphaFairAdaptive, Groups, Stream, metrics, offline_optimum, simulate, streams

ALPHA, SEEDS, SHOWN = 0.5, range(6), (1, 3)
SIZES = (20_000, 20, 10)  # rounds, contexts, arms
MOST = 5  # arms of a slate, where their number is random
MISSING = 0.3  # the probability of an arm to be missing in a decision
PAIRS = Groups(list("aabbccddee"), {"b": 2.0, "d": 0.5})
WORLDS: dict[str, tuple[int, Callable[..., Stream]]] = {  # how often means change, and how rounds are made
    "stationary": (1, streams.stationary),
    "drift, 4 phases": (4, lambda *sizes, seed: streams.phases(*sizes, n_phases=4, seed=seed)),
}


def adaptive(stream: Stream, groups: Groups | None = None) -> AlphaFairAdaptive:
    return AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=ALPHA, groups=groups)


def closed(stream: Stream, k: int, seed: int, late: int | None = None, groups: Groups | None = None) -> float:
    """k arms per decision; each reward is late by up to so many rounds, independently."""
    delay = None
    if late is not None:
        delay = np.random.default_rng(seed).integers(0, late + 1, (stream.n_rounds, k))
    final = simulate(adaptive(stream, groups), stream, seed=seed, k=k, delay=delay).final
    return share(stream, np.full(stream.n_rounds, k), final, groups)


def closed_at_random(stream: Stream, seed: int) -> float:
    """1 to 5 arms per decision; the best fixed policy has slates per context and number."""
    k = np.random.default_rng(seed).integers(1, MOST + 1, stream.n_rounds)
    return share(stream, k, simulate(adaptive(stream), stream, seed=seed, k=k).final)


def share(stream: Stream, k: np.ndarray, final: np.ndarray, groups: Groups | None = None) -> float:
    """Percent of the gap."""
    totals = np.zeros((stream.n_contexts * MOST, stream.n_arms))
    np.add.at(totals, stream.contexts * MOST + k - 1, stream.reward_table[stream.items])
    numbers = np.tile(np.arange(1, MOST + 1), stream.n_contexts)
    best = offline_optimum(totals, ALPHA, k=numbers, groups=groups).value
    at_random = 1.0 + (totals * numbers[:, None]).sum(axis=0) / stream.n_arms
    return 100.0 * float(metrics.gap_closed(best, at_random, final, ALPHA, groups=groups))


def closed_among_available(stream: Stream, n_phases: int, k: int, seed: int) -> float:
    """Arms are missing: percent of the way from random slates to the largest slope times mean, all of available arms.

    The mean is that of a context in a phase.
    """
    rewards = stream.reward_table[stream.items]
    cells = stream.contexts * n_phases + np.arange(stream.n_rounds) * n_phases // stream.n_rounds
    means, n_cells = np.zeros((stream.n_contexts * n_phases, stream.n_arms)), np.bincount(cells)
    np.add.at(means, cells, rewards / n_cells[cells, None])
    policy, rng = adaptive(stream), np.random.default_rng(seed)
    reached = at_random = best = 0.0
    for context, cell, earned in zip(stream.contexts.tolist(), cells.tolist(), rewards, strict=True):
        available = rng.random(stream.n_arms) >= MISSING
        available[rng.integers(stream.n_arms)] = True
        worth = available * means[cell] * policy.accounts**-ALPHA
        slate = policy.choose(context, k=k, available=available, rng=rng)
        reached += float(slate.probabilities @ worth)
        at_random += worth.sum() * len(slate.arms) / available.sum()
        best += float(np.sort(worth)[-len(slate.arms) :].sum())
        policy.update(slate, earned[[*slate.arms]])
    return 100.0 * (reached - at_random) / (best - at_random)


def shares(world: str, case: str, k: int, seed: int, sizes: tuple[int, int, int] = SIZES) -> float:
    """A cell of the table."""
    n_phases, make = WORLDS[world]
    stream = make(*sizes, seed=seed)
    if case.startswith("late"):
        return closed(stream, k, seed, late=int(case.split()[-1]))
    if case == "groups":
        return closed(stream, k, seed, groups=PAIRS)
    if case == "missing":
        return closed_among_available(stream, n_phases, k, seed)
    return closed_at_random(stream, seed) if case == "random k" else closed(stream, k, seed)


CASES = ("as they are", "groups", "late up to 20", "late up to 200", "missing", "random k")


def cell(world: str, case: str, k: int) -> str:
    """The mean over the seeds, and its standard error; a random k has one column."""
    if case == "random k" and k < max(SHOWN):
        return "\u2013"
    found = np.array([shares(world, case, k, seed) for seed in SEEDS])
    return f"{found.mean():.1f} \u00b1 {found.std(ddof=1) / np.sqrt(len(found)):.1f}"


def main() -> None:
    columns = [(world, k) for world in WORLDS for k in SHOWN]
    print("| |", " | ".join(f"{world}, k = {k}" for world, k in columns), "|\n|---|---:|---:|---:|---:|")
    for case in CASES:
        print(f"| {case} |", " | ".join(cell(world, case, k) for world, k in columns), "|", flush=True)


if __name__ == "__main__":
    main()
