"""What was erased leaves no copy in the file.

Rows are overwritten by the erasure itself. But where SQLite has rearranged a page, copies of labels and ids may be left
in its unused part, which only writing the whole file anew removes. A small file is written anew at once, so long as
nobody reads it; a large one, which would hold up requests for too long, when it is next opened for writing. Until then
the erasure is noted in the file.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final

from alphafair.engine.ledger import Ledger, Update
from alphafair.errors import Unavailable

AT_ONCE: Final = 1 << 25  # bytes of a file that is written anew between two requests
PAUSE: Final = 60.0  # seconds until the next attempt, if somebody was reading or the disk was full
NOTE: Final[Update] = ("insert into erasure select last from position", [()])  # with the change that erases


class Erasures:
    """Those of a file after which it must still be written anew."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._not_before = 0.0
        if not ledger.read_only and self.n_pending:
            self._clean()

    @property
    def n_pending(self) -> int:
        """Erasures whose old bytes may still be in the file."""
        ((count,),) = self._ledger.rows("select count(*) from erasure")
        return int(count)

    def clean(self, *, again: bool = False) -> None:
        """Write a small file anew, if that is due; `again`, if the last attempt was long ago."""
        due = not again or time.monotonic() >= self._not_before
        if not due or not self.n_pending:
            return
        self._not_before = time.monotonic() + PAUSE
        if self._ledger.n_bytes <= AT_ONCE:
            self._clean()
        else:
            self._ledger.empty_log()

    def _clean(self) -> None:
        if self._ledger.rewrite():
            with contextlib.suppress(Unavailable):  # then it stays noted
                self._ledger.update([("delete from erasure", [()])])
