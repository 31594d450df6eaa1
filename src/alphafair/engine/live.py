"""The state in memory: experiments that are always what the event log in the file leads to.

Events are written first and applied to memory afterwards, so memory is never ahead of the disk. What was written after
all although a commit failed, and what other processes write, is folded in; only where that fails is memory loaded
again. A crash at any line loses nothing that was acknowledged, and repeats nothing.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from alphafair import __version__, validate
from alphafair.engine.batch import Batch
from alphafair.engine.clock import Clock, WrongClock
from alphafair.engine.decisions import DecisionCache
from alphafair.engine.experiment import CODE, LOG, LONGEST_REASON, Experiment
from alphafair.engine.maintenance import Deadlines, SnapshotWriter
from alphafair.engine.replay import Replay
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import Behind, Change, Head, Statement, Store, commit_bytes
from alphafair.errors import InvalidArgument, Mismatch, RequestError, Unavailable, Uncertain, encodable
from alphafair.memory_limit import memory_limit

LEAST_PROBE = 1 << 20  # bytes that a test write must be able to write before the file counts as available
RETRY = 1.0  # seconds, at least, between two attempts to load
SNAPSHOT_EVERY = 100_000  # events of an experiment between two snapshots
MEMORY_SHARE = 0.5  # of the memory, for the contexts of all experiments
OTHER_CODE = (
    "another process writes with another version of the kernels. Nothing is written beside it, because the log could "
    "not be verified: stop all processes of the other version, and this one continues within a second."
)


class Kind(Enum):
    """What the next request of a writer has to do first."""

    NEW = "new"  # nothing
    CURRENT = "current"  # nothing
    BLOCKED = "blocked"  # prove that a commit can succeed, and look for what was written
    STALE = "stale"  # load everything
    FOREIGN = "foreign"  # it is refused: other processes write with other kernels, or the clock is not trusted
    CLOSED = "closed"


@dataclass(frozen=True)
class Condition:
    """Whether requests can be served, and if not, why."""

    kind: Kind
    reason: str | None = None
    n_bytes: int = 0  # to be written before a commit counts as possible
    not_before: float = 0.0  # by the monotonic clock: when to try to load

    @property
    def must_try(self) -> bool:
        """Whether only an attempt can tell if requests can be served."""
        return self.kind in (Kind.NEW, Kind.BLOCKED, Kind.STALE)


NEW = Condition(Kind.NEW, "Nothing has been written yet.", LEAST_PROBE)
CURRENT = Condition(Kind.CURRENT)


class LiveState:
    """Experiments, recent decisions and deadlines in memory; `commit` is the only way forward.

    They are those of one writer: all experiments of a file, or the one of a database with a `key`.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        max_contexts: int | None,
        key: int | None = None,
        n_experiments: Callable[[], int] | None = None,
    ) -> None:
        self.store, self._clock, self.key = store, clock, key
        self.read_only, self.is_shared = store.opened.read_only, not store.opened.together
        self._max_contexts, self._memory = max_contexts, int(memory_limit() * MEMORY_SHARE)
        self._n_experiments = n_experiments or (lambda: len(self.by_key))
        self.condition = CURRENT if self.read_only else NEW
        self.last_commit_seconds = 0.0
        self.delays: list[float] | None = None  # set to a list to collect the seconds from decisions to rewards
        self.load()
        if not self.read_only:
            self.record_upgrade()

    @property
    def position(self) -> int:
        """How many events memory has taken in."""
        return sum(experiment.position for experiment in self.by_key.values())

    # loading

    def load(self) -> None:
        """Load everything from the file, starting with the last snapshots. Memory is freed first: two may not fit."""
        before, began, reason = self.condition, time.monotonic(), ""
        self._set({})
        try:
            with self.store.at_one_moment():
                latest, experiments = replayed(self.store, self.key)
        except (OSError, Mismatch, InvalidArgument) as problem:
            self._make_stale(str(problem))
            raise
        except Exception as problem:
            reason = reason_of(problem)
            LOG.error("Loading %s failed", self.store.path, exc_info=problem)
        if reason:  # raised outside of the handler, so that the error does not hold what was loaded
            reason = f"{self.store.path} cannot be loaded: {reason}"
            self._make_stale(reason, time.monotonic() + max(RETRY, time.monotonic() - began))
            raise Unavailable(reason)
        self.latest = latest
        self._clock.see(latest)
        self._set(experiments)
        if before.kind is Kind.STALE:
            self.condition = replace(before, kind=Kind.BLOCKED) if before.n_bytes else CURRENT
            older = any(each.code != CODE and each.has_policy for each in experiments.values())
            if older and self.is_shared and not self.read_only:
                self.condition = Condition(Kind.FOREIGN, OTHER_CODE)

    def _make_stale(self, reason: str, not_before: float = 0.0) -> None:
        """Memory has to be loaded again before it is used."""
        self.condition = Condition(Kind.STALE, reason, self.condition.n_bytes, not_before)

    def block(self, reason: str, n_bytes: int = LEAST_PROBE) -> None:
        """A commit, or a request, has failed: let the next one prove first that a commit can succeed."""
        if self.condition.kind in (Kind.NEW, Kind.CURRENT, Kind.BLOCKED):
            self.condition = Condition(Kind.BLOCKED, reason, max(n_bytes, self.condition.n_bytes))

    def _set(self, experiments: dict[int, Experiment]) -> None:
        self.by_key = experiments
        self.experiments = {experiment.name: experiment for experiment in experiments.values()}
        self.find_periodic()
        self.decisions = DecisionCache(self.store, experiments)
        self.deadlines = Deadlines(self.store, experiments.values())
        self.snapshots = SnapshotWriter(self.store, experiments)

    def add(self, experiment: Experiment) -> None:
        """Add a new experiment, once it is on the disk."""
        self.by_key[experiment.key] = self.experiments[experiment.name] = experiment
        self.deadlines.add(experiment)
        self.find_periodic()

    def find_periodic(self) -> None:
        """Find the experiments whose periods end by the calendar."""
        self.periodic = [experiment for experiment in self.by_key.values() if experiment.period is not None]

    def record_upgrade(self) -> None:
        """Save the state that other code has led to, so that a replay can start there.

        Where other processes still write with other code, nothing may be written until they have ended; nor is anything
        while the clock is not trusted.
        """
        while differing := sorted({each.code for each in self.by_key.values() if each.code != CODE}):
            with self.store.alone_with(differing) as is_alone:
                self.condition = NEW if is_alone else Condition(Kind.FOREIGN, OTHER_CODE)
                if not is_alone:
                    return
                try:
                    self._upgrade()
                    return
                except WrongClock as problem:
                    self.condition = Condition(Kind.FOREIGN, str(problem))
                    return
                except Behind:
                    self.fold()
        if self.condition.kind is Kind.FOREIGN:
            self.condition = NEW

    def _upgrade(self) -> None:
        if self.is_shared:
            self.store.probe(LEAST_PROBE)
        batch = self.batch()
        for experiment in self.by_key.values():
            if experiment.code != CODE and (state := experiment.saved_state()) is not None:
                summary = experiment.summary_at(batch.at)
                counts = {"tally": experiment.tally.to_json(), "summary": len(summary)}
                body = json.dumps({"code": CODE, "version": __version__, **counts})
                batch.change(experiment, "upgrade", body, experiment.apply, state=state + summary)
        self.commit(batch)

    def refresh(self) -> None:
        """Take in what has been written without this memory: by others, or by a commit that seemed to fail."""
        self._load_again()
        may_be_behind = self.read_only or self.is_shared or self.condition.kind is Kind.BLOCKED
        if may_be_behind and self.is_behind():
            self.fold()

    def is_behind(self) -> bool:
        """Whether the log has other events than memory."""
        heads = {head.key: head.position for head in self.store.heads(self.key)}
        return heads != {key: experiment.position for key, experiment in self.by_key.items()}

    def _load_again(self) -> None:
        if self.condition.kind is Kind.STALE:
            if time.monotonic() < self.condition.not_before:
                raise Unavailable(self.condition.reason or f"{self.store.path} cannot be loaded.")
            self.load()

    def fold(self) -> None:
        """Apply the events that were written since, and nothing else; load everything where that fails."""
        if self.condition.kind is Kind.STALE:
            self._load_again()
            return
        before, known = self.condition, {key: each.n_contexts for key, each in self.by_key.items()}
        positions = {key: each.position for key, each in self.by_key.items()}
        latest, problem, lost = self.latest, "", list[int]()
        try:
            with self.store.at_one_moment():
                heads = {head.key: head for head in self.store.heads(self.key)}
                lost = [
                    name for name, position in positions.items() if name not in heads or heads[name].position < position
                ]
                if not lost:
                    replay = Replay.of_tail(self.store, _ends(heads), self.by_key)
                    self._make_stale("What was written since could not be taken in.")  # unless it is completed
                    for key, experiment in replay.run().items():
                        self.by_key[key] = experiment
                        self._take_contexts(experiment, known.get(key, 0), replay.changes[key])
        except (OSError, Mismatch, InvalidArgument):
            raise
        except Exception as failed:
            LOG.error("Taking in what was written to %s failed", self.store.path, exc_info=failed)
            problem = reason_of(failed)
            traceback.clear_frames(failed.__traceback__)
        if problem or lost:
            for key in lost:
                LOG.error("%s has lost events of %s", self.store.path, self.by_key[key].name)
            self._make_stale(problem)
            self.load()
            return
        self.decisions.clear()
        self.latest = max([head.at for head in heads.values()], default=latest)
        self.latest = max(self.latest, latest)
        self._clock.see(self.latest)
        is_foreign = False
        for key, experiment in self.by_key.items():
            experiment.unsaved += experiment.position - positions.get(key, 0)
            if key not in known:
                self.add(experiment)
            if experiment.wait is not None:
                self.deadlines.begin(experiment, latest)
            is_foreign |= experiment.code != CODE and not self.read_only
        self.find_periodic()
        self.condition = Condition(Kind.FOREIGN, OTHER_CODE) if is_foreign else before

    def _take_contexts(self, experiment: Experiment, n_known: int, changes: Sequence[Change]) -> None:
        """Take the labels of new contexts, and drop those that were erased."""
        for _, number, label in questions.contexts(self.store, experiment.key, n_known):
            experiment.n_contexts = max(experiment.n_contexts, number + 1)
            if label is not None:
                experiment.contexts[label] = number
        erased = {json.loads(each.body)["context"] for each in changes if each.kind == "erase"}
        if erased:
            kept = {label: number for label, number in experiment.contexts.items() if number not in erased}
            experiment.contexts = kept

    # writing

    def now(self) -> int:
        """Return microseconds since 1970, never before the last event, even if the clock is set back."""
        return max(self._clock.now(), self.latest)

    @property
    def clock_behind_seconds(self) -> float:
        """How far the clock is behind the last event."""
        return max(0.0, (self.latest - self._clock.now()) / 1e6)

    def batch(self) -> Batch:
        """Return an empty batch of events after the last one; refused while the clock is not trusted."""
        return Batch(self, max(self._clock.time_of_event(), self.latest))

    def begin_periods(self) -> Batch:
        """Write the ends of periods that the calendar has reached; return an empty batch of the same moment."""
        while True:
            batch = self.batch()
            for experiment in self.periodic:
                if experiment.next_boundary is not None and experiment.next_boundary <= batch.at:
                    body = json.dumps(experiment.period_change(batch.at))
                    batch.change(experiment, "new_period", body, experiment.apply)
            if not batch.parts:
                return batch
            self.commit(batch)

    def commit(self, batch: Batch, statements: Sequence[Statement] = ()) -> None:
        """Write a batch, then let memory follow it. A commit that fails has changed nothing."""
        if batch.parts:
            self._write(batch, statements)
        failed = None
        try:
            batch.apply()
        except Exception as problem:
            self._make_stale(reason_of(problem))
            failed = self.after_commit(problem)
        except BaseException as problem:
            self._make_stale(reason_of(problem))
            raise
        if failed is not None:  # raised outside of the handler, so that the error does not hold what is in memory
            raise failed

    def _write(self, batch: Batch, statements: Sequence[Statement]) -> None:
        if self.condition.kind is Kind.FOREIGN:
            raise Unavailable(f"{self.store.path}: {self.condition.reason}")
        began = time.perf_counter()
        try:
            self.store.commit(batch.parts, statements)
        except (Behind, InvalidArgument):
            raise
        except BaseException as problem:
            self.block(reason_of(problem), commit_bytes(batch.parts))
            raise
        batch.is_written = True
        self.last_commit_seconds, self.condition = time.perf_counter() - began, CURRENT
        self._clock.see(batch.at)
        if self.delays is not None:
            self.delays += batch.delays

    def after_commit(self, problem: Exception) -> Uncertain:
        """Return the error to answer with if something failed after the commit: whoever asked must look first."""
        LOG.error("What was written to %s could not be completed", self.store.path, exc_info=problem)
        traceback.clear_frames(problem.__traceback__)
        reason = reason_of(problem)
        return Uncertain(f"{self.store.path}: the events are written, but then it failed: {reason}")

    def recover(self, *, probe: bool = False) -> None:
        """Prepare for writing: after a failure, prove that a commit as large can succeed, and only then look for it.

        So while a disk stays full, a request costs one attempt to write.
        """
        self._clock.time_of_event()
        if self.condition.kind is Kind.FOREIGN and not self.is_shared:  # it was the clock
            self.record_upgrade()
        if (
            probe
            or self.condition.kind is Kind.BLOCKED
            or (self.condition.kind is Kind.STALE and self.condition.n_bytes)
        ):
            self.store.probe(max(self.condition.n_bytes, LEAST_PROBE))
            self.refresh()
            if self.condition.kind in (Kind.NEW, Kind.BLOCKED):
                self.condition = CURRENT
        else:
            self._load_again()

    def fail(self, problem: BaseException) -> BaseException:
        """Record why requests cannot be served, and return the error to answer with.

        Nothing has been written. The error must not hold what is in memory, which is freed before it is loaded again.
        """
        if isinstance(problem, InvalidArgument | WrongClock | Behind):  # nothing was done
            return problem
        traceback.clear_frames(problem.__traceback__)
        if isinstance(problem, OSError | Mismatch):
            self.block(str(problem))
            return problem
        self._make_stale(reason_of(problem))
        if not isinstance(problem, MemoryError):
            return problem
        LOG.error("There is too little memory", exc_info=problem)
        return Unavailable(f"{self.store.path} cannot be served: {reason_of(problem)}")

    def take_snapshots(self, least: int | None = None) -> None:
        """Do one step towards the snapshots that are due, unless it is the requests' turn.

        With `least`, save every experiment that has had so many events since its last snapshot, all at once.
        """
        due = [
            experiment
            for experiment in self.by_key.values()
            if experiment.unsaved >= (least or max(SNAPSHOT_EVERY, experiment.snapshot_every))
        ]
        if least is not None:
            self.snapshots.finish(due)
        elif (due or self.snapshots.is_busy) and not self.snapshots.is_resting:
            self.snapshots.step(due)

    # looking up

    def find(self, name: Any) -> Experiment:
        experiment = self.experiments.get(name) if isinstance(name, str) else None
        if experiment is None:
            raise unknown_experiment(name, self.experiments)
        return experiment

    def max_contexts_of(self, experiment: Experiment) -> int:
        """Return how many contexts an experiment may have: as set, or as many as fit into its share of the memory."""
        if self._max_contexts is not None:
            return self._max_contexts
        n_experiments = self._n_experiments() + (experiment.key not in self.by_key)
        return experiment.contexts_in(self._memory // n_experiments)

    def check_contexts(self, experiment: Experiment, n_contexts: int) -> None:
        """Refuse more contexts than an experiment may have."""
        most = self.max_contexts_of(experiment)
        if n_contexts > most:
            allowed = f"one of at most {most:,} contexts of {experiment.name}"
            repair = (
                "Raise max_contexts (alphafair serve --max-contexts), or use fewer labels, for example one per segment."
            )
            raise RequestError("too_many_contexts", "context", allowed, f"number {n_contexts:,}", repair)


def replayed(store: Store, key: int | None = None) -> tuple[int, dict[int, Experiment]]:
    """Return the time of the last event, and the experiments that the log leads to, or one of them."""
    heads = {head.key: head for head in store.heads(key)}
    experiments = Replay(store, _ends(heads)).from_snapshots().run()
    for experiment in experiments.values():
        for _, number, label in questions.contexts(store, experiment.key):
            experiment.n_contexts = max(experiment.n_contexts, number + 1)
            if label is not None:
                experiment.contexts[label] = number
    return max((head.at for head in heads.values()), default=0), experiments


def _ends(heads: Mapping[int, Head]) -> dict[int, int]:
    return {key: head.position for key, head in heads.items()}


def prove_loading(store: Store) -> None:
    """Load a file that is being migrated, and raise an error where that fails: it is then left as it was."""
    try:
        replayed(store)
    except (Unavailable, Mismatch, InvalidArgument):
        raise
    except Exception as problem:
        reason = f"{reason_of(problem)}. It was not migrated, and is as it was."
        raise Unavailable(f"{store.path} cannot be loaded by this version: {reason}") from problem


def unknown_experiment(name: Any, known: Iterable[str]) -> RequestError:
    """Return the error for a name that no experiment has."""
    names = list(known)
    repair = f"Existing ones: {validate.listed(names)}." if names else "Create it first."
    return RequestError("unknown_experiment", "experiment", "the name of an experiment", name, repair)


def reason_of(problem: BaseException) -> str:
    """Return why something failed, in a line; with the type of an error that is not this package's own."""
    if isinstance(problem, OSError | Mismatch):
        return encodable(str(problem))
    return encodable(f"{type(problem).__name__}: {problem}"[:LONGEST_REASON]).rstrip(": ")
