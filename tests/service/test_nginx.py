"""The example with two nodes behind nginx: an experiment stays on one node, and moves on when that one fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from alphafair import Client, Engine
from alphafair.service import keys
from alphafair.service.keys import LOCAL, Caller
from tests import ROOT, http_cases
from tests.http_cases import CASES, Case
from tests.misbehaving import Proxy, cutting
from tests.postgres import Server
from tests.serving import ARMS, Running, error, listens, running, wait_for

EXAMPLE = ROOT / "examples" / "nodes"
NAMES = [f"slot-{k}" for k in range(8)]
DECISIONS = "/v1/experiments/home/decisions"
Site = tuple[str, list[Running], ExitStack]


@pytest.fixture(scope="module")
def nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        sentence = "nginx is not installed: apt install nginx"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found


@contextmanager
def in_front_of(nginx: str, ports: list[int], folder: Path, **seconds: str) -> Iterator[str]:
    """Run the example before the nodes at these ports; `seconds` replace time-outs, such as s60="1s"."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (EXAMPLE / "nginx.conf").read_text()
    for number, node in enumerate(ports, 1):
        text = text.replace(f"node-{number}:8000", f"127.0.0.1:{node}")
    for old, new in seconds.items():
        text = text.replace(f"proxy_read_timeout {old[1:]}s;", f"proxy_read_timeout {new};")
    text = text.replace("listen 127.0.0.1:8000;", f"listen 127.0.0.1:{port};")
    text = text.replace("worker_processes auto;", "worker_processes 1;")  # which knows of all failures
    stores = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    text = text.replace("http {", "http {" + "".join(f"{name}_temp_path {folder}/{name};" for name in stores))
    (folder / "nginx.conf").write_text(text)
    options = ["-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    proxy = subprocess.Popen([nginx, *options, "-g", "daemon off; user root;" if os.getuid() == 0 else "daemon off;"])
    try:
        wait_for(lambda: proxy.poll() is not None or listens(("127.0.0.1", port)))
        assert proxy.poll() is None, (folder / "error.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        proxy.terminate()
        proxy.wait(30)


@pytest.fixture
def url(postgres_server: Server) -> Iterator[str]:
    found = postgres_server.url()
    yield found
    postgres_server.execute(f"drop schema if exists {found.rpartition('=')[2]} cascade")


@pytest.fixture
def site(nginx: str, url: str, tmp_path: Path) -> Iterator[Site]:
    """The address of nginx, the two nodes, and what ends the second of them."""
    with ExitStack() as stack, ExitStack() as second:
        nodes = [each.enter_context(running(url, engine=Engine.open(url, seed=0))) for each in (stack, second)]  # type: ignore[arg-type]
        with in_front_of(nginx, [node.port for node in nodes], tmp_path) as address:
            yield address, nodes, second


def n_answered(node: Running, route: str) -> int:
    """Requests for a route that a node has answered with 200."""
    page = node.service.measures.page(Caller("", LOCAL, "admin")).decode()
    counts = re.findall(rf'^alphafair_requests_total\{{.*{route}".*status="200".*\}} (\S+)', page, re.M)
    return int(sum(map(float, counts)))


def n_decided(node: Running) -> int:
    """Decisions that a node has answered with 200."""
    return n_answered(node, "decisions")


@pytest.mark.compiled
def test_an_experiment_stays_on_one_node_until_that_one_ends(site: Site) -> None:
    address, nodes, second = site
    with Client(address, retries=0) as client:
        at: dict[str, int] = {}
        for name in NAMES:
            client.create(name, arms=ARMS)
            before = [n_decided(node) for node in nodes]
            for k in range(6):
                client.decide(name, f"visitor-{k}", id=f"{name}-{k}")
            done = [n_decided(node) - old for node, old in zip(nodes, before, strict=True)]
            assert sorted(done) == [0, 6], f"{name} went to both nodes: {done}"
            at[name] = done.index(6)
        assert {*at.values()} == {0, 1}, "all experiments are on one node"
        kept = {name: client.decide(name, "visitor-0", id=f"{name}-0") for name in NAMES}
        second.close()  # the second node ends
        for name in NAMES:
            assert client.decide(name, "visitor-0", id=f"{name}-0").arm == kept[name].arm
            assert client.reward(f"{name}-0", 0.5, experiment=name).outcome == "applied"
            client.decide(name, "another")
    assert nodes[0].engine.verify() == len(NAMES) * (1 + 6 + 1 + 1)


@pytest.mark.compiled
@pytest.mark.parametrize("how", ["refused", "silent"])
def test_the_other_node_serves_while_one_is_cut_off_from_the_database(
    nginx: str, url: str, postgres_server: Server, tmp_path: Path, how: str
) -> None:
    with ExitStack() as stack:
        link: Proxy = stack.enter_context(cutting(postgres_server.port, 0))
        through = url.replace(f":{postgres_server.port}/", f":{link.port}/")
        nodes = [stack.enter_context(running(each, engine=Engine.open(each, seed=0))) for each in (url, through)]  # type: ignore[arg-type]
        address = stack.enter_context(in_front_of(nginx, [node.port for node in nodes], tmp_path))
        client = stack.enter_context(Client(address, retries=0, timeout=20.0))
        for name in NAMES:
            client.create(name, arms=ARMS)
            client.decide(name, "visitor", id=f"{name}-0")
        assert all(n_decided(node) for node in nodes), "all experiments are on one node"
        kept = {name: client.decide(name, "visitor", id=f"{name}-0").arm for name in NAMES}
        if how == "silent":
            link.held = True
        else:
            link.target = 1
            link.cut_all()
            assert nodes[1].post(f"/{NAMES[0]}/decisions", {"context": "v"}).status_code == 503
        for name in NAMES:
            assert client.decide(name, "visitor", id=f"{name}-0").arm == kept[name]
            assert client.reward(f"{name}-0", 0.5, experiment=name).outcome == "applied"
            client.decide(name, "another")
            if how == "refused":  # silence ends after a minute: a change is not sent to the other node meanwhile
                assert client.experiment(name).rewards == 1
                client.set_alpha(name, 0.5)
        link.held, link.target = False, postgres_server.port
    with Engine.open(url, read_only=True) as engine:
        assert engine.verify() == len(NAMES) * (1 + 1 + 1 + 1 + (how == "refused"))


@pytest.mark.compiled
def test_one_sign_in_is_good_for_both_nodes(nginx: str, url: str, tmp_path: Path) -> None:
    token = keys.create(url, "admin", "me")
    with ExitStack() as stack:
        nodes = [stack.enter_context(running(url, engine=Engine.open(url, seed=0))) for _ in range(2)]  # type: ignore[arg-type]
        address = stack.enter_context(in_front_of(nginx, [node.port for node in nodes], tmp_path))
        with Client(address, key=token, retries=0) as client:
            for name in NAMES:
                client.create(name, arms=ARMS)
        http = stack.enter_context(httpx.Client(base_url=address, headers={"origin": address}))
        answer = http.post("/session", json={"key": token})
        assert answer.status_code == 201, answer.text
        csrf = {"x-alphafair-csrf": answer.json()["csrf"]}
        for name in NAMES:
            path = f"/v1/experiments/{name}"
            assert error(http.patch(path, json={"alpha": 0.5}))["code"] == "cross_site"
            assert http.patch(path, json={"alpha": 0.5}, headers=csrf).status_code == 200
            assert http.get(f"{path}/log?format=csv").status_code == 200
            assert http.get(f"/experiments/{name}/live.json").status_code == 200
        assert all(n_answered(node, r"/v1/experiments/\{name\}") for node in nodes), "one node has made all changes"
        assert http.delete("/session", headers=csrf).status_code == 200
        assert http.get("/index.json").status_code == 401


@pytest.mark.compiled
def test_events_stream_through_nginx(site: Site) -> None:
    address, _, _ = site
    with Client(address) as client:
        client.create("home", arms=ARMS)
        with httpx.stream("GET", f"{address}/experiments/home/events", timeout=20.0) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith("event:"))
            assert next(lines) == "event: state"
            for _ in range(3):
                client.decide("home", "visitor")
                assert next(lines) in ("event: update", "event: state")


# nginx alone, before servers that stand for nodes


class StandIn:
    """A server in the place of a node, which answers every request as it is told."""

    def __init__(self, number: int) -> None:
        self.number, self.seen = number, list[tuple[str, str, bytes]]()
        self.answer: Callable[[BaseHTTPRequestHandler], None] = ok
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                self.raw_requestline = self.rfile.readline()
                if not self.raw_requestline or not self.parse_request():
                    self.close_connection = True
                    return
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                stand_in.seen.append((self.command, self.path, body))
                stand_in.answer(self)

            def log_message(self, format: str, *arguments: Any) -> None:
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]


def answering(status: int, code: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        body = json.dumps({"error": {"code": code, "message": code}}).encode()
        handler.send_response_only(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        handler.wfile.flush()

    return answer


def broken(handler: BaseHTTPRequestHandler) -> None:
    """End the connection without an answer."""
    handler.close_connection = True


def frozen(handler: BaseHTTPRequestHandler) -> None:
    """Answer too late."""
    time.sleep(3.0)
    handler.close_connection = True


ok, unavailable, uncertain = answering(200, "ok"), answering(503, "unavailable"), answering(504, "uncertain")


@pytest.fixture
def stand_ins(nginx: str, tmp_path: Path) -> Iterator[tuple[httpx.Client, StandIn, StandIn]]:
    """A client of nginx, the server that experiment `home` is sent to, and the other one."""
    nodes = [StandIn(1), StandIn(2)]
    for node in nodes:
        threading.Thread(target=node.server.serve_forever, daemon=True).start()
    with (
        in_front_of(nginx, [node.port for node in nodes], tmp_path, s2="500ms", s60="1s") as address,
        httpx.Client(base_url=address, timeout=20.0) as http,
    ):
        http.post(DECISIONS, json={})
        first, second = sorted(nodes, key=lambda node: -len(node.seen))
        first.seen.clear()
        yield http, first, second
    for node in nodes:
        node.server.shutdown()
        node.server.server_close()


WITH_IDS = [("POST", DECISIONS), ("POST", "/v1/experiments/home/rewards/batch")]
READS = [("GET", "/v1/experiments/home"), ("GET", "/v1/experiments/home/log"), ("GET", "/events")]
CHANGES = [("PATCH", "/v1/experiments/home"), ("POST", "/v1/keys/0badc0de/rotations")]


@pytest.mark.parametrize(("method", "path"), [*WITH_IDS, *READS, *CHANGES])
def test_after_503_the_other_node_is_asked(stand_ins: Any, method: str, path: str) -> None:
    http, first, second = stand_ins
    first.answer = unavailable
    for k in range(4):
        body = b'{"k": %d}' % k if method != "GET" else b""
        assert http.request(method, path, content=body).status_code == 200
        assert second.seen[-1] == (method, path, body)
    second.answer = unavailable
    answer = http.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")  # of the node, not of nginx


def test_503_of_one_experiment_does_not_concern_others(stand_ins: Any) -> None:
    """A policy that fails is answered with 503 by all nodes; they go on serving the rest."""
    http, first, second = stand_ins

    def answer(handler: BaseHTTPRequestHandler) -> None:
        (answering(503, "policy_failed") if "failing" in handler.path else ok)(handler)

    first.answer = second.answer = answer
    for _ in range(5):
        for name in ("failing", "failing-too"):
            assert http.post(f"/v1/experiments/{name}/decisions").json()["error"]["code"] == "policy_failed"
        first.seen.clear()
        assert http.post(DECISIONS).status_code == 200
        assert first.seen, "an experiment has moved to the other node"


@pytest.mark.parametrize("fault", [broken, frozen, unavailable])
@pytest.mark.parametrize(("method", "path"), WITH_IDS)
def test_with_an_id_it_is_sent_again_whatever_happened(stand_ins: Any, fault: Any, method: str, path: str) -> None:
    http, first, second = stand_ins
    first.answer = fault
    assert http.request(method, path, content=b"{}").status_code == 200
    assert second.seen == [(method, path, b"{}")]
    assert set(first.seen) == {(method, path, b"{}")}


@pytest.mark.parametrize("fault", [broken, frozen, uncertain])
@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_a_change_that_may_have_been_made_is_not_sent_again(stand_ins: Any, fault: Any, method: str, path: str) -> None:
    http, first, second = stand_ins
    first.answer = second.answer = fault
    answer = http.request(method, path, content=b"{}")
    assert len(first.seen) + len(second.seen) == 1
    assert (answer.status_code, error(answer)["code"]) == (504, "uncertain")
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("fault", [broken, frozen, uncertain])
def test_if_no_node_answers_it_is_503_with_a_time_to_wait(stand_ins: Any, fault: Any) -> None:
    http, first, second = stand_ins
    first.answer = second.answer = fault
    for _ in range(3):  # both are tried; then nginx avoids them for two seconds
        for method, path in [*WITH_IDS, READS[0]]:
            answer = http.request(method, path)
            assert (answer.status_code, error(answer)["code"]) == (503, "no_answer")
            assert answer.headers["retry-after"] == "1"
    first.answer = second.answer = ok
    wait_for(lambda: http.post(DECISIONS).status_code, lambda status: status != 503)
    assert http.post(DECISIONS).status_code == 200


# HTTP by its rules


@pytest.fixture(scope="module")
def sites(nginx: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[http_cases.Sites]:
    @contextmanager
    def front(shop: Running) -> Iterator[int]:
        with in_front_of(nginx, [shop.port, shop.port], tmp_path_factory.mktemp("nginx")) as address:
            yield int(address.rpartition(":")[2])

    with http_cases.sites(tmp_path_factory.mktemp("sites"), front) as found:
        yield found


@pytest.mark.compiled
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_of_http(sites: http_cases.Sites, case: Case) -> None:
    http_cases.check(case, sites.exchange(case), nginx=True)


def test_the_compose_file_starts_what_the_configuration_names() -> None:
    services: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text())["services"]
    assert {*services} == {"database", "node-1", "node-2", "nginx"}
    text = (EXAMPLE / "nginx.conf").read_text()
    assert {*re.findall(r"server (\S+):8000", text)} == {"node-1", "node-2"}
    for name in ("node-1", "node-2"):
        command = " ".join(services[name]["command"])
        assert "--db postgresql://shop@database/shop" in command
        assert services[name]["read_only"]
        assert services[name]["depends_on"]["database"]["condition"] == "service_healthy"
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published == ["127.0.0.1:8000:8000"], "only nginx is reached from outside, and from this machine alone"


def test_nginx_accepts_the_example(nginx: str, tmp_path: Path) -> None:
    text = (
        (EXAMPLE / "nginx.conf").read_text().replace("node-1:8000", "127.0.0.1:1").replace("node-2:8000", "127.0.0.1:2")
    )
    (tmp_path / "nginx.conf").write_text(text)
    options = ["-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
    done = subprocess.run([nginx, "-t", *options], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
