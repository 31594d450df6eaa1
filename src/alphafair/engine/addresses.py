"""Addresses of stores: the path of a SQLite file, or the URL of a PostgreSQL database.

An address may have a password, and whoever mistypes one may do so inside the password. So an address is shown only as
far as it was understood, and one that libpq would take apart at another place than its reader is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, unquote

from alphafair.engine.store.files import DatabaseFiles
from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    from alphafair.engine.store.ledger import KeyTable, Store

Address = str | os.PathLike[str]
EXAMPLE: Final = "postgresql://user@host/database?sslmode=verify-full"
ENCODE: Final = "Write % as %25, @ as %40, / as %2F, ? as %3F, & as %26, = as %3D and a space as %20 in a password."
_SCHEME = re.compile(r"(postgresql|postgres)://", re.IGNORECASE)
_MISTYPED = re.compile(r"://|^\s*postgres\w*:|\bpassword\s*=", re.IGNORECASE)  # no path has these
_HOST = r"(?:\[[^]@/?]*\]|[^]\[:@/?,]*)(?::[0-9]*)?"
_URL = re.compile(  # as in libpq: a user ends at the first `@` if no `/` is before it, a query begins at the next `?`
    rf"""(?:(?P<user>[^:@/?]*)(?P<password>:[^@/]*)?@|(?![^/]*@))
    (?P<place>{_HOST}(?:,{_HOST})*(?:/[^?@]*)?)(?:\?(?P<query>.*))?""",
    re.VERBOSE | re.DOTALL,
)
_SHOWN = ("schema", "host", "hostaddr", "port", "dbname", "user", "sslmode", "sslrootcert")  # parameters in messages


class DatabaseUrl(NamedTuple):
    """The parts of a URL, percent-encoded as they were given."""

    user: str | None
    password: str | None
    place: str  # hosts, ports and the name of the database
    query: tuple[tuple[str, str], ...]  # names, which are decoded, and values

    @classmethod
    def parse(cls, url: str) -> DatabaseUrl:
        """Take a URL apart where libpq does; refuse one that libpq would not understand as it was meant."""
        found = _URL.fullmatch(url[len(scheme[0]) :]) if (scheme := _SCHEME.match(url)) else None
        items = [item.partition("=") for item in (found["query"] or "").split("&") if item] if found else []
        if not found or not all(equals for _, equals, _ in items):
            raise not_understood()
        password = None if found["password"] is None else found["password"][1:]
        return cls(found["user"], password, found["place"], tuple((unquote(name), value) for name, _, value in items))

    def __str__(self) -> str:
        password = "" if self.password is None else f":{self.password}"
        user = "" if self.user is None else f"{self.user}{password}@"
        query = "&".join(f"{quote(name)}={value}" for name, value in self.query)
        return f"postgresql://{user}{self.place}{query and '?'}{query}"

    @property
    def shown(self) -> str:
        """The address without its password and without parameters that may be secret."""
        query = tuple((name, value) for name, value in self.query if name in _SHOWN)
        left_out = "" if len(query) == len(self.query) else "&..." if query else "?..."
        return f"{self._replace(password=None, query=query)}{left_out}"

    @property
    def schema(self) -> str | None:
        return next((unquote(value) for name, value in self.query if name == "schema"), None)

    def with_schema(self, schema: str | None) -> DatabaseUrl:
        """Return the same database with another schema; None: without one, as libpq takes it."""
        query = tuple((name, value) for name, value in self.query if name != "schema")
        return self._replace(query=query if schema is None else (*query, ("schema", quote(schema))))


def not_understood() -> InvalidArgument:
    """Return the error for a URL that libpq does not understand, without the URL: any part may be secret."""
    return InvalidArgument("address", f"a URL that libpq understands, such as {EXAMPLE}", "postgresql://...", ENCODE)


def is_url(address: Address) -> bool:
    """Whether an address is that of a database, not the path of a file; one that is neither is refused."""
    if isinstance(address, str) and _SCHEME.match(address):
        return True
    if _MISTYPED.search(os.fspath(address)):
        scheme = re.match(r"\s*\w+:", os.fspath(address))
        received = f"{scheme[0] if scheme else ''}..."  # anything after it may be secret
        repair = f"Write the URL of a database as {EXAMPLE}."
        raise InvalidArgument("address", "the path of a file, or a URL with postgresql://", received, repair)
    return False


def shown(address: Address) -> str:
    """Return an address for messages and logs, without a password.

    >>> shown("postgresql://shop:secret@db.example/shop?sslmode=verify-full&password=secret")
    'postgresql://shop@db.example/shop?sslmode=verify-full&...'
    """
    return DatabaseUrl.parse(str(address)).shown if is_url(address) else str(address)


def with_schema(url: str, schema: str) -> str:
    """Return the address of another schema in the same database."""
    return str(DatabaseUrl.parse(url).with_schema(schema))


def open_store(
    address: Address,
    *,
    read_only: bool = False,
    create: bool = True,
    prove: Callable[[Store], None] = lambda store: None,
) -> Store:
    """Open a file or a database; a missing or empty one is created unless `create` is false.

    A file of an older version is migrated, and left as it was if `prove` raises an error for the migrated one.
    """
    if is_url(address):
        from alphafair.engine.store.postgres import PostgresStore

        return PostgresStore(str(address), read_only=read_only, create=create)
    from alphafair.engine.store.sqlite import SqliteStore

    if (read_only or not create) and DatabaseFiles(address).is_empty:
        allowed = "a file that alphafair made, not an empty one" if Path(address).exists() else "an existing file"
        raise InvalidArgument("path", allowed, str(address), "Check the path for a typo.")
    return SqliteStore(address, read_only=read_only, prove=prove)


def keys_of(address: Address) -> KeyTable:
    """Return the keys of the service in a file or a database."""
    if is_url(address):
        from alphafair.engine.store.postgres import PostgresKeys

        return PostgresKeys(str(address))
    from alphafair.engine.store.sqlite import SqliteKeys

    return SqliteKeys(address)
