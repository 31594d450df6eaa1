"""Calculations from the log of one experiment, as values that another process gets.

Every job contains its experiment, so results that are kept by their jobs are never those of another experiment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Job:
    """The experiment whose log is read."""

    address: str = field(repr=False)  # may have a password
    experiment: int
    name: str


@dataclass(frozen=True, kw_only=True)
class ProbabilitiesJob(Job):
    """Recompute the distribution that a decision was drawn from."""

    position: int  # of the event log, in memory when the arm was drawn
    context: int
    available: tuple[bool, ...] | None  # by arm; None: all that are live
    k: int | None = None  # how many arms were asked for; None: one, without a slate
    features: tuple[Any, ...] | None = None  # numbers as the policy gets them; of arms, a tuple per arm


@dataclass(frozen=True, kw_only=True)
class WhatIfJob(Job):
    """Compute the price of fairness. Jobs of one experiment are equal: a later result replaces an earlier one."""

    position: int = field(compare=False)  # of the event log, where the log ends
    full: bool = field(compare=False)  # whether there are rewards of all arms
    rounds: int = field(compare=False)  # the most that are used: the latest
    rewards: int = field(compare=False)  # decisions that have one
    reward_range: tuple[float, float] = field(compare=False)
    alpha: float | None = field(compare=False)
    groups: Mapping[str, Any] | None = field(compare=False)
    source: str | None = None  # whose decisions; None: the policy's
