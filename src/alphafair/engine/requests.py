"""Requests to an engine, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Value = float | Sequence[float] | Mapping[str, float]  # one number; under full information one per arm; by shown arm


class Decide(NamedTuple):
    """Draw an arm, or with `k` a slate of several arms. Repeating an id returns the same ones."""

    experiment: str
    context: str
    id: str | None = None
    available: Sequence[str] | None = None
    deferred: bool = False
    k: int | None = None
    features: Mapping[str, Any] | None = None


class Reward(NamedTuple):
    """Report the reward of a decision; of a slate, the rewards of some or all of its arms, by label."""

    id: str
    reward: Value
    experiment: str | None = None


class Activate(NamedTuple):
    """Report that a deferred decision was carried out."""

    id: str
    experiment: str | None = None


Request = Decide | Reward | Activate
