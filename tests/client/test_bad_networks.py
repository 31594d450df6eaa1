"""The Python clients in a bad network, and with a service that misbehaves by a script."""

from __future__ import annotations

import asyncio
import dataclasses
import email.utils
import gc
import json
import pickle
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alphafair import AsyncClient, Client, ServiceError
from alphafair.engine import Outcome, Receipt
from alphafair.service.http.errors import failure
from alphafair.service.routes import HANDLERS
from alphafair_client import api, http, sending
from alphafair_client.api import ExperimentAnswer
from alphafair_client.http import Lost, Reply
from tests.client.calling import (
    ALL,
    BOTH,
    DRAWN_,
    EXPERIMENT,
    LONG,
    Act,
    Run,
    blocking,
    busy,
    decide,
    free_port,
)
from tests.misbehaving import (
    CERTIFICATE,
    DRAWN,
    Step,
    answer,
    close,
    cutting,
    drip,
    hang,
    head,
    raw,
    reset,
    scripted,
)
from tests.serving import ARMS, Running, running, wait_for
from tests.stores import both_stores

pytestmark = pytest.mark.compiled


# A bad network between the client and the real service


def together(url: str, acts: list[Act], **settings: Any) -> list[Any]:
    with Client(url, **settings) as client, ThreadPoolExecutor(8) as threads:
        return [*threads.map(lambda act: act(client), acts)]


def together_in_asyncio(url: str, acts: list[Act], **settings: Any) -> list[Any]:
    async def run() -> list[Any]:
        async with AsyncClient(url, max_connections=8, **settings) as client:
            return await asyncio.gather(*(act(client) for act in acts))

    return asyncio.run(run())


@both_stores
@pytest.mark.parametrize("run", [together, together_in_asyncio])
@pytest.mark.parametrize("seed", [0, 1])
def test_exactly_once_through_a_proxy_that_cuts_and_delays(
    shop: Running, run: Run, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every connection is cut within its first few requests or answers, anywhere in them."""
    monkeypatch.setattr(sending, "LONGEST_PAUSE", 0.02)
    name = f"proxy-{run.__name__}-{seed}"
    settings = {"timeout": 60.0, "retries": 1000}
    with (
        Client(shop.url, timeout=60.0) as direct,
        cutting(shop.port, seed, cut=1.0, most_bytes=2500, most_delay=0.002) as proxy,
    ):
        url = f"http://127.0.0.1:{proxy.port}"
        direct.create(name, arms=ARMS)
        decisions: list[Act] = [lambda client, k=k: client.decide(name, f"c{k % 5}") for k in range(100)]  # type: ignore[misc]
        batches: list[Act] = [lambda client, k=k: client.decide_many(name, [f"c{k}"] * 3) for k in range(20)]  # type: ignore[misc]
        decided = run(url, decisions + batches, **settings)
        drawn = [*decided[:100], *(each for many in decided[100:] for each in many)]
        assert drawn == direct.decide_many(name, [each.context for each in drawn], ids=[each.id for each in drawn])
        rewards: list[Act] = [lambda client, each=each: client.reward(each.id, 0.5, experiment=name) for each in drawn]  # type: ignore[misc]
        assert set(run(url, rewards, **settings)) <= {Outcome("applied"), Outcome("repeated")}
        found = direct.experiment(name)
        assert (found.decisions, found.rewards) == (len(drawn), len(drawn)) == (160, 160)
        assert proxy.n_cut > 50


# Answers that are asked for again


GATEWAY = answer(b"<html><h1>502 Bad Gateway</h1></html>", 502, content_type="text/html")
PASSING: dict[str, Step] = {
    "a gateway's 502": GATEWAY,
    "504, HTML": answer(b"<html>504", 504),
    "504, nothing": answer(b"", 504),
    "503 of a gateway": answer(b"no upstream", 503),
    "503 of the service": busy(retry_after="0"),
    "429": answer({"error": {"code": "too_many_requests", "message": "Slower."}}, 429, retry_after="0.01"),
    "408": answer(b"", 408, connection="close"),
    "Retry-After in the past": busy(retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
    "Retry-After as a date": busy(retry_after=email.utils.formatdate(time.time() - 1.0, usegmt=True)),
    "Retry-After by another clock": busy(
        retry_after="Wed, 21 Oct 2099 07:28:00 GMT", date="Wed, 21 Oct 2099 07:28:00 GMT"
    ),
    "Retry-After nonsense": busy(retry_after="soon"),
    "Retry-After negative": busy(retry_after="-5"),
    "Retry-After not a number": busy(retry_after="nan"),
    "Retry-After not a date": busy(retry_after="Wed, 99 Foo 20155 07:28:00 GMT"),
    "a body that is too short": raw(head(content_length=500) + b'{"id": "x"', then=close),
    "a chunk that is too short": raw(head(transfer_encoding="chunked") + b'fff\r\n{"id"', then=close),
    "headers that end too soon": raw(b"HTTP/1.1 200 OK\r\ncontent-le", then=close),
    "no answer": close,
    "a reset connection": reset,
    "a reset within the body": raw(head(content_length=500), then=reset),
    "no HTTP": raw(b"SSH-2.0-OpenSSH_9.2p1\r\n", then=close),
    "headers without an end": raw(b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000, then=close),
}


@BOTH
@pytest.mark.parametrize("fault", PASSING)
def test_temporary_failures_are_retried_with_the_same_id(run: Run, fault: str) -> None:
    with scripted(PASSING[fault], PASSING[fault], answer()) as server:
        assert run(server.url, decide, timeout=LONG) == [DRAWN_]
    assert len(server.seen) == 3
    assert len({each.body for each in server.seen}) == 1
    assert json.loads(server.seen[0].body)["id"]


@BOTH
def test_after_the_last_attempt_the_failure_is_raised(run: Run) -> None:
    for fault, error, text in (
        (
            GATEWAY,
            ServiceError,
            "502 bad_gateway: This answer is not from the service; it begins with '<html>",
        ),
        (busy(), ServiceError, "503 overloaded: Busy."),
        (reset, ConnectionError, "No answer to POST /v1/experiments/home/decisions after 3 attempts within 20 s: the "),
    ):
        with scripted(*[fault] * 3) as server:
            (problem,) = run(server.url, decide, retries=2, timeout=LONG)
            assert type(problem) is error
            assert str(problem).startswith(text)
            assert len(server.seen) == 3


@BOTH
@pytest.mark.parametrize("asked", ["3600", "9" * 400, "Fri, 31 Dec 2199 23:59:59 GMT"])
def test_a_pause_beyond_the_deadline_is_not_started(run: Run, asked: str) -> None:
    with scripted(busy(retry_after=asked), answer()) as server:
        (problem,) = run(server.url, decide)
        assert isinstance(problem, ServiceError)
        assert problem.status == 503
        assert len(server.seen) == 1


def test_a_date_in_retry_after_is_read_by_the_clock_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The `Date` of the service's own answers, whose clock is years ahead here, says what "now" is."""
    ahead = int(time.time()) + 10**9
    monkeypatch.setattr("alphafair.service.http.connections.time", SimpleNamespace(time=lambda: ahead + 0.9))

    async def busy_until(service: Any, request: Any, **_: Any) -> None:
        raise failure(503, "overloaded", "Busy.", retry_after=email.utils.formatdate(ahead + 7, usegmt=True))

    monkeypatch.setitem(HANDLERS, api.HEALTH, busy_until)
    with running(tmp_path / "shop.db", ready=False) as shop:
        found = shop.http.get("/health")
    reply = Reply(found.status_code, found.headers, found.content)
    assert (reply.status, sending.retry_after(reply)) == (503, 7.0)


# Time


HANGING: dict[str, Step] = {
    "before the headers": hang,
    "within the headers": raw(b"HTTP/1.1 200 OK\r\n", then=hang),
    "within the body": raw(head(content_length=500) + b'{"id": ', then=hang),
    "slow headers": drip(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000, 0.02),
    "a slow body": raw(head(content_length=9999), then=drip(b" " * 9999, 0.02)),
}


@BOTH
@pytest.mark.parametrize("fault", HANGING)
def test_a_call_ends_by_its_deadline(run: Run, fault: str) -> None:
    with scripted(*[HANGING[fault]] * 9) as server:
        start = time.monotonic()
        (problem,) = run(server.url, decide, timeout=0.4)
        assert time.monotonic() - start < LONG
        assert type(problem) is ConnectionError
        assert "in time" in str(problem)
        assert len(server.seen) <= 2  # the second attempt gets what the first has left


@BOTH
@pytest.mark.parametrize("fault", ["before the headers", "a slow body"])
def test_a_silent_connection_leaves_time_for_another_attempt(run: Run, fault: str) -> None:
    with scripted(answer(), HANGING[fault], answer(), answer()) as server:
        assert run(server.url, *[decide] * 3, timeout=2.0) == [DRAWN_] * 3
        assert [each.connection for each in server.seen] == [1, 1, 2, 2]


@pytest.mark.parametrize("secure", [False, True])
def test_the_scripted_server_closes_accepted_connections(secure: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if secure else None
    for _ in range(20):
        with scripted(hang, context=context) as server:
            connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
        for connection in connections:
            connection.close()
    gc.collect()  # a socket that was left open is a warning, which is an error


def test_a_deadline_between_connecting_and_the_handshake_leaves_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[socket.socket] = []

    def slowly(family: int, address: Any, seconds: float) -> socket.socket:
        opened.append(connect(family, address, seconds))
        time.sleep(seconds)
        return opened[-1]

    connect = http._opened
    monkeypatch.setattr(http, "_opened", slowly)
    with scripted(hang) as server:
        (problem,) = blocking(server.url.replace("http:", "https:"), decide, timeout=0.2)
    assert "no connection in time" in str(problem)
    assert opened
    assert {each.fileno() for each in opened} == {-1}


@BOTH
def test_a_connection_that_is_not_accepted_times_out(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        problems = run(url, decide, decide, timeout=0.3)
        assert [type(problem) for problem in problems] == [ConnectionError] * 2


def test_waiting_for_a_connection_ends_in_time() -> None:
    async def run(url: str) -> list[Any]:
        async with AsyncClient(url, max_connections=1) as client:
            acts = [client.decide("home", "v", timeout=1.0), client.decide("home", "v", timeout=0.2)]
            return await asyncio.gather(*acts, return_exceptions=True)

    with scripted(hang, hang) as server:
        one, other = asyncio.run(run(server.url))
        assert "the answer did not arrive in time" in str(one)
        assert "all 1 connections are in use" in str(other)
    with (
        scripted(hang, hang) as server,
        Client(server.url, max_connections=1) as client,
        ThreadPoolExecutor(1) as thread,
    ):
        first = thread.submit(client.decide, "home", "v", timeout=1.0)
        wait_for(lambda: server.seen)
        with pytest.raises(ConnectionError, match="all 1 connections are in use"):
            client.decide("home", "v", timeout=0.2)
        assert isinstance(first.exception(), ConnectionError)


@BOTH
def test_names_are_resolved_in_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve, over = socket.getaddrinfo, threading.Event()

    def unknown(host: Any, *rest: Any, **options: Any) -> Any:
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            return resolve(host, *rest, **options)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def slow(host: Any, *rest: Any, **options: Any) -> Any:
        if not options.get("flags", 0) & socket.AI_NUMERICHOST:
            over.wait(LONG)
        return resolve(host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    (problem,) = run("http://nowhere.invalid", decide, retries=1)
    assert type(problem) is ConnectionError
    assert "Name or service not known" in str(problem)
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    start = time.monotonic()

    def hurried(client: Any) -> Any:
        if run is blocking:
            return client.decide("home", "v", timeout=0.2)

        async def ask() -> Any:
            try:
                return await client.decide("home", "v", timeout=0.2)
            finally:
                over.set()  # the event loop waits for its threads

        return ask()

    (problem,) = run("http://nowhere.invalid", hurried)
    over.set()
    assert type(problem) is ConnectionError
    assert time.monotonic() - start < LONG


@BOTH
def test_the_next_address_is_tried(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo

    def two(host: Any, port: Any, *rest: Any, **options: Any) -> Any:
        if host == "shop.invalid" and not options.get("flags", 0) & socket.AI_NUMERICHOST:
            return [*resolve("127.0.0.1", free_port(), **options), *resolve("127.0.0.1", port, **options)]
        return resolve(host, port, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", two)
    with scripted(answer()) as server:
        assert run(f"http://shop.invalid:{server.port}", decide, retries=0) == [DRAWN_]
        assert server.seen[0].headers["host"] == f"shop.invalid:{server.port}"


# Answers of every kind


@ALL
def test_unknown_fields_are_ignored(run: Run) -> None:
    more: dict[str, Any] = {"new": [1, {"a": None}]}
    items = [DRAWN | more, {"error": {"code": "paused", "message": "Not now.", **more}, **more}]
    error = {"code": "id_taken", "message": "Taken.", "argument": "id", "repair": "Take another.", **more}
    with scripted(
        answer(DRAWN | more),
        answer({"items": items, **more}),
        answer({"outcome": "applied", **more}),
        answer({"error": error, **more}, 409),
        answer({"experiments": ["home"], **more}),
        answer({"error": {"code": "odd", "message": 7, "argument": ["id"], "repair": None}}, 418),
    ) as server:
        one, many, outcome, refused, names, odd = run(
            server.url,
            decide,
            lambda client: client.decide_many("home", ["v", "w"]),
            lambda client: client.reward("x", 1.0, experiment="home"),
            decide,
            lambda client: client.experiments(),
            decide,
        )
    assert one == many[0] == DRAWN_
    assert (many[1].code, many[1].message) == ("paused", "Not now.")
    assert outcome == Outcome("applied")
    assert (refused.status, refused.code, refused.argument, refused.repair) == (409, "id_taken", "id", "Take another.")
    assert str(refused) == "409 id_taken (id): Taken. Take another."
    assert str(pickle.loads(pickle.dumps(refused))) == str(refused)
    assert names == ["home"]
    assert (odd.status, odd.code, odd.argument) == (418, "odd", None)


FOREIGN = {
    "HTML": b"<html><body>Something went wrong</body></html>",
    "nothing": b"",
    "other JSON": b'{"message": "Something went wrong", "code": 13}',
    "an error that is a string": b'{"error": "Something went wrong"}',
    "an error of another form": b'{"error": {"code": 13, "message": "Something went wrong"}}',
    "null": b"null",
    "a list": b'["error"]',
    "a number": b"13",
    "a part of JSON": b'{"error": {"code": "over',
    "no UTF-8": b"\xff\xfe\xfa",
    "brackets": b"[" * 100_000,
    "digits": b"1" * 10_000,
}


@BOTH
@pytest.mark.parametrize("body", FOREIGN)
def test_answers_from_elsewhere_are_service_errors(run: Run, body: str) -> None:
    acts: list[Act] = [
        decide,
        lambda client: client.reward("x", 1.0, experiment="home"),
        lambda client: client.activate("x", experiment="home"),
        lambda client: client.decide_many("home", ["v"]),
        lambda client: client.reward_many([("x", 1.0)], experiment="home"),
        lambda client: client.experiments(),
        lambda client: client.experiment("home"),
        lambda client: client.create("home", arms=ARMS),
        lambda client: client.set_alpha("home", 0.5),
    ]
    for status, code in ((200, None), (302, "found"), (403, "forbidden"), (500, "internal_server_error"), (599, None)):
        with scripted(*[answer(FOREIGN[body], status)] * len(acts)) as server:
            for problem in run(server.url, *acts):
                assert type(problem) is ServiceError
                assert problem.status == status
                assert problem.code == (code or {200: "bad_answer", 599: "unknown_status"}[status])
            assert len(server.seen) == len(acts)


MISSING: dict[str, Any] = {
    "arm": {"id": "x", "propensity": 0.5, "context": "v"},
    "id": DRAWN | {"id": None},
    "context": DRAWN | {"context": 7},
    "propensity": DRAWN | {"propensity": "0.5"},
    "propensity, zero": DRAWN | {"propensity": 0.0},
    "propensity, true": DRAWN | {"propensity": True},
}


@BOTH
@pytest.mark.parametrize("fault", MISSING)
def test_a_missing_field_of_an_answer_is_named(run: Run, fault: str) -> None:
    with scripted(answer(MISSING[fault]), answer({"items": [DRAWN, MISSING[fault]]})) as server:
        one, (fine, other) = run(server.url, decide, lambda client: client.decide_many("home", ["v", "w"]))
    assert fine == DRAWN_
    for problem in (one, other):
        assert type(problem) is ServiceError
        assert (problem.status, problem.code) == (200, "bad_answer")
        assert f"{fault.partition(',')[0]}`" in problem.message


@BOTH
@pytest.mark.parametrize("items", [None, [], [DRAWN], [DRAWN] * 3, "ab"])
def test_a_batch_has_one_answer_per_item(run: Run, items: Any) -> None:
    with scripted(answer({"items": items})) as server:
        (problem,) = run(server.url, lambda client: client.decide_many("home", ["v", "w"]))
        assert type(problem) is ServiceError
        assert problem.code == "bad_answer"


@BOTH
def test_a_batch_that_fails_midway_keeps_the_earlier_answers(run: Run) -> None:
    names = [f"c{k}" for k in range(2500)]
    done = answer({"items": [DRAWN] * 1000})
    for fault, error in ((reset, ConnectionError), (answer(b"", 401), ServiceError)):
        with scripted(done, *[fault] * 3, done) as server:
            (found,) = run(server.url, lambda client: client.decide_many("home", names), retries=2, timeout=LONG)
        assert found[:1000] == [DRAWN_] * 1000
        assert [type(each) for each in found[1000:]] == [error] * 1500
        with scripted(*[fault] * 3, done) as server:
            (found,) = run(server.url, lambda client: client.decide_many("home", names), retries=2, timeout=LONG)
        assert type(found) is error


@ALL
def test_every_form_of_http_is_read(run: Run) -> None:
    data = json.dumps(DRAWN).encode()
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (data[:7], data[7:])) + b"0\r\n\r\n"
    with scripted(
        raw(b"HTTP/1.1 100 Continue\r\n\r\n" + head(content_length=len(data)) + data),
        raw(head(transfer_encoding="chunked") + chunked),
        drip(head(content_length=len(data)) + data, 0.0),
        raw(head() + data, then=close),
        raw(head(connection="close", content_length=len(data)) + data, then=close),
        raw(b"HTTP/1.0 200 OK\r\n\r\n" + data, then=close),
    ) as server:
        assert run(server.url, *[decide] * 6, retries=0) == [DRAWN_] * 6
        assert [each.connection for each in server.seen] == [1, 1, 1, 1, 2, 3]


@ALL
def test_unexpected_bytes_are_not_an_answer(run: Run) -> None:
    data = json.dumps(DRAWN).encode()
    other = json.dumps(DRAWN | {"arm": "eve"}).encode()
    one, more = (head(content_length=len(each)) + each for each in (data, other))

    def wait(client: Any) -> Any:
        time.sleep(0.05)
        return None if run is blocking else asyncio.sleep(0.05)

    with scripted(raw(one + more), answer()) as server:  # in one piece with the answer
        assert run(server.url, decide, wait, decide, retries=0) == [DRAWN_, None, DRAWN_]
        assert [each.connection for each in server.seen] == [1, 2]
    with scripted(drip(one, 0.0), answer()) as server:
        first, *_ = run(server.url, decide, retries=0)
        assert first == DRAWN_
    for then in (close, reset, raw(more)):  # while the connection is idle
        with scripted(raw(one, then=then), answer()) as server:
            assert run(server.url, decide, wait, decide, retries=0) == [DRAWN_, None, DRAWN_]
            assert [each.connection for each in server.seen] == [1, 2]


@BOTH
def test_redirects_are_errors(run: Run) -> None:
    with scripted(*[answer(b"", 307, location="https://elsewhere.example/v1")] * 2) as server:
        one, many = run(server.url, decide, lambda client: client.decide_many("home", ["v"]))
        assert len(server.seen) == 2
    for problem in (one, many):
        assert (problem.status, problem.code) == (307, "temporary_redirect")
        assert "https://elsewhere.example/v1" in problem.message


@BOTH
def test_an_endless_answer_is_aborted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alphafair_client.http.MAX_REPLY_BYTES", 100_000)
    with scripted(answer(b" " * 100_001), answer()) as server:
        (problem,) = run(server.url, decide)
        assert type(problem) is ConnectionError
        assert len(server.seen) == 1


# What must not be sent twice


ONCE: list[Act] = [lambda client: client.create("home", arms=ARMS), lambda client: client.add_arm("home", "dot")]


@BOTH
@pytest.mark.parametrize("act", ONCE, ids=["create", "change"])
def test_unsafe_requests_are_not_repeated(run: Run, act: Act) -> None:
    uncertain = {k: v for k, v in PASSING.items() if not k.startswith(("Retry-After", "503 of the service", "429"))}
    for fault in uncertain.values():
        with scripted(fault, answer({})) as server:
            (problem,) = run(server.url, act)
            assert type(problem) in (ServiceError, ConnectionError)
            assert isinstance(problem, ServiceError) or "Whether it was carried out is unknown" in str(problem)
            assert len(server.seen) == 1
    with scripted(busy(), PASSING["429"], answer(EXPERIMENT)) as server:  # the service has not begun
        assert [each.name for each in run(server.url, act)] == ["home"]
        assert len(server.seen) == 3
    with scripted(answer(), answer(EXPERIMENT), answer()) as server:  # idle connections can break
        run(server.url, decide, act, decide)
        assert [each.connection for each in server.seen] == [1, 2, 2]


@BOTH
@pytest.mark.parametrize("act", ONCE, ids=["create", "change"])
def test_unsent_requests_are_retried(run: Run, act: Act) -> None:
    """Somebody listens only after the first attempts were refused."""
    with socket.socket() as server, ThreadPoolExecutor(1) as thread:
        server.bind(("127.0.0.1", 0))

        body = json.dumps(EXPERIMENT).encode()

        def listen() -> None:
            time.sleep(0.15)
            server.listen()
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(head(content_length=len(body)) + body)

        done = thread.submit(listen)
        assert run(f"http://127.0.0.1:{server.getsockname()[1]}", act, timeout=LONG) == [
            msgspec.convert(EXPERIMENT, ExperimentAnswer)
        ]
        done.result()


# Downloads


@BOTH
def test_an_export_replaces_the_file_only_when_complete(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("before")

    def download(client: Any) -> Any:
        return client.export("home", path)

    text = b"seq,id\n" * 50_000
    broken = raw(head(content_length=len(text) + 5) + text, then=close)
    for fault, error in (
        (answer(b"no", 404), ServiceError),
        (answer(b"<html>Log in</html>", content_type="text/html; charset=utf-8"), ServiceError),
        (broken, ConnectionError),
    ):
        with scripted(fault, fault) as server:
            (problem,) = run(server.url, download, retries=1)
            assert type(problem) is error
            assert path.read_text() == "before"
    with scripted(broken, GATEWAY, answer(text)) as server:
        assert run(server.url, download) == [None]
        assert server.seen[0].path == "/v1/experiments/home/log?format=csv"
    assert path.read_bytes() == text
    assert [each.name for each in tmp_path.iterdir()] == ["log.csv"]
    with scripted(hang, hang) as server:
        missing, late = run(
            server.url,
            lambda client: client.export("home", tmp_path / "nowhere" / "log.csv"),
            lambda client: client.export("home", path, timeout=0.2),
        )
        assert isinstance(missing, FileNotFoundError)  # a fault of this machine, and told as one
        assert type(late) is ConnectionError
    assert path.read_bytes() == text


# TLS


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


@ALL
def test_tls(run: Run) -> None:
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    with scripted(answer(), answer(), reset, answer(), context=server_context()) as server:
        url = f"https://127.0.0.1:{server.port}"
        assert run(url, decide, decide, decide, ssl_context=trusting) == [DRAWN_] * 3
        assert [each.connection for each in server.seen][:2] == [1, 1]
        seen = len(server.seen)
        (problem,) = run(url, decide)
        assert type(problem) is ConnectionError
        assert "the certificate is not trusted" in str(problem)
        assert "after one attempt" in str(problem)
        assert len(server.seen) == seen
        (problem,) = run(server.url, decide, retries=0)  # http where https is spoken
        assert type(problem) is ConnectionError
    with scripted(answer(), answer()) as server:  # https where http is spoken
        (problem,) = run(f"https://127.0.0.1:{server.port}", decide, timeout=0.3)
        assert type(problem) is ConnectionError
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a handshake that never ends
        (problem,) = run(f"https://127.0.0.1:{silent.getsockname()[1]}", decide, timeout=0.3)
        assert type(problem) is ConnectionError


# The rules of sending again, by a clock of their own


class Clock:
    """Time that passes when somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 + self.now


def own(status: int) -> Reply:
    return Reply(status, {"retry-after": "1"}, b'{"error": {"code": "overloaded", "message": "Busy."}}')


OUTCOMES: dict[str, Reply | Lost] = {
    "done": Reply(200, {}, json.dumps(DRAWN).encode()),
    "refused": Reply(409, {}, b'{"error": {"code": "paused", "message": "Not now."}}'),
    "gateway": Reply(502, {}, b"<html>"),
    "gateway's busy": Reply(503, {"retry-after": "0"}, b"<html>"),
    "busy": own(503),
    "too many": own(429),
    "lost": Lost("lost", sent=True),
    "refused connection": Lost("no connection", sent=False),
    "untrusted": Lost("no trust", sent=False, temporary=False),
}
HARMLESS = {"busy", "too many", "refused connection"}


@settings(deadline=None, derandomize=True)
@given(
    repeatable=st.booleans(),
    retries=st.integers(0, 6),
    timeout=st.floats(0.01, 10.0),
    network=st.lists(st.tuples(st.sampled_from(sorted(OUTCOMES)), st.floats(0.0, 8.0)), min_size=7, max_size=7),
)
def test_a_call_ends_by_its_deadline_and_repeats_only_safe_requests(
    repeatable: bool, retries: int, timeout: float, network: list[tuple[str, float]]
) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sending, "time", clock)
        terms = sending.Terms(timeout, clock.now + timeout, retries)
        endpoint = dataclasses.replace(api.DECIDE, repeatable=repeatable)
        drawn = sending.call(terms, endpoint, {"id": "1"}, name="home")
        used, bodies, result = list[str](), list[bytes | None](), None
        try:
            step = next(drawn)
            while True:
                if isinstance(step, sending.Pause):
                    assert step.seconds >= 0.0
                    clock.now += step.seconds
                    step = next(drawn)
                    continue
                assert clock.now < timeout
                limit = min(step.deadline - clock.now, step.longest)
                assert limit <= timeout / (2 if repeatable else 1)
                kind, seconds = network[len(used)]
                used.append(kind)
                bodies.append(step.request.body)
                clock.now += min(seconds, limit)
                if seconds >= limit:
                    used[-1] = "lost"
                found = OUTCOMES[used[-1]]
                step = drawn.throw(found) if isinstance(found, Lost) else drawn.send(found)
        except StopIteration as end:
            result = end.value
        except (ServiceError, ConnectionError) as problem:
            result = problem
    assert clock.now <= timeout + 1e-9
    assert len(used) <= retries + 1
    assert len(set(bodies)) == 1
    assert isinstance(result, Receipt) == (used[-1] == "done")
    for kind in used[:-1]:
        assert kind not in ("done", "refused", "untrusted")
        assert repeatable or kind in HARMLESS


def test_pauses_double_up_to_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(sending, "time", clock)
    monkeypatch.setattr(sending, "random", SimpleNamespace(uniform=lambda low, high: high))
    plan = sending.call(sending.Terms(60.0, 60.0, 9), api.SHOW, name="home")
    step, pauses = next(plan), []
    for _ in range(9):
        pause = plan.throw(Lost("lost", sent=True)) if isinstance(step, sending.Attempt) else None
        assert isinstance(pause, sending.Pause)
        pauses.append(pause.seconds)
        step = next(plan)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    with pytest.raises(ConnectionError, match="after 10 attempts"):
        plan.throw(Lost("lost", sent=True))
