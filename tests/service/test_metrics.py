"""Every number on /metrics is what its help says: compared with what the test itself has done and counted."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from alphafair.engine import Engine, Unavailable
from alphafair.service.keys import Caller
from tests.older import take_back
from tests.serving import ARMS, Running, running, told, wait_for
from tests.stores import both_stores, open_store, sqlite_only, store_of, writer_of

pytestmark = [both_stores, pytest.mark.compiled]

MINUTE = 60 * 10**9  # nanoseconds
SETTLED = ("rewards", "defaulted", "expired", "lapsed", "rolled_back")


class Bookkeeper:
    """Drives a service over HTTP and writes down what each request must have counted."""

    def __init__(self, shop: Running, now: list[int]) -> None:
        self.shop, self.now = shop, now
        self.requests: Counter[tuple[str, int]] = Counter()
        self.experiments: dict[str, Counter[str]] = {}
        self.n_commands, self.n_batches, self.delays = 0, 0, list[float]()
        self.decided_at: dict[str, int] = {}

    def post(self, path: str, body: Any, status: int = 200, *, commands: int = 1, method: str = "POST") -> Any:
        answer = self.shop.http.request(method, f"/v1/experiments{path}", json=body)
        assert answer.status_code == status, answer.text
        self.requests[re.sub(r"^/\w+", "/{name}", path), status] += 1
        if commands and status < 420:
            self.n_commands += commands
            self.n_batches += 1
        return answer.json()

    def describe(self, name: str) -> Any:
        self.requests["/{name}", 200] += 1
        return self.shop.http.get(f"/v1/experiments/{name}").json()

    def create(self, name: str, **settings: Any) -> None:
        self.post("", {"name": name, "arms": ARMS, **settings}, 201, commands=0)
        self.experiments[name] = Counter()

    def change(self, name: str, **change: Any) -> None:
        self.post(f"/{name}", change, commands=0, method="PATCH")

    def decide(self, name: str, id: str, *, again: bool = False, **options: Any) -> None:
        self.post(f"/{name}/decisions", {"context": "v", "id": id, **options})
        if not again:
            self.experiments[name].update(decisions=1, pending=1)
            self.decided_at[id] = self.now[0]

    def settle(self, name: str, counted: str, n: int = 1) -> None:
        self.experiments[name].update({counted: n, "pending": -n})

    def reward(self, name: str, id: str, value: Any, status: int = 200, *, first: bool = False) -> None:
        self.post(f"/{name}/rewards", {"id": id, "reward": value}, status)
        if first:
            self.settle(name, "rewards")
            self.delays.append((self.now[0] - self.decided_at[id]) / 1e9)

    def pass_time(self, minutes: float) -> None:
        self.now[0] += int(minutes * MINUTE)
        self.shop.engine.expire()


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Bookkeeper]:
    now = [1_700_000_000 * 10**9]
    engine = Engine(open_store(tmp_path / "shop.db"), 0, clock=lambda: now[0])
    with running(tmp_path / "shop.db", engine=engine) as shop:
        yield Bookkeeper(shop, now)


def every_kind_of_event(books: Bookkeeper) -> None:
    books.create("zeros", reward_wait=60.0, default_reward=0.0)
    books.create("strict", reward_wait=60.0)
    books.create("patient")
    books.create("full", policy="alpha-fair", reward_wait=60.0, default_reward=0.5)
    for name in ("zeros", "strict", "patient"):
        for k in range(6):
            books.decide(name, f"{name}-{k}")
        books.decide(name, f"{name}-0", again=True)
        books.now[0] += MINUTE // 60
        books.reward(name, f"{name}-0", 0.5, first=True)
        books.reward(name, f"{name}-0", 0.5)
        books.reward(name, f"{name}-0", 0.75, 409)
        books.reward(name, f"{name}-1", 7.0, 422)
        books.n_commands += 1
        books.n_batches += 1
        books.reward(name, "nobody", 0.5, 404)
        books.decide(name, f"{name}-shown", deferred=True)
        books.post(f"/{name}/activations", {"id": f"{name}-shown"})
        books.reward(name, f"{name}-shown", 1, first=True)
        books.decide(name, f"{name}-unseen", deferred=True)
    books.decide("full", "full-0")
    books.decide("full", "full-1")
    books.reward("full", "full-0", dict.fromkeys(ARMS, 0.5), first=True)
    items: list[Any] = [{"context": "w", "id": f"many-{k}"} for k in range(3)]
    books.post("/strict/decisions/batch", {"items": [*items, {"context": "x", "id": "many-0"}]}, commands=4)
    books.experiments["strict"].update(decisions=3, pending=3)
    items = [{"id": "many-0", "reward": 1.0}, {"id": "many-0", "reward": 0.5}, {"id": "nobody", "reward": 1.0}]
    books.post("/strict/rewards/batch", {"items": items}, commands=3)
    books.settle("strict", "rewards")
    books.delays.append(0.0)
    books.pass_time(minutes=2)
    books.settle("zeros", "defaulted", 5)
    books.settle("strict", "expired", 5 + 2)
    books.settle("full", "defaulted")
    for name in ("zeros", "strict"):
        books.settle(name, "lapsed")
        books.reward(name, f"{name}-1", 1.0, 410)
    positions = {name: books.shop.engine.experiment(name).position for name in books.shop.engine.experiments()}
    books.decide("patient", "forgotten")
    for name in ("patient", "strict"):
        books.change(name, rollback=positions[name])
    books.settle("patient", "rolled_back")
    books.reward("patient", "forgotten", 1.0, 410)


def check_experiments(books: Bookkeeper) -> None:
    """The same numbers on /metrics and in the description of each experiment; nothing is lost between them."""
    found = told(books.shop)
    for name, counted in books.experiments.items():
        assert counted["decisions"] == counted["pending"] + sum(counted[field] for field in SETTLED)
        described = books.describe(name)
        for field in ("decisions", *SETTLED):
            assert found[f'alphafair_{field}_total{{experiment="{name}"}}'] == counted[field], (name, field)
            assert described[field] == counted[field], (name, field)
        assert found[f'alphafair_pending{{experiment="{name}"}}'] == described["pending"] == counted["pending"]
        contexts = 2 if name == "strict" else 1
        assert found[f'alphafair_contexts{{experiment="{name}"}}'] == described["contexts"] == contexts


def test_every_counter_counts_what_its_help_says(books: Bookkeeper) -> None:
    every_kind_of_event(books)
    check_experiments(books)
    found = told(books.shop)
    for (path, status), n in books.requests.items():
        labels = f'{{route="/v1/experiments{path}",status="{status}"}}'
        assert found[f"alphafair_requests_total{labels}"] == n, (path, status)
    assert found["alphafair_group_size_sum"] == books.n_commands
    assert found["alphafair_group_size_count"] == found["alphafair_commit_seconds_count"] == books.n_batches
    assert found["alphafair_reward_delay_seconds_count"] == len(books.delays)
    assert found["alphafair_reward_delay_seconds_sum"] == pytest.approx(sum(books.delays))
    assert found["alphafair_ready"] == 1.0
    assert found["alphafair_waiting"] == 0.0
    tables = ("change", "decision", "activation", "reward", "late_reward")
    rows = books.shop.engine._store.rows
    n_events = sum(rows(f"select count(*) from {table}")[0][0] for table in tables)
    assert found["alphafair_position_total"] == n_events
    books.shop.engine.verify()


@sqlite_only("is about files of older versions")
def test_counters_survive_restarts_and_migrations(tmp_path: Path) -> None:
    """From snapshots, from the log alone, and from a file that counted defaults and lapsed decisions as expired."""
    path, now = tmp_path / "shop.db", [1_700_000_000 * 10**9]
    with running(path, engine=Engine(open_store(path), 0, clock=lambda: now[0])) as shop:
        books = Bookkeeper(shop, now)
        every_kind_of_event(books)
        writer_of(shop.engine).take_snapshots(1)
        books.decide("zeros", "after the snapshot")
    for how in ("from snapshots", "from the log", "from the version before"):
        with closing(sqlite3.connect(path)) as file, file:
            if how == "from the log":
                saved = file.execute("select * from snapshot").fetchall()
                assert len({experiment for experiment, *_ in saved}) == len(books.experiments)
                file.execute("delete from snapshot")
            elif how == "from the version before":
                for event, body in file.execute("select event, body from change where kind = 'rollback'").fetchall():
                    old = json.loads(body)
                    old["tally"] = tally_as_before(old["tally"])
                    file.execute("update change set body = ? where event = ?", (json.dumps(old), event))
                take_back(file, 2)
        with running(path, engine=Engine(open_store(path), 0, clock=lambda: now[0])) as books.shop:
            check_experiments(books)
            books.shop.engine.verify()


def tally_as_before(text: str) -> str:
    tally = json.loads(text)
    tally["expired"] += tally.pop("defaulted") + tally.pop("lapsed")
    del tally["rolled_back"]
    return json.dumps(tally)


def test_failed_commits_are_not_counted(books: Bookkeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    books.create("home")
    books.decide("home", "one")
    store = store_of(books.shop.engine, "home")
    with monkeypatch.context() as patch:

        def fail(*arguments: Any, **settings: Any) -> None:
            raise Unavailable("disk is full")

        patch.setattr(store, "commit", fail)
        for _ in range(3):
            books.reward("home", "one", 1.0, 503)
    books.reward("home", "one", 1.0, first=True)
    assert told(books.shop)["alphafair_reward_delay_seconds_count"] == 1
    check_experiments(books)


def test_every_command_of_a_large_batch_is_counted(books: Bookkeeper) -> None:
    """More rewards than a commit is closed with: those of one request are written at once."""
    n_batches, size = 6, 1000
    books.create("home")
    for k in range(n_batches):
        ids = [f"{k}-{n}" for n in range(size)]
        items: list[Any] = [{"context": "v", "id": id} for id in ids]
        books.post("/home/decisions/batch", {"items": items}, commands=size)
        books.experiments["home"].update(decisions=size, pending=size)
    from alphafair.engine import Reward

    rewards = [Reward(f"{k}-{n}", 1.0, "home") for k in range(n_batches) for n in range(size)]
    writer = books.shop.service.commands
    asyncio.run_coroutine_threadsafe(writer.submit(Caller("key", "key", "write"), rewards), writer.loop).result()
    books.settle("home", "rewards", n_batches * size)
    assert told(books.shop)["alphafair_reward_delay_seconds_count"] == n_batches * size
    check_experiments(books)


def test_request_times_are_counted_by_route(books: Bookkeeper) -> None:
    books.create("home")
    began = time.perf_counter()
    for k in range(5):
        books.decide("home", f"{k}")
    assert books.shop.post("/home/decisions?x", {"context": "v"}).status_code == 200  # not the short way
    books.shop.http.get("/v1/experiments/home/decisions")
    with books.shop.engine.writers.all()[0].lock:  # the disk is slow
        waiting = threading.Thread(target=books.reward, args=("home", "0", 1.0))
        waiting.start()
        wait_for(lambda: any(each.requests for each in list(books.shop.service.connections.open)))
        time.sleep(0.3)
    waiting.join()
    assert books.shop.raw(b"NONSENSE\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    taken = time.perf_counter() - began
    found = told(books.shop)

    def times(route: str) -> list[float]:
        """What is under each bound."""
        start = 'alphafair_request_seconds_bucket{le="'
        named = {name: n for name, n in found.items() if name.startswith(start) and f'route="{route}"' in name}
        return list(named.values())

    for route in {re.findall('route="(.*?)"', name)[0] for name in found if 'route="' in name}:
        answered = sum(n for name, n in found.items() if name.startswith(f'alphafair_requests_total{{route="{route}"'))
        assert times(route) == sorted(times(route))
        assert times(route)[-1] == found[f'alphafair_request_seconds_count{{route="{route}"}}'] == answered
    decisions, rewards = "/v1/experiments/{name}/decisions", "/v1/experiments/{name}/rewards"
    assert times(decisions)[-1] == 6
    assert 0.0 < found[f'alphafair_request_seconds_sum{{route="{decisions}"}}'] < taken
    assert 0.25 < found[f'alphafair_request_seconds_sum{{route="{rewards}"}}'] < taken
    assert found[f'alphafair_request_seconds_bucket{{le="0.25",route="{rewards}"}}'] == 0
    assert found[f'alphafair_request_seconds_bucket{{le="30.0",route="{rewards}"}}'] == 1
    assert found['alphafair_requests_total{route="other",status="400"}'] == 1
    assert found['alphafair_requests_total{route="other",status="405"}'] == 1
