"""`verify` proves that the rows of a file belong together, and names the first that do not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alphafair.cli import app as program
from alphafair.engine import Engine, Mismatch, RequestError
from alphafair.service.keys import create as create_key
from tests.older import take_back
from tests.stores import (
    address_of,
    both_stores,
    connected,
    copy_as_crashed,
    execute,
    is_postgres,
    live_state,
    open_store,
    rows_of,
    sqlite_only,
)

pytestmark = both_stores

ARMS = ["ada", "ben"]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Path:
    """A file in which every kind of event is found; propensities are all 1/2, so that replaying cannot tell contexts.

    Positions: 1 home and its contexts 0 ("known") and 1 ("unseen"), 2 to 6 decisions of known, v, w, v, gone, 7 gone is
    erased, 8 a deferred decision of v and 9 its activation, 10 a reward, 11 a decision of w, 12 a rollback to 10 that
    closes it with 13, 14 its late reward.
    """
    path = tmp_path_factory.mktemp("played") / "shop.db"
    with Engine(open_store(path), seed=1, clock=lambda: 1_800_000_000 * 10**9) as engine:
        engine.create("home", arms=ARMS, policy="uniform", feedback="bandit", contexts=["known", "unseen"])
        for id, label in (("k", "known"), ("a", "v"), ("b", "w"), ("c", "v"), ("d", "gone")):
            engine.decide("home", label, id)
        engine.erase("home", "gone")
        engine.decide("home", "v", "e", deferred=True)
        engine.activate("e")
        engine.reward("a", 0.5)
        engine.decide("home", "w", "f")
        engine.rollback("home", 10)
        assert engine.reward("f", 0.5).outcome == "rolled_back"
        assert engine.verify() == 14
    return path


def edited(played: Path, tmp_path: Path, *statements: str) -> Path:
    path = tmp_path / "edited.db"
    copy_as_crashed(played, path)
    with connected(path) as connection:
        connection.execute("delete from snapshot")
        for statement in statements:
            statement = re.sub(r"\{(\d+)\}", lambda number: str(event(int(number[1]))), statement)
            assert connection.execute(statement).rowcount > 0, statement
    return path


def event(position: int) -> int:
    """The key of a row of the only experiment."""
    return (1 << 36 | position) if is_postgres() else position


EDITS: dict[str, tuple[list[str], str]] = {
    "labels swapped": (
        [
            "update context set label = 'x' where number = 2",
            "update context set label = 'v' where number = 3",
            "update context set label = 'w' where number = 2",
        ],
        r"home: decision 3 \('a'\) was not made for context 2, which is 'w'",
    ),
    "a label changed": (
        ["update context set label = 'somebody' where number = 2"],
        r"home: decision 3 \('a'\) was not made for context 2, which is 'somebody'",
    ),
    "two labels share one context": (
        ["update decision set context = 2 where position = 4"],
        r"home: decision 4 \('b'\) was not made for context 2, which is 'v'",
    ),
    "ids swapped": (
        [
            "update decision set id = 'x' where position = 3",
            "update decision set id = 'a' where position = 4",
            "update decision set id = 'b' where position = 3",
        ],
        r"home: decision 3 \('b'\) was not made for context 2, which is 'v', or not under this id",
    ),
    "a checksum removed": (
        ["update decision set checksum = null where position = 4"],
        r"decision 4 \('b'\) has no checksum",
    ),
    "a checksum moved": (
        ["update decision set checksum = 7 where position = 2"],
        r"decision 2 \('k'\) was not made for",
    ),
    "a context that is not there": (
        ["update decision set context = 9 where position = 11"],
        r"home: decision 11 \('f'\) belongs to context 9, which has no row",
    ),
    "a negative context": (
        ["update decision set context = -1 where position = 11"],
        r"context -1, which has no row|impossible context",
    ),
    "a label's row is missing": (["delete from context where number = 2"], r"home: context 2 has no row"),
    "the last label's row is missing": (["delete from context where number = 4"], r"home: .*context 4.* has no row"),
    "an unseen label's row is missing": (["delete from context where number = 1"], r"home: context 1 has no row"),
    "a context of nobody": (
        ["insert into context values (99, 0, 'x')"],
        r"context 0 belongs to experiment 99, which was not created",
    ),
    "a decision of nobody": (
        ["update decision set experiment = 99 where position = 3"],
        r"position 3 has no event|reward 10 belongs to no decision before it",
    ),
    "an erased label is back": (
        ["update context set label = 'gone' where number = 4"],
        r"home: context 4 was erased at position 7, but has a label",
    ),
    "a label lost": (
        ["update context set label = null where number = 1"],
        r"home: context 1 was not erased, but has no",
    ),
    "an erased id is back": (
        ["update decision set id = 'd' where position = 6"],
        r"home: decision 6 .*erased.* but has an id",
    ),
    "a label erased by hand": (
        ["update context set label = null where number = 3", "update decision set id = 'erased-1' where position = 4"],
        r"home: context 3 was not erased, but has no label",
    ),
    "a reward of nothing": (
        ["update reward set decision = {99} where position = 10"],
        r"reward 10 belongs to no decision before it",
    ),
    "a reward before its decision": (
        [
            "update reward set decision = {99} where position = 10",
            "update reward set decision = {3} where position = 13",
            "update reward set decision = {11} where position = 10",
        ],
        r"reward 10 belongs to no decision before it",
    ),
    "an activation of nothing": (
        ["update activation set decision = {99}"],
        r"activation 9 belongs to no decision before it",
    ),
    "an activation of one that was not deferred": (
        ["update activation set decision = {4}"],
        r"activation 9 belongs to decision 4, which was not deferred",
    ),
    "a late reward of nothing": (
        ["update late_reward set decision = {99}"],
        r"late_reward 14 belongs to no decision before it",
    ),
    "a late reward of an open decision": (
        ["update late_reward set decision = {4}"],
        r"late_reward 14 belongs to decision 4, which was not closed before it",
    ),
    "a reward of a decision that was not activated": (
        [
            "update activation set event = {99}, position = 99",
            "update reward set event = {9}, position = 9, decision = {8} where position = 10",
            "update activation set event = {10}, position = 10",
        ],
        r"reward 9 belongs to decision 8, which was not activated before it",
    ),
    "an event removed": (["delete from late_reward"], r"position 14 has no event"),
    "an event in the middle removed": (["delete from reward where position = 10"], r"position 10 has no event"),
    "an event twice": (["update late_reward set event = {13}, position = 13"], r"position 13 has 2 events"),
    "a position twice": (["update late_reward set position = 13"], r"home: position 14 has no event"),
    "a position after the last": (["update late_reward set position = 15"], r"home: position 14 has no event"),
    "a head that is behind": (
        ["update experiment set position = 13"],
        r"home: position 14 is after|home, which ends",
    ),
    "a head that is ahead": (["update experiment set position = 15"], r"home: position 15 has no event"),
    "a head with another time": (
        ["update experiment set at = at + 1"],
        r"position 14, the last, has another time",
    ),
    "a head with another name": (["update experiment set name = 'hame'"], r"hame: it was created under another name"),
    "an event of nobody": (
        ["update late_reward set experiment = 99"],
        r"(position 14 has no event|belongs to experiment 99, which was not created)",
    ),
    "a reward in another experiment's name": (
        ["update reward set experiment = 99 where position = 10"],
        r"(reward 10 belongs to no decision before it|position 10 has no event)",
    ),
    "an event after the last": (
        ["update late_reward set event = {15}, position = 15"],
        r"position (14 has no event|15 is after the last)",
    ),
    "a decision drawn from the future": (
        ["update decision set state_version = 5 where position = 4"],
        r"decision 4 \('b'\) was drawn at position 5, which is not before it",
    ),
    "a decision under another version": (
        ["update decision set policy_version = 7 where position = 4"],
        r"decision 4 \('b'\) was drawn under version 7; the last change before it was 1",
    ),
    "an unknown source": (
        ["update reward set source = 'thin air' where position = 10"],
        r"reward 10 has the source 'thin air'",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_verify_names_rows_that_do_not_belong_together(played: Path, tmp_path: Path, edit: str) -> None:
    statements, words = EDITS[edit]
    path = edited(played, tmp_path, *statements)
    with pytest.raises(Mismatch) as found, Engine.open(path, read_only=True) as reader:
        reader.verify()
    assert re.search(words, str(found.value)), found.value
    told = CliRunner().invoke(program, ["verify", str(address_of(path))])
    assert told.exit_code == 1
    assert str(found.value) in " ".join(told.stderr.split())


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair", "fair-cb"])
@pytest.mark.parametrize("numbers", ["arm = 2", "arm = -1", "arm = 1000000000", "arm = 1099511627776", "context = -1"])
def test_impossible_numbers_never_reach_a_policy(tmp_path: Path, policy: str, numbers: str) -> None:
    """Compiled code looks where it is told to."""
    path = tmp_path / "shop.db"
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=ARMS, policy=policy)
        for k in range(3):
            engine.decide("home", "v", f"{k}")
            engine.reward(f"{k}", [0.5, 0.25] if policy == "alpha-fair" else 0.5)
        engine.add_arm("home", "cyd")
    execute(path, "delete from snapshot", f"update decision set {numbers} where position = 4")
    with pytest.raises(Mismatch, match="impossible context or arm"):
        Engine.open(path)


@pytest.mark.parametrize("context", [7, 1_000_000_000, 1 << 40])
def test_a_context_of_a_huge_number_takes_no_memory(tmp_path: Path, context: int) -> None:
    path = tmp_path / "shop.db"
    with Engine.open(path, seed=1) as engine:
        engine.create("home", arms=ARMS, contexts=[f"v{k}" for k in range(3)])
        engine.decide("home", "v")
    execute(path, "delete from snapshot", f"update decision set context = {context}")
    with pytest.raises(Mismatch, match="impossible context or arm"):
        Engine.open(path)


def test_an_unchanged_file_verifies(played: Path, tmp_path: Path) -> None:
    with Engine.open(edited(played, tmp_path, "update decision set at = at")) as engine:
        assert engine.verify() == 14


def test_memory_is_compared_with_the_rows(played: Path, tmp_path: Path) -> None:
    """As when a context was noted for a decision that was then refused."""
    with Engine.open(edited(played, tmp_path, "update decision set at = at")) as engine:
        home = live_state(engine, "home").experiments["home"]
        home.contexts["ghost"] = home.n_contexts
        with pytest.raises(Mismatch, match=r"home: 'ghost' is context 5 in memory, but has no row"):
            engine.verify()
        del home.contexts["ghost"]
        home.contexts["v"] = 3
        with pytest.raises(Mismatch, match=r"home: 'v' is context 3 in memory, but 2 in the log"):
            engine.verify()
        del home.contexts["v"]
        with pytest.raises(Mismatch, match=r"home: 'v' is context 2 in the log, but unknown in memory"):
            engine.verify()


@sqlite_only("is about files of older versions; databases have always had checksums")
def test_decisions_of_older_versions_have_no_checksum(played: Path, tmp_path: Path) -> None:
    path = edited(played, tmp_path, "update decision set at = at")
    with connected(path) as file:
        take_back(file, 7)
    with Engine.open(path) as engine:
        assert engine.verify() == 14
        engine.decide("home", "new", "g")
        assert engine.verify() == 15
        rows = rows_of(engine, "select id, checksum is null from decision where position > 10 order by position")
        assert rows == [("f", 1), ("g", 0)]
        engine.erase("home", "new")
        engine.erase("home", "w")
        assert rows_of(engine, "select count(*) from decision where checksum is not null") == [(0,)]
        assert engine.verify() == 17
        assert engine.decide("home", "new", "g").id == "g"
        engine.verify()


def test_everything_else_that_an_engine_does_verifies(tmp_path: Path) -> None:
    """All else that an engine does leaves a file that is sound."""
    path = tmp_path / "shop.db"
    create_key(path, "read", "me")
    with Engine.open(path, seed=1) as engine:
        for name in ("home", "all"):
            engine.create(name, arms=ARMS, policy="alpha-fair" if name == "all" else "alpha-fair-adaptive")
            engine.mask_arm(name, "ada")
            for k in range(4):
                engine.decide(name, f"имя {k % 2}", f"{name} 名前 {k}")
            engine.unmask_arm(name, "ada")
            engine.add_arm(name, "cyd")
            engine.decide(name, "v", f"{name} e")
            engine.set_alpha(name, 0.5)
            engine.retire_arm(name, "ada")
            with pytest.raises(RequestError):
                engine.decide(name, "refused", available=["ada"])
            engine.decide(name, "v", f"{name} f", available=["cyd"])
            engine.erase(name, "v")
        engine.verify()
    with Engine.open(path, read_only=True) as reader:
        reader.verify()
