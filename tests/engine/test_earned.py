"""What an arm has earned: the sum of its rewards in the log, in the units that they were sent in."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from alphafair import Engine
from alphafair.engine import Mismatch
from tests.serving import running
from tests.stores import both_stores, connected, is_postgres, open_store, sqlite_only

pytestmark = both_stores

ARMS = ("ada", "ben")
RANGE = (-2.0, 10.0)
POLICIES: dict[str, dict[str, Any]] = {
    "alpha-fair-adaptive": {},
    "alpha-fair-bandit": {},
    "fair-cb": {"horizon": 1000},
    "uniform": {"feedback": "bandit"},
    "alpha-fair": {},
    "independent-alpha-fair": {},
    "hedge": {"horizon": 1000},
}
FULL = ("alpha-fair", "independent-alpha-fair", "hedge")


class Shop:
    """An engine with a clock that can be moved, and an independent account of what was earned."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.openings = path, 1_800_000_000, 0
        self.earned: dict[str, dict[str, float]] = {}
        self.engine = self.opened()

    def opened(self) -> Engine:
        self.openings += 1
        return Engine(open_store(self.path), seed=self.openings, clock=lambda: self.now * 10**9)

    def reopen(self) -> None:
        self.engine.close()
        self.engine = self.opened()

    def create(self, policy: str, **settings: Any) -> None:
        self.engine.create(policy, arms=ARMS, policy=policy, reward_range=RANGE, **POLICIES[policy], **settings)
        self.earned[policy] = dict.fromkeys(ARMS, 0.0)

    def reward(self, policy: str, context: str, value: float) -> None:
        receipt = self.engine.decide(policy, context)
        arms = [*self.earned[policy]]
        values = [value + k for k in range(len(arms))]
        sent: Any = values if policy in FULL else value
        assert self.engine.reward(receipt.id, sent).outcome == "applied"
        self.earned[policy][receipt.arm] += values[arms.index(receipt.arm)] if policy in FULL else value

    def check(self) -> None:
        for policy, earned in self.earned.items():
            assert self.engine.experiment(policy).cumulative_rewards == earned
        self.engine.verify()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with mock.patch.multiple("alphafair.engine.writer", SNAPSHOT_EVERY=7):
        shop = Shop(tmp_path / "shop.db")
        yield shop
        shop.engine.close()


def test_every_policy_in_the_users_own_units(shop: Shop) -> None:
    for policy in POLICIES:
        shop.create(policy)
        assert shop.engine.experiment(policy).cumulative_rewards == {"ada": 0.0, "ben": 0.0}
    for k in range(12):
        for policy in POLICIES:
            shop.reward(policy, f"v{k % 3}", 0.5 * k - 1.7)
    shop.check()
    shop.reopen()
    shop.check()
    for policy in POLICIES:
        shop.reward(policy, "v", 5e-324)
        shop.reward(policy, "v", 0.1)
    shop.check()


def test_added_arms_start_at_zero_and_retired_arms_keep_their_sums(shop: Shop) -> None:
    for policy in ("alpha-fair-bandit", "alpha-fair"):
        shop.create(policy)
        for k in range(10):
            shop.reward(policy, f"v{k % 3}", 3.25)
        shop.engine.add_arm(policy, "cyd", 25.0)
        shop.earned[policy]["cyd"] = 0.0
        assert shop.engine.experiment(policy).accounts["cyd"] == 25.0
        shop.check()
        for k in range(10):
            shop.reward(policy, f"v{k % 3}", 1.25)
        shop.engine.retire_arm(policy, "ada")
        shop.reward(policy, "v1", 1.25)
    shop.check()
    shop.reopen()
    shop.check()


@pytest.mark.parametrize("policy", ["alpha-fair-bandit", "alpha-fair"])
def test_default_rewards_are_earned_too(shop: Shop, policy: str) -> None:
    shop.create(policy, reward_wait=60, default_reward=-1.5)
    arms = [shop.engine.decide(policy, "v").arm for _ in range(6)]
    shop.now += 61
    shop.engine.expire()
    for arm in arms:
        shop.earned[policy][arm] -= 1.5
    shop.check()
    shop.reopen()
    shop.check()


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair"])
def test_a_rollback_does_not_change_cumulative_rewards(shop: Shop, policy: str) -> None:
    shop.create(policy)
    for _ in range(3):
        shop.reward(policy, "v", 4.5)
    position, accounts = shop.engine.position, shop.engine.experiment(policy).accounts
    for _ in range(4):
        shop.reward(policy, "w", 9.0)
    shop.engine.rollback(policy, position)
    assert shop.engine.experiment(policy).accounts == accounts
    shop.check()
    shop.reward(policy, "v", 2.5)
    shop.reopen()
    shop.check()


def test_cumulative_rewards_are_the_sum_of_the_log(shop: Shop) -> None:
    shop.create("alpha-fair-adaptive")
    for k in range(50):
        shop.reward("alpha-fair-adaptive", f"v{k % 5}", k / 7)
    log = shop.engine.log("alpha-fair-adaptive")
    sums = np.bincount(log.arms, log.rewards)
    assert [*shop.engine.experiment("alpha-fair-adaptive").cumulative_rewards.values()] == pytest.approx(sums)


@sqlite_only("is about older files")
def test_older_files_are_counted_when_opened(shop: Shop) -> None:
    for policy in ("alpha-fair-adaptive", "alpha-fair"):
        shop.create(policy)
        for k in range(20):
            shop.reward(policy, f"v{k % 3}", k / 3)
        shop.engine.rollback(policy, shop.engine.experiment(policy).position - 5)
        shop.reward(policy, "v", 0.3)
    shop.engine.close()
    with sqlite3.connect(shop.path) as file:
        for experiment, position, tally in file.execute("select experiment, position, tally from snapshot").fetchall():
            older = json.loads(tally)
            del older["earned"]
            of = (json.dumps(older), experiment, position)
            file.execute("update snapshot set tally = ? where experiment = ? and position = ?", of)
        for event, body in file.execute("select event, body from change where kind = 'rollback'").fetchall():
            older = json.loads(body)
            tally = json.loads(older["tally"])
            del tally["earned"]
            file.execute(
                "update change set body = ? where event = ?", (json.dumps({**older, "tally": json.dumps(tally)}), event)
            )
    file.close()
    shop.engine = shop.opened()
    shop.check()
    with sqlite3.connect(shop.path) as file:
        file.execute("delete from snapshot")
    file.close()
    shop.reopen()
    shop.check()


def test_verify_compares_cumulative_rewards(shop: Shop) -> None:
    shop.create("alpha-fair-adaptive")
    for _ in range(5):
        shop.reward("alpha-fair-adaptive", "v", 4.5)
    shop.engine.close()
    changed = "jsonb_set(tally::jsonb, '{earned,0}', '1e6')" if is_postgres() else "json_set(tally, '$.earned[0]', 1e6)"
    with connected(shop.path) as connection:
        assert connection.execute(f"update snapshot set tally = {changed}").rowcount
    shop.engine = shop.opened()
    with pytest.raises(Mismatch, match="counted"):
        shop.engine.verify()


def test_over_http(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db") as service:
        body = {"name": "home", "arms": list(ARMS), "reward_range": list(RANGE)}
        created = service.post("", body).json()
        assert created["cumulative_rewards"] == {"ada": 0.0, "ben": 0.0}
        assert created["accounts"] == {"ada": 1.0, "ben": 1.0}
        decision = service.post("/home/decisions", {"context": "v"}).json()
        service.post("/home/rewards", {"id": decision["id"], "reward": 7.5})
        found = service.http.get("/v1/experiments/home").json()
        assert found["cumulative_rewards"] == {arm: 7.5 * (arm == decision["arm"]) for arm in ARMS}
        assert found["accounts"][decision["arm"]] == 1.0 + (7.5 + 2.0) / 12.0  # on [0, 1], after the initial 1
