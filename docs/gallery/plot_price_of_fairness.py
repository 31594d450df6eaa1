"""
What does fairness cost here?
=============================

It depends on your rounds, so measure it. Here are 40,034 movie ratings: the user is the context, the genre that is shown is
the arm, and it pays 1 if the movie has that genre, else 0.2. Along the curve alpha grows: to the right arms share more
equally, downward they earn less in total.

The gray curve is the best fixed policy in hindsight, which nobody can play. The blue one is a policy that learns as it
goes. It can be above the gray one because tastes change, and a fixed policy cannot follow.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, context_reward_totals, figures, metrics, offline_optimum, simulate, streams

ratings = streams.movielens_small(min_ratings=500)  # your own: streams.table("rounds.csv")
totals = context_reward_totals(ratings)
n_contexts, n_arms = totals.shape

alphas = [0.0, 0.1, 0.25, 0.5, 0.75, 1.0, 2.0, 5.0, math.inf]
learned = np.array(
    [simulate(AlphaFairAdaptive(n_contexts, n_arms, alpha=a, feedback="full"), ratings).final for a in alphas]
)
hindsight = np.array([offline_optimum(totals, a).accounts for a in alphas])
uniform = 1 + totals.sum(axis=0) / n_arms

# %%
# Showing genres at random is fairer than most of the curve and far below it: fairness by alpha is not lack of choice.

with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 4.4))
    figure.subplots_adjust(left=0.11, right=0.96, bottom=0.13)
    for accounts, color, marker in ((hindsight, "#8c8c8c", "s"), (learned, "#0072B2", "o")):
        axes.plot(metrics.jain_index(accounts), metrics.average_reward(accounts), color=color, marker=marker)
    for alpha, accounts in zip(alphas, learned, strict=True):
        if alpha in (0.0, 0.25, 0.5, 1.0, 2.0, math.inf):
            text = f"\N{GREEK SMALL LETTER ALPHA} = {alpha:g}".replace("inf", "\N{INFINITY}")
            figures.note(axes, text, (metrics.jain_index(accounts), metrics.average_reward(accounts)), (7, 3))
    point = metrics.jain_index(uniform), metrics.average_reward(uniform)
    axes.plot(*point, marker="X", color="#A65200", markersize=9)
    figures.note(axes, "arms at random", point, (-10, -4), ha="right", color="#A65200")
    axes.text(0.36, 1270, "learned while playing", color="#0072B2", ha="left")
    axes.text(0.47, 885, "best fixed policy\nin hindsight", color="#666666", ha="right", va="center")
    axes.set(xlim=(0, 1.06), ylim=(500, 1450), xlabel="Jain's index (1: all arms have the same)")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("Mean reward of an arm, by how equally arms share")
