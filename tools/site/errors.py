"""Every error code of the HTTP API: read from the places in the source that raise it, so that none is left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

import alphafair
from alphafair.service.http.errors import FAILED_OUTCOMES, PHRASES
from alphafair_client.api import STATUSES, status_of

SOURCES = Path(alphafair.__file__).parent
PLACES = ("engine", "service")  # that raise errors which a request is answered with


class Code(NamedTuple):
    """A code, its HTTP status, and when it is sent."""

    status: int
    code: str
    meaning: str


def text(node: ast.AST | None) -> str:
    """A literal string; parts that are computed become an ellipsis."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(text(part) or "…" for part in node.values)
    return ""


def number(node: ast.AST) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def raised(call: ast.Call) -> Iterator[Code]:
    """What a call says of codes: `RequestError`, `failure` and `http_failure`, or a class derived from the first."""
    name, given = getattr(call.func, "id", getattr(call.func, "attr", "")), call.args
    if name in ("RequestError", "Problem") and given and text(given[0]):
        allowed = text(given[2]) if len(given) > 2 and name == "RequestError" else ""
        meaning = f"`{text(given[1])}` must be {allowed}." if allowed and text(given[1]) else ""
        yield Code(status_of(text(given[0])), text(given[0]), meaning)
    elif name == "failure" and len(given) > 2 and (status := number(given[0])) and text(given[1]):
        yield Code(status, text(given[1]), text(given[2]))
    elif name == "http_failure" and given and (status := number(given[0])):
        phrase = PHRASES.get(status) or HTTPStatus(status).phrase
        yield Code(status, phrase.lower().replace(" ", "_"), f"{phrase}.")


def codes() -> list[Code]:
    """Every code with its meanings, by status."""
    found = [Code(status, code, "") for code, status in STATUSES.items()]
    found += [Code(status_of(f"{key}_decision"), f"{key}_decision", row[0]) for key, row in FAILED_OUTCOMES.items()]
    for place in PLACES:
        for path in sorted((SOURCES / place).rglob("*.py")):
            calls = [
                node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)
            ]
            found += [code for call in calls for code in raised(call)]
    meanings: dict[tuple[int, str], list[str]] = {}
    for status, code, meaning in found:
        kept = meanings.setdefault((status, code), [])
        if meaning and meaning not in kept:
            kept.append(meaning)
    return [Code(*key, " ".join(meanings[key])) for key in sorted(meanings)]


def table() -> str:
    rows = [f"| {each.status} | `{each.code}` | {each.meaning} |" for each in codes()]
    return "\n".join(["| status | code | when |", "|---:|---|---|", *rows])
