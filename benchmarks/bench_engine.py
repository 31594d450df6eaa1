"""The engine: durable batches, recovery, opening a large file, and memory over a million decisions."""

from __future__ import annotations

import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from alphafair.engine import Decide, Engine, Observe, Receipt, Reward
from alphafair.engine.state.replay import Replay
from alphafair.engine.store.ledger import Decided, Head, Part, Settled
from alphafair.engine.store.sqlite import SqliteStore
from alphafair.jit import using_mode
from benchmarks.jobs import ALPHA, N_ARMS
from benchmarks.table import Row, duration
from benchmarks.timing import best, seconds

BATCH, THREADS, EVENTS, TURNS = 100, 16, 1_000_000, 10
LARGE, SOME = 10_000_000, 5_000
VISITORS = 1_000


def rows() -> Iterator[Row]:
    """All of them."""
    yield from rows_of_load()
    with tempfile.TemporaryDirectory() as folder, Engine.open(Path(folder) / "shop.db", seed=0) as engine:
        yield from rows_of_others(engine)


def rows_of_load() -> Iterator[Row]:
    """What an engine takes in, and reads again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "shop.db"
        with Engine.open(path, seed=0) as engine:
            engine.create("home", arms=[f"arm-{k}" for k in range(N_ARMS)], alpha=ALPHA)
            play(engine, 100_000)  # compiles, and fills caches
            before = resident()
            turn = 2 * EVENTS // TURNS
            contenders = {
                "ours": lambda: seconds(lambda: play(engine, turn)) / turn,
                "alone": lambda: seconds(lambda: play(engine, turn // 10, threads=1)) / (turn // 10),
            }
            times = best(contenders, TURNS)
            grown = resident() - before
            job, rate = f"batches of {BATCH}, {THREADS} threads", 1 / times["ours"]
            yield _row(job, rate, "one thread", 1 / times["alone"], 100_000)
            floor = min(seconds_to_write(Path(folder) / f"{k}.db", turn) for k in range(3)) / turn
            yield _row(job, rate, "the same rows, only written", 1 / floor, 100_000)
            yield Row(
                "memory over a million decisions",
                f"{grown / 1e6:.0f} MB more",
                "a decision kept whole",
                "500 MB",
                "",
                "flat: under 50 MB",
                grown < 50e6,
            )
            position = engine.position
            with engine._store.reader() as reader:
                rate = (
                    position
                    / best({"replay": lambda: seconds(lambda: Replay(reader, {1: position}).run())}, 3)["replay"]
                )
            proof = position / seconds(engine.verify)
            yield _row("recovery without a snapshot", rate, "verify, which draws every arm again", proof, 500_000)
            while engine.position < LARGE:
                play(engine, 500_000)
        spent = seconds(lambda: Engine.open(path, read_only=True).close())
        size = path.stat().st_size / 1e9
        yield Row(
            f"open a file of {LARGE / 1e6:g} million events ({size:.1f} GB)",
            f"{spent:.2f} s",
            "replay all of it",
            f"{LARGE / rate:.0f} s",
            f"{LARGE / rate / spent:,.3g} x",
            "under 2 s",
            spent < 2.0,
        )


def rows_of_others(engine: Engine) -> Iterator[Row]:
    """Decisions of others, and the policy's own once others have decided, by turns in processor time."""
    steps: dict[str, Callable[[Engine, str], None]] = {
        "alone": decide_some,
        "beside": decide_some,
        "seen": observe_some,
    }
    for name in steps:
        engine.create(name, arms=[f"arm-{k}" for k in range(N_ARMS)], alpha=ALPHA)
    observe_some(engine, "beside")

    def taken(name: str) -> float:
        return seconds(lambda: steps[name](engine, name), time.process_time) / SOME

    with using_mode("now"):
        for name in steps:
            taken(name)  # compiles
        times = best({name: partial(taken, name) for name in steps}, TURNS)
    rival = "decided and rewarded in batches, nobody else decides"
    for job, name, most in (
        ("decisions of others with rewards, in batches", "seen", 1.0),
        ("decided and rewarded in batches, in live after decisions of others", "beside", 1.25),
    ):
        ratio, mine, theirs = times[name] / times["alone"], duration(times[name]), duration(times["alone"])
        yield Row(f"{job}, processor time", mine, rival, theirs, f"{ratio:.2f} x", f"at most {most:g} x", ratio <= most)


def decide_some(engine: Engine, name: str) -> None:
    """Decisions in batches, and the rewards of each batch."""
    for first in range(0, SOME, BATCH):
        answers = engine.submit([Decide(name, f"visitor-{(first + k * 7) % VISITORS}") for k in range(BATCH)])
        engine.submit([Reward(answer.id, 0.5, name) for answer in answers if isinstance(answer, Receipt)])


def observe_some(engine: Engine, name: str) -> None:
    """As many decisions of others with their rewards."""
    for first in range(0, SOME, BATCH):
        shown = [(f"visitor-{(first + k * 7) % VISITORS}", f"arm-{k % N_ARMS}") for k in range(BATCH)]
        engine.submit([Observe(name, context, arm, 0.5) for context, arm in shown])


def _row(job: str, rate: float, rival: str, theirs: float, target: float) -> Row:
    mine, other, ratio = f"{rate:,.0f} events/s", f"{theirs:,.0f} events/s", f"{rate / theirs:.3g} x"
    return Row(job, mine, rival, other, ratio, f"at least {target:,.0f}/s", rate >= target)


def play(engine: Engine, n_events: int, threads: int = THREADS) -> None:
    """Half decisions, half rewards of the batch before, by several threads."""

    def visit(first: int) -> None:
        ids: list[str] = []
        for batch in range(n_events // BATCH // threads):
            asked = [Decide("home", f"visitor-{(first + batch + k * 7) % VISITORS}") for k in range(BATCH // 2)]
            answers = engine.submit([*asked, *(Reward(id, 0.5) for id in ids)])
            ids = [answer.id for answer in answers if isinstance(answer, Receipt)]

    workers = [threading.Thread(target=visit, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def seconds_to_write(path: Path, n_events: int) -> float:
    """Time the store alone: prepared rows, in batches of as many as all threads submit at once."""
    decided = [
        (2 * k + 1, 1, 2 * k + 1, f"id-{k:012x}", k % VISITORS, 0, 0.1, 2 * k, 1, 0, None, None, k, k * 40503)
        for k in range(n_events // 2)
    ]
    settled = [(2 * k + 2, 1, 2 * k + 2, 2 * k + 1, 0.5, "client", None, k) for k in range(n_events // 2)]
    with SqliteStore(path) as store:

        def write() -> None:
            for first in range(0, n_events // 2, BATCH * THREADS // 2):
                last = min(first + BATCH * THREADS // 2, n_events // 2)
                part = Part(Head(1, "home", 2 * first, first), store.numbers(), last)
                while part.position < 2 * last:
                    part.next()
                part.rows |= {Decided: decided[first:last], Settled: settled[first:last]}
                store.commit([part])

        return seconds(write)


def resident() -> int:
    """The most memory this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
