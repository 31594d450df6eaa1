"""What the report's pictures share: one size, one way to draw a line with its band, one way to write a number."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from alphafair import figures
from alphafair.figures import ALPHA, LABEL_SIZE, Look, look
from alphafair.policies import POLICIES
from alphafair.types import Vector

Results = Mapping[str, Any]
Dashes = str | tuple[int, tuple[float, ...]]

WIDTH, HEIGHT = 7.2, 4.2  # inches, as are the margins below
LEFT, RIGHT, BOTTOM = 0.78, 0.12, 0.58
MOST_POINTS = 300
MINUS = "\N{MINUS SIGN}"
OPTIMUM = "optimum"
GUIDE: Dashes = (0, (5.0, 2.0))  # of the optimum and of limits


class Line(NamedTuple):
    """A contender's curve, ready to be drawn."""

    label: str
    look: Look
    dashes: Dashes
    mean: Vector
    low: Vector
    high: Vector

    @property
    def end(self) -> float:
        return float(self.mean[-1])

    @property
    def random(self) -> bool:
        return bool((self.high > self.low).any())


def ordered(contenders: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """In the registry's order, then strangers, uniform play last, whatever order a file had them in."""
    rank = {name: number for number, name in enumerate(name for name in POLICIES if name != "uniform")}

    def key(item: tuple[str, Mapping[str, Any]]) -> tuple[int, bool, str]:
        policy = item[1]["policy"]
        return rank.get(policy, len(rank) + (policy == "uniform")), item[1]["feedback"] != "full", item[0]

    return dict(sorted(contenders.items(), key=key))


def line(label: str, contender: Mapping[str, Any], series: str) -> Line:
    """One of a contender's series."""
    return Line(label, look(contender["policy"]), figures.dashes(contender["feedback"]), *band(contender[series]))


def lines(experiment: Results, series: str) -> list[Line]:
    return [line(label, contender, series) for label, contender in ordered(experiment["contenders"]).items()]


def band(series: Mapping[str, Any]) -> tuple[Vector, Vector, Vector]:
    mean, low, high = (np.atleast_1d(np.asarray(series[key], dtype=np.float64)) for key in ("mean", "low", "high"))
    return mean, low, high


def optimum(experiment: Results) -> Line:
    """The offline optimum over the rounds."""
    values = np.asarray(experiment["optimum"]["values"], dtype=np.float64)
    return Line(OPTIMUM, figures.OPTIMUM, GUIDE, values, values, values)


def certificate(experiment: Results) -> float:
    """How far the optimum may be off, at most, at the last recorded round."""
    return float(experiment["optimum"]["gaps"][-1])


def page(title: str, note: str, height: float = HEIGHT) -> tuple[Figure, float]:
    """An empty picture under its title and a note, and the inches left for axes below them."""
    figure = Figure(figsize=(WIDTH, height))
    text = textwrap.fill(note, 106)
    figure.text(0.16 / WIDTH, 1.0 - 0.25 / height, title, fontsize=12, fontweight="bold", va="center")
    figure.text(0.16 / WIDTH, 1.0 - 0.42 / height, text, fontsize=LABEL_SIZE, va="top", linespacing=1.3)
    return figure, height - 0.72 - 0.17 * text.count("\n")


def place(figure: Figure, top: float, bottom: float = BOTTOM, labels: Sequence[str] = (), left: float = LEFT) -> Axes:
    """Axes between two heights in inches, with room on the right for the names of its lines."""
    height = figure.get_figheight()
    room = WIDTH * figures.widest(figure, labels) + RIGHT if labels else 0.25
    width = (WIDTH - left - room) / (1.09 if labels else 1.0)  # a name begins 0.09 of the width after its line
    return figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, (top - bottom) / height))


def draw(axes: Axes, x: Sequence[float] | Vector, curves: Sequence[Line], *, markers: int = 6) -> None:
    """The lines with their bands; the first stands in front, a guide behind all."""
    keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), MOST_POINTS)).round().astype(int))
    at = np.asarray(x, dtype=np.float64)[keep]
    for number, curve in enumerate(curves):
        colour, marker = curve.look
        order = 3.0 - number / len(curves)
        if curve.random:
            axes.fill_between(
                at, curve.low[keep], curve.high[keep], color=colour, alpha=0.22, linewidth=0.0, zorder=order - 1.0
            )
        axes.plot(
            at,
            curve.mean[keep],
            color=colour,
            marker=marker,
            markevery=(number * len(at) // (markers * len(curves)), max(1, len(at) // markers)),
            linestyle=curve.dashes,
            linewidth=1.2 if curve.dashes == GUIDE else 1.8,
            zorder=order,
            clip_on=False,
            gid=curve.label,
        )


def over_rounds(axes: Axes, last: float) -> None:
    mark = float(f"{last:.2g}")
    axes.set_xlim(0, mark if last < mark < 1.005 * last else last)  # 4,999 rounds end at a tick of 5k
    axes.set_xlabel("rounds")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda rounds, _: figures.short(rounds)))


def name_lines(axes: Axes, curves: Sequence[Line]) -> None:
    axes.set_ylim(axes.get_ylim())  # settles the scale before the ends are looked up
    figures.label_ends(axes, [curve.label for curve in curves], [curve.look for curve in curves])


def settings_note(experiment: Results, *more: str) -> str:
    """What was run: the line under a title."""
    words = [f"{ALPHA} = {experiment['alpha']:g}"] if "alpha" in experiment else []
    words += [
        f"{experiment[f'n_{kind}']:,} {kind}" for kind in ("rounds", "contexts", "arms") if f"n_{kind}" in experiment
    ]
    return "; ".join([", ".join(words), *(word for word in more if word)])


def bands_note(contenders: Mapping[Any, Mapping[str, Any]]) -> str:
    """How many seeds the bands stand for, if there are any."""
    seeds = sorted({contender["n_seeds"] for contender in contenders.values()} - {1})
    return f"bands: 95% confidence over {' or '.join(map(str, seeds))} seeds" if seeds else ""


def styles_note(curves: Iterable[Line]) -> str:
    """Which lines are solid and which dashed, if there are both."""
    kinds = {curve.dashes for curve in curves} - {GUIDE}
    return "solid: sees all rewards, dashed: sees one" if len(kinds) > 1 else ""


def number(value: float, digits: int = 4) -> str:
    """Four figures, a true minus sign, commas between thousands, no exponent unless it is tiny.

    >>> number(302.1153), number(294.963), number(0.12346), number(40533.2), number(0.0)
    ('302.1', '295.0', '0.1235', '40,533', '0')
    >>> number(40533.27, 7)
    '40,533.27'
    >>> number(-0.5, 1) == MINUS + "0.5"
    True
    """
    size = abs(value)
    if size >= 10.0 ** (digits - 1):
        text = f"{value:,.0f}" if size >= 1000.0 else f"{value:.{max(0, digits - 3)}f}"
    else:
        text = (f"{value:g}" if value == int(value) else f"{value:#,.{digits}g}").replace(".e", "e").removesuffix(".")
    return text.replace("-", MINUS)


def told_apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers in four figures, or in as many as show which is larger.

    >>> told_apart(293.81, 293.84), told_apart(293.8, 302.1), told_apart(1.0, 1.0)
    (('293.81', '293.84'), ('293.8', '302.1'), ('1', '1'))
    """
    pairs = [(number(one, digits), number(other, digits)) for digits in range(4, 13)]
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def tick(value: float, _: object = None) -> str:
    """A round number beside an axis.

    >>> tick(1200.0), tick(0.25)
    ('1,200', '0.25')
    """
    return f"{value:,.6g}".replace("-", MINUS)


def percent(share: float, digits: int = 3) -> str:
    """A part of 1 as a percentage.

    >>> percent(0.91234), percent(8.0012), percent(0.00012)
    ('91.2%', '800%', '0.0120%')
    """
    return f"{number(100.0 * share, digits)}%"


def rounded(mean: float, low: float, high: float, digits: int, unit: str = "") -> tuple[str, str]:
    """A number and half of its band to two figures, with as many decimals; the latter empty if nothing is random.

    >>> rounded(294.2931, 294.11, 294.47, 4), rounded(0.113, 0.0984, 0.129, 3, unit="%")
    (('294.29', '0.18'), ('11.3%', '1.5'))
    >>> rounded(302.1153, 302.1153, 302.1153, 4)
    ('302.1', '')
    """
    size = 100.0 if unit == "%" else 1.0
    half = size * (high - low) / 2.0
    if half <= 0.0:
        return number(size * mean, digits) + unit, ""
    decimals = max(0, 1 - math.floor(math.log10(half)))
    return f"{size * mean:,.{decimals}f}".replace("-", MINUS) + unit, f"{half:,.{decimals}f}"


def listed(words: Sequence[str]) -> str:
    """One, two and three.

    >>> listed(["one"]), listed(["one", "two", "three"])
    ('one', 'one, two and three')
    """
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def capital(text: str) -> str:
    """A great first letter, unless it is Greek: alpha stays alpha."""
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


def ranked(curves: Sequence[Line], *, highest_first: bool = True) -> list[Line]:
    """By where they end."""
    return sorted(curves, key=lambda curve: (-curve.end if highest_first else curve.end, curve.label))


def distance(curve: Line, digits: int = 3) -> tuple[str, bool]:
    """How far from zero a curve ends, with its band and without a sign, and whether it is above."""
    above = curve.end > 0.0
    turned = curve if above else curve._replace(mean=-curve.mean, low=-curve.high, high=-curve.low)
    return with_band(turned, digits), above


def with_band(curve: Line, digits: int = 4) -> str:
    """Where a curve ends, with its band if it has one."""
    text = number(curve.end, digits)
    if curve.high[-1] > curve.low[-1]:
        text += f" (95%: {number(float(curve.low[-1]), digits)} to {number(float(curve.high[-1]), digits)})"
    return text
