"""Waiting times: which decisions are overdue, found in the order of the log, a bounded stretch of it at a time.

A decision waits from the moment it was made, a deferred one from its activation. Times in the log never fall, so under
one waiting time events become due in their order. A search begins where the last one ended and stops at the first
decision that still waits: what it reads is what has become due, however many wait. It ends after some milliseconds,
too: beside a busy thread every row that is read has to wait for Python's lock.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Final, NamedTuple

from alphafair.engine.experiment import Experiment
from alphafair.engine.ledger import Ledger

STRETCH: Final = 5_000  # positions of the log that one search reads at most
SEARCHES: Final = 4  # in one transaction, where experiments have different waiting times
PATIENCE: Final = 0.005  # seconds for all of them; one decision is found at least, if there is any

COLUMNS = "d.id, d.seq, d.experiment, d.context, d.arm, d.propensity, d.probabilities"
MADE = f"""select d.seq, d.at, d.deferred = 0, {COLUMNS} from decision d
    where d.seq > ?1 and d.seq <= ?2 and d.experiment in (select value from json_each(?3))
    and not exists (select 1 from reward r where r.decision = d.seq)
    and not (d.deferred and exists (select 1 from activation a where a.decision = d.seq)) order by d.seq"""  # noqa: S608 - our own columns
ACTIVATED = f"""select a.seq, a.at, 1, {COLUMNS} from activation a join decision d on d.seq = a.decision
    where a.seq > ?1 and a.seq <= ?2 and d.experiment in (select value from json_each(?3))
    and not exists (select 1 from reward r where r.decision = a.decision) order by a.seq"""  # noqa: S608 - the same


class OpenDecision(NamedTuple):
    """A decision that has no reward, and the event since which it waits."""

    event: int
    since: int
    active: int
    id: str
    seq: int
    experiment: int
    context: int
    arm: int
    propensity: float
    probabilities: bytes | None


class _Wait:
    """All experiments that have one waiting time."""

    def __init__(self, wait: int, experiments: list[Experiment]) -> None:
        self.wait, self.experiments = wait, experiments
        self.searched_to = min(experiment.tally.settled_to for experiment in experiments)
        self.next_due: int | None = 0  # when to search again; None while nothing waits

    def search(self, ledger: Ledger, position: int, now: int, most: int, until: float) -> list[OpenDecision]:
        """The next that are overdue, read until some moment."""
        start, end = self.searched_to, min(self.searched_to + STRETCH, position)
        keys = f"[{','.join(str(experiment.key) for experiment in self.experiments)}]"
        overdue: list[OpenDecision] = []
        with (
            closing(ledger.each(MADE, (start, end, keys))) as made,
            closing(ledger.each(ACTIVATED, (start, end, keys))) as activated,
        ):
            for row in heapq.merge(made, activated):
                found = OpenDecision(*row)
                if found.since + self.wait > now:
                    self._go_on(found.event - 1, found.since + self.wait)
                    return overdue
                overdue.append(found)
                if len(overdue) == most or time.perf_counter() > until:
                    self._go_on(found.event, 0)
                    return overdue
        self._go_on(end, 0 if end < position else None)
        return overdue

    def _go_on(self, position: int, next_due: int | None) -> None:
        """Search on from here at that time."""
        self.searched_to, self.next_due = position, next_due
        for experiment in self.experiments:
            experiment.tally.settled_to = position


class Expiry:
    """Finds overdue decisions of all experiments; what it has found counts as settled."""

    def __init__(self, ledger: Ledger, experiments: Iterable[Experiment]) -> None:
        self._ledger = ledger
        self._waits: dict[int, _Wait] = {}
        together: dict[int, list[Experiment]] = {}
        for experiment in experiments:
            if experiment.wait is not None:
                together.setdefault(experiment.wait, []).append(experiment)
        self._waits = {wait: _Wait(wait, group) for wait, group in together.items()}

    def add(self, experiment: Experiment) -> None:
        """A new experiment, which has no decisions yet."""
        if experiment.wait is None:
            return
        found = self._waits.get(experiment.wait)
        if found is None:
            experiment.tally.settled_to = experiment.key
            self._waits[experiment.wait] = _Wait(experiment.wait, [experiment])
        else:
            experiment.tally.settled_to = found.searched_to
            found.experiments.append(experiment)

    def made(self, wait: int, at: int) -> None:
        """A decision begins to wait."""
        found = self._waits[wait]
        if found.next_due is None:
            found.next_due = at + wait

    def is_behind(self, now: int) -> bool:
        """Whether there may be overdue decisions."""
        return any(wait.next_due is not None and wait.next_due <= now for wait in self._waits.values())

    def overdue(self, position: int, now: int, most: int) -> Iterator[OpenDecision]:
        """Some decisions that are overdue now, in the log up to a position, those first that have been it longest."""
        until = time.perf_counter() + PATIENCE
        due = [(wait.next_due, key) for key, wait in self._waits.items() if wait.next_due is not None]
        for next_due, key in sorted(due)[:SEARCHES]:
            if next_due > now or most <= 0 or time.perf_counter() > until:
                return
            found = self._waits[key].search(self._ledger, position, now, most, until)
            most -= len(found)
            yield from found
