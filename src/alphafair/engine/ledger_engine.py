"""The engine of one ledger: one thread at a time writes, and answers all waiting requests in one commit."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from alphafair.engine.batch import Batch
from alphafair.engine.clock import Clock
from alphafair.engine.decisions import IdGenerator, RequestHandler
from alphafair.engine.experiment import LOG
from alphafair.engine.live import Kind, LiveState
from alphafair.engine.requests import Outcome, Queue, Receipt, Request, Ticket
from alphafair.engine.store.ledger import Behind, Store
from alphafair.errors import RequestError, Unavailable, Uncertain

MOST_REQUESTS = 5_000  # in one transaction
ATTEMPTS: Final = 3  # to append while others wait
Result = TypeVar("Result")
Answer = Receipt | Outcome | RequestError


class LedgerEngine:
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
        self.store = store
        self.lock = threading.RLock()
        self.waiting = Queue()
        self._closed = False
        self.live = LiveState(store, clock, max_contexts, key, n_experiments)
        self.handler = RequestHandler(self.live, chance, ids)

    def close(self) -> None:
        """Answer waiting requests, and save snapshots so that opening is quick."""
        with self.lock:
            if self._closed:
                return
            try:
                if not self.live.read_only:
                    while self.waiting:
                        self._serve()
                    if self.live.condition.kind in (Kind.NEW, Kind.CURRENT):
                        with contextlib.suppress(Unavailable):  # the log is enough to open it again
                            self.live.take_snapshots(least=1)
            finally:
                self._closed = True

    # turns

    @contextlib.contextmanager
    def reading(self) -> Iterator[LiveState]:
        """Keep writers out, with a state in memory that is the one of the log."""
        with self.lock:
            self._check_open()
            self.live.refresh()
            yield self.live

    def write(self, work: Callable[[Batch], Result]) -> Result:
        """Take the writer's turn, after all waiting requests are answered; `work` may be called several times.

        It gets an empty batch; no boundary of a period lies before the moment of the batch.
        """
        with self.reading():
            while self.waiting:
                self._serve()
            batch: Batch | None = None

            def attempt() -> Result:
                nonlocal batch
                batch = None
                self.live.recover()
                batch = self.live.begin_periods()
                return work(batch)

            try:
                return self._in_turn(attempt)
            except BaseException as problem:
                if batch is not None and batch.is_written and isinstance(problem, Exception):
                    answer: BaseException = (
                        problem if isinstance(problem, Uncertain) else self.live.after_commit(problem)
                    )
                else:
                    answer = self.live.fail(problem)
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
            self.live.fold()
            try:
                with self.store.turn(self.live.key or 0):
                    self.live.refresh()
                    return attempt()
            except Behind:
                continue
        raise Unavailable(f"{self.store.path}: other processes append to the same experiment all the time.")

    def _check_open(self) -> None:
        if self._closed:
            raise closed()

    # decisions and rewards

    def submit(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer all requests in one transaction, once they are on the disk; a refusal is an answer too."""
        ticket = Ticket(requests)
        self.waiting.wait(ticket, self._lead)
        if ticket.problem is not None:
            raise ticket.problem
        return ticket.answers or []

    def _lead(self, ticket: Ticket) -> None:
        with self.lock:
            while not ticket.served:
                self._serve()

    def _serve(self) -> None:
        """Answer all waiting tickets in one commit."""
        tickets = self.waiting.take(MOST_REQUESTS)
        try:
            answers = self._answer(tickets)
        except BaseException as problem:
            answer = self.live.fail(problem)
            for ticket in tickets:
                ticket.problem = answer
                ticket.woken.set()
            if not isinstance(problem, Exception):
                raise
            return
        for ticket, own in zip(tickets, answers, strict=True):
            ticket.answers = own
            ticket.woken.set()
        self._save()

    def _save(self) -> None:
        """Do a step towards a snapshot: the answers are on the disk, with or without it."""
        try:
            self.live.take_snapshots()
        except (Unavailable, MemoryError):
            pass
        except Exception as problem:
            LOG.error("Snapshots of %s cannot be made", self.store.path, exc_info=problem)

    def _answer(self, tickets: Sequence[Ticket]) -> list[list[Answer]]:
        """Return the answers to all tickets, once they are on the disk."""
        self._check_open()
        return self._in_turn(lambda: self._attempt(tickets))

    def _attempt(self, tickets: Sequence[Ticket]) -> list[list[Answer]]:
        live = self.live
        live.recover()
        ids = [getattr(request, "id", None) for ticket in tickets for request in ticket.requests]
        live.decisions.begin_batch([id for id in ids if id is not None])
        batch = live.begin_periods()
        self.handler.settle_overdue(batch)
        answers = [self.handler.answer(ticket.requests, batch) for ticket in tickets]
        if self.live.is_shared:
            self._check_refusals(answers)
        live.commit(batch)
        return answers

    def _check_refusals(self, answers: Sequence[Sequence[Answer]]) -> None:
        """A refusal changes nothing, so no append finds out that it follows from an old state: ask."""
        refused = any(isinstance(answer, RequestError) for own in answers for answer in own)
        if refused and self.live.is_behind():
            raise Behind(f"{self.store.path} has other events.")

    # work between requests

    def maintain(self, clean: Callable[[], object] = lambda: None) -> bool:
        """Settle overdue decisions, write snapshots, and `clean` up; return whether there is more to do."""
        live = self.live

        def work(batch: Batch) -> bool:
            clean()
            self._expire_page(batch)
            self._save()
            return live.deadlines.is_behind(live.now()) or live.snapshots.is_busy

        if live.condition.kind is Kind.FOREIGN:
            with self.reading():
                live.record_upgrade()
            if live.condition.kind is Kind.FOREIGN:
                return False
        return self.write(work)

    def expire(self) -> int:
        """Settle every overdue decision and return how many there were."""
        n_settled, now = 0, self.live.now()
        while True:
            n_settled += self.write(self._expire_page)
            if not self.live.deadlines.is_behind(now):
                return n_settled

    def _expire_page(self, batch: Batch) -> int:
        n_settled = self.handler.settle_overdue(batch)
        self.live.commit(batch)
        return n_settled

    def try_to_recover(self) -> None:
        """Find out whether requests can be served again."""
        if self.lock.acquire(blocking=False):  # otherwise a request is being written, and its result sets the state
            try:
                self.live.recover(probe=True)
            except Exception as problem:
                self.live.fail(problem)
            finally:
                self.lock.release()


def closed() -> RequestError:
    """Return the error of an engine that was closed."""
    return RequestError("closed", "engine", "open", "closed", "Open it again with Engine.open.")
