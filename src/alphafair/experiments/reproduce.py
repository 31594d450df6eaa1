"""All experiments on one data set, and the report of them."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import alphafair
from alphafair import streams, validate
from alphafair.experiments import paper, results
from alphafair.experiments.claims import claims
from alphafair.experiments.compiling import NAMES, compile_all
from alphafair.experiments.pictures import available
from alphafair.experiments.report import write_report
from alphafair.experiments.run import is_done, run
from alphafair.experiments.value import Experiment, Loaded, Work, report_digest, stream_digest
from alphafair.streams.bundled import read_bundled
from alphafair.streams.movielens import Genres, Ratings, first_rows, most_ratings, ratings_stream, read_movielens
from alphafair.types import Stream

OVER_TIME = ("A", "B", "sign", "step", "readings", "delta")
STAND_IN_RATINGS = (500, 50)  # of a user in experiment C, where nobody has as many as the paper asks for
# What the paper's rows hold; checked whenever the data are MovieLens 25M itself.
COUNTS_25M = {"A": (33, 19, 4999), "C": (18, 19, 136_267)}  # contexts, arms, rounds
FIRST_ROW_25M = "1,296,5.0,1147880044"


@dataclass(frozen=True)
class Data:
    """Where the ratings come from: a copy of a MovieLens data set, or the one that ships with the package."""

    path: Path | None = None

    @property
    def name(self) -> str:
        return "MovieLens latest-small (bundled)" if self.path is None else self.path.resolve().name

    def read(self) -> tuple[Ratings, Genres]:
        return read_bundled() if self.path is None else read_movielens(self.path)

    def is_25m(self) -> bool:
        """MovieLens 25M itself, in a folder or a zip, is known by its first rating."""
        return self.path is not None and streams.first_rating(self.path) == FIRST_ROW_25M


def plan(*, smoke: bool = False) -> tuple[Experiment, ...]:
    """All experiments, or the same in seconds."""
    return tuple(experiment.smoke() if smoke else experiment for experiment in paper.EXPERIMENTS)


def loaded(ratings: Ratings, genres: Genres, experiment: Experiment) -> Loaded:
    """An experiment with its rounds; where nobody has as many ratings as it asks for, users of fewer stand in."""
    rows, least = first_rows(ratings, experiment.rows), experiment.min_ratings
    if least is not None:
        most = most_ratings(rows, genres)
        least = next((fewer for fewer in (least, *STAND_IN_RATINGS) if fewer <= most), None)
    stream = ratings_stream(rows, genres, min_ratings=least, reward_floor=experiment.reward_floor)
    return Loaded(replace(experiment, min_ratings=least), stream)


Started = Callable[[str, int], Callable[[int], None]]


def measure(
    data: Data,
    folder: Path,
    *,
    smoke: bool = False,
    jobs: int | None = None,
    command: str = "alphafair reproduce",
    started: Started = lambda title, total: lambda done: None,
) -> dict[str, Any]:
    """Run what has not been run: all that `results.json` holds. The tables are kept in the folder.

    `started(title, total)` is called for each piece of work and gives back the function to tell of progress.
    """

    def ran(work: Work) -> Path:
        return run(work, folder, jobs=jobs, advance=started(work.title, len(work.tasks())))

    tell = started("Reading the ratings", 1)
    ratings, genres = data.read()
    ready = {experiment.name: loaded(ratings, genres, experiment) for experiment in plan(smoke=smoke)}
    del ratings  # from here on only what is played
    tell(1)
    is_25m = data.is_25m()
    if is_25m and not smoke:
        for name, experiment in ready.items():
            check_counts(name, experiment.stream)
    limit = paper.IMPOSSIBILITY.smoke() if smoke else paper.IMPOSSIBILITY
    arms = paper.TOY.smoke() if smoke else paper.TOY
    works: list[Work] = [*ready.values(), limit, arms]
    if not all(is_done(work, folder) for work in works):
        compile_all(jobs=jobs, advance=started("Compiling", len(NAMES)))
    runs = {name: (experiment, ran(experiment)) for name, experiment in ready.items()}
    measured = {name: results.samples(*runs[name]) for name in (*OVER_TIME, "floor_sweep")}
    measured["toy"] = results.pull_shares(arms, ran(arms))
    a, c = ready["A"], ready["C"]
    sections = {
        **{name: results.over_time(*runs[name], measured[name]) for name in OVER_TIME},
        "C": {**results.over_alpha(*runs["C"]), "data": data.name},
        "floor_sweep": results.over_floor(ready["floor_sweep"], measured["floor_sweep"]),
        "impossibility": results.impossibility(limit, ran(limit)),
    }
    sections["sign"]["toy"] = results.toy(arms, measured["toy"])
    for name in ("A", "B"):
        sections[name]["first"] = results.first(measured[name])
    found = {
        "command": command,
        "versions": versions(),
        "data": {
            "name": data.name,
            "stand_in": not is_25m,
            "digest": stream_digest(a.stream),
            "note": note(data, a, c),
        },
        "claims": claims(sections, measured, data.name),
        "experiments": sections,
    }
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def reproduce(
    data: Data, folder: Path, *, started: Started = lambda title, total: lambda done: None, **options: Any
) -> Path:
    """Measure, then write the report; the path of its page. Options are those of `measure`."""
    found = measure(data, folder / "runs", started=started, **options)
    if _is_written(found, folder):
        return folder / "index.html"
    return write_report(found, folder, advance=started("report", len(available(found))))


def _is_written(found: dict[str, Any], folder: Path) -> bool:
    """Whether the report of just these results is there, whole: results.json is written last."""
    try:
        kept = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there, or not JSON
        return False
    if kept != found:
        return False
    files = [folder / "index.html"]
    files += [
        folder / "figures" / f"{picture.name}.{kind}" for picture in available(found) for kind in ("png", "svg", "pdf")
    ]
    return all(path.is_file() for path in files)


def check_counts(name: str, stream: Stream) -> None:
    """On MovieLens 25M the paper's rows must be the paper's rows."""
    counts = (stream.n_contexts, stream.n_arms, stream.n_rounds)
    if name in COUNTS_25M and counts != COUNTS_25M[name]:
        raise validate.Refusal(
            f"contexts, arms and rounds of experiment {name}",
            f"{COUNTS_25M[name]} on MovieLens 25M",
            counts,
            "The copy is not complete: get it again with `alphafair data get 25m`.",
        )


def note(data: Data, a: Loaded, c: Loaded) -> str:
    """Which rows were played, in a sentence."""
    least = c.experiment.min_ratings or 1
    return (
        f"A and B: the first {a.experiment.rows:,} rows of {data.name}, {a.stream.n_rounds:,} rounds once movies "
        f"without genres are dropped, {a.stream.n_contexts} users, {a.stream.n_arms} genres. "
        f"C: users with at least {least:,} ratings, {c.stream.n_rounds:,} rounds, {c.stream.n_contexts} users."
    )


def versions() -> dict[str, Any]:
    """What the numbers were made with."""
    packages = ("numpy", "numba", "polars", "matplotlib")
    own = {"alphafair": alphafair.__version__, "code": report_digest(), "python": platform.python_version()}
    return own | {package: version(package) for package in packages}
