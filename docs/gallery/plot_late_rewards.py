"""
What do late rewards cost?
==========================

Little, until they are very late. A purchase may be known an hour after the click, and thousands of visitors have
come since. A decision keeps the probability that it was made with, so its reward has the right weight whenever it
arrives, and ``AlphaFairAdaptive`` counts on what it expects of the pending ones. The runs have 20,000 rounds each.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import (
    AlphaFairAdaptive,
    AlphaFairBandit,
    context_reward_totals,
    figures,
    metrics,
    offline_optimum,
    simulate,
    streams,
)

ALPHA, SEEDS = 0.9, range(5)
stream = streams.stationary(n_rounds=20_000, n_contexts=8, n_arms=6, seed=3)
totals = context_reward_totals(stream)
best, at_random = offline_optimum(totals, ALPHA).value, 1 + totals.sum(axis=0) / 6
delays = [0, 10, 30, 100, 300, 1_000, 3_000]


def closed(kind, delay):
    """The part of the gap between arms at random and the best fixed policy that is closed, for every seed."""
    runs = [simulate(kind(8, 6, alpha=ALPHA), stream, seed=seed, delay=delay) for seed in SEEDS]
    return [100 * metrics.gap_closed(best, at_random, run.final, ALPHA) for run in runs]


found = {
    kind.name: np.array([closed(kind, delay) for delay in delays]) for kind in (AlphaFairAdaptive, AlphaFairBandit)
}

# %%
# The lines are means of five seeds, the bands go from the least to the greatest.

looks = [figures.policy_style(name) for name in found]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    figure.subplots_adjust(right=0.76, bottom=0.15)
    for (name, parts), (color, marker) in zip(found.items(), looks, strict=True):
        axes.fill_between(range(7), parts.min(axis=1), parts.max(axis=1), color=color, alpha=0.2, linewidth=0)
        axes.plot(range(7), parts.mean(axis=1), color=color, marker=marker, gid=name)
    axes.set_xticks(range(7), [f"{delay:,}" for delay in delays])
    axes.set(xlim=(0, 6), ylim=(0, 104), xlabel="rounds until a reward is known", ylabel="%")
    axes.set_title("Part of the gap that is closed")
    figures.label_ends(axes, list(found), looks)
