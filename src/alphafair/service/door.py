"""The door of the service: who comes in, and how often.

Without any key the service is for this machine alone, and asks that requests are meant for it: a page in a browser can
send requests to this machine too, under a foreign `Origin`, or under a foreign `Host` that was made to point here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from alphafair.service.errors import failure
from alphafair.service.keys import ROLES, Keyring

ANYBODY, READ, WRITE, ADMIN = range(-1, len(ROLES))  # what a route needs: nothing, or a role of at least this rank
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
MAKE_A_KEY = "Make a key with `alphafair keys create` and send it as `Authorization: Bearer ...`."
MOST_CALLERS = 10_000


class Door:
    """Lets a request in, or raises the failure it gets."""

    def __init__(
        self, keyring: Keyring, *, rate: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.keyring, self.rate, self._clock = keyring, rate, clock
        self._due: dict[str, float] = {}

    def admit(self, scope: Mapping[str, Any], headers: Mapping[bytes, bytes], needed: int) -> bool:
        """Whether the caller is known, which matters to pages for anybody."""
        if self.keyring.any_made:
            scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            found = self.keyring.find(token.strip()) if scheme.lower() == "bearer" else None
            if found is None:
                if needed == ANYBODY:
                    return False
                raise failure(401, "unauthorized", "This needs a key.", repair=MAKE_A_KEY, www_authenticate="Bearer")
            caller, rank = found
            if rank < needed:
                message = f"This needs a key of the role {ROLES[needed]!r}; yours has {ROLES[rank]!r}."
                raise failure(403, "forbidden", message, repair="Ask whoever runs the service for another key.")
        else:
            _check_that_this_machine_is_meant(headers.get(b"host", b"localhost"), headers.get(b"origin"))
            caller = scope["client"][0] if scope.get("client") else ""
        if self.rate is not None:
            self._count(caller, self.rate)
        return True

    def _count(self, caller: str, rate: float) -> None:
        """So many requests per second, and up to two seconds' worth at once."""
        now = self._clock()
        due = max(self._due.get(caller, 0.0), now)
        if due - now > 2.0:
            message = f"More than {rate:g} requests per second."
            raise failure(429, "too_many_requests", message, repair="Send fewer, or batches.", retry_after="1")
        self._due[caller] = due + 1.0 / rate
        if len(self._due) > MOST_CALLERS:
            self._due = {each: then for each, then in self._due.items() if then > now}


@lru_cache(1024)
def _check_that_this_machine_is_meant(host: bytes, origin: bytes | None) -> None:
    name, _, port = host.rpartition(b":")
    if (name if port.isdigit() else host).decode("latin-1") not in LOCAL_NAMES:
        message = f"Without keys only requests to {', '.join(LOCAL_NAMES)} are answered."
        raise failure(403, "foreign_host", message, repair=MAKE_A_KEY)
    if origin is not None and origin.partition(b"://")[2] != host:
        raise failure(403, "foreign_origin", "A page from elsewhere may not send requests here.", repair=MAKE_A_KEY)
