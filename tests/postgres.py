"""A PostgreSQL server for tests: Debian's package, on a free port of this machine, in a temporary folder.

PostgreSQL refuses to run as root, so root starts it as another user. Nothing is left of it afterwards: the server ends
with the process that started it, even if that one is killed, and a folder that was left is removed at the next start.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
PREFIX = "alphafair-postgres-"
SETTINGS = {
    "fsync": "off",  # no test takes the power away
    "full_page_writes": "off",
    "max_connections": "80",
    "shared_buffers": "32MB",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


def missing() -> str | None:
    """Why there is no server, in a sentence; None where there is one."""
    return None if PROGRAMS else "PostgreSQL is not installed: apt install postgresql"


class Server:
    """A running server; `restart` and `stop` end it as a crash would. It ends with the thread that started it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.programs = folder, PROGRAMS[-1].parent
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._user: list[str] = ["setpriv"]
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(folder, nobody.pw_uid, nobody.pw_gid)
            ids = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
            self._user += ids
        self._names = itertools.count()
        self.data = folder / "data"
        made = ["initdb", "-D", str(self.data), "-U", "shop", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]
        self._run(*made)
        self.start()

    def _run(self, program: str, *arguments: str) -> None:
        done = [*self._user, str(self.programs / program), *arguments]
        subprocess.run(done, check=True, capture_output=True, cwd=self.folder, timeout=60)

    def start(self) -> None:
        settings = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        program = [str(self.programs / "postgres"), "-D", str(self.data)]
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            [*self._user, "--pdeathsig=QUIT", *program, f"-p{self.port}", *settings],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, "the server has ended"
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.Error), psycopg.connect(self.url(None), connect_timeout=2):
            return True
        return False

    def stop(self) -> None:
        """End it at once, as `pg_ctl stop -m immediate` does: what was not committed is lost, connections break."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait(60)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all processes of the server: connections stay, and nothing answers."""
        stopped = [self.process.pid, *self._children()]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def _children(self) -> list[int]:
        found = []
        for each in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                parent = int(each.read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid:
                    found.append(int(each.parent.name))
        return found

    def restart(self) -> None:
        self.stop()
        self.start()

    def url(self, schema: str | None = "", host: str = "127.0.0.1", port: int | None = None) -> str:
        """An address; every call without a schema gives a new one."""
        base = f"postgresql://shop@{host}:{port or self.port}/postgres"
        if schema is None:
            return base
        return f"{base}?schema={schema or f'shop_{next(self._names)}'}"

    def execute(self, statement: str, schema: str = "public") -> list[Any]:
        """Run a statement behind the back of all engines."""
        import psycopg

        options = f"-c search_path={schema}"
        with psycopg.connect(self.url(None), autocommit=True, options=options) as connection:
            done = connection.execute(statement)  # type: ignore[arg-type]
            return done.fetchall() if done.description else []


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Make a folder and keep its file `owner` locked; remove folders whose owner was killed."""
    shared = Path(tempfile.gettempdir())
    with contextlib.ExitStack() as stack:
        with _locked(shared):  # one process at a time makes or removes a folder
            for owner in shared.glob(f"{PREFIX}*/owner"):
                with contextlib.suppress(OSError), _locked(owner, wait=False):  # it fails while the owner lives
                    shutil.rmtree(owner.parent, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=shared))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            (folder / "owner").touch()
            stack.enter_context(_locked(folder / "owner"))
        folder.chmod(0o755)
        yield folder


@contextlib.contextmanager
def _locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    opened = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


@contextlib.contextmanager
def running() -> Iterator[Server]:
    with _folder() as folder:
        server = Server(folder)
        try:
            yield server
        finally:
            if server.process.poll() is None:
                server.stop()
