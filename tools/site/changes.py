"""A file whose time tells when the code last changed: what is made from the code is made again after that."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

ROOT = Path(__file__).parents[2]
LIBRARY = ("src/**/*.py", "src/**/*.sql", "src/**/*.mplstyle", "client/src/**/*.py")  # what notebooks and gallery run
SITE = ("tools/site/*.py", "docs/background/data/*.json")


def digest(patterns: tuple[str, ...]) -> str:
    """Of all files that match."""
    found = hashlib.sha256()
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            found.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def has_changed(stamp: Path, patterns: tuple[str, ...]) -> bool:
    """Whether files differ from those of the last time, which the stamp records."""
    now = digest(patterns)
    if stamp.exists() and stamp.read_text() == now:
        return False
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(now)
    return True


def note(app: Sphinx, config: Config) -> None:
    """Forget what another library has computed for tutorials and gallery, and the pages of removed scripts."""
    build, examples = Path(app.outdir).parent, Path(app.srcdir) / "examples"
    config.code_stamp, config.nb_execution_cache_path = str(build / "code.stamp"), str(build / "notebooks")
    has_changed(build / "code.stamp", LIBRARY + SITE)
    if has_changed(build / "library.stamp", LIBRARY):
        shutil.rmtree(build / "notebooks", ignore_errors=True)
        for path in examples.glob("**/*.md5"):
            path.unlink()
    made_from = {path.stem for path in (Path(app.srcdir) / "gallery").glob("*.py")}
    for path in examples.glob("plot_*"):
        if path.name.partition(".")[0] not in made_from:
            path.unlink()


def remove_old_pages(app: Sphinx, problem: Exception | None) -> None:
    """Remove pages that an earlier build made, of documents that are no more."""
    kept = {*app.env.all_docs, "genindex", "py-modindex", "search"}
    for path in Path(app.outdir).rglob("*.html"):
        page = path.relative_to(app.outdir).with_suffix("").as_posix()
        if problem is None and page not in kept and not page.startswith("_"):
            path.unlink()


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("code_stamp", "", "")
    app.connect("config-inited", note, priority=1)
    app.connect("build-finished", remove_old_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
