"""Experiment C at the size of MovieLens 25M: a made-up copy is written, read, and played at 100 values of alpha."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Row, duration

CODE = """
import resource, sys, time
from concurrent.futures import ThreadPoolExecutor
from alphafair import AlphaFair, simulate, streams
start = time.perf_counter()
stream = streams.movielens(sys.argv[1], min_ratings=5000)
read = time.perf_counter() - start
def play(k):
    return simulate(AlphaFair(stream.n_contexts, stream.n_arms, alpha=k / 100), stream).final
simulate(AlphaFair(stream.n_contexts, stream.n_arms), stream.head(10))
start = time.perf_counter()
with ThreadPoolExecutor(2) as pool:
    list(pool.map(play, range(100)))
played = time.perf_counter() - start
print(stream.n_contexts, stream.n_rounds, read, played, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        copy = str(Path(folder) / "made-up-25m")
        subprocess.run([sys.executable, "-m", "benchmarks.make_movielens", copy], check=True, capture_output=True)
        answer = subprocess.run([sys.executable, "-c", CODE, copy], check=True, capture_output=True, text=True)
    contexts, rounds, read, played, gigabytes = answer.stdout.split()
    job = f"experiment C, 25 million ratings: {contexts} users, {int(rounds):,} rounds"
    yield Row(
        f"{job}, read", duration(float(read)), "peak memory", f"{float(gigabytes):.2f} GB", "-", "under 2 GB",
        float(gigabytes) < 2.0,
    )  # fmt: skip
    yield Row(
        f"{job}, 100 alphas on 2 cores", duration(float(played)), "-", "-", "-", "under 10 s", float(played) < 10.0
    )
