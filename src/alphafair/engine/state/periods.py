"""The periods of an experiment: when they end, and what their books contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from alphafair.engine.dates import date_of
from alphafair.engine.state.settings import DEFAULT_CARRY, checked_period
from alphafair.engine.state.status import accounts_of, by_group, group_of
from alphafair_client.answers import PeriodStatus

if TYPE_CHECKING:
    from alphafair.engine.state.experiment import Experiment
    from alphafair.engine.store.ledger import Change


class Periods:
    """The calendar, and the books of the periods of an experiment, the current one last."""

    def __init__(self, calendar: Mapping[str, Any], position: int, at: int) -> None:
        self.length: int | None = calendar.get("period")  # microseconds
        self.start: int = calendar.get("period_start", at)
        self.carry: float = calendar.get("carry", DEFAULT_CARRY)
        self.number = 0
        self.began = position, at  # position and time of the start of the current period
        self.next_boundary = self._boundary_after(at)
        self._earned_before: list[float] = []  # what each arm had earned when the current period began
        self._pulls_before: list[int] | None = []  # and how often it was drawn; None: an older version wrote no draws
        self._retired_before: set[int] = set()
        self._closed: list[PeriodStatus] = []

    def _boundary_after(self, at: int) -> int | None:
        """Return when the period ends that a moment belongs to, by the calendar; None where periods do not end."""
        if self.length is None:
            return None
        return self.start + max(0, (at - self.start) // self.length + 1) * self.length

    # bodies of changes

    def new_period(self, experiment: Experiment, now: int, carry: float | None = None) -> dict[str, Any]:
        """Return the body of the change that starts a period: now, with a `carry`, or at the last boundary until now.

        Where several boundaries have passed, one change stands for all of them. It has the books of the period that
        ends, because a replay counts the rewards of many events before it repeats their changes.
        """
        n_boundaries, at = 1, now
        ended = now
        if carry is None and self.length is not None and self.next_boundary is not None:
            n_boundaries = (now - self.next_boundary) // self.length + 1
            ended, at = self.next_boundary, self.next_boundary + (n_boundaries - 1) * self.length
            carry = self.carry**n_boundaries
        tally, (entry, accounts) = experiment.tally, self.accounts(experiment)
        books = {"ended": ended, "earned": tally.earned.tolist(), "rewards": self._rewards(experiment)}
        books |= {"pulls": tally.pulls.tolist(), "entry_accounts": entry, "accounts": accounts}
        return {"period": self.number + n_boundaries, "carry": carry, "at": at, "books": books}

    def new_calendar(self, now: int, period: Any, start: Any, carry: Any) -> dict[str, Any]:
        """Return the body of the change that sets another calendar.

        Without a `start` the calendar stays if the length does; otherwise it starts now. Without a `carry` that stays.
        """
        fields = checked_period(period, start, self.carry if carry is None else carry)
        length = fields.get("period")
        kept = self.start if length == self.length else now
        fields = {"carry": DEFAULT_CARRY, "period_start": kept} | fields
        return fields | {"period": length}

    # what changes do

    def begin(self, experiment: Experiment, change: Change, body: Mapping[str, Any]) -> None:
        """Close the current period, and begin another."""
        books = body["books"]
        numbers = books["rewards"], books["entry_accounts"], books["accounts"]
        self._closed.append(self._status(books["ended"], change.position - 1, *numbers))
        self.number, self.began = body["period"], (change.position, body["at"])
        self.next_boundary = self._boundary_after(body["at"])
        self._earned_before, self._retired_before = books["earned"], set(experiment.retired)
        self._pulls_before = books.get("pulls")

    def set_calendar(self, change: Change, body: Mapping[str, Any]) -> None:
        """Let periods end by another calendar."""
        self.length, self.start, self.carry = body["period"], body["period_start"], body["carry"]
        self.next_boundary = self._boundary_after(change.at)

    # books

    def _status(self, ended: int | None, last: int | None, *numbers: dict[str, float]) -> PeriodStatus:
        first, started = self.began
        until = None if ended is None else date_of(ended)
        return PeriodStatus(self.number, date_of(started), until, first, last, *numbers)

    def _rewards(self, experiment: Experiment) -> dict[str, float]:
        """Return what every arm has earned in the current period."""
        earned = experiment.tally.earned.copy()
        earned[: len(self._earned_before)] -= self._earned_before
        rows = enumerate(zip(experiment.arms, earned.tolist(), strict=True))
        return {arm: value for number, (arm, value) in rows if value or number not in self._retired_before}

    def pulls(self, experiment: Experiment) -> dict[str, int] | None:
        """Return how often every arm was drawn in the current period; None for a period of an older version's log."""
        if self._pulls_before is None:
            return None
        pulls = experiment.tally.pulls.copy()
        pulls[: len(self._pulls_before)] -= np.array(self._pulls_before, dtype=np.int64)
        return dict(zip(experiment.arms, pulls.tolist(), strict=True))

    def accounts(self, experiment: Experiment) -> tuple[dict[str, float], dict[str, float]]:
        """Return the accounts at the start of the current period and now; empty where the policy has none or fails."""
        try:
            entry, accounts = experiment.policy.entry_accounts, accounts_of(experiment)
            if entry is None or not accounts or not np.isfinite([*entry, *accounts.values()]).all():
                return {}, {}
            gone = set() if group_of(experiment) else {experiment.arms[number] for number in self._retired_before}
            found = by_group(experiment, entry), accounts
        except Exception:  # the status of the experiment tells what is wrong
            return {}, {}
        first, second = ({label: value for label, value in each.items() if label not in gone} for each in found)
        return first, second

    def all(self, experiment: Experiment) -> tuple[PeriodStatus, ...]:
        """Return all periods with books, the current one last; none where there was never more than one."""
        if self.length is None and not self._closed:
            return ()
        current = self._status(None, None, self._rewards(experiment), *self.accounts(experiment))
        return (*self._closed, current)
