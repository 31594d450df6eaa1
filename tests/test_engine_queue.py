"""Many callers, one of whom leads: everybody is served once, in groups, whatever happens to the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from alphafair.engine.requests import Queue, Ticket
from tests.stores import both_stores

pytestmark = both_stores

PATIENCE = 30.0  # seconds after which a test has failed; none waits that long


class Groups:
    """Serves tickets by repeating their requests, and remembers the groups; `hold` keeps a leader inside."""

    def __init__(self) -> None:
        self.queue, self.groups = Queue(), list[list[Any]]()
        self.entered, self.hold = threading.Semaphore(0), threading.Semaphore(0)

    def lead(self, ticket: Ticket) -> None:
        while not ticket.served:
            group = self.queue.take(100)
            self.groups.append([request for each in group for request in each.requests])
            self.entered.release()
            assert self.hold.acquire(timeout=PATIENCE)
            for each in group:
                each.answers = list(each.requests)
                each.woken.set()

    def call(self, request: Any) -> tuple[threading.Thread, Ticket]:
        """A caller in a thread of its own."""
        ticket = Ticket([request])
        thread = threading.Thread(target=self.queue.wait, args=(ticket, self.lead))
        thread.start()
        return thread, ticket

    def until(self, condition: Callable[[], bool]) -> None:
        waiting = threading.Event()
        for _ in range(int(PATIENCE / 0.001)):
            if condition():
                return
            waiting.wait(0.001)
        raise AssertionError("it never came to that")


def test_requests_that_arrive_during_a_batch_are_the_next_batch() -> None:
    groups = Groups()
    first = groups.call("first")
    assert groups.entered.acquire(timeout=PATIENCE)
    others = [groups.call(k) for k in range(5)]
    groups.until(lambda: len(groups.queue) == 5)
    groups.hold.release()
    assert groups.entered.acquire(timeout=PATIENCE)
    first[0].join(PATIENCE)
    assert not first[0].is_alive()  # it has its answer while the next group is still on its way
    groups.hold.release()
    for thread, ticket in others:
        thread.join(PATIENCE)
        assert ticket.answers == list(ticket.requests)
    assert groups.groups[0] == ["first"]
    assert sorted(groups.groups[1]) == list(range(5))


def test_an_interrupted_caller_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups()
    first = groups.call("first")
    assert groups.entered.acquire(timeout=PATIENCE)
    interrupted = Ticket(["interrupted"])

    def interrupt(timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(interrupted.woken, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        groups.queue.wait(interrupted, groups.lead)
    last = groups.call("last")
    groups.until(lambda: len(groups.queue) == 1)
    for _ in range(2):
        groups.hold.release()
    for thread, ticket in (first, last):
        thread.join(PATIENCE)
        assert ticket.answers == list(ticket.requests)
    assert groups.groups == [["first"], ["last"]]


def test_a_leader_that_fails_passes_the_lead_on() -> None:
    queue = Queue()

    def fail(ticket: Ticket) -> None:
        raise ZeroDivisionError

    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            queue.wait(Ticket(["a"]), fail)
        assert len(queue) == 0


def test_the_size_of_a_batch_is_limited() -> None:
    queue, sizes = Queue(), list[int]()

    def lead(ticket: Ticket) -> None:
        for size in (3, 3, 3):
            queue._tickets.append(Ticket(["more"] * size))
        while group := queue.take(5):
            sizes.append(sum(len(each.requests) for each in group))
        ticket.answers = []

    queue.wait(Ticket(["one"]), lead)
    assert sizes == [7, 3]
