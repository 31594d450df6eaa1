"""Pages and figures about a log: policies side by side, the price of fairness, and its propensities."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from alphafair import pages
from alphafair.evaluation.diagnosis import Diagnosis
from alphafair.evaluation.estimates import Measured
from alphafair.evaluation.price import Frontier
from alphafair.formatting import ALPHA, clipped, percentage
from alphafair.metrics import METRICS
from alphafair.values import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOR = "#0072B2"
WARNING = "#D55E00"
MOST_ROWS = 40
PROMISED = "what every context gets of its best"
SHARES = ("least_share", "greatest_share")


class LogPage(NamedTuple):
    """The content of a page about a log."""

    name: str  # of its files
    title: str
    lead: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str  # of the table
    sentences: Sequence[str]  # answers, and reasons for doubt
    assumptions: Sequence[str]
    command: str
    numbers: dict[str, Any]


def write_log_page(page: LogPage, figure: Figure, folder: Path) -> Path:
    """Write NAME.html, NAME.json and the figure in three formats; returns the path of the page."""
    drawings = {page.name: pages.save_figure(figure, folder, page.name, page.title)}
    path = folder / f"{page.name}.html"
    pages.atomic_write(path, pages.render("log.html", report=page, drawings=drawings, versions=pages.versions()))
    pages.atomic_write(folder / f"{page.name}.json", json.dumps(page.numbers, indent=2, allow_nan=False) + "\n")
    return path


def draw_policies(found: Mapping[str, Measured], notes: Sequence[str]) -> Figure:
    """A panel per metric, a row per policy: its estimate and its interval."""
    from matplotlib.ticker import MaxNLocator

    from alphafair import figures

    names, size = figures.legible(list(found), "policy"), figures.LABEL_SIZE
    height = 1.75 + 0.34 * len(names)
    with figures.page("What policies would have earned", notes, height) as (figure, top):
        left = 0.3 + figures.WIDTH * figures.widest(figure, names)
        shown = ("reward_per_round", "jain_index", *SHARES)  # no sums: a replay has fewer rounds
        width = (figures.WIDTH - left - 0.1) / len(shown)
        for column, metric in enumerate(shown):
            place = ((left + column * width) / figures.WIDTH, 0.75 / height, (width - 0.22) / figures.WIDTH)
            axes = figure.add_axes((*place, (top - 0.8) / height))
            for row, each in enumerate(found.values()):
                _draw_interval(axes, row, getattr(each, metric))
            axes.set_ylim(len(names) - 0.5, -0.5)
            axes.set_yticks(range(len(names)), names if column == 0 else [""] * len(names), fontsize=size)
            axes.set_xlabel(METRICS[metric].title if metric in METRICS else "reward per round", fontsize=size)
            axes.grid(visible=False, axis="y")
            axes.grid(axis="x")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=2, steps=[1, 2, 5, 10]))
            axes.tick_params(axis="x", labelsize=size)
            if metric in SHARES:
                axes.xaxis.set_major_formatter(lambda part, _: percentage(100.0 * part))
    return figure


def draw_frontier(found: Frontier, notes: Sequence[str]) -> Figure:
    """Average reward, Jain's index, least and greatest share along alpha, each with its band.

    Along promises to contexts, welfare takes the place of average reward.
    """
    from matplotlib.ticker import PercentFormatter

    from alphafair import figures

    size = figures.LABEL_SIZE
    title = "What each step of fairness costs" if found.context_shares is None else "What a promise to contexts costs"
    with figures.page(title, notes, 5.2) as (figure, top):
        panel = (top - 0.75) / 2
        first = "average_reward" if found.context_shares is None else "welfare"
        for k, metric in enumerate((first, "jain_index", *SHARES)):
            row, column = divmod(k, 2)
            left, bottom = 0.75 + column * 3.45, 0.62 + (1 - row) * (panel + 0.12)
            axes = figure.add_axes((left / figures.WIDTH, bottom / 5.2, 2.55 / figures.WIDTH, (panel - 0.3) / 5.2))
            value, low, high = found.curve(metric)
            promises = found.context_shares
            places = figures.alpha_positions(found.alphas) if promises is None else promises
            axes.fill_between(places, low, high, color=COLOR, alpha=0.22, linewidth=0.0)
            axes.plot(places, value, color=COLOR, marker="o", markersize=3.5)
            if promises is None:
                figures.alpha_axis(axes, float(found.alphas[-1]))
            else:
                axes.xaxis.set_major_formatter(PercentFormatter(1.0))
            if np.isnan(value).all():
                axes.text(0.5, 0.5, "do not use", transform=axes.transAxes, ha="center", va="center", fontsize=8)
                axes.set(xticks=[], yticks=[])
            axes.set_ylabel(METRICS[metric].title, fontsize=size)
            axes.set_ylim(bottom=0.0)
            axes.tick_params(labelsize=size, labelbottom=row == 1)
            if row == 1:
                along = f"{ALPHA}: from efficiency to equality" if promises is None else PROMISED
                axes.set_xlabel(along, fontsize=size)
            if metric in SHARES:
                axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    return figure


def draw_propensities(found: Diagnosis) -> Figure:
    """The mean inverse propensity of every arm, those farthest from 1 first, with the band that noise explains."""
    from alphafair import figures

    checked = found.inverse_propensities
    if checked is None:
        findings = [each.what for each in found.findings]
        with figures.page("Rows are wrong: correct them first", findings, 1.6) as (figure, _):
            return figure
    order = np.argsort(-np.abs(checked.means - 1.0) / np.maximum(checked.noise, 1e-12), kind="stable")[:MOST_ROWS]
    names = figures.legible([clipped(checked.arms[k], 28) for k in order], "arm")
    height = 1.6 + 0.2 * len(order)
    part = f"{len(order)} of {len(checked.arms)} arms, farthest from 1 first" if len(order) < len(checked.arms) else ""
    notes = ("mean inverse propensity of every arm: 1 if propensities are true; bands: what noise explains", part)
    with figures.page("Do propensities add up?", notes, height) as (figure, top):
        left = 0.35 + figures.WIDTH * figures.widest(figure, names)
        size = ((figures.WIDTH - left - 0.25) / figures.WIDTH, (top - 0.6) / height)
        axes = figure.add_axes((left / figures.WIDTH, 0.5 / height, *size))
        axes.axvline(1.0, color=figures.INK, linewidth=0.9)
        for row, k in enumerate(order):
            color = WARNING if checked.off[k] else COLOR
            reach = checked.noise[k]
            axes.plot([1.0 - reach, 1.0 + reach], [row, row], color=figures.FAINT, linewidth=4.0, alpha=0.4)
            axes.plot([checked.means[k]], [row], color=color, marker="o", markersize=4.0)
        axes.set_ylim(len(order) - 0.5, -0.5)
        axes.set_yticks(range(len(order)), names, fontsize=figures.LABEL_SIZE)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("mean inverse propensity", fontsize=figures.LABEL_SIZE)
    return figure


def _draw_interval(axes: Axes, row: int, found: Interval) -> None:
    value, low, high = found
    if np.isfinite(value):
        axes.plot([low, high], [row, row], color=COLOR, linewidth=2.4, alpha=0.45, solid_capstyle="butt")
        axes.plot([value], [row], color=COLOR, marker="o", markersize=4.5)
    else:
        axes.text(0.5, row, "do not use", transform=axes.get_yaxis_transform(), ha="center", va="center", fontsize=8)
