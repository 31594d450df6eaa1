"""A metric, a command and a column of CONTRIBUTING.md in a copy of the package, added as the page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from alphafair.engine import Engine
from alphafair.errors import InvalidArgument
from tests.recipes import Place, play, run

METRIC = """
import json
import sys
from pathlib import Path

from typer.testing import CliRunner

from alphafair import metrics
from alphafair.cli import app

folder = Path(sys.argv[1])
assert Path(metrics.__file__).is_relative_to(folder)
assert metrics.gini_index([1.0, 3.0]) == 0.25
assert metrics.METRICS["gini_index"].axis("group") == "Gini index (0: all groups alike)"
small = ["--policy", "uniform", "--policy", "hedge", "--rounds", "300", "--contexts", "2", "--arms", "3"]
words = ["simulate", *small, "--output", str(folder / "out")]
answer = CliRunner().invoke(app, [*words, "--json"])
assert answer.exit_code == 0, answer.output
rows = json.loads(answer.stdout)["policies"]
least = min(row["gini_index"] for row in rows)
assert 0.0 <= least < max(row["gini_index"] for row in rows)
table = CliRunner().invoke(app, words, env={"COLUMNS": "200"}).stdout
assert "Gini" in table and f"* {least:.3f}" in table, table
"""
COMMAND = """
import sys
from pathlib import Path

from typer.testing import CliRunner

from alphafair import cli
from alphafair.engine import Engine

folder = Path(sys.argv[1])
assert Path(cli.__file__).is_relative_to(folder)
path = folder / "shop.db"
with Engine.open(path) as engine:
    engine.create("home", arms=["ada", "ben"])
answer = CliRunner().invoke(cli.app, ["arms", str(path), "--experiment", "home"])
assert (answer.exit_code, answer.stdout) == (0, "ada  0\\nben  0\\n"), answer.output
assert "List the arms of an experiment, with their rewards." in CliRunner().invoke(cli.app, ["--help"]).stdout
assert CliRunner().invoke(cli.app, ["arms", str(path), "--experiment", "away"]).exit_code == 2
"""
COLUMN = """
import sqlite3
import sys
import time
from pathlib import Path

import alphafair
from alphafair.engine import Engine, copy

folder = Path(sys.argv[1])
assert Path(alphafair.__file__).is_relative_to(folder)
path, copied = folder / "shop.db", folder / "copy.db"
with Engine.open(path) as engine:
    engine.create("home", arms=["ada", "ben"])
    engine.decide("home", "morning", id="one", deferred=True)
    time.sleep(0.05)
    engine.activate("one")
    engine.reward("one", 1.0)
    engine.verify()
copy(path, copied)
for each in (path, copied):
    ((waited,),) = sqlite3.connect(each).execute("select waited from activation").fetchall()
    assert 50_000 <= waited < 60_000_000
"""
ACTIVATED = "        part.rows[Activated].append((event, part.key, part.position, record.event, self.at))\n"
LATER_COLUMN = """
import sys
from pathlib import Path

import alphafair
from alphafair.engine import Engine, copy
from alphafair.engine.addresses import open_store
from alphafair.engine.copies import backup
from alphafair.errors import InvalidArgument

folder = Path(sys.argv[1])
address = (folder / "address").read_text()
assert Path(alphafair.__file__).is_relative_to(folder)

def waited(address):
    store = open_store(address, read_only=True)
    try:
        return store.rows("select decision, waited from activation order by event")
    finally:
        store.close()

try:
    Engine.open(address, read_only=True)
except InvalidArgument as refused:
    assert "Open it for writing once, which migrates it." in str(refused), refused
else:
    raise AssertionError("a store of an older version was opened to read")
if "://" not in address:
    assert backup(address, folder / "old.db") > 0
with Engine.open(address) as engine:
    engine.decide("home", "evening", id="two", deferred=True)
    engine.activate("two")
    engine.reward("two", 1.0)
    engine.verify()
with Engine.open(address) as engine:
    assert engine.experiment("home").decisions == 2
copy(address, folder / "copy.db")
for each in (address, folder / "copy.db"):
    (old, none), (new, number) = waited(each)
    assert none is None and 0 <= number < 60_000_000, (each, none, number)
made = folder / "new.db"
Engine.open(made).close()
assert waited(made) == []
"""


def test_the_metric_of_the_guide_is_shown(tmp_path: Path) -> None:
    places = (
        Place("class Metric(NamedTuple)"),
        Place("}\n\n\ndef _finite(", "    "),
        Place("    greatest_share as greatest_share,\n", "    "),
        Place(")\nBYTES_OF", "    "),
    )
    files = play(tmp_path, "Add a metric", places)
    assert len(files) <= 3
    run(tmp_path, METRIC)


def test_the_command_of_the_guide_works(tmp_path: Path) -> None:
    files = play(tmp_path, "Add a command", (Place(), Place("}\nEXTRAS", "    ")))
    assert len(files) <= 3
    run(tmp_path, COMMAND)


def test_the_column_of_the_guide_is_written_and_copied(tmp_path: Path) -> None:
    places = (
        Place("    at {int} not null\n) {strict};\n\ncreate table reward", "    "),
        Place("    at: int\n\n\nclass Settled(NamedTuple)", "    "),
        Place(ACTIVATED, " " * 8, instead=True),
    )
    files = play(tmp_path, "Add a column to the event log", places)
    assert len(files) <= 3
    run(tmp_path, COLUMN)


@pytest.mark.parametrize("kind", ["file", "database"])
def test_the_column_of_a_later_version_comes_to_stores_that_are_there(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """A store of the present tree is opened by a copy that has one step more, and keeps what it has."""
    is_file = kind == "file"
    address = str(tmp_path / "shop.db") if is_file else request.getfixturevalue("postgres_server").url()
    (tmp_path / "address").write_text(address)
    with Engine.open(address) as engine:
        engine.create("home", arms=["ada", "ben"])
        engine.decide("home", "morning", id="one", deferred=True)
        engine.activate("one")
        engine.reward("one", 1.0)
    places = (
        Place(),
        Place("\n\nclass Settled(NamedTuple)", "    "),
        Place(ACTIVATED, " " * 8, instead=True),
    )
    files = play(tmp_path, "Add a column after a release", places)
    assert len(files) <= 3
    run(tmp_path, LATER_COLUMN)
    with pytest.raises(InvalidArgument, match=r"of version 15 or older; got 16. Install alphafair"):
        Engine.open(address)
