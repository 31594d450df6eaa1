"""Progress bars."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from alphafair.extras import needed_by

if TYPE_CHECKING:
    from rich.progress import Progress


class NoProgress:
    """The methods of a progress bar, without output."""

    def __enter__(self) -> NoProgress:
        return self

    def __exit__(self, *problem: object) -> None:
        pass

    def __getattr__(self, method: str) -> Callable[..., int]:
        return lambda *arguments, **options: 0


def progress_bar(*, disable: bool = False) -> Progress:
    """A progress bar on standard error, with a count, the elapsed and the remaining time."""
    if disable:
        return cast("Progress", NoProgress())
    with needed_by("A progress bar", "lab"):
        from rich import progress
        from rich.console import Console

    kinds = (progress.BarColumn, progress.MofNCompleteColumn, progress.TimeElapsedColumn, progress.TimeRemainingColumn)
    columns = [kind() for kind in kinds]
    return progress.Progress("{task.description}", *columns, console=Console(stderr=True))
