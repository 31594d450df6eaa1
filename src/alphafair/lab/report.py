"""The report and the arena's page: one HTML page that needs no other file, results.json, and figures in three formats.

A page is a value made of sections, and a section of paragraphs, tables and figures. Everything that a page says is
decided here and in `captions`; the template only places it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from markupsafe import Markup
from matplotlib.figure import Figure

from alphafair import figures
from alphafair.figures import policy_style
from alphafair.formatting import ALPHA, DASH, counted, fixed, listed, number, percent, rounded
from alphafair.lab import arena, captions, charts, paper
from alphafair.lab.claims import FAILS, HOLDS, OPEN, PAPER, undecidable, verdict
from alphafair.lab.measure import COMPARED
from alphafair.lab.results import ArenaResults, Experiments, Match, Outcome, OverTime, Results, as_json
from alphafair.lab.runner import Progress, no_progress
from alphafair.metrics import METRICS
from alphafair.pages import atomic_write, render, save_figure
from alphafair.values import Interval

# what a page is made of


@dataclass(frozen=True)
class Paragraph:
    macro: ClassVar[str] = "paragraph"
    text: str
    style: str = ""  # a class of report.css: "notice", "caption"


@dataclass(frozen=True)
class Code:
    macro: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True)
class Column:
    title: str
    is_number: bool = False
    is_labeled: bool = True  # on a narrow screen, where cells are below each other
    color: str = ""  # of a dot before the title

    @property
    def lines(self) -> list[str]:
        """The title of a column of numbers is broken into words, and stands below its dot."""
        return ["", *self.title.split(" ")][not self.color :] if self.is_number else [self.title]

    @property
    def style(self) -> str:
        return "n" if self.is_number else ""


@dataclass(frozen=True)
class Cell:
    text: str
    notes: tuple[str, ...] = ()  # in small print
    style: str = ""  # a class of report.css; by default that of its column
    color: str = ""  # of a dot before the text


@dataclass(frozen=True)
class Row:
    cells: tuple[Cell, ...]
    style: str = ""


@dataclass(frozen=True)
class Table:
    macro: ClassVar[str] = "table"
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    style: str = ""

    @property
    def classes(self) -> str:
        return f"stacked {self.style}".rstrip()

    def pairs(self, row: Row) -> list[tuple[Column, Cell]]:
        """The cells of a row after the first, with their columns."""
        return list(zip(self.columns[1:], row.cells[1:], strict=True))


@dataclass(frozen=True)
class Drawing:
    """A figure on a page: its image element and its caption."""

    macro: ClassVar[str] = "drawing"
    name: str
    image: Markup
    caption: str
    number: str = ""


Block = Paragraph | Code | Table | Drawing


@dataclass(frozen=True)
class Section:
    name: str  # its anchor
    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Tile:
    """A headline: a number and what it is."""

    value: str
    text: str


@dataclass(frozen=True)
class Page:
    title: str
    heading: str
    lead: str
    introduction: tuple[Paragraph, ...]
    sections: tuple[Section, ...]
    tiles: tuple[Tile, ...] = ()

    @property
    def contents(self) -> dict[str, str]:
        """The headings by their anchors."""
        return {"headlines": "Headlines", **{section.name: section.heading for section in self.sections}}


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report. `of` names the results that `draw` and `caption` take; empty: all experiments."""

    name: str
    title: str
    section: str
    of: str
    draw: Callable[[Any, str], Figure]
    caption: Callable[[Any], str]

    def shown(self, experiments: Experiments) -> Any:
        return getattr(experiments, self.of) if self.of else experiments


_COMPARED: dict[str, tuple[str, Callable[..., Figure], Callable[[Any], str]]] = {  # of A, and of B
    metric: (METRICS[metric].headline(), partial(charts.over_time, metric=metric), getattr(captions, metric))
    for metric in COMPARED
}
_COMPARED["who_gets_what"] = ("Who gets what, arm by arm", charts.who_gets_what, captions.who_gets_what)
FIGURES = (  # in the order of the page
    *(
        ReportFigure(f"{key}-{name.replace('_', '-')}", f"{title} ({setting})", key, key, draw, caption)
        for key, setting in (("A", "full information"), ("B", "bandit feedback"))
        for name, (title, draw, caption) in _COMPARED.items()
    ),
    *(
        ReportFigure(
            f"C-{metric.replace('_', '-')}",
            title,
            "C",
            "C",
            partial(charts.over_alpha, metric=metric),
            partial(captions.over_alpha, metric=metric),
        )
        for metric, (title, _) in charts.OVER_ALPHA.items()
    ),
    ReportFigure("price-of-fairness", "The price of fairness", "price", "C", charts.price, captions.price),
    ReportFigure("how-much-was-learned", "How much was learned", "learned", "", charts.learned, captions.learned),
    ReportFigure(
        "sign-toy",
        "Which arm is pulled: one context, three arms, no fairness",
        "corrections",
        "sign",
        charts.toy,
        captions.toy,
    ),
    ReportFigure(
        "sign-ratings",
        "The sign of the bandit reward, on the ratings",
        "corrections",
        "sign",
        charts.sign,
        captions.sign,
    ),
    ReportFigure(
        "step",
        "The step size: sums of squared gradient norms, or of norms",
        "corrections",
        "step",
        charts.step,
        captions.step,
    ),
    ReportFigure(
        "readings",
        "Three readings of when the slope \N{GREEK SMALL LETTER PHI}\N{PRIME} is taken",
        "corrections",
        "readings",
        charts.readings,
        captions.readings,
    ),
    ReportFigure(
        "floor-sweep",
        f"FairCB along its pull floor, against {ALPHA}-FairCB, which has none",
        "rivals",
        "floor_sweep",
        charts.floor_sweep,
        captions.floor_sweep,
    ),
    ReportFigure(
        "impossibility",
        "Where no online policy can match the optimum",
        "rivals",
        "impossibility",
        charts.impossibility,
        captions.impossibility,
    ),
    ReportFigure("gap-closed", "The arena: share of the gap closed", "arena", "arena", charts.arena, captions.arena),
)
ARENA_FIGURE = FIGURES[-1]
TUNED_FIGURE = ReportFigure(
    "tuned", "The adaptive policy and rivals tuned in hindsight", "tuned", "arena", charts.tuned, captions.tuned
)
ARENA_FIGURES = (ARENA_FIGURE, TUNED_FIGURE)
SECTIONS = {
    "claims": "Claims",
    "A": "A: Full information",
    "B": "B: Bandit feedback",
    "C": f"C: From efficiency to equality, over {ALPHA}",
    "price": "The price of fairness",
    "learned": "How much was learned",
    "corrections": "Corrections to the published code",
    "rivals": "Pull floors, and a limit for every policy",
    "arena": "Beyond the paper: the arena",
    "origin": "How this page was made",
}


# tables


def interval_cell(found: Interval, digits: int, unit: str = "", *more: str) -> Cell:
    """An estimate with its spread in small print."""
    text, spread = rounded(found, digits, unit)
    return Cell(text, tuple(filter(None, (spread, *more))))


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str] = ()) -> Table:
    """A table of text; `numbers` are the headings of columns of numbers."""
    columns = tuple(Column(heading, is_number=heading in numbers) for heading in headings)
    return Table(columns, tuple(Row(tuple(map(Cell, row))) for row in rows))


def code(text: str) -> Markup:
    return Markup("<code>{}</code>").format(text)


def claims_table(results: Results) -> Table:
    marks = {HOLDS: ("holds", "\N{CHECK MARK}"), FAILS: ("fails", "\N{BALLOT X}"), OPEN: ("open", "?")}
    rows = []
    for claim in results.claims:
        style, mark = marks[claim.verdict]
        source = claim.source + ("" if claim.independent else ", not counted")
        source += f"; {claim.data} instance" if claim.data != results.data.name else ""
        verdict_cell = Cell(f"{mark} {claim.verdict}", style=f"verdict {style}")
        rows.append(Row((Cell(claim.id), verdict_cell, *map(Cell, (claim.claim, claim.measured, source)))))
    columns = (
        Column(""),
        Column("verdict", is_labeled=False),
        Column("claim", is_labeled=False),
        Column("measured"),
        Column("source"),
    )
    return Table(columns, tuple(rows), "claims")


NUMBERS = {  # significant digits
    "alpha_performance": 4,
    "ratio": 5,
    "standard_regret": 3,
    "approximate_regret": 4,
    "jain_index": 3,
    "average_reward": 4,
}


def numbers(run: OverTime) -> tuple[Paragraph, Table]:
    """The final values of every contender, and of the optimum."""
    caption = (
        f"After {run.n_rounds:,} rounds, {ALPHA} = {run.alpha:g}; \N{PLUS-MINUS SIGN} is half of a 95% confidence "
        "interval, in brackets one that is cut off at the range of the metric. The optimum in hindsight is certified "
        f"to within {number(run.certificate, 2)}."
    )
    if any(each.certificates for each in run.outcomes):
        caption += (
            " After \N{LESS-THAN OR EQUAL TO} is the certificate of a run with full information: an upper bound "
            "computed without a solver from what the policy saw and earned."
        )
    if vacuous := [each.label for each in run.outcomes if each.vacuous]:
        caption += (
            f" The certificates of {listed(vacuous)} are vacuous: no division of all available reward is worth as much."
        )
    rows = []
    for each in run.outcomes:
        cells = [Cell(each.label, (f"mean of {each.n_seeds:,} seeds",) if each.n_seeds > 1 else (), "", _color(each))]
        for metric, digits in NUMBERS.items():
            bound = (each.certificates or {}).get(metric)
            more = () if bound is None else (f"\N{LESS-THAN OR EQUAL TO} {number(bound, digits)}",)
            cells.append(interval_cell(getattr(each, metric).last, digits, "", *more))
        cells.append(Cell("no gap") if each.learned is None else interval_cell(each.learned, 3, "%"))
        rows.append(Row(tuple(cells)))
    best = (number(run.best), "1", "0", number((1.0 - run.factor) * run.best), DASH, DASH, "100%")
    rows.append(Row(tuple(map(Cell, ("optimum", *best))), "optimum"))
    titles = [*(METRICS[metric].label for metric in NUMBERS), "gap closed"]
    columns = (Column(""), *(Column(title, is_number=True) for title in titles))
    return Paragraph(caption, "caption"), Table(columns, tuple(rows), "numbers")


def _color(found: Any) -> str:
    return policy_style(found.policy).color


def corrections_table(experiments: Experiments) -> Table:
    """Every difference between the published code and this package, and what it changes."""
    a, sign, sweep, step = experiments.A, experiments.sign, experiments.floor_sweep, experiments.step
    readings, toy = experiments.readings.contenders, sign.toy
    ours, theirs = paper.ALPHA_FAIR_BANDIT.label, paper.PUBLISHED_SIGN.label
    at = max(k for k, floor in enumerate(sweep.floors) if floor <= 0.98)  # the published floor, or the next below
    floor, swept = f"{sweep.floors[at]:g}/N", sweep.fair_cb["bandit"]["alpha_performance"].value[at]
    level = sign.of("uniform").alpha_performance.last.value

    def lead(label: str) -> str:
        return captions.side(sign.contenders[label].alpha_performance.last.value - level)

    def score(each: Outcome, metric: str = "alpha_performance", digits: int = 4) -> str:
        return number(getattr(each, metric).last.value, digits)

    def closed(run: OverTime) -> str:
        found = run.of("alpha-fair").gap_closed
        return "none (there is no gap to close)" if found is None else percent(found.value)

    fair_cb = {feedback: score(a.of("fair-cb", feedback)) for feedback in ("bandit", "full")}
    rows = [
        (
            "sign of the bandit reward",
            "rewards are passed as losses",
            "negative rewards are passed as losses",
            f"The worst of {len(toy.arms)} arms is pulled in {percent(toy.shares[theirs][-1])} of the rounds, here in "
            f"{percent(toy.shares[ours][-1])}. On the ratings {ALPHA}-performance ends {lead(theirs)} that of uniform "
            f"play, here {lead(ours)}.",
        ),
        (
            "step size",
            "sums norms of gradients",
            "sums their squares",
            f"Standard regret ends at {score(step.of('published-step'), 'standard_regret', 3)}, here at "
            f"{score(step.of('alpha-fair'), 'standard_regret', 3)}.",
        ),
        (
            "when the slope \N{GREEK SMALL LETTER PHI}\N{PRIME} is read",
            "after the round's reward is added",
            "before, as the proof requires",
            f"{ALPHA}-performance ends at {score(readings['after'], digits=5)}, here at "
            f"{score(readings['before'], digits=5)}.",
        ),
        (
            "benchmark",
            "a dot product instead of an elementwise product over arms",
            "the optimum, with a certificate",
            "Not measured: what it finds is not the optimum. Here the optimum is certified to within "
            f"{number(a.certificate, 2)}.",
        ),
        (
            "settings",
            "rewards from 0.001, floor 0.98/N, users with exactly 1,000 ratings",
            "the paper's: rewards from 0.2, floor 0.5/N, the first 5,000 rows",
            f"With rewards from {number(experiments.delta.settings['reward_floor'], 1)} {ALPHA}-FairCB closes "
            f"{closed(experiments.delta)} of the gap between uniform play and the optimum, here {closed(a)}. FairCB "
            f"ends at {number(swept)} with a floor of {floor}, here at {fair_cb['bandit']}. The choice of users is not "
            "measured.",
        ),
        (
            "FairCB with full information",
            "sees the reward of its own arm only",
            "both variants, each under its own name",
            f"FairCB ends at {fair_cb['bandit']} with bandit feedback and at {fair_cb['full']} with full information.",
        ),
        (
            "order of arms, ties in time",
            "a set, an unstable sort",
            "sorted names, a stable sort",
            "Not measured: the published results may differ from run to run; here every run gives the same bytes.",
        ),
        (
            "FairCB along its floor",
            "the maximum over runs",
            "mean and confidence interval",
            f"At a floor of {floor} the maximum of {len(sweep.seeds)} seeds is {number(sweep.maxima[at], 5)}, the mean "
            f"{number(swept, 5)}; the mean of {ours} is "
            f"{number(sweep.alpha_fair['bandit']['alpha_performance'].value, 5)}.",
        ),
    ]
    return text_table(("what", "published code", "here", "what it changes"), rows)


def shares_table(matches: Sequence[Match], feedback: str, alpha: float) -> Table:
    """The share of the gap that each contender closes in each scenario, and its alpha-performance or welfare."""
    scores = matches[0].of(feedback, alpha)
    rows = []
    for match in matches:
        cells = [Cell(match.title)]
        for score in match.of(feedback, alpha):
            performance = f"({number(score.shown.value)})"
            if score.gap_closed is None:
                cells.append(Cell("no gap", (performance,)))
            else:
                cells.append(interval_cell(score.gap_closed, 3, "%", performance))
        rows.append(Row(tuple(cells)))
    columns = (Column(""), *(Column(score.label, is_number=True, color=_color(score)) for score in scores))
    return Table(columns, tuple(rows), "numbers")


def tuned_table(matches: Sequence[Match], alpha: float) -> Table:
    """The shares of the adaptive policy and of tuned rivals with their settings, and its lead over the best of them."""
    beside = [each.beside_tuned() for each in matches]
    columns = [Column(""), Column(beside[0].of("bandit", alpha)[0].label, is_number=True)]
    columns += [
        Column(f"{each.label}, best of {each.n_settings}", is_number=True) for each in matches[0].tuned_at(alpha)
    ]
    rows = []
    for match in beside:
        first, best = match.of("bandit", alpha)[0], match.best_tuned(alpha)
        cells = [
            Cell(match.title),
            Cell("no gap") if first.gap_closed is None else interval_cell(first.gap_closed, 3, "%"),
        ]
        for each in match.tuned_at(alpha):
            setting = f"({each.setting})"
            cells.append(
                Cell("no gap", (setting,))
                if each.gap_closed is None
                else interval_cell(each.gap_closed, 3, "%", setting)
            )
        lead = None if best is None else best.lead
        cells.append(Cell("") if lead is None else interval_cell(lead, 3, "%"))
        rows.append(Row(tuple(cells)))
    return Table((*columns, Column("ahead of the best by", is_number=True)), tuple(rows), "numbers")


def bounds_table(matches: Sequence[Match], feedback: str) -> Table:
    """The welfare ratio of each contender on each stream of dying arms, beside the bound for every policy."""
    rows = []
    for match in matches:
        (alpha,) = match.alphas
        ratios = [score.welfare_ratio for score in match.of(feedback, alpha)]
        cells = [Cell("") if each is None else interval_cell(each, 4) for each in ratios]
        rows.append(Row((Cell(match.title), Cell(fixed(match.bound or 1.0, 3)), *cells)))
    scores = matches[0].of(feedback, matches[0].alphas[0])
    named = (Column(score.label, is_number=True, color=_color(score)) for score in scores)
    return Table((Column(""), Column("no policy below", is_number=True), *named), tuple(rows), "numbers")


def promises(matches: Sequence[Match]) -> tuple[Paragraph, Table]:
    """How far the adaptive policy is above its limits against adversaries."""
    text = (
        "With bandit feedback the adaptive policy must close no less of the gap than its guaranteed learner alone, "
        f"less {arena.MARGIN:.0%} of the gap, and no less than the paper's bandit policy, each against the same "
        "adversary. The table shows how far it is above those limits, with simultaneous 95% confidence intervals for "
        "each scenario; one seed alone decides nothing."
    )
    rows = []
    for match in matches:
        for what, lead in match.promises.items():
            note = (f"({percent(lead.low)} to {percent(lead.high)})",) if lead.random else ()
            rows.append(Row((*map(Cell, (match.title, verdict([lead]), what)), Cell(percent(lead.value), note))))
    columns = (Column(""), Column("verdict"), Column("adaptive"), Column("by", is_number=True))
    return Paragraph(text), Table(columns, tuple(rows))


SIZES = ("rounds", "contexts", "arms", "seeds")


def settings_text(given: Mapping[str, Any]) -> str:
    """Settings as they were given, without those that are None.

    >>> settings_text({"rows": 300, "min_ratings": None}), settings_text({})
    ('rows = 300', '\\u2013')
    """
    shown = {key: value for key, value in sorted(given.items()) if value is not None}
    text = ", ".join(f"{key} = {each if isinstance(each, str) else json.dumps(each)}" for key, each in shown.items())
    return text or DASH


def versions_text(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))


def origin(results: Results) -> tuple[Block, ...]:
    """The command, the data, the versions, and the digests and settings of all experiments and policies."""
    a, c = results.experiments.A, results.experiments.C
    about = (
        f"A and B: the first {counted(a.settings['rows'], 'row')} of {results.data.name}, "
        f"{counted(a.n_rounds, 'round')} after dropping movies without genres, {counted(a.n_contexts, 'user')}, "
        f"{a.n_arms} genres. C: users with at least {counted(c.settings['min_ratings'] or 1, 'rating')}, "
        f"{counted(c.n_rounds, 'round')}, {counted(c.n_contexts, 'user')}."
    )
    facts = [
        ("data", results.data.name),
        ("digest of the data", results.data.digest),
        ("about the data", about),
        ("versions", versions_text(results.versions)),
    ]
    experiments = []
    for name, run in results.experiments.sections():
        sizes = (getattr(run, f"n_{noun}", None) for noun in ("rounds", "contexts", "arms"))
        experiments.append(
            (
                *(name, run.title, code(run.digest)),
                *(DASH if size is None else f"{size:,}" for size in sizes),
                DASH.join(str(seed) for seed in dict.fromkeys((run.seeds[0], run.seeds[-1]))),
                settings_text(getattr(run, "settings", {})),
            )
        )
    policies = [
        (key, each.label, code(each.policy), settings_text(each.settings))
        for key, run in (("A", a), ("B", results.experiments.B))
        for each in run.outcomes
    ]
    return (
        Paragraph("One command makes this page; with the same versions it writes the same bytes:"),
        Code(results.command),
        Paragraph(
            Markup(
                'All numbers are in <a href="results.json">results.json</a>, all figures in three formats in '
                "<code>figures/</code>."
            )
        ),
        text_table(("what", "value"), facts),
        Paragraph("Experiments", "caption"),
        text_table(("", "experiment", "digest", "rounds", "contexts", "arms", "seeds", "settings"), experiments, SIZES),
        Paragraph("Policies, with the settings that are not defaults", "caption"),
        text_table(("", "policy", "name in the library", "settings"), policies),
    )


# the report


def tiles(results: Results) -> tuple[Tile, ...]:
    """The headlines of the report."""
    a, b, c, sign = (getattr(results.experiments, name) for name in ("A", "B", "C", "sign"))
    verdicts = [claim.verdict for claim in results.claims if claim.source == PAPER and claim.independent]
    others = "".join(f"; {word}: {verdicts.count(word)}" for word in (FAILS, OPEN) if word in verdicts)
    ours, bandit, toy = a.of("alpha-fair"), b.of("alpha-fair-bandit"), sign.toy
    change = c.average_reward[-1] / c.average_reward[0] - 1.0
    worst = {label: percent(shares[-1], 2) for label, shares in toy.shares.items()}
    theirs, own = paper.PUBLISHED_SIGN.label, paper.ALPHA_FAIR_BANDIT.label
    return (
        Tile(
            f"{verdicts.count(HOLDS)} of {len(verdicts)}",
            f"of the paper's independent claims about ratings hold on these data{others}",
        ),
        _gap_tile(ours, paper.ALPHA_FAIR.label, "full information"),
        Tile(
            fixed(ours.ratio.last.value, 4),
            f"OPT/ALG of {paper.ALPHA_FAIR.label} after {a.n_rounds:,} rounds; 1 is the optimum, the theorem allows "
            f"{number(a.factor)} in the long run",
        ),
        _gap_tile(bandit, own, "bandit feedback"),
        Tile(
            f"{number(c.jain_index[0], 2)} \N{RIGHTWARDS ARROW} {number(c.jain_index[-1], 2)}",
            f"Jain's index, from {ALPHA} = {c.alphas[0]:g} to {c.alphas[-1]:g}, for {percent(abs(change))} "
            f"{'less' if change < 0.0 else 'more'} reward",
        ),
        Tile(
            worst[theirs],
            f"of the pulls go to the worst of {len(toy.arms)} arms with the published sign; {worst[own]} with {own}",
        ),
    )


def _gap_tile(outcome: Outcome, label: str, setting: str) -> Tile:
    share = outcome.learned
    if share is None:
        return Tile("no gap", f"to close between uniform play and the optimum: {label}, {setting}")
    text = f"of the gap between uniform play and the optimum is closed by {label}, {setting}"
    if outcome.n_seeds > 1:
        text += f" (95%: {percent(share.low)} to {percent(share.high)}, {outcome.n_seeds} seeds)"
    return Tile(percent(share.value), text)


def notices(results: Results) -> tuple[Paragraph, ...]:
    """Warnings about the data."""
    data, found = results.data, []
    if data.part is not None:
        found.append(
            f"These numbers are from a part of {data.part.of}: {data.part.found:,} of its {data.part.complete:,} "
            "ratings were found."
        )
    if data.stand_in and not (data.part is not None and data.part.of == "MovieLens 25M"):
        found.append(
            f"These numbers are not from the paper's data: {data.name} stands in for MovieLens 25M, which may not be "
            "redistributed. To download it, run alphafair data get 25m."
        )
    for names, run in (("A and B", results.experiments.A), ("C", results.experiments.C)):
        if reason := undecidable(run):
            found.append(f"No claim about the ratings of {names} is decided: {reason}.")
    return tuple(Paragraph(text, "notice") for text in found)


def report_page(results: Results, images: Mapping[str, Markup]) -> Page:
    """The report as a value; `images` are the figures by name."""
    experiments = results.experiments
    c, scenarios = experiments.C, experiments.arena
    least, asked = c.settings["min_ratings"], paper.PRICE_OF_FAIRNESS.rounds.min_ratings  # type: ignore[union-attr]
    users = "all users" if least is None else f"users with at least {least:,} ratings"
    used = f"Used here: {users}, {c.n_contexts:,} of them, {c.n_rounds:,} rounds."
    if least != asked:
        used += f" They stand in for the paper's users with at least {asked:,}."
    alpha = scenarios[0].scores[0].alpha
    blocks: dict[str, tuple[Block, ...]] = {
        "claims": (
            claims_table(results),
            Paragraph(
                "Policies are compared by seed on the same draws, with a confidence interval of the mean difference. "
                "The intervals of a claim hold simultaneously with 95% confidence (Bonferroni's correction). A claim "
                "holds if all of its intervals are on its side of zero, does not hold if one is on the other side, and "
                "is not decided if one contains zero: more seeds are needed. Where nothing is random the comparison is "
                "exact. A policy that has fewer seeds in one experiment than in another has another mean there."
            ),
            Paragraph(
                "A claim about ratings is not decided either, whatever its intervals, where there are too few rounds "
                "to learn anything (fewer than five for every pair of a context and an arm, or fewer than a "
                "hundred), or where the optimum is no better than uniform play."
            ),
            Paragraph(
                "Claims of the paper are tested on these ratings. A theorem must hold on any data. Comparisons with "
                "uniform play show whether anything was learned. The headline counts the paper's claims, without those "
                "that repeat another one."
            ),
        ),
        "A": (
            Paragraph(
                "After every decision a policy sees the reward of every arm, and accounts are expected values: "
                "nothing is random. FairCB was published for bandit feedback only, so it runs twice: as published, "
                "with a confidence band, and in a variant of ours with full information."
            ),
            *numbers(experiments.A),
        ),
        "B": (
            Paragraph(
                "A policy sees only the reward of the arm that it chose. Every curve is a mean over seeds with its 95% "
                "confidence band."
            ),
            *numbers(experiments.B),
        ),
        "C": (
            Paragraph(f"The same full-information policy on users with many ratings, once for every value of {ALPHA}."),
            Paragraph(used, "" if least == asked else "notice"),
        ),
        "price": (
            Paragraph(f"The two curves of experiment C against each other: the cost of equality along {ALPHA}."),
        ),
        "learned": (
            Paragraph(
                f"At the paper's {ALPHA} the scale of the objective makes all policies look close to the optimum, "
                "uniform play included. This figure therefore shows how much of the gap between uniform play and the "
                "best fixed policy in hindsight each policy closes. In B uniform play is drawn with the same seeds "
                "as all others. In A it is booked as expected, which puts FairCB as published, which is drawn there "
                "too, at a small disadvantage: the utility is concave."
            ),
        ),
        "corrections": (
            Paragraph(
                "The code published with the paper differs from its text, and the text does not say when the slope "
                "of the utility is read. The table lists every difference and what it changes."
            ),
            corrections_table(experiments),
        ),
        "rivals": (
            Paragraph(
                "FairCB is fair through a floor on how often an arm is pulled, which has to be chosen. And on one "
                "instance no online policy can match the optimum."
            ),
        ),
        "arena": (
            Paragraph(
                "Policies with bandit feedback on ratings, in synthetic scenarios and against adversaries that see "
                "the distribution: the paper's, others, and this library's adaptive policy, which combines a fast "
                f"predictor with a learner that has a guarantee. Each scenario has {len(scenarios[0].seeds)} seeds "
                f"here; alphafair arena runs 20, late rewards, longer scenarios, other values of {ALPHA} and full "
                "information too."
            ),
            Paragraph(
                f"{ALPHA} = {alpha:g}: share of the gap closed, \N{PLUS-MINUS SIGN} half of a 95% confidence interval "
                f"over the seeds; in brackets the {ALPHA}-performance.",
                "caption",
            ),
            shares_table(scenarios, "bandit", alpha),
            *promises(scenarios),
        ),
        "origin": origin(results),
    }
    for place, each in enumerate(FIGURES, start=1):
        caption = each.caption(each.shown(experiments))
        blocks[each.section] += (Drawing(each.name, images[each.name], caption, f"Figure {place}."),)
    return Page(
        title=f"{ALPHA}-fair contextual bandits, reproduced",
        heading=f"{ALPHA}-fair contextual bandits, reproduced",
        lead="The experiments of \u03b1-Fair Contextual Bandits (Chaudhary and Sinha, arXiv 2310.14164) on "
        f"{results.data.name}, and what they say about each of its claims.",
        introduction=notices(results),
        sections=tuple(Section(name, heading, blocks[name]) for name, heading in SECTIONS.items()),
        tiles=tiles(results),
    )


def write_report(results: Results, folder: Path, progress: Progress = no_progress) -> None:
    """Write index.html, results.json and figures/ into a folder. The same results give the same bytes."""
    drawn = {
        each.name: (each.title, partial(each.draw, each.shown(results.experiments), each.title)) for each in FIGURES
    }
    write_page(folder, as_json(results), drawn, partial(report_page, results), progress)


# the page of the arena


def arena_page(results: ArenaResults, images: Mapping[str, Markup]) -> Page:
    """The page of the arena as a value; `images` has its figures."""
    settings = {"bandit": "bandit feedback", "full": "full information"}
    panels = [(feedback, alpha) for feedback in settings for alpha in results.alphas]
    shares = (
        "Share of the gap closed, \N{PLUS-MINUS SIGN} half of a 95% confidence interval over the seeds; in brackets "
        f"the {ALPHA}-performance."
    )
    sections = [
        Section(
            "picture",
            "Overview",
            (Drawing(ARENA_FIGURE.name, images[ARENA_FIGURE.name], "Means over the seeds with 95% confidence bands."),),
        )
    ]
    for feedback, alpha in panels:
        table = shares_table(results.matches, feedback, alpha)
        heading = f"{ALPHA} = {alpha:g}, {settings[feedback]}"
        sections.append(Section(f"{feedback}-{alpha}", heading, (Paragraph(shares, "caption"), table)))
    if any(match.promises for match in results.matches):
        sections.append(Section("promises", "Against adversaries", promises(results.matches)))
    sections.append(Section("tuned", TUNED_FIGURE.title, tuned_blocks(results, images)))
    if results.with_features:
        blocks: list[Block] = [
            Paragraph(
                f"The adaptive policy on rounds with {arena.N_FEATURES} features. Contexts are {arena.N_CLUSTERS} "
                "clusters of the features, fitted to the first tenth of a run; the policy sees the features too, or "
                "the clusters alone. Here 100% is the score of a policy that knows every mean."
            )
        ]
        for feedback, alpha in panels:
            blocks.append(Paragraph(f"{ALPHA} = {alpha:g}, {settings[feedback]}", "caption"))
            blocks.append(shares_table(results.with_features, feedback, alpha))
        sections.append(Section("features", "Rounds with features", tuple(blocks)))
    if results.steep:
        steep: list[Block] = [
            Paragraph(
                f"From {ALPHA} = 1 on the gap is one of welfare: the equal account of all arms that would be worth as "
                "much. Share of it closed, \N{PLUS-MINUS SIGN} half of a 95% confidence interval; in brackets the "
                "welfare."
            )
        ]
        for feedback in settings:
            for alpha in results.steep[0].alphas:
                steep.append(Paragraph(f"{ALPHA} = {alpha:g}, {settings[feedback]}", "caption"))
                steep.append(shares_table(results.steep, feedback, alpha))
        sections.append(Section("steep", f"{ALPHA} from 1 to infinity", tuple(steep)))
    if results.dying:
        dying: list[Block] = [
            Paragraph(
                "Arms stop paying one by one, in random order, and the best fixed policy knows which is next. The "
                "ratio of its welfare to that of a policy; in the mean over orders no policy is below the bound, and "
                "1 would be the best fixed policy."
            )
        ]
        for feedback, setting in settings.items():
            dying += [Paragraph(setting, "caption"), bounds_table(results.dying, feedback)]
        sections.append(Section("dying", "What no policy can reach", tuple(dying)))
    matches = [
        (
            each.title,
            *(f"{size:,}" for size in (each.n_rounds, each.n_contexts, each.n_arms, len(each.seeds))),
            code(each.digest),
        )
        for each in (*results.matches, *results.with_features, *results.steep, *results.dying)
    ]
    numbers_link = Markup('All numbers are in <a href="results.json">results.json</a>. Versions: {}.')
    sections.append(
        Section(
            "origin",
            SECTIONS["origin"],
            (
                Paragraph("One command makes this page; with the same versions it writes the same bytes:"),
                Code(results.command),
                Paragraph(numbers_link.format(versions_text(results.versions))),
                text_table(("scenario", "rounds", "contexts", "arms", "seeds", "digest"), matches, SIZES),
            ),
        )
    )
    return Page(
        title=f"The arena of {ALPHA}-fair policies",
        heading="The arena",
        lead=f"All policies in all scenarios{_slates(results)}: how much of the gap between uniform play and the best "
        "fixed policy in hindsight does each close?",
        introduction=(
            Paragraph(
                "100% is the best policy that plays the same distribution in a context from the first round to the "
                "last. Where rewards change, a policy that follows the change can exceed 100%; below 0% uniform play "
                "is better. An adversary pays every policy differently, so each share is of the policy's own gap: "
                f"compare the {ALPHA}-performance in brackets too."
            ),
        ),
        sections=tuple(sections),
    )


def _slates(results: ArenaResults) -> str:
    """What every decision shows, if it is a slate."""
    return "" if results.k is None else f", {results.k} arms in every decision"


def tuned_blocks(results: ArenaResults, images: Mapping[str, Markup]) -> tuple[Block, ...]:
    """The adaptive policy beside rivals whose settings were picked in hindsight."""
    blocks: list[Block] = [
        Paragraph(
            "Rivals that one would write oneself: each plays the arm with the largest R^(-"
            f"{ALPHA}) times an estimate of its reward. They have settings, and of each rival the table shows the "
            "setting that closes most of the gap in that row, tuned in hindsight on these very seeds, in brackets. "
            "It is not known in advance; the adaptive policy has nothing to tune. The last column is its lead over "
            "the best of all, paired by seed, \N{PLUS-MINUS SIGN} half of a 95% confidence interval."
        ),
        Drawing(TUNED_FIGURE.name, images[TUNED_FIGURE.name], TUNED_FIGURE.caption(results.matches)),
    ]
    parts = (("", results.matches), ("rounds with features, ", results.with_features), ("", results.steep))
    for what, matches in parts:
        for alpha in matches[0].alphas if matches else ():
            blocks.append(Paragraph(f"{what}{ALPHA} = {alpha:g}, bandit feedback", "caption"))
            blocks.append(tuned_table(matches, alpha))
    return tuple(blocks)


def write_arena_page(results: ArenaResults, folder: Path, progress: Progress = no_progress) -> None:
    """Write index.html, results.json and the figures in three formats into a folder."""
    drawn = {each.name: (each.title, partial(each.draw, results.matches, each.title)) for each in ARENA_FIGURES}
    write_page(folder, as_json(results), drawn, partial(arena_page, results), progress)


def write_page(
    folder: Path,
    numbers: str,
    drawn: Mapping[str, tuple[str, Callable[[], Figure]]],
    make: Callable[[Mapping[str, Markup]], Page],
    progress: Progress,
) -> None:
    """Write a page, its results.json and its figures, unless the folder has all of it with the same numbers.

    `drawn` has the title of each figure and the function that draws it; `make` takes the images by name.
    """
    results, index = folder / "results.json", folder / "index.html"
    files = [folder / "figures" / f"{name}{suffix}" for name in drawn for suffix in figures.SUFFIXES]
    if all(path.is_file() for path in (results, index, *files)) and results.read_bytes() == numbers.encode():
        return
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)  # written last: where it exists, the page is complete
    advance, images = progress("Drawing", len(drawn)), {}
    for name, (title, draw) in drawn.items():
        images[name] = save_figure(draw(), folder / "figures", name, title)
        advance(1)
    atomic_write(index, render("page.html", page=make(images)))
    atomic_write(results, numbers)
