"""Strangers stay outside: signing in to the page, sessions, and cookies that other sites or other keys could use."""

from __future__ import annotations

import hmac
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from alphafair.service import keys
from alphafair.service.sessions import COOKIE, LIFETIME, Sessions, token_of
from tests.page.visiting import PAGES, Events, get, signed_in
from tests.serving import ARMS, Running, error, running, wait_for
from tests.stores import both_stores

pytestmark = both_stores


def test_a_stranger_is_sent_to_sign_in(locked: tuple[Running, dict[str, str]]) -> None:
    shop, _ = locked
    for path in PAGES:
        answer = shop.http.get(f"{path}?id=a%26b")
        if path == "/sign-in":
            assert answer.status_code == 200
        else:
            assert answer.status_code == 303
            assert answer.headers["location"] == f"/sign-in?next={path.replace('/', '%2F')}%3Fid%3Da%2526b"
    for path in ("/index.json", "/experiments/home/live.json", "/events", "/experiments/home/events"):
        assert error(shop.http.get(path))["code"] == "unauthorized"
    assert get(shop, "/session.json")["signed_in"] is False
    assert shop.http.get("/static/style.css").status_code == 200


def test_a_session_stands_for_its_key(locked: tuple[Running, dict[str, str]]) -> None:
    shop, tokens = locked
    with signed_in(shop, tokens["admin"]) as (client, session):
        cookie = client.cookies[COOKIE]
        assert tokens["admin"] not in cookie
        assert (session["name"], session["role"], session["needs_key"]) == ("the admin", "admin", True)
        assert session == client.get("/session.json").json()
        assert client.get("/index.json").status_code == 200
        assert client.get("/").status_code == 200
        csrf = {"x-alphafair-csrf": session["csrf"], "origin": shop.url, "sec-fetch-site": "same-origin"}
        answer = client.patch("/v1/experiments/home", json={"alpha": 0.5}, headers=csrf)
        assert answer.status_code == 200, answer.text
        last = client.get("/experiments/home/live.json").json()["changes"][-1]
        assert (last["kind"], last["by"].split(" (")[0]) == ("set_alpha", "the admin")
        assert client.delete("/session").status_code == 403  # without the header
        ended = client.delete("/session", headers=csrf)
        assert ended.status_code == 200
        assert "Max-Age=0" in ended.headers["set-cookie"]
        assert shop.http.get("/index.json", headers={"cookie": f"{COOKIE}={cookie}"}).status_code == 401


def test_the_cookie_is_for_this_site_and_not_for_scripts(locked: tuple[Running, dict[str, str]]) -> None:
    shop, tokens = locked
    answer = shop.http.post("/session", json={"key": tokens["read"]})
    parts = answer.headers["set-cookie"].split("; ")
    assert {"Path=/", "HttpOnly", "SameSite=Strict", f"Max-Age={LIFETIME:.0f}"} == set(parts[1:])
    answer = shop.http.post("/session", json={"key": tokens["read"]}, headers={"x-forwarded-proto": "https"})
    assert "Secure" in answer.headers["set-cookie"].split("; ")


@pytest.mark.parametrize(
    "change",
    [
        {"x-alphafair-csrf": ""},
        {"x-alphafair-csrf": "wrong"},
        {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    ],
)
def test_other_sites_cannot_use_the_cookie(locked: tuple[Running, dict[str, str]], change: dict[str, str]) -> None:
    shop, tokens = locked
    with signed_in(shop, tokens["admin"]) as (client, session):
        position = shop.engine.position
        headers = {"x-alphafair-csrf": session["csrf"], "origin": shop.url, **change}
        for method, path, body in (
            ("PATCH", "/v1/experiments/home", {"alpha": 0.5}),
            ("POST", "/v1/experiments", {"name": "new", "arms": ARMS}),
            ("DELETE", "/v1/experiments/home/contexts?label=v", None),
            ("POST", "/v1/keys", {"role": "admin", "name": "evil"}),
            ("POST", "/v1/experiments/home/decisions", {"context": "v"}),
        ):
            answer = client.request(method, path, json=body, headers=headers)
            assert (answer.status_code, error(answer)["code"]) == (403, "cross_site"), (method, path)
        assert shop.engine.position == position
        bearer = {"authorization": f"Bearer {tokens['admin']}"}
        assert client.patch("/v1/experiments/home", json={"alpha": 0.5}, headers=bearer).status_code == 200


def test_a_wrong_key_does_not_sign_in(locked: tuple[Running, dict[str, str]]) -> None:
    shop, tokens = locked
    for key in ("nonsense", tokens["read"][:-1], "af__"):
        answer = shop.http.post("/session", json={"key": key})
        assert (answer.status_code, error(answer)["code"]) == (401, "unauthorized")
        assert "set-cookie" not in answer.headers
    foreign = {"origin": "http://evil.example"}
    assert shop.http.post("/session", json={"key": tokens["read"]}, headers=foreign).status_code == 403
    assert shop.http.get("/index.json", headers={"cookie": f"{COOKIE}=made-up; a=b"}).status_code == 401


def test_a_session_has_the_role_and_the_limits_of_its_key(locked: tuple[Running, dict[str, str]]) -> None:
    shop, tokens = locked
    with signed_in(shop, tokens["read"]) as (client, session):
        assert session["roles"] == ["metrics", "read"]
        assert client.get("/experiments/home/live.json").status_code == 200
        for path in ("contexts.json", "log.json", "decision.json?id=x", "log"):
            assert client.get(f"/experiments/home/{path}").status_code == 403, path
        csrf = {"x-alphafair-csrf": session["csrf"]}
        assert client.patch("/v1/experiments/home", json={"alpha": 0.5}, headers=csrf).status_code == 403
    with signed_in(shop, tokens["elsewhere"]) as (client, session):
        assert session["experiments"] == ["other"]
        assert [item["name"] for item in client.get("/index.json").json()["items"]] == ["other"]
        assert client.get("/experiments/home/live.json").status_code == 403
        assert client.get("/experiments/home/events").status_code == 403
        with client.stream("GET", "/events") as answer:
            assert [item["name"] for item in Events(answer).next()["data"]["items"]] == ["other"]


def test_a_session_ends_with_its_key(locked: tuple[Running, dict[str, str]]) -> None:
    shop, tokens = locked
    with signed_in(shop, tokens["log"]) as (client, _):
        assert client.get("/index.json").status_code == 200
        keys.revoke(shop.service.address, tokens["log"].split("_")[1])
        wait_for(lambda: client.get("/index.json").status_code, lambda status: status == 401)


def request_with(shop: Running, cookie: str, **headers: str) -> httpx.Response:
    """Ask with a cookie and nothing else; with headers, for a change."""
    with httpx.Client(base_url=shop.url, headers={"cookie": f"{COOKIE}={cookie}", **headers}) as client:
        if headers:
            return client.patch("/v1/experiments/home", json={"alpha": 0.5})
        return client.get("/index.json")


def test_signing_out_signs_out_every_browser_of_the_key(locked: tuple[Running, dict[str, str]]) -> None:
    """Once, however many requests do so, and for good; the key stays valid, and others are as before."""
    shop, tokens = locked
    with (
        signed_in(shop, tokens["admin"]) as (client, session),
        signed_in(shop, tokens["admin"]) as (elsewhere, _),
        signed_in(shop, tokens["read"]) as (reader, _),
    ):
        cookie = client.cookies[COOKIE]
        with ThreadPoolExecutor(4) as pool:
            headers = {"cookie": f"{COOKIE}={cookie}", "x-alphafair-csrf": session["csrf"]}
            ended = [pool.submit(httpx.delete, f"{shop.url}/session", headers=headers) for _ in range(4)]
            assert {each.result().status_code for each in ended} <= {200}
        assert request_with(shop, cookie).status_code == 401
        assert elsewhere.get("/index.json").status_code == 401
        assert reader.get("/index.json").status_code == 200
    epochs = {key.name: key.epoch for key in keys.all_of(shop.service.address)}
    assert epochs["the admin"] == 1
    with signed_in(shop, tokens["admin"]) as (client, _):
        assert client.get("/index.json").status_code == 200
        assert client.delete("/session").status_code == 403  # without the header
        assert shop.http.delete("/session").status_code == 200  # nobody was signed in
    assert {key.name: key.epoch for key in keys.all_of(shop.service.address)} == epochs
    with signed_in(shop, tokens["read"]) as (client, _):  # signing in again ends no session: it needs no header
        cookie = client.cookies[COOKIE]
        again = client.post("/session", json={"key": tokens["read"]}, headers={"origin": shop.url})
        assert again.status_code == 201
        assert request_with(shop, cookie).status_code == 200


def test_a_session_ends_with_its_process(tmp_path: Path) -> None:
    """Unless there is a secret, nothing that is in the file can sign a cookie."""
    token = keys.create(tmp_path / "shop.db", "admin", "me")
    with running(tmp_path / "shop.db") as shop, signed_in(shop, token) as (client, _):
        cookie = client.cookies[COOKIE]
        key_id, epoch, end, nonce, _ = cookie.split(".")
        (key,) = keys.all_of(shop.service.address)
        forged = hmac.new(key.hash, f"session {key_id}.{epoch}.{end}.{nonce}".encode(), "sha256").hexdigest()
        assert request_with(shop, f"{key_id}.{epoch}.{end}.{nonce}.{forged}").status_code == 401
    with running(tmp_path / "shop.db") as shop:
        assert request_with(shop, cookie).status_code == 401


def test_with_a_secret_a_session_outlives_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPHAFAIR_SESSION_SECRET", "one for all processes")
    path = tmp_path / "shop.db"
    token = keys.create(path, "admin", "me")
    with running(path) as shop:
        shop.engine.create("home", arms=ARMS)
        with signed_in(shop, token) as (client, session):
            cookie = client.cookies[COOKIE]
    with running(path) as shop:
        assert request_with(shop, cookie).status_code == 200
        assert request_with(shop, cookie, **{"x-alphafair-csrf": session["csrf"]}).status_code == 200
        found = get(shop, "/session.json", headers={"cookie": f"{COOKIE}={cookie}"})
        assert found == session
    monkeypatch.setenv("ALPHAFAIR_SESSION_SECRET", "another")
    with running(path) as shop:
        assert request_with(shop, cookie).status_code == 401


def test_a_forged_cookie_is_refused(locked: tuple[Running, dict[str, str]]) -> None:
    shop, tokens = locked
    with signed_in(shop, tokens["read"]) as (reader, _), signed_in(shop, tokens["admin"]) as (client, _):
        cookie, other = client.cookies[COOKIE], reader.cookies[COOKIE]
    assert request_with(shop, cookie).status_code == 200
    key_id, epoch, end, nonce, signature = cookie.split(".")
    other_id, _, _, other_nonce, other_signature = other.split(".")
    altered = [
        (other_id, epoch, end, nonce, signature),
        (key_id, epoch, str(int(end) + 1), nonce, signature),
        (key_id, epoch, "9" * 12, nonce, signature),
        (key_id, epoch, end, other_nonce, signature),
        (key_id, epoch, end, nonce, other_signature),
        (key_id, "1", end, nonce, signature),
        (key_id, f"{epoch}0", end, nonce, signature),
        (key_id, "-1", end, nonce, signature),
        (key_id, end, nonce, signature),
        (key_id, epoch, end, nonce, signature[:-1] + ("0" if signature[-1] != "0" else "1")),
        (key_id, epoch, end, nonce, signature.upper()),
        (key_id, epoch, end, nonce, signature, ""),
        ("0badc0de", epoch, end, nonce, signature),
        (key_id, epoch, "-1", nonce, signature),
        (key_id, epoch, end, nonce),
        (key_id, epoch, end, nonce, "None"),
        ("", "", "", "", ""),
    ]
    for parts in altered:
        assert request_with(shop, ".".join(parts)).status_code == 401, parts
    unsigned = hmac.new(b"", f"session {key_id}.{epoch}.{end}.{nonce}".encode(), "sha256").hexdigest()
    assert request_with(shop, f"{key_id}.{epoch}.{end}.{nonce}.{unsigned}").status_code == 401
    for secret in tokens.values():
        assert secret.split("_", 2)[2] not in cookie
    stored = {key.id: key.hash for key in keys.all_of(shop.service.address)}
    assert stored[key_id].hex() not in cookie


def test_the_header_of_another_session_is_refused(locked: tuple[Running, dict[str, str]]) -> None:
    shop, tokens = locked
    with signed_in(shop, tokens["admin"]) as (client, one), signed_in(shop, tokens["admin"]) as (again, other):
        cookie = client.cookies[COOKIE]
        assert cookie != again.cookies[COOKIE]
    assert one["csrf"] not in cookie
    for csrf in (other["csrf"], cookie.split(".")[4]):
        answer = request_with(shop, cookie, **{"x-alphafair-csrf": csrf})
        assert (answer.status_code, error(answer)["code"]) == (403, "cross_site")
    assert request_with(shop, cookie, **{"x-alphafair-csrf": one["csrf"]}).status_code == 200


class Signer:
    """Keys in memory, as one process has read them."""

    def __init__(self) -> None:
        self.epochs = {"0badc0de": 0, "0c0ffee0": 0}

    def epoch(self, id: str) -> int | None:
        return self.epochs.get(id)

    def sign(self, id: str, message: str) -> str | None:
        return hmac.new(id.encode(), message.encode(), "sha256").hexdigest() if id in self.epochs else None


def test_sessions_expire_and_end() -> None:
    now, keyring = [0.0], Signer()
    sessions, elsewhere = Sessions(keyring, lambda: now[0]), Sessions(keyring, lambda: now[0])
    token = sessions.begin("0badc0de")
    found = sessions.find(token_of({b"cookie": f"other=1; {COOKIE}={token}".encode()}))
    assert found is not None
    assert (found.key_id, found.expires_at) == ("0badc0de", LIFETIME)
    assert elsewhere.find(token) == found
    now[0] = LIFETIME
    assert sessions.find(token) is None
    now[0] = 0.0
    del keyring.epochs["0badc0de"]
    assert elsewhere.find(token) is None


def test_a_session_that_was_signed_out_stays_so() -> None:
    """Whatever other keys do: nothing is kept that could overflow."""
    keyring = Signer()
    sessions = Sessions(keyring)
    one, other, foreign = (sessions.begin(id) for id in ("0badc0de", "0badc0de", "0c0ffee0"))
    keyring.epochs["0badc0de"] = 1
    for _ in range(20_000):
        sessions.begin("0c0ffee0")
    assert [sessions.find(token) for token in (one, other)] == [None, None]
    assert sessions.find(foreign) is not None
    again = sessions.begin("0badc0de")
    assert sessions.find(again) is not None
    keyring.epochs["0badc0de"] = 0  # a process that has not read the newer epoch yet
    assert sessions.find(again) is not None
    keyring.epochs["0badc0de"] = 2
    assert sessions.find(again) is None


def test_without_keys_the_page_is_open_on_this_machine_only(shop: Running) -> None:
    found = get(shop, "/session.json")
    assert (found["signed_in"], found["needs_key"], found["csrf"]) == (True, False, None)
    assert shop.http.get("/", headers={"host": "evil.example"}).status_code == 403
    assert shop.http.get("/index.json", headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert error(shop.http.post("/session", json={"key": "x"}))["code"] == "no_keys"
