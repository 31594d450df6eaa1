"""Requests that wait for a commit: whoever calls is served in turn, and one caller at a time serves all."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item")


class Turns(Generic[Item]):
    """Items that wait: callers have turns, and each gives its oldest item."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Item]] = OrderedDict()  # by caller, the next one first

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, caller_id: str, item: Item) -> None:
        items = self._waiting.get(caller_id)
        if items is None:
            self._waiting[caller_id] = deque([item])
        else:
            items.append(item)

    def next(self, may: Callable[[str], bool] | None = None) -> tuple[str, Item] | None:
        """Remove the next item, of a caller that may have its turn; None without one."""
        for caller_id, items in self._waiting.items():
            if may is None or may(caller_id):
                item = items.popleft()
                if not items:
                    del self._waiting[caller_id]
                elif len(self._waiting) > 1:
                    self._waiting.move_to_end(caller_id)
                return caller_id, item
        return None

    def remove(self, caller_id: str, item: Item) -> bool:
        """Remove an item; return whether it was waiting."""
        items = self._waiting.get(caller_id, ())
        if item not in items:
            return False
        items.remove(item)  # type: ignore[union-attr]
        if not items:
            del self._waiting[caller_id]
        return True

    def first(self) -> Item | None:
        """Return the next item, without removing it."""
        for items in self._waiting.values():
            return items[0]
        return None


class Waiter(Protocol):
    """Who waits for tickets. Both methods are called by other threads."""

    def lead(self) -> None:
        """Provide a thread that serves."""
        ...

    def deliver(self, tickets: Sequence[Ticket], seconds: float) -> None:
        """Take tickets that were served, in one commit that took so long."""
        ...


class Ticket:
    """The requests of one call, and their answers once they are on the disk."""

    __slots__ = ("answers", "caller_id", "problem", "requests", "waiter")

    def __init__(self, requests: Sequence[Any], waiter: Waiter, caller_id: str = "") -> None:
        self.requests, self.waiter, self.caller_id = requests, waiter, caller_id
        self.answers: list[Any] | None = None
        self.problem: BaseException | None = None

    @property
    def is_served(self) -> bool:
        return self.answers is not None or self.problem is not None


class Call:
    """A thread that waits for a ticket of its own."""

    def __init__(self) -> None:
        self._woken = threading.Event()

    def lead(self) -> None:
        self._woken.set()

    def deliver(self, tickets: Sequence[Ticket], seconds: float) -> None:
        self._woken.set()

    def wait(self) -> None:
        """Wait until the ticket is served, or until it is this thread's turn to lead."""
        self._woken.wait()


class Queue:
    """Waiting tickets: one leader at a time serves many in one commit, the others wait for their answers.

    So threads that call an engine at the same time share the cost of a commit: 16 threads with two requests per call
    get about eight times as many answers per second as one thread.
    """

    def __init__(self) -> None:
        self._turns, self._n_waiting = Turns[Ticket](), 0
        self._lock = threading.Lock()
        self.leader: Waiter | None = None  # who leads, or has been told to

    def __len__(self) -> int:
        return self._n_waiting

    def put(self, tickets: Iterable[Ticket]) -> bool:
        """Add tickets of one waiter; return whether it must provide a leader."""
        with self._lock:
            for ticket in tickets:
                self._turns.add(ticket.caller_id, ticket)
                self._n_waiting += 1
            if self.leader is not None:
                return False
            self.leader = ticket.waiter
            return True

    def take(self, most: int) -> list[Ticket]:
        """Remove and return tickets, up to `most` requests in all, but at least one ticket if any waits."""
        batch, size = list[Ticket](), 0
        with self._lock:
            while size < most and (found := self._turns.next()) is not None:
                batch.append(found[1])
                size += len(found[1].requests)
            self._n_waiting -= len(batch)
        return batch

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket whose caller was interrupted."""
        with self._lock:
            self._n_waiting -= self._turns.remove(ticket.caller_id, ticket)

    def pass_on(self) -> Waiter | None:
        """End the lead; return who leads next: the one whose ticket is the next to be taken."""
        with self._lock:
            ticket = self._turns.first()
            self.leader = None if ticket is None else ticket.waiter
            return self.leader
