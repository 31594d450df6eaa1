"""
Who pays for fairness?
======================

Fairness to arms is paid by visitors, and not by all alike: at alpha = 1 one context gets a third of what its best arm
would have given it, while others give up nothing. Three ways to raise the worst context, on 20,000 ratings, for the
best fixed policy and for `AlphaFairAdaptive` with full information: a smaller alpha, contexts with a weight in the
objective, and a promise to every context.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import (
    AlphaFairAdaptive,
    context_reward_totals,
    figures,
    metrics,
    offline_optimum,
    simulate,
    streams,
)

stream = streams.movielens_small().head(20_000)
totals = context_reward_totals(stream)
visits = np.bincount(stream.contexts, minlength=stream.n_contexts)
often, free = visits >= 100, offline_optimum(totals, 1.0)


def best(alpha=1.0, **terms):
    """The share of the worst context, and the welfare of the arms over the best there is, both in percent."""
    found = offline_optimum(totals, alpha, **terms)
    return 100 * found.context_shares[often].min(), 100 * metrics.welfare(found.accounts, 1.0) / free.welfare


start = best()
ways = {
    "a promise": [start, *(best(context_share=share) for share in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95))],
    "a weight": [
        start,
        *(best(context_weight=weight, context_weights=visits) for weight in (0.1, 0.25, 0.5, 0.75, 0.9)),
    ],
    "a smaller alpha": [start, *(best(alpha) for alpha in (0.9, 0.75, 0.5, 0.25, 0.1))],
}

# %%
# The promise is the cheapest by far: it takes from the arms only where a context has too little. A smaller alpha gives
# to contexts that have enough as well.
#
# A run adapts to rewards that change, so its arms may have more than from the best fixed policy: the dotted lines. It
# may be short of a promise by a few rewards, so the worst context is here that of those with at least 100 rounds.


def run(alpha=1.0, **terms):
    """The same of one run."""
    policy = AlphaFairAdaptive(stream.n_contexts, stream.n_arms, alpha=alpha, feedback="full", **terms)
    trace = simulate(policy, stream, seed=0)
    shares = metrics.context_shares(trace.context_rewards, totals)
    return 100 * shares[often].min(), 100 * metrics.welfare(trace.final, 1.0) / free.welfare


runs = {
    "a promise": [run(), *(run(context_share=share) for share in (0.5, 0.6, 0.7, 0.8, 0.9))],
    "a weight": [run(), *(run(context_weight=weight) for weight in (0.1, 0.25, 0.5, 0.75, 0.9))],
    "a smaller alpha": [run(), *(run(alpha) for alpha in (0.9, 0.75, 0.5, 0.25, 0.1))],
}

looks = [figures.Style(*look) for look in zip(("#0072B2", "#009E73", "#A65200"), "os^", strict=True)]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 4.2))
    figure.subplots_adjust(left=0.12, right=0.82, bottom=0.14)
    for (name, points), (color, marker) in zip(ways.items(), looks, strict=True):
        worst, welfare = np.array(points).T
        axes.plot(worst, welfare, color=color, marker=marker, markersize=5, gid=name)
        axes.plot(*np.array(runs[name]).T, color=color, marker=marker, markersize=5, markerfacecolor="white", ls=":")
    axes.plot(*start, color=figures.INK, marker="D", markersize=7, zorder=3)
    for text, point in (("alpha = 1", start), ("its run", runs["a promise"][0])):
        axes.annotate(
            text, point, xytext=(-8, 0), textcoords="offset points", ha="right", va="center", color=figures.INK
        )
    axes.set(xlabel="what the worst context gets of its best (%)", xlim=(18, 100), ylim=(0, 120))
    axes.set_title("Welfare of the arms (% of the best)")
    figures.label_ends(axes, [*ways], looks)
