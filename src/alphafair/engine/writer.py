"""The writer of one ledger: one thread at a time answers all that waits in one commit.

Events are written first, and memory follows them, so it is never ahead of the disk: see `Batch.apply`. After a commit
that failed the next request proves that one can succeed, and takes in what was written after all; only where that fails
is everything loaded again.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeVar

from alphafair import __version__
from alphafair.engine.batch import Batch
from alphafair.engine.clock import Clock, WrongClock
from alphafair.engine.decisions import IdGenerator, RequestHandler
from alphafair.engine.maintenance import SnapshotWriter
from alphafair.engine.memory import EngineMemory, reason_of
from alphafair.engine.requests import Observe, Request
from alphafair.engine.state.experiment import CODE, LOG
from alphafair.engine.state.status import summary_at
from alphafair.engine.store.ledger import Behind, Statement, Store, commit_bytes
from alphafair.engine.tickets import Call, Queue, Ticket, Waiter
from alphafair.errors import InvalidArgument, Mismatch, RequestError, Unavailable, Uncertain
from alphafair_client.answers import Outcome, Receipt, SlateReceipt

MOST_REQUESTS: Final = 1_000  # a commit is closed once it has as many
ATTEMPTS: Final = 3  # to append while others wait
LEAST_PROBE = 1 << 20  # bytes that a test write must be able to write before the file counts as available
RETRY = 1.0  # seconds, at least, between two attempts to load
SNAPSHOT_EVERY = 100_000  # events of an experiment between two snapshots
OTHER_CODE = (
    "another process writes with another version of the kernels. Nothing is written beside it, because the log could "
    "not be verified: stop all processes of the other version, and this one continues within a second."
)


class ConditionKind(Enum):
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

    kind: ConditionKind
    reason: str | None = None
    n_bytes: int = 0  # to be written before a commit counts as possible
    not_before: float = 0.0  # by the monotonic clock: when to try to load

    @property
    def must_try(self) -> bool:
        """Whether only an attempt can tell if requests can be served."""
        return self.kind in (ConditionKind.NEW, ConditionKind.BLOCKED, ConditionKind.STALE)


NEW = Condition(ConditionKind.NEW, "Nothing has been written yet.", LEAST_PROBE)
CURRENT, CLOSED = Condition(ConditionKind.CURRENT), Condition(ConditionKind.CLOSED, "closed")


Result = TypeVar("Result")
Answer = Receipt | SlateReceipt | Outcome | RequestError


class Writer:
    """Requests and changes of the experiments in one ledger; many threads may call it.

    Where other processes append to the same ledger, an append that comes too late writes nothing: what the others have
    written is applied first, and then everything is answered again, with new draws, while the others wait their turn.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        max_contexts: int | None,
        chance: random.Random,
        ids: IdGenerator,
        key: int | None = None,
        n_experiments: Callable[[], int] | None = None,
    ) -> None:
        self.store, self._clock = store, clock
        self.read_only, self.is_shared = store.opened.read_only, not store.opened.together
        self.lock = threading.RLock()
        self.queue = Queue()
        self.condition = CURRENT if self.read_only else NEW
        self.last_commit_seconds = 0.0
        self.delays: list[float] | None = None  # set to a list to collect the seconds from decisions to rewards
        self.memory = EngineMemory(store, max_contexts, key, n_experiments)
        self.load()
        self._handler = RequestHandler(self.memory, chance, ids)
        if not self.read_only:
            self.record_upgrade()

    def close(self) -> None:
        """Answer waiting requests, and save snapshots so that opening is quick."""
        with self.lock:
            if self.condition.kind is ConditionKind.CLOSED:
                return
            try:
                if not self.read_only:
                    while self.queue:
                        self._serve()
                    if self.condition.kind in (ConditionKind.NEW, ConditionKind.CURRENT):
                        with contextlib.suppress(Unavailable):  # the log is enough to open it again
                            self.take_snapshots(least=1)
            finally:
                self.condition = CLOSED

    def _check_open(self) -> None:
        if self.condition.kind is ConditionKind.CLOSED:
            raise closed()

    # decisions and rewards

    def submit(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests in one transaction, once they are on the disk; a refusal is an answer too."""
        call = Call()
        ticket = Ticket(requests, call)
        try:
            self.queue.put([ticket])
            while not ticket.is_served:
                if self.queue.leader is call:
                    self.serve(call)
                else:
                    call.wait()
        except BaseException:  # interrupted: the caller no longer waits for an answer
            self.queue.leave(ticket)
            raise
        finally:
            if self.queue.leader is call:
                self._pass_on(call)
        if ticket.problem is not None:
            raise ticket.problem
        return ticket.answers or []

    def put(self, tickets: Sequence[Ticket]) -> bool:
        """Let tickets of one waiter wait; return whether it must provide a leader, a thread that calls `serve`."""
        return self.queue.put(tickets)

    def serve(self, leader: Waiter) -> tuple[list[Ticket], bool]:
        """Answer waiting tickets in one commit, as the leader; whoever waits for the next ticket leads next.

        Return the tickets of the leader itself, and whether it must provide the next leader.
        """
        try:
            with self.lock:
                served = self._serve(leader)
        except BaseException:
            self._pass_on(None)
            raise
        return served, self._pass_on(leader)

    def _pass_on(self, leader: Waiter | None) -> bool:
        """End the lead, and tell who leads next; return whether it is the leader itself."""
        following = self.queue.pass_on()
        if following is not None and following is not leader:
            following.lead()
        return following is not None and following is leader

    def _serve(self, leader: Waiter | None = None) -> list[Ticket]:
        """Answer waiting tickets in one commit, and deliver them; those of the leader are returned."""
        began, interrupted = time.perf_counter(), None
        tickets = self.queue.take(MOST_REQUESTS)
        try:
            if tickets:
                for ticket, answers in zip(tickets, self._answer(tickets), strict=True):
                    ticket.answers = answers
        except BaseException as problem:
            answer = self._fail(problem)
            for ticket in tickets:
                ticket.problem = answer
            interrupted = None if isinstance(problem, Exception) else problem
        by_waiter = dict[Waiter, list[Ticket]]()
        for ticket in tickets:
            by_waiter.setdefault(ticket.waiter, []).append(ticket)
        own = [] if leader is None or interrupted is not None else by_waiter.pop(leader, [])
        for waiter, theirs in by_waiter.items():
            waiter.deliver(theirs, time.perf_counter() - began)
        if interrupted is not None:
            raise interrupted
        self._save()
        return own

    def _save(self) -> None:
        """Do a step towards a snapshot: the answers are on the disk, with or without it."""
        try:
            self.take_snapshots()
        except (Unavailable, MemoryError):
            pass
        except Exception as problem:
            LOG.error("Snapshots of %s cannot be made", self.store.path, exc_info=problem)

    def _answer(self, tickets: Sequence[Ticket]) -> list[list[Answer]]:
        """Return the answers to all tickets, once they are on the disk."""
        self._check_open()
        return self._in_turn(lambda: self._attempt(tickets))

    def _attempt(self, tickets: Sequence[Ticket]) -> list[list[Answer]]:
        self._recover()
        requests = [request for ticket in tickets for request in ticket.requests]
        ids = [getattr(request, "id", None) for request in requests]
        ids += [request.instead_of for request in requests if type(request) is Observe]
        self.memory.decisions.begin_batch([id for id in ids if id is not None])
        batch = self._begin_periods()
        self._handler.settle_overdue(batch)
        answers = [self._handler.answer(ticket.requests, batch) for ticket in tickets]
        if self.is_shared:
            self._check_refusals(answers)
        self.commit(batch)
        return answers

    def _check_refusals(self, answers: Sequence[Sequence[Answer]]) -> None:
        """A refusal changes nothing, so no append finds out that it follows from an old state: ask."""
        refused = any(isinstance(answer, RequestError) for own in answers for answer in own)
        if refused and self.memory.is_behind():
            raise Behind(f"{self.store.path} has other events.")

    # turns

    @contextlib.contextmanager
    def reading(self) -> Iterator[EngineMemory]:
        """Keep writers out, with a memory that is what the log leads to."""
        with self.lock:
            self._check_open()
            self._refresh()
            yield self.memory

    def write(self, work: Callable[[Batch], Result]) -> Result:
        """Take the writer's turn, after all waiting requests are answered; `work` may be called several times.

        It gets an empty batch; no boundary of a period lies before the moment of the batch.
        """
        with self.reading():
            while self.queue:
                self._serve()
            batch: Batch | None = None

            def attempt() -> Result:
                nonlocal batch
                batch = None
                self._recover()
                batch = self._begin_periods()
                return work(batch)

            try:
                return self._in_turn(attempt)
            except BaseException as problem:
                if batch is not None and batch.is_written and isinstance(problem, Exception):
                    answer: BaseException = problem if isinstance(problem, Uncertain) else self._after_commit(problem)
                else:
                    answer = self._fail(problem)
                batch = None
                if answer is problem:
                    raise
            raise answer

    def _in_turn(self, attempt: Callable[[], Result]) -> Result:
        """Try without a lock; where others were quicker, take in what they have written, and keep them waiting."""
        try:
            return attempt()
        except Behind:
            pass
        for _ in range(ATTEMPTS):
            self._fold()
            try:
                with self.store.turn(self.memory.key or 0):
                    self._refresh()
                    return attempt()
            except Behind:
                continue
        raise Unavailable(f"{self.store.path}: other processes append to the same experiment all the time.")

    # commits

    def now(self) -> int:
        """Return microseconds since 1970, never before the last event, even if the clock is set back."""
        return max(self._clock.now(), self.memory.latest)

    @property
    def clock_behind_seconds(self) -> float:
        """How far the clock is behind the last event."""
        return max(0.0, (self.memory.latest - self._clock.now()) / 1e6)

    def _batch(self) -> Batch:
        """Return an empty batch of events after the last one; refused while the clock is not trusted."""
        return Batch(self.memory, max(self._clock.time_of_event(), self.memory.latest))

    def _begin_periods(self) -> Batch:
        """Write the ends of periods that the calendar has reached; return an empty batch of the same moment."""
        while True:
            batch = self._batch()
            for experiment in self.memory.periodic:
                boundary = experiment.periods.next_boundary
                if boundary is not None and boundary <= batch.at:
                    body = json.dumps(experiment.periods.new_period(experiment, batch.at))
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
            failed = self._after_commit(problem)
        except BaseException as problem:
            self._make_stale(reason_of(problem))
            raise
        if failed is not None:  # raised outside of the handler, so that the error does not hold what is in memory
            raise failed

    def _write(self, batch: Batch, statements: Sequence[Statement]) -> None:
        if self.condition.kind is ConditionKind.FOREIGN:
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

    def _after_commit(self, problem: Exception) -> Uncertain:
        """Return the error to answer with if something failed after the commit: whoever asked must look first."""
        LOG.error("What was written to %s could not be completed", self.store.path, exc_info=problem)
        traceback.clear_frames(problem.__traceback__)
        reason = reason_of(problem)
        return Uncertain(f"{self.store.path}: the events are written, but then it failed: {reason}")

    # its condition

    def block(self, reason: str, n_bytes: int = LEAST_PROBE) -> None:
        """A commit, or a request, has failed: let the next one prove first that a commit can succeed."""
        if self.condition.kind in (ConditionKind.NEW, ConditionKind.CURRENT, ConditionKind.BLOCKED):
            self.condition = Condition(ConditionKind.BLOCKED, reason, max(n_bytes, self.condition.n_bytes))

    def _make_stale(self, reason: str, not_before: float = 0.0) -> None:
        """Memory has to be loaded again before it is used."""
        self.condition = Condition(ConditionKind.STALE, reason, self.condition.n_bytes, not_before)

    def load(self) -> None:
        """Load everything from the file, starting with the last snapshots. Memory is freed first: two may not fit."""
        before, began, reason = self.condition, time.monotonic(), ""
        self.snapshots = SnapshotWriter(self.store, ())
        try:
            self.memory.load()
            self.snapshots = SnapshotWriter(self.store, self.memory.by_key)
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
        self._clock.see(self.memory.latest)
        if before.kind is ConditionKind.STALE:
            self.condition = replace(before, kind=ConditionKind.BLOCKED) if before.n_bytes else CURRENT
            older = any(each.code != CODE and each.has_policy for each in self.memory.by_key.values())
            if older and self.is_shared and not self.read_only:
                self.condition = Condition(ConditionKind.FOREIGN, OTHER_CODE)

    def _refresh(self) -> None:
        """Take in what has been written without this memory: by others, or by a commit that seemed to fail."""
        self._load_again()
        may_be_behind = self.read_only or self.is_shared or self.condition.kind is ConditionKind.BLOCKED
        if may_be_behind and self.memory.is_behind():
            self._fold()

    def _load_again(self) -> None:
        if self.condition.kind is ConditionKind.STALE:
            if time.monotonic() < self.condition.not_before:
                raise Unavailable(self.condition.reason or f"{self.store.path} cannot be loaded.")
            self.load()

    def _fold(self) -> None:
        """Take in what was written since, and nothing else; load everything where that fails."""
        if self.condition.kind is ConditionKind.STALE:
            self._load_again()
            return
        before, reason = self.condition, ""
        try:
            with self.store.at_one_moment():
                tail = self.memory.tail()
                if tail is not None:
                    self._make_stale("What was written since could not be taken in.")  # unless it is completed
                    self.memory.follow(tail)
        except (OSError, Mismatch, InvalidArgument):
            raise
        except Exception as problem:
            LOG.error("Taking in what was written to %s failed", self.store.path, exc_info=problem)
            reason = reason_of(problem)
            traceback.clear_frames(problem.__traceback__)
        if reason or tail is None:
            if not reason:
                reason = f"{self.store.path} has lost events that were read from it."
                LOG.error(reason)
            tail = None
            self._make_stale(reason)
            self.load()
            return
        self._clock.see(self.memory.latest)
        is_foreign = any(each.code != CODE for each in self.memory.by_key.values()) and not self.read_only
        self.condition = Condition(ConditionKind.FOREIGN, OTHER_CODE) if is_foreign else before

    def _recover(self, *, probe: bool = False) -> None:
        """Prepare for writing: after a failure, prove that a commit as large can succeed, and only then look for it.

        So while a disk stays full, a request costs one attempt to write.
        """
        self._clock.time_of_event()
        if self.condition.kind is ConditionKind.FOREIGN and not self.is_shared:  # it was the clock
            self.record_upgrade()
        if (
            probe
            or self.condition.kind is ConditionKind.BLOCKED
            or (self.condition.kind is ConditionKind.STALE and self.condition.n_bytes)
        ):
            self.store.probe(max(self.condition.n_bytes, LEAST_PROBE))
            self._clock.confirm()
            self._refresh()
            if self.condition.kind in (ConditionKind.NEW, ConditionKind.BLOCKED):
                self.condition = CURRENT
        else:
            self._load_again()

    def _fail(self, problem: BaseException) -> BaseException:
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

    def try_to_recover(self) -> None:
        """Find out whether requests can be served again."""
        if self.lock.acquire(blocking=False):  # otherwise a request is being written, and its result sets the condition
            try:
                self._recover(probe=True)
            except Exception as problem:
                self._fail(problem)
            finally:
                self.lock.release()

    def record_upgrade(self) -> None:
        """Save the state that other code has led to, so that a replay can start there.

        Where other processes still write with other code, nothing may be written until they have ended; nor is anything
        while the clock is not trusted.
        """
        while differing := sorted({each.code for each in self.memory.by_key.values() if each.code != CODE}):
            with self.store.alone_with(differing) as is_alone:
                self.condition = NEW if is_alone else Condition(ConditionKind.FOREIGN, OTHER_CODE)
                if not is_alone:
                    return
                try:
                    self._upgrade()
                    return
                except WrongClock as problem:
                    self.condition = Condition(ConditionKind.FOREIGN, str(problem))
                    return
                except Behind:
                    self._fold()
        if self.condition.kind is ConditionKind.FOREIGN:
            self.condition = NEW

    def _upgrade(self) -> None:
        if self.is_shared:
            self.store.probe(LEAST_PROBE)
            self._clock.confirm()
        batch = self._batch()
        for experiment in self.memory.by_key.values():
            if experiment.code != CODE and (state := experiment.saved_state()) is not None:
                summary = summary_at(experiment, batch.at)
                counts = {"tally": experiment.tally.to_json(), "summary": len(summary)}
                body = json.dumps({"code": CODE, "version": __version__, **counts})
                batch.change(experiment, "upgrade", body, experiment.apply, state=state + summary)
        self.commit(batch)

    # work between requests

    def take_snapshots(self, least: int | None = None) -> None:
        """Do one step towards the snapshots that are due, unless it is the requests' turn.

        With `least`, save every experiment that has had so many events since its last snapshot, all at once.
        """
        due = [
            experiment
            for experiment in self.memory.by_key.values()
            if experiment.unsaved >= (least or max(SNAPSHOT_EVERY, experiment.snapshot_every))
        ]
        if least is not None:
            self.snapshots.finish(due)
        elif (due or self.snapshots.is_busy) and not self.snapshots.is_resting:
            self.snapshots.step(due)

    def maintain(self, clean: Callable[[], object] = lambda: None) -> bool:
        """Settle overdue decisions, write snapshots, and `clean` up; return whether there is more to do."""

        def work(batch: Batch) -> bool:
            clean()
            self._expire_page(batch)
            self._save()
            return self.memory.deadlines.is_behind(self.now()) or self.snapshots.is_busy

        if self.condition.kind is ConditionKind.FOREIGN:
            with self.reading():
                self.record_upgrade()
            if self.condition.kind is ConditionKind.FOREIGN:
                return False
        return self.write(work)

    def expire(self) -> int:
        """Settle every overdue decision and return how many there were."""
        n_settled, now = 0, self.now()
        while True:
            n_settled += self.write(self._expire_page)
            if not self.memory.deadlines.is_behind(now):
                return n_settled

    def _expire_page(self, batch: Batch) -> int:
        n_settled = self._handler.settle_overdue(batch)
        self.commit(batch)
        return n_settled


def closed() -> RequestError:
    """Return the error of an engine that was closed."""
    return RequestError("closed", "engine", "open", "closed", "Open it again with Engine.open.")
