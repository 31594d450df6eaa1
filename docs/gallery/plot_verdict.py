"""
When can I trust an estimate from my log?
=========================================

Read the verdict. Every estimate comes with one: *trustworthy*, *thin* or *do not use*. It depends on how many
rounds the log has that say something about the policy in question.

Both logs come from the same shop, and the question is what uniform play would earn. The first log is itself of
nearly uniform play; a few hundred rounds are enough. The second shows the favorite arm of each context in 94 rounds
of a hundred: it needs many more rounds for the same certainty, and says so.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import Log, evaluation, figures

means = np.array([[0.30, 0.10, 0.20, 0.15], [0.10, 0.25, 0.15, 0.20], [0.20, 0.15, 0.10, 0.35]])
sizes = [50, 150, 500, 1_500, 5_000, 15_000, 50_000]


def estimates(explore):
    """Of logs in which a part `explore` of the rounds showed any arm, the others the favorite."""
    rng = np.random.default_rng(2)
    contexts = rng.integers(3, size=sizes[-1])
    best = means.argmax(axis=1)[contexts]
    arms = np.where(rng.random(sizes[-1]) < explore, rng.integers(4, size=sizes[-1]), best)
    propensities = np.where(arms == best, 1 - explore, 0) + explore / 4
    rewards = (rng.random(sizes[-1]) < means[contexts, arms]).astype(float)
    for n in sizes:
        log = Log(contexts[:n], arms[:n], rewards[:n], propensities[:n], n_contexts=3, n_arms=4)
        yield evaluation.evaluate(log, np.full((3, 4), 0.25), n_replicates=300)


# %%
# The dotted line is the truth, which a real log does not tell. A cross stands for "do not use": no estimate is
# possible.

colors = {"trustworthy": "#0072B2", "thin": "#A65200", "do not use": "#4D4D4D"}
with figures.style():
    figure, panels = plt.subplots(1, 2, figsize=(7.2, 4.0), sharey=True)
    figure.subplots_adjust(left=0.08, right=0.98, bottom=0.14, top=0.82, wspace=0.06)
    figure.text(0.08, 0.94, "What uniform play would earn per round", fontsize=11, fontweight="bold")
    for axes, explore, title in zip(
        panels, (0.8, 0.08), ("log of nearly uniform play", "log of favorites"), strict=True
    ):
        for place, found in enumerate(estimates(explore)):
            value, low, high = found.reward_per_round
            color = colors[found.verdict]
            if found.verdict == "do not use":
                axes.plot(place, 0.015, color=color, marker="x", markersize=8, markeredgewidth=2)
            else:
                axes.plot([place, place], [low, high], color=color, linewidth=5, alpha=0.4, solid_capstyle="butt")
                axes.plot(place, value, color=color, marker="o" if found.verdict == "trustworthy" else "s")
        axes.axhline(means.mean(), color=figures.INK, linewidth=0.8, linestyle=":")
        axes.set_xticks(range(len(sizes)), [f"{n:,}" for n in sizes], fontsize=8)
        axes.set(ylim=(0, 0.5), xlabel="rounds in the log")
        axes.set_title(title, fontsize=10, fontweight="normal")
    for row, (verdict, color) in enumerate(colors.items()):
        panels[1].text(6.3, 0.465 - 0.035 * row, verdict, color=color, ha="right", fontweight="bold")
