"""Two nodes of the service on one PostgreSQL, whatever happens to them: what was acknowledged against what is there.

`python -m tests.faults --seconds 600` starts PostgreSQL and two nodes on loopback, each with a proxy before the
database, and 24 clients that decide and reward, each with a history of its own. A client sends a request with the same
id until it is acknowledged, to the other node after a failure. Meanwhile one thing after another breaks, at random from
a seed. Afterwards everything acknowledged must be there exactly once, in the order in which each client got its
answers, and every propensity must follow from the log. What was found is printed as JSON.

Controls, in which the same checks must fail: `--control unconditional` (a node appends behind whatever others have
written, without folding it) and `--control early` (a node answers first and writes afterwards).
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import queue
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import ROOT, postgres
from tests.misbehaving import Proxy, cutting

NAME, ARMS = "home", ["ada", "ben", "cyd"]
CLIENTS, THINK = 24, 0.03  # seconds between a client's requests, on average
CLIENT_TIMEOUT = 0.5  # seconds after which a client turns to the other node
PATIENCE = 300.0  # seconds for whatever must happen soon
CONTROL_PATIENCE = 4.0  # seconds of a client, where nodes have errors and may never answer
FREEZES = (7.0, 16.0)  # seconds: longer than the time-outs of idle transactions, of locks and of connections
LONG_FREEZE = 70.0  # longer than that of statements too, once in a run of some minutes
CONTROLS = ("unconditional", "early")
Ack = tuple[str, float]


def value_of(id: str) -> float:
    """The reward of a decision: sixteenths, whose sums are exact in any order."""
    return zlib.crc32(id.encode()) % 17 / 16


def is_slate(id: str) -> bool:
    """Whether a decision shows two arms, which is every third one of a client."""
    return int(id.partition("-")[2]) % 3 == 2


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


# Nodes


class Node:
    """`alphafair serve` on the database, as a process of its own, behind a proxy that can cut its connections."""

    def __init__(self, link: Proxy, url: str, control: str | None, log: Path) -> None:
        self.link, self.port, self._log, self.control = link, free_port(), log, control
        program = ["-m", "alphafair"] if control is None else ["-m", "tests.faults", "--node", control, "--"]
        self._command = [sys.executable, *program, "serve", "--db", url, "--port", str(self.port)]
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, stdout=log, cwd=ROOT)

    def is_ready(self) -> bool:
        if self.has_ended():
            return False
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2.0)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def has_ended(self) -> bool:
        """Whether the process is gone, which only a node with an error may be."""
        ended = self.process.poll() is not None
        assert not ended or self.control, f"the node has ended: {self._log.read_text()[-2000:]}"
        return ended

    def wait(self) -> None:
        patience = time.monotonic() + (PATIENCE if self.control is None else 10.0 * CONTROL_PATIENCE)
        while not self.is_ready():
            if time.monotonic() > patience or self.has_ended():
                assert self.control is not None, "the node is not ready"
                return  # a node with an error may never be
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


# Clients


class Client(threading.Thread):
    """Decides and rewards, and writes down every answer."""

    def __init__(self, number: int, nodes: list[Node], stop: threading.Event, seed: int, patience: float) -> None:
        super().__init__()
        self.patience = patience
        self.number, self.nodes, self.stop_event = number, nodes, stop
        self.random = random.Random(seed * 1000 + number)
        self.at = number % len(nodes)
        self.decisions: dict[str, Ack] = {}
        self.rewards: list[str] = []
        self.answered = time.monotonic()  # the last answer
        self.statuses: Counter[int] = Counter()
        self.problems: list[str] = []
        self.pending: str | None = None  # the id of a request without an answer
        self.waited: dict[int, float] = {}  # by the number of a kill: seconds until the next answer
        self.kill: tuple[int, float] | None = None  # the one that this client was told of
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        try:
            self._work()
        finally:
            self._close()

    def _work(self) -> None:
        n = 0
        while not self.stop_event.is_set():
            id = f"{self.number}-{n}"
            decided = self.ask("decisions", self.request(id))
            if decided is None:
                return
            self.decide(id, decided)
            if self.random.random() < 0.8:
                value = dict.fromkeys(decided["arms"], value_of(id)) if is_slate(id) else value_of(id)
                given = self.ask("rewards", {"id": id, "reward": value})
                if given is None:
                    return
                if given["outcome"] not in ("applied", "repeated"):
                    self.problems.append(f"the reward of {id} was {given['outcome']}")
                self.rewards.append(id)
            if self.decisions and self.random.random() < 0.1:  # an old request once more, to any node
                again = self.random.choice(list(self.decisions))
                self.at = self.random.randrange(len(self.nodes))
                found = self.ask("decisions", self.request(again))
                if found is not None:
                    self.decide(again, found)
            n += 1
            self.stop_event.wait(self.random.uniform(0.0, 2.0 * THINK))

    def request(self, id: str) -> dict[str, Any]:
        context = f"visitor {self.number * 5 + int(id.partition('-')[2]) % 5}"
        return {"context": context, "id": id, **({"k": 2} if is_slate(id) else {})}

    def decide(self, id: str, answer: dict[str, Any]) -> None:
        """Of a slate the first slot is compared, and its bytes by `verify`."""
        ack = (answer["arms"][0], answer["propensities"][0]) if is_slate(id) else (answer["arm"], answer["propensity"])
        if self.decisions.setdefault(id, ack) != ack:
            self.problems.append(f"decision {id} was {self.decisions[id]}, and is {ack} now")

    def ask(self, what: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to a request, sent until there is one; None where the run ends before that."""
        self.pending = body["id"]
        patience = time.monotonic() + self.patience
        while True:
            status, answer = self._once(what, body)
            self.statuses[status] += 1
            if status == 200:
                self.answered, self.pending = time.monotonic(), None
                if self.kill is not None:
                    number, since = self.kill
                    self.waited[number], self.kill = self.answered - since, None
                return answer
            if status not in (0, 503):
                self.problems.append(f"{what} of {body['id']}: {status} {answer}")
                if status != 500:
                    return None
            if time.monotonic() > patience:
                self.problems.append(f"{what} of {body['id']}: no answer")
                return None
            if self.stop_event.is_set() and status == 0:
                self.stop_event.wait(0.05)
            self.at = (self.at + 1) % len(self.nodes)
            time.sleep(self.random.uniform(0.005, 0.03))

    def _once(self, what: str, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and answer; status 0 where there was none."""
        port = self.nodes[self.at].port
        if self._connection is None or self._connection.port != port:
            self._close()
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=CLIENT_TIMEOUT)
        try:
            headers = {"content-type": "application/json"}
            self._connection.request("POST", f"/v1/experiments/{NAME}/{what}", json.dumps(body), headers)
            answer = self._connection.getresponse()
            return answer.status, json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as problem:
            self._close()
            return 0, str(problem)

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# What breaks


class Faults:
    """One thing after another, at random, each over before the next begins."""

    def __init__(self, server: postgres.Server, nodes: list[Node], clients: list[Client], seed: int) -> None:
        self.server, self.nodes, self.clients, self.random = server, nodes, clients, random.Random(seed)
        self.done: Counter[str] = Counter()
        self.n_kills, self.until = 0, 0.0
        self.kinds: list[Callable[[], None]] = []
        self.long_freeze_due = False

    def run(self, seconds: float) -> None:
        self.until = time.monotonic() + seconds
        self.long_freeze_due = seconds >= 170.0
        while time.monotonic() < self.until:
            if not self.kinds:
                every = [
                    self.kill,
                    self.kill,
                    self.freeze,
                    self.restart,
                    self.cut,
                    self.cut,
                    self.terminate,
                    self.unplug,
                    self.freeze_database,
                ]
                self.kinds = self.random.sample(every, len(every))
            fault = self.kinds.pop()
            fault()
            self.done[fault.__name__] += 1
            time.sleep(self.random.uniform(0.3, 1.5))

    def kill(self) -> None:
        """Kill a node; clients that used it turn to the other one. It is started again."""
        self.wait_until_all_are_served()
        node = self.random.choice(self.nodes)
        place = self.nodes.index(node)
        self.n_kills += 1
        users, at = [client for client in self.clients if client.at == place], time.monotonic()
        node.kill()
        for client in users:
            client.kill = (self.n_kills, at)
        time.sleep(self.random.uniform(0.5, 2.0))
        node.start()
        node.wait()

    def wait_until_all_are_served(self) -> None:
        """What a kill costs is measured from a state in which nothing else is broken."""
        for node in self.nodes:
            node.wait()
        start = time.monotonic()
        while min(client.answered for client in self.clients) < start and time.monotonic() < self.until:
            time.sleep(0.02)

    def freeze(self) -> None:
        """Stop a node for longer than time-outs; it wakes up with old state, and goes on where it was."""
        node = self.random.choice(self.nodes)
        seconds = self.random.uniform(*FREEZES)
        if self.long_freeze_due:
            seconds, self.long_freeze_due = LONG_FREEZE, False
        node.process.send_signal(signal.SIGSTOP)
        time.sleep(min(seconds, max(6.0, self.until - time.monotonic())))
        node.process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """End PostgreSQL at once, as in a crash, and start it again."""
        self.server.restart()

    def cut(self) -> None:
        """Cut all connections of a node to the database, in the middle of whatever they do."""
        self.random.choice(self.nodes).link.cut_all()

    def terminate(self) -> None:
        """The database ends all connections."""
        self.server.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'alphafair'"
        )

    def unplug(self) -> None:
        """Nothing arrives between a node and the database for a while."""
        link = self.random.choice(self.nodes).link
        link.held = True
        time.sleep(self.random.uniform(1.0, 4.0))
        link.held = False

    def freeze_database(self) -> None:
        """The database keeps its connections and does not answer, as with a disk that hangs."""
        with self.server.frozen():
            time.sleep(min(self.random.uniform(*FREEZES), max(6.0, self.until - time.monotonic())))


# The run, and what is there afterwards


def run(seconds: float, *, seed: int = 0, control: str | None = None) -> dict[str, Any]:
    with postgres.running() as server, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        schema = "faults"
        links = [stack.enter_context(cutting(server.port, seed)) for _ in range(2)]
        nodes: list[Node] = []
        stop = threading.Event()
        try:
            for number, link in enumerate(links):
                nodes.append(Node(link, server.url(schema, port=link.port), control, Path(folder) / f"{number}.log"))
                nodes[-1].wait()
            create(nodes[0])
            patience = PATIENCE if control is None else CONTROL_PATIENCE
            clients = [Client(number, nodes, stop, seed, patience) for number in range(CLIENTS)]
            faults = Faults(server, nodes, clients, seed)
            for client in clients:
                client.start()
            try:
                faults.run(seconds)
            finally:
                stop.set()
                for client in clients:
                    client.join()
            time.sleep(1.0)  # a control may still be writing
        finally:
            for node in nodes:
                node.process.send_signal(signal.SIGCONT)
                node.kill()
        return report(server, schema, clients, faults)


def create(node: Node) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=PATIENCE)
    body = {"name": NAME, "arms": ARMS, "alpha": 0.9}
    connection.request("POST", "/v1/experiments", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status in (200, 201), answer.read()
    connection.close()


def report(server: postgres.Server, schema: str, clients: list[Client], faults: Faults) -> dict[str, Any]:
    """Compare the books of all clients with the database."""
    decided = server.execute("select id, arm, propensity, position from decision order by position", schema)
    both = "reward r join decision d on d.event = r.decision"
    rewarded = server.execute(f"select d.id, r.reward, r.position from {both}", schema)
    for id, blob, position in server.execute(
        "select d.id, r.rewards, r.position from slate_reward r join decision d on d.event = r.decision", schema
    ):
        values = set(struct.unpack(f"<{len(blob) // 8}d", blob))
        rewarded.append((id, values.pop() if len(values) == 1 else None, position))
    there = {id: (ARMS[arm], propensity, position) for id, arm, propensity, position in decided}
    paid = {id: (reward, position) for id, reward, position in rewarded}
    problems = [problem for client in clients for problem in client.problems]
    lost = []
    for client in clients:
        lost += [f"decision {id}" for id, ack in client.decisions.items() if there.get(id, ())[:2] != ack]
        lost += [f"reward of {id}" for id in client.rewards if paid.get(id, ())[:1] != (value_of(id),)]
        order = [there[id][2] for id in client.decisions if id in there]
        if order != sorted(order):
            problems.append(f"the decisions of client {client.number} are in another order")
        problems += [
            f"the reward of {id} is before it" for id in client.rewards if id in paid and paid[id][1] < there[id][2]
        ]
    doubled = len(decided) - len(there) + len(rewarded) - len(paid)
    verified = verify(server.url(schema))
    silences = sorted(seconds for client in clients for seconds in client.waited.values())
    statuses: Counter[int] = sum((client.statuses for client in clients), Counter())
    return {
        "faults": dict(faults.done),
        "acknowledged_decisions": sum(len(client.decisions) for client in clients),
        "acknowledged_rewards": sum(len(client.rewards) for client in clients),
        "events": len(decided) + len(rewarded),
        "lost": len(lost),
        "first_lost": lost[:5],
        "doubled": doubled,
        "problems": problems[:20],
        "n_problems": len(problems),
        "verified": verified,
        "longest_silence": silences[-1] if silences else None,
        "median_silence": silences[len(silences) // 2] if silences else None,
        "n_silences": len(silences),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
    }


def verify(url: str) -> str:
    """What `alphafair verify` prints, after "ok: " where it succeeds."""
    command = [sys.executable, "-m", "alphafair", "verify", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=ROOT)
    if done.returncode == 0:
        return f"ok: {done.stdout.strip()}"
    return f"failed: {(done.stdout + done.stderr).strip()[-500:]}"


def is_sound(found: dict[str, Any]) -> bool:
    """Whether nothing was lost, doubled or contradicted, and everything follows from the log."""
    return not (found["lost"] or found["doubled"] or found["n_problems"]) and found["verified"].startswith("ok: ")


# Controls: nodes with an error on purpose


def append_unconditionally() -> None:
    """Append behind what others have written, without folding it: positions are moved, distributions stay old.

    A moment later the node starts again, so that it goes on from the log.
    """
    from alphafair.engine.store.ledger import Behind, Part
    from alphafair.engine.store.postgres import PostgresStore

    commit = PostgresStore.commit

    def careless(self: Any, parts: Any, statements: Any = ()) -> None:
        try:
            commit(self, parts, statements)
        except Behind:
            (part,) = parts
            (head,) = self.heads(part.key)
            moved, late = head.position - part.expected, Part(head, part.numbers, part.at)
            late.position = part.position + moved
            for kind, some in part.rows.items():
                late.rows[kind] = [moved_by(kind, row, moved) for row in some]
            commit(self, [late], statements)
            threading.Timer(0.2, os.execv, (sys.executable, sys.orig_argv)).start()

    PostgresStore.commit = careless  # type: ignore[method-assign]


def moved_by(kind: Any, row: Any, positions: int) -> tuple[Any, ...]:
    """An event at a later position, as if it had been drawn from the state just before it."""
    moved = {"event", "position", "state_version"}
    return tuple(value + positions if name in moved else value for name, value in zip(kind._fields, row, strict=True))


def answer_early() -> None:
    """Answer first, and write a moment later."""
    from alphafair.engine.store.postgres import PostgresStore

    commit, waiting = PostgresStore.commit, queue.Queue[Any]()

    def write() -> None:
        while True:
            work = waiting.get()
            time.sleep(0.02)
            with contextlib.suppress(Exception):
                commit(*work)

    def put(*work: Any) -> None:
        _, (part,), *_ = work
        if part.expected:
            waiting.put(work)
        else:
            commit(*work)  # a new experiment

    threading.Thread(target=write, daemon=True).start()
    PostgresStore.commit = put  # type: ignore[method-assign,assignment]


def main() -> None:
    if sys.argv[1:2] == ["--node"]:
        {"unconditional": append_unconditionally, "early": answer_early}[sys.argv[2]]()
        sys.argv = ["alphafair", *sys.argv[4:]]
        from alphafair.__main__ import main as serve

        serve()
        return
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--control", choices=CONTROLS)
    options = parser.parse_args()
    found = run(options.seconds, seed=options.seed, control=options.control)
    print(json.dumps({"sound": is_sound(found), **found}, indent=2))


if __name__ == "__main__":
    main()
