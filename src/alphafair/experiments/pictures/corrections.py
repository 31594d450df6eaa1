"""What the corrections to the paper's text and code change: the bandit's sign, the step size, the reading of phi'."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from alphafair import figures
from alphafair.experiments.facts import differences
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import OverTime, Series, Sign
from alphafair.figures import INK, LABEL_SIZE, Look, look
from alphafair.words import ALPHA, number, percent

STYLES: tuple[tuple[str, figures.Dashes], ...] = (("o", "-"), ("s", (0, (4.0, 1.5))), ("^", (0, (1.5, 1.2))))


def toy(run: Sign, title: str) -> Figure:
    """Pull shares of arms of fixed pay: one bar per policy."""
    shares = {label: run.toy.shares[label] for label, _ in run.ordered}
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
                    text = f"pays {pay:g}: {percent(share, 2)}"
                    middle = start + 50.0 * share
                    axes.text(middle, row, text, ha="center", va="center", fontsize=LABEL_SIZE, color=ink)
                start += 100.0 * share
        axes.set_yticks(range(len(shares)), [*shares])
        axes.set(xlim=(0, 100), ylim=(len(shares) - 0.5, -0.5), xlabel="share of all pulls (%)")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
    return figure


def sign(run: Sign, title: str) -> Figure:
    """Real data: alpha-performance above or below uniform play's."""
    level = run.of("uniform").alpha_performance.mean
    lines = [
        canvas.line(curve)._replace(series=Series(*(tuple(np.subtract(side, level)) for side in curve.series.sides)))
        for curve in run.curves("alpha_performance")
    ]
    unit = f"{ALPHA}-performance above uniform's (utility)"
    return canvas.over_time(run, title, (canvas.bands(run), "each sees one reward"), lines, unit, _around_zero)


def step(run: OverTime, title: str) -> Figure:
    """Standard regret over the rounds: a small picture."""
    lines = [canvas.line(curve) for curve in run.curves("standard_regret")]
    unit = "standard regret (utility)"
    return canvas.over_time(run, title, ["each sees all rewards"], lines, unit, _around_zero, height=3.0)


def _around_zero(axes: Axes) -> None:
    axes.axhline(0.0, color=INK, linewidth=0.8, zorder=1)
    axes.margins(y=0.1)


def readings(run: OverTime, title: str) -> Figure:
    """Differences to the default reading, in alpha-performance and in Jain's index."""
    units = {
        "alpha_performance": f"{ALPHA}-performance\n(difference, utility)",
        "jain_index": "Jain's index\n(difference)",
    }
    end = run.contenders["before"].alpha_performance.end.mean
    note = f"differences to reading it before the round's reward, which ends at {number(end)}"
    colour = look("alpha-fair").colour
    labels = [curve.label for curve in differences(run, "jain_index")]
    with canvas.page(title, (canvas.settings(run), note), 5.0) as (figure, top):
        for row, (metric, axes) in enumerate(canvas.panels(figure, top, 0.22, units, labels, left=1.2)):
            lines = [
                canvas.Line(curve.label, Look(colour, marker), dashes, curve.series)
                for (marker, dashes), curve in zip(STYLES, differences(run, metric), strict=True)
            ]
            canvas.draw(axes, run.rounds, lines)
            figures.over_rounds(axes, run.rounds[-1])
            axes.margins(y=0.15)
            if row > 0:
                axes.set_xlabel("")
            canvas.name_lines(axes, lines)
    return figure
