"""HTML pages that need no other file, and what every page shares: templates, embedded figures, atomic writes."""

from __future__ import annotations

import os
import platform
from base64 import b64encode
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import alphafair
from alphafair.code_version import code_digest

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.figure import Figure


def atomic_write(path: Path, content: str | bytes) -> None:
    """Write a file through a temporary one beside it: an interrupted write leaves the old file."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    """Versions of everything that the numbers of a report depend on."""
    packages = ("numpy", "numba", "polars", "matplotlib")
    own = {"alphafair": alphafair.__version__, "code": code_digest(), "python": platform.python_version()}
    return own | {package: version(package) for package in packages}


@cache
def environment() -> Environment:
    """The templates of the package: values are escaped, and a missing value is an error."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("alphafair")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def render(template: str, **values: Any) -> str:
    """The text of a template with these values."""
    return environment().get_template(template).render(values)


def save_figure(figure: Figure, folder: Path, name: str, title: str) -> Markup:
    """Save a figure in three formats, and return an image element that embeds its SVG."""
    from markupsafe import Markup

    from alphafair import figures

    for artist in figure.findobj():
        artist.set_gid(None)  # several artists share a gid, and ids in a document must be unique
    for suffix in figures.SUFFIXES:
        figures.save(figure, folder / f"{name}{suffix}")
    data = b64encode((folder / f"{name}.svg").read_bytes()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, title)
