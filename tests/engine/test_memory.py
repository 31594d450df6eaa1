"""Memory: how many contexts an experiment may have, one copy of the state, and what becomes of a MemoryError."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from alphafair import Engine
from alphafair.algorithms import POLICIES, BasePolicy, load_policy
from alphafair.engine import Decide, Mismatch, Receipt, RequestError, Reward, Unavailable, Uncertain
from alphafair.engine import memory as memory_module
from alphafair.engine import writer as writer_module
from alphafair.engine.batch import Batch
from alphafair.engine.decisions import DecisionCache
from alphafair.engine.state.replay import Replay
from alphafair.engine.store.ledger import SnapshotPiece
from alphafair.memory_limit import memory_limit
from alphafair.policy.memory import more_rows
from alphafair.values import State
from tests.serving import error, running, wait_for, wait_until_ready
from tests.stores import both_stores, live_state, make_stale, rows_of, store_of

pytestmark = both_stores

ARMS = ("ada", "ben")
VARIANTS = [(name, variant) for name, kind in POLICIES.items() for variant in kind.traits.variants(1, 20)]


def made(name: str, variant: str, n_contexts: int, n_arms: int = 20) -> BasePolicy:
    settings = POLICIES[name].traits.variants(1, n_arms)[variant]
    policy: BasePolicy = POLICIES[name](1, n_arms, **settings)
    policy.grow(n_contexts=n_contexts)
    return policy


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=ARMS)
        yield engine


# how many contexts


def test_too_many_contexts_are_refused_and_existing_ones_work(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db", seed=1, max_contexts=3) as engine:
        engine.create("home", arms=ARMS)
        engine.create("other", arms=ARMS)
        answers = engine.submit([Decide("home", label) for label in "abcdeab"])
        refused = [answer for answer in answers if isinstance(answer, RequestError)]
        assert [isinstance(answer, Receipt) for answer in answers] == [True] * 3 + [False] * 2 + [True] * 2
        assert {each.code for each in refused} == {"too_many_contexts"}
        assert "3" in str(refused[0])
        assert "max_contexts" in str(refused[0])
        assert (engine.experiment("home").contexts, engine.experiment("home").max_contexts) == (3, 3)
        engine.erase("home", "a")  # its numbers stay, and take as much memory as before
        with pytest.raises(RequestError, match="max_contexts"):
            engine.decide("home", "a")
        assert isinstance(engine.decide("other", "d"), Receipt)
        with pytest.raises(RequestError) as many:
            engine.create("known", arms=ARMS, contexts=["a", "b", "c", "d"])
        assert many.value.code == "too_many_contexts"
        assert engine.experiments() == ["home", "other"]
    with Engine.open(tmp_path / "shop.db", seed=1, max_contexts=1) as engine:
        assert isinstance(engine.decide("home", "b"), Receipt)
        with pytest.raises(RequestError, match="max_contexts"):
            engine.decide("other", "e")
        engine.verify()


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True])
def test_max_contexts_must_be_a_positive_integer(tmp_path: Path, value: Any) -> None:
    with pytest.raises(ValueError, match="max_contexts must be"):
        Engine.open(tmp_path / "shop.db", max_contexts=value)
    assert not (tmp_path / "shop.db").exists()


def test_the_default_limit_fits_into_half_of_the_memory(tmp_path: Path) -> None:
    with (
        mock.patch.object(memory_module, "memory_limit", return_value=10**7),
        Engine.open(tmp_path / "shop.db") as engine,
    ):
        engine.create("wide", arms=[f"{k}" for k in range(500)])
        row = live_state(engine, "wide").experiments["wide"].policy.stepper.bytes_per_context
        limit = engine.experiment("wide").max_contexts
        assert row > 500 * 8
        assert limit == 5_000_000 // (memory_module.CONTEXT_COPIES * row + memory_module.LABEL_BYTES)
        answers = engine.submit([Decide("wide", f"{k}") for k in range(limit + 5)])
        assert [isinstance(answer, RequestError) for answer in answers] == [False] * limit + [True] * 5
        engine.create("other", arms=ARMS)  # experiments share it equally
        assert engine.experiment("wide").max_contexts == limit // 2
        assert engine.experiment("other").max_contexts > 10 * limit
        assert isinstance(engine.decide("wide", "0"), Receipt)


def test_at_least_one_context_is_allowed(tmp_path: Path) -> None:
    with mock.patch.object(memory_module, "memory_limit", return_value=1), Engine.open(tmp_path / "shop.db") as engine:
        engine.create("home", arms=ARMS)
        assert engine.experiment("home").max_contexts == 1


def test_the_memory_of_this_process(tmp_path: Path) -> None:
    """The least of what the machine has, the groups that the process is in allow, and its own limit."""
    (tmp_path / "sys/a/b").mkdir(parents=True)
    (tmp_path / "sys/memory").mkdir()
    own, root = tmp_path / "cgroup", tmp_path / "sys"
    own.write_text("0::/a/b\n")
    found = memory_limit(own, root)
    assert found > 1 << 26
    (root / "a/b/memory.max").write_text("max\n")
    assert memory_limit(own, root) == found
    (root / "a/memory.max").write_text("3000000\n")
    assert memory_limit(own, root) == 3_000_000
    own.write_text("4:memory:/docker/x\n3:cpu:/y\n")
    (root / "memory/memory.limit_in_bytes").write_text("2000000\n")
    assert memory_limit(own, root) == 2_000_000
    assert memory_limit(tmp_path / "nothing", tmp_path / "nowhere") == found
    with mock.patch.object(resource, "getrlimit", return_value=(1_000_000, -1)):
        assert memory_limit(own, root) == 1_000_000


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_the_memory_per_context_is_not_underestimated(name: str, variant: str) -> None:
    """Growing, saving and loading, each measured at its highest."""
    few, many = 50, 850
    peaks = {n: highest(name, variant, n) for n in (few, many)}
    policy = made(name, variant, 1)
    per_context = (peaks[many] - peaks[few]) / (many - few)
    assert per_context <= memory_module.CONTEXT_COPIES * policy.stepper.bytes_per_context + memory_module.LABEL_BYTES


def highest(name: str, variant: str, n_contexts: int) -> int:
    policy = made(name, variant, 1)
    policy.choose(0)
    gc.collect()
    tracemalloc.start()
    try:
        for n in range(2, n_contexts + 1):
            policy.grow(n_contexts=n)
        blob = policy.snapshot().to_bytes()
        del policy
        load_policy(State.from_bytes(blob))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# no more copies than needed


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_loading_a_policy_keeps_one_copy(name: str, variant: str) -> None:
    state = made(name, variant, 500).snapshot()
    size = sum(array.nbytes for array in state.arrays.values())
    load_policy(state)  # imports and compiles what it needs
    gc.disable()
    tracemalloc.start()
    try:
        policy = load_policy(state)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    assert policy.n_contexts == 500
    assert kept < 1.2 * size + 50_000


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_one_more_context_does_not_copy_all_others(name: str, variant: str) -> None:
    policy = made(name, variant, 600)
    policy.grow(n_contexts=601)  # there is room for as many again now
    tracemalloc.start()
    try:
        policy.grow(n_contexts=602)
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert taken < 20_000


def test_a_context_without_memory_changes_nothing() -> None:
    policy = made("independent-alpha-fair", "", 4)
    before, calls = policy.snapshot(), list[Any]()

    def second_fails(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 2:
            raise MemoryError
        return more_rows(*arguments)

    with mock.patch("alphafair.policy.memory.more_rows", second_fails), pytest.raises(MemoryError):
        policy.grow(n_contexts=9)
    after = policy.snapshot()
    assert {key: value.shape for key, value in before.arrays.items()} == {
        key: value.shape for key, value in after.arrays.items()
    }
    policy.grow(n_contexts=9)
    assert policy.choose(8).arm < 20


def test_memory_is_freed_before_it_is_loaded_again(engine: Engine) -> None:
    engine.create("idle", arms=ARMS)
    engine.reward(engine.decide("home", "v").id, 0.5)
    old = [weakref.ref(experiment.policy) for experiment in live_state(engine, "home").by_key.values()]
    old += [weakref.ref(experiment) for experiment in live_state(engine, "home").by_key.values()]
    alive: list[int] = []

    class Watching(Replay):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            alive.append(sum(each() is not None for each in old))
            super().__init__(*arguments, **options)

    gc.disable()
    try:
        with mock.patch.object(Batch, "apply", side_effect=MemoryError), pytest.raises(Unavailable):
            engine.decide("home", "v", "x")
        with mock.patch.object(memory_module, "Replay", Watching):
            assert engine.experiment("home").decisions == 2
    finally:
        gc.enable()
    assert alive == [0]
    engine.verify()


# when it is not enough

FAULTS: dict[str, Callable[[], Any]] = {
    "drawing": lambda: mock.patch.object(DecisionCache, "begin_batch", side_effect=MemoryError),
    "counting": lambda: mock.patch.object(Batch, "apply", side_effect=MemoryError),
    "learning": lambda: mock.patch("alphafair.engine.state.experiment.follow", side_effect=MemoryError),
    "a bug": lambda: mock.patch.object(Batch, "apply", side_effect=KeyError("odd")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_makes_it_unready_until_loading_works(engine: Engine, fault: str) -> None:
    first = engine.decide("home", "v", "first")
    expected = Uncertain if fault == "a bug" else Unavailable
    with FAULTS[fault](), pytest.raises(expected):
        engine.submit([Reward(first.id, 0.5), Decide("home", "w", "second")])
    reason = engine.health(probe=False)["reason"]
    assert reason is not None
    assert ("KeyError: 'odd'" if fault == "a bug" else "MemoryError") in reason
    with mock.patch.object(Replay, "run", side_effect=MemoryError):
        for _ in range(3):
            with pytest.raises(Unavailable, match="MemoryError"):
                engine.decide("home", "v")
            with pytest.raises(Unavailable, match="MemoryError"):
                engine.experiment("home")
        health = engine.health()
        assert (health["ready"], "MemoryError" in health["reason"]) == (False, True)
    wait_for(lambda: engine.health()["ready"])
    assert engine.health()["unhealthy"] == {}
    assert engine.decide("home", "w", "second").context == "w"
    assert engine.reward("first", 0.5).outcome in ("applied", "repeated")
    assert engine.experiment("home").decisions == 2
    engine.verify()


def test_loading_is_not_tried_with_every_request(engine: Engine) -> None:
    with mock.patch.object(Batch, "apply", side_effect=MemoryError), pytest.raises(Unavailable):
        engine.decide("home", "v")
    with (
        mock.patch.object(writer_module, "RETRY", 1e9),
        mock.patch.object(Replay, "run", side_effect=MemoryError) as run,
    ):
        for _ in range(5):
            with pytest.raises(Unavailable):
                engine.decide("home", "v")
        assert run.call_count == 1


def test_a_snapshot_without_memory_is_not_taken_for_damaged(engine: Engine, tmp_path: Path) -> None:
    """Beginning with the first event instead would take as much memory, and very long."""
    engine.reward(engine.decide("home", "v").id, 0.5)
    engine.close()
    with mock.patch("numpy.load", side_effect=MemoryError), pytest.raises(Unavailable, match="MemoryError"):
        Engine.open(tmp_path / "shop.db")
    with Engine.open(tmp_path / "shop.db") as again:
        again.verify()


def test_a_change_without_memory_is_not_made(engine: Engine) -> None:
    with mock.patch.object(Batch, "change", side_effect=MemoryError), pytest.raises(Unavailable, match="MemoryError"):
        engine.set_alpha("home", 0.25)
    assert engine.experiment("home").alpha != 0.25
    engine.set_alpha("home", 0.25)
    assert engine.experiment("home").alpha == 0.25


def test_a_failed_snapshot_does_not_affect_answers(engine: Engine) -> None:
    """And what was written of it is not taken for a whole one."""
    store = store_of(engine, "home")
    save, failed = store.save, list[Any]()

    def failing(row: Any) -> None:
        if isinstance(row, SnapshotPiece) and row.number == 1 and not failed:
            failed.append(row)
            raise MemoryError
        save(row)

    with (
        mock.patch.object(writer_module, "SNAPSHOT_EVERY", 1),
        mock.patch("alphafair.engine.maintenance.PIECE", 400),
        mock.patch("alphafair.engine.maintenance.REST", 0.0),
        mock.patch("alphafair.engine.maintenance.REST_AFTER_FAILURE", 0.0),
        mock.patch.object(store, "save", failing),
    ):
        for k in range(50):
            assert isinstance(engine.decide("home", f"{k % 3}"), Receipt)
    assert failed
    assert engine.health()["ready"]
    assert rows_of(engine, "select count(*) from snapshot")[0][0]
    engine.verify()


RELOADS = """
import resource, sys
from alphafair import Engine
from alphafair.engine import Decide
from tests.stores import live_state, make_stale
engine = Engine.open(sys.argv[1], seed=1)
arms = [f"{k}" for k in range(1000)]
engine.create("home", arms=arms)
engine.submit([Decide("home", f"{k}") for k in range(1500)])
engine.close()
engine = Engine.open(sys.argv[1])
policy = live_state(engine, "home").experiments["home"].policy
size = policy.stepper.bytes_per_context * policy.n_contexts
del policy
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
limit = now + int(3.6 * size)  # with the state that is there, this is enough to load it once more: it takes four
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
make_stale(engine)
print(engine.experiment("home").contexts, engine.decide("home", "7").context)
"""


@pytest.mark.compiled
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux how large the process is")
def test_a_process_of_limited_memory_loads_again(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RELOADS, str(tmp_path / "shop.db")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["1500", "7"]


# over HTTP


@pytest.mark.compiled
def test_the_service_reports_the_failure_and_recovers(tmp_path: Path) -> None:
    engine = Engine.open(tmp_path / "shop.db", seed=1, max_contexts=2)
    engine.create("home", arms=ARMS)
    with running(tmp_path / "shop.db", engine=engine) as shop:
        items = [{"context": label} for label in "abca"]
        found = shop.post("/home/decisions/batch", {"items": items}).json()["items"]
        assert found[2]["error"]["code"] == "too_many_contexts"
        refused = shop.post("/home/decisions", {"context": "d"})
        assert (refused.status_code, error(refused)["code"]) == (409, "too_many_contexts")
        assert shop.http.get("/v1/experiments/home").json()["max_contexts"] == 2
        assert 'alphafair_max_contexts{experiment="home"} 2.0' in shop.http.get("/metrics").text
        with mock.patch.object(Replay, "run", side_effect=MemoryError):
            with mock.patch.object(Batch, "apply", side_effect=MemoryError):
                lost = shop.post("/home/decisions", {"context": "a"})
                assert (lost.status_code, error(lost)["code"]) == (503, "unavailable")
                assert "with the same id" in lost.json()["error"]["repair"]  # it was written
            ready = shop.http.get("/ready")
            assert ready.status_code == 503
            assert "MemoryError" in ready.json()["reason"]
            metrics = shop.http.get("/metrics")
            assert metrics.status_code == 200
            assert "alphafair_ready 0.0" in metrics.text
            assert "alphafair_not_ready{reason=" in metrics.text
            assert shop.post("/home/decisions", {"context": "a"}).status_code == 503
            assert shop.http.get("/v1/experiments/home").status_code == 503
        wait_until_ready(shop.http)
        assert shop.post("/home/decisions", {"context": "a"}).status_code == 200
        assert 'alphafair_not_ready{reason=""} 0.0' in shop.http.get("/metrics").text
        engine.verify()


def test_a_mismatch_is_raised_unchanged(engine: Engine) -> None:
    with mock.patch.object(Replay, "run", side_effect=Mismatch("changed by another hand")):
        make_stale(engine)
        with pytest.raises(Mismatch, match="another hand"):
            engine.decide("home", "v")
        assert "another hand" in str(engine.health(probe=False)["reason"])
    assert isinstance(engine.decide("home", "v"), Receipt)
