"""HTTP/1.1: a request has one answer however it is written, in order, whatever the client does to its connection."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving import ARMS, Running, running, wait_for
from tests.stores import either_store

pytestmark = [either_store, pytest.mark.compiled]

DECISIONS = "/v1/experiments/home/decisions"
REWARDS = "/v1/experiments/home/rewards"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("shop") / "shop.db", root_path="/fair") as found:
        assert found.post("", {"name": "home", "arms": ARMS}).status_code == 201
        yield found


def request(path: str, body: Any, *headers: str, version: str = "1.1") -> bytes:
    text = json.dumps(body)
    lines = [f"POST {path} HTTP/{version}", "Host: localhost", f"Content-Length: {len(text)}", *headers, "", text]
    return "\r\n".join(lines).encode()


def read(connection: socket.socket, n_answers: int) -> list[tuple[int, dict[str, str], Any]]:
    """Answers as they come: status, headers, body."""
    answers, data = list[tuple[int, dict[str, str], Any]](), b""
    while len(answers) < n_answers:
        more = connection.recv(65536)
        assert more, (answers, data)
        data += more
        while b"\r\n\r\n" in data:
            head, _, rest = data.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            if int(first.split()[1]) == 100:
                data = rest
                continue
            length = int(headers["content-length"])
            if len(rest) < length:
                break
            answers.append((int(first.split()[1]), headers, json.loads(rest[:length])))
            data = rest[length:]
    assert not data
    return answers


def connected(shop: Running) -> socket.socket:
    return socket.create_connection(("127.0.0.1", shop.port), timeout=30.0)


def test_every_form_of_a_request_has_the_same_answer(shop: Running) -> None:
    body = {"context": "v", "id": "twice"}
    text = json.dumps(body)
    chunked = f"POST {DECISIONS} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunked += f"{len(text):x}\r\n{text}\r\n0\r\n\r\n".encode()
    with connected(shop) as connection:
        for sent in [
            request(DECISIONS, body),
            request("/fair" + DECISIONS, body),
            request(DECISIONS + "?", body),
            request(DECISIONS.replace("home", "%68ome"), body),
            request(DECISIONS, body, "Expect: 100-continue"),
            request(DECISIONS, body, "x-request-id: mine"),
            chunked,
        ]:
            connection.sendall(sent)
            ((status, headers, answer),) = read(connection, 1)
            assert (status, answer["id"]) == (200, "twice")
            assert headers["content-type"] == "application/json"
            assert headers["x-request-id"] == ("mine" if b": mine" in sent else headers["x-request-id"]) != ""
    assert shop.engine.experiment("home").pulls[answer["arm"]] == shop.engine.experiment("home").decisions == 1


def test_every_form_of_a_request_has_the_same_error(shop: Running) -> None:
    for path, body, status in [
        (DECISIONS, {"context": ""}, 422),
        (REWARDS, {"id": "nobody", "reward": 1.0}, 404),
        ("/v1/experiments/nowhere/decisions", {"context": "v"}, 404),
        ("/v1/experiments", {"name": "home", "arms": ARMS}, 409),
    ]:
        with connected(shop) as connection:
            connection.sendall(request(path, body))
            connection.sendall(request(path + "?", body))
            first, second = read(connection, 2)
        assert first[0] == second[0] == status
        assert first[2] == second[2]


def test_pipelined_requests_are_answered_in_order(shop: Running) -> None:
    before = shop.engine.experiment("home").decisions
    sent = b"".join(request(DECISIONS, {"context": "v", "id": f"line-{k}"}) for k in range(20))
    sent += b"".join(request(REWARDS, {"id": f"line-{k}", "reward": 1.0}) for k in range(20))
    with connected(shop) as connection:
        connection.sendall(sent)
        answers = read(connection, 40)
    assert [answer["id"] for _, _, answer in answers[:20]] == [f"line-{k}" for k in range(20)]
    assert [answer for _, _, answer in answers[20:]] == [{"outcome": "applied"}] * 20
    assert shop.engine.experiment("home").decisions == before + 20


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_connection_is_closed_on_request(shop: Running, version: str) -> None:
    with connected(shop) as connection:
        connection.sendall(request(DECISIONS, {"context": "v"}, "Connection: close", version=version))
        ((status, headers, _),) = read(connection, 1)
        assert (status, headers["connection"]) == (200, "close")
        assert connection.recv(1) == b""


def test_a_client_that_disconnects_does_not_block_others(shop: Running) -> None:
    for k in range(5):
        with connected(shop) as connection:
            connection.sendall(request(DECISIONS, {"context": "v", "id": f"gone-{k}"}))
    reward = {"id": "gone-4", "reward": 0.5}
    wait_for(lambda: shop.post("/home/rewards", reward).status_code, lambda status: status == 200)
    assert shop.post("/home/decisions", {"context": "v", "id": "gone-0"}).status_code == 200


def test_a_body_in_pieces_is_one_body(shop: Running) -> None:
    sent = request(DECISIONS, {"context": "é" * 50, "id": "pieces"})
    with connected(shop) as connection:
        for k in range(0, len(sent), 7):
            connection.sendall(sent[k : k + 7])
            time.sleep(0.001)
        ((status, _, answer),) = read(connection, 1)
    assert (status, answer["context"]) == (200, "é" * 50)


def test_the_body_of_a_rejected_caller_is_not_kept(shop: Running) -> None:
    """The caller is checked when the head is complete."""
    body = b" " * 50_000
    head = f"POST {DECISIONS} HTTP/1.1\r\nHost: {{}}\r\nContent-Length: {len(body)}\r\n\r\n"
    for host, kept in (("localhost", len(body) - 1), ("evil.example", 0)):
        with connected(shop) as connection:
            connection.sendall(head.format(host).encode() + body[:-1])
            for _ in range(3000):
                held = [request for each in list(shop.service.connections.open) for request in list(each.requests)]
                if len(held) == 1 and (len(held[0].body) == kept or not kept):
                    break
                time.sleep(0.01)
            time.sleep(0.05)
            assert [len(request.body) for request in held] == [kept]
            connection.sendall(body[-1:])
            ((status, _, answer),) = read(connection, 1)
        assert (status, answer["error"]["code"]) == ((400, "bad_json") if kept else (403, "foreign_host"))


def test_only_an_accepted_request_is_told_to_continue(shop: Running) -> None:
    accepted = request(DECISIONS, {"context": "v", "id": "expected"}, "Expect: 100-continue")
    head, _, body = accepted.partition(b"\r\n\r\n")
    with connected(shop) as connection:
        connection.sendall(request(DECISIONS, {"context": "v"}) + head + b"\r\n\r\n")
        data = b""
        while not data.endswith(b"HTTP/1.1 100 Continue\r\n\r\n"):
            data += connection.recv(65536)
        connection.sendall(body)
        ((status, _, answer),) = read(connection, 1)
        assert (status, answer["id"]) == (200, "expected")
    with connected(shop) as connection:
        connection.sendall(head.replace(b"localhost", b"evil.example") + b"\r\n\r\n")
        ((status, headers, _),) = read(connection, 1)
        assert (status, headers["connection"]) == (403, "close")
