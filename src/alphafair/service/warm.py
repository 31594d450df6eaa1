"""Compile what decisions need before the first one: `python -m alphafair.service.warm` does so for every policy.

Machine code is kept on disk (`NUMBA_CACHE_DIR`), so an image that has run this once starts at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path

from alphafair import jit
from alphafair.algorithms import POLICIES
from alphafair.engine import Engine
from alphafair.types import Feedback

DEFAULT, ARMS = "alpha-fair-adaptive", ("a", "b")


def warm(policies: Iterable[str] = (DEFAULT,)) -> None:
    """Decide and learn once with each registered one, and read the log again, in a file that is then thrown away."""
    compiled = jit.using_mode("now") if jit.mode() == "auto" else nullcontext()
    with compiled, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm.db"
        with Engine.open(path) as engine:
            for policy in POLICIES.keys() & {*policies}:
                for variant, settings in POLICIES[policy].variants(1, len(ARMS)).items():
                    name = f"{policy} {variant}"
                    engine.create(name, arms=ARMS, policy=policy, **settings)
                    full = engine.experiment(name).feedback == Feedback.FULL.value
                    engine.reward(engine.decide(name, "anybody").id, dict.fromkeys(ARMS, 0.5) if full else 0.5)
        Engine.open(path).close()


if __name__ == "__main__":
    warm(POLICIES)
