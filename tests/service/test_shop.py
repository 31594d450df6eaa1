"""`make serve`: one line with the address of the page, then the table, and no line of the service's log between."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from alphafair.engine import Engine
from tests import ROOT

pytestmark = pytest.mark.compiled

RUN = ROOT / "examples" / "shop" / "run.py"


def test_the_shop_prints_the_address_and_a_clean_table(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    options = ["--port", str(port), "--visitors", "300", "--seconds", "0", "--no-browser"]
    command = [sys.executable, str(RUN), "--db", "shop.db", *options]
    lines = []
    with subprocess.Popen(
        command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as shop:
        assert shop.stdout is not None
        for line in shop.stdout:
            lines.append(line.rstrip())
            if "still running" in line:
                os.killpg(shop.pid, signal.SIGINT)  # Ctrl-C reaches the service too
    assert lines.count(f"The page of the service: http://127.0.0.1:{port}/") == 1
    heading = lines.index(next(line for line in lines if line.startswith("visitors")))
    assert [line.split()[0] for line in lines[heading + 1 : heading + 5]] == ["100", "100", "200", "300"]
    assert lines[heading + 2].endswith("alpha is 2 from here on")
    assert not any(line.startswith(("{", "Traceback")) for line in lines)
    assert lines[-1] == "Stopped. All decisions and rewards are in shop.db."
    with Engine.open(tmp_path / "shop.db", read_only=True) as engine:
        assert engine.experiment("shop-1").decisions == 300


def test_the_service_ends_with_the_shop(tmp_path: Path) -> None:
    """A supervisor sends SIGTERM to the script alone."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(RUN), "--db", "shop.db", "--port", str(port), "--seconds", "600", "--no-browser"]
    with subprocess.Popen(command, cwd=tmp_path, text=True, stdout=subprocess.PIPE, start_new_session=True) as shop:
        assert shop.stdout is not None
        try:
            for line in shop.stdout:
                if "The page of the service" in line:
                    break
            shop.terminate()
            assert shop.stdout.read().splitlines()[-1].startswith("Stopped.")
            with pytest.raises(OSError, match="refused"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5.0)
        finally:
            os.killpg(shop.pid, signal.SIGKILL) if shop.poll() is None else None


def test_a_service_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_text("not a database, but long enough to look like one" * 100)
    command = [sys.executable, str(RUN), "--db", "shop.db", "--port", "0", "--no-browser"]
    ended = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=120)
    assert ended.returncode != 0
    assert "shop.db" in ended.stderr
