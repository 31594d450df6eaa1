"""
How much more does a poor arm count?
====================================

A unit of reward for an arm that has earned R counts R to the power of minus alpha. At alpha = 1 it counts ten times
as much for an arm that has a tenth; at 2, a hundred times; at 0, the same for all. This curve is all that alpha is.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import figures, metrics

earned = np.geomspace(1, 10_000, 60)
alphas = [0.0, 0.5, 1.0, 2.0]

# %%
# The picture compares with an arm that has earned 1,000. Poorer arms are on the right.

names = [f"\N{GREEK SMALL LETTER ALPHA} = {alpha:g}" for alpha in alphas]
looks = [figures.Style(*look) for look in zip(("#4D4D4D", "#0072B2", "#009E73", "#A65200"), "Dos^", strict=True)]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    figure.subplots_adjust(left=0.14, right=0.86, bottom=0.15)
    for alpha, name, (color, marker) in zip(alphas, names, looks, strict=True):
        weight = metrics.marginal_utility(earned, alpha) / metrics.marginal_utility(1_000.0, alpha)
        axes.plot(earned[::-1], weight[::-1], color=color, marker=marker, markevery=(7, 15), gid=name)
    axes.axvline(1_000, color=figures.FAINT, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", xlim=(10_000, 1), xlabel="reward that the arm has earned so far")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_yticks([0.01, 1, 100, 10_000, 1_000_000], ["0.01", "1", "100", "10,000", "1,000,000"])
    axes.minorticks_off()
    axes.set_title("What one more unit of reward counts, in times")
    figures.label_ends(axes, names, looks)
