"""Build wheel and source distribution of alphafair and of alphafair-client, as they are published, and check them.

    python tools/build_release.py [FOLDER]     default: dist

They are built from a copy of the tree without its Git folder. What is built in a clone requires the client by the path
of the clone (hatch_build.py), which nobody else has. Of a clone the copy has the files that Git knows.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def export(folder: Path, root: Path = ROOT) -> None:
    """Copy the files that Git tracks, as they are now; without Git, everything but what tools leave behind."""
    if not (root / ".git").exists():
        left_behind = shutil.ignore_patterns(".*_cache", ".hypothesis", ".venv", "__pycache__", "build", "dist")
        shutil.copytree(root, folder, ignore=left_behind, dirs_exist_ok=True)
        return
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (root / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)


def build(folder: Path, root: Path = ROOT) -> list[Path]:
    """Build into `folder`, each wheel from the source distribution, and return the paths of all four."""
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    hatchling = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    with tempfile.TemporaryDirectory() as temporary:
        tree, unpacked = Path(temporary, "tree"), Path(temporary, "unpacked")
        export(tree, root)
        for project in (tree / "client", tree):
            subprocess.run([*hatchling, "--target", "sdist"], cwd=project, check=True, capture_output=True)
        sources = sorted(folder.glob("alphafair*.tar.gz"))
        for source in sources:
            shutil.unpack_archive(source, unpacked, filter="data")
            project = unpacked / source.name.removesuffix(".tar.gz")
            subprocess.run([*hatchling, "--target", "wheel"], cwd=project, check=True, capture_output=True)
    return [*sources, *sorted(folder.glob("alphafair*.whl"))]


def main() -> int:
    folder = Path(sys.argv[1] if sys.argv[1:] else "dist")
    for old in [*folder.glob("alphafair*.tar.gz"), *folder.glob("alphafair*.whl")]:
        old.unlink()
    made = [str(path) for path in build(folder)]
    return subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *made]).returncode


if __name__ == "__main__":
    sys.exit(main())
