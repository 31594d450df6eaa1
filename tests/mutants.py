"""Faults at random: one operator, constant, statement or pair of arguments of the package changed, by the syntax tree.

A fault replaces a part of the text, so that everything else stays as it is. Annotations, messages of errors, docstrings
and lines that are left out of coverage are not changed, nor arguments of functions that do not care about their order.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

KINDS = ("operator", "constant", "statement", "arguments")
OPERATORS: dict[type[ast.AST], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.FloorDiv: "*", ast.Mod: "//", ast.Pow: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip
SYMBOLS: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.And: "and", ast.Or: "or",
}  # fmt: skip
ORDERLESS = {"max", "min", "maximum", "minimum", "array_equal", "gcd", "isdisjoint"}
DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise, ast.Return)


class Site(NamedTuple):
    """A place in a file, from `start` up to `end` in characters, and what to write there."""

    kind: str
    file: str  # below the package
    line: int
    start: int
    end: int
    before: str
    after: str


class _Text:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines(keepends=True)
        self.starts = np.cumsum([0, *map(len, self.lines)])

    def at(self, line: int, column: int) -> int:
        """The character at a line and a column, which the syntax tree counts in bytes."""
        return int(self.starts[line - 1]) + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        n: ast.expr = node  # type: ignore[assignment]
        return self.at(n.lineno, n.col_offset), self.at(n.end_lineno or 0, n.end_col_offset or 0)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _walk(node: ast.AST, *, inside: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """Every node that may be changed, and whether it is inside a function."""
    if isinstance(node, ast.Import | ast.ImportFrom | ast.JoinedStr) or _is_text(node):
        return
    if isinstance(node, ast.Raise):
        yield node, inside
        return
    yield node, inside
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        within = inside or (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name == "body")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child, inside=within)


def _between(text: _Text, left: ast.AST, right: ast.AST, operator: ast.AST) -> tuple[int, int, str] | None:
    """Where an operator stands: the one place of its symbol between its two sides."""
    symbol, low, high = SYMBOLS.get(type(operator)), text.span(left)[1], text.span(right)[0]
    if symbol is None or text.text[low:high].count(symbol) != 1:
        return None
    start = text.text.index(symbol, low, high)
    return start, start + len(symbol), OPERATORS[type(operator)]


def _changes(text: _Text, node: ast.AST, inside: bool) -> Iterator[tuple[str, int, int, str]]:
    found: list[tuple[int, int, str] | None] = []
    match node:
        case ast.Compare(left, operators, sides):
            found = [_between(text, a, b, o) for a, b, o in zip([left, *sides], sides, operators, strict=False)]
        case ast.BinOp(left, operator, right) if inside:
            found = [_between(text, left, right, operator)]
        case ast.BoolOp(operator, [first, second]):
            found = [_between(text, first, second, operator)]
        case ast.UnaryOp(ast.Not() | ast.USub() as operator, operand) if inside:
            start, end = text.span(node)
            found = [(start, end, text.text[slice(*text.span(operand))])]
        case ast.AugAssign(target, ast.Add() | ast.Sub() as operator, value):
            start = text.text.index("=", text.span(target)[1]) - 1
            found = [(start, start + 1, OPERATORS[type(operator)])]
        case ast.Constant(bool() as value):
            yield ("constant", *text.span(node), str(not value))
        case ast.Constant(int() as value):
            yield ("constant", *text.span(node), str(value + 1))
        case ast.Constant(float() as value):
            yield ("constant", *text.span(node), repr(value * 2.0 if value else 1.0))
        case ast.Call(function, arguments) if getattr(function, "attr", getattr(function, "id", "")) not in ORDERLESS:
            for one, two in pairwise(arguments):
                (start, middle), (later, end) = text.span(one), text.span(two)
                first, second = text.text[start:middle], text.text[later:end]
                if first != second and not isinstance(one, ast.Starred) and not isinstance(two, ast.Starred):
                    yield "arguments", start, end, second + text.text[middle:later] + first
    for each in found:
        if each is not None:
            yield ("operator", *each)
    if inside and isinstance(node, DROPPED) and not (isinstance(node, ast.Return) and node.value is None):
        yield ("statement", *text.span(node), "pass")


@cache
def sites(package: Path) -> dict[str, dict[str, list[Site]]]:
    """Every possible fault by room, which is a folder or a module of the package, and by kind."""
    found: dict[str, dict[str, list[Site]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package).as_posix()
        text = _Text(path.read_text())
        for node, inside in _walk(ast.parse(text.text)):
            for kind, start, end, after in _changes(text, node, inside):
                line = text.text.count("\n", 0, start) + 1
                if "pragma: no cover" not in text.lines[line - 1]:
                    site = Site(kind, file, line, start, end, text.text[start:end], after)
                    found[file.partition("/")[0].removesuffix(".py")][kind].append(site)
    return {room: dict(kinds) for room, kinds in found.items()}


def draw(package: Path, count: int, seed: int, rooms: list[str] | None = None) -> list[Site]:
    """Faults at random: kinds in turn, of each a room by the root of the number of its places, and one of those."""
    rng = np.random.default_rng([seed, 29])
    every = {room: kinds for room, kinds in sites(package).items() if not rooms or room in rooms}
    drawn: list[Site] = []
    while len(drawn) < count:
        kind = KINDS[len(drawn) % len(KINDS)]
        places = {room: kinds[kind] for room, kinds in every.items() if kinds.get(kind)}
        weights = np.sqrt([len(each) for each in places.values()])
        room = [*places][rng.choice(len(places), p=weights / weights.sum())]
        drawn.append(places[room][rng.integers(len(places[room]))])
    return drawn
