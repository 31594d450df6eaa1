"""A file whose time tells when the code last changed: what is made from the code is made again after that."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

ROOT = Path(__file__).parents[2]
SOURCES = (
    "src/**/*.py",
    "src/**/*.sql",
    "src/**/*.mplstyle",
    "client/src/**/*.py",
    "tools/site/*.py",
    "docs/background/data/*.json",
)


def digest() -> str:
    """Of all files that pages are made from."""
    found = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def note(app: Sphinx, config: Config) -> None:
    """Write the stamp; forget what other code has computed for tutorials and gallery, and pages of removed scripts."""
    folder = Path(app.outdir).parent
    stamp, now = folder / "code.stamp", digest()
    config.code_stamp = str(stamp)
    config.nb_execution_cache_path = str(folder / "notebooks")
    made_from = {path.stem for path in (Path(app.srcdir) / "gallery").glob("*.py")}
    for path in (Path(app.srcdir) / "examples").glob("plot_*"):
        if path.name.partition(".")[0] not in made_from:
            path.unlink()
    if stamp.exists() and stamp.read_text() == now:
        return
    shutil.rmtree(folder / "notebooks", ignore_errors=True)
    for path in (Path(app.srcdir) / "examples").glob("**/*.md5"):
        path.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    stamp.write_text(now)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("code_stamp", "", "")
    app.connect("config-inited", note, priority=1)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
