"""Values that the engine and the clients return, and the errors that both raise; the standard library alone."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypedDict

LONGEST_LABEL: Final = 200  # characters of a label or an id
_SHORT = reprlib.Repr()
_SHORT.maxlevel = 2  # six items of six items each: a value of the caller's must not make an error long


def shown(value: object) -> str:
    """A value of the caller's as an error shows it: what it is, or how it begins and ends.

    >>> shown("ada"), shown("a" * 1000)
    ("'ada'", "'aaaaaaaaaaaa...aaaaaaaaaaaaa'")
    """
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python writes no int of more than 4,300 digits
        return f"{type(value).__name__} of too many digits"


class InvalidArgument(ValueError):
    """An invalid argument: its name, the allowed values, the value received, and how to repair it.

    >>> error = InvalidArgument("alpha", "a number of at least 0, or inf", -0.5, "Pass 0 for the sum of rewards.")
    >>> print(error)
    alpha must be a number of at least 0, or inf; got -0.5. Pass 0 for the sum of rewards.
    >>> error.argument, error.value
    ('alpha', -0.5)
    """

    def __init__(self, argument: str, allowed: str, value: object, repair: str) -> None:
        super().__init__(argument, allowed, value, repair)
        self.argument, self.allowed, self.value, self.repair = argument, allowed, value, repair

    def __str__(self) -> str:
        return f"{self.argument} must be {self.allowed}; got {shown(self.value)}. {self.repair}"


class ServiceError(Exception):
    """A call that failed: the status of the answer, and the parts of its error.

    Arguments that cannot be sent, such as a reward that is not a number, raise it too, with status 422. `code` is the
    service's code, `bad_answer` for a success that cannot be read, and for an answer that is not from the service the
    name of its status, such as `bad_gateway`.
    """

    def __init__(self, status: int, code: str, message: str, argument: str | None = None, repair: str | None = None):
        super().__init__(status, code, message, argument, repair)
        self.status, self.code, self.message, self.argument, self.repair = status, code, message, argument, repair

    def __str__(self) -> str:
        where = f" ({self.argument})" if self.argument else ""
        repair = "" if self.repair is None or self.repair in self.message else f" {self.repair}"
        return f"{self.status} {self.code}{where}: {self.message}{repair}"


class Receipt(NamedTuple):
    """An arm was drawn, and the decision is on the disk.

    `source` is None where the policy drew it, else who decided; then `propensity` is what they told, None if nothing.
    """

    id: str
    arm: str
    propensity: float | None
    context: str
    source: str | None = None


class SlateReceipt(NamedTuple):
    """Several arms were drawn, which are all shown, and the decision is on the disk.

    `propensities` are the probabilities of each of them to be shown, which together need not be 1.
    """

    id: str
    arms: tuple[str, ...]  # in the order of slots
    propensities: tuple[float, ...]
    context: str


class Outcome(NamedTuple):
    """Result of a reward, an activation or an observation.

    One of applied, activated, recorded, repeated, conflict, unknown, expired, rolled_back. A client that falls back
    also has queued: it sends the reward later.
    """

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
class Interval:
    """A value, and a 95% interval that holds at every look; without one where too few visitors were rewarded."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class AgainstPolicy:
    """What the incumbent's side has more than the policy's, and its welfare over the policy's."""

    mean_reward: Interval
    welfare_ratio: Interval | None  # None where the policy has no alpha
    jain_index: Interval


@dataclass(frozen=True)
class SideStatus:
    """What one side earned, of decisions since the last change of mode, share or salt; None before its first reward.

    Welfare and Jain's index are those of accounts that the rewards of the side would lead to with the decisions of both
    sides, so that sides are comparable.
    """

    source: str  # "policy", or who decided
    decisions: int
    rewarded: int  # among them, by a client or by default
    mean_reward: Interval | None  # per decision, in the units of `reward_range`
    welfare: Interval | None
    jain_index: Interval | None
    least_share: float | None  # of all rewards, by group over its entitlement; None where nothing was earned
    against_policy: AgainstPolicy | None  # of the incumbent alone: the traffic that was left to it


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
    context_weight: float  # of contexts beside arms in the objective
    context_share: float  # the part of the rewards of its best arm that every context is promised
    largest_context_debt: float | None  # of any context, with a promise; with bandit feedback by predictions
    context_share_bound: float | None  # an upper bound of every debt, with full information
    groups: GroupStatus | None  # None where every arm is on its own, with equal entitlements and no floor
    period: float | None  # seconds; None where no period ends by itself
    period_ends: datetime | None  # when the current period ends
    carry: float  # of what was earned, the part that counts in the next period
    periods: tuple[PeriodStatus, ...]  # with the current one; empty where there was never more than one
    features: dict[str, str | list[str]] | None  # by name, as declared; None where decisions have none
    mode: str  # who decides: "live" the policy, "watch" the incumbent, "share" the policy for a share of the units
    share: float | None
    sides: tuple[SideStatus, ...] | None  # the policy first; None before the first mode or observation
    share_seen: Interval | None  # the part of decisions that was the policy's, in mode "share"
    arm_features: dict[str, str | list[str]] | None  # the same of arms
    features_by_arm: dict[str, dict[str, float | str | None] | None] | None  # None for an arm that lacks required ones
    unhealthy: str | None  # what its policy failed at, and why; None while it works


class NewTerms(TypedDict, total=False):
    """Terms that may change while an experiment runs; None stands for the default."""

    groups: dict[str, str] | None  # by arm; those left out stay
    entitlements: dict[str, float] | None  # by group, or by arm without groups; those left out stay
    pull_floor: float | dict[str, float] | None
    mode: Literal["live", "watch", "share"] | None
    share: float | None
    salt: str | None
    context_weight: float | None
    context_share: float | None
    arm_features: dict[str, dict[str, Any]] | None  # by arm and name; arms that are left out stay
    reward_wait: float | None
    default_reward: float | None


class ChangeRecord(NamedTuple):
    """One change of an experiment: `position` in the log, and `by` whom (None: not recorded)."""

    position: int
    at: datetime
    kind: str
    by: str | None
    details: dict[str, Any]
