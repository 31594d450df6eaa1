"""Requests to an engine, its answers, and the queue of callers that wait for a commit."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
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


class Ticket:
    """The requests of one call, and their answers once they are on the disk."""

    __slots__ = ("answers", "leads", "problem", "requests", "woken")

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.answers: list[Any] | None = None
        self.problem: BaseException | None = None
        self.leads = False  # its caller serves all waiting tickets
        self.woken = threading.Event()  # set when the ticket is served, or when its caller must lead

    @property
    def served(self) -> bool:
        return self.answers is not None or self.problem is not None


class Queue:
    """Waiting tickets: one caller at a time serves them all in one commit, the others wait for their answers.

    So threads that call an engine at the same time share the cost of a commit: 16 threads with two requests per call
    get about eight times as many answers per second as one thread.
    """

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._led = False

    def __len__(self) -> int:
        return len(self._tickets)

    def wait(self, ticket: Ticket, lead: Callable[[Ticket], None]) -> None:
        """Wait until the ticket is served: by another caller, or by `lead` when this caller's turn comes."""
        try:
            with self._lock:
                self._tickets.append(ticket)
                ticket.leads, self._led = not self._led, True
            if not ticket.leads:
                ticket.woken.wait()
            if ticket.leads:
                lead(ticket)
        except BaseException:  # interrupted: the caller no longer waits for an answer
            with self._lock, contextlib.suppress(ValueError):
                self._tickets.remove(ticket)
            raise
        finally:
            if ticket.leads:
                self._pass_on()

    def take(self, most: int) -> list[Ticket]:
        """Remove and return the first tickets, up to `most` requests in all, but at least one ticket if any waits."""
        batch, size = list[Ticket](), 0
        with self._lock:
            while self._tickets and size < most:
                batch.append(self._tickets.popleft())
                size += len(batch[-1].requests)
        return batch

    def _pass_on(self) -> None:
        """Let the caller that has waited longest lead next."""
        with self._lock:
            self._led = bool(self._tickets)
            if self._led:
                self._tickets[0].leads = True
                self._tickets[0].woken.set()
