"""How much was learned: the share of the gap between uniform play and the optimum that each policy closes."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator

from alphafair import figures
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import Experiments, Outcome
from alphafair.figures import INK, LABEL_SIZE, look
from alphafair.words import PLUS_MINUS, rounded, tick

FLOOR, CEILING = -1.0, 2.0  # what lies beyond is an arrow at the edge


def picture(experiments: Experiments, title: str) -> Figure:
    """A dot with its band for every policy: 0 is uniform play, 1 the optimum."""
    runs = {"A": experiments.A, "B": experiments.B}
    rows = [entry for run in runs.values() for entry in run.ordered]
    notes = ("the part of the way from uniform play to the optimum in hindsight", canvas.bands(*runs.values()))
    edge = min(CEILING, max(1.1, *(each.learned.mean + 0.1 for _, each in rows)))
    with canvas.page(title, notes, 1.6 + 0.26 * (len(rows) + len(runs))) as (figure, top):
        left = 0.35 + canvas.WIDTH * figures.widest(figure, [label for label, _ in rows])
        axes = canvas.place(figure, top - 0.18, labels=[_text(each) for _, each in rows], left=left)
        row, places = 0, []
        for key, run in runs.items():
            axes.text(FLOOR, row, f"{key}: {run.title}", fontsize=LABEL_SIZE, fontweight="bold", va="center")
            for label, each in run.ordered:
                row += 1
                places.append(row)
                _dot(axes, row, label, each, edge)
            row += 1
        axes.set_yticks(places, [label for label, _ in rows], fontsize=LABEL_SIZE)
        axes.set(xlim=(FLOOR - 0.06, edge + 0.02), ylim=(row - 0.4, -0.6), xlabel="share of the gap closed")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        for x, word in ((0.0, "uniform play"), (1.0, "optimum")):
            axes.axvline(x, color=INK, linewidth=0.9, linestyle="-" if x == 0.0 else canvas.GUIDE, zorder=1)
            axes.text(x, -0.75, word, ha="center", va="bottom", fontsize=LABEL_SIZE)
        axes.xaxis.set_major_formatter(lambda part, _: f"{tick(100.0 * part)}%")
        axes.xaxis.set_major_locator(MultipleLocator(0.5))
    return figure


def _text(each: Outcome) -> str:
    found = each.learned
    value, half = rounded(found.mean, found.low, found.high, digits=3, unit="%")
    return f"{value} {PLUS_MINUS} {half}" if half else value


def _dot(axes: Axes, row: int, label: str, each: Outcome, edge: float) -> None:
    """The mean on its band, and in numbers at the right; an arrow if it does not fit."""
    colour, marker = look(each.policy)
    found = each.learned
    band = [min(max(side, FLOOR), edge) for side in (found.low, found.high)]
    axes.plot(band, [row, row], color=colour, linewidth=5.0, alpha=0.35, solid_capstyle="butt")
    shape = "<" if found.mean < FLOOR else ">" if found.mean > edge else marker
    at = min(max(found.mean, FLOOR), edge)
    axes.plot([at], [row], color=colour, marker=shape, markersize=7, linestyle="none", gid=label, clip_on=False)
    axes.text(1.06, row, _text(each), transform=axes.get_yaxis_transform(), va="center", fontsize=LABEL_SIZE, color=INK)
