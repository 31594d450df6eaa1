"""
What are features worth?
========================

If you know something about a visitor beyond a label (age, device, what was read before), a policy can use it in two
ways. *Clusters* put similar visitors into the same context. *Features* are also passed to the policy with each
decision, which then predicts what each arm will pay.

Here rewards are linear in eight features and the visitors fall into 32 clusters. Features close nearly all of the
distance that clusters leave to a policy that knows every mean.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, figures, preprocessing, simulate, streams

N_ROUNDS, WINDOW = 30_000, 1_000
settings = {"n_rounds": N_ROUNDS, "n_arms": 10, "n_features": 8, "seed": 0}
described = streams.described("linear", **settings)
stream = preprocessing.cluster(described.features[:3_000], 32).stream(described)  # clusters of the first visitors


def known():
    """Rewards of a policy that knows every mean: it plays the arm with the largest gain."""
    means, account = streams.described_means("linear", **settings), np.ones(10)
    for t in range(N_ROUNDS):
        arm = (means[t] * account**-0.5).argmax()
        account[arm] += stream.reward_table[t, arm]
        yield stream.reward_table[t, arm]


def learned(n_features):
    policy = AlphaFairAdaptive(32, 10, alpha=0.5, n_features=n_features)
    return simulate(policy, stream, log=True).log.rewards


curves = {
    "knows every mean": np.array([*known()]),
    "features and clusters": learned(8),
    "clusters alone": learned(0),
    "arms at random": stream.reward_table.mean(axis=1),
}

# %%
# `preprocessing.cluster` needs ``pip install "alphafair[features]"``.

looks = [
    figures.OPTIMUM,
    figures.Style("#0072B2", "o"),
    figures.Style("#A65200", "s"),
    figures.Style(figures.FAINT, ""),
]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    figure.subplots_adjust(right=0.74, bottom=0.15)
    for (title, rewards), (color, marker) in zip(curves.items(), looks, strict=True):
        rounds, means = WINDOW * np.arange(1, 31), rewards.reshape(-1, WINDOW).mean(axis=1)
        axes.plot(rounds, means, color=color, marker=marker, markevery=5, gid=title)
    axes.set(xlim=(0, N_ROUNDS), xlabel="rounds")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(f"Mean reward of {WINDOW:,} rounds")
    figures.label_ends(axes, list(curves), looks)
