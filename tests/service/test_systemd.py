"""The unit for systemd in examples/systemd: what it names exists, and systemd understands it."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
import typer
import yaml

from alphafair.cli import app
from alphafair.service.http.connections import MAX_CONNECTIONS
from alphafair.service.server import GRACE
from tests import ROOT

UNIT = ROOT / "examples" / "systemd" / "alphafair.service"


def settings() -> dict[str, list[str]]:
    """The values of every setting, without those of other sections than [Service] and [Unit]."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in UNIT.read_text().partition("[Install]")[0].splitlines():
        if line and line[0] not in "#[":
            name, equals, value = line.partition("=")
            assert equals, line
            found[name].append(value)
    return found


def one(name: str) -> str:
    (value,) = settings()[name]
    return value


def environment() -> dict[str, str]:
    return dict(each.split("=", 1) for each in shlex.split(one("Environment")))


def test_the_command_has_options_that_exist() -> None:
    program, name, *words = shlex.split(one("ExecStart"))
    assert (Path(program).name, name) == ("alphafair", "serve")
    command = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    context = command.make_context("serve", words)
    assert context.params["db"].startswith(one("WorkingDirectory"))
    assert context.params["must_exist"]
    assert not context.params["accept_clock"]  # a jump would be accepted at every start


def test_it_stops_no_earlier_than_the_service() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]["alphafair"]
    assert f"{one('TimeoutStopSec')}s" == compose["stop_grace_period"]
    assert int(one("TimeoutStopSec")) > GRACE
    assert one("MemoryMax").lower() == compose["mem_limit"]
    assert one("Type") == "exec"  # the service notifies nobody


def test_it_writes_to_its_own_directories_only() -> None:
    state, cache = f"/var/lib/{one('StateDirectory')}", f"/var/cache/{one('CacheDirectory')}"
    assert one("ReadWritePaths").split() == [state, cache]
    assert environment() == {"SQLITE_TMPDIR": state, "NUMBA_CACHE_DIR": cache, "PYTHONUNBUFFERED": "1"}
    assert (one("ProtectSystem"), one("NoNewPrivileges"), one("CapabilityBoundingSet")) == ("strict", "yes", "")
    assert {one("UMask"), one("StateDirectoryMode"), one("CacheDirectoryMode")} == {"0077", "0700"}
    assert "MemoryDenyWriteExecute" not in settings()  # kernels are compiled in memory
    assert int(one("LimitNOFILE")) > 2 * MAX_CONNECTIONS


def test_it_waits_for_the_clock() -> None:
    assert "time-sync.target" in one("After").split()
    assert "time-sync.target" in one("Wants").split()


def test_the_documentation_installs_what_the_unit_starts() -> None:
    page = (ROOT / "docs" / "howto" / "run_the_service.md").read_text()
    program, database = shlex.split(one("ExecStart"))[0], shlex.split(one("ExecStart"))[3]
    for text in (program, database, one("User"), "../../examples/systemd/alphafair.service"):
        assert text in page, text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
def test_systemd_understands_it(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(shlex.split(one("ExecStart"))[0], "/bin/true"))
    answer = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")
