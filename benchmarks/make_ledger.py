"""Make a large ledger, for measurements of what reads it: `python -m benchmarks.make_ledger FILE`.

A million decisions in 100,000 contexts, nine of ten with a reward, over ten arms; contexts are unequally frequent.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from alphafair import Engine
from alphafair.engine import Decide, Reward

N_DECISIONS, N_CONTEXTS, N_ARMS, BATCH = 1_000_000, 100_000, 10, 5_000


def make(path: Path, n_decisions: int = N_DECISIONS, n_contexts: int = N_CONTEXTS) -> None:
    rng = np.random.default_rng(0)
    with Engine.open(path, seed=0) as engine:
        engine.create("large", arms=[f"arm-{k}" for k in range(N_ARMS)], alpha=0.9)
        for first in range(0, n_decisions, BATCH):
            contexts = (n_contexts * rng.random(BATCH) ** 2).astype(int)
            contexts[: n_contexts * BATCH // n_decisions] = np.arange(n_contexts * BATCH // n_decisions) + (
                first * n_contexts // n_decisions
            )  # every context at least once
            answers: Any = engine.submit([Decide("large", f"visitor-{context}") for context in contexts.tolist()])
            rewards = rng.random(BATCH)
            engine.submit([Reward(each.id, float(rewards[k])) for k, each in enumerate(answers) if k % 10])


if __name__ == "__main__":
    make(Path(sys.argv[1]))
