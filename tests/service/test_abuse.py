"""A service under attack, as a process of its own, while neighbors use it.

They are served in time, readiness is true, nothing that was acknowledged is lost, and the process grows by little. What
each limit does by itself is in `test_service_limits`, `test_service_access` and `test_keys`; here they hold together.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import polars as pl
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from alphafair.cli import app as program
from alphafair.engine import Engine
from alphafair.service import keys
from alphafair.service.keys import ROLES
from alphafair.service.routes import ENDPOINTS
from alphafair_client import api
from tests.service.test_process import Process, serving
from tests.serving import wait_for, wait_until_ready

pytestmark = pytest.mark.compiled

LONGEST_WAIT = 1.0  # seconds, of 99 in 100 requests on a busy machine; the attacks would hold them up for longer
ARMS = ["ada", "ben", "cyd"]
PIECE = b"y" * 65536
LIMITS = ("--head-timeout", "2", "--body-timeout", "2", "--answer-timeout", "2", "--idle-timeout", "2")


class Shop:
    """A service with keys and an experiment, and who uses and misuses it."""

    def __init__(self, path: Path, process: Process, url: str, tokens: dict[str, str]) -> None:
        self.path, self.process, self.url, self.tokens = path, process, url, tokens
        self.port = int(url.rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10.0)

    def http(self, role: str = "admin", **headers: str) -> httpx.Client:
        headers = {"authorization": f"Bearer {self.tokens[role]}", **headers}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30.0)

    @property
    def memory(self) -> int:
        """Bytes that the process holds."""
        return int(Path(f"/proc/{self.process.popen.pid}/statm").read_text().split()[1]) * resource.getpagesize()

    @property
    def n_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.popen.pid}/fd").iterdir()))

    @contextmanager
    def neighbors(self) -> Iterator[dict[str, Any]]:
        """People who decide and reward meanwhile; what they saw is filled in at the end."""
        command = [sys.executable, "-m", "tests.neighbors", self.url, self.tokens["write"], "home"]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as popen:
            report: dict[str, Any] = {}
            try:
                time.sleep(0.5)
                yield report
            finally:
                output, _ = popen.communicate(timeout=60)
        report |= json.loads(output)

    def check(self, report: dict[str, Any]) -> None:
        """What neighbors were promised."""
        assert report["failures"] == []
        assert report["requests"] > 10, report["requests"]  # a busy machine answers few
        assert report["p99"] < LONGEST_WAIT + report["oversleep"], (
            report["p99"],
            report["longest"],
            report["oversleep"],
        )
        assert set(report["readiness"]) == {200}
        with sqlite3.connect(f"file:{self.path}?mode=ro", uri=True) as file:
            decided = {id for (id,) in file.execute("select id from decision")}
            rewarded = {
                id for (id,) in file.execute("select d.id from reward r join decision d on d.event = r.decision")
            }
        file.close()
        assert {*report["decided"]} <= decided
        assert {*report["rewarded"]} <= rewarded


@contextmanager
def shop_at(path: Path, *arguments: str) -> Iterator[Shop]:
    with Engine.open(path, seed=0) as engine:
        engine.create("home", arms=ARMS, policy="alpha-fair-bandit")
    tokens = {role: keys.create(path, role, f"the {role}er") for role in ROLES}
    with serving(path, *LIMITS, *arguments) as (process, url):
        yield Shop(path, process, url, tokens)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    path = tmp_path_factory.mktemp("abuse") / "shop.db"
    with shop_at(path, "--max-connections", "300") as found:
        yield found
        assert found.process.popen.poll() is None, found.process.lines[-5:]
        assert found.process.end() == 0
    with Engine.open(path, read_only=True) as engine:
        engine.verify()


def repeated(seconds: float, attack: Callable[[], object], n_threads: int = 4) -> int:
    """Attack again and again from some threads; how often."""
    until, count = time.monotonic() + seconds, itertools.count()

    def attacker() -> None:
        while time.monotonic() < until:
            next(count)
            try:
                attack()
            except OSError:  # cut off, as it should be
                time.sleep(0.01)

    threads = [threading.Thread(target=attacker) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next(count)


def flood(shop: Shop, first: bytes, piece: bytes = PIECE, most: int = 100_000_000) -> int:
    """Send something that never ends until it is cut; how many bytes were taken."""
    with shop.connect() as connection:
        sent = len(first)
        try:
            connection.sendall(first)
            while sent < most:
                sent += connection.send(piece)
        except OSError:
            return sent
    return sent


def in_buffers() -> int:
    """How many bytes of a connection the system may keep between a sender and a reader."""
    largest = [int(Path(f"/proc/sys/net/ipv4/{name}").read_text().split()[-1]) for name in ("tcp_wmem", "tcp_rmem")]
    return sum(largest) + len(PIECE)


POST = b"POST /v1/experiments/home/decisions HTTP/1.1\r\nHost: localhost\r\n"
ENDLESS = {
    "address": (b"GET /", PIECE),
    "header name": (POST + b"X-", PIECE),
    "header value": (POST + b"X-A: ", PIECE),
    "headers": (POST, b"X-A: b\r\n" * 8192),
    "chunk extension": (POST + b"Transfer-Encoding: chunked\r\n\r\n1;", PIECE),
    "trailer": (POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-A: ", PIECE),
    "chunks": (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + PIECE + b"\r\n"),
    "requests": (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1024),
    "nonsense": (b"", bytes(range(256)) * 256),
}


def test_endless_requests_do_not_affect_others(shop: Shop) -> None:
    memory, files = shop.memory, shop.n_files
    taken: dict[str, int] = dict.fromkeys(ENDLESS, 0)
    kinds = itertools.cycle(ENDLESS)

    def attack() -> None:
        name = next(kinds)
        taken[name] = max(taken[name], flood(shop, *ENDLESS[name]))

    with shop.neighbors() as report:
        assert repeated(6.0, attack) > len(ENDLESS)
    shop.check(report)
    taken.pop("requests")  # each of which is complete, and unread answers are another test
    most = 4 << 20  # that are read and dropped behind a refusal
    assert max(taken.values()) <= most + in_buffers(), taken
    assert shop.memory < memory + (64 << 20)
    wait_for(lambda: shop.n_files <= files + 8)


def test_slow_and_silent_clients_are_closed(shop: Shop) -> None:
    """Whatever part of a request they are slow in, and if they read no answers; none of them has a key."""
    starts = {
        "nothing": b"",
        "a part of the head": b"POST /v1/experi",
        "a part of the body": POST + b"Content-Length: 1000\r\n\r\n{",
        "chunks": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\n",
        "answers not read": b"GET /docs HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500,
    }
    files = shop.n_files
    with shop.neighbors() as report, ExitStack() as stack:
        slow = [(stack.enter_context(shop.connect()), start) for start in starts.values() for _ in range(40)]
        for connection, start in slow:
            connection.settimeout(0.0)
            with suppress(OSError):
                connection.send(start)
        for _ in range(12):  # a byte now and then helps nobody
            time.sleep(0.5)
            for connection, start in slow:
                if start and not start.startswith(b"GET"):
                    with suppress(OSError):
                        connection.send(b"1")
        wait_for(lambda: shop.n_files <= files + 12)
    shop.check(report)


def test_thousands_of_connections_do_not_affect_others(shop: Shop) -> None:
    """Ten times as many as the service takes at once, opened and kept as long as it lets them."""
    files = shop.n_files
    with shop.neighbors() as report, ExitStack() as stack:
        refused = 0
        for _ in range(3000):
            try:
                connection = stack.enter_context(shop.connect())
                connection.settimeout(0.0)
            except OSError:
                refused += 1
        time.sleep(1.0)
        assert shop.n_files <= files + 400
    shop.check(report)
    wait_for(lambda: shop.n_files <= files + 8)


def test_wrong_keys_and_rejected_requests_are_cheap(shop: Shop) -> None:
    lines = len(shop.process.lines)

    def attack() -> None:
        with shop.connect() as connection:
            head = b"POST /v1/experiments HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer af_0_%d\r\n"
            for n in range(50):
                connection.sendall(head % n + b"Content-Length: 2\r\n\r\n{}")
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass

    with shop.neighbors() as report:
        started = time.monotonic()
        count = 50 * repeated(4.0, attack, n_threads=2)
        seconds = time.monotonic() - started
    shop.check(report)
    written = len(shop.process.lines) - lines
    assert count > 500
    assert written < 50 * (seconds + 2.0), f"{written} lines for {count} refused requests"
    for line in shop.process.lines[lines:]:
        assert "af_0_" not in line
        json.loads(line)


# every endpoint, role and credential


def credentials(shop: Shop, http: httpx.Client) -> dict[str, str | None]:
    """What can be sent as a key, and the role that it gives, once the service has read the keys."""

    def answered(token: str, status: int) -> None:
        headers = {"authorization": f"Bearer {token}"}
        wait_for(lambda: http.get("/v1/experiments", headers=headers).status_code, lambda found: found == status)

    expired = keys.create(shop.path, "admin", "expired", expires_in=1.0)
    revoked = keys.create(shop.path, "admin", "revoked")
    keys.revoke(shop.path, revoked.split("_")[1])
    elsewhere = keys.create(shop.path, "admin", "elsewhere", experiments=["elsewhere"])
    answered(elsewhere, 200)
    answered(expired, 401)
    good = {f"Bearer {token}": role for role, token in shop.tokens.items()}
    wrong = [
        *("Bearer", "Bearer nonsense", "Basic YTpi", f"Basic {shop.tokens['admin']}", shop.tokens["admin"]),
        *(f"Bearer {expired}", f"Bearer {revoked}", f"Bearer {shop.tokens['admin']} {shop.tokens['admin']}"),
        *(f"Bearer {shop.tokens['admin'][:-1]}", f"Bearer {shop.tokens['admin']}\u00e4", "Bearer " + "a" * 10_000),
    ]
    return {**good, **dict.fromkeys(wrong), f"Bearer {elsewhere}": "elsewhere"}


RANKS: dict[str | None, set[str | None]] = {  # who may what, written down once more
    "metrics": {None, "metrics"},
    "read": {None, "metrics", "read"},
    "write": {None, "metrics", "read", "write"},
    "log": {None, "metrics", "read", "log"},
    "admin": {None, "metrics", "read", "write", "log", "admin"},
    None: {None},
}


def test_every_route_with_every_credential(shop: Shop) -> None:
    """All that is sent is empty or wrong, so that nothing changes where the key is good."""
    with httpx.Client(base_url=shop.url, timeout=30.0) as http:
        tried = credentials(shop, http)
        for (header, role), endpoint in itertools.product(tried.items(), ENDPOINTS):
            if role == "admin" and endpoint is api.ROTATE_KEY:
                continue
            if endpoint.answer == "text/event-stream":  # it does not end: see tests/page/test_page.py
                continue
            path = endpoint.path.replace("{name}", "home").replace("{id}", "0badc0de").replace("{file...}", "style.css")
            answer = http.request(endpoint.method, path, headers={"authorization": header.encode()}, content=b"[")
            told = (header[:30], endpoint.method, path, answer.status_code, answer.text[:200])
            if role == "elsewhere":
                named = endpoint.path.startswith("/v1/experiments/{name}") or endpoint.path.startswith("/v1/keys")
                assert not named or answer.status_code in (400, 403, 404, 413, 415, 422), told
                continue
            if endpoint.role in RANKS[role]:
                assert answer.status_code not in (401, 403), told
            else:
                assert answer.status_code == (403 if role else 303 if endpoint.view else 401), told
            assert answer.status_code < 500, told
            assert not any(token in answer.text for token in shop.tokens.values()), told


# hostile labels


LABELS = [
    "<script>alert(1)</script>",
    "</pre><img src=x onerror=alert(1)>",
    "'; drop table decision; --",
    '" or 1=1 --',
    "=cmd|'/c calc'!A1",
    "@SUM(A1:A9)",
    "{{7*7}}${7*7}%s%n",
    "../../etc/passwd",
    'a"} 1\nevil_metric{b="c',
    "line\u2028separator \u202egnp.exe",
    "\\x1b[31mred",
    "nul\u0000byte",
    "a" * 200,
    "\U0001f4a9" * 50,
    "%2e%2e%2f",
]


def test_hostile_labels_are_escaped_everywhere(shop: Shop, tmp_path: Path) -> None:
    with shop.http() as http:
        taken = [label for label in LABELS if _taken(http, label)]
        assert len(taken) >= 11
        assert not any(re.search(r"[\x00-\x1f]", label) for label in taken)
        for context, arm in itertools.product(taken, taken):
            answer = http.post("/v1/experiments/odd/decisions", json={"context": context, "available": [arm]})
            assert answer.json()["arm"] == arm
            assert http.post("/v1/experiments/odd/rewards", json={"id": answer.json()["id"], "reward": 1.0}).is_success
        assert {*http.get("/v1/experiments/odd").json()["arms"]} >= {*taken}
        metrics = http.get("/metrics").text
        names = {family.name for family in text_string_to_metric_families(metrics)}
        assert all(name.startswith(("alphafair_", "process_")) for name in names), names
        assert "<script" not in metrics
        for page in ("/docs", "/openapi.json"):
            assert "<script>alert" not in http.get(page).text
        answer = http.get("/v1/experiments/<script>alert(1)</script>")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        csv_text = http.get("/v1/experiments/odd/log", params={"format": "csv"}).text
        lines = [*csv.DictReader(io.StringIO(csv_text))]
        assert len(lines) == len(taken) ** 2
        assert not any(cell.startswith(("=", "+", "-", "@")) for line in lines for cell in line.values())
        rows = pl.read_ndjson(io.BytesIO(http.get("/v1/experiments/odd/log", params={"format": "jsonl"}).content))
        assert {*rows["context"]} == {*rows["arm"]} == {*taken}
        assert http.delete("/v1/experiments/odd/contexts", params={"label": taken[0]}).is_success
    for line in shop.process.lines:
        json.loads(line)
    history = CliRunner().invoke(program, ["history", str(shop.path), "--experiment", "odd"])
    assert history.exit_code == 0, history.output
    assert "\x1b" not in history.output


def _taken(http: httpx.Client, label: str) -> bool:
    """Whether a label is taken as an arm; what is not is refused in one way."""
    first = http.get("/v1/experiments/odd").status_code == 404
    if first:
        answer = http.post("/v1/experiments", json={"name": "odd", "arms": [label], "policy": "alpha-fair-bandit"})
    else:
        answer = http.patch("/v1/experiments/odd", json={"add_arm": label})
    assert answer.status_code in (200, 201, 400, 422), answer.text
    if not answer.is_success:
        assert re.search(r"[\x00-\x1f\u2028]", label) or "unknown" in answer.text, answer.text
    return answer.is_success


# little of everything


def test_with_few_file_descriptors_it_serves_and_recovers(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop.db") as shop:
        resource.prlimit(shop.process.popen.pid, resource.RLIMIT_NOFILE, (64, 64))
        with shop.neighbors() as report, ExitStack() as stack:
            for _ in range(200):
                try:
                    stack.enter_context(shop.connect())
                except OSError:
                    break
            time.sleep(3.0)
        assert shop.process.popen.poll() is None
        with shop.http() as http:
            wait_until_ready(http)
            assert http.post("/v1/experiments/home/decisions", json={"context": "afterwards"}).is_success
        assert {*report["decided"]} <= ids(shop.path)
        for line in shop.process.lines:
            assert "Traceback" not in line


def flood_of_contexts(http: httpx.Client, n_batches: int) -> set[int | str]:
    """New contexts in a wide experiment, whose policy keeps numbers for each arm in each; how batches were answered."""
    if http.get("/v1/experiments/wide").status_code == 404:
        arms = [f"arm-{n}" for n in range(1000)]
        assert http.post("/v1/experiments", json={"name": "wide", "arms": arms}).is_success
    statuses = set[int | str]()
    for batch in range(n_batches):
        items = [{"context": f"v-{batch}-{n}"} for n in range(250)]
        answer = http.post("/v1/experiments/wide/decisions/batch", json={"items": items})
        statuses.add(answer.status_code)
        if answer.is_success:
            statuses |= {item["error"]["code"] for item in answer.json()["items"] if "error" in item}
    return statuses


def test_too_many_contexts_are_rejected_and_others_are_served(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop.db", "--max-contexts", "300") as shop, shop.http() as http:
        before = shop.memory
        with shop.neighbors() as report:
            assert flood_of_contexts(http, 12) == {200, "too_many_contexts"}
        shop.check(report)
        assert http.get("/v1/experiments/wide").json()["contexts"] == 300
        assert shop.memory < before + (256 << 20)


@pytest.mark.xfail(
    reason="at the very limit small pieces of memory fail too: a connection may be dropped, or not answered in time",
    strict=False,
)
def test_without_memory_it_answers_503_and_loses_nothing(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop.db", "--max-contexts", "1000000") as shop, shop.http() as http:
        pid = shop.process.popen.pid
        in_use = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (in_use + (300 << 20), resource.RLIM_INFINITY))
        with shop.neighbors() as report:
            answered = flood_of_contexts(http, 24)
        assert answered <= {200, 503, "policy_failed"}, answered
        assert answered > {200}
        metrics = http.get("/metrics").text
        if 503 not in answered:  # after that all experiments are loaded anew, and one that failed is tried again
            assert ('alphafair_unhealthy{experiment="wide"} 1.0' in metrics) == ("policy_failed" in answered)
        assert {*report["decided"]} <= ids(shop.path)
        assert {*report["readiness"]} <= {200, 503}
        assert 503 in answered or (report["failures"], {*report["readiness"]}) == ([], {200})
        resource.prlimit(pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
        wait_until_ready(http)
        assert http.post("/v1/experiments/home/decisions", json={"context": "with memory"}).is_success
        assert shop.process.end() == 0
    with serving(shop.path), Engine.open(shop.path, read_only=True) as engine:
        assert engine.experiment("wide").unhealthy is None
        engine.verify()


def test_killed_while_it_is_attacked_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    with shop_at(tmp_path / "shop.db") as shop:
        names = itertools.cycle(ENDLESS)
        with shop.neighbors() as report:
            threading.Timer(3.0, lambda: shop.process.popen.send_signal(signal.SIGKILL)).start()
            repeated(4.0, lambda: flood(shop, *ENDLESS[next(names)], most=2_000_000))
        assert shop.process.popen.wait() == -signal.SIGKILL
        assert len(report["decided"]) > 3
    with serving(shop.path):
        assert {*report["decided"]} <= ids(shop.path)
    with Engine.open(shop.path, read_only=True) as engine:
        engine.verify()


def ids(path: Path) -> set[str]:
    file = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    found = {id for (id,) in file.execute("select id from decision")}
    file.close()
    return found
