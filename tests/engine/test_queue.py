"""Many callers, one of whom leads: everybody is served once, in groups, whatever happens to the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from alphafair.engine import Decide, Engine, Receipt, Reward
from alphafair.engine import writer as writer_module
from alphafair.engine.tickets import Call, Queue, Ticket
from alphafair.engine.writer import Writer
from tests.stores import both_stores, writer_of

pytestmark = both_stores

PATIENCE = 30.0  # seconds after which a test has failed; none waits that long


class Groups:
    """A writer that answers with the requests themselves, and remembers the groups; `hold` keeps a leader inside."""

    def __init__(self, writer: Writer, patch: pytest.MonkeyPatch) -> None:
        self.writer, self.groups = writer, list[list[Any]]()
        self.entered, self.hold = threading.Semaphore(0), threading.Semaphore(0)
        patch.setattr(writer, "_answer", self.answer)

    def answer(self, tickets: Sequence[Ticket]) -> list[list[Any]]:
        self.groups.append([request for each in tickets for request in each.requests])
        self.entered.release()
        assert self.hold.acquire(timeout=PATIENCE)
        return [list(each.requests) for each in tickets]

    def call(self, request: Any) -> tuple[threading.Thread, list[Any]]:
        """A caller in a thread of its own, and what it is answered."""
        answers = list[Any]()
        thread = threading.Thread(target=lambda: answers.extend(self.writer.submit([request])))
        thread.start()
        return thread, answers

    def until(self, condition: Callable[[], bool]) -> None:
        waiting = threading.Event()
        for _ in range(int(PATIENCE / 0.001)):
            if condition():
                return
            waiting.wait(0.001)
        raise AssertionError("it never came to that")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create("home", arms=["ada", "ben"])
        yield engine


@pytest.fixture
def groups(engine: Engine) -> Iterator[Groups]:
    with pytest.MonkeyPatch.context() as patch:
        yield Groups(writer_of(engine, "home"), patch)


class Party:
    """A waiter that is no thread: it is told to lead, and gets what others have served."""

    def __init__(self) -> None:
        self.n_leads, self.delivered = 0, list[list[Ticket]]()

    def lead(self) -> None:
        self.n_leads += 1

    def deliver(self, tickets: Sequence[Ticket], seconds: float) -> None:
        self.delivered.append(list(tickets))


def test_requests_that_arrive_during_a_batch_are_the_next_batch(groups: Groups) -> None:
    first = groups.call("first")
    assert groups.entered.acquire(timeout=PATIENCE)
    others = [groups.call(k) for k in range(5)]
    groups.until(lambda: len(groups.writer.queue) == 5)
    groups.hold.release()
    assert groups.entered.acquire(timeout=PATIENCE)
    first[0].join(PATIENCE)
    assert not first[0].is_alive()  # it has its answer while the next group is still on its way
    groups.hold.release()
    for k, (thread, answers) in enumerate(others):
        thread.join(PATIENCE)
        assert answers == [k]
    assert groups.groups[0] == ["first"]
    assert sorted(groups.groups[1]) == list(range(5))


def test_an_interrupted_caller_does_not_block_others(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    first = groups.call("first")
    assert groups.entered.acquire(timeout=PATIENCE)

    def interrupt(call: Call) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Call, "wait", interrupt)
        with pytest.raises(KeyboardInterrupt):
            groups.writer.submit(["interrupted"])
    last = groups.call("last")
    groups.until(lambda: len(groups.writer.queue) == 1)
    for _ in range(2):
        groups.hold.release()
    for (thread, answers), request in ((first, "first"), (last, "last")):
        thread.join(PATIENCE)
        assert answers == [request]
    assert groups.groups == [["first"], ["last"]]


@pytest.mark.parametrize("problem", [ZeroDivisionError, KeyboardInterrupt])
def test_a_leader_that_fails_passes_the_lead_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    writer = writer_of(engine, "home")

    def fail(tickets: Sequence[Ticket]) -> list[list[Any]]:
        raise problem

    with monkeypatch.context() as patch:
        patch.setattr(writer, "_answer", fail)
        for _ in range(2):
            with pytest.raises(problem):
                writer.submit([Decide("home", "v")])
            assert len(writer.queue) == 0
            assert writer.queue.leader is None
    assert isinstance(engine.decide("home", "v"), Receipt)


def test_the_size_of_a_batch_is_limited(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MOST_REQUESTS", 5)
    party = Party()
    assert groups.writer.put([Ticket([k] * 3, party) for k in range(3)])
    assert not groups.writer.put([Ticket(["more"], party)])
    groups.hold.release(2)
    served, must_lead = groups.writer.serve(party)
    assert ([len(each.requests) for each in served], must_lead) == ([3, 3], True)
    served, must_lead = groups.writer.serve(party)
    assert ([len(each.requests) for each in served], must_lead) == ([3, 1], False)
    assert groups.writer.put([Ticket(["again"], party)])


def test_callers_take_turns_and_threads_wait_like_all_others(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "MOST_REQUESTS", 2)
    party = Party()
    tickets = [Ticket([f"heavy {k}"], party, "heavy") for k in range(3)] + [Ticket(["light"], party, "light")]
    assert groups.writer.put(tickets)
    thread, answers = groups.call("thread")
    groups.until(lambda: len(groups.writer.queue) == 5)
    groups.hold.release(3)
    assert groups.writer.serve(party)[1] is False  # the thread is next
    thread.join(PATIENCE)
    assert answers == ["thread"]
    assert groups.groups == [["heavy 0", "light"], ["thread", "heavy 1"]]
    assert [[each.answers for each in served] for served in party.delivered] == [[["heavy 1"]]]
    assert party.n_leads == 1
    assert [each.answers for each in groups.writer.serve(party)[0]] == [["heavy 2"]]


def test_a_change_serves_what_waits_and_leaves_the_lead_where_it_is(engine: Engine) -> None:
    writer, party = writer_of(engine, "home"), Party()
    assert writer.put([Ticket([Decide("home", "v")], party)])
    engine.pause("home")
    ((served,),) = party.delivered
    assert isinstance((served.answers or [])[0], Receipt)
    assert writer.queue.leader is party
    assert writer.serve(party) == ([], False)
    assert writer.queue.leader is None


def test_an_empty_queue_has_no_leader() -> None:
    queue, party = Queue(), Party()
    ticket = Ticket(["a"], party)
    assert queue.put([ticket])
    queue.leave(ticket)
    queue.leave(ticket)
    assert (len(queue), queue.take(5), queue.pass_on()) == (0, [], None)


def test_sixteen_threads_are_each_answered_once(engine: Engine) -> None:
    n_threads, n_rounds, done = 16, 25, list[str]()

    def shop(thread: int) -> None:
        for n in range(n_rounds):
            id = f"{thread}-{n}"
            decided, outcome = engine.submit([Decide("home", f"v{n % 3}", id), Reward(id, 0.5)])
            assert decided.id == id  # type: ignore[union-attr]
            assert outcome.outcome == "applied"  # type: ignore[union-attr]
            done.append(id)

    threads = [threading.Thread(target=shop, args=(k,)) for k in range(n_threads)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert len(set(done)) == n_threads * n_rounds
    status = engine.experiment("home")
    assert (status.decisions, status.rewards, status.pending) == (len(done), len(done), 0)
    assert writer_of(engine, "home").queue.leader is None
    engine.verify()
