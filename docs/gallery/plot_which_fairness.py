"""
Which fairness, and what does it cost?
======================================

Every policy below keeps some promise to the arms: a share of the pulls, a rate of reward, a chance in every round, or
no promise but a fair objective. Circles are the adaptive alpha-fair policy by itself, squares are others. To the right
is more reward for all together, above a larger income of the arm that is worst off, compared with an equal share of all
that it could earn. From 1 on no arm would be better off with uniform play.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, FairCB, Groups, figures, metrics, simulate, streams
from alphafair.notions import LFG, FairLearn, FairX, Promised, RateUCB

M, N, SEEDS = 12, 10, 2
stream = streams.stationary(n_rounds=20_000, n_contexts=M, n_arms=N, seed=0)
rewards = stream.reward_table[stream.items]


def adaptive(alpha, **settings):
    return AlphaFairAdaptive(M, N, alpha=alpha, **settings)


policies = {
    "alpha 0": lambda: adaptive(0),
    "alpha 0.5": lambda: adaptive(0.5),
    "alpha 1": lambda: adaptive(1),
    "alpha 2": lambda: adaptive(2),
    "alpha 0, floor": lambda: adaptive(0, groups=Groups(pull_floor=0.5 / N)),
    "pulls promised": lambda: Promised(adaptive(0), of="pulls"),
    "rates promised": lambda: Promised(adaptive(0), of="reward", rates=(rewards.mean(axis=0) / (2 * N)).tolist()),
    "Fair-Learn": lambda: FairLearn(M, N),
    "LFG": lambda: LFG(M, N),
    "rate UCB": lambda: RateUCB(M, N),
    "FairX, width 0.3": lambda: FairX(M, N, width=0.3),
    "FairCB": lambda: FairCB(M, N, horizon=stream.n_rounds, feedback="bandit"),
}


def income(make):
    """The reward per round, and the least share, of the mean of the seeds."""
    found = []
    for seed in range(SEEDS):
        arms = simulate(make(), stream, seed=seed, log=True).log.arms
        values = metrics.exchange_values(np.eye(N)[arms], rewards)
        found.append((np.diag(values).sum() / stream.n_rounds, metrics.proportional_share(values)))
    return np.mean(found, axis=0)


points = {title: income(make) for title, make in policies.items()}

# %%
# From alpha = 0.5 on fairness is above and to the right of what is promised in every round: the policy chooses the
# rounds in which being fair costs least. A promise around alpha = 0 costs little too, and gives just what is
# promised.

with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 4.6))
    for title, (reward, share) in points.items():
        ours = title.startswith("alpha")
        axes.plot([reward], [share], marker="o" if ours else "s", color="#0072B2" if ours else "#A65200", markersize=6)
        left = reward > 0.85
        place = {
            "xytext": (-7 if left else 7, {"alpha 2": 2, "alpha 1": -7, "alpha 0": 4}.get(title, -4)),
            "textcoords": "offset points",
            "ha": "right" if left else "left",
        }
        axes.annotate(title, (reward, share), fontsize=9, **place)
    axes.axhline(1.0, color=figures.INK, linewidth=0.8, linestyle=":")
    axes.set(xlabel="reward per round", ylabel="income of the worst-off arm,\nover an equal share", ylim=(0, None))
