"""Servers for tests of the clients: one that follows a script, and a proxy that cuts and delays connections."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests import ROOT

CERTIFICATE = ROOT / "tests" / "fixtures" / "loopback.pem"  # self-signed, for 127.0.0.1 and localhost, with its key
DRAWN = {"id": "x", "arm": "ada", "propensity": 0.5, "context": "v"}

Step = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Seen(NamedTuple):
    """A received request, and the number of its connection."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


def answer(body: Any = DRAWN, status: int = 200, **headers: str) -> Step:
    """A complete answer: bytes as they are, anything else as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return raw(head(status, content_length=len(data), **headers) + data)


def head(status: int = 200, **headers: Any) -> bytes:
    """A status line and headers; underscores in names become dashes."""
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([f"HTTP/1.1 {status} Whatever", *lines, "", ""]).encode()


def raw(data: bytes, *, then: Step | None = None) -> Step:
    """Send bytes, then take another step; without one the connection stays open for the next request."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        if then is not None:
            await then(reader, writer)

    return act


def drip(data: bytes, seconds: float) -> Step:
    """Send bytes one at a time."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for k in range(len(data)):
            writer.write(data[k : k + 1])
            await writer.drain()
            await asyncio.sleep(seconds)

    return act


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send nothing until the client disconnects."""
    while await reader.read(65536):
        pass


async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close the connection normally."""
    writer.close()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reset the connection."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Scripted:
    """A server that takes one step of a script per request, over any number of connections."""

    def __init__(self, script: tuple[Step, ...]) -> None:
        self.script, self.seen = list(script), list[Seen]()
        self.connections = self.open = self.most_open = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self.connections = self.connections + 1
        self.open += 1
        self.most_open = max(self.open, self.most_open)
        try:
            while not writer.is_closing():
                lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                method, path, _ = lines[0].split(" ")
                self.seen.append(Seen(method, path, headers, body, number))
                step = self.script.pop(0) if self.script else answer({"message": "The script is over."}, 501)
                await step(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@contextmanager
def scripted(*script: Step, context: ssl.SSLContext | None = None) -> Iterator[Scripted]:
    server = Scripted(script)
    with _listening(server.handle, context) as server.port:
        yield server


class Proxy:
    """Forward connections to a port, and cut some of them after some bytes, at random from a seed.

    `cut_all` cuts those that are open; while `held`, nothing is forwarded and no connection ends, as if a cable were
    unplugged.
    """

    def __init__(self, target: int, seed: int, *, cut: float, most_bytes: int, most_delay: float) -> None:
        self.target, self.random, self.cut = target, random.Random(seed), cut
        self.most_bytes, self.most_delay = most_bytes, most_delay
        self.port, self.n_cut, self.held = 0, 0, False
        self._open: dict[asyncio.StreamWriter, asyncio.AbstractEventLoop] = {}

    def cut_all(self) -> None:
        for writer, loop in list(self._open.items()):
            self.n_cut += 1
            loop.call_soon_threadsafe(writer.transport.abort)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            behind, before = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # nobody is there
            writer.transport.abort()
            return
        self._open[writer] = asyncio.get_running_loop()
        left = self.random.randrange(1, self.most_bytes) if self.random.random() < self.cut else None

        async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            nonlocal left
            while data := await source.read(65536):
                while self.held:
                    await asyncio.sleep(0.02)
                if self.most_delay:
                    await asyncio.sleep(self.random.uniform(0.0, self.most_delay))
                if left is not None:
                    data, left = data[:left], left - len(data)
                sink.write(data)
                if left is not None and left <= 0:
                    self.n_cut += 1
                    await sink.drain()
                    raise ConnectionError
            raise ConnectionError  # one side is done: so are both

        both = [asyncio.ensure_future(pass_on(reader, before)), asyncio.ensure_future(pass_on(behind, writer))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._open[writer]
            for side in (writer, before):
                side.transport.abort()  # first: waiting below may be cancelled
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)


@contextmanager
def cutting(
    target: int, seed: int, *, cut: float = 0.0, most_bytes: int = 2, most_delay: float = 0.0
) -> Iterator[Proxy]:
    proxy = Proxy(target, seed, cut=cut, most_bytes=most_bytes, most_delay=most_delay)
    with _listening(proxy.handle) as proxy.port:
        yield proxy


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextmanager
def _listening(handle: Handler, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """A local port, served by an event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # clients leave as they like
    tasks: list[asyncio.Task[None]] = []
    writers: list[asyncio.StreamWriter] = []

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        tasks.append(loop.create_task(handle(reader, writer)))

    async def start() -> asyncio.Server:
        return await asyncio.start_server(connected, "127.0.0.1", 0, ssl=context, backlog=1000)

    async def stop() -> None:
        """Close every connection, including new and unread ones, and wait for it."""
        loop.remove_reader(server.sockets[0].fileno())  # accepts no more; a closed server forgets what it has accepted
        await turns(5)  # what has been accepted becomes a connection in two, or begins a handshake
        server.close()
        handshakes = asyncio.all_tasks() - {asyncio.current_task(), *tasks}
        for task in (*tasks, *handshakes):
            task.cancel()
        await asyncio.gather(*tasks, *handshakes, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        await turns(5)  # in which the sockets of handshakes are closed

    async def turns(n: int) -> None:
        for _ in range(n):
            await asyncio.sleep(0)

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
