"""Digests: results are named by what was computed, so nothing old is reused and nothing is computed twice.

What counts is the settings of an experiment, its rounds, and the code that plays them. The words and pictures of the
report are no part of it.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import alphafair
from alphafair.types import Stream

if TYPE_CHECKING:
    from alphafair.experiments.experiment import Work

COMPUTING = (  # all code that a table depends on
    "kernels/*.py",
    "policies/*.py",
    "streams/*.py",
    *(f"{name}.py" for name in ("arrays", "contexts", "decision", "drive", "groups", "jit", "log", "metrics")),
    *(f"{name}.py" for name in ("offline", "played", "reduction", "rewards", "simulation", "types")),
    *(f"experiments/{name}.py" for name in ("experiment", "match", "published", "rival")),
)
REPORTING = ("**/*.py", "*.mplstyle", "experiments/templates/*")  # and all that makes a report of the tables


def digest(work: Work) -> str:
    """Names the results of an experiment: the same settings on the same rounds, run by the same code."""
    return short_digest([work.settings(), code_digest()])


def short_digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


@cache
def code_digest() -> str:
    """The code that results depend on, in sixteen letters: change it, and they are computed again."""
    return files_digest(Path(alphafair.__file__).parent, COMPUTING)


@cache
def report_digest() -> str:
    """The code above and all that draws and lays out the report: change it, and the report is made again."""
    return files_digest(Path(alphafair.__file__).parent, REPORTING)


def files_digest(package: Path, patterns: tuple[str, ...]) -> str:
    """The names and contents of the files of a package that match."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in package.glob(pattern) if path.is_file()}):
        found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]


def stream_digest(stream: Stream) -> str:
    """What a stream's rounds are, in sixteen letters."""
    found = hashlib.sha256()
    for array in (stream.contexts, stream.items, stream.reward_table):
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.data)
    return found.hexdigest()[:16]
