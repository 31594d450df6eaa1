"""Machine code is loaded only from a folder that nobody else can have written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from alphafair import jit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that would be used, made and filled as Numba fills it."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    made = jit.cache_folder()
    assert made is not None
    (made / "kernels_1").mkdir()
    (made / "kernels_1" / "draw.nbc").write_bytes(b"code")
    return made


def test_a_folder_of_ours_is_private_and_used(folder: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "kernels_1").chmod(0o777)  # nobody else comes that far
    assert jit.cache_folder() == folder


def test_a_folder_that_others_can_read_is_used(folder: Path) -> None:
    folder.chmod(0o755)
    assert jit.cache_folder() == folder


def symbolic_link(folder: Path) -> None:
    (folder / "kernels_1" / "draw.nbc").rename(folder / "elsewhere.nbc")
    (folder / "kernels_1" / "draw.nbc").symlink_to(folder / "elsewhere.nbc")
    folder.chmod(0o755)


def moved_away(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


def opened_file(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "kernels_1" / "draw.nbc").chmod(0o666)


def opened_folder(folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "kernels_1").chmod(0o775)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda folder: folder.chmod(0o777), "kernels-.* can be written by its group"),
        (lambda folder: folder.chmod(0o707), "kernels-.* can be written by everyone"),
        (lambda folder: folder.parent.chmod(0o777), "can be written by its group"),
        (opened_folder, "kernels_1' can be written by its group"),
        (opened_file, "draw.nbc' can be written by its group"),
        (symbolic_link, "draw.nbc' is a symbolic link"),
        (moved_away, "kernels-.* is a symbolic link"),
    ],
)
def test_files_that_others_can_write_are_not_loaded(folder: Path, change: Callable[[Path], None], said: str) -> None:
    change(folder)
    with pytest.warns(RuntimeWarning, match=f"not cached: .*{said}.*NUMBA_CACHE_DIR"):
        assert jit.cache_folder() is None


def test_a_folder_below_one_like_tmp_is_used(folder: Path) -> None:
    folder.parent.chmod(0o1777)
    assert jit.cache_folder() == folder


def test_a_folder_of_another_user_is_not_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., Any] = os.stat

    def of_somebody_else(path: Any, **options: Any) -> Any:
        found = real(path, **options)
        return SimpleNamespace(st_uid=12345, st_mode=found.st_mode) if os.fspath(path) == str(folder) else found

    monkeypatch.setattr(jit.os, "stat", of_somebody_else)
    with pytest.warns(RuntimeWarning, match="belongs to user 12345"):
        assert jit.cache_folder() is None


PLAY = """
from alphafair import Uniform
policy = Uniform(1, 3, feedback="bandit", seed=0)
policy.update(policy.choose(0), 0.5)
"""


@pytest.mark.compiled
def test_installations_of_the_same_version_share_machine_code(tmp_path: Path) -> None:
    def play(installed: Path) -> dict[str, int]:
        path = {"PYTHONPATH": str(installed), "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "ALPHAFAIR_JIT": "now"}
        subprocess.run([sys.executable, "-c", PLAY], env={**os.environ, **path}, check=True)
        return {str(file): file.stat().st_mtime_ns for file in (tmp_path / "cache").rglob("*.nb?")}

    here = Path(jit.__file__).parents[1]
    shutil.copytree(here / "alphafair", tmp_path / "elsewhere" / "alphafair")
    made = play(here)
    assert len(made) >= 4
    assert play(tmp_path / "elsewhere") == made
