"""The open connections: how many there may be, and how long each may take for what it is doing.

No request sets a timer: all connections are looked at several times in the shortest of these times, and one that is
found doing the same without progress since a time-out ago is closed. When there are too many, a new one takes the
place of the one that has been waited for longest; where none has, it is refused.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from alphafair.errors import InvalidArgument

Stage = Literal["head", "body", "answer", "idle", "refused"]

MOST_CONNECTIONS = 1000
REFUSED_CONNECTIONS = 32  # beyond that many, on their way out: those above are closed without an answer
OTHER_FILES = 64  # that the process has open: the database, listening sockets, exports
SWEEP = 1.0  # seconds between two looks, at most
STALLED = 1.0  # seconds without progress after which a connection may have to go for another


class Timeouts(NamedTuple):
    """Seconds that a client may take."""

    head: float = 10.0  # to send all headers, from their first byte, or from the start of the connection
    body: float = 30.0  # to send a body, or 64 KB of it
    answer: float = 30.0  # to read an answer, or 48 KB of it
    idle: float = 5.0  # between an answer and the next request
    refused: float = 2.0  # to read why it was refused


REASONS = ("too_many", "replaced", *(f"{stage}_timeout" for stage in Timeouts._fields))  # to close a connection


class Connection(Protocol):
    """What is asked of a connection."""

    watched: tuple[object, float]  # its progress when it was last looked at, and since when it is that

    def progress(self) -> tuple[Stage | None, int, int, int]: ...
    def time_out(self, stage: Stage) -> None: ...
    def make_place(self) -> None: ...


class Connections:
    """All of one service, on its event loop."""

    def __init__(self, most: int, timeouts: Timeouts, closed: Callable[[str], None]) -> None:
        self.most, self.timeouts, self._closed = most, timeouts, closed
        self.open: set[Connection] = set()
        self.n_refused = 0  # of them, on their way out
        self._stalled: list[Connection] = []  # found by the last look, the longest last
        self._sweep_every = min(SWEEP, min(timeouts) / 4)
        self._sweeping = False

    def add(self, connection: Connection) -> Literal["taken", "refused", "dropped"]:
        """Take on a connection, if there is a place for it or one can be made."""
        self.open.add(connection)
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(self._sweep_every, self._sweep)
        if len(self.open) - self.n_refused <= self.most or self._make_place():
            return "taken"
        self._closed("too_many")
        return "refused" if self.n_refused < REFUSED_CONNECTIONS else "dropped"

    def discard(self, connection: Connection, *, refused: bool) -> None:
        """Forget one that is closed."""
        self.open.discard(connection)
        self.n_refused -= refused

    def _make_place(self) -> bool:
        while self._stalled:
            connection = self._stalled.pop()
            if connection in self.open and connection.progress() == connection.watched[0]:
                self._closed("replaced")
                connection.make_place()
                return True
        return False

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now, stalled = loop.time(), list[tuple[float, Connection]]()
        for connection in list(self.open):
            progress, (before, since) = connection.progress(), connection.watched
            stage = progress[0]
            if progress != before:
                connection.watched = (progress, now)
            elif stage is not None and now - since >= getattr(self.timeouts, stage):
                self._closed(f"{stage}_timeout")
                connection.time_out(stage)
            elif stage is not None and stage != "refused" and now - since >= STALLED:
                stalled.append((since, connection))
        stalled.sort(key=lambda each: -each[0])
        self._stalled = [connection for _, connection in stalled]
        self._sweeping = bool(self.open)
        if self._sweeping:
            loop.call_later(self._sweep_every, self._sweep)


def room_for(most: int | None) -> int:
    """How many connections there can be under the limit on open files, which is raised where that is allowed.

    More than that, and the database could not be opened any more: a number that was asked for is refused.
    """
    wanted = (most or MOST_CONNECTIONS) + REFUSED_CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = wanted - REFUSED_CONNECTIONS - OTHER_FILES
    if soft != resource.RLIM_INFINITY:
        room = min(room, soft - REFUSED_CONNECTIONS - OTHER_FILES)
    if room < (most or 1):
        allowed = f"at most {room}: {soft} files may be open, and {soft - room} are needed for others"
        raise InvalidArgument("--max-connections", allowed, most, "Raise the limit (ulimit -n), or ask for fewer.")
    return room
