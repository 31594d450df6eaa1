"""Sessions of the page: a browser that has signed in with a key holds a signed cookie, never the key.

A cookie is `<id of the key>.<time of its end>.<random>.<signature>`. The signature is an HMAC under the key's stored
hash and the secret of the process, or of all that serve a database, so each of them can check it, and nothing is
stored. A session ends after four hours, and with its key: a revoked or expired key signs nothing. A cookie that was
signed out is refused by the process that did so, for as long as it runs; elsewhere a copy of it would be accepted until
its end.

The cookie is not readable by scripts and not sent by pages of other sites; requests that change something must also
send the session's `csrf`, another HMAC, as a header, which another site cannot read.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

COOKIE: Final = "alphafair_session"
CSRF_HEADER: Final = b"x-alphafair-csrf"
LIFETIME: Final = 4 * 3600.0  # seconds
MOST_ENDED: Final = 10_000  # sessions that were signed out; of more, the oldest are forgotten
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_TOKEN = re.compile(
    r"(?P<signed>(?P<key_id>[0-9a-f]{8})\.(?P<end>[0-9]{1,12})\.[\w-]{22})\.(?P<signature>[0-9a-f]{64})", re.A
)


class Session(NamedTuple):
    """A browser that has signed in."""

    key_id: str
    csrf: str
    expires_at: float  # seconds since 1970


class Sessions:
    """The sessions of one service. `sign(key_id, message)` is the HMAC of a message under a valid key; else None."""

    def __init__(self, sign: Callable[[str, str], str | None], clock: Callable[[], float] = time.time) -> None:
        self._sign, self._clock = sign, clock
        self._ended: dict[str, float] = {}  # by token, the time when it would have expired

    def begin(self, key_id: str) -> str:
        """Return the token of a new session."""
        signed = f"{key_id}.{int(self._clock() + LIFETIME)}.{secrets.token_urlsafe(16)}"
        return f"{signed}.{self._sign(key_id, f'session {signed}')}"

    def find(self, token: str) -> Session | None:
        """Return the session of a token; None if it is forged, over, or of a key that is not valid."""
        parts = _TOKEN.fullmatch(token)
        if parts is None or token in self._ended or int(parts["end"]) <= self._clock():
            return None
        key_id, signed = parts["key_id"], parts["signed"]
        signature, csrf = self._sign(key_id, f"session {signed}"), self._sign(key_id, f"csrf {signed}")
        if signature is None or csrf is None or not hmac.compare_digest(signature, parts["signature"]):
            return None
        return Session(key_id, csrf, float(parts["end"]))

    def end(self, token: str) -> None:
        """Refuse a token from now on."""
        session = self.find(token)
        if session is None:
            return
        if len(self._ended) >= MOST_ENDED:
            now = self._clock()
            live = [(each, end) for each, end in self._ended.items() if end > now]
            self._ended = dict(live[len(live) // 2 :])
        self._ended[token] = session.expires_at


def token_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the token in the cookie of a request; empty without one."""
    for each in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def cookie(token: str, root_path: str, *, secure: bool, lifetime: float = LIFETIME) -> bytes:
    """Return the value of the header that sets the cookie; with a lifetime of 0 it is removed."""
    parts = [f"{COOKIE}={token}", f"Path={root_path or '/'}", f"Max-Age={lifetime:.0f}", "HttpOnly", "SameSite=Strict"]
    return "; ".join([*parts, *(["Secure"] if secure else [])]).encode("latin-1")


def is_secure(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the browser has reached the service over TLS, which a proxy in front of it ends."""
    return headers.get(b"x-forwarded-proto", b"") == b"https" or headers.get(b"origin", b"").startswith(b"https://")


def is_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request was not made by a page of another origin, as far as its headers tell."""
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site in (b"same-origin", b"none")
    return origin is None or origin.partition(b"://")[2] in (headers.get(b"host"), headers.get(b"x-forwarded-host"))


def may_change(session: Session, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request that changes something, made with a cookie, comes from the page itself."""
    return is_own_page(headers) and hmac.compare_digest(headers.get(CSRF_HEADER, b""), session.csrf.encode())
