"""Keys: who may read, write, or change experiments. The ledger's file holds their hashes, never the keys themselves.

A key is `af_<id>_<secret>`: the id finds the row, and the SHA-256 of the secret is compared in constant time. The
secret is 256 random bits, which nobody guesses: a slow hash, made for passwords, would only slow every request down.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from alphafair import validate
from alphafair.engine import Engine, Unavailable
from alphafair.engine.ledger import Ledger

ROLES = ("read", "write", "admin")  # each may do what those before it may
PATIENCE = 10.0  # seconds to wait for another process that is writing


class Key(NamedTuple):
    """What is known of a key: everything but its secret."""

    id: str
    name: str
    role: str
    created_at: int  # microseconds since 1970
    revoked_at: int | None
    hash: bytes

    @property
    def valid(self) -> bool:
        return self.revoked_at is None


def create(path: Path, role: str, name: str) -> str:
    """A new key, told once."""
    validate.choice("--role", role, ROLES)
    if not 1 <= len(name) <= 100 or not name.isprintable():
        raise validate.Refusal("--name", "1 to 100 printable characters", name, "Say whose key it is.")
    id, secret = secrets.token_hex(4), secrets.token_urlsafe(32)
    with _connected(path) as connection, connection:
        row = (id, name, role, _hash(secret), _now())
        connection.execute("insert into api_key (id, name, role, hash, created_at) values (?, ?, ?, ?, ?)", row)
    return f"af_{id}_{secret}"


def all_of(path: Path) -> list[Key]:
    """Every key that was ever made."""
    with _connected(path) as connection:
        return _read(connection)


def revoke(path: Path, id: str) -> None:
    """A key that opens nothing any more; it stays in the list."""
    with _connected(path) as connection, connection:
        known = {key.id: key for key in _read(connection)}
        validate.choice("ID", id, known)
        connection.execute(
            "UPDATE api_key SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", (time.time_ns() // 1000, id)
        )


class Keyring:
    """The keys of a file, as they were when it was last looked at."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
        self.refresh()

    def refresh(self) -> None:
        """Look again: keys made or revoked since count from now on."""
        keys = _read(self._connection)
        self.any_made = bool(keys)  # a file that ever had keys never opens again without one
        self._live = {key.id: (key.hash, ROLES.index(key.role)) for key in keys if key.valid}

    def find(self, token: str) -> tuple[str, int] | None:
        """The id of a key and the rank of its role; None for what is no key."""
        prefix, _, rest = token.partition("_")
        id, _, secret = rest.partition("_")
        hash, rank = self._live.get(id, (b"", -1))
        return (id, rank) if prefix == "af" and hmac.compare_digest(_hash(secret), hash) else None

    def close(self) -> None:
        self._connection.close()


def _now() -> int:
    return time.time_ns() // 1000


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _read(connection: sqlite3.Connection) -> list[Key]:
    rows = connection.execute("select id, name, role, created_at, revoked_at, hash from api_key order by created_at")
    return [Key(*row) for row in rows]


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """The file, made if it is not there; a service that writes to it meanwhile is not in the way."""
    if path.exists():
        Ledger(path, read_only=True).close()  # refuses what is no file of ours, or of another version
    else:
        Engine.open(path).close()
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE)) as connection:
            yield connection
    except sqlite3.Error as problem:
        raise Unavailable(f"{path} cannot be written: {problem}") from problem
