"""Recipes of CONTRIBUTING.md, played on a copy of the packages: the code of every step goes where the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import alphafair
import alphafair_client

GUIDE = Path(__file__).parents[1] / "CONTRIBUTING.md"
PACKAGES = [Path(each.__file__).parent for each in (alphafair, alphafair_client)]
STEP = re.compile(
    r"^\d\. `(?:client/)?src/([\w/]+\.\w+)`.*?^   ```(?:python|sql|text)\n(.*?)^   ```$", re.DOTALL | re.MULTILINE
)


def steps_of(title: str) -> list[tuple[str, str]]:
    """The file and the code of every step of a section."""
    section = GUIDE.read_text(encoding="utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return [(file, textwrap.dedent(code)) for file, code in STEP.findall(section)]


class Place(NamedTuple):
    """Where the code of a step goes."""

    above: str = ""  # a text of the file; empty: at its end
    indent: str = ""
    instead: bool = False  # of that text


def play(folder: Path, title: str, places: Sequence[Place]) -> set[str]:
    """Copy the packages and follow the steps of a section; return the files."""
    for package in PACKAGES:
        shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    steps = steps_of(title)
    for (file, code), place in zip(steps, places, strict=True):
        path = folder / file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        before, found, after = text.partition(place.above) if place.above else (text, "", "")
        assert found == place.above, f"{file} has no {place.above!r}"
        kept = "" if place.instead else found
        path.write_text(f"{before}{textwrap.indent(code, place.indent)}{kept}{after}", encoding="utf-8")
    return {file for file, _ in steps}


def run(folder: Path, code: str) -> None:
    """Run code with the copy in place of the packages."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{GUIDE.parent}", "ALPHAFAIR_JIT": "off"}
    command = [sys.executable, "-W", "error", "-c", code, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
