"""Lines of the log about requests: path, status, key and request id, no contents. Their number per second is limited.

Requests of admitted callers, other requests and internal errors have limits of their own, so that nobody without a key
can push the lines of others out. Changes and downloads that were, or may have been, carried out always have a line.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from alphafair.errors import Uncertain
from alphafair.service.http.exchange import Request
from alphafair.service.keys import Caller
from alphafair.service.logs import log
from alphafair.service.sessions import SAFE_METHODS
from alphafair.service.shares import Places
from alphafair.service.tracing import trace_id
from alphafair_client.api import Endpoint

LINES_PER_SECOND: Final = 50
NOT_ADMITTED: Final = Caller("", "", "metrics")  # stands for callers that were not admitted


class LimitedLines:
    """At most so many lines per second, and one line that counts the others. Needs an event loop."""

    def __init__(self, what: str, left_out: Callable[[], None], per_caller: int = LINES_PER_SECOND) -> None:
        self._what, self._left_out, self._per_caller = what, left_out, per_caller
        self._until, self._places = 0.0, Places(LINES_PER_SECOND, per_caller)
        self._statuses: Counter[int] = Counter()  # of requests that were left out

    def take(self, caller: Caller, status: int) -> bool:
        """Whether a line about a request may be written now."""
        now = time.monotonic()
        if now >= self._until:
            self._until, self._places = now + 1.0, Places(LINES_PER_SECOND, self._per_caller)
        if self._places.take(caller):
            return True
        self._left_out()
        if not self._statuses:
            asyncio.get_running_loop().call_later(1.0, self._report)
        self._statuses[status] += 1
        return False

    @property
    def n_left_out(self) -> int:
        """How many requests the next line that counts them will have."""
        return self._statuses.total()

    def _report(self) -> None:
        statuses, self._statuses = self._statuses, Counter()
        counts = {str(status): count for status, count in sorted(statuses.items())}
        message = f"too many lines about {self._what} in a second: some requests are not logged"
        log(logging.WARNING, message, count=statuses.total(), statuses=counts)


def has_line(endpoint: Endpoint) -> bool:
    """Whether every success has a line, however many lines there are: changes and downloads."""
    acts = endpoint.method not in SAFE_METHODS or endpoint.answer == "application/octet-stream"
    return acts and endpoint.role is not None and not endpoint.busy


class RequestLog:
    """The lines about requests of one service."""

    def __init__(self, left_out: Callable[[], None], *, log_all: bool) -> None:
        self._log_all = log_all
        self._of_callers = LimitedLines("requests with a key", left_out, LINES_PER_SECOND // 2)
        self._of_others = LimitedLines("requests that were not admitted", left_out)
        self._of_faults = LimitedLines("internal errors", left_out, LINES_PER_SECOND // 2)

    @property
    def n_left_out(self) -> int:
        """How many requests have no line and are not counted by one yet."""
        return sum(lines.n_left_out for lines in (self._of_callers, self._of_others, self._of_faults))

    def write(self, request: Request, status: int, seconds: float) -> None:
        """Log a request that was answered, if it failed, is not of a busy endpoint, or all are logged."""
        endpoint, caller, succeeded = request.endpoint, request.caller, request.problem is None
        if endpoint is not None and endpoint.busy and succeeded and not self._log_all:
            return
        always = succeeded and self._log_all
        may_have_done = status < 400 or isinstance(request.problem, Uncertain)
        always |= caller is not None and may_have_done and endpoint is not None and has_line(endpoint)
        lines = self._of_faults if status == 500 else self._of_others if caller is None else self._of_callers
        if not always and not lines.take(caller or NOT_ADMITTED, status):
            return
        fields: dict[str, Any] = {"method": request.method, "path": request.path[:200], "status": status}
        if caller is not None:
            fields["key"] = caller.recorded_as
        if (trace := trace_id(request)) is not None:
            fields["trace_id"] = trace
        level = logging.ERROR if status == 500 else logging.WARNING if status > 500 else logging.INFO
        exc_info = request.problem if status == 500 else None  # tracebacks are in the log and nowhere else
        fields |= {"seconds": round(seconds, 6), "request_id": request.id.decode()}
        log(level, "request", exc_info=exc_info, **fields)
