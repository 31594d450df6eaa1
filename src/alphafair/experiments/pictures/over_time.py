"""Experiments A and B over the rounds: alpha-performance, the two regrets and Jain's index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, SymmetricalLogLocator

from alphafair import figures, metrics
from alphafair.experiments.claims import ALPHA_FAIR, ALPHA_FAIR_BANDIT, UNIFORM
from alphafair.experiments.pictures import canvas
from alphafair.experiments.pictures.canvas import Line, Results, listed, number, with_band
from alphafair.figures import ALPHA, INK

TITLES = {
    "alpha_performance": f"{ALPHA}-performance: how much, weighed fairly",
    "approximate_regret": "Approximate regret: against a part of the optimum",
    "jain_index": "Jain's index: how equally",
    "standard_regret": "Standard regret: how far below the optimum",
}


def picture(experiment: Results, title: str, series: str) -> Figure:
    """One of the four, with the optimum where it has a meaning."""
    curves = canvas.lines(experiment, series)
    guide = guides(experiment, series)
    shown = [*curves, *guide]
    note = canvas.settings_note(
        experiment,
        f"optimum certified to within {number(canvas.certificate(experiment), 2)}" if guide else "",
        canvas.bands_note(experiment["contenders"]),
        canvas.styles_note(curves),
    )
    with figures.style():
        figure, top = canvas.page(title, note)
        axes = canvas.place(figure, top, labels=[curve.label for curve in shown])
        canvas.draw(axes, experiment["rounds"], shown)
        canvas.over_rounds(axes, float(experiment["rounds"][-1]))
        if series == "alpha_performance":
            axes.set_ylabel(f"{ALPHA}-performance (utility)")
            figures.fair_scale(axes, float(experiment["alpha"]), int(experiment["n_arms"]))
        elif series == "jain_index":
            axes.set_ylabel("Jain's index (1: all arms alike)")
            axes.set_ylim(0.0, 1.02)
        elif series == "standard_regret":
            axes.set_ylabel("standard regret (utility, log beyond 1)")
            _wide_scale(axes)
        else:
            axes.set_ylabel("approximate regret (utility)")
            axes.axhline(0.0, color=INK, linewidth=0.8)
        canvas.name_lines(axes, shown)
    return figure


def guides(experiment: Results, series: str) -> list[Line]:
    """The optimum, measured as everybody else is."""
    best = canvas.optimum(experiment)
    factor = metrics.approximation_factor(float(experiment["alpha"]))
    if series == "jain_index":
        return []
    share = {"alpha_performance": 1.0, "standard_regret": 0.0, "approximate_regret": 1.0 - factor}[series]
    return [best._replace(mean=share * best.mean, low=share * best.low, high=share * best.high)]


def _wide_scale(axes: Axes) -> None:
    """Linear up to 1, then logarithmic, so that a regret of 0.7 and one of 70 are both seen; it may be negative."""
    low, high = axes.dataLim.y0, axes.dataLim.y1
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.8)
    axes.set_ylim(min(low * 1.3, -0.12), max(high * 1.3, 1.2))
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10.0, linthresh=1.0, subs=[1.0, 2.0, 5.0]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(canvas.tick))


def sentence(experiment: Results, series: str) -> str:
    """What the numbers of a picture say: who ends first and who does not, by differences seed by seed."""
    curves = canvas.ranked(canvas.lines(experiment, series), highest_first=not series.endswith("regret"))
    return {
        "alpha_performance": performance_sentence,
        "jain_index": jain_sentence,
        "standard_regret": regret_sentence,
        "approximate_regret": approximate_sentence,
    }[series](experiment, curves, _doubt(experiment["first"][series]))


def performance_sentence(experiment: Results, curves: list[Line], doubt: str) -> str:
    best = canvas.optimum(experiment).end
    power, n_arms = 1.0 - float(experiment["alpha"]), int(experiment["n_arms"])

    def each(performance: float) -> str:
        return number((performance * power / n_arms) ** (1.0 / power), 3)

    first, last = curves[0], curves[-1]
    return canvas.capital(
        f"{first.label} ends highest, at {with_band(first)}{doubt}: as good as if every arm had earned "
        f"{each(first.end)}. The optimum is at {number(best)}, or {each(best)} an arm; {last.label} ends lowest, at "
        f"{number(last.end)}, or {each(last.end)} an arm.{_behind_uniform(experiment)}"
    )


def jain_sentence(experiment: Results, curves: list[Line], doubt: str) -> str:
    first, *rest = curves
    text = (
        f"{first.label} ends most equal, at {with_band(first, 3)}{doubt}; then "
        f"{listed([f'{curve.label} {number(curve.end, 3)}' for curve in rest])}. One arm taking everything would be "
        f"{number(1.0 / int(experiment['n_arms']), 2)}."
    )
    return canvas.capital(text + _early_leads(experiment, curves))


def regret_sentence(experiment: Results, curves: list[Line], doubt: str) -> str:
    first, last = curves[0], curves[-1]
    text = f"{first.label} ends best, {_from_optimum(first)}{doubt}; {last.label} worst, {_from_optimum(last)}"
    if any((curve.mean < 0.0).any() for curve in curves):
        text += ". Below zero a policy is ahead of every fixed choice per context"
    gap = number(canvas.certificate(experiment), 2)
    return canvas.capital(f"{text}. The optimum itself is certified to within {gap}.")


def _from_optimum(curve: Line) -> str:
    size, below = canvas.distance(curve)
    return f"{size} {'below' if below else 'above'} the optimum"


def approximate_sentence(experiment: Results, curves: list[Line], doubt: str) -> str:
    factor = metrics.approximation_factor(float(experiment["alpha"]))
    first, last = curves[0], curves[-1]
    text = (
        f"{first.label} ends lowest, at {with_band(first)}{doubt}; {last.label} highest, at {number(last.end)}. Here a "
        f"policy's score counts {number(factor)} times, so the optimum itself would be at "
        f"{number((1.0 - factor) * canvas.optimum(experiment).end)}"
    )
    uniform = next(curve for curve in curves if curve.label == UNIFORM)
    if uniform.end < 0.0:
        text += f" and uniform play, which learns nothing, is at {number(uniform.end)}"
        text += ": a negative value alone proves nothing, so read it beside the standard regret"
    return canvas.capital(f"{text}.")


def _doubt(first: Mapping[str, Any]) -> str:
    """A remark when seeds do not tell the winner from another."""
    close = [label for label, ahead in sorted(first["ahead"].items()) if ahead["low"] <= 0.0]
    return f" (these seeds do not tell it from {listed(close)})" if close else ""


def _behind_uniform(experiment: Results) -> str:
    """Who ends below uniform play, by the gap closed, which is a difference seed by seed too."""
    contenders = canvas.ordered(experiment["contenders"])
    gaps = {label: contender["gap_closed"] for label, contender in contenders.items() if label != UNIFORM}
    behind = [label for label, gap in gaps.items() if gap["high"] < 0.0]
    doubtful = [label for label, gap in gaps.items() if gap["low"] < 0.0 <= gap["high"]]
    whom = canvas.capital(listed(behind)) if behind else "Nobody"
    level = contenders[UNIFORM]["alpha_performance"]["mean"][-1]
    text = f" {whom} {'end' if len(behind) > 1 else 'ends'} below uniform play ({number(level)})"
    return text + (f"; these seeds do not tell {listed(doubtful)} from it." if doubtful else ".")


def _early_leads(experiment: Results, curves: list[Line]) -> str:
    """Who was ahead of alpha-FairCB early on but is not at the end."""
    ours = next(curve for curve in curves if curve.label in (ALPHA_FAIR, ALPHA_FAIR_BANDIT))
    found = []
    for curve in curves:
        ahead = np.flatnonzero(curve.mean > ours.mean)
        if len(ahead) and ahead[-1] < len(curve.mean) - 1:
            found.append(f"{curve.label} (last at round {experiment['rounds'][ahead[-1]]:,})")
    verb = "was" if len(found) == 1 else "were"
    return f" Earlier {listed(found)} {verb} more equal than {ours.label}." if found else ""
