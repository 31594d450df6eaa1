"""Build wheel and source distribution of alphafair and of alphafair-client, as they are published, and check them.

    python tools/build_release.py [--folder dist] [--tag v1.0.0]

With a tag, that must be the version of the tree, and CHANGELOG.md must have a section of it with a date and nothing
under Unreleased.
They are built from a copy of the tree without its Git folder. What is built in a clone requires the client by the path
of the clone (hatch_build.py), which nobody else has. Of a clone the copy has the files that Git knows.
"""

from __future__ import annotations

import argparse
import re
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


def version(root: Path = ROOT) -> str:
    """The version of both distributions, from its one home."""
    text = (root / "client" / "src" / "alphafair_client" / "__init__.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.+?)"', text, re.MULTILINE)
    return str(found)


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Why a tag cannot be released; a sentence each."""
    found = []
    if tag != f"v{version(root)}":
        found.append(f"The tag must be v{version(root)}, as __version__ says; got {tag}.")
    changelog = (root / "CHANGELOG.md").read_text()
    if not re.search(rf"^## \[{re.escape(tag[1:])}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md needs a section `## [{tag[1:]}] - DATE`.")
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)^## ", changelog, re.MULTILINE | re.DOTALL)
    if unreleased and unreleased[1].strip():
        found.append("CHANGELOG.md has changes under Unreleased. Move them to the section of the version.")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("dist"))
    parser.add_argument("--tag", help="what is released")
    options = parser.parse_args()
    if options.tag and (found := problems(options.tag)):
        print("\n".join(found), file=sys.stderr)
        return 1
    for old in [*options.folder.glob("alphafair*.tar.gz"), *options.folder.glob("alphafair*.whl")]:
        old.unlink()
    made = [str(path) for path in build(options.folder)]
    return subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *made]).returncode


if __name__ == "__main__":
    sys.exit(main())
