"""Who comes in: keys and roles, requests that were not meant for this machine, rates."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from alphafair.cli import app as program
from alphafair.engine import Engine
from alphafair.service import keys
from alphafair.service.assemble import Limits
from alphafair.service.door import Door
from alphafair.service.errors import Failure
from alphafair.service.keys import ROLES, Keyring
from tests.serving import ARMS, Running, error, running

pytestmark = pytest.mark.compiled
OPEN_PAGES = {"/health", "/ready"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "shop.db"


@pytest.fixture(scope="module")
def tokens(path: Path) -> dict[str, str]:
    return {role: keys.create(path, role, f"the {role}er") for role in ROLES}


@pytest.fixture(scope="module")
def shop(path: Path, tokens: dict[str, str]) -> Iterator[Running]:
    with running(path) as found:
        answer = found.post("", {"name": "home", "arms": ARMS}, headers=bearer(tokens["admin"]))
        assert answer.status_code == 201
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def every_route(shop: Running, token: str) -> Iterator[tuple[str, str, Any]]:
    """Method, path and a body that would be taken."""
    description = shop.http.get("/openapi.json", headers=bearer(token)).json()
    for path, item in description["paths"].items():
        for method, operation in item.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            yield method.upper(), path.replace("{name}", "home"), content.get("schema", {}).get("examples", [None])[0]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer"},
        {"authorization": "Bearer nonsense"},
        {"authorization": "Basic YTpi"},
        {"authorization": "Bearer af__"},
        {"authorization": b"Bearer \xff\xfe"},
    ],
)
def test_a_stranger_gets_nothing_but_401(shop: Running, tokens: dict[str, str], headers: Any) -> None:
    position = shop.engine.position
    routes = [*every_route(shop, tokens["read"]), ("GET", "/docs", None), ("GET", "/nope", None), ("PUT", "/", None)]
    for method, path, body in routes:
        answer = shop.http.request(method, path, json=body, headers=headers)
        if path in OPEN_PAGES:
            assert answer.status_code == 200
        else:
            assert (answer.status_code, error(answer)["code"]) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
    assert shop.engine.position == position


def test_a_secret_that_is_nearly_right_is_wrong(shop: Running, tokens: dict[str, str]) -> None:
    token = tokens["admin"]
    others = tokens["read"].split("_", 2)[2]
    for wrong in (token[:-1], token + "x", token[:-1] + ("a" if token[-1] != "a" else "b"), token.upper()):
        assert shop.http.get("/v1/experiments", headers=bearer(wrong)).status_code == 401
    crossed = "_".join([*token.split("_", 2)[:2], others])
    assert shop.http.get("/v1/experiments", headers=bearer(crossed)).status_code == 401


def test_each_role_may_do_what_it_is_for(shop: Running, tokens: dict[str, str]) -> None:
    """A reader nothing but reads, a writer no changes; the role that a route needs is told from its method and path."""
    for method, path, body in every_route(shop, tokens["read"]):
        busy = path.startswith("/v1/experiments/home/") and method == "POST"
        needed = "read" if method == "GET" else "write" if busy else "admin"
        for rank, role in enumerate(ROLES):
            answer = shop.http.request(method, path, json=body, headers=bearer(tokens[role]))
            if rank < ROLES.index(needed):
                assert (answer.status_code, error(answer)["code"]) == (403, "forbidden"), (role, method, path)
            else:
                assert answer.status_code not in (401, 403), (role, method, path)


def test_keys_made_and_revoked_while_it_runs_count(shop: Running, path: Path) -> None:
    token = keys.create(path, "read", "for a while")
    status = statuses(shop, token)
    wait_for(lambda: status() == 200)
    keys.revoke(path, token.split("_")[1])
    wait_for(lambda: status() == 401)


def test_readiness_has_no_reason_for_strangers(
    shop: Running, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shop.engine, "health", lambda: {"ready": False, "reason": "a path on this machine"})
    assert shop.http.get("/ready").json() == {"ready": False}
    assert shop.http.get("/ready", headers=bearer(tokens["read"])).json()["reason"] == "a path on this machine"


def test_the_first_key_closes_the_door_and_no_revocation_opens_it(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with running(path) as shop:
        assert shop.http.get("/v1/experiments").status_code == 200
        token = keys.create(path, "read", "first")
        status = statuses(shop, "none")
        wait_for(lambda: status() == 401)
        keys.revoke(path, token.split("_")[1])
        status = statuses(shop, token)
        wait_for(lambda: status() == 401)
        assert shop.http.get("/v1/experiments").status_code == 401


def statuses(shop: Running, token: str) -> Callable[[], int]:
    return lambda: shop.http.get("/v1/experiments", headers=bearer(token)).status_code


def wait_for(happens: Callable[[], bool]) -> None:
    """Within a second, it says; ten for a machine that has much to do."""
    end = time.monotonic() + 10.0
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_the_file_holds_hashes_alone(path: Path, tokens: dict[str, str], shop: Running) -> None:
    shop.http.get("/v1/experiments", headers=bearer(tokens["admin"]))
    for file in path.parent.iterdir():
        content = file.read_bytes()
        for token in tokens.values():
            assert token.split("_", 2)[2].encode() not in content
    with sqlite3.connect(path) as connection:
        (count,) = connection.execute("select count(*) from api_key where length(hash) = 32").fetchone()
    assert count >= len(ROLES)


def test_keys_from_the_command_line(tmp_path: Path) -> None:
    run = CliRunner()
    path = str(tmp_path / "shop.db")
    made = run.invoke(program, ["keys", "create", "--db", path, "--role", "write", "--name", "the shop"])
    assert made.exit_code == 0
    token = made.stdout.splitlines()[0]
    id = token.split("_")[1]
    listed = run.invoke(program, ["keys", "list", "--db", path]).stdout
    assert id in listed
    assert "the shop" in listed
    assert token.split("_", 2)[2] not in listed
    ring = Keyring(Path(path))
    assert ring.find(token) == (id, 1)
    assert run.invoke(program, ["keys", "revoke", "--db", path, id]).exit_code == 0
    assert "revoked" in run.invoke(program, ["keys", "list", "--db", path]).stdout
    ring.refresh()
    assert ring.find(token) is None
    ring.close()
    wrong: list[list[str]] = [
        ["create", "--db", path, "--role", "king", "--name", "x"],
        ["create", "--db", path, "--role", "read", "--name", ""],
        ["revoke", "--db", path, "nobody"],
        ["list", "--db", str(tmp_path / "nowhere.db")],
    ]
    for arguments in wrong:
        answer = run.invoke(program, ["keys", *arguments])
        assert answer.exit_code == 2, arguments
    (tmp_path / "notes.txt").write_text("buy milk")
    for arguments in (["list"], ["revoke", "x"], ["create", "--role", "read", "--name", "x"]):
        answer = run.invoke(program, ["keys", *arguments, "--db", str(tmp_path / "notes.txt")])
        assert (answer.exit_code, answer.stderr[:7]) == (1, "error: ")
    assert (tmp_path / "notes.txt").read_text() == "buy milk"


def test_what_goes_wrong_once_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The look at keys and waiting times goes on after any error."""
    with running(tmp_path / "shop.db") as shop, pytest.MonkeyPatch.context() as patch:
        failed: list[int] = []

        def fail() -> None:
            failed.append(1)
            raise sqlite3.OperationalError("database is locked")

        patch.setattr(shop.application.door.keyring, "refresh", fail)
        wait_for(lambda: len(failed) >= 2)
        patch.undo()
        keys.create(tmp_path / "shop.db", "read", "first")
        wait_for(lambda: shop.http.get("/v1/experiments").status_code == 401)


def test_keys_are_made_while_an_engine_writes(tmp_path: Path) -> None:
    with Engine.open(tmp_path / "shop.db", seed=0) as engine:
        engine.create("home", arms=ARMS)
        before = engine.decide("home", "v")
        token = keys.create(tmp_path / "shop.db", "admin", "you")
        assert engine.decide("home", "v").id != before.id
        engine.verify()
    with Engine.open(tmp_path / "shop.db", seed=0) as engine:
        engine.verify()
    assert [key.id for key in keys.all_of(tmp_path / "shop.db")] == [token.split("_")[1]]


# without keys


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"host": "shop.example"}, "foreign_host"),
        ({"host": "localhost.evil.example:80"}, "foreign_host"),
        ({"host": "127.0.0.1.evil.example"}, "foreign_host"),
        ({"host": "localhost:8000", "origin": "http://evil.example"}, "foreign_origin"),
        ({"host": "localhost:8000", "origin": "null"}, "foreign_origin"),
        ({"host": "localhost:8000", "origin": "http://localhost:8001"}, "foreign_origin"),
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, None),
        ({"host": "127.0.0.1"}, None),
        ({"host": "[::1]:8000"}, None),
        ({"host": "[::1]"}, None),
    ],
)
def test_without_keys_only_this_machine_is_served(tmp_path: Path, headers: dict[str, str], code: str | None) -> None:
    Engine.open(tmp_path / "shop.db").close()
    door = Door(Keyring(tmp_path / "shop.db"))
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    if code is None:
        assert door.admit({}, raw, "/v1/experiments", 2)
    else:
        with pytest.raises(Failure) as caught:
            door.admit({}, raw, "/v1/experiments", 0)
        assert (caught.value.status, caught.value.answer.error.code) == (403, code)
    door.keyring.close()


# rates


def test_more_than_the_rate_is_refused_per_caller(tmp_path: Path) -> None:
    Engine.open(tmp_path / "shop.db").close()
    now = [100.0]
    door = Door(Keyring(tmp_path / "shop.db"), rate=10.0, clock=lambda: now[0])

    def admitted(address: str, n: int) -> int:
        count = 0
        for _ in range(n):
            with contextlib.suppress(Failure):
                count += door.admit({"client": (address, 1)}, {b"host": b"localhost"}, "/", 0)
        return count

    assert admitted("a", 100) == 21  # two seconds' worth, and the one that is due now
    assert admitted("b", 5) == 5
    now[0] += 1.0
    assert admitted("a", 100) == 10
    now[0] += 60.0
    assert admitted("a", 100) == 21
    door.keyring.close()


def test_callers_that_come_no_more_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alphafair.service import door as room

    monkeypatch.setattr(room, "MOST_CALLERS", 5)
    Engine.open(tmp_path / "shop.db").close()
    now = [0.0]
    door = Door(Keyring(tmp_path / "shop.db"), rate=10.0, clock=lambda: now[0])
    for k in range(100):
        now[0] += 1.0
        door.admit({"client": (str(k), 1)}, {}, "/", 0)
    assert len(door._due) <= 6
    door.keyring.close()


def test_the_rate_is_kept_over_http(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db", limits=Limits(rate=0.001), ready=False) as shop:
        answers = [shop.http.get("/health") for _ in range(5)]
    assert isinstance(answers[0], httpx.Response)
    assert [answer.status_code for answer in answers] == [200, 429, 429, 429, 429]
    assert error(answers[-1])["code"] == "too_many_requests"
    assert answers[-1].headers["retry-after"] == "1"
