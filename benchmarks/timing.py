"""How things are timed: contenders take turns, the best time of each counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

Name = TypeVar("Name")


def seconds(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """The time that one call takes, by the clock on the wall or by another."""
    start = clock()
    work()
    return clock() - start


def best(contenders: Mapping[Name, Callable[[], float]], repeats: int) -> dict[Name, float]:
    """The least that each contender reports over so many turns: noise of a shared machine only ever adds."""
    times: dict[Name, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, contender in contenders.items():
            times[name].append(contender())
    return {name: min(taken) for name, taken in times.items()}
