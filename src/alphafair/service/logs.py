"""One JSON object per line on standard error. Nothing that a client sends but its path and request id gets here."""

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
    """Time, level, what happened, and whatever fields the caller added."""

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
    """So many lines per second that a client can cause, and one for all that are left out. Needs an event loop."""

    def __init__(self, left_out: Callable[[], None], most: int = LINES_PER_SECOND) -> None:
        self.most, self._left_out = most, left_out
        self._until, self._n, self._n_left_out = 0.0, 0, 0

    def take(self) -> bool:
        """Whether a line may be written now."""
        now = time.monotonic()
        if now >= self._until:
            self._until, self._n = now + 1.0, 0
        self._n += 1
        if self._n <= self.most:
            return True
        self._left_out()
        self._n_left_out += 1
        if self._n_left_out == 1:
            asyncio.get_running_loop().call_later(1.0, self._tell)
        return False

    def _tell(self) -> None:
        count, self._n_left_out = self._n_left_out, 0
        log(logging.WARNING, f"more than {self.most} requests in a second: some are not logged", count=count)


def write_to_standard_error() -> None:
    """For the program; a service inside another program is logged by that one's own settings."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for logger in (LOG, logging.getLogger("alphafair.engine"), logging.getLogger("uvicorn")):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
