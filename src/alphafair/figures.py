"""Figures: each function takes results and returns a Matplotlib Figure, without pyplot or global settings.

A policy has the same color and marker in every figure. Its line is solid under full information and dashed under
bandit feedback. Lines are labeled at their ends, so there is no legend.
"""

import math
import textwrap
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import metrics, validate
from alphafair.algorithms import POLICIES
from alphafair.errors import InvalidArgument
from alphafair.extras import needed_by
from alphafair.formatting import ALPHA, clipped, counted, percentage, short, tick, visible
from alphafair.groups import GroupsLike, arm_groups
from alphafair.values import Feedback, Interval, Policy, Trace, Vector

with needed_by("alphafair.figures", "lab"):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
    from matplotlib.ticker import FixedLocator, NullLocator

Dashes = str | tuple[int, tuple[float, ...]]

INK = "#262626"
FAINT = "#8c8c8c"
SUFFIXES = (".png", ".svg", ".pdf")
LEFT, RIGHT = 0.06, 0.985  # margins of an overview, as fractions of its width
LABEL_SIZE = 9.0
MOST_STEMS = 300  # of more arms, evenly spaced ranks are drawn
MOST_BARS = 25  # of more arms, those with the largest shares are drawn
MOST_POINTS = 300  # of a line

WIDTH, HEIGHT = 7.2, 4.2  # of a report's figure, in inches, as are the margins below
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_BOTTOM = 0.78, 0.12, 0.58
ALPHA_TICKS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0, math.inf)
GUIDE: Dashes = (0, (5.0, 2.0))  # the line style of the optimum and of limits

USUAL_FONT = "DejaVu Sans"  # comes with Matplotlib
BOX_FONT = "Last Resort"  # draws every character as a box

_STYLE = Path(__file__).with_name("figures.mplstyle")


@contextmanager
def style(labels: Sequence[str] = ()) -> Iterator[None]:
    """Apply the package's Matplotlib style inside the block, with fonts that have every character of the labels."""
    interactive = mpl.rcParams["interactive"]
    try:
        with mpl.rc_context({"font.family": families("".join(labels))}, _STYLE):
            try:
                yield
            finally:
                interactive = mpl.rcParams["interactive"]
    finally:  # no matter of style: a notebook sets it as it draws its first figure, maybe in this block
        mpl.rcParams["interactive"] = interactive


class Style(NamedTuple):
    """The color and marker of a policy."""

    color: str
    marker: str


OPTIMUM = Style(INK, "")  # of the best fixed policy in hindsight
_OTHER_COLORS = ("#000000", "#B8A900", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_OTHER_MARKERS = ("*", "p", "h", "<", ">", "d", "8")


def policy_style(policy: str) -> Style:
    """The color and marker of a policy: those that its class sets, or else ones derived from a hash of its name.

    A subclass with another name does not inherit its parent's style.

    >>> policy_style("alpha-fair")
    Style(color='#0072B2', marker='o')
    >>> policy_style("my-policy") == policy_style("my-policy")
    True
    """
    for kind in (*POLICIES.values(), *_subclasses(Policy)):
        if vars(kind).get("name") == policy and "traits" in vars(kind) and kind.traits.style:
            return Style(*kind.traits.style)
    marker, color = divmod(zlib.crc32(policy.encode()), len(_OTHER_COLORS))
    return Style(_OTHER_COLORS[color], _OTHER_MARKERS[marker % len(_OTHER_MARKERS)])


def _subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def names(traces: Sequence[Trace]) -> list[str]:
    """A distinct name for each trace: its policy, and where that is ambiguous its feedback and its seed."""
    policies = Counter(trace.policy for trace in traces)
    kinds = Counter((trace.policy, trace.feedback) for trace in traces)
    found = []
    for trace in traces:
        details = []
        if policies[trace.policy] > kinds[trace.policy, trace.feedback]:
            details.append(str(trace.feedback))
        if kinds[trace.policy, trace.feedback] > 1:
            details.append(f"seed {trace.seed}")
        found.append(trace.policy + (f" ({', '.join(details)})" if details else ""))
    return found


def overview(
    traces: Sequence[Trace],
    alpha: float,
    *,
    arm_labels: Sequence[str] | None = None,
    groups: GroupsLike | None = None,
) -> Figure:
    """Compare several runs: alpha-performance and Jain's index over the rounds, and each arm's share of all reward.

    From alpha = 1 on the first panel shows the welfare instead of alpha-performance.

    Parameters
    ----------
    traces
        Runs over the same arms, in the order to draw them; simulate them with `record_every`.
    alpha
        Fairness, 0 to inf, of alpha-performance and welfare.
    arm_labels
        Names of the arms. By default they are numbered from 0.
    groups
        A `Groups`, or a label for each arm. With labels, the figure shows groups instead of arms.

    >>> from alphafair import AlphaFair, Uniform, simulate, streams
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=3, n_arms=4, seed=0)
    >>> policies = AlphaFair(3, 4), Uniform(3, 4, feedback="full")
    >>> traces = [simulate(policy, stream, record_every=20) for policy in policies]
    >>> [axes.get_title(loc="left") for axes in overview(traces, alpha=0.9).axes[1:]]
    ["Jain's index: how equally", 'alpha-fair', 'uniform']
    """
    alpha = validate.alpha(alpha)
    sizes = {trace.accounts.shape[1] for trace in traces}
    if len(sizes) != 1:
        repair = "Draw runs over other arms in another figure."
        raise InvalidArgument("traces", "at least one run, all over the same arms", sorted(sizes), repair)
    n_arms = int(sizes.pop())
    arm_labels = [f"arm {arm}" for arm in range(n_arms)] if arm_labels is None else arm_labels
    if len(arm_labels) != n_arms:
        raise InvalidArgument("arm_labels", f"{n_arms} names", len(arm_labels), "Pass one name per arm.")
    resolved, unit = arm_groups(groups, n_arms), "arm"
    if resolved.named:
        traces, arm_labels = [resolved.of_trace(trace) for trace in traces], [str(label) for label in resolved.labels]
        n_arms, unit = resolved.n_groups, "group"
    labels = legible(arm_labels, unit)
    titles, styles = names(traces), [policy_style(trace.policy) for trace in traces]
    n_rounds = max(int(trace.rounds[-1]) for trace in traces)
    settings = f"{ALPHA} = {alpha:g}, {counted(n_rounds, 'round')}, {counted(n_arms, unit)}"
    with style(labels):
        figure = Figure(figsize=(12.8, 7.2))
        figure.text(LEFT, 0.957, "Who earns what, and how fairly", fontsize=15, fontweight="bold", va="center")
        figure.text(RIGHT, 0.957, f"{settings}; solid: sees all rewards, dashed: sees one", ha="right", va="center")
        margin = 0.04 + widest(figure, titles)  # beside each of the two panels
        width = (RIGHT - LEFT - 0.05) / 2 - margin
        worth = "alpha_performance" if alpha < 1.0 else "welfare"
        for left, name in ((LEFT, worth), (RIGHT - margin - width, "jain_index")):
            axes, metric = figure.add_axes((left, 0.50, width, 0.37)), metrics.METRICS[name]
            axes.set(title=metric.headline(unit), ylabel=metric.axis(unit))
            for number, trace in enumerate(traces):
                curve = metric.measure(trace, {"alpha": alpha}, resolved)
                place = (number, len(traces))
                line(axes, trace.rounds, curve, styles[number], dashes(trace.feedback), titles[number], place)
            over_rounds(axes, n_rounds)
            if left == LEFT and alpha < 1.0:
                fair_scale(axes, alpha, n_arms)
            elif left == LEFT:
                axes.set_ylim(bottom=0.0)
            else:
                axes.set_ylim(0.0, 1.02)
            label_ends(axes, titles, styles)
        _who_got_what(figure, traces, titles, labels, unit)
    return figure


def save(figure: Figure, path: str | Path) -> Path:
    """Save a figure as PNG, SVG or PDF, by the suffix of the path. The same figure gives the same bytes."""
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise InvalidArgument("path", f"a file that ends in {', '.join(SUFFIXES)}", str(path), "Change the suffix.")
    dates = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}[target.suffix.lower()]
    with style():
        figure.savefig(target, metadata={"Creator": "alphafair", **dates} if dates else None)
    return target


def fair_scale(axes: Axes, alpha: float, n_arms: int) -> None:
    """Scale an axis of alpha-performance so that equal heights are equal rewards.

    Sum_i phi(R_i) is the score of n arms with (mean of R^(1-alpha))^(1/(1-alpha)) each, and the axis is linear in
    that reward. On a linear axis x^0.1 would draw all but the worst policies as one line.
    """
    power = 1.0 - alpha

    def reward(performance: Vector) -> Vector:
        return np.sign(performance) * (np.abs(performance) * power / n_arms) ** (1.0 / power)

    def performance(reward: Vector) -> Vector:
        return np.sign(reward) * np.abs(reward) ** power * n_arms / power

    top = float(reward(np.array(axes.dataLim.y1)))
    axes.set_yscale("function", functions=(reward, performance))
    axes.set_ylim(*performance(top * np.array([-0.03, 1.04])))
    n_ticks = 6
    ticks = []
    for height in top / n_ticks * np.arange(0.6, n_ticks):
        window = performance(height + 0.3 * top / n_ticks * np.array([-1.0, 0.0, 1.0]))
        ticks.append(_roundest(*(float(value) for value in window)))
    axes.set_yticks(ticks, [f"{value:,.10g}" for value in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.text(0.02, 0.96, "equal heights are equal rewards", transform=axes.transAxes, va="top", style="italic")


def alpha_positions(alphas: ArrayLike) -> Vector:
    """The positions of alphas on an axis from 0 to inf: alpha/(1 + alpha), so that 1 is in the middle and inf at 1.

    >>> alpha_positions([0.0, 1.0, math.inf]).tolist()
    [0.0, 0.5, 1.0]
    """
    with np.errstate(invalid="ignore"):  # inf/inf
        values = np.asarray(alphas, dtype=np.float64)
        return np.where(np.isinf(values), 1.0, values / (1.0 + values))


def alpha_axis(axes: Axes, last: float = math.inf) -> None:
    """Label an x axis of `alpha_positions`, from 0 to the last alpha."""
    ticks = [alpha for alpha in ALPHA_TICKS if alpha <= last]
    labels = ["\N{INFINITY}" if alpha == math.inf else f"{alpha:g}" for alpha in ticks]
    axes.set_xticks(alpha_positions(ticks), labels)
    axes.xaxis.set_minor_locator(NullLocator())


def _roundest(low: float, value: float, high: float) -> float:
    """A number in [low, high] that is a multiple of the largest possible 1, 2 or 5 times a power of ten."""
    decade = 10.0 ** math.ceil(math.log10(high))
    while True:
        for size in (decade, decade / 2.0, decade / 5.0):
            nearest = round(value / size) * size
            if low <= nearest <= high:
                return nearest
        decade /= 10.0


def line(
    axes: Axes,
    x: Any,
    y: Vector,
    style: Style,
    dashes: Dashes,
    gid: str,
    place: tuple[int, int],
    markers: int = 6,
    **more: Any,
) -> None:
    """Draw one of several lines; `place` is its number and how many there are. The first is drawn on top."""
    number, among = place
    axes.plot(
        x,
        y,
        color=style.color,
        marker=style.marker,
        markevery=(number * len(x) // (markers * among), max(1, len(x) // markers)),
        linestyle=dashes,
        zorder=3.0 - number / among,
        clip_on=False,
        gid=gid,
        **more,
    )


def over_rounds(axes: Axes, last: int) -> None:
    """Label an axis of rounds from 0 to the last, or to a tick just above it: 4,999 rounds end at 5k."""
    mark = float(f"{last:.2g}")
    axes.set_xlim(0, mark if last < mark < 1.005 * last else last)
    axes.set_xlabel("rounds")
    axes.xaxis.set_major_formatter(short)


def evenly(n: int, most: int) -> NDArray[np.intp]:
    """At most so many of n positions, evenly spaced, with the first and the last."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.intp))


def widest(figure: Figure, titles: Sequence[str]) -> float:
    """The width of the widest label, as a fraction of the figure's width."""
    texts = [figure.text(0.0, 0.0, title, fontsize=LABEL_SIZE) for title in titles]
    width = max(text.get_window_extent().width for text in texts) / figure.bbox.width
    for text in texts:
        text.remove()
    return float(width)


def label_ends(axes: Axes, titles: Sequence[str], styles: Sequence[Style]) -> None:
    """Label the lines with these gids to the right of the axes, as close to their ends as the labels fit."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 - for mypy
    inches = axes.get_position().height * figure.get_figheight()
    gap = 1.3 * LABEL_SIZE / 72.0 / inches  # a line of text, as a fraction of the axes' height
    ends = {str(line.get_gid()): np.asarray(line.get_xydata())[-1] for line in axes.get_lines()}
    place = axes.transData + axes.transAxes.inverted()
    points = [place.transform(ends[title]) for title in titles]
    heights = spread([float(y) for _, y in points], gap, low=0.0, high=1.0)
    for (color, marker), title, (x, y), height in zip(styles, titles, points, heights, strict=True):
        axes.plot(
            [x, x + 0.045, x + 0.065],
            [y, height, height],
            color=color,
            linewidth=1.0,
            marker=marker,
            markevery=[2],
            transform=axes.transAxes,
            clip_on=False,
        )
        axes.text(
            x + 0.09, height, title, transform=axes.transAxes, fontsize=LABEL_SIZE, va="center_baseline", gid=title
        )


def _who_got_what(
    figure: Figure, traces: Sequence[Trace], titles: Sequence[str], labels: Sequence[str], unit: str
) -> None:
    """Draw a small panel for each run, all on one scale."""
    figure.text(LEFT, 0.385, f"Who got what: each {unit}'s share of all reward", fontsize=11, fontweight="bold")
    reading = f"{unit}s from most to least; the black line is an equal share, {percentage(100.0 / len(labels))}"
    figure.text(RIGHT, 0.385, reading, ha="right")
    shares = 100.0 * np.array([metrics.shares(trace.final) for trace in traces])
    least, most = float(shares.min()), float(shares.max())
    steps = (1.0,) if most > 20.0 * least else (1.0, 2.0, 5.0)
    ticks = [step * 10.0**power for power in range(-15, 3) for step in steps if step * 10.0**power <= 100.0]
    n_rows = math.ceil(len(traces) / 8)
    n_columns = max(3, math.ceil(len(traces) / n_rows))
    room = 1.2 * (most / least) ** (0.2 * n_rows)  # for a name above and below
    grid = figure.add_gridspec(
        n_rows, n_columns, left=LEFT, right=RIGHT, top=0.31, bottom=0.03, wspace=0.08, hspace=0.45
    )
    for number, (trace, title) in enumerate(zip(traces, titles, strict=True)):
        axes = figure.add_subplot(grid[divmod(number, n_columns)])
        axes.set_title(textwrap.fill(title, 17), fontsize=LABEL_SIZE, fontweight="normal", pad=4)
        axes.set(yscale="log", ylim=(least / room, most * room))
        axes.yaxis.set_major_locator(FixedLocator(ticks))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(percentage)
        axes.tick_params(labelleft=number % n_columns == 0)
        _shares(axes, trace, shares[number], labels)


def _shares(axes: Axes, trace: Trace, shares: Vector, labels: Sequence[str]) -> None:
    """Draw shares in descending order, as stems up or down from an equal share."""
    color, marker = policy_style(trace.policy)
    equal = 100.0 / len(shares)
    order = np.argsort(-shares, kind="stable")
    ranks = evenly(len(shares), MOST_STEMS)
    heights = shares[order][ranks]
    axes.vlines(ranks, equal, heights, color=color, linewidth=max(0.6, min(3.0, 60.0 / len(ranks))), alpha=0.45)
    size = max(1.5, min(4.5, 90.0 / len(ranks)))
    axes.plot(ranks, heights, color=color, marker=marker, markersize=size, linestyle="none", gid=trace.policy)
    axes.axhline(equal, color=INK, linewidth=0.9)
    for rank, side, away in ((0, "left", 7), (len(order) - 1, "right", -7)):
        arm = order[rank]
        text, va = f"{clipped(labels[arm])} {percentage(shares[arm])}", "bottom" if away > 0 else "top"
        note(axes, text, (rank, shares[arm]), (0, away), ha=side, va=va, fontsize=8)
    axes.set_xticks([])
    axes.margins(x=0.06)


def note(axes: Axes, text: str, point: tuple[float, float], offset: tuple[float, float], **more: Any) -> None:
    """Write text beside a point; the offset is in typographic points, to the right and up."""
    axes.annotate(text, point, xytext=offset, textcoords="offset points", **{"fontsize": LABEL_SIZE, **more})


def dashes(feedback: str) -> Dashes:
    """The line style of a feedback: solid for full information, dashed for bandit feedback."""
    return "-" if feedback == Feedback.FULL else (0, (4.0, 1.5))


def fair_optimum(shares: Mapping[Any, Vector], arm_labels: Sequence[str], by: str = ALPHA) -> Figure:
    """Each arm's share of all reward at the offline optimum, as bars for several values of alpha.

    Parameters
    ----------
    shares
        Every arm's share of all reward, by alpha, or by any words that tell the optima apart.
    arm_labels
        Names of the arms. Arms are sorted by their largest share at any alpha. Of more than `MOST_BARS` arms the
        first are drawn, and the title says so.
    by
        What the keys of `shares` are.
    """
    n_arms = len(arm_labels)
    arm_labels = legible(arm_labels, "arm")
    order = np.argsort(-np.max([*shares.values()], axis=0), kind="stable")[:MOST_BARS]
    part = f": {len(order)} of {n_arms:,} arms" if len(order) < n_arms else ""
    ramp = mpl.colormaps["viridis"](np.linspace(0.05, 0.85, len(shares)))
    with style(arm_labels):
        figure = Figure(figsize=(9.6, 1.6 + 0.36 * len(order)), layout="constrained")
        axes = figure.subplots()
        height, places = 0.8 / len(shares), np.arange(len(order))
        for k, (alpha, parts) in enumerate(shares.items()):
            wide, color = 100.0 * np.asarray(parts)[order], ramp[k]
            label = alpha if isinstance(alpha, str) else f"{alpha:g}"
            axes.barh(places + (k - (len(shares) - 1) / 2) * height, wide, height, color=color, label=label)
        axes.axvline(100.0 / n_arms, color=INK, linewidth=0.8)
        axes.set_yticks(places, [clipped(str(arm_labels[i]), 28) for i in order])
        axes.invert_yaxis()
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("share of all reward (%), an initial 1 each included; the line is an equal share")
        axes.set_title(f"Who gets what at the fair optimum{part}")
        figure.legend(title=by, frameon=False, loc="outside right center")
    return figure


class Line(NamedTuple):
    """One line of a chart, with an interval at every point."""

    label: str
    style: Style
    dashes: Dashes
    x: Sequence[float]
    values: Interval


@contextmanager
def page(title: str, notes: Iterable[str], height: float = HEIGHT) -> Iterator[tuple[Figure, float]]:
    """An empty figure of a report with its title and notes, and the height in inches that is left below them."""
    with style():
        figure = Figure(figsize=(WIDTH, height))
        text = textwrap.fill("; ".join(filter(None, notes)), 106)
        figure.text(0.16 / WIDTH, 1.0 - 0.25 / height, title, fontsize=12, fontweight="bold", va="center")
        figure.text(0.16 / WIDTH, 1.0 - 0.42 / height, text, fontsize=LABEL_SIZE, va="top", linespacing=1.3)
        yield figure, height - 0.72 - 0.17 * text.count("\n")


def add_axes(
    figure: Figure, top: float, bottom: float = MARGIN_BOTTOM, labels: Sequence[str] = (), left: float = MARGIN_LEFT
) -> Axes:
    """Axes between two heights in inches, with space on the right for the labels of its lines."""
    height = figure.get_figheight()
    space = WIDTH * widest(figure, labels) + MARGIN_RIGHT if labels else 0.25
    width = (WIDTH - left - space) / (1.09 if labels else 1.0)  # a label begins 0.09 of the width after its line
    return figure.add_axes((left / WIDTH, bottom / height, width / WIDTH, (top - bottom) / height))


def line_chart(
    title: str,
    notes: Iterable[str],
    panels: dict[str, list[Line]],
    finish: Callable[[Axes], object],
    *,
    height: float = HEIGHT,
    left: float = MARGIN_LEFT,
    gap: float = 0.1,
    markers: int = 6,
) -> Figure:
    """Lines with their confidence bands, in panels over one axis.

    `panels` has the lines of each panel by its unit, from top to bottom. `finish` is called with the axes of each
    panel. Lines are labeled at their ends, unless a panel has only one.
    """
    with page(title, notes, height) as (figure, top):
        step = (top + 0.1 - MARGIN_BOTTOM) / len(panels)
        for row, (unit, lines) in enumerate(reversed(panels.items())):
            labels, bottom = [each.label for each in lines], MARGIN_BOTTOM + step * row
            labeled = len(lines) > 1
            axes = add_axes(figure, bottom + step - gap, bottom, labels if labeled else (), left)
            draw_lines(axes, lines, markers)
            axes.set_ylabel(unit)
            finish(axes)
            if row > 0:
                axes.set_xlabel("")
                axes.tick_params(labelbottom=False)
            if labeled:
                axes.set_ylim(axes.get_ylim())  # fixes the scale before the ends of the lines are read
                label_ends(axes, labels, [each.style for each in lines])
    return figure


def draw_lines(axes: Axes, lines: Sequence[Line], markers: int) -> None:
    """Draw lines with their confidence bands; the first is on top, guides are thinner."""
    for number, each in enumerate(lines):
        keep = evenly(len(each.x), MOST_POINTS)
        x, value, low, high = (np.asarray(side, dtype=np.float64)[keep] for side in (each.x, *each.values))
        if (high > low).any():
            order = 2.0 - number / len(lines)
            axes.fill_between(x, low, high, color=each.style.color, alpha=0.22, linewidth=0.0, zorder=order)
        shown = each.style._replace(marker="") if len(x) == 2 else each.style  # a level is marked beside its label
        width, place = 1.2 if each.dashes == GUIDE else 1.8, (number, len(lines))
        line(axes, x, value, shown, each.dashes, each.label, place, markers, linewidth=width)


def dot(
    axes: Axes, at: float, found: Interval, policy: str, limits: tuple[float, float], size: float, label: str
) -> None:
    """Draw an estimate and its interval along the x axis; an arrow at the limit where it lies beyond."""
    color, marker = policy_style(policy)
    value, low, high = found.clip(*limits)
    axes.plot([low, high], [at, at], color=color, linewidth=0.7 * size, alpha=0.4, solid_capstyle="butt")
    shape = "<" if found.value < limits[0] else ">" if found.value > limits[1] else marker
    axes.plot([value], [at], color=color, marker=shape, markersize=size, linestyle="none", gid=label, clip_on=False)


def gap_axis(axes: Axes, ticks: Sequence[float]) -> None:
    """Label an x axis of shares of the gap closed, with lines at uniform play (0%) and the optimum (100%)."""
    for x, dashes in ((0.0, "-"), (1.0, GUIDE)):
        axes.axvline(x, color=INK, linewidth=0.9, linestyle=dashes, zorder=1)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xticks(ticks)
    axes.xaxis.set_major_formatter(lambda part, _: f"{tick(100.0 * part)}%")


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The nearest positions that are at least a gap apart, in the same order, inside [low, high] if they fit.

    Positions that are too close become a block around their mean, and blocks that touch are merged.

    >>> spread([0.5, 0.5, 0.875], gap=0.125, low=0.0, high=1.0)
    [0.4375, 0.5625, 0.875]
    """
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    blocks: list[list[float]] = []  # each [wanted start, number of members]
    room = max(low, high - gap * (len(positions) - 1))
    for rank, i in enumerate(order):
        blocks.append([positions[i] - rank * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            start, members = blocks.pop()
            total = blocks[-1][1] + members
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + start * members) / total, total]
    starts = [min(max(start, low), room) for start, members in blocks for _ in range(int(members))]
    placed = [0.0] * len(positions)
    for rank, i in enumerate(order):
        placed[i] = starts[rank] + rank * gap
    return placed


@cache
def _characters(path: str) -> frozenset[int]:
    return frozenset(get_font(path).get_charmap())


def _lacking(text: Iterable[str], characters: frozenset[int]) -> set[str]:
    return {character for character in text if not character.isspace() and ord(character) not in characters}


@cache
def families(text: str) -> list[str]:
    """Names of fonts that together cover as many characters of a text as this machine's fonts can, the default first.

    >>> families("jazz, rock")
    ['DejaVu Sans']
    """
    found = [USUAL_FONT]
    lacking = _lacking(set(text), _characters(findfont(FontProperties(family=[USUAL_FONT]))))
    fonts = {
        (font.name, font.fname) for font in fontManager.ttflist if not font.name.startswith((USUAL_FONT, BOX_FONT))
    }
    for name, path in sorted(fonts) if lacking else ():
        still = _lacking(lacking, _characters(path))
        if len(still) < len(lacking):
            found.append(name)
            lacking = still
    return found


def legible(labels: Sequence[str], noun: str) -> list[str]:
    """The labels, with "arm 3" instead of one that no font of this machine can draw.

    >>> legible(["jazz", chr(0x10FFFD)], "arm")
    ['jazz', 'arm 1']
    """
    known = set[int]()
    for name in families("".join(labels)):
        known |= _characters(findfont(FontProperties(family=[name])))
    characters = frozenset(known)
    return [f"{noun} {place}" if _lacking(label, characters) else visible(label) for place, label in enumerate(labels)]
