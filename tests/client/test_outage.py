"""The drill of outages, in short: `python -m benchmarks.outage` has a minute of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import drill, outage
from tests import ROOT

pytestmark = pytest.mark.compiled  # services in processes of their own, where nobody switches the JIT off


def test_every_arm_that_is_shown_in_an_outage_is_in_the_log_once(tmp_path: Path) -> None:
    options = ["--seconds", "0.7", "--around", "0.5", "--threads", "3", "--kills", "1", "--most-slow", "1"]
    command = [sys.executable, "-m", "benchmarks.outage", str(tmp_path / "outage"), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=os.environ)
    assert done.returncode == 0, done.stdout + done.stderr
    away, killed, found, last = done.stdout.splitlines()
    assert "0 without an arm" in away
    assert killed == "ok  1 times killed shop and service in turns; nothing is left in the queue"
    assert "shown arms are in the log exactly once" in found
    assert last == "All steps went as they should."
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "b", "arm": "cyd", "reward": ""}, "b showed ben, and the log has cyd"),
        ({"id": "a", "arm": "ada", "reward": "0.5"}, "a showed ada, and is in the log 2 times"),
        ({"id": "c", "arm": "ada", "reward": "0.5"}, "c was not shown, and has a reward"),
        ({"id": "c", "arm": "ada", "reward": ""}, "b showed ben, and is in the log 0 times"),
    ],
)
def test_what_is_missing_or_twice_is_found(row: dict[str, str], message: str) -> None:
    with pytest.raises(drill.Failed, match=message):
        outage.compare([("a", "ada"), ("b", "ben")], [{"id": "a", "arm": "ada", "reward": ""}, row])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([["shown", "a", "ada", "None", "1.0"], ["no arm", "ConnectionError", "?"]], "no arm\tConnectionError"),
        (
            [["shown", "a", "ada", "None", "1.0"]] * 98 + [["shown", "b", "ada", "None", "251.0"]] * 2,
            "2 of 100 decisions",
        ),
    ],
)
def test_a_visitor_without_an_arm_and_slow_calls_are_found(lines: Any, message: str) -> None:
    with pytest.raises(drill.Failed, match=message):
        outage.report(lines)
