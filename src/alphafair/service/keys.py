"""Keys of the service: role, experiments and expiry of each. The database stores their hashes, never the keys.

A key is `af_<id>_<secret>`. The id finds the row, and the SHA-256 of the secret is compared in constant time. The
secret has 256 random bits, so a slow password hash would add nothing but delay.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeVar

from alphafair import validate
from alphafair.engine import RequestError, Unavailable, Uncertain
from alphafair.engine.addresses import Address, is_url, keys_of, shown
from alphafair.engine.store.ledger import KeyRow, KeyTable
from alphafair.errors import InvalidArgument
from alphafair.service.logs import log
from alphafair_client.api import Role

Result = TypeVar("Result")


class RoleRow(NamedTuple):
    """A role: what it includes, what a key of it may do, and who has such a key."""

    includes: frozenset[Role]
    may: str
    who: str


ROLES: Final[dict[str, RoleRow]] = {
    "metrics": RoleRow(frozenset(("metrics",)), "read `/metrics`, which has counts and no labels", "monitoring"),
    "read": RoleRow(frozenset(("metrics", "read")), "see the state and history of experiments", "a dashboard"),
    "write": RoleRow(frozenset(("metrics", "read", "write")), "read, and decide, reward, activate", "the shop"),
    "log": RoleRow(
        frozenset(("metrics", "read", "log")),
        "read, and see contexts and decisions, whose labels may be personal, and download logs",
        "an analyst",
    ),
    "admin": RoleRow(frozenset(("metrics", "read", "write", "log", "admin")), "everything", "operations"),
}


def roles_with(role: Role) -> list[str]:
    """The roles that include a role."""
    return [name for name, row in ROLES.items() if role in row.includes]


LOCAL = "anybody on this machine"  # the caller's name while there are no keys
SESSION_SECRET = "ALPHAFAIR_SESSION_SECRET"  # noqa: S105 - the name of a variable
STALE = 5.0  # seconds after which keys that could not be read again are rejected


class Key(NamedTuple):
    """A key without its secret. Times are microseconds since 1970."""

    id: str
    name: str
    role: str
    experiments: tuple[str, ...] | None  # None: all
    hash: bytes
    created_at: int
    created_by: str | None
    expires_at: int | None
    revoked_at: int | None
    revoked_by: str | None
    epoch: int  # how often its browsers were signed out

    def valid_at(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Caller(NamedTuple):
    """The sender of a request: a valid key, or anybody on this machine while there are no keys."""

    id: str
    name: str
    role: str
    experiments: frozenset[str] | None = None  # None: all

    def may(self, role: Role) -> bool:
        return role in ROLES[self.role].includes

    def sees(self, experiment: str) -> bool:
        return self.experiments is None or experiment in self.experiments

    @property
    def is_operator(self) -> bool:
        """Whether this is an admin key without limits: a place is kept for such a key."""
        return self.role == "admin" and self.experiments is None

    @property
    def recorded_as(self) -> str:
        """The author of this caller's changes, as `Engine.history` shows it."""
        return LOCAL if self.name == LOCAL else f"{self.name} ({self.id})"


def create(
    address: Address,
    role: str,
    name: str,
    *,
    experiments: Sequence[str] | None = None,
    expires_in: float | None = None,
    by: str | None = None,
) -> str:
    """Create a key and return it; only its hash is stored.

    It can be limited to some experiments and to `expires_in` seconds. `by` is recorded as its creator.
    """
    validate.choice("role", role, ROLES)
    if not isinstance(name, str) or not 1 <= len(name) <= 100 or not name.isprintable() or name == LOCAL:
        allowed = f"1 to 100 printable characters, and not {LOCAL!r}"
        raise InvalidArgument("name", allowed, name, "Pass the name of the key's owner.")
    if experiments is not None:
        experiments = validate.labels("experiments", experiments, 1)
    row, token = _made(role, name, experiments, _later(expires_in), by)
    with _opened(address) as table:
        table.add(row)
    return token


def rotate(address: Address, id: str, *, grace: float = 0.0, by: str | None = None) -> str:
    """Replace a key by a new one of the same name, role and limits; the old key stays valid for `grace` seconds."""
    grace = validate.number("grace", grace, low=0.0, high=1e9)
    with _opened(address) as table:
        key = _find(table, id)
        if not key.valid_at(_now()):
            raise InvalidArgument("id", "the id of a valid key", id, "Create a new key.")
        lifetime = None if key.expires_at is None else (key.expires_at - key.created_at) / 1e6
        row, token = _made(key.role, key.name, key.experiments, _later(lifetime), by)
        end = min(_now() + int(grace * 1e6), key.expires_at or 1 << 62)
        table.add(row, instead_of=id, until=end)
        try:
            found = _find(table, id)
        except Unavailable as problem:
            raise Uncertain(f"Key {id} was replaced, but cannot be read: {problem}") from problem
        if found.expires_at != end:
            raise Unavailable(f"Key {id} is unchanged in {shown(address)}: the store does not keep what is written.")
    return token


def revoke(address: Address, id: str, *, by: str | None = None) -> None:
    """Revoke a key; it stays in the list."""
    with _opened(address) as table:
        _find(table, id)
        table.revoke(id, _now(), by)
        if _find(table, id).revoked_at is None:
            raise Unavailable(f"Key {id} is not revoked in {shown(address)}: the store does not keep what is written.")


def end_sessions(address: Address, id: str, epoch: int) -> None:
    """Sign out all browsers that have signed in with a key, up to this epoch of the key."""
    with _opened(address) as table:
        table.end_epoch(id, epoch)
        if _find(table, id).epoch <= epoch:
            problem = "the store does not keep what is written."
            raise Unavailable(f"Browsers with key {id} are not signed out in {shown(address)}: {problem}")


def all_of(address: Address) -> list[Key]:
    """All keys, valid or not."""
    with _opened(address) as table:
        return _read(table)


def any_valid(address: Address) -> bool:
    """Whether at least one key is valid now."""
    now = _now()
    return any(key.valid_at(now) for key in all_of(address))


class Keyring:
    """The keys of a database, read again every second by a thread of its own."""

    def __init__(self, address: Address, *, every: float = 1.0) -> None:
        self._table, self._every = keys_of(address), every
        given = os.environ.get(SESSION_SECRET, "").encode()
        self._secret = given or (b"" if is_url(address) else secrets.token_bytes(32))
        self._reading, self._closed = threading.Lock(), threading.Event()
        self._changing = ThreadPoolExecutor(1, thread_name_prefix="keys-change")
        self.refresh()
        self._thread = threading.Thread(target=self._keep_reading, name="keys", daemon=True)
        self._thread.start()

    def _keep_reading(self) -> None:
        while not self._closed.wait(self._every):
            try:
                self.refresh()
            except Exception as problem:  # try again; meanwhile `up_to_date` becomes false
                log(logging.WARNING, "keys cannot be read", reason=str(problem))

    @property
    def up_to_date(self) -> bool:
        """Whether the keys were read within the last few seconds."""
        return time.monotonic() - self._read_at < STALE

    def refresh(self) -> None:
        """Read the keys again."""
        with self._reading:
            began = time.monotonic()
            self._take(_read(self._table))
            self._read_at = began

    async def change(self, work: Callable[[], Result]) -> Result:
        """Run `work` in a thread that does not wait for the engine's writer, then read the keys again."""

        def work_and_read() -> Result:
            result = work()
            with suppress(Exception):  # the other thread reads again within a second
                self.refresh()
            return result

        return await asyncio.get_running_loop().run_in_executor(self._changing, work_and_read)

    def _take(self, keys: list[Key]) -> None:
        self.any_created = bool(keys)  # once there was a key, requests need one, even if all are revoked
        self._live = {
            key.id: (key, Caller(key.id, key.name, key.role, _as_set(key.experiments)))
            for key in keys
            if key.valid_at(_now())
        }

    def find(self, token: str) -> Caller | None:
        """The caller that a key belongs to; None if it is not a valid key."""
        prefix, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        key, caller = self._live.get(id, (None, None))
        same = hmac.compare_digest(_hash(secret), b"" if key is None else key.hash)
        return caller if key is not None and same and prefix == "af" and key.valid_at(_now()) else None

    def caller(self, id: str) -> Caller | None:
        """The caller that a key's id belongs to; None if the key is no longer valid."""
        key, caller = self._live.get(id, (None, None))
        return caller if key is not None and key.valid_at(_now()) else None

    def epoch(self, id: str) -> int | None:
        """How often the browsers of a key were signed out; None if the key is no longer valid."""
        key, _ = self._live.get(id, (None, None))
        return key.epoch if key is not None and key.valid_at(_now()) else None

    def sign(self, id: str, message: str) -> str | None:
        """The HMAC of a message under the stored hash of a key and the secret; None if the key is no longer valid.

        The secret is that of the environment. Without one it is random with a file, and empty with a database, so that
        other processes can check what this one has signed.
        """
        key, _ = self._live.get(id, (None, None))
        if key is None or not key.valid_at(_now()):
            return None
        return hmac.new(key.hash + self._secret, message.encode(), hashlib.sha256).hexdigest()

    def close(self) -> None:
        self._closed.set()
        self._changing.shutdown()
        self._thread.join()
        self._table.close()


def _as_set(names: Iterable[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


def _now() -> int:
    return time.time_ns() // 1000


def _later(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    return _now() + int(1e6 * validate.number("expires_in", seconds, low=1.0, high=1e9))


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _made(
    role: str, name: str, experiments: Sequence[str] | None, expires_at: int | None, by: str | None
) -> tuple[KeyRow, str]:
    """Make a key: what is stored of it, and the key itself."""
    id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    named = None if experiments is None else json.dumps(list(experiments))
    row = KeyRow(id, name, role, named, _hash(secret), _now(), by, expires_at, None, None, 0)
    return row, f"af_{id}_{secret}"


@contextmanager
def _opened(address: Address) -> Iterator[KeyTable]:
    table = keys_of(address)
    try:
        table.check()
        yield table
    finally:
        table.close()


def _read(table: KeyTable) -> list[Key]:
    return [_key(*row) for row in table.all()]


def _key(id: str, name: str, role: str, experiments: str | None, *rest: Any) -> Key:
    return Key(id, name, role, None if experiments is None else tuple(json.loads(experiments)), *rest)


def _find(table: KeyTable, id: str) -> Key:
    for key in _read(table):
        if key.id == id:
            return key
    raise RequestError("unknown_key", "id", "the id of a key", id, "Run `alphafair keys list` for the ids.")
