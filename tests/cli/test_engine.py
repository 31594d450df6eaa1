"""The commands for an engine's file, as a shell would call them."""

from __future__ import annotations

import socket
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from alphafair import Engine
from alphafair.cli import app
from alphafair.engine.backup import copy_database
from alphafair.errors import Unavailable, shown


def run(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, result.output


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=["ada", "ben"])
        for k in range(10):
            engine.reward(engine.decide("home", f"visitor-{k % 3}").id, 0.5)
    return tmp_path / "shop.db"


def test_verify_prints_what_it_found(file: Path) -> None:
    code, text = run("verify", file)
    assert code == 0
    assert "21 events replayed" in text
    hand = sqlite3.connect(file)
    hand.execute("update reward set reward = 0.75 where position = 5")
    hand.commit()
    hand.close()
    code, text = run("verify", file)
    assert code == 1
    assert "error: home: decision 6 was logged with propensity" in text


def test_verify_works_beside_the_writer(file: Path) -> None:
    with Engine.open(file) as engine:
        engine.decide("home", "visitor-9")
        assert run("verify", file)[0] == 0
        code, text = run("erase", file, "--experiment", "home", "--context", "visitor-9")
        assert code == 1
        assert "has a writer already" in text


def test_export_by_suffix_or_format(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("export", file, "--experiment", "home")[0] == 0
    assert run("export", file, "-e", "home", "-o", "log.csv")[0] == 0
    assert run("export", file, "-e", "home", "--format", "jsonl")[0] == 0
    frames = [pl.read_parquet("home.parquet"), pl.read_csv("log.csv"), pl.read_ndjson("home.jsonl")]
    assert {len(frame) for frame in frames} == {10}
    code, text = run("export", file, "-e", "hime")
    assert code == 2
    assert "Existing ones: 'home'" in text


def test_backup_restore_and_erase(file: Path, tmp_path: Path) -> None:
    assert run("backup", file, tmp_path / "copy.db") == (0, f"{tmp_path / 'copy.db'}: 21 events\n")
    assert run("restore", tmp_path / "copy.db", tmp_path / "new.db")[0] == 0
    assert run("verify", tmp_path / "new.db")[0] == 0
    assert run("erase", file, "--experiment", "home", "--context", "visitor-1")[0] == 0
    assert b"visitor-1" not in file.read_bytes()
    assert run("verify", file)[0] == 0


def test_a_wrong_path_is_one_line(tmp_path: Path) -> None:
    for command in (["verify"], ["export", "-e", "x"], ["erase", "-e", "x", "--context", "y"]):
        code, text = run(command[0], tmp_path / "shpo.db", *command[1:])
        assert code == 2
        assert text.startswith("error: path must be an existing file")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words",
    [
        *(["verify"], ["history", "-e", "home"], ["export", "-e", "home"], ["backup", "new.db"], ["copy", "new.db"]),
        *(["restore", "new.db"], ["erase", "-e", "home", "--context", "a"]),
        *(["keys", "list"], ["keys", "create", "--role", "read", "--name", "a"], ["keys", "revoke", "k"]),
        ["keys", "rotate", "k"],
    ],
)
def test_a_file_that_is_no_database_is_refused_with_a_repair(words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "ok.csv"
    path.write_text("a,b\n1,2\n" * 100)
    group = 2 if words[0] == "keys" else 1
    file = ["--db", path] if words[0] == "keys" else [path]
    rest = [tmp_path / word if word == "new.db" else word for word in words[group:]]
    code, output = run(*words[:group], *file, *rest)
    assert code == 2
    assert f"must be a file that alphafair made; got {shown(str(path))}. Pass another file" in output
    assert path.read_text() == "a,b\n1,2\n" * 100


@pytest.mark.parametrize("words", [["verify"], ["export", "-e", "home"], ["keys", "list", "--db"]], ids=" ".join)
def test_a_folder_of_another_account_is_one_line(words: list[str], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path, *arguments: object) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    for name in ("exists", "is_file", "is_dir"):
        monkeypatch.setattr(Path, name, denied)
    answer = CliRunner().invoke(app, [*words, str(file)])
    assert (answer.exit_code, answer.stdout) == (1, "")
    assert answer.stderr == f"error: {file}: permission denied. Use an account that may, such as that of the service.\n"


def test_an_error_of_a_copy_names_the_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as source:  # cannot be opened as a file, by no account
        source.bind("source.db")
        with pytest.raises(Unavailable, match=r"^source\.db cannot be read: unable to open"):
            copy_database("source.db", "copy.db")
    assert not Path("copy.db").exists()


def test_names_in_the_history_cannot_control_the_terminal(file: Path) -> None:
    with Engine.open(file) as engine, engine.acting_as("\x1b[2Jada\u202e"):
        engine.pause("home")
    code, output = run("history", file, "-e", "home")
    assert code == 0
    assert "\\x1b[2Jada\\u202e" in output
    assert output.replace("\n", "").isprintable()
