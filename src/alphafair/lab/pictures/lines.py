"""Lines: experiments A and B and the corrections over the rounds, C over alpha, FairCB along its floor, the limits."""

from collections.abc import Callable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, SymmetricalLogLocator

from alphafair import figures
from alphafair.figures import INK, Dashes, Look, look, note
from alphafair.formatting import ALPHA, number, short, tick
from alphafair.lab import paper
from alphafair.lab.pictures import canvas
from alphafair.lab.pictures.canvas import Line
from alphafair.lab.results import Band, Limits, OverAlpha, OverFloor, OverTime

PERFORMANCE, JAIN = f"{ALPHA}-performance", "Jain's index (1: all arms alike)"
OVER_TIME = {  # title, unit
    "alpha_performance": (f"{PERFORMANCE}: how much, weighed fairly", f"{PERFORMANCE} (utility)"),
    "approximate_regret": ("Approximate regret: against a part of the optimum", "approximate regret (utility)"),
    "jain_index": ("Jain's index: how equally", JAIN),
    "standard_regret": ("Standard regret: how far below the optimum", "standard regret (utility, log beyond 1)"),
}
OVER_ALPHA = {  # title, unit
    "jain_index": (f"Equality at the end of the run, over {ALPHA}", JAIN),
    "average_reward": (f"Efficiency at the end of the run, over {ALPHA}", "average cumulative reward per arm"),
}
ALONG_FLOORS = {  # unit
    "alpha_performance": f"{PERFORMANCE}\n(utility)",
    "jain_index": "Jain's index",
    "average_reward": "average reward\nper arm",
}
READINGS = {  # unit
    "alpha_performance": f"{PERFORMANCE}\n(difference, utility)",
    "jain_index": "Jain's index\n(difference)",
}
READING_STYLES: tuple[tuple[str, Dashes], ...] = (("o", "-"), ("s", (0, (4.0, 1.5))), ("^", (0, (1.5, 1.2))))
OURS = look(paper.ALPHA_FAIR.policy)
MARKERS = ("o", "s", "^", "D", "v", "P")
MARKED = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # on the curve of the price, or the nearest that was run


def over_time(run: OverTime, title: str, metric: str) -> Figure:
    """One of the paper's four, with the optimum, measured as everybody else is, where it has a meaning."""
    lines = _lines(run, metric)
    styles = canvas.STYLES if len({line.dashes for line in lines}) > 1 else ""
    certified = ""
    if metric != "jain_index":
        share = {"alpha_performance": 1.0, "standard_regret": 0.0, "approximate_regret": 1.0 - run.factor}[metric]
        optimum = Band.exact(share * run.optimum.values)
        lines.append(Line("optimum", figures.OPTIMUM, canvas.GUIDE, run.rounds, optimum))
        certified = f"optimum certified to within {number(run.certificate, 2)}"
    scales: dict[str, Callable[[Axes], object]] = {
        "alpha_performance": lambda axes: figures.fair_scale(axes, run.alpha, run.n_arms),
        "approximate_regret": lambda axes: axes.axhline(0.0, color=INK, linewidth=0.8),
        "jain_index": lambda axes: axes.set_ylim(0.0, 1.02),
        "standard_regret": _wide_scale,
    }
    notes = (canvas.settings(run), certified, canvas.bands(run), styles)
    return canvas.chart(title, notes, {OVER_TIME[metric][1]: lines}, _over_rounds(run, scales[metric]))


def sign(run: OverTime, title: str) -> Figure:
    """Real data: alpha-performance above or below uniform play's."""
    level = run.of("uniform").alpha_performance.mean
    lines = [line._replace(values=line.values.minus(level)) for line in _lines(run, "alpha_performance")]
    notes = (canvas.settings(run), canvas.bands(run), "each sees one reward")
    panels = {f"{PERFORMANCE} above uniform's (utility)": lines}
    return canvas.chart(title, notes, panels, _over_rounds(run, _around_zero))


def step(run: OverTime, title: str) -> Figure:
    """Standard regret over the rounds: a small picture."""
    panels = {"standard regret (utility)": _lines(run, "standard_regret")}
    notes = (canvas.settings(run), "each sees all rewards")
    return canvas.chart(title, notes, panels, _over_rounds(run, _around_zero), height=3.0)


def readings(run: OverTime, title: str) -> Figure:
    """Differences to the default reading, in alpha-performance and in Jain's index."""
    panels = {
        unit: [
            Line(label, Look(OURS.colour, marker), dashes, run.rounds, values)
            for (marker, dashes), (label, values) in zip(READING_STYLES, run.differences(metric).items(), strict=True)
        ]
        for metric, unit in READINGS.items()
    }
    end = run.contenders["before"].alpha_performance.end.mean
    note = f"differences to reading it before the round's reward, which ends at {number(end)}"
    finish = _over_rounds(run, lambda axes: axes.margins(y=0.15))
    return canvas.chart(title, (canvas.settings(run), note), panels, finish, height=5.0, gap=0.22, left=1.2)


def over_alpha(run: OverAlpha, title: str, metric: str) -> Figure:
    """One of the two at the end of the run, for every alpha."""
    alphas, values = run.alphas, getattr(run, metric)
    rises = values[-1] >= values[0]

    def finish(axes: Axes) -> None:
        axes.set(xlabel=f"{ALPHA} (0: efficiency, toward 1: equality)", xlim=(-0.01, 1.0))
        axes.set_ylim(0.0, 1.02 if metric == "jain_index" else 1.08 * max(values))
        axes.yaxis.set_major_formatter(tick)
        for at, side, above in ((0, "left", not rises), (-1, "right", rises)):  # beside the curve, not on it
            text, away = f"{ALPHA} = {alphas[at]:g}: {number(values[at])}", (6 if at == 0 else -2, 8 if above else -16)
            note(axes, text, (alphas[at], values[at]), away, ha=side)

    line = Line(paper.ALPHA_FAIR.label, OURS, "-", alphas, Band.exact(values))
    notes = (canvas.sizes(run), _data(run))
    return canvas.chart(title, notes, {OVER_ALPHA[metric][1]: [line]}, finish, markers=10)


def price(run: OverAlpha, title: str) -> Figure:
    """Average reward against Jain's index along alpha."""
    alphas, jain, reward = np.array(run.alphas), run.jain_index, run.average_reward
    marks = sorted({int(np.abs(alphas - alpha).argmin()) for alpha in MARKED})
    with canvas.page(title, (canvas.sizes(run), f"one point per value of {ALPHA}", _data(run))) as (figure, top):
        axes = canvas.place(figure, top)
        axes.plot(jain, reward, color=OURS.colour, linewidth=1.2, marker=".", markersize=4, gid="price")
        axes.plot(jain[marks], reward[marks], color=OURS.colour, marker=OURS.marker, markersize=7, linestyle="none")
        axes.set(xlabel=OVER_ALPHA["jain_index"][1], ylabel=OVER_ALPHA["average_reward"][1])
        axes.margins(0.12, 0.12)
        axes.grid(axis="x")
        axes.yaxis.set_major_formatter(tick)
        for rank, mark in enumerate(reversed(marks)):  # crowded toward 1: on both sides of the curve in turn
            away, side = ((7, 6), "left") if rank % 2 == 0 else ((-6, -14), "right")
            note(axes, f"{ALPHA} = {alphas[mark]:g}", (jain[mark], reward[mark]), away, ha=side)
    return figure


def floor_sweep(run: OverFloor, title: str) -> Figure:
    """FairCB along its floor, with alpha-FairCB, which knows none, as a level line: three metrics over one axis."""
    pairs = {"full": (paper.FAIR_CB_FULL, paper.ALPHA_FAIR), "bandit": (paper.FAIR_CB, paper.ALPHA_FAIR_BANDIT)}
    panels: dict[str, list[Line]] = {unit: [] for unit in ALONG_FLOORS.values()}
    for metric, unit in ALONG_FLOORS.items():
        for feedback, (theirs, ours) in pairs.items():
            dashes, level = figures.dashes(feedback), Band(*np.transpose([run.alpha_fair[feedback][metric]] * 2))
            panels[unit] += [
                Line(theirs.label, look(theirs.policy), dashes, run.floors, run.fair_cb[feedback][metric]),
                Line(ours.label, look(ours.policy), dashes, (0.0, 1.0), level),
            ]

    def finish(axes: Axes) -> None:
        axes.set(xlim=(0.0, 1.0), xlabel="floor \u03bd as a part of 1/N (1: every arm is pulled equally often)")
        axes.margins(y=0.12)
        if axes.get_ylabel() == ALONG_FLOORS["jain_index"]:
            axes.set_ylim(0.0, 1.04)

    notes = (canvas.settings(run), f"bands: 95% confidence over {len(run.seeds)} seeds", canvas.STYLES)
    return canvas.chart(title, notes, panels, finish, height=6.2, gap=0.18, markers=len(run.floors))


def impossibility(run: Limits, title: str) -> Figure:
    """OPT/ALG of alpha-FairCB on growing copies of the instance, against the limit nobody can beat."""
    lines = [
        Line(f"{ALPHA} = {alpha:g}, limit {limit:.4f}", Look(OURS.colour, marker), "-", run.halves, Band.exact(ratios))
        for alpha, limit, ratios, marker in zip(run.alphas, run.limits, run.ratios, MARKERS, strict=False)
    ]
    notes = (
        "two contexts, two arms, a coin decides the second half of the rounds",
        f"{ALPHA}-FairCB's OPT/ALG",
        "dashed: the least limit that any online policy can have as n grows",
    )

    def finish(axes: Axes) -> None:
        for limit in run.limits:
            axes.axhline(limit, color=INK, linestyle=canvas.GUIDE, linewidth=1.0)
        axes.set(xscale="log", xlim=(run.halves[0], run.halves[-1]), xlabel="n, half of the rounds (logarithmic)")
        axes.xaxis.set_major_formatter(short)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(y=0.08)

    panels = {"OPT / ALG (1: as good as the optimum)": lines}
    return canvas.chart(title, notes, panels, finish, left=0.85, markers=len(run.halves))


def _lines(run: OverTime, metric: str) -> list[Line]:
    return [
        Line(each.label, look(each.policy), figures.dashes(each.feedback), run.rounds, getattr(each, metric))
        for each in run.outcomes
    ]


def _over_rounds(run: OverTime, scale: Callable[[Axes], object]) -> Callable[[Axes], None]:
    def finish(axes: Axes) -> None:
        figures.over_rounds(axes, run.rounds[-1])
        scale(axes)

    return finish


def _around_zero(axes: Axes) -> None:
    axes.axhline(0.0, color=INK, linewidth=0.8, zorder=1)
    axes.margins(y=0.1)


def _wide_scale(axes: Axes) -> None:
    """Linear up to 1, then logarithmic, so that a regret of 0.7 and one of 70 are both seen; it may be negative."""
    low, high = axes.dataLim.y0, axes.dataLim.y1
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.8)
    axes.set_ylim(min(low * 1.3, -0.12), max(high * 1.3, 1.2))
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10.0, linthresh=1.0, subs=[1.0, 2.0, 5.0]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(tick)


def _data(run: OverAlpha) -> str:
    """For a picture that travels alone."""
    least = run.settings["min_ratings"]
    return f"{run.data}, {'all users' if least is None else f'users with at least {least:,} ratings'}"
