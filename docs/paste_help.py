"""Paste what commands print into docs/cli.md: `python docs/paste_help.py`.

A block that starts with `<!-- paste: alphafair ... -->` holds the output of that command in a terminal of 80 columns.
tests/cli/test_commands.py runs this too, and fails while the page says something else than the program.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

PAGE = Path(__file__).with_name("cli.md")
BLOCK = re.compile(r"<!-- paste: alphafair (?P<arguments>.*?) -->\n```text\n.*?```\n", re.DOTALL)
FORMATTED_BY = re.compile(r"<!-- formatted by typer \S+ -->")


def output(arguments: str) -> str:
    """What a command prints on standard output, run in an empty folder."""
    environment = {
        **os.environ,
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    with tempfile.TemporaryDirectory() as folder:
        answer = subprocess.run(
            [sys.executable, "-m", "alphafair", *shlex.split(arguments)],
            cwd=folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
    return "".join(f"{line.rstrip()}\n" for line in answer.stdout.splitlines())


def refreshed(page: str) -> str:
    """The page with every block as the program prints it now."""

    def paste(block: re.Match[str]) -> str:
        arguments = block["arguments"]
        return f"<!-- paste: alphafair {arguments} -->\n```text\n{output(arguments)}```\n"

    return FORMATTED_BY.sub(f"<!-- formatted by typer {version('typer')} -->", BLOCK.sub(paste, page))


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
