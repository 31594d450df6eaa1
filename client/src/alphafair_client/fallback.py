"""What a client does while nobody answers: it shows an arm of the program's, and tells the service later.

`Fallback` answers decisions whose calls fail, and keeps what was shown in a queue, with its rewards, until the service
has recorded it. What sends is written as in `sending`: generators, which both clients run.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from alphafair_client import api, sending
from alphafair_client.answers import InvalidArgument, Outcome, Receipt, ServiceError
from alphafair_client.sending import Call, Terms

if TYPE_CHECKING:
    import sqlite3

FAILURES: Final = 3  # in a row, after which decisions fall back at once
FIRST_BREAK, LONGEST_BREAK = 1.0, 30.0  # seconds
IN_MEMORY, IN_FILE = 10_000, 100_000  # entries of a queue
EVERY: Final = 1.0  # seconds between two deliveries
OF_ONE_EXPERIMENT = ("paused", "policy_failed", "not_described")  # codes that say nothing about the service
REFUSED = (404, 409, 410, 413, 422)  # statuses of entries that would be refused again, but for some codes
UNLOGGED: Final = "unlogged-"  # begins ids of decisions that no log has, because the experiment lacks their arm
OBSERVATION, DEFERRED, REWARD, ACTIVATION = "observation", "deferred", "reward", "activation"  # kinds of entries
LOG = logging.getLogger("alphafair_client")

Choose = Callable[[str, str, Sequence[str] | None], str]
Problem = ServiceError | ConnectionError


def is_outage(problem: Problem) -> bool:
    """Whether nobody answered, or the answer is "not now"."""
    if isinstance(problem, ConnectionError):
        return True
    return problem.status >= 500 or problem.status in (408, 429) or problem.code in ("paused", "bad_answer")


def _if_outage(problem: Problem | None) -> Problem | None:
    """Raise a problem that is no outage."""
    if problem is not None and not is_outage(problem):
        raise problem
    return problem


def _is_new(problem: Problem | None) -> bool:
    """Whether the experiment lacks the incumbent's arm."""
    return isinstance(problem, ServiceError) and (problem.code, problem.argument) == ("unknown_arm", "incumbent")


def _bodies(items: Sequence[bytes | ServiceError]) -> list[Any]:
    return [json.loads(item) if isinstance(item, bytes) else None for item in items]


def is_refused(problem: Problem) -> bool:
    """Whether the service would refuse an entry of the queue again; an address without a service is no refusal."""
    final = isinstance(problem, ServiceError) and problem.status in REFUSED and problem.code != "not_found"
    return final and not is_outage(problem)


class Breaker:
    """After failures in a row, no calls are made for a while: for 1 s, doubling to 30, with one trial each time."""

    def __init__(self) -> None:
        self._failures, self._pause, self._until = 0, FIRST_BREAK, 0.0

    def allows(self) -> bool:
        """Whether a call may be made now."""
        if self._failures < FAILURES:
            return True
        now = time.monotonic()
        if now < self._until:
            return False
        self._pause = min(2.0 * self._pause, LONGEST_BREAK)
        self._until = now + self._pause  # of the next trial, if this one fails
        return True

    def failed(self) -> None:
        now = time.monotonic()
        if now < self._until:  # a trial, or a call from before the break
            return
        self._failures += 1
        if self._failures == FAILURES:
            self._pause = FIRST_BREAK
        if self._failures >= FAILURES:
            self._until = now + self._pause

    def answered(self) -> None:
        self._failures, self._until = 0, 0.0

    def try_next(self) -> None:
        """Let the next call be a trial: somebody answers again."""
        self._until = min(self._until, time.monotonic())


class Entry(NamedTuple):
    """What waits to be sent: a decision that was shown, or a reward or an activation of another one."""

    serial: int
    kind: str
    experiment: str
    id: str
    body: bytes  # JSON


Line = tuple[str, str]  # a kind and an experiment: what can be sent together


class Queue:
    """Entries in memory, by kind and experiment in their order; beyond the limit, the oldest is dropped.

    A queue belongs to one process: after a fork, that of the child is empty and has no file.
    """

    limit = IN_MEMORY

    def __init__(self) -> None:
        self._lines: dict[Line, dict[str, Entry]] = {}
        self._last = 0
        self._start()

    def _start(self) -> None:
        self._lock, self._process = threading.RLock(), os.getpid()

    def lock(self) -> threading.RLock:
        """What to hold while entries are read and then changed."""
        if self._process != os.getpid():
            self._lines = {}
            self._start()
        return self._lock

    def put(self, kind: str, experiment: str, id: str, body: bytes) -> list[Entry]:
        """Add an entry; return those that were dropped for it."""
        with self.lock():
            self._last += 1
            self._keep(Entry(self._last, kind, experiment, id, body))
            dropped = [] if sum(map(len, self._lines.values())) <= self.limit else [self._oldest()]
            self.remove(dropped)
            return dropped

    def find(self, experiment: str, id: str) -> Entry | None:
        """The decision with an id."""
        with self.lock():
            lines = (self._lines.get((kind, experiment), {}) for kind in (OBSERVATION, DEFERRED))
            return next((line[id] for line in lines if id in line), None)

    def replace(self, entry: Entry, **changes: Any) -> None:
        """Change an entry that is there."""
        with self.lock():
            del self._lines[entry.kind, entry.experiment][entry.id]
            self._keep(entry._replace(**changes))

    def remove(self, entries: Iterable[Entry]) -> None:
        """Remove entries, whatever they have become."""
        with self.lock():
            for entry in entries:
                self._lines.get((entry.kind, entry.experiment), {}).pop(entry.id, None)

    def next_line(self, n: int, without: set[Line]) -> list[Entry]:
        """The oldest entries of a line; decisions come first, because rewards refer to them."""
        with self.lock():
            found = [line for line in self._lines if self._lines[line] and line[0] != DEFERRED and line not in without]
            found.sort(key=lambda line: line[0] != OBSERVATION)
            return list(islice(self._lines[found[0]].values(), n)) if found else []

    def __len__(self) -> int:
        """How many wait to be sent; deferred decisions wait for their activation."""
        with self.lock():
            return sum(len(entries) for (kind, _), entries in self._lines.items() if kind != DEFERRED)

    def close(self) -> None:
        """Leave what is there."""

    def _keep(self, entry: Entry) -> None:
        self._lines.setdefault((entry.kind, entry.experiment), {})[entry.id] = entry

    def _oldest(self) -> Entry:
        return min((next(iter(line.values())) for line in self._lines.values() if line), key=lambda each: each.serial)


class FileQueue(Queue):
    """A queue whose entries are in a SQLite file as well, in which they outlive the process. One process uses it."""

    limit = IN_FILE

    def __init__(self, path: Path) -> None:
        import sqlite3  # it is not needed without a file

        super().__init__()
        self._error, self._warned = sqlite3.Error, False
        self._inherited: sqlite3.Connection | None = None  # of the parent process: not to be used, nor to be closed
        self._file: sqlite3.Connection | None = None
        try:
            self._file = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
            for statement in (
                "pragma locking_mode = exclusive",
                "pragma journal_mode = wal",
                "pragma synchronous = normal",
                "create table if not exists entry (serial integer primary key, kind text not null, "
                "experiment text not null, id text not null, body blob not null)",
                "begin immediate",
                "commit",
            ):
                self._file.execute(statement)
            for row in self._file.execute("select serial, kind, experiment, id, body from entry order by serial"):
                self._last = row[0]
                super()._keep(Entry(*row))
        except sqlite3.Error as problem:
            self.close()
            allowed = "the path of a file for this client alone"
            raise InvalidArgument("queue", allowed, str(path), f"It cannot be used: {problem}.") from None

    def lock(self) -> threading.RLock:
        if self._process != os.getpid():
            self._inherited, self._file = self._file, None
        return super().lock()

    def remove(self, entries: Iterable[Entry]) -> None:
        with self.lock():
            removed = list(entries)
            super().remove(removed)
            self._write("delete from entry where serial = ?", [(entry.serial,) for entry in removed])

    def close(self) -> None:
        with self.lock():
            if self._file is not None:
                self._file.close()
            self._file = None

    def _keep(self, entry: Entry) -> None:
        super()._keep(entry)
        self._write("insert or replace into entry values (?, ?, ?, ?, ?)", [entry])

    def _write(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Write to the file; what cannot be written is in memory, so that visitors see an arm all the same."""
        if self._file is None or not rows:
            return
        try:
            self._file.execute("begin")
            self._file.executemany(statement, rows)
            self._file.execute("commit")
        except self._error as problem:
            if self._file.in_transaction:
                self._file.execute("rollback")
            if not self._warned:
                LOG.warning("The queue cannot be written (%s): from now on, it is in memory only.", problem)
            self._warned = True


class Fallback:
    """Arms to show while nobody answers, and the queue of what was shown; `wake` starts a delivery in the background.

    It concerns decisions that have an arm to fall back on; rewards are queued once there may be such decisions.
    """

    def __init__(
        self, arm: str | Choose | None, queue: str | os.PathLike[str] | None, wake: Callable[[bool], None]
    ) -> None:
        if arm is not None and not callable(arm) and not (isinstance(arm, str) and arm):
            raise InvalidArgument("fallback", "an arm, or a function that returns one", arm, "Pass a string.")
        if queue is not None and not isinstance(queue, str | os.PathLike):
            raise InvalidArgument("queue", "the path of a file, or None", queue, "Pass a string or a Path.")
        self.arm, self._wake = arm, wake
        self.queue = Queue() if queue is None else FileQueue(Path(os.fsdecode(queue)))
        self.breaker = Breaker()
        self.dropped, self.closed = 0, False
        self._in_use = arm is not None or queue is not None  # then rewards are queued, too
        self._delivering = 0  # the process in which a delivery is under way
        self._new_arms: set[tuple[str, str]] = set()

    def close(self) -> None:
        """Let calls fail from now on; a file keeps what was not sent."""
        self.closed = True
        self.queue.close()

    # calls

    def decide(self, experiment: str, item: Mapping[str, Any], call: Call[Any]) -> Call[Any]:
        """Make a decision; in an outage, show the arm to fall back on. A slate has none."""
        if not self._has_arm(item):
            return (yield from call)
        return (yield from self._unless_broken(call, lambda problem: self._receipt(experiment, item, problem)))

    def decide_many(self, experiment: str, items: Sequence[bytes | ServiceError], call: Call[list[Any]]) -> Call[Any]:
        """Make decisions; in an outage, show arms if all of them have one to fall back on."""
        bodies = _bodies(items)
        if not all(body is None or self._has_arm(body) for body in bodies):
            return (yield from call)
        return (yield from self._many(call, items, lambda k, problem: self._receipt(experiment, bodies[k], problem)))

    def report(self, kind: str, experiment: str, body: Mapping[str, Any], call: Call[Outcome]) -> Call[Outcome]:
        """Send a reward or an activation; if its decision is queued, or nobody answers, keep it."""
        known = self._merged(kind, experiment, body)
        if known is not None or not self._in_use:
            return known or (yield from call)
        found: Outcome = yield from self._unless_broken(
            call, lambda problem: self._kept(kind, experiment, body, problem)
        )
        return found

    def reward_many(
        self,
        experiment: str,
        items: Sequence[bytes | ServiceError],
        call: Callable[[Sequence[bytes | ServiceError]], Call[list[Any]]],
    ) -> Call[list[Any]]:
        """Send rewards; keep those whose decisions are queued, and all in an outage."""
        if not self._in_use:
            return (yield from call(items))
        bodies = _bodies(items)
        known = [body and self._merged(REWARD, experiment, body) for body in bodies]
        left = [k for k, outcome in enumerate(known) if outcome is None]
        found: Iterator[Any] = iter(())
        if left:
            sent = [items[k] for k in left]

            def kept(k: int, problem: Problem | None) -> Outcome:
                return self._kept(REWARD, experiment, bodies[left[k]], problem)

            found = iter((yield from self._many(call(sent), sent, kept)))
        return [next(found) if outcome is None else outcome for outcome in known]

    def _many(
        self, call: Call[list[Any]], items: Sequence[Any], otherwise: Callable[[int, Problem | None], Any]
    ) -> Call[list[Any]]:
        """Make a call of many items; `otherwise` answers those that are not sent, or fail."""
        found: list[Any] = yield from self._unless_broken(call, lambda problem: [_if_outage(problem)] * len(items))
        for k, (item, result) in enumerate(zip(items, found, strict=True)):
            if isinstance(item, ServiceError):
                found[k] = item
            elif result is None or (isinstance(result, Problem) and (is_outage(result) or _is_new(result))):
                found[k] = otherwise(k, result)
        return found

    def _unless_broken(self, call: Call[Any], otherwise: Callable[[Problem | None], Any]) -> Call[Any]:
        """Make a call, unless too many have failed; `otherwise` answers what is not made, or fails."""
        if not self.breaker.allows():
            return otherwise(None)
        try:
            answer = yield from call
        except (ServiceError, ConnectionError) as problem:
            if self.closed:
                raise
            if not is_outage(problem):
                self.breaker.answered()
            elif not (isinstance(problem, ServiceError) and problem.code in OF_ONE_EXPERIMENT):
                self.breaker.failed()
            return otherwise(problem)
        self.breaker.answered()
        if len(self.queue):
            self._wake(True)
        return answer

    def _has_arm(self, item: Mapping[str, Any]) -> bool:
        return (self.arm is not None or item.get("incumbent") is not None) and item.get("k") is None

    def _receipt(self, experiment: str, item: Mapping[str, Any], problem: Problem | None) -> Receipt:
        """The receipt of an arm that is shown without the service; a problem that is no outage is raised."""
        is_new = _is_new(problem)
        if not is_new:
            _if_outage(problem)
        context, arm = item["context"], self._arm(experiment, item)
        id = (UNLOGGED if is_new else "") + sending.new_id()
        if is_new:
            self.dropped += 1
            if (experiment, arm) not in self._new_arms:
                LOG.warning("%s has no arm %r: it is shown, and not logged.", experiment, arm)
            self._new_arms.add((experiment, arm))
        else:
            shown = {"id": id, "context": context, "arm": arm, "source": "fallback", "instead_of": item["id"]}
            shown |= {name: item[name] for name in ("features", "unit") if item.get(name) is not None}
            if item.get("incumbent_propensity") is not None:
                shown["propensity"] = item["incumbent_propensity"]
            self._put(DEFERRED if item.get("deferred") else OBSERVATION, experiment, shown)
        return Receipt(id, arm, None, context, "fallback")

    def _arm(self, experiment: str, item: Mapping[str, Any]) -> str:
        """The incumbent's arm, that of the function, or the one given to the client unless it is not available."""
        available = item.get("available")
        if item.get("incumbent") is not None:
            return str(item["incumbent"])
        if callable(self.arm):
            return self.arm(experiment, item["context"], available)
        return str(self.arm if available is None or self.arm in available else available[0])

    def _merged(self, kind: str, experiment: str, body: Mapping[str, Any]) -> Outcome | None:
        """Add a reward or an activation to its decision, if that is queued."""
        if body["id"].startswith(UNLOGGED):
            return Outcome("unknown")
        if not self._in_use:
            return None
        with self.queue.lock():
            entry = self.queue.find(experiment, body["id"])
            if entry is None:
                return None
            if kind == REWARD:
                self.queue.replace(entry, body=sending.encoded({**json.loads(entry.body), "reward": body["reward"]}))
            else:
                self.queue.replace(entry, kind=OBSERVATION)
        self._wake(False)
        return Outcome("queued")

    def _kept(self, kind: str, experiment: str, body: Mapping[str, Any], problem: Problem | None) -> Outcome:
        _if_outage(problem)
        self._put(kind, experiment, body)
        return Outcome("queued")

    def _put(self, kind: str, experiment: str, body: Mapping[str, Any]) -> None:
        self._in_use = True
        dropped = self.queue.put(kind, experiment, body["id"], sending.encoded(body))
        self.dropped += sum(entry.kind != DEFERRED for entry in dropped)
        self._wake(False)

    # delivery

    def flush(self, terms: Terms) -> Call[bool]:
        """Send what is queued until the deadline; return whether nothing is left."""
        while len(self.queue):
            yield from self.deliver(terms)
            if not len(self.queue) or time.monotonic() + sending.FIRST_PAUSE >= terms.deadline:
                break
            yield sending.Pause(sending.FIRST_PAUSE)
        return not len(self.queue)

    def deliver(self, terms: Terms) -> Call[None]:
        """Send all that is queued, once; one delivery is under way at a time."""
        if self._delivering == os.getpid():
            return
        self._delivering, failed = os.getpid(), set[Line]()
        try:
            while not self.closed and (entries := self.queue.next_line(sending.BATCH_ITEMS, failed)):
                line = kind, experiment = entries[0].kind, entries[0].experiment
                results = yield from self._sent(terms, kind, experiment, entries)
                waits = [self._settle(*pair) for pair in zip(entries, results, strict=False)]
                if any(waits):
                    failed.add(line)
                else:
                    self.breaker.try_next()
        finally:
            self._delivering = 0

    @staticmethod
    def _sent(terms: Terms, kind: str, experiment: str, entries: Sequence[Entry]) -> Call[list[Any]]:
        """The results of a line of entries, or its first ones."""
        try:
            if kind == ACTIVATION:
                return [(yield from sending.call(terms, api.ACTIVATE, json.loads(entries[0].body), name=experiment))]
            endpoint = api.OBSERVE_MANY if kind == OBSERVATION else api.REWARD_MANY
            return (yield from sending.batch(terms, endpoint, experiment, [entry.body for entry in entries], Any))
        except (ServiceError, ConnectionError) as problem:
            return [problem] * (1 if kind == ACTIVATION else len(entries))

    def _settle(self, entry: Entry, result: Any) -> bool:
        """Remove an entry that was answered for good; return whether it waits for another delivery."""
        problem = result if isinstance(result, ServiceError | ConnectionError) else None
        if problem is not None and not is_refused(problem):
            return True
        with self.queue.lock():
            now = self.queue.find(entry.experiment, entry.id) or entry if entry.kind == OBSERVATION else entry
            self.queue.remove([entry])
            sent, left = json.loads(entry.body), json.loads(now.body)
            if problem is not None:
                self.dropped += 1
                if entry.kind == OBSERVATION and "reward" in sent and "reward" in str(getattr(problem, "argument", "")):
                    del sent["reward"]  # what was shown is logged, without a reward that cannot be
                    self._put(OBSERVATION, entry.experiment, sent)
            elif left != sent:  # a reward that arrived while the decision was sent
                self._put(REWARD, entry.experiment, {"id": entry.id, "reward": left["reward"]})
        return False
