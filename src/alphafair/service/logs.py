"""The log of the service: one JSON object per line. Of a request it has the path and the request id, no contents."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from typing import Any

LINES_PER_SECOND = 50
LOG = logging.getLogger("alphafair.service")


class JsonLines(logging.Formatter):
    """Time, level, message, and the fields that the caller added."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{at}.{record.msecs:03.0f}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields)


def log(level: int, message: str, *, exc_info: BaseException | None = None, **fields: Any) -> None:
    LOG.log(level, message, exc_info=exc_info, extra={"fields": fields})


class LimitedLines:
    """At most so many lines per second, and one line that counts the others. Needs an event loop."""

    def __init__(self, left_out: Callable[[], None], limit: int = LINES_PER_SECOND) -> None:
        self.limit, self._left_out = limit, left_out
        self._until, self._n, self._n_left_out = 0.0, 0, 0

    def take(self) -> bool:
        """Whether a line may be written now."""
        now = time.monotonic()
        if now >= self._until:
            self._until, self._n = now + 1.0, 0
        self._n += 1
        if self._n <= self.limit:
            return True
        self._left_out()
        self._n_left_out += 1
        if self._n_left_out == 1:
            asyncio.get_running_loop().call_later(1.0, self._report)
        return False

    def _report(self) -> None:
        count, self._n_left_out = self._n_left_out, 0
        log(logging.WARNING, f"more than {self.limit} requests in a second: some are not logged", count=count)


def write_to_standard_error() -> None:
    """Set up logging for `alphafair serve`; a service inside another program uses that program's settings."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for logger in (LOG, logging.getLogger("alphafair.engine"), logging.getLogger("asyncio")):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
