"""What the pictures of the pages are drawn with: a page, axes, boxes, arrows, labels; places are in inches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch, Rectangle

from alphafair import metrics
from alphafair.figures import FAINT, INK, LABEL_SIZE, policy_style
from alphafair.values import Vector

WIDTH = 7.2  # inches, of every picture: a page shows it about 700 pixels wide
BLUE = policy_style("alpha-fair").color
SHADE = "#f4f4f4"
SELLERS = ("Ada", "Ben", "Cyd")


def page(title: str, height: float) -> Figure:
    figure = Figure(figsize=(WIDTH, height))
    figure.text(0.15 / WIDTH, 1.0 - 0.22 / height, title, fontsize=11.5, fontweight="bold", va="center")
    return figure


def axes_at(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Axes at a place in inches."""
    tall = figure.get_figheight()
    return figure.add_axes((left / WIDTH, bottom / tall, width / WIDTH, height / tall))


def canvas(title: str, height: float) -> tuple[Figure, Axes]:
    """A page to draw on in inches."""
    figure = page(title, height)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0.0, WIDTH)
    axes.set_ylim(0.0, height)
    axes.set_axis_off()
    return figure, axes


def box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str,
    *,
    face: str = SHADE,
    edge: str = FAINT,
    dashed: bool = False,
) -> None:
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.08",
            facecolor="white" if dashed else face,
            edgecolor=edge,
            linewidth=1.6 if edge != FAINT else 1.0,
            linestyle=(0, (3.0, 2.0)) if dashed else "-",
        )
    )
    label(axes, x + width / 2, y + height / 2, text)


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    color: str = INK,
    width: float = 1.3,
    dashed: bool = False,
) -> None:
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=11,
            shrinkA=0.0,
            shrinkB=0.0,
            color=color,
            linewidth=width,
            linestyle=(0, (2.0, 2.0)) if dashed else "-",
        )
    )


def route(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """An arrow with corners."""
    axes.plot(*zip(*points[:-1], strict=True), color=INK, linewidth=1.3, solid_joinstyle="miter")
    arrow(axes, points[-2], points[-1])


def label(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    size: float = LABEL_SIZE,
    side: str = "center",
    color: str = INK,
    on_line: bool = False,
) -> None:
    box: Any = {"facecolor": "white", "edgecolor": "none", "pad": 2.0} if on_line else None
    axes.text(x, y, text, fontsize=size, ha=side, va="center", color=color, linespacing=1.35, bbox=box, parse_math=True)


def number(axes: Axes, x: float, y: float, number: int, *, filled: bool = True) -> None:
    """The number of a reduction, in a circle."""
    axes.add_patch(
        Circle((x, y), 0.115, facecolor=BLUE if filled else "white", edgecolor=BLUE, linewidth=1.2, zorder=4)
    )
    axes.text(
        x,
        y - 0.005,
        str(number),
        ha="center",
        va="center_baseline",
        fontsize=8.5,
        fontweight="bold",
        color="white" if filled else BLUE,
        zorder=5,
    )


def account(axes: Axes, earned: Vector, alpha: float, x: float, y: float, width: float, height: float) -> None:
    """The shared account: what every arm has earned, and what one more unit counts for, as bars."""
    box(axes, x, y, width, height, "", face="white", edge=BLUE)
    weights = metrics.marginal_utility(earned, alpha) / metrics.marginal_utility(earned, alpha).max()
    top = y + height - 0.17
    for left, text in (
        (x + 0.72, "R: earned so far"),
        (x + 2.95, rf"$\varphi'(R) = R^{{-{alpha:g}}}$, relative"),
    ):
        label(axes, left, top, text, side="left")
    for row, (seller, amount, weight) in enumerate(zip(SELLERS, earned, weights, strict=True)):
        middle = top - 0.25 * (row + 1)
        label(axes, x + 0.2, middle, seller, side="left")
        for left, size, text in (
            (x + 0.72, amount / earned.max(), f"{amount:,.0f}"),
            (x + 2.95, weight, f"{weight:.2f}"),
        ):
            axes.add_patch(Rectangle((left, middle - 0.075), 1.35 * size, 0.15, facecolor=BLUE, alpha=0.75))
            label(axes, left + 1.35 * size + 0.06, middle, text, side="left", size=8.0)
