"""A metric, a command and a column of CONTRIBUTING.md in a copy of the package, added as the page says."""

from __future__ import annotations

from pathlib import Path

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


def test_the_metric_of_the_guide_is_shown(tmp_path: Path) -> None:
    places = (
        Place("class Metric(NamedTuple)"),
        Place("}\n\n\ndef average_over_seeds(", "    "),
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
    old = "        part.rows[Activated].append((event, part.key, part.position, record.event, self.at))\n"
    places = (
        Place("    at {int} not null\n) {strict};\n\ncreate table reward", "    "),
        Place("    at: int\n\n\nclass Settled(NamedTuple)", "    "),
        Place(old, " " * 8, instead=True),
    )
    files = play(tmp_path, "Add a column to the event log", places)
    assert len(files) <= 3
    run(tmp_path, COLUMN)
