"""The jobs that contenders are given: streams, all seeded."""

from __future__ import annotations

import numpy as np

from alphafair import Stream, streams

N_CONTEXTS, N_ARMS, ALPHA = 33, 19, 0.9
N_FEATURES = 20


def common(n_rounds: int) -> Stream:
    """The common job: 33 contexts, 19 arms, rewards 1 or 0.2."""
    return streams.ratings(n_rounds, N_CONTEXTS, N_ARMS, reward_floor=0.2, seed=0)


def with_arms(n_arms: int, n_rounds: int) -> Stream:
    """The same with any number of arms; few items, so that the table of rewards stays small."""
    return streams.ratings(n_rounds, N_CONTEXTS, n_arms, reward_floor=0.2, n_items=20, seed=0)


def with_contexts(n_contexts: int, n_rounds: int, n_arms: int = N_ARMS, n_items: int = 1000) -> Stream:
    """Any number of contexts, each as likely as any other in every round: the hardest on the cache."""
    rng = np.random.default_rng(0)
    table = streams.ratings(1, 1, n_arms, reward_floor=0.2, n_items=n_items, seed=0).reward_table
    contexts = rng.integers(0, n_contexts, n_rounds, dtype=np.int32)
    items = rng.integers(0, n_items, n_rounds, dtype=np.int32)
    return Stream(contexts, items, table, n_contexts=n_contexts)
