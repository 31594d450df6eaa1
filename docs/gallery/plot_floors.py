"""
What does a floor guarantee, and what does it cost?
===================================================

Fairness by alpha evens out what arms *earn*, in the end. It may not show an arm for a thousand visits, because it waits for
the visitors who like it, or because the arm had more than the others before. A floor is a promise about every visit: with
``pull_floor={"Cyd": 0.1}`` Cyd is shown with a probability of at least a tenth, each time.

Here Cyd sells to one kind of visitor in four, who come in the first half of each day only.
"""

import matplotlib.pyplot as plt
import numpy as np

from alphafair import AlphaFairAdaptive, Groups, Stream, figures, simulate

DAY, DAYS = 2_000, 6
rng = np.random.default_rng(3)
morning = np.arange(DAY * DAYS) % DAY < DAY // 2
visits = np.where(morning, rng.integers(4, size=DAY * DAYS), rng.integers(1, 4, size=DAY * DAYS))
pays = np.array([[0.2, 0.3, 0.8], [0.7, 0.4, 0.1], [0.5, 0.6, 0.1], [0.6, 0.6, 0.1]])
market = Stream.from_arrays(visits, pays[visits])
sellers = ["Ada", "Ben", "Cyd"]


def play(floor):
    groups = Groups(sellers, pull_floor={"Cyd": floor}) if floor else sellers
    return simulate(AlphaFairAdaptive(4, 3, alpha=1.0, groups=groups), market, log=True)


def shown(trace):
    """How often Cyd is shown, by parts of 250 visits."""
    return 100 * (trace.log.arms == 2).reshape(-1, 250).mean(axis=1)


floors = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4]
runs = {floor: play(floor) for floor in floors}
sales = np.array([run.log.rewards.sum() for run in runs.values()])

# %%
# On the left, the last three days. On the right, the price: a floor is spent on every visitor, also on those who have no use
# for the arm. Keep it as low as your contract allows.

with figures.style():
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.6), gridspec_kw={"width_ratios": (1.5, 1)})
    figure.subplots_adjust(left=0.08, right=0.97, bottom=0.16, wspace=0.28)
    ends = np.arange(1, 25) / 8
    for floor, color in ((0.0, "#A65200"), (0.1, "#0072B2")):
        left.step(ends, shown(runs[floor])[-24:], color=color, where="pre")
    left.axhline(10, color=figures.INK, linewidth=0.8, linestyle=":")
    left.text(2.98, 62, "no floor", color="#A65200", ha="right", fontweight="bold")
    left.text(2.98, 56, "floor of 10%", color="#0072B2", ha="right", fontweight="bold")
    left.set(xlim=(0, 3), ylim=(0, 66), xticks=range(4), xlabel="days", ylabel="%", title="How often Cyd is shown")
    right.plot(100 * np.array(floors), 100 * (sales / sales[0] - 1), color="#0072B2", marker="o", clip_on=False)
    right.set(xlim=(0, 40), xlabel="floor (%)", ylabel="%", title="Change of all sales")
