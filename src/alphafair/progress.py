"""Progress bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


def progress_bar(*, disable: bool = False) -> Progress:
    """A progress bar on standard error, with a count, the elapsed and the remaining time."""
    from rich import progress
    from rich.console import Console

    kinds = (progress.BarColumn, progress.MofNCompleteColumn, progress.TimeElapsedColumn, progress.TimeRemainingColumn)
    columns = [kind() for kind in kinds]
    return progress.Progress("{task.description}", *columns, console=Console(stderr=True), disable=disable)
