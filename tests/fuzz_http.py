"""Send random and mutated bytes to a service: `python -m tests.fuzz_http --requests 1000000`.

Every connection pipelines many requests, valid, unusual and invalid ones, in pieces, and ends in one of several ways.
The service must answer each with a documented status, close every connection in time, and not grow: memory, files,
connections. `tests/service/test_fuzz_http.py` is a short run.
"""

from __future__ import annotations

import argparse
import errno
import random
import re
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STATUSES = {
    100,
    200,
    201,
    204,
    400,
    401,
    403,
    404,
    405,
    408,
    409,
    410,
    413,
    414,
    415,
    422,
    429,
    431,
    501,
    503,
    505,
}  # in docs/reference/errors.md
REQUESTS_PER_CONNECTION = 60
PATIENCE = 60.0  # seconds for a connection to be closed from the other side
PARTS = 10
LEFT = 6.0  # seconds in which connections that were left are closed
MOST_MORE_MEMORY, MOST_MORE_FILES = 64e6, 5  # bytes; and files of all kinds
_ANSWER = re.compile(rb"HTTP/1\.1 \d\d\d .*?(?=HTTP/1\.1 \d\d\d |\Z)", re.DOTALL)
_PATHS = [
    *("/health", "/ready", "/v1/experiments", "/v1/experiments/home", "/v1/experiments/nobody", "/nope", "/", "*"),
    *("/v1/experiments/home/history", "/v1/keys", "/openapi.json", "//", "/%2e%2e/", "/v1/experiments/%00", "/?a=b#c"),
    *(
        "/" + 40_000 * "y",
        "http://evil.example/health",
        "http://localhost",
        "ftp://localhost/health",
        "/experiments/%ff/live",
    ),
    *("http://localhost/health", "http://[::1]:80/ready", "localhost:80", "/v1/experiments/home/log?format=csv"),
    *("/v1/experiments/home/decisions", "/v1/experiments/home/rewards", "/v1/experiments/home/activations"),
    *("/v1/experiments/home/decisions/batch", "/v1/experiments/home/rewards/batch"),
    *("/v1/experiments/told/decisions", "/v1/experiments/told/decisions/batch", "/v1/experiments/told/rewards"),
    *("/v1/experiments/home/observations", "/v1/experiments/told/observations"),
]
POSTED = 7  # of these paths, the last
_METHODS = [
    "GET",
    "HEAD",
    "POST",
    "OPTIONS",
    "PUT",
    "PATCH",
    "TRACE",
    "CONNECT",
    "PRI",
    "QUERY",
    "M-SEARCH",
    "get",
    "",
    "X" * 30,
]
_BODIES = [  # no observation with features has a reward: kernels stay as they are
    *(b'{"context": "v", "id": "again"}', b'{"context": "v"}', b'{"id": "again", "reward": 0.5}', b'{"id": "again"}'),
    *(b'{"id": "again", "reward": 5e-324}', b'{"items": [{"id": "again", "reward": 1.2e-285}]}'),
    *(b'{"items": [{"context": "v"}, {"context": ""}, 3]}', b'{"items": [{"id": "again", "reward": 1e999}]}'),
    *(b"", b"{", b"null", b"[]", b"\xff", b"[" * 5000, b'{"context": "\\ud800"}', b'{"context": ' + b"1" * 5000 + b"}"),
    *(b'{"context": "v", "available": ["ada", "ada"]}', b'{"context": "v", "deferred": 1}', b"0" * 70_000),
    *(b'{"context": "v", "id": "slate", "k": 2}', b'{"context": "v", "k": 1e3}', b'{"context": "v", "k": -1}'),
    *(b'{"id": "slate", "reward": {"ada": 0.5}}', b'{"id": "slate", "reward": {"ada": 1e999, "": 0}}'),
    *(b'{"id": "slate", "reward": {}}', b'{"items": [{"context": "v", "k": 3}, {"context": "v", "k": null}]}'),
    *(b'{"context": "v", "features": {"age": 31, "kind": "new"}}', b'{"context": "v", "features": {"age": 1e308}}'),
    *(b'{"context": "v", "id": "told", "features": {"age": -5e-324}}', b'{"id": "told", "reward": 1}'),
    b'{"items": [{"context": "v", "features": {"age": 0, "": []}}, {"context": "v", "features": {"age": true}}]}',
    *(b'{"items": [{"context": "v", "arm": "ada", "reward": 0.5, "id": "seen"}]}', b'{"items": [{"context": "v"}]}'),
    *(
        b'{"items": [{"context": "v", "arm": "ben", "propensity": 5e-324, "instead_of": "again"}, 3]}',
        b'{"items": [{"context": "v", "arm": "ada", "source": "policy"}, {"context": "v", "arm": "", "unit": 1}]}',
        b'{"items": [{"context": "v", "arm": "ben", "features": {"age": 1}, "unit": "u"}]}',
        b'{"items": [{"context": "v", "arm": "ada", "reward": 1e999, "propensity": 0, "source": "\\ud800"}]}',
    ),
    *(
        b'{"context": "v", "incumbent": "ada", "unit": "u", "features": {"age": 1}}',
        b'{"context": "v", "incumbent": 1}',
    ),
    b'{"name": "new", "arms": ["a"], "features": {"age": "number?", "kind": ["a", "*"], "\\ud800": 3}}',
]
_TERMS = [
    *(b'{"terms": {"mode": "watch"}}', b'{"terms": {"mode": "share", "share": 0.5}}', b'{"terms": {"mode": "live"}}'),
    *(b'{"terms": {"mode": "share", "share": 1}}', b'{"terms": {"reward_wait": 1e999}}', b'{"terms": {"": null}}'),
    *(b'{"terms": {"entitlements": {"nobody": 1}}}', b'{"terms": {"pull_floor": 0.6}}', b'{"terms": {"share": null}}'),
]
EXPERIMENTS = (
    b'{"name": "home", "arms": ["ada", "ben", "cyd"]}',
    b'{"name": "told", "arms": ["ada", "ben"], "features": {"age": "number", "kind": ["new", "*"]}}',
)
_HEADERS = [
    *(
        "Host: localhost",
        "Host: evil.example",
        "Host: localhost:1",
        "Host:",
        "Authorization: Bearer af_x_y",
        "Accept: */*",
    ),
    *(
        "Authorization: Basic x",
        "Connection: close",
        "Connection: keep-alive, x",
        "Connection: upgrade",
        "Upgrade: h2c",
    ),
    *("Upgrade: websocket", "Expect: 100-continue", "Expect: x", "Origin: http://localhost", "Origin: null", "TE: x"),
    *("Sec-Fetch-Site: cross-site", "X-Request-ID: mine", "X-Request-ID: \x7f", "Content-Type: text/plain", ":: x"),
    *(
        "If-None-Match: *",
        "Cookie: a=b",
        "Cookie: alphafair_session=x",
        "Content-Encoding: gzip",
        "Expect: 100-Continue",
    ),
    *("Transfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: x", "Content-Length: 0"),
    *("Content-Length: 18446744073709551616", "Content-Length: -1", "Content-Length: 1e3", "Content-Length: 5, 5"),
    *("X: " + "y" * 5000, "Y" * 3000 + ": x", " folded: x", "X:\x00", "X: é", "Trailer: Host", "Range: bytes=0-5"),
]


class Outcome(NamedTuple):
    """The result of one connection."""

    n_sent: int  # requests
    statuses: Counter[int]
    complaint: str | None


def sound(draw: random.Random) -> bytes:
    """A valid HTTP request, whether or not the service accepts it."""
    kind = draw.random()
    if kind < 0.25:
        return f"{draw.choice(('GET', 'HEAD'))} {draw.choice(_PATHS[:7])} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    path, body = draw.choice(_PATHS[-POSTED:]).encode(), draw.choice(_BODIES)
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % path
    if kind < 0.27:
        head, body = b"PATCH /v1/experiments/told HTTP/1.1\r\nHost: localhost\r\n", draw.choice(_TERMS)
    if kind < 0.8:
        return head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    size = draw.choice((1, 7, 1000))
    body = body[:3000]
    pieces = b"".join(b"%x%s\r\n%s\r\n" % (len(each), draw.choice((b"", b";a=b")), each) for each in _cut(body, size))
    return (
        head + b"Transfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n" + draw.choice((b"", b"Host: x\r\n")) + b"\r\n"
    )


def _cut(body: bytes, size: int) -> list[bytes]:
    return [body[k : k + size] for k in range(0, len(body), size)]


def odd(draw: random.Random) -> bytes:
    """Parts of requests in random order."""
    headers = draw.sample(_HEADERS, draw.randrange(6))
    version = draw.choice(("1.1", "1.1", "1.1", "1.0", "0.9", "2.0", "1.2", "9", ""))
    first = f"{draw.choice(_METHODS)} {draw.choice(_PATHS)} HTTP/{version}"
    return "\r\n".join([first, *headers, "", ""]).encode("latin-1") + draw.choice(_BODIES)


def mutated(draw: random.Random) -> bytes:
    """A request with some bytes changed, removed, repeated or inserted."""
    data = bytearray(draw.choice((sound, odd))(draw))
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(data) + 1)
        end = min(len(data), at + draw.choice((1, 2, 10, 100)))
        change = draw.randrange(6)
        if change == 0 and at < len(data):
            data[at] ^= 1 << draw.randrange(8)
        elif change == 1:
            del data[at:end]
        elif change == 2:
            data[at:at] = data[at:end] * draw.choice((1, 2, 50))
        elif change == 3:
            data[at:at] = draw.randbytes(draw.choice((1, 3, 30)))
        elif change == 4:
            data[at:at] = draw.choice((b"\r\n", b"\n", b"\r", b"\0", b"\r\n\r\n", b": ", b" ", b"9" * 20, b"\xff" * 5))
        else:
            data = data.replace(b"\r\n", b"\n", 1)
    return bytes(data)


def noise(draw: random.Random) -> bytes:
    return draw.randbytes(draw.choice((1, 20, 500, 70_000)))


def conversation(draw: random.Random) -> tuple[list[bytes], int]:
    """Pieces to send on one connection, and the number of requests; only the last ones can be invalid."""
    requests = [sound(draw) for _ in range(draw.choice((0, 1, 5, REQUESTS_PER_CONNECTION, REQUESTS_PER_CONNECTION)))]
    makers: list[Callable[[random.Random], bytes]] = [sound, odd, odd, mutated, mutated, mutated, noise]
    requests += [draw.choice(makers)(draw) for _ in range(draw.randrange(1, 5))]
    data = b"".join(requests)
    size = draw.choice((1, 10, 1000, 100_000)) if len(data) < 3000 else draw.choice((1000, 100_000))
    return _cut(data, size), len(requests)


def converse(port: int, draw: random.Random) -> Outcome:
    """Send and read on one connection until it is closed, or disconnect early."""
    pieces, n = conversation(draw)
    ending = draw.choice(("half", "half", "half", "half", "reset", "leave"))
    statuses: Counter[int] = Counter()
    received, at, until = b"", 0, time.monotonic() + PATIENCE
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        try:
            while True:
                if time.monotonic() > until:
                    return Outcome(n, statuses, f"not closed within {PATIENCE:g} s: {b''.join(pieces)[:2000]!r}")
                writing = [connection] if at < len(pieces) else []
                readable, writable, _ = select.select([connection], writing, [], 1.0)
                if writable:
                    sent = connection.send(pieces[at])
                    pieces[at] = pieces[at][sent:]
                    at += not pieces[at]
                    if at == len(pieces):
                        if ending == "half":
                            connection.shutdown(socket.SHUT_WR)
                        elif ending == "reset":
                            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                            break
                        else:
                            break
                if readable:
                    data = connection.recv(1 << 18)
                    if not data:
                        break
                    received += data
        except ConnectionError:
            pass  # it was closed while more was being sent
        except OSError as problem:
            if problem.errno != errno.ENOTCONN:  # it was reset just before its half was closed
                raise
    heads = [head.partition(b"\r\n\r\n")[0] for head in _ANSWER.findall(received)]
    statuses.update(int(head[9:12]) for head in heads)
    wrong = set(statuses) - STATUSES
    undated = [head for head in heads[:-1] if b"\r\ndate: " not in head and head[9:12] != b"100"]  # the last may be cut
    return Outcome(n, statuses, f"status {wrong}" if wrong else f"no date: {undated[0]!r}" if undated else None)


def fuzz(port: int, *, n_requests: int, seed: int, n_threads: int = 6) -> tuple[int, Counter[int], list[str]]:
    """Send requests; return how many were sent, the statuses, and the problems by connection."""
    lock = threading.Lock()
    n_sent, n_begun, statuses, complaints = 0, 0, Counter[int](), list[str]()

    def run() -> None:
        nonlocal n_sent, n_begun
        while True:
            with lock:
                if n_sent >= n_requests or len(complaints) > 10:
                    return
                number, n_begun = n_begun, n_begun + 1
            found = converse(port, random.Random(f"{seed}-{number}"))
            with lock:
                n_sent += found.n_sent
                statuses.update(found.statuses)
                if found.complaint is not None:
                    complaints.append(f"seed {seed}, connection {number}: {found.complaint}")

    threads = [threading.Thread(target=run) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return n_sent, statuses, complaints


def main() -> None:
    """A service of its own, measured after each part; over the second half it must not grow.

    Until then threads are started, memory is set aside for what each has to do, and odd routes are used for the first
    time. Decisions that wait for a reward are kept: some kilobytes for a thousand requests.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("w+b") as log:
        command = [sys.executable, "-m", "alphafair", "serve", "--db", f"{folder}/shop.db", "--port", str(port)]
        server = subprocess.Popen(command, stderr=log)
        try:
            _wait_until_ready(port, server)
            for body in EXPERIMENTS:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/experiments", body).close()
            n_sent, statuses, complaints, marks = 0, Counter[int](), list[str](), list[dict[str, float]]()
            start = time.monotonic()
            for part in range(PARTS):
                seed = options.seed * PARTS + part
                n, some, wrong = fuzz(port, n_requests=options.requests // PARTS, seed=seed)
                n_sent, statuses, complaints = n_sent + n, statuses + some, complaints + wrong
                time.sleep(LEFT)
                marks.append(told(port))
            seconds = time.monotonic() - start - PARTS * LEFT
            alive = server.poll() is None
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        written = log.read()
    complaints += [] if alive and server.returncode == 0 else [f"the service has ended: {server.returncode}"]
    complaints += ["there is a traceback in the log"] if b"raceback" in written else []
    complaints += grown(marks[PARTS // 2 - 1], marks[-1])
    n_answers = sum(statuses.values()) - statuses[100]
    print(f"{n_sent:,} requests, {n_answers:,} answers, in {seconds:.0f} s; {dict(sorted(statuses.items()))}")
    for name in ("process_resident_memory_bytes", "process_open_fds", "alphafair_connections"):
        print(f"{name}: {', then '.join(f'{mark[name]:,.0f}' for mark in marks)}")
    print("\n".join(complaints) or "nothing to complain about")
    sys.exit(bool(complaints))


def grown(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """What the service has now and did not have before."""
    name, files = "process_resident_memory_bytes", "process_open_fds"
    found = []
    if after[name] - before[name] > MOST_MORE_MEMORY:
        found.append(f"memory grew from {before[name]:,.0f} to {after[name]:,.0f}")
    if after[files] - before[files] > MOST_MORE_FILES:
        found.append(f"open files grew from {before[files]:,.0f} to {after[files]:,.0f}")
    if after["alphafair_connections"] > 1:
        found.append(f"{after['alphafair_connections']:g} connections are open")
    return found


def told(port: int) -> dict[str, float]:
    """The process metrics of /metrics, by name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = [line for line in page.read().decode().splitlines() if not line.startswith("#") and "{" not in line]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def _wait_until_ready(port: int, server: subprocess.Popen[bytes]) -> None:
    while True:
        assert server.poll() is None
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready").close()
            return
        except OSError:
            time.sleep(0.1)


if __name__ == "__main__":
    main()
