"""
Should I be fair to groups or to items?
=======================================

To whoever is paid: to sellers, labels or publishers, usually not to items. Four sellers are equally good. One of them lists
its only item again and again under new names. Fair to items, it earns more with every listing. Fair to sellers, it gains
nothing: ``groups=`` has the seller of every item, and a seller has one account.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, Stream, figures, metrics, simulate

rewards = np.random.default_rng(5).random((20_000, 4))  # of one item of each seller
listings = [1, 2, 3, 4, 6, 8]


def share_of_the_lister(copies, fair_to_sellers):
    sellers = ["A"] * copies + ["B", "C", "D"]
    table = rewards[:, ["ABCD".index(seller) for seller in sellers]]
    policy = AlphaFairAdaptive(1, len(sellers), alpha=0.9, groups=sellers if fair_to_sellers else None)
    trace = simulate(policy, Stream.from_arrays(np.zeros(20_000, dtype=int), table))
    return metrics.shares(trace.final, groups=sellers)[0]


lines = {
    "fair to items": [share_of_the_lister(copies, fair_to_sellers=False) for copies in listings],
    "fair to sellers": [share_of_the_lister(copies, fair_to_sellers=True) for copies in listings],
}

# %%
# The dotted line is an equal share of four sellers.

looks = [figures.Style("#A65200", "s"), figures.Style("#0072B2", "o")]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.6))
    figure.subplots_adjust(right=0.8, bottom=0.15)
    for (title, shares), (color, marker) in zip(lines.items(), looks, strict=True):
        axes.plot(listings, 100 * np.array(shares), color=color, marker=marker, gid=title)
    axes.axhline(25, color=figures.INK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(1, 8), ylim=(0, 80), xlabel="times that seller A lists its one item", ylabel="%")
    axes.set_title("What seller A earns, of all reward")
    figures.label_ends(axes, list(lines), looks)
