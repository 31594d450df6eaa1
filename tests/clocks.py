"""A clock for engines, moved by tests."""

from __future__ import annotations


class Clock:
    """Nanoseconds since 1970 that pass when a test says so: `now` is in seconds."""

    def __init__(self, now: float = 1_800_000_000.0) -> None:
        self.now = now

    def __call__(self) -> int:
        return int(self.now * 1e9)
