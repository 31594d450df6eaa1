"""MovieLens latest-small: real ratings of a size that plays in seconds.

The data are GroupLens', not ours, and under their own licence: free for research, not for commercial use without
their permission. So no distribution of this package contains them. The repository has a copy, with its licence, in
`data/ml-latest-small`; where there is no repository the data set is downloaded once, see `alphafair.data.downloads`.
"""

from pathlib import Path

import numpy as np

from alphafair.data.movielens import Genres, Ratings, checked, first_rows, ratings_stream, read_movielens
from alphafair.values import Stream

FILE = Path(__file__).parents[3] / "data" / "ml-latest-small" / "ml-latest-small.npz"  # of the repository


def movielens_small(*, rows: int | None = None, min_ratings: int | None = None, reward_floor: float = 0.2) -> Stream:
    """MovieLens latest-small (September 2018): 100,836 ratings by 610 users of 9,742 movies, 19 genres.

    The same rounds as `movielens` on the data set's own folder, and the same settings. The copy of the repository is
    read where there is one; elsewhere the data set is downloaded (1 MB, once) and compared with its SHA-256 checksum,
    and a `DownloadError` says what to do where there is no network. Not for commercial use without permission from
    GroupLens.

    >>> stream = movielens_small()
    >>> stream.n_rounds, stream.n_contexts, stream.n_arms  # 47 ratings are of movies with "(no genres listed)"
    (100789, 610, 19)
    >>> busy = movielens_small(min_ratings=500)
    >>> busy.n_rounds, busy.n_contexts
    (40034, 43)
    """
    rows, min_ratings, reward_floor = checked(rows, min_ratings, reward_floor)
    ratings, genres = read_movielens_small()
    return ratings_stream(first_rows(ratings, rows), genres, min_ratings=min_ratings, reward_floor=reward_floor)


def read_movielens_small() -> tuple[Ratings, Genres]:
    """The repository's copy or the downloaded one, for making several streams of it."""
    if not FILE.exists():
        from alphafair.data import downloads  # loads an HTTP client

        return read_movielens(downloads.get("latest-small"))
    with np.load(FILE, allow_pickle=False) as archive:
        genres = Genres(tuple(archive["genres"].tolist()), archive["fits"])
        movies = np.searchsorted(archive["movies"], archive["movie"])
        users, timestamps = archive["user"], archive["timestamp"]
    return Ratings(users.astype(np.int32), movies.astype(np.int32), timestamps.astype(np.int64)), genres
