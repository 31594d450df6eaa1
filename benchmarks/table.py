"""What a row of the table says, and the two ways to print it."""

from __future__ import annotations

import csv
import io
import os
import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

HEADINGS = ("job", "ours", "rival", "theirs", "ratio", "target", "reached")


class Row(NamedTuple):
    """One comparison, in words and figures ready to print."""

    job: str
    ours: str
    rival: str
    theirs: str
    ratio: str
    target: str
    reached: bool

    def cells(self) -> tuple[str, ...]:
        return (*self[:-1], "yes" if self.reached else "NO")


def duration(seconds: float) -> str:
    """Three digits in the unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size:  # which is rounded up
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def faster(job: str, ours: float, rival: str, theirs: float, at_least: float) -> Row:
    """The rival's time over ours has to be at least so much."""
    ratio = theirs / ours
    return Row(
        job, duration(ours), rival, duration(theirs), f"{ratio:,.3g} x", f"at least {at_least:g} x", ratio >= at_least
    )


def named(package: str) -> str:
    """A rival with its version."""
    return f"{package} {version(package)}"


def machine() -> str:
    """Where the table was measured."""
    cpu = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        models = [line.split(":")[1].strip() for line in information.read_text().splitlines() if "model name" in line]
        cpu = models[0] if models else cpu
    packages = ", ".join(named(package) for package in ("numba", "numpy"))
    return f"{cpu}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, {packages}"


def as_csv(rows: Iterable[Row]) -> str:
    """The columns of measured.csv after the section and the date."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([HEADINGS, *(row.cells() for row in rows)])
    return text.getvalue()


def print_table(rows: Iterable[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADINGS)
    for row in rows:
        table.add_row(*row.cells(), style=None if row.reached else "bold red")
    console = Console()
    Console(width=None if console.is_terminal else 180).print(table)
