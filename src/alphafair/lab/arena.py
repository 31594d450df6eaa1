"""The arena: all policies on all courses, how much of the gap each closes, and a page of it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl

from alphafair import metrics
from alphafair.lab.claims import joint_leads
from alphafair.lab.courses import (
    ADAPTIVE,
    ALPHAS,
    BANDIT,
    CONTENDERS,
    COURSES,
    DESCRIBED_CONTENDERS,
    DESCRIBED_COURSES,
    GUARANTEED,
)
from alphafair.lab.experiment import Contender
from alphafair.lab.match import Match
from alphafair.lab.measured import Tables, about, band
from alphafair.lab.paper import ALPHA_FAIR_BANDIT, BANDIT_FEEDBACK
from alphafair.lab.pictures import GAP_CLOSED
from alphafair.lab.report import write_page
from alphafair.lab.results import Arena, Meeting, Score
from alphafair.lab.run import Started, run, untold, versions
from alphafair.values import Adversary, Vector

MARGIN = 0.05  # of the gap: so much the adaptive policy may be below its guaranteed learner alone
LONGEST = ("ratings", "stationary-large")


def plan(*, smoke: bool = False, n_seeds: int | None = None, described: bool = False) -> tuple[Match, ...]:
    """All courses, or those with features, whose contenders are others; or the same, small."""
    courses, contenders = (DESCRIBED_COURSES, DESCRIBED_CONTENDERS) if described else (COURSES, CONTENDERS)
    courses = tuple(course.smoke() if smoke else course for course in courses)
    if n_seeds is not None:
        courses = tuple(replace(course, n_seeds=n_seeds) for course in courses)
    return tuple(Match(course, contenders, ALPHAS) for course in courses)


def short_plan(*, smoke: bool = False) -> tuple[Match, ...]:
    """For the report: bandit feedback at the paper's alpha, five seeds, neither the longest courses nor late ones."""
    courses = [course for course in COURSES if course.delay is None and course.name not in LONGEST]
    (alpha,) = BANDIT_FEEDBACK.alphas
    shorter = [course.smoke() if smoke else replace(course, n_seeds=5) for course in courses]
    return tuple(Match(course, BANDIT, (alpha,)) for course in shorter)


def measure(
    folder: Path,
    *,
    smoke: bool = False,
    n_seeds: int | None = None,
    jobs: int | None = None,
    command: str = "alphafair arena",
    started: Started = untold,
) -> Arena:
    """Run what has not been run. The tables are kept in the folder; `started` as in `run.Started`.

    Without scikit-learn there are no clusters of features, so the courses with features are left out.
    """
    matches, described = (plan(smoke=smoke, n_seeds=n_seeds, described=which) for which in (False, True))
    if find_spec("sklearn") is None:
        described = ()

    def met(matches: tuple[Match, ...]) -> tuple[Meeting, ...]:
        compiled = cache(lambda: compile_all(matches, started("Compiling", len(matches[0].contenders))))
        ran = partial(run, home=folder, jobs=jobs, started=started, prepare=compiled)
        return tuple(meeting(match, ran(match.work)) for match in matches)

    return Arena(command, versions(), ALPHAS, met(matches), met(described))


def compile_all(matches: tuple[Match, ...], advance: Callable[[int], None]) -> None:
    """Every loop of every contender, on a few rounds: rewards at once, late, from an adversary."""
    kinds = {(match.course.maker == "adversary", match.course.delay is None): match for match in matches}
    for contender in matches[0].contenders:
        for match in kinds.values():
            replace(match, course=match.course.smoke(), contenders=(contender,), alphas=match.alphas[:1]).played(0)
        advance(1)


def meeting(match: Match, tables: Tables) -> Meeting:
    """What a course has come to: every contender at every alpha, with bands over the seeds."""
    table = pl.concat(tables.values())  # seed by seed
    made = match.course.made(0)
    stream = made.stream if isinstance(made, Adversary) else made
    scores = [score(table, contender, alpha) for alpha in match.alphas for contender in match.contenders]
    several = isinstance(made, Adversary) and match.course.n_seeds > 1  # one seed alone decides nothing
    promised = dict(promises(table, match.alphas)) if several else {}
    return Meeting(
        **about(match.work, stream, match.course.n_seeds),
        name=match.course.name,
        delay=match.course.delay,
        scores=tuple(scores),
        promises=tuple(joint_leads(promised)),
    )


def score(table: pl.DataFrame, contender: Contender, alpha: float) -> Score:
    closed, performance = by_seed(table, contender, alpha)
    return Score(
        label=contender.label,
        policy=contender.policy,
        feedback=contender.feedback.value,
        alpha=alpha,
        n_seeds=len(performance),
        alpha_performance=band(performance),
        gap_closed=None if closed is None else band(closed),
    )


def by_seed(table: pl.DataFrame, contender: Contender, alpha: float) -> tuple[Vector | None, Vector]:
    """(ALG - UNI) / (OPT - UNI), uniform play as expected, the optimum of the rounds that were met; and ALG.

    The first is None where a seed has no gap to close.
    """
    mine = table.filter(contender=contender.key, alpha=alpha)
    earned, uniform, best, gaps = (mine[name].to_numpy() for name in ("accounts", "uniform", "optimum", "gap"))
    seeds = zip(best, uniform, gaps, strict=True)
    learnable = all(metrics.has_gap(top, even, alpha, certified=gap) for top, even, gap in seeds)
    closed = metrics.gap_closed(best, uniform, earned, alpha) if learnable else None
    return closed, metrics.alpha_performance(earned, alpha)


def promises(table: pl.DataFrame, alphas: tuple[float, ...]) -> Iterator[tuple[str, Vector]]:
    """Against an adversary that sees the distribution: how far the adaptive policy is above what it must not be below.

    That is its guaranteed learner alone, less a margin, and the paper's bandit, each against the same adversary.
    """
    for alpha in alphas:
        ours, _ = by_seed(table, ADAPTIVE, alpha)
        for other, margin in ((GUARANTEED, MARGIN), (ALPHA_FAIR_BANDIT, 0.0)):
            theirs, _ = by_seed(table, other, alpha)
            if ours is None or theirs is None:
                continue  # no gap to close
            less = f" less {margin:.0%} of the gap" if margin else ""
            yield f"above {other.label}{less} at \u03b1 = {alpha:g}", ours - theirs + margin


def arena(folder: Path, *, started: Started = untold, **options: Any) -> Arena:
    """Measure, then write the page, the picture in three formats and results.json. Options are those of `measure`."""
    found = measure(folder / "runs", started=started, **options)
    write_page(folder, "arena.html", found, found.meetings, [GAP_CLOSED._replace(of="")], started)
    return found
