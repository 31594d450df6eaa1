"""Each way to these policies by name, and that nobody pays for them who does not use them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from alphafair import Engine, streams
from alphafair.algorithms import POLICIES
from alphafair.cli import app
from alphafair.lab.plan import KINDS, Contender
from alphafair.notions import NOTIONS, FairLearn
from alphafair.precompile import every_kernel, kernels_of, parse
from tests.serving import ARMS, running


@pytest.mark.parametrize(
    "code", ["import alphafair; alphafair.AlphaFair", "import alphafair.cli", "import alphafair.engine"]
)
def test_nobody_imports_them_who_does_not_ask(code: str) -> None:
    script = f"{code}\nimport sys\nprint([name for name in sys.modules if name.startswith('alphafair.notions')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_they_are_not_compiled_with_the_others() -> None:
    names = {kind.name for kind in NOTIONS}
    assert not names & {kernels.policy for kernels in every_kernel()}
    assert not names & set(POLICIES)
    for kind in NOTIONS:
        (kernels,) = kernels_of(kind.name)
        assert parse(str(kernels)) == [kernels]


def test_plans_find_them() -> None:
    stream = streams.ratings(100, 2, 4)
    for kind in NOTIONS:
        assert KINDS[kind.name] is kind
        policy = Contender(kind.name, kind.name).make(stream, 0.9)
        assert type(policy) is kind
    rates = Contender("", "bandit-q").make(stream, 0.9).settings["rates"]
    expected = stream.reward_table[stream.items].mean(axis=0) / 8
    assert list(rates.values()) == pytest.approx(expected.tolist())
    assert Contender("", "fair-learn", (("shares", "0.2 / N"),)).make(stream, 0.9).settings["shares"] == 0.05


def test_the_command_line_finds_them() -> None:
    named = [f"--policy={kind.name}" for kind in NOTIONS if kind.name != "promised"]
    done = CliRunner().invoke(app, ["simulate", *named, "--rounds=60", "--contexts=2", "--arms=3", "--json"])
    assert done.exit_code == 0, done.output
    assert all(f'"{kind.name}"' in done.output for kind in NOTIONS if kind.name != "promised")
    done = CliRunner().invoke(app, ["simulate", "--policy=fair-lern"])
    assert done.exit_code == 2
    assert "Did you mean 'fair-learn'?" in " ".join(done.output.split())


def test_the_engine_plays_and_replays_them_once_they_are_registered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in NOTIONS:
        if kind.feedback == "bandit":
            monkeypatch.setitem(POLICIES, kind.name, kind)
    settings: dict[str, dict[str, Any]] = {
        kind.name: kind.traits.variants(1, 3)[""] for kind in NOTIONS if kind.feedback == "bandit"
    }
    with Engine.open(tmp_path / "ledger.db", seed=1) as engine:
        for name, given in settings.items():
            engine.create(name, policy=name, arms=["a", "b", "c"], **given)
            for k in range(12):
                receipt = engine.decide(name, f"visitor {k % 2}", id=f"{name} {k}")
                assert receipt.arm in ("a", "b", "c")
                if k % 3:
                    engine.reward(f"{name} {k}", 0.5, experiment=name)
            engine.add_arm(name, "d")
            engine.retire_arm(name, "a")
            engine.decide(name, "visitor 0")
        n_events = engine.verify()
    with Engine.open(tmp_path / "ledger.db") as engine:
        assert engine.verify() == n_events
        assert set(engine.experiments()) == set(settings)


@pytest.mark.compiled
def test_the_service_plays_one_that_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"name": "home", "policy": "fair-learn", "arms": ARMS, "settings": {"shares": 0.3}}
    monkeypatch.setitem(POLICIES, "fair-learn", FairLearn)
    with running(tmp_path / "shop.db") as service:
        created = service.post("", body)
        assert created.status_code == 201, created.text
        for visitor in range(10):
            decision = service.post("/home/decisions", {"context": f"visitor {visitor % 2}"}).json()
            paid = {"id": decision["id"], "reward": 1.0 if decision["arm"] == ARMS[0] else 0.0}
            assert service.post("/home/rewards", paid).json() == {"outcome": "applied"}
        found = service.http.get("/v1/experiments/home").json()
        assert (found["policy"], found["rewards"]) == ("fair-learn", 10)
        assert min(found["pulls"].values()) == 3  # floor(0.3 10)
        monkeypatch.delitem(POLICIES, "fair-learn")
        assert service.post("", {**body, "name": "other"}).status_code == 422
