"""Exports beside requests: few at a time, streamed, and never for ever."""

from __future__ import annotations

import contextlib
import io
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import httpx
import polars as pl
import pytest

from alphafair import Engine
from alphafair.child import Child, ChildFailed
from alphafair.engine import Decide, Reward, export
from alphafair.engine.reports import Reports
from alphafair.service import keys
from alphafair.service.api import exports, handlers
from alphafair.service.http.connections import Timeouts
from alphafair.service.service import Limits
from tests.serving import ARMS, Running, running, wait_for
from tests.stores import both_stores, live_state, sqlite_only

pytestmark = both_stores

LOG = "/v1/experiments/home/log"
N_DECISIONS = 60


class FakeProcess:
    """A process that writes what it is told to, when it is told to."""

    gate = threading.Event()
    chunks: ClassVar[list[bytes | Exception]] = []
    made: ClassVar[list[FakeProcess]] = []

    def __init__(self, kind: str, job: bytes) -> None:
        assert kind == "export"
        self.left = iter(self.chunks)
        self.killed = self.closed = False
        self.made.append(self)

    def read(self, n: int) -> bytes:
        assert self.gate.wait(30.0)
        chunk = next(self.left, b"")
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    def kill(self) -> None:
        self.killed = True

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeProcess]]:
    monkeypatch.setattr(exports.Child, "start", FakeProcess)
    FakeProcess.gate.set()
    FakeProcess.made.clear()
    yield FakeProcess
    FakeProcess.gate.set()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("exports") / "shop.db") as shop:
        shop.post("", {"name": "home", "arms": ARMS})
        fill(shop.engine)
        yield shop


def fill(engine: Engine) -> None:
    ids = [f"id-{k}" for k in range(N_DECISIONS)]
    engine.submit([Decide("home", f"v{k % 7}", id) for k, id in enumerate(ids)])
    engine.submit([Reward(id, 0.5) for id in ids[: N_DECISIONS // 2]])


def metric(shop: Running, name: str) -> float:
    (line,) = (line for line in shop.http.get("/metrics").text.splitlines() if line.startswith(f"{name} "))
    return float(line.split()[1])


def test_more_exports_than_the_limit_are_rejected(
    shop: Running, fake: type[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop.service.exports.places, "per_caller", exports.MAX_EXPORTS)  # there are no keys
    fake.gate.clear()
    fake.chunks = [b"one\n", b"two\n"]
    before, answers = metric(shop, "alphafair_exports_refused_total"), list[str]()
    clients = [
        threading.Thread(target=lambda: answers.append(httpx.get(shop.url + LOG, timeout=30.0).text))
        for _ in range(exports.MAX_EXPORTS)
    ]
    for client in clients:
        client.start()
    wait_for(lambda: metric(shop, "alphafair_exports") == exports.MAX_EXPORTS)
    refused = shop.http.get(LOG)
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "exports_busy"
    assert int(refused.headers["retry-after"]) == exports.RETRY_AFTER
    assert metric(shop, "alphafair_exports_refused_total") == before + 1
    assert shop.post("/home/decisions", {"context": "v"}).status_code == 200  # nobody else notices
    fake.gate.set()
    for client in clients:
        client.join()
    assert answers == ["one\ntwo\n"] * exports.MAX_EXPORTS
    wait_for(lambda: metric(shop, "alphafair_exports") == 0)
    assert len(fake.made) == exports.MAX_EXPORTS
    wait_for(lambda: all(process.closed for process in fake.made))
    assert shop.http.get(LOG).status_code == 200


def test_a_client_that_does_not_read_loses_its_export(tmp_path: Path, fake: type[FakeProcess]) -> None:
    fake.chunks = [bytes(1 << 18)] * 1_000  # more than any buffer takes
    with running(tmp_path / "shop.db", limits=Limits(timeouts=Timeouts(answer=0.5))) as shop, socket.socket() as slow:
        shop.post("", {"name": "home", "arms": ARMS})
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.connect(("127.0.0.1", shop.port))
        slow.sendall(f"GET {LOG} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_for(lambda: fake.made and fake.made[0].closed)
        assert fake.made[0].killed
        assert metric(shop, "alphafair_exports") == 0
        slow.settimeout(30.0)
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while more := slow.recv(1 << 20):
                received = received[-10:] + more
        assert not received.endswith(b"0\r\n\r\n"), "the end of an answer that has none"


def test_a_stalled_export_process_is_killed(
    shop: Running, fake: type[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "STALLED", 0.2)
    before = metric(shop, "alphafair_exports_cut_total")
    fake.gate.clear()
    fake.chunks = [ChildFailed("it was ended")]
    answer = list[httpx.Response]()
    client = threading.Thread(target=lambda: answer.append(httpx.get(shop.url + LOG, timeout=30.0)))
    client.start()
    wait_for(lambda: fake.made and fake.made[0].killed)
    assert metric(shop, "alphafair_exports") == 0
    assert metric(shop, "alphafair_exports_cut_total") == before + 1
    fake.gate.set()  # as the end of a killed process would
    client.join()
    assert answer[0].status_code == 503


def test_a_slow_reader_gets_the_whole_export(shop: Running, fake: type[FakeProcess]) -> None:
    fake.chunks = [bytes(1 << 16)] * 40
    with httpx.stream("GET", shop.url + LOG, timeout=30.0) as answer:
        n_bytes = 0
        for chunk in answer.iter_raw(1 << 18):
            n_bytes += len(chunk)
            time.sleep(0.02)
    assert n_bytes == 40 << 16


def test_an_export_in_progress_is_not_aborted(
    shop: Running, fake: type[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "NOT_STARTED", 0.3)

    class Slow(fake):  # type: ignore[misc, valid-type]
        def read(self, n: int) -> bytes:
            time.sleep(0.2)
            found: bytes = super().read(n)
            return found

    monkeypatch.setattr(exports.Child, "start", Slow)
    fake.chunks = [b"one"] * 5
    assert shop.http.get(LOG).text == "one" * 5


def test_one_key_has_one_export_and_admins_have_a_place(fake: type[FakeProcess], tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    tokens = {name: keys.create(path, "log", name) for name in ("one", "other", "third")}
    tokens["admin"] = keys.create(path, "admin", "admin")
    with running(path) as shop, contextlib.ExitStack() as stack:
        shop.engine.create("home", arms=ARMS)
        fake.chunks = [b"one\n"] * 100_000

        def begun(name: str) -> int:
            options: Any = {"headers": {"authorization": f"Bearer {tokens[name]}"}, "timeout": 30.0}
            return stack.enter_context(httpx.stream("GET", shop.url + LOG, **options)).status_code

        assert [begun(name) for name in ("one", "one", "other", "third")] == [200, 503, 200, 503]
        assert begun("admin") == 200
        assert len(shop.service.exports.running) == exports.MAX_EXPORTS + 1
        stack.close()
        wait_for(lambda: not shop.service.exports.running)
        assert shop.service.exports.places.n_held == 0
        assert begun("one") == 200


def test_an_export_has_a_time_limit(shop: Running, fake: type[FakeProcess], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "LONGEST", 0.5)
    fake.chunks = [b"x"] * 100_000_000
    with pytest.raises(httpx.TransportError), httpx.stream("GET", shop.url + LOG, timeout=30.0) as answer:
        for _ in answer.iter_raw():
            pass
    wait_for(lambda: metric(shop, "alphafair_exports") == 0)


def test_disconnecting_frees_the_place_of_an_export(shop: Running, fake: type[FakeProcess]) -> None:
    fake.chunks = [bytes(1 << 18)] * 1_000
    for _ in range(exports.MAX_EXPORTS + 1):
        with httpx.stream("GET", shop.url + LOG, timeout=30.0) as answer:
            assert answer.status_code == 200
        wait_for(lambda: metric(shop, "alphafair_exports") == 0)
    wait_for(lambda: all(process.closed for process in fake.made))


def test_disconnecting_before_the_first_bytes_frees_the_place(shop: Running, fake: type[FakeProcess]) -> None:
    fake.gate.clear()
    fake.chunks = [b"one"] * 3
    with socket.create_connection(("127.0.0.1", shop.port)) as client:
        client.sendall(f"GET {LOG} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_for(lambda: fake.made)
    fake.gate.set()
    wait_for(lambda: fake.made[0].closed and metric(shop, "alphafair_exports") == 0)


def test_a_failed_response_frees_the_place_of_its_export(
    shop: Running, fake: type[FakeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.chunks = [b"one"] * 3
    monkeypatch.setattr(handlers, "_attachment", lambda name, format: "\u65e5")  # no header can be that
    monkeypatch.setattr(exports, "NOT_STARTED", 0.1)
    for _ in range(exports.MAX_EXPORTS + 1):
        assert shop.http.get(LOG).status_code == 500
        wait_for(lambda: fake.made[-1].closed and metric(shop, "alphafair_exports") == 0)


@pytest.mark.parametrize("name", ["\u65e5\u672c", 'a"; b', "\u00e9t\u00e9"])
def test_logs_of_experiments_with_any_name_can_be_saved(shop: Running, fake: type[FakeProcess], name: str) -> None:
    """Experiments that Python makes may be called anything."""
    fake.chunks = [b"one"]
    shop.engine.create(name, arms=ARMS, policy="uniform", feedback="bandit")
    answer = shop.http.get(f"/v1/experiments/{quote(name)}/log?format=csv")
    assert (answer.status_code, answer.text) == (200, "one")
    disposition = answer.headers["content-disposition"]
    assert disposition.isascii()
    plain, also = re.fullmatch(r"attachment; filename=\"([\w.-]+)\"; filename\*=UTF-8''(\S+)", disposition).groups()
    assert plain.endswith(".csv")
    assert unquote(also) == f"{name}.csv"


def test_a_failed_export_is_an_error_or_an_aborted_connection(shop: Running, fake: type[FakeProcess]) -> None:
    fake.chunks = [ChildFailed("the disk is gone")]
    answer = shop.http.get(LOG)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert "the disk is gone" in answer.json()["error"]["message"]
    fake.chunks = [b"half of", ChildFailed("the disk is gone")]
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(shop.url + LOG, timeout=30.0)
    wait_for(lambda: metric(shop, "alphafair_exports") == 0)


# the real process


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_a_streamed_export_equals_the_engines_file(shop: Running, tmp_path: Path, format: str) -> None:
    path = tmp_path / f"home.{format}"
    n_rows = shop.engine.export("home", path)
    answer = shop.http.get(LOG, params={"format": format})
    if format == "parquet":
        streamed = pl.read_parquet(io.BytesIO(answer.content))
        assert streamed.equals(pl.read_parquet(path))
        assert len(streamed) == n_rows
    else:
        assert answer.content == path.read_bytes()


def test_a_failed_export_process_gives_its_reason(tmp_path: Path) -> None:
    job = exports.ExportJob(str(tmp_path / "nowhere.db"), "home", 1, False, 1, "csv")
    process = Child.start("export", json.dumps(job).encode())
    with pytest.raises(ChildFailed, match="must be an existing file"):
        process.read(1)
    process.close()
    with pytest.raises(ChildFailed, match="was ended"):
        process.read(1)


def test_an_export_needs_no_kernels() -> None:
    script = "import sys, alphafair.jobs, alphafair.engine.export; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# the engine's part: how much is read at once, and when


@sqlite_only("checkpoints the file")
def test_pages_are_short_and_no_read_transaction_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However slowly a file is taken: the write-ahead log can be moved into the main file meanwhile."""
    monkeypatch.setattr(export, "PAGE_ROWS", 7)
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=ARMS)
        fill(engine)
        sizes = []
        for page in export.pages(engine._store, live_state(engine, "home").experiments["home"], engine.position, "csv"):
            sizes.append(len(page))
            engine.decide("home", "v0")
            assert engine._store._checkpoint(), "somebody reads"
        assert (max(sizes), sum(sizes)) == (7, N_DECISIONS)


def test_an_export_is_a_consistent_snapshot(tmp_path: Path) -> None:
    """That in which it was asked for: what comes while it is written is not half in it."""
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=ARMS)
        fill(engine)
        job = Reports(engine.writers).export_job("home", "jsonl")
        engine.submit([Reward(f"id-{k}", 0.25) for k in range(N_DECISIONS // 2, N_DECISIONS)])
        engine.decide("home", "later")
        engine.add_arm("home", "dan")
        target = io.BytesIO()
        type(job)(*json.loads(json.dumps(job))).run(target)
        rows = [json.loads(line) for line in target.getvalue().splitlines()]
        assert [row["id"] for row in rows] == [f"id-{k}" for k in range(N_DECISIONS)]
        half = N_DECISIONS // 2
        assert [row["reward"] for row in rows] == [0.5] * half + [None] * half
        assert all(row["available"] is None for row in rows)


def test_a_misspelt_query_parameter_is_rejected(shop: Running) -> None:
    answer = shop.http.get("/v1/experiments/home/log?fromat=csv")
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("The query has no parameter 'fromat'; it has format")
