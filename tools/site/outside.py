"""Links between pages of the site and files of the repository, which are written as they work in the repository.

Some files outside docs/ are pages of the site, such as CONTRIBUTING.md; other files are downloads, and a folder is only
named. The gallery's pages are made from docs/gallery, but are in docs/examples.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

from tools.site import DOCS

ROOT = DOCS.parent
PAGES = {  # of files in the repository, as documents of the site
    "README.md": "index",
    "CHANGELOG.md": "background/changelog",
    "CONTRIBUTING.md": "background/contributing",
    "SECURITY.md": "background/security",
    "benchmarks/README.md": "background/benchmarks",
}
LINK = re.compile(r"\[(?P<text>[^\[\]]*)\]\((?![a-z]+:|#)(?P<path>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)")


def page(name: str) -> str:
    """The text of a file of the repository, with links as the site has them."""
    if name not in PAGES:
        raise ValueError(f"{name!r} is not in PAGES of {Path(__file__).name}")
    return with_links((ROOT / name).read_text(encoding="utf-8"), name)


def with_links(text: str, name: str) -> str:
    """The text of a file with links as the site has them."""

    def rewritten(link: re.Match[str]) -> str:
        found = target(name, link["path"])
        return f"[{link['text']}]({found}{link['anchor'] or ''})" if found else link["text"]

    return LINK.sub(rewritten, text)


def target(name: str, path: str) -> str | None:
    """Where a link of a file leads on the site: to a page or a file that one downloads; a folder has no place there.

    >>> target("CONTRIBUTING.md", "docs/howto/floors.md"), target("benchmarks/README.md", "../SECURITY.md")
    ('/howto/floors.md', '/background/security.md')
    """
    if path.startswith("/"):
        return path  # in docs/ already
    found = Path(os.path.normpath(ROOT / name / ".." / path))
    if not found.is_relative_to(ROOT):
        return path
    within = found.relative_to(ROOT).as_posix()
    if within in PAGES:
        return f"/{PAGES[within]}.md"
    if within.startswith("docs/gallery/"):
        return f"/examples/{found.stem}.rst"
    if found.is_relative_to(DOCS):
        return path if name.startswith("docs/") else f"/{within.removeprefix('docs/')}"
    return None if found.is_dir() else f"/../{within}"


def rewrite(app: Sphinx, document: str, content: list[str]) -> None:
    content[0] = with_links(content[0], f"docs/{document}.md")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", rewrite)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
