"""FairCB along its floor, and the instance on which no online policy can match the optimum."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from alphafair import figures
from alphafair.experiments import paper
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import Limits, OverFloor
from alphafair.figures import INK, Look, look
from alphafair.words import ALPHA, short

METRICS = {
    "alpha_performance": f"{ALPHA}-performance\n(utility)",
    "jain_index": "Jain's index",
    "average_reward": "average reward\nper arm",
}
MARKERS = ("o", "s", "^", "D", "v", "P")


def floor_sweep(run: OverFloor, title: str) -> Figure:
    """FairCB along its floor, with alpha-FairCB as a level line: three metrics over one axis."""
    contenders = (paper.ALPHA_FAIR, paper.ALPHA_FAIR_BANDIT, paper.FAIR_CB_FULL, paper.FAIR_CB)
    labels = [contender.label for contender in contenders]
    with figures.style():
        notes = (canvas.settings(run), f"bands: 95% confidence over {len(run.seeds)} seeds", canvas.STYLES)
        figure, top = canvas.page(title, notes, 6.2)
        for row, (metric, axes) in enumerate(canvas.panels(figure, top, 0.18, METRICS, labels)):
            levels, swept = _levels(run, metric), _swept(run, metric)
            canvas.draw(axes, [0.0, 1.0], [level._replace(look=Look(level.look.colour, "")) for level in levels])
            canvas.draw(axes, run.floors, swept, markers=len(run.floors))
            axes.set_xlim(0.0, 1.0)
            axes.margins(y=0.12)
            if metric == "jain_index":
                axes.set_ylim(0.0, 1.04)
            if row == 0:
                axes.set_xlabel(
                    "floor \N{GREEK SMALL LETTER NU} as a part of 1/N (1: every arm is pulled equally often)"
                )
            canvas.name_lines(axes, [*levels, *swept])
    return figure


def _levels(run: OverFloor, metric: str) -> list[canvas.Line]:
    """The two ends of a level line for alpha-FairCB, which knows no floor."""
    found = []
    for feedback, ours in (("full", paper.ALPHA_FAIR), ("bandit", paper.ALPHA_FAIR_BANDIT)):
        band = getattr(run.alpha_fair[feedback], metric)
        level = (np.repeat(side, 2) for side in (band.mean, band.low, band.high))
        found.append(canvas.Line(ours.label, look(ours.policy), figures.dashes(feedback), *level))
    return found


def _swept(run: OverFloor, metric: str) -> list[canvas.Line]:
    """One point per floor for FairCB."""
    return [
        canvas.as_line(
            theirs.label, look(theirs.policy), figures.dashes(feedback), getattr(run.fair_cb[feedback], metric)
        )
        for feedback, theirs in (("full", paper.FAIR_CB_FULL), ("bandit", paper.FAIR_CB))
    ]


def impossibility(run: Limits, title: str) -> Figure:
    """OPT/ALG of alpha-FairCB on growing copies of the instance, against the limit nobody can beat."""
    colour = look(paper.ALPHA_FAIR.policy).colour
    lines = [
        canvas.exact_line(
            f"{ALPHA} = {alpha:g}, limit {limit:.4f}", Look(colour, MARKERS[row % len(MARKERS)]), "-", ratios
        )
        for row, (alpha, limit, ratios) in enumerate(zip(run.alphas, run.limits, run.ratios, strict=True))
    ]
    notes = (
        "two contexts, two arms, a coin decides the second half of the rounds",
        f"{ALPHA}-FairCB's OPT/ALG",
        "dashed: the least limit that any online policy can have as n grows",
    )
    with figures.style():
        figure, top = canvas.page(title, notes)
        axes = canvas.place(figure, top, labels=[line.label for line in lines], left=0.85)
        for limit in run.limits:
            axes.axhline(limit, color=INK, linestyle=canvas.GUIDE, linewidth=1.0)
        canvas.draw(axes, run.halves, lines, markers=len(run.halves))
        axes.set_xscale("log")
        axes.set_xlim(run.halves[0], run.halves[-1])
        axes.xaxis.set_major_formatter(FuncFormatter(short))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(y=0.08)
        axes.set_xlabel("n, half of the rounds (logarithmic)")
        axes.set_ylabel("OPT / ALG (1: as good as the optimum)")
        canvas.name_lines(axes, lines)
    return figure
