"""The small versions of the report and of the arena, made once for all tests of a run and for all of its workers.

A worker that needs one makes it, while the others wait for it. Tests read the numbers; who writes there takes a copy.
Pictures of the report may be in one format only, if the test that came first saves no others.
"""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from alphafair.cli import app


def smoke_run(command: str, factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that `alphafair COMMAND --smoke` has written, and what it has printed."""
    base = factory.getbasetemp()
    home = (base.parent if base.name.startswith("popen-") else base) / f"smoke-{command}"  # one folder for all workers
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        printed = home / "printed.json"
        if not printed.exists():
            words = [command, "--smoke", "--output", str(home / "made")]
            answer = CliRunner().invoke(app, words, env={"COLUMNS": "160"})
            assert answer.exit_code == 0, answer.output
            printed.write_text(json.dumps(answer.stdout))
    return home / "made", json.loads(printed.read_text())
