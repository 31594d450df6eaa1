"""25 million rounds over 162,541 contexts and 20 arms, as many as MovieLens 25M has: peak memory of a process."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from alphafair import AlphaFair, simulate
from benchmarks.jobs import ALPHA, with_contexts
from benchmarks.table import Row, duration
from benchmarks.timing import seconds

N_ROUNDS, N_CONTEXTS, N_ARMS, N_ITEMS = 25_000_000, 162_541, 20, 62_000
LIMIT = 1e9


def rows() -> Iterator[Row]:
    command = [sys.executable, "-m", "benchmarks.bench_memory"]
    root = Path(__file__).parents[1]
    measured = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=root).stdout)
    peak, taken = measured["bytes"], measured["seconds"]
    speed = f"{duration(taken / N_ROUNDS)} a round, {duration(taken)} in all"
    job = f"AlphaFair, 25 million rounds, 162,541 contexts, 20 arms: {speed}"
    yield Row(job, f"{peak / 1e9:.2f} GB", "peak memory", "1 GB", f"{peak / LIMIT:.2f}", "under 1 GB", peak < LIMIT)


def main() -> None:
    stream = with_contexts(N_CONTEXTS, N_ROUNDS, N_ARMS, N_ITEMS)
    policy = AlphaFair(N_CONTEXTS, N_ARMS, alpha=ALPHA)
    simulate(policy.fresh(), stream.head(10))  # compiling is another row's
    taken = seconds(lambda: simulate(policy, stream))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"seconds": taken, "bytes": peak}))


if __name__ == "__main__":
    main()
