"""
Is a large alpha dangerous?
===========================

It can be, where an arm is poor because visitors do not want it now. A large alpha keeps showing that arm. Suppose
that it would have recovered by itself: in the first half of the run it pays next to nothing and the other arm 1; in
the second half it pays 1 and the other nothing. Every visit of the first half that went to the poor arm was wasted.

The insurance is a floor under every arm: with ``Groups(pull_floor=0.05)`` the welfare of the best fixed policy is
at most 20 times that of the run, whatever happens.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import (
    AlphaFairAdaptive,
    Groups,
    Stream,
    context_reward_totals,
    figures,
    metrics,
    offline_optimum,
    simulate,
)

HALF = 10_000
halves = np.repeat([0, 1], HALF)
alphas = [0.5, 1.0, 2.0, 5.0]
poor_pays = [0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001]


def ratio(alpha, pays, **options):
    """The welfare of the best fixed policy over that of the run."""
    trap = Stream(halves, halves, np.array([[pays, 1.0], [1.0, 0.0]]))
    accounts = simulate(AlphaFairAdaptive(2, 2, alpha=alpha, feedback="full", **options), trap).final
    return metrics.welfare_ratio(offline_optimum(context_reward_totals(trap), alpha).welfare, accounts, alpha)


# %%
# The dotted line is what showing both arms at random loses here. At alpha = 0.5 and 1 the run is better than that.

names = [f"\N{GREEK SMALL LETTER ALPHA} = {alpha:g}" for alpha in alphas]
looks = [figures.Style(*look) for look in zip(("#0072B2", "#009E73", "#A65200", "#4D4D4D"), "os^D", strict=True)]
with figures.style():
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 3.8), sharey=True)
    figure.subplots_adjust(left=0.07, right=0.86, bottom=0.15, wspace=0.2)
    for axes, title, options in (
        (panels[0], "no floor", {}),
        (panels[1], "a floor of 5%", {"groups": Groups(pull_floor=0.05)}),
    ):
        for alpha, name, (color, marker) in zip(alphas, names, looks, strict=True):
            ratios = [ratio(alpha, pays, **options) for pays in poor_pays]
            axes.plot(poor_pays, ratios, color=color, marker=marker, gid=name, markersize=4.5)
        axes.axhline(2, color=figures.INK, linewidth=0.8, linestyle=":")
        axes.set(
            xscale="log", yscale="log", xlim=(0.5, 0.001), ylim=(0.9, 300), xlabel="what the poor arm pays at first"
        )
        axes.set_xticks([0.5, 0.1, 0.01, 0.001], ["0.5", "0.1", "0.01", "0.001"])
        axes.set_yticks([1, 2, 5, 20, 100], ["1", "2", "5", "20", "100"])
        axes.minorticks_off()
        axes.set_title(title, fontsize=10, fontweight="normal")
    panels[1].axhline(20, color=figures.INK, linewidth=1.0, linestyle="--")
    figure.text(0.07, 0.95, "Welfare of the best fixed policy, over that of the run", fontsize=11, fontweight="bold")
    figure.subplots_adjust(top=0.83)
    figures.label_ends(panels[1], names, looks)
