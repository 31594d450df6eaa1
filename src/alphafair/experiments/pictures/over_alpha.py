"""Experiment C over alpha, the price of fairness, FairCB's floor, and the instance on which nobody can win."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from alphafair import figures
from alphafair.experiments import paper
from alphafair.experiments.pictures import canvas
from alphafair.experiments.pictures.canvas import Line, Results, listed, number, percent
from alphafair.figures import ALPHA, INK, LABEL_SIZE, Look, look
from alphafair.types import Vector

OURS = look(paper.ALPHA_FAIR.policy)
TITLES = {
    "jain_index": f"Equality at the end of the run, over {ALPHA}",
    "average_reward": f"Efficiency at the end of the run, over {ALPHA}",
}
UNITS = {
    "jain_index": "Jain's index (1: all arms alike)",
    "average_reward": "average cumulative reward an arm",
}
MARKED = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # on the curve of the price, or the nearest that was run
METRICS = {
    "alpha_performance": f"{ALPHA}-performance\n(utility)",
    "jain_index": "Jain's index",
    "average_reward": "average reward\nan arm",
}


def over_alpha(experiment: Results, title: str, series: str) -> Figure:
    """A final figure for every alpha."""
    alphas, values = _vector(experiment["alphas"]), _vector(experiment[series])
    with figures.style():
        figure, top = canvas.page(title, canvas.settings_note(experiment, _data(experiment)))
        axes = canvas.place(figure, top)
        curve = Line(paper.ALPHA_FAIR.label, OURS, "-", values, values, values)
        canvas.draw(axes, alphas, [curve], markers=10)
        axes.set_xlim(-0.01, 1.0)
        axes.set_xlabel(f"{ALPHA} (0: efficiency, toward 1: equality)")
        axes.set_ylabel(UNITS[series])
        if series == "jain_index":
            axes.set_ylim(0.0, 1.02)
        else:
            axes.set_ylim(0.0, 1.08 * values.max())
        axes.yaxis.set_major_formatter(FuncFormatter(canvas.tick))
        rises = values[-1] >= values[0]
        for at, side, above in ((0, "left", not rises), (-1, "right", rises)):  # beside the curve, not on it
            axes.annotate(
                f"{ALPHA} = {alphas[at]:g}: {number(values[at])}",
                (alphas[at], values[at]),
                xytext=(6 if side == "left" else -2, 8 if above else -16),
                textcoords="offset points",
                ha=side,
                fontsize=LABEL_SIZE,
            )
    return figure


def _data(experiment: Results) -> str:
    """For a picture that travels alone."""
    least = experiment["settings"]["min_ratings"]
    return f"{experiment['data']}, {'all users' if least is None else f'users with at least {least:,} ratings'}"


def over_alpha_sentence(experiment: Results, series: str) -> str:
    """Whether it rises or falls, and where it does not."""
    alphas, values = _vector(experiment["alphas"]), _vector(experiment[series])
    what = {"jain_index": "Jain's index", "average_reward": "The average cumulative reward"}[series]
    change = values[-1] - values[0]
    steps = np.diff(values) * (1.0 if change >= 0.0 else -1.0)
    text = (
        f"{what} {'rises' if change >= 0 else 'falls'} from {number(values[0])} at {ALPHA} = {alphas[0]:g} "
        f"to {number(values[-1])} at {ALPHA} = {alphas[-1]:g}"
    )
    against = int((steps < 0.0).sum())
    if against == 0:
        return f"{text}, at every one of its {len(steps)} steps."
    worst = int(steps.argmin())
    part = "" if change == 0.0 else f" ({percent(-steps[worst] / abs(change), 2)} of the whole change)"
    return (
        f"{text}; {against} of {len(steps)} steps go the other way, the largest by {number(-steps[worst], 2)}{part} "
        f"after {ALPHA} = {alphas[worst]:g}."
    )


def price(experiment: Results, title: str) -> Figure:
    """Average reward against Jain's index along alpha."""
    alphas, jain, reward = (_vector(experiment[key]) for key in ("alphas", "jain_index", "average_reward"))
    marks = sorted({int(np.abs(alphas - alpha).argmin()) for alpha in MARKED})
    with figures.style():
        figure, top = canvas.page(
            title, canvas.settings_note(experiment, f"one point a value of {ALPHA}", _data(experiment))
        )
        axes = canvas.place(figure, top)
        axes.plot(jain, reward, color=OURS.colour, linewidth=1.2, marker=".", markersize=4, gid="price")
        axes.plot(jain[marks], reward[marks], color=OURS.colour, marker=OURS.marker, markersize=7, linestyle="none")
        axes.set_xlabel(UNITS["jain_index"])
        axes.set_ylabel(UNITS["average_reward"])
        axes.margins(0.12, 0.12)
        axes.grid(axis="x")
        axes.yaxis.set_major_formatter(FuncFormatter(canvas.tick))
        for rank, mark in enumerate(reversed(marks)):  # crowded toward 1: on both sides of the curve in turn
            axes.annotate(
                f"{ALPHA} = {alphas[mark]:g}",
                (jain[mark], reward[mark]),
                xytext=(7, 6) if rank % 2 == 0 else (-6, -14),
                textcoords="offset points",
                ha="left" if rank % 2 == 0 else "right",
                fontsize=LABEL_SIZE,
            )
    return figure


def price_sentence(experiment: Results) -> str:
    """What the whole way costs, and what half of it costs."""
    alphas, jain, reward = (_vector(experiment[key]) for key in ("alphas", "jain_index", "average_reward"))
    gain, cost = jain[-1] - jain[0], 1.0 - reward[-1] / reward[0]
    text = (
        f"From {ALPHA} = {alphas[0]:g} to {alphas[-1]:g} Jain's index goes from {number(jain[0], 3)} to "
        f"{number(jain[-1], 3)} and the average reward from {number(reward[0])} to {number(reward[-1])} "
        f"({percent(abs(cost))} {'less' if cost >= 0.0 else 'more'})"
    )
    if gain <= 0.0:
        return f"{text}: on these data {ALPHA} buys no equality."
    half = int(np.flatnonzero(jain - jain[0] >= gain / 2.0)[0])
    spent = 1.0 - reward[half] / reward[0]
    return f"{text}; half of that equality is there at {ALPHA} = {alphas[half]:g}, at a price of {percent(spent)}."


def floor_sweep(experiment: Results, title: str) -> Figure:
    """FairCB along its floor, with alpha-FairCB as a level line: three metrics over one axis."""
    floors = _vector(experiment["floors"])
    labels = [curve.label for curve in _sweep(experiment, "jain_index")]
    bands = f"bands: 95% confidence over {len(experiment['seeds'])} seeds"
    note = canvas.settings_note(experiment, bands, "solid: sees all rewards, dashed: sees one")
    with figures.style():
        figure, top = canvas.page(title, note, 6.2)
        step = (top + 0.1 - canvas.BOTTOM) / len(METRICS)
        for row, (series, name) in enumerate(METRICS.items()):
            bottom = canvas.BOTTOM + step * (len(METRICS) - 1 - row)
            axes = canvas.place(figure, bottom + step - 0.18, bottom, labels=labels)
            curves = _sweep(experiment, series)
            levels = [curve for curve in curves if len(curve.mean) == 2]  # they know no floor
            canvas.draw(axes, [0.0, 1.0], [level._replace(look=Look(level.look.colour, "")) for level in levels])
            canvas.draw(axes, floors, curves[len(levels) :], markers=len(floors))
            axes.set_xlim(0.0, 1.0)
            axes.margins(y=0.12)
            axes.set_ylabel(name)
            axes.tick_params(labelbottom=row == len(METRICS) - 1)
            if series == "jain_index":
                axes.set_ylim(0.0, 1.04)
            canvas.name_lines(axes, curves)
        axes.set_xlabel("floor \N{GREEK SMALL LETTER NU} as a part of 1/N (1: every arm is pulled equally often)")
    return figure


def _sweep(experiment: Results, series: str) -> list[Line]:
    """Two ends of a level line for alpha-FairCB, a point a floor for FairCB."""
    found = []
    for feedback, ours in (("full", paper.ALPHA_FAIR), ("bandit", paper.ALPHA_FAIR_BANDIT)):
        level = [np.repeat(side, 2) for side in canvas.band(experiment["alpha_fair"][feedback][series])]
        found.append(Line(ours.label, look(ours.policy), figures.dashes(feedback), *level))
    for feedback, theirs in (("full", paper.FAIR_CB_FULL), ("bandit", paper.FAIR_CB)):
        curve = canvas.band(experiment["fair_cb"][feedback][series])
        found.append(Line(theirs.label, look(theirs.policy), figures.dashes(feedback), *curve))
    return found


def floor_sentence(experiment: Results) -> str:
    """The best floor in hindsight, against no floor at all."""
    floors = _vector(experiment["floors"])
    parts = []
    for feedback, seeing in (("full", "seeing all rewards"), ("bandit", "seeing one reward")):
        mean = canvas.band(experiment["fair_cb"][feedback]["alpha_performance"])[0]
        best = int(mean.argmax())
        theirs, ours = canvas.told_apart(mean[best], experiment["alpha_fair"][feedback]["alpha_performance"]["mean"])
        low, high = (experiment["ahead"][feedback][side][best] for side in ("low", "high"))
        verdict = "above" if low > 0.0 else "below" if high < 0.0 else "not told apart from it by these seeds"
        last = " (the highest tried, so a higher one may do better)" if best == len(floors) - 1 else ""
        parts.append(
            f"{seeing}, FairCB reaches its highest {ALPHA}-performance, {theirs}, with a floor of {floors[best]:g}/N"
            f"{last}; {ALPHA}-FairCB, which needs none, ends at {ours}, {verdict}"
        )
    return " ".join(f"{canvas.capital(part)}." for part in parts)


def impossibility(experiment: Results, title: str) -> Figure:
    """OPT/ALG of alpha-FairCB on growing copies of the instance, against the limit nobody can beat."""
    halves, ratios = _vector(experiment["halves"]), [_vector(row) for row in experiment["ratios"]]
    shapes = ("o", "s", "^", "D", "v", "P")
    curves = [
        Line(
            f"{ALPHA} = {alpha:g}",
            Look(OURS.colour, shapes[row % len(shapes)]),
            "-",
            ratios[row],
            ratios[row],
            ratios[row],
        )
        for row, alpha in enumerate(experiment["alphas"])
    ]
    ends = [f"{curve.label}, limit {limit:.4f}" for curve, limit in zip(curves, experiment["limits"], strict=True)]
    curves = [curve._replace(label=end) for curve, end in zip(curves, ends, strict=True)]
    with figures.style():
        figure, top = canvas.page(
            title,
            f"two contexts, two arms, a coin decides the second half of the rounds; {ALPHA}-FairCB's OPT/ALG; "
            "dashed: the least limit that any online policy can have as n grows",
        )
        axes = canvas.place(figure, top, labels=ends, left=0.85)
        for limit in experiment["limits"]:
            axes.axhline(limit, color=INK, linestyle=canvas.GUIDE, linewidth=1.0)
        canvas.draw(axes, halves, curves, markers=len(halves))
        axes.set_xscale("log")
        axes.set_xlim(halves[0], halves[-1])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda half, _: figures.short(half)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(y=0.08)
        axes.set_xlabel("n, half of the rounds (logarithmic)")
        axes.set_ylabel("OPT / ALG (1: as good as the optimum)")
        canvas.name_lines(axes, curves)
    return figure


def impossibility_sentence(experiment: Results) -> str:
    """How near to its limit each alpha comes."""
    rows = [*zip(experiment["alphas"], experiment["limits"], experiment["ratios"], strict=True)]
    ends = [f"{row[-1]:.4f} at {ALPHA} = {alpha:g} (limit {limit:.4f})" for alpha, limit, row in rows]
    first, last = (max(abs(row[at] / limit - 1.0) for _, limit, row in rows) for at in (0, -1))
    return (
        f"With n = {experiment['halves'][-1]:,} OPT/ALG is {listed(ends)}. The largest distance to a limit, as a part "
        f"of it, is {last:.1e} there, against {first:.1e} with n = {experiment['halves'][0]:,}."
    )


def _vector(values: object) -> Vector:
    return np.asarray(values, dtype=np.float64)
