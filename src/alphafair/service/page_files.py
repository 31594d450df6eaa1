"""The files of the page: HTML, style and scripts in the folder `page` of this package, each with its hash.

A browser keeps files and asks every time whether they have changed, so a new version of the service never meets old
scripts. The shell is the same for every address of the page; scripts fill it from JSON.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

SHELL: Final = "shell.html"
ROOT: Final = b"{{root}}"  # in the shell: the prefix of a reverse proxy
TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".json": b"application/json",
    ".png": b"image/png",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".woff2": b"font/woff2",
}
OTHER_TYPE: Final = b"text/plain; charset=utf-8"  # of a licence
PAGE_POLICY: Final = (
    b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)


class File(NamedTuple):
    """A file and what its headers say."""

    body: bytes
    content_type: bytes
    etag: bytes


class PageFiles:
    """All files of the page, read when the first is asked for."""

    def __init__(self, root_path: str) -> None:
        self._root_path = root_path

    @cached_property
    def static(self) -> dict[str, File]:
        """The files by their path below /static."""
        return {path: _file(path, body) for path, body in _read(resources.files("alphafair.service") / "page", "")}

    @cached_property
    def shell(self) -> File:
        """The HTML of every page."""
        found = self.static[SHELL]
        return _file(SHELL, found.body.replace(ROOT, escape(self._root_path).encode()))


def _read(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _read(each, f"{prefix}{each.name}/")
        elif not each.name.startswith("."):
            found.append((f"{prefix}{each.name}", each.read_bytes()))
    return found


def _file(path: str, body: bytes) -> File:
    name = path.rpartition("/")[2]
    suffix = f".{name.rpartition('.')[2]}" if "." in name else ""
    return File(body, TYPES.get(suffix, OTHER_TYPE), b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode())
