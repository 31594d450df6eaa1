"""`alphafair serve` as a process: how it starts, what it refuses, what it logs, how it ends."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from alphafair import POLICIES, Client, ServiceError
from alphafair.engine import Engine
from alphafair.service import keys
from alphafair.service.server import GRACE
from tests.serving import ARMS, listens, wait_for, wait_until_ready
from tests.stores import address_of, both_stores, sqlite_only

pytestmark = [pytest.mark.compiled, both_stores]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Process:
    """A service, and the lines that it logs."""

    def __init__(self, *arguments: str, open_files: int | None = None, **environment: str) -> None:
        command = [sys.executable, "-m", "alphafair", "serve", *arguments]
        if open_files is not None:
            command = ["sh", "-c", f'ulimit -n {open_files} && exec "$@"', "sh", *command]
        self.popen = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        with self.popen.stderr as lines:
            self.lines.extend(lines)

    def wait_until_ready(self, http: httpx.Client, where: Path | tuple[str, int]) -> None:
        wait_for(lambda: self.popen.poll() is not None or listens(where))
        assert self.popen.poll() is None, self.lines
        wait_until_ready(http)

    def end(self, how: int = signal.SIGTERM) -> int:
        self.popen.send_signal(how)
        code = self.popen.wait(60)
        self._reader.join()
        return code


@contextmanager
def serving(
    path: Path, *arguments: str, open_files: int | None = None, **environment: str
) -> Iterator[tuple[Process, str]]:
    port = free_port()
    process = Process(
        "--db", str(address_of(path)), "--port", str(port), *arguments, open_files=open_files, **environment
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as http:
            process.wait_until_ready(http, ("127.0.0.1", port))
        yield process, f"http://127.0.0.1:{port}"
    finally:
        if process.popen.poll() is None:
            process.end(signal.SIGKILL)


def refused(*arguments: str) -> str:
    command = [sys.executable, "-m", "alphafair", "serve", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert answer.returncode in (1, 2, 3), answer.stderr
    assert "Traceback" not in answer.stderr
    return answer.stderr


def test_any_other_address_needs_keys(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    for host in ("0.0.0.0", "::", "192.0.2.1", "shop.example"):
        said = refused("--db", str(address_of(path)), "--host", host)
        assert "--host must be" in said
        assert "alphafair keys create" in said
    key = keys.create(path, "read", "gone")
    keys.revoke(path, key.split("_")[1])
    assert "--host must be" in refused("--db", str(address_of(path)), "--host", "0.0.0.0")


@sqlite_only("is about the lock of the file")
def test_a_second_writer_gets_the_process_id_of_the_first(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db"):
        assert f"process {os.getpid()}" in refused("--db", str(address_of(tmp_path / "shop.db")))


@sqlite_only("is about files that are no databases of ours")
def test_a_file_that_is_not_a_ledger_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("buy milk\n" * 100)
    assert "error: " in refused("--db", str(tmp_path / "notes.txt"))
    assert (tmp_path / "notes.txt").read_text() == "buy milk\n" * 100


def test_a_socket_in_a_missing_directory_is_rejected(tmp_path: Path) -> None:
    where = tmp_path / "nowhere" / "shop.sock"
    assert "--unix-socket must be" in refused(
        "--db", str(address_of(tmp_path / "shop.db")), "--unix-socket", str(where)
    )


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        said = refused("--db", str(address_of(tmp_path / "shop.db")), "--port", str(taken.getsockname()[1]))
    assert "address already in use" in said
    Engine.open(tmp_path / "shop.db").close()  # and the file was let go


def test_logs_are_lines_of_json_with_request_ids_and_without_secrets(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    key = keys.create(path, "admin", "you")
    headers = {"authorization": f"Bearer {key}", "x-request-id": "trace-1"}
    with serving(path, "--log-requests") as (process, url), httpx.Client(base_url=url, headers=headers) as http:
        assert http.post("/v1/experiments", json={"name": "home", "arms": ARMS}).status_code == 201
        assert http.post("/v1/experiments/home/decisions", json={"context": "somebody"}).status_code == 200
        assert http.get(f"/v1/experiments?key={key}").status_code == 200
        assert http.get("/nope", headers={"x-request-id": "trace-2"}).status_code == 404
        assert http.get("/v1/experiments", headers={"authorization": f"Bearer {key}x"}).status_code == 401
        assert process.end() == 0
    entries: list[dict[str, Any]] = [json.loads(line) for line in process.lines]
    assert all({"time", "level", "message"} <= set(entry) for entry in entries)
    requests = {(entry["request_id"], entry["path"], entry["status"]) for entry in entries if "status" in entry}
    assert ("trace-1", "/v1/experiments/home/decisions", 200) in requests
    assert ("trace-2", "/nope", 404) in requests
    text = "".join(process.lines)
    assert key.split("_", 2)[2] not in text
    assert "somebody" not in text


def test_accepted_requests_are_answered_and_kept_at_shutdown(tmp_path: Path) -> None:
    """Eight clients send as fast as they can while the service is told to stop: each answer they got is in the log."""
    path = tmp_path / "shop.db"
    answered: list[tuple[str, str]] = []
    with serving(path) as (process, url):
        with Client(url) as client:
            client.create("home", arms=ARMS)

        def visit(k: int) -> None:
            with Client(url, retries=0) as client:
                for n in range(100_000):
                    try:
                        drawn = client.decide("home", f"visitor-{k}", id=f"{k}-{n}")
                        answered.append((drawn.id, drawn.arm))
                        client.reward(drawn.id, 1.0, experiment="home")
                    except (ConnectionError, ServiceError):
                        return

        threads = [threading.Thread(target=visit, args=(k,)) for k in range(8)]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(answered) >= 100)
        assert process.end() == 0
        for thread in threads:
            thread.join()
    assert not [line for line in process.lines if '"level": "error"' in line]
    with Engine.open(path) as engine:
        for id, arm in answered:
            assert engine.decide("home", f"visitor-{id.split('-')[0]}", id=id).arm == arm
        engine.verify()


def test_an_incomplete_request_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    half = b"POST /v1/experiments/home/decisions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 15\r\n\r\n{"
    with serving(tmp_path / "shop.db") as (process, url):
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as line:
            line.sendall(half)
            time.sleep(0.1)
            process.popen.terminate()
            assert process.popen.wait(GRACE / 2) == 0
        process.end()
    assert not [line for line in process.lines if '"level": "error"' in line]


def test_with_the_jit_off_every_policy_is_served(tmp_path: Path) -> None:
    """Kernels then return NumPy's numbers, which JSON does not know; and the file is the same, to the last bit."""
    path = tmp_path / "shop.db"
    with Engine.open(path) as engine:
        for policy in POLICIES.values():
            for variant, settings in policy.traits.variants(1, len(ARMS)).items():
                engine.create(f"{policy.name}-{variant}", arms=ARMS, policy=policy.name, **settings)
    with serving(path, NUMBA_DISABLE_JIT="1") as (process, url), Client(url) as client:
        client.create("home", arms=ARMS)
        for name in client.experiments():
            full = client.experiment(name).feedback == "full"
            ids = [client.decide(name, "v").id]
            ids += [client.decide(name, "v", available=ARMS[1:]).id]
            ids += [decision.id for decision in client.decide_many(name, ["v", "w"])]
            for id in ids:
                reward = dict.fromkeys(ARMS, 0.5) if full else 0.5
                assert client.reward(id, reward, experiment=name).outcome == "applied"
            answer = httpx.patch(f"{url}/v1/experiments/{name}", json={"retire_arm": ARMS[0]})
            assert answer.status_code == 200
            assert client.decide(name, "v").arm in ARMS[1:]
            assert client.experiment(name).decisions == 5
        assert httpx.get(f"{url}/metrics").status_code == 200
        assert process.end() == 0
    assert not [line for line in process.lines if '"level": "error"' in line]
    with Engine.open(path) as engine:
        engine.verify()  # compiled


def test_on_a_unix_socket(tmp_path: Path) -> None:
    where = tmp_path / "shop.sock"
    process = Process("--db", str(address_of(tmp_path / "shop.db")), "--unix-socket", str(where))
    try:
        with httpx.Client(base_url="http://localhost", transport=httpx.HTTPTransport(uds=str(where))) as http:
            process.wait_until_ready(http, where)
        with Client("http://localhost", unix_socket=where) as client:
            client.create("home", arms=ARMS)
            assert client.decide("home", "visitor-7").arm in ARMS
        assert process.end() == 0
    finally:
        if process.popen.poll() is None:
            process.end(signal.SIGKILL)


def test_waiting_for_a_unix_socket_leaves_none_open(tmp_path: Path) -> None:
    """Its file is there before anybody listens."""
    where = tmp_path / "shop.sock"
    assert not listens(where)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(where))
        assert not listens(where)
        gc.collect()  # a socket that was left open is a warning, which is an error
        server.listen()
        assert listens(where)


# limits


def test_connections_leave_files_for_the_database(tmp_path: Path) -> None:
    """With far more connections than files: decisions are made, keys are read, exports are written."""
    path = tmp_path / "shop.db"
    with serving(path, "--idle-timeout", "60", "--head-timeout", "60", open_files=160) as (process, url):
        host, port = url.removeprefix("http://").split(":")
        held: list[socket.socket] = []
        with Client(url) as client, httpx.Client(base_url=url, timeout=30.0) as http:
            client.create("home", arms=ARMS)
            for _ in range(5):
                held += [socket.create_connection((host, int(port)), timeout=30.0) for _ in range(100)]
                time.sleep(0.3)
            for k in range(50):
                drawn = client.decide("home", f"visitor-{k}", timeout=30.0)
                assert client.reward(drawn.id, 1.0, experiment="home", timeout=30.0).outcome == "applied"
            assert http.get("/ready").json()["ready"] is True
            assert http.get("/v1/experiments/home/log?format=parquet").status_code == 200
            metrics = http.get("/metrics").text
            key = keys.create(path, "read", "you")
            wait_for(lambda: http.get("/v1/experiments").status_code, lambda status: status == 401)
            assert http.get("/v1/experiments", headers={"authorization": f"Bearer {key}"}).status_code == 200
        for each in held:
            each.close()
        assert process.end() == 0
    n_files = next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith("process_open_fds"))
    assert n_files < 160
    text = "".join(process.lines)
    assert "Too many open files" not in text
    assert "Traceback" not in text


def test_more_connections_than_files_are_rejected(tmp_path: Path) -> None:
    process = Process("--db", str(address_of(tmp_path / "shop.db")), "--max-connections", "100", open_files=160)
    assert process.popen.wait(60) == 2
    process._reader.join()
    said = " ".join("".join(process.lines).split())
    assert "--max-connections must be at most 64: 160 files may be open" in said
