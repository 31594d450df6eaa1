"""Who gets what, arm by arm."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from alphafair import figures
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import OverTime
from alphafair.figures import INK, LABEL_SIZE, Look, look
from alphafair.types import Vector
from alphafair.words import clipped, short

ROW = 0.175  # inches
MOST_ARMS = 40


def who_gets_what(run: OverTime, title: str) -> Figure:
    """One column per policy, one row per arm: its reward at the end, on one logarithmic axis."""
    rewards = {label: np.array(each.final_rewards) for label, each in run.ordered}
    order = _rows(np.array(run.of("uniform").final_rewards))
    height = 1.75 + ROW * len(order)
    note = "cumulative reward with its initial 1; black line: an equal split of the same total"
    least = min(float(each.min()) for each in rewards.values()) / 1.5
    most = max(float(each.max()) for each in rewards.values()) * 1.5
    with canvas.page(title, (canvas.settings(run), note), height) as (figure, top):
        names = [clipped(run.arm_labels[arm], 22) for arm in order]
        left = 0.3 + canvas.WIDTH * figures.widest(figure, names)
        width = (canvas.WIDTH - left - 0.15) / len(rewards)
        for column, (label, each) in enumerate(run.ordered):
            start, room = (left + column * width) / canvas.WIDTH, (width - 0.12) / canvas.WIDTH
            axes = figure.add_axes((start, 0.55 / height, room, (top - 0.95) / height))
            _column(axes, label, look(each.policy), rewards[label], order)
            axes.set_xlim(least, most)
            axes.xaxis.set_major_locator(FixedLocator(_ticks(least, most, 4 if len(rewards) < 5 else 2)))
            axes.set_yticks(range(len(order)), names if column == 0 else [""] * len(order), fontsize=LABEL_SIZE)
        figure.text(0.5, 0.1 / height, "cumulative reward (logarithmic)", ha="center", va="bottom")
    return figure


def _rows(uniform: Vector) -> list[int]:
    """Arms by what uniform play earns them; of very many, evenly chosen ones."""
    order = np.argsort(-uniform, kind="stable")
    return [int(arm) for arm in order[figures.evenly(len(order), MOST_ARMS)]]


def _column(axes: Axes, label: str, style: Look, rewards: Vector, order: list[int]) -> None:
    colour, marker = style
    equal, shown, rows = float(rewards.mean()), rewards[order], np.arange(len(order))
    axes.set_xscale("log")
    axes.hlines(rows, equal, shown, color=colour, linewidth=2.2, alpha=0.4)
    axes.plot(shown, rows, color=colour, marker=marker, markersize=4.5, linestyle="none", gid=label, clip_on=False)
    axes.axvline(equal, color=INK, linewidth=0.9)
    axes.set_ylim(len(order) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(short)
    axes.set_title(_folded(label), fontsize=LABEL_SIZE, fontweight="normal", pad=4)


def _ticks(low: float, high: float, room: int) -> list[float]:
    """Round numbers on a logarithmic axis: as many as there is room for, and at least one if there is any.

    >>> _ticks(0.7, 3000.0, 2), _ticks(30.0, 170.0, 4)
    ([10.0, 1000.0], [50.0, 100.0])
    """
    decades = [10.0**power for power in range(-12, 19)]
    finest = [step * decade for decade in decades for step in (1.0, 2.0, 5.0)]
    choices = [
        [tick for tick in ticks if low <= tick <= high] for ticks in (finest, decades, decades[1::2], decades[1::4])
    ]
    return next((ticks for ticks in choices if 1 <= len(ticks) <= room), choices[0][:room])


def _folded(label: str) -> str:
    """A long name on two lines, broken at a blank near its middle."""
    blanks = [at for at, letter in enumerate(label) if letter == " "]
    if len(label) <= 10 or not blanks:
        return label
    at = min(blanks, key=lambda blank: abs(blank - len(label) / 2))
    return f"{label[:at]}\n{label[at + 1 :]}"
