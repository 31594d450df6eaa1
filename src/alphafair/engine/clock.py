"""The time of events: the wall clock, as long as it has not jumped ahead.

Times in the log never fall, so an event with a time that is ahead stops waiting times and periods until the true time
has caught up, and nothing can take it back. The wall clock is therefore compared with a steady one, which counts from
the start of the machine and cannot be set: their difference is the time of that start by the wall clock, and moves only
when the wall clock is stepped. After a jump ahead nothing is written until the clock is set back, or accepted.

A clock that is set back does no such harm, and one that was behind the last event is expected to jump. A database
judges better than the last event whether the clock is right when a process starts, and its experiments have a log each:
there the comparison begins once both clocks agree.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from alphafair.errors import Unavailable

SECOND: Final = 10**9  # nanoseconds
MOST_JUMP: Final = 300 * SECOND  # ahead that a step may go: more than leap seconds and small corrections
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class WrongClock(Unavailable):
    """The clock of this machine is not trusted: no event may have its time."""


class Clock:
    """The wall clock of one engine, in nanoseconds since 1970; without a steady one, every time is accepted.

    One that is `judged` by the clock of a database is compared after `confirm`, others after the last event.
    """

    def __init__(self, wall: Callable[[], int], steady: Callable[[], int] | None, *, judged: bool = False) -> None:
        self._wall, self._steady, self._judged = wall, steady, judged
        self._start: int | None = None  # of the machine by the wall clock, the latest one that was accepted
        self._latest = 0  # microseconds; the time of the last event

    def see(self, latest: int) -> None:
        """Take note of the time of the last event of a ledger."""
        self._latest = max(self._latest, latest)

    def now(self) -> int:
        """Return microseconds since 1970 for a reader, to whom a wrong time does no harm."""
        return self._wall() // 1000

    def time_of_event(self) -> int:
        """Return microseconds since 1970; refused after a jump ahead."""
        time, problem = self._read()
        if problem is not None:
            raise WrongClock(problem)
        return time

    @property
    def problem(self) -> str | None:
        """Why no event may be written now."""
        return self._read()[1]

    def accept(self) -> None:
        """Take the present time for the true one; a database has to confirm that."""
        if self._steady is not None:
            self._start = None if self._judged else self._wall() - self._steady()

    def confirm(self) -> None:
        """Begin to compare: the clock of the database shows the same time."""
        if self._judged and self._steady is not None and self._start is None:
            self._start = self._wall() - self._steady()

    def _read(self) -> tuple[int, str | None]:
        wall = self._wall()  # before the steady clock: a pause between the two is no jump ahead
        if self._steady is None:
            return wall // 1000, None
        start = wall - self._steady()
        if self._start is not None and start - self._start > MOST_JUMP:
            minutes = (start - self._start) / 60e9
            return wall // 1000, (
                f"The clock of this machine has jumped {minutes:,.0f} minutes ahead, and the time of an event cannot "
                "be taken back, so nothing is written. Set the clock. If it is right, call engine.accept_clock(), or "
                "start the service again with the option that accepts it."
            )
        if self._start is not None:
            self._start = max(start, self._start)
        elif not self._judged and wall // 1000 >= self._latest:  # one that is behind says nothing about the start
            self._start = start
        return wall // 1000, None

    # what the next process on this machine is told, so that a restart does not accept a clock

    @property
    def record(self) -> str:
        """What was accepted, valid until the machine is started again; empty where that cannot be known."""
        if self._start is None or self._steady is None or not (boot := boot_id()):
            return ""
        return f"{boot} {self._start - self._start % SECOND}"  # the same until the clock is stepped

    def restore(self, record: str) -> None:
        """Continue with what another process has accepted, unless the machine was started again since."""
        boot, _, start = record.partition(" ")
        if boot and boot == boot_id() and start.removeprefix("-").isdecimal():
            self._start = int(start)


def steady_ns() -> int:
    """Return nanoseconds since the start of this machine; where the system can, those of a suspension count."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Return what identifies the time since this machine was started; empty where the system does not say."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
