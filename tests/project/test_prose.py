"""How pages are written: short sentences, short cells, one spelling, a landing page of two minutes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.test_docs import DOCS, FENCED, PAGES, ROOT, SITE, name

MOST_LINES = 120  # of README.md
MOST_WORDS = 40  # of a sentence that tells how to do something
MOST_IN_A_CELL = 25
GUIDES = [page for page in SITE if page.parent.name in ("start", "howto", "tutorials")]
WRITTEN = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "benchmarks" / "README.md", ROOT / "client" / "README.md"]
STEMS = (
    "analys",
    "categoris",
    "colour",
    "behaviour",
    "catalogue",
    "centralis",
    "customis",
    "defence",
    "emphasis(?=e)",
    "favour",
    "finalis",
    "generalis",
    "grey",
    "honour",
    "initialis",
    "licence",
    "maximis",
    "minimis",
    "neighbour",
    "normalis",
    "optimis",
    "organis",
    "penalis",
    "per cent",
    "programme",
    "randomis",
    "realis",
    "recognis",
    "regularis",
    "serialis",
    "specialis",
    "standardis",
    "summaris",
    "symbolis",
    "synchronis",
    "utilis",
    "vectoris",
)
BRITISH = re.compile(
    rf"\b(?:re|un|de)?(?:{'|'.join(STEMS)})(?!t\b|tic|tics|ts?\b|es of\b|is\b|m\b)\w*"
    r"|\b(?:centre|labell|cancell|modell|travell|judgement)\w*",
    re.IGNORECASE,
)
FINE = {"analysis", "analyst", "analysts", "programmed", "programmer", "programmers", "programming", "cancellation"}


def prose(page: Path) -> str:
    """A page without code, mathematics, comments and addresses of links."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    text = re.sub(r"<!--.*?-->|\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"\$[^$]+\$", "formula", text)
    text = re.sub(r"`[^`]+`", "code", text)
    return re.sub(r"\]\([^()\s]*\)", "]", text)


def paragraphs(page: Path) -> Iterator[str]:
    """Running text: neither headings, tables nor directives; an item of a list is a paragraph."""
    lines: list[str] = []
    for line in [*prose(page).splitlines(), ""]:
        stripped = line.strip()
        begins = re.match(r"(?:[-*]|\d+\.) ", stripped)
        if not stripped or begins or re.match(r"[|#:]|---|!\[|[a-z_]+: ", stripped):
            yield " ".join(lines)
            lines = [stripped] if begins else []
        else:
            lines.append(stripped)


def sentences(page: Path) -> Iterator[str]:
    for text in paragraphs(page):
        yield from re.split(r"(?<=[.!?])[\"*)_]* +(?=[\"*(\[A-Zα]|code|formula)", text)


def cells(page: Path) -> Iterator[str]:
    for line in prose(page).splitlines():
        if line.lstrip().startswith("|"):
            yield from line.strip().strip("|").split("|")


def n_words(text: str) -> int:
    return len(re.findall(r"\w[\w'\u2019.,\u2212-]*", text))


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_no_sentence_of_a_guide_is_long(page: Path) -> None:
    assert [text for text in sentences(page) if n_words(text) > MOST_WORDS] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_cell_of_a_table_is_long(page: Path) -> None:
    assert [text for text in cells(page) if n_words(text) > MOST_IN_A_CELL] == []


@pytest.mark.parametrize("page", WRITTEN, ids=name)
def test_the_spelling_is_american(page: Path) -> None:
    found = {match[0] for match in BRITISH.finditer(prose(page))}
    assert {word for word in found if word.lower() not in FINE} == set()


def test_the_readme_is_a_landing_page() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    commands = [line.split()[2] for line in lines[:8] if line.startswith("$ make ")]
    assert commands == ["run", "test"]
    assert any(line.startswith("![") for line in lines)


def test_long_and_british_text_is_found(tmp_path: Path) -> None:
    """Rules that never matched would let everything pass."""
    page = tmp_path / "page.md"
    page.write_text(
        f"# A\n\n- {'word ' * 41}end. Short one.\n\n| a | {'cell ' * 26}|\n\nWe realise the colour of `maximise`.\n"
        "```\nWe minimise.\n```\nAn analysis of realistic, optimistic programmers.\n",
        encoding="utf-8",
    )
    assert [n_words(text) > MOST_WORDS for text in sentences(page) if text] == [True, False, False, False]
    assert [n_words(text) for text in cells(page)] == [1, 26]
    found = {match[0] for match in BRITISH.finditer(prose(page))}
    assert {word for word in found if word.lower() not in FINE} == {"realise", "colour"}
    assert DOCS / "howto" / "floors.md" in GUIDES
