"""The PostgreSQL server of the suite ends with the process that started it, and leaves no folder."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT, postgres

OWNER = """
from tests import postgres
with postgres.running() as server:
    print(server.process.pid, server.folder, flush=True)
    input()
"""


@pytest.fixture(autouse=True)
def _installed() -> None:
    reason = postgres.missing()
    if reason is not None and not os.environ.get("CI"):
        pytest.skip(reason)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that the user of the server may enter."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_killed_owner_takes_its_server_with_it(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.setattr(tempfile, "tempdir", None)
    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, folder = owner.stdout.readline().split()
        handle = os.pidfd_open(int(pid))
        try:
            assert not select.select([handle], [], [], 0)[0]
            owner.kill()
            assert select.select([handle], [], [], 60)[0], "the server still runs"
        finally:
            os.close(handle)
    assert Path(folder).exists()
    with postgres.running() as server:
        assert not Path(folder).exists()
        assert server.folder.exists()
        with postgres.running() as other:  # the folder of an owner that lives stays
            assert server.folder.exists()
            assert other.execute("select 1") == server.execute("select 1") == [(1,)]
    assert list(shared.iterdir()) == []
