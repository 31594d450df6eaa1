"""The arena: all policies on all courses, how much of the gap each closes, and a page of it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from alphafair import metrics
from alphafair.experiments.courses import (
    ALPHAS,
    CONTENDERS,
    COURSES,
    DESCRIBED_CONTENDERS,
    DESCRIBED_COURSES,
    N_FEATURES,
)
from alphafair.experiments.digests import digest
from alphafair.experiments.experiment import Contender
from alphafair.experiments.match import Match, key
from alphafair.experiments.measured import band, has_room
from alphafair.experiments.page import render
from alphafair.experiments.pictures import arena as drawing
from alphafair.experiments.report import write_page
from alphafair.experiments.reproduce import Started, versions
from alphafair.experiments.results import Arena, Meeting, Score
from alphafair.experiments.run import is_done, read, run
from alphafair.types import Adversary

PICTURE = "gap-closed"
JOBS_TO_COMPILE = ("stationary-small", "late-100", "largest")  # rewards at once, late, from an adversary


def plan(*, smoke: bool = False, n_seeds: int | None = None, described: bool = False) -> tuple[Match, ...]:
    """All courses, or those with features, whose contenders are others; or the same in seconds."""
    courses, contenders = (DESCRIBED_COURSES, DESCRIBED_CONTENDERS) if described else (COURSES, CONTENDERS)
    courses = tuple(course.smoke() if smoke else course for course in courses)
    if n_seeds is not None:
        courses = tuple(replace(course, n_seeds=n_seeds) for course in courses)
    return tuple(Match(course, contenders, ALPHAS) for course in courses)


def measure(
    folder: Path,
    *,
    smoke: bool = False,
    n_seeds: int | None = None,
    jobs: int | None = None,
    command: str = "alphafair arena",
    started: Started = lambda title, total: lambda done: None,
) -> Arena:
    """Run what has not been run. The tables are kept in the folder; `started` as in `reproduce.measure`."""
    matches, described = (plan(smoke=smoke, n_seeds=n_seeds, described=which) for which in (False, True))
    if not all(is_done(match, folder) for match in matches):
        compile_all(started("Compiling", len(CONTENDERS)))

    def met(match: Match) -> Meeting:
        return meeting(match, run(match, folder, jobs=jobs, advance=started(match.title, len(match.tasks()))))

    return Arena(command, versions(), ALPHAS, tuple(map(met, matches)), tuple(map(met, described)))


def compile_all(advance: Callable[[int], None]) -> None:
    """Every loop of every contender, on a few rounds."""
    short = [replace(course.smoke(), n_seeds=1) for course in COURSES if course.name in JOBS_TO_COMPILE]
    for contender in CONTENDERS:
        for course in short:
            Match(course, (contender,), ALPHAS[:1]).played(0)
        advance(1)


def meeting(match: Match, folder: Path) -> Meeting:
    """What a course has come to: every contender at every alpha, with bands over the seeds."""
    table = pl.concat(
        read(folder, name).with_columns(pl.lit(seed).alias("seed")) for seed, name in enumerate(match.tasks())
    )
    made = match.course.made(0)
    stream = made.stream if isinstance(made, Adversary) else made
    scores = [score(table, contender, alpha, stream) for alpha in match.alphas for contender in match.contenders]
    return Meeting(
        title=match.title,
        digest=digest(match),
        seeds=tuple(range(match.course.n_seeds)),
        name=match.course.name,
        n_rounds=stream.n_rounds,
        n_contexts=stream.n_contexts,
        n_arms=stream.n_arms,
        delay=match.course.delay,
        scores=tuple(scores),
    )


def score(table: pl.DataFrame, contender: Contender, alpha: float, stream: Any) -> Score:
    """(ALG - UNI) / (OPT - UNI) seed by seed: uniform play as expected, the optimum of the rounds that were met."""
    mine = table.filter(contender=key(contender), alpha=alpha).sort("seed", "arm")
    n_seeds, n_arms = mine["seed"].n_unique(), mine["arm"].n_unique()
    earned, uniform, best, gaps = (
        mine[name].to_numpy().reshape(n_seeds, n_arms) for name in ("reward", "uniform", "optimum", "gap")
    )
    level = metrics.alpha_performance(uniform, alpha)
    learnable = all(map(has_room, best[:, 0], gaps[:, 0], level))
    closed = metrics.gap_closed(best[:, 0], uniform, earned, alpha) if learnable else np.zeros(n_seeds)
    return Score(
        label=contender.label,
        policy=contender.policy,
        feedback=contender.make(stream, alpha).feedback.value,
        alpha=alpha,
        n_seeds=n_seeds,
        gap_closed=band(closed),
        alpha_performance=band(metrics.alpha_performance(earned, alpha)),
    )


class Report(NamedTuple):
    """What was found, and the page that shows it."""

    results: Arena
    page: Path


def arena(folder: Path, *, started: Started = lambda title, total: lambda done: None, **options: Any) -> Report:
    """Measure, then write the page, the picture in three formats and results.json. Options are those of `measure`."""
    found = measure(folder / "runs", started=started, **options)
    pictures = [(PICTURE, drawing.TITLE, partial(drawing.picture, found))]
    page = write_page(folder, found, pictures, partial(render, "arena.html", results=found, n_features=N_FEATURES))
    return Report(found, page)
