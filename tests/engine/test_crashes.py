"""SIGKILL under load, at random moments, again and again: nothing acknowledged is lost, nothing counts twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.stores import both_stores, is_postgres

pytestmark = [pytest.mark.compiled, both_stores]  # in processes of their own, where nobody switches the JIT off


def killed(folder: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.crashes", str(folder), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture
def options(request: pytest.FixtureRequest) -> list[str]:
    """Where the writer writes."""
    return ["--database", request.getfixturevalue("postgres_server").url(None)] if is_postgres() else []


def test_nothing_acknowledged_is_lost_and_nothing_counts_twice(tmp_path: Path, options: list[str]) -> None:
    kills = 12 if is_postgres() else 35
    report = killed(tmp_path, "--kills", str(kills), *options)
    assert report["faults"] == []
    assert report["kills"] == kills
    assert report["acknowledged"] > kills
    assert report["events"] > kills
    assert report["boundaries"] > kills


def test_acknowledging_before_the_commit_is_detected(tmp_path: Path, options: list[str]) -> None:
    """The control: the same test, with nothing changed but the order of the two."""
    report = killed(tmp_path, "--kills", "3", "--early", *options)
    assert report["lost"] > 0
    assert any("acknowledged and lost" in fault for fault in report["faults"])
