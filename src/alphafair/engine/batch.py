"""One commit: all that it will change is kept here until it is on the disk.

Whoever answers a request of a batch asks the batch first, and then memory. `Batch.apply` is the one place where memory
moves, so a commit that fails has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from alphafair.engine.decisions import DecisionRecord, DecisionState, new_tuple
from alphafair.engine.maintenance import Search
from alphafair.engine.state.experiment import Experiment
from alphafair.engine.state.steps import (
    ACTIVATED,
    CLIENT,
    DECIDED,
    DEFERRED,
    NO_BUCKET,
    OWN,
    PAID_PARTLY,
    SOURCE_KINDS,
    Row,
    Steps,
)
from alphafair.engine.store.ledger import (
    Activated,
    Change,
    Context,
    Decided,
    Head,
    Late,
    Numbers,
    Part,
    Settled,
    SlateSettled,
)
from alphafair.engine.store.slates import Rewards, SlateEvent, joined, packed
from alphafair.policy.base import BasePolicy

if TYPE_CHECKING:
    from alphafair.engine.memory import EngineMemory


class ExperimentPart(Part):
    """What a batch has for one experiment: its events, new contexts, and rows of its steps."""

    __slots__ = (
        "awaited",
        "contexts",
        "experiment",
        "features",
        "full",
        "policy",
        "since",
        "slates",
        "sources",
        "steps",
    )

    def __init__(self, experiment: Experiment, head: Head, numbers: Numbers, at: int) -> None:
        super().__init__(head, numbers, at)
        self.experiment = experiment
        self.contexts: dict[str, int] = {}  # numbers of new contexts by label
        self.policy: BasePolicy | None = None  # with memory for them
        self.sources: list[str] = []  # who decides here for the first time
        self.steps: list[Row] = []
        self.features: list[bytes] = []  # of the decision of every step, where decisions have features
        self.full: dict[int, tuple[bytes, bytes]] = {}
        self.slates: dict[int, SlateEvent] = {}
        self.since: list[int] = []  # of the rewards that clients sent: when their decisions began to wait
        self.awaited = 0  # the event of the first new decision, which begins to wait; 0: there is none

    def add_step(self, kind: int, record: DecisionRecord, reward: float = 0.0) -> None:
        """Add what its last event does to a decision."""
        decided_by = OWN if record.decided_by is None else self._number_of(record.decided_by)
        bucket = NO_BUCKET if record.bucket is None else record.bucket
        drawn = (record.context, record.arm, record.propensity)
        self.steps.append((self.position, kind, *drawn, reward, decided_by, bucket, record.position))
        if record.features is not None:
            self.features.append(record.features)

    def _number_of(self, source: str) -> int:
        known = self.experiment.tally.sources
        return known.index(source) + 1 if source in known else len(known) + self.sources.index(source) + 1

    def apply(self) -> None:
        """Add the contexts, count the steps, and let the policy learn from them."""
        experiment = self.experiment
        if self.policy is not None:
            experiment.add_contexts(self.contexts, self.policy)
        experiment.tally.sources += self.sources
        experiment.unsaved += self.position - self.expected
        experiment.position = self.position
        if self.steps:
            features = experiment.encoded_features(b"".join(self.features))
            steps = Steps.of(self.steps, self.full, self.at, self.since, self.slates, features)
            experiment.tally.count(steps)
            experiment.summary.advance(self.at, experiment.fairness)
            experiment.summary.add(steps)
            experiment.learn(steps, f"learning from events {self.expected + 1} to {self.position}")


class Batch:
    """Events after the last ones in memory, written in one transaction at time `at`, and all that follows from them."""

    def __init__(self, memory: EngineMemory, at: int) -> None:
        self._memory, self.at = memory, at
        self.numbers = memory.store.numbers()
        self.delays: list[float] = []  # seconds from decisions to the rewards that clients sent
        self.is_written = False  # whether it is on the disk
        self._parts: dict[Experiment, ExperimentPart] = {}
        self._new: dict[str, DecisionRecord] = {}  # decisions by id
        self._states: dict[int, DecisionState] = {}  # of decisions that it changes, by their event
        self._changed: list[DecisionRecord] = []
        self._searches: list[Search] = []
        self._effects: list[Callable[[], object]] = []

    @property
    def parts(self) -> list[ExperimentPart]:
        """What is to be written."""
        return [part for part in self._parts.values() if part.position > part.expected]

    # what holds once it is written

    def part(self, experiment: Experiment) -> ExperimentPart:
        """Return what it has for an experiment."""
        part = self._parts.get(experiment)
        if part is None:
            head = Head(experiment.key, experiment.name, experiment.position, self._memory.latest)
            part = self._parts[experiment] = ExperimentPart(experiment, head, self.numbers, self.at)
        return part

    def find(self, id: Any) -> DecisionRecord | None:
        """Return the decision with an id, and all others that have it."""
        decisions, found = self._memory.decisions, None
        if type(id) is str:
            found = self._new.get(id) or decisions.recent.get(id)
        return found or decisions.find(id)

    def state(self, record: DecisionRecord) -> DecisionState:
        """Return whether a decision is active, and how it was settled."""
        return self._states.get(record.event) or record.state

    # adding to it

    def create(self, key: int, name: str, body: str, state: bytes | None, by: str | None) -> ExperimentPart:
        """Add the creation of an experiment."""
        created = Change(0, key, 1, "create", body, state, self.at, by)
        part = ExperimentPart(Experiment(created), Head(key, name, 0, 0), self.numbers, self.at)
        part.rows[Change].append(created._replace(event=part.next()))
        self._parts[part.experiment] = part
        return part

    def change(
        self,
        experiment: Experiment,
        kind: str,
        body: str,
        effect: Callable[[Change], object],
        *,
        state: bytes | None = None,
        by: str | None = None,
    ) -> Change:
        """Add a change, and what it does to memory after the steps of the batch."""
        part = self.part(experiment)
        change = Change(part.next(), part.key, part.position, kind, body, state, self.at, by)
        part.rows[Change].append(change)
        self._effects.append(lambda: effect(change))
        return change

    def also(self, effect: Callable[[], object]) -> None:
        """Add something else that is done to memory."""
        self._effects.append(effect)

    def search(self, search: Search) -> None:
        """Take note of how far overdue decisions have been searched for."""
        self._searches.append(search)

    def add_context(self, part: ExperimentPart, number: int, label: str, policy: BasePolicy) -> None:
        """Add a new context, and let the experiment continue with the policy that has memory for it."""
        part.contexts[label], part.policy = number, policy
        part.rows[Context].append(Context(part.key, number, label))

    def decide(self, part: ExperimentPart, row: tuple[Any, ...], record: DecisionRecord) -> None:
        """Add a decision; `row` has the fields of `Decided`."""
        self._new[row[3]] = record
        part.rows[Decided].append(row)
        kind = DECIDED if record.state.active else DEFERRED
        part.awaited = part.awaited or row[0]
        if record.slate is not None:
            part.slates[part.position] = SlateEvent(record.slate)
        part.add_step(kind, record)

    def observe(self, part: ExperimentPart, row: tuple[Any, ...], record: DecisionRecord) -> None:
        """Add a decision of another source; `row` has the fields of `Decided`."""
        source: Any = record.decided_by
        if source not in part.experiment.tally.sources and source not in part.sources:
            part.sources.append(source)
        self.decide(part, row, record)

    def activate(self, record: DecisionRecord) -> None:
        """Add the activation of a deferred decision."""
        self._set(record, self.state(record)._replace(active=True, waits_since=self.at))
        part = self.part(record.experiment)
        event = part.next()
        part.rows[Activated].append((event, part.key, part.position, record.event, self.at))
        if record.slate is not None:
            part.slates[part.position] = SlateEvent(record.slate)
        part.add_step(ACTIVATED, record)

    def settle(
        self,
        record: DecisionRecord,
        state: DecisionState,
        reward: float | None,
        source: str,
        rewards: bytes | None = None,
    ) -> None:
        """Add the reward of a decision in its present state, or close it without one.

        Of a slate it is that of every arm without a reward.
        """
        if record.slate is not None and record.probabilities is None:
            arrived = record.slate.without_rewards if state.arrived is None else state.arrived
            missing = None if reward is None else np.where(np.isnan(arrived), reward, np.nan)
            self.settle_slate(record, state, missing, source)
            return
        active, waits_since, _, has_late_reward, _ = state
        settled = (reward, source, rewards)
        self._set(record, new_tuple(DecisionState, (active, waits_since, settled, has_late_reward, None)))
        part = self.part(record.experiment)
        event = part.next()
        position = part.position
        part.rows[Settled].append((event, part.key, position, record.event, reward, source, rewards, self.at))
        if rewards is not None:
            part.full[position] = record.probabilities or b"", rewards
            reward = float(np.frombuffer(rewards, dtype="<f8")[record.arm])
            if record.slate is not None:
                part.slates[position] = SlateEvent(record.slate)
        kind = SOURCE_KINDS[source]
        if kind == CLIENT:
            part.since.append(waits_since)
        part.add_step(kind, record, reward or 0.0)

    def settle_slate(self, record: DecisionRecord, state: DecisionState, given: Rewards | None, source: str) -> None:
        """Add the rewards of some arms of a slate, NaN for the others; None: close it without the missing ones."""
        if record.slate is None:
            raise ValueError("a decision of one arm")
        before = record.slate.without_rewards if state.arrived is None else state.arrived
        arrived = before if given is None else joined(before, given)
        remaining = 0 if given is None else int(np.isnan(arrived).sum())
        settled = None if remaining else (None, source, None)
        known = arrived if source == "client" else before  # what clients sent
        self._set(record, state._replace(settled=settled, arrived=known))
        part = self.part(record.experiment)
        event, position = part.next(), part.position
        blob = None if given is None else packed(given)
        part.rows[SlateSettled].append((event, part.key, position, record.event, source, blob, remaining, self.at))
        part.slates[position] = SlateEvent(record.slate, given, before)
        kind = PAID_PARTLY if remaining else SOURCE_KINDS[source]
        if source == "client":
            part.since.append(state.waits_since)
        part.add_step(kind, record)

    def late_reward(self, record: DecisionRecord, reward: float | None, rewards: bytes | None) -> None:
        """Record the first reward that arrived after its decision was closed; later ones add nothing."""
        state = self.state(record)
        if not state.has_late_reward:
            self._set(record, state._replace(has_late_reward=True))
            part = self.part(record.experiment)
            event = part.next()
            part.rows[Late].append((event, part.key, part.position, record.event, reward, rewards, self.at))

    def _set(self, record: DecisionRecord, state: DecisionState) -> None:
        self._states[record.event] = state
        self._changed.append(record)

    # memory moves

    def apply(self) -> None:
        """Let memory follow what is on the disk."""
        memory = self._memory
        if self.is_written:
            memory.latest = max(memory.latest, self.at)
        for record in self._changed:
            record.state = self._states[record.event]
        memory.decisions.recent.update(self._new)
        for search in self._searches:
            search.apply()
        for part in self._parts.values():
            part.apply()
            if part.awaited and part.experiment.settings.wait is not None:
                memory.deadlines.begin(part.experiment, self.at, part.awaited)
        for effect in self._effects:
            effect()
