"""Who gets what, arm by arm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from alphafair import figures, metrics
from alphafair.experiments.claims import UNIFORM
from alphafair.experiments.pictures import canvas
from alphafair.experiments.pictures.canvas import Results, number, percent
from alphafair.figures import INK, LABEL_SIZE, look

ROW = 0.175  # inches
MOST_ARMS = 40


def who_gets_what(experiment: Results, title: str) -> Figure:
    """A column a policy, a row an arm: its reward at the end, on one logarithmic axis."""
    contenders = canvas.ordered(experiment["contenders"])
    rewards = {label: np.asarray(c["final_rewards"], dtype=np.float64) for label, c in contenders.items()}
    order = _rows(rewards)
    height = 1.75 + ROW * len(order)
    note = canvas.settings_note(
        experiment, "cumulative reward with its initial 1; black line: an equal split of the same total"
    )
    least, most = (float(f([f(r) for r in rewards.values()])) for f in (np.min, np.max))
    with figures.style():
        figure, top = canvas.page(title, note, height)
        names = [figures.clipped(str(experiment["arm_labels"][arm]), 22) for arm in order]
        left = 0.3 + canvas.WIDTH * figures.widest(figure, names)
        width = (canvas.WIDTH - left - 0.15) / len(rewards)
        for column, (label, contender) in enumerate(contenders.items()):
            box = (
                (left + column * width) / canvas.WIDTH,
                0.55 / height,
                (width - 0.12) / canvas.WIDTH,
                (top - 0.95) / height,
            )
            axes = figure.add_axes(box)
            _column(axes, contender, label, rewards[label][order])
            axes.set_xlim(least / 1.5, most * 1.5)
            axes.xaxis.set_major_locator(FixedLocator(_ticks(least / 1.5, most * 1.5, 4 if len(rewards) < 5 else 2)))
            axes.set_yticks(range(len(order)), names if column == 0 else [""] * len(order), fontsize=LABEL_SIZE)
        figure.text(0.5, 0.1 / height, "cumulative reward (logarithmic)", ha="center", va="bottom")
    return figure


def _rows(rewards: Mapping[str, np.ndarray[Any, Any]]) -> list[int]:
    """Arms by what uniform play earns them; of very many, evenly chosen ones."""
    order = np.argsort(-rewards[UNIFORM], kind="stable")
    keep = np.unique(np.linspace(0, len(order) - 1, min(len(order), MOST_ARMS)).round().astype(int))
    return [int(arm) for arm in order[keep]]


def _column(axes: Axes, contender: Mapping[str, Any], label: str, rewards: np.ndarray[Any, Any]) -> None:
    colour, marker = look(contender["policy"])
    equal = float(np.mean(contender["final_rewards"]))
    rows = np.arange(len(rewards))
    axes.set_xscale("log")
    axes.hlines(rows, equal, rewards, color=colour, linewidth=2.2, alpha=0.4)
    axes.plot(rewards, rows, color=colour, marker=marker, markersize=4.5, linestyle="none", gid=label, clip_on=False)
    axes.axvline(equal, color=INK, linewidth=0.9)
    axes.set_ylim(len(rewards) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda reward, _: figures.short(reward)))
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


def who_sentence(experiment: Results) -> str:
    """Where the worst-off arm does best and where it does worst, and what the best-off takes there."""
    least = {label: float(min(c["final_rewards"])) for label, c in canvas.ordered(experiment["contenders"]).items()}
    kindest, harshest = max(least, key=lambda label: least[label]), min(least, key=lambda label: least[label])
    text = f"The worst-off arm is best off under {_extremes(experiment, kindest)}"
    if harshest != kindest:
        text += f"; it is worst off under {_extremes(experiment, harshest)}"
    return f"{text}."


def _extremes(experiment: Results, label: str) -> str:
    rewards = np.asarray(experiment["contenders"][label]["final_rewards"], dtype=np.float64)
    low, high = int(rewards.argmin()), int(rewards.argmax())
    names = experiment["arm_labels"]
    share = percent(float(metrics.shares(rewards)[high]))
    return f"{label}, with {number(rewards[low], 3)} for {names[low]}, where {names[high]} takes {share} of all reward"
