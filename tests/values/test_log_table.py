"""`Log.from_table`, `LogFile` and the doctor: any table of decisions, and what is wrong with which rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from alphafair import InvalidArgument, Log
from alphafair.evaluation import LogFile, doctor, evaluate
from tests import ROOT
from tests.evaluation.test_evaluate import made_log, world

DATA = ROOT / "tests" / "fixtures"
ROWS: dict[str, list[Any]] = {
    "context": ["new", "old", "new", "old"],
    "arm": ["b", "a", "a", "b"],
    "reward": [1.0, 0.0, 0.5, None],
    "propensity": [0.5, 0.25, 0.5, 0.75],
}


def same(log: Log) -> None:
    assert (log.context_labels, log.arm_labels) == (("new", "old"), ("a", "b"))
    assert log.contexts.tolist() == [0, 1, 0]
    assert log.arms.tolist() == [1, 0, 0]
    assert log.rewards.tolist() == [1.0, 0.0, 0.5]
    assert log.propensities.tolist() == [0.5, 0.25, 0.5]


def pieces(path: Path) -> list[Log]:
    """The batches of a file as logs."""
    file = LogFile(path)
    return [Log.from_decisions(each, file.labels) for each in file.decisions()]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".arrow"])
def test_every_format_gives_the_same_log(tmp_path: Path, suffix: str) -> None:
    frame, path = pl.DataFrame(ROWS), tmp_path / f"log{suffix}"
    if suffix in (".csv", ".tsv"):
        frame.write_csv(path, separator="," if suffix == ".csv" else "\t")
    elif suffix == ".parquet":
        frame.write_parquet(path)
    else:
        frame.write_ipc(path)
    same(Log.from_table(path))
    (piece,) = pieces(path)
    same(piece)


def test_frames_of_every_kind() -> None:
    same(Log.from_table(ROWS))
    same(Log.from_table(pl.DataFrame(ROWS)))
    same(Log.from_table(pl.DataFrame(ROWS).lazy()))
    same(Log.from_table(pd.DataFrame(ROWS)))


STOCK: list[Any] = [["b", "a"], None, ["a"], ["b"]]


def stocked(log: Log) -> None:
    """Rows with a reward, and what they were drawn among."""
    same(log)
    assert log.available is not None
    assert log.available.table().tolist() == [[True, True], [True, True], [True, False]]
    assert log.available.of_rounds.tolist() == [-1, -1, 0]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".arrow", ".jsonl"])
def test_available_arms_are_read_from_lists_and_from_json(tmp_path: Path, suffix: str) -> None:
    frame, path = pl.DataFrame({**ROWS, "available": STOCK}), tmp_path / f"log{suffix}"
    if suffix.startswith(".csv"):
        texts = [None if each is None else json.dumps(each) for each in STOCK]
        text = frame.with_columns(available=pl.Series(texts)).write_csv().encode()
        path.write_bytes(gzip.compress(text) if suffix.endswith(".gz") else text)
    else:
        {".parquet": frame.write_parquet, ".arrow": frame.write_ipc, ".jsonl": frame.write_ndjson}[suffix](path)
    stocked(Log.from_table(path))
    (piece,) = pieces(path)
    stocked(piece)
    same(without := Log.from_table(path, available=None))
    assert without.available is None


def test_available_arms_of_frames() -> None:
    rows = {**ROWS, "available": STOCK}
    texts = {**ROWS, "available": [None if each is None else json.dumps(each) for each in STOCK]}
    arrays = {**ROWS, "available": [None if each is None else np.array(each, dtype=object) for each in STOCK]}
    frames = (rows, texts, pl.DataFrame(rows), pl.DataFrame(texts), pd.DataFrame(rows), pd.DataFrame(arrays))
    for source in (*frames, pl.DataFrame(texts).with_columns(pl.col("available").cast(pl.Categorical))):
        stocked(Log.from_table(source))
    stocked(Log.from_table({**ROWS, "stock": STOCK, "t": [1, 2, 3, 4]}, available="stock", time="t"))


def test_available_arms_follow_their_rows_through_time() -> None:
    log = Log.from_table({**ROWS, "available": STOCK, "t": [3, 2, 1, 0]}, time="t")
    assert log.available is not None
    assert log.available.table().tolist() == [[True, False], [True, True], [True, True]]


def test_an_arm_that_could_be_shown_and_never_was_is_an_arm(tmp_path: Path) -> None:
    rows = {**ROWS, "arm": [10, 9, 9, 10], "available": [[10, 9, 100], [9], None, None]}
    pl.DataFrame(rows).write_parquet(tmp_path / "log.parquet")
    for log in (Log.from_table(rows), *pieces(tmp_path / "log.parquet")):
        assert log.arm_labels == ("9", "10", "100")
        assert log.available is not None
        assert log.available.table().tolist() == [[True, True, True], [True, False, False], [True, True, True]]


def test_an_empty_column_of_available_arms_means_all() -> None:
    log = Log.from_table({**ROWS, "available": [None] * 4})
    assert log.available is not None
    assert log.available.table().all()
    assert Log.from_table(ROWS).available is None


@pytest.mark.parametrize(
    ("stock", "words"),
    [
        ([["b"], None, ["b"], ["b"]], r"source, row 2: available must be a list with the shown arm, 'a'; got \['b'\]"),
        (
            [["b"], [], ["a"], ["b"]],
            "source, row 1: available must be a list of arms, in a text file as a JSON array, or empty",
        ),
        ([["b"], ["a", None], ["a"], None], "source, row 1: available must be a list of arms"),
        (['["b"]', "a", '["a"]', '["b"]'], "source, row 1: available must be a list of arms, .*; got 'a'. Correct it"),
        (['["b"]', '"a"', '["a"]', '["b"]'], "source, row 1: available must be a list of arms"),
        (['["b"]', '[["a"]]', '["a"]', '["b"]'], "source, row 1: available must be a list of arms"),
        (['["b"]', "[]", '["a"]', '["b"]'], "source, row 1: available must be a list of arms"),
        (
            [None, 2, 1, 1],
            r"row 1: available must be .* \(available=; None or '' for none\)",
        ),
        ([[["b"]], None, None, None], "source, row 0: available must be a list of arms"),
    ],
)
def test_invalid_available_arms_are_refused_with_their_row(stock: list[Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Log.from_table({**ROWS, "available": stock})


def test_a_column_that_was_named_must_be_there() -> None:
    with pytest.raises(InvalidArgument, match=r"names with 'stock' among them.* \(available=\)"):
        Log.from_table(ROWS, available="stock")
    with pytest.raises(InvalidArgument, match="columns must be different columns"):
        Log.from_table(ROWS, available="arm")


def test_a_repeated_column_is_refused_by_its_name(tmp_path: Path) -> None:
    frame = pd.DataFrame([["a", "x", 1.0, 0.5, "y"]] * 2, columns=["context", "arm", "reward", "propensity", "arm"])
    frame.to_csv(tmp_path / "log.csv", index=False)
    for source in (frame, tmp_path / "log.csv"):
        with pytest.raises(
            InvalidArgument, match=r"columns must be different names; got \['arm'\]\. Rename all but one"
        ):
            Log.from_table(source)
    with pytest.raises(InvalidArgument, match="columns must be different names"):
        LogFile(tmp_path / "log.csv")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_log_as_a_spreadsheet_saves_it(tmp_path: Path, encoding: str) -> None:
    text = 'context;arm;reward;propensity;available\nnew;b;1;0,5;["b","a"]\nold;a;0;0,25;\nnew;a;0,5;0,5;["a"]\n'
    (tmp_path / "log.csv").write_bytes(text.replace('["b","a"]', '"[""b"",""a""]"').encode(encoding))
    stocked(Log.from_table(tmp_path / "log.csv"))
    (piece,) = pieces(tmp_path / "log.csv")
    stocked(piece)


def test_the_engines_export_is_read_as_it_is(tmp_path: Path) -> None:
    """Columns as in alphafair export; a reward is missing while it is pending."""
    text = (
        "seq,id,context,arm,propensity,reward,reward_source,decided_at,rewarded_at,policy_version\n"
        "1,d1,visitor-7,ada,0.5,0.8,client,2024-05-31T12:00:00,2024-05-31T12:00:05,1\n"
        "2,d2,visitor-9,ben,0.5,,,2024-05-31T12:00:01,,1\n"
        "3,d3,visitor-7,ben,0.25,0.0,default,2024-05-31T12:00:02,2024-05-31T13:00:02,1\n"
    )
    (tmp_path / "export.csv").write_text(text)
    log = Log.from_table(tmp_path / "export.csv", time="decided_at")
    assert (log.context_labels, log.arm_labels) == (("visitor-7",), ("ada", "ben"))
    assert log.rewards.tolist() == [0.8, 0.0]
    assert log.timestamps is not None
    assert str(log.timestamps[1]) == "2024-05-31T12:00:02.000000"


def test_time_sorts_users_group_and_numbers_are_numbered_by_size() -> None:
    rows = {
        "c": [10, 9, 10],
        "a": [2, 11, 2],
        "r": [1, 0, 1],
        "p": [0.1, 0.2, 0.3],
        "t": [3, 1, 2],
        "u": ["x", "y", "x"],
        "place": [1, 2, 3],
    }
    log = Log.from_table(rows, context="c", arm="a", reward="r", propensity="p", time="t", user="u", position="place")
    assert (log.context_labels, log.arm_labels) == (("9", "10"), ("2", "11"))
    assert log.propensities.tolist() == [0.2, 0.3, 0.1]
    assert log.users is not None
    assert log.users[1] == log.users[2] != log.users[0]
    assert log.positions is not None
    assert log.positions.tolist() == [2, 3, 1]


def test_open_bandit_data() -> None:
    names = {"context": "user_feature_0", "arm": "item_id", "reward": "click", "propensity": "propensity_score"}
    log = Log.from_table(DATA / "open-bandit-men-random.parquet", **names, time="timestamp", position="position")
    assert (log.n_rounds, log.n_arms, log.rewards.sum()) == (10_000, 34, 46.0)
    assert log.arm_labels == tuple(str(item) for item in range(34))
    assert log.timestamps is not None
    assert (np.diff(log.timestamps) >= np.timedelta64(0, "us")).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"propensity": [0.5, 0.0, 0.5, 0.5]}, r"source, row 1: propensity must be a number in \(0, 1\]; got 0.0"),
        ({"propensity": [0.5, 1.5, 0.5, 0.5]}, r"source, row 1: propensity must be a number in \(0, 1\]; got 1.5"),
        ({"propensity": [0.5, None, 0.5, 0.5]}, r"source, row 1: propensity must be a number in \(0, 1\]; got None"),
        ({"propensity": ["x", "y", "z", "w"]}, "source, row 0: propensity must be"),
        ({"reward": [1.0, float("nan"), 0.5, None]}, "source, row 1: reward must be a finite number; got nan"),
        ({"reward": [None] * 4}, "source must be a log with rewarded rows; got 'none'"),
        ({"arm": ["b", None, "a", "b"]}, "source, row 1: arm must be a value; got None"),
    ],
)
def test_invalid_values_are_refused_with_their_row(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Log.from_table({**ROWS, **change})


def test_a_wrong_column_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"names with 'rewards' among them; .*Did you mean 'reward'"):
        Log.from_table(ROWS, reward="rewards")
    with pytest.raises(InvalidArgument, match="columns must be different columns"):
        Log.from_table(ROWS, reward="arm")


def test_rows_of_a_file_are_named_by_their_line(tmp_path: Path) -> None:
    pl.DataFrame({**ROWS, "reward": [None, 0.0, 0.5, 1.0], "propensity": [0.5, 0.5, 2.0, 0.5]}).write_csv(
        tmp_path / "log.csv"
    )
    with pytest.raises(InvalidArgument, match=r"log.csv, line 4: propensity must be"):
        Log.from_table(tmp_path / "log.csv")
    with pytest.raises(InvalidArgument, match=r"log.csv, line 4: propensity must be"):
        LogFile(tmp_path / "log.csv")


def test_negative_rewards_in_a_file_are_refused(tmp_path: Path) -> None:
    pl.DataFrame({**ROWS, "reward": [1.0, -1.0, 0.5, 1.0]}).write_csv(tmp_path / "log.csv")
    with pytest.raises(InvalidArgument, match=r"reward must be at least 0; got -1\.0"):
        LogFile(tmp_path / "log.csv")


def grades(found: Any) -> dict[str, list[str]]:
    return {grade: [each.what for each in found.findings if each.grade == grade] for grade in ("wrong", "look", "fine")}


def test_the_doctor_names_rows() -> None:
    rows = {
        **ROWS,
        "propensity": [0.5, 1.5, 0.0, 0.5],
        "id": ["d1", "d2", "d1", "d3"],
        "t": [1, 3, 2, 4],
    }
    found = doctor(rows, id="id", time="t")
    assert not found.is_sound
    assert grades(found)["wrong"] == [
        "2 rows have a propensity that is not a number in (0, 1]: source, row 1 and source, row 2",
        "1 row has an id that came before: source, row 2",
    ]
    assert grades(found)["look"] == [
        "1 row has no reward yet and is left out",
        "1 row has an earlier time than the row before: source, row 2",
    ]


def test_the_doctor_finds_propensities_that_do_not_add_up() -> None:
    means, visits, logging, _ = world(5, 3, 4)
    log = made_log(np.random.default_rng(5), 4000, means, visits, logging)
    sound = doctor(log)
    assert sound.is_sound, sound
    assert sound.inverse_propensities is not None
    inverse = np.bincount(log.arms, 1.0 / log.propensities, minlength=4) / 4000
    np.testing.assert_allclose(sound.inverse_propensities.means, inverse)
    wrong = Log(log.contexts, log.arms, log.rewards, np.minimum(1.0, 1.3 * log.propensities))
    assert not doctor(wrong).is_sound
    assert "inverse propensities should average to 1" in grades(doctor(wrong))["wrong"][0]


def test_the_doctor_raises_no_false_alarm() -> None:
    """At a chance of 0.1% for all arms together, 200 sound logs raise at most a few."""
    means, visits, logging, _ = world(5, 3, 4)
    alarms = sum(
        not doctor(made_log(np.random.default_rng([5, seed]), 1000, means, visits, logging)).is_sound
        for seed in range(200)
    )
    assert alarms <= 4


def test_one_row_does_not_prove_wrong_propensities() -> None:
    assert grades(doctor(Log([0], [0], [1.0], [0.25], n_arms=4)))["wrong"] == []


def test_the_doctor_finds_arms_never_shown_and_rare_contexts() -> None:
    log = Log([0] * 50 + [1] * 2, [0, 1] * 26, [1.0] * 52, [0.5] * 52, n_arms=4)
    found = grades(doctor(log))
    assert found["look"] == [
        "2 arms never shown, so there is no information about: 2 and 3",
        "1 context came fewer than 4 times, once for every arm: 3.85% of all rounds",
    ]
    nothing = Log([0] * 50, [0, 1] * 25, [0.0] * 50, [0.5] * 50)
    assert grades(doctor(nothing))["wrong"] == ["no round has a reward above 0"]
    assert grades(doctor({"context": [], "arm": []}))["wrong"][0].startswith("source: columns must be")
    empty = {name: [] for name in ROWS}
    assert grades(doctor(empty))["wrong"] == ["there is no row with a reward"]


def test_the_doctor_finds_implausible_propensities(tmp_path: Path) -> None:
    """With 3,000 rounds and 4 arms, one row below 0.001/12,000 is wrong; one that counts for 5% of rounds, a look."""
    means, visits, logging, _ = world(5, 3, 4)
    log = made_log(np.random.default_rng(5), 3000, means, visits, logging)
    for propensity, grade, words in (
        (1e-12, "wrong", "1 row has a propensity below 8e-08, with which no row is expected: "),
        (1e-3, "look", "1 row has a propensity so small that each counts for more than 5% of all rounds: "),
    ):
        propensities = log.propensities.copy()
        propensities[7] = propensity
        bad = Log(log.contexts, log.arms, log.rewards, propensities, n_contexts=3, n_arms=4)
        assert f"{words}row 7" in grades(doctor(bad))[grade]
        names = {"context": bad.contexts, "arm": bad.arms, "reward": bad.rewards, "propensity": propensities}
        pl.DataFrame(names).write_csv(tmp_path / "log.csv")
        (found,) = [what for what in grades(doctor(tmp_path / "log.csv"))[grade] if what.startswith(words)]
        assert found.endswith("log.csv, line 9")
        assert evaluate(bad, np.full((3, 4), 0.25), n_replicates=100).verdict == "do not use" or propensity == 1e-3


def test_a_column_may_be_called_row() -> None:
    log = Log.from_table({**ROWS, "row": ROWS["context"]}, context="row")
    same(log)
    assert doctor({**ROWS, "row": ROWS["context"]}, context="row", id=None).findings


def test_labels_may_be_true_and_false() -> None:
    table = {"context": [True, False] * 5, "arm": ["x", "y"] * 5, "reward": [1, 0] * 5, "propensity": [0.5] * 10}
    log = Log.from_table(table)
    assert log.context_labels == ("false", "true")
    assert log.contexts.tolist() == [1, 0] * 5
