"""Answers that many readers want at about the same time: computed once, and kept for a short while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, TypeVar

SECONDS: Final = 2.0  # that an answer is kept unless asked otherwise
MOST: Final = 100  # answers
Result = TypeVar("Result")


class SharedAnswers:
    """The latest answers by a key. Whoever asks while one is computed waits for it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[float, asyncio.Task[Any]]] = {}

    async def get(
        self, key: Hashable, compute: Callable[[], Coroutine[Any, Any, Result]], *, seconds: float | None = None
    ) -> Result:
        """Return the answer of the last seconds, or compute it; a failure is not kept."""
        now, fresh = time.monotonic(), SECONDS if seconds is None else seconds
        began, task = self._kept.get(key, (now, None))
        if task is None or (task.done() and (now - began >= fresh or task.cancelled() or task.exception())):
            task = asyncio.create_task(compute())
            self._kept = {
                each: kept for each, kept in self._kept.items() if now - kept[0] < SECONDS or not kept[1].done()
            }
            if len(self._kept) < MOST:
                self._kept[key] = now, task
        found: Result = await asyncio.shield(task)
        return found
