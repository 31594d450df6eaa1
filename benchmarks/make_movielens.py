"""A made-up folder in the layout of MovieLens 25M, with the paper's counts.

    python -m benchmarks.make_movielens FOLDER

As in the real one, rows are sorted by user and movie, few users rate much and few movies are rated much, and

- the first 5,000 rows are those of 33 users, and one of them rates a movie with "(no genres listed)";
- 18 users have at least 5,000 ratings once such rows are dropped, 136,267 of them in all.

So everything that is asserted of MovieLens 25M holds here too, also in a small copy (`--ratings 250000 --users 1500`).
A user may meet a movie twice, which the real one never has.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

N_RATINGS, N_USERS, N_MOVIES = 25_000_095, 162_541, 62_423
FIRST_ROWS, FIRST_USERS = 5_000, 33
BUSY, BUSY_USERS, BUSY_RATINGS, BUSIEST = 5_000, 18, 136_267, 32_202
GENRES = (
    *(
        "Action",
        "Adventure",
        "Animation",
        "Children",
        "Comedy",
        "Crime",
        "Documentary",
        "Drama",
        "Fantasy",
        "Film-Noir",
    ),
    *("Horror", "IMAX", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western"),
)
NO_GENRES = "(no genres listed)"
Array = np.ndarray[Any, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.make_movielens", description="A made-up MovieLens 25M.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ratings", type=int, default=N_RATINGS)
    parser.add_argument("--users", type=int, default=N_USERS)
    parser.add_argument("--movies", type=int, default=N_MOVIES)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.perf_counter()
    make(options.folder, options.ratings, options.users, options.movies, seed=options.seed)
    print(f"{options.ratings:,} ratings in {options.folder}, {time.perf_counter() - start:.1f} s")


def make(
    folder: Path, n_ratings: int = N_RATINGS, n_users: int = N_USERS, n_movies: int = N_MOVIES, *, seed: int = 0
) -> Path:
    """Write ratings.csv and movies.csv."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    ids = np.sort(rng.choice(np.arange(1, n_movies * 10 // 3), size=n_movies, replace=False))
    has_genres = _write_movies(folder / "movies.csv", ids, rng)
    counts = _ratings_by_user(n_ratings, n_users, rng)
    quiet = np.flatnonzero((counts >= BUSY) | (np.arange(n_users) < FIRST_USERS))  # meet movies with genres only
    popularity = rng.pareto(1.1, n_movies) + 0.01
    popularity[~has_genres] *= 0.01
    edges = np.cumsum(popularity) / popularity.sum()
    with_genres = np.flatnonzero(has_genres)
    with (folder / "ratings.csv").open("wb") as file:
        file.write(b"userId,movieId,rating,timestamp\n")
        for first in range(0, n_users, 10_000):
            block = counts[first : first + 10_000]
            users = np.repeat(np.arange(first, first + len(block)), block)
            movies = _movies_by_user(block, edges, rng)
            of_quiet = np.isin(users, quiet)
            following = with_genres[np.minimum(np.searchsorted(with_genres, movies), len(with_genres) - 1)]
            movies = np.where(of_quiet, following, movies)
            if first == 0:
                movies[0] = np.flatnonzero(~has_genres)[0]
            _write_ratings(file, users, ids[movies], rng)
    return folder


def _write_movies(path: Path, ids: Array, rng: np.random.Generator) -> Array:
    """One to four genres a movie, none for eight in a hundred; titles with commas, quotes and accents."""
    names = np.array(GENRES)
    weights = np.array([1 / (1 + abs(k - 7)) for k in range(len(names))])
    keys = rng.random((len(ids), len(names))) ** (1 / weights)
    order = np.argsort(-keys, axis=1)[:, :4]
    how_many = rng.integers(1, 5, len(ids))
    has_genres = rng.random(len(ids)) > 0.08
    has_genres[0] = False
    has_genres[-1] = True
    drawn = zip(order, how_many, has_genres, strict=True)
    genres = ["|".join(sorted(names[row[:n]])) if some else NO_GENRES for row, n, some in drawn]
    genres[-1] = "|".join(GENRES)  # so that all 19 occur in a copy of any size
    titles = [f'Étude "{k}", The (19{k % 100:02d})' for k in range(len(ids))]
    pl.DataFrame({"movieId": ids, "title": titles, "genres": genres}).write_csv(path)
    return has_genres


def _ratings_by_user(n_ratings: int, n_users: int, rng: np.random.Generator) -> Array:
    """At least 20 each, 18 users above 5,000, the first 33 with row 5,000 in the last of them, the right sum."""
    counts = np.full(n_users, 20)
    first = np.full(FIRST_USERS, (FIRST_ROWS - 1) // FIRST_USERS)
    first[-1] = FIRST_ROWS - first[:-1].sum()
    counts[:FIRST_USERS] = first
    others = BUSY_RATINGS - BUSIEST
    spare = rng.dirichlet(np.ones(BUSY_USERS - 1)) * (others - BUSY * (BUSY_USERS - 1))
    busy = BUSY + spare.astype(np.int64)
    busy[0] += others - busy.sum()
    chosen = rng.choice(np.arange(FIRST_USERS, n_users), BUSY_USERS, replace=False)
    counts[chosen] = np.append(busy, BUSIEST)
    rest = np.setdiff1d(np.arange(FIRST_USERS, n_users), chosen)
    missing = n_ratings - counts.sum()
    if missing < 0:
        raise SystemExit(f"--ratings must be at least {counts.sum():,} for so many users")
    taste = np.minimum(rng.lognormal(0.0, 1.3, len(rest)), 20.0)
    extra = np.minimum((taste / taste.sum() * missing).astype(np.int64), BUSY - 21)
    left = missing - extra.sum()
    while left > 0:
        open_to_more = np.flatnonzero(extra < BUSY - 21)[:left]
        if not len(open_to_more):
            raise SystemExit("--users is too small for so many ratings")
        extra[open_to_more] += 1
        left -= len(open_to_more)
    counts[rest] += extra
    return counts


def _movies_by_user(counts: Array, edges: Array, rng: np.random.Generator) -> Array:
    """For every user a sample along the popularity scale, one in each of n equal parts: sorted as it is drawn."""
    ends = np.cumsum(counts)
    place = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
    where = (place + rng.random(ends[-1])) / np.repeat(counts, counts)
    movies: Array = np.minimum(np.searchsorted(edges, where), len(edges) - 1)
    return movies


def _write_ratings(file: Any, users: Array, movies: Array, rng: np.random.Generator) -> None:
    opened = rng.integers(789_652_009, 1_574_327_703, users.max() + 1)[users]
    frame = pl.DataFrame(
        {
            "userId": users + 1,
            "movieId": movies,
            "rating": rng.integers(1, 11, len(users)) / 2,
            "timestamp": opened + rng.integers(0, 200_000, len(users)),
        }
    )
    frame.write_csv(file, include_header=False, float_precision=1)


if __name__ == "__main__":
    main()
