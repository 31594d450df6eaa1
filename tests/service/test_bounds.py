"""Answers of bounded size: whatever is sent, errors are short, and many are not much longer than their batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving import Running, error, running
from tests.stores import either_store

pytestmark = [either_store, pytest.mark.compiled]
LONG = "x" * 500_000
ARMS = ["\N{GRINNING FACE}" * 198 + f"{k:02}" for k in range(20)]  # as long as labels may be, in four bytes each


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("bounds") / "shop.db") as found:
        assert found.post("", {"name": "home", "arms": ARMS}).status_code == 201
        assert found.post("", {"name": "all", "arms": ARMS, "policy": "hedge"}).status_code == 201
        yield found


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/home/decisions", {"context": LONG}),
        ("/home/decisions", {"context": "v", LONG: 1}),
        ("/home/decisions", {"context": "v", "id": LONG}),
        ("/home/decisions", {"context": "v", "available": [LONG]}),
        ("/home/decisions", {"context": "v", "available": ["a" * 200]}),
        ("/home/decisions/batch", {"items": [{"context": "v", LONG: 1}]}),
        ("/home/rewards", {"id": "x", "reward": {LONG: 1.0}}),
        ("/home/rewards", {"id": "x", "reward": LONG}),
        ("/home/activations", {"id": LONG}),
        ("", {"name": LONG, "arms": ["a"]}),
        ("", {"name": "new", "arms": ["a"], "policy": LONG}),
        ("", {"name": "new", "arms": ["a"], "settings": {LONG: 1}}),
        ("", {"name": "new", "arms": ["a"], "settings": {"alpha": LONG}}),
        ("", {"name": "new", "arms": ["a"], "settings": {"step": LONG}}),
        ("", {"name": "new", "arms": ["a"], "groups": {"b" * 200: "g"}}),
        ("", {"name": "new", "arms": ["a"], "groups": {"labels": {"b" * 200: "g"}}}),
        ("", {"name": "new", "arms": ["a"], "groups": ["b" * 200] * 900}),
        ("", {"name": "new", "arms": ARMS, "groups": dict.fromkeys(ARMS, "\N{GRINNING FACE}" * 201)}),
        ("", {"name": "new", "arms": ARMS, "groups": {"labels": ["\N{GRINNING FACE}" * 201] * len(ARMS)}}),
        ("", {"name": "new", "arms": ARMS, "groups": {"labels": ARMS, "entitlements": {"b" * 200: 1.0}}}),
        ("", {"name": "new", "arms": ARMS, "groups": {"labels": ARMS, "pull_floor": {"b" * 200: 0.1}}}),
        ("", {"name": "new", "arms": ["a", "b"], "groups": {"entitlements": {"c" * 200: 1.0}}}),
        ("", {"name": "new", "arms": ["a"], "start": LONG}),
        ("/" + "n" * 20_000 + "/decisions", {"context": "v"}),
    ],
)
def test_no_error_repeats_what_was_sent(shop: Running, path: str, body: Any) -> None:
    answer = shop.post(path, body)
    assert 400 <= answer.status_code < 500, answer.text[:300]
    error(answer)
    assert len(answer.content) < 2_500, answer.text[:3000]


def test_errors_of_keys_and_changes_are_short(shop: Running) -> None:
    for path, body in (
        ("/v1/keys", {"role": LONG, "name": "me"}),
        ("/v1/keys", {"role": "read", "name": LONG}),
        ("/v1/keys", {"role": "read", "name": "me", "experiments": [LONG]}),
    ):
        answer = shop.http.post(path, json=body)
        assert answer.status_code == 422
        assert len(answer.content) < 2_500
    for change in ({"retire_arm": "b" * 200}, {LONG: 1}, {"add_arm": LONG}, {"add_arm": "new", "group": "b" * 200}):
        answer = shop.http.patch("/v1/experiments/home", json=change)
        assert 400 <= answer.status_code < 500
        assert len(answer.content) < 2_500
    for query in (f"?label={'b' * 10_000}", f"?{'b' * 10_000}=1"):
        answer = shop.http.delete(f"/v1/experiments/home/contexts{query}")
        assert 400 <= answer.status_code < 500
        assert len(answer.content) < 2_500


@pytest.mark.parametrize("kind", ["available", "unknown", "id"])
def test_a_batch_of_errors_is_not_much_longer_than_the_batch(shop: Running, kind: str) -> None:
    if kind == "available":
        items: list[Any] = [{"context": "v", "available": ["a"]} for _ in range(1000)]
    elif kind == "unknown":
        items = [{"context": f"{k}" if k % 2 else "\N{GRINNING FACE}\x00", "available": ["b"]} for k in range(1000)]
    else:
        shop.post("/home/decisions", {"context": "v", "id": "taken"})
        items = [{"context": "w", "id": "taken"}] * 1000
    body = json.dumps({"items": items})
    answer = shop.post("/home/decisions/batch", {"items": items})
    assert answer.status_code == 200
    assert len(answer.content) < 5 * len(body), (len(answer.content), len(body))
    found = answer.json()["items"]
    assert len(found) == 1000
    assert all(set(item) == {"error"} and set(item["error"]) >= {"code", "message"} for item in found)


def test_repeated_errors_refer_to_the_first_of_their_kind(shop: Running) -> None:
    bad, good = {"context": "v", "available": ["a"]}, {"context": "v"}
    items = [good, bad, {"context": "\x00"}, bad, good, {"context": "\x00"}, {"context": "v", "available": ["b"]}]
    found = shop.post("/home/decisions/batch", {"items": items}).json()["items"]
    assert [("error" in item) for item in found] == [False, True, True, True, False, True, True]
    codes = [item["error"]["code"] for item in found if "error" in item]
    assert codes == ["unknown_arm", "bad_label", "unknown_arm", "bad_label", "unknown_arm"]
    assert all("repair" in found[k]["error"] for k in (1, 2, 3, 5, 6))  # few errors: each tells all
    found = shop.post("/home/decisions/batch", {"items": [good, *[bad] * 100]}).json()["items"]
    told = [item["error"] for item in found[1:]]
    assert ["repair" in each for each in told] == [True] * 10 + [False] * 90
    message = "Same error as item 1; 100 items have errors."
    assert told[-1] == {"code": "unknown_arm", "argument": "available", "message": message}


def test_a_batch_of_rewards_with_errors(shop: Running) -> None:
    id = shop.post("/all/decisions", {"context": "v"}).json()["id"]
    items = [{"id": id, "reward": {"a": 0.5}}] * 1000
    answer = shop.post("/all/rewards/batch", {"items": items})
    assert answer.status_code == 200
    assert len(answer.content) < 5 * len(json.dumps(items))
    assert {item["error"]["code"] for item in answer.json()["items"]} == {"bad_reward"}
    answer = shop.post("/all/rewards/batch", {"items": [{"id": "?", "reward": 0.5}] * 1000})
    assert {item["outcome"] for item in answer.json()["items"]} == {"unknown"}
    assert len(answer.content) < 5 * len(json.dumps(items))
