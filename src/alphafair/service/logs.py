"""One JSON object per line on standard error. Nothing that a client sends but its path and request id gets here."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

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


def write_to_standard_error() -> None:
    """For the program; a service inside another program is logged by that one's own settings."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for logger in (LOG, logging.getLogger("alphafair.engine"), logging.getLogger("uvicorn")):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
