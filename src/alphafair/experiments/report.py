"""The report: one page that needs nothing else, the numbers beside it, and every picture in three formats.

All words and all layout of the page are in the templates.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from alphafair import figures, words
from alphafair.experiments import courses, paper
from alphafair.experiments.atomic_write import write_text
from alphafair.experiments.claims import obstacle, verdict
from alphafair.experiments.pictures import PICTURES
from alphafair.experiments.results import Arena, Results
from alphafair.experiments.run import Started, untold
from alphafair.experiments.serialize import as_json

DROPPED = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>|<defs>\s*</defs>", re.DOTALL)
USED = re.compile(r'(?:href="#|url\(#)([^")]+)')
NAMED = re.compile(r' id="([^"]*)"')
COORDINATES = re.compile(r'(?<= )(?:d|x|y)="[^"]*"|translate\([^)]*\)')
DECIMALS = re.compile(r"-?\d+\.\d{3,}")
Drawn = tuple[str, str, Callable[[], Figure]]  # a picture's name and title, and what draws it


def write_report(results: Results, folder: Path, started: Started = untold) -> None:
    """Write index.html, results.json and figures/ into a folder; the same results give the same bytes."""
    pictures = [(each.name, each.title, partial(each.draw, results.experiments)) for each in PICTURES]
    write_page(folder, "page.html", results, pictures, started)


def write_page(
    folder: Path, template: str, results: Results | Arena, pictures: Sequence[Drawn], started: Started
) -> None:
    """A page of a template, its numbers, and every picture in three formats; unless all of it is there."""
    text, numbers, page = as_json(results), folder / "results.json", folder / "index.html"
    files = [folder / "figures" / f"{name}{suffix}" for name, *_ in pictures for suffix in figures.SUFFIXES]
    if all(path.is_file() for path in (numbers, page, *files)) and numbers.read_bytes() == text.encode():
        return
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    numbers.unlink(missing_ok=True)  # written last: where it is, all the rest is
    advance, drawings = started("Drawing", len(pictures)), {}
    for name, title, draw in pictures:
        drawings[name] = inline(save_picture(draw(), folder / "figures", name), name, title)
        advance(1)
    write_text(page, render(template, results=results, drawings=drawings))
    write_text(numbers, text)


def save_picture(figure: Figure, folder: Path, name: str) -> str:
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


@cache
def environment() -> Environment:
    """Templates beside this file; everything that is not a template is escaped, and nothing may be missing."""
    made = Environment(
        loader=PackageLoader("alphafair.experiments"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"look": figures.look, "obstacle": obstacle, "verdict": verdict, "words": words}
    made.globals |= {"paper": paper, "courses": courses, "pictures": PICTURES}
    made.filters |= {word: getattr(words, word) for word in ("number", "percent", "fixed", "listed", "capital")}
    made.filters |= {
        "counted": lambda count: f"{count:,}",
        "general": lambda value: f"{value:g}",
        "scientific": lambda value: f"{value:.1e}",
        "side": lambda lead: f"{words.number(abs(lead), 3)} {'above' if lead > 0.0 else 'below'}",
        "settings": settings,
    }
    return made


def render(template: str, *, drawings: Mapping[str, str], **values: Any) -> str:
    """A whole page. `drawings` are the pictures by name, as inline SVG."""
    inline = {name: Markup(svg) for name, svg in drawings.items()}
    return environment().get_template(template).render(drawings=inline, **values)


def settings(given: Mapping[str, Any]) -> str:
    """Settings as they were given; those that are None say nothing."""
    said = {key: value for key, value in sorted(given.items()) if value is not None}
    text = ", ".join(f"{key} = {value if isinstance(value, str) else json.dumps(value)}" for key, value in said.items())
    return text or words.DASH
