"""The report: one page that needs nothing else, the numbers beside it, and every picture in three formats.

All words and all layout of the page are in the templates.
"""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from alphafair import figures, formatting
from alphafair.lab import courses, paper
from alphafair.lab.atomic_write import atomic_write
from alphafair.lab.claims import obstacle, verdict
from alphafair.lab.pictures import PICTURES, Picture
from alphafair.lab.results import Arena, Results
from alphafair.lab.run import Started, untold
from alphafair.lab.serialize import as_json


def write_report(results: Results, folder: Path, started: Started = untold) -> None:
    """Write index.html, results.json and figures/ into a folder; the same results give the same bytes."""
    write_page(folder, "page.html", results, results.experiments, PICTURES, started)


def write_page(
    folder: Path, template: str, results: Results | Arena, shown: Any, pictures: Sequence[Picture], started: Started
) -> None:
    """A page of a template, its numbers, and pictures of what is shown in three formats; unless all of it is there."""
    text, numbers, page = as_json(results), folder / "results.json", folder / "index.html"
    files = [folder / "figures" / f"{each.name}{suffix}" for each in pictures for suffix in figures.SUFFIXES]
    if all(path.is_file() for path in (numbers, page, *files)) and numbers.read_bytes() == text.encode():
        return
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    numbers.unlink(missing_ok=True)  # written last: where it is, all the rest is
    advance, drawings = started("Drawing", len(pictures)), {}
    for each in pictures:
        drawings[each.name] = save_picture(each.draw(shown), folder / "figures", each.name, each.title)
        advance(1)
    atomic_write(page, render(template, results=results, drawings=drawings))
    atomic_write(numbers, text)


def save_picture(figure: Figure, folder: Path, name: str, title: str) -> Markup:
    """The three files of a picture; it is a part of the page, which needs nothing else, as what its SVG holds."""
    for artist in figure.findobj():
        artist.set_gid(None)  # names of lines are no ids: two artists share one
    for suffix in figures.SUFFIXES:
        figures.save(figure, folder / f"{name}{suffix}")
    data = b64encode((folder / f"{name}.svg").read_bytes()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(data, title)


@cache
def environment() -> Environment:
    """Templates beside this file; everything that is not a template is escaped, and nothing may be missing."""
    made = Environment(
        loader=PackageLoader("alphafair.lab"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {"look": figures.look, "obstacle": obstacle, "verdict": verdict, "words": formatting}
    made.globals |= {"paper": paper, "courses": courses, "pictures": PICTURES}
    made.filters |= {word: getattr(formatting, word) for word in ("number", "percent", "fixed", "listed", "capital")}
    made.filters |= {
        "counted": lambda count: f"{count:,}",
        "general": lambda value: f"{value:g}",
        "scientific": lambda value: f"{value:.1e}",
        "side": lambda lead: f"{formatting.number(abs(lead), 3)} {'above' if lead > 0.0 else 'below'}",
        "settings": settings,
    }
    return made


def render(template: str, **values: Any) -> str:
    """A whole page."""
    return environment().get_template(template).render(values)


def settings(given: Mapping[str, Any]) -> str:
    """Settings as they were given; those that are None say nothing."""
    said = {key: value for key, value in sorted(given.items()) if value is not None}
    text = ", ".join(f"{key} = {value if isinstance(value, str) else json.dumps(value)}" for key, value in said.items())
    return text or formatting.DASH
