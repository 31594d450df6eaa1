"""Addresses of databases: read as libpq reads them, and never shown with a password, however they are mistyped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from alphafair.cli import app
from alphafair.engine import Engine, Unavailable, copy, restore
from alphafair.engine.addresses import DatabaseUrl, is_url, keys_of, open_store, shown, with_schema
from alphafair.engine.copies import backup
from alphafair.errors import InvalidArgument
from alphafair.service import server as service_server
from tests.postgres import Server

HEAD, TAIL = "s3c", "retpw"
PASSWORDS = [f"{HEAD}{character}{TAIL}" for character in "#/?@:%&=+ []"] + [
    f"{HEAD}@re/t?p#w",
    f"{HEAD}/re@t?sslmode=pw",
]
MISTYPED = [
    "postgressql://shop:s3cretpw@h/p",
    "postgresql:shop:s3cretpw@h",
    "postgresql:/shop:s3cretpw@h/p",
    "postgres:shop:s3cretpw@h",
    " postgresql://shop:s3cretpw@h/p",
    "mysql://shop:s3cretpw@h/p",
    "shop:s3cretpw@postgresql://h/p",
    "host=h user=shop password=s3cretpw",
    "postgresql://shop:s3cretpw/p",
    "postgresql://shop:s3cretpw@[::1/p",
    "postgresql://shop:s3cretpw@h:s3cretpw/p",
    "postgresql://h?user=shop&password=s3cretpw@h",
    "postgresql://h/p?password=abc&s3cretpw",
    "postgresql://h/p?s3cretpw=1",
    "postgresql://h/p?password=a%zzs3cretpw",
]


def read_by_libpq(url: str) -> dict[str, Any]:
    return psycopg.conninfo.conninfo_to_dict(str(DatabaseUrl.parse(url).with_schema(None)))


@settings(deadline=None, derandomize=True)
@given(st.text(st.sampled_from("abc019#/?@:%&=+,. []~"), min_size=1))
@example("s3c@re/t?p#w")
@example("1/x?sslmode=disable")
def test_a_password_is_understood_or_refused(password: str) -> None:
    """As it stands, it is what libpq takes for the password, or the address is refused; encoded, it is always read."""
    secret = f"xy{password}yx"
    url = f"postgresql://shop:{secret}@h:5432/db?sslmode=require&schema=s1"
    try:
        found = read_by_libpq(url)
    except (psycopg.ProgrammingError, UnicodeDecodeError):
        assert {*"%@/ "} & {*password}
    except InvalidArgument:
        assert {"@", "/"} & {*password}
    else:
        assert found["host"] == "h"
        assert found["password"] == secret or "%" in password
        assert shown(url) == "postgresql://shop@h:5432/db?sslmode=require&schema=s1"
    for encoded in (
        f"postgresql://shop:{quote(secret, safe='')}@h:5432/db?sslmode=require&schema=s1",
        f"postgres://shop@h:5432/db?sslmode=require&p%61ssword={quote(secret, safe='')}&schema=s1",
    ):
        assert read_by_libpq(encoded)["password"] == secret
        assert "xy" not in shown(encoded)
        assert "yx" not in shown(encoded)
        assert read_by_libpq(with_schema(encoded, "s2")) == read_by_libpq(encoded)
        assert DatabaseUrl.parse(with_schema(encoded, "s2")).schema == "s2"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgresql:///db?host=/run/postgresql&user=shop@server&password=a@b",
        "postgresql://shop:pw@[::1]:5433/db",
        "postgresql://shop@one,two:5433/db?target_session_attrs=read-write",
        "postgresql://%2Frun%2Fpostgresql/db#1",
        "POSTGRESQL://shop@h/db?options=-c%20work_mem%3D8MB",
    ],
)
def test_every_form_of_libpq_is_read(url: str) -> None:
    scheme, _, rest = url.partition("://")
    assert read_by_libpq(url) == psycopg.conninfo.conninfo_to_dict(f"{scheme.lower()}://{rest}")
    assert read_by_libpq(shown(url).partition("...")[0].rstrip("?&")).get("host") == read_by_libpq(url).get("host")


def test_paths_are_no_urls() -> None:
    for path in ("shop.db", Path("/srv/shop.db"), "a:b@c.db", "postgres.db", "postgresql/shop.db"):
        assert not is_url(path)
        assert shown(path) == str(path)


@pytest.mark.parametrize("address", MISTYPED)
def test_a_mistyped_address_is_refused_and_not_shown(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is created, least of all a file with a password in its name."""
    monkeypatch.chdir(tmp_path)
    Engine.open("shop.db").close()
    before = {*tmp_path.iterdir()}
    acts = [
        lambda: open_store(address),
        lambda: Engine.open(address),
        lambda: Engine.open(address, read_only=True),
        lambda: keys_of(address).check(),
        lambda: copy(address, "new.db"),
        lambda: copy("shop.db", address),
        lambda: restore("shop.db", address),
        lambda: backup(address, "new.db"),
        lambda: backup("shop.db", address),
        lambda: service_server.serve(address),
    ]
    for act in acts:
        with pytest.raises(InvalidArgument) as refused:
            act()
        assert "s3cretpw" not in str(refused.value)
        assert refused.value.__suppress_context__ or refused.value.__context__ is None
    commands = [
        ["serve", "--db", address],
        ["keys", "create", "--db", address, "--role", "read", "--name", "me"],
        ["keys", "list", "--db", address],
        ["verify", address],
        ["copy", "shop.db", address],
        ["copy", address, "new.db"],
        ["backup", "shop.db", address],
        ["restore", "shop.db", address],
    ]
    for command in commands:
        answer = CliRunner().invoke(app, command)
        assert answer.exit_code == 2, answer.output
        assert "s3cretpw" not in answer.output
        assert "must be" in answer.output
    opened = {tmp_path / "shop.db-wal", tmp_path / "shop.db-shm"}  # beside a source that was read
    assert {*tmp_path.iterdir()} - opened == before


# a server that demands a password

USER = "asked"


@pytest.fixture(scope="module")
def server(postgres_server: Server) -> Iterator[Server]:
    """The server of the suite, with a user who needs a password."""
    rules = postgres_server.data / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all {USER} 127.0.0.1/32 scram-sha-256\n{before}")
    postgres_server.execute("select pg_reload_conf()")
    postgres_server.execute(f"create role {USER} login")
    postgres_server.execute(f"grant create on database postgres to {USER}")
    yield postgres_server
    postgres_server.execute(f"drop owned by {USER}")
    postgres_server.execute(f"drop role {USER}")
    rules.write_text(before)
    postgres_server.execute("select pg_reload_conf()")


@pytest.mark.parametrize("password", PASSWORDS)
def test_a_password_opens_the_database_and_a_wrong_one_is_not_shown(
    server: Server, password: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    quoted = password.replace("'", "''")
    server.execute(f"alter role {USER} password '{quoted}'")
    base = f"127.0.0.1:{server.port}/postgres?schema=demanding"
    encoded = quote(password, safe="")
    right = [f"postgresql://{USER}:{encoded}@{base}", f"postgresql://{USER}@{base}&password={encoded}"]
    if not {*"/@% "} & {*password}:
        right.append(f"postgresql://{USER}:{password}@{base}")
    for url in right:
        with Engine.open(url) as engine:
            assert engine.health()["ready"]
            service_server.log_store(engine, url)
            assert "..." in engine._store.path or engine._store.path == f"postgresql://{USER}@{base}"  # type: ignore[operator]
    messages = []
    wrong = [f"postgresql://{USER}:x{encoded}@{base}", f"postgresql://{USER}@{base}&password=x{encoded}"]
    for url in (*wrong, f"postgresql://{USER}:x{password}@{base}"):
        with pytest.raises((Unavailable, InvalidArgument)) as refused:
            Engine.open(url)
        messages.append(str(refused.value))
        assert isinstance(refused.value, Unavailable) or {*"/@% "} & {*password}
    assert 'password authentication failed for user "asked"' in messages[0]
    written = "\n".join([*messages, caplog.text, *capsys.readouterr()])
    assert HEAD not in written
    assert TAIL not in written
