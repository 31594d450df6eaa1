"""Measure what promises to contexts cost the arms: `python -m tools.measure_two_sides`.

Prints the table of docs/howto/who_pays_for_fairness.md: for the optimum in hindsight at alpha = 1, the share of its
best that the worst context gets, and the welfare that is left when every context is promised more.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alphafair import context_reward_totals, metrics, offline_optimum, streams
from alphafair.values import Stream

N_ROUNDS = 20_000
PROMISES = (0.5, 0.6, 0.7, 0.8, 0.9)


def alike(n_rounds: int = N_ROUNDS, n_contexts: int = 12, seed: int = 0) -> Stream:
    """Five arms that pay 1, 0.8, 0.6, 0.4 and 0.2 in every context, each up to 0.02 more or less there."""
    rng = np.random.default_rng(seed)
    means = np.clip(np.array([1.0, 0.8, 0.6, 0.4, 0.2]) + rng.uniform(-0.02, 0.02, (n_contexts, 5)), 0.0, 1.0)
    contexts = rng.integers(0, n_contexts, n_rounds)
    return Stream(contexts, contexts, means)


WORLDS: dict[str, Callable[[], Stream]] = {
    "ratings": lambda: streams.movielens_small().head(N_ROUNDS),
    "alike": alike,
    "zipf": lambda: streams.zipf_contexts(N_ROUNDS, 40, 12, seed=0),
    "stationary": lambda: streams.stationary(N_ROUNDS, 12, 10, seed=0),
    "day and night": lambda: streams.day_and_night(N_ROUNDS, 12, 10, seed=0),
    "rare clicks": lambda: streams.sparse_clicks(N_ROUNDS, 12, 10, rates=(0.0, 0.05), best=None, seed=0),
    "drift": lambda: streams.phases(N_ROUNDS, 12, 10, n_phases=6, seed=0),
}


def row(title: str, stream: Stream) -> str:
    """The worst share at alpha = 1, the bound of it from the accounts, and the welfare left under every promise."""
    totals = context_reward_totals(stream)
    free = offline_optimum(totals, 1.0)
    left = [offline_optimum(totals, 1.0, context_share=share).welfare / free.welfare for share in PROMISES]
    bound = metrics.least_context_share(free.accounts, 1.0)
    cells = [f"{free.context_shares.min():.3f}", f"{bound:.3f}", *(f"{part:.3f}" for part in left)]
    return f"| {title} | {' | '.join(cells)} |"


def main() -> None:
    print(f"| world | worst share | bound | {' | '.join(f'{share:g}' for share in PROMISES)} |")
    print(f"|---|---|---|{'---|' * len(PROMISES)}")
    for title, make in WORLDS.items():
        print(row(title, make()))


if __name__ == "__main__":
    main()
