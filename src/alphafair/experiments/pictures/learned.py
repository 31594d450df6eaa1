"""How much was learned: the share of the gap between uniform play and the optimum that each policy closes."""

from matplotlib.figure import Figure

from alphafair import figures
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import Experiments, Outcome
from alphafair.figures import LABEL_SIZE
from alphafair.words import PLUS_MINUS, rounded

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
                canvas.dot(axes, row, each.learned, each.policy, (FLOOR, edge), 7.0, label)
                axes.text(edge + 0.15, row, _text(each), va="center", fontsize=LABEL_SIZE)
            row += 1
        axes.set_yticks(places, [label for label, _ in rows], fontsize=LABEL_SIZE)
        axes.set(xlim=(FLOOR - 0.06, edge + 0.02), ylim=(row - 0.4, -0.6), xlabel="share of the gap closed")
        for x, word in ((0.0, "uniform play"), (1.0, "optimum")):
            axes.text(x, -0.75, word, ha="center", va="bottom", fontsize=LABEL_SIZE)
        canvas.gap_axis(axes, [tick for tick in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0) if tick <= edge])
    return figure


def _text(each: Outcome) -> str:
    found = each.learned
    value, half = rounded(found.mean, found.low, found.high, digits=3, unit="%")
    return f"{value} {PLUS_MINUS} {half}" if half else value
