"""Many callers, one writer: what waits is served as one group, by one of those who wait."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from alphafair.engine.requests import Request


class Ticket:
    """The requests of one call, and the answers once they are on the disk."""

    __slots__ = ("answers", "leads", "problem", "requests", "woken")

    def __init__(self, requests: Sequence[Request]) -> None:
        self.requests = requests
        self.answers: list[Any] | None = None
        self.problem: BaseException | None = None
        self.leads = False  # its caller serves all that wait
        self.woken = threading.Event()  # served, or it is its turn to lead

    @property
    def served(self) -> bool:
        return self.answers is not None or self.problem is not None


class Queue:
    """Tickets that wait. One caller leads at a time; who has been served need not wait for the next group to end."""

    def __init__(self) -> None:
        self._tickets: deque[Ticket] = deque()
        self._lock = threading.Lock()
        self._led = False

    def __len__(self) -> int:
        return len(self._tickets)

    def wait(self, ticket: Ticket, lead: Callable[[Ticket], None]) -> None:
        """Until the ticket is served: by another caller, or by `lead` when it is this one's turn."""
        try:
            with self._lock:
                self._tickets.append(ticket)
                ticket.leads, self._led = not self._led, True
            if not ticket.leads:
                ticket.woken.wait()
            if ticket.leads:
                lead(ticket)
        except BaseException:  # interrupted: nobody waits for the answer any more
            with self._lock, contextlib.suppress(ValueError):
                self._tickets.remove(ticket)
            raise
        finally:
            if ticket.leads:
                self._pass_on()

    def take(self, most: int) -> list[Ticket]:
        """The first that wait, with so many requests in all; one at least, if there is any."""
        group, size = list[Ticket](), 0
        with self._lock:
            while self._tickets and size < most:
                group.append(self._tickets.popleft())
                size += len(group[-1].requests)
        return group

    def _pass_on(self) -> None:
        """Whoever waits longest leads next."""
        with self._lock:
            self._led = bool(self._tickets)
            if self._led:
                self._tickets[0].leads = True
                self._tickets[0].woken.set()
