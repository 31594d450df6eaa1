"""A setting, a field, a kind of change, a term and an event kind of CONTRIBUTING.md in a copy of the packages.

Each is used through the engine and over HTTP, then the log is opened again, verified and copied.
"""

from __future__ import annotations

from pathlib import Path

from tests.recipes import Place, play, run
from tests.stores import address_of, both_stores, is_postgres

BEGIN = """
import json
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import alphafair
from alphafair.engine import Engine, RequestError, copy
from alphafair.errors import InvalidArgument, Mismatch
from alphafair_client import client
from tests.serving import running

folder = Path(sys.argv[1])
for module in (alphafair, client):
    assert Path(module.__file__).is_relative_to(folder)
path, copied = folder / "shop.db", folder / "copy.db"
"""
SETTING = """
from alphafair.engine.state.settings import Settings

def late_rewards(engine, turn):
    names = ("patient", "strict")
    for name in names:
        engine.decide(name, "morning", id=f"{name} {turn}")
    time.sleep(0.01)
    return [engine.reward(f"{name} {turn}", 1.0).outcome for name in names]

with Engine.open(path, seed=1) as engine:
    engine.create("patient", arms=["ada", "ben"], reward_wait=0.001, grace=1e6)
    engine.create("strict", arms=["ada", "ben"], reward_wait=0.001)
    for value in (-1.0, 1e10, "long"):
        with pytest.raises(InvalidArgument, match="grace must be a number"):
            engine.create("odd", arms=["ada"], grace=value)
    assert engine.experiments() == ["patient", "strict"]
    assert late_rewards(engine, 1) == ["applied", "expired"]
    assert engine.history("patient")[0].details["grace"] == 1e6
    engine.verify()
with Engine.open(path, seed=2) as engine:
    assert late_rewards(engine, 2) == ["applied", "expired"]
    engine.verify()
copy(path, copied)
with Engine.open(copied, seed=3) as engine:
    assert late_rewards(engine, 3) == ["applied", "expired"]
    engine.verify()
with running(path) as shop, alphafair.Client(shop.url) as http:
    http.create("calm", arms=["ada", "ben"], reward_wait=0.001, grace=1e6)
    assert http.history("calm")[0].details["grace"] == 1e6
    with pytest.raises(alphafair.ServiceError) as refused:
        http.create("odd", arms=["ada"], grace=-1.0)
    assert refused.value.status == 422 and "grace" in str(refused.value)
    assert "grace" in shop.http.get("/openapi.json").json()["components"]["schemas"]["NewExperiment"]["properties"]
    shop.engine.verify()
with closing(sqlite3.connect(path)) as file:
    ((body,),) = file.execute("select body from change where kind = 'create' and position = 1 limit 1").fetchall()
older = json.loads(body)
assert Settings.from_json(body).wait == 1_000_000_001_000
del older["grace"]
assert Settings.from_json(json.dumps(older)).wait == 1_000
"""
FIELD = """
with Engine.open(path, seed=1) as engine:
    engine.create("home", arms=["ada", "ben"])
    assert engine.experiment("home").changes == 1
    engine.mask_arm("home", "ben")
    engine.decide("home", "morning")
    assert engine.experiment("home").changes == 2
with Engine.open(path, seed=2) as engine:
    assert engine.experiment("home").changes == 2
    engine.verify()
with running(path) as shop, alphafair.Client(shop.url) as http:
    assert http.experiment("home").changes == 2
    assert http.unmask_arm("home", "ben").changes == 3
    assert shop.http.get("/v1/experiments/home").json()["changes"] == 3
    schemas = shop.http.get("/openapi.json").json()["components"]["schemas"]
    assert schemas["ExperimentAnswer"]["properties"]["changes"] == {"type": "integer"}
"""
CHANGE = """
def arms(engine, name="home"):
    return {engine.decide(name, f"v{k}").arm for k in range(30)}

with Engine.open(path, seed=1) as engine:
    engine.create("home", arms=["ada", "ben", "cyd"])
    engine.retire_arm("home", "cyd")
    assert arms(engine) == {"ada", "ben"}
    before = engine.position
    engine.play_only("home", "ben")
    assert engine.position == before + 1
    for arm in ("ada", "cyd", "dan"):
        with pytest.raises(RequestError, match="arm must be"):
            engine.play_only("home", arm)
    assert engine.position == before + 1
    assert engine.experiment("home").masked_arms == ("ada",)
    assert arms(engine) == {"ben"}
    last = engine.history("home")[-1]
    assert (last.kind, last.details) == ("play_only", {"arm": "ben"})
    assert engine.verify() == engine.position
with Engine.open(path, seed=2) as engine:
    assert engine.experiment("home").masked_arms == ("ada",)
    assert arms(engine) == {"ben"}
    engine.rollback("home", before)
    assert engine.experiment("home").masked_arms == ("ada",)
    assert engine.verify() == engine.position
copy(path, copied)
with Engine.open(copied, seed=3) as engine:
    assert arms(engine) == {"ben"}
    engine.verify()
client.Client.play_only = client._blocking(client._Calls.play_only)
with running(path) as shop, alphafair.Client(shop.url) as http:
    http.create("away", arms=["ada", "ben", "cyd"])
    assert http.play_only("away", "cyd").masked_arms == ["ada", "ben"]
    assert arms(shop.engine, "away") == {"cyd"}
    with pytest.raises(alphafair.ServiceError, match="arm must be one that is drawn"):
        http.play_only("away", "ada")
    assert [each.kind for each in http.history("away")] == ["create", "play_only"]
    asked = shop.http.get("/openapi.json").json()["components"]["schemas"]["ChangeRequest"]["properties"]
    assert asked["play_only"]["description"] == "Mask all other arms."
    shop.engine.verify()
"""
TERM = """
with Engine.open(path, seed=1) as engine:
    engine.create("home", arms=["ada", "ben"], alpha=0.9)
    engine.reward(engine.decide("home", "morning").id, 1.0)
    before = engine.position
    engine.set_terms("home", alpha=2.0, reward_wait=60.0)
    assert engine.position == before + 1
    assert engine.experiment("home").alpha == 2.0
    with pytest.raises(InvalidArgument, match="alpha must be"):
        engine.set_terms("home", alpha=-1.0, reward_wait=None)
    assert engine.experiment("home").reward_wait == 60.0
    assert engine.history("home")[-1].details == {"set": {"alpha": 2.0, "reward_wait": 60.0}}
    engine.rollback("home", before)
    assert engine.verify() == engine.position
with Engine.open(path, seed=2) as engine:
    assert engine.experiment("home").alpha == 2.0
    engine.verify()
copy(path, copied)
with Engine.open(copied, seed=3) as engine:
    assert engine.experiment("home").alpha == 2.0
    engine.verify()
with running(path) as shop, alphafair.Client(shop.url) as http:
    assert http.set_terms("home", alpha=None).alpha == 0.9
    with pytest.raises(alphafair.ServiceError, match="alpha"):
        http.set_terms("home", alpha=-1.0)
    assert "alpha" in shop.http.get("/openapi.json").json()["components"]["schemas"]["ChangedTerms"]["properties"]
    shop.engine.verify()
"""
EVENT = """
def further(at):
    question = "select f.position, d.id, f.reward from further_reward f join decision d on d.event = f.decision"
    with Engine.open(at, read_only=True) as engine:
        return [tuple(row) for row in engine._store.rows(question + " order by f.event")]

with Engine.open(path, seed=1) as engine:
    engine.create("home", arms=["ada", "ben"], reward_wait=0.001)
    engine.decide("home", "morning", id="one")
    time.sleep(0.01)
    assert [engine.reward("one", reward).outcome for reward in (0.25, 0.5, 0.75)] == ["expired"] * 3
    assert engine.position == 6  # created, decided, expired, late, further, further
    assert engine.experiment("home").rewards == 0
    assert engine.verify() == 6
assert further(path) == [(5, "one", 0.5), (6, "one", 0.75)]
with Engine.open(path, seed=2) as engine:
    assert engine.position == 6
    engine.reward("one", 1.0)
    assert engine.verify() == 7
with running(path) as shop, alphafair.Client(shop.url) as http:
    with pytest.raises(alphafair.ServiceError) as closed:
        http.reward("one", 0.0, experiment="home")
    assert closed.value.status == 410
    assert shop.engine.verify() == http.experiment("home").position == 8
everything = [(5, "one", 0.5), (6, "one", 0.75), (7, "one", 1.0), (8, "one", 0.0)]
assert further(path) == everything
assert copy(path, copied) is not None and further(copied) == everything
with Engine.open(copied, read_only=True) as engine:
    assert engine.verify() == 8
if isinstance(path, Path):
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("update further_reward set decision = 99 where position = 7")
    with Engine.open(path, read_only=True) as engine, pytest.raises(Mismatch, match="7"):
        engine.verify()
"""


def test_the_setting_of_the_guide_is_checked_kept_and_followed(tmp_path: Path) -> None:
    wait = "        return None if self.reward_wait is None else int(self.reward_wait * 1e6)\n"
    places = (
        Place("\n    @classmethod\n    def checked(", "    "),
        Place("}\n\n\n# periods and policies", "    "),
        Place(wait, " " * 8, instead=True),
        Place("        start: State | None = None,\n        contexts: Sequence", " " * 8),
        Place("        }\n        checked, named", " " * 12),
        Place("    period: PeriodLength | UnsetType = UNSET\n", "    "),
    )
    files = play(tmp_path, "Add a setting", places)
    assert len(files) <= 3
    run(tmp_path, BEGIN + SETTING)


def test_the_field_of_the_guide_is_in_every_answer(tmp_path: Path) -> None:
    places = (
        Place("    pulls: dict[str, int]\n", "    "),
        Place("    position: int\n    pulls: dict[str, int]\n", "    "),
        Place("        pulls=dict(", " " * 8),
    )
    files = play(tmp_path, "Add a field to a message", places)
    assert len(files) <= 3
    run(tmp_path, BEGIN + FIELD)


def test_the_change_of_the_guide_is_made_shown_and_replayed(tmp_path: Path) -> None:
    places = (
        Place("\n\n# alpha and periods"),
        Place('    "set_alpha": ChangeKind(', "    "),
        Place("    paused: Annotated[bool", "    "),
        Place("\n    def set_alpha(", "    "),
        Place("\n    def set_alpha(", "    "),
    )
    files = play(tmp_path, "Add a kind of change", places)
    assert {Path(file).stem for file in files} == {"changes", "api", "engine", "client"}
    run(tmp_path, BEGIN + CHANGE)


def test_the_term_of_the_guide_changes_and_is_replayed(tmp_path: Path) -> None:
    places = (
        Place('    "groups": Term(', "    "),
        Place("from alphafair.groups import"),
        Place("    default_reward: DefaultReward | UnsetType | None = UNSET\n", "    "),
        Place("    default_reward: float | None\n\n\nclass ChangeRecord", "    "),
    )
    files = play(tmp_path, "Add a term that changes", places)
    assert {Path(file).stem for file in files} == {"terms", "api", "answers"}
    run(tmp_path, BEGIN + TERM)


@both_stores
def test_the_event_of_the_guide_is_written_verified_and_copied(tmp_path: Path) -> None:
    places = (
        Place("create table snapshot ("),
        Place("class SnapshotPiece("),
        Place('    SnapshotPiece: "snapshot_piece",', "    "),
        Place("}\n\n\n# what is read", "    "),
        Place("from alphafair.policy.base import BasePolicy\n"),
        Place("\n    def _set(", " " * 8),
    )
    files = play(tmp_path, "Add an event kind", places)
    assert len(files) <= 3
    stores = [address_of(tmp_path / name) for name in ("shop.db", "copy.db")]
    names = f"path, copied = {stores}\n" if is_postgres() else ""
    run(tmp_path, BEGIN + names + EVENT)
