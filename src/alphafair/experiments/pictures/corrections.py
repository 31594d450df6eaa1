"""What the corrections to the paper's text and code change: the bandit's sign, the step size, the reading of phi'."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from alphafair import figures
from alphafair.experiments.pictures import canvas
from alphafair.experiments.pictures.canvas import Line, Results, listed, number, percent, with_band
from alphafair.figures import ALPHA, INK, LABEL_SIZE, Look, look

READINGS: dict[str, tuple[str, canvas.Dashes]] = {
    "before": ("o", "-"),
    "next_visit": ("s", (0, (4.0, 1.5))),
    "after": ("^", (0, (1.5, 1.2))),
}


def toy(experiment: Results, title: str) -> Figure:
    """Pull shares of three arms that pay 0.9, 0.5 and 0.1: a bar a policy."""
    arms = [float(pay) for pay in experiment["toy"]["arms"]]
    shares = _toy_shares(experiment)
    with figures.style():
        figure, top = canvas.page(
            title,
            f"{ALPHA} = {experiment['toy'].get('alpha', 0.0):g}; the darker, the more an arm pays",
            1.75 + 0.5 * len(shares),
        )
        axes = canvas.place(figure, top, left=0.3 + canvas.WIDTH * figures.widest(figure, [*shares]))
        for row, (label, parts) in enumerate(shares.items()):
            colour = look(str(experiment["contenders"].get(label, {}).get("policy", label))).colour
            start = 0.0
            for rank, (pay, share) in enumerate(zip(arms, parts, strict=True)):
                tint = 1.0 - 0.4 * rank
                shade = tuple(1.0 - tint * (1.0 - part) for part in to_rgb(colour))
                axes.barh(row, 100.0 * share, left=start, height=0.62, color=shade, edgecolor="white", linewidth=1.0)
                if share > 0.12:
                    dark = 0.299 * shade[0] + 0.587 * shade[1] + 0.114 * shade[2] < 0.55
                    text = f"pays {pay:g}: {percent(share, 2)}"
                    axes.text(
                        start + 50.0 * share,
                        row,
                        text,
                        ha="center",
                        va="center",
                        fontsize=LABEL_SIZE,
                        color="white" if dark else INK,
                    )
                start += 100.0 * share
        axes.set_yticks(range(len(shares)), [*shares])
        axes.set_ylim(len(shares) - 0.5, -0.5)
        axes.set_xlim(0, 100)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.set_xlabel("share of all pulls (%)")
    return figure


def _toy_shares(experiment: Results) -> dict[str, list[float]]:
    """In the order of the other pictures."""
    shares = experiment["toy"]["shares"]
    known = [label for label in canvas.ordered(experiment["contenders"]) if label in shares]
    return {label: [float(share) for share in shares[label]] for label in [*known, *sorted(set(shares) - set(known))]}


def toy_sentence(experiment: Results) -> str:
    arms = [float(pay) for pay in experiment["toy"]["arms"]]
    best, worst = int(np.argmax(arms)), int(np.argmin(arms))
    parts = [
        f"{label} pulls the best arm in {percent(shares[best])} of the rounds and the worst in {percent(shares[worst])}"
        for label, shares in _toy_shares(experiment).items()
    ]
    return canvas.capital(f"{'; '.join(parts)}.")


def sign(experiment: Results, title: str) -> Figure:
    """Real data: alpha-performance above or below uniform play's."""
    curves, reference = _against_uniform(experiment)
    note = canvas.settings_note(experiment, canvas.bands_note(experiment["contenders"]), "each sees one reward")
    with figures.style():
        figure, top = canvas.page(title, note)
        axes = canvas.place(figure, top, labels=[curve.label for curve in curves])
        canvas.draw(axes, experiment["rounds"], curves)
        canvas.over_rounds(axes, float(experiment["rounds"][-1]))
        axes.axhline(0.0, color=INK, linewidth=0.8, zorder=1)
        axes.margins(y=0.1)
        axes.set_ylabel(f"{ALPHA}-performance" + (f" above {reference}'s (utility)" if reference else " (utility)"))
        canvas.name_lines(axes, curves)
    return figure


def _against_uniform(experiment: Results) -> tuple[list[Line], str]:
    """The curves less uniform play's mean, and the name of that; as they are if it takes no part."""
    curves = canvas.lines(experiment, "alpha_performance")
    uniform = [curve for curve in curves if curve.look == look("uniform")]
    if not uniform:
        return curves, ""
    level = uniform[0].mean
    return [
        curve._replace(mean=curve.mean - level, low=curve.low - level, high=curve.high - level) for curve in curves
    ], uniform[0].label


def sign_sentence(experiment: Results) -> str:
    curves, reference = _against_uniform(experiment)
    level = next((curve for curve in curves if curve.label == reference), None)
    parts = []
    for curve in canvas.ranked(curves):
        if level is None:
            parts.append(f"{curve.label} ends at {with_band(curve)}")
        elif curve is not level:
            gap = experiment["contenders"][curve.label]["gap_closed"]
            doubt = ", which these seeds do not tell apart" if gap["low"] <= 0.0 <= gap["high"] else ""
            where = "above" if curve.end > 0.0 else "below"
            parts.append(f"{curve.label} ends {number(abs(curve.end), 3)} {where} {reference}{doubt}")
    best = canvas.optimum(experiment).end
    if reference:
        best -= float(experiment["contenders"][reference]["alpha_performance"]["mean"][-1])
    where = f"{number(best, 3)} above {reference}" if reference else f"at {number(best)}"
    return canvas.capital(f"{'; '.join(parts)}. The optimum is {where}.")


def step(experiment: Results, title: str) -> Figure:
    """Standard regret over the rounds: a small picture."""
    curves = canvas.lines(experiment, "standard_regret")
    with figures.style():
        figure, top = canvas.page(title, canvas.settings_note(experiment, "each sees all rewards"), 3.0)
        axes = canvas.place(figure, top, labels=[curve.label for curve in curves])
        canvas.draw(axes, experiment["rounds"], curves)
        canvas.over_rounds(axes, float(experiment["rounds"][-1]))
        axes.axhline(0.0, color=INK, linewidth=0.8, zorder=1)
        axes.margins(y=0.1)
        axes.set_ylabel("standard regret (utility)")
        canvas.name_lines(axes, curves)
    return figure


def step_sentence(experiment: Results) -> str:
    curves = canvas.ranked(canvas.lines(experiment, "standard_regret"), highest_first=False)
    ends = [f"{curve.label} at {number(curve.end, 3)}" for curve in curves]
    return f"Standard regret ends lowest for {ends[0]}; then {listed(ends[1:])}."


def readings(experiment: Results, title: str) -> Figure:
    """Differences to the default reading, in alpha-performance and in Jain's index."""
    panels = (
        ("alpha_performance", f"{ALPHA}-performance\n(difference, utility)"),
        ("jain_index", "Jain's index\n(difference)"),
    )
    labels = [curve.label for curve in _differences(experiment, "jain_index")]
    end = experiment["contenders"]["before"]["alpha_performance"]["mean"][-1]
    note = canvas.settings_note(
        experiment, f"differences to reading it before the round's reward, which ends at {number(end)}"
    )
    with figures.style():
        figure, top = canvas.page(title, note, 5.0)
        step = (top + 0.1 - canvas.BOTTOM) / 2.0
        for row, (series, name) in enumerate(panels):
            bottom = canvas.BOTTOM + step * (1 - row)
            axes = canvas.place(figure, bottom + step - 0.22, bottom, labels=labels, left=1.2)
            curves = _differences(experiment, series)
            canvas.draw(axes, experiment["rounds"], curves)
            canvas.over_rounds(axes, float(experiment["rounds"][-1]))
            axes.margins(y=0.15)
            axes.set_ylabel(name)
            if row == 0:
                axes.set_xlabel("")
                axes.tick_params(labelbottom=False)
            canvas.name_lines(axes, curves)
    return figure


def _differences(experiment: Results, series: str) -> list[Line]:
    base = canvas.band(experiment["contenders"]["before"][series])[0]
    found = []
    for word, (marker, dashes) in READINGS.items():
        if word in experiment["contenders"]:
            mean = canvas.band(experiment["contenders"][word][series])[0] - base
            found.append(
                Line(word.replace("_", " "), Look(look("alpha-fair").colour, marker), dashes, mean, mean, mean)
            )
    return found


def readings_sentence(experiment: Results) -> str:
    ends, largest = [], (0.0, "", "")
    for series, name in (("alpha_performance", f"{ALPHA}-performance"), ("jain_index", "Jain's index")):
        base = canvas.band(experiment["contenders"]["before"][series])[0]
        for curve in _differences(experiment, series)[1:]:
            largest = max(largest, (float(np.abs(curve.mean / base).max()), curve.label, name))
            if series == "alpha_performance":
                ends.append(f"{percent(curve.end / base[-1], 2)} ({curve.label})")
    size, label, name = largest
    return (
        f"At the end the {ALPHA}-performance differs from that of the default by {listed(ends)}; the largest "
        f"difference at any recorded round, in either measure, is {percent(size, 2)} ({label}, {name})."
    )
