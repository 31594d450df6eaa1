"""Experiment C: both metrics over alpha, and the price of fairness."""

import numpy as np
from matplotlib.figure import Figure

from alphafair.experiments import paper
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import OverAlpha, Series
from alphafair.figures import look, note
from alphafair.words import ALPHA, number, tick

OURS = look(paper.ALPHA_FAIR.policy)
METRICS = {  # title, unit
    "jain_index": (f"Equality at the end of the run, over {ALPHA}", "Jain's index (1: all arms alike)"),
    "average_reward": (f"Efficiency at the end of the run, over {ALPHA}", "average cumulative reward per arm"),
}
MARKED = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # on the curve of the price, or the nearest that was run


def picture(run: OverAlpha, title: str, metric: str) -> Figure:
    """One of the two at the end of the run, for every alpha."""
    alphas, values = run.alphas, getattr(run, metric)
    with canvas.page(title, (canvas.settings(run), _data(run))) as (figure, top):
        axes = canvas.place(figure, top)
        line = canvas.Line(paper.ALPHA_FAIR.label, OURS, "-", Series.exact(values))
        canvas.draw(axes, alphas, [line], markers=10)
        highest = 1.02 if metric == "jain_index" else 1.08 * max(values)
        axes.set(xlabel=f"{ALPHA} (0: efficiency, toward 1: equality)", xlim=(-0.01, 1.0))
        axes.set(ylabel=METRICS[metric][1], ylim=(0.0, highest))
        axes.yaxis.set_major_formatter(tick)
        rises = values[-1] >= values[0]
        for at, side, above in ((0, "left", not rises), (-1, "right", rises)):  # beside the curve, not on it
            text, away = f"{ALPHA} = {alphas[at]:g}: {number(values[at])}", (6 if at == 0 else -2, 8 if above else -16)
            note(axes, text, (alphas[at], values[at]), away, ha=side)
    return figure


def _data(run: OverAlpha) -> str:
    """For a picture that travels alone."""
    least = run.settings.min_ratings
    return f"{run.data}, {'all users' if least is None else f'users with at least {least:,} ratings'}"


def price(run: OverAlpha, title: str) -> Figure:
    """Average reward against Jain's index along alpha."""
    alphas, jain, reward = np.array(run.alphas), np.array(run.jain_index), np.array(run.average_reward)
    marks = sorted({int(np.abs(alphas - alpha).argmin()) for alpha in MARKED})
    with canvas.page(title, (canvas.settings(run), f"one point per value of {ALPHA}", _data(run))) as (figure, top):
        axes = canvas.place(figure, top)
        axes.plot(jain, reward, color=OURS.colour, linewidth=1.2, marker=".", markersize=4, gid="price")
        axes.plot(jain[marks], reward[marks], color=OURS.colour, marker=OURS.marker, markersize=7, linestyle="none")
        axes.set(xlabel=METRICS["jain_index"][1], ylabel=METRICS["average_reward"][1])
        axes.margins(0.12, 0.12)
        axes.grid(axis="x")
        axes.yaxis.set_major_formatter(tick)
        for rank, mark in enumerate(reversed(marks)):  # crowded toward 1: on both sides of the curve in turn
            away, side = ((7, 6), "left") if rank % 2 == 0 else ((-6, -14), "right")
            note(axes, f"{ALPHA} = {alphas[mark]:g}", (jain[mark], reward[mark]), away, ha=side)
    return figure
