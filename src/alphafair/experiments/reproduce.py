"""All experiments on one data set, and the report of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from alphafair.experiments import measured, paper
from alphafair.experiments.arena import meeting, short_plan
from alphafair.experiments.claims import claims
from alphafair.experiments.compiling import NAMES, compile_all
from alphafair.experiments.experiment import Experiment, Loaded
from alphafair.experiments.measured import Run, over_time
from alphafair.experiments.pictures import PICTURES
from alphafair.experiments.report import Report, is_written, write_report
from alphafair.experiments.results import Compared, DataFacts, Experiments, OverTime, Results, Sign
from alphafair.experiments.run import Started, Work, is_done, run, stream_digest, untold, versions
from alphafair.experiments.sources import Data, check_counts, described
from alphafair.streams.movielens import Genres, Ratings, first_rows, most_ratings, ratings_stream
from alphafair.words import counted

STAND_IN_RATINGS = (500, 50)  # of a user in experiment C, where nobody has as many as the paper asks for


def loaded(ratings: Ratings, genres: Genres, experiment: Experiment) -> Loaded:
    """An experiment with its rounds; where nobody has as many ratings as it asks for, users of fewer stand in."""
    rows, least = first_rows(ratings, experiment.rows), experiment.min_ratings
    if least is not None:
        most = most_ratings(rows, genres)
        least = next((fewer for fewer in (least, *STAND_IN_RATINGS) if fewer <= most), None)
    stream = ratings_stream(rows, genres, min_ratings=least, reward_floor=experiment.reward_floor)
    return replace(experiment, min_ratings=least).on(stream)


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

    def ran(work: Work) -> Path:
        return run(work, folder, jobs=jobs, advance=started(work.title, len(work.tasks())))

    tell = started("Reading the ratings", 1)
    ratings, genres = data.read()
    n_ratings = len(ratings.users)
    ready = {each.name: loaded(ratings, genres, each.smoke() if smoke else each) for each in paper.EXPERIMENTS}
    del ratings  # from here on only what is played
    tell(1)
    part, the_papers = data.part(n_ratings), data.is_the_papers(n_ratings)
    if the_papers and not smoke:
        for name, experiment in ready.items():
            check_counts(name, experiment.stream)
    limits = paper.IMPOSSIBILITY[:3] if smoke else paper.IMPOSSIBILITY
    toy = paper.toy(smoke=smoke)
    matches = short_plan(smoke=smoke)
    works: list[Work] = [*ready.values(), *limits, toy, *matches]
    if not all(is_done(work, folder) for work in works):
        compile_all(jobs=jobs, advance=started("Compiling", len(NAMES)))
    runs = {name: Run(experiment, ran(experiment)) for name, experiment in ready.items()}
    pulls = measured.pulls(Run(toy, ran(toy)))
    name = described(data, part)
    found = Experiments(
        A=over_time(Compared, runs["A"], first=measured.first(runs["A"].samples)),
        B=over_time(Compared, runs["B"], first=measured.first(runs["B"].samples)),
        C=measured.over_alpha(runs["C"], name),
        floor_sweep=measured.over_floor(runs["floor_sweep"]),
        impossibility=measured.impossibility(limits, [ran(match) for match in limits]),
        sign=over_time(Sign, runs["sign"], toy=measured.pull_shares(toy, pulls)),
        step=over_time(OverTime, runs["step"]),
        readings=over_time(OverTime, runs["readings"]),
        delta=over_time(OverTime, runs["delta"]),
        arena=tuple(meeting(match, ran(match)) for match in matches),
    )
    samples = {name: run.samples for name, run in runs.items() if name != "C"}
    note = _note(name, n_ratings, ready["A"], ready["C"])
    facts = DataFacts(name, not the_papers, stream_digest(ready["A"].stream), note, part)
    return Results(command, versions(), facts, claims(found, samples, pulls, name), found)


def reproduce(data: Data, folder: Path, *, started: Started = untold, **options: Any) -> Report[Results]:
    """Measure, then write the report. Options are those of `measure`."""
    found = measure(data, folder / "runs", started=started, **options)
    if is_written(found, folder):
        return Report(found, folder / "index.html")
    return Report(found, write_report(found, folder, advance=started("report", len(PICTURES))))


def _note(name: str, n_ratings: int, a: Loaded, c: Loaded) -> str:
    """Which rows were played, in a sentence."""
    n_rows = min(a.rows or n_ratings, n_ratings)
    least = c.min_ratings or 1
    users = [counted(each.stream.n_contexts, "user") for each in (a, c)]
    rounds = [counted(each.stream.n_rounds, "round") for each in (a, c)]
    first = f"the first {counted(n_rows, 'row')} of {name}, {rounds[0]} once movies without genres are dropped"
    many = f"users with at least {counted(least, 'rating')}, {rounds[1]}, {users[1]}"
    return f"A and B: {first}, {users[0]}, {a.stream.n_arms} genres. C: {many}."
