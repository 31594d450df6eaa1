"""Access control: which key may send which request, and how often.

A request has its key in `Authorization`, or is made by a browser that has signed in with one: see `sessions`.

Without keys the service is for this machine only. Web pages can send requests to this machine too, so a request with
a foreign `Origin`, a foreign `Host` (DNS rebinding) or, for links and images, a foreign `Sec-Fetch-Site` is rejected.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache

from alphafair.service.http.errors import failure
from alphafair.service.keys import LOCAL, Caller, Keyring, roles_with
from alphafair.service.sessions import SAFE_METHODS, Sessions, may_change, token_of
from alphafair_client.api import Role

GET_ANOTHER_KEY = "Ask the operator of the service for another key."
CREATE_A_KEY = "Create a key with `alphafair keys create` and send it as `Authorization: Bearer ...`."
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
BURST = 2.0  # seconds' worth of requests and items that may come at once
MAX_CALLERS = 10_000


class Access:
    """Keys, roles and rates of one service."""

    def __init__(
        self, keyring: Keyring, *, rate: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.keyring, self.sessions, self.rate, self._clock = keyring, Sessions(keyring), rate, clock
        self._next_due: dict[str, float] = {}  # by caller

    def admit(
        self,
        headers: Mapping[bytes, bytes],
        address: str,
        role: Role | None,
        experiment: str | None = None,
        method: str = "GET",
        *,
        counted: bool = True,
    ) -> Caller | None:
        """Return the caller of a request, or raise the failure that it gets.

        `role` is what the route needs. If it is None, the route is open to everybody: a caller without a key is None.
        A request that is not `counted` does not count for the caller's rate.
        """
        if self.keyring.any_created:
            caller = self._owner(headers, role, method)
            if caller is None:
                if role is None:
                    return None
                given = b"authorization" in headers
                message = "The key is unknown, expired or revoked." if given else "This request needs a key."
                raise failure(401, "unauthorized", message, repair=CREATE_A_KEY, www_authenticate="Bearer")
            if role is not None and not caller.may(role):
                able = " or ".join(map(repr, roles_with(role)))
                message = f"This request needs a key with the role {able}; this key has the role {caller.role!r}."
                raise failure(403, "forbidden", message, repair=GET_ANOTHER_KEY)
            if experiment is not None:
                check_sees(caller, experiment)
        else:
            _check_local(headers.get(b"host", b""), headers.get(b"origin"), headers.get(b"sec-fetch-site"))
            caller = Caller(address, LOCAL, "admin")
        if self.rate is not None and counted:
            self.count(caller.id)
        return caller

    def _owner(self, headers: Mapping[bytes, bytes], role: Role | None, method: str) -> Caller | None:
        """Return the owner of the key, or of the session, that a request has."""
        if b"authorization" in headers or b"cookie" not in headers:
            return self._owner_of_key(headers)
        session = self.sessions.find(token_of(headers))
        if session is None:
            return None
        if method not in SAFE_METHODS and not may_change(session, headers):
            if role is None:
                return None
            message = "The request has the cookie of a session, but was not made by the page of this service."
            repair = "Send the header X-Alphafair-CSRF of /session.json, or a key as `Authorization: Bearer ...`."
            raise failure(403, "cross_site", message, repair=repair)
        self._check_up_to_date()
        return self.keyring.caller(session.key_id)

    def _owner_of_key(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        caller = self.keyring.find(token.strip()) if scheme.lower() == "bearer" else None
        if caller is not None:
            self._check_up_to_date()
        return caller

    def _check_up_to_date(self) -> None:
        if not self.keyring.up_to_date:
            message = "The keys cannot be read from the database, so no key is accepted."
            raise failure(503, "keys_unreadable", message, repair="Send the request again later.", retry_after="1")

    def count(self, caller: str, n: int = 1, *, already: int = 0) -> None:
        """Count n requests or items of a caller, of which some were counted already; 429 while it is ahead of its rate.

        What is larger than the rate is accepted whole, and the caller has to wait for as long as it is worth.
        """
        if self.rate is None:
            return
        now = self._clock()
        due = max(self._next_due.get(caller, 0.0) - already / self.rate, now)
        if due - now > BURST:
            message = f"More than {self.rate:g} requests and items of batches per second."
            wait = str(math.ceil(due - now - BURST))
            raise failure(429, "too_many_requests", message, repair="Send fewer.", retry_after=wait)
        self._next_due[caller] = due + n / self.rate
        if len(self._next_due) > MAX_CALLERS:
            self._next_due = {each: then for each, then in self._next_due.items() if then > now}


def check_sees(caller: Caller, experiment: str) -> None:
    """Reject a key that is limited to other experiments, without telling whether this one exists."""
    if not caller.sees(experiment):
        allowed = ", ".join(sorted(caller.experiments or ()))
        raise failure(403, "forbidden", f"This key is limited to {allowed}.", repair=GET_ANOTHER_KEY)


def check_unlimited(caller: Caller, action: str) -> None:
    """Reject a key that is limited to some experiments."""
    if caller.experiments is not None:
        message = f"A key that is limited to some experiments cannot {action}."
        raise failure(403, "forbidden", message, repair=GET_ANOTHER_KEY)


@lru_cache(1024)
def _check_local(host: bytes, origin: bytes | None, site: bytes | None) -> None:
    name, _, port = host.rpartition(b":")
    if (name if port.isdigit() else host).decode("latin-1") not in LOCAL_NAMES:
        message = f"Without keys, only requests to {', '.join(LOCAL_NAMES)} are answered."
        raise failure(403, "foreign_host", message, repair=CREATE_A_KEY)
    foreign = origin is not None and origin.partition(b"://")[2] != host
    if foreign or site not in (None, b"same-origin", b"none"):
        message = "Web pages of another origin cannot send requests here."
        raise failure(403, "foreign_origin", message, repair=CREATE_A_KEY)
