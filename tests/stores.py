"""The two stores of an engine, for tests that look behind it."""

from __future__ import annotations

from alphafair.engine import Engine
from alphafair.engine.live import LiveState


def live_state(engine: Engine, name: str | None = None) -> LiveState:
    """The state in memory: of the ledger with an experiment, or of the only ledger."""
    if name is not None:
        return engine._of(name).live
    (only,) = engine._engines()
    return only.live
