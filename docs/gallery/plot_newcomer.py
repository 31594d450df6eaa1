"""
How fast does a newcomer catch up?
==================================

A fifth arm joins four others after 4,000 rounds. It is as good as the average, but nobody knows that yet. How much it is
shown at first is up to you, by the account with which it enters:

- ``"least"``, the default: it enters as if it had earned as much as the poorest arm. It is shown to nearly everybody for
  a few hundred rounds, until it has caught up with the others, and then as often as they are.
- ``"fresh"``: it enters with nothing, so fairness gives it everything until it has what the others have earned in 4,000
  rounds. For a thousand rounds nobody else is shown.
- a number: with the mean of all accounts it has nothing to catch up with, and gets an equal share at once.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, Stream, figures, simulate

visits = np.zeros(8_000, dtype=int)
pays = np.array([[0.6, 0.55, 0.45, 0.4, 0.5]])
market = Stream(visits, visits, pays, arrivals=[0, 0, 0, 0, 4_000])

before = AlphaFairAdaptive(1, 4, alpha=0.9)
simulate(before, Stream(visits[:4_000], visits[:4_000], pays[:, :4]))
entries = {"enters with nothing": "fresh", "with the least account": "least", "with the mean account": before.accounts.mean()}


def newcomer(account):
    """The newcomer's part of every 100 rounds since it joined, the mean of 10 runs."""
    runs = [simulate(AlphaFairAdaptive(1, 4, alpha=0.9), market, seed=s, account=account, log=True) for s in range(10)]
    return np.mean([(run.log.arms[4_000:] == 4).reshape(-1, 100).mean(axis=1) for run in runs], axis=0)


# %%
# The dotted line is an equal share of five arms.

looks = [figures.Style("#A65200", "D"), figures.Style("#0072B2", "o"), figures.Style("#4D4D4D", "^")]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    figure.subplots_adjust(right=0.72, bottom=0.15)
    for (title, account), (color, marker) in zip(entries.items(), looks, strict=True):
        axes.plot(100 * np.arange(1, 21), 100 * newcomer(account)[:20], color=color, marker=marker, markevery=4, gid=title)
    axes.axhline(20, color=figures.INK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, 2_000), ylim=(0, 103), xlabel="rounds since it joined", ylabel="%")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title("How often the newcomer is shown")
    figures.label_ends(axes, list(entries), looks)
