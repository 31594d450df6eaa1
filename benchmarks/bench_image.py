"""What the Dockerfile builds, built step by step in an empty folder, and how soon it makes its first decision."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row, duration

SOURCE = Path(__file__).parents[1]
STARTS, LIMIT = 3, 2.0  # seconds


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder)
        settings = {**os.environ, "NUMBA_CACHE_DIR": f"{image}/kernels", "NUMBA_CPU_NAME": "generic"}
        settings.pop("PYTHONPATH", None)
        program = build(image, settings)
        make = "from alphafair import Engine; Engine.open('shop.db').create('home', arms=['ada', 'ben'])"
        step("an experiment", [str(program.with_name("python")), "-c", make], image, settings)
        times = [first_decision([str(program), "serve", "--db", "shop.db"], image, settings) for _ in range(STARTS)]
        bare = {**settings, "NUMBA_CACHE_DIR": f"{image}/nothing"}
        without = first_decision([str(program), "serve", "--db", "shop.db"], image, bare)
    yield Row(
        "from the start of the image's service to its first decision",
        duration(min(times)),
        "nothing compiled into it",
        duration(without),
        f"{without / min(times):.3g} x",
        f"under {LIMIT:g} s",
        min(times) < LIMIT,
    )


def build(image: Path, settings: dict[str, str]) -> Path:
    """The steps of the Dockerfile: a wheel, an environment with nothing else in it, machine code."""
    builder, python = image / "build" / "bin" / "python", image / "environment" / "bin" / "python"
    for environment in (builder, python):
        venv.create(environment.parents[1], with_pip=True)
    pinned = ["install", "--require-hashes", "-r"]
    step("what builds it", pip(builder, *pinned, f"{SOURCE}/requirements/build.txt"), image, settings)
    wheel = ["wheel", "--no-build-isolation", "--no-deps", "-w", "wheels", str(SOURCE)]
    step("a wheel", pip(builder, *wheel), image, settings)
    only_wheels = ["--only-binary", ":all:"]
    step("what it needs", pip(python, *pinned, f"{SOURCE}/requirements/service.txt", *only_wheels), image, settings)
    (made,) = (image / "wheels").glob("alphafair-*.whl")
    step("its installation", pip(python, "install", "--no-deps", "--no-index", str(made)), image, settings)
    step("its machine code", [str(python.with_name("alphafair")), "compile"], image, settings)
    return python.with_name("alphafair")


def pip(python: Path, *arguments: str) -> list[str]:
    return [str(python), "-m", "pip", *arguments]


def step(what: str, command: list[str], folder: Path, settings: dict[str, str]) -> None:
    print(f"  {what} ...", file=sys.stderr, flush=True)
    subprocess.run(command, check=True, cwd=folder, env=settings, capture_output=True)


def first_decision(serve: list[str], folder: Path, settings: dict[str, str]) -> float:
    """Seconds from the start of the process to its answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1/experiments/home/decisions"
    start = time.perf_counter()
    server = subprocess.Popen([*serve, "--port", str(port)], cwd=folder, env=settings, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert server.poll() is None, f"{serve} has ended"
            with contextlib.suppress(OSError), urllib.request.urlopen(url, b'{"context": "anybody"}') as answer:
                assert json.load(answer)["arm"] in ("ada", "ben")
                return time.perf_counter() - start
            time.sleep(0.01)
    finally:
        server.terminate()
        server.wait()
