"""Long work beside requests: the longest wait while it is done, against the same load without it.

Requests come at a fixed rate and waiting counts from the moment each was due, so that a service that stands still for a
second shows it, however few requests it answers meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from alphafair import AlphaFairAdaptive
from alphafair.engine import Decide, Engine, Receipt, Reward
from alphafair.engine.store.sqlite import SqliteStore
from benchmarks.bench_service import load, running
from benchmarks.jobs import ALPHA, N_ARMS
from benchmarks.table import Row, duration

RATE, CONNECTIONS = 500, 64  # requests per second
SECONDS = 6.0
MOST_MORE = 0.25  # seconds
N_EXPIRING = 100_000
N_CONTEXTS, MANY_ARMS = 55_000, 40  # a state of 136 MB
N_DECISIONS, N_EXPORTS = 300_000, 8
MOST_MEMORY = 300e6  # bytes more
ARMS = [f"arm-{k}" for k in range(N_ARMS)]
BATCH = 2_500


def rows() -> Iterator[Row]:
    for case in (expiring, saving, exporting):
        with tempfile.TemporaryDirectory() as folder:
            yield from case(Path(folder) / "bench.db")


def expiring(path: Path) -> Iterator[Row]:
    """All at once: their waiting time ends in the middle of the load."""
    wait, earlier = 3600.0, time.time_ns() - 3600 * 10**9
    with Engine(SqliteStore(path), clock=lambda: earlier) as engine:
        engine.create("bench", arms=ARMS, alpha=ALPHA)
        engine.create("late", arms=ARMS, alpha=ALPHA, reward_wait=wait, default_reward=0.0)
        for first in range(0, N_EXPIRING, BATCH):
            engine.submit([Decide("late", f"visitor-{first + k}") for k in range(BATCH)])
        until = time.time() + 25.0
        engine._store.rows("update decision set at = :at", at=int((until - wait) * 1e6))  # type: ignore[attr-defined]
    with serving(path) as port:
        before = waits(port)
        assert time.time() < until - 1.0, "too slow to be measured"
        time.sleep(max(0.0, until - 1.0 - time.time()))
        during = waits(port, seconds=2 * SECONDS)
        job = f"requests while {N_EXPIRING:,} decisions expire: the longest wait"
        yield compared(job, during, before)
        while told(port)['alphafair_pending{experiment="late"}']:
            assert time.time() < until + 60.0
            time.sleep(0.1)


def saving(path: Path) -> Iterator[Row]:
    """A snapshot is due after every 100,000 events of an experiment; these come in batches beside the load."""
    policy = AlphaFairAdaptive(N_CONTEXTS, MANY_ARMS, alpha=ALPHA)
    arms, contexts = [f"arm-{k}" for k in range(MANY_ARMS)], [f"visitor-{k}" for k in range(N_CONTEXTS)]
    with Engine.open(path) as engine:
        engine.create("bench", arms=ARMS, alpha=ALPHA)
        engine.create("large", arms=arms, start=policy.snapshot(), contexts=contexts)
        size = len(policy.snapshot().to_bytes())
    with serving(path) as port:
        feed(port, 20_000)  # compiles
        before = waits(port, lambda: feed(port, 50_000), seconds=4 * SECONDS)
        n_kept = snapshots(path)
        during = waits(port, lambda: feed(port, 50_000), seconds=4 * SECONDS)
        assert snapshots(path) > n_kept, "no snapshot was finished"
        yield compared(f"requests while a snapshot of {size / 1e6:.0f} MB is taken: the longest wait", during, before)


def exporting(path: Path) -> Iterator[Row]:
    """Eight clients ask for the whole log at once; who is told to come back later, does."""
    with Engine.open(path) as engine:
        engine.create("bench", arms=ARMS, alpha=ALPHA)
        ids: list[str] = []
        for first in range(0, N_DECISIONS, BATCH):
            asked = [Decide("bench", f"c{(first + k) % 1000}") for k in range(BATCH)]
            answers = engine.submit([*asked, *(Reward(id, 0.5) for id in ids)])
            ids = [answer.id for answer in answers if isinstance(answer, Receipt)]
    with serving(path) as port:
        before = waits(port)
        lightest = memory(port)
        most, sizes = [lightest], list[int]()

        def download() -> None:
            sizes.append(exported(port))

        clients = [threading.Thread(target=download) for _ in range(N_EXPORTS)]

        def work() -> None:
            for client in clients:
                client.start()
            while any(client.is_alive() for client in clients):
                most.append(memory(port))
                time.sleep(0.05)

        during = waits(port, work, seconds=3 * SECONDS)
        job = f"requests while {N_EXPORTS} clients export {N_DECISIONS:,} decisions: the longest wait"
        yield compared(job, during, before)
        more = max(most) - lightest
        yield Row(
            f"memory of {N_EXPORTS} exports, helpers included",
            f"{more / 1e6:.0f} MB more",
            "all it had before",
            f"{lightest / 1e6:.0f} MB",
            "-",
            f"under {MOST_MEMORY / 1e6:.0f} MB",
            more < MOST_MEMORY and len(sizes) == N_EXPORTS and min(sizes) > 0,
        )


def compared(job: str, during: dict[str, Any], before: dict[str, Any]) -> Row:
    more = during["longest"] - before["longest"]
    return Row(
        job,
        duration(during["longest"]),
        f"the same {RATE} requests per second without that",
        duration(before["longest"]),
        f"{duration(max(more, 0.0))} more",
        f"at most {duration(MOST_MORE)} more",
        more <= MOST_MORE,
    )


def waits(port: int, work: Callable[[], object] = lambda: None, *, seconds: float = SECONDS) -> dict[str, Any]:
    """What the load generator says, while something else is done, which begins after a second."""

    def later() -> None:
        time.sleep(1.0)
        work()

    worker = threading.Thread(target=later)
    worker.start()
    found = load(port, "decide_and_reward", seconds=seconds, connections=CONNECTIONS, rate=RATE)
    worker.join()
    return found


def feed(port: int, n_events: int) -> None:
    """Decisions of the large experiment and their rewards, in batches."""
    rng = np.random.default_rng()
    for _ in range(n_events // 1_000):
        visitors = rng.integers(N_CONTEXTS, size=500).tolist()
        answer = post(port, "decisions", [{"context": f"visitor-{visitor}"} for visitor in visitors])
        post(port, "rewards", [{"id": item["id"], "reward": 0.5} for item in answer["items"]])


def post(port: int, what: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/v1/experiments/large/{what}/batch"
    with urllib.request.urlopen(url, json.dumps({"items": items}).encode()) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def exported(port: int) -> int:
    """How many bytes an export has; asked for again where the service says when."""
    url = f"http://127.0.0.1:{port}/v1/experiments/bench/log?format=csv"
    while True:
        try:
            with urllib.request.urlopen(url) as answer:
                return sum(map(len, iter(lambda: answer.read(1 << 16), b"")))
        except urllib.error.HTTPError as refused:
            time.sleep(float(refused.headers["retry-after"]))


def snapshots(path: Path) -> int:
    with SqliteStore(path, read_only=True) as store:
        ((found,),) = store.rows("select max(position) from snapshot")
    return int(found or 0)


def told(port: int) -> dict[str, float]:
    """All that /metrics says, labels included."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        lines = [line for line in page.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@contextlib.contextmanager
def serving(path: Path) -> Iterator[int]:
    """The service, once it is ready."""
    with running("-m", "alphafair", "serve", "--db", str(path), "--port") as port:
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/ready"):
                break
            time.sleep(0.05)
        yield port


def memory(port: int) -> int:
    """Bytes that the service holds, and processes that it has started."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,rss=,args="], capture_output=True, text=True).stdout
    table = [line.split(None, 3) for line in listed.splitlines()]
    service = next(pid for pid, _, _, arguments in table if "serve" in arguments and arguments.endswith(f" {port}"))
    return 1024 * sum(int(rss) for pid, parent, rss, _ in table if service in (pid, parent))


if __name__ == "__main__":
    for row in rows():
        print(*row.cells(), sep=" | ", file=sys.stderr)
