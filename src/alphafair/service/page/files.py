"""The files of the page: HTML, style and scripts in the folder `static` beside this module, each with its hash.

A browser keeps files and asks every time whether they have changed, so a new version of the service never meets old
scripts. The shell of all addresses is the same, but for its view, with the role that it needs, and for what it asks the
browser to load at once: the scripts of the view, and the JSON that they fill it from.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Sequence
from functools import cache, cached_property
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from alphafair.service.page import sentences
from alphafair_client.api import Role

SHELL: Final = "shell.html"
ROOT: Final = b"{{root}}"  # in the shell: the prefix of a reverse proxy
PRELOADS: Final = b"{{preloads}}"  # in the shell: what the browser should load at once
PAGE: Final = b"{{page}}"  # in the shell: a `Shown`, as JSON
SENTENCES: Final = b"{{sentences}}"  # in the shell: `sentences.embedded`, as JSON
MAIN: Final = "main.js"
IMPORT: Final = re.compile(r'(?:from|^import) "(\.{1,2}/[^"]+)"', re.MULTILINE)
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
OTHER_TYPE: Final = b"text/plain; charset=utf-8"  # of a license
PAGE_POLICY: Final = (
    b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    b"frame-ancestors 'none'"
)


class File(NamedTuple):
    """A file and what its headers say."""

    body: bytes
    content_type: bytes
    etag: bytes


class Shown(NamedTuple):
    """What an address shows."""

    view: str
    name: str | None = None  # of the experiment
    role: Role | None = None  # that it needs
    roles: Sequence[str] = ()  # that include this role


class PageFiles:
    """All files of the page, read when the first is asked for."""

    def __init__(self, root_path: str) -> None:
        self._root_path = root_path

    @cached_property
    def static(self) -> dict[str, File]:
        """The files by their path below /static."""
        folder = resources.files("alphafair.service.page") / "static"
        return {path: _file(path, body) for path, body in _read(folder, "")}

    def shell(self, page: Shown, data: Sequence[str] = ()) -> File:
        """The HTML of a view; `data` are the paths of the JSON that it asks for first."""
        lines = [f'  <link rel="preload" as="fetch" href="{{{{root}}}}{escape(path)}" crossorigin>\n' for path in data]
        lines += [
            f'  <link rel="modulepreload" href="{{{{root}}}}/static/{path}">\n' for path in self._modules(page.view)
        ]
        parts = {PRELOADS: "".join(lines), ROOT: escape(self._root_path), SENTENCES: _attribute(sentences.embedded())}
        body = self.static[SHELL].body
        for mark, text in parts.items():
            body = body.replace(mark, text.encode())
        return _file(SHELL, body.replace(PAGE, _attribute(page._asdict()).encode()))  # last: a name may be any text

    @cache  # noqa: B019 - one object for as long as the service runs
    def _modules(self, view: str) -> list[str]:
        """The paths of all scripts that a view loads, without the first."""
        found, open = list[str](), [MAIN, f"views/{view}.js"]
        while open:
            path = open.pop(0)
            if path in found or path not in self.static:
                continue
            found.append(path)
            imports = IMPORT.findall(self.static[path].body.decode())
            open += [posixpath.normpath(posixpath.join(posixpath.dirname(path), each)) for each in imports]
        return found[1:]


def _read(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _read(each, f"{prefix}{each.name}/")
        elif not each.name.startswith("."):
            found.append((f"{prefix}{each.name}", each.read_bytes()))
    return found


def _attribute(value: object) -> str:
    """JSON in an attribute of HTML."""
    return escape(json.dumps(value))


def _file(path: str, body: bytes) -> File:
    name = path.rpartition("/")[2]
    suffix = f".{name.rpartition('.')[2]}" if "." in name else ""
    return File(body, TYPES.get(suffix, OTHER_TYPE), b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode())
