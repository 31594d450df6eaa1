"""Atomic writes: a file appears in its place when all of it is written, or not at all."""

import os
from pathlib import Path


def atomic_write(path: Path, content: str | bytes) -> None:
    """Through a temporary file beside it; who is stopped leaves what was there before."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
