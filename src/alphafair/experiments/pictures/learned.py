"""How much was learned: the share of the gap between uniform play and the optimum that each policy closes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from alphafair import figures
from alphafair.experiments.pictures import canvas
from alphafair.experiments.pictures.canvas import Results, listed, percent
from alphafair.figures import INK, LABEL_SIZE, look

TITLE = "How much was learned"
FLOOR, CEILING = -1.0, 2.0  # what lies beyond is an arrow at the edge


class Share(NamedTuple):
    """Of the gap closed, with its band."""

    mean: float
    low: float
    high: float

    @property
    def text(self) -> str:
        value, half = canvas.rounded(*self, digits=3, unit="%")
        return f"{value} \N{PLUS-MINUS SIGN} {half}" if half else value


def share(contender: Mapping[str, Any]) -> Share:
    """To a millionth: uniform play closes nothing, not 1e-15."""
    return Share(*(round(float(contender["gap_closed"][side]), 6) + 0.0 for side in ("mean", "low", "high")))


def picture(experiments: Mapping[str, Results]) -> Figure:
    """A dot with its band for every policy: 0 is uniform play, 1 the optimum."""
    groups = [(key, canvas.ordered(experiments[key]["contenders"])) for key in ("A", "B")]
    rows = [(key, label, contender) for key, contenders in groups for label, contender in contenders.items()]
    note = canvas.bands_note({(key, label): contender for key, label, contender in rows})
    note = "; ".join(filter(None, ["the part of the way from uniform play to the optimum in hindsight", note]))
    texts = [share(contender).text for _, _, contender in rows]
    edge = min(CEILING, max(1.1, *(share(contender).mean + 0.1 for _, _, contender in rows)))
    with figures.style():
        figure, top = canvas.page(TITLE, note, 1.6 + 0.26 * (len(rows) + len(groups)))
        left = 0.35 + canvas.WIDTH * figures.widest(figure, [label for _, label, _ in rows])
        axes = canvas.place(figure, top - 0.18, labels=texts, left=left)
        row, places = 0, []
        for key, contenders in groups:
            name = f"{key}: {experiments[key]['title']}"
            axes.text(FLOOR, row, name, fontsize=LABEL_SIZE, fontweight="bold", va="center")
            for label, contender in contenders.items():
                row += 1
                places.append(row)
                _dot(axes, row, label, contender, edge)
            row += 1
        axes.set_yticks(places, [label for _, label, _ in rows], fontsize=LABEL_SIZE)
        axes.set_ylim(row - 0.4, -0.6)
        axes.set_xlim(FLOOR - 0.06, edge + 0.02)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        for x, word in ((0.0, "uniform play"), (1.0, "optimum")):
            axes.axvline(x, color=INK, linewidth=0.9, linestyle="-" if x == 0.0 else canvas.GUIDE, zorder=1)
            axes.text(x, -0.75, word, ha="center", va="bottom", fontsize=LABEL_SIZE)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda part, _: f"{canvas.tick(100.0 * part)}%"))
        axes.xaxis.set_major_locator(MultipleLocator(0.5))
        axes.set_xlabel("share of the gap closed")
    return figure


def _dot(axes: Axes, row: int, label: str, contender: Mapping[str, Any], edge: float) -> None:
    """The mean on its band, and in numbers at the right; an arrow if it does not fit."""
    colour, marker = look(contender["policy"])
    found = share(contender)
    band = [min(max(side, FLOOR), edge) for side in (found.low, found.high)]
    axes.plot(band, [row, row], color=colour, linewidth=5.0, alpha=0.35, solid_capstyle="butt")
    shape = "<" if found.mean < FLOOR else ">" if found.mean > edge else marker
    at = min(max(found.mean, FLOOR), edge)
    axes.plot([at], [row], color=colour, marker=shape, markersize=7, linestyle="none", gid=label, clip_on=False)
    axes.text(1.06, row, found.text, transform=axes.get_yaxis_transform(), va="center", fontsize=LABEL_SIZE, color=INK)


def sentence(experiments: Mapping[str, Results]) -> str:
    """The best of each setting, and everybody who ends behind uniform play."""
    return (
        ". ".join(
            canvas.capital(f"{setting} (experiment {key}), {_farthest(experiments[key])}")
            for key, setting in (("A", "seeing all rewards"), ("B", "seeing one"))
        )
        + "."
    )


def _farthest(experiment: Results) -> str:
    shares = {
        label: share(contender)
        for label, contender in canvas.ordered(experiment["contenders"]).items()
        if contender["policy"] != "uniform"
    }
    first = max(shares, key=lambda label: shares[label].mean)
    mean, low, high = shares[first]
    band = f" (95%: {percent(low)} to {percent(high)})" if high > low else ""
    if mean <= 0.0:
        return f"nobody gets beyond uniform play; {first} comes closest, at {percent(mean)} of the way{band}"
    behind = [f"{label} ({percent(found.mean)})" for label, found in shares.items() if found.high < 0.0]
    rest = f", while {listed(behind)} {'end' if len(behind) > 1 else 'ends'} behind uniform play" if behind else ""
    return f"{first} goes farthest, {percent(mean)} of the way{band}{rest}"
