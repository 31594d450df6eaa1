"""The last results of the benchmarks, from benchmarks/measured.csv and accuracy.csv, as tables."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as Markdown, the first one as the heading."""
    heading, *others = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, ["---"] * len(heading), *others))


def read(name: str) -> list[list[str]]:
    with (FOLDER / name).open(encoding="utf-8", newline="") as file:
        return [*csv.reader(file)]


def tables() -> str:
    """A table per part of the benchmarks and day, then the accuracy of estimates from logs."""
    heading, *rows = read("measured.csv")
    parts = []
    for (section, day), lines in groupby(rows, key=lambda row: row[:2]):
        parts += [f"**{section}**, {day}:\n", table([heading[2:], *(line[2:] for line in lines)]), ""]
    return "\n".join([*parts, "**Accuracy of estimates from logs**:\n", table(read("accuracy.csv"))])
