"""Ordinary users of a service while somebody misuses it: how long they waited, and what they were promised.

`python -m tests.neighbors URL KEY EXPERIMENT` decides and rewards from a few connections until its input is closed,
and then prints what it saw as JSON. It is a process of its own, so that it competes with nobody for Python's lock.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from typing import Any
from urllib.parse import urlsplit

N_THREADS = 3
PAUSE = 0.005  # seconds between requests: they use the service, they do not load it


class Neighbors:
    """Threads that decide and reward one after the other, one that asks for readiness, and one that only sleeps."""

    def __init__(self, url: str, key: str, experiment: str) -> None:
        self.address, self.experiment = urlsplit(url).netloc, experiment
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self.seconds: list[float] = []  # that requests took
        self.oversleep: list[float] = []  # how much longer than asked the machine itself lets a thread sleep
        self.decided: list[str] = []  # ids that were acknowledged
        self.rewarded: list[str] = []
        self.failures: list[str] = []
        self.readiness: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        jobs = [lambda n=n: self.decide_and_reward(n) for n in range(N_THREADS)]
        threads = [threading.Thread(target=job) for job in (*jobs, self.ask_readiness, self.sleep)]
        for thread in threads:
            thread.start()
        sys.stdin.read()
        self.over.set()
        for thread in threads:
            thread.join()

    def decide_and_reward(self, thread: int) -> None:
        line, n = Line(self.address, self.headers), 0
        while not self.over.is_set():
            n += 1
            id = f"{thread}-{n}"
            path = f"/v1/experiments/{self.experiment}"
            body = {"context": f"visitor-{n % 20}", "id": id}
            if self.asked(line, "POST", f"{path}/decisions", body, (200, 201)):
                self.decided.append(id)
                if self.asked(line, "POST", f"{path}/rewards", {"id": id, "reward": (n % 5) / 4}, (200,)):
                    self.rewarded.append(id)

    def asked(self, line: Line, method: str, path: str, body: Any, expected: tuple[int, ...]) -> bool:
        started = time.perf_counter()
        try:
            status, text = line.ask(method, path, body)
        except (OSError, http.client.HTTPException) as problem:
            status, text = 0, repr(problem)
        self.seconds.append(time.perf_counter() - started)
        if status not in expected:
            self.failures.append(f"{status} {text[:200]}")
        self.over.wait(PAUSE)
        return status in expected

    def ask_readiness(self) -> None:
        line = Line(self.address, {})
        while not self.over.wait(0.1):
            try:
                self.readiness.append(line.ask("GET", "/ready", None)[0])
            except (OSError, http.client.HTTPException):
                self.readiness.append(0)

    def sleep(self) -> None:
        while not self.over.is_set():
            started = time.perf_counter()
            time.sleep(PAUSE)
            self.oversleep.append(time.perf_counter() - started - PAUSE)

    def report(self) -> dict[str, Any]:
        return {
            "requests": len(self.seconds),
            "p99": percentile(self.seconds, 0.99),
            "longest": max(self.seconds, default=0.0),
            "oversleep": percentile(self.oversleep, 0.99),
            "decided": self.decided,
            "rewarded": self.rewarded,
            "failures": self.failures,
            "readiness": self.readiness,
        }


class Line:
    """A connection that is opened again when it was closed, as every client does."""

    def __init__(self, address: str, headers: dict[str, str]) -> None:
        self._address, self._headers = address, headers
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: Any) -> tuple[int, str]:
        fresh = self._connection is None
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._address, timeout=30.0)
        try:
            self._connection.request(method, path, None if body is None else json.dumps(body), self._headers)
            answer = self._connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            self._connection = None
            if fresh:
                raise
            return self.ask(method, path, body)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))] if values else 0.0


if __name__ == "__main__":
    neighbors = Neighbors(*sys.argv[1:4])
    neighbors.run()
    json.dump(neighbors.report(), sys.stdout)
