"""Server-sent events: what browsers that watch are told, computed once for all of them.

A `Topic` is all experiments, or one of them. While anybody watches, it is looked at twice per second, but not within a
second after a message. If events were written, or some seconds have passed, one message is made for all watchers. A
watcher that has seen the message before gets what has changed, any other one gets the whole state. So nothing is queued
for slow readers, and a reader that reconnects misses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Final

from alphafair.engine.reports import Overview
from alphafair.errors import InvalidArgument
from alphafair.service.http.errors import Failure, as_failure
from alphafair.service.logs import log
from alphafair.service.page import views
from alphafair.service.page.marks import marks_of_service
from alphafair.service.page.messages import IndexAnswer, IndexItem, event
from alphafair.service.shares import Places

if TYPE_CHECKING:
    from alphafair.service.keys import Caller
    from alphafair.service.service import Service

EVERY: Final = 0.5  # seconds from a look that found nothing to the next one
PACE: Final = 1.0  # seconds from a message to the next look: a browser redraws its page for every message
IDLE: Final = 5.0  # seconds after which the state is sent again although nothing was written: rates and marks change
HEARTBEAT: Final = 10.0  # seconds of silence after which a comment is sent
MAX_WATCHERS: Final = 200  # and one more that only an admin key without limits may be
PER_CALLER: Final = 100
RETRY: Final = b"retry: 1000\n\n"  # milliseconds until a browser reconnects
COMMENT: Final = b": alive\n\n"
ALL: Final = ""  # the topic of all experiments


Maker = Callable[["frozenset[str] | None"], bytes]  # from the experiments that a watcher sees to JSON


class Message:
    """What was found at one look: the whole state, and what has changed since the message before."""

    def __init__(
        self, number: int, position: int, state: Maker, update: Maker | None, overview: Overview | None = None
    ) -> None:
        self.number, self.position, self.overview = number, position, overview
        self._makers = {"state": state, "update": update}
        self._made: dict[tuple[str, frozenset[str] | None], bytes] = {}  # shared by watchers that see the same

    def event(self, kind: str, seen: frozenset[str] | None = None) -> bytes | None:
        """The event for a watcher, made once for all that see the same; None where only the state tells the change."""
        make, key = self._makers[kind], (kind, seen)
        if make is None:
            return None
        if key not in self._made:
            self._made[key] = event(kind, self.position, make(seen))
        return self._made[key]


class Topic:
    """What some browsers watch."""

    def __init__(self, service: Service, name: str) -> None:
        self._service, self.name = service, name
        self.n_watchers = 0
        self.latest: Message | None = None
        self.changed = asyncio.Condition()
        self._last: Overview | None = None
        self._sent_at, self._position = 0.0, -1
        self._task: asyncio.Task[None] | None = None
        self.failure: Failure | None = None

    def begin(self) -> None:
        self.n_watchers += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._look())

    def end(self) -> None:
        self.n_watchers -= 1

    async def close(self) -> None:
        """Stop, and wake all watchers."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        async with self.changed:
            self.changed.notify_all()

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while self.n_watchers:
            pause = EVERY
            try:
                message = await asyncio.to_thread(self._made, loop.time() - self._sent_at >= IDLE)
                self.failure = None
                if message is not None:
                    pause = PACE
                    self._sent_at, self._last = loop.time(), message.overview
                    async with self.changed:
                        self.latest = message
                        self.changed.notify_all()
            except Exception as problem:  # a file that cannot be read now: try again
                before, self.failure = self.failure, as_failure(problem)
                if self.failure.status == 500 and before is None:
                    log(logging.ERROR, "watching failed", exc_info=problem)
            await asyncio.sleep(pause)
        self._task = self.latest = self._last = None

    def _made(self, even_if_unchanged: bool) -> Message | None:
        """Look once: the next message, or None if nothing was written since the last one."""
        engine, latest = self._service.engine, self.latest
        if latest is not None and not even_if_unchanged and not engine.writers.is_shared:
            if engine.position == self._position:
                return None
            self._position = engine.position
        message = self._of_all() if self.name == ALL else self._of_one()
        if latest is not None and not even_if_unchanged and message.position == latest.position:
            return None
        message.event("update")  # in this thread, not in the one that answers requests
        return message

    def _of_all(self) -> Message:
        service = self._service
        answer = index_answer(service)

        def make(seen: frozenset[str] | None) -> bytes:
            return service.encode(visible(answer, seen))

        return Message(self._number(), answer.position, make, make)

    def _of_one(self) -> Message:
        last, encode = self._last, self._service.encode
        found = self._service.reports.overview(self.name)
        update: Maker | None = None
        if last is not None and _continues(last, found):
            new = found._replace(changes=found.changes[len(last.changes) :])
            first = last.summary.bucket

            def update(seen: frozenset[str] | None) -> bytes:
                return encode(views.live_answer(new, first))

        return Message(self._number(), found.position, lambda seen: encode(views.live_answer(found)), update, found)

    def _number(self) -> int:
        return 1 if self.latest is None else self.latest.number + 1


def _continues(last: Overview, found: Overview) -> bool:
    """Whether a new overview only adds to the buckets of an earlier one."""
    one, other = last.summary, found.summary
    return (one.start, one.width, one.n_arms) == (other.start, other.width, other.n_arms)


class Watchers:
    """All topics of one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._topics: dict[str, Topic] = {}
        self.places = Places(MAX_WATCHERS, PER_CALLER, for_admins=1)
        self._closed = False

    def watch(self, name: str, caller: Caller, last_id: str, check: Callable[[], object]) -> AsyncIterator[bytes]:
        """The events of a topic for one caller; `check` raises once the caller may no longer watch.

        `last_id` is the position that a browser had seen before it reconnected.
        """
        if not self.places.has(caller):
            repair = "Close some, or ask for the JSON now and then."
            raise self.places.refusal(caller, "too_many_watchers", "Pages that watch", repair=repair, retry_after=5)
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(self._service, name)
        return self._events(topic, caller, last_id, check)

    async def _events(
        self, topic: Topic, caller: Caller, last_id: str, check: Callable[[], object]
    ) -> AsyncIterator[bytes]:
        if not self.places.take(caller):  # another stream has begun since
            return
        topic.begin()
        try:
            yield RETRY
            seen, first = 0, True
            sees = caller.experiments if topic.name == ALL else None  # of one experiment, all watchers see the same
            while not self._closed:
                message = await self._newer(topic, seen)
                try:
                    check()
                except (Failure, InvalidArgument) as ended:
                    yield event("closed", topic.latest.position if topic.latest else 0, self._answer(ended))
                    return
                if message is None:
                    yield COMMENT
                    continue
                found = None
                if seen and message.number == seen + 1:
                    found = message.event("update", sees)
                if found is None and not (first and last_id == str(message.position)):  # else it has this state
                    found = await asyncio.to_thread(message.event, "state", sees)
                seen, first = message.number, False
                if found is not None:
                    yield found
        finally:
            topic.end()
            self.places.release(caller.id)

    async def _newer(self, topic: Topic, seen: int) -> Message | None:
        """The latest message, once it is not the one that was seen; None after some silence, or at the end."""

        def is_newer() -> bool:
            return self._closed or (topic.latest is not None and topic.latest.number != seen)

        async with topic.changed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(topic.changed.wait_for(is_newer), HEARTBEAT)
        return topic.latest if topic.latest is not None and topic.latest.number != seen else None

    def _answer(self, problem: Exception) -> bytes:
        return self._service.encode(as_failure(problem).answer)

    async def close(self) -> None:
        """End all streams: the service stops, and browsers reconnect when it is back."""
        self._closed = True
        for topic in self._topics.values():
            await topic.close()


def index_answer(service: Service) -> IndexAnswer:
    """All experiments at a glance, whoever asks."""
    engine = service.engine

    def item(name: str) -> IndexItem:
        return views.index_item(service.reports.overview(name, history=False))

    found = service.descriptions.of_all(engine.experiments(), "overview", item)
    health = engine.health(probe=False)
    marks = marks_of_service(service.readiness(), service.measures.commit_seconds, compiled=service.compiled)
    items = [each for each in found.values() if each is not None]
    left_out = [name for name, each in found.items() if each is None]
    return IndexAnswer(time.time(), health["position"], items, marks, left_out)


def visible(answer: IndexAnswer, seen: frozenset[str] | None) -> IndexAnswer:
    """The part of the answer about some experiments; None: all."""
    items = [each for each in answer.items if seen is None or each.name in seen]
    left_out = [name for name in answer.left_out if seen is None or name in seen]
    return IndexAnswer(answer.at, answer.position, items, answer.marks, left_out)
