"""Which code computes: a digest of the package's files, for results that are kept and for workers elsewhere."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent
REPORTED_CODE = ("**/*.py", "*.mplstyle", "templates/*")  # all code that a report may depend on


@cache
def code_digest(patterns: tuple[str, ...] = REPORTED_CODE, package: Path = PACKAGE) -> str:
    """The first sixteen digits of a hash over the names and contents of the package's files that match."""
    found = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in package.glob(pattern) if path.is_file()}):
        found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return found.hexdigest()[:16]
