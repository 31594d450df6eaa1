"""`alphafair forecast`: the price of fairness from an experiment's own log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alphafair import Engine
from alphafair.cli import app
from tests.service.test_evaluation import ARMS, history


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with Engine.open(path, seed=1) as engine:
        for name in ("explores", "silent"):
            engine.create(name, arms=ARMS, mode="watch")
            engine.observe_many(name, list(history(name)))
    return path


def run(*arguments: object) -> str:
    found = CliRunner().invoke(app, ["forecast", *map(str, arguments)])
    assert found.exit_code == 0, found.output
    return found.output


def test_a_log_of_the_incumbent_is_forecast(shop: Path) -> None:
    lines = run(shop, "-e", "explores", "--source", "incumbent").splitlines()
    assert lines[0] == "From the 600 rewarded decisions of incumbent."
    assert lines[1].split() == ["alpha", "mean", "reward", "Jain", "index"]
    assert lines[2].split()[0] == "0.0"
    assert any(line.startswith("Verdict: ") for line in lines)
    found = json.loads(run(shop, "-e", "explores", "--source", "incumbent", "--json"))
    assert found["curve"]["rounds"] == 600
    assert found["sentence"] == lines[0]


def test_without_propensities_it_says_so(shop: Path) -> None:
    assert run(shop, "-e", "silent", "--source", "incumbent").startswith("No propensities were sent")
