"""
Fair over the year, or fair every week?
=======================================

Without periods an arm that earned much last spring is shown little now, and that can be what you want. With periods fairness
begins anew every week: ``carry`` is the part of the old accounts that still counts.

These are 20,000 movie ratings in the order of time, and a week is 2,000 of them. The genre that earns least in a week is not
always the same. With periods it has nearly twice as much.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, figures, simulate, streams

WEEK = 2_000
ratings = streams.movielens_small().head(20_000)


def policy():
    return AlphaFairAdaptive(ratings.n_contexts, ratings.n_arms, alpha=2.0, feedback="full")


whole = np.diff(simulate(policy(), ratings, record_every=WEEK).accounts, axis=0, prepend=1.0)
weekly = np.array([each.rewards for each in simulate(policy(), ratings, period=WEEK, carry=0.0).periods])
halves = np.array([each.rewards for each in simulate(policy(), ratings, period=WEEK, carry=0.5).periods])
lines = {"periods, carry 0.5": halves, "periods, carry 0": weekly, "no periods": whole}

# %%
# The dotted line is an equal share of 19 genres.

looks = [figures.Style("#0072B2", "o"), figures.Style("#4D4D4D", "^"), figures.Style("#A65200", "s")]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    figure.subplots_adjust(right=0.76, bottom=0.15)
    for (title, rewards), (color, marker) in zip(lines.items(), looks, strict=True):
        least = 100 * rewards.min(axis=1) / rewards.sum(axis=1)
        axes.plot(range(1, 11), least, color=color, marker=marker, gid=title)
    axes.axhline(100 / 19, color=figures.INK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(1, 10), ylim=(0, 6), xticks=range(1, 11), xlabel="week", ylabel="%")
    axes.set_title("Share of the genre that earns least in a week")
    figures.label_ends(axes, list(lines), looks)
