"""FairCB along its floor, and the instance on which no online policy can match the optimum."""

from collections.abc import Mapping
from itertools import cycle

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from alphafair import figures
from alphafair.experiments import paper
from alphafair.experiments.experiment import Contender
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import Limits, OverFloor, Series
from alphafair.figures import INK, Look, look
from alphafair.words import ALPHA, short

METRICS = {
    "alpha_performance": f"{ALPHA}-performance\n(utility)",
    "jain_index": "Jain's index",
    "average_reward": "average reward\nper arm",
}
MARKERS = ("o", "s", "^", "D", "v", "P")


def floor_sweep(run: OverFloor, title: str) -> Figure:
    """FairCB along its floor, with alpha-FairCB, which knows none, as a level line: three metrics over one axis."""
    ours = {"full": paper.ALPHA_FAIR, "bandit": paper.ALPHA_FAIR_BANDIT}
    theirs = {"full": paper.FAIR_CB_FULL, "bandit": paper.FAIR_CB}
    labels = [contender.label for contender in (*ours.values(), *theirs.values())]
    notes = (canvas.settings(run), f"bands: 95% confidence over {len(run.seeds)} seeds", canvas.STYLES)
    with canvas.page(title, notes, 6.2) as (figure, top):
        for row, (metric, axes) in enumerate(canvas.panels(figure, top, 0.18, METRICS, labels)):
            levels = _lines(
                ours, {feedback: Series.along([ends[metric]] * 2) for feedback, ends in run.alpha_fair.items()}
            )
            swept = _lines(theirs, {feedback: ends[metric] for feedback, ends in run.fair_cb.items()})
            canvas.draw(axes, [0.0, 1.0], [level._replace(look=Look(level.look.colour, "")) for level in levels])
            canvas.draw(axes, run.floors, swept, markers=len(run.floors))
            axes.set_xlim(0.0, 1.0)
            axes.margins(y=0.12)
            if metric == "jain_index":
                axes.set_ylim(0.0, 1.04)
            if row == 0:
                axes.set_xlabel("floor \u03bd as a part of 1/N (1: every arm is pulled equally often)")
            canvas.name_lines(axes, [*levels, *swept])
    return figure


def _lines(contenders: Mapping[str, Contender], series: Mapping[str, Series]) -> list[canvas.Line]:
    return [
        canvas.Line(each.label, look(each.policy), figures.dashes(feedback), series[feedback])
        for feedback, each in contenders.items()
    ]


def impossibility(run: Limits, title: str) -> Figure:
    """OPT/ALG of alpha-FairCB on growing copies of the instance, against the limit nobody can beat."""
    colour = look(paper.ALPHA_FAIR.policy).colour
    lines = [
        canvas.Line(f"{ALPHA} = {alpha:g}, limit {limit:.4f}", Look(colour, marker), "-", Series.exact(ratios))
        for alpha, limit, ratios, marker in zip(run.alphas, run.limits, run.ratios, cycle(MARKERS), strict=False)
    ]
    notes = (
        "two contexts, two arms, a coin decides the second half of the rounds",
        f"{ALPHA}-FairCB's OPT/ALG",
        "dashed: the least limit that any online policy can have as n grows",
    )
    with canvas.page(title, notes) as (figure, top):
        axes = canvas.place(figure, top, labels=[line.label for line in lines], left=0.85)
        for limit in run.limits:
            axes.axhline(limit, color=INK, linestyle=canvas.GUIDE, linewidth=1.0)
        canvas.draw(axes, run.halves, lines, markers=len(run.halves))
        axes.set(xscale="log", xlim=(run.halves[0], run.halves[-1]))
        axes.xaxis.set_major_formatter(short)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(y=0.08)
        axes.set(xlabel="n, half of the rounds (logarithmic)", ylabel="OPT / ALG (1: as good as the optimum)")
        canvas.name_lines(axes, lines)
    return figure
