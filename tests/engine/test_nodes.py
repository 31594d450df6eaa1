"""Several engines on one PostgreSQL database: whatever happens to them, one log that can be verified."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import psycopg
import pytest

from alphafair import Client, Engine, ServiceError
from alphafair.engine import (
    Decide,
    Mismatch,
    Outcome,
    Receipt,
    RequestError,
    Reward,
    Unavailable,
    Uncertain,
)
from alphafair.engine import writer as writer_module
from alphafair.engine.clock import steady_ns
from alphafair.engine.state import experiment as experiment_module
from alphafair.engine.store import connections as postgres_connections
from alphafair.engine.store import postgres as postgres_store
from alphafair.engine.store.ledger import Behind
from alphafair.engine.store.postgres import PostgresStore
from alphafair.engine.writers import AllWriters
from alphafair.errors import InvalidArgument
from tests.clocks import Clock
from tests.postgres import Server
from tests.serving import error, running
from tests.stores import HAVE_CODE, make_stale, rows_of

ARMS = ["ada", "ben", "cyd"]
Nodes = tuple[Engine, Engine]


@pytest.fixture
def url(postgres_server: Server) -> Iterator[str]:
    address = postgres_server.url()
    yield address
    postgres_server.execute(f"drop schema if exists {address.rpartition('=')[2]} cascade")


@pytest.fixture
def nodes(url: str) -> Iterator[Nodes]:
    with Engine.open(url, seed=1) as first, Engine.open(url, seed=2) as second:
        first.create("home", arms=ARMS)
        yield first, second


# many writers, one log


@pytest.mark.parametrize("policy", ["alpha-fair-adaptive", "alpha-fair-bandit", "hedge", "fair-cb"])
def test_nodes_take_turns(url: str, policy: str) -> None:
    full = policy == "hedge"
    with Engine.open(url, seed=1) as first, Engine.open(url, seed=2) as second:
        first.create("home", arms=ARMS, policy=policy)
        ids: list[str] = []
        for k in range(40):
            here, there = (first, second) if k % 3 else (second, first)
            ids.append(here.decide("home", f"visitor-{k % 7}").id)
            if k % 2:
                assert there.reward(ids[k // 2], [0.5, 0.25, 1.0] if full else k % 5 / 4).outcome == "applied"
        for engine in (first, second):
            assert engine.experiment("home").decisions == 40
            assert engine.experiment("home").rewards == 20
            assert engine.verify() == 61
        assert first.experiment("home") == second.experiment("home")


def test_nodes_fight_for_one_experiment(nodes: Nodes) -> None:
    """Threads on both nodes decide and reward at once: every answer holds, and every propensity is verified."""
    answers: list[tuple[Receipt, float]] = []

    def shop(engine: Engine, thread: int) -> None:
        for k in range(15):
            visitors = [Decide("home", f"visitor-{(thread * 3 + k + j) % 11}") for j in range(3)]
            receipts = [each for each in engine.submit(visitors) if isinstance(each, Receipt)]
            rewards = [Reward(each.id, (k + j) % 4 / 4, "home") for j, each in enumerate(receipts)]
            assert engine.submit(rewards) == [Outcome("applied")] * 3
            answers.extend((receipt, float(reward.reward)) for receipt, reward in zip(receipts, rewards, strict=True))  # type: ignore[arg-type]

    threads = [threading.Thread(target=shop, args=(nodes[k % 2], k)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({receipt.id for receipt, _ in answers}) == 180
    earned = dict.fromkeys(ARMS, 0.0)
    for receipt, value in answers:
        earned[receipt.arm] += value
    for engine in nodes:
        assert engine.experiment("home").cumulative_rewards == earned
        assert engine.verify() == 361
    with Engine.open(nodes[0]._store.address, read_only=True) as reader:
        assert reader.verify() == 361


def test_a_node_that_was_away_draws_again(nodes: Nodes) -> None:
    """A process that was stopped has old state: its append fails, it takes in the rest, and draws from that."""
    first, second = nodes
    first.decide("home", "early")
    old = first.writers.of("home").memory.position
    for k in range(10):
        second.reward(second.decide("home", f"new-{k}").id, 1.0)
    assert first.writers.of("home").memory.position == old
    with mock.patch.object(PostgresStore, "commit", autospec=True, side_effect=PostgresStore.commit) as commit:
        receipt = first.decide("home", "new-3")
    assert commit.call_count == 2
    assert first.experiment("home").contexts == 11
    ((version, position),) = _rows(first, f"select state_version, position from decision where id = '{receipt.id}'")
    assert version == position - 1 == old + 20
    first.verify()


def test_a_new_context_is_taken_back(nodes: Nodes) -> None:
    """Two nodes give the same number to different labels: one of them has to give another."""
    first, second = nodes
    for engine, label in [(first, "a"), (second, "b"), (first, "c"), (second, "d")]:
        engine.decide("home", label)
    assert first.writers.of("home").memory.experiments["home"].contexts == {"a": 0, "b": 1, "c": 2}
    first.experiment("home")
    assert first.writers.of("home").memory.experiments["home"].contexts == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert first.verify() == second.verify() == 5


def test_changes_reach_other_nodes(nodes: Nodes) -> None:
    first, second = nodes
    second.decide("home", "v", id="kept")
    first.add_arm("home", "dan")
    assert second.experiment("home").arms == (*ARMS, "dan")
    second.retire_arm("home", "ada")
    first.mask_arm("home", "ben")
    second.set_alpha("home", 0.5)
    assert first.experiment("home").alpha == 0.5
    first.pause("home")
    with pytest.raises(RequestError, match="not paused"):
        second.decide("home", "v")
    second.resume("home")
    assert first.decide("home", "v").arm in ("cyd", "dan")
    with pytest.raises(RequestError) as refused:
        second.add_arm("home", "dan")
    assert refused.value.code == "arm_exists"
    position = first.experiment("home").position
    open_one = second.decide("home", "w")
    first.rollback("home", position)
    assert second.reward(open_one.id, 1.0).outcome == "rolled_back"
    assert second.reward("kept", 1.0).outcome == "applied"
    first.new_period("home")
    second.erase("home", "v")
    assert first.reward("kept", 1.0).outcome == "unknown"
    assert first.decide("home", "v").context == "v"
    assert [each.kind for each in first.history("home")] == [each.kind for each in second.history("home")]
    for engine in nodes:
        engine.verify()


def test_a_refusal_follows_from_the_newest_state(nodes: Nodes) -> None:
    first, second = nodes
    second.pause("home")
    with pytest.raises(RequestError):
        first.decide("home", "v")
    second.resume("home")
    first.decide("home", "v")


def test_new_experiments_appear(nodes: Nodes) -> None:
    first, second = nodes
    second.create("next", arms=ARMS)
    receipt = first.decide("next", "v")
    assert second.reward(receipt.id, 0.5).outcome == "applied"
    assert first.experiments() == second.experiments() == ["home", "next"]
    with pytest.raises(RequestError, match="the name of an experiment"):
        first.decide("nowhere", "v")
    assert [first.experiment(name).position for name in ("home", "next")] == [1, 3]
    assert first.position == second.position == 4


def test_one_of_two_creations_wins(url: str) -> None:
    with Engine.open(url) as first, Engine.open(url) as second:
        ready, outcomes = threading.Barrier(2), list[str]()

        def create(engine: Engine, arms: list[str]) -> None:
            ready.wait()
            try:
                engine.create("home", arms=arms)
                outcomes.append(arms[0])
            except RequestError as refused:
                outcomes.append(refused.code)

        with mock.patch.object(AllWriters, "_find"):  # neither sees the other in time
            threads = [
                threading.Thread(target=create, args=each) for each in ((first, ["a", "b"]), (second, ["c", "d"]))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(outcomes)[1] == "experiment_exists"
        assert first.experiment("home").arms[0] == second.experiment("home").arms[0] == sorted(outcomes)[0]
        second.decide("home", "v")
        assert first.verify() == 2


def test_times_never_fall(url: str) -> None:
    """One node's clock is an hour behind the other's."""
    ahead, behind = Clock(), Clock()
    ahead.now += 3600
    with (
        Engine(PostgresStore(url), seed=1, clock=ahead) as first,
        Engine(PostgresStore(url), seed=2, clock=behind) as second,
    ):
        first.create("home", arms=ARMS, reward_wait=60.0)
        for k in range(6):
            (first, second)[k % 2].decide("home", "v")
        times = [at for (at,) in _rows(first, "select at from decision order by position")]
        assert times == sorted(times)
        assert first.verify() == second.verify() == 7


def test_overdue_decisions_are_settled_once(url: str) -> None:
    clock = Clock()
    with (
        Engine(PostgresStore(url), seed=1, clock=clock) as first,
        Engine(PostgresStore(url), seed=2, clock=clock) as second,
    ):
        first.create("home", arms=ARMS, reward_wait=60.0, default_reward=0.25)
        receipts = [(first, second)[k % 2].decide("home", f"v{k}") for k in range(20)]
        clock.now += 61
        assert first.expire() == 20
        assert second.expire() == 0
        receipts.append(second.decide("home", "late"))
        clock.now += 61
        first.maintain()
        second.maintain()
        assert first.reward(receipts[-1].id, 1.0).outcome == "expired"
        assert second.experiment("home").defaulted == 21
        assert first.verify() == second.verify()


def test_a_period_begins_once(url: str) -> None:
    clock = Clock()
    with (
        Engine(PostgresStore(url), seed=1, clock=clock) as first,
        Engine(PostgresStore(url), seed=2, clock=clock) as second,
    ):
        first.create("home", arms=ARMS, period=60.0)
        for k in range(6):
            (first, second)[k % 2].decide("home", "v")
            clock.now += 45
        second.experiment("home")
        begun = [each for each in first.history("home") if each.kind == "new_period"]
        assert len(begun) == 3
        assert first.verify() == second.verify()


def test_snapshots_of_several_nodes(nodes: Nodes) -> None:
    first, _ = nodes
    sizes = mock.patch.multiple("alphafair.engine.maintenance", PIECE=1_000, REST=0.0, BYTES_PER_EVENT=10**9)
    with mock.patch.object(writer_module, "SNAPSHOT_EVERY", 10), sizes:
        for k in range(60):
            engine = nodes[k % 2]
            engine.reward(engine.decide("home", f"v{k % 3}").id, 0.5)
            engine.maintain()
    saved = [position for (position,) in _rows(first, "select position from snapshot order by position")]
    assert 1 <= len(saved) <= 3
    assert saved[-1] > 20
    with Engine.open(first._store.address) as third:
        assert third.experiment("home").decisions == 60
        assert third.verify() == 121


def test_a_snapshot_is_begun_again_at_the_same_position(nodes: Nodes) -> None:
    """Pieces that were left unfinished are no part of the next snapshot."""
    first, _ = nodes
    for k in range(5):
        first.reward(first.decide("home", f"v{k}").id, 0.5)
    writer = first.writers.of("home")
    with mock.patch("alphafair.engine.maintenance.PIECE", 300):
        writer.snapshots.step(writer.memory.by_key.values())
        writer.snapshots.step(writer.memory.by_key.values())
        assert _rows(first, "select count(*) from snapshot_piece")[0][0] > 0
        writer.snapshots.abandon()
    writer.take_snapshots(least=1)
    assert _rows(first, "select count(*) from snapshot_piece") == [(0,)]
    with Engine.open(first._store.address, read_only=True) as reader:
        assert reader.verify() == 11


def _rows(engine: Engine, query: str) -> list[Any]:
    return rows_of(engine, query)  # type: ignore[attr-defined]


# an append at any position: the control


def test_an_append_without_the_condition_is_found_out(nodes: Nodes) -> None:
    """The control: a node appends wherever the log ends, and draws from a state that others have left behind."""

    def skipped(self: writer_module.Writer) -> None:
        memory = self.memory
        for (head,), experiment in ((self.store.heads(key), each) for key, each in memory.by_key.items()):
            experiment.position, memory.latest = head.position, head.at
        memory.decisions.clear()

    first, second = nodes
    first.decide("home", "v")
    second.experiment("home")
    with mock.patch.object(writer_module.Writer, "_fold", skipped):
        for k in range(12):
            engine = nodes[k % 2]
            engine.reward(engine.decide("home", "v").id, 1.0)
    with Engine.open(first._store.address, read_only=True) as reader, pytest.raises(Mismatch, match="propensity"):
        reader.verify()
    for engine in nodes:
        with pytest.raises(Mismatch):
            engine.verify()
        make_stale(engine, "home")  # so that closing saves no snapshot


# what breaks


def _losing(when: str, times: int = 1) -> Any:
    """Lose the connection before a commit, or after it and before its answer."""
    executed, left = PostgresStore._executed, itertools.count()

    def lost(self: PostgresStore, connection: Any, text: str, values: Any) -> bool:
        failing = next(left) < times
        if not failing:
            return executed(self, connection, text, values)
        if when == "after":
            executed(self, connection, text, values)
        connection.close()
        raise psycopg.OperationalError("the connection is closed")

    return mock.patch.object(PostgresStore, "_executed", lost)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_connection_lost_during_a_commit(nodes: Nodes, when: str) -> None:
    """Nothing is lost and nothing is doubled, without an id that the caller chose."""
    first, second = nodes
    with _losing(when):
        receipt = first.decide("home", "v")
    with _losing(when):
        assert first.reward(receipt.id, 0.5).outcome == "applied"
    with _losing(when):
        first.set_alpha("home", 0.5)
    with _losing(when):
        first.create("next", arms=ARMS)
    with _losing(when):
        first.erase("home", "v")
    assert first.position == second.verify() == 6
    assert second.experiment("home").decisions == 1
    assert first.verify() == 6


def test_an_acknowledged_answer_has_a_commit_of_its_own(nodes: Nodes) -> None:
    """A primary that was restarted while it waited for its standby has the rows: another commit waits once more."""
    first, _ = nodes
    with _losing("after"):
        receipt = first.decide("home", "v")
    query = f"select p.xmin::text, d.xmin::text from experiment p, decision d where d.id = '{receipt.id}'"
    ((confirmed, written),) = _rows(first, query)
    assert int(confirmed) > int(written)
    ((status,),) = _rows(first, f"select pg_xact_status('{confirmed}'::xid8)")
    assert status == "committed"
    first.decide("home", "w")
    ((own, row),) = _rows(
        first, "select p.xmin::text, d.xmin::text from experiment p, decision d order by d.position desc limit 1"
    )
    assert own == row  # without a lost connection one commit is enough
    assert first.verify() == 3


def test_another_node_is_quicker_after_a_lost_connection(nodes: Nodes) -> None:
    """What was sent has not arrived, and another node appends at its position: the answer is drawn again."""
    first, second = nodes
    executed, calls = PostgresStore._executed, itertools.count()

    def lost(self: PostgresStore, connection: Any, text: str, values: Any) -> bool:
        if self is first.writers.of("home").store and next(calls) == 0:
            second.decide("home", "quick")
            connection.close()
            raise psycopg.OperationalError("the connection is closed")
        return executed(self, connection, text, values)

    with mock.patch.object(PostgresStore, "_executed", lost):
        receipt = first.decide("home", "slow")
    ((position,),) = _rows(first, f"select position from decision where id = '{receipt.id}'")
    assert position == 3
    assert first.verify() == second.verify() == 3


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_server_that_stays_away(nodes: Nodes, when: str) -> None:
    """The caller is told to try again; the same id then has one decision."""
    first, second = nodes
    with mock.patch.object(postgres_store, "AGAIN", (0.0, 0.0)), _losing(when, 2), pytest.raises(Uncertain):
        first.decide("home", "v", id="mine")
    receipt = first.decide("home", "v", id="mine")
    assert first.health()["ready"]
    assert second.decide("home", "v", id="mine") == receipt
    assert first.experiment("home").decisions == 1
    assert first.verify() == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_service_says_when_it_does_not_know(url: str, nodes: Nodes, when: str) -> None:
    """What has an id may be sent again, and gets 503; a change gets 504, and is not sent again."""
    node: Any
    with running(url, engine=nodes[0]) as node, Client(node.url) as client:  # type: ignore[arg-type]
        n_events = client.experiment("home").decisions
        with mock.patch.object(postgres_store, "AGAIN", (0.0, 0.0)), _losing(when, 2):
            answer = node.post("/home/decisions", {"context": "v", "id": "mine"})
        assert (answer.status_code, error(answer)["code"]) == (503, "unavailable")
        assert "with the same id" in answer.json()["error"]["repair"]
        assert answer.headers["retry-after"] == "1"
        assert client.decide("home", "v", id="mine").id == "mine"
        assert client.experiment("home").decisions == n_events + 1
        twice = mock.patch.object(postgres_store, "AGAIN", (0.0, 0.0))
        with twice, _losing(when, 2), pytest.raises(ServiceError) as caught:
            client.set_alpha("home", 0.5)
        assert (caught.value.status, caught.value.code) == (504, "uncertain")
        assert [each.kind for each in client.history("home")].count("set_alpha") == (when == "after")


def test_a_change_that_was_made_is_not_refused(url: str, nodes: Nodes) -> None:
    """The database goes away after the commit, before the answer is read: a repetition would be another change."""
    node: Any
    nodes[0].set_period("home", "1d")
    with running(url, engine=nodes[0]) as node, Client(node.url) as client:  # type: ignore[arg-type]
        gone = mock.patch("alphafair.service.api.handlers.described", side_effect=Unavailable("gone"))
        with gone, pytest.raises(ServiceError) as caught:
            client.new_period("home")
        assert (caught.value.status, caught.value.code) == (504, "uncertain")
        assert len([each for each in client.history("home") if each.kind == "new_period"]) == 1


def test_a_key_that_may_have_been_made(url: str, nodes: Nodes) -> None:
    store = postgres_store.PostgresKeys(url)
    store.check()
    connections = store._opened().connections
    lost = postgres_connections.ConnectionLost("gone")
    with mock.patch.object(connections, "run", side_effect=lost), pytest.raises(Uncertain):
        store.revoke("0badc0de", 1, None)
    store.close()


def test_the_server_is_restarted(nodes: Nodes, postgres_server: Server) -> None:
    first, second = nodes
    receipt = first.decide("home", "v")
    postgres_server.restart()
    assert second.reward(receipt.id, 1.0).outcome == "applied"
    assert first.reward(receipt.id, 1.0).outcome == "repeated"
    postgres_server.stop()
    try:
        for engine in nodes:
            with pytest.raises(Unavailable):
                engine.decide("home", "w", id="again")
            assert not engine.health()["ready"]
    finally:
        postgres_server.start()
    assert first.health()["ready"]
    assert first.decide("home", "w", id="again") == second.decide("home", "w", id="again")
    assert first.maintain() is False
    assert first.verify() == second.verify() == 4


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second is long enough for every answer, and two for a connection."""
    wait = postgres_connections.DatabaseConnection.wait
    monkeypatch.setattr(
        postgres_connections.DatabaseConnection,
        "wait",
        lambda self, gen, interval=0.1, timeout=None: wait(self, gen, interval, 0.5),
    )
    monkeypatch.setitem(postgres_connections.CONNECTING, "connect_timeout", "2")
    monkeypatch.setattr(postgres_store, "GIVE_UP", 0.5)


def test_a_server_that_no_longer_answers(impatient: None, nodes: Nodes, postgres_server: Server) -> None:
    """Its connections stay as they are: no time-out of the network ends them."""
    first, second = nodes
    first.decide("home", "a", id="early")
    with postgres_server.frozen():
        for engine in nodes:
            began = time.monotonic()
            with pytest.raises(Unavailable, match=r"no answer within 0\.5 seconds|timeout expired"):
                engine.decide("home", "b", id="late")
            assert time.monotonic() - began < 8.0
            found = engine.health()
            assert not found["ready"]
            assert "postgresql://" in found["reason"]
            assert not engine.health(probe=False)["ready"]
    for engine in nodes:
        assert engine.health()["ready"]
        assert engine.health(probe=False)["ready"]
    assert first.decide("home", "b", id="late") == second.decide("home", "b", id="late")
    assert first.verify() == 3


def test_a_long_read_may_take_longer(nodes: Nodes) -> None:
    store = nodes[0]._store
    with store.connections.one() as short, store.connections.one(postgres_connections.LATER) as long:
        assert (short.limit, long.limit) == (10.0, 90.0)
        assert float(postgres_connections.SESSION["statement_timeout"].removesuffix("s")) < long.limit
    store = nodes[0].writers.of("home").store  # type: ignore[assignment]
    with store.at_one_moment():
        assert store._pinned.limit == 90.0
    with store.connections.one() as again:
        assert again.limit == 10.0


@pytest.mark.parametrize("ahead", [3600.0, -60.0])
def test_a_clock_that_is_not_that_of_the_database(nodes: Nodes, monkeypatch: pytest.MonkeyPatch, ahead: float) -> None:
    """Its process would settle decisions of others too early, or its own too late: it makes none."""
    first, second = nodes
    now = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + ahead)
        side = "3600 seconds ahead of" if ahead > 0 else "60 seconds behind"
        assert f"the clock of this machine is {side} that of the database" in first.health()["reason"]
        with pytest.raises(Unavailable, match="clock"):
            first.decide("home", "a")
        patch.setattr(time, "time", lambda: now() + 0.5 * postgres_store.MOST_SKEW)
        assert first.health()["ready"]
    assert second.experiment("home").decisions == 0
    assert first.decide("home", "a").context == "a"


def test_a_process_that_starts_with_a_wrong_clock(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of the database shows it before the first event; nobody has to ask for its health."""
    first, _ = nodes
    url, now = str(first._store.address), time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + 2 * 86_400)
        with Engine.open(url) as late:
            for write in (lambda: late.decide("home", "a"), lambda: late.create("other", arms=ARMS)):
                with pytest.raises(Unavailable, match="172800 seconds ahead of that of the database"):
                    write()
            late.accept_clock()  # is not the other nodes' agreement
            with pytest.raises(Unavailable, match="ahead of that of the database"):
                late.decide("home", "a")
    assert first.experiments() == ["home"]
    assert first.experiment("home").decisions == 0


def test_a_process_that_starts_with_a_clock_that_is_behind(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clock may jump to that of the database, however old the last event is, and no further."""
    first, _ = nodes
    url, now, ahead = str(first._store.address), time.time, -3600.0
    assert isinstance(first._store, PostgresStore)
    ten_hours_old = "update change set at = at - 36000000000"
    first._store.connections.run(lambda connection: connection.execute(ten_hours_old))
    monkeypatch.setattr(time, "time", lambda: now() + ahead)
    with Engine(PostgresStore(url), clock=lambda: int(time.time() * 1e9), steady=steady_ns) as late:
        assert "3600 seconds behind that of the database" in late.health()["reason"]
        with pytest.raises(Unavailable, match="3600 seconds behind that of the database"):
            late.decide("home", "a")
        ahead = 0.0
        assert late.decide("home", "a").context == "a"
        assert late.health()["ready"]
        ahead = 3600.0
        with pytest.raises(Unavailable, match="has jumped 60 minutes ahead"):
            late.decide("home", "a")
        late.accept_clock()  # is not the agreement of the database
        for write in (lambda: late.decide("home", "a"), lambda: late.create("other", arms=ARMS), late.expire):
            with pytest.raises(Unavailable, match="3600 seconds ahead of that of the database"):
                write()
        ahead = 0.0
        late.decide("home", "a")
        ahead = 3600.0
        with pytest.raises(Unavailable, match="has jumped 60 minutes ahead"):
            late.decide("home", "a")
    assert first.experiment("home").decisions == 2


def test_an_upgrade_waits_for_the_clock(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    url, now = str(nodes[0]._store.address), time.time
    store = nodes[0]._store
    assert isinstance(store, PostgresStore)
    by_other_code = f"update change set body = replace(body, '{experiment_module.CODE}', 'other')"
    store.connections.run(lambda connection: connection.execute(by_other_code))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: now() + 3600.0)
        with Engine.open(url) as late:
            assert "ahead of that of the database" in late.health()["reason"]
            assert [each.kind for each in late.history("home")] == ["create"]
            patch.undo()
            late.maintain()
            assert [each.kind for each in late.history("home")] == ["create", "upgrade"]
            assert late.health()["ready"]


def test_a_transaction_that_is_left_open_is_ended(nodes: Nodes) -> None:
    """A process that is stopped inside a transaction keeps its lock for some seconds, not forever."""
    first, second = nodes
    store = first._store
    assert isinstance(store, PostgresStore)
    times = {"idle_in_transaction_session_timeout": "5s", "lock_timeout": "5s", "synchronous_commit": "on"}
    for name, value in times.items():
        assert store._rows("select current_setting($1)", (name,)) == [(value,)]
    with store.connections.one() as stopped:
        stopped.execute("set idle_in_transaction_session_timeout = '200ms'")
        stopped.execute("begin")
        stopped.execute("select position from experiment for update")
        second.decide("home", "v")  # waits until the server has ended that session
        with pytest.raises(psycopg.Error):
            stopped.execute("commit")
    assert first.verify() == 2


def test_a_lock_that_is_held_too_long(nodes: Nodes) -> None:
    first, second = nodes
    store = first._store
    assert isinstance(store, PostgresStore)
    impatient = mock.patch.dict(postgres_connections.SESSION, {"lock_timeout": "100ms"})
    with impatient, Engine.open(store.address) as third, store.connections.one() as holder:
        holder.execute("begin")
        holder.execute("select position from experiment for update")
        with pytest.raises(Unavailable, match="lock timeout"):
            third.decide("home", "v", id="x")
        holder.execute("rollback")
        assert third.decide("home", "v", id="x") == second.decide("home", "v", id="x")
    assert first.verify() == 2


def test_all_connections_are_in_use(nodes: Nodes) -> None:
    first, _ = nodes
    connections = first._store.connections  # type: ignore[attr-defined]
    with mock.patch.object(postgres_connections, "WAIT", 0.01):
        held = [connections.one() for _ in range(postgres_connections.CONNECTIONS)]
        for each in held:
            each.__enter__()
        with pytest.raises(Unavailable, match="all 20 connections are in use"):
            first.decide("home", "v", id="x")
        for each in held:
            each.__exit__(None, None, None)
        assert first.decide("home", "v", id="x").id == "x"
    assert first.verify() == 2


def test_others_write_all_the_time(nodes: Nodes) -> None:
    first, _ = nodes
    with mock.patch.object(PostgresStore, "commit", side_effect=Behind("never")), pytest.raises(Unavailable):
        first.decide("home", "v", id="x")
    assert first.decide("home", "v", id="x").id == "x"
    assert first.verify() == 2


# versions


@contextlib.contextmanager
def having(code: str) -> Iterator[None]:
    """Run with other kernels."""
    with contextlib.ExitStack() as stack:
        for module in HAVE_CODE:
            stack.enter_context(mock.patch(f"alphafair.engine.{module}.CODE", code))
        yield


def test_nodes_of_other_kernels_do_not_write(url: str) -> None:
    """The new node waits until the last old one has ended; then it records the upgrade, and old ones are refused."""

    old = experiment_module.CODE
    first = Engine.open(url, seed=1)
    first.create("home", arms=ARMS)
    receipt = first.decide("home", "v")
    with having("new"):
        second = Engine.open(url, seed=2)
        beside = Engine.open(url, seed=4)
        with pytest.raises(Unavailable, match="another version of the kernels"):
            second.decide("home", "v")
        assert "another version" in second.health()["reason"]
        assert second.experiment("home").decisions == 1
    assert first.decide("home", "v").arm in ARMS
    first.close()
    with having("new"):
        second.maintain()
        assert second.health()["ready"]
        assert second.reward(receipt.id, 1.0).outcome == "applied"
        beside.maintain()  # it takes the state that the other one has recorded
        assert beside.experiment("home").unhealthy is None
        assert beside.decide("home", "v").arm in ARMS
        assert beside.writers.of("home").condition.reason is None
        beside.close()
        assert [each.kind for each in second.history("home")] == ["create", "upgrade"]
        with having(old):
            third = Engine.open(url, seed=3)
            with pytest.raises(Unavailable, match="another version of the kernels"):
                third.decide("home", "v")
            third.close()
        second.close()
    with Engine.open(url) as fourth:
        assert fourth.decide("home", "v").arm in ARMS
        fourth.verify()


def test_a_node_notices_an_upgrade(url: str) -> None:
    """A node that was away while all others were upgraded does not write with old kernels."""
    first = Engine.open(url, seed=1)
    first.create("home", arms=ARMS)
    first._store._session.close()  # type: ignore[attr-defined] # its connection was lost, and with it its lock
    with having("new"):
        second = Engine.open(url, seed=2)
        second.decide("home", "v")
    with pytest.raises(Unavailable, match="another version of the kernels"):
        first.decide("home", "v")
    assert first.experiment("home").decisions == 1
    second._store.close()
    first._store.close()


# addresses


def test_a_password_is_never_shown(postgres_server: Server, caplog: pytest.LogCaptureFixture) -> None:
    url = postgres_server.url("secret_shop").replace("shop@", "shop:hunter2@")
    with Engine.open(url) as engine:
        assert "hunter2" not in repr(engine._store) + str(engine._store.path)
        assert engine._store.address == url
    nowhere = url.replace(str(postgres_server.port), "1")
    broken = url.replace("hunter2", "hunter2%zz")
    unknown = f"{url}&hunter2=hunter2"
    for address in (nowhere, broken, unknown, url.replace("secret_shop", "Secret-Shop")):
        with pytest.raises((Unavailable, InvalidArgument)) as refused:
            Engine.open(address)
        problem: BaseException | None = refused.value
        while problem is not None:
            assert "hunter2" not in str(problem)
            problem = None if problem.__suppress_context__ else problem.__context__
    assert "hunter2" not in caplog.text
    postgres_server.execute("drop schema secret_shop cascade")


def test_a_database_without_experiments(postgres_server: Server) -> None:
    url = postgres_server.url()
    for options in ({"read_only": True}, {"create": False}):
        with pytest.raises(InvalidArgument, match="a database with the schema"):
            Engine.open(url, **options)  # type: ignore[arg-type]
    with Engine.open(url) as engine:
        assert engine.writers.store.opened.was_empty
        assert engine.health()["ready"]
        assert engine.experiments() == []
        assert engine.verify() == 0
    with Engine.open(url, read_only=True) as reader:
        assert not reader.writers.store.opened.was_empty
        with pytest.raises(RequestError, match="opened for writing"):
            reader.create("home", arms=ARMS)


def test_nodes_that_start_at_once_make_the_tables_once(postgres_server: Server) -> None:
    url, engines = postgres_server.url(), list[Engine]()
    threads = [threading.Thread(target=lambda: engines.append(Engine.open(url))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(engines) == 4
    assert sum(engine.writers.store.opened.was_empty for engine in engines) == 1
    for engine in engines:
        engine.close()


def test_answers_must_be_durable(postgres_server: Server) -> None:
    url = postgres_server.url() + "&options=-c%20synchronous_commit%3Doff"
    with pytest.raises(InvalidArgument, match="synchronous_commit must be one of on"):
        Engine.open(url)


def test_options_of_an_address_do_not_change_what_nodes_rely_on(postgres_server: Server) -> None:
    """They may add settings, and make commits wait for more."""
    url = postgres_server.url()
    given = {"search_path": "pg_catalog", "lock_timeout": "1h", "work_mem": "8MB", "synchronous_commit": "remote_apply"}
    options = "%20".join(f"-c%20{name}%3D{value}" for name, value in given.items())
    with Engine.open(f"{url}&options={options}", seed=1) as engine:
        engine.create("home", arms=ARMS)
        found = {name: _rows(engine, f"show {name}")[0][0] for name in given}
    schema = url.rpartition("=")[2]
    assert found == {**given, "search_path": schema, "lock_timeout": "5s"}
    assert postgres_server.execute("select name from experiment", schema) == [("home",)]
    postgres_server.execute(f"drop schema {schema} cascade")


def test_reads_are_fresh(nodes: Nodes) -> None:
    first, second = nodes
    began = time.monotonic()
    second.decide("home", "v")
    assert first.experiment("home").decisions == 1
    assert time.monotonic() - began < 60
