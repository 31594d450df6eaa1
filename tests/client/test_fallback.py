"""What the Python clients do while nobody answers: a server that answers as a test wants, or not at all."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alphafair import AsyncClient, Client, InvalidArgument, ServiceError
from alphafair.engine import Outcome, Receipt
from alphafair_client import fallback
from tests.misbehaving import DRAWN
from tests.serving import wait_for

Answer = tuple[int, Any] | None  # None: the connection is closed


def each(outcome: str) -> Callable[[Any], Answer]:
    return lambda body: (200, {"items": [{"id": "x", "outcome": outcome} for _ in body["items"]]})


def always(status: int, body: Any) -> Callable[[Any], Answer]:
    return lambda _: (status, body)


def refused(status: int, code: str, argument: str | None = None) -> Callable[[Any], Answer]:
    return always(status, {"error": {"code": code, "message": "No.", "argument": argument}})


def nobody(_: Any) -> Answer:
    return None


class Stub:
    """A service whose routes answer as `answers` says."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.answers: dict[str, Callable[[Any], Answer]] = {
            "decisions": always(200, DRAWN),
            "observations": each("recorded"),
            "rewards": always(200, {"outcome": "applied"}),
            "activations": always(200, {"outcome": "activated"}),
            "rewards/batch": each("applied"),
            "decisions/batch": lambda body: (200, {"items": [DRAWN for _ in body["items"]]}),
        }
        self.url = ""

    def is_down(self) -> None:
        self.answers = dict.fromkeys(self.answers, nobody)

    def is_up(self) -> None:
        self.answers = Stub().answers

    def sent_to(self, route: str) -> list[Any]:
        return [body for name, body in self.seen if name == route]

    def recorded(self) -> list[Any]:
        return [item for body in self.sent_to("observations") for item in body["items"]]


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            route = self.path.removeprefix("/v1/experiments/home/")
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            stub.seen.append((route, body))
            answer = stub.answers[route](body)
            if answer is None:
                self.close_connection = True
                return
            data = json.dumps(answer[1]).encode()
            self.send_response(answer[0])
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        stub.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield stub
        server.shutdown()
        thread.join()


class Awaited:
    """An `AsyncClient` in an event loop of its own, whose calls block."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        try:
            self.client = AsyncClient(url, **settings)
        except BaseException:
            self.stop()
            raise

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        return (
            partial(self.run, found) if inspect.iscoroutinefunction(inspect.unwrap(found)) or callable(found) else found
        )

    def run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call(*arguments, **options), self.loop).result()

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    def __enter__(self) -> Awaited:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.client.close)
        self.stop()


Open = Callable[..., Any]


@pytest.fixture(params=[Client, Awaited], ids=["blocking", "awaited"])
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a client of either kind, which sends what is queued when a test lets it."""
    monkeypatch.setattr("alphafair_client.client.EVERY", 1000.0)
    monkeypatch.setattr("alphafair_client.client.LAST_FLUSH", 0.01)
    return partial(request.param, retries=0)


def test_without_a_fallback_an_outage_is_raised(stub: Stub, client: Open) -> None:
    stub.is_down()
    with client(stub.url) as shop:
        for call in (partial(shop.decide, "home", "v"), partial(shop.reward, "x", 1.0, experiment="home")):
            with pytest.raises(ConnectionError):
                call()
        with pytest.raises(ConnectionError):
            shop.decide_many("home", ["v"])
        assert (shop.queued, shop.dropped) == (0, 0)


def test_what_is_shown_is_recorded_once_somebody_answers(stub: Stub, client: Open) -> None:
    stub.is_down()
    with client(stub.url, fallback=lambda name, context, available: f"{name} {context} {available}") as shop:
        shown = shop.decide("home", "v", id="mine", available=["ada", "cyd"])
        assert shown == Receipt(shown.id, "home v ['ada', 'cyd']", None, "v", "fallback")
        assert shop.reward(shown.id, 0.5, experiment="home") == Outcome("queued")
        other = shop.decide("home", "w")
        assert (shop.queued, shop.flush(0.2), shop.queued) == (2, False, 2)
        stub.is_up()
        assert shop.flush()
        assert (shop.queued, shop.dropped) == (0, 0)
        first, second = stub.recorded()[-2:]
        assert first == {
            "id": shown.id,
            "context": "v",
            "arm": shown.arm,
            "source": "fallback",
            "instead_of": "mine",
            "reward": 0.5,
        }
        assert (second["id"], second["instead_of"]) == (other.id, stub.sent_to("decisions")[-1]["id"])
        assert stub.sent_to("rewards") == stub.sent_to("rewards/batch") == []
        assert shop.reward(shown.id, 0.5, experiment="home") == Outcome("applied")


def test_a_slow_answer_is_no_answer(stub: Stub, client: Open) -> None:
    stub.answers["decisions"] = lambda _: (time.sleep(0.5), (200, DRAWN))[1]
    with client(stub.url, fallback="ada", decide_timeout=0.05) as shop:
        assert shop.decide("home", "v").source == "fallback"
        assert shop.decide("home", "v", timeout=20.0).source is None


def test_the_arm_is_the_incumbents_or_one_that_is_available(stub: Stub, client: Open) -> None:
    stub.answers["decisions"] = refused(409, "paused")
    with client(stub.url, fallback="ada") as shop:
        assert shop.decide("home", "v", available=["ada", "ben"]).arm == "ada"
        assert shop.decide("home", "v", available=["ben", "cyd"]).arm == "ben"
        shown = shop.decide("home", "v", incumbent="cyd", incumbent_propensity=0.25, unit="u", available=["ada"])
        assert shown.arm == "cyd"
        stub.is_up()
        assert shop.flush()
        told = {"propensity": 0.25, "unit": "u"}
        assert told.items() <= next(item for item in stub.recorded() if item["id"] == shown.id).items()
    stub.is_down()
    with client(stub.url) as shop:  # without a fallback of the client
        assert shop.decide("home", "v", incumbent="cyd").arm == "cyd"
        found = shop.decide_many("home", ["v", "w"], incumbent=["ben", "cyd"])
        assert [each.arm for each in found] == ["ben", "cyd"]
        with pytest.raises(ConnectionError):
            shop.decide_many("home", ["v", "w"], incumbent=["ben", None])


@pytest.mark.parametrize(
    ("status", "code"), [(429, "overloaded"), (503, "unavailable"), (500, "internal"), (409, "paused")]
)
def test_not_now_is_no_answer(stub: Stub, status: int, code: str) -> None:
    stub.answers["decisions"] = refused(status, code)
    with Client(stub.url, fallback="ada", retries=0) as shop:
        assert shop.decide("home", "v").source == "fallback"


@pytest.mark.parametrize(("status", "code"), [(422, "bad_request"), (401, "unauthorized"), (404, "unknown_arm")])
def test_mistakes_are_raised(stub: Stub, client: Open, status: int, code: str) -> None:
    stub.answers = dict.fromkeys(stub.answers, refused(status, code, "available"))
    with client(stub.url, fallback="ada") as shop:
        for call in (
            partial(shop.decide, "home", "v"),
            partial(shop.decide_many, "home", ["v"]),
            partial(shop.reward, "x", 1.0, experiment="home"),
            partial(shop.reward_many, [("x", 1.0)], experiment="home"),
        ):
            with pytest.raises(ServiceError) as caught:
                call()
            assert (caught.value.status, caught.value.code) == (status, code)
        assert shop.queued == 0


def test_a_slate_has_no_fallback(stub: Stub) -> None:
    stub.is_down()
    with Client(stub.url, fallback="ada", retries=0) as shop, pytest.raises(ConnectionError):
        shop.decide("home", "v", k=2)


def test_after_three_failures_there_is_one_trial_after_each_pause(stub: Stub, client: Open) -> None:
    clock = [100.0]
    stub.is_down()
    with client(stub.url, fallback="ada") as shop, pytest.MonkeyPatch.context() as patch:
        patch.setattr(fallback, "time", SimpleNamespace(monotonic=lambda: clock[0]))
        trials = []
        for _ in range(800):
            before = len(stub.seen)
            assert shop.decide("home", "v").source == "fallback"
            trials += [clock[0]] * (len(stub.seen) - before)
            clock[0] += 0.125
        assert trials == [100.0, 100.125, 100.25, 101.25, 103.25, 107.25, 115.25, 131.25, 161.25, 191.25]
        stub.is_up()
        clock[0] = 300.0
        assert shop.decide("home", "v").source is None
        stub.answers["decisions"] = nobody  # and from the beginning
        seen = len(stub.sent_to("decisions"))
        for _ in range(10):
            shop.decide("home", "v")
        assert len(stub.sent_to("decisions")) == seen + 3


def test_a_delivery_makes_the_next_decision_a_trial(stub: Stub, client: Open) -> None:
    stub.is_down()
    with client(stub.url, fallback="ada") as shop:
        for _ in range(10):
            shop.decide("home", "v")
        stub.is_up()
        assert shop.decide("home", "v").source == "fallback"
        assert shop.flush()
        assert shop.decide("home", "v").source is None


def test_a_paused_experiment_does_not_stop_the_others(stub: Stub) -> None:
    stub.answers["decisions"] = refused(409, "paused")
    with Client(stub.url, fallback="ada", retries=0) as shop:
        for _ in range(10):
            shop.decide("home", "v")
        assert len(stub.sent_to("decisions")) == 10


def test_rewards_and_activations_of_other_decisions_wait_too(stub: Stub, client: Open) -> None:
    stub.is_down()
    with client(stub.url, fallback="ada") as shop:
        assert shop.reward("a", 1.0, experiment="home") == Outcome("queued")
        assert shop.activate("b", experiment="home") == Outcome("queued")
        found = shop.reward_many([("c", 0.5), ("d", float("nan"))], experiment="home")
        assert found[0] == Outcome("queued")
        assert found[1].code == "bad_reward"
        assert shop.queued == 3
        stub.is_up()
        assert shop.flush()
        assert stub.sent_to("rewards/batch")[-1] == {"items": [{"id": "a", "reward": 1.0}, {"id": "c", "reward": 0.5}]}
        assert stub.sent_to("activations")[-1] == {"id": "b"}


def test_batches_fall_back_item_by_item(stub: Stub, client: Open) -> None:
    stub.is_down()
    with client(stub.url, fallback="ada") as shop:
        first, bad, last = shop.decide_many("home", ["v", "", "w"])
        assert [each.source for each in (first, last)] == ["fallback"] * 2
        assert bad.argument == "context"
        outcomes = shop.reward_many([(first.id, 1.0), ("other", 0.5)], experiment="home")
        assert outcomes == [Outcome("queued")] * 2
        assert shop.reward_many([(first.id, 1.0)], experiment="home") == [Outcome("queued")]
        stub.is_up()
        items = [
            DRAWN,
            {"error": {"code": "policy_failed", "message": "No."}},
            {"error": {"code": "unknown_arm", "message": "No."}},
        ]
        stub.answers["decisions/batch"] = always(200, {"items": items})
        drawn, fallen, wrong = shop.decide_many("home", ["a", "b", "c"])
        assert (drawn.source, fallen.source, wrong.code) == (None, "fallback", "unknown_arm")
        assert shop.flush()
        assert {item["context"] for item in stub.recorded()} == {"v", "w", "b"}


def test_a_deferred_decision_waits_for_its_activation(stub: Stub, client: Open) -> None:
    stub.is_down()
    with client(stub.url, fallback="ada") as shop:
        shown, _ = (shop.decide("home", context, deferred=True) for context in "vw")
        assert shop.queued == 0
        assert shop.activate(shown.id, experiment="home") == Outcome("queued")
        assert shop.queued == 1
        stub.is_up()
        assert shop.flush()
        assert [item["id"] for item in stub.recorded()] == [shown.id]


def test_a_new_arm_of_the_incumbent_is_shown_and_not_logged(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    stub.answers["decisions"] = refused(404, "unknown_arm", "incumbent")
    with Client(stub.url, retries=0) as shop, caplog.at_level(logging.WARNING, "alphafair_client"):
        for _ in range(2):
            shown = shop.decide("home", "v", incumbent="new")
            assert (shown.arm, shown.source) == ("new", "fallback")
            assert shop.reward(shown.id, 1.0, experiment="home") == Outcome("unknown")
        assert (shop.queued, shop.dropped, len(caplog.records), stub.sent_to("rewards")) == (0, 2, 1, [])


def test_entries_that_are_refused_are_counted_and_do_not_hold_up_the_others(stub: Stub, client: Open) -> None:
    stub.is_down()
    with client(stub.url, fallback="ada") as shop:
        shown = [shop.decide("home", context) for context in ("refused", "bad reward", "good", "later")]
        shop.reward(shown[1].id, 99.0, experiment="home")

        def answer(body: Any) -> Answer:
            codes = {"refused": ("unknown_arm", "arm"), "later": ("policy_failed", None)}
            bad = [
                ("bad_reward", "reward") if "reward" in item else codes.get(item["context"]) for item in body["items"]
            ]
            errors = [code and {"error": {"code": code[0], "message": "No.", "argument": code[1]}} for code in bad]
            return 200, {"items": [error or {"id": "x", "outcome": "recorded"} for error in errors]}

        stub.is_up()
        stub.answers["observations"] = answer
        assert not shop.flush(0.2)
        assert (shop.queued, shop.dropped) == (1, 2)  # an entry and a reward
        assert {"context": "bad reward", "id": shown[1].id} in [
            {k: item[k] for k in ("context", "id")} for item in stub.recorded() if "reward" not in item
        ]
        stub.answers["observations"] = refused(404, "unknown_experiment")
        assert shop.flush()
        assert shop.dropped == 3


def test_a_service_that_knows_no_observations_is_tried_again(stub: Stub) -> None:
    stub.is_down()
    with Client(stub.url, fallback="ada", retries=0) as shop:
        shop.decide("home", "v")
        stub.answers["observations"] = refused(404, "not_found")
        assert not shop.flush(0.1)
        assert (shop.queued, shop.dropped) == (1, 0)


def test_a_reward_that_arrives_while_its_decision_is_sent_follows_it(stub: Stub) -> None:
    stub.is_down()
    with Client(stub.url, fallback="ada", retries=0) as shop:
        shown = shop.decide("home", "v")
        stub.is_up()

        def answer(body: Any) -> Answer:
            assert shop.reward(shown.id, 1.0, experiment="home") == Outcome("queued")
            return each("recorded")(body)

        stub.answers["observations"] = answer
        assert shop.flush()
        assert stub.sent_to("rewards/batch") == [{"items": [{"id": shown.id, "reward": 1.0}]}]


def test_the_oldest_are_dropped(stub: Stub, client: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback.Queue, "limit", 5)
    stub.is_down()
    with client(stub.url, fallback="ada") as shop:
        shop.decide("home", "deferred", deferred=True)
        for k in range(8):
            shop.decide("home", f"v{k}")
        assert (shop.queued, shop.dropped) == (5, 3)
        stub.is_up()
        assert shop.flush()
        assert [item["context"] for item in stub.recorded()][-5:] == [f"v{k}" for k in range(3, 8)]


@pytest.mark.parametrize("kind", [Client, Awaited])
def test_it_is_sent_in_the_background(stub: Stub, kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alphafair_client.client.EVERY", 0.05)
    stub.is_down()
    with kind(stub.url, fallback="ada", retries=0) as shop:
        shown = [shop.decide("home", "v") for _ in range(5)]
        time.sleep(0.2)
        stub.is_up()
        wait_for(lambda: shop.queued, lambda queued: queued == 0, seconds=20.0)
        assert {item["id"] for item in stub.recorded()} == {each.id for each in shown}
        monkeypatch.setattr("alphafair_client.client.EVERY", 1000.0)
        assert shop.decide("home", "v").source is None
        stub.answers["decisions"] = nobody
        assert shop.decide("home", "v").source == "fallback"
        stub.is_up()
        assert shop.decide("home", "v").source is None  # a success lets it be sent at once
        wait_for(lambda: shop.queued, lambda queued: queued == 0, seconds=20.0)
    wait_for(lambda: [each.name for each in threading.enumerate()], lambda names: "alphafair-queue" not in names)


def test_close_sends_what_is_queued_and_later_calls_fail(stub: Stub) -> None:
    stub.is_down()
    with Client(stub.url, fallback="ada", retries=0) as shop:
        shown = shop.decide("home", "v")
        stub.is_up()
    assert [item["id"] for item in stub.recorded()][-1] == shown.id
    with pytest.raises(ConnectionError, match="closed"):
        shop.decide("home", "v")
    shop.close()


# a file


def test_a_file_keeps_what_was_not_sent(stub: Stub, client: Open, tmp_path: Path) -> None:
    stub.is_down()
    path = tmp_path / "queue.db"
    with client(stub.url, queue=path, fallback="ada") as shop:
        shown = [shop.decide("home", f"v{k}") for k in range(3)]
        held = shop.decide("home", "w", deferred=True)
        shop.reward(shown[1].id, 0.5, experiment="home")
    with client(stub.url, queue=str(path), fallback="ada") as shop:
        assert shop.queued == 3
        shop.activate(held.id, experiment="home")
        stub.is_up()
        assert shop.flush()
        sent = {item["id"]: item.get("reward") for item in stub.recorded()}
        assert sent == {shown[0].id: None, shown[1].id: 0.5, shown[2].id: None, held.id: None}
    with client(stub.url, queue=path) as shop:
        assert shop.queued == 0


def test_one_client_uses_a_file(stub: Stub, tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with Client(stub.url, queue=path), pytest.raises(InvalidArgument, match="database is locked"):
        Client(stub.url, queue=path)
    (tmp_path / "text").write_text("This is a text and not a database. " * 100)
    for wrong in (tmp_path / "text", tmp_path / "missing" / "queue.db"):
        with pytest.raises(InvalidArgument, match="queue must be the path of a file for this client alone"):
            Client(stub.url, queue=wrong)


def test_a_file_that_cannot_be_written_is_no_reason_to_show_nothing(
    stub: Stub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stub.is_down()
    with Client(stub.url, queue=tmp_path / "queue.db", fallback="ada", retries=0) as shop:
        shop._fallback.queue._file.execute("pragma query_only = on")  # type: ignore[attr-defined]
        for _ in range(2):
            assert shop.decide("home", "v").arm == "ada"
        assert (shop.queued, len(caplog.records)) == (2, 1)
        stub.is_up()
        assert shop.flush()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_a_queue_of_its_own(stub: Stub, tmp_path: Path) -> None:
    stub.is_down()
    with Client(stub.url, queue=tmp_path / "queue.db", fallback="ada", retries=0) as shop:
        shop.decide("home", "parent")
        child = os.fork()
        if child == 0:
            before = shop.queued
            shop.decide("home", "child")
            os._exit(10 * before + shop.queued)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert shop.queued == 1
    with sqlite3.connect(tmp_path / "queue.db") as file:
        (body,) = [json.loads(row[0]) for row in file.execute("select body from entry")]
    file.close()
    assert body["context"] == "parent"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"fallback": ""}, "fallback must be an arm, or a function that returns one; got ''. Pass a string."),
        ({"fallback": 3}, "fallback must be an arm"),
        ({"queue": 3}, "queue must be the path of a file, or None; got 3."),
        ({"decide_timeout": 0}, "decide_timeout must be a number in"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Client(**settings)
