"""MovieLens ratings as a stream: users are contexts, genres are arms, every rating is a round.

The data belong to GroupLens and have their own license: free for research, not for commercial use without permission.
So no distribution of this package contains them. The repository has a copy of latest-small, with its license, in
`data/ml-latest-small`; elsewhere it is downloaded once, see `alphafair.data.downloads`.

The ratings are read some megabytes at a time and kept as three numbers per row, and the stream points into one row of
rewards per movie; a table of rounds by arms is never made. MovieLens 25M takes 1.3 GB while it is read, 0.2 GB after.
"""

from __future__ import annotations

import difflib
import io
import itertools
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.extras import polars as pl
from alphafair.tables import Column, records
from alphafair.values import Stream

NO_GENRES = "(no genres listed)"
AGAIN = "Download it again (alphafair data get NAME), or pass another copy."
_BLOCK_BYTES, _BLOCK_LINES = 1 << 24, 1 << 19  # read at once: large enough for two cores, small in memory
_LARGEST_ID = int(np.iinfo(np.int32).max)
_ID, _DELETE = f"an integer up to {_LARGEST_ID}", "Correct it or delete that line."
_USER = Column("userId", "integer", 0, _LARGEST_ID, _ID, _DELETE)
_MOVIE = Column("movieId", "integer", 0, _LARGEST_ID, _ID, _DELETE)
_RATING = Column("rating", "number", 0, 5, "a number in [0, 5]", "Write the stars given, or delete that line.")
_SECONDS = "Write it in seconds since 1970, or delete that line."
_TIMESTAMP = Column("timestamp", "integer", -(2.0**63), 2.0**63 - 1025, "an integer", _SECONDS)
_RATINGS = (_USER, _MOVIE, _RATING, _TIMESTAMP)
_MOVIES = ("movieId", "title", "genres")
FILE = Path(__file__).parents[3] / "data" / "ml-latest-small" / "ml-latest-small.npz"  # in the repository


class Ratings(NamedTuple):
    """The content of a ratings file, one entry per row and in the order of the file."""

    users: NDArray[np.int32]
    movies: NDArray[np.int32]  # rows of Genres.fits
    timestamps: NDArray[np.int64]


class Genres(NamedTuple):
    """The genres, in order of their names, and which of them each movie has."""

    names: tuple[str, ...]
    fits: NDArray[np.bool_]  # movies by genres; all False for a movie with no genres listed


def movielens(
    folder_or_zip: str | os.PathLike[str],
    *,
    rows: int | None = None,
    min_ratings: int | None = None,
    reward_floor: float = 0.2,
) -> Stream:
    """Make a stream of ratings: the user is the context, the arms are genres, and those of the rated movie pay 1.

    Rounds follow the timestamps; ratings of the same second keep the order of the file. Contexts follow the users'
    ids, arms the genres' names. Arms are all genres of the movies file, rated or not.

    Parameters
    ----------
    folder_or_zip
        MovieLens 25M, 32M, latest or latest-small (CSV), or 1M (DAT): the folder, or the .zip as downloaded.
    rows
        The number of rows of the ratings file to read, before any are dropped; the paper uses 5,000.
    min_ratings
        The least number of ratings of a user, counted without ratings of movies with "(no genres listed)": those are
        dropped, since no arm fits them.
    reward_floor
        The reward of a genre that the movie does not have.

    >>> movielens("ml-25m.zip", rows=5000)  # doctest: +SKIP
    """
    rows, min_ratings, reward_floor = check_settings(rows, min_ratings, reward_floor)
    ratings, genres = read_movielens(folder_or_zip, rows)
    return ratings_stream(ratings, genres, min_ratings=min_ratings, reward_floor=reward_floor)


def movielens_small(*, rows: int | None = None, min_ratings: int | None = None, reward_floor: float = 0.2) -> Stream:
    """MovieLens latest-small (September 2018): 100,836 ratings by 610 users of 9,742 movies, 19 genres.

    The same rounds as `movielens` on the data set's own folder, with the same settings. The copy of the repository is
    read if it exists; else the data set is downloaded (1 MB, once) and its SHA-256 checksum is verified. Without a
    network that is a `DownloadError`. Not for commercial use without permission from GroupLens.

    >>> stream = movielens_small()
    >>> stream.n_rounds, stream.n_contexts, stream.n_arms  # 47 ratings are of movies with "(no genres listed)"
    (100789, 610, 19)
    >>> busy = movielens_small(min_ratings=500)
    >>> busy.n_rounds, busy.n_contexts
    (40034, 43)
    """
    rows, min_ratings, reward_floor = check_settings(rows, min_ratings, reward_floor)
    ratings, genres = read_movielens_small()
    return ratings_stream(first_rows(ratings, rows), genres, min_ratings=min_ratings, reward_floor=reward_floor)


def read_movielens_small() -> tuple[Ratings, Genres]:
    """Read the repository's copy or the downloaded one, to make several streams from it."""
    if not FILE.exists():
        from alphafair.data import downloads  # imports an HTTP client

        return read_movielens(downloads.get("latest-small"))
    with np.load(FILE, allow_pickle=False) as archive:
        genres = Genres(tuple(archive["genres"].tolist()), archive["fits"])
        movies = np.searchsorted(archive["movies"], archive["movie"])
        users, timestamps = archive["user"], archive["timestamp"]
    return Ratings(users.astype(np.int32), movies.astype(np.int32), timestamps.astype(np.int64)), genres


def read_movielens(folder_or_zip: str | os.PathLike[str], rows: int | None = None) -> tuple[Ratings, Genres]:
    """Read the two files, to make several streams from them."""
    with _opened(Path(folder_or_zip)) as copy:
        movie_ids, genres = _read_movies(copy)
        return _read_ratings(copy, movie_ids, rows), genres


def first_rating(folder_or_zip: str | Path) -> str:
    """The first rating of a copy, as in its file, which identifies the release."""
    with _opened(Path(folder_or_zip)) as copy, copy.open("ratings") as file:
        lines = [file.readline().decode("latin-1").strip() for _ in range(2)]
        return lines[1] if copy.extension == "csv" else lines[0]


def check_settings(
    rows: int | None, min_ratings: int | None, reward_floor: float
) -> tuple[int | None, int | None, float]:
    """Check the settings that all streams of ratings share."""
    return (
        None if rows is None else validate.integer("rows", rows, low=1),
        None if min_ratings is None else validate.integer("min_ratings", min_ratings, low=1),
        validate.number("reward_floor", reward_floor, low=0.0, high=1.0, high_open=True),
    )


def ratings_stream(ratings: Ratings, genres: Genres, *, min_ratings: int | None, reward_floor: float) -> Stream:
    """Drop ratings without genres and users with few ratings, and sort by time."""
    kept = _has_genres(ratings, genres)
    if not kept.any():
        raise InvalidArgument("ratings", "of movies with genres", "none", f'All were "{NO_GENRES}": read more rows.')
    user_ids = np.unique(ratings.users[kept])
    contexts = np.searchsorted(user_ids, ratings.users).astype(np.int32)  # only rows that are kept are valid
    if min_ratings is not None:
        counts = np.bincount(contexts[kept])
        if counts.max() < min_ratings:
            repair = f"No user has more than {counts.max()} ratings here."
            raise InvalidArgument("min_ratings", f"an integer in [1, {counts.max()}]", min_ratings, repair)
        kept &= np.append(counts >= min_ratings, False)[contexts]

    rounds = np.flatnonzero(kept)
    rounds = rounds[np.argsort(ratings.timestamps[rounds], kind="stable")]
    users, contexts = _renumbered(contexts[rounds], len(user_ids))
    movies, items = _renumbered(ratings.movies[rounds], len(genres.fits))
    table = np.where(genres.fits[movies], 1.0, reward_floor)
    return Stream(contexts, items, table, tuple(str(user) for user in user_ids[users].tolist()), genres.names)


def first_rows(ratings: Ratings, rows: int | None) -> Ratings:
    """The first ratings; all of them if `rows` is None."""
    return Ratings(ratings.users[:rows], ratings.movies[:rows], ratings.timestamps[:rows])


def most_ratings(ratings: Ratings, genres: Genres) -> int:
    """The greatest number of ratings of a user, as `min_ratings` counts them."""
    counts = np.unique(ratings.users[_has_genres(ratings, genres)], return_counts=True)[1]
    return int(counts.max(initial=0))


def _has_genres(ratings: Ratings, genres: Genres) -> NDArray[np.bool_]:
    """Whether each rating is of a movie with genres."""
    fits: NDArray[np.bool_] = np.asarray(genres.fits.any(axis=1))
    return fits[ratings.movies]


def _renumbered(numbers: NDArray[np.int32], bound: int) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """The numbers that occur, in order, and each entry's index among them."""
    occurs = np.zeros(bound, dtype=np.bool_)
    occurs[numbers] = True
    place = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return np.flatnonzero(occurs), place[numbers]


# A copy of the data set, in a folder or a zip


class _Copy(NamedTuple):
    path: Path
    archive: zipfile.ZipFile | None
    inside: PurePosixPath  # the folder of the two files, within path
    extension: str  # csv or dat

    def label(self, name: str) -> str:
        """The name of a file in error messages."""
        return str(self.path / self.inside / f"{name}.{self.extension}")

    @property
    def without_rows(self) -> str:
        """A description of a file without rows."""
        return "a header alone" if self.extension == "csv" else "an empty file"

    def open(self, name: str) -> IO[bytes]:
        member = self.inside / f"{name}.{self.extension}"
        if self.archive is None:
            return (self.path / member).open("rb")
        return io.BufferedReader(self.archive.open(str(member)), 1 << 20)  # type: ignore[type-var]


@contextmanager
def _opened(path: Path) -> Iterator[_Copy]:
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in (*path.glob("*"), *path.glob("*/*")) if file.is_file()]
        yield _located(path, None, names)
        return
    if not path.exists():
        repair = "Correct the path, download the data with alphafair data get NAME, or use streams.movielens_small()."
        raise InvalidArgument(str(path), "a MovieLens folder or .zip", "no such file", repair)
    if path.suffix.lower() in (".csv", ".dat"):
        repair = f"Pass the folder that it is in, {str(path.parent)!r}."
        raise InvalidArgument(str(path), "a MovieLens folder or .zip", "a single file of it", repair)
    try:
        with zipfile.ZipFile(path) as archive:
            yield _located(path, archive, [name for name in archive.namelist() if name.count("/") <= 1])
    except (zipfile.BadZipFile, zlib.error, EOFError) as problem:
        size = path.stat().st_size
        got = f"{size:,} bytes that are not" if size else "an empty file"
        repair = f"It is truncated or damaged ({problem}). {AGAIN}"
        raise InvalidArgument(str(path), "a whole .zip file", got, repair) from problem


def _located(path: Path, archive: zipfile.ZipFile | None, names: Sequence[str]) -> _Copy:
    """Find both files, at the top or in one folder below it."""
    for extension in ("csv", "dat"):
        found = [PurePosixPath(name) for name in names if PurePosixPath(name).name == f"ratings.{extension}"]
        if len(found) > 1:
            repair = "Pass the folder of one data set."
            raise InvalidArgument(str(path), "one data set", [str(name) for name in found], repair)
        if found:
            copy = _Copy(path, archive, found[0].parent, extension)
            if str(copy.inside / f"movies.{extension}") not in names:
                there = sorted(PurePosixPath(name).name for name in names if PurePosixPath(name).parent == copy.inside)
                raise InvalidArgument(copy.label("movies"), "in the folder of the ratings", there, AGAIN)
            return copy
    there = sorted(names)[:6]
    repair = f"Pass the folder that holds them, as unpacked. {AGAIN}"
    raise InvalidArgument(str(path), "a folder or .zip with ratings.csv and movies.csv (1M: .dat)", there, repair)


# The two files


def _read_movies(copy: _Copy) -> tuple[NDArray[np.int32], Genres]:
    """Ids in ascending order, and the genres of each."""
    label = copy.label("movies")
    with copy.open("movies") as file:
        raw = file.read()
    try:
        text = raw.decode("utf-8-sig" if copy.extension == "csv" else "latin-1")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        raise InvalidArgument(f"{label}, line {line}", "UTF-8 text", problem.object[problem.start :], AGAIN) from None
    if copy.extension == "csv":
        lines = records(io.StringIO(text, newline=""), label, AGAIN)
        _, header = next(lines, (1, []))
        id_at, _, genres_at = places = _columns(label, header, _MOVIES)
    else:
        id_at, _, genres_at = places = (0, 1, 2)
        rows = text.removesuffix("\n").split("\n") if text else []
        lines = ((n, line.rstrip().split("::")) for n, line in enumerate(rows, 1))

    table = list(lines)
    for line, fields in table:
        if len(fields) <= max(places):
            raise InvalidArgument(f"{label}, line {line}", f"{len(_MOVIES)} columns", fields, AGAIN)
    ids = replace(_MOVIE, repair=AGAIN).read(
        pl.Series([fields[id_at] for _, fields in table], dtype=pl.String), lambda row: f"{label}, line {table[row][0]}"
    )
    genres_of: dict[int, str] = {}
    for (line, fields), movie in zip(table, ids.cast(pl.Int64).to_list(), strict=True):
        where, genres = f"{label}, line {line}", fields[genres_at]
        if not genres.strip():
            repair = f'Write "{NO_GENRES}" there, or genres with | between.'
            raise InvalidArgument(f"{where}: genres", "one name or several", genres, repair)
        if movie in genres_of:
            raise InvalidArgument(f"{where}: movieId", "unique", str(movie), "Delete one of the two lines.")
        genres_of[movie] = genres
    if not genres_of:
        raise InvalidArgument(label, "a table of movies", copy.without_rows, AGAIN)
    if not text.endswith("\n"):
        _refuse_truncated(label, table[-1][0])
    in_order = sorted(genres_of)
    genres_by_id = _genres([genres_of[movie] for movie in in_order])
    if len(genres_by_id.names) < 2:
        repair = "Genres are the arms, of which there must be two or more."
        raise InvalidArgument(f"{label}: genres", "at least two different names", list(genres_by_id.names), repair)
    return np.array(in_order, dtype=np.int32), genres_by_id


def _genres(by_movie: Sequence[str]) -> Genres:
    """Names and a matrix, from strings such as "Comedy|Drama"."""
    sets = {text: frozenset(text.strip().split("|")) - {NO_GENRES} for text in set(by_movie)}
    names = tuple(sorted(frozenset[str]().union(*sets.values())))
    rows = {text: [name in genres for name in names] for text, genres in sets.items()}
    return Genres(names, np.array([rows[text] for text in by_movie], dtype=np.bool_).reshape(len(by_movie), len(names)))


def _read_ratings(copy: _Copy, movie_ids: NDArray[np.int32], rows: int | None) -> Ratings:
    label = copy.label("ratings")
    parts: list[Ratings] = []
    with copy.open("ratings") as file:
        names = [column.name for column in _RATINGS]
        header = names
        if copy.extension == "csv":
            text = file.readline().decode("utf-8-sig", errors="replace").strip()
            _, header = next(records([text], label, AGAIN), (1, []))
        _columns(label, header, names)
        kinds = {"userId": pl.Int32, "movieId": pl.Int32, "rating": pl.Float32, "timestamp": pl.Int64}
        schema = pl.Schema({name: kinds.get(name, pl.String) for name in header})
        line = 1 if copy.extension == "dat" else 2
        for block in _blocks(file, rows):
            if copy.extension == "dat":
                block = block.replace(b"::", b",")
            try:
                scan = pl.scan_csv(block, has_header=False, schema=schema, quote_char=None).select(names)
                frame = scan.collect()
                sound = not any(column.convert(frame[column.name]).null_count() for column in _RATINGS)
            except pl.exceptions.PolarsError:
                sound = False
            if not (sound and block.endswith(b"\n")):
                _refuse_block(label, line, block, schema)
            parts.append(_numbered(frame, movie_ids, label, line))
            line += len(frame)
    if not parts:
        raise InvalidArgument(label, "a table of ratings", copy.without_rows, AGAIN)
    columns = [list(column) for column in zip(*parts, strict=True)]
    parts.clear()
    return Ratings(*(np.concatenate(columns.pop(0)) for _ in range(len(columns))))


def _blocks(file: IO[bytes], rows: int | None) -> Iterator[bytes]:
    """Complete lines, some megabytes at a time; only the first `rows` lines if given."""
    while rows is None or rows > 0:
        if rows is None:
            block = file.read(_BLOCK_BYTES) + file.readline()
        else:
            block = b"".join(itertools.islice(file, min(rows, _BLOCK_LINES)))
            rows -= _BLOCK_LINES
        if not block:
            return
        yield block


def _numbered(frame: pl.DataFrame, movie_ids: NDArray[np.int32], label: str, line: int) -> Ratings:
    """The ratings of a block, with movie ids replaced by rows of the movies table."""
    wanted = frame["movieId"].to_numpy()
    movies = np.minimum(np.searchsorted(movie_ids, wanted), len(movie_ids) - 1).astype(np.int32)
    unknown = movie_ids[movies] != wanted
    if unknown.any():
        row = int(unknown.argmax())
        repair = "Take both files from the same MovieLens release, or delete that line."
        where = f"{label}, line {line + row}: movieId"
        raise InvalidArgument(where, "a movie of the movies file", int(wanted[row]), repair)
    return Ratings(frame["userId"].to_numpy(), movies, frame["timestamp"].to_numpy())


# Errors


def _columns(label: str, header: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...]:
    """The index of each wanted column."""
    if not header:
        raise InvalidArgument(label, f"a table with the columns {', '.join(wanted)}", "an empty file", AGAIN)
    for name in wanted:
        if name not in header:
            close = difflib.get_close_matches(name, header, n=1)
            repair = f"Rename {close[0]!r} to {name!r}." if close else f"Add {name!r}. {AGAIN}"
            raise InvalidArgument(f"{label}, line 1: columns", f"{', '.join(wanted)}", list(header), repair)
    return tuple(header.index(name) for name in wanted)


def _refuse_truncated(label: str, line: int) -> NoReturn:
    repair = f"The file seems to be truncated. {AGAIN} If the line is complete, add a line break after it."
    raise InvalidArgument(f"{label}, line {line}", "ended by a line break", "the end of the file", repair)


def _refuse_block(label: str, line: int, block: bytes, schema: pl.Schema) -> NoReturn:
    """Refuse the first bad line of a block that could not be read as a whole."""
    lines = block.removesuffix(b"\n").split(b"\n")
    rows = [text.removesuffix(b"\r").decode("utf-8", errors="replace").split(",") for text in lines]
    short = next((row for row, fields in enumerate(rows) if len(fields) != len(schema)), len(rows))

    def where(row: int) -> str:
        return f"{label}, line {line + row}"

    if short:
        settings: dict[str, Any] = {"has_header": False, "schema": schema, "quote_char": None, "ignore_errors": True}
        frame = pl.read_csv(b"\n".join([*lines[:short], b""]), **settings)
        bad = {column: found[0] for column in _RATINGS if (found := column.bad_rows(frame[column.name]))}
        if bad:
            column, row = min(bad.items(), key=lambda each: each[1])
            got = rows[row][schema.names().index(column.name)]
            raise InvalidArgument(f"{where(row)}: {column.name}", column.allowed, got, column.repair)
    if short < len(rows):
        repair, got = f"The file may be truncated there. {AGAIN}", lines[short].decode("utf-8", errors="replace")
        raise InvalidArgument(where(short), f"{len(schema)} columns", got, repair)
    if not block.endswith(b"\n"):
        _refuse_truncated(label, line + len(lines) - 1)
    allowed, got = "rows of numbers", "another kind of text"
    raise InvalidArgument(f"{label}, lines {line} to {line + len(lines) - 1}", allowed, got, AGAIN)
