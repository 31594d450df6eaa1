"""Sessions of the page: a browser that has signed in with a key holds a random token in a cookie, never the key.

The table is in memory and maps the hash of a token to the id of the key. A session ends with its key, after twelve
hours, or when the service stops. The cookie is not readable by scripts and not sent by pages of other sites; requests
that change something must also send the session's `csrf` as a header, which another site cannot read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

COOKIE: Final = "alphafair_session"
CSRF_HEADER: Final = b"x-alphafair-csrf"
LIFETIME: Final = 12 * 3600.0  # seconds
MOST: Final = 10_000  # sessions; of more, the older half is ended
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")


class Session(NamedTuple):
    """A browser that has signed in."""

    key_id: str
    csrf: str
    expires_at: float  # seconds since 1970


class Sessions:
    """All sessions of one service."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}  # by the hash of their token, the oldest first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, key_id: str) -> tuple[str, Session]:
        """Return a new token and its session."""
        now = self._clock()
        if len(self._sessions) >= MOST:
            live = [(hashed, session) for hashed, session in self._sessions.items() if session.expires_at > now]
            self._sessions = dict(live[len(live) // 2 :])
        token = secrets.token_urlsafe(32)
        session = Session(key_id, secrets.token_urlsafe(32), now + LIFETIME)
        self._sessions[_hash(token)] = session
        return token, session

    def find(self, headers: Mapping[bytes, bytes]) -> Session | None:
        """Return the session that the cookie of a request belongs to."""
        token = token_of(headers)
        session = self._sessions.get(_hash(token)) if token else None
        return session if session is not None and session.expires_at > self._clock() else None

    def end(self, headers: Mapping[bytes, bytes]) -> None:
        """End the session of a request."""
        self._sessions.pop(_hash(token_of(headers)), None)


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


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("latin-1")).digest()
