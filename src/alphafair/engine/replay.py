"""From the event log to the state: recovery, rollback and verification repeat the same steps, over more or less of it.

Steps are repeated in the order in which they took effect: a reward at its own position, a draw at the position that had
been processed when it was made. So every logged propensity can be recomputed from the state that it came from.
"""

from __future__ import annotations

import contextlib
import json
import reprlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from alphafair.algorithms import BasePolicy, load_policy
from alphafair.engine.experiment import LOG, Experiment, change_policy, same_state
from alphafair.engine.ledger import Change, EventColumns, Ledger, split_state
from alphafair.engine.steps import ACTIVATED, DECIDED, DEFERRED, DRAWN, EXPIRED, Steps, Tally, follow
from alphafair.engine.summary import Summary, unknown
from alphafair.errors import Mismatch, Unavailable
from alphafair.policy import archive
from alphafair.values import State, Vector

CHUNK = 100_000  # events read at a time
LARGEST = 2**31 - 1  # number of a context or an arm
APPLY, KEEP, COMPARE = range(3)  # why to stop: in this order at one position
ACCOUNTS = ("entry_accounts", "accounts")  # fields of a period's books that come from the policy
Item = TypeVar("Item")


# reading steps


class Chunk(NamedTuple):
    """Steps of all experiments up to a position, sorted by the position at which they took effect (`order` / 2)."""

    end: int
    order: NDArray[np.int64]
    experiment: NDArray[np.int64]
    steps: Steps


def chunks(store: Ledger, start: int, until: int, *, draws: bool, full: bool) -> Iterator[Chunk]:
    """Yield the log between two positions; `draws` adds a DRAWN step per decision, `full` the rewards of all arms."""
    return _one_ahead(_chunks(store, start, until, draws, full))


def _one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the same items, each made by another thread while the one before is in use."""
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = other.submit(next, items, None)
            yield item


def _chunks(store: Ledger, start: int, until: int, draws: bool, full: bool) -> Iterator[Chunk]:
    while start < until:
        end = min(start + CHUNK, until)
        if draws:  # no draw of a later chunk may take effect before the end of this one
            least = store.least_state_version(end, end + CHUNK)
            if least is not None and start < least < end:
                end = least
        yield _read(store, start, end, draws, full)
        start = end


def _read(store: Ledger, start: int, end: int, draws: bool, full: bool) -> Chunk:
    found = store.columns(start, end)
    decided, settled = found.decided, found.settled
    _check_possible(decided[:, 0], decided[:, 2:4])
    parts = [decided[:, :5]]
    kinds = [np.where(decided[:, 6] == 0, DECIDED, DEFERRED)]
    rewards, times, waits = [np.zeros(len(decided))], [decided[:, 5]], [decided[:, 5]]
    since = _waiting_since(found, start)
    for table, events, earlier, kind, reward, waiting in (
        ("activation", found.activated, found.activated_earlier, ACTIVATED, 0.0, found.activated[:, 2]),
        ("reward", settled, found.settled_earlier[:, :5], settled[:, 4], settled[:, 3], since),
    ):
        parts.append(_with_decisions(table, events, decided, earlier, start))
        kinds.append(np.broadcast_to(kind, len(events)))
        rewards.append(np.broadcast_to(reward, len(events)))
        times.append(events[:, 2])
        waits.append(waiting)
    orders = [2 * part[:, 0] for part in parts]
    if draws:
        parts.append(decided[:, :5])
        kinds.append(np.full(len(decided), DRAWN))
        for column in (rewards, times, waits):
            column.append(np.zeros(len(decided)))
        orders.append(2 * store.state_versions(start, end) + 1)
    order = np.concatenate(orders).astype(np.int64)
    sort = np.argsort(order, kind="stable")
    seq, experiment, context, arm, propensity = (np.concatenate([part[:, k] for part in parts])[sort] for k in range(5))
    steps = Steps(
        seq.astype(np.int64),
        np.concatenate(kinds).astype(np.int8)[sort],
        context.astype(np.int32),
        arm.astype(np.int32),
        propensity,
        np.concatenate(rewards)[sort],
        np.concatenate(times).astype(np.int64)[sort],
        np.concatenate(waits).astype(np.int64)[sort],
        store.masks(start, end) if draws else {},
        store.full_rewards(start, end) if full else {},
    )
    if steps.full:
        _set_full_rewards(steps)
    return Chunk(end, order[sort], experiment.astype(np.int64), steps)


def _waiting_since(found: EventColumns, start: int) -> NDArray[np.float64]:
    """Return from when the decision of every settlement has waited: since it was made, or activated."""
    decided, settled, activated = found.decided, found.settled, found.activated
    since, here = settled[:, 2].copy(), settled[:, 1] > start
    if len(decided):
        made_at = decided[:, 5].copy()
        among = activated[activated[:, 1] > start]
        made_at[_places(decided, among[:, 1])] = among[:, 2]
        since[here] = made_at[_places(decided, settled[here, 1])]
    at = np.searchsorted(found.settled_earlier[:, 0], settled[~here, 0])
    since[~here] = np.append(found.settled_earlier[:, 5], np.nan)[at]
    return since


def _places(decided: NDArray[np.float64], decisions: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the rows of decisions by their seq; of those that are missing, which are refused later, any."""
    return np.minimum(np.searchsorted(decided[:, 0], decisions), len(decided) - 1)


def _with_decisions(
    table: str,
    events: NDArray[np.float64],
    decided: NDArray[np.float64],
    earlier: NDArray[np.float64],
    start: int,
) -> NDArray[np.float64]:
    """Return seq, experiment, context, arm, propensity of events whose second column is their decision."""
    rows = np.empty((len(events), 5))
    rows[:, 0] = events[:, 0]
    here = events[:, 1] > start  # the decision is in the same chunk
    at = np.searchsorted(decided[:, 0], events[here, 1])
    _check_found(table, events[here], np.append(decided[:, 0], np.nan)[at] == events[here, 1])
    _check_found(table, events[~here], np.isin(events[~here, 0], earlier[:, 0]))
    _check_possible(earlier[:, 0], earlier[:, 2:4])
    rows[here, 1:] = decided[at, 1:5]
    rows[~here, 1:] = earlier[:, 1:]
    return rows


def _check_found(table: str, events: NDArray[np.float64], found: NDArray[np.bool_]) -> None:
    for seq, decision in events[~found, :2][:1].tolist():
        raise without_decision(table, int(seq), int(decision))


def _check_possible(seq: NDArray[np.float64], numbers: NDArray[np.float64]) -> None:
    possible = ((numbers >= 0) & (numbers <= LARGEST)).all(axis=1)
    for each in seq[~possible][:1].tolist():
        raise impossible_number(int(each))


def _set_full_rewards(steps: Steps) -> None:
    """Set the reward of the drawn arm where the rewards of all arms are known."""
    paid = np.flatnonzero(steps.kind < EXPIRED)
    for t, seq, arm in zip(paid.tolist(), steps.seq[paid].tolist(), steps.arm[paid].tolist(), strict=True):
        if seq in steps.full:
            values = np.frombuffer(steps.full[seq][1], dtype="<f8")
            if arm >= len(values):
                raise impossible_number(seq)
            steps.reward[t] = values[arm]


def impossible_number(seq: int) -> Mismatch:
    return Mismatch(f"event {seq} has an impossible context or arm.")


def without_decision(table: str, seq: int, decision: int) -> Mismatch:
    return Mismatch(f"{table} {seq} belongs to decision {decision}, but there is no such decision before it.")


# repeating them


class Stop(NamedTuple):
    """Where a replay stops to apply a change, to keep a state for a rollback, or to compare it with a snapshot."""

    seq: int
    why: int
    change: Change | None = None


class Replay:
    """Repeats the log from the start, or from saved states, up to a position."""

    def __init__(
        self, store: Ledger, until: int, *, check: bool = False, only: int | None = None, after: int | None = None
    ) -> None:
        self.store, self.until, self.check = store, until, check
        self.experiments: dict[int, Experiment] = {}
        self.unproved: set[int] = set()  # experiments of which some steps could not be repeated
        self.changes = store.changes(until, only) if after is None else store.changes(until, after=after)
        self._continues = after is not None
        self.start: dict[int, int] = {}  # the position from which each experiment is replayed
        self._not_summarised: dict[int, int] = {}  # experiments whose saved state has no summary, and its position
        self._kept: dict[tuple[int, int], State] = {}  # for later rollbacks
        self._stops: dict[int, list[Stop]] = {}
        self._most_arms: dict[int, int] = {}

    @classmethod
    def of_tail(cls, store: Ledger, until: int, experiments: dict[int, Experiment], position: int) -> Replay:
        """Continue with experiments that are at a position; what they have is changed."""
        replay = cls(store, until, after=position)
        replay.experiments, replay.start = experiments, dict.fromkeys(experiments, position)
        return replay

    def from_snapshots(self) -> Replay:
        """Start each experiment at its last saved state that can be loaded."""
        for change in self.changes:
            if change.kind == "create":
                self._begin_at_last_state(change)
        return self

    def _begin_at_last_state(self, created: Change) -> None:
        with contextlib.closing(self.store.states(created.experiment, self.until)) as states:
            for seq, tally, state, summary in states:
                try:
                    self._begin(created, seq, tally, load_policy(State.from_bytes(state)), summary)
                    return
                except MemoryError:
                    raise
                except Exception as problem:  # of an older layout, for example: the log leads to the same state
                    LOG.info("The state at position %d is not used: %s", seq, problem)

    def from_upgrades(self) -> Replay:
        """Start where other code saved its last state: this code cannot repeat what other code did."""
        created = {change.experiment: change for change in self.changes if change.kind == "create"}
        for change in self.changes:
            if change.kind == "upgrade":
                state, summary = _saved_with(change)
                self._begin(created[change.experiment], change.seq, json.loads(change.body)["tally"], None, summary)
                experiment = self.experiments[change.experiment]
                with self._guarded(experiment, f"being loaded at position {change.seq}"):
                    experiment.policy = load_policy(State.from_bytes(state))
        return self

    def _begin(
        self, created: Change, position: int, tally: str, policy: BasePolicy | None, summary: memoryview | None
    ) -> None:
        experiment = Experiment(created)
        for change in self.changes:
            if change.experiment == created.experiment and created.seq < change.seq <= position:
                experiment.note(change)
        counts = json.loads(tally)
        experiment.tally = Tally(**counts)
        experiment.tally.add_arms(len(experiment.arms))
        if "earned" not in counts:  # saved by a version that did not count it
            for arm, reward in self.store.earned(created.experiment, position):
                experiment.tally.earned[arm] += reward
        if summary is None:
            self._not_summarised[created.experiment] = position
        else:
            experiment.summary = Summary.from_bytes(summary)
            self._not_summarised.pop(created.experiment, None)
        if policy is not None:
            experiment.policy = policy
        self.experiments[created.experiment], self.start[created.experiment] = experiment, position

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
        """Return all experiments as they were at the end; `advance` is called with the events of every chunk."""
        for change in self.changes:
            if change.kind == "create" and change.experiment not in self.experiments:
                experiment = self.experiments[change.experiment] = Experiment(change)
                self.start[change.experiment] = change.seq
                with self._guarded(experiment, "being created"):
                    experiment.policy = experiment.first_policy()
        self.experiments = dict(sorted(self.experiments.items()))
        self._plan()
        position = min(self.start.values(), default=self.until)
        for experiment in self.experiments.values():
            if not experiment.has_policy:  # infer the feedback from its decisions
                experiment.full = self.store.has_full_information(experiment.key)
        policies = [experiment.policy for experiment in self.experiments.values() if experiment.has_policy]
        draws = self.check or not all(policy.traits.contexts_apart for policy in policies)
        full = any(experiment.full for experiment in self.experiments.values())
        self._summarise(full)
        for chunk in chunks(self.store, position, self.until, draws=draws, full=full):
            for key, experiment in self.experiments.items():
                self._repeat(key, experiment, chunk)
            advance(chunk.end - position)
            position = chunk.end
        return self.experiments

    def _summarise(self, full: bool) -> None:
        """Count what older versions have not: one pass over the log up to their states, without fairness."""
        until = self._not_summarised
        if not until:
            return
        changes: dict[int, list[Change]] = {key: [] for key in until}
        for change in self.changes:
            if change.kind == "create" and change.experiment in until:
                experiment = self.experiments[change.experiment]
                experiment.summary = Summary(change.at, len(json.loads(change.body)["arms"]))
            elif change.seq <= until.get(change.experiment, 0):
                changes[change.experiment].append(change)
        for chunk in chunks(self.store, 0, max(until.values()), draws=False, full=full):
            for key, position in until.items():
                steps = chunk.steps[(chunk.experiment == key) & (chunk.steps.seq <= position)]
                self._check_numbers(steps, len(self.experiments[key].arms), self.experiments[key].n_contexts)
                _add_to(self.experiments[key].summary, steps, changes[key], chunk.end)
        until.clear()

    def _plan(self) -> None:
        """Find out where to stop on the way, and why."""
        stops: dict[int, list[Stop]] = {key: [] for key in self.experiments}
        self._most_arms = {
            key: len(experiment.arms) if self._continues else 0 for key, experiment in self.experiments.items()
        }
        for change in self.changes:
            if change.kind in ("create", "add_arm"):
                body = json.loads(change.body)
                self._most_arms[change.experiment] += len(body["arms"]) if change.kind == "create" else 1
            if change.seq > self.start[change.experiment]:
                stops[change.experiment].append(Stop(change.seq, APPLY, change))
                if change.kind == "rollback" and _target(change) >= self.start[change.experiment]:
                    stops[change.experiment].append(Stop(_target(change), KEEP))
        if self.check:
            for key, seq in self.store.snapshot_positions(self.until):
                if seq > self.start[key]:
                    stops[key].append(Stop(seq, COMPARE))
        self._stops = {key: sorted(mine, key=lambda stop: stop[:2]) for key, mine in stops.items()}

    def _repeat(self, key: int, experiment: Experiment, chunk: Chunk) -> None:
        """Count the steps of one experiment, and repeat them up to every stop."""
        which = (chunk.experiment == key) & (chunk.steps.seq > self.start[key])
        steps, order = chunk.steps[which], chunk.order[which]
        self._check_numbers(steps, self._most_arms[key], experiment.n_contexts)
        experiment.tally.add_arms(int(steps.arm.max(initial=-1)) + 1)
        experiment.tally.count(steps)
        if not self.check and (not experiment.has_policy or experiment.policy.traits.contexts_apart):
            which = steps.kind != DRAWN
            steps, order = steps[which], order[which]
        stops, first = self._stops[key], 0
        while stops and stops[0].seq <= chunk.end:
            stop = stops.pop(0)
            before = int(np.searchsorted(order, 2 * stop.seq, side="right"))
            self._fold(experiment, steps[first:before])
            first = before
            self._stop(experiment, stop)
        self._fold(experiment, steps[first:])

    def _fold(self, experiment: Experiment, steps: Steps) -> None:
        """Learn from steps and summarise them, one bucket of time after the other."""
        experiment.summary.flush()
        for part in experiment.summary.parts(steps, experiment.fairness):
            self._learn(experiment, part)
            experiment.summary.count(part)

    def _check_numbers(self, steps: Steps, n_arms: int, n_contexts: int) -> None:
        """Refuse numbers that compiled code would use as indices, or that would ask for much memory."""
        for seq in steps.seq[(steps.arm >= n_arms) | (steps.context >= n_contexts + self.until)][:1].tolist():
            raise impossible_number(seq)

    def _learn(self, experiment: Experiment, steps: Steps) -> None:
        if not len(steps):
            return
        self._check_numbers(steps, len(experiment.arms), experiment.n_contexts)
        experiment.n_contexts = max(experiment.n_contexts, int(steps.context.max()) + 1)
        if not experiment.has_policy:
            if (steps.kind == DRAWN).any():
                self._leave_unproved(experiment)
            return
        first, last = int(steps.seq.min()), int(steps.seq.max())
        with self._guarded(experiment, f"learning from events {first} to {last}"):
            policy = experiment.policy
            if policy.traits.contexts_apart:
                policy.grow(n_contexts=max(policy.n_contexts, experiment.n_contexts))
            steps = steps.for_policy
            drawn = np.full(len(steps), np.nan)
            try:
                follow(policy, steps, experiment.to_unit, drawn)
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
            raise Mismatch(
                f"{experiment.name}: decision {steps.seq[t]} was logged with propensity "
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
                compare_books(experiment, stop.change, dict(zip(ACCOUNTS, experiment.period_accounts(), strict=True)))
            experiment.apply(stop.change)
            if stop.change.kind == "upgrade" and self._continues:  # all go on with the state of the one that wrote it
                with self._guarded(experiment, f"being loaded at position {stop.seq}"):
                    experiment.policy = load_policy(State.from_bytes(_saved_with(stop.change)[0]))
        elif not experiment.has_policy:
            self._leave_unproved(experiment)
        elif stop.why == KEEP:
            with self._guarded(experiment, f"being kept at position {stop.seq}"):
                self._kept[experiment.key, stop.seq] = experiment.policy.snapshot()
        else:
            state = State.from_bytes(self.store.snapshot_state(experiment.key, stop.seq))
            compare_state(experiment, state, f"the snapshot at position {stop.seq}")

    def _roll_back(self, experiment: Experiment, change: Change) -> None:
        """Repeat a rollback from the state that was kept, or load the state that was saved with it."""
        position = _target(change)
        kept = self._kept.get((experiment.key, position))
        with self._guarded(experiment, f"being rolled back at position {change.seq}"):
            saved = State.from_bytes(_saved_with(change)[0])
            if kept is None:
                experiment.policy = load_policy(saved)
            else:
                experiment.policy = rolled_back(self.store, experiment, load_policy(kept), position, change.seq)
                if self.check:
                    compare_state(experiment, saved, f"the rollback at position {change.seq}")


def _saved_with(change: Change) -> tuple[bytes | memoryview, memoryview | None]:
    """Return the state and the summary that were saved with a rollback or an upgrade."""
    return split_state(change.state or b"", json.loads(change.body).get("summary"))


def _add_to(summary: Summary, steps: Steps, changes: list[Change], end: int) -> None:
    """Add steps up to a position to a summary, and the changes among them, which are removed from the list."""
    first = 0
    while first < len(steps) or (changes and changes[0].seq <= end):
        change = changes.pop(0) if changes and changes[0].seq <= end else None
        last = len(steps) if change is None else int(np.searchsorted(steps.seq, change.seq))
        for part in summary.parts(steps[first:last], unknown):
            summary.count(part)
        first = last
        if change is not None:
            summary.advance(change.at)
            if change.kind == "add_arm":
                summary.add_arm()


def compare_state(experiment: Experiment, state: State, what: str) -> None:
    """Raise `Mismatch` if a state is not what the log leads to; memory for a context whose draw failed is allowed."""
    policy, n_contexts = experiment.policy, state.settings.get("n_contexts", 0)
    if policy.traits.contexts_apart and n_contexts > policy.n_contexts:
        policy.grow(n_contexts=n_contexts)
    if not same_state(archive.of_this_version(policy, state), policy.snapshot()):
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
                f"{experiment.name}: the change at position {change.seq} ends period {experiment.period_number} with "
                f"{name} {reprlib.repr(found[name])}, but the log leads to {reprlib.repr(value)}."
            )


# rollback


def _target(rollback: Change) -> int:
    return int(json.loads(rollback.body)["position"])


def rollback_position(experiment: Experiment, position: int) -> int:
    """Return a position to roll back to: after the decisions that an earlier rollback closed, if it is among them."""
    for change in experiment.changes:
        if change.kind == "rollback" and change.seq <= position:
            position = max(position, change.seq + json.loads(change.body)["closed"])
    return position


def policy_at(store: Ledger, experiment: Experiment, position: int) -> BasePolicy:
    """Return the policy of an experiment as it was at a position."""
    with store.reader() as reader:
        return Replay(reader, position, only=experiment.key).from_snapshots().run()[experiment.key].policy


def rolled_back(store: Ledger, experiment: Experiment, policy: BasePolicy, position: int, seq: int) -> BasePolicy:
    """Bring the policy of a position to the arms, alpha and contexts of the rollback at `seq`; what it learned stays.

    Decisions that were open at the position and have been settled since will not be rewarded again.
    """
    policy.grow(n_contexts=max(experiment.n_contexts, policy.n_contexts))
    for change in experiment.changes:
        if change.seq > position:
            change_policy(policy, change)
    settled = store.settled_between(experiment.key, position, seq)
    if settled:
        rows = [(decision, EXPIRED, context, arm, propensity, 0.0) for decision, context, arm, propensity in settled]
        follow(policy, Steps.of(rows, {}), lambda rewards: rewards)
    return policy
