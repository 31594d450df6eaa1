"""What the report's pictures share: one size, one way to draw lines with their bands, one way to say what was run."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alphafair import figures
from alphafair.figures import INK, LABEL_SIZE, Dashes, Look, look
from alphafair.formatting import ALPHA, counted, tick
from alphafair.lab.results import Band, OnRounds, OverFloor, OverTime

WIDTH, HEIGHT = 7.2, 4.2  # inches, as are the margins below
LEFT, RIGHT, BOTTOM = 0.78, 0.12, 0.58
MOST_POINTS = 300
GUIDE: Dashes = (0, (5.0, 2.0))  # of the optimum and of limits
NO_GAP = "no gap to close"
STYLES = "solid: sees all rewards, dashed: sees one"


class Line(NamedTuple):
    """Values with their bands along x, ready to be drawn."""

    label: str
    look: Look
    dashes: Dashes
    x: Sequence[float]
    values: Band


@contextmanager
def page(title: str, notes: Iterable[str], height: float = HEIGHT) -> Iterator[tuple[Figure, float]]:
    """An empty picture under its title and notes, and the inches left for axes below them; in style while it lasts."""
    with figures.style():
        figure = Figure(figsize=(WIDTH, height))
        text = textwrap.fill("; ".join(filter(None, notes)), 106)
        figure.text(0.16 / WIDTH, 1.0 - 0.25 / height, title, fontsize=12, fontweight="bold", va="center")
        figure.text(0.16 / WIDTH, 1.0 - 0.42 / height, text, fontsize=LABEL_SIZE, va="top", linespacing=1.3)
        yield figure, height - 0.72 - 0.17 * text.count("\n")


def place(figure: Figure, top: float, bottom: float = BOTTOM, labels: Sequence[str] = (), left: float = LEFT) -> Axes:
    """Axes between two heights in inches, with room on the right for the names of its lines."""
    height = figure.get_figheight()
    room = WIDTH * figures.widest(figure, labels) + RIGHT if labels else 0.25
    width = (WIDTH - left - room) / (1.09 if labels else 1.0)  # a name begins 0.09 of the width after its line
    return figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, (top - bottom) / height))


def chart(
    title: str,
    notes: Iterable[str],
    panels: dict[str, list[Line]],
    finish: Callable[[Axes], object],
    *,
    height: float = HEIGHT,
    left: float = LEFT,
    gap: float = 0.1,
    markers: int = 6,
) -> Figure:
    """Lines in panels over one axis, from top to bottom by their units, named at their ends unless there is only one.

    `finish` sees to the axes of every panel; only the last has numbers below.
    """
    with page(title, notes, height) as (figure, top):
        step = (top + 0.1 - BOTTOM) / len(panels)
        for row, (unit, lines) in enumerate(reversed(panels.items())):
            labels, bottom = [line.label for line in lines], BOTTOM + step * row
            named = len(lines) > 1
            axes = place(figure, bottom + step - gap, bottom, labels if named else (), left)
            draw(axes, lines, markers)
            axes.set_ylabel(unit)
            finish(axes)
            if row > 0:
                axes.set_xlabel("")
                axes.tick_params(labelbottom=False)
            if named:
                axes.set_ylim(axes.get_ylim())  # settles the scale before the ends are looked up
                figures.label_ends(axes, labels, [line.look for line in lines])
    return figure


def draw(axes: Axes, lines: Sequence[Line], markers: int) -> None:
    """The lines with their bands; the first stands in front, a guide behind all."""
    for number, line in enumerate(lines):
        keep = figures.evenly(len(line.x), MOST_POINTS)
        x, mean, low, high = (np.asarray(side, dtype=np.float64)[keep] for side in (line.x, *line.values))
        if (high > low).any():
            order = 2.0 - number / len(lines)
            axes.fill_between(x, low, high, color=line.look.colour, alpha=0.22, linewidth=0.0, zorder=order)
        look = line.look._replace(marker="") if len(x) == 2 else line.look  # a level has its mark beside its name
        width, place = 1.2 if line.dashes == GUIDE else 1.8, (number, len(lines))
        figures.line(axes, x, mean, look, line.dashes, line.label, place, markers, linewidth=width)


def dot(axes: Axes, at: float, found: Band, policy: str, limits: tuple[float, float], size: float, label: str) -> None:
    """A mean on its band, along the axis; an arrow at the edge where it lies beyond the limits."""
    colour, marker = look(policy)
    low, high, mean = (min(max(side, limits[0]), limits[1]) for side in (found.low, found.high, found.mean))
    axes.plot([low, high], [at, at], color=colour, linewidth=0.7 * size, alpha=0.4, solid_capstyle="butt")
    shape = "<" if found.mean < limits[0] else ">" if found.mean > limits[1] else marker
    axes.plot([mean], [at], color=colour, marker=shape, markersize=size, linestyle="none", gid=label, clip_on=False)


def gap_axis(axes: Axes, ticks: Sequence[float]) -> None:
    """Shares of the gap closed, with lines at uniform play and at the optimum."""
    for x, dashes in ((0.0, "-"), (1.0, GUIDE)):
        axes.axvline(x, color=INK, linewidth=0.9, linestyle=dashes, zorder=1)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(lambda part, _: f"{tick(100.0 * part)}%")


def sizes(run: OnRounds) -> str:
    """What was run: the first note under a title."""
    return ", ".join(counted(getattr(run, f"n_{noun}s"), noun) for noun in ("round", "context", "arm"))


def settings(run: OverTime | OverFloor) -> str:
    return f"{ALPHA} = {run.alpha:g}, {sizes(run)}"


def bands(*runs: OverTime) -> str:
    """How many seeds the bands stand for, if there are any."""
    seeds = sorted({each.n_seeds for run in runs for each in run.outcomes} - {1})
    return f"bands: 95% confidence over {' or '.join(map(str, seeds))} seeds" if seeds else ""
