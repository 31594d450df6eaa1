"""Reproduce the paper: all its experiments on one data set, and the report."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from alphafair import streams
from alphafair.data.movielens import Genres, Ratings, read_movielens, read_movielens_small
from alphafair.errors import InvalidArgument
from alphafair.lab import arena, measure, paper
from alphafair.lab.claims import claims
from alphafair.lab.plan import ConstantRewards, FromRatings, Plan, Rounds, stream_digest
from alphafair.lab.results import Compared, DataFacts, Experiments, OverTime, Part, Results, Sign
from alphafair.lab.runner import Progress, no_progress, run_plan
from alphafair.pages import versions
from alphafair.values import Stream

PLAN = Plan((*paper.EXPERIMENTS, *arena.SHORT))


@dataclass(frozen=True)
class Release:
    """A published data set: recognized by its first rating, complete with so many ratings."""

    name: str
    first_rating: str
    n_ratings: int


MOVIELENS_25M = Release("MovieLens 25M", "1,296,5.0,1147880044", 25_000_095)  # the paper's
RELEASES = (
    MOVIELENS_25M,
    Release("MovieLens 32M", "1,17,4.0,944249077", 32_000_204),
    Release("MovieLens 1M", "1::1193::5::978300760", 1_000_209),
    Release("MovieLens latest-small", "1,1,4.0,964982703", 100_836),
)
COUNTS_25M = {"A": (33, 19, 4999), "C": (18, 19, 136_267)}  # contexts, arms and rounds of the paper's experiments


@dataclass(frozen=True)
class Data:
    """A copy of a MovieLens data set; without a path latest-small, or synthetic ratings."""

    path: Path | None = None
    synthetic: bool = False

    @property
    def name(self) -> str:
        if self.path is not None:
            return self.path.resolve().name
        return "synthetic ratings" if self.synthetic else "MovieLens latest-small"

    def smoke(self) -> Data:
        """The same copy, or without a path synthetic ratings, which need no download."""
        return Data(self.path, synthetic=self.path is None)

    def read(self) -> tuple[Ratings, Genres]:
        if self.path is not None:
            return read_movielens(self.path)
        return synthetic_ratings() if self.synthetic else read_movielens_small()

    def release(self) -> Release | None:
        """The release that a copy in a folder or a zip is of, if it is known."""
        if self.path is None:
            return None
        first = streams.first_rating(self.path)
        return next((release for release in RELEASES if release.first_rating == first), None)

    def facts(self, n_ratings: int, digest: str) -> DataFacts:
        """Return the facts about the data for the report; the name shows if they are a part of a known data set."""
        name, release, part = self.name, self.release(), None
        if release is not None and n_ratings < release.n_ratings:
            part = Part(release.name, n_ratings, release.n_ratings)
            name += f" (a part of {part.of}: {part.found:,} of {part.complete:,} ratings)"
        is_the_papers = release == MOVIELENS_25M and n_ratings == MOVIELENS_25M.n_ratings
        return DataFacts(name, not is_the_papers, digest, part)


def synthetic_ratings() -> tuple[Ratings, Genres]:
    """12,000 ratings by 30 users from `streams.ratings`, sorted by user as in MovieLens, the busiest user last."""
    stream = streams.ratings(n_rounds=12_000, n_contexts=30, n_arms=19, seed=0)
    users = np.int32(stream.n_contexts) - stream.contexts
    rows = np.argsort(users, kind="stable")
    ratings = Ratings(users[rows], stream.items[rows], rows.astype(np.int64))
    return ratings, Genres(tuple(f"genre {k:02d}" for k in range(1, 20)), stream.reward_table == 1.0)


def check_counts(name: str, stream: Stream) -> None:
    """Check that the rounds of an experiment on MovieLens 25M are the paper's."""
    counts = (stream.n_contexts, stream.n_arms, stream.n_rounds)
    if name in COUNTS_25M and counts != COUNTS_25M[name]:
        argument, allowed = f"contexts, arms and rounds of experiment {name}", f"{COUNTS_25M[name]} on MovieLens 25M"
        repair = "The copy differs from the published one: get it again with `alphafair data get 25m`."
        raise InvalidArgument(argument, allowed, counts, repair)


def fit(plan: Plan, ratings: Ratings, genres: Genres) -> tuple[Plan, dict[Rounds, Stream]]:
    """The plan with the rows that the ratings have, and the rounds of each source, made once."""
    sources = dict.fromkeys(each.rounds for each in plan if isinstance(each.rounds, FromRatings))
    fitted = {source: source.fit(ratings, genres) for source in sources}
    experiments = (
        replace(each, rounds=fitted[each.rounds][0]) if isinstance(each.rounds, FromRatings) else each for each in plan
    )
    return Plan(tuple(experiments)), dict(fitted.values())


def measure_all(
    data: Data,
    folder: Path,
    *,
    smoke: bool = False,
    command: str = "alphafair reproduce",
    executor: Executor | None = None,
    progress: Progress = no_progress,
) -> Results:
    """Run every experiment that has not been run; `executor` and `progress` as in `run_plan`."""
    advance = progress("Reading the ratings", 1)
    plan, data = (PLAN.smoke(), data.smoke()) if smoke else (PLAN, data)
    ratings, genres = data.read()
    n_ratings = len(ratings.users)
    plan, rounds = fit(plan, ratings, genres)
    del ratings  # only the rounds are needed from here on
    advance(1)
    facts = data.facts(n_ratings, stream_digest(rounds[plan.experiments[0].rounds]))
    if not (facts.stand_in or smoke):
        for each in plan:
            if each.rounds in rounds:
                check_counts(each.name, rounds[each.rounds])
    done = run_plan(plan, folder, streams=rounds, executor=executor, progress=progress)
    runs = {run.experiment.name: run for run in done}
    fixed = (run for run in runs.values() if isinstance(run.experiment.rounds, FromRatings | ConstantRewards))
    samples = {run.experiment.name: measure.samples_of(run) for run in fixed if len(run.experiment.alphas) == 1}

    def over_time(name: str) -> dict[str, Any]:
        return measure.over_time(runs[name], samples[name])

    floors = {"full": paper.ALPHA_FAIR.label, "bandit": paper.ALPHA_FAIR_BANDIT.label}
    limits = [run for name, run in runs.items() if name.startswith("limit-")]
    found = Experiments(
        A=Compared(**over_time("A"), first=measure.first(samples["A"])),
        B=Compared(**over_time("B"), first=measure.first(samples["B"])),
        C=measure.over_alpha(runs["C"], facts.name),
        floor_sweep=measure.over_floor(runs["floor_sweep"], samples["floor_sweep"], paper.FLOORS, floors),
        impossibility=measure.impossibility(limits, paper.LIMIT),
        sign=Sign(**over_time("sign"), toy=measure.pull_shares(runs["toy"], samples["toy"])),
        step=OverTime(**over_time("step")),
        readings=OverTime(**over_time("readings")),
        delta=OverTime(**over_time("delta")),
        arena=tuple(arena.match(run) for name, run in runs.items() if name.startswith("arena-")),
    )
    return Results(command, versions(), facts, claims(found, samples, facts.name), found)


def reproduce(data: Data, folder: Path, *, progress: Progress = no_progress, **options: Any) -> Results:
    """Run the experiments, and write the report; options as in `measure_all`."""
    from alphafair.lab.report import write_report

    found = measure_all(data, folder / "runs", progress=progress, **options)
    write_report(found, folder, progress)
    return found
