"""Requests to an engine, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

Value = float | Sequence[float] | Mapping[str, float]  # one number; under full information one per arm


class Decide(NamedTuple):
    """Draw an arm. Repeating an id returns the same arm."""

    experiment: str
    context: str
    id: str | None = None
    available: Sequence[str] | None = None
    deferred: bool = False


class Reward(NamedTuple):
    """Report the reward of a decision."""

    id: str
    reward: Value
    experiment: str | None = None


class Activate(NamedTuple):
    """Report that a deferred decision was carried out."""

    id: str
    experiment: str | None = None


Request = Decide | Reward | Activate


class Receipt(NamedTuple):
    """An arm was drawn, and the decision is on the disk."""

    id: str
    arm: str
    propensity: float
    context: str


class Outcome(NamedTuple):
    """Result of a reward or activation: applied, activated, repeated, conflict, unknown, expired, rolled_back."""

    outcome: str


@dataclass(frozen=True)
class GroupStatus:
    """The groups of an experiment, by label; None where nothing was set."""

    labels: dict[str, str] | None  # the group of every arm
    entitlements: dict[str, float] | None  # of every group, or of every arm where there are no groups
    pull_floor: float | dict[str, float] | None  # the same for every arm, or by group, or by arm


@dataclass(frozen=True)
class PeriodStatus:
    """The books of one period: by arm what it earned in the period, by group or arm the accounts of fairness.

    Arms that were retired before the period are left out, unless a late reward arrived for them.
    """

    number: int  # from 0; periods in which no request arrived have no books
    started: datetime
    ended: datetime | None  # None: it is the current one
    first_position: int  # of the event that started it
    last_position: int | None
    rewards: dict[str, float]  # in the units of `reward_range`: what arrived in the log during the period
    entry_accounts: dict[str, float]  # at the start; empty where the policy keeps none
    accounts: dict[str, float]  # at the end, or now


@dataclass(frozen=True)
class Status:
    """An experiment at one moment."""

    name: str
    policy: str
    feedback: str
    alpha: float | None  # from 0 to inf
    arms: tuple[str, ...]  # arms that are not retired, masked ones included
    retired_arms: tuple[str, ...]
    masked_arms: tuple[str, ...]
    paused: bool
    reward_range: tuple[float, float]
    reward_wait: float | None
    default_reward: float | None
    policy_version: int
    position: int  # of its last event
    contexts: int  # erased ones included
    max_contexts: int  # more are refused
    decisions: int
    rewards: int
    defaulted: int
    expired: int
    lapsed: int
    rolled_back: int
    pending: int
    pulls: dict[str, int]
    cumulative_rewards: dict[str, float]  # of every arm, in the units of `reward_range`: the sum of rewards in the log
    accounts: dict[str, float]  # R of every group, or arm: 1 plus the rewards that count, mapped onto [0, 1]
    welfare: float | None  # the power mean of accounts, which alpha maximizes; None without accounts or alpha
    groups: GroupStatus | None  # None where every arm is on its own, with equal entitlements and no floor
    period: float | None  # seconds; None where no period ends by itself
    period_ends: datetime | None  # when the current period ends
    carry: float  # of what was earned, the part that counts in the next period
    periods: tuple[PeriodStatus, ...]  # with the current one; empty where there was never more than one
    unhealthy: str | None  # what its policy failed at, and why; None while it works


class ChangeRecord(NamedTuple):
    """One change of an experiment: `position` in the log, and `by` whom (None: not recorded)."""

    position: int
    at: datetime
    kind: str
    by: str | None
    details: dict[str, Any]
