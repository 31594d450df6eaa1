"""The suite. Its matrices are small: BLAS threads of several workers on few cores would only wait for each other."""

import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before anybody imports NumPy

INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT") == "1"  # the second run, for coverage
FULL = os.environ.get("ALPHAFAIR_TESTS") == "full"  # `make soak`: sizes at which small effects show
ROOT = Path(__file__).parents[1]  # of the repository
