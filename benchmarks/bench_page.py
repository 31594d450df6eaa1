"""The page: what ten open ones cost their machine and the busy routes, and how long its first data takes."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_service import begin, load, running
from benchmarks.make_ledger import N_CONTEXTS, N_DECISIONS, make
from benchmarks.table import Row, duration

TURNS, WATCHERS, AT_LEAST = 4, 10, 0.9
MOST_OF_A_PAGE, RATE = 0.05, 400.0  # seconds of processor time per second, and requests per second meanwhile
LOADS, FIRST_PAINT = 5, 0.2  # of the page, and seconds
WATCHERS_OF = {  # what watches: the module, and the address that it opens
    "pages in Chromium watch": ("benchmarks.browse", "/experiments/bench/live"),
    "readers of events watch": ("benchmarks.watch", "/experiments/bench/events"),
}
FIRST_DATA = (
    "/experiments/large/live",
    "/session.json",
    "/experiments/large/live.json",
    "/experiments/large/contexts.json",
)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield from watched(Path(folder))
        yield first_data(Path(folder))


def watched(folder: Path) -> Iterator[Row]:
    """Decisions and rewards with and without watchers, by turns."""
    with running("-m", "alphafair", "serve", "--db", f"{folder}/bench.db", "--port") as port:
        begin(port)
        load(port, "decide_and_reward", seconds=1.0)
        alone = list[float]()
        beside: dict[str, list[float]] = {name: [] for name in WATCHERS_OF}
        costs: dict[str, list[float]] = {name: [] for name in WATCHERS_OF}
        for _ in range(TURNS):
            alone.append(load(port, "decide_and_reward")["per_second"])
            for name in WATCHERS_OF:
                with watching(port, *WATCHERS_OF[name]) as pid:
                    beside[name].append(load(port, "decide_and_reward")["per_second"])
                    before, start = processor_time(pid), time.perf_counter()
                    load(port, "decide_and_reward", rate=RATE)
                    costs[name].append((processor_time(pid) - before) / (time.perf_counter() - start) / WATCHERS)
    pages, readers = (duration(statistics.median(costs[name])) for name in WATCHERS_OF)
    yield Row(
        f"processor time of an open page per second, at {RATE:g} decisions and rewards per second",
        pages,
        "a reader of events",
        readers,
        "-",
        f"under {duration(MOST_OF_A_PAGE)}",
        statistics.median(next(iter(costs.values()))) < MOST_OF_A_PAGE,
    )
    for name, found in beside.items():
        ratio = max(found) / max(alone)
        yield Row(
            f"decide and reward over HTTP while {WATCHERS} {name}, per second",
            f"{max(found):,.0f}",
            "while nobody does",
            f"{max(alone):,.0f}",
            f"{ratio:.3g} x",
            f"at least {AT_LEAST:g} x",
            ratio >= AT_LEAST,
        )


@contextlib.contextmanager
def watching(port: int, module: str, path: str) -> Iterator[int]:
    """Watchers in a process of their own, once all of them have the first event; the id of the process."""
    command = [sys.executable, "-m", module, str(port), path, str(WATCHERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as readers:
        try:
            assert readers.stdout is not None
            assert readers.stdout.readline() == "all watch\n"
            yield readers.pid
        finally:
            readers.terminate()


def processor_time(pid: int) -> float:
    """The seconds of a process and of all that it has started."""
    children, ticks = dict[int, list[int]](), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            _, parent, *rest = path.read_text().rpartition(")")[2].split()
            ticks[int(path.parent.name)] = int(rest[9]) + int(rest[10])
            children.setdefault(int(parent), []).append(int(path.parent.name))
    found, left = 0, [pid]
    while left:
        found += ticks.get(left[-1], 0)
        left += children.get(left.pop(), [])
    return found / os.sysconf("SC_CLK_TCK")


def first_data(folder: Path) -> Row:
    """All that the page of an experiment asks for before it can draw, over one connection."""
    make(folder / "large.db")
    with running("-m", "alphafair", "serve", "--db", f"{folder}/large.db", "--port") as port:
        found, parts = list[float](), dict[str, list[float]]()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60.0)
        while True:
            connection.request("GET", "/ready")
            if json.loads(connection.getresponse().read())["ready"]:
                break
            time.sleep(0.1)
        for _ in range(LOADS):
            began = time.perf_counter()
            for path in FIRST_DATA:
                start = time.perf_counter()
                connection.request("GET", f"/experiments/large/{path}")
                answer = connection.getresponse()
                body = answer.read()
                assert answer.status == 200, (path, body[:200])
                parts.setdefault(path, []).append(time.perf_counter() - start)
            found.append(time.perf_counter() - began)
        connection.close()
    print({path: round(1e3 * statistics.median(times), 2) for path, times in parts.items()}, "ms", file=sys.stderr)
    first = found[0]
    return Row(
        f"HTML and data of an experiment's page, {N_CONTEXTS:,} contexts and {N_DECISIONS:,} decisions",
        duration(first),
        "loaded again",
        duration(statistics.median(found)),
        "-",
        f"under {duration(FIRST_PAINT)}",
        first < FIRST_PAINT,
    )
