"""Record what tests and fixtures cost: `pytest -p tests.durations --record durations.json`.

A row per test and per fixture that takes 20 ms or more: seconds of wall time, and of processor time of the worker and
of the processes that it has waited for. With workers (`-n 2`) every one writes a file of its own, `durations.gw0.json`.
`python -m tests.durations FILE...` prints the most expensive files, tests and fixtures. With `--slow` it writes which
tests `make check` leaves out to tests/slow.json: anew for the files in the records, as before for all others.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

LEAST = 0.02  # seconds
FAST = 0.3  # seconds of processor time
LONG_WAIT = 1.0  # seconds of wall time, of which a busy machine adds some
SLOW = Path(__file__).with_name("slow.json")
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


def write_slow(found: list[dict[str, Any]]) -> None:
    """Write the tests that are not fast, and `fixture of file` for fixtures that are not."""
    files = {row["name"].partition("::")[0] for row in found if row["kind"] == "test"}
    kept = json.loads(SLOW.read_text()) if SLOW.exists() else {}
    slow = {name: cost for name, cost in kept.items() if name.partition(" of ")[2] not in files}
    slow = {name: cost for name, cost in slow.items() if name.partition("::")[0] not in files}
    fixtures = {}
    for row in found:
        if row["processor"] > FAST or row["wall"] > LONG_WAIT:
            name, file = row["name"], row["name"].rpartition(" of ")[2].partition("::")[0]
            if row["kind"] == "fixture" and "(function)" not in name and file:  # one of a session has none
                fixtures[f"{name.partition(' ')[0]} of {file}"] = row["processor"]
            elif row["kind"] == "test":
                slow[name] = row["processor"]
    SLOW.write_text(json.dumps(dict(sorted((slow | fixtures).items())), indent=0) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.durations", description="What tests and fixtures cost.")
    parser.add_argument("records", nargs="+", type=Path)
    parser.add_argument("--slow", action="store_true", help="write which tests are not fast")
    chosen = parser.parse_args()
    found = [row for path in chosen.records for row in json.loads(path.read_text())]
    if chosen.slow:
        write_slow(found)
        return
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
    main()
