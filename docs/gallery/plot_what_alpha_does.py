"""
What does alpha do?
===================

It moves reward from those who have much to those who have little. At 0 only the sum counts; at 1, proportional fairness,
a reward is worth half as much to an arm that has twice as much; toward infinity only the poorest arm counts.

Five sellers, three kinds of visitors. On the left everything goes to three sellers, each the best for one kind. Most of
the way to equal shares is done at 2, and the sum of all rewards falls slowly on the way.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, Stream, figures, metrics, simulate

visits = np.random.default_rng(0).integers(3, size=30_000)
pays = np.array([[0.8, 0.3, 0.2, 0.6, 0.3], [0.4, 0.7, 0.2, 0.2, 0.5], [0.3, 0.4, 0.6, 0.4, 0.2]])
market = Stream.from_arrays(visits, pays[visits])

alphas = [0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, math.inf]
final = np.array(
    [simulate(AlphaFairAdaptive(3, 5, alpha=alpha, feedback="full"), market).final for alpha in alphas]
)

# %%
# Alpha is drawn at alpha/(1 + alpha), so that 1 is in the middle and infinity at the end.

names = ["Ada", "Ben", "Cyd", "Dot", "Eve"]
looks = [figures.Style(*look) for look in zip(("#0072B2", "#A65200", "#4D4D4D", "#009E73", "#CC79A7"), "os^Dv", strict=True)]
places = figures.alpha_positions(alphas)
with figures.style():
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(7.2, 5.2), sharex=True, gridspec_kw={"height_ratios": (3, 1), "hspace": 0.35}
    )
    figure.subplots_adjust(right=0.87, top=0.92, bottom=0.11)
    for name, (color, marker), share in zip(names, looks, 100 * metrics.shares(final).T, strict=True):
        top.plot(places, share, color=color, marker=marker, gid=name, clip_on=False)
    top.axhline(20, color=figures.INK, linewidth=0.8, linestyle=":")
    top.set(ylim=(0, 50), xlim=(0, 1), ylabel="%", title="Share of every seller in all reward")
    figures.label_ends(top, names, looks)
    total = 100 * final.sum(axis=1) / final[0].sum()
    bottom.plot(places, total, color=figures.INK, marker="o", clip_on=False)
    bottom.set(ylim=(0, 105), xlabel="\N{GREEK SMALL LETTER ALPHA}", ylabel="%", title="All reward, of that at 0")
    figures.alpha_axis(bottom)
