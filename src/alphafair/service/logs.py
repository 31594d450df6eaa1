"""The log of the service: one JSON object per line. Lines about requests: `request_log`."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

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


def write_to_standard_error() -> None:
    """Set up logging for `alphafair serve`; a service inside another program uses that program's settings."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for logger in (LOG, logging.getLogger("alphafair.engine"), logging.getLogger("asyncio")):
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
