"""HTTP/1.1 for the clients: h11 parses and formats messages, two pools of connections send and receive the bytes.

`ThreadPool` blocks, `AsyncPool` is awaited. What they share is in `Destination` and `Exchange`, which do no I/O. Both
return a `Reply`, whatever its status, or raise `Lost`, within the time they are given.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple, cast
from urllib.parse import quote, urlsplit

import h11

from alphafair_client import __version__, tracing
from alphafair_client.answers import InvalidArgument

CHUNK_BYTES = 1 << 16
MAX_REPLY_BYTES = 1 << 26  # of a reply in memory
_HOST_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_UNCHANGED_IN_PATHS = "/%!$&'()*+,;=:@~"


class HttpRequest(NamedTuple):
    """A request; `repeatable` if sending it twice has the effect of sending it once."""

    method: str
    path: str
    body: bytes | None = None
    repeatable: bool = True
    save_to: BinaryIO | None = None  # where the body of a success is written, instead of into memory


class Reply(NamedTuple):
    """A complete answer, whoever sent it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Lost(Exception):
    """There was no complete answer.

    Unless `sent`, no byte of the request was sent; unless `temporary`, another attempt would fail in the same way.
    """

    def __init__(self, reason: str, *, sent: bool, temporary: bool = True) -> None:
        super().__init__(reason)
        self.sent, self.temporary = sent, temporary


class Destination:
    """The address of the service and the headers of every request, checked when a client is created."""

    def __init__(
        self,
        url: str,
        *,
        key: str | None,
        unix_socket: str | os.PathLike[str] | None,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        scheme, self.host, port, self.path = _parsed(url)
        self.port = port or {"http": 80, "https": 443}[scheme]
        self.unix_socket = _unix_socket(unix_socket)
        if ssl_context is not None and (scheme != "https" or not isinstance(ssl_context, ssl.SSLContext)):
            repair = "Leave it out, or use an https:// url."
            raise InvalidArgument("ssl_context", "an ssl.SSLContext, for an https url", ssl_context, repair)
        self.ssl_context = (ssl_context or ssl.create_default_context()) if scheme == "https" else None
        host = f"[{self.host}]" if ":" in self.host else self.host
        self.headers = [
            (b"host", (host if port is None else f"{host}:{port}").encode()),
            (b"user-agent", f"alphafair/{__version__}".encode()),
            (b"accept", b"application/json"),
            (b"accept-encoding", b"identity"),
        ]
        if key is not None:
            if not isinstance(key, str) or not _VISIBLE.fullmatch(key):
                allowed, repair = "a string of visible ASCII characters", "Pass the key without spaces and line breaks."
                raise InvalidArgument("key", allowed, type(key).__name__, repair)  # the value is a secret
            self.headers.append((b"authorization", f"Bearer {key}".encode()))

    def numeric_addresses(self) -> list[Any] | None:
        """The address of a numeric host; None for a name that has to be resolved."""
        try:
            return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except OSError:
            return None


def _unix_socket(path: str | os.PathLike[str] | None) -> str | None:
    if path is None:
        return None
    if not hasattr(socket, "AF_UNIX"):
        raise InvalidArgument("unix_socket", "None on this system", path, "Use a url with a port.")
    try:
        return os.fsdecode(path)
    except TypeError:
        raise InvalidArgument("unix_socket", "the path of a socket", path, "Pass a string or a Path.") from None


def _parsed(url: str) -> tuple[str, str, int | None, str]:
    """Scheme, host, port if given, and the path prefix."""
    allowed = "an address such as 'http://127.0.0.1:8000' or 'https://example.org/prefix'"
    if not isinstance(url, str):
        raise InvalidArgument("url", allowed, url, "Pass a string.")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
        path = quote(parts.path.rstrip("/"), safe=_UNCHANGED_IN_PATHS)
    except ValueError as problem:
        raise InvalidArgument("url", allowed, url, f"It cannot be read: {problem}.") from None
    if "@" in parts.netloc:
        raise InvalidArgument("url", allowed, "an address with a user or password", "Pass a key of the service as key.")
    if parts.scheme not in ("http", "https") or not _is_host(host):
        raise InvalidArgument("url", allowed, url, "Start it with http:// or https:// and the name of a host.")
    if parts.query or parts.fragment:
        raise InvalidArgument("url", allowed, url, "Remove the part from ? or # on.")
    return parts.scheme, host, port, path


def _is_host(host: str) -> bool:
    if _HOST_NAME.fullmatch(host):
        return True
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


class Exchange:
    """One request and its reply on a connection: bytes to send, bytes received."""

    def __init__(self, parser: h11.Connection, destination: Destination, request: HttpRequest) -> None:
        self._parser, self._save_to = parser, request.save_to
        self._status, self._headers, self._body, self._size = 0, dict[str, str](), list[bytes](), 0
        headers = [*destination.headers, *tracing.headers()]
        if request.body is not None:
            headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(request.body))]
        head = h11.Request(method=request.method, target=destination.path + request.path, headers=headers)
        events = [head, *([h11.Data(data=request.body)] if request.body else []), h11.EndOfMessage()]
        self.outgoing = b"".join(parser.send(event) or b"" for event in events)

    def receive(self, data: bytes) -> Reply | None:
        """Process received bytes, b"" for the end of the connection; return the reply when it is complete."""
        try:
            self._parser.receive_data(data)
            while (event := self._parser.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    self._begin(event)
                elif isinstance(event, h11.Data):
                    self._take(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    return Reply(self._status, self._headers, b"".join(self._body))
        except h11.RemoteProtocolError as problem:
            raise Lost(f"the answer is incomplete, or not HTTP ({problem})", sent=True) from problem
        return None

    def _begin(self, response: h11.Response) -> None:
        self._status = response.status_code
        self._headers = {name.decode("ascii"): value.decode("latin-1") for name, value in response.headers}
        if not 200 <= self._status < 300:
            self._save_to = None
        if self._save_to is not None:
            self._save_to.seek(0)
            self._save_to.truncate()

    def _take(self, data: bytes) -> None:
        if self._save_to is not None:
            self._save_to.write(data)
            return
        self._size += len(data)
        if self._size > MAX_REPLY_BYTES:
            raise Lost(f"the answer is longer than {MAX_REPLY_BYTES >> 20} MB", sent=True, temporary=False)
        self._body.append(data)

    def can_be_followed(self) -> bool:
        """Whether the connection can be used again; if so, its parser is reset."""
        done = self._parser.our_state is h11.DONE and self._parser.their_state is h11.DONE
        if not done or self._parser.trailing_data != (b"", False):
            return False
        self._parser.start_next_cycle()
        return True


def _remaining(until: float) -> float:
    """Seconds until then; raises TimeoutError if there are none left."""
    if (seconds := until - time.monotonic()) <= 0.0:
        raise TimeoutError
    return seconds


def _not_connected(problem: Exception) -> Lost:
    if isinstance(problem, ssl.SSLCertVerificationError):
        reason = f"the certificate is not trusted ({problem.verify_message}); pass an ssl_context that trusts it"
        return Lost(reason, sent=False, temporary=False)
    reason = "in time" if isinstance(problem, TimeoutError) else f"({problem})"
    return Lost(f"no connection {reason}", sent=False)


def _broken(problem: Exception) -> Lost:
    if isinstance(problem, TimeoutError):
        return Lost("the answer did not arrive in time", sent=True)
    return Lost(f"the connection broke ({problem})", sent=True)


def _all_in_use(n: int) -> Lost:
    return Lost(f"all {n} connections are in use", sent=False)


CLOSED = "This client is closed. Create a new one, or close it later."


class _Connection(NamedTuple):
    socket: socket.socket
    parser: h11.Connection

    def is_alive(self) -> bool:
        """Whether an idle connection is still open, without unexpected data."""
        try:
            self.socket.settimeout(0.0)
            socket.socket.recv(self.socket, 1, socket.MSG_PEEK)  # below TLS, which cannot peek
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False


class ThreadPool:
    """Connections for any number of threads; they block."""

    def __init__(self, destination: Destination, max_connections: int) -> None:
        self._destination, self._max = destination, max_connections
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._idle: list[_Connection] = []
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self._max)
        self._process = os.getpid()

    def _restart_after_fork(self) -> None:
        """A forked child opens its own connections: the parent uses the old ones, and its locks may be held forever."""
        if self._process != os.getpid():
            for connection in self._idle:
                connection.socket.close()
            self._start()

    def exchange(self, request: HttpRequest, deadline: float, longest: float) -> Reply:
        """Wait for a connection until the deadline, then at most `longest` seconds for the reply."""
        self._restart_after_fork()
        slots = self._slots
        if not slots.acquire(timeout=max(deadline - time.monotonic(), 0.0)):
            raise _all_in_use(self._max)
        try:
            if self._closed:
                raise ConnectionError(CLOSED)
            until = min(deadline, time.monotonic() + longest)
            connection = (self._take_idle() if request.repeatable else None) or self._connected(until)
            try:
                exchange = Exchange(connection.parser, self._destination, request)
                reply = self._replied(connection.socket, exchange, until)
            except BaseException:
                connection.socket.close()
                raise
            self._put_back(connection, exchange)
            return reply
        finally:
            slots.release()

    @staticmethod
    def _replied(connection: socket.socket, exchange: Exchange, until: float) -> Reply:
        reply = None
        try:
            connection.settimeout(_remaining(until))
            connection.sendall(exchange.outgoing)
        except OSError as problem:
            raise _broken(problem) from problem
        while reply is None:
            try:
                connection.settimeout(_remaining(until))
                data = connection.recv(CHUNK_BYTES)
            except OSError as problem:
                raise _broken(problem) from problem
            reply = exchange.receive(data)
        return reply

    def _take_idle(self) -> _Connection | None:
        """The connection used last, which is the least likely to be closed by the server."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.is_alive():
                return connection
            connection.socket.close()

    def _put_back(self, connection: _Connection, exchange: Exchange) -> None:
        with self._lock:
            if exchange.can_be_followed() and not self._closed:
                self._idle.append(connection)
                return
        connection.socket.close()

    def _connected(self, until: float) -> _Connection:
        destination = self._destination
        try:
            if destination.unix_socket is not None:
                connection = _opened(socket.AF_UNIX, destination.unix_socket, _remaining(until))
            else:
                connection = self._first_to_connect(destination.numeric_addresses() or self._resolved(until), until)
            if destination.ssl_context is not None:
                try:
                    connection.settimeout(_remaining(until))
                    connection = destination.ssl_context.wrap_socket(connection, server_hostname=destination.host)
                except BaseException:
                    connection.close()
                    raise
        except (OSError, ValueError) as problem:
            raise _not_connected(problem) from problem
        return _Connection(connection, h11.Connection(h11.CLIENT))

    def _resolved(self, until: float) -> list[Any]:
        """Addresses of a host name, resolved in a thread: the system call has no time limit."""
        found: concurrent.futures.Future[list[Any]] = concurrent.futures.Future()

        def resolve() -> None:
            try:
                found.set_result(
                    socket.getaddrinfo(self._destination.host, self._destination.port, type=socket.SOCK_STREAM)
                )
            except Exception as problem:
                found.set_exception(problem)

        threading.Thread(target=resolve, name="alphafair-resolve", daemon=True).start()
        return found.result(_remaining(until))

    @staticmethod
    def _first_to_connect(addresses: list[Any], until: float) -> socket.socket:
        """Try one address after the other, each in its share of the time."""
        for left in range(len(addresses), 0, -1):
            family, _, _, _, address = addresses[-left]
            try:
                return _opened(family, address, _remaining(until) / left)
            except OSError:
                if left == 1:
                    raise
        raise OSError("the host has no address")

    def close(self) -> None:
        self._restart_after_fork()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.socket.close()


def _opened(family: int, address: Any, seconds: float) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect(address)
        if family != getattr(socket, "AF_UNIX", None):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connection.close()
        raise
    return connection


class _AsyncConnection(asyncio.Protocol):
    """A connection with at most one exchange in progress."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.parser = h11.Connection(h11.CLIENT)
        self._exchange: Exchange | None = None
        self._outcome: asyncio.Future[Reply | Exception] | None = None

    async def reply_to(self, exchange: Exchange) -> Reply:
        self._exchange, self._outcome = exchange, asyncio.get_running_loop().create_future()
        self.transport.write(exchange.outgoing)
        outcome = await self._outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def is_alive(self) -> bool:
        return not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports are not derived from asyncio's

    def data_received(self, data: bytes) -> None:
        if self._exchange is None or self._outcome is None or self._outcome.done():
            self.transport.abort()  # unexpected data
            return
        try:
            outcome: Reply | Exception | None = self._exchange.receive(data)
        except Exception as problem:
            outcome = problem
        if outcome is not None:
            self._outcome.set_result(outcome)

    def eof_received(self) -> None:
        self.data_received(b"")

    def connection_lost(self, problem: Exception | None) -> None:
        if self._outcome is not None and not self._outcome.done():
            self._outcome.set_result(_broken(problem or ConnectionResetError("it was closed")))


class AsyncPool:
    """Connections for any number of tasks of one event loop; in another loop, new ones are opened."""

    def __init__(self, destination: Destination, max_connections: int) -> None:
        self._destination, self._max = destination, max_connections
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[_AsyncConnection] = []

    async def exchange(self, request: HttpRequest, deadline: float, longest: float) -> Reply:
        """Wait for a connection until the deadline, then at most `longest` seconds for the reply."""
        if self._loop is not asyncio.get_running_loop():
            self._loop, self._idle, self._slots = asyncio.get_running_loop(), [], asyncio.Semaphore(self._max)
        slots = self._slots
        if slots.locked():
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await slots.acquire()
            except TimeoutError:
                raise _all_in_use(self._max) from None
        else:
            await slots.acquire()
        try:
            if self._closed:
                raise ConnectionError(CLOSED)
            return await self._exchange(request, min(deadline - time.monotonic(), longest))
        finally:
            slots.release()

    async def _exchange(self, request: HttpRequest, seconds: float) -> Reply:
        idle = self._idle  # of this event loop
        connection = self._take_idle() if request.repeatable else None
        try:
            async with asyncio.timeout(seconds):
                if connection is None:
                    connection = await self._connected(time.monotonic() + seconds)
                exchange = Exchange(connection.parser, self._destination, request)
                reply = await connection.reply_to(exchange)
        except BaseException as problem:
            if connection is not None:
                connection.transport.abort()
            if isinstance(problem, TimeoutError):
                raise (_not_connected if connection is None else _broken)(problem) from problem
            raise
        if exchange.can_be_followed() and connection.is_alive() and not self._closed:
            idle.append(connection)
        else:
            connection.transport.abort()
        return reply

    def _take_idle(self) -> _AsyncConnection | None:
        while self._idle:
            if (connection := self._idle.pop()).is_alive():
                return connection
        return None

    async def _connected(self, until: float) -> _AsyncConnection:
        destination, loop = self._destination, asyncio.get_running_loop()
        security: dict[str, Any] = {"ssl": destination.ssl_context}
        if destination.ssl_context is not None:
            security["server_hostname"] = destination.host
        try:
            if destination.unix_socket is not None:
                _, connection = await loop.create_unix_connection(_AsyncConnection, destination.unix_socket, **security)
                return connection
            addresses = destination.numeric_addresses() or await loop.getaddrinfo(
                destination.host, destination.port, type=socket.SOCK_STREAM
            )
            for left in range(len(addresses), 0, -1):
                family, _, _, _, address = addresses[-left]
                try:
                    async with asyncio.timeout(_remaining(until) / left):
                        where: Any = {"host": address[0], "port": address[1], "family": family}
                        _, connection = await loop.create_connection(_AsyncConnection, **where, **security)
                        return connection
                except OSError:
                    if left == 1:
                        raise
            raise OSError("the host has no address")
        except (OSError, ValueError) as problem:
            raise _not_connected(problem) from problem

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            connection = self._idle.pop()
            if self._loop is asyncio.get_running_loop():
                connection.transport.abort()
        await asyncio.sleep(0)  # lets the loop close the sockets
