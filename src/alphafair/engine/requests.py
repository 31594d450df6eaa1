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
    incumbent: str | None = None  # the arm that the program would show without the experiment
    incumbent_propensity: float | None = None
    unit: str | None = None  # whom it is made for; None: the context


class Reward(NamedTuple):
    """Report the reward of a decision; of a slate, the rewards of some or all of its arms, by label."""

    id: str
    reward: Value
    experiment: str | None = None


class Activate(NamedTuple):
    """Report that a deferred decision was carried out."""

    id: str
    experiment: str | None = None


class Observe(NamedTuple):
    """Record a decision that somebody else made: a ranker, a fallback, a log. Repeating an id records nothing.

    `source` is a label for who decided, `propensity` the probability with which they chose the arm, if they know it.
    `unit` is whom the decision was made for, by default the context. `instead_of` is the id of a decision that was not
    carried out because of this one: if it waits for its reward, it is closed.
    """

    experiment: str
    context: str
    arm: str
    reward: float | None = None
    id: str | None = None
    propensity: float | None = None
    source: str = "incumbent"
    features: Mapping[str, Any] | None = None
    unit: str | None = None
    instead_of: str | None = None


Request = Decide | Reward | Activate | Observe
