"""The pages: their examples run, their links lead somewhere, their pictures are those that the code draws."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from matplotlib.figure import Figure
from matplotlib.text import Text

from alphafair import metrics
from alphafair.cli import app
from alphafair.lab.arena import (
    ALPHAS,
    DYING_SCENARIOS,
    FEATURE_SCENARIOS,
    SCENARIOS,
    STEEP_ALPHAS,
    STEEP_SCENARIOS,
)
from alphafair.offline import context_reward_totals, offline_optimum
from alphafair.values import Interval
from tests import ROOT
from tools.site import arena, benchmarks, illustrations, shapes

pytestmark = pytest.mark.compiled  # forty thousand rounds for each of twenty alphas

DOCS = ROOT / "docs"
PARTS = ("start", "tutorials", "howto", "reference", "background")  # of the site; other folders are made by programs
SITE = [DOCS / "index.md", *(page for part in PARTS for page in sorted((DOCS / part).glob("*.md")))]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *SITE]
ARENA, METHOD = DOCS / "background" / "arena.md", DOCS / "background" / "method.md"
DRAWN = DOCS / "_generated"  # when the site is built
FENCED = re.compile(r"^( *)(`{3,}).*?^\1\2$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<image>!?)\[(?:[^\[\]]|\[[^\]]*\])*\]\((?P<target>[^()\s]+)\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> Iterator[tuple[bool, str]]:
    """Whether it is an image, and where it leads; code is not prose."""
    prose = FENCED.sub("", page.read_text(encoding="utf-8"))
    for link in LINK.finditer(prose):
        yield bool(link["image"]), link["target"]


def anchors(page: Path) -> set[str]:
    """The headings as GitHub names them."""
    prose = FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_local_links_lead_somewhere(page: Path) -> None:
    for _, target in links(page):
        if re.match(r"[a-z]+:", target):
            continue  # the web is not tested
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if found.parent == DRAWN:
            assert found.stem in illustrations.PICTURES, f"{name(page)} shows {target}: no such picture"
            continue
        if found.parent in (DOCS / "gallery", DOCS / "examples"):  # pages that are made of the scripts of the gallery
            assert found.stem == "index" or (DOCS / "gallery" / f"{found.stem}.py").exists(), f"{name(page)}: {target}"
            continue
        assert found.exists(), f"{name(page)} links to {target}"
        assert found.is_relative_to(ROOT), f"{name(page)} links out of the repository: {target}"
        if anchor and "{generated} file" not in found.read_text(encoding="utf-8"):
            assert anchor in anchors(found), f"{name(page)} links to {target}: no such heading"


def test_the_flows_name_files_that_exist_each_once() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Two flows")[1].split("\n## ")[0]
    flows = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    assert flows
    for flow in flows:
        files = [line.split()[0] for line in flow.splitlines()]
        assert len({*files}) == len(files)
        folders = ROOT / "src" / "alphafair", ROOT / "client" / "src"
        missing = [file for file in files if not any((folder / file).exists() for folder in folders)]
        assert missing == [], "draw the flows of CONTRIBUTING.md again"


def test_links_are_found_where_there_are_some(tmp_path: Path) -> None:
    """A pattern that never matched would make the test above pass."""
    page = tmp_path / "page.md"
    text = "# One: \u03b1 & *two*\n![an\nimage](a.svg) and [a [nested] link](b.md#c)\n```\n[no](link)\n```\n"
    page.write_text(text, encoding="utf-8")
    assert list(links(page)) == [(True, "a.svg"), (False, "b.md#c")]
    assert anchors(page) == {"one-\u03b1--two"}
    assert (True, "../_generated/tangent.svg") in links(DOCS / "background" / "certificate.md")


def commands(page: Path) -> Iterator[list[str]]:
    """The command lines of a page, without comments."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        for line in re.findall(r"^\$ (.*?)(?:  +#.*)?$", block.replace("\\\n", " "), re.MULTILINE):
            for part in line.split(" && "):
                yield shlex.split(part)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_commands_exist(page: Path) -> None:
    """Commands of this package with their options, targets of the Makefile, modules that are run."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for words in commands(page):
        program = max((k for k, word in enumerate(words) if Path(word).name == "alphafair"), default=None)
        if words[0] == "make":
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), words
        elif words[:2] == ["python", "-m"]:
            assert find_spec(words[2]), words
        elif program is not None and words[0] not in ("docker", "install", "useradd", "cp", "pip"):
            command: Any = typer.main.get_command(app)
            asked = words[program + 1 :]
            while asked and hasattr(command, "commands"):
                command = command.commands[asked.pop(0)]
            known = {flag for each in command.params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}
            assert {word.partition("=")[0] for word in asked if word.startswith("-")} <= known, words


def test_commands_are_found() -> None:
    found = [words for page in PAGES for words in commands(page)]
    assert sum(words[0] == "alphafair" for words in found) > 25
    assert ["alphafair", "verify", "/backup/shop-2026-11-16.db"] in found


@pytest.mark.parametrize(
    "page", [page for page in SITE if ">>> " in page.read_text(encoding="utf-8")], ids=lambda page: page.stem
)
def test_examples_run(page: Path) -> None:
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.failed == 0
    assert result.attempted > 0


def test_the_examples_are_found() -> None:
    assert sum(">>> " in page.read_text(encoding="utf-8") for page in SITE) > 20


def value(interval: Interval | None) -> float:
    assert interval is not None
    found: float = interval.value
    return found


def shown_tables() -> dict[str, str]:
    """The tables that the page of the arena asks for."""
    asked = re.findall(r"```\{generated\} arena (.+)\n", ARENA.read_text(encoding="utf-8"))
    return {what: arena.block(arena.results(), what) for what in asked}


def test_the_tables_of_the_arena_are_those_of_its_results() -> None:
    tables, found = shown_tables(), json.loads(arena.RESULTS.read_text(encoding="utf-8"))
    for part, plan in (
        ("matches", SCENARIOS),
        ("with_features", FEATURE_SCENARIOS),
        ("steep", STEEP_SCENARIOS),
        ("dying", DYING_SCENARIOS),
    ):
        run = {f"arena-{each['name']}": each["seeds"] for each in found[part]}
        assert [*run.items()] == [(scenario.name, list(range(scenario.n_seeds))) for scenario in plan]
    for match in found["matches"]:
        for score in match["scores"]:
            header, _, *rows = tables[f"{score['feedback']} {score['alpha']:g}"].splitlines()
            (row,) = (row for row in rows if row.startswith(f"| {match['title']} |"))
            text = row.split(" | ")[header.removesuffix(" |").split(" | ").index(score["label"])]
            share = float(re.findall(r"-?\d+\.\d", text.replace("\u2212", "-"))[0])
            assert share == pytest.approx(100 * score["gap_closed"]["value"], abs=0.0501)


def test_the_page_of_the_arena_shows_every_part_of_its_results() -> None:
    """Tables of all alphas; cells of tuned rivals, of alpha from 1 on and of the bound, recomputed from the results."""
    found, tables = arena.results(), shown_tables()
    expected = {f"{kind} {alpha:g}" for kind in ("bandit", "full", "tuned") for alpha in ALPHAS}
    expected |= {f"features {name}" for name in expected} | {"promises", "steep", "dying", "edges"}
    expected |= {f"steep tuned {alpha:g}" for alpha in STEEP_ALPHAS}
    assert {*tables} == expected
    for part, words in ((found.matches, ""), (found.with_features, "features "), (found.steep, "steep ")):
        for match in part:
            for each in match.tuned:
                rows = tables[f"{words}tuned {each.alpha:g}"].splitlines()
                (row,) = (row for row in rows if row.startswith(f"| {match.title} |"))
                assert f"{100 * value(each.gap_closed):.1f}".replace("-0.0", "0.0").replace("-", "\u2212") in row
                assert f"({each.setting})" in row
    for match in found.steep:
        ours = match.of("bandit", 2.0)[0]
        text = f"| {match.title} | 2 | {100 * value(ours.gap_closed):.1f}"
        assert text in tables["steep"]
        assert f"({value(ours.welfare_ratio):.3f})" in tables["steep"]
    for match in found.dying:
        assert f"| {match.alphas[0]:g} | {match.bound:.3f} | " in tables["dying"]


def counts_of_leads(alpha: float) -> tuple[int, int, int, float]:
    """In how many scenarios the adaptive policy is ahead of the best setting, behind and level; the most behind."""
    best = [match.best_tuned(alpha) for match in arena.results().matches]
    leads = [each.lead for each in best if each is not None and each.lead is not None]
    assert len(leads) == len(best)
    ahead, behind = sum(lead.low > 0.0 for lead in leads), sum(lead.high < 0.0 for lead in leads)
    most = max(-lead.value for lead in leads if lead.high < 0.0)
    return ahead, behind, len(leads) - ahead - behind, 100.0 * most


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_prose_counts_leads_over_tuned_rivals(alpha: float) -> None:
    ahead, behind, level, _ = counts_of_leads(alpha)
    lines = ARENA.read_text(encoding="utf-8").splitlines()
    text = " ".join(line for line in lines if not line.startswith("|"))
    plain = re.sub(r" *\([^()]*\)", "", text)  # without remarks in parentheses and targets of links
    counts = rf"ahead in {ahead}\b[^=]*, behind in {behind} and level in {level}\b"
    at_alpha = rf"\bat \N{{GREEK SMALL LETTER ALPHA}} = {alpha:g}(?![.\d])"
    assert re.search(rf"{at_alpha}[^=]* {counts}", plain, re.IGNORECASE), counts
    n_settings = {sum(each.n_settings for each in match.tuned_at(alpha)) for match in arena.results().matches}
    assert n_settings == {int(found) for found in re.findall(r"the best of (\d+) tuned settings", text)}


def test_the_readme_counts_them_at_the_alpha_of_its_example() -> None:
    ahead, behind, _, most = counts_of_leads(0.9)
    n_scenarios = len(arena.results().matches)
    sentence = (
        f"it wins {ahead} of {n_scenarios} scenarios and loses {behind}, by at most {most:.1f} points: [the arena]"
    )
    assert sentence in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_adaptive_policy_keeps_its_promises_against_adversaries() -> None:
    """On the page of the arena: never below its guaranteed learner alone, less 5 points, nor below Algorithm 2."""
    matches = arena.results().matches
    kept = {each.name: [lead.low > 0.0 for lead in each.promises.values()] for each in matches if each.promises}
    assert kept == {name: [True] * 6 for name in ("settled", "largest", "halving")}
    for match in matches:
        if match.name in kept:
            share = {
                (score.alpha, score.label): value(score.gap_closed)
                for score in match.scores
                if score.feedback == "bandit"
            }
            for alpha in ALPHAS:
                assert share[alpha, "adaptive"] > share[alpha, "guaranteed alone"] - 0.05
                assert share[alpha, "adaptive"] > share[alpha, "\u03b1-FairCB (bandit)"]


# pictures


def test_every_picture_that_is_drawn_is_shown() -> None:
    shown = {Path(target).stem for page in SITE for image, target in links(page) if image and "_generated" in target}
    assert shown == set(illustrations.PICTURES)


@pytest.fixture(scope="module", params=illustrations.PICTURES.values(), ids=list(illustrations.PICTURES))
def picture(request: pytest.FixtureRequest) -> Figure:
    figure: Figure = request.param()
    figure.draw_without_rendering()
    return figure


def drawn_texts(figure: Figure) -> list[Text]:
    """All words that one sees; ticks outside their axes are kept by Matplotlib but not drawn."""
    unseen: set[Text] = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if not axes.axison or not low <= tick.get_loc() <= high:
                    unseen |= {tick.label1, tick.label2}
    texts: list[Text] = figure.findobj(Text)  # type: ignore[assignment, unused-ignore]
    return [text for text in texts if text.get_visible() and text.get_text().strip() and text not in unseen]


def test_no_text_lies_on_another_or_leaves_the_picture(picture: Figure) -> None:
    boxes = [(text.get_text(), text.get_window_extent()) for text in drawn_texts(picture)]
    assert len(boxes) > 10
    for text, box in boxes:
        assert picture.bbox.x0 <= box.x0 < box.x1 <= picture.bbox.x1, text
        assert picture.bbox.y0 <= box.y0 < box.y1 <= picture.bbox.y1, text
    for (one, box), (two, other) in combinations(boxes, 2):
        assert not box.overlaps(other), (one, two)


def test_text_is_readable_at_700_pixels(picture: Figure) -> None:
    pixels_a_point = 700 / picture.get_figwidth() / 72
    assert min(float(text.get_fontsize()) for text in drawn_texts(picture)) * pixels_a_point >= 10


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_the_tangent_is_above_the_curve_and_its_top_above_the_optimum(alpha: float) -> None:
    rng = np.random.default_rng(0)
    totals = context_reward_totals(illustrations.market(1000))
    best = offline_optimum(totals, alpha)
    for x in rng.dirichlet(np.ones(3), size=(50, 2)):
        found = illustrations.tangent_slice(totals, x, alpha)
        assert (found.values <= found.value + found.steps * found.gap + 1e-9).all()
        assert found.value <= best.value + best.gap
        assert found.bound >= best.value


def test_the_market_is_the_one_on_the_page() -> None:
    page = METHOD.read_text(encoding="utf-8")
    for query, row in zip(illustrations.QUERIES, illustrations.PAYS, strict=True):
        assert f"| a visitor for {query} | {' | '.join(map(str, row))} |" in page
    assert f"| | {' | '.join(shapes.SELLERS)} |" in page


def test_the_account_is_that_of_the_run_on_the_page() -> None:
    page = METHOD.read_text(encoding="utf-8")
    (row,) = re.findall(r"^alpha-fair  Ada +(\d+)  Ben +(\d+)  Cyd +(\d+)", page, re.MULTILINE)
    (alpha,) = re.findall(r"Uniform\(2, 3, feedback=\"full\"\), AlphaFair\(2, 3, alpha=(0\.\d+)\)\)", page)
    texts = [text.get_text() for text in drawn_texts(illustrations.reductions())]
    weights = [float(earned) ** -float(alpha) for earned in row]
    for earned, weight in zip(row, weights, strict=True):
        assert f"{int(earned):,}" in texts
        assert f"{weight / max(weights):.2f}" in texts
    assert any(f"R^{{-{alpha}}}" in text for text in texts), "the picture says which alpha"


def test_weights_are_drawn_as_they_are() -> None:
    axes = illustrations.what_alpha_does().axes[0]
    for alpha, line in zip(illustrations.ALPHAS, axes.get_lines(), strict=False):
        earned = np.asarray(line.get_xdata(), dtype=np.float64)
        expected = metrics.marginal_utility(earned, alpha) * 1000.0**alpha
        np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=np.float64), expected, rtol=1e-12)


def test_speeds_are_those_that_were_measured() -> None:
    """What the pages say of rounds and rewards per second, against the rows of the benchmarks, in millions."""
    jobs = [row[2] for row in benchmarks.read("measured.csv")]
    measured = {
        words: [float(found[1]) for job in jobs if (found := re.match(rf"{words}: ([\d.]+) million", job))]
        for words in ("simulate AlphaFairAdaptive", "over_log, .*?")
    }
    assert all(measured.values())
    assert "about a microsecond per round with `AlphaFairAdaptive`" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(0.8 <= speed <= 1.5 for speed in measured["simulate AlphaFairAdaptive"])
    page = (DOCS / "howto" / "save_and_load.md").read_text(encoding="utf-8")
    assert "more than three million rewards per second" in page
    assert all(speed > 3.0 for speed in measured["over_log, .*?"])
