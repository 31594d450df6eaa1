"""Tables of the arena, from docs/background/data/arena.json: the results.json of `alphafair arena`."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache

from alphafair.formatting import fixed, number, percent
from alphafair.lab.arena import LIN_UCB, TUNED
from alphafair.lab.claims import verdict
from alphafair.lab.results import ArenaResults, Match, Score, Tuned
from alphafair.values import Interval
from tests.read_results import as_value
from tools.site import DATA

RESULTS = DATA / "arena.json"
STEEP_POLICIES = ("alpha-fair-adaptive", "alpha-fair-bandit", "optimistic-frank-wolfe", "alpha-fair")
DYING_POLICIES = (*STEEP_POLICIES, "uniform")


@cache
def results() -> ArenaResults:
    found: ArenaResults = as_value(ArenaResults, json.loads(RESULTS.read_text(encoding="utf-8")))
    return found


def table(matches: Sequence[Match], feedback: str, alpha: float) -> str:
    """A row per scenario: percent of the gap closed, half of its interval, and in brackets the alpha-performance."""
    labels = [score.label for score in matches[0].of(feedback, alpha)]
    rows = [f"| scenario | {' | '.join(labels)} |", f"|---|{'---:|' * len(labels)}"]
    for match in matches:
        scores = match.of(feedback, alpha)
        best = max((score.gap_closed.value for score in scores if score.gap_closed), default=0.0)
        rows.append(f"| {match.title} | {' | '.join(cell(score, best) for score in scores)} |")
    return "\n".join(rows)


def cell(score: Score, best: float) -> str:
    """The best share of a row is in bold."""
    if score.gap_closed is None:
        return f"no gap ({number(score.shown.value)})"
    share, half = 100.0 * score.gap_closed.value, 50.0 * (score.gap_closed.high - score.gap_closed.low)
    text = fixed(share, 1)
    bold = "**" if score.gap_closed.value == best else ""
    spread = f" \u00b1 {half:.1f}" if half >= 0.05 else ""
    return f"{bold}{text}{bold}{spread} ({number(score.shown.value)})"


def tuned_table(matches: Sequence[Match], alpha: float) -> str:
    """A row per scenario: the adaptive policy, the best setting of each rival in brackets, and the lead over the best.

    A lead whose interval is on one side of 0 is bold.
    """
    rivals = [f"{each.label} (best of {each.n_settings})" for each in matches[0].tuned_at(alpha)]
    labels = ["scenario", "adaptive", *rivals, "adaptive is ahead of the best by"]
    rows = [f"| {' | '.join(labels)} |", f"|---|{'---:|' * (len(labels) - 1)}"]
    for match in matches:
        beside = [match.of("bandit", alpha)[0], *match.tuned_at(alpha)]
        cells = [share(each) + (f" ({each.setting})" if isinstance(each, Tuned) else "") for each in beside]
        best = match.best_tuned(alpha)
        lead = None if best is None else best.lead
        rows.append(f"| {match.title} | {' | '.join([*cells, points(lead)])} |")
    return "\n".join(rows)


def edge_table(found: ArenaResults) -> str:
    """The scenarios whose best rival of all has its least or greatest width, scale or epsilon, by rival and setting.

    There a larger grid may have a better setting. Discounts and priors, which have two values, are always at an edge.
    """
    titles: dict[tuple[str, str], dict[str, list[str]]] = {}
    edges = {label: (min(values), max(values)) for label, values in grids().items()}
    for match in (*found.matches, *found.with_features, *found.steep):
        for alpha in match.alphas:
            best = match.best_tuned(alpha)
            if best is not None and (value := first_number(best.setting)) in edges[best.label]:
                rows = titles.setdefault((best.label, f"{value:g}"), {})
                rows.setdefault(match.title, []).append(f"{alpha:g}")
    rows = ["| rival | setting | best of all rivals on |", "|---|---:|---|"]
    for (label, value), where in sorted(titles.items()):
        cells = "; ".join(f"{title} (\u03b1 = {', '.join(alphas)})" for title, alphas in where.items())
        rows.append(f"| {label} | {value} | {cells} |")
    return "\n".join(rows)


def grids() -> dict[str, list[float]]:
    """The values of the first setting of every rival."""
    found: dict[str, list[float]] = {}
    for contender in (*TUNED, *LIN_UCB):
        label, setting = contender.label.split(": ")
        found.setdefault(label, []).append(first_number(setting))
    return found


def first_number(setting: str) -> float:
    r"""The first number of a setting in a table.

    >>> first_number("\u03b5 0.03, prior 2"), first_number("0.1, 0.999")
    (0.03, 0.1)
    """
    return float(re.findall(r"[\d.]+", setting)[0])


def share(score: Score) -> str:
    """Percent of the gap closed and half of its interval."""
    if score.gap_closed is None:
        return "no gap"
    half = 50.0 * (score.gap_closed.high - score.gap_closed.low)
    return fixed(100.0 * score.gap_closed.value, 1) + (f" \u00b1 {half:.1f}" if half >= 0.05 else "")


def points(lead: Interval | None) -> str:
    if lead is None:
        return ""
    text = f"{fixed(100.0 * lead.value, 1)} \u00b1 {50.0 * (lead.high - lead.low):.1f}"
    return f"**{text}**" if lead.low > 0.0 or lead.high < 0.0 else text


def steep_table(matches: Sequence[Match]) -> str:
    """A row per scenario and alpha: percent of the gap in welfare closed, and in brackets the ratio of welfares."""
    labels = [column_label(score) for score in shown(matches[0], matches[0].alphas[0], STEEP_POLICIES)]
    rows = [f"| scenario | \u03b1 | {' | '.join(labels)} |", f"|---|---:|{'---:|' * len(labels)}"]
    for match in matches:
        for alpha in match.alphas:
            scores = shown(match, alpha, STEEP_POLICIES)
            cells = [f"{share(each)} ({each.welfare_ratio.value:.3f})" for each in scores if each.welfare_ratio]
            rows.append(f"| {match.title} | {alpha:g} | {' | '.join(cells)} |")
    return "\n".join(rows)


def dying_table(matches: Sequence[Match]) -> str:
    """A row per alpha: the ratio of welfares of each policy, with half of its interval, beside the bound."""
    labels = [column_label(score) for score in shown(matches[0], matches[0].alphas[0], DYING_POLICIES)]
    rows = [f"| \u03b1 | no policy below | {' | '.join(labels)} |", f"|---:|---:|{'---:|' * len(labels)}"]
    for match in matches:
        (alpha,) = match.alphas
        cells = []
        for score in shown(match, alpha, DYING_POLICIES):
            assert score.welfare_ratio is not None
            half = (score.welfare_ratio.high - score.welfare_ratio.low) / 2.0
            cells.append(f"{score.welfare_ratio.value:.3f}" + (f" \u00b1 {half:.3f}" if half >= 5e-4 else ""))
        rows.append(f"| {alpha:g} | {match.bound:.3f} | {' | '.join(cells)} |")
    return "\n".join(rows)


def shown(match: Match, alpha: float, policies: Sequence[str]) -> list[Score]:
    """The scores of these policies, those with bandit feedback first."""
    return [score for kind in ("bandit", "full") for score in match.of(kind, alpha) if score.policy in policies]


def column_label(score: Score) -> str:
    return f"{score.label}, full" if score.feedback == "full" else score.label


def promises(matches: Sequence[Match]) -> str:
    """A row per promise: how far above its limit the adaptive policy is, in percent of the gap, and the verdict."""
    rows = ["| scenario | adaptive is | by | interval | |", "|---|---|---:|---|---|"]
    for match in matches:
        for what, lead in match.promises.items():
            value, low, high = map(percent, lead)
            rows.append(f"| {match.title} | {what} | {value} | {low} to {high} | {verdict([lead])} |")
    return "\n".join(rows)


def block(found: ArenaResults, what: str) -> str:
    """The table that a page asks for, such as "features bandit 0.5"."""
    words = what.split()
    part = {"features": found.with_features, "steep": found.steep, "dying": found.dying}.get(words[0], found.matches)
    if words == ["promises"]:
        return promises(part)
    if words == ["edges"]:
        return edge_table(found)
    if words[0] in ("steep", "dying") and len(words) == 1:
        return steep_table(part) if words[0] == "steep" else dying_table(part)
    kind, alpha = words[-2], float(words[-1])
    return tuned_table(part, alpha) if kind == "tuned" else table(part, kind, alpha)
