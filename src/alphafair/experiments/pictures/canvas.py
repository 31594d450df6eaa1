"""What the report's pictures share: one size, one way to draw a line with its band, one way to say what was run."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alphafair import figures
from alphafair.experiments.results import Band, Curve, OverAlpha, OverFloor, OverTime, Series
from alphafair.figures import INK, LABEL_SIZE, Dashes, Look, look
from alphafair.words import ALPHA, counted, tick

WIDTH, HEIGHT = 7.2, 4.2  # inches, as are the margins below
LEFT, RIGHT, BOTTOM = 0.78, 0.12, 0.58
MOST_POINTS = 300
GUIDE: Dashes = (0, (5.0, 2.0))  # of the optimum and of limits
STYLES = "solid: sees all rewards, dashed: sees one"


class Line(NamedTuple):
    """A curve, ready to be drawn."""

    label: str
    look: Look
    dashes: Dashes
    series: Series


def line(curve: Curve) -> Line:
    return Line(curve.label, look(curve.policy), figures.dashes(curve.feedback), curve.series)


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


def draw(axes: Axes, x: Sequence[float], curves: Sequence[Line], *, markers: int = 6) -> None:
    """The lines with their bands; the first stands in front, a guide behind all."""
    keep = figures.evenly(len(x), MOST_POINTS)
    at = np.asarray(x, dtype=np.float64)[keep]
    for number, curve in enumerate(curves):
        mean, low, high = (np.array(side)[keep] for side in curve.series.sides)
        if (high > low).any():
            order = 2.0 - number / len(curves)
            axes.fill_between(at, low, high, color=curve.look.colour, alpha=0.22, linewidth=0.0, zorder=order)
        width = 1.2 if curve.dashes == GUIDE else 1.8
        place = (number, len(curves))
        figures.line(axes, at, mean, curve.look, curve.dashes, curve.label, place, markers, linewidth=width)


def over_time(
    run: OverTime,
    title: str,
    notes: Sequence[str],
    lines: Sequence[Line],
    unit: str,
    scale: Callable[[Axes], object],
    height: float = HEIGHT,
) -> Figure:
    """Lines over the rounds, named at their ends; `scale` sees to the upright axis."""
    with page(title, (settings(run), *notes), height) as (figure, top):
        axes = place(figure, top, labels=[line.label for line in lines])
        draw(axes, run.rounds, lines)
        figures.over_rounds(axes, run.rounds[-1])
        axes.set_ylabel(unit)
        scale(axes)
        name_lines(axes, lines)
    return figure


def panels(
    figure: Figure, top: float, gap: float, units: dict[str, str], labels: Sequence[str], left: float = LEFT
) -> Iterator[tuple[str, Axes]]:
    """One panel per metric, from top to bottom over one axis, with its unit; only the last has numbers below."""
    step = (top + 0.1 - BOTTOM) / len(units)
    for row, (metric, unit) in enumerate(reversed(units.items())):
        bottom = BOTTOM + step * row
        axes = place(figure, bottom + step - gap, bottom, labels=labels, left=left)
        axes.set_ylabel(unit)
        axes.tick_params(labelbottom=row == 0)
        yield metric, axes


def name_lines(axes: Axes, curves: Sequence[Line]) -> None:
    axes.set_ylim(axes.get_ylim())  # settles the scale before the ends are looked up
    figures.label_ends(axes, [curve.label for curve in curves], [curve.look for curve in curves])


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


def settings(run: OverTime | OverAlpha | OverFloor) -> str:
    """What was run: the first note under a title."""
    sizes = [counted(run.n_rounds, "round"), counted(run.n_contexts, "context"), counted(run.n_arms, "arm")]
    return ", ".join(sizes if isinstance(run, OverAlpha) else [f"{ALPHA} = {run.alpha:g}", *sizes])


def bands(*runs: OverTime) -> str:
    """How many seeds the bands stand for, if there are any."""
    seeds = sorted({each.n_seeds for run in runs for each in run.contenders.values()} - {1})
    return f"bands: 95% confidence over {' or '.join(map(str, seeds))} seeds" if seeds else ""
