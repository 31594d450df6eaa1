"""A drill for operators: everything that goes wrong in the life of a file, done on purpose, every step checked.

`python -m benchmarks.drill [FOLDER]` starts the service on a new file in that folder (or a temporary one), on a free
port of this machine, and keeps its own books of all that was acknowledged. It loads, backs up, crashes, restores, fills
the disk in several sizes, takes the file away, meets slow clients, and goes on after each. A period ends about when the
service is killed. It prints a line for each
step, and ends with code 0 if all of them went as they should, or with 1 at the first that did not.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from alphafair import Client, ServiceError
from alphafair.engine.store.files import COMPANIONS

NAME, ARMS = "drill", ["ada", "ben", "cyd"]
N_THREADS, BATCH = 4, 50
SIZES = (8_192, 65_536, 524_288, 3_145_728)  # bytes that a full disk has left
PATIENCE = 60.0  # seconds for whatever must happen soon
CLIENT_PATIENCE = 10.0  # seconds for one request
PERIOD = 60.0  # seconds, the least that is allowed; `end_period_in` moves the boundaries


class Failed(Exception):
    """A step that did not go as it should."""


def check(condition: object, words: str) -> None:
    if not condition:
        raise Failed(words)


def until(condition: Callable[[], object], words: str) -> None:
    """Wait for what must happen soon."""
    patience = time.monotonic() + PATIENCE
    while not condition():
        check(time.monotonic() < patience, f"{words}: not within {PATIENCE:.0f} s")
        time.sleep(0.02)


def say(words: str) -> None:
    print(f"ok  {words}", flush=True)


def alphafair(*arguments: object, code: int = 0) -> str:
    """What a command prints; it must end with this code."""
    command = [sys.executable, "-m", "alphafair", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    check(done.returncode == code, f"{' '.join(command[2:])} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout + done.stderr


def value_of(id: str) -> float:
    """The reward of a decision: sixteenths, whose sums are exact in any order."""
    return zlib.crc32(id.encode()) % 17 / 16


class Books:
    """What was acknowledged: arm and propensity of every decision, and which of them have their reward."""

    def __init__(self) -> None:
        self.decisions: dict[str, tuple[str, float]] = {}
        self.rewards: set[str] = set()
        self.boundaries: list[datetime] = []  # of periods, as the service has announced them
        self._ids = itertools.count()

    def new_ids(self, n: int) -> list[str]:
        return [f"id-{next(self._ids)}" for _ in range(n)]

    def copy(self) -> Books:
        copied = Books()
        copied.rewards = set(self.rewards)  # first: who has a reward is among the decisions copied next
        copied.decisions = dict(self.decisions)
        copied.boundaries = list(self.boundaries)
        copied._ids = self._ids
        return copied

    def __str__(self) -> str:
        return f"{len(self.decisions):,} decisions and {len(self.rewards):,} rewards"


def context_of(id: str) -> str:
    return f"visitor {zlib.crc32(id.encode()) % 1_000}"


class Service:
    """`alphafair serve` on a file, as a process of its own."""

    def __init__(self, path: Path, port: int | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = port or probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url, retries=0, timeout=CLIENT_PATIENCE)
        self._log = path.with_name("service.log").open("ab")
        command = [sys.executable, "-m", "alphafair", "serve", "--db", str(path), "--port", str(self.port)]
        self.process = subprocess.Popen(command, stderr=self._log)
        try:
            until(self.is_ready, "the service is ready")
        except BaseException:
            self.end(signal.SIGKILL)
            raise

    def ready(self) -> tuple[int, str]:
        """Status and body of /ready."""
        try:
            with urllib.request.urlopen(f"{self.url}/ready", timeout=CLIENT_PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as problem:
            with problem:
                return problem.code, problem.read().decode()

    def is_ready(self) -> bool:
        check(self.process.poll() is None, "the service has ended")
        with contextlib.suppress(OSError):
            return self.ready()[0] == 200
        return False

    def end(self, how: int) -> int:
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        self.client.close()
        self._log.close()
        return code


@contextlib.contextmanager
def serving(path: Path) -> Iterator[Service]:
    service = Service(path)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.end(signal.SIGKILL)


def play(client: Client, books: Books, ids: list[str]) -> None:
    """Decide and reward, and write down what was acknowledged; raises what the client does."""
    drawn = client.decide_many(NAME, [context_of(id) for id in ids], ids=ids)
    for each in drawn:
        if isinstance(each, Exception):
            raise each
        books.decisions[each.id] = each.arm, each.propensity
    for id, outcome in zip(ids, client.reward_many([(id, value_of(id)) for id in ids], experiment=NAME), strict=True):
        if isinstance(outcome, Exception):
            raise outcome
        check(outcome.outcome in ("applied", "repeated"), f"the reward of {id} was {outcome.outcome}")
        books.rewards.add(id)


@contextlib.contextmanager
def loaded(service: Service, books: Books) -> Iterator[list[BaseException]]:
    """Load from some threads meanwhile; each ends at its first failure, which is in the list."""
    stop, problems = threading.Event(), list[BaseException]()

    def shop() -> None:
        try:
            while not stop.is_set():
                play(service.client, books, books.new_ids(BATCH))
        except (ServiceError, OSError, Failed) as problem:
            problems.append(problem)

    threads = [threading.Thread(target=shop) for _ in range(N_THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield problems
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def compare(service: Service, books: Books) -> None:
    """Ask for everything once more: the same arms and propensities, and no reward counts twice."""
    ids = list(books.decisions)
    drawn = service.client.decide_many(NAME, [context_of(id) for id in ids], ids=ids, timeout=PATIENCE)
    for id, found in zip(ids, drawn, strict=True):
        check(not isinstance(found, Exception), f"decision {id}: {found}")
        check((found.arm, found.propensity) == books.decisions[id], f"decision {id} was {books.decisions[id]}: {found}")
    rewarded = sorted(books.rewards)
    again = service.client.reward_many([(id, value_of(id)) for id in rewarded], experiment=NAME, timeout=PATIENCE)
    for id, answer in zip(rewarded, again, strict=True):
        found = getattr(answer, "outcome", answer)
        check(
            found == "repeated",
            f"the reward of {id} was acknowledged, and is {found} now",
        )


def end_period_in(service: Service, books: Books, seconds: float) -> None:
    """Let the current period end so many seconds from now."""
    boundary = datetime.now(UTC) + timedelta(seconds=seconds)
    found = service.client.set_period(NAME, PERIOD, period_start=boundary)
    check(found.period_ends == boundary, f"the period ends at {found.period_ends} and not at {boundary}")
    books.boundaries.append(boundary)


def compare_periods(service: Service, books: Books) -> None:
    """No boundary is missing or there twice, and every book has the sum of the rewards that the log says it has."""
    until(lambda: datetime.now(UTC) > max(books.boundaries), "the last boundary has passed")
    service.client.reward_many([(id, value_of(id)) for id in sorted(books.rewards)[:1]], experiment=NAME)
    periods = service.client.experiment(NAME).periods
    starts = [period.started for period in periods]
    check(starts == sorted({*starts}), f"periods start at {starts}")
    check({*books.boundaries} <= {*starts}, f"{books.boundaries} were announced, and periods start at {starts}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        service.client.export(NAME, path)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
    sums = {period.number: dict.fromkeys(ARMS, 0.0) for period in periods}
    for row in rows:
        if row["reward"] is not None:
            sums[row["period"]][row["arm"]] += row["reward"]
    for period in periods:
        check(period.rewards == sums[period.number], f"the books have {period}, and the log {sums[period.number]}")


def totals(service: Service, books: Books) -> None:
    """Give every decision its reward; the service then counts them all, and what was written but not acknowledged."""
    open_ids = sorted(books.decisions.keys() - books.rewards)
    service.client.reward_many([(id, value_of(id)) for id in open_ids], experiment=NAME, timeout=PATIENCE)
    books.rewards.update(open_ids)
    found = service.client.experiment(NAME)
    check(found.rewards >= len(books.rewards), f"{found.rewards} rewards, of {len(books.rewards)} acknowledged")
    check(found.decisions >= len(books.decisions), f"{found.decisions} decisions, of {len(books.decisions)}")


class Drill:
    """The steps, in their order; `path` is the file, and `books` what is acknowledged of it."""

    def __init__(self, folder: Path, *, seconds: float, sizes: tuple[int, ...]) -> None:
        self.path, self.backup = folder / "shop.db", folder / "backup.db"
        self.seconds, self.sizes = seconds, sizes
        self.books = Books()
        self.in_backup = Books()

    def run(self) -> None:
        with serving(self.path) as service:
            self.load_and_back_up(service)
            self.crash(service)
        with serving(self.path) as service:
            self.recover(service)
            self.crash(service)
        self.restore()
        with serving(self.path) as service:
            self.go_on_from_the_backup(service)
            for left in self.sizes:
                self.fill_the_disk(service, left)
            self.take_the_file_away(service)
            self.meet_slow_clients(service)
            self.stop(service)

    def load_and_back_up(self, service: Service) -> None:
        service.client.create(NAME, arms=ARMS, alpha=0.9)
        end_period_in(service, self.books, self.seconds / 2)
        with loaded(service, self.books) as problems:
            time.sleep(self.seconds)
            self.in_backup = self.books.copy()
            printed = alphafair("backup", self.path, self.backup)
        check(not problems, f"requests failed during a backup: {problems}")
        (n_events,) = re.findall(r"([\d,]+) events", printed)
        least = len(self.in_backup.decisions) + len(self.in_backup.rewards)
        check(int(n_events.replace(",", "")) > least, f"the backup has {n_events} events, of {least} and the creation")
        say(f"loaded, and backed up under load: {n_events} events; {self.in_backup} were acknowledged before")

    def crash(self, service: Service) -> None:
        end_period_in(service, self.books, self.seconds / 2)
        with loaded(service, self.books) as problems:
            time.sleep(self.seconds / 2)
            service.process.kill()
            service.process.wait(PATIENCE)
            until(lambda: len(problems) == N_THREADS, "clients notice")
        check(Path(f"{self.path}-wal").exists(), "a crash leaves a write-ahead log")
        say(f"killed under load, with {self.books} acknowledged")

    def recover(self, service: Service) -> None:
        compare(service, self.books)
        compare_periods(service, self.books)
        say(f"started again: {self.books} are as they were acknowledged, and so are the ends of periods")

    def restore(self) -> None:
        """All files of the old database go away; a restore beside any of them is refused."""
        away = self.path.with_name("away")
        away.mkdir()
        refused = alphafair("restore", self.backup, self.path, code=2)
        check("Move it away first" in refused, refused)
        self.path.rename(away / self.path.name)
        refused = alphafair("restore", self.backup, self.path, code=2)
        check("-wal" in refused and not self.path.exists(), refused)
        for ending in COMPANIONS:
            if (left := Path(f"{self.path}{ending}")).exists():
                left.rename(away / left.name)
        printed = alphafair("restore", self.backup, self.path)
        check("verified" in printed, printed)
        check(not any(Path(f"{self.path}{ending}").exists() for ending in COMPANIONS), "a restored file is one file")
        say("restored, verified; refused beside the old file, and beside its write-ahead log alone")
        self.books = self.in_backup

    def go_on_from_the_backup(self, service: Service) -> None:
        compare(service, self.books)
        with loaded(service, self.books) as problems:
            time.sleep(self.seconds)
        check(not problems, f"requests failed after the restore: {problems}")
        totals(service, self.books)
        compare_periods(service, self.books)
        alphafair("verify", self.path)
        say(f"went on from the backup: {self.books}, verified while in use")

    def fill_the_disk(self, service: Service, left: int) -> None:
        """The system refuses to let the service's files grow: to SQLite that is a full disk."""
        limit = self.path.stat().st_size + left
        hard = resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (limit, hard))
        problem: Exception | None = None
        patience = time.monotonic() + PATIENCE
        while problem is None:
            check(time.monotonic() < patience, "the disk does not become full")
            ids = self.books.new_ids(1_000)
            try:
                play(service.client, self.books, ids)
            except ServiceError as refused:
                problem = refused
        check(getattr(problem, "status", None) == 503, f"a full disk was answered with {problem!r}")
        for _ in range(5):  # readiness and requests agree
            check(service.ready()[0] == 503, "ready, although the disk is full")
            try:
                service.client.decide(NAME, "visitor", id="never")
                raise Failed("a decision was acknowledged on a full disk")
            except ServiceError as refused:
                check(refused.status == 503, f"a full disk was answered with {refused!r}")
        resource.prlimit(service.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        until(service.is_ready, "ready once there is room")
        play(service.client, self.books, ids)  # the same ids once more
        compare(service, self.books)
        say(f"disk full with {left:,} bytes left: 503 until room was made, nothing lost; {self.books}")

    def take_the_file_away(self, service: Service) -> None:
        elsewhere = self.path.with_name("elsewhere.db")
        self.path.rename(elsewhere)
        try:
            until(lambda: service.ready()[0] == 503, "unready without its file")
            check("deleted or moved" in service.ready()[1], service.ready()[1])
            try:
                service.client.decide(NAME, "visitor", id="nowhere")
                raise Failed("a decision was acknowledged into a file that is not there")
            except ServiceError as refused:
                check(refused.status == 503, f"a deleted file was answered with {refused!r}")
        finally:
            elsewhere.rename(self.path)
        until(service.is_ready, "ready once the file is back")
        compare(service, self.books)
        compare_periods(service, self.books)
        play(service.client, self.books, self.books.new_ids(BATCH))
        say("file taken away: 503 until it was back, nothing acknowledged into nothing")

    def meet_slow_clients(self, service: Service) -> None:
        """Some send half a request and wait, some ask for the log and do not read it; others do not notice."""
        ask = f"GET /v1/experiments/{NAME}/log?format=jsonl HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        half = f"POST /v1/experiments/{NAME}/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{{"
        longest = 0.0
        with contextlib.ExitStack() as stack:
            for sent in (ask, ask, half.encode(), half[:30].encode(), b""):
                slow = socket.socket()
                slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                stack.enter_context(slow)
                slow.connect(("127.0.0.1", service.port))
                slow.sendall(sent)
            for _ in range(100):
                began = time.perf_counter()
                (id,) = self.books.new_ids(1)
                play(service.client, self.books, [id])
                longest = max(longest, time.perf_counter() - began)
        say(f"slow clients: 100 decisions with their rewards beside them, the slowest in {1000 * longest:.0f} ms")

    def stop(self, service: Service) -> None:
        totals(service, self.books)
        code = service.end(signal.SIGTERM)
        check(code == 0, f"the service ended with {code}")
        printed = alphafair("verify", self.path)
        check("to the last bit" in printed, printed)
        say(f"stopped, and verified: {self.books}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drill", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="a folder without a shop.db; a temporary one if left out")
    parser.add_argument("--seconds", type=float, default=3.0, help="of load in each step")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes that a full disk has left")
    options = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        settings: dict[str, Any] = {"seconds": options.seconds, "sizes": tuple(options.sizes)}
        if os.listdir(folder):
            parser.error(f"{folder} is not empty")
        try:
            Drill(folder, **settings).run()
        except Failed as failed:
            print(f"FAILED  {failed}", flush=True)
            return 1
    print("All steps went as they should.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
