"""How tests/fixtures/adaptive-4.db.gz was made, once, by alphafair as of 61e7868, and then compressed by `gzip -9n`.

Run `python tests/make_adaptive_4_ledger.py adaptive-4.db` with that version installed. States of the adaptive policy
were of version 4 then: without sums of squares. `adaptive-4.json` has the accounts of the experiments.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from alphafair import AlphaFairAdaptive, Engine, Groups
from alphafair.engine import writer

ARMS = ["lamp", "desk", "chair"]
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "nash": {"alpha": 1.0, "groups": ["ada", "ada", "ben"]},
    "full": {"feedback": "full", "groups": Groups(pull_floor=0.05)},
    "started": {},
    "rolled back": {"alpha": 0.5},
}


def play(engine: Engine, name: str, n: int, rng: random.Random) -> None:
    """Some decisions, most of them with their reward."""
    for k in range(n):
        status = engine.experiment(name)
        receipt = engine.decide(name, f"visitor {k % 3}", id=f"{name} {status.decisions}")
        rewards = {arm: rng.random() for arm in (*status.arms, *status.retired_arms)}
        if rng.random() < 0.9:
            engine.reward(receipt.id, rewards if status.feedback == "full" else rewards[receipt.arm])


def main(path: Path) -> None:
    """Make the file, and beside it the accounts."""
    rng = random.Random(4)
    writer.SNAPSHOT_EVERY = 40
    learned = AlphaFairAdaptive(1, 3, seed=0)
    for _ in range(9):
        decision = learned.choose(0)
        learned.update(decision, 0.25 * (decision.arm + 1))
    with Engine.open(path, seed=4) as engine:
        for name, settings in EXPERIMENTS.items():
            start = {"start": learned.snapshot(), "contexts": ["visitor 0"]} if name == "started" else {}
            engine.create(name, arms=ARMS, **settings, **start)
            play(engine, name, 30, rng)
        position = engine.position
        engine.retire_arm("nash", "lamp")
        for name in EXPERIMENTS:
            play(engine, name, 30, rng)
        engine.rollback("rolled back", position)
        play(engine, "rolled back", 10, rng)
        engine.verify()
        accounts = {name: engine.experiment(name).accounts for name in EXPERIMENTS}
    path.with_suffix(".json").write_text(json.dumps(accounts, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
