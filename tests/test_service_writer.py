"""Groups: what arrives together is committed together, too much is refused early, the end loses nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from alphafair.engine import Unavailable
from alphafair.service.errors import Failure, as_failure
from alphafair.service.writer import Writer


class Slow:
    """An engine that answers with what it was asked, when it is allowed to."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.go = threading.Event()
        self.problem: Exception | None = None
        self.delays: list[float] | None = None

    def submit(self, commands: Sequence[Any]) -> list[Any]:
        self.go.wait()
        if self.problem:
            raise self.problem
        self.groups.append(list(commands))
        return [f"answer to {command}" for command in commands]


def made(max_waiting: int = 100) -> tuple[Slow, Writer, list[int]]:
    engine = Slow()
    sizes: list[int] = []
    writer = Writer(engine, max_waiting=max_waiting, observe=lambda size, *_: sizes.append(size))  # type: ignore[arg-type]
    return engine, writer, sizes


async def several(writer: Writer, *commands: Sequence[Any]) -> list[asyncio.Task[list[Any]]]:
    tasks = [asyncio.create_task(writer.submit(each)) for each in commands]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


def test_commands_that_arrive_during_a_commit_are_the_next_batch() -> None:
    async def run() -> None:
        engine, writer, sizes = made()
        first = await several(writer, ["a"], ["b", "c"])
        second = await several(writer, ["d"], ["e"], ["f"])
        assert writer.n_waiting == 3
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
        engine, writer, _ = made(max_waiting=3)
        tasks = await several(writer, ["on its way"])
        tasks += await several(writer, ["a", "b"], ["c"])
        for commands in (["d"], ["e", "f"]):
            with pytest.raises(Failure) as caught:
                await writer.submit(commands)
            assert (caught.value.status, caught.value.headers) == (503, {"retry-after": "1"})
        engine.go.set()
        assert [len(await task) for task in tasks] == [1, 2, 1]
        assert await writer.submit(["g"]) == ["answer to g"]
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
        assert await writer.submit(["c"]) == ["answer to c"]
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
        await asyncio.gather(writer.submit(["a"]), writer.run(lambda: order.append("between")))
        assert order == ["between"]
        await writer.drain()

    asyncio.run(run())
