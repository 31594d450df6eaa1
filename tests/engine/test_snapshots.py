"""Large snapshots: written in pieces between commits, whole or not used at all, whatever happens in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alphafair import AlphaFairBandit, Engine, State
from alphafair.engine import Decide, Unavailable, maintenance, writer
from alphafair.engine.maintenance import n_state_bytes
from alphafair.engine.state.experiment import same_state
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import SNAPSHOTS_KEPT, Snapshot, SnapshotPiece
from alphafair.engine.store.postgres import PostgresStore
from alphafair.engine.store.sqlite import SqliteStore
from tests.stores import both_stores, connected, copy_as_crashed, is_postgres, live_state, rows_of, store_of, writer_of

pytestmark = both_stores

N_CONTEXTS, ARMS = 500, ["ada", "ben", "cyd"]
CONTEXTS = [f"v{k}" for k in range(N_CONTEXTS)]
PIECE = 4_000  # bytes


class Writes:
    """Notes how many bytes each commit was given, and fails when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.fails = False
        kind: Any = PostgresStore if is_postgres() else SqliteStore
        commit, save = kind.commit, kind.save

        def noted_commit(store: Any, parts: Any, statements: Any = ()) -> None:
            self.note([row for part in parts for rows in part.rows.values() for row in rows])
            commit(store, parts, statements)

        def noted_save(store: Any, row: Any) -> None:
            self.note([row])
            save(store, row)

        monkeypatch.setattr(kind, "commit", noted_commit)
        monkeypatch.setattr(kind, "save", noted_save)

    def note(self, rows: list[Any]) -> None:
        if self.fails and any(isinstance(row, Snapshot | SnapshotPiece) for row in rows):
            raise Unavailable("the disk is full")
        self.sizes.append(sum(len(field) for row in rows for field in row if isinstance(field, bytes)))


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(monkeypatch)


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "SNAPSHOT_EVERY", 20)
    monkeypatch.setattr(maintenance, "PIECE", PIECE)
    monkeypatch.setattr(maintenance, "REST", 0.0)
    monkeypatch.setattr(maintenance, "REST_AFTER_FAILURE", 0.0)
    monkeypatch.setattr(maintenance, "BYTES_PER_EVENT", 1_000_000)


@pytest.fixture
def engine(tmp_path: Path, writes: Writes) -> Iterator[Engine]:
    """Two experiments: one with a state of many pieces, and a neighbor with a small one."""
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("large", arms=ARMS, start=AlphaFairBandit(N_CONTEXTS, len(ARMS)).snapshot(), contexts=CONTEXTS)
        engine.create("small", arms=ARMS)
        yield engine


def rounds(engine: Engine, n: int, name: str = "large") -> None:
    for k in range(n):
        engine.reward(engine.decide(name, CONTEXTS[k % N_CONTEXTS]).id, 0.5)


def begin(engine: Engine) -> int:
    """Learn until a snapshot is begun; its position."""
    while writer_of(engine, "large").snapshots._unfinished is None:
        engine.decide("large", "v0")
    return engine.experiment("large").position


def kept(engine: Engine, name: str = "large") -> list[int]:
    """The positions of the snapshots of an experiment, in order."""
    key = live_state(engine, name).experiments[name].key
    return [
        position
        for (position,) in rows_of(
            engine, "select position from snapshot where experiment = ? order by position", (key,)
        )
    ]


def pieces(engine: Engine) -> list[tuple[int, int]]:
    """Experiment and position of every piece that is written apart."""
    return [
        (key, position) for key, position in rows_of(engine, "select distinct experiment, position from snapshot_piece")
    ]


def test_no_commit_has_more_than_a_piece(engine: Engine, writes: Writes) -> None:
    size = len(live_state(engine, "large").experiments["large"].policy.snapshot().to_bytes())
    assert size > 10 * PIECE
    writes.sizes.clear()
    rounds(engine, 60)
    taken = kept(engine)
    assert taken, "a snapshot is finished between the commits of requests"
    assert max(writes.sizes) < 2 * PIECE
    n_whole = sum(writes.sizes) / size
    assert n_whole > 2.0, "all of them are written"
    engine.verify()


def test_no_step_copies_or_writes_twice(engine: Engine, writes: Writes) -> None:
    """One step after each group: the copy, or one piece; so the neighbors' requests go in between."""
    begin(engine)
    sizes = writes.sizes
    for _ in range(200):
        sizes.clear()
        engine.decide("large" if is_postgres() else "small", "v0")  # in a database only its own requests
        assert len(sizes) <= 2, "the group's own, and a piece at most"
        if kept(engine):
            break
    assert len(kept(engine)) == 1
    engine.verify()


def test_a_snapshot_is_of_the_moment_when_it_was_begun(engine: Engine, tmp_path: Path) -> None:
    begun, state = begin(engine), live_state(engine, "large").experiments["large"].policy.snapshot()
    tally = live_state(engine, "large").experiments["large"].tally.to_json()
    rounds(engine, 5)  # meanwhile it learns
    while not kept(engine):
        engine.maintain()
    assert kept(engine) == [begun]
    key = live_state(engine, "large").experiments["large"].key
    ((counted,),) = rows_of(engine, "select tally from snapshot where experiment = ?", (key,))
    assert same_state(State.from_bytes(questions.snapshot_state(store_of(engine, "large"), key, begun)), state)
    assert counted == tally
    engine.verify()


def test_memory_is_allocated_before_the_copy(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In short steps, while it learns on: the snapshot is of the moment of the copy."""
    monkeypatch.setattr(maintenance, "ALLOCATED", 5_000)
    n_bytes, position = n_state_bytes(live_state(engine, "large").experiments["large"]), begin(engine)
    rows = writer_of(engine, "large").snapshots._rows(live_state(engine, "large").experiments["large"])
    assert [next(rows) for _ in range(n_bytes // 5_000)] == [None] * (n_bytes // 5_000)
    while not kept(engine):
        engine.decide("large", "v0")
    assert kept(engine)[0] >= position
    engine.verify()


def test_maintenance_writes_the_rest(engine: Engine) -> None:
    begin(engine)
    n_steps = 0
    while engine.maintain():
        n_steps += 1
        assert n_steps < 1000
    assert n_steps > 10
    assert len(kept(engine)) == 1
    assert not engine.maintain()


def test_older_ones_are_removed_piece_by_piece(engine: Engine, writes: Writes) -> None:
    sizes = writes.sizes
    sizes.clear()
    for _ in range(6):
        rounds(engine, 15)
        while engine.maintain():
            pass
    assert len(kept(engine)) == SNAPSHOTS_KEPT
    key = live_state(engine, "large").experiments["large"].key
    assert sorted(pieces(engine)) == [(key, position) for position in kept(engine)]
    assert max(sizes) < 2 * PIECE
    engine.verify()


def test_closing_leaves_a_snapshot_of_the_last_moment(engine: Engine, tmp_path: Path) -> None:
    rounds(engine, 13)  # one is begun
    large = live_state(engine, "large").experiments["large"]
    position, state = engine.experiment("large").position, large.policy.snapshot()
    engine.close()
    with Engine.open(tmp_path / "shop.db") as again:
        assert kept(again)[-1] == position
        assert {position for key, position in pieces(again) if key == large.key} == {*kept(again)}
        assert same_state(live_state(again, "large").experiments["large"].policy.snapshot(), state)
        again.verify()


@pytest.mark.parametrize("n_pieces", [1, 5, 11])
def test_half_a_snapshot_is_never_used(engine: Engine, tmp_path: Path, n_pieces: int) -> None:
    """What a crash leaves after so many pieces: who opens it does without them, removes them, and goes on."""
    begin(engine)
    while rows_of(engine, "select count(*) from snapshot_piece") < [(n_pieces,)]:
        engine.maintain()
    path = tmp_path / "crashed.db"
    copy_as_crashed(tmp_path / "shop.db", path)
    with Engine.open(path, read_only=True) as reader:
        assert (kept(reader), len(pieces(reader))) == ([], 1)
        assert reader.verify() == engine.position
    with Engine.open(path, seed=2) as again:
        assert again.experiment("large") == engine.experiment("large")
        live_state(again, "large").experiments["large"].unsaved = 1  # so that one is taken at the very same position
        writer_of(again, "large").take_snapshots(least=1)
        position = again.experiment("large").position
        assert kept(again) == [position]
        assert pieces(again) == [(live_state(again, "large").experiments["large"].key, position)]
    with Engine.open(path) as again:
        assert again.experiment("large") == engine.experiment("large")
        again.verify()


def test_a_piece_that_is_lost_or_changed_is_noticed(engine: Engine, tmp_path: Path) -> None:
    """What is read has a checksum; then the log tells the same."""
    rounds(engine, 12)
    state = live_state(engine, "large").experiments["large"].policy.snapshot()
    engine.close()
    for damage in (
        "delete from snapshot_piece where number = 3",
        "update snapshot_piece set bytes = (select bytes from snapshot_piece where number = 2 limit 1)",
    ):
        with connected(tmp_path / "shop.db") as connection:
            assert connection.execute(damage).rowcount > 0
        reader = Engine.open(tmp_path / "shop.db", read_only=True)
        assert same_state(live_state(reader, "large").experiments["large"].policy.snapshot(), state)
        reader.close()


def test_a_failed_snapshot_leaves_nothing_and_blocks_nothing(engine: Engine, writes: Writes) -> None:
    writes.fails = True
    rounds(engine, 30)
    assert engine.health()["ready"]
    assert kept(engine) == []
    writes.fails = False
    rounds(engine, 30, "small")
    rounds(engine, 30)
    while engine.maintain():
        pass
    assert kept(engine)
    assert {*pieces(engine)} <= {*rows_of(engine, "select experiment, position from snapshot")}
    engine.verify()


def test_a_state_with_nan_is_not_saved(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = live_state(engine, "large").experiments["large"].policy
    sound = policy.snapshot()
    arrays = {name: values * np.nan if values.ndim > 1 else values for name, values in sound.arrays.items()}
    broken = State(sound.policy, sound.version, sound.settings, sound.rng, arrays)
    monkeypatch.setattr(type(policy), "snapshot", lambda self: broken)
    rounds(engine, 30)
    assert "saving its state" in str(engine.experiment("large").unhealthy)
    assert kept(engine) == []
    monkeypatch.undo()


def test_all_experiments_get_snapshots(engine: Engine) -> None:
    for _ in range(60):
        engine.submit([Decide("large", "v1"), Decide("small", "v1")])
    while engine.maintain():
        pass
    for name in ("large", "small"):
        assert kept(engine, name), name
    engine.verify()


def test_pieces_are_the_bytes_of_the_state() -> None:
    state = AlphaFairBandit(N_CONTEXTS, 3, seed=0).snapshot()
    found = [*state.pieces(PIECE)]
    assert b"".join(found) == state.to_bytes()
    assert max(map(len, found)) < 2 * PIECE
    assert same_state(State.from_bytes(b"".join(found)), state)
