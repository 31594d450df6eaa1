"""The second run of the tests of kernels, interpreted, where coverage sees inside: `python -m tests.interpreted`.

The files that reach most branches come first. The others, in the order of what they add, run only while a branch of
`MEASURED` is left; with `--all`, as in the soak, every one runs. The run fails if a test fails or a branch is left.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
AT_FIRST = 12
AT_ONCE = 4  # files between two looks at what is left
FILES = (
    "tests/algorithms/test_events.py",
    "tests/checks/test_conformance.py",
    "tests/notions/test_oracles.py",
    "tests/notions/test_refusals.py",
    "tests/notions/test_promised.py",
    "tests/math/test_bounds.py",
    "tests/offline/test_groups.py",
    "tests/offline/test_large.py",
    "tests/metrics/test_metrics.py",
    "tests/metrics/test_fairness.py",
    "tests/policy/test_snapshots.py",
    "tests/evaluation/test_evaluate.py",
    "tests/algorithms/test_grouped.py",
    "tests/math/test_math.py",
    "tests/algorithms/test_alpha.py",
    "tests/offline/test_alpha.py",
    "tests/offline/test_optimum.py",
    "tests/policy/test_arms.py",
    "tests/policy/test_public_attributes.py",
    "tests/algorithms/test_policies.py",
    "tests/lab/test_run.py",
    "tests/evaluation/test_available.py",
    "tests/policy/test_edges.py",
    "tests/data/test_streams.py",
    "tests/lab/test_simulation.py",
    "tests/algorithms/test_features.py",
    "tests/values/test_groups.py",
    "tests/metrics/test_welfare.py",
    "tests/algorithms/test_errata.py",
    "tests/algorithms/test_alpha_change.py",
    "tests/algorithms/test_adversaries.py",
    "tests/algorithms/test_adaptive.py",
    "tests/math/test_welfare.py",
    "tests/math/test_cholesky.py",
    "tests/metrics/test_golden.py",
    "tests/algorithms/test_learning_once.py",
    "tests/algorithms/test_adahedge.py",
)
MEASURED = ("math/*", "algorithms/*", "notions/*", "offline/*", "policy/memory.py", "metrics.py")


def run(files: list[str], *, more: bool) -> bool:
    options = ["-q", "-n", "2", "--dist", "worksteal", "-m", "not compiled", "--cov=alphafair", "--cov-branch"]
    options += ["--cov-report=", *(["--cov-append"] if more else [])]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    return subprocess.run([sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, env=environment).returncode == 0


def is_covered(*, quiet: bool) -> bool:
    """Whether every line and branch was run; otherwise a report says which not."""
    include = ",".join(f"*/alphafair/{name}" for name in MEASURED)
    command = [sys.executable, "-m", "coverage", "report", "--fail-under=100", f"--include={include}"]
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL if quiet else None).returncode == 0


def main() -> int:
    left, first = [*FILES], len(FILES) if "--all" in sys.argv[1:] else AT_FIRST
    passed = run(left[:first], more=False)
    del left[:first]
    while passed and left and not is_covered(quiet=True):
        passed = run(left[:AT_ONCE], more=True)
        del left[:AT_ONCE]
    covered = is_covered(quiet=False)
    print(f"{len(FILES) - len(left)} of {len(FILES)} files ran interpreted")
    return 0 if passed and covered else 1


if __name__ == "__main__":
    sys.exit(main())
