"""The state in memory: experiments that are always what the event log in the file leads to.

Events are written first and applied to memory afterwards, so memory is never ahead of the disk. After a failure memory
is dropped and loaded again: a crash at any line loses nothing that was acknowledged, and repeats nothing.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from alphafair import __version__, validate
from alphafair.engine.clock import Clock, WrongClock
from alphafair.engine.decisions import DecisionCache
from alphafair.engine.experiment import CODE, LOG, LONGEST_REASON, Experiment
from alphafair.engine.ledger import Behind, Change, Ledger, Statement, commit_bytes
from alphafair.engine.maintenance import Deadlines, SnapshotWriter
from alphafair.engine.replay import Replay
from alphafair.engine.steps import Batch
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


class LiveState:
    """Experiments, recent decisions and deadlines in memory; `commit` is the only way forward."""

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        max_contexts: int | None,
        n_experiments: Callable[[], int] | None = None,
    ) -> None:
        self.store, self._clock = store, clock
        self._max_contexts, self._memory = max_contexts, int(memory_limit() * MEMORY_SHARE)
        self._n_experiments = n_experiments or (lambda: len(self.by_key))
        self.is_stale = False  # memory must be loaded again before it is used
        self.is_ahead = False  # whether the log has a batch that could not be applied
        self.n_commits = 0  # of this process
        self.problem: str | None = None  # why the last commit, request or load failed
        self.must_probe = LEAST_PROBE  # bytes to be written before the file counts as available; 0 once they were
        self._load_after = 0.0  # when to try to load again, by the monotonic clock
        self.last_commit_seconds = 0.0
        self.delays: list[float] | None = None  # set to a list to collect the seconds from decisions to rewards
        self.other_code: str | None = None  # why nothing may be written: other processes write with other kernels
        self.load()
        if not store.read_only:
            self.record_upgrade()

    # loading

    def load(self) -> None:
        """Load everything from the file, starting with the last snapshots. Memory is freed first: two may not fit."""
        self.is_stale = True
        self._set({})
        began, reason = time.monotonic(), ""
        try:
            with self.store.at_one_moment():
                position, latest, experiments = replayed(self.store)
        except (OSError, Mismatch, InvalidArgument) as problem:
            self.problem = str(problem)
            raise
        except Exception as problem:
            reason = reason_of(problem)
            LOG.error("Loading %s failed", self.store.path, exc_info=problem)
        if reason:  # raised outside of the handler, so that the error does not hold what was loaded
            self.problem = f"{self.store.path} cannot be loaded: {reason}"
            self._load_after = time.monotonic() + max(RETRY, time.monotonic() - began)
            raise Unavailable(self.problem)
        self.position, self.latest = position, latest
        self._clock.see(latest)
        self._set(experiments)
        self.is_stale = False

    def _set(self, experiments: dict[int, Experiment]) -> None:
        self.by_key = experiments
        self.experiments = {experiment.name: experiment for experiment in experiments.values()}
        self.find_periodic()
        self.decisions = DecisionCache(self.store, experiments, lambda: self.position)
        self.deadlines = Deadlines(self.store, experiments.values())
        self.snapshots = SnapshotWriter(self.store)

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
                self.other_code = None if is_alone else OTHER_CODE
                if not is_alone:
                    return
                try:
                    self._upgrade()
                    return
                except WrongClock as problem:
                    self.other_code = str(problem)
                    return
                except Behind:
                    self.fold()
        self.other_code = None

    def _upgrade(self) -> None:
        if self.store.shared:
            self.store.probe(LEAST_PROBE)
            self._clock.confirm()
        batch, upgraded = self.batch(), list[tuple[Experiment, Change]]()
        for experiment in self.by_key.values():
            if experiment.code != CODE and (state := experiment.saved_state()) is not None:
                summary = experiment.summary_at(batch.at)
                counts = {"tally": experiment.tally.to_json(), "summary": len(summary)}
                body = json.dumps({"code": CODE, "version": __version__, **counts})
                change = Change(batch.next(), experiment.key, "upgrade", body, state + summary, batch.at)
                batch.change(experiment, change)
                upgraded.append((experiment, change))
        if upgraded:
            self.commit(batch)
            for experiment, change in upgraded:
                experiment.apply(change)

    def refresh(self) -> None:
        """Take in what other processes have written; after a failure, load again."""
        self._load_again()
        if (self.store.read_only or self.store.shared) and self.store.position != self.position:
            self.fold() if self.store.shared else self.load()

    def _load_again(self) -> None:
        if self.is_stale and time.monotonic() < self._load_after:
            raise Unavailable(self.problem or f"{self.store.path} cannot be loaded.")
        if self.is_stale:
            self.load()

    def fold(self) -> None:
        """Apply the events that other processes have appended since, and nothing else."""
        if self.is_stale:
            self._load_again()
            return
        before, n_contexts = self.latest, {key: each.n_contexts for key, each in self.by_key.items()}
        self.is_stale = True  # unless it is completed
        with self.store.at_one_moment():
            position, latest = self.store.position, self.store.last_time()
            if position >= self.position:
                replay = Replay.of_tail(self.store, position, self.by_key, self.position)
                replay.run()
                for key, n_known in n_contexts.items():
                    self._take_contexts(self.by_key[key], n_known, replay.changes)
                self.find_periodic()
        if position < self.position:
            LOG.error("%s has lost the events after position %d", self.store.path, position)
            self.load()
            return
        self.decisions.clear()
        for experiment in self.by_key.values():
            experiment.unsaved += position - self.position
            if experiment.wait is not None:
                self.deadlines.begin(experiment.wait, before)
            if experiment.code != CODE:
                self.other_code = OTHER_CODE
        self.position, self.latest, self.is_stale = position, max(latest, before), False
        self._clock.see(self.latest)

    def _take_contexts(self, experiment: Experiment, n_known: int, changes: Sequence[Change]) -> None:
        """Take the labels of new contexts, and drop those that were erased."""
        for _, number, label in self.store.contexts(experiment.key, n_known):
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
        return Batch(self.position, max(self._clock.time_of_event(), self.latest))

    def begin_periods(self) -> Batch:
        """Write the ends of periods that the calendar has reached; return an empty batch of the same moment."""
        while True:
            batch, begun = self.batch(), list[tuple[Experiment, Change]]()
            for experiment in self.periodic:
                if experiment.next_boundary is not None and experiment.next_boundary <= batch.at:
                    body = json.dumps(experiment.period_change(batch.at))
                    change = Change(batch.next(), experiment.key, "new_period", body, None, batch.at)
                    batch.change(experiment, change)
                    begun.append((experiment, change))
            if not begun:
                return batch
            self.commit(batch)
            for experiment, change in begun:
                experiment.apply(change)

    def commit(self, batch: Batch, statements: Sequence[Statement] = ()) -> None:
        """Write a batch, then apply it: the one place where memory moves forward."""
        if self.other_code is not None:
            self.abandon(batch)
            raise Unavailable(f"{self.store.path}: {self.other_code}")
        began = time.perf_counter()
        try:
            self.store.append(self.position, batch.last, batch.rows, statements)
        except Behind:
            self.abandon(batch)
            raise
        except BaseException as problem:
            if self.store.shared and isinstance(problem, Unavailable):  # what was written will be found in the log
                self.abandon(batch)
                self.problem, self.must_probe = str(problem), LEAST_PROBE
                raise
            self.is_stale, self.problem, self.must_probe = True, reason_of(problem), commit_bytes(batch.rows)
            raise
        self.last_commit_seconds, self.problem, self.must_probe = time.perf_counter() - began, None, 0
        self.n_commits += 1
        if self.store.shared:
            self.deadlines.keep()
        self.position, self.latest = batch.last, max(self.latest, batch.at)
        self._clock.see(self.latest)
        if self.delays is not None:
            self.delays += batch.delays
        try:
            batch.apply()
        except BaseException:
            self.is_stale = self.is_ahead = True
            raise

    def abandon(self, batch: Batch | None = None) -> None:
        """Forget a batch that was not written; only other processes may have moved the log."""
        if batch is not None:
            batch.remove_contexts()
        self.decisions.clear()
        self.deadlines.restore()

    def recover(self, *, probe: bool = False) -> None:
        """Prepare for writing: after a failure, prove that a commit as large can succeed, and only then load again.

        So while a disk stays full, a request costs one attempt to write, and not the time that loading takes.
        """
        self._clock.time_of_event()
        if self.problem is None and not probe:
            self._load_again()
            return
        self.store.probe(max(self.must_probe, LEAST_PROBE))
        self._clock.confirm()
        self.refresh()
        self.problem, self.must_probe = None, 0

    def fail(self, problem: BaseException, begun: bool) -> BaseException:
        """Record why requests cannot be served, and return the error to answer with.

        Memory is stale if a request was `begun`, which may have been written. If it was written, every error becomes
        `Uncertain`: whoever asked must look before asking again. The error must not hold what is in memory, which is
        freed before it is loaded again.
        """
        was_written, self.is_ahead = self.is_ahead, False
        if isinstance(problem, Exception) and was_written:
            self.is_stale, self.problem = True, reason_of(problem)
            LOG.error("What was written to %s could not be completed", self.store.path, exc_info=problem)
            traceback.clear_frames(problem.__traceback__)
            return Uncertain(f"{self.store.path}: the events are written, but then it failed: {self.problem}")
        if isinstance(problem, InvalidArgument | WrongClock):  # nothing was done
            return problem
        if not (self.store.shared and isinstance(problem, Unavailable)):  # those abandon what they have begun
            self.is_stale = self.is_stale or begun
        if isinstance(problem, Behind):
            return problem
        if isinstance(problem, OSError | Mismatch):
            self.problem = str(problem)
            return problem
        self.problem = reason_of(problem)
        traceback.clear_frames(problem.__traceback__)
        if not isinstance(problem, MemoryError):
            return problem
        LOG.error("There is too little memory", exc_info=problem)
        kind = Uncertain if begun else Unavailable
        return kind(f"{self.store.path} cannot be served: {self.problem}")

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
            self.snapshots.finish(due, self.position)
        elif (due or self.snapshots.is_busy) and not self.snapshots.is_resting:
            self.snapshots.step(due, self.position)

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
            repair = "Raise max_contexts, or use fewer labels, for example one per segment."
            raise RequestError("too_many_contexts", "context", allowed, f"number {n_contexts:,}", repair)


def replayed(store: Ledger) -> tuple[int, int, dict[int, Experiment]]:
    """Return the last position and time of a log, and the experiments that it leads to."""
    position = store.position
    experiments = Replay(store, position).from_snapshots().run()
    for key, number, label in store.contexts():
        if key in experiments:  # `verify` reports contexts of no experiment
            experiments[key].n_contexts = max(experiments[key].n_contexts, number + 1)
            if label is not None:
                experiments[key].contexts[label] = number
    return position, store.last_time(), experiments


def prove_loading(store: Ledger) -> None:
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
