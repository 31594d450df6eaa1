"""From the event log to the state: recovery, rollback and verification repeat the same steps, over more or less of it.

Steps are repeated in the order in which they took effect: a reward at its own position, a draw at the position that had
been processed when it was made. So every logged propensity can be recomputed from the state that it came from.
"""

from __future__ import annotations

import contextlib
import json
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from alphafair.algorithms import BasePolicy, load_policy
from alphafair.engine.changes import apply_to_policy
from alphafair.engine.state.experiment import LOG, Experiment, same_state
from alphafair.engine.state.steps import (
    ACTIVATED,
    DECIDED,
    DEFERRED,
    DRAWN,
    EXPIRED,
    NO_BUCKET,
    OWN,
    PAID_PARTLY,
    Steps,
    follow,
)
from alphafair.engine.state.summary import Summary, unknown
from alphafair.engine.state.tally import Tally
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import N_ORIGINS, PARTLY, Change, EventColumns, Store, split_state
from alphafair.engine.store.slates import SlateEvent
from alphafair.errors import Mismatch, Unavailable
from alphafair.policy import archive
from alphafair.policy.loops import DRAW, LEARN, OBSERVE
from alphafair.values import State, Vector

CHUNK = 100_000  # events read at a time
LARGEST = 2**31 - 1  # number of a context or an arm
APPLY, KEEP, COMPARE = range(3)  # why to stop: in this order at one position
ACCOUNTS = ("entry_accounts", "accounts")  # fields of a period's books that come from the policy
Item = TypeVar("Item")


# reading steps


class Chunk(NamedTuple):
    """Steps of any experiments, sorted by the position at which they took effect (`order` / 2)."""

    order: NDArray[np.int64]
    experiment: NDArray[np.int64]
    steps: Steps  # decided by: a number in `sources`, from 1 on
    sources: list[str]  # of all experiments
    masks: dict[int, dict[int, bytes]]  # by experiment: see `Steps.masks`
    full: dict[int, dict[int, tuple[bytes, bytes]]]
    slates: dict[int, dict[int, SlateEvent]]
    features: dict[int, dict[int, bytes]]  # of the decision of a step: a float64 per declared feature

    def of(self, key: int, after: int, until: int) -> tuple[NDArray[np.int64], Steps]:
        """Return the order and the steps of the events of an experiment after one position and up to another."""
        position = self.steps.position
        which = (self.experiment == key) & (position > after) & (position <= until)
        steps = replace(
            self.steps[which],
            masks=self.masks.get(key, {}),
            full=self.full.get(key, {}),
            slates=self.slates.get(key, {}),
        )
        if steps.full:
            _set_full_rewards(steps, key)
        return self.order[which], steps

    def split(self, which: NDArray[np.bool_]) -> tuple[Chunk, Chunk]:
        """Return some steps, and the others."""
        one, other = (
            self._replace(order=self.order[rows], experiment=self.experiment[rows], steps=self.steps[rows])
            for rows in (which, ~which)
        )
        return one, other

    def followed_by(self, other: Chunk) -> Chunk:
        """Return the steps of both, sorted."""
        order = np.concatenate([self.order, other.order])
        sort = np.argsort(order, kind="stable")
        experiment = np.concatenate([self.experiment, other.experiment])[sort]
        masks = {key: self.masks.get(key, {}) | other.masks.get(key, {}) for key in {*self.masks, *other.masks}}
        full = {key: self.full.get(key, {}) | other.full.get(key, {}) for key in {*self.full, *other.full}}
        slates = {key: self.slates.get(key, {}) | other.slates.get(key, {}) for key in {*self.slates, *other.slates}}
        features = {
            key: self.features.get(key, {}) | other.features.get(key, {}) for key in {*self.features, *other.features}
        }
        steps = Steps.joined([self.steps, other.steps])[sort]
        return Chunk(order[sort], experiment, steps, self.sources, masks, full, slates, features)


Positions = Mapping[int, tuple[int, int]]  # by experiment: after one position, up to another


def chunks(
    store: Store, positions: Positions, *, draws: bool, full: bool, features: bool = False
) -> Iterator[tuple[int, Chunk]]:
    """Yield numbers of events and their steps.

    `draws` adds a DRAWN step per decision, `full` the rewards of all arms, `features` those of decisions. The steps of
    an experiment come in their order, and in few chunks: no draw takes effect before the end of a chunk that it is not
    in.
    """
    return _one_ahead(_chunks(store, positions, draws, full, features))


def _one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the same items, each made by another thread while the one before is in use."""
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = other.submit(next, items, None)
            yield item


def _chunks(store: Store, positions: Positions, draws: bool, full: bool, features: bool) -> Iterator[tuple[int, Chunk]]:
    spans, carried = questions.stretches(store, positions, CHUNK), None
    slates, sources = questions.has_slates(store), questions.sources(store)
    for k, (low, high) in enumerate(spans):
        chunk = _read(store, low, high, sources, draws, full, slates)
        if features:
            chunk = chunk._replace(features=questions.features(store, low, high, draws=draws))
        if carried is not None:
            chunk, carried = carried.followed_by(chunk), None
        if draws and k + 1 < len(spans):
            late = np.zeros(len(chunk.order), dtype=np.bool_)  # what must wait for a draw in the next chunk
            for key, least in questions.least_state_versions(store, *spans[k + 1]).items():
                late |= (chunk.experiment == key) & (chunk.order > 2 * least + 1)
            if late.any():
                carried, chunk = chunk.split(late)
        yield high + 1 - low, chunk


def _read(store: Store, low: int, high: int, sources: list[str], draws: bool, full: bool, slates: bool) -> Chunk:
    found = questions.columns(store, low, high, sources, slates=slates)
    decided, settled = found.decided, found.settled
    _check_possible(decided[:, 1:3], decided[:, 3:5])
    parts = [decided[:, [0, 1, 2, 3, 4, 5, 6, 2]]]
    kinds = [np.where(decided[:, 8] == 0, DECIDED, DEFERRED)]
    rewards, times, waits = [np.zeros(len(decided))], [decided[:, 7]], [decided[:, 7]]
    since = _waiting_since(found)
    settlements = np.where(settled[:, 6] == PARTLY, PAID_PARTLY, settled[:, 6])
    for table, events, earlier, kind, reward, waiting in (
        ("activation", found.activated, found.activated_earlier, ACTIVATED, 0.0, found.activated[:, 4]),
        ("reward", settled, found.settled_earlier[:, :6], settlements, settled[:, 5], since),
    ):
        parts.append(_with_decisions(table, events, decided, earlier))
        kinds.append(np.broadcast_to(kind, len(events)))
        rewards.append(np.broadcast_to(reward, len(events)))
        times.append(events[:, 4])
        waits.append(waiting)
    orders = [2 * part[:, 2] for part in parts]
    if draws:
        own = decided[:, 6] < N_ORIGINS
        n_drawn = np.count_nonzero(own)
        parts.append(parts[0][own])
        kinds.append(np.full(n_drawn, DRAWN))
        for column in (rewards, times, waits):
            column.append(np.zeros(n_drawn))
        orders.append(2 * decided[own, 9] + 1)
    order = np.concatenate(orders).astype(np.int64)
    sort = np.argsort(order, kind="stable")
    _, experiment, position, context, arm, propensity, origin, decision = (
        np.concatenate([part[:, k] for part in parts])[sort] for k in range(8)
    )
    decided_by, bucket = np.divmod(origin, N_ORIGINS)
    steps = Steps(
        position.astype(np.int64),
        np.concatenate(kinds).astype(np.int8)[sort],
        context.astype(np.int32),
        arm.astype(np.int32),
        propensity,
        np.concatenate(rewards)[sort],
        decided_by.astype(np.int64),
        (bucket - 1).astype(np.int8),
        decision.astype(np.int64),
        np.concatenate(times).astype(np.int64)[sort],
        np.concatenate(waits).astype(np.int64)[sort],
    )
    masks = questions.masks(store, low, high) if draws else {}
    rewards_of_all = questions.full_rewards(store, low, high) if full else {}
    of_slates = questions.slates(store, low, high) if slates else {}
    return Chunk(order[sort], experiment.astype(np.int64), steps, sources, masks, rewards_of_all, of_slates, {})


def _waiting_since(found: EventColumns) -> NDArray[np.float64]:
    """Return from when the decision of every settlement has waited: since it was made, or activated."""
    decided, settled, activated = found.decided, found.settled, found.activated
    since, here = settled[:, 4].copy(), settled[:, 3] >= 0
    if len(decided):
        made_at = decided[:, 7].copy()
        among = activated[activated[:, 3] >= 0]
        made_at[_places(decided, among[:, 3])] = among[:, 4]
        since[here] = made_at[_places(decided, settled[here, 3])]
    at = np.searchsorted(found.settled_earlier[:, 0], settled[~here, 0])
    since[~here] = np.append(found.settled_earlier[:, 6], np.nan)[at]
    return since


def _places(decided: NDArray[np.float64], decisions: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the rows of decisions by their event; of those that are missing, which are refused later, any."""
    return np.minimum(np.searchsorted(decided[:, 0], decisions), len(decided) - 1)


def _with_decisions(
    table: str, events: NDArray[np.float64], decided: NDArray[np.float64], earlier: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return event, experiment, position, and of the decision context, arm, propensity, origin and position.

    The fourth column of events is their decision.
    """
    rows = np.empty((len(events), 8))
    rows[:, :3] = events[:, :3]
    here = events[:, 3] >= 0  # the decision is in the same chunk
    at = np.searchsorted(decided[:, 0], events[here, 3])
    same = (np.append(decided[:, :2], [[np.nan] * 2], axis=0)[at] == events[here][:, [3, 1]]).all(axis=1)
    _check_found(table, events[here], same)
    _check_found(table, events[~here], np.isin(events[~here, 0], earlier[:, 0]))
    rows[here, 3:] = decided[at][:, [3, 4, 5, 6, 2]]
    rows[~here, 3:] = earlier[:, 1:]
    _check_possible(rows[:, 1:3], rows[:, 3:5])
    return rows


def _check_found(table: str, events: NDArray[np.float64], found: NDArray[np.bool_]) -> None:
    for key, position in events[~found, 1:3][:1].tolist():
        raise without_decision(table, int(key), int(position))


def _check_possible(places: NDArray[np.float64], numbers: NDArray[np.float64]) -> None:
    possible = ((numbers >= 0) & (numbers <= LARGEST)).all(axis=1)
    for key, position in places[~possible][:1].tolist():
        raise impossible_number(int(key), int(position))


def _set_full_rewards(steps: Steps, key: int) -> None:
    """Set the reward of the drawn arm where the rewards of all arms are known."""
    paid = np.flatnonzero(steps.kind < EXPIRED)
    for t, position, arm in zip(paid.tolist(), steps.position[paid].tolist(), steps.arm[paid].tolist(), strict=True):
        if position in steps.full:
            values = np.frombuffer(steps.full[position][1], dtype="<f8")
            if arm >= len(values):
                raise impossible_number(key, position)
            steps.reward[t] = values[arm]


def _features(experiment: Experiment, stored: Mapping[int, bytes], steps: Steps) -> NDArray[np.float64] | None:
    """Return the features of the decision of every step, as the policy gets them; zeros where it needs none."""
    schema = experiment.schema
    if schema is None:
        return None
    needed = np.flatnonzero(np.isin(steps.actions, (LEARN, DRAW, OBSERVE)))
    blobs, size = [stored.get(position, b"") for position in steps.position[needed].tolist()], 8 * len(schema.names)
    numbers = np.zeros((len(steps), len(schema.names)))
    if {*map(len, blobs)} - {size}:
        fits = np.array([len(blob) == size for blob in blobs])
    else:
        numbers[needed] = np.frombuffer(b"".join(blobs), dtype="<f8").reshape(-1, len(schema.names))
        fits = schema.are_possible(numbers[needed])
    for position in steps.position[needed[~fits]][:1].tolist():
        raise Mismatch(f"{experiment.name}: the decision of event {position} does not have the declared features.")
    return schema.encoded(numbers)


def impossible_number(experiment: int | str, position: int) -> Mismatch:
    return Mismatch(f"{_named(experiment)}: event {position} has an impossible context or arm.")


def without_decision(table: str, experiment: int | str, position: int) -> Mismatch:
    return Mismatch(f"{_named(experiment)}: {table} {position} belongs to no decision before it.")


def _named(experiment: int | str) -> str:
    return experiment if isinstance(experiment, str) else f"experiment {experiment}"


# repeating them


class Stop(NamedTuple):
    """Where a replay stops to apply a change, to keep a state for a rollback, or to compare it with a snapshot."""

    position: int
    why: int
    change: Change | None = None


class Replay:
    """Repeats the logs of some experiments from the start, or from saved states, up to a position of each."""

    def __init__(
        self,
        store: Store,
        until: Mapping[int, int],
        *,
        check: bool = False,
        known: Mapping[int, Experiment] | None = None,
    ) -> None:
        self.store, self.until, self.check = store, until, check
        self.experiments: dict[int, Experiment] = dict(known or {})
        self.unproved: set[int] = set()  # experiments of which some steps could not be repeated
        self._continues = known is not None
        self.start = {key: experiment.position for key, experiment in self.experiments.items()}  # of each replay
        self.changes = {key: questions.changes(store, key, last, self.start.get(key, 0)) for key, last in until.items()}
        self._not_summarized: dict[int, int] = {}  # experiments whose saved state has no summary, and its position
        self._kept: dict[tuple[int, int], State] = {}  # for later rollbacks
        self._stops: dict[int, list[Stop]] = {}
        self._most_arms: dict[int, int] = {}

    @classmethod
    def of_tail(cls, store: Store, until: Mapping[int, int], experiments: Mapping[int, Experiment]) -> Replay:
        """Continue with experiments from where they are; what they have is changed."""
        return cls(store, until, known=experiments)

    def from_snapshots(self) -> Replay:
        """Start each experiment at its last saved state that can be loaded."""
        for key, changes in self.changes.items():
            if changes and changes[0].kind == "create":
                self._begin_at_last_state(key)
        return self

    def _begin_at_last_state(self, key: int) -> None:
        for position, tally, state, summary in questions.states(self.store, key, self.until[key]):
            try:
                self._begin(key, position, tally, load_policy(State.from_bytes(state)), summary)
                return
            except MemoryError:
                raise
            except Exception as problem:  # of an older layout, for example: the log leads to the same state
                LOG.info("The state at position %d is not used: %s", position, problem)

    def from_upgrades(self) -> Replay:
        """Start where other code saved its last state: this code cannot repeat what other code did."""
        for key, changes in self.changes.items():
            for change in changes:
                if change.kind != "upgrade":
                    continue
                state, summary = _saved_with(change)
                self._begin(key, change.position, json.loads(change.body)["tally"], None, summary)
                experiment = self.experiments[key]
                with self._guarded(experiment, f"being loaded at position {change.position}"):
                    experiment.policy = load_policy(State.from_bytes(state))
        return self

    def _begin(
        self, key: int, position: int, tally: str, policy: BasePolicy | None, summary: memoryview | None
    ) -> None:
        created, *later = self.changes[key]
        experiment = Experiment(created)
        for change in later:
            if change.position <= position:
                experiment.note(change)
        counts = json.loads(tally)
        experiment.tally = Tally(**counts)
        experiment.tally.add_arms(len(experiment.arms))
        if "earned" not in counts:  # saved by a version that did not count it
            for arm, reward in questions.earned(self.store, key, position):
                experiment.tally.earned[arm] += reward
        if summary is None:
            self._not_summarized[key] = position
        else:
            experiment.summary = Summary.from_bytes(summary, experiment.settings.reward_range)
            self._not_summarized.pop(key, None)
        if policy is not None:
            experiment.policy = policy
        self.experiments[key], self.start[key] = experiment, position

    @contextlib.contextmanager
    def _guarded(self, experiment: Experiment, doing: str) -> Iterator[None]:
        """Drop the policy of one experiment if it raises, and go on with the others."""
        try:
            yield
        except (Mismatch, Unavailable):
            raise
        except Exception as problem:
            experiment.drop_policy(doing, problem)

    def run(self, advance: Callable[[int], None] = lambda events: None) -> dict[int, Experiment]:
        """Return all experiments as they were at the end; `advance` is called with the number of events of a chunk."""
        for key, changes in self.changes.items():
            if key not in self.experiments and changes and changes[0].kind == "create":
                experiment = self.experiments[key] = Experiment(changes[0])
                self.start[key] = changes[0].position
                with self._guarded(experiment, "being created"):
                    experiment.policy = experiment.settings.first_policy(experiment.changes[0].state)
        self.experiments = dict(sorted(self.experiments.items()))
        self._plan()
        for experiment in self.experiments.values():
            if not experiment.has_policy:  # infer the feedback from its decisions
                experiment.full = questions.has_full_information(self.store, experiment.key)
        policies = [experiment.policy for experiment in self.experiments.values() if experiment.has_policy]
        draws = self.check or not all(policy.traits.contexts_apart for policy in policies)
        full = any(experiment.full for experiment in self.experiments.values())
        self._summarize(full)
        positions = {key: (start, self.until[key]) for key, start in self.start.items()}
        features = any(experiment.schema is not None for experiment in self.experiments.values())
        for n_events, chunk in chunks(self.store, positions, draws=draws, full=full, features=features):
            for experiment in self.experiments.values():
                self._repeat(experiment, chunk)
            advance(n_events)
        for key, experiment in self.experiments.items():
            self._stop_until(experiment, self.until[key])
            experiment.position = self.until[key]
        return self.experiments

    def _summarize(self, full: bool) -> None:
        """Count what older versions have not: one pass over the log up to their states, without fairness."""
        until = self._not_summarized
        if not until:
            return
        changes: dict[int, list[Change]] = {}
        for key, position in until.items():
            created, *later = self.changes[key]
            changes[key] = [change for change in later if change.position <= position]
            self.experiments[key].summary = Summary(
                created.at, len(json.loads(created.body)["arms"]), self.experiments[key].settings.reward_range
            )
        positions = {key: (0, position) for key, position in until.items()}
        for _, chunk in chunks(self.store, positions, draws=False, full=full):
            for key, position in until.items():
                experiment = self.experiments[key]
                _, steps = chunk.of(key, 0, position)
                self._check_numbers(experiment, steps, len(experiment.arms), experiment.n_contexts)
                _add_to(experiment.summary, steps, changes[key])
        for key in until:
            _add_to(self.experiments[key].summary, None, changes[key])
        until.clear()

    def _plan(self) -> None:
        """Find out where to stop on the way, and why."""
        for key, experiment in self.experiments.items():
            self._most_arms[key] = len(experiment.arms) if self._continues else 0
            stops, start = list[Stop](), self.start[key]
            for change in self.changes[key]:
                if change.kind in ("create", "add_arm"):
                    body = json.loads(change.body)
                    self._most_arms[key] += len(body["arms"]) if change.kind == "create" else 1
                if change.position > start:
                    stops.append(Stop(change.position, APPLY, change))
                    if change.kind == "rollback" and _target(change) >= start:
                        stops.append(Stop(_target(change), KEEP))
            if self.check:
                saved = questions.snapshot_positions(self.store, key, self.until[key])
                stops += [Stop(position, COMPARE) for position in saved if position > start]
            self._stops[key] = sorted(stops, key=lambda stop: stop[:2])

    def _repeat(self, experiment: Experiment, chunk: Chunk) -> None:
        """Count the steps of one experiment, and repeat them, with every stop among them."""
        key = experiment.key
        order, steps = chunk.of(key, self.start[key], self.until[key])
        if not len(steps):
            return
        steps = experiment.tally.with_own_numbers(steps, chunk.sources)
        self._check_numbers(experiment, steps, self._most_arms[key], experiment.n_contexts)
        experiment.tally.add_arms(int(steps.own.shown.max(initial=-1)) + 1)
        experiment.tally.count(steps)
        if not self.check and (not experiment.has_policy or experiment.policy.traits.contexts_apart):
            which = steps.kind != DRAWN
            steps, order = steps[which], order[which]
        steps.features = _features(experiment, chunk.features.get(key, {}), steps)
        stops, first = self._stops[key], 0
        while stops and len(order) and 2 * stops[0].position < order[-1]:  # what comes later is after this stop
            stop = stops.pop(0)
            before = int(np.searchsorted(order, 2 * stop.position, side="right"))
            self._fold(experiment, steps[first:before])
            first = before
            self._stop(experiment, stop)
        self._fold(experiment, steps[first:])

    def _stop_until(self, experiment: Experiment, position: int) -> None:
        """Make the stops after the last step."""
        stops = self._stops[experiment.key]
        while stops and stops[0].position <= position:
            self._stop(experiment, stops.pop(0))

    def _fold(self, experiment: Experiment, steps: Steps) -> None:
        """Learn from steps and summarize them, one bucket of time after the other."""
        experiment.summary.flush()
        for part in experiment.summary.parts(steps, experiment.fairness):
            self._learn(experiment, part)
            experiment.summary.count(part)

    def _check_numbers(self, experiment: Experiment, steps: Steps, n_arms: int, n_contexts: int) -> None:
        """Refuse numbers that compiled code would use as indices, or that would ask for much memory."""
        impossible = (steps.arm >= n_arms) | (steps.context >= n_contexts + self.until[experiment.key])
        for t in steps.of_slates:
            slate = steps.slates[int(steps.position[t])].slate
            impossible[t] |= min(slate.arms) < 0 or max(slate.arms) >= n_arms
            impossible[t] |= slate.arms[0] != steps.arm[t] or slate.propensities[0] != steps.propensity[t]
        for position in steps.position[impossible][:1].tolist():
            raise impossible_number(experiment.name, position)

    def _learn(self, experiment: Experiment, steps: Steps) -> None:
        if not len(steps):
            return
        self._check_numbers(experiment, steps, len(experiment.arms), experiment.n_contexts)
        experiment.n_contexts = max(experiment.n_contexts, int(steps.context.max()) + 1)
        if not experiment.has_policy:
            if (steps.kind == DRAWN).any():
                self._leave_unproved(experiment)
            return
        first, last = int(steps.position.min()), int(steps.position.max())
        with self._guarded(experiment, f"learning from events {first} to {last}"):
            policy = experiment.policy
            if policy.traits.contexts_apart:
                policy.grow(n_contexts=max(policy.n_contexts, experiment.n_contexts))
            steps = steps.for_policy
            drawn = np.full(len(steps), np.nan)
            try:
                follow(policy, experiment.with_arm_features(steps), experiment.to_unit, drawn)
            except Exception:
                self._check_drawn(experiment, steps, drawn, ~np.isnan(drawn))
                raise
            self._check_drawn(experiment, steps, drawn)

    def _check_drawn(
        self, experiment: Experiment, steps: Steps, drawn: Vector, reached: NDArray[np.bool_] | None = None
    ) -> None:
        """Raise `Mismatch` if a decision was logged with another probability; only `reached` ones are checked."""
        if not self.check:
            return
        draws = steps.kind == DRAWN
        if reached is not None:
            if (draws & ~reached).any():
                self._leave_unproved(experiment)
            draws &= reached
        for t in np.flatnonzero(draws & (drawn != steps.propensity))[:1]:
            if steps.position[t] in steps.slates:
                shown = list(steps.slates[int(steps.position[t])].slate.propensities)
                raise Mismatch(
                    f"{experiment.name}: the slate of decision {steps.position[t]} was logged with propensities "
                    f"{reprlib.repr(shown)}, but the log before it leads to others."
                )
            raise Mismatch(
                f"{experiment.name}: decision {steps.position[t]} was logged with propensity "
                f"{float(steps.propensity[t])!r}, but the log before it leads to {float(drawn[t])!r}."
            )

    def _leave_unproved(self, experiment: Experiment) -> None:
        if self.check:
            self.unproved.add(experiment.key)

    def _stop(self, experiment: Experiment, stop: Stop) -> None:
        if stop.why == APPLY and stop.change is not None:
            experiment.summary.advance(stop.change.at, experiment.fairness)
            if stop.change.kind == "rollback":
                self._roll_back(experiment, stop.change)
            elif stop.change.kind == "new_period" and self.check and experiment.has_policy:
                accounts = experiment.periods.accounts(experiment)
                compare_books(experiment, stop.change, dict(zip(ACCOUNTS, accounts, strict=True)))
            experiment.apply(stop.change)
            if stop.change.kind == "upgrade" and self._continues:  # all go on with the state of the one that wrote it
                with self._guarded(experiment, f"being loaded at position {stop.position}"):
                    experiment.policy = load_policy(State.from_bytes(_saved_with(stop.change)[0]))
        elif not experiment.has_policy:
            self._leave_unproved(experiment)
        elif stop.why == KEEP:
            with self._guarded(experiment, f"being kept at position {stop.position}"):
                self._kept[experiment.key, stop.position] = experiment.policy.snapshot()
        else:
            state = State.from_bytes(questions.snapshot_state(self.store, experiment.key, stop.position))
            compare_state(experiment, state, f"the snapshot at position {stop.position}")

    def _roll_back(self, experiment: Experiment, change: Change) -> None:
        """Repeat a rollback from the state that was kept, or load the state that was saved with it."""
        position = _target(change)
        kept = self._kept.get((experiment.key, position))
        with self._guarded(experiment, f"being rolled back at position {change.position}"):
            saved = State.from_bytes(_saved_with(change)[0])
            if kept is None:
                experiment.policy = load_policy(saved)
            else:
                experiment.policy = rolled_back(self.store, experiment, load_policy(kept), position, change.position)
                if self.check:
                    compare_state(experiment, saved, f"the rollback at position {change.position}")


def _saved_with(change: Change) -> tuple[bytes | memoryview, memoryview | None]:
    """Return the state and the summary that were saved with a rollback or an upgrade."""
    return split_state(change.state or b"", json.loads(change.body).get("summary"))


def _add_to(summary: Summary, steps: Steps | None, changes: list[Change]) -> None:
    """Add steps to a summary, and the changes before the last of them, which are removed; all changes without steps."""
    first, end = 0, math.inf
    if steps is not None:
        end = steps.position[-1] if len(steps) else 0
    while changes and changes[0].position < end:
        change = changes.pop(0)
        if steps is not None:
            last = int(np.searchsorted(steps.position, change.position))
            for part in summary.parts(steps[first:last], unknown):
                summary.count(part)
            first = last
        summary.advance(change.at)
        if change.kind == "add_arm":
            summary.add_arm()
    if steps is not None:
        for part in summary.parts(steps[first:], unknown):
            summary.count(part)


def compare_state(experiment: Experiment, state: State, what: str) -> None:
    """Raise `Mismatch` if a state is not what the log leads to; memory for a context whose draw failed is allowed.

    What a state of an older version lacks cannot be compared.
    """
    policy, n_contexts = experiment.policy, state.settings.get("n_contexts", 0)
    if policy.traits.contexts_apart and n_contexts > policy.n_contexts:
        policy.grow(n_contexts=n_contexts)
    expected, found = archive.of_this_version(policy, state), policy.snapshot()
    lacking = found.arrays.keys() - state.arrays.keys()
    same = {**expected.arrays, **{name: found.arrays[name] for name in lacking & expected.arrays.keys()}}
    if not same_state(replace(expected, arrays=same), found):
        raise Mismatch(f"{experiment.name}: {what} is not what the log leads to.")


def compare_books(experiment: Experiment, change: Change, expected: Mapping[str, Any]) -> None:
    """Raise `Mismatch` if fields of a change that ends a period are not those that the log leads to."""
    body = json.loads(change.body)
    found = {**body, **body["books"]}
    for name, value in expected.items():
        if name == "pulls" and name not in found:  # an older version wrote no draws
            continue
        if found[name] != value and (found[name] or name not in ACCOUNTS):  # none: its policy failed at that time
            raise Mismatch(
                f"{experiment.name}: the change at position {change.position} ends period {experiment.periods.number} "
                f"with {name} {reprlib.repr(found[name])}, but the log leads to {reprlib.repr(value)}."
            )


# rollback


def _target(rollback: Change) -> int:
    return int(json.loads(rollback.body)["position"])


def rollback_position(experiment: Experiment, position: int) -> int:
    """Return a position to roll back to: after the decisions that an earlier rollback closed, if it is among them."""
    for change in experiment.changes:
        if change.kind == "rollback" and change.position <= position:
            position = max(position, change.position + json.loads(change.body)["closed"])
    return position


def policy_at(store: Store, experiment: Experiment, position: int) -> BasePolicy:
    """Return the policy of an experiment as it was at a position."""
    with store.reader() as reader:
        return Replay(reader, {experiment.key: position}).from_snapshots().run()[experiment.key].policy


def rolled_back(store: Store, experiment: Experiment, policy: BasePolicy, position: int, end: int) -> BasePolicy:
    """Bring the policy of a position to the arms, alpha and contexts of the rollback at `end`; what it learned stays.

    Decisions that were open at the position and have been settled since will not be rewarded again.
    """
    policy.grow(n_contexts=max(experiment.n_contexts, policy.n_contexts))
    for change in experiment.changes:
        if change.position > position:
            apply_to_policy(policy, change)
    settled = questions.settled_between(store, experiment.key, position, end)
    rows = [(decision, EXPIRED, context, arm, propensity, 0.0) for decision, context, arm, propensity in settled]
    slates = dict[int, SlateEvent]()
    for decision, context, event in questions.slates_settled_between(store, experiment.key, position, end):
        slates[decision] = event
        rows.append((decision, EXPIRED, context, event.slate.arms[0], event.slate.propensities[0], 0.0))
    if rows:
        features = np.zeros((len(rows), *policy.feature_shape)) if policy.n_features else None  # nothing is learned
        closed = [(*row, OWN, NO_BUCKET, row[0]) for row in sorted(rows)]
        follow(policy, Steps.of(closed, {}, slates=slates, features=features), lambda rewards: rewards)
    return policy
