"""What keys share: no key takes the places, the turns or the threads of another."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from alphafair.service.http.errors import Failure
from alphafair.service.keys import Caller
from alphafair.service.shares import Places, Pool, Turns

ONE, OTHER, THIRD = (Caller(name, name, "log") for name in ("one", "other", "third"))
OPERATOR = Caller("operator", "operator", "admin")
LIMITED = Caller("limited", "limited", "admin", frozenset({"home"}))


def test_a_caller_has_a_share_of_the_places() -> None:
    places = Places(4, 2, for_admins=1)
    assert [places.take(ONE) for _ in range(4)] == [True, True, False, False]
    assert [places.take(OTHER) for _ in range(4)] == [True, True, False, False]
    assert not places.take(THIRD)
    assert not places.take(LIMITED)
    assert [places.take(OPERATOR) for _ in range(2)] == [True, False]
    places.release(ONE.id)
    assert not places.take(THIRD)  # four of five are held, the fifth is kept for admins
    places.release(OTHER.id)
    assert places.take(THIRD)


def test_more_than_a_share_is_accepted_of_a_caller_that_holds_nothing() -> None:
    """A batch may be larger than the share: else it would never be accepted."""
    places = Places(10, 2)
    assert places.take(ONE, 5)
    assert not places.take(ONE)
    assert not places.take(OTHER, 6)
    assert places.take(OTHER, 5)
    places.release(ONE.id, 5)
    assert (places.n_held, dict(places.held)) == (5, {"other": 5})


def test_callers_have_turns() -> None:
    turns = Turns[int]()
    for caller_id, item in (("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)):
        turns.add(caller_id, item)
    assert turns.next(lambda caller_id: caller_id == "b") == ("b", 4)
    found = []
    while turns:
        found.append(turns.next())
    assert found == [("a", 1), ("c", 5), ("b", 6), ("a", 2), ("a", 3)]
    assert turns.next() is None


def test_a_pool_runs_callers_in_turn_and_some_work_of_each() -> None:
    async def run() -> None:
        pool = Pool(ThreadPoolExecutor(3), Places(12, 8), at_once=3, per_caller=2)
        gate, begun = threading.Event(), list[str]()

        def work(name: str) -> str:
            begun.append(name)
            assert gate.wait(30.0)
            return name

        def sent(caller: Caller, k: int) -> asyncio.Task[str]:
            return asyncio.create_task(pool.run(caller, lambda: work(f"{caller.id} {k}")))

        tasks = [sent(ONE, k) for k in range(8)]
        await asyncio.sleep(0)
        with pytest.raises(Failure) as caught:
            await pool.run(ONE, lambda: work("too many"))
        assert (caught.value.status, caught.value.headers) == (503, {"retry-after": "1"})
        tasks += [sent(OTHER, k) for k in range(3)]
        await asyncio.sleep(0)
        while len(begun) < 3:
            await asyncio.sleep(0.001)
        assert sorted(begun) == ["one 0", "one 1", "other 0"]  # a thread was left for the other
        gate.set()
        assert await asyncio.gather(*tasks) == [f"one {k}" for k in range(8)] + [f"other {k}" for k in range(3)]
        assert max(begun.index(f"other {k}") for k in range(3)) <= 7
        assert pool.places.n_held == 0
        pool.close()

    asyncio.run(run())


def test_a_pool_passes_errors_on_and_skips_what_nobody_waits_for() -> None:
    async def run() -> None:
        pool = Pool(ThreadPoolExecutor(1), Places(10, 10), at_once=1, per_caller=1)
        gate, begun = threading.Event(), list[str]()
        first = asyncio.create_task(pool.run(ONE, lambda: gate.wait(30.0)))
        gone = asyncio.create_task(pool.run(ONE, lambda: begun.append("gone")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        gate.set()
        assert await first
        with pytest.raises(ZeroDivisionError):
            await pool.run(ONE, lambda: 1 // 0)
        assert (begun, pool.places.n_held) == ([], 0)
        pool.close()

    asyncio.run(run())
