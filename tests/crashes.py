"""A writer under load that is killed again and again: what was acknowledged against what is on the disk.

`python -m tests.crashes FOLDER --kills 30` prints what it found as JSON. One process loads the kernels, forks a writer,
reads its acknowledgements from a pipe, kills it at a random moment, recovers the file and compares, and forks the next
writer, which asks again for all that was not acknowledged, with the same ids. The last writer finishes in peace.

Time runs faster than on the wall, so that periods of the experiment `timed` end about 80 times in a second: no boundary
may be lost or written twice, and every book has the sum of the rewards in the log.

With `--database postgresql://...` the writer has a database instead of a file, in two new schemas.

With `--early` every group is acknowledged before it is committed: the control, in which events must be lost.
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import random
import signal
import sys
import threading
import time
import zlib
from collections import Counter, deque
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from alphafair.engine import Activate, Decide, Engine, Observe, Outcome, Receipt, Reward, SlateReceipt
from alphafair.engine.addresses import is_url, with_schema
from alphafair.engine.requests import Value
from alphafair.engine.store.slates import Slate
from alphafair.engine.store.sqlite import SqliteStore
from tests.stores import Path as Address
from tests.stores import QueriedStore, open_store, rows_of

N_THREADS = 4
SNAPSHOT_EVERY = 40
EXPERIMENTS = {
    "bandit": "alpha-fair-adaptive",
    "slow": "alpha-fair-bandit",
    "full": "alpha-fair",
    "tiny": "alpha-fair-adaptive",
    "timed": "alpha-fair-adaptive",
    "slates": "alpha-fair-adaptive",  # every decision shows all arms
}
PERIOD, SPEED = 60, 5_000  # seconds of a period of `timed`, and seconds that pass in one
STARTED = time.time_ns()
TINY = (2.0**-1074, 0.0, 2.0**-900, 2.0**-560)  # what decayed rewards become: at first an experiment has no others
ARMS = ("ada", "ben", "cyd")
TIMED_REWARDS = """select r.position, r.at, d.arm, r.reward from reward r join decision d on d.event = r.decision
    where d.experiment = ? and d.decided_by is null order by r.position"""
Request = Decide | Reward | Activate | Observe
Acks = dict[tuple[str, str], list[Any]]  # by kind and id: what was answered


class Early:
    """The control: says that a group is on the disk, and writes it some groups later."""

    held: deque[tuple[Any, ...]]

    def commit(self, parts: Any, statements: Any = ()) -> None:
        held = self.__dict__.setdefault("held", deque())
        held.append((parts, statements))
        if len(held) > 4 or not all(part.expected for part in parts):
            super().commit(*held.popleft())  # type: ignore[misc]


class EarlyFile(Early, SqliteStore):
    """In a file the rest is written in the end."""

    def numbers(self) -> Any:
        given = super().numbers()
        given.event = max(
            [given.event, *(part.numbers.event for parts, _ in self.__dict__.get("held", ()) for part in parts)]
        )
        return given

    def close(self) -> None:
        held = self.__dict__.get("held", deque())
        while held:
            SqliteStore.commit(self, *held.popleft())
        super().close()


class EarlyDatabase(Early, QueriedStore):
    """In a database snapshots would be of events that are not there."""

    def save(self, row: Any) -> None:
        pass


def opened(address: Address, *, early: bool = False) -> Engine:
    if not early:
        return Engine(open_store(address), clock=clock)
    return Engine((EarlyDatabase if is_url(address) else EarlyFile)(address), clock=clock)  # type: ignore[arg-type]


def clock() -> int:
    return STARTED + SPEED * (time.time_ns() - STARTED)


# the load


def value_of(id: str) -> float:
    """The reward of a decision: sixteenths, or powers of two so far apart that all sums are exact in any order."""
    n, chance = int(id.split("-")[1]), zlib.crc32(id.encode())
    if name_of(n) == "tiny" and (n < 100 or chance % 5):
        return TINY[chance % len(TINY)]
    return chance % 17 / 16


def name_of(n: int) -> str:
    """The experiment of the n-th round."""
    return list(EXPERIMENTS)[n % len(EXPERIMENTS)]


def plan(thread: int, n: int) -> list[list[Request]]:
    """What a thread asks in its n-th round: groups of requests, each sent when the one before is answered."""
    name = name_of(n)
    ids = [f"{thread}-{n}-{k}" for k in range(1 + n % 4)]
    deferred = n % 6 == 0
    k = len(ARMS) if name == "slates" else None
    decide = [Decide(name, f"visitor-{zlib.crc32(id.encode()) % 7}", id, None, deferred, k) for id in ids]
    seen = [Observe(name, f"visitor-{n % 7}", ARMS[n % 3], value_of(id), f"{id}-seen") for id in ids[::2]]
    activate = [Activate(id) for id in ids] if deferred else []
    reward = [Reward(id, reward_of(name, value_of(id))) for id in ids]
    groups: list[list[Request]] = [[*decide, *seen], [*activate], [*reward]]
    if n % 7 == 0:  # everything once more
        groups += groups
    return [group for group in groups if group]


def reward_of(name: str, value: float) -> Value:
    if name == "slates":
        return dict.fromkeys(ARMS, value)
    return [value] * len(ARMS) if name == "full" else value


def key_of(request: Request) -> tuple[str, str]:
    return type(request).__name__, str(request.id)


def write(path: Address, acked: Acks, pipe: int, early: bool, in_peace: bool) -> None:
    """The writer: threads that go on where they were interrupted; each acknowledges to the pipe before it goes on."""
    engine = opened(path, early=early)
    stop = threading.Event()

    def shop(thread: int) -> None:
        n = 0
        while all(key_of(request) in acked for group in plan(thread, n) for request in group):
            n += 1
        while not stop.is_set():
            for k, group in enumerate(plan(thread, n)):
                if k < 3 and all(key_of(request) in acked for request in group):
                    continue
                for request, answer in zip(group, engine.submit(group), strict=True):
                    told = list(answer) if isinstance(answer, Receipt | SlateReceipt | Outcome) else [repr(answer)]
                    os.write(pipe, (json.dumps([*key_of(request), *told]) + "\n").encode())
            n += 1

    threads = [threading.Thread(target=shop, args=(k,)) for k in range(N_THREADS)]
    for thread in threads:
        thread.start()
    if in_peace:
        time.sleep(0.05)
        stop.set()
    for thread in threads:
        thread.join()
    engine.close()


# the one that kills, and compares


class Witness:
    """Everything that was acknowledged, and whatever does not agree with it."""

    def __init__(self, path: Address, early: bool) -> None:
        self.path, self.early = path, early
        self.acked: Acks = {}
        self.fresh: list[tuple[str, str]] = []  # acknowledged since the last comparison
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()

    def heard(self, line: bytes) -> None:
        kind, id, *answer = json.loads(line)
        before = self.acked.get((kind, id))
        self.counts["acknowledged"] += 1
        if kind == "Decide" and len(answer) not in (len(Receipt._fields), len(SlateReceipt._fields)):
            self.faults.append(f"{kind} {id} was answered {answer}")
            return
        if before is None:
            self.acked[kind, id] = answer
            self.fresh.append((kind, id))
            self.counts["on the disk before they were acknowledged"] += answer == ["repeated"]
            if kind != "Decide" and answer[0] not in ("applied", "activated", "recorded", "repeated"):
                self.faults.append(f"{kind} {id} was answered {answer}")
        elif answer != (before if kind == "Decide" else ["repeated"]):
            self.faults.append(f"{kind} {id} was answered {before}, then {answer}")

    def run_writer(self, n_acks: int | None, pause: float) -> None:
        """Fork a writer; kill it after so many acknowledgements and a pause, or let it finish."""
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(source)
                write(self.path, self.acked, sink, self.early, in_peace=n_acks is None)
                status = 0
            finally:
                os._exit(status)
        os.close(sink)
        with os.fdopen(source, "rb") as acks:
            for line in acks:
                self.heard(line)
                if n_acks is not None:
                    n_acks -= 1
                    if n_acks == 0:
                        time.sleep(pause)
                        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if status != (0 if n_acks is None else signal.SIGKILL):
            self.faults.append(f"a writer ended with status {status}")

    def compare(self) -> None:
        """Recover the file: replayed, it is what it says it is; and nothing acknowledged is missing."""
        engine = opened(self.path)
        engine.verify()
        self.compare_periods(engine)
        rows = partial(rows_of, engine)
        for kind, id in self.fresh:
            answer = self.acked[kind, id]
            if kind == "Decide":
                found = rows("select propensity, arm, slate from decision where id = ?", (id,))
                kept = len(found) == 1 and same_decision(answer, *found[0])
            elif kind == "Observe":
                found = rows(
                    """select d.decided_by, r.reward from reward r join decision d on d.event = r.decision
                    where d.id = ?""",
                    (id,),
                )
                kept = found == [("incumbent", value_of(id.removesuffix("-seen")))]
            elif kind == "Activate":
                kept = bool(
                    rows("select 1 from activation r join decision d on d.event = r.decision where d.id = ?", (id,))
                )
            else:
                table = "slate_reward" if plan_of(id).k else "reward"
                column = "rewards" if plan_of(id).k else "reward"
                found = rows(
                    f"select {column} from {table} r join decision d on d.event = r.decision where d.id = ?", (id,)
                )
                of_slate = np.full(len(ARMS), value_of(id)).tobytes()
                kept = found in ([(value_of(id),)], [(None,)], [(of_slate,)])
            if not kept:
                self.faults.append(f"{kind} {id} was acknowledged and lost")
                self.counts["lost"] += 1
        self.fresh.clear()
        engine._store.close()

    def compare_periods(self, engine: Engine) -> None:
        """Every reward is in the period that its time belongs to, and every book has the sum of its rewards."""
        created, *changes = engine.history("timed")
        begun = [(change.position, change.details) for change in changes]
        start = round(created.at.timestamp() * 1e6)
        for _, fields in begun:
            if (fields["period"], 0) != divmod(fields["at"] - start, PERIOD * 1_000_000):
                self.faults.append(f"period {fields['period']} starts at {fields['at'] - start}")
        self.counts["boundaries"] = len(begun)
        if len({fields["period"] for _, fields in begun}) != len(begun):
            self.faults.append(f"a boundary was written twice: {begun}")
        since, numbers = [position for position, _ in begun], [0, *(fields["period"] for _, fields in begun)]
        sums: dict[int, dict[str, float]] = {}
        with engine.writers.reading("timed") as (_, experiment):
            key = experiment.key
        for position, at, arm, reward in rows_of(engine, TIMED_REWARDS, (key,)):
            number = numbers[bisect.bisect(since, position)]
            if number != (at - start) // (PERIOD * 1_000_000):
                self.faults.append(f"the reward at {position} and {at - start} is in period {number}")
            earned = sums.setdefault(number, dict.fromkeys(ARMS, 0.0))
            earned[ARMS[arm]] += reward
        for period in engine.experiment("timed").periods:
            if period.rewards != sums.pop(period.number, dict.fromkeys(ARMS, 0.0)):
                self.faults.append(f"the books of {period} do not have the rewards of the log")
        if sums:
            self.faults.append(f"{sums} are in no book")

    def settle_accounts(self) -> None:
        """Now that all is answered: every arm has what its acknowledged rewards sum up to, once."""
        with opened(self.path) as engine:
            engine.verify()
            for name in EXPERIMENTS:
                status = engine.experiment(name)
                mine = [id for kind, id in self.acked if kind == "Decide" and plan_of(id).experiment == name]
                earned = dict.fromkeys(ARMS, 0.0)
                for id in mine:
                    shown = self.acked["Decide", id][1]
                    for arm in [shown] if isinstance(shown, str) else shown:
                        earned[arm] += value_of(id)
                counted = (status.decisions, status.rewards, status.pending)
                if status.cumulative_rewards != earned or counted != (len(mine), len(mine), 0):
                    self.faults.append(
                        f"{name}: {status}, but what was acknowledged is {earned} in {len(mine)} rewards"
                    )
            self.counts["events"] = engine.position


def same_decision(answer: list[Any], propensity: float, arm: int, slate: bytes | None) -> bool:
    """Whether a decision is stored as it was acknowledged."""
    if slate is None:
        return (propensity, arm) == (answer[2], ARMS.index(answer[1]))
    _, arms, propensities = Slate.from_bytes(slate)
    return ([ARMS[each] for each in arms], [*propensities]) == (answer[1], answer[2])


def plan_of(id: str) -> Decide:
    thread, n, k = map(int, id.split("-"))
    request = plan(thread, n)[0][k]
    assert isinstance(request, Decide)
    return request


def make(path: Address) -> Address:
    with opened(path) as engine:
        for name, policy in EXPERIMENTS.items():
            engine.create(name, arms=ARMS, policy=policy, period=PERIOD if name == "timed" else None)
    return path


def run(places: tuple[Address, Address], kills: int, seed: int, early: bool) -> dict[str, Any]:
    rng = random.Random(seed)
    path = make(places[0])
    with opened(path) as engine:  # loads the kernels
        for n in range(len(EXPERIMENTS)):
            for group in plan(0, n):
                engine.submit(group)
        engine.verify()
    witness = Witness(make(places[1]), early)
    for kill in range(kills):
        witness.run_writer(rng.randint(1, 120), rng.choice((0.0, rng.uniform(0.0, 0.01))))
        witness.compare()
        if sys.stderr.isatty():
            print(f"\r{kill + 1} of {kills} kills", end="", file=sys.stderr, flush=True)
    witness.run_writer(None, 0.0)
    witness.compare()
    witness.settle_accounts()
    return {"kills": kills, "faults": witness.faults, **witness.counts}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--early", action="store_true")
    parser.add_argument("--database")
    options = parser.parse_args()
    names = ("rehearsal", "killed")
    places: Any = tuple(options.folder / f"{name}.db" for name in names)
    if options.database is not None:
        places = tuple(with_schema(options.database, f"{name}_{options.folder.name}") for name in names)
    with mock.patch("alphafair.engine.writer.SNAPSHOT_EVERY", SNAPSHOT_EVERY):
        print(json.dumps(run(places, options.kills, options.seed, options.early)))


if __name__ == "__main__":
    main()
