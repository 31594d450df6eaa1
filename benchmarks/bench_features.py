"""Decisions with features beside decisions without: over HTTP, and recovery. In processor time, by turns."""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from alphafair.engine import Decide, Engine, Receipt, Reward
from alphafair.engine.state.replay import Replay
from alphafair.engine.store.ledger import Decided, Settled
from benchmarks.bench_service import load, metrics, running, until_ready
from benchmarks.jobs import ALPHA, N_ARMS, N_CONTEXTS, N_FEATURES
from benchmarks.table import Row, duration
from benchmarks.timing import best, seconds

TURNS, SECONDS = 5, 2.0
MOST = 1.5  # times what a decision without features takes
DECISIONS = 50_000
KINDS = {"bench": "decide_and_reward", "described": "described"}  # what is sent to each experiment
DECLARED = {f"f{k}": "number" for k in range(N_FEATURES)}


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        yield over_http(folder)
        yield recovery(Path(folder))


def over_http(folder: str) -> Row:
    """The median over turns of the service's processor time per answer."""
    spent: dict[str, list[float]] = {name: [] for name in KINDS}
    with running("-m", "alphafair", "serve", "--db", f"{folder}/bench.db", "--port") as port:
        url = until_ready(port)
        for name in KINDS:
            body = {"name": name, "arms": [f"arm-{k}" for k in range(N_ARMS)], "alpha": ALPHA}
            body |= {"features": DECLARED} if name == "described" else {}
            with urllib.request.urlopen(f"{url}/v1/experiments", json.dumps(body).encode()):
                pass
        for turn in range(TURNS + 1):
            for name, kind in KINDS.items():
                before = metrics(port)["process_cpu_seconds_total"]
                answers = load(port, kind, seconds=SECONDS, experiment=name)["per_second"] * SECONDS
                if turn:  # in the first, kernels are compiled
                    spent[name].append((metrics(port)["process_cpu_seconds_total"] - before) / answers)
    plain, described = (statistics.median(spent[name]) for name in KINDS)
    return Row(
        f"decide and reward over HTTP with {N_FEATURES} features, processor time of the service per answer",
        duration(described),
        "without features",
        duration(plain),
        f"{described / plain:.3g} x the time",
        f"at most {MOST:g} x",
        described <= MOST * plain,
    )


def recovery(folder: Path) -> Row:
    """The processor time of a replay per number that is stored, columns of rows and features alike."""
    columns = len(Decided._fields) + len(Settled._fields)
    with contextlib.ExitStack() as stack:
        replays = {}
        for name, declared in {"plain": None, "described": DECLARED}.items():
            engine = stack.enter_context(Engine.open(folder / f"{name}.db", seed=0))
            engine.create(name, arms=[f"arm-{k}" for k in range(N_ARMS)], alpha=ALPHA, features=declared)
            fill(engine, name, None if declared is None else dict.fromkeys(declared, 0.5))
            reader, positions = stack.enter_context(engine._store.reader()), {1: engine.position}
            replays[name] = lambda reader=reader, positions=positions: seconds(  # type: ignore[misc]
                lambda: Replay(reader, positions).run(), time.process_time
            )
        took = best(replays, TURNS)
    plain, described = took["plain"] / columns, took["described"] / (columns + N_FEATURES)
    return Row(
        f"recovery of decisions with {N_FEATURES} features, per number stored",
        duration(described / DECISIONS),
        "without features",
        duration(plain / DECISIONS),
        f"{described / plain:.3g} x the time",
        "at most 1 x",
        described <= plain,
    )


def fill(engine: Engine, name: str, features: dict[str, float] | None) -> None:
    """Decide and reward, in batches."""
    for first in range(0, DECISIONS, 1000):
        shown = [None if features is None else {**features, "f0": float(k % 7)} for k in range(1000)]
        asked = [Decide(name, f"c{(first + k) % N_CONTEXTS}", features=each) for k, each in enumerate(shown)]
        receipts = engine.submit(asked)
        given = [(k, each.id) for k, each in enumerate(receipts) if isinstance(each, Receipt)]
        engine.submit([Reward(id, float(k % 2), name) for k, id in given])
