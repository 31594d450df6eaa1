"""
Which rival wins where?
=======================

Where nothing changes, rewards are frequent and come at once, a simple rule does as well as any: play the arm with
the largest gain in welfare, plus a bonus for what is unknown (UCB), a random draw (Thompson) or a coin
(epsilon-greedy). Elsewhere each of them has a place where it fails. ``AlphaFairAdaptive`` has no settings, and no
row in which it fails: where it is not the first, it is a few points behind. This is the smallest version of the
arena, with the rivals at their default settings and three seeds each.
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
    simulate_against,
    streams,
)
from alphafair.lab.rivals import FairEpsilonGreedy, FairThompson, FairUCB

ALPHA, SIZE, SEEDS = 0.9, (6, 8), range(3)
KINDS = (AlphaFairAdaptive, FairUCB, FairThompson, FairEpsilonGreedy, AlphaFairBandit)
shape = {"n_contexts": 6, "n_arms": 8, "seed": 1}
scenarios = {
    "nothing changes": lambda policy, seed: plain(policy, streams.stationary(15_000, **shape), seed),
    "rewards come\n1,000 rounds late": lambda policy, seed: plain(
        policy, streams.stationary(15_000, **shape), seed, delay=1_000
    ),
    "tastes change\nsix times": lambda policy, seed: plain(policy, streams.phases(15_000, n_phases=6, **shape), seed),
    "rare clicks": lambda policy, seed: plain(policy, streams.sparse_clicks(50_000, **shape), seed),
    "an adversary lowers\nthe likeliest arm": lambda policy, seed: against(policy, seed),
}


def plain(policy, stream, seed, **options):
    return simulate(policy, stream, seed=seed, **options), stream


def against(policy, seed):
    return simulate_against(policy, streams.adversary("largest", 15_000, **shape), seed=seed)


def closed(trace, stream):
    """The part of the gap between arms at random and the best fixed policy that is closed."""
    totals = context_reward_totals(stream)
    at_random = 1 + totals.sum(axis=0) / stream.n_arms
    return 100 * metrics.gap_closed(offline_optimum(totals, ALPHA).value, at_random, trace.final, ALPHA)


found = {
    title: {kind.name: np.mean([closed(*play(kind(*SIZE, alpha=ALPHA), seed)) for seed in SEEDS]) for kind in KINDS}
    for title, play in scenarios.items()
}

# %%
# 0% is showing arms at random, 100% the best fixed policy in hindsight; whoever follows a change can exceed it.
# Orange is worse than random. The best of a row is in bold.

table = np.array([[*parts.values()] for parts in found.values()])
names = ["adaptive", "UCB", "Thompson", "epsilon-greedy", "the paper's"]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    figure.subplots_adjust(left=0.26, right=0.99, top=0.83, bottom=0.02)
    for row, parts in enumerate(table):
        for column, part in enumerate(parts):
            color = plt.get_cmap("Blues")(0.05 + 0.75 * min(part, 100) / 100) if part >= 0 else "#F5B37A"
            axes.add_patch(plt.Rectangle((column + 0.03, row + 0.04), 0.94, 0.92, color=color))
            axes.text(
                column + 0.5,
                row + 0.5,
                f"{part:.0f}%".replace("-", "\N{MINUS SIGN}"),
                ha="center",
                va="center",
                color="white" if part > 60 else figures.INK,
                fontweight="bold" if part == parts.max() else "normal",
            )
    axes.set(xlim=(0, 5), ylim=(5, 0))
    axes.set_xticks(np.arange(5) + 0.5, names)
    axes.set_yticks(np.arange(5) + 0.5, list(found))
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    figure.text(
        0.02, 0.94, "Part of the gap that is closed, \N{GREEK SMALL LETTER ALPHA} = 0.9", fontsize=11, fontweight="bold"
    )
