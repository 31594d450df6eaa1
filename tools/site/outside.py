"""Files of the repository outside docs/, such as CONTRIBUTING.md, as pages of the site, with links that work there."""

from __future__ import annotations

import re
from pathlib import Path

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
    text = (ROOT / name).read_text(encoding="utf-8")

    def rewritten(link: re.Match[str]) -> str:
        found = target(name, link["path"])
        return f"[{link['text']}]({found}{link['anchor'] or ''})" if found else link["text"]

    return LINK.sub(rewritten, text)


def target(name: str, path: str) -> str | None:
    """Where a link of a file leads on the site: to a page or a file that one downloads; a folder has no place there.

    >>> target("CONTRIBUTING.md", "docs/howto/floors.md"), target("benchmarks/README.md", "../SECURITY.md")
    ('/howto/floors.md', '/background/security.md')
    """
    found = (ROOT / name).parent.joinpath(path).resolve().relative_to(ROOT).as_posix()
    if found in PAGES:
        return f"/{PAGES[found]}.md"
    if found.startswith("docs/"):
        return f"/{found.removeprefix('docs/')}"
    return f"/../{found}" if (ROOT / found).is_file() else None
