"""One commit: all that it will change is kept here until it is on the disk.

Whoever answers a request of a batch asks the batch first, and then memory. `Batch.apply` is the one place where memory
moves, so a commit that fails has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from alphafair.engine.decisions import DecisionRecord, DecisionState
from alphafair.engine.experiment import Experiment
from alphafair.engine.ledger import TABLES, Activated, Change, Context, Decided, Event, Late, Settled
from alphafair.engine.maintenance import Search
from alphafair.engine.steps import ACTIVATED, CLIENT, DECIDED, DEFERRED, SOURCE_KINDS, Steps
from alphafair.policy.base import BasePolicy

if TYPE_CHECKING:
    from alphafair.engine.live import LiveState


class Part:
    """What a batch has for one experiment: new contexts, the number of its events, and rows of its steps."""

    __slots__ = ("contexts", "experiment", "full", "is_awaited", "n_events", "policy", "rows", "since")

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.contexts: dict[str, int] = {}  # numbers of new contexts by label
        self.policy: BasePolicy | None = None  # with memory for them
        self.n_events = 0
        self.rows: list[tuple[int, int, int, int, float, float]] = []  # the columns of `Steps`
        self.full: dict[int, tuple[bytes, bytes]] = {}
        self.since: list[int] = []  # of the rewards that clients sent: when their decisions began to wait
        self.is_awaited = False  # whether a new decision has begun to wait

    def apply(self, at: int, doing: str) -> None:
        """Add the contexts, count the steps, and let the policy learn from them."""
        experiment = self.experiment
        if self.policy is not None:
            experiment.add_contexts(self.contexts, self.policy)
        experiment.unsaved += self.n_events
        if self.rows:
            steps = Steps.of(self.rows, self.full, at, self.since)
            experiment.tally.count(steps)
            experiment.summary.advance(at, experiment.fairness)
            experiment.summary.add(steps)
            experiment.learn(steps, doing)


class Batch:
    """Events after the last one in memory, written in one transaction at time `at`, and all that follows from them."""

    def __init__(self, memory: LiveState, at: int) -> None:
        self._memory, self.at = memory, at
        self.start = self.last = memory.position
        self.rows: dict[type, list[Any]] = {kind: [] for kind in TABLES}  # tuples with the fields of their type
        self.delays: list[float] = []  # seconds from decisions to the rewards that clients sent
        self.is_written = False  # whether it is on the disk
        self._parts: dict[Experiment, Part] = {}
        self._new: dict[str, DecisionRecord] = {}  # decisions by id
        self._states: dict[int, DecisionState] = {}  # of decisions that it changes, by their seq
        self._changed: list[DecisionRecord] = []
        self._searches: list[Search] = []
        self._effects: list[Callable[[], object]] = []

    def next(self) -> int:
        """Return the position of the next event."""
        self.last += 1
        return self.last

    # what holds once it is written

    def part(self, experiment: Experiment) -> Part:
        """Return what it has for an experiment."""
        part = self._parts.get(experiment)
        if part is None:
            part = self._parts[experiment] = Part(experiment)
        return part

    def find(self, id: Any) -> DecisionRecord | None:
        """Return the decision with an id, and all others that have it."""
        found = self._new.get(id) if isinstance(id, str) else None
        return found if found is not None else self._memory.decisions.find(id)

    def state(self, record: DecisionRecord) -> DecisionState:
        """Return whether a decision is active, and how it was settled."""
        return self._states.get(record.seq) or record.state

    # adding to it

    def add(self, event: Event) -> None:
        """Add a row that is not a step."""
        self.rows[type(event)].append(event)

    def change(self, experiment: Experiment, change: Change, effect: Callable[[], object]) -> None:
        """Add a change, and what it does to memory after the steps of the batch."""
        self.rows[Change].append(change)
        self.part(experiment).n_events += 1
        self._effects.append(effect)

    def also(self, effect: Callable[[], object]) -> None:
        """Add something else that is done to memory."""
        self._effects.append(effect)

    def search(self, search: Search) -> None:
        """Take note of how far overdue decisions have been searched for."""
        self._searches.append(search)

    def add_context(self, part: Part, number: int, label: str, policy: BasePolicy) -> None:
        """Add a new context, and let the experiment continue with the policy that has memory for it."""
        part.contexts[label], part.policy = number, policy
        self.rows[Context].append(Context(part.experiment.key, number, label))

    def decide(self, part: Part, row: tuple[Any, ...], record: DecisionRecord) -> None:
        """Add a decision; `row` has the fields of `Decided`."""
        self._new[row[1]] = record
        self.rows[Decided].append(row)
        kind = DECIDED if record.state.active else DEFERRED
        part.n_events += 1
        part.is_awaited = True
        part.rows.append((record.seq, kind, record.context, record.arm, record.propensity, 0.0))

    def activate(self, record: DecisionRecord) -> None:
        """Add the activation of a deferred decision."""
        self._set(record, self.state(record)._replace(active=True, waits_since=self.at))
        seq, part = self.next(), self.part(record.experiment)
        self.rows[Activated].append((seq, record.seq, self.at))
        part.n_events += 1
        part.rows.append((seq, ACTIVATED, record.context, record.arm, record.propensity, 0.0))

    def settle(self, record: DecisionRecord, reward: float | None, source: str, rewards: bytes | None = None) -> None:
        """Add the reward of a decision, or close it without one."""
        active, waits_since, _, has_late_reward = self.state(record)
        self._set(record, DecisionState(active, waits_since, (reward, source, rewards), has_late_reward))
        self.last = seq = self.last + 1
        self.rows[Settled].append((seq, record.seq, reward, source, rewards, self.at))
        part = self.part(record.experiment)
        part.n_events += 1
        if rewards is not None:
            part.full[seq] = record.probabilities or b"", rewards
            reward = float(np.frombuffer(rewards, dtype="<f8")[record.arm])
        kind = SOURCE_KINDS[source]
        if kind == CLIENT:
            part.since.append(waits_since)
        part.rows.append((seq, kind, record.context, record.arm, record.propensity, reward or 0.0))

    def late_reward(self, record: DecisionRecord, reward: float | None, rewards: bytes | None) -> None:
        """Record the first reward that arrived after its decision was closed; later ones add nothing."""
        state = self.state(record)
        if not state.has_late_reward:
            self._set(record, state._replace(has_late_reward=True))
            self.rows[Late].append((self.next(), record.seq, reward, rewards, self.at))
            self.part(record.experiment).n_events += 1

    def _set(self, record: DecisionRecord, state: DecisionState) -> None:
        self._states[record.seq] = state
        self._changed.append(record)

    # memory moves

    def apply(self) -> None:
        """Let memory follow what is on the disk."""
        memory, doing = self._memory, f"learning from events {self.start + 1} to {self.last}"
        if self.last > self.start:
            memory.position, memory.latest = self.last, max(memory.latest, self.at)
        for record in self._changed:
            record.state = self._states[record.seq]
        memory.decisions.recent.update(self._new)
        for search in self._searches:
            search.apply()
        for part in self._parts.values():
            part.apply(self.at, doing)
            if part.is_awaited and part.experiment.wait is not None:
                memory.deadlines.begin(part.experiment.wait, self.at)
        for effect in self._effects:
            effect()
