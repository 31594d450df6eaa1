"""Measure what logs of others are worth, good ones and bad ones: `python -m tools.measure_others`.

Prints the figures of docs/background/arena.md: the share of the gap between uniform play and the optimum that the
adaptive policy closes in its first 2,000 and in 20,000 rounds after it has observed a log of 10,000 decisions of
somebody else, and how far that is above the same without a log. Worlds have 12 contexts and 10 arms; means over two
alphas and the seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alphafair import AlphaFairAdaptive, Log, Stream, metrics, offline_optimum, simulate, streams
from alphafair.offline import context_reward_totals

ALPHAS, SEEDS = (0.5, 0.9), range(8)
N_CONTEXTS, N_ARMS, OBSERVED, OWN, EARLY = 12, 10, 10_000, 20_000, 2000
EXPLORED = 0.1  # of the incumbent that plays what is popular

WORLDS: dict[str, Callable[[int, int, int, int], Stream]] = {
    "stationary": lambda n, contexts, arms, seed: streams.stationary(n, contexts, arms, seed=seed),
    "day and night": lambda n, contexts, arms, seed: streams.day_and_night(n, contexts, arms, seed=seed),
    "rare clicks": lambda n, contexts, arms, seed: streams.sparse_clicks(n, contexts, arms, seed=seed),
}


def world(name: str, seed: int) -> tuple[Stream, Stream]:
    """Return the rounds of somebody else, and those of the policy."""
    whole = WORLDS[name](OBSERVED + OWN, N_CONTEXTS, N_ARMS, seed)
    parts = slice(None, OBSERVED), slice(OBSERVED, None)
    before, own = (
        Stream(whole.contexts[part], whole.items[part], whole.reward_table, n_contexts=N_CONTEXTS) for part in parts
    )
    return before, own


def uniform(contexts: np.ndarray, rewards: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    arms = rng.integers(0, N_ARMS, len(rewards))
    return arms, rewards[np.arange(len(rewards)), arms]


def popular(contexts: np.ndarray, rewards: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The arm with the best mean so far over all contexts, and with 10% any arm."""
    arms, sums, counts = np.zeros(len(rewards), dtype=np.int64), np.ones(N_ARMS), np.ones(N_ARMS)
    for t, row in enumerate(rewards):
        arms[t] = rng.integers(N_ARMS) if rng.random() < EXPLORED else (sums / counts).argmax()
        sums[arms[t]] += row[arms[t]]
        counts[arms[t]] += 1.0
    return arms, rewards[np.arange(len(rewards)), arms]


def confounded(contexts: np.ndarray, rewards: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Of two arms the one that pays more this time, which only the incumbent can know."""
    rows, pairs = np.arange(len(rewards)), rng.integers(0, N_ARMS, (2, len(rewards)))
    arms = np.where(rewards[rows, pairs[0]] >= rewards[rows, pairs[1]], *pairs)
    return arms, rewards[rows, arms]


def liar(contexts: np.ndarray, rewards: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    arms, seen = uniform(contexts, rewards, rng)
    return arms, np.clip(1.2 - seen, 0.0, 1.0)


def told(contexts: np.ndarray, rewards: np.ndarray, rng: np.random.Generator, *, best: bool) -> tuple[np.ndarray, ...]:
    """The best arm of every context never pays; or the worst always pays 1."""
    arms, seen = uniform(contexts, rewards, rng)
    means = np.array([rewards[contexts == context].mean(axis=0) for context in range(N_CONTEXTS)])
    special = (means.argmax(axis=1) if best else means.argmin(axis=1))[contexts]
    return arms, np.where(arms == special, 0.0 if best else 1.0, seen)


LOGS: dict[str, Callable[..., tuple[np.ndarray, ...]]] = {
    "popular arms, 10% explored": popular,
    "uniform": uniform,
    "shown because of what is not seen": confounded,
    "liar: 1.2 - reward": liar,
    "the worst arm always pays 1": lambda *world: told(*world, best=False),
    "the best arm never pays": lambda *world: told(*world, best=True),
}


def log_of(name: str, before: Stream, seed: int) -> Log:
    """Return the decisions of somebody else."""
    contexts, rewards = before.contexts, before.reward_table[before.items]
    arms, seen = LOGS[name](contexts, rewards, np.random.default_rng(seed))
    known = np.full(len(seen), 1.0)  # propensities play no part
    return Log(contexts, arms.astype(np.int32), seen, known, n_contexts=N_CONTEXTS, n_arms=N_ARMS)


def closed(own: Stream, alpha: float, seed: int, log: Log | None = None) -> list[float]:
    """Percent of the gap in the first 2,000 rounds, and in all."""
    policy = AlphaFairAdaptive(N_CONTEXTS, N_ARMS, alpha=alpha)
    if log is not None:
        policy.observe_log(log)
    trace = simulate(policy, own, seed=seed, record_every=EARLY)
    found = []
    for n in (EARLY, own.n_rounds):
        totals = context_reward_totals(own.head(n))
        best, even = offline_optimum(totals, alpha).value, 1.0 + totals.sum(axis=0) / N_ARMS
        accounts = trace.accounts[trace.rounds.tolist().index(n)]
        found.append(100.0 * float(metrics.gap_closed(best, even, accounts, alpha)))
    return found


def shares(name: str, log: str | None) -> np.ndarray:
    """Percent of the gap by seed: early and late."""
    found = []
    for seed in SEEDS:
        before, own = world(name, seed)
        given = None if log is None else log_of(log, before, seed)
        found.append(np.mean([closed(own, alpha, seed, given) for alpha in ALPHAS], axis=0))
    return np.array(found)


def main() -> None:
    cold = {name: shares(name, None) for name in WORLDS}
    heads = [f"{name}, cold {' / '.join(f'{x:.1f}' for x in cold[name].mean(axis=0))}" for name in WORLDS]
    print(f"| log | {' | '.join(heads)} |\n|---|{'---|' * len(WORLDS)}")
    for log in LOGS:
        cells = []
        for name in WORLDS:
            found = shares(name, log)
            more = found - cold[name]
            error = more.std(axis=0, ddof=1) / np.sqrt(len(more))
            pairs = zip(found.mean(axis=0), more.mean(axis=0), error, strict=True)
            cells.append(" / ".join(f"{x:.1f} ({d:+.1f} ± {e:.1f})" for x, d, e in pairs))
        print(f"| {log} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
