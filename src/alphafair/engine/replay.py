"""From the log to the state: recovery, rollback and verification are the same fold, over more or less of it.

Steps are done in the order in which they took effect, so every logged propensity can be asked for again from the very
state it came from.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.algorithms import BasePolicy, load_policy
from alphafair.engine.chunks import DECIDED, NOTHING, Chunk, chunks
from alphafair.engine.events import Change
from alphafair.engine.experiment import COUNTED_AS, LOG, Experiment, Tally, same_state
from alphafair.engine.follow import Steps, follow
from alphafair.engine.integrity import impossible_number
from alphafair.engine.ledger import Ledger
from alphafair.engine.snapshots import whole
from alphafair.errors import Mismatch, Unavailable
from alphafair.policy.loops import DRAW, FORGO, LEARN
from alphafair.values import State, Vector
from alphafair.values.available import unpacked

UNDONE = """select d.context, d.arm, d.propensity from decision d
    left join activation a on a.decision = d.seq join reward r on r.decision = d.seq
    where d.experiment = ? and d.seq <= ? and (d.deferred = 0 or a.seq <= ?) and r.seq > ? and r.seq < ?
    order by d.seq"""
FIRST_SHOWN = "select probabilities is not null from decision where experiment = ? limit 1"
EARNED = """select d.arm, r.reward, r.rewards from reward r join decision d on d.seq = r.decision
    where d.experiment = ? and r.seq <= ? and r.source in ('client', 'default') order by r.seq"""
STATES = """select seq, tally, state, true from snapshot where experiment = ?1 and seq <= ?2
    union all select seq, json_extract(body, '$.tally'), state, false from change
    where experiment = ?1 and seq <= ?2 and kind in ('rollback', 'upgrade') order by seq desc"""


CHANGE = ", ".join(Change._fields)

APPLY, KEEP, COMPARE = range(3)  # why to stop: in this order at one position


class Stop(NamedTuple):
    """Where folding stops for a change to apply, a state to keep for a rollback, or one to compare with a snapshot."""

    seq: int
    why: int
    change: Change | None = None


def _target(rollback: Change) -> int:
    """The position to go back to."""
    return int(json.loads(rollback.body)["position"])


class Replay:
    """Folds the log from the start, or from snapshots, up to a position."""

    def __init__(self, ledger: Ledger, until: int, *, check: bool = False, only: int | None = None) -> None:
        self.ledger, self.until, self.check = ledger, until, check
        self.experiments: dict[int, Experiment] = {}
        self.unproved: set[int] = set()  # experiments of which not all could be done again
        self.changes = [
            Change(*row)
            for row in ledger.rows(f"select {CHANGE} from change where seq <= ? order by seq", (until,))  # noqa: S608 - ours
            if only is None or row[1] == only
        ]
        self.start: dict[int, int] = {}  # the position from which each experiment is folded
        self._kept: dict[tuple[int, int], State] = {}  # for rollbacks to come
        self._stops: dict[int, list[Stop]] = {}
        self._most_arms: dict[int, int] = {}  # at any time

    def from_snapshots(self) -> Replay:
        """Begin at the last state of each experiment that is written down and can be read."""
        for change in self.changes:
            if change.kind == "create":
                for seq, tally, state, in_pieces in self.ledger.each(STATES, (change.seq, self.until)):
                    try:
                        if in_pieces:
                            state = whole(self.ledger, change.seq, seq, state)
                        self._begin(change, seq, tally, load_policy(State.from_bytes(state)))
                        break
                    except MemoryError:
                        raise
                    except Exception as problem:  # a memory of another layout, say: the log tells the same
                        LOG.info("The state at position %d is not used: %s", seq, problem)
        return self

    def from_upgrades(self) -> Replay:
        """Begin where other code wrote its last word: what it did cannot be done again by this code."""
        created = {change.seq: change for change in self.changes if change.kind == "create"}
        for change in self.changes:
            if change.kind == "upgrade":
                self._begin(created[change.experiment], change.seq, json.loads(change.body)["tally"], None)
                experiment = self.experiments[change.experiment]
                with self._guarded(experiment, f"being loaded at position {change.seq}"):
                    experiment.policy = load_policy(State.from_bytes(change.state or b""))
        return self

    def _begin(self, created: Change, position: int, tally: str, policy: BasePolicy | None) -> None:
        experiment = Experiment(created)
        for change in self.changes:
            if change.experiment == created.seq and created.seq < change.seq <= position:
                experiment.note(change)
        experiment.tally = Tally(**json.loads(tally))
        experiment.tally.make_room(len(experiment.arms))
        if "earned" not in json.loads(tally):  # written before it was counted
            for arm, reward, rewards in self.ledger.each(EARNED, (created.seq, position)):
                experiment.tally.earned[arm] += reward if rewards is None else np.frombuffer(rewards, dtype="<f8")[arm]
        if policy is not None:
            experiment.policy = policy
        self.experiments[created.seq], self.start[created.seq] = experiment, position

    @contextlib.contextmanager
    def _guarded(self, experiment: Experiment, doing: str) -> Iterator[None]:
        """Whatever a policy raises concerns its own experiment alone."""
        try:
            yield
        except (Mismatch, Unavailable):
            raise
        except Exception as problem:
            experiment.drop_policy(doing, problem)

    def run(self, advance: Callable[[int], None] = lambda events: None) -> dict[int, Experiment]:
        """All experiments as they stood at the end."""
        for change in self.changes:
            if change.kind == "create" and change.seq not in self.experiments:
                experiment = self.experiments[change.seq] = Experiment(change)
                self.start[change.seq] = change.seq
                with self._guarded(experiment, "being made"):
                    experiment.policy = experiment.first_policy()
        self.experiments = dict(sorted(self.experiments.items()))
        self._plan()
        position = min(self.start.values(), default=self.until)
        for experiment in self.experiments.values():
            if not experiment.has_policy:  # what it was shown is known from its decisions
                first = self.ledger.rows(FIRST_SHOWN, (experiment.key,))
                experiment.full = bool(first and first[0][0])
        policies = [experiment.policy for experiment in self.experiments.values() if experiment.has_policy]
        draws = self.check or not all(policy.traits.contexts_apart for policy in policies)
        full = any(experiment.full for experiment in self.experiments.values())
        for chunk in chunks(self.ledger, position, self.until, draws=draws, full=full):
            self._fold(chunk)
            advance(chunk.end - position)
            position = chunk.end
        return self.experiments

    def _plan(self) -> None:
        """Where to stop on the way, and why."""
        stops: dict[int, list[Stop]] = {key: [] for key in self.experiments}
        self._most_arms = dict.fromkeys(self.experiments, 0)
        for change in self.changes:
            if change.kind in ("create", "add_arm"):
                body = json.loads(change.body)
                self._most_arms[change.experiment] += len(body["arms"]) if change.kind == "create" else 1
            if change.seq > self.start[change.experiment]:
                stops[change.experiment].append(Stop(change.seq, APPLY, change))
                if change.kind == "rollback" and _target(change) >= self.start[change.experiment]:
                    stops[change.experiment].append(Stop(_target(change), KEEP))
        if self.check:
            for key, seq in self.ledger.rows("select experiment, seq from snapshot where seq <= ?", (self.until,)):
                if seq > self.start[key]:
                    stops[key].append(Stop(seq, COMPARE))
        self._stops = {key: sorted(mine, key=lambda stop: stop[:2]) for key, mine in stops.items()}

    def _stop(self, experiment: Experiment, stop: Stop) -> None:
        if stop.why == APPLY and stop.change is not None:
            if stop.change.kind == "rollback":
                self._roll_back(experiment, stop.change)
            experiment.apply(stop.change)
        elif not experiment.has_policy:
            self._leave_unproved(experiment)
        elif stop.why == KEEP:
            with self._guarded(experiment, f"being kept at position {stop.seq}"):
                self._kept[experiment.key, stop.seq] = experiment.policy.snapshot()
        else:
            of = experiment.key, stop.seq
            ((last,),) = self.ledger.rows("select state from snapshot where experiment = ? and seq = ?", of)
            self._compare(experiment, whole(self.ledger, *of, last), f"the snapshot at position {stop.seq}")

    def _roll_back(self, experiment: Experiment, change: Change) -> None:
        """The policy goes back, whatever has become of it since."""
        position, state = _target(change), change.state or b""
        then = self._kept.get((experiment.key, position))
        with self._guarded(experiment, f"being rolled back at position {change.seq}"):
            if then is None:
                experiment.policy = load_policy(State.from_bytes(state))
            else:
                policy = load_policy(then)
                put_back(self.ledger, experiment, policy, position, change.seq)
                experiment.policy = policy
                if self.check:
                    self._compare(experiment, state, f"the rollback at position {change.seq}")

    def _leave_unproved(self, experiment: Experiment) -> None:
        if self.check:
            self.unproved.add(experiment.key)

    def _compare(self, experiment: Experiment, state: bytes, what: str) -> None:
        self.compare(experiment, State.from_bytes(state), what)

    @staticmethod
    def compare(experiment: Experiment, state: State, what: str) -> None:
        """Refuse a state that is not what the log leads to; it may have room for a context whose draw was refused."""
        policy, n_contexts = experiment.policy, state.settings.get("n_contexts", 0)
        if policy.traits.contexts_apart and n_contexts > policy.n_contexts:
            policy.grow(n_contexts=n_contexts)
        if not same_state(state, policy.snapshot()):
            raise Mismatch(f"{experiment.name}: {what} is not what the log leads to.")

    def _fold(self, chunk: Chunk) -> None:
        for key, experiment in self.experiments.items():
            mine = chunk.steps[(chunk.steps["experiment"] == key) & (chunk.steps["seq"] > self.start[key])]
            self._check_numbers(mine, self._most_arms[key], experiment.n_contexts + self.until)
            self._count(experiment, mine, chunk.full)
            if not self.check and (not experiment.has_policy or experiment.policy.traits.contexts_apart):
                mine = mine[mine["step"] != DRAW]
            stops = self._stops[key]
            while stops and stops[0][0] <= chunk.end:
                stop = stops.pop(0)
                before = int(np.searchsorted(mine["order"], 2 * stop.seq, side="right"))
                self._do(experiment, mine[:before], chunk)
                mine = mine[before:]
                self._stop(experiment, stop)
            self._do(experiment, mine, chunk)

    @staticmethod
    def _check_numbers(steps: NDArray[Any], n_arms: int, most_contexts: int) -> None:
        """Compiled code looks where it is told to, and a context number asks for memory."""
        impossible = (steps["arm"] >= n_arms) | (steps["context"] >= most_contexts)
        for seq in steps["seq"][impossible][:1].tolist():
            raise impossible_number(seq)

    @staticmethod
    def _count(experiment: Experiment, steps: NDArray[Any], full: Mapping[int, tuple[bytes, bytes]]) -> None:
        tally, source = experiment.tally, steps["source"]
        drawn = steps["arm"][source == DECIDED]
        tally.decisions += len(drawn)
        tally.pending += len(drawn)
        settled = np.bincount(source[source >= 0], minlength=len(COUNTED_AS)).tolist()
        tally.settle(dict(zip(COUNTED_AS, settled, strict=True)))
        tally.make_room(int(drawn.max(initial=-1)) + 1)
        tally.pulls = (np.array(tally.pulls) + np.bincount(drawn, minlength=len(tally.pulls))).tolist()
        paid, earned = steps[steps["step"] == LEARN], np.array(tally.earned)
        for t, (seq, arm) in enumerate(zip(paid["seq"].tolist(), paid["arm"].tolist(), strict=True) if full else ()):
            if seq in full:
                values = np.frombuffer(full[seq][1], dtype="<f8")
                if arm >= len(values):
                    raise impossible_number(seq)
                paid["reward"][t] = values[arm]
        np.add.at(earned, paid["arm"], paid["reward"])  # one after the other: the same bits as when they came
        tally.earned = earned.tolist()

    def _do(self, experiment: Experiment, steps: NDArray[Any], chunk: Chunk) -> None:
        if not len(steps):
            return
        self._check_numbers(steps, len(experiment.arms), experiment.n_contexts + self.until)
        experiment.n_contexts = max(experiment.n_contexts, int(steps["context"].max()) + 1)
        if not experiment.has_policy:
            if (steps["step"] == DRAW).any():
                self._leave_unproved(experiment)
            return
        first, last = int(steps["seq"].min()), int(steps["seq"].max())
        with self._guarded(experiment, f"learning from events {first} to {last}"):
            if experiment.policy.traits.contexts_apart:
                experiment.policy.grow(n_contexts=max(experiment.policy.n_contexts, experiment.n_contexts))
            steps = steps[steps["step"] != NOTHING]
            if len(steps):
                log, drawn = self._log(experiment, steps, chunk), np.full(len(steps), np.nan)
                try:
                    follow(experiment.policy, log, drawn)
                except Exception:
                    self._check_drawn(experiment, steps, drawn, ~np.isnan(drawn))
                    raise
                self._check_drawn(experiment, steps, drawn)

    def _check_drawn(
        self, experiment: Experiment, steps: NDArray[Any], drawn: Vector, reached: NDArray[np.bool_] | None = None
    ) -> None:
        """Every decision was drawn with the probability that was logged, or at least those that were reached."""
        if not self.check:
            return
        draws = steps["step"] == DRAW
        if reached is not None:
            if (draws & ~reached).any():
                self._leave_unproved(experiment)
            draws &= reached
        wrong = np.flatnonzero(draws & (drawn != steps["propensity"]))
        if len(wrong):
            t = wrong[0]
            raise Mismatch(
                f"{experiment.name}: decision {steps['seq'][t]} was logged with propensity "
                f"{float(steps['propensity'][t])!r}, but the log before it leads to {float(drawn[t])!r}."
            )

    def _log(self, experiment: Experiment, steps: NDArray[Any], chunk: Chunk) -> Steps:
        n_arms, masks, full = len(experiment.arms), chunk.masks, chunk.full
        numbered = list(enumerate(steps["seq"].tolist())) if masks or full else []
        masked = {t: unpacked(masks[seq], n_arms) for t, seq in numbered if seq in masks}
        seen = {}
        for t, seq in numbered:
            if seq in full and steps["step"][t] == LEARN:
                used, rewards = (np.frombuffer(blob, dtype="<f8") for blob in full[seq])
                seen[t] = used, experiment.to_unit(rewards)
        return Steps(
            np.ascontiguousarray(steps["step"]),
            np.ascontiguousarray(steps["context"]),
            np.ascontiguousarray(steps["arm"]),
            np.ascontiguousarray(steps["propensity"]),
            np.ascontiguousarray(experiment.to_unit(steps["reward"])),
            {t: mask for t, mask in masked.items() if steps["step"][t] == DRAW},
            seen,
        )


def put_back(ledger: Ledger, experiment: Experiment, policy: BasePolicy, position: int, now: int) -> None:
    """What was learned goes back to a position; rewards that were on their way then and have come since, never will."""
    experiment.catch_up(policy, position)
    undone = ledger.rows(UNDONE, (experiment.key, position, position, position, now))
    if undone:
        contexts, arms, propensities = (np.array(column) for column in zip(*undone, strict=True))
        steps = np.full(len(undone), FORGO, dtype=np.int8)
        rewards = np.zeros(len(undone))
        follow(policy, Steps(steps, contexts.astype(np.int32), arms.astype(np.int32), propensities, rewards))
