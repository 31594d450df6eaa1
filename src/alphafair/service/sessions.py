"""Sessions of the page: a browser that has signed in with a key holds a signed cookie, never the key.

A cookie is `<id of the key>.<epoch>.<time of its end>.<random>.<signature>`. The signature is an HMAC under the key's
stored hash and the secret of the process, or of all that serve a database, so each of them can check it, and no session
is stored. A session ends after four hours, and with its key: a revoked or expired key signs nothing. Signing out raises
the epoch in the key's row, and cookies of older epochs are refused: by every process, once it has read the keys again,
and in every browser that has signed in with the key. A cookie of a later epoch than the one that was read is taken:
another process has read the newer one.

The cookie is not readable by scripts and not sent by pages of other sites; requests that change something must also
send the session's `csrf`, another HMAC, as a header, which another site cannot read.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

COOKIE: Final = "alphafair_session"
CSRF_HEADER: Final = b"x-alphafair-csrf"
LIFETIME: Final = 4 * 3600.0  # seconds
SAFE_METHODS: Final = ("GET", "HEAD", "OPTIONS")
_TOKEN = re.compile(
    r"(?P<signed>(?P<key_id>[0-9a-f]{8})\.(?P<epoch>[0-9]{1,12})\.(?P<end>[0-9]{1,12})\.[\w-]{22})"
    r"\.(?P<signature>[0-9a-f]{64})",
    re.A,
)


class Session(NamedTuple):
    """A browser that has signed in."""

    key_id: str
    epoch: int  # of the key, when the browser signed in
    csrf: str
    expires_at: float  # seconds since 1970


class Signer(Protocol):
    """The keys under which cookies are signed; None where a key is not valid."""

    def epoch(self, id: str) -> int | None:
        """Return how often the browsers of a key were signed out."""
        ...

    def sign(self, id: str, message: str) -> str | None:
        """Return the HMAC of a message under a key."""
        ...


class Sessions:
    """The sessions of one service."""

    def __init__(self, keys: Signer, clock: Callable[[], float] = time.time) -> None:
        self._keys, self._clock = keys, clock

    def begin(self, key_id: str) -> str:
        """Return the token of a new session."""
        signed = f"{key_id}.{self._keys.epoch(key_id)}.{int(self._clock() + LIFETIME)}.{secrets.token_urlsafe(16)}"
        return f"{signed}.{self._keys.sign(key_id, f'session {signed}')}"

    def find(self, token: str) -> Session | None:
        """Return the session of a token; None if it is forged, over, signed out, or of a key that is not valid."""
        parts = _TOKEN.fullmatch(token)
        if parts is None or int(parts["end"]) <= self._clock():
            return None
        key_id, signed = parts["key_id"], parts["signed"]
        epoch = self._keys.epoch(key_id)
        signature, csrf = self._keys.sign(key_id, f"session {signed}"), self._keys.sign(key_id, f"csrf {signed}")
        if epoch is None or signature is None or csrf is None or int(parts["epoch"]) < epoch:
            return None
        if not hmac.compare_digest(signature, parts["signature"]):
            return None
        return Session(key_id, int(parts["epoch"]), csrf, float(parts["end"]))


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
