"""User-facing text is plain technical English: words and phrases of the old vocabulary do not come back.

Read are all string literals and docstrings of src/, identifiers, templates, help texts (which are string literals), and
the pages of the documentation. A failure names the file and line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "alphafair"

PHRASES = (
    r"\bowed\b",
    r"\bsaid\b",
    r"\btexts\b",
    r"(?-i:\bSay (?:--|[a-z]))",
    r"\bof then\b",
    r"\bof now\b",
    r"\b(?:is|are) no numbers?\b",
    r"\bwhole numbers?\b",
    r"\bnobody (?:is told|knows it|is warned)\b",
    r"\brooms\b",
    r"\bdoors?\b",
    r"\bheads\b",
    r"(?<!of )\bcourses?\b",
    r"\bmeetings?\b",
    r"\bmaster\b",
    r"\bblamed?\b",
    r"\buntold\b",
    r"\btwins?\b",
    r"\bthose that leave, leave\b",
    r"\bspeaks? of\b",
    r"\btells so\b",
    r"\bfor good\b",
    r"\bmake room\b",
    r"\bbroke off\b",
    r"\bown affair\b",
    r"\bat (?:its|their) word\b",
    r"\bis no (?:chance|trouble|proof)\b",
    r"\bdealt out\b",
    r"\bat work\b",
    r"\bnobody (?:can|but|else|promises|waits)\b",
    r"(?-i:`(?:\w+\.)*(?:Refusal|Refused|Surely|Asked|Lessons|ThereIs)\b)",
)
OLD = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)
ALLOWED = re.compile(r"\b(?:Said|Blame|Master|Room|Door)s?\b(?=[^.]*\(\d{4}\))")  # in titles of movies
OLD_NAMES = frozenset(
    [
        "Refusal",
        "Refused",
        "Surely",
        "Asked",
        "Lessons",
        "ThereIs",
        "Known",
        "Begun",
        "Owed",
        "Kept",
        "owed",
        "said",
        "fair_to",
        "what_is_wrong",
        "whole_numbers",
        "twin",
        "blame",
        "untold",
        "AS_CHOSEN",
        "NOBODY",
    ]
)


def old_words(text: str, first_line: int = 1) -> Iterator[tuple[int, str]]:
    """Lines and words of the old vocabulary in a text."""
    allowed = ALLOWED.sub(lambda found: "x" * len(found[0]), text)
    for found in OLD.finditer(allowed):
        yield first_line + allowed.count("\n", 0, found.start()), found[0]


def in_python(path: Path) -> Iterator[tuple[int, str]]:
    """The same in string literals and identifiers of a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from old_words(node.value, node.lineno)
        names = [
            value
            for field in ("id", "attr", "arg", "name", "asname")
            if isinstance(value := getattr(node, field, None), str)
        ]
        yield from ((getattr(node, "lineno", 0), name) for name in names if name in OLD_NAMES)


PYTHON = sorted(SOURCE.rglob("*.py"))
PAGES = sorted(
    path
    for path in (
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
        *(path for suffix in ("html", "j2", "jinja", "md", "txt") for path in SOURCE.rglob(f"*.{suffix}")),
    )
)


def test_there_is_something_to_read() -> None:
    assert len(PYTHON) > 40
    assert any(path.name == "method.md" for path in PAGES)


@pytest.mark.parametrize("text", ["what an arm is owed", "Say --data FILE", "a whole number", "its twin", "for good"])
def test_old_words_are_found(text: str) -> None:
    assert [line for line, _ in old_words(f"fine\n{text}")] == [2]


@pytest.mark.parametrize("text", ["of course", "Blame It on Rio (1984)", "a visitor", "the header"])
def test_other_words_are_allowed(text: str) -> None:
    assert not list(old_words(text))


def test_no_old_words_in_modules() -> None:
    found = [f"{path.relative_to(ROOT)}:{line}: {word}" for path in PYTHON for line, word in in_python(path)]
    assert not found, "\n".join(found)


def test_no_old_words_in_pages() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in PAGES
        for line, word in old_words(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
