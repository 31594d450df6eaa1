"""Groups: what arrives together is committed together, too much is refused early, the end loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from alphafair.engine import Decide, Unavailable
from alphafair.engine.tickets import Queue, Ticket, Waiter
from alphafair.service import command_queue as queue_module
from alphafair.service.command_queue import CommandQueue
from alphafair.service.http.errors import Failure, as_failure
from alphafair.service.keys import Caller


class Slow:
    """An engine with one queue that answers with what it was asked, when it is allowed to."""

    is_shared = False

    def __init__(self) -> None:
        self.queue = Queue()
        self.groups: list[list[Any]] = []
        self.go, self.taken = threading.Event(), threading.Event()
        self.problem: Exception | None = None
        self.delays: list[float] | None = None

    def known(self, name: Any) -> Slow:
        return self

    def put(self, tickets: Sequence[Ticket]) -> bool:
        return self.queue.put(tickets)

    def serve(self, leader: Waiter) -> tuple[list[Ticket], bool]:
        tickets = self.queue.take(queue_module.MOST_REQUESTS)
        self.taken.set()
        self.go.wait()
        if not self.problem:
            self.groups.append([command for each in tickets for command in each.requests])
        for each in tickets:
            each.problem, each.answers = self.problem, [f"answer to {command}" for command in each.requests]
        return tickets, self.queue.pass_on() is not None


class Command(str):
    """A command as its name."""

    experiment = "home"


def made(max_waiting: int = 100) -> tuple[Slow, CommandQueue, list[int]]:
    engine = Slow()
    sizes: list[int] = []
    writer = CommandQueue(engine, max_waiting=max_waiting, observe=lambda size, *_: sizes.append(size))  # type: ignore[arg-type]
    return engine, writer, sizes


def key(id: str, role: str = "write") -> Caller:
    return Caller(id, id, role)


def named(commands: Sequence[Any]) -> list[Any]:
    return [Command(each) if isinstance(each, str) else each for each in commands]


async def several(writer: CommandQueue, *commands: Sequence[Any], by: str = "one") -> list[asyncio.Task[list[Any]]]:
    """Commands that are waiting now, or being committed where nothing else was."""
    tasks = [asyncio.create_task(writer.submit(key(by), named(each))) for each in commands]
    while writer.writers.queue and not writer.writers.taken.is_set():  # type: ignore[attr-defined]
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_commands_that_arrive_during_a_commit_are_the_next_batch() -> None:
    async def run() -> None:
        engine, writer, sizes = made()
        first = await several(writer, ["a"], ["b", "c"])
        second = await several(writer, ["d"], ["e"], ["f"])
        assert writer.places.n_held == 6
        engine.go.set()
        answers = await asyncio.gather(*first, *second)
        assert answers == [[f"answer to {each}" for each in group] for group in ("a", "bc", "d", "e", "f")]
        assert engine.groups == [["a", "b", "c"], ["d", "e", "f"]]
        assert sizes == [3, 3]
        await writer.drain()

    asyncio.run(run())


def test_answers_are_sent_after_the_commit() -> None:
    async def run() -> None:
        engine, writer, _ = made()
        tasks = await several(writer, ["a"])
        await asyncio.sleep(0.05)
        assert not tasks[0].done()
        engine.go.set()
        assert await tasks[0] == ["answer to a"]
        await writer.drain()

    asyncio.run(run())


def test_commands_above_the_limit_are_rejected() -> None:
    async def run() -> None:
        engine, writer, _ = made(max_waiting=4)
        tasks = await several(writer, ["on its way"], by="first")
        tasks += await several(writer, ["a", "b"]) + await several(writer, ["c"], by="other")
        for commands in (["d"], ["e", "f"]):
            with pytest.raises(Failure) as caught:
                await writer.submit(key("third"), named(commands))
            assert (caught.value.status, caught.value.headers) == (503, {"retry-after": "1"})
        tasks += [
            asyncio.create_task(writer.submit(key("operator", "admin"), named(["x"])))
        ]  # a place is kept for admins
        await asyncio.sleep(0)
        engine.go.set()
        assert [len(await task) for task in tasks] == [1, 2, 1, 1]
        assert await writer.submit(key("one"), named(["g"])) == ["answer to g"]
        await writer.drain()

    asyncio.run(run())


def test_a_caller_beyond_its_share_is_rejected_and_no_other() -> None:
    async def run() -> None:
        engine, writer, _ = made(max_waiting=12)
        tasks = await several(writer, ["on its way"], by="first")
        tasks += await several(writer, ["a", "b", "c"])  # above the share, but nothing else of the key waits
        with pytest.raises(Failure) as caught:
            await writer.submit(key("one"), named(["d"]))
        assert caught.value.answer.error.code == "overloaded"
        tasks += await several(writer, ["e"], ["f"], by="other")
        engine.go.set()
        assert [len(await task) for task in tasks] == [1, 3, 1, 1]
        assert await writer.submit(key("one"), named(["g"])) == ["answer to g"]
        assert (writer.places.n_held, dict(writer.places.held)) == (0, {})
        await writer.drain()

    asyncio.run(run())


def test_callers_take_turns_in_a_commit_of_limited_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty batches of one key do not delay another key by more than the commit that runs and its own."""
    monkeypatch.setattr(queue_module, "MOST_REQUESTS", 4)

    async def run() -> None:
        engine, writer, _ = made(max_waiting=1000)
        tasks = await several(writer, ["on its way"])
        tasks += await several(writer, *([f"{k}a", f"{k}b", f"{k}c", f"{k}d"] for k in range(40)))
        tasks += await several(writer, ["x"], ["y"], ["z"], by="neighbor")
        engine.go.set()
        await asyncio.gather(*tasks)
        assert engine.groups[1:5] == [
            ["0a", "0b", "0c", "0d"],
            ["x", "1a", "1b", "1c", "1d"],
            ["y", "2a", "2b", "2c", "2d"],
            ["z", "3a", "3b", "3c", "3d"],
        ]
        assert [len(group) for group in engine.groups[5:]] == [4] * 36
        await writer.drain()

    asyncio.run(run())


def test_callers_take_turns_between_experiments_that_are_written_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty experiments of one key do not take all threads, and another key's batch is the next that begins."""
    monkeypatch.setattr(queue_module, "MOST_REQUESTS", 4)
    monkeypatch.setattr(queue_module, "AT_ONCE", 8)

    class Gated(Slow):
        """The queue of one experiment."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def serve(self, leader: Waiter) -> tuple[list[Ticket], bool]:
            begun.append(self.name)
            all_begun.append(self.name)
            try:
                return super().serve(leader)
            finally:
                begun.remove(self.name)

    begun, all_begun = list[str](), list[str]()

    async def run() -> None:
        engine, queues = Slow(), dict[str, Gated]()
        engine.is_shared = True
        engine.known = lambda name: queues.setdefault(name, Gated(name))  # type: ignore[method-assign]
        writer = CommandQueue(engine, max_waiting=1000, observe=lambda *_: None)  # type: ignore[arg-type]

        async def sent(*names: str, n: int, by: str) -> list[asyncio.Task[list[Any]]]:
            commands = ([Decide(name, f"v{k}") for k in range(n)] for name in names)
            tasks = [asyncio.create_task(writer.submit(key(by), each)) for each in commands]
            await asyncio.sleep(0.01)
            return tasks

        tasks = await sent(*(f"heavy {k}" for k in range(40)), n=4, by="one")
        light = await sent(*(f"light {k}" for k in range(3)), n=1, by="neighbor")
        tasks += await sent("heavy 0", n=4, by="one")
        tasks += await sent("heavy 0", n=1, by="neighbor")
        while len(begun) < 5:
            await asyncio.sleep(0.001)
        assert sorted(begun) == ["heavy 0", "heavy 1", "light 0", "light 1", "light 2"]
        queues["light 1"].go.set()
        assert len(await light[1]) == 1
        queues["heavy 0"].go.set()  # alone, so that one thread after the other has to choose
        async with asyncio.timeout(30.0):
            while all_begun.count("heavy 0") < 2:
                await asyncio.sleep(0.001)
        assert all_begun.index("heavy 0", all_begun.index("heavy 0") + 1) <= 7
        for each in queues.values():
            each.go.set()
        await asyncio.gather(*tasks, *light)
        assert (writer.places.n_held, dict(writer.places.held)) == (0, {})
        await writer.drain()
        assert not writer._at_once
        assert not writer._is_due
        assert not any(each.waiting or each.is_owed for each in writer._lines.values())

    asyncio.run(run())


def test_changes_of_a_caller_are_made_one_at_a_time() -> None:
    """So commits of others, and changes of other keys, wait for one of them at most."""

    async def run() -> None:
        engine, writer, _ = made()
        engine.go.set()
        order, gate = list[str](), threading.Event()

        def change(name: str) -> Callable[[], object]:
            return lambda: (gate.wait(), order.append(name))

        changes = [asyncio.create_task(writer.change(key("one", "admin"), change(f"change {k}"))) for k in range(5)]
        await asyncio.sleep(0)
        changes.append(asyncio.create_task(writer.change(key("other", "admin"), change("other"))))
        command = asyncio.create_task(writer.submit(key("third"), named(["a"])))
        command.add_done_callback(lambda _: order.append("command"))
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(command, *changes)
        assert max(order.index("other"), order.index("command")) < order.index("change 2")
        await writer.drain()

    asyncio.run(run())


def test_an_admin_without_limits_has_a_place_for_its_change() -> None:
    """However many changes wait of admin keys that are limited to some experiments."""

    async def run() -> None:
        engine, writer, _ = made()
        engine.go.set()
        gate = threading.Event()
        limited = [Caller(f"limited {n}", "limited", "admin", frozenset({"home"})) for n in range(3)]
        n = queue_module.CHANGES // 2
        changes = [asyncio.create_task(writer.change(each, gate.wait)) for each in limited[:2] for _ in range(n)]
        await asyncio.sleep(0)
        for caller in limited:
            with pytest.raises(Failure):
                await writer.change(caller, gate.wait)
        mine = asyncio.create_task(writer.change(key("operator", "admin"), lambda: "changed"))
        await asyncio.sleep(0)
        gate.set()
        assert await mine == "changed"
        assert all(await asyncio.gather(*changes))
        await writer.drain()

    asyncio.run(run())


def test_an_experiment_that_is_not_known_is_searched_once_for_a_burst() -> None:
    """As many commands as there are places wait for one look into the database, and none for a change."""

    async def run() -> None:
        engine, writer, _ = made(1000)
        engine.go.set()
        known, searches = list[Slow](), list[str]()

        def search(name: str) -> Slow:
            searches.append(name)
            known.append(engine)
            return engine

        engine.known = lambda name: known[0] if known else None  # type: ignore[assignment, method-assign, return-value]
        engine.search = search  # type: ignore[attr-defined]
        callers = [key(f"caller {k % 2}") for k in range(2 * queue_module.CHANGES)]
        answers = await asyncio.gather(*(writer.submit(each, [Command("a")]) for each in callers))
        assert answers == [["answer to a"]] * len(callers)
        assert searches == ["home", "home"]  # once for each caller
        await writer.drain()

    asyncio.run(run())


def test_a_failed_commit_fails_only_its_batch() -> None:
    async def run() -> None:
        engine, writer, _ = made()
        engine.problem = Unavailable("the disk is full")
        first = await several(writer, ["a"], ["b"])
        engine.go.set()
        for task in first:
            with pytest.raises(Unavailable) as caught:
                await task
            assert as_failure(caught.value).status == 503
        engine.problem = None
        assert await writer.submit(key("one"), named(["c"])) == ["answer to c"]
        await writer.drain()

    asyncio.run(run())


def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async def run() -> None:
        engine, writer, _ = made()
        gone, stays = await several(writer, ["a", "b"], ["c"])
        gone.cancel()
        await asyncio.sleep(0)
        engine.go.set()
        assert await stays == ["answer to c"]
        assert engine.groups == [["a", "b", "c"]]
        await writer.drain()

    asyncio.run(run())


def test_draining_waits_for_everything_that_was_accepted() -> None:
    async def run() -> None:
        engine, writer, _ = made()
        tasks = await several(writer, ["a"])
        tasks += await several(writer, ["b"], ["c"])
        asyncio.get_running_loop().call_later(0.05, engine.go.set)
        await writer.drain()
        assert [await task for task in tasks] == [["answer to a"], ["answer to b"], ["answer to c"]]
        assert engine.groups == [["a"], ["b", "c"]]

    asyncio.run(run())


def test_other_work_runs_between_commits() -> None:
    async def run() -> None:
        engine, writer, _ = made()
        engine.go.set()
        order: list[str] = []
        await asyncio.gather(writer.submit(key("one"), named(["a"])), writer.run(lambda: order.append("between")))
        assert order == ["between"]
        await writer.drain()

    asyncio.run(run())
