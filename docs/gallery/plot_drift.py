"""
What happens when tastes change?
================================

Every 5,000 rounds all mean rewards are drawn again. A policy that trusts its averages would need as long to unlearn the old
tastes as it took to learn them. ``AlphaFairAdaptive`` recovers within a few hundred rounds: it notices that its predictions
fail. The best fixed policy knows everything in advance, but plays the same in all six phases, so it gains little.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, AlphaFairBandit, context_reward_totals, figures, offline_optimum
from alphafair import simulate, streams

ALPHA, WINDOW = 0.5, 500
stream = streams.phases(n_rounds=30_000, n_contexts=12, n_arms=10, n_phases=6, seed=4)


def per_window(rewards):
    return rewards.reshape(-1, WINDOW).mean(axis=1)


def learned(kind):
    """Mean reward by window, the mean of five runs."""
    runs = [simulate(kind(12, 10, alpha=ALPHA), stream, seed=seed, log=True).log.rewards for seed in range(5)]
    return per_window(np.mean(runs, axis=0))


all_rewards = stream.reward_table[stream.items]
fixed = offline_optimum(context_reward_totals(stream), ALPHA).distributions
curves = {
    "alpha-fair-adaptive": learned(AlphaFairAdaptive),
    "best fixed policy": per_window((fixed[stream.contexts] * all_rewards).sum(axis=1)),
    "alpha-fair-bandit": learned(AlphaFairBandit),
    "arms at random": per_window(all_rewards.mean(axis=1)),
}

# %%
# The vertical lines are where tastes change.

looks = [
    figures.policy_style("alpha-fair-adaptive"),
    figures.OPTIMUM,
    figures.policy_style("alpha-fair-bandit"),
    figures.Style(figures.FAINT, ""),
]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    figure.subplots_adjust(right=0.74, bottom=0.15)
    for phase in range(1, 6):
        axes.axvline(5_000 * phase, color="#d0d0d0", linewidth=0.8)
    for (title, curve), (color, marker) in zip(curves.items(), looks, strict=True):
        rounds = WINDOW * np.arange(1, len(curve) + 1)
        axes.plot(rounds, curve, color=color, marker=marker, markevery=10, gid=title, linewidth=1.6)
    axes.set(xlim=(0, 30_000), xlabel="rounds")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("Mean reward of 500 rounds")
    figures.label_ends(axes, list(curves), looks)
