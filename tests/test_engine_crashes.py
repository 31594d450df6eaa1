"""SIGKILL under load, at random moments, again and again: nothing acknowledged is lost, nothing counts twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.compiled  # in processes of their own, where nobody switches the JIT off

ROOT = Path(__file__).parents[1]


def killed(folder: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.crashes", str(folder), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_nothing_acknowledged_is_lost_and_nothing_counts_twice(tmp_path: Path) -> None:
    report = killed(tmp_path, "--kills", "35")
    assert report["faults"] == []
    assert report["kills"] == 35
    assert report["acknowledged"] > 35
    assert report["events"] > 35
    assert report["boundaries"] > 35


def test_acknowledging_before_the_commit_is_detected(tmp_path: Path) -> None:
    """The control: the same test, with nothing changed but the order of the two."""
    report = killed(tmp_path, "--kills", "3", "--early")
    assert report["lost"] > 0
    assert any("acknowledged and lost" in fault for fault in report["faults"])
