"""MovieLens latest-small, shipped inside the package: real ratings where there is no network.

The data are GroupLens', not ours, and under their own licence: free for research, not for commercial use without
their permission. It lies beside the file, in `data/ml-latest-small-README.txt`; `data/NOTICE.txt` says what was done.
"""

from pathlib import Path

import numpy as np

from alphafair.streams.movielens import Genres, Ratings, checked, first_rows, ratings_stream
from alphafair.types import Stream

FILE = Path(__file__).parent / "data" / "ml-latest-small.npz"


def bundled(*, rows: int | None = None, min_ratings: int | None = None, reward_floor: float = 0.2) -> Stream:
    """MovieLens latest-small (September 2018): 100,836 ratings by 610 users of 9,742 movies, 19 genres.

    The same rounds as `movielens` on the data set's own folder, and the same settings.

    >>> stream = bundled()
    >>> stream.n_rounds, stream.n_contexts, stream.n_arms  # 47 ratings are of movies with "(no genres listed)"
    (100789, 610, 19)
    >>> busy = bundled(min_ratings=500)
    >>> busy.n_rounds, busy.n_contexts
    (40034, 43)
    """
    rows, min_ratings, reward_floor = checked(rows, min_ratings, reward_floor)
    ratings, genres = read_bundled()
    return ratings_stream(first_rows(ratings, rows), genres, min_ratings=min_ratings, reward_floor=reward_floor)


def read_bundled() -> tuple[Ratings, Genres]:
    """What the file says, for making several streams of it."""
    with np.load(FILE, allow_pickle=False) as archive:
        genres = Genres(tuple(archive["genres"].tolist()), archive["fits"])
        movies = np.searchsorted(archive["movies"], archive["movie"])
        users, timestamps = archive["user"], archive["timestamp"]
    return Ratings(users.astype(np.int32), movies.astype(np.int32), timestamps.astype(np.int64)), genres
