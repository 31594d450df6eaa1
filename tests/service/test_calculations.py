"""Calculations: keys have turns, what fails is tried again, and what has to wait has not failed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from alphafair import child
from alphafair.engine.jobs import Job, ProbabilitiesJob
from alphafair.service.keys import Caller
from alphafair.service.page import calculations


class Clock:
    """A time that moves when a test wants it to."""

    now = 1e9

    def __call__(self) -> float:
        return self.now


async def done(calculation: calculations.Calculation[Any] | None) -> str:
    """The status of a calculation once it is done."""
    assert calculation is not None
    while calculation.status == "computing":
        await asyncio.sleep(0.001)
    return calculation.status


async def with_calculations(
    test: Callable[[calculations.Calculations, Clock, list[Job]], Awaitable[None]],
    output: Callable[[Job], bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run a test with calculations whose processes are a function."""
    clock, begun = Clock(), list[Job]()

    def run(self: calculations.Calculations, job: Job) -> bytes:
        begun.append(job)
        return output(job)

    monkeypatch.setattr(calculations.Calculations, "_output", run)
    found = calculations.Calculations(clock)
    await test(found, clock, begun)
    await found.close()


def job(context: int) -> ProbabilitiesJob:
    return ProbabilitiesJob(address="", experiment=1, name="home", position=1, context=context, available=None)


ONE, OTHER = (Caller(name, name, "log") for name in ("one", "other"))


def test_a_failed_calculation_is_begun_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(job: Job) -> bytes:
        raise OSError("it failed")

    async def test(found: calculations.Calculations, clock: Clock, begun: list[Job]) -> None:
        for n in (1, 2):
            first = found.get(ONE, job(0))
            assert first is not None
            assert (await done(first), first.problem) == ("failed", "it failed")
            clock.now += 59.0
            assert found.get(OTHER, job(0)) is first
            clock.now += 1.0
            assert len(begun) == n

    asyncio.run(with_calculations(test, fail, monkeypatch))


@pytest.mark.parametrize(("n_kills", "status"), [(1, "ready"), (2, "failed")])
def test_a_killed_calculation_is_repeated_once_at_once(
    monkeypatch: pytest.MonkeyPatch, n_kills: int, status: str
) -> None:
    code = "import os, sys; os.kill(os.getpid(), 9) if sys.argv[1] == 'kill' else print('{}')"
    modes = iter(["kill"] * n_kills + ["end"] * 2)
    popen = subprocess.Popen

    def begin(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return popen([sys.executable, "-c", code, next(modes)], **options)

    monkeypatch.setattr(child.subprocess, "Popen", begin)

    async def run() -> None:
        found = calculations.Calculations()
        assert await done(found.get(ONE, job(0))) == status
        assert next(modes) == "end"
        await found.close()

    asyncio.run(run())


def test_calculations_of_keys_have_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key has two at a time. What has no place is begun when it is asked for again, and has not failed."""
    gate = threading.Event()

    def run(job: Job) -> bytes:
        assert gate.wait(30.0)
        return b"{}"

    async def test(found: calculations.Calculations, clock: Clock, begun: list[Job]) -> None:
        mine = [found.get(ONE, job(k)) for k in range(5)]
        assert [each is not None for each in mine] == [True, True, False, False, False]
        theirs = found.get(OTHER, job(7))
        assert found.get(OTHER, job(1)) is mine[1]
        gate.set()
        assert [await done(each) for each in (theirs, *mine[:2])] == ["ready"] * 3
        assert [each.context for each in begun if isinstance(each, ProbabilitiesJob)] in ([0, 1, 7], [0, 7, 1])
        await asyncio.sleep(0)
        assert found.get(ONE, job(2)) is not None

    asyncio.run(with_calculations(test, run, monkeypatch))
