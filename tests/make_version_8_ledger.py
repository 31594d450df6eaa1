"""How tests/fixtures/version-8*.db.gz were made, once, by alphafair as of 65a8137, and then compressed by `gzip -9n`.

Run `python tests/make_version_8_ledger.py version-8.db` with that version installed.

That version had `groups`, `entitlements` and `pull_floor` as settings side by side, FairCB's share of rounds under the
name of `pull_floor`, and states laid out by number. `version-8.json` has what it said of the experiments of the first
file; in the second, `version-8-started.db.gz`, one began with what a policy had learned elsewhere.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

from alphafair import AlphaFair, Decision, Engine
from alphafair.engine import decisions

ARMS = ["lamp", "desk", "chair"]
GROUPS = {"chair": "ben", "lamp": "ada", "desk": "ada"}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "groups": {"groups": GROUPS, "alpha": 0.8},
    "entitled": {"policy": "alpha-fair-bandit", "groups": GROUPS, "entitlements": {"ben": 2.0}, "pull_floor": 0.05},
    "floors": {"policy": "alpha-fair", "groups": GROUPS, "pull_floor": {"ada": 0.2, "ben": 0.1}},
    "arms": {"entitlements": {"desk": 4.0}, "pull_floor": {"chair": 0.3}},
    "full": {"feedback": "full", "entitlements": {"lamp": 1.0 / 3.0}},
    "fair-cb": {"policy": "fair-cb", "pull_floor": 0.1 + 0.2, "horizon": 1000},
    "independent": {"policy": "independent-alpha-fair"},
    "scale-free": {"policy": "scale-free", "reward_range": (-1.0, 3.0)},
    "hedge": {"policy": "hedge"},
    "uniform": {"policy": "uniform", "feedback": "bandit"},
    "rolled back": {"alpha": 0.5},
}


def play(engine: Engine, name: str, n: int, rng: random.Random) -> None:
    """Some decisions, most of them with their reward."""
    for k in range(n):
        status = engine.experiment(name)
        receipt = engine.decide(name, f"visitor {k % 3}", id=f"{name} {status.decisions}")
        low, high = status.reward_range
        rewards = {arm: low + (high - low) * rng.random() for arm in (*status.arms, *status.retired_arms)}
        if rng.random() < 0.9:
            engine.reward(receipt.id, rewards if status.feedback == "full" else rewards[receipt.arm])


def main(path: Path) -> None:
    """Make the file, and beside it what is said of it."""
    rng = random.Random(8)
    decisions.SNAPSHOT_EVERY = 40
    with Engine.open(path, seed=8) as engine:
        for name, settings in EXPERIMENTS.items():
            engine.create(name, arms=ARMS, **settings)
        for name in EXPERIMENTS:
            play(engine, name, 30, rng)
        position = engine.position
        engine.add_arm("entitled", "rug", group="cyd", entitlement=3.0)
        engine.add_arm("groups", "rug", group="ben")
        engine.retire_arm("groups", "lamp")
        engine.retire_arm("hedge", "lamp")
        engine.set_alpha("arms", 0.3)
        for name in EXPERIMENTS:
            play(engine, name, 15, rng)
        engine.rollback("rolled back", position)
        play(engine, "rolled back", 15, rng)
        engine.verify()
        said = {
            name: {
                "accounts": engine.experiment(name).accounts,
                "cumulative_rewards": engine.experiment(name).cumulative_rewards,
                "decisions": engine.experiment(name).decisions,
                "probabilities": [
                    engine._experiments[name].policy.probabilities(context).tolist() for context in range(3)
                ],
            }
            for name in EXPERIMENTS
        }
    learned = AlphaFair(1, 3, seed=0)
    learned.update(Decision(0, 1, 1.0 / 3.0, learned.probabilities(0)), [0.1, 0.9, 0.4])
    with Engine.open(path.with_stem(f"{path.stem}-started"), seed=8) as engine:
        engine.create("started", arms=ARMS, start=learned.snapshot(), contexts=["visitor 0"])
        play(engine, "started", 3, rng)
        engine.create("other", arms=ARMS)
        play(engine, "other", 3, rng)
    path.with_suffix(".json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
