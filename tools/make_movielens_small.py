"""Make the copy in data/ml-latest-small from a folder of MovieLens latest-small; the same folder, the same bytes.

    python tools/make_movielens_small.py FOLDER

Kept: every row of ratings.csv in its order (user, movie, rating, timestamp), the ids and genres of movies.csv, and
README.txt as it is, because it holds the license. Left out: titles, tags.csv and links.csv.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import polars as pl

TARGET = Path(__file__).parents[1] / "data" / "ml-latest-small"
NO_GENRES = "(no genres listed)"


def make(folder: Path, target: Path = TARGET) -> Path:
    """Write ml-latest-small.npz and the license beside it."""
    ratings = pl.read_csv(folder / "ratings.csv")
    movies = pl.read_csv(folder / "movies.csv").sort("movieId")
    listed = [set(text.split("|")) - {NO_GENRES} for text in movies["genres"]]
    genres = sorted(set[str]().union(*listed))
    target.mkdir(parents=True, exist_ok=True)
    file = target / "ml-latest-small.npz"
    np.savez_compressed(  # every entry is dated 1980: no trace of when it was made
        file,
        allow_pickle=False,
        user=ratings["userId"].cast(pl.Int16).to_numpy(),
        movie=ratings["movieId"].cast(pl.Int32).to_numpy(),
        half_stars=(ratings["rating"] * 2).cast(pl.UInt8).to_numpy(),
        timestamp=ratings["timestamp"].cast(pl.Int32).to_numpy(),
        movies=movies["movieId"].cast(pl.Int32).to_numpy(),
        genres=np.array(genres),
        fits=np.array([[name in names for name in genres] for names in listed]),
    )
    shutil.copyfile(folder / "README.txt", target / "README.txt")
    return file


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the copy in data/ from a folder of MovieLens latest-small.")
    parser.add_argument("folder", type=Path)
    made = make(parser.parse_args().folder)
    print(f"{made}: {made.stat().st_size:,} bytes")
