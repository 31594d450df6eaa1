"""The report: one page that needs nothing else, the numbers beside it, and every picture in three formats."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from alphafair import figures, validate
from alphafair.experiments import page
from alphafair.experiments.pictures import Results, available
from alphafair.experiments.whole import write_text

DROPPED = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>|<defs>\s*</defs>", re.DOTALL)
USED = re.compile(r'(?:href="#|url\(#)([^")]+)')
NAMED = re.compile(r' id="([^"]*)"')
COORDINATES = re.compile(r'(?<= )(?:d|x|y)="[^"]*"|translate\([^)]*\)')
DECIMALS = re.compile(r"-?\d+\.\d{3,}")
NUMBERS = re.compile(r"\[\n\s*([-+.\deE,\s]+?)\s*\n\s*\]")


def write_report(results: Results, folder: str | Path, *, advance: Callable[[int], object] | None = None) -> Path:
    """Write index.html, results.json and figures/ into a folder, and say where the page is.

    Parameters
    ----------
    results
        What the runner measured; the same results give the same bytes.
    folder
        Made if it is missing; files of an earlier report are replaced.
    advance
        Told 1 after every picture; there are `len(pictures.available(results))`.
    """
    home = Path(folder)
    (home / "figures").mkdir(parents=True, exist_ok=True)
    text = as_json(results)
    numbers = home / "results.json"
    numbers.unlink(missing_ok=True)  # written last: where it is, all the rest is
    shown = available(results)
    drawings = {}
    for picture in shown:
        drawings[picture.name] = inline(
            _save(picture.draw(results), home / "figures", picture.name), picture.name, picture.title
        )
        if advance is not None:
            advance(1)
    target = home / "index.html"
    write_text(target, page.html(results, shown, drawings))
    write_text(numbers, text)
    return target


def as_json(results: Results) -> str:
    """Sorted keys, a list of numbers on one line, and nothing that JSON has no word for.

    >>> print(as_json({"b": [1.5, 2.0], "a": "x"}))
    {
     "a": "x",
     "b": [1.5, 2.0]
    }
    <BLANKLINE>
    """
    for where, value in _leaves(results, "results"):
        if isinstance(value, float) and not math.isfinite(value):
            raise validate.Refusal(where, "finite", value, "Run that experiment again; a report has no gaps.")
    text = json.dumps(results, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False, default=_plain)
    return NUMBERS.sub(lambda found: f"[{re.sub(chr(92) + 's+', ' ', found[1])}]", text) + "\n"


def _plain(value: Any) -> Any:
    """NumPy's arrays and scalars as lists and numbers."""
    return value.tolist()


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{where}[{key!r}]")
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for place, part in enumerate(value):
            yield from _leaves(part, f"{where}[{place}]")
    else:
        yield where, value


def _save(figure: Figure, folder: Path, name: str) -> str:
    """The three files of a picture; the text of the SVG."""
    for artist in figure.findobj():
        artist.set_gid(None)  # names of lines are no ids: two artists share one
    for suffix in figures.SUFFIXES:
        figures.save(figure, folder / f"{name}{suffix}")
    return (folder / f"{name}.svg").read_text(encoding="utf-8")


def inline(svg: str, name: str, title: str) -> str:
    """An SVG file as a part of a page: ids that nobody else has, only those that are used, and two decimals.

    >>> inline('<?xml?><svg viewBox="0 0 9 9"><path id="a" d="M 1.23456 2"/></svg>', "dot", "A dot")
    '<svg viewBox="0 0 9 9" role="img" aria-label="A dot"><path d="M 1.23 2"/></svg>'
    """
    text = DROPPED.sub("", svg[svg.index("<svg") :])
    head, body = text.split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    used = {old: f"{name}-{place}" for place, old in enumerate(dict.fromkeys(USED.findall(body)))}
    body = NAMED.sub(lambda found: f' id="{used[found[1]]}"' if found[1] in used else "", body)
    body = USED.sub(lambda found: found[0].replace(found[1], used[found[1]]), body).replace("xlink:href", "href")
    body = COORDINATES.sub(lambda found: DECIMALS.sub(_two_decimals, found[0]), body)
    body = re.sub(r"\s*\n\s*", "\n", body)
    return f'<svg {box[0] if box else ""} role="img" aria-label="{escape(title)}">{body.strip()}'


def _two_decimals(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
