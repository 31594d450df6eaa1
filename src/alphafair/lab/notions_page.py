"""The page of `alphafair notions`: a picture for every measure, the tables, and where the numbers come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from alphafair import figures
from alphafair.figures import INK, LABEL_SIZE, policy_style
from alphafair.formatting import capital
from alphafair.lab.fairness import MEASURES
from alphafair.lab.notions import NotionRow, NotionsResults, WorldResults
from alphafair.lab.report import (
    SIZES,
    Cell,
    Code,
    Column,
    Drawing,
    Page,
    Paragraph,
    Row,
    Section,
    Table,
    code,
    text_table,
    versions_text,
    write_page,
)
from alphafair.lab.results import as_json
from alphafair.lab.runner import Progress, no_progress

LINE = 0.165  # inches per policy
WIDE_FROM = 1.0  # above it the axis of a wide measure is logarithmic
LEFT = 1.9  # inches for the names of policies
INTRODUCTION = (
    "Promised are half an equal share of the pulls, half of what uniform play gives every arm, and 0.4 to 0.6 of the "
    "probability for the arms with even numbers; merit is exp(4 μ) of the mean reward of an arm in its context. All "
    "policies play with bandit feedback, a learner for each context unless one context is said. The widths .1 and .3, "
    "eta 100 and c .1 were chosen on these worlds, in favor of those policies."
)


def chart(worlds: Sequence[WorldResults], measure: str, title: str) -> Figure:
    """One measure of every policy, a panel for each world; dots are means over the seeds, lines their range."""
    found = MEASURES[measure]
    labels = [row.label for row in worlds[0].rows]
    n_seeds = len(worlds[0].seeds)
    notes = (found.meaning, f"dots: means over {n_seeds} seeds, lines: their range" if n_seeds > 1 else "")
    height = 1.3 + LINE * len(labels)
    with figures.page(title, notes, height) as (figure, top):
        width = (figures.WIDTH - LEFT) / len(worlds)
        for column, world in enumerate(worlds):
            place = LEFT + column * width, 0.35, width - 0.15, top - 0.35 - 0.25
            axes = figure.add_axes(
                (place[0] / figures.WIDTH, place[1] / height, place[2] / figures.WIDTH, place[3] / height)
            )
            for at, row in enumerate(world.rows):
                values = row.measures.get(measure)
                if values is None:
                    continue
                color, marker = policy_style(row.policy)
                axes.plot([min(values), max(values)], [at, at], color=color, linewidth=2.0, alpha=0.4)
                axes.plot(
                    [np.mean(values)],
                    [at],
                    color=color,
                    marker=marker,
                    markersize=3.6,
                    linestyle="none",
                    clip_on=False,
                )
            if found.is_wide:
                axes.set_xscale("symlog", linthresh=WIDE_FROM)
            axes.set_ylim(len(labels) - 0.5, -0.5)
            axes.set_yticks(range(len(labels)), labels if column == 0 else [""] * len(labels), fontsize=LABEL_SIZE - 1)
            axes.tick_params(axis="y", length=0)
            axes.tick_params(axis="x", labelsize=LABEL_SIZE - 1)
            axes.set_title(world.title, fontsize=LABEL_SIZE, color=INK)
    return figure


def table(world: WorldResults) -> Table:
    """All measures of all policies in a world, means over the seeds."""

    def cell(row: NotionRow, measure: str) -> Cell:
        value = row.mean(measure)
        return Cell("" if value is None or math.isnan(value) else MEASURES[measure].text(value))

    rows = (Row((Cell(row.label), *(cell(row, measure) for measure in MEASURES))) for row in world.rows)
    columns = (Column(""), *(Column(each.title, is_number=True) for each in MEASURES.values()))
    return Table(columns, tuple(rows), "numbers")


def notions_page(results: NotionsResults, images: dict[str, Markup]) -> Page:
    """The page as a value; `images` has its figures."""
    sections = [
        Section(f"in-{world.name}", f"All measures: {world.title}", (table(world),)) for world in results.worlds
    ]
    pictures = [
        Section(name, capital(found.title), (Drawing(name, images[name], capital(found.meaning) + "."),))
        for name, found in MEASURES.items()
    ]
    sizes = [
        (
            world.title,
            *(f"{size:,}" for size in (world.n_rounds, world.n_contexts, world.n_arms, len(world.seeds))),
            code(world.digest),
        )
        for world in results.worlds
    ]
    link = Markup('All numbers are in <a href="results.json">results.json</a>. Versions: {}.')
    origin = Section(
        "origin",
        "Where these numbers come from",
        (
            Paragraph("One command makes this page; with the same versions it writes the same bytes:"),
            Code(results.command),
            Paragraph(link.format(versions_text(results.versions))),
            text_table(("world", "rounds", "contexts", "arms", "seeds", "digest"), sizes, SIZES),
        ),
    )
    n = len(results.worlds[0].rows)
    return Page(
        title="Published notions of fairness on one benchmark",
        heading="Notions of fairness",
        lead=f"{n} policies in {len(results.worlds)} worlds: what does each owe, is it kept, and what does it cost?",
        introduction=(Paragraph(INTRODUCTION),),
        sections=(*pictures, *sections, origin),
    )


def write_notions_page(results: NotionsResults, folder: Path, progress: Progress = no_progress) -> None:
    """Write index.html, results.json and the figures in three formats into a folder."""
    drawn = {
        name: (capital(each.title), partial(chart, results.worlds, name, capital(each.title)))
        for name, each in MEASURES.items()
    }
    write_page(folder, as_json(results), drawn, partial(notions_page, results), progress)
