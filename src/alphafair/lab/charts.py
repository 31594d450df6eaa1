"""The figures of the report: each function takes results and a title and returns a Figure."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, NullLocator, SymmetricalLogLocator

from alphafair import figures
from alphafair.figures import INK, LABEL_SIZE, Dashes, Line, Style, note, policy_style
from alphafair.formatting import ALPHA, clipped, counted, number, percent, rounded, short, tick
from alphafair.lab import paper
from alphafair.lab.results import (
    Experiments,
    Limits,
    Match,
    OnRounds,
    Outcome,
    OverAlpha,
    OverFloor,
    OverTime,
    Score,
    Sign,
)
from alphafair.metrics import METRICS
from alphafair.values import Interval, Vector

NO_GAP = "no gap to close"
LINE_STYLES = "solid: full information, dashed: bandit feedback"
PERFORMANCE, JAIN, REWARD = (METRICS[name] for name in ("alpha_performance", "jain_index", "average_reward"))
OVER_ALPHA = {  # title, unit
    "jain_index": (f"Equality at the end of the run, over {ALPHA}", JAIN.axis()),
    "average_reward": (f"Efficiency at the end of the run, over {ALPHA}", "average cumulative reward per arm"),
}
ALONG_FLOORS = {  # unit
    "alpha_performance": f"{PERFORMANCE.label}\n({PERFORMANCE.unit})",
    "jain_index": JAIN.label,
    "average_reward": f"{REWARD.label}\nper arm",
}
READINGS = {  # unit
    "alpha_performance": f"{PERFORMANCE.label}\n(difference, {PERFORMANCE.unit})",
    "jain_index": f"{JAIN.label}\n(difference)",
}
READING_STYLES: tuple[tuple[str, Dashes], ...] = (("o", "-"), ("s", (0, (4.0, 1.5))), ("^", (0, (1.5, 1.2))))
OURS = policy_style(paper.ALPHA_FAIR.policy)
MARKERS = ("o", "s", "^", "D", "v", "P")
MARKED = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)  # labeled values of alpha, or the nearest that was run


# notes under a title


def sizes_note(run: OnRounds) -> str:
    return ", ".join(counted(getattr(run, f"n_{noun}s"), noun) for noun in ("round", "context", "arm"))


def settings_note(run: OverTime | OverFloor) -> str:
    return f"{ALPHA} = {run.alpha:g}, {sizes_note(run)}"


def seeds_note(*runs: OverTime) -> str:
    """How many seeds the confidence bands are over; empty where nothing is random."""
    seeds = sorted({each.n_seeds for run in runs for each in run.outcomes} - {1})
    return f"bands: 95% confidence over {' or '.join(map(str, seeds))} seeds" if seeds else ""


def data_note(run: OverAlpha) -> str:
    least = run.settings["min_ratings"]
    return f"{run.data}, {'all users' if least is None else f'users with at least {least:,} ratings'}"


# lines


def over_time(run: OverTime, title: str, metric: str) -> Figure:
    """One of the paper's four metrics over the rounds, with the optimum where the metric applies to it."""
    lines = _lines(run, metric)
    styles = LINE_STYLES if len({line.dashes for line in lines}) > 1 else ""
    certified = ""
    if metric != "jain_index":
        share = {"alpha_performance": 1.0, "standard_regret": 0.0, "approximate_regret": 1.0 - run.factor}[metric]
        optimum = Interval.exact(share * run.optimum.values)
        lines.append(Line("optimum", figures.OPTIMUM, figures.GUIDE, run.rounds, optimum))
        certified = f"optimum certified to within {number(run.certificate, 2)}"
    scales: dict[str, Callable[[Axes], object]] = {
        "alpha_performance": lambda axes: figures.fair_scale(axes, run.alpha, run.n_arms),
        "approximate_regret": lambda axes: axes.axhline(0.0, color=INK, linewidth=0.8),
        "jain_index": lambda axes: axes.set_ylim(0.0, 1.02),
        "standard_regret": _wide_scale,
    }
    notes = (settings_note(run), certified, seeds_note(run), styles)
    unit = METRICS[metric].axis()
    if scales[metric] is _wide_scale:
        unit = unit.replace(")", ", log scale above 1)")
    return figures.line_chart(title, notes, {unit: lines}, _over_rounds(run, scales[metric]))


def sign(run: OverTime, title: str) -> Figure:
    """The difference in alpha-performance to uniform play, on ratings."""
    level = run.of("uniform").alpha_performance.value
    lines = [line._replace(values=line.values - level) for line in _lines(run, "alpha_performance")]
    notes = (settings_note(run), seeds_note(run), "bandit feedback")
    panels = {f"{PERFORMANCE.label} above uniform's ({PERFORMANCE.unit})": lines}
    return figures.line_chart(title, notes, panels, _over_rounds(run, _around_zero))


def step(run: OverTime, title: str) -> Figure:
    """Standard regret over the rounds."""
    panels = {METRICS["standard_regret"].axis(): _lines(run, "standard_regret")}
    notes = (settings_note(run), "full information")
    return figures.line_chart(title, notes, panels, _over_rounds(run, _around_zero), height=3.0)


def readings(run: OverTime, title: str) -> Figure:
    """The differences to the default in alpha-performance and in Jain's index."""
    panels = {
        unit: [
            Line(label, Style(OURS.color, marker), dashes, run.rounds, values)
            for (marker, dashes), (label, values) in zip(READING_STYLES, run.differences(metric).items(), strict=True)
        ]
        for metric, unit in READINGS.items()
    }
    end = run.contenders["before"].alpha_performance.last.value
    note = f"differences to reading it before the round's reward, whose final {PERFORMANCE.label} is {number(end)}"
    finish = _over_rounds(run, lambda axes: axes.margins(y=0.15))
    return figures.line_chart(title, (settings_note(run), note), panels, finish, height=5.0, gap=0.22, left=1.2)


def over_alpha(run: OverAlpha, title: str, metric: str) -> Figure:
    """Jain's index or the average reward at the end of the run, for every alpha."""
    alphas, values = run.alphas, getattr(run, metric)
    rises = values[-1] >= values[0]

    def finish(axes: Axes) -> None:
        axes.set(xlabel=f"{ALPHA} (0: efficiency, toward 1: equality)", xlim=(-0.01, 1.0))
        axes.set_ylim(0.0, 1.02 if metric == "jain_index" else 1.08 * max(values))
        axes.yaxis.set_major_formatter(tick)
        for at, side, above in ((0, "left", not rises), (-1, "right", rises)):  # beside the curve
            text, offset = (
                f"{ALPHA} = {alphas[at]:g}: {number(values[at])}",
                (6 if at == 0 else -2, 8 if above else -16),
            )
            note(axes, text, (alphas[at], values[at]), offset, ha=side)

    line = Line(paper.ALPHA_FAIR.label, OURS, "-", alphas, Interval.exact(values))
    notes = (sizes_note(run), data_note(run))
    return figures.line_chart(title, notes, {OVER_ALPHA[metric][1]: [line]}, finish, markers=10)


def price(run: OverAlpha, title: str) -> Figure:
    """The average reward against Jain's index along alpha."""
    alphas, jain, reward = np.array(run.alphas), run.jain_index, run.average_reward
    marks = sorted({int(np.abs(alphas - alpha).argmin()) for alpha in MARKED})
    with figures.page(title, (sizes_note(run), f"one point per value of {ALPHA}", data_note(run))) as (figure, top):
        axes = figures.add_axes(figure, top)
        axes.plot(jain, reward, color=OURS.color, linewidth=1.2, marker=".", markersize=4, gid="price")
        axes.plot(jain[marks], reward[marks], color=OURS.color, marker=OURS.marker, markersize=7, linestyle="none")
        axes.set(xlabel=OVER_ALPHA["jain_index"][1], ylabel=OVER_ALPHA["average_reward"][1])
        axes.margins(0.12, 0.12)
        axes.grid(axis="x")
        axes.yaxis.set_major_formatter(tick)
        for rank, mark in enumerate(
            reversed(marks)
        ):  # crowded toward 1, so labels alternate between both sides of the curve
            offset, side = ((7, 6), "left") if rank % 2 == 0 else ((-6, -14), "right")
            note(axes, f"{ALPHA} = {alphas[mark]:g}", (jain[mark], reward[mark]), offset, ha=side)
    return figure


def floor_sweep(run: OverFloor, title: str) -> Figure:
    """Three metrics of FairCB along its pull floor, with alpha-FairCB as a level line."""
    pairs = {"full": (paper.FAIR_CB_FULL, paper.ALPHA_FAIR), "bandit": (paper.FAIR_CB, paper.ALPHA_FAIR_BANDIT)}
    panels: dict[str, list[Line]] = {unit: [] for unit in ALONG_FLOORS.values()}
    for metric, unit in ALONG_FLOORS.items():
        for feedback, (theirs, ours) in pairs.items():
            dashes, level = figures.dashes(feedback), Interval(*np.transpose([run.alpha_fair[feedback][metric]] * 2))
            panels[unit] += [
                Line(theirs.label, policy_style(theirs.policy), dashes, run.floors, run.fair_cb[feedback][metric]),
                Line(ours.label, policy_style(ours.policy), dashes, (0.0, 1.0), level),
            ]

    def finish(axes: Axes) -> None:
        axes.set(
            xlim=(0.0, 1.0), xlabel="pull floor \u03bd as a multiple of 1/N (1: every arm is pulled equally often)"
        )
        axes.margins(y=0.12)
        if axes.get_ylabel() == ALONG_FLOORS["jain_index"]:
            axes.set_ylim(0.0, 1.04)

    notes = (settings_note(run), f"bands: 95% confidence over {len(run.seeds)} seeds", LINE_STYLES)
    return figures.line_chart(title, notes, panels, finish, height=6.2, gap=0.18, markers=len(run.floors))


def impossibility(run: Limits, title: str) -> Figure:
    """OPT/ALG of alpha-FairCB on the two-context instance at growing lengths, with the limits."""
    lines = [
        Line(
            f"{ALPHA} = {alpha:g}, limit {limit:.4f}",
            Style(OURS.color, marker),
            "-",
            run.halves,
            Interval.exact(ratios),
        )
        for alpha, limit, ratios, marker in zip(run.alphas, run.limits, run.ratios, MARKERS, strict=False)
    ]
    notes = (
        "two contexts, two arms, a coin flip decides the second half of the rounds",
        f"{ALPHA}-FairCB's OPT/ALG",
        "dashed: the lowest limit of any online policy as n grows",
    )

    def finish(axes: Axes) -> None:
        for limit in run.limits:
            axes.axhline(limit, color=INK, linestyle=figures.GUIDE, linewidth=1.0)
        axes.set(xscale="log", xlim=(run.halves[0], run.halves[-1]), xlabel="n, half of the rounds (log scale)")
        axes.xaxis.set_major_formatter(short)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(y=0.08)

    panels = {"OPT / ALG (1: as good as the optimum)": lines}
    return figures.line_chart(title, notes, panels, finish, left=0.85, markers=len(run.halves))


def _lines(run: OverTime, metric: str) -> list[Line]:
    return [
        Line(each.label, policy_style(each.policy), figures.dashes(each.feedback), run.rounds, getattr(each, metric))
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
    """A symmetric log scale, linear up to 1: regrets of 0.7 and of 70 are both visible, and may be negative."""
    low, high = axes.dataLim.y0, axes.dataLim.y1
    axes.set_yscale("symlog", linthresh=1.0, linscale=0.8)
    axes.set_ylim(min(low * 1.3, -0.12), max(high * 1.3, 1.2))
    axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10.0, linthresh=1.0, subs=[1.0, 2.0, 5.0]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(tick)


# rows

ARM_ROW = 0.175  # inches
MOST_ARMS = 40
LEAST_LEARNED, MOST_LEARNED = -1.0, 2.0  # shares of the gap closed beyond these are arrows at the edge


def who_gets_what(run: OverTime, title: str) -> Figure:
    """The final reward of every arm under every policy, one column per policy.

    Arms are in the order of their reward under uniform play; of very many, evenly spaced ones are drawn.
    """
    rewards = np.array([each.final_accounts for each in run.outcomes])
    order = np.argsort(-run.of("uniform").final_accounts, kind="stable")
    order = order[figures.evenly(len(order), MOST_ARMS)]
    height = 1.75 + ARM_ROW * len(order)
    reading = "cumulative reward including the initial 1; black line: an equal split of the same total"
    least, most = float(rewards.min()) / 1.5, float(rewards.max()) * 1.5
    with figures.page(title, (settings_note(run), reading), height) as (figure, top):
        names = [clipped(run.arm_labels[arm], 22) for arm in order]
        left = 0.3 + figures.WIDTH * figures.widest(figure, names)
        width = (figures.WIDTH - left - 0.15) / len(rewards)
        for column, each in enumerate(run.outcomes):
            start, wide = (left + column * width) / figures.WIDTH, (width - 0.12) / figures.WIDTH
            axes = figure.add_axes((start, 0.55 / height, wide, (top - 0.95) / height))
            _column(
                axes,
                each.label,
                policy_style(each.policy),
                each.final_accounts[order],
                float(each.final_accounts.mean()),
            )
            axes.set_xlim(least, most)
            axes.xaxis.set_major_locator(FixedLocator(_ticks(least, most, 4 if len(rewards) < 5 else 2)))
            axes.set_yticks(range(len(order)), names if column == 0 else [""] * len(order), fontsize=LABEL_SIZE)
        figure.text(0.5, 0.1 / height, "cumulative reward (log scale)", ha="center", va="bottom")
    return figure


def _column(axes: Axes, label: str, style: Style, rewards: Vector, equal: float) -> None:
    (color, marker), rows = style, np.arange(len(rewards))
    axes.set_xscale("log")
    axes.hlines(rows, equal, rewards, color=color, linewidth=2.2, alpha=0.4)
    axes.plot(rewards, rows, color=color, marker=marker, markersize=4.5, linestyle="none", gid=label, clip_on=False)
    axes.axvline(equal, color=INK, linewidth=0.9)
    axes.set_ylim(len(rewards) - 0.4, -0.6)
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(short)
    axes.set_title(textwrap.fill(label, 12), fontsize=LABEL_SIZE, fontweight="normal", pad=4)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """At most so many round numbers on a logarithmic axis, and at least one if there is any.

    >>> _ticks(0.7, 3000.0, 2), _ticks(30.0, 170.0, 4)
    ([10.0, 1000.0], [50.0, 100.0])
    """
    decades = [10.0**power for power in range(-12, 19)]
    finest = [step * decade for decade in decades for step in (1.0, 2.0, 5.0)]
    choices = [
        [tick for tick in ticks if low <= tick <= high] for ticks in (finest, decades, decades[1::2], decades[1::4])
    ]
    return next((ticks for ticks in choices if 1 <= len(ticks) <= most), choices[0][:most])


def toy(run: Sign, title: str) -> Figure:
    """The shares of pulls of arms with constant rewards, one bar per policy."""
    shares = run.toy.shares
    note = f"{ALPHA} = {run.toy.alpha:g}; the darker a bar, the higher the arm's reward"
    with figures.page(title, [note], 1.75 + 0.5 * len(shares)) as (figure, top):
        axes = figures.add_axes(figure, top, left=0.3 + figures.WIDTH * figures.widest(figure, [*shares]))
        for row, (label, parts) in enumerate(shares.items()):
            color, start = np.array(to_rgb(policy_style(run.contenders[label].policy).color)), 0.0
            for rank, (pay, share) in enumerate(zip(run.toy.arms, parts, strict=True)):
                shade = tuple((1.0 - (1.0 - 0.4 * rank) * (1.0 - color)).tolist())
                axes.barh(row, 100.0 * share, left=start, height=0.62, color=shade, edgecolor="white", linewidth=1.0)
                if share > 0.12:
                    ink = "white" if np.dot(shade, (0.299, 0.587, 0.114)) < 0.55 else INK
                    text, middle = f"reward {pay:g}: {percent(share, 2)}", start + 50.0 * share
                    axes.text(middle, row, text, ha="center", va="center", fontsize=LABEL_SIZE, color=ink)
                start += 100.0 * share
        axes.set_yticks(range(len(shares)), [*shares])
        axes.set(xlim=(0, 100), ylim=(len(shares) - 0.5, -0.5), xlabel="share of all pulls (%)")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
    return figure


def learned(experiments: Experiments, title: str) -> Figure:
    """The share of the gap closed by every policy of A and B."""
    runs = {"A": experiments.A, "B": experiments.B}
    rows = [each for run in runs.values() for each in run.outcomes]
    notes = ("the share of the gap between uniform play and the optimum in hindsight", seeds_note(*runs.values()))
    edge = min(MOST_LEARNED, max(1.1, *(each.learned.value + 0.1 for each in rows if each.learned is not None)))
    with figures.page(title, notes, 1.6 + 0.26 * (len(rows) + len(runs))) as (figure, top):
        left = 0.35 + figures.WIDTH * figures.widest(figure, [each.label for each in rows])
        axes = figures.add_axes(figure, top - 0.18, labels=[_share(each) for each in rows], left=left)
        row, places = 0, []
        for key, run in runs.items():
            axes.text(LEAST_LEARNED, row, f"{key}: {run.title}", fontsize=LABEL_SIZE, fontweight="bold", va="center")
            for each in run.outcomes:
                row += 1
                places.append(row)
                if each.learned is not None:
                    figures.dot(axes, row, each.learned, each.policy, (LEAST_LEARNED, edge), 7.0, each.label)
                axes.text(edge + 0.15, row, _share(each), va="center", fontsize=LABEL_SIZE)
            row += 1
        axes.set_yticks(places, [each.label for each in rows], fontsize=LABEL_SIZE)
        axes.set(xlim=(LEAST_LEARNED - 0.06, edge + 0.02), ylim=(row - 0.4, -0.6), xlabel="share of the gap closed")
        for x, word in ((0.0, "uniform play"), (1.0, "optimum")):
            axes.text(x, -0.75, word, ha="center", va="bottom", fontsize=LABEL_SIZE)
        figures.gap_axis(axes, [tick for tick in (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0) if tick <= edge])
    return figure


def _share(each: Outcome) -> str:
    found = each.learned
    if found is None:
        return NO_GAP
    return " ".join(filter(None, rounded(found, digits=3, unit="%")))


# the arena

SEEN = {"bandit": "bandit feedback", "full": "full information"}
ARENA_RANGE = (-0.5, 2.0)  # shares of the gap closed beyond these are arrows at the edge
ROW = 0.3  # inches
LEGEND_COLUMNS = 4


def arena(matches: Sequence[Match], title: str, alphas: Sequence[float] = (), remark: str = "") -> Figure:
    """The share of the gap closed by every policy in every scenario, a panel for each alpha and feedback."""
    scores = matches[0].scores
    alphas = alphas or list(dict.fromkeys(score.alpha for score in scores))
    seen = [feedback for feedback in SEEN if matches[0].of(feedback, alphas[0])]
    names = [each.title for each in matches]
    notes = (
        "the share of the gap between uniform play (0%) and the best fixed policy in hindsight (100%); "
        "arrows: beyond the edge",
        remark,
        _seeds_note(matches),
    )
    labels = {score.policy: score.label for score in scores}
    panel, head, below, legend = ROW * len(matches), 0.35, 0.3, 0.05 + 0.2 * math.ceil(len(labels) / LEGEND_COLUMNS)
    height = 0.9 + legend + (0.17 if remark else 0.0) + len(alphas) * (panel + head + below)
    with figures.page(title, notes, height) as (figure, top):
        left = 0.3 + figures.WIDTH * figures.widest(figure, names)
        width = (figures.WIDTH - left) / len(seen)
        _legend(figure, labels, top)
        top -= legend
        panel = top / len(alphas) - head - below  # less than ROW for each row if the notes took more lines
        for alpha in alphas:
            bottom = top - head - panel
            for column, feedback in enumerate(seen):
                start, wide = (left + column * width) / figures.WIDTH, (width - 0.25) / figures.WIDTH
                axes = figure.add_axes((start, bottom / height, wide, panel / height))
                rows = [each.of(feedback, alpha) for each in matches]
                _panel(axes, rows)
                axes.set_title(f"{ALPHA} = {alpha:g}, {SEEN[feedback]}", fontsize=LABEL_SIZE)
                axes.set_yticks(range(len(names)), names if column == 0 else [""] * len(names), fontsize=LABEL_SIZE)
            top = bottom - below
    return figure


def tuned(matches: Sequence[Match], title: str, alphas: Sequence[float] = ()) -> Figure:
    """The share of the gap closed by the adaptive policy and by rivals with the best of their settings."""
    remark = "rivals with the best of their settings in every row, tuned in hindsight on these very seeds"
    return arena([each.beside_tuned() for each in matches], title, alphas, remark)


def _seeds_note(matches: Sequence[Match]) -> str:
    """What the bands are, with the usual number of seeds and the scenarios that have another; empty for one seed."""
    counts = Counter(len(each.seeds) for each in matches)
    usual = max(counts, key=lambda n: counts[n])
    others = "".join(f"; {each.title}: {len(each.seeds)}" for each in matches if len(each.seeds) != usual)
    return f"bands: 95% confidence over {usual} seeds{others}" if usual > 1 else ""


def _panel(axes: Axes, rows: list[list[Score]]) -> None:
    low, high = ARENA_RANGE
    for row, scores in enumerate(rows):
        for place, score in enumerate(scores):
            at = row + 0.8 * ((place + 0.5) / len(scores) - 0.5)
            if score.gap_closed is not None:
                figures.dot(axes, at, score.gap_closed, score.policy, ARENA_RANGE, 3.6, score.label)
        if all(score.gap_closed is None for score in scores):
            axes.text(0.02, row, NO_GAP, va="center", fontsize=LABEL_SIZE)
        axes.axhline(row + 0.5, color="#e6e6e6", linewidth=0.8, zorder=0)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlim(low - 0.05, high + 0.05)
    axes.grid(axis="x")
    figures.gap_axis(axes, (-0.5, 0.0, 0.5, 1.0, 1.5))
    axes.tick_params(axis="x", labelsize=LABEL_SIZE)


def _legend(figure: Figure, labels: Mapping[str, str], top: float) -> None:
    """Every policy once, with its marker, below the notes."""
    styles = [policy_style(policy) for policy in labels]
    marks = [
        Line2D([], [], color=style.color, marker=style.marker, markersize=4.5, linestyle="none") for style in styles
    ]
    place = (0.1 / figures.WIDTH, (top + 0.2) / figure.get_figheight())
    options = {"frameon": False, "fontsize": LABEL_SIZE, "handletextpad": 0.1, "columnspacing": 1.0}
    figure.legend(marks, list(labels.values()), loc="upper left", bbox_to_anchor=place, ncols=LEGEND_COLUMNS, **options)
