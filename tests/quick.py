"""The inner loop: `pytest -p tests.quick --quick` runs the fast tests of what has changed.

Fast is a test of at most 0.3 s, fixtures included: those that take longer are in tests/slow.json, which
`python -m tests.durations RECORD... --slow` writes from recorded runs. An entry is a test, `fixture of file` or a file.
What has changed are the files that differ from the last commit, or without such from the one before; a test file is
chosen if it depends on one of them by its imports (tests/imports.py). Other files count as changes of the modules and
tests that name them or their folder. Without Git, and where pyproject.toml or tests/conftest.py have changed, every
fast test runs.
"""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.imports import Imports

ROOT = Path(__file__).parents[1]
SLOW = Path(__file__).with_name("slow.json")
EVERYTHING = ("pyproject.toml", "tests/conftest.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run the fast tests of what has changed")


def _git(*words: str) -> list[str] | None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines() if done.returncode == 0 else None


imports_of = cache(Imports)


def changed_files() -> list[str] | None:
    """The files that differ from the last commit, or else from the one before it; None where Git cannot tell."""
    try:
        differs = _git("diff", "--name-only", "HEAD")
        new = _git("ls-files", "--others", "--exclude-standard")
        if differs is None or new is None:
            return None
        return differs + new or _git("diff", "--name-only", "HEAD~1", "HEAD")
    except OSError:
        return None


def chosen_files(changed: list[str] | None, root: Path = ROOT) -> set[str]:
    """The files whose tests and examples depend on what has changed."""
    imports = imports_of(root)
    texts = {file: (root / file).read_text() for file in imports.modules.values()}
    if changed is None or any(file in EVERYTHING for file in changed):
        return {*texts, "README.md"}
    others = [Path(file) for file in changed if file not in texts]
    named = {f'"{name}"' for path in others for name in (path.name, path.parent.name) if name}
    wrong = {file for file in changed if file in texts}
    wrong |= {file for file, text in texts.items() if any(name in text for name in named)}
    return {*imports.dependents(wrong), *changed}


@cache
def _choice() -> tuple[set[str], dict[str, float]]:
    """The files whose tests may run, and the tests and fixtures that take long."""
    slow: dict[str, float] = json.loads(SLOW.read_text())
    return chosen_files(changed_files()) - slow.keys(), slow


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files that are not chosen are not even imported."""
    if not config.getoption("--quick") or collection_path.is_dir() or not collection_path.is_relative_to(ROOT):
        return None
    return True if collection_path.relative_to(ROOT).as_posix() not in _choice()[0] else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--quick"):
        return
    slow = _choice()[1]

    def is_fast(item: pytest.Item) -> bool:
        file = item.nodeid.partition("::")[0]
        return item.nodeid not in slow and not any(
            f"{name} of {file}" in slow for name in getattr(item, "fixturenames", ())
        )

    wanted = [item for item in items if is_fast(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in {*wanted}])
    items[:] = wanted
