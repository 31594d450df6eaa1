"""Keys: what each role may do, limits to experiments and to a time, rotation, revocation, and who did what."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from alphafair.cli import app as program
from alphafair.engine import Engine, Unavailable
from alphafair.errors import InvalidArgument
from alphafair.service import keys
from alphafair.service.keys import ROLES, Keyring
from tests.serving import ARMS, Running, error, running, wait_for
from tests.stores import address_of, both_stores, execute, is_postgres

pytestmark = [both_stores, pytest.mark.compiled]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "shop.db"
    with Engine.open(found, seed=0) as engine:
        for name in ("home", "search"):
            engine.create(name, arms=ARMS)
    return found


@pytest.fixture
def admin(path: Path) -> str:
    return keys.create(path, "admin", "operations")


@pytest.fixture
def shop(path: Path, admin: str) -> Iterator[Running]:
    with running(path) as found:
        yield found


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def id_of(token: str) -> str:
    return token.split("_")[1]


def asks(shop: Running, token: str) -> Callable[..., httpx.Response]:
    def ask(method: str, path: str, body: Any = None) -> httpx.Response:
        return shop.http.request(method, path, json=body, headers=bearer(token))

    return ask


# limits


def test_a_limited_key_sees_only_its_experiments(shop: Running, path: Path, admin: str) -> None:
    created = asks(shop, admin)("POST", "/v1/keys", {"role": "admin", "name": "home team", "experiments": ["home"]})
    ask = asks(shop, created.json()["key"])
    assert ask("GET", "/v1/experiments").json() == {"experiments": ["home"]}
    assert asks(shop, admin)("GET", "/v1/experiments").json() == {"experiments": ["home", "search"]}
    page = ask("GET", "/metrics").text
    assert 'experiment="home"' in page
    assert "search" not in page
    assert "search" in asks(shop, admin)("GET", "/metrics").text
    requests: list[tuple[str, str, Any]] = [
        ("GET", "", None),
        ("PATCH", "", {"alpha": 0.5}),
        ("GET", "/log", None),
        ("GET", "/history", None),
        ("DELETE", "/contexts?label=v", None),
        ("POST", "/decisions", {"context": "v"}),
        ("POST", "/decisions/batch", {"items": [{"context": "v"}]}),
        ("POST", "/rewards", {"id": "x", "reward": 1.0}),
        ("POST", "/rewards/batch", {"items": [{"id": "x", "reward": 1.0}]}),
        ("POST", "/activations", {"id": "x"}),
    ]
    for other in ("search", "nowhere"):  # whether it exists is not said
        for method, tail, body in requests:
            answer = ask(method, f"/v1/experiments/{other}{tail}", body)
            assert (answer.status_code, error(answer)["code"]) == (403, "forbidden"), (method, tail)
            assert error(answer)["message"] == "This key is limited to home."
        answer = ask("POST", "/v1/experiments", {"name": other, "arms": ARMS})
        assert answer.status_code == 403
    assert ask("POST", "/v1/experiments/home/decisions", {"context": "v"}).status_code == 200


def test_a_reward_of_another_experiment_is_unknown_to_a_limited_key(shop: Running, path: Path, admin: str) -> None:
    token = keys.create(path, "write", "home shop", experiments=["home"])
    shop.service.keyring.refresh()
    made = asks(shop, admin)("POST", "/v1/experiments/search/decisions", {"context": "v"}).json()
    for tail, body in (("rewards", {"id": made["id"], "reward": 1.0}), ("activations", {"id": made["id"]})):
        assert asks(shop, token)("POST", f"/v1/experiments/home/{tail}", body).status_code == 404


def test_a_limited_key_cannot_manage_keys(shop: Running, path: Path) -> None:
    ask = asks(shop, keys.create(path, "admin", "home team", experiments=["home"]))
    shop.service.keyring.refresh()
    for method, tail, body in (
        ("GET", "", None),
        ("POST", "", {"role": "admin", "name": "me"}),
        ("POST", "/0badc0de/rotations", {}),
        ("DELETE", "/0badc0de", None),
    ):
        answer = ask(method, f"/v1/keys{tail}", body)
        assert (answer.status_code, error(answer)["code"]) == (403, "forbidden")
    assert len(keys.all_of(path)) == 2


def test_monitoring_sees_no_labels(shop: Running, path: Path) -> None:
    """The key that Prometheus gets cannot read people's labels, nor anything else."""
    ask = asks(shop, keys.create(path, "metrics", "prometheus"))
    shop.service.keyring.refresh()
    assert ask("GET", "/metrics").status_code == 200
    for path_ in ("/v1/experiments", "/v1/experiments/home", "/v1/experiments/home/log", "/docs", "/openapi.json"):
        assert ask("GET", path_).status_code == 403
    reader = asks(shop, keys.create(path, "read", "a page"))
    shop.service.keyring.refresh()
    assert reader("GET", "/v1/experiments/home").status_code == 200
    answer = reader("GET", "/v1/experiments/home/log")
    expected = "This request needs a key with the role 'log' or 'admin'; this key has the role 'read'."
    assert error(answer)["message"] == expected


# time


def test_a_key_expires_by_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = keys.create(path, "read", "for a minute", expires_in=60.0)
    ring, now = Keyring(path, every=3600.0), time.time_ns() // 1000
    try:
        assert ring.find(token) is not None
        for later, known in ((59_000_000, True), (60_000_000, False), (10**12, False)):
            monkeypatch.setattr(keys, "_now", lambda later=later: now + later)
            assert (ring.find(token) is not None) is known
            ring.refresh()
            assert (ring.find(token) is not None) is known
    finally:
        ring.close()


@pytest.mark.parametrize("bad", [0.5, -1.0, 1e10, float("nan"), "soon"])
def test_an_invalid_duration_is_rejected(path: Path, bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="expires_in must be a number in"):
        keys.create(path, "read", "x", expires_in=bad)
    assert keys.all_of(path) == []


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", keys.LOCAL])
def test_a_name_that_would_mislead_is_rejected(path: Path, name: str) -> None:
    """Among them the author of changes while there are no keys."""
    with pytest.raises(InvalidArgument, match="name must be 1 to 100 printable characters, and not 'anybody"):
        keys.create(path, "read", name)


def test_keys_are_read_while_the_writer_is_busy_and_kernels_compile(shop: Running, path: Path, admin: str) -> None:
    """A revoked key is refused within seconds, whatever else the service has to do."""
    token = keys.create(path, "read", "gone soon")
    shop.service.keyring.refresh()
    ask, release = asks(shop, token), threading.Event()
    assert ask("GET", "/v1/experiments").status_code == 200
    blocked = threading.Thread(target=lambda: shop.service.commands._threads.submit(release.wait).result())
    blocked.start()
    try:
        keys.revoke(path, id_of(token))
        wait_for(lambda: ask("GET", "/openapi.json").status_code, lambda status: status == 401)
    finally:
        release.set()
        blocked.join()


def test_keys_are_revoked_while_the_writer_is_busy(shop: Running, path: Path, admin: str) -> None:
    """The writer is busy for long, with a rollback say, and all who look at an experiment wait for it."""
    ask, release = asks(shop, admin), threading.Event()
    gone = ask("POST", "/v1/keys", {"role": "read", "name": "leaked"}).json()
    held = threading.Event()

    def hold() -> None:
        with shop.engine.writers.all()[0].lock:
            held.set()
            release.wait(60.0)

    blocked = [threading.Thread(target=lambda: shop.service.commands._threads.submit(hold).result())]
    blocked[0].start()
    try:
        assert held.wait(10.0)
        blocked += [threading.Thread(target=ask, args=("GET", "/v1/experiments/home")) for _ in range(40)]
        for thread in blocked[1:]:
            thread.start()
        time.sleep(0.3)
        headers = {"authorization": f"Bearer {admin}"}
        with httpx.Client(base_url=shop.url, headers=headers, timeout=5.0) as http:
            new = http.post("/v1/keys", json={"role": "read", "name": "another"})
            assert new.status_code == 201
            assert http.post(f"/v1/keys/{new.json()['id']}/rotations", json={}).status_code == 201
            assert http.delete(f"/v1/keys/{gone['id']}").status_code == 200
            assert not {key["id"]: key for key in http.get("/v1/keys").json()["items"]}[gone["id"]]["valid"]
        assert not release.is_set()
    finally:
        release.set()
        for thread in blocked:
            thread.join()
    assert asks(shop, gone["key"])("GET", "/v1/experiments").status_code == 401


def test_keys_that_cannot_be_read_again_are_rejected(
    shop: Running, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = shop.service.keyring

    def fail() -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(ring, "refresh", fail)
    monkeypatch.setattr(ring, "_read_at", time.monotonic() - keys.STALE - 1.0)
    answer = asks(shop, admin)("GET", "/v1/experiments")
    assert (answer.status_code, error(answer)["code"]) == (503, "keys_unreadable")
    unknown = asks(shop, "af_0badc0de_x")("GET", "/v1/experiments")
    assert unknown.status_code == 401
    assert unknown.json()["error"]["message"] == "The key is unknown, expired or revoked."
    assert shop.http.get("/health").status_code == 200
    monkeypatch.undo()
    ring.refresh()
    assert asks(shop, admin)("GET", "/v1/experiments").status_code == 200


# rotation and revocation


def test_rotation_over_http(shop: Running, path: Path, admin: str) -> None:
    ask = asks(shop, admin)
    body = {"role": "write", "name": "the shop", "experiments": ["home"], "expires_in": 1000.0}
    old = ask("POST", "/v1/keys", body).json()
    assert set(old) == {"id", "key"}
    new = ask("POST", f"/v1/keys/{old['id']}/rotations", {"grace": 500.0}).json()
    decide = "/v1/experiments/home/decisions"
    for token in (old["key"], new["key"]):
        assert asks(shop, token)("POST", decide, {"context": "v"}).status_code == 200
    last = ask("POST", f"/v1/keys/{new['id']}/rotations", {}).json()
    assert asks(shop, new["key"])("POST", decide, {"context": "v"}).status_code == 401
    assert asks(shop, last["key"])("POST", decide, {"context": "v"}).status_code == 200
    assert asks(shop, last["key"])("POST", "/v1/experiments/search/decisions", {"context": "v"}).status_code == 403
    assert ask("POST", f"/v1/keys/{new['id']}/rotations", {}).status_code == 422  # it has ended
    answer = ask("POST", "/v1/keys/0badc0de/rotations", {})
    assert (answer.status_code, error(answer)["code"]) == (404, "unknown_key")
    listed = {key["id"]: key for key in ask("GET", "/v1/keys").json()["items"]}
    assert [listed[each["id"]]["valid"] for each in (old, new, last)] == [True, False, True]
    assert all(listed[each["id"]]["created_by"] == f"operations ({id_of(admin)})" for each in (old, new, last))
    assert admin.split("_", 2)[2] not in json.dumps(listed)
    assert "hash" not in json.dumps(listed)


def test_revocation_over_http_takes_effect_at_once(shop: Running, path: Path, admin: str) -> None:
    ask = asks(shop, admin)
    made = ask("POST", "/v1/keys", {"role": "read", "name": "gone"}).json()
    assert asks(shop, made["key"])("GET", "/v1/experiments").status_code == 200
    gone = ask("DELETE", f"/v1/keys/{made['id']}").json()
    assert (gone["valid"], gone["revoked_by"]) == (False, f"operations ({id_of(admin)})")
    assert asks(shop, made["key"])("GET", "/v1/experiments").status_code == 401
    again = ask("DELETE", f"/v1/keys/{made['id']}").json()
    assert again["revoked_at"] == gone["revoked_at"]


IMMORTAL = """create trigger immortal after update on api_key when new.revoked_at is not null
    begin update api_key set revoked_at = null where id = new.id; end"""
IMMORTAL_IN_POSTGRES = [
    """create function immortal() returns trigger language plpgsql
        as 'begin new.revoked_at := null; return new; end'""",
    "create trigger immortal before update on api_key for each row execute function immortal()",
]


def test_a_revocation_that_is_not_stored_is_an_error(path: Path, admin: str) -> None:
    """A trigger of somebody hostile takes it back."""
    execute(path, *(IMMORTAL_IN_POSTGRES if is_postgres() else [IMMORTAL]))
    with pytest.raises((Unavailable, InvalidArgument)):
        keys.revoke(path, id_of(admin))


def test_after_the_first_key_over_http_every_request_needs_one(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db") as shop:
        made = shop.http.post("/v1/keys", json={"role": "admin", "name": "first"})
        assert made.status_code == 201
        assert shop.http.get("/v1/experiments").status_code == 401
        (only,) = asks(shop, made.json()["key"])("GET", "/v1/keys").json()["items"]
        assert only["created_by"] == "anybody on this machine"


@pytest.mark.parametrize(("field", "body"), [("role", {"role": "read"}), ("experiments", {"experiments": ["home"]})])
def test_the_first_key_over_http_is_one_that_can_create_others(tmp_path: Path, field: str, body: Any) -> None:
    with running(tmp_path / "shop.db") as shop:
        answer = shop.http.post("/v1/keys", json={"role": "admin", "name": "first", **body})
        assert (answer.status_code, error(answer)["argument"]) == (422, field)
        assert "for the first key" in error(answer)["message"]
        assert shop.http.get("/keys.json").json() == {"items": []}  # the service still needs none


# who did what


def test_every_change_records_the_key(shop: Running, path: Path, admin: str) -> None:
    ask = asks(shop, admin)
    made = ask("POST", "/v1/experiments", {"name": "cart", "arms": ["ada", "ben", "cyd"]})
    assert made.status_code == 201
    other = ask("POST", "/v1/keys", {"role": "admin", "name": "night shift"}).json()
    for body in ({"alpha": 0.5}, {"add_arm": "dan"}, {"retire_arm": "ada"}, {"mask_arm": "ben"}, {"unmask_arm": "ben"}):
        assert ask("PATCH", "/v1/experiments/cart", body).status_code == 200
    assert ask("POST", "/v1/experiments/cart/decisions", {"context": "v"}).status_code == 200
    for body in ({"paused": True}, {"paused": False}, {"rollback": shop.engine.position}):
        assert asks(shop, other["key"])("PATCH", "/v1/experiments/cart", body).status_code == 200
    assert asks(shop, other["key"])("DELETE", "/v1/experiments/cart/contexts?label=v").status_code == 200
    items = ask("GET", "/v1/experiments/cart/history").json()["items"]
    first, second = f"operations ({id_of(admin)})", f"night shift ({other['id']})"
    assert [(item["kind"], item["by"]) for item in items] == [
        ("create", first),
        ("set_alpha", first),
        ("add_arm", first),
        ("retire_arm", first),
        ("mask_arm", first),
        ("unmask_arm", first),
        ("pause", second),
        ("resume", second),
        ("rollback", second),
        ("erase", second),
    ]
    assert [item["details"] for item in items[1:5]] == [
        {"alpha": 0.5},
        {"arm": "dan", "account": "least"},
        {"arm": "ada"},
        {"arm": "ben"},
    ]
    assert [item["position"] for item in items] == sorted(item["position"] for item in items)
    assert '"v"' not in json.dumps(items)
    assert asks(shop, admin)("GET", "/v1/experiments/nowhere/history").status_code == 404
    printed = CliRunner().invoke(program, ["history", str(path), "--experiment", "cart"])
    assert printed.exit_code == 0
    assert [line.split()[4] for line in printed.stdout.splitlines()] == [item["kind"] for item in items]
    assert "night shift" in printed.stdout
    lines = CliRunner().invoke(program, ["history", str(path), "-e", "cart", "--json"]).stdout.splitlines()
    assert [json.loads(line)["by"] for line in lines] == [item["by"] for item in items]


def test_changes_from_python_record_their_author(path: Path) -> None:
    with Engine.open(path) as engine:
        engine.set_alpha("home", 0.5)
        with engine.acting_as("a script"):
            engine.pause("home")
        engine.resume("home")
        assert [change.by for change in engine.history("home")] == [None, None, "a script", None]
        assert engine.verify() == engine.position


# the command line


def test_keys_with_limits_from_the_command_line(path: Path) -> None:
    run = CliRunner()

    def ask(*arguments: str) -> Any:
        return run.invoke(program, ["keys", *arguments, "--db", str(address_of(path))])

    made = ask("create", "--role", "log", "--name", "analyst", "--experiment", "home", "--expires", "90d")
    assert made.exit_code == 0
    token = made.stdout.splitlines()[0]
    (key,) = keys.all_of(path)
    assert (key.role, key.experiments, key.name) == ("log", ("home",), "analyst")
    assert key.expires_at == pytest.approx(key.created_at + 90 * 86400 * 1e6, abs=2e6)
    assert (key.created_by or "").endswith(" (command line)")
    assert "valid until" in ask("list").stdout
    assert "(only home)" in ask("list").stdout
    new = ask("rotate", id_of(token)).stdout.splitlines()[0]
    assert [each.valid_at(time.time_ns() // 1000) for each in keys.all_of(path)] == [False, True]
    assert ask("revoke", id_of(new)).exit_code == 0
    for wrong in (
        ["create", "--role", "read", "--name", "x", "--expires", "soon"],
        ["rotate", "nobody"],
        ["rotate", id_of(new)],
        ["create", "--role", "king", "--name", "x"],
    ):
        answer = ask(*wrong)
        assert (answer.exit_code, answer.stderr[:7]) == (2, "error: "), wrong


def test_the_roles_are_those_of_the_messages() -> None:
    from typing import get_args

    from alphafair_client.api import Role

    assert get_args(Role) == tuple(ROLES)
