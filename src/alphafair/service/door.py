"""The door of the service: who comes in, and how often.

Without any key the service is for this machine alone, and asks that requests are meant for it: a page in a browser can
send requests to this machine too, under a foreign `Origin`, or under a foreign `Host` that was made to point here.
Its links and pictures have no `Origin`: browsers say with `Sec-Fetch-Site` where they come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from alphafair.service.errors import failure
from alphafair.service.keys import ROLES, Caller, Keyring, Permission

ASK_FOR_ANOTHER = "Ask whoever runs the service for another key."
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
MAKE_A_KEY = "Make a key with `alphafair keys create` and send it as `Authorization: Bearer ...`."
MOST_CALLERS = 10_000
LOCAL = "anybody on this machine"
current_caller: ContextVar[Caller] = ContextVar("current_caller")  # of the request that is being answered


class Door:
    """Lets a request in, or raises the failure it gets."""

    def __init__(
        self, keyring: Keyring, *, rate: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.keyring, self.rate, self._clock = keyring, rate, clock
        self._due: dict[str, float] = {}

    def admit(
        self,
        scope: Mapping[str, Any],
        headers: Mapping[bytes, bytes],
        needed: Permission | None,
        experiment: str | None = None,
    ) -> bool:
        """Whether the caller is known, which matters to pages for anybody (`needed` is None)."""
        if self.keyring.any_made:
            caller = self._owner(headers)
            if caller is None:
                if needed is None:
                    return False
                raise failure(401, "unauthorized", "This needs a key.", repair=MAKE_A_KEY, www_authenticate="Bearer")
            if needed is not None and not caller.may(needed):
                able = " or ".join(repr(role) for role, may in ROLES.items() if needed in may)
                message = f"This needs a key of the role {able}; yours has {caller.role!r}."
                raise failure(403, "forbidden", message, repair=ASK_FOR_ANOTHER)
            if experiment is not None:
                check_sees(caller, experiment)
        else:
            host, origin = headers.get(b"host", b"localhost"), headers.get(b"origin")
            _check_that_this_machine_is_meant(host, origin, headers.get(b"sec-fetch-site"))
            caller = Caller(scope["client"][0] if scope.get("client") else "", LOCAL, "admin")
        if self.rate is not None:
            self._count(caller.id, self.rate)
        current_caller.set(caller)
        return True

    def _owner(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        caller = self.keyring.find(token.strip()) if scheme.lower() == "bearer" else None
        if caller is not None and not self.keyring.up_to_date:
            message = "Keys cannot be read from the database, so none is accepted."
            raise failure(503, "keys_unreadable", message, repair="Send it again later.", retry_after="1")
        return caller

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


def check_sees(caller: Caller, experiment: str) -> None:
    """Refuse a key that is limited to other experiments; whether this one exists is not said."""
    if not caller.sees(experiment):
        allowed = ", ".join(sorted(caller.experiments or ()))
        raise failure(403, "forbidden", f"This key is limited to {allowed}.", repair=ASK_FOR_ANOTHER)


def actor() -> str:
    """How a change of the request that is being answered is recorded."""
    caller = current_caller.get()
    return LOCAL if caller.name == LOCAL else f"{caller.name} ({caller.id})"


@lru_cache(1024)
def _check_that_this_machine_is_meant(host: bytes, origin: bytes | None, site: bytes | None) -> None:
    name, _, port = host.rpartition(b":")
    if (name if port.isdigit() else host).decode("latin-1") not in LOCAL_NAMES:
        message = f"Without keys only requests to {', '.join(LOCAL_NAMES)} are answered."
        raise failure(403, "foreign_host", message, repair=MAKE_A_KEY)
    foreign = origin is not None and origin.partition(b"://")[2] != host
    if foreign or site not in (None, b"same-origin", b"none"):
        raise failure(403, "foreign_origin", "A page from elsewhere may not send requests here.", repair=MAKE_A_KEY)
