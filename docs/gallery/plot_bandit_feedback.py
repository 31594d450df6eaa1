"""
What does it cost to see one reward instead of all?
===================================================

Time. With *full information* you learn after each round what every arm would have paid; with *bandit feedback* only
what the arm that you showed has paid. To learn the rest a policy must show arms that look worse. Both end near the
best fixed policy; with bandit feedback it takes several times as many rounds.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, context_reward_totals, figures, metrics, offline_optimum, simulate, streams

ALPHA = 0.9
stream = streams.stationary(n_rounds=60_000, n_contexts=12, n_arms=10, seed=5)
rounds = np.unique(np.geomspace(60, 60_000, 13).round().astype(int))


def closed(feedback):
    """The part of the gap between arms at random and the best fixed policy that is closed, by length of the run."""
    parts = np.empty((len(rounds), 5))
    for row, n in enumerate(rounds):
        first = stream.head(int(n))
        totals = context_reward_totals(first)
        best, at_random = offline_optimum(totals, ALPHA).value, 1 + totals.sum(axis=0) / 10
        for seed in range(5):
            run = simulate(AlphaFairAdaptive(12, 10, alpha=ALPHA, feedback=feedback), first, seed=seed)
            parts[row, seed] = 100 * metrics.gap_closed(best, at_random, run.final, ALPHA)
    return parts


found = {"sees all rewards": closed("full"), "sees one reward": closed("bandit")}

# %%
# The lines are means of five seeds, the bands go from the least to the greatest.

looks = [figures.Style("#0072B2", "o"), figures.Style("#A65200", "s")]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    figure.subplots_adjust(right=0.77, bottom=0.15)
    for (title, parts), (color, marker) in zip(found.items(), looks, strict=True):
        axes.fill_between(rounds, parts.min(axis=1), parts.max(axis=1), color=color, alpha=0.2, linewidth=0)
        axes.plot(rounds, parts.mean(axis=1), color=color, marker=marker, gid=title)
    axes.set(xscale="log", xlim=(60, 60_000), ylim=(-5, 104), xlabel="rounds", ylabel="%")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("Part of the gap that is closed")
    figures.label_ends(axes, list(found), looks)
