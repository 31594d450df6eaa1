"""Record what tests and fixtures cost: `pytest -p tests.durations --record durations.json`.

A row per test and per fixture that takes 20 ms or more: seconds of wall time, and of processor time of the worker and
of the processes that it has waited for. With workers (`-n 2`) every one writes a file of its own, `durations.gw0.json`.
`python -m tests.durations FILE...` prints the most expensive files, tests and fixtures.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LEAST = 0.02  # seconds
rows: list[dict[str, Any]] = []


def processor_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@contextmanager
def recorded(kind: str, name: str) -> Iterator[None]:
    wall, processor = time.perf_counter(), processor_seconds()
    try:
        yield
    finally:
        wall = time.perf_counter() - wall
        if wall >= LEAST:
            spent = processor_seconds() - processor
            rows.append({"kind": kind, "name": name, "wall": round(wall, 3), "processor": round(spent, 3)})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="write what tests and fixtures cost to this file")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    with recorded("test", item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any, request: Any) -> Any:
    with recorded("fixture", f"{fixturedef.argname} ({fixturedef.scope}) of {request.node.nodeid}"):
        return (yield)


def pytest_sessionfinish(session: pytest.Session) -> None:
    path: Path | None = session.config.getoption("--record")
    worker = getattr(session.config, "workerinput", {}).get("workerid")
    if path is not None and (worker is not None or not session.config.getoption("numprocesses", None)):
        path = path.with_suffix(f".{worker}.json") if worker else path
        path.write_text(json.dumps(rows, indent=0) + "\n")


def main(paths: list[str]) -> None:
    found = [row for path in paths for row in json.loads(Path(path).read_text())]
    tests = [row for row in found if row["kind"] == "test"]
    files, walls = Counter[str](), Counter[str]()
    for row in tests:
        files[row["name"].partition("::")[0]] += row["processor"]
        walls[row["name"].partition("::")[0]] += row["wall"]
    print(f"{len(tests)} tests, {sum(files.values()):.0f} s of processor time, {sum(walls.values()):.0f} s in all")
    for file, seconds in files.most_common(40):
        print(f"{seconds:8.1f} {walls[file]:8.1f}  {file}")
    for kind in ("test", "fixture"):
        print(f"\n{kind}s: processor, wall")
        for row in sorted((row for row in found if row["kind"] == kind), key=lambda row: -row["wall"])[:60]:
            print(f"{row['processor']:8.1f} {row['wall']:8.1f}  {row['name']}")


if __name__ == "__main__":
    main(sys.argv[1:])
