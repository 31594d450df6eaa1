"""Experiments A and B over the rounds: alpha-performance, the two regrets and Jain's index."""

from collections.abc import Callable

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, SymmetricalLogLocator

from alphafair import figures
from alphafair.experiments.pictures import canvas
from alphafair.experiments.results import OverTime, Series
from alphafair.figures import INK
from alphafair.words import ALPHA, number, tick

METRICS = {  # title, unit
    "alpha_performance": (f"{ALPHA}-performance: how much, weighed fairly", f"{ALPHA}-performance (utility)"),
    "approximate_regret": ("Approximate regret: against a part of the optimum", "approximate regret (utility)"),
    "jain_index": ("Jain's index: how equally", "Jain's index (1: all arms alike)"),
    "standard_regret": ("Standard regret: how far below the optimum", "standard regret (utility, log beyond 1)"),
}


def picture(run: OverTime, title: str, metric: str) -> Figure:
    """One of the four, with the optimum where it has a meaning."""
    lines = [canvas.line(curve) for curve in run.curves(metric)]
    guides = _optimum(run, metric)
    certified = f"optimum certified to within {number(run.certificate, 2)}" if guides else ""
    styles = canvas.STYLES if len({line.dashes for line in lines}) > 1 else ""
    scales: dict[str, Callable[[Axes], object]] = {
        "alpha_performance": lambda axes: figures.fair_scale(axes, run.alpha, run.n_arms),
        "approximate_regret": lambda axes: axes.axhline(0.0, color=INK, linewidth=0.8),
        "jain_index": lambda axes: axes.set_ylim(0.0, 1.02),
        "standard_regret": _wide_scale,
    }
    notes = (certified, canvas.bands(run), styles)
    return canvas.over_time(run, title, notes, [*lines, *guides], METRICS[metric][1], scales[metric])


def _optimum(run: OverTime, metric: str) -> list[canvas.Line]:
    """Measured as everybody else is."""
    if metric == "jain_index":
        return []
    share = {"alpha_performance": 1.0, "standard_regret": 0.0, "approximate_regret": 1.0 - run.factor}[metric]
    series = Series.exact(share * value for value in run.optimum.values)
    return [canvas.Line("optimum", figures.OPTIMUM, canvas.GUIDE, series)]


def _wide_scale(axes: Axes) -> None:
    """Linear up to 1, then logarithmic, so that a regret of 0.7 and one of 70 are both seen; it may be negative."""
    low, high = axes.dataLim.y0, axes.dataLim.y1
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.8)
    axes.set_ylim(min(low * 1.3, -0.12), max(high * 1.3, 1.2))
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10.0, linthresh=1.0, subs=[1.0, 2.0, 5.0]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(tick)
