"""A load generator in a process of its own: `python -m benchmarks.load PORT KIND SECONDS`.

Connections stay open and have one request in flight each. Without a rate, every connection sends its next request when
it has its answer; with a rate, requests are due at fixed times, and waiting for a free connection counts. The result is
one line of JSON: answers per second, latencies, statuses.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator

import uvloop

from benchmarks.jobs import N_CONTEXTS, N_FEATURES

EXPERIMENT = "/v1/experiments/{}/"
HEAD = "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{}"
BATCH = 100


def request(path: str, body: str) -> bytes:
    return HEAD.format(path, len(body), body).encode()


def decide_and_reward(prefix: str, path: str) -> Iterator[bytes]:
    """Decisions and rewards in turn."""
    for n in itertools.count():
        yield request(path + "decisions", f'{{"context":"c{n * 7 % N_CONTEXTS}","id":"{prefix}-{n}"}}')
        yield request(path + "rewards", f'{{"id":"{prefix}-{n}","reward":{n % 2}}}')


def described(prefix: str, path: str) -> Iterator[bytes]:
    """The same with features of every decision."""
    features = [json.dumps({f"f{k}": (n + k) / 10 for k in range(N_FEATURES)}) for n in range(10)]
    for n in itertools.count():
        body = f'{{"context":"c{n * 7 % N_CONTEXTS}","id":"{prefix}-{n}","features":{features[n % 10]}}}'
        yield request(path + "decisions", body)
        yield request(path + "rewards", f'{{"id":"{prefix}-{n}","reward":{n % 2}}}')


def batches(prefix: str, path: str, size: int = BATCH) -> Iterator[bytes]:
    """The same in batches."""
    for n in itertools.count():
        ids = [f"{prefix}-{n}-{k}" for k in range(size)]
        items = ",".join(f'{{"context":"c{k % N_CONTEXTS}","id":"{id}"}}' for k, id in enumerate(ids))
        yield request(path + "decisions/batch", f'{{"items":[{items}]}}')
        items = ",".join(f'{{"id":"{id}","reward":{k % 2}}}' for k, id in enumerate(ids))
        yield request(path + "rewards/batch", f'{{"items":[{items}]}}')


def nothing(prefix: str, path: str) -> Iterator[bytes]:
    """POST requests without a body."""
    return itertools.repeat(request("/", ""))


def metrics(prefix: str, path: str) -> Iterator[bytes]:
    return itertools.repeat(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")


def search(prefix: str, path: str) -> Iterator[bytes]:
    """Searches of the whole log that find nothing."""
    path = f"{path.removeprefix('/v1')}log.json?state=expired"
    return itertools.repeat(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())


def with_key(requests: Iterator[bytes], key: str) -> Iterator[bytes]:
    header = f"\r\nauthorization: Bearer {key}\r\n".encode()
    return (each.replace(b"\r\n", header, 1) for each in requests)


KINDS = {
    "nothing": nothing,
    "decide_and_reward": decide_and_reward,
    "described": described,
    "batches": batches,
    "metrics": metrics,
    "search": search,
}


class Load:
    """The state that all connections share: when to send, and the answers."""

    def __init__(self, rate: float | None) -> None:
        self.interval = None if rate is None else 1.0 / rate
        self.statuses: Counter[str] = Counter()
        self.times: list[float] = []
        self.free: deque[Connection] = deque()
        self.due: deque[float] = deque()
        self.n_unanswered, self.stopped = 0, False

    def next(self, connection: Connection, now: float) -> None:
        """Send the next request on an idle connection, if one is due."""
        if self.due:
            connection.send(self.due.popleft())
        elif self.interval is None and not self.stopped:
            connection.send(now)
        else:
            self.free.append(connection)

    async def run(self, seconds: float) -> float:
        """Run until the time is over and all requests due by then are answered; return answers per second."""
        start = time.perf_counter()
        end, sent = start + seconds, 0
        while (now := time.perf_counter()) < end:
            if self.interval is None:
                await asyncio.sleep(end - now)
                continue
            while (due := start + sent * self.interval) <= now:
                sent += 1
                if self.free:
                    self.free.popleft().send(due)
                else:
                    self.due.append(due)
            await asyncio.sleep(0.0005)
        self.stopped = True
        per_second = len(self.times) / (time.perf_counter() - start)
        while self.due or self.n_unanswered:
            await asyncio.sleep(0.001)
        return per_second


class Connection(asyncio.Protocol):
    """Sends requests, and measures the time until each answer is complete."""

    def __init__(self, load: Load, requests: Iterator[bytes]) -> None:
        self.load, self.requests = load, requests
        self.answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write: Callable[[bytes], None] = transport.write  # type: ignore[attr-defined]
        self.load.next(self, time.perf_counter())

    def send(self, due: float) -> None:
        self.due = due
        self.load.n_unanswered += 1
        self.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        self.answer += data
        head, end, body = self.answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0] or 0):
            return
        now = time.perf_counter()
        self.load.statuses[head[9:12].decode()] += 1
        self.load.times.append(now - self.due)
        self.load.n_unanswered -= 1
        self.answer = b""
        self.load.next(self, now)


async def run(options: argparse.Namespace) -> dict[str, object]:
    port, kind, seconds = options.port, options.kind, options.seconds
    load, loop = Load(options.rate), asyncio.get_running_loop()
    mark = f"{time.time_ns():x}"
    for k in range(options.connections):
        named = f"{mark}-{k}", EXPERIMENT.format(options.experiment)
        requests = batches(*named, options.batch) if kind == "batches" else KINDS[kind](*named)
        if options.key is not None:
            requests = with_key(requests, options.key)
        await loop.create_connection(lambda requests=requests: Connection(load, requests), "127.0.0.1", port)  # type: ignore[misc]
    per_second = await load.run(seconds)
    times = sorted(load.times)
    return {
        "per_second": per_second,
        "p50": times[len(times) // 2],
        "p99": times[len(times) * 99 // 100],
        "longest": times[-1],
        "statuses": load.statuses,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--experiment", default="bench")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--key")
    print(json.dumps(uvloop.run(run(parser.parse_args()))))


if __name__ == "__main__":
    main()
