"""The routes of the service, over real connections to the real engine."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import polars as pl
import pytest

from alphafair import Client, ServiceError, metrics
from alphafair.engine import Engine, Unavailable
from alphafair.engine import writer as writer_module
from alphafair.service import keys
from alphafair.service.http.connections import MAX_HEADER_BYTES, MAX_TARGET_BYTES
from alphafair.service.routes import ENDPOINTS
from alphafair.service.service import Limits
from tests.serving import ARMS, Running, error, running, wait_until_ready
from tests.stores import both_stores, open_store, store_of

pytestmark = [both_stores, pytest.mark.compiled]


TOO_LARGE = "request_header_fields_too_large"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("shop") / "shop.db", limits=Limits(max_body=100_000)) as found:
        assert found.post("", {"name": "home", "arms": ARMS, "alpha": 0.5}).status_code == 201
        yield found


def decide(shop: Running, **body: Any) -> dict[str, Any]:
    answer = shop.post("/home/decisions", {"context": "visitor-7", **body})
    assert answer.status_code == 200, answer.text
    decision: dict[str, Any] = answer.json()
    return decision


# decisions and rewards


def test_a_decision_and_its_reward_are_those_of_the_engine(shop: Running) -> None:
    before = shop.http.get("/v1/experiments/home").json()
    decision = decide(shop)
    assert set(decision) == {"id", "arm", "propensity", "context"}
    assert decision["arm"] in ARMS
    assert decision["context"] == "visitor-7"
    assert shop.post("/home/rewards", {"id": decision["id"], "reward": 0.75}).json() == {"outcome": "applied"}
    after = shop.http.get("/v1/experiments/home").json()
    assert after["decisions"] == before["decisions"] + 1
    assert after["rewards"] == before["rewards"] + 1
    earned = {arm: after["cumulative_rewards"][arm] - before["cumulative_rewards"][arm] for arm in ARMS}
    assert earned == pytest.approx({arm: 0.75 * (arm == decision["arm"]) for arm in ARMS}, abs=1e-12)
    status = shop.engine.experiment("home")
    assert after["pulls"] == status.pulls
    accounts = np.array(list(status.accounts.values()))
    assert after["jain_index"] == metrics.jain_index(accounts)
    assert after["alpha_performance"] == metrics.alpha_performance(accounts, 0.5)


def test_the_same_id_again_gives_the_same_arm_again(shop: Running) -> None:
    first = decide(shop, id="order-1")
    assert all(decide(shop, id="order-1") == first for _ in range(5))
    taken = shop.post("/home/decisions", {"context": "somebody else", "id": "order-1"})
    assert (taken.status_code, error(taken)["code"]) == (409, "id_taken")


def test_every_outcome_has_its_status(shop: Running) -> None:
    id = decide(shop)["id"]
    found = []
    for body in (
        {"id": id, "reward": 1},
        {"id": id, "reward": 1.0},
        {"id": id, "reward": 0.5},
        {"id": "x", "reward": 1},
    ):
        answer = shop.post("/home/rewards", body)
        found.append((answer.status_code, answer.json()["outcome"]))
        if answer.status_code != 200:
            assert error(answer)["argument"] == "id"
    assert found == [(200, "applied"), (200, "repeated"), (409, "conflict"), (404, "unknown")]


def test_an_expired_decision_answers_410(tmp_path: Path) -> None:
    now = [1_000_000_000_000_000_000]
    engine = Engine(open_store(tmp_path / "shop.db"), 0, clock=lambda: now[0])
    engine.create("home", arms=ARMS, reward_wait=60.0, default_reward=0.0)
    with running(tmp_path / "shop.db", engine=engine) as shop:
        id = decide(shop)["id"]
        now[0] += 61 * 10**9
        answer = shop.post("/home/rewards", {"id": id, "reward": 1.0})
        assert (answer.status_code, answer.json()["outcome"], error(answer)["code"]) == (
            410,
            "expired",
            "expired_decision",
        )
        assert shop.http.get("/v1/experiments/home").json()["defaulted"] == 1


def test_a_deferred_decision_counts_once_it_is_activated(shop: Running) -> None:
    id = decide(shop, deferred=True)["id"]
    early = shop.post("/home/rewards", {"id": id, "reward": 1.0})
    assert (early.status_code, error(early)["code"]) == (409, "not_activated")
    found = [shop.post("/home/activations", {"id": each}) for each in (id, id, "nobody")]
    assert [(each.status_code, each.json()["outcome"]) for each in found] == [
        (200, "activated"),
        (200, "repeated"),
        (404, "unknown"),
    ]
    assert shop.post("/home/rewards", {"id": id, "reward": 1.0}).json() == {"outcome": "applied"}


def test_only_what_is_available_is_drawn(shop: Running) -> None:
    assert {decide(shop, available=["ben"])["arm"] for _ in range(20)} == {"ben"}
    answer = shop.post("/home/decisions", {"context": "v", "available": ["nobody"]})
    assert (answer.status_code, error(answer)["code"]) == (404, "unknown_arm")


def test_a_batch_has_an_answer_per_item_in_order(shop: Running) -> None:
    items = [{"context": "a", "id": "batch-1"}, {"context": "b", "id": "batch-2"}, {"context": "b", "id": "batch-1"}]
    first, second, third = shop.post("/home/decisions/batch", {"items": items}).json()["items"]
    assert [first["id"], first["context"], second["id"]] == ["batch-1", "a", "batch-2"]
    assert set(third) == {"error"}
    assert third["error"]["code"] == "id_taken"
    assert shop.post("/home/decisions", items[0]).json() == first
    items = [{"id": "batch-1", "reward": 1}, {"id": "batch-1", "reward": 0}, {"id": "batch-2", "reward": 7}]
    found = shop.post("/home/rewards/batch", {"items": [*items, {"id": "batch-9", "reward": 1}]}).json()["items"]
    assert [each.get("outcome") for each in found] == ["applied", "conflict", None, "unknown"]
    assert [each.get("error", {}).get("code") for each in found] == [
        None,
        "conflict_decision",
        "bad_reward",
        "unknown_decision",
    ]


def test_full_information_takes_a_value_per_arm(shop: Running) -> None:
    body = {"name": "full", "arms": ["x", "y"], "policy": "alpha-fair", "alpha": 0.9}
    assert shop.post("", body).json()["feedback"] == "full"
    id = shop.post("/full/decisions", {"context": "v"}).json()["id"]
    one = shop.post("/full/rewards", {"id": id, "reward": {"x": 1.0}})
    assert (one.status_code, error(one)["code"]) == (422, "bad_reward")
    assert shop.post("/full/rewards", {"id": id, "reward": {"x": 1.0, "y": 0.5}}).json() == {"outcome": "applied"}


# experiments


def test_an_experiment_is_created_listed_and_changed(shop: Running) -> None:
    body = {"name": "changing", "arms": ["x", "y"], "reward_wait": 60, "default_reward": 0.1}
    created = shop.post("", body)
    assert created.status_code == 201
    assert created.json()["default_reward"] == 0.1
    assert "changing" in shop.http.get("/v1/experiments").json()["experiments"]
    assert error(shop.post("", body))["code"] == "experiment_exists"
    changes: list[tuple[dict[str, Any], str, Any]] = [
        ({"alpha": 0.25}, "alpha", 0.25),
        ({"alpha": 2}, "alpha", 2.0),
        ({"alpha": "inf"}, "alpha", "inf"),
        ({"alpha": 1.0}, "alpha", 1.0),
        ({"add_arm": "z"}, "arms", ["x", "y", "z"]),
        ({"retire_arm": "x"}, "arms", ["y", "z"]),
        ({"mask_arm": "y"}, "masked_arms", ["y"]),
        ({"unmask_arm": "y"}, "masked_arms", []),
        ({"paused": True}, "paused", True),
    ]
    for change, field, expected in changes:
        answer = shop.http.patch("/v1/experiments/changing", json=change)
        assert (answer.status_code, answer.json()[field]) == (200, expected)
    paused = shop.post("/changing/decisions", {"context": "v"})
    assert (paused.status_code, error(paused)["code"]) == (409, "paused")
    assert shop.http.patch("/v1/experiments/changing", json={"paused": False}).json()["paused"] is False
    for wrong in (
        {},
        {"alpha": 0.5, "paused": True},
        {"alpha": -1.0},
        {"alpha": None},
        {"alpha": "1"},
        {"color": "red"},
    ):
        assert shop.http.patch("/v1/experiments/changing", json=wrong).status_code == 422
    infinity = b'{"alpha": Infinity}'
    assert shop.http.patch("/v1/experiments/changing", content=infinity).status_code in (400, 422)
    assert shop.http.patch("/v1/experiments/nowhere", json={"alpha": 0.5}).status_code == 404


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, "inf"])
def test_welfare_is_shown_for_every_alpha(shop: Running, alpha: float | str) -> None:
    name = f"welfare-{alpha}"
    groups = {"labels": ["g", "g", "h"], "entitlements": {"g": 1.0, "h": 2.0}}
    created = shop.post("", {"name": name, "arms": ["x", "y", "z"], "alpha": alpha, "groups": groups})
    assert (created.status_code, created.json()["welfare"]) == (201, pytest.approx(power_mean([1, 1], alpha)))
    for k in range(20):
        drawn = shop.post(f"/{name}/decisions", {"context": f"v{k % 3}"}).json()
        assert shop.post(f"/{name}/rewards", {"id": drawn["id"], "reward": k % 2}).status_code == 200
    found = shop.http.get(f"/v1/experiments/{name}")
    assert b"Infinity" not in found.content
    shown = found.json()
    assert shown["alpha"] == alpha
    assert shown["welfare"] == pytest.approx(power_mean([*shown["accounts"].values()], alpha), rel=1e-12)
    assert (shown["alpha_performance"] is None) == (alpha == "inf")
    history = shop.http.get(f"/v1/experiments/{name}/history").json()["items"]
    assert history[0]["details"]["settings"]["alpha"] == alpha
    page = shop.http.get("/metrics").text
    (line,) = [line for line in page.splitlines() if line.startswith(f'alphafair_welfare{{experiment="{name}"}}')]
    assert float(line.split()[-1]) == shown["welfare"]
    performance = f'alphafair_alpha_performance{{experiment="{name}"}}'
    assert (performance in page) == (alpha != "inf")


def power_mean(accounts: list[float], alpha: float | str) -> float:
    """The power mean of accounts entitled to 1 and 2, from its definition."""
    levels, weights = np.array(accounts) / [1.0, 2.0], np.array([1.0, 2.0]) / 3.0
    if alpha == "inf":
        return float(levels.min())
    power = 1.0 - float(alpha)
    if power == 0.0:
        return float(np.exp(weights @ np.log(levels)))
    return float((weights @ levels**power) ** (1.0 / power))


def test_a_context_is_erased(shop: Running) -> None:
    label = "ann / or & so"
    kept = decide(shop, context=label, id="ann-1")
    for status, code in ((200, None), (404, "unknown_context")):
        answer = shop.http.delete("/v1/experiments/home/contexts", params={"label": label})
        assert answer.status_code == status
        assert status == 200 or error(answer)["code"] == code
    assert label not in shop.http.get("/v1/experiments/home/log", params={"format": "csv"}).text
    assert "ann-1" not in shop.http.get("/v1/experiments/home/log", params={"format": "csv"}).text
    assert kept["context"] == label
    shop.engine.verify()


def test_a_rollback_forgets_what_was_learned(shop: Running) -> None:
    shop.post("", {"name": "back", "arms": ["x", "y"]})
    before = shop.http.get("/v1/experiments/back").json()
    position = before["position"]
    for n in range(20):
        shop.post("/back/decisions", {"context": "v", "id": f"back-{n}"})
        shop.post("/back/rewards", {"id": f"back-{n}", "reward": 1.0})
    after = shop.http.patch("/v1/experiments/back", json={"rollback": position}).json()
    assert after["accounts"] == before["accounts"]
    assert sum(after["cumulative_rewards"].values()) == 20.0  # that was paid
    waiting = shop.post("/back/decisions", {"context": "v", "deferred": True}).json()
    shop.http.patch("/v1/experiments/back", json={"rollback": position})
    sent = {"id": waiting["id"], "reward": 1.0}
    for path, body in (("rewards", sent), ("rewards", sent), ("activations", {"id": waiting["id"]})):
        lost = shop.post(f"/back/{path}", body)
        assert (lost.status_code, lost.json()["outcome"]) == (410, "rolled_back")
        assert error(lost)["code"] == "rolled_back_decision"
        assert "rollback" in error(lost)["message"]
    (item,) = shop.post("/back/rewards/batch", {"items": [sent]}).json()["items"]
    assert (item["outcome"], item["error"]["code"]) == ("rolled_back", "rolled_back_decision")
    with Client(shop.url) as client, pytest.raises(ServiceError) as refused:
        client.reward(waiting["id"], 1.0, experiment="back")
    assert (refused.value.status, refused.value.code) == (410, "rolled_back_decision")
    assert after["decisions"] == 20
    assert shop.http.patch("/v1/experiments/back", json={"rollback": 10**9}).status_code == 422
    shop.engine.verify()


@pytest.mark.parametrize("name", ["", "a/b", "..", "-a", "a b", "häuser", "a" * 101, "a\n", "a\x00"])
def test_a_name_that_cannot_be_part_of_a_path_is_rejected(shop: Running, name: str) -> None:
    answer = shop.post("", {"name": name, "arms": ["x"]})
    assert answer.status_code == 422
    assert error(answer)["argument"] == "name"


def test_settings_go_to_the_policy_and_are_rejected_by_it(shop: Running) -> None:
    settings = {"name": "set", "arms": ["x", "y"], "policy": "hedge", "settings": {"learning_rate": 0.05}}
    assert shop.post("", settings).status_code == 201
    for name, wrong in (("a", {"learning_rate": -1}), ("b", {"color": 3}), ("c", {"arms": 3})):
        assert shop.post("", {**settings, "name": name, "settings": wrong}).status_code == 422
    assert shop.post("", {**settings, "name": "d", "policy": "nonsense"}).status_code == 422


@pytest.mark.parametrize("format", ["parquet", "csv", "jsonl"])
def test_the_log_is_that_of_the_engine(shop: Running, format: str) -> None:
    shop.post("/home/rewards", {"id": decide(shop, id=f"log-{format}")["id"], "reward": 0.5})
    answer = shop.http.get("/v1/experiments/home/log", params={"format": format})
    assert answer.status_code == 200
    read = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}[format]
    table = read(io.BytesIO(answer.content))
    assert {"seq", "id", "context", "arm", "propensity", "reward", "reward_source", "decided_at"} <= set(table.columns)
    assert len(table) == shop.engine.experiment("home").decisions
    log = shop.engine.log("home")
    rewarded = table.filter(pl.col("reward").is_not_null())
    np.testing.assert_array_equal(rewarded["propensity"].to_numpy(), log.propensities)
    np.testing.assert_array_equal(rewarded["reward"].to_numpy(), log.rewards)
    wrong = shop.http.get("/v1/experiments/home/log", params={"format": "xls"})
    assert wrong.status_code in (400, 422)
    assert error(wrong)
    assert error(shop.http.get("/v1/experiments/nowhere/log"))["code"] == "unknown_experiment"


# the service itself


def test_health_and_readiness(shop: Running) -> None:
    assert shop.http.get("/health").json()["status"] == "ok"
    assert shop.http.get("/ready").json() == {"ready": True, "clock_behind_seconds": 0.0}


def test_metrics_agree_with_the_engine(shop: Running) -> None:
    decide(shop)
    page = shop.http.get("/metrics").text
    status = shop.engine.experiment("home")
    numbers = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    told = {name: float(numbers[f'alphafair_{name}{{experiment="home"}}']) for name in ("decisions_total", "pending")}
    assert told == {"decisions_total": status.decisions, "pending": status.pending}
    accounts = np.array(list(status.accounts.values()))
    assert float(numbers['alphafair_jain_index{experiment="home"}']) == metrics.jain_index(accounts)
    assert float(numbers["alphafair_commit_seconds_count"]) == float(numbers["alphafair_group_size_count"]) > 0
    assert float(numbers["alphafair_group_size_sum"]) >= status.decisions
    assert float(numbers["alphafair_waiting"]) == 0.0
    route = 'alphafair_requests_total{route="/v1/experiments/{name}/decisions",status="200"}'
    assert float(numbers[route]) >= 1
    delays = float(numbers["alphafair_reward_delay_seconds_count"])
    assert delays == sum(shop.engine.experiment(name).rewards for name in shop.engine.experiments())


def test_every_route_is_described_with_a_valid_example(tmp_path: Path) -> None:
    token = keys.create(tmp_path / "shop.db", "admin", "me")  # else the first key that is created ends it
    with running(tmp_path / "shop.db") as shop:
        shop.http.headers["authorization"] = f"Bearer {token}"
        shop.engine.create("home", arms=ARMS)
        check_description(shop)


def check_description(shop: Running) -> None:
    description = shop.http.get("/openapi.json").json()
    page = shop.http.get("/docs").text
    examples = 0
    for path, item in description["paths"].items():
        for method, operation in item.items():
            assert f"<code>{path}</code>" in page
            assert html.escape(operation["description"]) in page
            if "requestBody" in operation:
                (example,) = operation["requestBody"]["content"]["application/json"]["schema"]["examples"]
                answer = shop.http.request(method, path.format(name="home", id="0badc0de"), json=example)
                expected = (401, 409) if path == "/session" else (200, 201, 404, 409)  # the example's key is made up
                assert answer.status_code in expected, answer.text
                examples += 1
    assert examples == sum(endpoint.body is not None for endpoint in ENDPOINTS if endpoint.in_api)
    assert "http" not in page.replace("http://127.0.0.1:8000", ""), "the page loads nothing from elsewhere"


# errors and limits


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nope", 404, "not_found"),
        ("GET", "/docs/nope", 404, "not_found"),
        ("GET", "/schema", 404, "not_found"),
        ("DELETE", "/v1/experiments/home", 405, "method_not_allowed"),
        ("GET", "/v1/experiments/home/decisions", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
        ("GET", "/v1/experiments/nowhere", 404, "unknown_experiment"),
        ("GET", "/v1/experiments/%00%2F..", 404, "not_found"),
    ],
)
def test_unknown_paths_have_the_usual_error_form(shop: Running, method: str, path: str, status: int, code: str) -> None:
    answer = shop.http.request(method, path)
    assert (answer.status_code, error(answer)["code"]) == (status, code)
    if status == 405:
        assert "GET" in answer.headers["allow"] or "POST" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("body", "status", "argument"),
    [
        (b"", 400, None),
        (b"{", 400, None),
        (b"\xff\xfe", 400, None),
        (b'{"context": "\\ud800"}', 400, None),
        (b"[" * 50_000, 422, None),
        (b"[]", 422, None),
        (b"{}", 422, None),
        (b'{"context": 7}', 422, "context"),
        (b'{"context": ""}', 422, "context"),
        (b'{"context": "v", "color": "red"}', 422, None),
        (b'{"context": "v", "available": []}', 422, "available"),
        (b'{"context": "v", "available": ["a", 3]}', 422, "available[1]"),
        (b'{"context": "v", "deferred": "yes"}', 422, "deferred"),
    ],
)
def test_a_bad_body_is_rejected_and_changes_nothing(
    shop: Running, body: bytes, status: int, argument: str | None
) -> None:
    before = shop.engine.position
    answer = shop.http.post("/v1/experiments/home/decisions", content=body)
    assert answer.status_code == status
    assert error(answer).get("argument") == argument
    assert shop.engine.position == before


@pytest.mark.parametrize(
    "reward", ["1e999", "NaN", "-Infinity", '"1"', "true", "null", "2", "-0.1", "[1]", '{"ada": 1}']
)
def test_a_bad_reward_is_rejected_and_changes_nothing(shop: Running, reward: str) -> None:
    id = decide(shop)["id"]
    before = shop.engine.position
    answer = shop.http.post("/v1/experiments/home/rewards", content=f'{{"id": "{id}", "reward": {reward}}}')
    assert answer.status_code in (400, 422)
    assert error(answer)
    assert shop.engine.position == before


@pytest.mark.parametrize(
    "label",
    [
        "дом",
        "家",
        "👩‍👩‍👧",
        "e\u0301",
        "'; drop table decision; --",
        "%00",
        "../../etc/passwd",
        "<script>",
        "{}",
        '"',
        "\u202e",
        " ",
    ],
)
def test_unusual_labels_are_returned_unchanged(shop: Running, label: str) -> None:
    decision = decide(shop, context=label, id=f"odd {label}")
    assert (decision["context"], decision["id"]) == (label, f"odd {label}")
    assert shop.post("/home/rewards", {"id": f"odd {label}", "reward": 1.0}).json() == {"outcome": "applied"}
    table = pl.read_parquet(io.BytesIO(shop.http.get("/v1/experiments/home/log").content))
    assert table.filter(pl.col("id") == f"odd {label}")["context"].to_list() == [label]


@pytest.mark.parametrize("label", ["\x00", "a\nb", "\x7f", "x" * 201])
def test_labels_that_cannot_be_kept_are_rejected(shop: Running, label: str) -> None:
    for body in ({"context": label}, {"context": "v", "id": label}):
        answer = shop.post("/home/decisions", body)
        assert answer.status_code == 422
        assert error(answer)["argument"] in ("context", "id")
        assert len(answer.content) < 1000


@pytest.mark.parametrize("path", ["", "/home/decisions", "/home/rewards/batch"])
def test_a_body_above_the_limit_changes_nothing(shop: Running, path: str) -> None:
    before = shop.engine.position
    answer = shop.http.post(f"/v1/experiments{path}", content=b'"' + b"x" * 100_000 + b'"')
    assert (answer.status_code, error(answer)["code"]) == (413, "request_entity_too_large")

    def pieces() -> Iterator[bytes]:
        yield from [b"x" * 10_000] * 30

    try:
        answer = shop.http.post(f"/v1/experiments{path}", content=pieces())  # without a content-length
        assert answer.status_code == 413
    except httpx.WriteError:
        pass  # it had answered and gone before all was sent
    assert shop.engine.position == before


def test_a_batch_that_is_too_long_is_rejected(shop: Running) -> None:
    items = [{"id": str(k), "reward": 1} for k in range(1001)]
    answer = shop.post("/home/rewards/batch", {"items": items})
    assert (answer.status_code, error(answer)["argument"]) == (422, "items")


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        (b"GARBAGE\r\n\r\n", 400, "bad_http"),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n", 400, "bad_http"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * MAX_HEADER_BYTES + b"\r\n\r\n", 431, TOO_LARGE),
        (b"GET /" + b"y" * MAX_TARGET_BYTES + b" HTTP/1.1\r\nhost: localhost\r\n\r\n", 414, "uri_too_long"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"x: y\r\n" * (MAX_HEADER_BYTES // 6), 431, TOO_LARGE),
    ],
)
def test_invalid_http_has_the_usual_error_form(shop: Running, request_: bytes, status: int, code: str) -> None:
    head, _, body = shop.raw(request_).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(body)["error"]["code"] == code


def test_valid_request_ids_are_returned(shop: Running) -> None:
    assert shop.http.get("/health", headers={"x-request-id": "trace-1"}).headers["x-request-id"] == "trace-1"
    made = [shop.http.get("/health", headers={"x-request-id": "a b"}).headers["x-request-id"] for _ in range(2)]
    assert len({*made, "a b"}) == 3


def test_no_stack_trace_leaves_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any) -> None:
        raise RuntimeError("secret detail")

    with running(tmp_path / "shop.db") as shop:
        shop.post("", {"name": "home", "arms": ["ada", "ben"]})
        monkeypatch.setattr(shop.engine, "pause", fail)
        paused = shop.http.patch("/v1/experiments/home", json={"paused": True})
        monkeypatch.setattr(writer_module.Writer, "_answer", fail)
        for answer in (paused, shop.post("/home/decisions", {"context": "v"})):
            assert (answer.status_code, error(answer)["code"]) == (500, "internal")
            assert "secret" not in answer.text
        monkeypatch.setattr(shop.engine, "experiment", fail)
        answer = shop.http.get("/v1/experiments/home")  # what is wrong with one experiment is told, in a line
        assert (answer.status_code, error(answer)["code"]) == (503, "not_described")
        assert error(answer)["message"].endswith("cannot be described: RuntimeError: secret detail.")
        assert "Traceback" not in answer.text


def test_an_unwritable_file_answers_503_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(tmp_path / "shop.db") as shop:
        shop.post("", {"name": "home", "arms": ARMS})
        kept = decide(shop, id="kept")
        store = store_of(shop.engine, "home")
        commit = store.commit

        def fail(*arguments: Any, **settings: Any) -> None:
            raise Unavailable(f"{store.path} cannot be written: disk is full")

        monkeypatch.setattr(store, "commit", fail)
        answer = shop.post("/home/decisions", {"context": "v", "id": "lost"})
        assert (answer.status_code, error(answer)["code"], answer.headers["retry-after"]) == (503, "unavailable", "1")
        ready = shop.http.get("/ready")
        assert ready.status_code == 503
        assert "disk is full" in ready.json()["reason"]
        monkeypatch.setattr(store, "commit", commit)
        wait_until_ready(shop.http)  # found out by itself, without a request
        assert decide(shop, id="kept") == kept
        assert decide(shop, id="lost")["id"] == "lost"
        shop.engine.verify()


def test_a_proxy_may_use_a_path_prefix(tmp_path: Path) -> None:
    with running(tmp_path / "shop.db", root_path="/fair") as shop:
        for prefix in ("", "/fair"):  # whether the proxy takes it off or not
            assert shop.http.get(f"{prefix}/v1/experiments").json() == {"experiments": []}
        assert shop.http.post("/fair/v1/experiments", json={"name": "home", "arms": ARMS}).status_code == 201
        assert shop.http.get("/openapi.json").json()["servers"] == [{"url": "/fair"}]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"self": 1}, "settings.self must be a setting of the policy; got 1. Leave it out."),
        ({"contexts": 3}, "settings.contexts must be a setting of the policy; got 3. Leave it out."),
        ({"start": "a"}, "settings.start must be a setting of the policy"),
        ({"reward_range": 1}, "Send it as 'reward_range'."),
        ({"n_features": 10**18}, "n_features must be left out"),
        ({"n_features": 10**30}, "n_features must be left out"),
        ({"n_arms": 5}, "n_arms must be left out"),
        ({"": 5}, "must be left out"),
    ],
)
def test_unknown_settings_are_rejected(shop: Running, settings: dict[str, Any], said: str) -> None:
    answer = shop.post("", {"name": "odd", "arms": ARMS, "settings": settings})
    assert answer.status_code == 422, answer.text
    assert said in json.dumps(error(answer)), answer.text
