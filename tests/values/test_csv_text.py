"""No label becomes a formula in a spreadsheet, and every label can be read back."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from alphafair import Log
from alphafair.cli import app as program
from alphafair.cli.evaluate import read_distributions
from alphafair.engine import Engine
from alphafair.evaluation import LogFile
from alphafair.tables import escape_formulas, unescape_formulas
from alphafair.values.log_table import EXPORTED

HOSTILE = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(A1)",
    "'=1",
    "''@x",
    "=cmd|'/c calc'!A1",
    "'quoted'",
    "plain",
    "-1",
    "+2.5",
]


def written(text: str) -> str:
    return str(pl.select(escape_formulas(pl.lit(text))).item())


@settings(deadline=None, derandomize=True)
@given(st.text(alphabet="'=+-@\t\rab1.", max_size=6))
def test_text_can_be_read_back_and_is_not_a_formula(text: str) -> None:
    shown = written(text)
    assert pl.select(unescape_formulas(pl.lit(shown))).item() == text
    if shown[:1] in {*"=+-@\t\r"}:  # nothing but a plain number, which is no formula
        assert shown[0] in "+-"
        float(shown)


def test_numbers_are_left_as_they_are() -> None:
    assert [written(text) for text in ("-1", "+2.5", "-1e5", "=1")] == ["-1", "+2.5", "'-1e5", "'=1"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log whose contexts, arms and ids are all hostile."""
    path = tmp_path / "log.csv"
    with Engine.open(tmp_path / "shop.db", seed=0) as engine:
        engine.create("home", arms=HOSTILE, policy="uniform", feedback="bandit")
        for number, label in enumerate(HOSTILE * 12):
            left_out = HOSTILE[number % 3]
            stock = [arm for arm in HOSTILE if arm != left_out]
            decision = engine.decide("home", label, id=f"{label} {number}", available=stock)
            engine.reward(decision.id, 0.5)
        engine.export("home", path)
        engine.export("home", tmp_path / "log.parquet")
    return path


def test_an_exported_log_has_no_formula_and_is_read_back(log: Path) -> None:
    with log.open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == EXPORTED
    cells = [cell for row in rows for cell in row]
    assert [cell for cell in cells if cell[:1] in {*"=+-@\t\r"} and cell not in {"-1", "+2.5"}] == []
    plain = Log.from_table(log.with_suffix(".parquet"))
    found = Log.from_table(log)
    assert (found.context_labels, found.arm_labels) == (plain.context_labels, plain.arm_labels)
    assert found.contexts.tolist() == plain.contexts.tolist()
    assert found.arms.tolist() == plain.arms.tolist()
    assert LogFile(log).arm_labels == plain.arm_labels


def test_distributions_have_no_formula_and_are_read_back(log: Path, tmp_path: Path) -> None:
    table = pl.DataFrame({"context": HOSTILE} | {arm: [1.0] * len(HOSTILE) for arm in HOSTILE})
    table.write_parquet(tmp_path / "rounds.parquet")
    result = CliRunner().invoke(
        program, ["offline", str(tmp_path / "rounds.parquet"), "--alpha", "0.5", "--output", str(tmp_path / "out")]
    )
    assert result.exit_code == 0, result.output
    path = tmp_path / "out" / "distributions-0.5.csv"
    with path.open(newline="") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert [cell for cell in cells if cell[:1] in {*"=+-@\t\r"} and cell not in {"-1", "+2.5"}] == []
    found = read_distributions(path, LogFile(log))
    assert found.shape == (len(HOSTILE), len(HOSTILE))
    assert found.sum(axis=1).tolist() == pytest.approx([1.0] * len(HOSTILE))
