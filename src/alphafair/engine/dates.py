"""Moments of the log, which are microseconds since 1970 in UTC, as dates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)


def microseconds(date: datetime) -> int:
    """Return the microseconds from 1970 to a date; one without an offset is in UTC.

    >>> microseconds(datetime(1970, 1, 2))
    86400000000
    """
    aware = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return int((aware - EPOCH) // MICROSECOND)


FIRST: Final = microseconds(datetime.min)
LAST: Final = microseconds(datetime.max)


def date_of(at: int) -> datetime:
    """Return the date of a moment; before the year 1 and after the year 9999 the first or last one that there is.

    >>> date_of(86400000000).isoformat(), date_of(10**30).year
    ('1970-01-02T00:00:00+00:00', 9999)
    """
    return EPOCH + min(max(at, FIRST), LAST) * MICROSECOND
