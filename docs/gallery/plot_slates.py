"""
What does a fair shelf look like?
=================================

A shop shows four of twelve products to every visitor. Sorted by what sells best, the shelf is nearly the same for
everybody, and seven of the makers sell next to nothing. ``choose(context, k=4)`` fills the four places so that every
maker earns: each product is shown to the visitors with whom it does well, compared with the others.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, Stream, figures, simulate

PRODUCTS, KINDS, VISITS = 12, 3, 40_000
rng = np.random.default_rng(4)
appeal = np.linspace(0.55, 0.15, PRODUCTS)  # some products are liked by all
sells = np.clip(appeal + rng.uniform(-0.12, 0.12, (KINDS, PRODUCTS)), 0.02, 1.0)
kinds = rng.integers(KINDS, size=VISITS)
shop = Stream.from_arrays(kinds, (rng.random((VISITS, PRODUCTS)) < sells[kinds]).astype(float))


def shelf(alpha):
    """How often each product is on the shelf of each kind of visitor, in the second half, and what it sells."""
    trace = simulate(AlphaFairAdaptive(KINDS, PRODUCTS, alpha=alpha), shop, k=4, log=True)
    late = trace.log.decisions >= VISITS // 2
    shown = np.zeros((KINDS, PRODUCTS))
    np.add.at(shown, (trace.log.contexts[late], trace.log.arms[late]), 1)
    visits = np.bincount(kinds[VISITS // 2 :])
    return 100 * shown / visits[:, None], trace.final - 1


greedy, fair = shelf(0.0), shelf(1.0)

# %%
# Above, how often each product is on the shelf: each row sums to 400%, four places. Below, what the makers sell.

with figures.style():
    figure, axes = plt.subplots(2, 2, figsize=(7.2, 4.6), gridspec_kw={"height_ratios": (1, 1.25)}, sharex=True)
    figure.subplots_adjust(left=0.12, right=0.98, top=0.93, bottom=0.11, hspace=0.2, wspace=0.1)
    most = max(greedy[1].max(), fair[1].max()) / 1000
    for column, (title, (shown, sold)) in enumerate({"greedy shelf": greedy, "fair shelf": fair}.items()):
        above, below = axes[:, column]
        above.imshow(shown, vmin=0, vmax=100, cmap="Blues", aspect="auto")
        for row, product in np.ndindex(shown.shape):
            color = "white" if shown[row, product] > 55 else figures.INK
            above.text(product, row, f"{shown[row, product]:.0f}", ha="center", va="center", color=color, fontsize=7)
        above.set_title(f"{title}: {sold.sum() / 1000:.0f},000 sales")
        above.set_yticks(range(KINDS), ["morning", "noon", "evening"] if column == 0 else [""] * KINDS)
        above.grid(visible=False)
        above.tick_params(length=0)
        below.bar(range(PRODUCTS), sold / 1000, color="#0072B2" if column else "#A65200", width=0.7)
        below.set(ylim=(0, 1.08 * most), xlabel="product")
        below.set_xticks(range(PRODUCTS), range(1, PRODUCTS + 1))
        below.set_yticks([0, 5, 10, 15, 20], ["0", "5", "10", "15", "20"] if column == 0 else [""] * 5)
        below.grid(visible=False, axis="x")
    axes[1, 0].set_ylabel("thousand sales")
