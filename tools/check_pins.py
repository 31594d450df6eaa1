"""Check that what an image is built from is pinned: every package by SHA-256 hashes, every base image by its digest.

    python tools/check_pins.py

Pins follow from pyproject.toml: `make lock` renews them, this program says when they no longer belong to it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
RENEW = "Run `make lock`."
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>\S+)(?P<rest>.*)$", re.DOTALL)
_HASH = re.compile(r"--hash=(?P<kind>[^:\s]+):(?P<digest>\S+)")
_FROM = re.compile(r"^FROM\s+(?P<image>\S+)", re.MULTILINE | re.IGNORECASE)


def problems(root: Path = ROOT) -> Iterator[str]:
    """What is not pinned, or pinned to something that pyproject.toml does not allow; a sentence each."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    client = tomllib.loads((root / "client" / "pyproject.toml").read_text())
    wanted = {
        "service.txt": [
            *project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"],
            *client["project"]["dependencies"],
            *project["project"]["optional-dependencies"]["service"],
            *project["project"]["optional-dependencies"]["postgres"],
        ],
        "build.txt": [*project["build-system"]["requires"], *client["build-system"]["requires"]],
    }
    for name, requirements in wanted.items():
        yield from _pins(f"requirements/{name}", (root / "requirements" / name).read_text(), requirements)
    for image in _FROM.findall((root / "Dockerfile").read_text()):
        if not re.search(r"@sha256:[0-9a-f]{64}$", image):
            yield f"Dockerfile: {image} has no digest. Write it as IMAGE@sha256:DIGEST."


def _pins(file: str, text: str, requirements: list[str]) -> Iterator[str]:
    pinned: dict[str, set[str]] = {}
    joined = re.sub(r"\\\n", " ", text)
    for line in joined.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pin = _PIN.match(line)
        if pin is None:
            yield f"{file}: {line.split()[0]} is not pinned to one version. {RENEW}"
            continue
        hashes = _HASH.findall(pin["rest"])
        if not hashes or any(kind != "sha256" or not re.fullmatch("[0-9a-f]{64}", each) for kind, each in hashes):
            yield f"{file}: {pin['name']} needs SHA-256 hashes, and no others. {RENEW}"
        pinned.setdefault(canonicalize_name(pin["name"]), set()).add(pin["version"])
    for each in map(Requirement, requirements):
        versions = pinned.get(canonicalize_name(each.name))
        if versions is None:
            yield f"{file}: {each.name} is missing. {RENEW}"
        for version in versions or ():
            if not each.specifier.contains(version, prereleases=True):
                yield f"{file}: {each.name} {version} does not satisfy {each}. {RENEW}"


if __name__ == "__main__":
    found = list(problems())
    print("\n".join(found) or "All pins belong to pyproject.toml.")
    sys.exit(bool(found))
