"""The example with two nodes behind nginx: an experiment stays on one node, and moves on when that one ends."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from alphafair import Client, Engine
from tests.postgres import Server
from tests.serving import ARMS, Running, running

EXAMPLE = Path(__file__).parents[1] / "examples" / "nodes"
NAMES = [f"slot-{k}" for k in range(8)]
Site = tuple[str, list[Running], ExitStack]


@pytest.fixture
def nginx() -> str:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        sentence = "nginx is not installed: apt install nginx"
        if os.environ.get("CI"):
            pytest.fail(sentence)
        pytest.skip(sentence)
    return found


@pytest.fixture
def site(nginx: str, postgres_server: Server, tmp_path: Path) -> Iterator[Site]:
    """The address of nginx, the two nodes, and what ends the second of them."""
    url = postgres_server.url()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack, ExitStack() as second:
        nodes = [each.enter_context(running(url, engine=Engine.open(url, seed=0))) for each in (stack, second)]  # type: ignore[arg-type]
        text = (EXAMPLE / "nginx.conf").read_text()
        for number, node in enumerate(nodes, 1):
            text = text.replace(f"node-{number}:8000", f"127.0.0.1:{node.port}")
        text = text.replace("listen 127.0.0.1:8000;", f"listen 127.0.0.1:{port};")
        stores = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        text = text.replace("http {", "http {" + "".join(f"{name}_temp_path {tmp_path}/{name};" for name in stores))
        (tmp_path / "nginx.conf").write_text(text)
        options = ["-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")]
        proxy = subprocess.Popen(
            [nginx, *options, "-g", "daemon off; user root;" if os.getuid() == 0 else "daemon off;"]
        )
        try:
            until = time.monotonic() + 30.0
            while True:
                assert proxy.poll() is None, (tmp_path / "error.log").read_text()
                with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                assert time.monotonic() < until
                time.sleep(0.02)
            yield f"http://127.0.0.1:{port}", nodes, second
        finally:
            proxy.terminate()
            proxy.wait(30)
    postgres_server.execute(f"drop schema {url.rpartition('=')[2]} cascade")


def n_decided(node: Running) -> int:
    """Requests for decisions that a node has answered with 200."""
    found = re.findall(
        r'^alphafair_requests_total\{.*decisions".*status="200".*\} (\S+)', node.http.get("/metrics").text, re.M
    )
    return int(sum(map(float, found)))


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
