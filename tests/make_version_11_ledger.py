"""How the files version-11* and database-2* of tests/fixtures were made, once, by alphafair as of c90524c.

Run `python -m tests.make_version_11_ledger FOLDER` with that version installed. It makes

- `version-11.db.gz`: a file with several experiments whose events interleave, and every kind of event;
- `version-11-single.db.gz`: a file with one experiment, whose positions are those of the file;
- `database-2.sql.gz`: a database with the experiments of the first file, as INSERT statements of `pg_dump`;
- `NAME.json.gz` beside each: statuses, states of policies, histories, and the exported log of every experiment.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from alphafair import State
from alphafair.engine import Engine, RequestError, decisions, writer
from alphafair.engine.addresses import open_store
from alphafair.service import keys
from tests.postgres import PROGRAMS, running

START = 1_800_000_000  # seconds
ARMS = ["lamp", "desk", "chair"]
GROUPS = {"chair": "ben", "lamp": "ada", "desk": "ada"}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "plain": {"alpha": 0.9},
    "waiting": {"policy": "alpha-fair-bandit", "reward_wait": 60.0, "default_reward": 0.25},
    "closing": {"reward_wait": 90.0, "reward_range": (-1.0, 3.0), "groups": {"labels": GROUPS, "pull_floor": 0.05}},
    "full": {"policy": "alpha-fair", "alpha": 0.5, "reward_wait": 45.0},
    "adaptive-full": {"feedback": "full", "alpha": 1.0, "groups": {"labels": GROUPS, "entitlements": {"ben": 2.0}}},
    "weekly": {"alpha": 2.0, "period": 120.0, "carry": 0.5},
    "fairest": {"alpha": float("inf")},
    "hedge": {"policy": "hedge"},
}


OpenIds = dict[str, list[tuple[str, Sequence[str]]]]  # by experiment: decisions without a reward, and their arms


class Clock:
    """Nanoseconds that rise by random steps, so that waits and periods end between events."""

    def __init__(self) -> None:
        self.now = START * 10**9

    def __call__(self) -> int:
        return self.now


def act(engine: Engine, name: str, clock: Clock, rng: random.Random, open_ids: OpenIds) -> None:
    """One random request, or a change."""
    clock.now += rng.randrange(1, 900) * 10**6
    status = engine.experiment(name)
    low, high = status.reward_range
    ids = open_ids.setdefault(name, [])

    arms = (*status.arms, *status.retired_arms)

    def reward(id: str, known: Sequence[str]) -> None:
        rewards = {arm: low + (high - low) * rng.random() for arm in known}
        engine.reward(id, rewards if status.feedback == "full" else rewards[known[0]], experiment=name)

    what = rng.random()
    if what < 0.55 or not ids:
        deferred = status.feedback != "full" and rng.random() < 0.1
        available = None if rng.random() < 0.7 else rng.sample(list(status.arms), 2)
        receipt = engine.decide(
            name, f"visitor {rng.randrange(9)}", id=f"order {status.decisions}", available=available, deferred=deferred
        )
        if deferred and rng.random() < 0.5:
            return  # it lapses where there is a waiting time
        if deferred:
            engine.activate(receipt.id, experiment=name)
        if rng.random() < 0.5:
            reward(receipt.id, arms)
        else:
            ids.append((receipt.id, arms))
    elif what < 0.9:
        reward(*ids.pop(rng.randrange(len(ids))))
    else:
        clock.now += rng.randrange(10, 100) * 10**9
        engine.expire()


def changes(engine: Engine, clock: Clock, marks: dict[str, int]) -> None:
    """Every kind of change, in the middle of the run."""
    with engine.acting_as("ada (key-1)"):
        engine.add_arm("plain", "rug", account=1.5)
        engine.retire_arm("plain", "lamp")
        engine.set_alpha("plain", 1.0)
        engine.mask_arm("hedge", "desk")
    engine.add_arm("closing", "rug", group="cyd")
    engine.add_arm("adaptive-full", "rug", group="ben")
    engine.retire_arm("weekly", "desk")
    engine.new_period("weekly", carry=0.25)
    engine.set_period("waiting", "1h", carry=0.75)
    engine.pause("fairest")
    engine.rollback("closing", marks["closing"])
    engine.rollback("waiting", marks["waiting"])
    engine.rollback("adaptive-full", marks["adaptive-full"])
    engine.rollback("plain", marks["plain"])
    engine.erase("plain", "visitor 3")
    engine.erase("full", "visitor 1")


def of_version_0_1(state: State) -> State:
    """A snapshot as version 0.1 wrote it: without what slates need, and with the readings of the slope of AlphaFair."""
    if state.version != 6:
        return state
    of_slates = {"shown", "most_shown", "reach"}
    if state.policy == "alpha-fair" or state.settings["feedback"] == "full":
        of_slates.add("outside")
    arrays = dict[str, Any]()
    for name, array in state.arrays.items():
        if name not in of_slates:
            arrays[name] = array
        if name == "x" and state.policy == "alpha-fair":
            arrays["waiting"] = np.zeros_like(array)
    if state.policy == "alpha-fair":
        return replace(state, version=4, settings={**state.settings, "marginal": "before"}, arrays=arrays)
    return replace(state, version=5, arrays=arrays)


def described(engine: Engine, folder: Path) -> dict[str, Any]:
    """What the version that made the store says of it."""
    records = dict[str, Any]()
    for name in engine.experiments():
        status = engine.experiment(name)
        policy = engine.writers.of(name).memory.find(name).policy
        exported = folder / "log.jsonl"
        engine.export(name, exported)
        records[name] = {
            "status": json.loads(json.dumps(vars(status), default=vars_or_text)),
            "history": [
                {
                    "position": each.position,
                    "at": each.at.isoformat(),
                    "kind": each.kind,
                    "by": each.by,
                    "details": each.details,
                }
                for each in engine.history(name)
            ],
            "state": hashlib.sha256(of_version_0_1(policy.snapshot()).to_bytes()).hexdigest(),
            "probabilities": [policy.probabilities(k).tolist() for k in range(policy.n_contexts)],
            "log": [json.loads(line) for line in exported.read_text().splitlines()],
        }
        exported.unlink()
    return {"position": engine.position, "experiments": records}


def vars_or_text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else vars(value)


def play(engine: Engine, clock: Clock, names: list[str], n: int, seed: int) -> None:
    rng, open_ids, marks = random.Random(seed), OpenIds(), dict[str, int]()
    for name in names:
        clock.now += 10**9
        engine.create(name, arms=ARMS, **EXPERIMENTS[name])
    for k in range(n):
        name = rng.choice(names)
        try:
            act(engine, name, clock, rng, open_ids)
        except RequestError as error:
            if error.code not in ("paused", "no_arm_available", "unknown_decision"):
                raise
        if k == n // 3:
            marks = {each: engine.experiment(each).position for each in names}
        if k == n // 2 and len(names) > 1:
            changes(engine, clock, marks)
    engine.verify()


def save(path: Path, records: dict[str, Any]) -> None:
    with gzip.GzipFile(path, "wb", mtime=0) as file, io.TextIOWrapper(file, encoding="utf-8") as text:
        json.dump(records, text, separators=(",", ":"))


def compress(path: Path, target: Path) -> None:
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(path.read_bytes())


def make_file(folder: Path, name: str, names: list[str], n: int, seed: int) -> None:
    path, clock = folder / f"{name}.db", Clock()
    with Engine(open_store(path), seed=seed, clock=clock) as engine:
        play(engine, clock, names, n, seed)
        records = described(engine, folder)
    keys.create(path, "admin", "ada")
    compress(path, folder / f"{name}.db.gz")
    save(folder / f"{name}.json.gz", records)


def make_database(folder: Path, name: str, n: int, seed: int) -> None:
    with running() as server:
        url, clock = server.url("shop"), Clock()
        with Engine(open_store(url), seed=seed, clock=clock) as engine:
            play(engine, clock, list(EXPERIMENTS), n, seed)
            records = described(engine, folder)
        program = PROGRAMS[-1].parent / "pg_dump"
        options = ["--inserts", "--rows-per-insert=200", "--schema=shop", "--no-owner", "--no-privileges"]
        dumped = subprocess.run(
            [program, *options, server.url(None)], check=True, capture_output=True, text=True
        ).stdout
    lines = [line for line in dumped.splitlines() if line.strip() and not line.startswith(("\\", "--"))]
    text = folder / f"{name}.sql"
    text.write_text("\n".join(lines) + "\n")
    compress(text, folder / f"{name}.sql.gz")
    save(folder / f"{name}.json.gz", records)


def main(folder: Path) -> None:
    os.makedirs(folder, exist_ok=True)
    writer.SNAPSHOT_EVERY = 200
    decisions.PAGE = 50
    make_file(folder, "version-11", list(EXPERIMENTS), 1500, 11)
    make_file(folder, "version-11-single", ["closing"], 200, 12)
    make_database(folder, "database-2", 800, 13)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
