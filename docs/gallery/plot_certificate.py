"""
What does the certificate promise, and how tight is it?
=======================================================

After any run you can compute a number that the distance to the best fixed policy cannot exceed, whatever the rewards were.
No solver and no assumption is needed. The picture has the *welfare ratio*: 1.1 means that the best fixed policy would have
given every arm a tenth more.

- **Known while playing**: from the policy's own state alone, before anybody knows what other arms would have paid.
- **From the rewards**: afterward, if the rewards of all arms are known.
- **True**: with the optimum, which takes a solver.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFair, context_reward_totals, figures, metrics, offline_optimum, simulate, streams

ALPHA = 0.5
stream = streams.ratings(n_rounds=30_000, n_contexts=10, n_arms=8, seed=1)
rounds = np.unique(np.geomspace(100, 30_000, 13).round().astype(int))

playing, rewards, true = [], [], []
for n in rounds:  # each run plays the same first rounds again
    first, policy = stream.head(int(n)), AlphaFair(10, 8, alpha=ALPHA)
    trace, totals = simulate(policy, first), context_reward_totals(first)
    playing.append(metrics.welfare_certificate(policy))
    rewards.append(metrics.certificates(totals, trace.final, ALPHA, prices=policy.accounts).welfare_ratio)
    true.append(metrics.welfare_ratio(offline_optimum(totals, ALPHA).welfare, trace.final, ALPHA))

# %%
# Against an adversary no policy can promise less than 1/(1 - alpha), the dotted line, if there are many arms: so much the
# promise alone can say. With the rewards the bound is close to the truth, here and in most runs.

lines = {"known while playing": playing, "from the rewards": rewards, "true": true}
looks = [figures.Style("#A65200", "s"), figures.Style("#0072B2", "o"), figures.Style(figures.INK, "^")]
with figures.style():
    figure, axes = plt.subplots(figsize=(7.2, 3.8))
    figure.subplots_adjust(right=0.75, bottom=0.15)
    for (title, values), (color, marker) in zip(lines.items(), looks, strict=True):
        axes.plot(rounds, values, color=color, marker=marker, gid=title, markersize=4.5)
    axes.set(xscale="log", xlim=(100, 30_000), ylim=(0.9, None), xlabel="rounds")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.axhline(1 / (1 - ALPHA), color=figures.INK, linewidth=0.8, linestyle=":")
    axes.set_title("Welfare of the best fixed policy, over that of the run")
    figures.label_ends(axes, list(lines), looks)
