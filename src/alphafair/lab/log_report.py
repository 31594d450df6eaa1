"""A page about a log: one picture, one table, what it assumes, and what the doctor says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from alphafair.pages import atomic_write, render, save_figure, versions


class LogReport(NamedTuple):
    """What a page about a log says; all words come from the commands."""

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


def write_log_report(report: LogReport, figure: Figure, folder: Path) -> Path:
    """Write NAME.html, NAME.json and the picture in three formats; say where the page is."""
    drawings = {report.name: save_figure(figure, folder, report.name, report.title)}
    page = folder / f"{report.name}.html"
    atomic_write(page, render("log.html", report=report, drawings=drawings, versions=versions()))
    atomic_write(folder / f"{report.name}.json", json.dumps(report.numbers, indent=2, allow_nan=False) + "\n")
    return page
