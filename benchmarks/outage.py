"""A drill of outages: a shop decides and rewards with a fallback while the service, and the shop itself, are killed.

`python -m benchmarks.outage [FOLDER]` starts the service on a new file, and a shop with threads of visitors, each in a
process of its own. It kills the service, starts it again after a minute, and measures every call. Then it kills shop
and service in turns. In the end, every arm that was shown must be in the log exactly once. It prints a line for each
step, and ends with code 0 if all of them went as they should, or with 1 at the first that did not.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from alphafair import Client
from benchmarks.drill import ARMS, NAME, PATIENCE, Failed, Service, alphafair, check, context_of, say, value_of

PAUSE: Final = 0.02  # seconds between two visitors of a thread
SLOW: Final = 250.0  # milliseconds of a call
MOST_SLOW: Final = 0.01  # of the decisions
DECIDE_TIMEOUT: Final = 0.2  # seconds
AROUND: Final = 3.0  # seconds of load before and after an outage


# the shop


def shop(url: str, queue: str, book: str, n_threads: int) -> None:
    """Decide, write down what is shown, and reward it, until the standard input ends; then send what is queued."""
    stop, written = threading.Event(), os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(*words: object) -> None:
        os.write(written, ("\t".join(map(str, words)) + "\n").encode())

    def visit(client: Client, number: int) -> None:
        while not stop.wait(PAUSE):
            began = time.perf_counter()
            try:
                shown = client.decide(NAME, context_of(f"{number} {began}"))
            except Exception as problem:
                write("no arm", type(problem).__name__, problem)
                continue
            write("shown", shown.id, shown.arm, shown.source, f"{1000 * (time.perf_counter() - began):.1f}")
            try:
                began = time.perf_counter()
                outcome = client.reward(shown.id, value_of(shown.id), experiment=NAME).outcome
                write("rewarded", shown.id, outcome, "", f"{1000 * (time.perf_counter() - began):.1f}")
            except Exception as problem:
                write("no reward", type(problem).__name__, problem)

    with Client(url, fallback="ada", queue=queue, decide_timeout=DECIDE_TIMEOUT, timeout=1.0) as client:
        threads = [threading.Thread(target=visit, args=(client, k)) for k in range(n_threads)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        stop.set()
        for thread in threads:
            thread.join()
        write("left", not client.flush(PATIENCE), client.dropped)


class Shop:
    """The shop as a process, and its book."""

    def __init__(self, url: str, folder: Path, n_threads: int) -> None:
        self.book = folder / "book.tsv"
        arguments = [url, str(folder / "queue.db"), str(self.book), str(n_threads)]
        command = [sys.executable, "-c", f"from benchmarks.outage import shop; shop(*{arguments[:3]!r}, {n_threads})"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE)

    def end(self) -> None:
        """Let it send what is queued, and end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        check(self.process.wait(2.0 * PATIENCE) == 0, "the shop ended by itself")

    def kill(self) -> None:
        check(self.process.poll() is None, "the shop has ended")
        self.process.kill()
        self.process.wait(PATIENCE)


# the book and the log


def lines_of(book: Path) -> list[list[str]]:
    """The lines of the book; a killed shop may have left a part of one."""
    return [line.strip().split("\t") for line in book.read_text().splitlines(keepends=True) if line.endswith("\n")]


def compare(shown: Iterable[tuple[str, str]], rows: Iterable[Mapping[str, str]]) -> None:
    """Every arm that was shown is in the log, once; what else is there was closed, or waits, without a reward."""
    log, expected = list(rows), dict(shown)
    counts = Counter(row["id"] for row in log)
    for row in log:
        if row["id"] in expected:
            arm = expected[row["id"]]
            check(row["arm"] == arm, f"{row['id']} showed {arm}, and the log has {row['arm']}")
        else:
            check(not row["reward"], f"{row['id']} was not shown, and has a reward")
    for id, arm in expected.items():
        check(counts[id] == 1, f"{id} showed {arm}, and is in the log {counts[id]} times")


def report(lines: list[list[str]], most_slow: float = MOST_SLOW) -> str:
    """How long calls took, from the lines of a book; fails where there was no arm, no reward, or too slow a call."""
    for line in lines:
        check(line[0] not in ("no arm", "no reward"), "\t".join(line))
    shown = [line for line in lines if line[0] == "shown"]
    times = sorted(float(line[4]) for line in shown)
    slow = sum(each > SLOW for each in times)
    check(slow <= most_slow * len(times), f"{slow} of {len(times)} decisions took more than {SLOW:g} ms")
    n_fallen = sum(line[3] == "fallback" for line in shown)
    return (
        f"{len(shown):,} visitors, 0 without an arm, {n_fallen:,} by the fallback; {100 * slow / len(times):.2f}% of "
        f"decisions above {SLOW:g} ms, median {times[len(times) // 2]:.1f} ms, slowest {times[-1]:.0f} ms"
    )


class Outage:
    """The steps of the drill, on files in one folder."""

    def __init__(
        self, folder: Path, *, seconds: float, n_threads: int, kills: int, around: float, most_slow: float
    ) -> None:
        self.folder, self.path = folder, folder / "shop.db"
        self.seconds, self.n_threads, self.kills, self.around = seconds, n_threads, kills, around
        self.most_slow = most_slow
        self.service = Service(self.path)
        self.port = self.service.port

    def run(self) -> None:
        try:
            self.service.client.create(NAME, arms=ARMS, reward_wait=3600.0)
            self.outage()
            self.killed_in_turns()
            self.compare()
        finally:
            if self.service.process.poll() is None:
                self.service.end(signal.SIGKILL)

    def outage(self) -> None:
        shop = self.open()
        time.sleep(self.around)
        self.service.end(signal.SIGKILL)
        time.sleep(self.seconds)
        self.service = Service(self.path, self.port)
        time.sleep(self.around)
        shop.end()
        say(f"service away for {self.seconds:g} s: {report(lines_of(shop.book), self.most_slow)}")

    def killed_in_turns(self) -> None:
        for _ in range(self.kills):
            shop = self.open()
            time.sleep(self.around)
            self.service.end(signal.SIGKILL)
            time.sleep(self.around)
            shop.kill()  # with a queue that nobody takes
            shop = self.open()
            time.sleep(self.around)
            self.service = Service(self.path, self.port)
            shop.kill()  # while it is sent
        shop = self.open()
        time.sleep(self.around)
        shop.end()
        (*_, left) = (line for line in lines_of(shop.book) if line[0] == "left")
        check(left[1:] == ["False", "0"], f"left in the queue: {left[1]}, dropped: {left[2]}")
        say(f"{self.kills} times killed shop and service in turns; nothing is left in the queue")

    def open(self) -> Shop:
        return Shop(self.service.url, self.folder, self.n_threads)

    def compare(self) -> None:
        code = self.service.end(signal.SIGTERM)
        check(code == 0, f"the service ended with {code}")
        printed = alphafair("verify", self.path)
        check("to the last bit" in printed, printed)
        alphafair("export", self.path, "-e", NAME, "-o", self.folder / "log.csv")
        with (self.folder / "log.csv").open() as file:
            rows = list(csv.DictReader(file))
        shown = [(line[1], line[2]) for line in lines_of(self.folder / "book.tsv") if line[0] == "shown"]
        compare(shown, rows)
        n_unseen = len(rows) - len(shown)
        say(f"all {len(shown):,} shown arms are in the log exactly once; {n_unseen} that nobody saw have no reward")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outage", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="an empty folder; a temporary one if left out")
    parser.add_argument("--seconds", type=float, default=60.0, help="that the service is away")
    parser.add_argument("--around", type=float, default=AROUND, help="seconds of load before and after each kill")
    parser.add_argument("--threads", type=int, default=8, help="of visitors")
    parser.add_argument("--kills", type=int, default=5, help="of shop and service in turns")
    parser.add_argument("--most-slow", type=float, default=MOST_SLOW, help="part of decisions that may be slow")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        if os.listdir(folder):
            parser.error(f"{folder} is not empty")
        settings: dict[str, Any] = {
            "n_threads": options.threads,
            "kills": options.kills,
            "around": options.around,
            "most_slow": options.most_slow,
        }
        try:
            Outage(folder, seconds=options.seconds, **settings).run()
        except Failed as failed:
            print(f"FAILED  {failed}", flush=True)
            return 1
    print("All steps went as they should.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
