"""The tutorials and the gallery of the site run from beginning to end, warnings included, in the text that is shown."""

from __future__ import annotations

import ast
import os
import re
import runpy
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import matplotlib as mpl
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from alphafair import Groups, metrics
from alphafair.values import Vector
from tests import ROOT

TUTORIALS = [page for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")) if page.stem != "index"]
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
    assert {page.stem for page in TUTORIALS} == NAMES
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


def lines(found: dict[str, Any], name: str = "figure") -> dict[str, Vector]:
    """What the lines of a picture show, by their labels."""
    drawn = [line for axes in found[name].axes for line in axes.get_lines()]
    return {str(line.get_gid()): np.asarray(line.get_ydata()) for line in drawn if line.get_gid()}


def what_alpha_does(found: dict[str, Any]) -> None:
    shares = found["final"] / found["final"].sum(axis=1, keepdims=True)
    assert sorted(shares[0])[1] < 0.01, "at 0 two sellers have nothing"
    assert np.ptp(shares[-1]) < 0.02, "at infinity all have the same"
    assert np.all(np.diff(found["final"].sum(axis=1)) < 1.0)


def price_of_fairness(found: dict[str, Any]) -> None:
    learned, uniform = found["learned"], found["uniform"]
    fairer = metrics.jain_index(learned) > metrics.jain_index(uniform)
    assert fairer.any()
    assert (learned[fairer].mean(axis=1) > uniform.mean()).all()


def newcomer(found: dict[str, Any]) -> None:
    drawn = lines(found)
    least, fresh, mean = drawn["with the least account"], drawn["enters with nothing"], drawn["with the mean account"]
    assert least[0] > 90.0
    assert fresh[:9].min() > 90.0
    assert np.abs(least[5:] - 20.0).max() < 3.0
    assert np.abs(mean - 20.0).max() < 3.0


def certificate(found: dict[str, Any]) -> None:
    playing, rewards, true = (np.array(found[name]) for name in ("playing", "rewards", "true"))
    assert (playing >= rewards).all()
    assert (rewards >= true - 1e-9).all()
    assert rewards[-1] < true[-1] + 0.05


def drift(found: dict[str, Any]) -> None:
    means = [curve.mean() for curve in found["curves"].values()]
    assert means == sorted(means, reverse=True)


def groups(found: dict[str, Any]) -> None:
    items, sellers = found["lines"].values()
    assert np.all(np.diff(items) > 0.0)
    assert np.abs(np.array(sellers) - 0.25).max() < 0.02


def floors(found: dict[str, Any]) -> None:
    without, kept = found["shown"](found["runs"][0.0]), found["shown"](found["runs"][0.1])
    assert without.min() < 1.0
    assert kept.min() > 10.0 - 3.5 * np.sqrt(100.0 * 0.1 * 0.9 * 100.0 / 250.0)  # a part of 250 visits, in percent
    assert np.all(np.diff(found["sales"]) < 0.0)


def periods(found: dict[str, Any]) -> None:
    halves, weekly, whole = ((rewards.min(axis=1) / rewards.sum(axis=1)) for rewards in found["lines"].values())
    assert weekly.min() > halves.min() > whole.min()
    assert np.ptp(weekly) < 0.01


def late_rewards(found: dict[str, Any]) -> None:
    parts = found["found"]["alpha-fair-adaptive"].mean(axis=1)
    assert parts[found["delays"].index(300)] > parts[0] - 5.0
    assert parts[-1] < parts[0] - 10.0


def verdict(found: dict[str, Any]) -> None:
    even, skewed = ([each.verdict for each in found["estimates"](explore)] for explore in (0.8, 0.08))
    assert even.index("trustworthy") == found["sizes"].index(500)
    assert skewed[0] == "do not use"
    assert skewed.index("trustworthy") > even.index("trustworthy")


def bandit_feedback(found: dict[str, Any]) -> None:
    full, bandit = (parts.mean(axis=1) for parts in found["found"].values())
    assert (full > bandit).all()
    assert bandit[-1] > 95.0
    later = found["rounds"][(bandit > 90.0).argmax()] / found["rounds"][(full > 90.0).argmax()]
    assert 2.0 < later < 10.0


def rivals(found: dict[str, Any]) -> None:
    table = found["table"]  # the adaptive policy is the first column
    assert (table[:, 0] > 50.0).all()
    assert (table[:, 0] > table.max(axis=1) - 5.0).all()
    assert (table[:, 1:4].min(axis=1)[-1:] < 0.0).all()


def steep_alpha(found: dict[str, Any]) -> None:
    ratio, floor = found["ratio"], {"groups": Groups(pull_floor=0.05)}
    assert ratio(1.0, 0.01) < 2.0
    assert ratio(5.0, 0.002) > 20.0 > ratio(5.0, 0.002, **floor)


def features(found: dict[str, Any]) -> None:
    known, both, clusters, _ = (rewards[10_000:].mean() for rewards in found["curves"].values())
    assert known - both < 0.15 * (known - clusters)


def weight_of_the_poor(found: dict[str, Any]) -> None:
    drawn = {name: curve[-1] / curve[0] for name, curve in lines(found).items() if "=" in name}  # from 10,000 to 1
    assert list(drawn.values()) == pytest.approx([1.0, 1e2, 1e4, 1e8])


def which_fairness(found: dict[str, Any]) -> None:
    """Fair policies are above and to the right of promises in every round; promises around alpha = 0 cost little."""
    points = found["points"]
    in_every_round = ("alpha 0, floor", "Fair-Learn", "rate UCB", "FairX, width 0.3", "FairCB")
    for fair in ("alpha 0.5", "alpha 1", "alpha 2"):
        assert all((points[fair] > points[promised]).all() for promised in in_every_round), fair
    for promised in ("pulls promised", "rates promised"):
        assert points[promised][0] > 0.97 * points["alpha 0"][0]
        assert points["alpha 0"][1] < points[promised][1] < points["alpha 0.5"][1]


def slates(found: dict[str, Any]) -> None:
    """Every row shows four products; sorted by sales, seven makers sell next to nothing; on the fair shelf all earn."""
    (shown, greedy), (fair_shown, fair) = found["greedy"], found["fair"]
    assert shown.sum(axis=1) == pytest.approx([400.0] * 3)
    assert fair_shown.sum(axis=1) == pytest.approx([400.0] * 3)
    assert (greedy < 0.1 * greedy.max()).sum() >= 7
    assert (fair > 0.25 * fair.max()).all()


def two_sides(found: dict[str, Any]) -> None:
    """A promise costs the arms the least: of the best fixed policy, and of a run."""
    for points in (found["ways"], found["runs"]):
        promised, weighed, less = (np.array(points[name]) for name in ("a promise", "a weight", "a smaller alpha"))
        assert (np.diff(promised[:, 0]) > 0.0).all()
        for others in (weighed, less):
            worst, welfare = others[(others[:, 0] > promised[0, 0]) & (others[:, 0] < promised[-1, 0])].T
            assert (welfare < np.interp(worst, *promised.T) + 1.5).all()


CLAIMS = (
    two_sides,
    what_alpha_does,
    price_of_fairness,
    newcomer,
    certificate,
    drift,
    groups,
    floors,
    periods,
    late_rewards,
    verdict,
    bandit_feedback,
    rivals,
    steep_alpha,
    features,
    weight_of_the_poor,
    which_fairness,
    slates,
)


@pytest.mark.compiled
@pytest.mark.parametrize("script", GALLERY, ids=lambda script: script.stem.removeprefix("plot_"))
@pytest.mark.usefixtures("_pyplot")
def test_a_script_of_the_gallery_draws_its_picture_and_says_what_is_true(script: Path) -> None:
    found = runpy.run_path(str(script), run_name="__main__")
    assert plt.get_fignums(), "pictures are made with pyplot, which is where the gallery looks for them"
    (check,) = [claim for claim in CLAIMS if claim.__name__ == script.stem.removeprefix("plot_")]
    check(found)


@pytest.mark.parametrize("script", GALLERY, ids=lambda script: script.stem.removeprefix("plot_"))
def test_a_script_of_the_gallery_begins_with_its_question(script: Path) -> None:
    title, underline, *_ = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "").splitlines()
    assert title.endswith("?")
    assert underline == "=" * len(title)
