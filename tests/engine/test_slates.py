"""Decisions of several arms in the engine: rewards by arm, waits, rollbacks, the log, and what `verify` finds."""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from alphafair.engine import Decide, Engine, Receipt, RequestError, Reward, SlateReceipt
from alphafair.engine.copies import copy
from alphafair.engine.reports import Reports
from alphafair.engine.store.slates import Slate, packed, rewards_of
from alphafair.errors import Mismatch
from alphafair.service.page.calculate import what_if
from tests.older import take_back
from tests.stores import both_stores, is_postgres, open_store, rows_of

pytestmark = both_stores
ARMS = ["ada", "ben", "cyd", "dov", "eve"]
SECOND = 10**9


class Shop:
    """An engine with two experiments, at a time that tests move."""

    def __init__(self, path: Path) -> None:
        self.path, self.now = path, 1_700_000_000 * SECOND
        self.engine = self.opened()
        self.engine.create("home", arms=ARMS, alpha=0.5)
        self.engine.create("wait", arms=ARMS, alpha=0.5, reward_wait=10.0, default_reward=0.25)

    def opened(self) -> Engine:
        return Engine(open_store(self.path), seed=3, clock=lambda: self.now)

    def reopen(self) -> None:
        self.engine.close()
        self.engine = self.opened()

    def outcome(self, id: str, rewards: object) -> str:
        return self.engine.reward(id, rewards).outcome  # type: ignore[arg-type]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "shop.db")
    yield made
    made.engine.verify()
    made.engine.close()


def test_a_slate_and_its_rewards(shop: Shop) -> None:
    engine = shop.engine
    receipt = engine.decide("home", "v", "first", k=3)
    assert isinstance(receipt, SlateReceipt)
    assert len({*receipt.arms}) == len(receipt.propensities) == 3
    assert engine.decide("home", "v", "first", k=3) == receipt
    one, two, three = receipt.arms
    assert shop.outcome("first", {two: 1.0}) == "applied"
    assert engine.experiment("home").pending == 1
    assert shop.outcome("first", {two: 1.0}) == "repeated"
    assert shop.outcome("first", {two: 1.0, one: 0.5}) == "applied"
    assert shop.outcome("first", {two: 0.0, three: 0.5}) == "conflict"
    shop.reopen()
    engine = shop.engine
    assert shop.outcome("first", {one: 0.25}) == "conflict"
    assert shop.outcome("first", {three: 0.0, one: 0.5, two: 1.0}) == "applied"
    assert shop.outcome("first", dict.fromkeys(receipt.arms, 1.0)) == "conflict"
    status = engine.experiment("home")
    assert (status.decisions, status.rewards, status.pending) == (1, 1, 0)
    assert status.pulls == {arm: int(arm in receipt.arms) for arm in ARMS}
    assert {arm: reward for arm, reward in status.cumulative_rewards.items() if reward} == {one: 0.5, two: 1.0}
    assert engine.decide("home", "v", "first", k=3) == receipt


def test_an_id_belongs_to_one_k(shop: Shop) -> None:
    engine = shop.engine
    engine.decide("home", "v", "three", k=3)
    engine.decide("home", "v", "one")
    for id, k in (("three", 2), ("three", None), ("one", 1)):
        with pytest.raises(RequestError, match="Use a new id") as caught:
            engine.decide("home", "v", id, k=k)  # type: ignore[call-overload]
        assert caught.value.code == "id_taken"
    few = engine.decide("home", "v", "few", ["ada", "ben"], k=4)
    assert ({*few.arms}, few.propensities) == ({"ada", "ben"}, (1.0, 1.0))
    assert engine.decide("home", "v", "few", ["ada", "ben"], k=4) == few
    with pytest.raises(RequestError, match="repeat its k"):
        engine.decide("home", "v", "few", k=2)


@pytest.mark.parametrize("k", [0, 2.5, True, "3"])
def test_a_bad_k_changes_nothing(shop: Shop, k: object) -> None:
    position = shop.engine.position
    with pytest.raises(RequestError, match=r"k must be an integer of at least 1; got .* Leave it out to show one arm"):
        shop.engine.decide("home", "new", k=k)  # type: ignore[call-overload]
    assert shop.engine.position == position
    assert shop.engine.experiment("home").contexts == 0


def test_refusals_change_nothing(shop: Shop) -> None:
    engine = shop.engine
    engine.create("fair-cb", arms=ARMS, policy="fair-cb")
    with pytest.raises(RequestError, match=r"k must be left out: fair-cb shows one arm per decision; got 3\. Use"):
        engine.decide("fair-cb", "v", k=3)
    floors = {"labels": ["x", "x", "y", "y", "z"], "pull_floor": {"x": 0.1, "y": 0.1, "z": 0.1}}
    engine.create("floors", arms=ARMS, alpha=0.5, groups=floors)
    with pytest.raises(RequestError, match=r"k must be 1 with a pull_floor by group; got 3\. Pass one pull_floor"):
        engine.decide("floors", "v", k=3)
    receipt = engine.decide("home", "v", k=2)
    position = engine.position
    example = f'{{"{receipt.arms[0]}": 0.8}}'
    for value, sentence in (
        (0.8, f"reward must be an object with rewards of shown arms; got 0.8. Send {example}."),
        ({}, "reward must be an object with rewards of shown arms; got {}."),
        ({"nobody": 1.0}, "reward must be of shown arms, "),
        ({receipt.arms[0]: 2.0}, "reward must be a number in [0, 1]; got 2.0."),
        ({receipt.arms[0]: math.nan}, "reward must be a number in [0, 1]; got nan."),
        ({receipt.arms[0]: 1.0, "nobody": 1.0}, "reward must be of shown arms, "),
    ):
        with pytest.raises(RequestError) as caught:
            engine.reward(receipt.id, value)  # type: ignore[arg-type]
        assert str(caught.value).startswith(sentence)
        assert engine.position == position


def test_missing_arms_get_the_default_together(shop: Shop) -> None:
    engine = shop.engine
    receipt = engine.decide("wait", "v", k=3)
    assert shop.outcome(receipt.id, {receipt.arms[1]: 1.0}) == "applied"
    shop.now += 11 * SECOND
    assert engine.expire() == 1
    position = engine.position
    assert shop.outcome(receipt.id, {receipt.arms[1]: 1.0}) == "repeated"
    assert shop.outcome(receipt.id, {receipt.arms[1]: 0.0, receipt.arms[0]: 1.0}) == "conflict"
    assert engine.position == position
    assert shop.outcome(receipt.id, {receipt.arms[0]: 1.0, receipt.arms[1]: 1.0}) == "expired"
    assert engine.position == position + 1, "it is stored as late"
    status = engine.experiment("wait")
    assert (status.defaulted, status.rewards, status.pending) == (1, 0, 0)
    earned = [status.cumulative_rewards[arm] for arm in receipt.arms]
    assert earned == [0.25, 1.0, 0.25]
    stored = [row for (row,) in rows_of(engine, "select rewards from slate_reward order by event")]
    slate = Slate(3, (0, 1, 2), (1.0, 1.0, 1.0))
    assert np.array_equal(rewards_of(slate, stored[0]), [np.nan, 1.0, np.nan], equal_nan=True)
    assert np.array_equal(rewards_of(slate, stored[1]), [0.25, np.nan, 0.25], equal_nan=True)


def test_a_deferred_slate_lapses_or_counts(shop: Shop) -> None:
    engine = shop.engine
    first, second = (engine.decide("wait", "v", deferred=True, k=2) for _ in range(2))
    with pytest.raises(RequestError, match="Activate the decision first"):
        engine.reward(first.id, {first.arms[0]: 1.0})
    assert engine.activate(first.id).outcome == "activated"
    assert shop.outcome(first.id, dict.fromkeys(first.arms, 1.0)) == "applied"
    shop.now += 11 * SECOND
    engine.expire()
    assert shop.outcome(second.id, {second.arms[0]: 1.0}) == "expired"
    status = engine.experiment("wait")
    assert (status.rewards, status.lapsed, status.pending) == (1, 1, 0)


def test_full_information_has_the_rewards_of_all_arms(shop: Shop) -> None:
    engine = shop.engine
    engine.create("full", arms=ARMS, alpha=0.5, feedback="full")
    receipt = engine.decide("full", "v", k=2)
    assert shop.outcome(receipt.id, [0.1, 0.2, 0.3, 0.4, 0.5]) == "applied"
    assert shop.outcome(receipt.id, [0.1, 0.2, 0.3, 0.4, 0.5]) == "repeated"
    earned = engine.experiment("full").cumulative_rewards
    assert earned == {arm: (n + 1) / 10 if arm in receipt.arms else 0.0 for n, arm in enumerate(ARMS)}
    assert engine.log("full").propensities.tolist() == [p / 2 for p in receipt.propensities]


def played(shop: Shop, n: int = 60) -> list[Receipt | SlateReceipt]:
    """Decisions of one arm and of several, rewarded in parts and in any order."""
    rng, receipts = np.random.default_rng(4), []
    for turn in range(n):
        shop.now += SECOND
        k = [None, 2, 3, 1][turn % 4]
        receipts.append(shop.engine.decide("home", f"v{turn % 3}", f"id-{turn}", k=k))  # type: ignore[call-overload]
        receipt = receipts[rng.integers(len(receipts))]
        reward: object = 1.0
        if isinstance(receipt, SlateReceipt):
            reward = {arm: float(arm in ("ada", "cyd")) for arm in receipt.arms if rng.random() < 0.7}
        if reward != {}:
            shop.engine.reward(receipt.id, reward)  # type: ignore[arg-type]
    return receipts


def test_a_rollback_forgets_and_the_log_leads_to_the_same(shop: Shop) -> None:
    played(shop)
    engine = shop.engine
    status = engine.experiment("home")
    engine.rollback("home", status.position - 30)
    engine.retire_arm("home", "ben")
    engine.mask_arm("home", "ada")
    after = engine.decide("home", "v0", k=5)
    assert {*after.arms} == {"cyd", "dov", "eve"}
    engine.verify()
    before = engine.experiment("home")
    shop.reopen()
    shop.engine.verify()
    assert shop.engine.experiment("home") == before


def test_exports_have_a_row_per_shown_arm(shop: Shop, tmp_path: Path) -> None:
    shop.engine.decide("wait", "v")
    shop.engine.export("wait", tmp_path / "wait.csv")
    assert "slot" not in pl.read_csv(tmp_path / "wait.csv").columns
    receipts = {each.id: each for each in played(shop)}
    n_rows = shop.engine.export("home", tmp_path / "home.csv")
    rows = pl.read_csv(tmp_path / "home.csv")
    assert rows.columns[:8] == ["seq", "id", "context", "arm", "propensity", "slot", "k", "reward"]
    assert n_rows == len(rows) == sum(len(getattr(each, "arms", "1")) for each in receipts.values())
    for (id,), mine in rows.group_by("id", maintain_order=True):
        receipt = receipts[str(id)]
        if isinstance(receipt, Receipt):
            expected = [(receipt.arm, receipt.propensity, 1, 1)]
        else:
            k, shown = len(receipt.arms), zip(receipt.arms, receipt.propensities, strict=True)
            expected = [(arm, p / k, slot, k) for slot, (arm, p) in enumerate(shown, 1)]
        assert mine.select("arm", "propensity", "slot", "k").rows() == expected
    earned = rows.group_by("arm").agg(pl.col("reward").sum())
    assert dict(earned.rows()) == shop.engine.experiment("home").cumulative_rewards
    log = shop.engine.log("home")
    rewarded = rows.filter(pl.col("reward").is_not_null().all().over("id"))  # a log has whole decisions
    assert 0 < log.n_rounds == len(rewarded) < rows["reward"].count()
    assert log.rewards.tolist() == rewarded["reward"].to_list()
    assert log.n_decisions == rewarded["id"].n_unique()


def test_what_if_caps_what_one_slot_may_give_an_arm(shop: Shop) -> None:
    """The most that a decision of two arms can pay per slot is half of it, where the best arm alone would pay all."""
    for turn in range(300):
        receipt = shop.engine.decide("home", f"v{turn % 2}", k=2)
        shop.engine.reward(receipt.id, {arm: float(arm == "ada") for arm in receipt.arms})
    job = Reports(shop.engine.writers).what_if_job("home", 1000)
    curve = what_if(job)["curve"]
    assert curve["alphas"][0] == 0.0
    assert 0.4 < curve["average_reward"]["value"][0] <= 0.5 + 1e-9


def test_copies_backups_and_erasures_keep_slates(shop: Shop, tmp_path: Path) -> None:
    played(shop, 30)
    before = shop.engine.experiment("home")
    shop.engine.erase("home", "v1")
    shop.engine.backup(tmp_path / "backup.db")
    n_events = copy(tmp_path / "backup.db", tmp_path / "copy.db")
    with Engine.open(tmp_path / "copy.db") as engine:
        assert n_events == engine.verify() == shop.engine.position
        assert engine.experiment("home").pulls == before.pulls
        assert engine.decide("home", "v0", "id-3", k=1) == shop.engine.decide("home", "v0", "id-3", k=1)


def test_another_process_follows_slates(shop: Shop) -> None:
    receipt = shop.engine.decide("home", "v", k=3)
    with Engine(open_store(shop.path, read_only=True), clock=lambda: shop.now) as other:
        assert other.experiment("home") == shop.engine.experiment("home")
        for arm in receipt.arms:
            shop.engine.reward(receipt.id, {arm: 0.5})
            assert other.experiment("home") == shop.engine.experiment("home")
        played(shop, 20)
        assert other.experiment("home") == shop.engine.experiment("home")
        assert other.verify() == shop.engine.position


def test_many_at_once(shop: Shop) -> None:
    found = shop.engine.decide_many("home", ["a", "b", "a"], k=[2, None, 3])
    assert [len(getattr(each, "arms", "1")) for each in found] == [2, 1, 3]
    assert [type(each) for each in shop.engine.decide_many("home", ["a"], k=1)] == [SlateReceipt]
    with pytest.raises(ValueError, match="k must be as many as contexts"):
        shop.engine.decide_many("home", ["a"], k=[1, 2])
    id = "same"
    answers = shop.engine.submit(
        [
            Decide("home", "a", id, k=2),
            Decide("home", "a", id, k=2),
            Reward(id, {"nobody": 1.0}),
            Decide("home", "a", k=0),
        ]
    )
    assert answers[0] == answers[1]
    assert [each.code for each in answers[2:]] == ["bad_reward", "bad_request"]  # type: ignore[union-attr]


def test_verify_finds_a_forged_slate(shop: Shop, tmp_path: Path) -> None:
    if is_postgres():
        pytest.skip("the check of rows is the same in both stores")
    played(shop, 20)
    shop.engine.close()

    def forge(slate: bytes, *, slot: int, propensity: float) -> bytes:
        at = 4 + 12 * slot + 4
        return slate[:at] + struct.pack("<d", propensity) + slate[at + 8 :]

    def another_arm(slate: bytes) -> bytes:
        return slate[:16] + slate[4:8] + slate[20:]  # in slot 2 the arm of slot 1

    def raised(rewards: bytes) -> bytes:
        return packed(np.where(np.isnan(np.frombuffer(rewards)), np.nan, 0.75))

    last = "(select max(event) from decision where slate is not null and length(slate) > 30)"
    forgeries = {
        "slate": [
            (last, lambda slate: forge(slate, slot=1, propensity=0.123)),
            (last, lambda slate: forge(slate, slot=0, propensity=0.123)),
            (last, lambda slate: slate[:-12]),
            (last, lambda slate: slate[:-1]),
            (last, another_arm),
        ],
        "rewards": [("(select min(event) from slate_reward)", raised)],
        "remaining": [("(select min(event) from slate_reward)", lambda remaining: remaining + 1)],
        "source": [("(select min(event) from slate_reward)", lambda source: "nobody")],
    }
    for column, cases in forgeries.items():
        for event, change in cases:
            path = tmp_path / "forged.db"
            shutil.copy(shop.path, path)
            table = "decision" if column == "slate" else "slate_reward"
            with contextlib.closing(sqlite3.connect(path)) as file:
                ((old,),) = file.execute(f"select {column} from {table} where event = {event}").fetchall()
                assert change(old) != old
                file.execute(f"update {table} set {column} = ? where event = {event}", [change(old)])
                file.execute("delete from snapshot")
                file.commit()
            with pytest.raises(Mismatch), Engine.open(path, read_only=True) as engine:
                engine.verify()
    shop.engine = shop.opened()


def test_a_file_of_version_13_is_brought_to_this_one(tmp_path: Path) -> None:
    if is_postgres():
        pytest.skip("a database takes the same step")
    path = tmp_path / "shop.db"
    with Engine.open(path, seed=3) as engine:
        engine.create("home", arms=ARMS, alpha=0.5)
        for turn in range(20):
            engine.reward(engine.decide("home", f"v{turn % 3}").id, 1.0)
        before = engine.experiment("home")
    with contextlib.closing(sqlite3.connect(path)) as file:
        take_back(file, 13)
        file.commit()
    with Engine.open(path) as engine:
        assert engine.experiment("home") == before
        assert engine.verify() == before.position
        receipt = engine.decide("home", "v1", k=3)
        engine.reward(receipt.id, {receipt.arms[2]: 1.0})
        engine.verify()


def test_a_slate_as_bytes() -> None:
    slate = Slate(4, (2, 0, 7), (1.0, 0.5, 0.25))
    blob = slate.to_bytes()
    assert blob == struct.pack("<iididid", 4, 2, 1.0, 0, 0.5, 7, 0.25)
    assert Slate.from_bytes(blob) == slate
    for wrong in (b"", blob[:4], blob[:-1]):
        with pytest.raises(Mismatch, match="not one that was written"):
            Slate.from_bytes(wrong)
