"""The help of every command, and what a command prints."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from unittest.mock import patch

import typer.main
from typer import Typer

from alphafair.cli import app

WIDTH = {"COLUMNS": "80", "NO_COLOR": "1"}


def commands(program: Typer = app) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every command as the words after `alphafair`, and its help; a command of several is followed by its own."""

    def below(
        words: tuple[str, ...], command: typer.core.TyperCommand | typer.core.TyperGroup
    ) -> Iterator[tuple[tuple[str, ...], str]]:
        context = command.make_context(" ".join(["alphafair", *words]), [], resilient_parsing=True)
        yield words, "".join(f"{line.rstrip()}\n" for line in command.get_help(context).splitlines())
        for name in getattr(command, "commands", ()):
            yield from below((*words, name), command.commands[name])

    with patch.dict(os.environ, WIDTH):
        yield from below((), typer.main.get_command(program))


def help_pages() -> str:
    """A section per command: what it prints with `--help`."""
    parts = []
    for words, text in commands():
        depth = "#" * (1 + max(1, len(words)))
        parts.append(f"{depth} {' '.join(['alphafair', *words])}\n\n```text\n{text}```\n")
    return "\n".join(parts)


def help_of(name: str) -> str:
    """The help of one command, such as "keys create"."""
    found = {" ".join(words): text for words, text in commands()}
    if name not in found:
        raise ValueError(f"there is no command {name!r}")
    return f"```text\n{found[name]}```\n"


def output_of(arguments: str) -> str:
    """What a command prints on standard output, run in an empty folder."""
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, **WIDTH, "PYTHONIOENCODING": "utf-8", "PYTHONPATH": path}
    with tempfile.TemporaryDirectory() as folder:
        answer = subprocess.run(
            [sys.executable, "-m", "alphafair", *shlex.split(arguments)],
            cwd=folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
    lines = "".join(f"{line.rstrip()}\n" for line in answer.stdout.splitlines())
    return f"```console\n$ alphafair {arguments}\n{lines}```\n"
