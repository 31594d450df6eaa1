"""Rows: who gets what, arm by arm; which arm of three is pulled; how much of the gap every policy closes."""

import textwrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from alphafair import figures
from alphafair.figures import INK, LABEL_SIZE, Look, look
from alphafair.formatting import ALPHA, clipped, percent, rounded, short
from alphafair.lab.pictures import canvas
from alphafair.lab.results import Experiments, Outcome, OverTime, Sign
from alphafair.values import Vector

ARM_ROW = 0.175  # inches
MOST_ARMS = 40
FLOOR, CEILING = -1.0, 2.0  # of shares of the gap closed: what lies beyond is an arrow at the edge


def who_gets_what(run: OverTime, title: str) -> Figure:
    """One column per policy, one row per arm: its reward at the end, on one logarithmic axis.

    Arms stand in the order of what uniform play earns them; of very many, evenly chosen ones.
    """
    rewards = np.array([each.final_accounts for each in run.outcomes])
    order = np.argsort(-run.of("uniform").final_accounts, kind="stable")
    order = order[figures.evenly(len(order), MOST_ARMS)]
    height = 1.75 + ARM_ROW * len(order)
    reading = "cumulative reward with its initial 1; black line: an equal split of the same total"
    least, most = float(rewards.min()) / 1.5, float(rewards.max()) * 1.5
    with canvas.page(title, (canvas.settings(run), reading), height) as (figure, top):
        names = [clipped(run.arm_labels[arm], 22) for arm in order]
        left = 0.3 + canvas.WIDTH * figures.widest(figure, names)
        width = (canvas.WIDTH - left - 0.15) / len(rewards)
        for column, each in enumerate(run.outcomes):
            start, room = (left + column * width) / canvas.WIDTH, (width - 0.12) / canvas.WIDTH
            axes = figure.add_axes((start, 0.55 / height, room, (top - 0.95) / height))
            _column(axes, each.label, look(each.policy), each.final_accounts[order], float(each.final_accounts.mean()))
            axes.set_xlim(least, most)
            axes.xaxis.set_major_locator(FixedLocator(_ticks(least, most, 4 if len(rewards) < 5 else 2)))
            axes.set_yticks(range(len(order)), names if column == 0 else [""] * len(order), fontsize=LABEL_SIZE)
        figure.text(0.5, 0.1 / height, "cumulative reward (logarithmic)", ha="center", va="bottom")
    return figure


def _column(axes: Axes, label: str, style: Look, rewards: Vector, equal: float) -> None:
    (colour, marker), rows = style, np.arange(len(rewards))
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
    axes.xaxis.set_major_formatter(short)
    axes.set_title(textwrap.fill(label, 12), fontsize=LABEL_SIZE, fontweight="normal", pad=4)


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


def toy(run: Sign, title: str) -> Figure:
    """Pull shares of arms of fixed pay: one bar per policy."""
    shares = run.toy.shares
    note = f"{ALPHA} = {run.toy.alpha:g}; the darker, the more an arm pays"
    with canvas.page(title, [note], 1.75 + 0.5 * len(shares)) as (figure, top):
        axes = canvas.place(figure, top, left=0.3 + canvas.WIDTH * figures.widest(figure, [*shares]))
        for row, (label, parts) in enumerate(shares.items()):
            colour, start = np.array(to_rgb(look(run.contenders[label].policy).colour)), 0.0
            for rank, (pay, share) in enumerate(zip(run.toy.arms, parts, strict=True)):
                shade = tuple((1.0 - (1.0 - 0.4 * rank) * (1.0 - colour)).tolist())
                axes.barh(row, 100.0 * share, left=start, height=0.62, color=shade, edgecolor="white", linewidth=1.0)
                if share > 0.12:
                    ink = "white" if np.dot(shade, (0.299, 0.587, 0.114)) < 0.55 else INK
                    text, middle = f"pays {pay:g}: {percent(share, 2)}", start + 50.0 * share
                    axes.text(middle, row, text, ha="center", va="center", fontsize=LABEL_SIZE, color=ink)
                start += 100.0 * share
        axes.set_yticks(range(len(shares)), [*shares])
        axes.set(xlim=(0, 100), ylim=(len(shares) - 0.5, -0.5), xlabel="share of all pulls (%)")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
    return figure


def learned(experiments: Experiments, title: str) -> Figure:
    """A dot with its band for every policy: 0 is uniform play, 1 the optimum."""
    runs = {"A": experiments.A, "B": experiments.B}
    rows = [each for run in runs.values() for each in run.outcomes]
    notes = ("the part of the way from uniform play to the optimum in hindsight", canvas.bands(*runs.values()))
    edge = min(CEILING, max(1.1, *(each.learned.mean + 0.1 for each in rows if each.learned is not None)))
    with canvas.page(title, notes, 1.6 + 0.26 * (len(rows) + len(runs))) as (figure, top):
        left = 0.35 + canvas.WIDTH * figures.widest(figure, [each.label for each in rows])
        axes = canvas.place(figure, top - 0.18, labels=[_share(each) for each in rows], left=left)
        row, places = 0, []
        for key, run in runs.items():
            axes.text(FLOOR, row, f"{key}: {run.title}", fontsize=LABEL_SIZE, fontweight="bold", va="center")
            for each in run.outcomes:
                row += 1
                places.append(row)
                if each.learned is not None:
                    canvas.dot(axes, row, each.learned, each.policy, (FLOOR, edge), 7.0, each.label)
                axes.text(edge + 0.15, row, _share(each), va="center", fontsize=LABEL_SIZE)
            row += 1
        axes.set_yticks(places, [each.label for each in rows], fontsize=LABEL_SIZE)
        axes.set(xlim=(FLOOR - 0.06, edge + 0.02), ylim=(row - 0.4, -0.6), xlabel="share of the gap closed")
        for x, word in ((0.0, "uniform play"), (1.0, "optimum")):
            axes.text(x, -0.75, word, ha="center", va="bottom", fontsize=LABEL_SIZE)
        canvas.gap_axis(axes, [tick for tick in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0) if tick <= edge])
    return figure


def _share(each: Outcome) -> str:
    found = each.learned
    if found is None:
        return canvas.NO_GAP
    return " ".join(filter(None, rounded(found.mean, found.low, found.high, digits=3, unit="%")))
