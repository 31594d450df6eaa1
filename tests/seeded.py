"""A test of the tests: errors that are put into the package on purpose, each of which the suite must notice.

`python -m tests.seeded` plays the table of tests/seeded_faults.py: one wrong line at a time, in every room, and the
tests that fail with it. `python -m tests.seeded --random 300 --seed 1` draws faults instead (tests/mutants.py) and says
how many of them are noticed by the tests of what imports the file, the closest first. `--only ROOM` plays one folder or
module of the package.

Faults are made in a copy of the package, so that the tree stays as it is. Kernels of a wrong file run interpreted.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from alphafair.jit import FOLDERS
from tests import mutants
from tests.imports import Imports

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "alphafair"
CLIENT = "alphafair_client"  # its files have this before their names
FAILED = (1, 2)  # codes with which pytest ends when tests fail, or cannot be collected
AT_ONCE = (4, 12, 200)  # test files of a fault at random: the closest first


def source_of(file: str) -> Path:
    """Where a file of the table is in this tree."""
    return (ROOT / "client" / "src" if file.startswith(f"{CLIENT}/") else PACKAGE) / file


class Fault(NamedTuple):
    """One place of a file of the package, the text before and after, and the tests that notice."""

    file: str
    before: str
    after: str
    tests: tuple[str, ...]

    def is_in(self, room: str) -> bool:
        return self.file.startswith((f"{room}/", f"{room}.py"))

    def applied(self, text: str) -> str:
        assert text.count(self.before) == 1, f"{self.file} has {text.count(self.before)} times: {self.before}"
        return text.replace(self.before, self.after)


class Copy:
    """A copy of both packages that tests import in place of the installed ones."""

    def __init__(self, folder: Path) -> None:
        self.package = folder / "src" / "alphafair"
        for name, target in ((PACKAGE, self.package), (source_of(f"{CLIENT}/"), folder / "src" / CLIENT)):
            shutil.copytree(name, target, ignore=shutil.ignore_patterns("__pycache__"))
        self.folder = folder
        for path in ROOT.iterdir():  # what the package finds beside itself, such as data
            if path.name != "src" and not path.name.startswith("."):
                (folder / path.name).symlink_to(path)

    @contextmanager
    def changed(self, file: str, text: str) -> Iterator[None]:
        path = (self.package.parent if file.startswith(f"{CLIENT}/") else self.package) / file
        before = path.read_text()
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        """Write a file of code, and forget its bytecode: one of the same size and second would count as the same."""
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def run(self, tests: Sequence[str], seconds: float, *, interpreted: bool) -> tuple[int | None, str]:
        """Return what pytest ends with and what it prints; None if it is still at work when the time is over."""
        places = [str(self.folder / "src"), str(ROOT)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(places), "OPENBLAS_NUM_THREADS": "1"}
        environment |= {"NUMBA_DISABLE_JIT": "1"} if interpreted else {}
        chosen = ["-m", "not compiled"] if interpreted else []
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-n",
            "0",
            "-p",
            "no:cacheprovider",
            "-o",
            f"pythonpath={self.folder / 'src'} {ROOT}",
            "--tb=line",
            *chosen,
        ]
        process = subprocess.Popen(
            [*command, *tests], cwd=ROOT, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return None, ""
        return process.returncode, printed


def has_kernels(file: str) -> bool:
    return any(file.startswith((f"{folder}/", f"{folder}.py")) for folder in FOLDERS)


def first_failure(printed: str) -> str:
    """The line of a summary with the test that has failed."""
    lines = [line for line in printed.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return lines[0].partition(" - ")[0].partition(" ")[2] if lines else ""


def play_table(copy: Copy, faults: Sequence[Fault], seconds: float) -> int:
    """Play the faults of the table; return how many are not noticed. Without a fault every test must pass."""
    missed = 0
    for interpreted in (False, True):
        mine = [fault for fault in faults if has_kernels(fault.file) == interpreted]
        tests = [*dict.fromkeys(test for fault in mine for test in fault.tests)]
        code, printed = copy.run(tests, seconds * 10, interpreted=interpreted) if tests else (0, "")
        if code != 0:
            print(f"without a fault: {first_failure(printed) or printed[-2000:] or 'not finished'}")
            return len(mine)
        for fault in mine:
            started = time.monotonic()
            with copy.changed(fault.file, fault.applied(source_of(fault.file).read_text())):
                code, printed = copy.run(fault.tests, seconds, interpreted=interpreted)
            seen = code in FAILED or code is None
            missed += not seen
            word = "seen" if code in FAILED else "stuck" if code is None else f"NOT SEEN (pytest {code})"
            took = time.monotonic() - started
            print(f"{word:8} {took:5.1f} s  {fault.file}: {fault.after.strip()}  {first_failure(printed)}", flush=True)
    return missed


def play_random(copy: Copy, count: int, seed: int, rooms: list[str] | None, seconds: float) -> int:
    """Play faults at random, and print what became of each and how many are noticed, by kind and room."""
    imports = Imports(ROOT)
    outcome: dict[str, Counter[str]] = {"kind": Counter(), "room": Counter(), "all": Counter()}
    lately: Counter[str] = Counter()  # test files that have noticed faults of a room come first
    for site in mutants.draw(PACKAGE, count, seed, rooms):
        text, started = (PACKAGE / site.file).read_text(), time.monotonic()
        room = site.file.partition("/")[0]
        files = imports.closest_tests(f"src/alphafair/{site.file}")
        files.sort(key=lambda file: -lately[room + file])
        word, seen_by, at = "not seen", "", 0
        with copy.changed(site.file, text[: site.start] + site.after + text[site.end :]):
            for size in AT_ONCE:
                rest = seconds - (time.monotonic() - started)
                if rest <= 0.0:
                    word = "no time"
                if rest <= 0.0 or at >= len(files):
                    break
                code, printed = copy.run(files[at : at + size], rest, interpreted=has_kernels(site.file))
                at += size
                if code in FAILED:
                    word, seen_by = "seen", first_failure(printed)
                    lately[room + seen_by.partition("::")[0]] += 1
                if code in FAILED or code is None:
                    word = word if code in FAILED else "no time"
                    break
        for table, key in (("kind", site.kind), ("room", room), ("all", "")):
            outcome[table][f"{key} {word}".strip()] += 1
        change = f"{' '.join(site.before.split())[:60]} -> {' '.join(site.after.split())[:60]}"
        took = time.monotonic() - started
        print(f"{word:8} {took:5.1f} s  {site.file}:{site.line}: {change}  {seen_by}", flush=True)
    for table, counts in outcome.items():
        print(f"{table}: " + ", ".join(f"{key} {number}" for key, number in sorted(counts.items())))
    return outcome["all"]["not seen"] + outcome["all"]["no time"]


def problems(faults: Sequence[Fault]) -> list[str]:
    """What is wrong with the table: text that is not there once, or does not parse, and tests that are not there."""
    found = []
    known: dict[str, set[str]] = {}
    for fault in faults:
        text = source_of(fault.file).read_text() if source_of(fault.file).is_file() else ""
        if text.count(fault.before) != 1:
            found.append(f"{fault.file} has {text.count(fault.before)} times: {fault.before}")
        elif fault.file.endswith(".py"):
            ast.parse(fault.applied(text))
        for test in fault.tests:
            file, _, name = test.partition("::")
            if file not in known:
                text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
                known[file] = {*re.findall(r"^ *(?:async )?def (test_\w+)", text, re.MULTILINE)}
            if name.partition("[")[0] not in known[file]:
                found.append(f"{test} is not there: {fault.after.strip()}")
    return found


def main() -> int:
    from tests.seeded_faults import FAULTS

    parser = argparse.ArgumentParser(prog="python -m tests.seeded", description="Does the suite notice errors?")
    parser.add_argument("--only", action="append", metavar="ROOM", help="a folder or module, such as service/page")
    parser.add_argument("--random", type=int, metavar="N", help="draw so many faults in place of those of the table")
    parser.add_argument("--seed", type=int, default=1, help="of the faults at random")
    parser.add_argument("--seconds", type=float, default=120.0, help="limit for the tests of one fault")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="alphafair-seeded-") as folder:
        copy = Copy(Path(folder))
        if chosen.random:
            play_random(copy, chosen.random, chosen.seed, chosen.only, chosen.seconds)
            return 0
        faults = [fault for fault in FAULTS if not chosen.only or any(map(fault.is_in, chosen.only))]
        missed = play_table(copy, faults, chosen.seconds)
    print(f"{len(faults) - missed} of {len(faults)} seeded faults are seen")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
