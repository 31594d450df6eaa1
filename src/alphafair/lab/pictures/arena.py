"""The arena: how much of the gap every policy closes on every course, one dot with its band each."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from alphafair import figures
from alphafair.figures import LABEL_SIZE, look
from alphafair.formatting import ALPHA
from alphafair.lab.pictures import canvas
from alphafair.lab.results import Meeting, Score

TITLE = "The arena: share of the gap closed"
SEEN = {"bandit": "sees one reward", "full": "sees all rewards"}
FLOOR, EDGE = -0.5, 2.0  # what lies beyond is an arrow at the edge
ROW = 0.3  # inches
LEGEND_COLUMNS = 4


def picture(meetings: Sequence[Meeting], title: str = TITLE, alphas: Sequence[float] = ()) -> Figure:
    """A panel per alpha and feedback, a row per course: 0% is uniform play, 100% the optimum in hindsight."""
    scores, n_seeds = meetings[0].scores, max(len(each.seeds) for each in meetings)
    alphas = alphas or list(dict.fromkeys(score.alpha for score in scores))
    seen = [feedback for feedback in SEEN if meetings[0].of(feedback, alphas[0])]
    names = [each.title for each in meetings]
    notes = (
        "of the way from uniform play (0%) to the best fixed policy in hindsight (100%); arrows lie beyond the edge",
        f"bands: 95% confidence over {n_seeds} seeds" if n_seeds > 1 else "",
    )
    named = {score.policy: score.label for score in scores}
    panel, head, legend = ROW * len(meetings), 0.35, 0.05 + 0.2 * math.ceil(len(named) / LEGEND_COLUMNS)
    height = 0.9 + legend + len(alphas) * (panel + head + 0.3)
    with canvas.page(title, notes, height) as (figure, top):
        left = 0.3 + canvas.WIDTH * figures.widest(figure, names)
        width = (canvas.WIDTH - left) / len(seen)
        _legend(figure, named, top)
        top -= legend
        for alpha in alphas:
            bottom = top - head - panel
            for column, feedback in enumerate(seen):
                start, room = (left + column * width) / canvas.WIDTH, (width - 0.25) / canvas.WIDTH
                axes = figure.add_axes((start, bottom / height, room, panel / height))
                rows = [each.of(feedback, alpha) for each in meetings]
                _panel(axes, rows)
                axes.set_title(f"{ALPHA} = {alpha:g}, {SEEN[feedback]}", fontsize=LABEL_SIZE)
                axes.set_yticks(range(len(names)), names if column == 0 else [""] * len(names), fontsize=LABEL_SIZE)
            top = bottom - 0.3
    return figure


def _panel(axes: Axes, rows: list[list[Score]]) -> None:
    for row, scores in enumerate(rows):
        for place, score in enumerate(scores):
            at = row + 0.8 * ((place + 0.5) / len(scores) - 0.5)
            if score.gap_closed is not None:
                canvas.dot(axes, at, score.gap_closed, score.policy, (FLOOR, EDGE), 3.6, score.label)
        if all(score.gap_closed is None for score in scores):
            axes.text(0.02, row, canvas.NO_GAP, va="center", fontsize=LABEL_SIZE)
        axes.axhline(row + 0.5, color="#e6e6e6", linewidth=0.8, zorder=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(FLOOR - 0.05, EDGE + 0.05)
    axes.grid(axis="x")
    canvas.gap_axis(axes, (-0.5, 0.0, 0.5, 1.0, 1.5))
    axes.tick_params(axis="x", labelsize=LABEL_SIZE)


def _legend(figure: Figure, named: Mapping[str, str], top: float) -> None:
    """Every policy once, beside its mark, under the notes."""
    marks = [
        Line2D([], [], color=look(policy).colour, marker=look(policy).marker, markersize=4.5, linestyle="none")
        for policy in named
    ]
    place = (0.1 / canvas.WIDTH, (top + 0.2) / figure.get_figheight())
    options = {"frameon": False, "fontsize": LABEL_SIZE, "handletextpad": 0.1, "columnspacing": 1.0}
    figure.legend(marks, list(named.values()), loc="upper left", bbox_to_anchor=place, ncols=LEGEND_COLUMNS, **options)
