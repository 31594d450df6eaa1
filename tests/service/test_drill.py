"""The drill for operators, in short: `python -m benchmarks.drill` has more load and more sizes of disks."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from alphafair import Engine
from benchmarks import drill
from tests import ROOT

pytestmark = pytest.mark.compiled  # services in processes of their own, where nobody switches the JIT off

STEPS = (
    "loaded, and backed up under load",
    "killed under load",
    "started again",
    "killed under load",
    "restored, verified",
    "went on from the backup",
    "disk full with 65,536 bytes left",
    "file taken away",
    "slow clients",
    "stopped, and verified",
)


def test_every_step_of_the_drill_succeeds(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.drill",
        str(tmp_path / "drill"),
        "--seconds",
        "0.2",
        "--sizes",
        "65536",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=os.environ)
    log = (tmp_path / "drill" / "service.log").read_text()
    assert done.returncode == 0, done.stdout + done.stderr + log[-2000:]
    *lines, last = done.stdout.splitlines()
    assert [line.startswith(f"ok  {step}") for line, step in zip(lines, STEPS, strict=True)] == [True] * len(STEPS)
    assert last == "All steps went as they should."
    assert "Traceback" not in log
    assert done.stderr == ""


def test_lost_events_are_detected(tmp_path: Path) -> None:
    """The control: books that have more, or other things, than the file."""
    with Engine.open(tmp_path / "shop.db", seed=1) as engine:
        engine.create(drill.NAME, arms=drill.ARMS)
        receipt = engine.decide(drill.NAME, drill.context_of("id-0"), "id-0")
        engine.reward("id-0", drill.value_of("id-0"))
    books = drill.Books()
    books.decisions["id-0"] = receipt.arm, receipt.propensity
    books.rewards.add("id-0")
    with drill.serving(tmp_path / "shop.db") as service:
        drill.compare(service, books)
        books.decisions["id-1"] = "ada", 1.0
        with pytest.raises(drill.Failed, match="decision id-1 was"):
            drill.compare(service, books)
        del books.decisions["id-1"]
        service.client.decide(drill.NAME, drill.context_of("id-2"), id="id-2")
        books.rewards.add("id-2")
        with pytest.raises(drill.Failed, match="the reward of id-2 was acknowledged, and is applied now"):
            drill.compare(service, books)


def test_lost_boundaries_are_detected(tmp_path: Path) -> None:
    """The control: a boundary that was announced and did not come."""
    books = drill.Books()
    with drill.serving(tmp_path / "shop.db") as service:
        service.client.create(drill.NAME, arms=drill.ARMS)
        drill.play(service.client, books, books.new_ids(20))
        drill.end_period_in(service, books, 0.2)
        drill.compare_periods(service, books)
        assert [period.number for period in service.client.experiment(drill.NAME).periods] == [0, 1]
        books.boundaries.append(books.boundaries[0] - timedelta(seconds=1))
        with pytest.raises(drill.Failed, match="were announced, and periods start at"):
            drill.compare_periods(service, books)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.db").touch()
    with pytest.raises(SystemExit):
        drill.main([str(tmp_path)])
