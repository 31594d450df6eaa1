"""Who comes in: keys and roles, requests that were not meant for this machine, rates."""

from __future__ import annotations

import contextlib
import http.client
import inspect
import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import unquote

import httpx
import pytest
from typer.testing import CliRunner

from alphafair.cli import app as program
from alphafair.engine import Engine
from alphafair.service import keys
from alphafair.service.access import Access
from alphafair.service.api import handlers
from alphafair.service.http.errors import Failure
from alphafair.service.http.exchange import Response
from alphafair.service.keys import ROLES, Caller, Keyring
from alphafair.service.page import handlers as page_handlers
from alphafair.service.page.sentences import GUARANTEES
from alphafair.service.routes import ENDPOINTS, HANDLERS, find
from alphafair.service.service import Limits, Service
from alphafair_client.api import PARAMETERS
from tests import ROOT
from tests.serving import ARMS, Running, error, running, wait_for
from tests.stores import address_of, both_stores, sqlite_only
from tools.site import routes

pytestmark = [both_stores, pytest.mark.compiled]
OPEN_PAGES = {"/health", "/ready", "/session.json"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Path:
    return tmp_path_factory.mktemp("keys") / "shop.db"


@pytest.fixture(scope="module")
def tokens(path: Path, _store_of_run: None) -> dict[str, str]:
    return {role: keys.create(path, role, f"the {role}er") for role in ROLES}


@pytest.fixture(scope="module")
def shop(path: Path, tokens: dict[str, str], _store_of_run: None) -> Iterator[Running]:
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
            address = path.replace("{name}", "home").replace("{id}", "0badc0de")
            if address == "/session":  # see tests/page/test_strangers.py
                continue
            yield method.upper(), address, content.get("schema", {}).get("examples", [None])[0]


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
def test_without_a_valid_key_every_request_is_401(shop: Running, tokens: dict[str, str], headers: Any) -> None:
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


def test_an_almost_correct_secret_is_rejected(shop: Running, tokens: dict[str, str]) -> None:
    token = tokens["admin"]
    others = tokens["read"].split("_", 2)[2]
    for wrong in (token[:-1], token + "x", token[:-1] + ("a" if token[-1] != "a" else "b"), token.upper()):
        assert shop.http.get("/v1/experiments", headers=bearer(wrong)).status_code == 401
    crossed = "_".join([*token.split("_", 2)[:2], others])
    assert shop.http.get("/v1/experiments", headers=bearer(crossed)).status_code == 401


def allowed(method: str, path: str) -> tuple[str, ...]:
    """The roles that may use a route, written down once more."""
    if path in ("/health", "/ready", "/metrics", "/session.json"):
        return tuple(ROLES)
    if path.startswith(("/v1/keys", "/keys")):
        return ("admin",)
    if path.endswith(("/log", "/log.json", "/contexts.json", "/decision.json")):
        return ("log", "admin")
    if method == "GET":
        return ("read", "write", "log", "admin")
    busy = path.startswith("/v1/experiments/home/") and method == "POST"
    return ("write", "admin") if busy else ("admin",)


def test_each_role_may_use_exactly_its_routes(shop: Running, tokens: dict[str, str]) -> None:
    """A reader nothing but reads, a writer no changes; the role that a route needs is told from its method and path."""
    for method, path, body in every_route(shop, tokens["read"]):
        for role in ROLES:
            answer = shop.http.request(method, path, json=body, headers=bearer(tokens[role]))
            if role not in allowed(method, path):
                assert (answer.status_code, error(answer)["code"]) == (403, "forbidden"), (role, method, path)
            else:
                assert answer.status_code not in (401, 403), (role, method, path)


# other ways to write an address


def send(shop: Running, method: str, target: str, token: str | None, body: Any = None) -> tuple[int, Any, bytes]:
    """A request for exactly this target: status, headers, body. Other clients would tidy it up."""
    connection = http.client.HTTPConnection("127.0.0.1", shop.port, timeout=30.0)
    text = None if body is None else json.dumps(body)
    connection.request(method, target, text, {} if token is None else bearer(token))
    answer = connection.getresponse()
    found = answer.status, answer.headers, answer.read()
    connection.close()
    return found


WITH_QUERY = ("/log", "/contexts", "/evaluation", "/log.json", "/contexts.json", "/decision.json", "/what-if.json")
SAME: dict[str, Callable[[str], str]] = {
    "a query": lambda path: path if path.endswith(WITH_QUERY) else path + "?x=1",
    "escaped letters": lambda path: path.replace("home", "%68om%65").replace("v1", "%761"),
    "a whole address": lambda path: "http://localhost" + path,
}
OTHERS: dict[str, Callable[[str], str]] = {
    "a slash at the end": lambda path: path + "/",
    "two slashes at the end": lambda path: path + "//",
    "an escaped slash at the end": lambda path: path + "%2F",
    "two slashes at the start": lambda path: "/" + path,
    "two slashes within": lambda path: path.replace("/", "//"),
    "escaped slashes": lambda path: "/" + path[1:].replace("/", "%2F"),
    "an escaped slash": lambda path: "/" + "%2F".join(path[1:].rsplit("/", 1)),
    "capitals": str.upper,
    "a dot": lambda path: "/." + path,
    "two dots": lambda path: "/v1/.." + path,
    "escaped dots": lambda path: "/v1/%2e%2e" + path,
    "a parameter": lambda path: path + ";x=1",
    "an escaped zero": lambda path: path + "%00",
    "an escaped question mark": lambda path: path + "%3Fx=1",
    "a prefix": lambda path: "/fair" + path,
    "a prefix like a route": lambda path: "/v1/experimentsX" + path,
    "a route as a prefix": lambda path: "/v1/experiments/home" + path,
}


LONGER = ("a parameter", "an escaped zero", "an escaped question mark")  # of a name: another name


@pytest.mark.parametrize("role", [None, *ROLES])
def test_another_spelling_of_a_path_needs_the_same_role(
    shop: Running, tokens: dict[str, str], role: str | None
) -> None:
    """It is the same route, for the same roles, or none, for all of them."""
    token = tokens.get(role or "")
    for method, path, body in every_route(shop, tokens["read"]):
        status, _, _ = send(shop, method, path, token, body)
        if (status, path) == (201, "/v1/experiments"):
            status = 409  # it is there by now
        for name, change in SAME.items():
            assert send(shop, method, change(path), token, body)[0] == status, (name, method, path)
        for name, change in OTHERS.items():
            if change(path) != path and not (path.endswith(("/home", "/0badc0de")) and name in LONGER):
                found, _, answer = send(shop, method, change(path), token, body)
                assert found == (401 if role is None else 404), (name, method, path, answer)


def test_a_longer_name_is_another_experiment(shop: Running, tokens: dict[str, str]) -> None:
    for name in (*(OTHERS[longer]("home") for longer in LONGER), "{name}", "{name:str}", "..", "%2e%2e", "%68ome%2541"):
        for tail, method in (("", "GET"), ("", "PATCH"), ("/log", "GET"), ("/decisions", "POST")):
            body = {"PATCH": {"alpha": 0.5}, "POST": {"context": "v"}}.get(method)
            status, _, answer = send(shop, method, f"/v1/experiments/{name}{tail}", tokens["admin"], body)
            problem = json.loads(answer)["error"]
            assert (status, problem["code"]) == (404, "unknown_experiment"), (method, name, tail)
            assert repr(unquote(name)) in problem["message"]


def test_head_is_get_without_a_body(shop: Running, tokens: dict[str, str]) -> None:
    asked = [path for method, path, _ in every_route(shop, tokens["read"]) if method == "GET"]
    assert {"/health", "/ready", "/metrics", "/v1/experiments/home"} < set(asked)
    for token in (None, tokens["read"]):
        for path in (*asked, "/docs", "/v1/experiments/nowhere", "/nope"):
            status, headers, body = send(shop, "GET", path, token)
            head_status, head_headers, head_body = send(shop, "HEAD", path, token)
            assert (head_status, head_body) == (status, b""), path
            assert head_headers["content-type"] == headers["content-type"], path
            if path not in ("/metrics", "/index.json") and "live.json" not in path:  # the time is among their numbers
                assert head_headers["content-length"] == headers["content-length"], path
            assert body


def test_every_path_lists_its_methods(shop: Running, tokens: dict[str, str]) -> None:
    methods: dict[str, set[str]] = {}
    is_open = {endpoint.path for endpoint in ENDPOINTS if endpoint.role is None}
    for method, path, _ in every_route(shop, tokens["read"]):
        methods.setdefault(path, {"OPTIONS"}).update({method, "HEAD"} if method == "GET" else {method})
    for path, allowed in methods.items():
        for token in tokens.values():
            status, headers, body = send(shop, "OPTIONS", path, token)
            assert (status, body) == (204, b"")
            assert set(headers["allow"].split(", ")) == allowed
            for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - allowed:
                status, headers, _ = send(shop, method, path, token)
                assert (status, set(headers["allow"].split(", "))) == (405, allowed), (method, path)
        assert send(shop, "OPTIONS", path, None)[0] == (204 if path in is_open else 401)
    assert send(shop, "OPTIONS", "/nope", tokens["read"])[0] == 404


def test_the_reference_has_every_route_field_and_role() -> None:
    listed = routes.routes()
    for endpoint in ENDPOINTS:
        assert f"`{endpoint.method} {endpoint.path}`\n: {endpoint.summary}" in listed
    for name in ("groups", "labels", "entitlements", "pull_floor", "group", "entitlement", "rollback"):
        assert f"`{name}`, optional" in routes.fields_table()
    assert re.findall(r"^\| `(\w+)` \|", routes.roles_table(), re.MULTILINE) == [*ROLES]
    for kind, sentence in GUARANTEES.items():
        assert (f"| `{kind}` | {sentence} |" in routes.guarantees_table()) is (kind != "key")
    page = (ROOT / "docs" / "reference" / "http.md").read_text(encoding="utf-8")
    for part in ("routes", "fields", "roles", "guarantees"):
        assert f"{{generated}} {part}\n" in page


def test_the_table_is_complete_and_consistent() -> None:
    """Every public handler has one endpoint, and takes what its endpoint passes to it."""
    of_modules = [
        name
        for module in (handlers, page_handlers)
        for name, value in vars(module).items()
        if inspect.iscoroutinefunction(value) and not name.startswith("_") and value.__module__ == module.__name__
    ]
    assert {*HANDLERS} == {*ENDPOINTS}
    assert {handler.__name__ for handler in HANDLERS.values()} == {*of_modules}
    assert len(of_modules) == len({*of_modules})
    of_data = [handler for endpoint, handler in HANDLERS.items() if endpoint.view is None]
    assert len({*of_data}) == len(of_data)
    assert len({(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}) == len(ENDPOINTS)
    for endpoint in ENDPOINTS:
        hints = get_type_hints(HANDLERS[endpoint], localns={"Service": Service})
        expected = ["service", "request", *endpoint.parameters]
        expected += ["body"] if endpoint.body else []
        expected += ["query"] if endpoint.query else []
        assert [*inspect.signature(HANDLERS[endpoint]).parameters] == expected, endpoint
        assert hints.get("body") is endpoint.body, endpoint
        assert hints.get("query") is endpoint.query, endpoint
        assert hints["return"] in (endpoint.answer, Response), endpoint
        assert (endpoint.body is None) == (endpoint.example is None), endpoint
        assert {*endpoint.parameters} <= {*PARAMETERS}, endpoint
        methods, parameters = find(endpoint.path.split("/"))
        assert methods[endpoint.method] is endpoint
        in_path = [part for part in endpoint.path.split("/") if part.startswith("{")]
        assert parameters == dict(zip(endpoint.parameters, in_path, strict=True))


def test_keys_created_and_revoked_at_run_time_take_effect(shop: Running, path: Path) -> None:
    token = keys.create(path, "read", "for a while")
    status = statuses(shop, token)
    wait_for(lambda: status() == 200)
    keys.revoke(path, token.split("_")[1])
    wait_for(lambda: status() == 401)


def test_readiness_has_no_reason_without_a_key(
    shop: Running, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    health = {**shop.engine.health(), "ready": False, "reason": "a path on this machine"}
    monkeypatch.setattr(shop.engine, "health", lambda **_: health)
    assert shop.http.get("/ready").json() == {"ready": False}
    assert shop.http.get("/ready", headers=bearer(tokens["read"])).json()["reason"] == "a path on this machine"


def test_after_the_first_key_every_request_needs_one(tmp_path: Path) -> None:
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


@sqlite_only("searches the bytes of the file")
def test_the_file_contains_only_hashes_of_keys(path: Path, tokens: dict[str, str], shop: Running) -> None:
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
    path = str(address_of(tmp_path / "shop.db"))
    made = run.invoke(program, ["keys", "create", "--db", path, "--role", "write", "--name", "the shop"])
    assert made.exit_code == 0
    token = made.stdout.splitlines()[0]
    id = token.split("_")[1]
    listed = run.invoke(program, ["keys", "list", "--db", path]).stdout
    assert id in listed
    assert "the shop" in listed
    assert token.split("_", 2)[2] not in listed
    ring = Keyring(tmp_path / "shop.db")
    assert ring.find(token) == Caller(id, "the shop", "write")
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
        assert (answer.exit_code, answer.stderr[:7]) == (2, "error: ")
    assert (tmp_path / "notes.txt").read_text() == "buy milk"


def test_reading_keys_is_retried_after_an_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The look at keys and waiting times goes on after any error."""
    with running(tmp_path / "shop.db") as shop, pytest.MonkeyPatch.context() as patch:
        failed: list[int] = []

        def fail() -> None:
            failed.append(1)
            raise sqlite3.OperationalError("database is locked")

        patch.setattr(shop.service.keyring, "refresh", fail)
        wait_for(lambda: len(failed) >= 2)
        patch.undo()
        keys.create(tmp_path / "shop.db", "read", "first")
        wait_for(lambda: shop.http.get("/v1/experiments").status_code == 401)


def test_keys_are_created_while_an_engine_writes(tmp_path: Path) -> None:
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
        ({"host": "localhost:8000", "sec-fetch-site": "cross-site"}, "foreign_origin"),
        ({"host": "localhost:8000", "sec-fetch-site": "same-site"}, "foreign_origin"),
        ({"host": "localhost:8000", "sec-fetch-site": "none"}, None),
        ({"host": "127.0.0.1"}, None),
        ({"host": "[::1]:8000"}, None),
        ({"host": "[::1]"}, None),
    ],
)
def test_without_keys_only_this_machine_is_served(tmp_path: Path, headers: dict[str, str], code: str | None) -> None:
    Engine.open(tmp_path / "shop.db").close()
    access = Access(Keyring(tmp_path / "shop.db"))
    raw = {name.encode(): value.encode() for name, value in headers.items()}
    if code is None:
        assert access.admit(raw, "127.0.0.1", "read")
    else:
        with pytest.raises(Failure) as caught:
            access.admit(raw, "127.0.0.1", None)
        assert (caught.value.status, caught.value.answer.error.code) == (403, code)
    access.keyring.close()


# rates


def test_more_than_the_rate_is_rejected_per_caller(tmp_path: Path) -> None:
    Engine.open(tmp_path / "shop.db").close()
    now = [100.0]
    access = Access(Keyring(tmp_path / "shop.db"), rate=10.0, clock=lambda: now[0])

    def admitted(address: str, n: int) -> int:
        count = 0
        for _ in range(n):
            with contextlib.suppress(Failure):
                count += access.admit({b"host": b"localhost"}, address, "read") is not None
        return count

    assert admitted("a", 100) == 21  # two seconds' worth, and the one that is due now
    assert admitted("b", 5) == 5
    now[0] += 1.0
    assert admitted("a", 100) == 10
    now[0] += 60.0
    assert admitted("a", 100) == 21
    access.keyring.close()


def test_items_of_batches_count(tmp_path: Path) -> None:
    Engine.open(tmp_path / "shop.db").close()
    now = [100.0]
    access = Access(Keyring(tmp_path / "shop.db"), rate=8.0, clock=lambda: now[0])

    def waits() -> str | None:
        try:
            access.admit({b"host": b"localhost"}, "a", "write")
            access.count("a", 1000, already=1)
        except Failure as failed:
            return failed.headers["retry-after"]
        return None

    assert [waits() for _ in range(3)] == [None, "123", "123"]  # 125 seconds' worth, of which two are for free
    access.admit({b"host": b"localhost"}, "b", "write")  # another caller
    now[0] += 122.0
    assert waits() == "1"
    now[0] += 1.0
    assert waits() is None
    access.keyring.close()


def test_items_and_requests_of_one_key_count_over_http(tmp_path: Path) -> None:
    path, items = tmp_path / "shop.db", {"items": [{"context": "v"}] * 1000}
    tokens = [keys.create(path, "write", name) for name in ("one", "other")]
    with running(path, limits=Limits(rate=100.0)) as shop:
        shop.engine.create("home", arms=ARMS)
        one, other = ({"authorization": f"Bearer {token}"} for token in tokens)
        assert shop.post("/home/decisions/batch", items, headers=one).status_code == 200
        assert shop.post("/home/decisions/batch", items, headers=one).status_code == 429
        assert shop.post("/home/rewards/batch", items, headers=one).status_code == 429
        assert shop.post("/home/decisions", {"context": "v"}, headers=other).status_code == 200
        assert shop.engine.experiment("home").decisions == 1001


def test_sign_ins_count_by_key_and_by_address(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    one, other = (keys.create(path, "read", name) for name in ("one", "other"))
    with running(path, limits=Limits(rate=1.0), ready=False) as shop:

        def sign_in(token: str) -> int:
            return httpx.post(f"{shop.url}/session", json={"key": token}).status_code

        assert {sign_in(one) for _ in range(20)} == {201, 429}
        assert sign_in(other) == 201
        assert {sign_in("af_00000000_nobody") for _ in range(20)} == {401, 429}
        assert sign_in(other) == 201  # who has a key is not hindered by who has none


def test_inactive_callers_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alphafair.service.access.MAX_CALLERS", 5)
    Engine.open(tmp_path / "shop.db").close()
    now = [0.0]
    access = Access(Keyring(tmp_path / "shop.db"), rate=10.0, clock=lambda: now[0])
    for k in range(100):
        now[0] += 1.0
        access.admit({b"host": b"localhost"}, str(k), "read")
    assert len(access._next_due) <= 6
    access.keyring.close()


def test_the_rate_is_kept_over_http(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db", limits=Limits(rate=0.001), ready=False) as shop:
        answers = [shop.http.get("/health") for _ in range(5)]
    assert isinstance(answers[0], httpx.Response)
    assert [answer.status_code for answer in answers] == [200, 429, 429, 429, 429]
    assert error(answers[-1])["code"] == "too_many_requests"
    assert int(answers[-1].headers["retry-after"]) >= 990  # the time until the rate is kept
