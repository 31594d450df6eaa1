"""The order of the gallery: first what everybody asks, then what you ask once you use it."""

from __future__ import annotations

from pathlib import Path

FIRST = (
    "what_alpha_does",
    "price_of_fairness",
    "weight_of_the_poor",
    "steep_alpha",
    "which_fairness",
    "two_sides",
    "groups",
    "floors",
    "periods",
    "slates",
    "newcomer",
    "late_rewards",
    "drift",
    "features",
    "bandit_feedback",
    "certificate",
    "verdict",
    "rivals",
)


class Order:
    """Sphinx-Gallery's key of a file: its number in `FIRST`, and after those the others by name."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str | Path) -> tuple[int, str]:
        name = Path(file).stem.removeprefix("plot_")
        return FIRST.index(name) if name in FIRST else len(FIRST), name
