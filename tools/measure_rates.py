"""Measure how E W^2 and the bound of Theorem 1 grow with T, up to ten million rounds: `python -m tools.measure_rates`.

Writes docs/background/data/rates.json, from which a picture is drawn; about ten processor minutes.
"""

from __future__ import annotations

import json

import numpy as np

from alphafair import AlphaFairAdaptive, metrics, simulate, streams
from alphafair.progress import progress_bar
from alphafair.values import Stream
from tools.site import DATA

RESULTS = DATA / "rates.json"
ALPHAS, SEEDS = (0.25, 0.5, 0.75), (0, 1, 2)
HORIZONS = tuple(round(10 ** (3 + k / 2)) for k in range(9))  # 1,000 to 10,000,000


def rounds(kind: str, seed: int) -> Stream:
    """Three contexts and four arms: rewards that are drawn, or an adversary that pays the leader least."""
    if kind == "stochastic":
        return streams.ratings(HORIZONS[-1], 3, 4, seed=seed)
    return streams.greedy_trap(HORIZONS[-1], 3, 4)


def measure(kind: str, alpha: float, seed: int) -> list[list[float]]:
    """W^2 and the bound in expectation after every horizon of one run; the policy does not know where it ends."""
    stream, policy = rounds(kind, seed), AlphaFairAdaptive(3, 4, alpha=alpha)
    found, start = [], 0
    for stop in HORIZONS:
        part = Stream(stream.contexts[start:stop], stream.items[start:stop], stream.reward_table, n_contexts=3)
        simulate(policy, part, seed=1000 * seed + len(found))
        weight = float(policy.accounts.min() ** -alpha)
        found.append([weight**2, metrics.bound_in_expectation(policy)])
        start = stop
    return found


def main() -> None:
    results = []
    with progress_bar() as bar:
        task = bar.add_task("runs", total=2 * len(ALPHAS) * len(SEEDS))
        for kind in ("stochastic", "adversarial"):
            for alpha in ALPHAS:
                runs = []
                for seed in SEEDS:
                    runs.append(measure(kind, alpha, seed))
                    bar.advance(task)
                squares, bounds = np.moveaxis(np.array(runs), 2, 0)
                results.append({"stream": kind, "alpha": alpha, "squares": squares.tolist(), "bounds": bounds.tolist()})
    RESULTS.write_text(json.dumps({"horizons": HORIZONS, "runs": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
