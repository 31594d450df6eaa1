"""Where the ratings come from: which data set it is, and whether all of it is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from alphafair import streams
from alphafair.data.movielens import Genres, Ratings, read_movielens, read_movielens_small
from alphafair.errors import InvalidArgument
from alphafair.lab.results import DataFacts, Part
from alphafair.values import Stream


@dataclass(frozen=True)
class Release:
    """A data set as published: known by its first rating, complete if it has as many as it should."""

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
# What the paper's rows hold; checked whenever the data are all of MovieLens 25M.
COUNTS_25M = {"A": (33, 19, 4999), "C": (18, 19, 136_267)}  # contexts, arms, rounds


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
        """The same if it is a copy; otherwise synthetic ratings, which need no download."""
        return Data(self.path, synthetic=self.path is None)

    def read(self) -> tuple[Ratings, Genres]:
        if self.path is not None:
            return read_movielens(self.path)
        return synthetic_ratings() if self.synthetic else read_movielens_small()

    def release(self) -> Release | None:
        """Of a copy in a folder or a zip, if it is one that is known."""
        if self.path is None:
            return None
        first = streams.first_rating(self.path)
        return next((release for release in RELEASES if release.first_rating == first), None)

    def facts(self, n_ratings: int, digest: str) -> DataFacts:
        """What there is to say of so many ratings; a part of a known data set is called one wherever it is named."""
        name, release, part = self.name, self.release(), None
        if release is not None and n_ratings < release.n_ratings:
            part = Part(release.name, n_ratings, release.n_ratings)
            name += f" (a part of {part.of}: {part.found:,} of {part.complete:,} ratings)"
        is_the_papers = release == MOVIELENS_25M and n_ratings == MOVIELENS_25M.n_ratings
        return DataFacts(name, not is_the_papers, digest, part)


def synthetic_ratings() -> tuple[Ratings, Genres]:
    """12,000 ratings by 30 users, sorted by user as in MovieLens, the busiest last: rounds of `streams.ratings`."""
    stream = streams.ratings(n_rounds=12_000, n_contexts=30, n_arms=19, seed=0)
    users = np.int32(stream.n_contexts) - stream.contexts
    rows = np.argsort(users, kind="stable")
    ratings = Ratings(users[rows], stream.items[rows], rows.astype(np.int64))
    return ratings, Genres(tuple(f"genre {k:02d}" for k in range(1, 20)), stream.reward_table == 1.0)


def check_counts(name: str, stream: Stream) -> None:
    """On MovieLens 25M the paper's rows must be the paper's rows."""
    counts = (stream.n_contexts, stream.n_arms, stream.n_rounds)
    if name in COUNTS_25M and counts != COUNTS_25M[name]:
        argument, allowed = f"contexts, arms and rounds of experiment {name}", f"{COUNTS_25M[name]} on MovieLens 25M"
        repair = "The copy is not as published: get it again with `alphafair data get 25m`."
        raise InvalidArgument(argument, allowed, counts, repair)
