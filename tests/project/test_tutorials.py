"""The tutorials and the gallery of the site run from beginning to end, warnings included, in the text that is shown."""

from __future__ import annotations

import ast
import os
import re
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path

import jupytext
import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import pytest
from nbclient import NotebookClient

from tests import ROOT

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
GALLERY = sorted((ROOT / "docs" / "gallery").glob("plot_*.py"))
NAMES = {"first_fair_bandit", "marketplace", "log_to_policy", "decision_service", "own_policy"}


def notebook(page: Path) -> nbformat.NotebookNode:
    return jupytext.read(page)


def run(book: nbformat.NotebookNode, folder: Path) -> None:
    """Execute the cells in a kernel of this Python, in a folder of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")  # of the machinery; those of the cells are in their output
        NotebookClient(book, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()


@pytest.fixture(autouse=True)
def _this_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels import the package and the client of this tree, even where others are installed."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT / "src"), str(ROOT / "client" / "src"))))


@pytest.fixture
def _pyplot() -> Iterator[None]:
    plt.close("all")
    with mpl.rc_context({"backend": "Agg"}):
        yield
    plt.close("all")


def test_every_tutorial_and_picture_is_there() -> None:
    assert {page.stem for page in TUTORIALS} >= NAMES
    assert len(GALLERY) >= 12


@pytest.mark.compiled
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, tmp_path: Path) -> None:
    book = notebook(page)
    run(book, tmp_path)
    outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    complaints = [output.text for output in outputs if output.output_type == "stream" and output.name == "stderr"]
    assert pictures, "a tutorial has a picture"
    assert not complaints
    assert list(tmp_path.iterdir()) == [], "a tutorial leaves no file behind"


def test_a_cell_that_fails_fails_the_test(tmp_path: Path) -> None:
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("assert 1 == 2")])
    with pytest.raises(Exception, match="AssertionError"):
        run(book, tmp_path)


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_says_what_it_gives_how_to_install_it_and_what_is_next(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.search(r"\*\*At the end.*you have\*\*", text)
    assert "$ pip install" in text
    assert "\n## Next\n" in text
    assert notebook(page).metadata.kernelspec.name == "python3"


@pytest.mark.compiled
@pytest.mark.parametrize("script", GALLERY, ids=lambda script: script.stem.removeprefix("plot_"))
@pytest.mark.usefixtures("_pyplot")
def test_a_script_of_the_gallery_draws_its_picture(script: Path) -> None:
    runpy.run_path(str(script), run_name="__main__")
    assert plt.get_fignums(), "pictures are made with pyplot, which is where the gallery looks for them"


@pytest.mark.parametrize("script", GALLERY, ids=lambda script: script.stem.removeprefix("plot_"))
def test_a_script_of_the_gallery_begins_with_its_question(script: Path) -> None:
    title, underline, *_ = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").splitlines()
    assert title.endswith("?")
    assert underline == "=" * len(title)
