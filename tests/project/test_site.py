"""The documentation site: it builds without a warning, and in a browser it is whole, quiet and readable on a phone."""

from __future__ import annotations

import ast
import fcntl
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import alphafair
from alphafair.service.http import errors as http_errors
from tests import ROOT
from tests.browsers import chromium, faults, watched
from tools.site import errors, gallery, generated, names, outside

BUILD = ROOT / "docs" / "_build"
SITE = BUILD / "html"
THEMES = ("light", "dark")
LOOKED_AT = {  # one of each kind, by what it is
    "start": "index.html",
    "tutorial": "tutorials/first_fair_bandit.html",
    "reference": "reference/names/AlphaFair.html",
    "table": "reference/metrics.html",
    "guide": "howto/floors.html",
    "gallery": "examples/index.html",
    "picture": "examples/plot_what_alpha_does.html",
}


# what is generated


def public_names(module: ModuleType) -> Iterator[str]:
    """Those that it lists, or else all that are made there, without an underscore."""
    if hasattr(module, "__all__"):
        yield from module.__all__
        return
    for name, value in vars(module).items():
        made_there = callable(value) and f"{getattr(value, '__module__', '')}.".startswith(f"{module.__name__}.")
        if made_there and not name.startswith("_"):
            yield name


def test_no_public_name_is_left_out() -> None:
    """Every class and function of `alphafair` and of every module that it names."""
    found = {each.name for each in names.all_names()}
    missing = []
    for public in (*alphafair.__all__, "figures", *alphafair._CLIENTS):
        value = getattr(alphafair, public)
        if not inspect.ismodule(value):
            missing += [public] * (public not in found and not public.startswith("__"))
        else:
            missing += [f"{public}.{name}" for name in public_names(value) if not {name, f"{public}.{name}"} & found]
    assert missing == []


def test_every_name_has_a_page_of_its_own() -> None:
    """Also on file systems that take `frontier` and `Frontier` for the same."""
    pages = names.pages_of_names()
    assert len({each.page.lower() for each in pages}) == len(pages) > 150
    assert {each.page for each in names.all_names()} == {each.page for each in pages}
    for each in pages:
        assert each.summary, f"{each.name} has no docstring"


def test_formulas_in_docstrings() -> None:
    text = "Price $5 and\n\n$$a = b,\n  \\qquad c$$\n\nof $R_i$."
    assert names.with_formulas(text) == "Price $5 and\n\n\n.. math:: a = b, \\qquad c\n\n\nof :math:`R_i`."


def test_the_comment_of_a_field_is_its_description() -> None:
    expected = "What it shows, behind the title of a figure."
    assert names.of_field("alphafair.metrics.Metric", "meaning") == expected
    assert names.of_field("alphafair.metrics.Metric", "nothing") == ""
    assert names.of_field("alphafair.evaluation.RegretStatement", "at_most").startswith("optimum_at_most - ")
    assert names.of_field("alphafair.nothing", "unit") == ""


def test_a_colon_in_the_first_line_of_a_property_ends_no_type() -> None:
    from sphinx.ext.napoleon import Config, NumpyDocstring

    lines = ["The bounds are uninformative: larger than what any rewards could pay.", "", "Two: paragraphs."]
    app: Any = SimpleNamespace(srcdir=ROOT / "docs")
    names.prepare(app, "property", "alphafair.metrics.Certificates.is_vacuous", None, None, lines)
    read = NumpyDocstring(lines, Config(), what="property", name="is_vacuous").lines()
    assert [line.strip() for line in read if line.strip()] == [
        "The bounds are uninformative: larger than what any rewards could pay.",
        "Two: paragraphs.",
    ]


def test_the_gallery_starts_with_what_everybody_asks() -> None:
    scripts = [path.name for path in (ROOT / "docs" / "gallery").glob("plot_*.py")]
    found = [name.removeprefix("plot_").removesuffix(".py") for name in sorted(scripts, key=gallery.Order("gallery"))]
    assert found == [*gallery.FIRST]
    key = gallery.Order("gallery")
    assert max([*scripts, "plot_another.py"], key=key) == "plot_another.py"


def test_every_error_code_is_listed() -> None:
    """Those that the service's tests and client know, and each string that is a code where it is raised."""
    found = {each.code: each.status for each in errors.codes()}
    assert found["too_many_requests"] == 429
    assert found["unavailable"] == 503
    assert found["uncertain"] == 504
    assert found["expired_decision"] == 410
    assert {f"{outcome}_decision" for outcome in http_errors.FAILED_OUTCOMES} <= found.keys()
    assert {"not_found", "method_not_allowed", "bad_http", "unauthorized", "forbidden"} <= found.keys()
    assert {"bad_json", "internal", "unsupported_media_type", "request_timeout"} <= found.keys()
    (call,) = (node for node in ast.walk(ast.parse('failure(418, "teapot", f"No {x}.")')) if isinstance(node, ast.Call))
    assert [*errors.raised(call)] == [errors.Code(418, "teapot", "No ….")]


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no generated part 'nonsense'; there are arena, "):
        generated.markdown("nonsense")
    with pytest.raises(ValueError, match="there is no command 'nonsense'"):
        generated.markdown("help nonsense")


def test_links_to_files_of_the_repository() -> None:
    text = "[a](../../SECURITY.md#x) [b](../../examples/nodes) [c](../../examples/epsilon_greedy.py) [d](floors.md)"
    expected = "[a](/background/security.md#x) b [c](/../examples/epsilon_greedy.py) [d](floors.md)"
    assert outside.with_links(text, "docs/howto/periods.md") == expected
    text = "![e](../_generated/trap.svg) [f](https://example.org) [g](#here) [h](../gallery/index) `R[i](x)`"
    expected = "![e](../_generated/trap.svg) [f](https://example.org) [g](#here) [h](/examples/index.rst) `R[i](x)`"
    assert outside.with_links(text, "docs/howto/periods.md") == expected


def test_nothing_that_is_made_is_in_git() -> None:
    done = subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not in a clone")
    kept = done.stdout.splitlines()
    assert not [path for path in kept if re.match(r"docs/(_build|_generated|examples|reference/names)/", path)]
    programs = {path for path in kept if path.endswith(".py")}
    assert {path for path in programs if not path.startswith("docs/gallery/")} == {"docs/conf.py"}
    assert "<!-- paste" not in "".join(path.read_text() for path in (ROOT / "docs").glob("*/*.md"))


# the site


@pytest.fixture(scope="session")
def site() -> Iterator[str]:
    """The address of the site: built by the first worker that needs it, with what earlier builds have computed."""
    if missing := [name for name in ("sphinx", "myst_nb", "sphinx_gallery") if find_spec(name) is None]:
        reason = f"{missing[0]} is not installed: pip install -e '.[docs]'"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", str(BUILD / "doctrees")]
        path = os.pathsep.join(map(str, (ROOT, ROOT / "src", ROOT / "client" / "src")))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
        done = subprocess.run([*command, "docs", str(SITE)], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=SITE)) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


def pages() -> list[str]:
    """Every page; of those of names, whose form is the same, every twentieth and the longest."""
    found = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    found = [each for each in found if not each.startswith("_static/")]  # a template of the theme
    alike = [each for each in found if each.startswith("reference/names/")]
    longest = sorted(alike, key=lambda each: (SITE / each).stat().st_size)[-3:]
    return [each for each in found if each not in alike or each in alike[::20] or each in longest]


@pytest.mark.compiled
def test_every_page_is_whole_on_a_phone(site: str, browser: Any) -> None:
    """No error on the console, no request to another host, and nothing is wider than 390 pixels."""
    assert len(pages()) > 60
    wide = []
    with watched(browser, site, viewport={"width": 390, "height": 844}) as page:
        for each in pages():
            answer = page.goto(each, wait_until="load")
            assert answer.status == 200, each
            width = page.evaluate("document.documentElement.scrollWidth")
            wide += [f"{each}: {width}"] * (width > 390)
    assert wide == []


@pytest.mark.compiled
@pytest.mark.parametrize("theme", THEMES)
def test_axe_finds_nothing_serious(site: str, browser: Any, theme: str) -> None:
    found = {}
    with watched(browser, site, color_scheme=theme) as page:
        for what, each in LOOKED_AT.items():
            page.goto(each)
            assert page.locator("html").get_attribute("data-theme") == theme
            if problems := faults(page):
                found[what] = problems
    assert found == {}


@pytest.mark.compiled
def test_formulas_are_drawn(site: str, browser: Any) -> None:
    with watched(browser, site) as page:
        for each in ("reference/names/AlphaFair.html", "background/theory.html"):
            page.goto(each)
            page.locator(".math .katex").first.wait_for()
            assert page.locator(".math:not(:has(.katex))").count() == 0
            assert page.locator(".katex-error").count() == 0


@pytest.mark.compiled
def test_the_search_finds_a_name_without_a_server(site: str, browser: Any) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{(SITE / 'search.html').as_uri()}?q=regret_certificate")
    page.locator("#search-results a", has_text="metrics.regret_certificate").first.wait_for()
    context.close()


@pytest.mark.compiled
def test_every_link_leads_to_a_file_and_a_heading(site: str) -> None:
    """Sphinx checks the links of pages; this, those of its theme, gallery and tables too."""
    texts = {path: path.read_text(encoding="utf-8") for path in SITE.rglob("*.html")}
    ids = {path: {*re.findall(r'\bid="([^"]+)"', text)} for path, text in texts.items()}
    dead = set()
    for path, text in texts.items():
        for link in re.findall(r'<a\b[^>]*\bhref="([^"]+)"', text):
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            found = Path(os.path.normpath(path.parent / target)) if target else path
            if not found.exists() or (anchor and found in ids and anchor not in ids[found]):
                dead.add(f"{path.relative_to(SITE)} -> {link}")
    assert dead == set()
