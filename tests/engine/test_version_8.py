"""A file of the version before: settings by their old names, states in the old layout. It goes on where it was left.

`make_version_8_ledger.py` has how the file was made.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from alphafair import Engine
from alphafair.engine import GroupStatus, PolicyFailed
from alphafair.engine.state.experiment import CODE
from alphafair.engine.state.replay import Replay
from alphafair.engine.store.ledger import split_state
from alphafair.engine.store.migrate import with_present_names
from alphafair.engine.store.sqlite import SqliteStore
from alphafair.errors import InvalidArgument
from alphafair.values import State
from tests import ROOT
from tests.stores import live_state, rows_of

DATA = ROOT / "tests" / "fixtures"
SAID: dict[str, Any] = json.loads((DATA / "version-8.json").read_text())
GROUPS = {"lamp": "ada", "desk": "ada", "chair": "ben"}
CREATED = "select body from change where kind = 'create'"
WAITING = """select d.id from decision d join experiment e on e.key = d.experiment
    left join reward r on r.decision = d.event
    where e.name = ? and r.event is null and d.event < e.key + 1000"""
ADAPTIVE = {"groups", "arms", "full", "rolled back"}
ENTITLED = {"ada": 1.0, "ben": 2.0, "cyd": 3.0}
EXPECTED: dict[str, GroupStatus | None] = {
    "groups": GroupStatus({**GROUPS, "rug": "ben"}, None, None),
    "entitled": GroupStatus({**GROUPS, "rug": "cyd"}, ENTITLED, 0.05),
    "floors": GroupStatus(GROUPS, None, {"ada": 0.2, "ben": 0.1}),
    "arms": GroupStatus(None, {"lamp": 1.0, "desk": 4.0, "chair": 1.0}, {"lamp": 0.0, "desk": 0.0, "chair": 0.3}),
    "full": GroupStatus(None, {"lamp": 1.0 / 3.0, "desk": 1.0, "chair": 1.0}, None),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return unpacked("version-8.db.gz", tmp_path / "shop.db")


def unpacked(name: str, path: Path) -> Path:
    path.write_bytes(gzip.decompress((DATA / name).read_bytes()))
    return path


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as file:
        return file.execute(query).fetchall()


def test_the_fixture_is_of_version_8(path: Path) -> None:
    assert rows(path, "select max(number) from migration") == [(8,)]
    states = rows(path, "select state from snapshot") + rows(path, "select state from change where state is not null")
    assert {State.from_bytes(state).version for (state,) in states} == {2, 3}
    created = {body["name"]: body["settings"] for body in map(json.loads, *zip(*rows(path, CREATED), strict=True))}
    assert created["entitled"]["groups"] == ["ada", "ada", "ben"]
    assert created["entitled"]["pull_floor"] == 0.05
    assert created["fair-cb"]["pull_floor"] == 0.1 + 0.2


def test_a_version_8_file_opens_with_its_state(path: Path) -> None:
    with Engine.open(path) as engine:
        for name, said in SAID.items():
            status, policy = engine.experiment(name), live_state(engine, name).experiments[name].policy
            assert status.unhealthy is None
            assert status.cumulative_rewards == said["cumulative_rewards"]
            assert status.accounts == said["accounts"]
            assert status.decisions == said["decisions"]
            assert status.groups == EXPECTED.get(name)
            if policy.name != "alpha-fair-adaptive":  # its formulas have changed since: the log leads elsewhere
                assert [policy.probabilities(context).tolist() for context in range(3)] == said["probabilities"], name
        assert live_state(engine, "fair-cb").experiments["fair-cb"].policy.settings["pull_share"] == 0.1 + 0.2
        history = engine.history("entitled")
        assert history[0].details["settings"]["groups"] == {
            "labels": ["ada", "ada", "ben"],
            "entitlements": [1.0, 2.0],
            "pull_floor": 0.05,
        }
        assert (history[-1].kind, live_state(engine, "entitled").experiments["entitled"].code) == ("upgrade", CODE)
    snapshots = rows(path, "select state, summary from snapshot")
    assert snapshots
    assert {State.from_bytes(split_state(*snapshot)[0]).version for snapshot in snapshots} == {4, 6}


def test_a_version_8_file_decides_learns_verifies_and_exports(path: Path, tmp_path: Path) -> None:
    for seed in (1, 2):  # from the log, then from snapshots
        with Engine.open(path, seed=seed) as engine:
            for name in SAID:
                status = engine.experiment(name)
                receipt = engine.decide(name, "visitor 1")
                reward: Any = dict.fromkeys(status.arms, 0.5) if status.feedback == "full" else 0.5
                assert engine.reward(receipt.id, reward).outcome == "applied"
            for name in ("groups", "scale-free") if seed == 1 else ():
                ids = [id for (id,) in rows_of(engine, WAITING, (name,))]
                assert ids, "decisions of then that wait for their rewards"
                assert {engine.reward(id, 0.25).outcome for id in ids} == {"applied"}
            engine.verify()
            engine.add_arm("groups", f"sofa {seed}", group="ada")
            engine.add_arm("hedge", f"sofa {seed}")
            engine.verify()
            for name, said in SAID.items():
                log = engine.log(name)
                assert len(log.arms) <= said["decisions"] + seed
                assert log.arm_labels[:3] == ("lamp", "desk", "chair")
                engine.export(name, tmp_path / f"{name}.jsonl")
                lines = (tmp_path / f"{name}.jsonl").read_text().splitlines()
                assert len(lines) == said["decisions"] + seed


@pytest.mark.parametrize("name", sorted(SAID.keys() - ADAPTIVE))
def test_every_propensity_of_version_8_is_recomputed(path: Path, name: str) -> None:
    """`verify` begins where this code took over; here the whole log is done again, from its first event.

    Not that of the adaptive policy, whose formulas have changed since.
    """
    SqliteStore(path).close()  # brings it up to date
    store = SqliteStore(path, read_only=True)
    try:
        (head,) = (head for head in store.heads() if head.name == name)
        key = head.key
        replay = Replay(store, {key: head.position}, check=True)
        experiment = replay.run()[key]
        assert not replay.unproved
        assert experiment.unhealthy is None
        assert experiment.tally.decisions > 30
    finally:
        store.close()


def test_an_experiment_with_a_start_of_version_8_is_unhealthy(tmp_path: Path) -> None:
    """The state cannot be read, and without it nothing that came later can be learned again."""
    path = unpacked("version-8-started.db.gz", tmp_path / "shop.db")
    for _ in range(2):
        with Engine.open(path) as engine:
            problem = engine.experiment("started").unhealthy
            assert problem is not None
            assert "state.version must be 6; got 2" in problem
            assert "written by an older version" in problem
            with pytest.raises(PolicyFailed):
                engine.decide("started", "visitor 0")
            with pytest.raises(PolicyFailed, match=r"state\.version must be 6; got 2"):
                engine.verify()
            assert engine.experiment("started").decisions == 3
            assert len(engine.log("started").arms) > 0
            engine.decide("other", "visitor 0")
            assert engine.experiment("other").unhealthy is None


def test_a_reader_refuses_a_version_8_file(path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"a file of version 15; got 8\. Open it for writing once"):
        Engine.open(path, read_only=True)
    Engine.open(path).close()
    with Engine.open(path, read_only=True) as engine:
        assert engine.experiment("floors").accounts == SAID["floors"]["accounts"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            {
                "policy": "alpha-fair",
                "settings": {"alpha": 0.9, "groups": None, "entitlements": None, "pull_floor": 0.1},
            },
            {"alpha": 0.9, "groups": {"labels": None, "entitlements": None, "pull_floor": 0.1}},
        ),
        ({"policy": "alpha-fair", "settings": {"alpha": float("inf")}}, {"alpha": float("inf")}),
        ({"policy": "fair-cb", "settings": {"pull_floor": 1 / 3}}, {"pull_share": 1 / 3}),
        ({"policy": "their-own", "settings": {"pull_floor": 0.1, "groups": 3}}, {"pull_floor": 0.1, "groups": 3}),
    ],
)
def test_settings_get_their_present_names_once(before: dict[str, Any], after: dict[str, Any]) -> None:
    once = with_present_names(json.dumps({"name": "home", **before}))
    assert json.loads(once) == {"name": "home", "policy": before["policy"], "settings": after}
    assert with_present_names(once) == once


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"settings": 3, "policy": "fair-cb"}', "null"])
def test_an_unreadable_body_is_unchanged(body: str) -> None:
    assert with_present_names(body) == body
