"""A file with states of version 4 of the adaptive policy: it opens, goes on, and is verified from the upgrade on.

`make_adaptive_4_ledger.py` has how the file was made.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from alphafair import Engine
from alphafair.cli import app
from alphafair.engine.state.experiment import CODE
from alphafair.values import State
from tests import ROOT
from tests.stores import live_state

DATA = ROOT / "tests" / "fixtures"
ACCOUNTS: dict[str, dict[str, float]] = json.loads((DATA / "adaptive-4.json").read_text())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    path.write_bytes(gzip.decompress((DATA / "adaptive-4.db.gz").read_bytes()))
    return path


def versions(path: Path, query: str) -> set[int]:
    with closing(sqlite3.connect(path)) as file:
        return {State.from_bytes(state).version for (state,) in file.execute(query)}


def test_it_opens_with_its_accounts_and_records_the_upgrade(path: Path) -> None:
    assert versions(path, "select state from snapshot") == {4}
    with Engine.open(path) as engine:
        for name, accounts in ACCOUNTS.items():
            assert engine.experiment(name).unhealthy is None, name
            assert engine.experiment(name).accounts == accounts
            assert engine.history(name)[-1].kind == "upgrade"
            assert live_state(engine, name).experiments[name].code == CODE
    assert versions(path, "select state from change where kind = 'upgrade'") == {6}


def test_the_last_state_is_read_and_not_learned_again(path: Path) -> None:
    """The sums of squares of an experiment that learned everything again would be exact."""
    with Engine.open(path) as engine:
        state = live_state(engine, "plain").experiments["plain"].policy.snapshot().arrays
    with closing(sqlite3.connect(path)) as file:
        key = "select experiment from change where kind = 'create' and body ->> '$.name' = 'plain'"
        (blob,) = file.execute(
            f"select state from snapshot where experiment = ({key}) order by position limit 1"
        ).fetchone()
    older = State.from_bytes(blob).arrays
    assert older["seen"] <= state["seen"]
    assert state["squared_rewards"] >= older["reward_sum"] * older["largest"]
    assert state["outside"] > 0.0


def test_it_goes_on_and_is_verified(path: Path) -> None:
    for seed in (1, 2):  # from states of version 4, then from those of now
        with Engine.open(path, seed=seed) as engine:
            for name in ACCOUNTS:
                status = engine.experiment(name)
                receipt = engine.decide(name, "visitor 1")
                reward: Any = dict.fromkeys(status.arms, 0.5) if status.feedback == "full" else 0.5
                if status.feedback == "full":
                    reward |= dict.fromkeys(status.retired_arms, 0.5)
                assert engine.reward(receipt.id, reward).outcome == "applied"
            engine.add_arm("started", f"sofa {seed}")
            engine.verify()
            engine.rollback("plain", engine.experiment("plain").position - 2)
            engine.verify()


def test_the_command_says_what_it_accepts(path: Path) -> None:
    with Engine.open(path) as engine:
        position = engine.history("plain")[-1].position
    found = CliRunner().invoke(app, ["verify", str(path)])
    assert found.exit_code == 0
    accepted = f"plain: events before position {position:,} were made by an older version, and accepted as they are."
    assert accepted in found.output.splitlines()


def test_a_rollback_to_a_state_of_version_4(path: Path) -> None:
    with Engine.open(path) as engine:
        position = engine.history("plain")[0].position + 30
        engine.rollback("plain", position)
        assert engine.experiment("plain").unhealthy is None
        engine.decide("plain", "visitor 0")
        engine.verify()
