"""MovieLens folders and zips, and the copy in the repository: the rounds they make, and what is refused."""

from __future__ import annotations

import csv
import hashlib
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from alphafair import streams
from alphafair.cli import app
from alphafair.data import downloads
from alphafair.data.movielens import FILE
from alphafair.streams import movielens, movielens_small
from alphafair.values import Stream
from benchmarks.make_movielens import make as make_up
from tools.make_movielens_small import make as make_movielens_small

MOVIES = """movieId,title,genres
3,"Comma, The (1990)",Comedy|Drama
1,"Say ""Amélie"" (2001)",Drama
7,Nothing (1999),(no genres listed)
9,War (2000),War
"""
RATINGS = """userId,movieId,rating,timestamp
2,1,4.0,50
2,9,3.5,10
2,7,1.0,5
10,3,5.0,10
10,1,2.0,60
4,9,0.5,20
"""


def folder_of(path: Path, ratings: str = RATINGS, movies: str = MOVIES) -> Path:
    path.mkdir(exist_ok=True)
    (path / "ratings.csv").write_text(ratings, encoding="utf-8", newline="")
    (path / "movies.csv").write_text(movies, encoding="utf-8", newline="")
    return path


def same(one: Stream, other: Stream) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        for name in ("contexts", "items", "reward_table", "context_labels", "arm_labels")
    )


# Rounds, worked out by hand


def test_a_tiny_folder(tmp_path: Path) -> None:
    stream = movielens(folder_of(tmp_path))
    assert stream.arm_labels == ("Comedy", "Drama", "War")
    assert stream.context_labels == ("2", "4", "10")  # by number, not as text
    assert stream.contexts.tolist() == [0, 2, 1, 0, 2]  # times 10, 10, 20, 50, 60; the tie in the order of the file
    assert [stream.rewards(t).tolist() for t in range(5)] == [
        [0.2, 0.2, 1.0],
        [1.0, 1.0, 0.2],
        [0.2, 0.2, 1.0],
        [0.2, 1.0, 0.2],
        [0.2, 1.0, 0.2],
    ]
    assert stream.contexts.dtype == stream.items.dtype == np.int32
    assert stream.reward_table.shape == (3, 3), "one row per movie, not one per round"


def test_rows_count_before_anything_is_dropped(tmp_path: Path) -> None:
    stream = movielens(folder_of(tmp_path), rows=3, reward_floor=0.0)
    assert stream.contexts.tolist() == [0, 0]
    assert stream.rewards(0).tolist() == [0.0, 0.0, 1.0]
    assert stream.arm_labels == ("Comedy", "Drama", "War"), "arms are those of the movies file"
    assert same(movielens(tmp_path, rows=6), movielens(tmp_path, rows=1000))


def test_min_ratings_count_after_the_drop(tmp_path: Path) -> None:
    stream = movielens(folder_of(tmp_path), min_ratings=2)
    assert stream.context_labels == ("2", "10")
    assert stream.contexts.tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match=r"min_ratings must be an integer in \[1, 2\]; got 3. No user has more"):
        movielens(tmp_path, min_ratings=3)  # user 2 has three, one of a movie without genres


def with_columns_moved(path: Path) -> Path:
    rows = [line.split(",") for line in RATINGS.split()]
    ratings = "\n".join(",".join([row[3], "extra", row[1], row[0], row[2]]) for row in rows) + "\n"
    movies = MOVIES.replace("movieId,title,genres", "\ufeffmovieId,title,genres")
    return folder_of(path, ratings, movies)


def with_windows_lines(path: Path) -> Path:
    return folder_of(path, RATINGS.replace("\n", "\r\n"), MOVIES.replace("\n", "\r\n"))


def as_dat(path: Path) -> Path:
    path.mkdir()
    ratings = "".join(line.replace(",", "::").replace(".0::", "::") + "\n" for line in RATINGS.splitlines()[1:])
    rows = list(csv.reader(MOVIES.splitlines()))[1:]
    (path / "ratings.dat").write_text(ratings, encoding="latin-1")
    (path / "movies.dat").write_text("".join("::".join(row) + "\n" for row in rows), encoding="latin-1")
    return path


def zipped(source: Path, inside: str) -> Path:
    path = source.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(source.iterdir()):
            archive.write(file, inside + file.name)
    return path


def as_zip(path: Path) -> Path:
    return zipped(folder_of(path), "ml-25m/")


def as_flat_zip(path: Path) -> Path:
    return zipped(folder_of(path), "")


def as_dat_zip(path: Path) -> Path:
    return zipped(as_dat(path), "ml-1m/")


def with_a_folder_inside(path: Path) -> Path:
    path.mkdir()
    return folder_of(path / "ml-25m").parent


FORMS = [with_columns_moved, with_windows_lines, as_dat, as_zip, as_flat_zip, as_dat_zip, with_a_folder_inside]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("settings", [{}, {"rows": 4}, {"min_ratings": 2}], ids=str)
def test_every_form_gives_the_same_rounds(
    form: Callable[[Path], Path], settings: dict[str, Any], tmp_path: Path
) -> None:
    plain = movielens(folder_of(tmp_path / "plain"), **settings)
    assert same(movielens(form(tmp_path / "other"), **settings), plain)


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = movielens(folder_of(tmp_path))
    module = sys.modules["alphafair.data.movielens"]
    monkeypatch.setattr(module, "_BLOCK_BYTES", 12)
    monkeypatch.setattr(module, "_BLOCK_LINES", 2)
    assert same(movielens(tmp_path), at_once)
    assert same(movielens(tmp_path, rows=6), at_once)
    (tmp_path / "ratings.csv").write_text(RATINGS.replace("10,1,2.0,60", "10,8,2.0,60"))
    with pytest.raises(ValueError, match=r"ratings.csv, line 6: movieId must be a movie of the movies file; got 8\."):
        movielens(tmp_path)


def test_made_up_ratings_have_the_counts_of_movielens_25m(tmp_path: Path) -> None:
    folder = make_up(tmp_path, 200_000, 1_000, 9_000)
    first = movielens(folder, rows=5000)
    assert (first.n_contexts, first.n_arms, first.n_rounds) == (33, 19, 4999)
    busy = movielens(folder, min_ratings=5000)
    assert (busy.n_contexts, busy.n_arms, busy.n_rounds) == (18, 19, 136_267)


# Refusals: the file, the line, the repair


def replaced(old: str, new: str) -> dict[str, str]:
    assert old in RATINGS or old in MOVIES
    return {"ratings": RATINGS.replace(old, new, 1)} if old in RATINGS else {"movies": MOVIES.replace(old, new, 1)}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            replaced("10,3,5.0,10", "10,3,NaN,10"),
            "ratings.csv, line 5: rating must be a number in [0, 5]; got 'NaN'. Write the",
        ),
        (
            replaced("10,3,5.0,10", "10,3,,10"),
            "ratings.csv, line 5: rating must be a number in [0, 5]; got ''. Write the stars",
        ),
        (replaced("10,3,5.0,10", "10,3,good,10"), "ratings.csv, line 5: rating must be a number in [0, 5]; got 'good'"),
        (
            replaced("2.0,60", "2.0,yesterday"),
            "ratings.csv, line 6: timestamp must be an integer; got 'yesterday'. Write it in seconds",
        ),
        (replaced("2.0,60", "2.0,"), "ratings.csv, line 6: timestamp must be an integer; got ''"),
        (replaced("2.0,60", "2.0,1.5e9"), "ratings.csv, line 6: timestamp must be an integer; got '1.5e9'"),
        (
            replaced("10,1,2.0", "10,11,2.0"),
            "ratings.csv, line 6: movieId must be a movie of the movies file; got 11. Take both files from the same",
        ),
        (replaced("10,1,2.0", "10,one,2.0"), "ratings.csv, line 6: movieId must be an integer up to 2147483647; "),
        (
            replaced("10,1,2.0", "anne,1,2.0"),
            "ratings.csv, line 6: userId must be an integer up to 2147483647; got",
        ),
        (
            replaced("10,1,2.0", "9999999999,1,2.0"),
            "ratings.csv, line 6: userId must be an integer up to 214748364",
        ),
        (
            replaced("10,1,2.0,60", "10,1"),
            "ratings.csv, line 6 must be 4 columns; got '10,1'. The file may be truncated",
        ),
        (replaced("10,1,2.0,60", "10,1,2.0,60,7"), "ratings.csv, line 6 must be 4 columns; got '10,1,2.0,60,7'"),
        (replaced("4,9,0.5,20\n", "4,9,0.5,2"), "ratings.csv, line 7 must be ended by a line break; got 'the end of"),
        (
            replaced("4,9,0.5,20\n", "4,9"),
            "ratings.csv, line 7 must be 4 columns; got '4,9'. The file may be truncated",
        ),
        (replaced("rating,", "stars,"), "ratings.csv, line 1: columns must be userId, movieId, rating, timestamp; got"),
        (replaced("timestamp", "timestmp"), "Rename 'timestmp' to 'timestamp'."),
        (
            {"ratings": ""},
            "ratings.csv must be a table with the columns userId, movieId, rating, timestamp; got 'an em",
        ),
        (
            {"ratings": "userId,movieId,rating,timestamp\n"},
            "ratings.csv must be a table of ratings; got 'a header alone'",
        ),
        (replaced("genres\n", "kinds\n"), "movies.csv, line 1: columns must be movieId, title, genres; got"),
        (
            replaced("9,War (2000),War", "9,War (2000),"),
            "movies.csv, line 5: genres must be one name or several; got ''",
        ),
        (replaced("9,War (2000),War", "9,War"), "movies.csv, line 5 must be 3 columns; got ['9', 'War']"),
        (replaced("9,War (2000),War", "3,War (2000),War"), "movies.csv, line 5: movieId must be unique; got '3'"),
        (replaced("9,War (2000),War", "x,War (2000),War"), "movies.csv, line 5: movieId must be an integer up to"),
        (replaced("9,War (2000),War\n", "9,War (2000),Wa"), "movies.csv, line 5 must be ended by a line break"),
        ({"movies": "movieId,title,genres\n"}, "movies.csv must be a table of movies; got 'a header alone'"),
        (replaced("10,1,2.0", "-10,1,2.0"), "ratings.csv, line 6: userId must be an integer up to 2147483647; got"),
        (replaced("10,3,5.0,10", "10,3,-3,10"), "ratings.csv, line 5: rating must be a number in [0, 5]; got '-3'"),
        (replaced("10,3,5.0,10", "10,3,99,10"), "ratings.csv, line 5: rating must be a number in [0, 5]; got '99'"),
        (
            replaced('"Comma, The (1990)"', '"Comma, The (1990)'),
            "movies.csv, line 2 must be a row with its quotes in order; got '\\',\\' expected",
        ),
        (
            replaced("War (2000)", '"War (2000)'),
            "movies.csv, line 5 must be a row with its quotes in order; got 'unexpected end of data'. Download it",
        ),
        (
            replaced('"Comma, The (1990)"', '"' + "x" * 200_000 + '"'),
            "movies.csv, line 2 must be a row with its quotes in order; got 'field larger",
        ),
        (
            replaced("userId,", '"userId'),
            "ratings.csv, line 1 must be a row with its quotes in order; got 'unexpected end of data'.",
        ),
        (
            {"movies": "movieId,title,genres\n1,A,Drama\n3,B,Drama\n7,C,(no genres listed)\n9,D,Drama\n"},
            "movies.csv: genres must be at least two different names; got ['Drama']. Genres are the arms",
        ),
    ],
)
def test_a_fault_is_named_with_its_line_and_its_repair(change: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(words)) as refusal:
        movielens(folder_of(tmp_path, **change))
    file = "ratings.csv" if "ratings" in change else "movies.csv"
    assert str(refusal.value).startswith(str(tmp_path / file)), "the file by its whole path"
    assert "; got " in str(refusal.value), "the form that the command line shows as one line"


BLANK = [" 2", "2 ", "\t2", " +2", "+ 2", "\xa02", "--2", '"2"', "2 2", "", "nan", "0x2", "1_0"]
ODD = {
    "userId": [*BLANK, "+2", "-0", "007", "2147483647", "2147483648", "-1", "1.0", "1e1"],
    "rating": [
        *BLANK,
        "+4",
        "-0",
        "5",
        "5.",
        ".5",
        "1e0",
        "5.01",
        "-0.5",
        "inf",
        "4,5",
        "5e-400",
        "5.0000001",
        "-1e-60",
    ],
    "timestamp": [
        *BLANK,
        "+5",
        "-5",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "5.0",
        "5e1",
    ],
}


@pytest.mark.parametrize("name", ODD)
def test_one_rule_whether_a_block_is_read_at_once_or_line_by_line(name: str, tmp_path: Path) -> None:
    """An error names line 2 exactly if line 2 alone is an error."""
    for text in ODD[name]:
        fields = {"userId": "2", "movieId": "1", "rating": "4.0", "timestamp": "50", name: text}
        start = RATINGS.splitlines()[0] + "\n" + ",".join(fields.values()) + "\n"
        try:
            movielens(folder_of(tmp_path, start))
            first_fault = "line 3: rating"
        except ValueError as problem:
            assert "line 2" in str(problem), text  # noqa: PT017
            first_fault = "line 2"
        with pytest.raises(ValueError, match=first_fault):
            movielens(folder_of(tmp_path, start + "2,1,99,50\n"))


def test_random_bytes_are_refused_in_one_line(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for seed in range(20):
        noise = np.random.default_rng(seed).bytes(300)
        for name in ("ratings.csv", "movies.csv"):
            (folder_of(tmp_path) / name).write_bytes(noise)
            with pytest.raises(ValueError, match=rf"{name}(, line \d+)?(: columns)? must be .*; got "):
                movielens(folder)


def test_a_title_over_two_lines_moves_no_line_numbers(tmp_path: Path) -> None:
    movies = MOVIES.replace("Comma, The", "Comma,\nThe")
    assert same(movielens(folder_of(tmp_path / "a", movies=movies)), movielens(folder_of(tmp_path / "b")))
    with pytest.raises(ValueError, match=r"movies.csv, line 6: genres must be one name or several"):
        movielens(folder_of(tmp_path / "a", movies=movies.replace("9,War (2000),War", "9,War (2000),")))


@pytest.mark.parametrize("name", ["ratings.csv", "movies.csv", "ratings.dat"])
def test_a_file_of_the_folder_is_sent_to_its_folder(name: str, tmp_path: Path) -> None:
    (folder_of(tmp_path) / "ratings.dat").touch()
    words = f"{name} must be a MovieLens folder or .zip; got 'a single file of it'. Pass the folder that"
    with pytest.raises(ValueError, match=re.escape(words)):
        movielens(tmp_path / name)


def test_faults_after_the_rows_asked_for_do_not_matter(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, RATINGS.replace("10,1,2.0,60", "10,1,,60"))
    assert movielens(folder, rows=4).n_rounds == 3
    with pytest.raises(ValueError, match="line 6"):
        movielens(folder, rows=5)


def test_a_fault_in_a_dat_file_is_named(tmp_path: Path) -> None:
    folder = as_dat(tmp_path / "ml-1m")
    (folder / "ratings.dat").write_text("2::1::4::50\n2::9::nan::10\n")
    with pytest.raises(ValueError, match=r"ratings.dat, line 2: rating must be a number in \[0, 5\]; got 'nan'"):
        movielens(folder)


@pytest.mark.parametrize("name", ["ratings", "movies"])
def test_an_empty_dat_file_is_called_empty(name: str, tmp_path: Path) -> None:
    folder = as_dat(tmp_path / "ml-1m")
    (folder / f"{name}.dat").write_text("")
    with pytest.raises(ValueError, match=rf"{name}\.dat must be a table of {name}; got 'an empty file'"):
        movielens(folder)


def test_a_dat_title_may_hold_any_latin_1_character(tmp_path: Path) -> None:
    folder = as_dat(tmp_path / "ml-1m")
    plain = movielens(folder)
    movies = (folder / "movies.dat").read_bytes()
    (folder / "movies.dat").write_bytes(movies.replace(b"Nothing", b"No\x85thing"))  # a line break to str.splitlines
    assert same(movielens(folder), plain)


def test_a_title_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / "movies.csv").write_bytes(MOVIES.encode("latin-1"))
    with pytest.raises(ValueError, match=r"movies.csv, line 3 must be UTF-8 text; got "):
        movielens(folder)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere must be a MovieLens folder or .zip; got 'no such file'. .*data get"):
        movielens(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"must be a folder or .zip with ratings.csv and movies.csv .*; got \[\]"):
        movielens(tmp_path)
    folder = folder_of(tmp_path / "half")
    (folder / "movies.csv").unlink()
    with pytest.raises(
        ValueError, match=r"half/movies.csv must be in the folder of the ratings; got \['ratings.csv'\]"
    ):
        movielens(folder)
    with pytest.raises(ValueError, match=r"half.zip/ml/movies.csv must be in the folder of the ratings"):
        movielens(zipped(folder, "ml/"))
    for name in ("a", "b"):
        folder_of(tmp_path / "many").joinpath(name).mkdir()
        folder_of(tmp_path / "many" / name)
    with pytest.raises(ValueError, match=r"many must be one data set; got \["):
        movielens(tmp_path / "many")


def test_a_truncated_or_damaged_zip_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = "".join(f"2,1,4.0,{t}\n" for t in rng.integers(0, 10**9, 20_000))
    path = zipped(folder_of(tmp_path / "ml", "userId,movieId,rating,timestamp\n" + lines), "ml/")
    whole = path.read_bytes()
    assert movielens(path).n_rounds == 20_000
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"ml.zip must be a whole .zip file; got .* truncated or damaged .* data get"):
        movielens(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"ml.zip must be a whole .zip file; got 'an empty file'. It is truncated"):
        movielens(path)
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"ml.zip must be a whole .zip file"):
        movielens(path)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"rows": 0}, "rows must be an integer of at least 1; got 0"),
        ({"min_ratings": 1.5}, "min_ratings must be an integer of at least 1; got 1.5"),
        ({"reward_floor": 1.0}, "reward_floor must be a number in [0, 1); got 1.0"),
    ],
)
def test_settings_are_checked_first(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        movielens("nowhere", **settings)
    with pytest.raises(ValueError, match=re.escape(words)):
        movielens_small(**settings)


def test_only_movies_without_genres(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ratings must be of movies with genres"):
        movielens(folder_of(tmp_path, RATINGS.splitlines()[0] + "\n2,7,1.0,5\n"))


# The copy in the repository


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The copy written out again as MovieLens would: a folder of CSV files."""
    with np.load(FILE, allow_pickle=False) as file:
        data = {name: file[name] for name in file.files}
    ratings = ["userId,movieId,rating,timestamp"]
    columns = [data[name].tolist() for name in ("user", "movie", "half_stars", "timestamp")]
    ratings += [f"{u},{m},{stars / 2},{t}" for u, m, stars, t in zip(*columns, strict=True)]
    movies = ["movieId,title,genres"]
    for movie, fits in zip(data["movies"].tolist(), data["fits"], strict=True):
        movies.append(f'{movie},"T",{"|".join(data["genres"][fits]) or "(no genres listed)"}')
    folder = folder_of(tmp_path_factory.mktemp("small"), "\n".join(ratings) + "\n", "\n".join(movies) + "\n")
    (folder / "README.txt").write_bytes((FILE.parent / "README.txt").read_bytes())
    return folder


def test_the_copy_is_all_of_latest_small() -> None:
    with np.load(FILE, allow_pickle=False) as file:
        assert len(file["user"]) == 100_836
        assert len(np.unique(file["user"])) == 610
        assert len(file["movies"]) == 9_742
        assert len(file["genres"]) == 19
        assert [int(file[name][0]) for name in ("user", "movie", "half_stars", "timestamp")] == [1, 1, 8, 964982703]
        assert [int(file[name][-1]) for name in ("user", "movie", "timestamp")] == [610, 170875, 1493846415]
    assert FILE.stat().st_size < 700_000
    license = (FILE.parent / "README.txt").read_text(encoding="utf-8")
    assert "may redistribute the data set, including transformations" in license
    assert "ml-latest-small.npz" in (FILE.parent / "NOTICE.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("settings", "n_contexts", "n_rounds"),
    [({}, 610, 100_789), ({"rows": 5000}, 32, 4_999), ({"min_ratings": 500}, 43, 40_034)],
    ids=str,
)
def test_movielens_small_is_movielens_on_the_same_folder(
    settings: dict[str, Any], n_contexts: int, n_rounds: int, unpacked: Path
) -> None:
    stream = movielens_small(**settings)
    assert (stream.n_contexts, stream.n_arms, stream.n_rounds) == (n_contexts, 19, n_rounds)
    assert same(movielens(unpacked, **settings), stream)


def test_movielens_small_is_what_a_plain_loop_makes(unpacked: Path) -> None:
    with (unpacked / "movies.csv").open(encoding="utf-8", newline="") as file:
        genres = {row["movieId"]: row["genres"].split("|") for row in csv.DictReader(file)}
    with (unpacked / "ratings.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            row for row in list(csv.DictReader(file))[:30_000] if "(no genres listed)" not in genres[row["movieId"]]
        ]
    busy = {user for user in {row["userId"] for row in rows} if sum(row["userId"] == user for row in rows) >= 300}
    rows = sorted((row for row in rows if row["userId"] in busy), key=lambda row: int(row["timestamp"]))
    names = sorted({name for listed in genres.values() for name in listed} - {"(no genres listed)"})
    stream = movielens_small(rows=30_000, min_ratings=300, reward_floor=0.1)
    assert stream.arm_labels == tuple(names)
    assert stream.context_labels == tuple(sorted(busy, key=int))
    assert [stream.context_labels[context] for context in stream.contexts] == [row["userId"] for row in rows]
    for t in range(0, len(rows), 7):
        fits = genres[rows[t]["movieId"]]
        assert stream.rewards(t).tolist() == [1.0 if name in fits else 0.1 for name in names]


def test_the_copy_can_be_made_again(unpacked: Path, tmp_path: Path) -> None:
    first, second = (make_movielens_small(unpacked, tmp_path / name).read_bytes() for name in ("one", "two"))
    assert first == second
    with np.load(tmp_path / "one" / FILE.name) as made, np.load(FILE) as shipped:
        assert made.files == shipped.files
        for name in made.files:
            assert np.array_equal(made[name], shipped[name])
            assert made[name].dtype == shipped[name].dtype
    readme = (unpacked / "README.txt").read_bytes()
    assert (tmp_path / "one" / "README.txt").read_bytes() == readme


def test_polars_loads_only_when_a_file_is_read() -> None:
    code = """
import sys
from alphafair import streams
streams.ratings(10, 2, 3), streams.movielens_small(rows=100)
assert all(callable(getattr(streams, name)) for name in streams.__all__)
print("polars" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"


def test_functions_win_over_the_modules_of_their_name() -> None:
    code = """
import alphafair.data.movielens, alphafair.data.round_table
import alphafair.data.open_bandit
from alphafair import streams
print(all(callable(f) for f in (streams.movielens, streams.table, streams.movielens_small, streams.open_bandit)))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "True\n"
    assert callable(streams.movielens)


# Where there is no repository


def test_without_a_copy_latest_small_is_downloaded_once(
    unpacked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a server on this machine: right bytes give the same rounds, wrong ones are refused and not kept."""
    here, small = movielens_small(rows=5000), sys.modules["alphafair.data.movielens"]
    archive = zipped(unpacked, "ml-latest-small/")
    with serving(archive.parent) as (address, asked):
        url, digest = f"{address}/{archive.name}", hashlib.sha256(archive.read_bytes()).hexdigest()
        monkeypatch.setenv("no_proxy", "*")
        monkeypatch.setenv(downloads.FOLDER_VARIABLE, str(tmp_path / "cache"))
        monkeypatch.setattr(small, "FILE", tmp_path / "nowhere.npz")
        monkeypatch.setitem(downloads.DATASETS, "latest-small", downloads.Dataset("latest-small", url, 1, "", "0" * 64))
        with pytest.raises(downloads.DownloadError, match=rf"changed \(its SHA-256 is {digest} and should be 0000"):
            movielens_small()
        answer = CliRunner().invoke(app, ["reproduce", "--output", str(tmp_path / "report")])
        assert answer.exit_code == 1
        assert f"error: the file from {url} is damaged or was changed" in answer.stderr
        assert list((tmp_path / "cache").iterdir()) == []
        monkeypatch.setitem(downloads.DATASETS, "latest-small", downloads.Dataset("latest-small", url, 1, "", digest))
        asked.clear()
        assert same(movielens_small(rows=5000), here)
        assert same(movielens_small(rows=5000), here)
        assert asked == [f"/{archive.name}"]


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A server of a folder's files on this machine: its address, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()
