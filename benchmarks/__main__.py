"""Run every benchmark and print one table: `python -m benchmarks [--csv]`."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Sequence

from benchmarks.table import Row, as_csv, machine, print_table

# memory and offline first: the peak memory of a child process counts what its parent held when it was born
SECTIONS = (
    "memory",
    "engine",
    "evaluation",
    "executors",
    "movielens",
    "offline",
    "simulation",
    "groups",
    "notions",
    "log",
    "loop",
    "steps",
    "fair_cb",
    "scaling",
    "startup",
    "image",
    "service",
    "features",
    "shares",
    "page",
    "client",
    "stalls",
    "crashes",
    "postgres",
    "faults",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--csv", action="store_true", help="print the table as measured.csv has it")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, help="some sections only")
    options = parser.parse_args()
    start = time.perf_counter()
    rows = measure(options.only)
    if options.csv:
        print(as_csv(rows))
    else:
        print_table(rows)
    print(f"\n{machine()}")
    missed = [row for row in rows if not row.reached]
    print(f"{len(rows) - len(missed)} of {len(rows)} targets reached, in {time.perf_counter() - start:.0f} s.")


def measure(sections: Sequence[str]) -> list[Row]:
    """All rows of the sections, with a line of progress for each."""
    rows: list[Row] = []
    start = time.perf_counter()
    for k, section in enumerate(sections, 1):
        print(f"[{k}/{len(sections)}] {section}", file=sys.stderr, flush=True)
        for row in importlib.import_module(f"benchmarks.bench_{section}").rows():
            rows.append(Row(*row))
            spent = time.perf_counter() - start
            print(f"  {spent:4.0f} s  {row[0]}: {row[1]} against {row[3]}", file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    main()
