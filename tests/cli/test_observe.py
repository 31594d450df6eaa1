"""`alphafair observe`: a log of others goes into an experiment, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from alphafair import Engine
from alphafair.service import keys
from tests.cli.test_commands import run
from tests.serving import running

ROWS: dict[str, list[Any]] = {
    "context": ["v", "w", "v", "v"],
    "arm": ["ada", "ben", "ben", "ada"],
    "reward": [1.0, 0.0, None, 0.5],
    "propensity": [0.5, None, 0.5, 1.0],
    "who": ["u", None, "u", "x"],
    "number": ["a", "b", "c", "d"],
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with Engine.open(path) as engine:
        engine.create("home", arms=["ada", "ben"])
    return path


def table(folder: Path, name: str = "log.parquet", **columns: list[Any]) -> Path:
    path = folder / name
    frame = pl.DataFrame({**ROWS, **columns})
    if path.suffix == ".csv":
        frame.write_csv(path)
    else:
        frame.write_parquet(path)
    return path


@pytest.mark.parametrize("name", ["log.parquet", "log.csv"])
def test_a_second_run_records_nothing(shop: Path, tmp_path: Path, name: str) -> None:
    log = table(tmp_path, name)
    first = run("observe", str(shop), str(log), "--experiment", "home")
    assert first.exit_code == 0, first.output
    assert "home: 3 decisions of 'history' recorded, 0 were there." in first.stdout
    assert "Left out, without a reward: 1." in first.stdout
    again = run("observe", str(shop), str(log), "--experiment", "home")
    assert "home: 0 decisions of 'history' recorded, 3 were there." in again.stdout
    with Engine.open(shop, read_only=True) as engine:
        found = engine.log("home", "history")
        assert found.arms.tolist() == [0, 1, 0]
        assert found.rewards.tolist() == [1.0, 0.0, 0.5]
        assert [p if p == p else None for p in found.propensities.tolist()] == [0.5, None, 1.0]
        engine.verify()


def test_columns_can_be_chosen_and_rows_refused(shop: Path, tmp_path: Path) -> None:
    log = table(tmp_path, arm=["ada", "cyd", "ada", "cyd"], score=[2.0, 0.0, 1.0, 0.5])
    chosen = ["--reward", "score", "--id", "number", "--user", "who", "--source", "ranker"]
    answer = run("observe", str(shop), str(log), "-e", "home", *chosen, columns=200)
    assert answer.exit_code == 1
    assert "home: 1 decisions of 'ranker' recorded" in answer.stdout
    assert "Refused: 3." in answer.stderr
    assert "row 0: reward must be a number in [0, 1]; got 2.0." in answer.stderr
    assert "row 1: arm must be an arm of home; got 'cyd'." in answer.stderr
    with Engine.open(shop) as engine:
        assert engine.reward("c", 1.0).outcome == "repeated"
        engine.reward("c", 1.0)
    conflict = table(tmp_path, "other.parquet", arm=["ada"] * 4, reward=[0.5] * 4)
    answer = run("observe", str(shop), str(conflict), "-e", "home", "--id", "number", "--source", "ranker", columns=200)
    assert "row 2: conflict" in answer.stderr


def test_a_missing_column_and_a_wrong_value_are_named(shop: Path, tmp_path: Path) -> None:
    log = table(tmp_path, propensity=["0.5", "much", "0.5", "1"])
    answer = run("observe", str(shop), str(log), "-e", "home", columns=200)
    assert answer.exit_code == 2
    assert "row 1: propensity must be a finite number; got 'much'" in answer.stderr
    answer = run("observe", str(shop), str(log), "-e", "home", "--user", "whom", columns=200)
    assert "columns must be names with 'whom' among them" in answer.stderr
    with Engine.open(shop, read_only=True) as engine:
        assert engine.position == 1


def test_a_folder_needs_ids(shop: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    table(folder, "1.parquet")
    answer = run("observe", str(shop), str(folder), "-e", "home", columns=200)
    assert "LOG must be a file that can be read" in answer.stderr
    assert run("observe", str(shop), str(folder), "-e", "home", "--id", "number").exit_code == 0


def test_features_have_columns_of_their_names(tmp_path: Path) -> None:
    path, log = tmp_path / "shop.db", table(tmp_path, **{"age": [31, 7, 9, 12], "feature.kind": ["a", "b", "a", "a"]})
    with Engine.open(path) as engine:
        engine.create("home", arms=["ada", "ben"], features={"age": "number", "kind": ["a", "*"], "size": "number?"})
    answer = run("observe", str(path), str(log), "-e", "home")
    assert answer.exit_code == 0, answer.output
    with Engine.open(path, read_only=True) as engine:
        features = engine.log("home", "history").features
        assert features is not None
        assert features.tolist() == [[31.0, 1.0, 0.0, 0.0, 1.0], [7.0, 0.0, 1.0, 0.0, 1.0], [12.0, 1.0, 0.0, 0.0, 1.0]]


def test_a_service_records_it_too(shop: Path, tmp_path: Path) -> None:
    made, log = keys.create(shop, "admin", "me"), table(tmp_path)
    with running(shop) as service:
        answer = run("observe", service.url, str(log), "-e", "home", "--key", made)
        assert answer.exit_code == 0, answer.output
        assert service.engine.log("home", "history").n_rounds == 3
        refused = run("observe", service.url, str(log), "-e", "home")
        assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
        assert refused.stderr.startswith("error: 401 ")
    silent = run("observe", service.url, str(log), "-e", "home")
    assert (silent.exit_code, silent.stderr.count("\n")) == (1, 1)
    assert silent.stderr.startswith("error: ")
