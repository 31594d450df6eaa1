"""Send boundary values in every field of the API, then read everything: `python -m tests.fuzz_settings --seconds 600`.

A world is a store with a service. In it experiments are created with values at the edges of what is allowed or beyond
them, and used in the same way. Whatever is accepted must be readable: no answer is a 5xx, the log is proved, and the
same holds after the store was opened again. `tests/service/test_fuzz_settings.py` is a short run on both stores.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import itertools
import json
import logging
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from alphafair.algorithms import POLICIES
from alphafair.engine import LONGEST_LABEL, Engine
from alphafair.engine.addresses import open_store
from alphafair.engine.state.settings import NOT_SETTINGS
from alphafair.service.routes import ENDPOINTS
from alphafair.values import Feedback
from alphafair_client.api import Endpoint
from tests import postgres
from tests.serving import Running, running

ROUNDS = 20  # experiments in a world
SLOW = 0.03  # the share of reads that start a process which are made
STARTS_A_PROCESS = ("/v1/experiments/{name}/log", "/experiments/{name}/decision.json")
NOT_READ = ("/experiments/{name}/log", "/static/{file...}")  # one address of `STARTS_A_PROCESS`, without a prefix

RAW = "@raw@"  # before a number that `json` would not write
NUMBERS: list[Any] = [
    *(0, -0.0, 5e-324, 1e-300, 1e-16, 1e-9, 1e-4, 0.1, 0.5, 0.9, 1 - 2**-53, 1, 1 + 2**-52, 1.5, 2, 7, 60, 100, 1e4),
    *(86400, 1e9, 1e9 + 1, 1e15, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 1e18, 1e99, 1e100, 1.7e308),
    *(-5e-324, -1e-9, -1, -(2**63), -(2**63) - 1, -1e99, f"{RAW}1e999", f"{RAW}-1e999", f"{RAW}{10**400}"),
]
TEXTS = [
    *(
        "",
        " ",
        "a",
        "inf",
        "nan",
        "null",
        "0",
        "-1",
        ".",
        "..",
        "a/b",
        "%2e",
        "a b",
        "erased-0",
        "__class__",
        "é",
        "\0",
    ),
    *("\x7f", "\u00a0", "\u202e", "\u0663", "\U0001f600" * 100, "x" * LONGEST_LABEL, "x" * (LONGEST_LABEL + 1)),
    *("a?b#c", "a&b=c", "\n", '"', "\\", "<b>", "\ufffe", "\ud800", "x" * 100),
]
DATES = [
    *("0001-01-01", "0001-01-01T00:00:00+14:00", "0001-01-01T00:00+00:01", "0001-01-01T00:00-23:59", "0001-01-02"),
    *("9999-12-31", "9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999", "9999-12-30T23:59:59.999999+23:59"),
    *("9999-12-31T23:59:59.999999+23:59:59.999999", "9968-04-22T22:13:19Z", "10000-01-01", "-0001-01-01", "0000-01-01"),
    *("1969-12-31T23:59:59.999999", "1970-01-01", "2024-02-30", "2024-W01-1", "20240101", "2024-01-01T24:00", "now"),
    *(
        "2024-01-01T00:00:00,5",
        "2024-06-30T23:59:60Z",
        "2024-01-01T00:00:00.0000001Z",
        "\u0662\u0660\u0662\u0664-01-01",
    ),
    *("2038-01-19T03:14:08", "1677-09-21", "2262-04-12", "1582-10-10", "2024-01-01T00:00:00+00:00:00.000001"),
]
DURATIONS: list[Any] = [
    *(
        60,
        59.999999,
        60.0000001,
        3600,
        1e9,
        1e9 + 1,
        "60s",
        "59.999s",
        "1m",
        "1d",
        "1w",
        "1653w",
        "1654w",
        "99999999999w",
    ),
    *("\u0663d", "1e3s", "0.1w", "1d1h", "-1d", "1 d", " 1d ", "1000000000s", "d", "0.00001w", "1.d", None),
]
STRANGE: list[Any] = [None, True, [], {}, [[]], {"a": {}}]


def any_value(draw: random.Random) -> Any:
    return draw.choice(draw.choice([NUMBERS, TEXTS, DATES, DURATIONS, STRANGE]))


def escaped(value: Any) -> str:
    return quote(str(value), safe="", errors="surrogatepass")


def number(draw: random.Random) -> Any:
    return draw.choice(NUMBERS) if draw.random() < 0.9 else any_value(draw)


def label(draw: random.Random) -> Any:
    return draw.choice(TEXTS) if draw.random() < 0.9 else any_value(draw)


def arms(draw: random.Random) -> list[str]:
    return ["ada", "ben", "cyd"][: draw.choice((1, 2, 3, 3))] + ["\U0001f600", "x" * LONGEST_LABEL][
        : draw.choice((0, 0, 2))
    ]


def groups(draw: random.Random, labels: list[str]) -> Any:
    """Groups of arms, mostly valid."""
    named = [draw.choice("pq") for _ in labels]
    if draw.random() < 0.3:
        return named
    entitled = {each: number(draw) for each in sorted(set(named))}
    floors = draw.choice([None, 1e-9, 0.1, 0.3, 1 / 3, 0.5, dict.fromkeys(set(named), 0.2), number(draw)])
    full = {"labels": named, "entitlements": draw.choice([None, entitled]), "pull_floor": floors}
    return {key: value for key, value in full.items() if draw.random() < 0.8}


def setting(draw: random.Random, policy: str) -> dict[str, Any]:
    kind = POLICIES[policy]
    names = [name for name in inspect.signature(kind).parameters if name not in (*NOT_SETTINGS, "alpha", "groups")]
    return {draw.choice(names): draw.choice([number(draw), number(draw), True, "auto"])} if names else {}


def experiment(draw: random.Random, name: str) -> dict[str, Any]:
    """The body of a request that creates an experiment: a valid one, with some values at edges."""
    labels, policy = arms(draw), draw.choice(list(POLICIES))
    body: dict[str, Any] = {"name": name, "arms": labels, "policy": policy}
    low, high = sorted(
        draw.choice([(0.0, 1.0), (-1.0, 1.0), (0.0, 5e-324), (-1e99, 1e99), (-1e-9, 2**53), (0, 1e-300)])
    )
    optional = {
        "alpha": lambda: draw.choice([0, 5e-324, 0.5, 1 - 2**-53, 1, 1 + 2**-52, 2, 60, 1e300, "inf", number(draw)]),
        "groups": lambda: groups(draw, labels),
        "reward_range": lambda: draw.choice([[low, high], [low, high], [number(draw), number(draw)]]),
        "reward_wait": lambda: draw.choice([5e-324, 1e-6, 0.001, 1, 1e9, number(draw)]),
        "default_reward": lambda: draw.choice([low, high, 0, number(draw)]),
        "period": lambda: draw.choice(DURATIONS),
        "period_start": lambda: draw.choice(DATES),
        "carry": lambda: draw.choice([0, 5e-324, 0.5, 1 - 2**-53, 1, number(draw)]),
        "settings": lambda: setting(draw, policy),
        "mode": lambda: draw.choice(["live", "watch", "share"]),
        "share": lambda: draw.choice([5e-324, 0.5, 1 - 2**-53, number(draw)]),
        "salt": lambda: label(draw),
    }
    for field in draw.sample(list(optional), draw.choice((0, 1, 1, 2, 3))):
        body[field] = optional[field]()
    if draw.random() < 0.3:
        body["period_start"] = draw.choice(DATES)
    if "period_start" in body and draw.random() < 0.9:
        body["period"] = draw.choice([60, "1d", "1d", "1w", 1e9])
    if "default_reward" in body and draw.random() < 0.9:
        body["reward_wait"] = 1
    if body.get("mode") == "share" and draw.random() < 0.9:
        body["share"] = draw.choice([0.2, 0.5, 1e-9])
    if draw.random() < 0.1:
        body[draw.choice([*optional, "name", "arms", "policy", "more"])] = any_value(draw)
    return body


def terms(draw: random.Random, names: list[str]) -> dict[str, Any]:
    """Terms to change, mostly valid."""
    given = {
        "groups": lambda: draw.choice([None, {name: draw.choice("pqr") for name in names}, {names[0]: label(draw)}]),
        "entitlements": lambda: draw.choice([None, {draw.choice(["p", "q", *names]): number(draw)}]),
        "pull_floor": lambda: draw.choice([None, 0.1, 1e-9, {"p": 0.2}, {names[0]: 0.3}, number(draw)]),
        "reward_wait": lambda: draw.choice([None, 1e-6, 1, 1e9, number(draw)]),
        "default_reward": lambda: draw.choice([None, 0, number(draw)]),
        "mode": lambda: draw.choice([None, "live", "watch", "share"]),
        "share": lambda: draw.choice([None, 0.1, 0.9, number(draw)]),
        "salt": lambda: draw.choice([None, "s", label(draw)]),
    }
    return {name: given[name]() for name in draw.sample(list(given), draw.choice((1, 1, 2, 3)))}


def change(draw: random.Random, names: list[str], position: int) -> dict[str, Any]:
    """The body of a request that changes an experiment."""
    changes = {
        "alpha": lambda: {"alpha": draw.choice([0, 0.5, 1, 1 + 2**-52, "inf", number(draw)])},
        "add_arm": lambda: {"add_arm": label(draw), **({"group": label(draw)} if draw.random() < 0.4 else {})},
        "new_group": lambda: {"add_arm": label(draw), "group": label(draw), "entitlement": number(draw)},
        "retire_arm": lambda: {"retire_arm": draw.choice(names)},
        "mask_arm": lambda: {draw.choice(["mask_arm", "unmask_arm"]): draw.choice(names)},
        "paused": lambda: {"paused": draw.random() < 0.2},
        "rollback": lambda: {"rollback": draw.choice([1, position, draw.randrange(1, position + 2), number(draw)])},
        "new_period": lambda: {"new_period": True, **({"carry": number(draw)} if draw.random() < 0.5 else {})},
        "period": lambda: {"period": draw.choice(DURATIONS)},
        "period_start": lambda: {"period": draw.choice([60, "1d", "1w", 1e9]), "period_start": draw.choice(DATES)},
        "carry": lambda: {"period": "1d", "carry": number(draw)},
        "terms": lambda: {"terms": terms(draw, names)},
        "mode": lambda: {"terms": {"mode": "share", "share": draw.choice([0.2, 0.8])}},
    }
    body = changes[draw.choice([*changes, "period_start", "terms", "terms"])]()
    if draw.random() < 0.1:
        body[draw.choice([*body, "alpha", "period", "more"])] = any_value(draw)
    return body


class World:
    """A service, what was sent to it, and what was wrong with its answers."""

    def __init__(self, shop: Running, draw: random.Random) -> None:
        self.shop, self.draw = shop, draw
        self.statuses: Counter[int] = Counter()
        self.complaints: list[str] = []
        self.slates: dict[str, list[str]] = {}  # the arms of each slate, by id

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        text = None if body is None else re.sub(rf'"{RAW}([^"]*)"', r"\1", json.dumps(body))
        return self._checked(self.shop.http.request(method, path, content=text), f"{method} {path} {text or ''}")

    def _checked(self, answer: httpx.Response, asked: str) -> httpx.Response:
        self.statuses[answer.status_code] += 1
        if answer.status_code >= 500:
            self.complaints.append(f"{answer.status_code} for {asked[:600]}: {answer.text[:400]}")
        return answer

    def play(self, name: str) -> None:
        """Create an experiment, use it, change it, and read everything."""
        draw = self.draw
        body = experiment(draw, name)
        made = self.send("POST", "/v1/experiments", body)
        if made.status_code != 201 or made.json()["name"] != name:
            return
        path = f"/v1/experiments/{name}"
        ids: list[str] = []
        for _ in range(draw.randrange(1, 5)):
            ids += self._decide(path, made.json())
            self._reward(path, made.json(), ids)
            self.send("PATCH", path, change(draw, made.json()["arms"], made.json()["position"]))
            self.read(name, ids, few=True)
        self.send("POST", f"{path}/activations", {"id": draw.choice([*ids, "nobody"])})
        self.send("DELETE", f"{path}/contexts?label={escaped(draw.choice(['v', 'w', *TEXTS]))}")
        self.read(name, ids)

    def _decide(self, path: str, made: dict[str, Any]) -> list[str]:
        draw = self.draw
        body: dict[str, Any] = {"context": draw.choice(["v", "w", label(draw)])}
        if draw.random() < 0.3:
            body["id"] = label(draw)
        if draw.random() < 0.3:
            body["available"] = draw.sample(made["arms"], draw.randrange(1, len(made["arms"]) + 1))
        if draw.random() < 0.2:
            body["deferred"] = True
        if draw.random() < 0.3:
            body["k"] = draw.choice([1, 2, 2, 3, 7, 1000, number(draw)])
        if draw.random() < (0.3 if made["mode"] == "live" else 0.95):
            body["incumbent"] = draw.choice([*made["arms"], *made["arms"], label(draw)])
        if draw.random() < 0.2:
            body["incumbent_propensity"] = draw.choice([5e-324, 0.5, 1, number(draw)])
        if draw.random() < 0.4:
            body["unit"] = draw.choice(["u", "v", label(draw)])
        if draw.random() < 0.1:
            body[draw.choice([*body, "available", "more"])] = any_value(draw)
        one = self.send("POST", f"{path}/decisions", body)
        many = self.send("POST", f"{path}/decisions/batch", {"items": [{"context": "v"}] * 3 + [body]})
        answers = [one.json()] if one.status_code == 200 else []
        if many.status_code == 200:
            answers += [each for each in many.json()["items"] if "id" in each]
        self.slates |= {each["id"]: each["arms"] for each in answers if "arms" in each}
        return [each["id"] for each in answers]

    def _reward(self, path: str, made: dict[str, Any], ids: list[str]) -> None:
        draw, (low, high) = self.draw, made["reward_range"]
        for id in ids[-3:]:
            value = draw.choice([low, high, low / 2 + high / 2, number(draw)])
            if made["feedback"] == Feedback.FULL.value and draw.random() < 0.9:
                value = dict.fromkeys(made["arms"], value)
            elif id in self.slates and draw.random() < 0.9:
                shown = self.slates[id]
                value = dict.fromkeys(draw.sample(shown, draw.randrange(1, len(shown) + 1)), value)
            reward = {"id": id if draw.random() < 0.9 else label(draw), "reward": value}
            if draw.random() < 0.5:
                self.send("POST", f"{path}/rewards", reward)
            else:
                self.send("POST", f"{path}/rewards/batch", {"items": [reward, reward, {**reward, "reward": high}]})

    def read(self, name: str, ids: list[str], *, few: bool = False) -> None:
        """Ask all routes that read, or a few of them."""
        asked = [each for each in ENDPOINTS if each.method == "GET" and each.path not in NOT_READ]
        for endpoint in asked if not few else self.draw.sample(asked, 4):
            if endpoint.path in STARTS_A_PROCESS and self.draw.random() > SLOW:
                continue
            self._read(endpoint, name, ids)

    def _read(self, endpoint: Endpoint, name: str, ids: list[str]) -> None:
        path = endpoint.path.replace("{name}", name)
        if not path.endswith("/events"):
            self.send("GET", path + self._query(path, ids))
            return
        with self.shop.http.stream("GET", path) as answer:
            lines = (line for line in answer.iter_lines() if line.startswith(("event:", ":")))
            if answer.status_code != 200:
                answer.read()
            elif (first := next(lines)) != "event: state":  # a comment after ten seconds of silence, for example
                self.complaints.append(f"{path} begins with {first!r}")
            self._checked(answer, f"GET {path}")

    def _query(self, path: str, ids: list[str]) -> str:
        draw = self.draw
        values: dict[str, Any] = {}
        if path.endswith("log.json"):
            values = {
                "context": "v",
                "arm": "ada",
                "state": "rewarded",
                "since": 0,
                "until": 1e11,
                "before": 3,
                "limit": 500,
            }
        elif path.endswith("contexts.json"):
            values = {"search": "v", "limit": 3, "offset": 0}
        elif path.endswith("decision.json"):
            return f"?id={escaped(draw.choice([*ids, 'nobody', label(draw)]))}"
        elif path.endswith("/log"):
            return f"?format={draw.choice(['csv', 'jsonl', 'parquet'])}"
        chosen = {key: value for key, value in values.items() if draw.random() < 0.4}
        for key in chosen:
            if draw.random() < 0.3:
                chosen[key] = draw.choice([str(number(draw)).removeprefix(RAW), label(draw), "inf", "nan", "1e11"])
        return "?" + "&".join(f"{key}={escaped(value)}" for key, value in chosen.items()) if chosen else ""

    def prove(self) -> None:
        try:
            self.shop.engine.verify()
        except Exception as problem:
            self.complaints.append(f"verify: {type(problem).__name__}: {problem}")


class Clock:
    """Time that is moved on now and then: periods end and waiting times pass."""

    def __init__(self) -> None:
        self.ahead = 0

    def __call__(self) -> int:
        return time.time_ns() + self.ahead


def world(address: Any, seed: str, n_rounds: int = ROUNDS) -> tuple[Counter[int], list[str]]:
    """Play in one store; return the statuses of all answers, and what was wrong."""
    draw, clock = random.Random(seed), Clock()
    shared = str(address).startswith("postgresql:")  # a database refuses clocks that are not its own
    statuses: Counter[int] = Counter()
    complaints: list[str] = []
    for opened in range(2):
        times = {} if shared else {"clock": clock}
        engine = Engine(open_store(address), opened, **times)
        with running(address, engine=engine) as shop:
            found = World(shop, draw)
            if opened:
                for name in engine.experiments():
                    found.read(name, [])
            else:
                for k in range(n_rounds):
                    found.play(f"e{k}")
                    clock.ahead += draw.choice([0, 0, 1, 61, 86_400, 400 * 86_400]) * 10**9
            found.prove()
            statuses += found.statuses
            complaints += [f"seed {seed}{', opened again' if opened else ''}: {each}" for each in found.complaints]
        clock.ahead += 86_400 * 10**9
    return statuses, complaints


@contextlib.contextmanager
def addresses(*, on_postgres: bool) -> Iterator[Iterator[Any]]:
    """Addresses of new stores."""
    with contextlib.ExitStack() as stack:
        if on_postgres:
            server = stack.enter_context(postgres.running())
            yield (server.url() for _ in itertools.count())
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            yield (folder / f"{k}.db" for k in itertools.count())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--postgres", action="store_true", help="Play on a PostgreSQL server instead of files.")
    options = parser.parse_args()
    logging.getLogger("alphafair").setLevel(logging.ERROR)
    until, statuses, complaints = time.monotonic() + options.seconds, Counter[int](), list[str]()
    with addresses(on_postgres=options.postgres) as stores:
        for n_worlds, address in enumerate(stores):
            if time.monotonic() > until:
                break
            some, wrong = world(address, f"{options.seed}-{n_worlds}")
            statuses, complaints = statuses + some, complaints + wrong
    print(f"{n_worlds} worlds, {sum(statuses.values()):,} answers: {dict(sorted(statuses.items()))}")
    print("\n".join(complaints) or "nothing to complain about")
    sys.exit(bool(complaints))


if __name__ == "__main__":
    main()
