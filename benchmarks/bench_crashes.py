"""A writer under load, killed 300 times (see `tests/crashes.py`): what was acknowledged and is not on the disk."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import Row

N_KILLS, N_CONTROL = 300, 10


def rows() -> Iterator[Row]:
    ours, control = killed(N_KILLS), killed(N_CONTROL, "--early")
    job = f"{N_KILLS} kills under load, {ours['acknowledged']:,} acknowledgements, {ours['events']:,} events"
    rival = f"acknowledged before the commit, {N_CONTROL} kills"
    found, lost = len(ours["faults"]), f"{control['lost']:,} lost"
    yield Row(
        job,
        f"{found} lost or twice",
        rival,
        lost,
        "-",
        "none; the rival's are found",
        not found and control["lost"] > 0,
    )


def killed(n_kills: int, *options: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.crashes", folder, "--kills", str(n_kills), *options]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, stdout=subprocess.PIPE)
    report: dict[str, Any] = json.loads(done.stdout)
    return report
