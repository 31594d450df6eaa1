"""Requests to an engine, its answers, and the queue of callers that wait for a commit."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

Value = float | Sequence[float] | Mapping[str, float]  # one number; under full information one per arm


class Decide(NamedTuple):
    """Draw an arm. Repeating an id returns the same arm."""

    experiment: str
    context: str
    id: str | None = None
    available: Sequence[str] | None = None
    deferred: bool = False


class Reward(NamedTuple):
    """Report the reward of a decision."""

    id: str
    reward: Value
    experiment: str | None = None


class Activate(NamedTuple):
    """Report that a deferred decision was carried out."""

    id: str
    experiment: str | None = None


Request = Decide | Reward | Activate


class Ticket:
    """The requests of one call, and their answers once they are on the disk."""

    __slots__ = ("answers", "leads", "problem", "requests", "woken")

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.answers: list[Any] | None = None
        self.problem: BaseException | None = None
        self.leads = False  # its caller serves all waiting tickets
        self.woken = threading.Event()  # set when the ticket is served, or when its caller must lead

    @property
    def served(self) -> bool:
        return self.answers is not None or self.problem is not None


class Queue:
    """Waiting tickets: one caller at a time serves them all in one commit, the others wait for their answers.

    So threads that call an engine at the same time share the cost of a commit: 16 threads with two requests per call
    get about eight times as many answers per second as one thread.
    """

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._led = False

    def __len__(self) -> int:
        return len(self._tickets)

    def wait(self, ticket: Ticket, lead: Callable[[Ticket], None]) -> None:
        """Wait until the ticket is served: by another caller, or by `lead` when this caller's turn comes."""
        try:
            with self._lock:
                self._tickets.append(ticket)
                ticket.leads, self._led = not self._led, True
            if not ticket.leads:
                ticket.woken.wait()
            if ticket.leads:
                lead(ticket)
        except BaseException:  # interrupted: the caller no longer waits for an answer
            with self._lock, contextlib.suppress(ValueError):
                self._tickets.remove(ticket)
            raise
        finally:
            if ticket.leads:
                self._pass_on()

    def take(self, most: int) -> list[Ticket]:
        """Remove and return the first tickets, up to `most` requests in all, but at least one ticket if any waits."""
        batch, size = list[Ticket](), 0
        with self._lock:
            while self._tickets and size < most:
                batch.append(self._tickets.popleft())
                size += len(batch[-1].requests)
        return batch

    def _pass_on(self) -> None:
        """Let the caller that has waited longest lead next."""
        with self._lock:
            self._led = bool(self._tickets)
            if self._led:
                self._tickets[0].leads = True
                self._tickets[0].woken.set()
