"""All experiments on one data set, and the report of them."""

from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from alphafair.data.movielens import Genres, Ratings, first_rows, most_ratings, ratings_stream
from alphafair.lab import measured, paper
from alphafair.lab.arena import meeting, short_plan
from alphafair.lab.claims import claims
from alphafair.lab.compiling import NAMES, compile_all
from alphafair.lab.experiment import Experiment
from alphafair.lab.measured import Run, over_time
from alphafair.lab.report import write_report
from alphafair.lab.results import Compared, Experiments, OverTime, Results, Sign
from alphafair.lab.run import Started, run, stream_digest, untold, versions
from alphafair.lab.sources import Data, check_counts
from alphafair.values import Stream

STAND_IN_RATINGS = (500, 50)  # of a user in experiment C, where nobody has as many as the paper asks for


def loaded(ratings: Ratings, genres: Genres, experiment: Experiment) -> tuple[Experiment, Stream]:
    """An experiment with its rounds; where nobody has as many ratings as it asks for, users of fewer stand in."""
    rows, least = first_rows(ratings, experiment.rows), experiment.min_ratings
    if least is not None:
        most = most_ratings(rows, genres)
        least = next((fewer for fewer in (least, *STAND_IN_RATINGS) if fewer <= most), None)
    stream = ratings_stream(rows, genres, min_ratings=least, reward_floor=experiment.reward_floor)
    n_rows = None if experiment.rows is None else len(rows.users)
    return replace(experiment, rows=n_rows, min_ratings=least), stream


def measure(
    data: Data,
    folder: Path,
    *,
    smoke: bool = False,
    jobs: int | None = None,
    command: str = "alphafair reproduce",
    started: Started = untold,
) -> Results:
    """Run what has not been run. The tables are kept in the folder.

    `started(title, total)` is called for each piece of work and gives back the function to tell of progress.
    """
    tell = started("Reading the ratings", 1)
    data = data.smoke() if smoke else data
    ratings, genres = data.read()
    n_ratings = len(ratings.users)
    ready = [loaded(ratings, genres, each.smoke() if smoke else each) for each in paper.EXPERIMENTS]
    del ratings  # from here on only what is played
    tell(1)
    facts = data.facts(n_ratings, stream_digest(ready[0][1]))
    if not (facts.stand_in or smoke):
        for plan, stream in ready:
            check_counts(plan.name, stream)
    ready.append((paper.TOY.smoke() if smoke else paper.TOY, paper.toy_rounds(smoke=smoke)))
    limits = paper.IMPOSSIBILITY[:3] if smoke else paper.IMPOSSIBILITY
    compiled = cache(lambda: compile_all(jobs=jobs, advance=started("Compiling", len(NAMES))))
    ran = partial(run, home=folder, jobs=jobs, started=started, prepare=compiled)
    runs = {plan.name: Run(plan, stream, ran(plan.on(stream))) for plan, stream in ready}
    found = Experiments(
        A=Compared(**over_time(runs["A"]), first=measured.first(runs["A"].samples)),
        B=Compared(**over_time(runs["B"]), first=measured.first(runs["B"].samples)),
        C=measured.over_alpha(runs["C"], facts.name),
        floor_sweep=measured.over_floor(runs["floor_sweep"]),
        impossibility=measured.impossibility(limits, [ran(match.work) for match in limits]),
        sign=Sign(**over_time(runs["sign"]), toy=measured.toy(runs["toy"])),
        step=OverTime(**over_time(runs["step"])),
        readings=OverTime(**over_time(runs["readings"])),
        delta=OverTime(**over_time(runs["delta"])),
        arena=tuple(meeting(match, ran(match.work)) for match in short_plan(smoke=smoke)),
    )
    samples = {name: run.samples for name, run in runs.items() if name != "C"}
    return Results(command, versions(), facts, claims(found, samples, facts.name), found)


def reproduce(data: Data, folder: Path, *, started: Started = untold, **options: Any) -> Results:
    """Measure, then write the report. Options are those of `measure`."""
    found = measure(data, folder / "runs", started=started, **options)
    write_report(found, folder, started)
    return found
