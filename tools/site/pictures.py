"""The pictures of the pages, drawn into docs/_generated when the site is built and the code has changed."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from alphafair import figures
from tools.site.illustrations import PICTURES

FOLDER = "_generated"


def make(folder: Path) -> list[Path]:
    """Write every picture to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name, draw in PICTURES.items():
        made.append(figures.save(draw(), folder / f"{name}.svg"))
    return made


def draw(app: Sphinx) -> None:
    folder, changed = Path(app.srcdir) / FOLDER, Path(app.config.code_stamp).stat().st_mtime
    pictures = [folder / f"{name}.svg" for name in PICTURES]
    if any(not path.exists() or path.stat().st_mtime < changed for path in pictures):
        for path in make(folder):
            path.touch()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", draw, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
