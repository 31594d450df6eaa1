"""Addresses of stores: the path of a SQLite file, or the URL of a PostgreSQL database."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from alphafair.engine.files import DatabaseFiles
from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    from alphafair.engine.ledger import KeyTable, Ledger, SharedStore, Store

Address = str | os.PathLike[str]
SCHEMES = ("postgresql", "postgres")
_PASSWORD = re.compile(r"(?i)(password|passfile|sslpassword)=[^&\s]*")


def is_url(address: Address) -> bool:
    """Whether an address is that of a database, not the path of a file."""
    return isinstance(address, str) and address.partition("://")[0].lower() in SCHEMES and "://" in address


def shown(address: Address) -> str:
    """Return an address for messages and logs, without a password.

    >>> shown("postgresql://shop:secret@db.example/shop?sslmode=verify-full&password=secret")
    'postgresql://shop@db.example/shop?sslmode=verify-full&password=...'
    """
    if not is_url(address):
        return str(address)
    parts = urlsplit(str(address))
    user, at, host = parts.netloc.rpartition("@")
    netloc = f"{user.partition(':')[0]}{at}{host}"
    return _PASSWORD.sub(r"\1=...", parts._replace(netloc=netloc).geturl())


def with_schema(url: str, schema: str) -> str:
    """Return the address of another schema in the same database."""
    parts = urlsplit(url)
    query = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "schema"]
    return parts._replace(query=urlencode([*query, ("schema", schema)], quote_via=quote)).geturl()


def open_store(address: Address, *, read_only: bool = False, create: bool = True) -> Store:
    """Open a file or a database; a missing or empty one is created unless `create` is false."""
    if is_url(address):
        from alphafair.engine.postgres_store import PostgresStore

        return PostgresStore(str(address), read_only=read_only, create=create)
    from alphafair.engine.sqlite_store import SqliteStore

    if (read_only or not create) and DatabaseFiles(address).is_empty:
        allowed = "a file that alphafair made, not an empty one" if Path(address).exists() else "an existing file"
        raise InvalidArgument("path", allowed, str(address), "Check the path for a typo.")
    return SqliteStore(address, read_only=read_only)


def ledger_of(store: Store, name: str, key: int) -> Ledger:
    """Return the ledger of an experiment."""
    return cast("SharedStore", store).ledger(name, key) if hasattr(store, "positions") else cast("Ledger", store)


def keys_of(address: Address) -> KeyTable:
    """Return the keys of the service in a file or a database."""
    if is_url(address):
        from alphafair.engine.postgres_store import PostgresKeys

        return PostgresKeys(str(address))
    from alphafair.engine.sqlite_store import SqliteKeys

    return SqliteKeys(address)
