"""Two nodes on one PostgreSQL while things break (see `tests/faults.py`): what was lost, doubled or not verified.

`python -m benchmarks.bench_faults [SECONDS]` runs for so long, ten minutes by default.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import Row, duration, print_table
from tests import postgres
from tests.faults import CONTROLS, is_sound

SECONDS, CONTROL_SECONDS, SILENCE = 600.0, 20.0, 1.0


def rows(seconds: float = SECONDS) -> Iterator[Row]:
    if postgres.missing() is not None:
        print(postgres.missing(), file=sys.stderr)
        return
    found = broken(seconds)
    n_faults, acknowledged = (
        sum(found["faults"].values()),
        found["acknowledged_decisions"] + found["acknowledged_rewards"],
    )
    faults = ", ".join(f"{count} {name}" for name, count in sorted(found["faults"].items()))
    job = f"two nodes, 24 clients, {seconds:g} s, {n_faults} faults ({faults}), {acknowledged:,} acknowledgements"
    wrong = f"{found['lost']} lost, {found['doubled']} doubled, {found['n_problems']} contradictions"
    yield Row(job, wrong, "alphafair verify", found["verified"][:60], "-", "none, verified", is_sound(found))
    longest = found["longest_silence"] or float("inf")
    job = f"silence of a client after its node was killed, the longest of {found['n_silences']}"
    median = duration(found["median_silence"] or float("nan"))
    yield Row(job, duration(longest), "the median", median, "-", f"under {SILENCE:g} s", longest < SILENCE)
    for control in CONTROLS:
        found = broken(CONTROL_SECONDS, "--control", control)
        wrong = f"{found['lost']} lost, {found['n_problems']} contradictions, {found['verified'][:60]}"
        yield Row(f"control: {control}, {CONTROL_SECONDS:g} s", wrong, "", "", "-", "found", not is_sound(found))


def broken(seconds: float, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.faults", "--seconds", str(seconds), *options]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=True, stdout=subprocess.PIPE)
    print(done.stdout.decode(), file=sys.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    print_table([*rows(*map(float, sys.argv[1:]))])
