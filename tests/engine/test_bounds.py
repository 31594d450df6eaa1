"""Bounded work: what a request costs depends on the request, not on how much is in the file or how many labels."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from alphafair import Engine
from alphafair.engine import Activate, Decide, RequestError, Reward
from alphafair.engine.store.sqlite import SqliteStore
from tests.stores import both_stores, live_state, rows_of, sqlite_only, writer_of

pytestmark = both_stores

ARMS = tuple(f"arm {k}" for k in range(400))


class CountingLabel(str):
    """A label that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingLabel.comparisons += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        yield engine


def counting() -> list[CountingLabel]:
    CountingLabel.comparisons = 0
    return [CountingLabel(arm) for arm in ARMS]


def test_available_arms_are_found_without_going_through_all_arms(engine: Engine) -> None:
    engine.create("home", arms=ARMS, policy="uniform")
    assert engine.decide("home", "v", available=counting()).arm in ARMS
    assert CountingLabel.comparisons <= 2 * len(ARMS)


def test_rewards_by_label_are_found_without_going_through_all_arms(engine: Engine) -> None:
    engine.create("home", arms=ARMS, policy="hedge")
    receipt = engine.decide("home", "v")
    assert engine.reward(receipt.id, dict.fromkeys(counting(), 0.5)).outcome == "applied"
    assert CountingLabel.comparisons <= 4 * len(ARMS)
    with pytest.raises(RequestError, match="Missing"):
        engine.reward(receipt.id, dict.fromkeys(counting()[:-1], 0.5))
    assert CountingLabel.comparisons <= 4 * len(ARMS)


def test_masks_follow_retired_and_added_arms(engine: Engine) -> None:
    """Against sets of labels, while arms come, go, and are masked."""
    rng = random.Random(3)
    engine.create("home", arms=ARMS[:5], policy="uniform")
    here, masked = set(ARMS[:5]), set[str]()
    for arm in ARMS[5:40]:
        engine.add_arm("home", arm)
        here.add(arm)
        if len(here) > 4 and rng.random() < 0.7:
            left = rng.choice(sorted(here))
            engine.retire_arm("home", left)
            here.discard(left)
        toggled = rng.choice(sorted(here))
        (engine.unmask_arm if toggled in masked else engine.mask_arm)("home", toggled)
        masked ^= {toggled}
        asked = rng.sample(ARMS[: int(arm.split()[1]) + 1], 4)
        playable = {*asked} & here - masked
        mask_of = live_state(engine, "home").experiments["home"].mask
        if playable:
            mask = mask_of(asked)
            assert mask is not None
            assert {ARMS[k] for k in np.flatnonzero(mask)} == playable
        else:
            with pytest.raises(RequestError, match="at least one arm"):
                mask_of(asked)
        if masked & here and here - masked:
            mask = mask_of(None)
            assert mask is not None
            assert {ARMS[k] for k in np.flatnonzero(mask)} == here - masked


@pytest.mark.parametrize("available", [[3], ["arm 1", None], [["arm 1"]], [{}], ["arm 400"], ["arm 1", "x" * 100_000]])
def test_an_unknown_available_arm_is_named_briefly(engine: Engine, available: Any) -> None:
    engine.create("home", arms=["é" * 199 + chr(97 + k) for k in range(20)])
    with pytest.raises(RequestError) as refusal:
        engine.decide("home", "v", available=available)
    assert refusal.value.code == "unknown_arm"
    assert len(str(refusal.value)) < 500


# what SQLite does for a request

SMALL = {
    "experiment",
    "json_each",
    "CONSTANT",
    "scratch",
    "p",
    "erasure",
}  # p: pieces of snapshots that are being written
SECOND = 10**9


class Clock:
    now = 1_800_000_000 * SECOND

    def __call__(self) -> int:
        return self.now


def busy(engine: Engine, clock: Clock, n: int) -> None:
    """Every kind of request, and what is done between them."""
    for k in range(n):
        new, deferred = f"{n}-{k}-new", f"{n}-{k}-deferred"
        engine.submit(
            [
                Decide("home", f"context {k}", new),
                Decide("home", f"context {k}", new, ARMS[:2]),
                Decide("home", "context 0", deferred, None, True),
                Decide("full", "v", f"{new}-full"),
                Decide("home", "v", "unknown arm", ["nobody"]),
            ]
        )
        live_state(engine).decisions.clear()  # as after many others
        engine.submit([Activate(deferred), Reward(new, 0.5), Reward(new, 0.25), Reward("nobody", 0.5)])
        engine.submit([Reward(f"{new}-full", [0.5] * 3), Decide("home", "context 1", f"{n}-{k}-late")])
        clock.now += 61 * SECOND
        engine.submit([Reward(f"{n}-{k}-late", 0.5), Decide("home", "context 2")])
        while engine.maintain():
            pass
        assert engine.health()["ready"]
        assert engine.experiment("home").decisions


@pytest.fixture
def traced(tmp_path: Path) -> Iterator[tuple[Engine, Clock, list[str]]]:
    clock, statements = Clock(), list[str]()
    patches = [mock.patch("alphafair.engine.writer.SNAPSHOT_EVERY", 5)]
    small = {"PIECE": 1500, "REST": 0.0, "BYTES_PER_EVENT": 10_000}  # so that one is due, and done, while it is traced
    patches += [mock.patch(f"alphafair.engine.maintenance.{name}", value) for name, value in small.items()]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        engine = stack.enter_context(Engine(SqliteStore(tmp_path / "shop.db"), seed=1, clock=clock))
        engine.create("home", arms=ARMS[:3], reward_wait=60, default_reward=0.0)
        engine.create("full", arms=ARMS[:3], policy="hedge", reward_wait=60)
        busy(engine, clock, 3)
        engine._store.connection.set_trace_callback(statements.append)
        busy(engine, clock, 4)
        engine._store.connection.set_trace_callback(None)
        yield engine, clock, statements


@sqlite_only("explains the queries of SQLite")
def test_no_statement_of_a_request_reads_a_whole_table(traced: tuple[Engine, Clock, list[str]]) -> None:
    engine, _, statements = traced
    words = ("select", "insert", "update", "delete")
    kinds = {statement[:60]: statement for statement in statements if statement.startswith(words)}
    for table in ("decision", "reward", "activation", "late_reward", "context", "snapshot", "snapshot_piece"):
        assert any(f"insert into {table}" in kind for kind in kinds), table  # so all of it was done
    assert len(kinds) > 12
    for statement in kinds.values():
        for *_, step in rows_of(engine, f"explain query plan {statement}"):
            scanned = step.split()[1] if step.startswith("SCAN") else None
            assert scanned is None or scanned in SMALL, (step, statement[:300])


@sqlite_only("explains the queries of SQLite")
def test_requests_cost_as_much_after_many_others(traced: tuple[Engine, Clock, list[str]]) -> None:
    """Counted in hundreds of SQLite's instructions."""
    engine, clock, _ = traced
    before = instructions(engine, clock, 5)
    for k in range(20):
        engine.submit([Decide("home", f"context {j}", f"{k}-{j}") for j in range(1000)])
        engine.submit([Reward(f"{k}-{j}", 0.5) for j in range(500)])
    clock.now += 61 * SECOND
    engine.expire()
    assert engine.experiment("home").pending == 0
    assert instructions(engine, clock, 6) <= 1.5 * before


def instructions(engine: Engine, clock: Clock, n: int) -> float:
    """For one time of everything."""
    n_steps = 0

    def count() -> int:
        nonlocal n_steps
        n_steps += 1
        return 0

    with mock.patch("alphafair.engine.writer.SNAPSHOT_EVERY", 10**9):  # states do grow with contexts
        while writer_of(engine).snapshots.is_busy:
            engine.maintain()
        engine._store.connection.set_progress_handler(count, 100)
        busy(engine, clock, n)
        engine._store.connection.set_progress_handler(None, 100)
    return n_steps / n
