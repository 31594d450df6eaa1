"""The arena: how much of the gap every policy closes on every course, one dot with its band each."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from alphafair import figures
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import Arena, Score
from alphafair.figures import INK, LABEL_SIZE, look
from alphafair.words import ALPHA, tick

TITLE = "The arena: share of the gap closed"
SEEN = {"bandit": "sees one reward", "full": "sees all rewards"}
FLOOR, EDGE = -0.5, 2.0  # what lies beyond is an arrow at the edge
ROW = 0.3  # inches


def picture(results: Arena) -> Figure:
    """A panel per alpha and feedback, a row per course: 0% is uniform play, 100% the optimum in hindsight."""
    meetings, n_seeds = results.meetings, max(len(each.seeds) for each in results.meetings)
    names = [each.title for each in meetings]
    notes = (
        "of the way from uniform play (0%) to the best fixed policy in hindsight (100%); arrows lie beyond the edge",
        f"bands: 95% confidence over {n_seeds} seeds" if n_seeds > 1 else "",
    )
    panel, head = ROW * len(meetings), 0.75
    height = 0.8 + len(results.alphas) * (panel + head + 0.35)
    with figures.style():
        figure, top = canvas.page(TITLE, notes, height)
        left = 0.3 + canvas.WIDTH * figures.widest(figure, names)
        width = (canvas.WIDTH - left - 0.25) / len(SEEN)
        for alpha in results.alphas:
            bottom = top - head - panel
            for column, feedback in enumerate(SEEN):
                box = (left + column * width, bottom, width - 0.12, panel)
                sides = (canvas.WIDTH, height, canvas.WIDTH, height)
                axes = figure.add_axes(tuple(part / side for part, side in zip(box, sides, strict=True)))
                rows = [each.of(feedback, alpha) for each in meetings]
                _panel(axes, rows)
                axes.set_title(f"{ALPHA} = {alpha:g}, {SEEN[feedback]}", fontsize=LABEL_SIZE, pad=24)
                axes.set_yticks(range(len(names)), names if column == 0 else [""] * len(names), fontsize=LABEL_SIZE)
                _legend(axes, rows[0])
            top = bottom - 0.35
    return figure


def _panel(axes: Axes, rows: list[list[Score]]) -> None:
    for row, scores in enumerate(rows):
        for place, score in enumerate(scores):
            _dot(axes, row + 0.8 * ((place + 0.5) / len(scores) - 0.5), score)
        axes.axhline(row + 0.5, color="#e6e6e6", linewidth=0.8, zorder=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(FLOOR - 0.05, EDGE + 0.05)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x")
    for x in (0.0, 1.0):
        axes.axvline(x, color=INK, linewidth=0.9, linestyle="-" if x == 0.0 else canvas.GUIDE, zorder=1)
    axes.xaxis.set_major_locator(MultipleLocator(0.5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda part, _: f"{tick(100.0 * part)}%"))
    axes.tick_params(axis="x", labelsize=LABEL_SIZE)


def _dot(axes: Axes, at: float, score: Score) -> None:
    colour, marker = look(score.policy)
    found = score.gap_closed
    low, high, mean = (min(max(side, FLOOR), EDGE) for side in (found.low, found.high, found.mean))
    axes.plot([low, high], [at, at], color=colour, linewidth=2.2, alpha=0.45, solid_capstyle="butt")
    shape = "<" if found.mean < FLOOR else ">" if found.mean > EDGE else marker
    axes.plot([mean], [at], color=colour, marker=shape, markersize=3.6, linestyle="none", clip_on=False)


def _legend(axes: Axes, scores: list[Score]) -> None:
    """Names over the panel, in two lines, each beside its mark."""
    handles = []
    for score in scores:
        colour, marker = look(score.policy)
        handles += axes.plot([], [], color=colour, marker=marker, markersize=4, linestyle="none", label=score.label)
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=3,
        frameon=False,
        fontsize=6.5,
        handletextpad=0.1,
        columnspacing=0.6,
        borderpad=0.1,
        labelspacing=0.2,
    )
