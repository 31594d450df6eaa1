"""The report's page: results in, HTML out. All words and all layout are in the templates."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from alphafair import words
from alphafair.experiments import facts, paper
from alphafair.experiments.claims import obstacle, verdict
from alphafair.experiments.pictures import PICTURES
from alphafair.experiments.results import Band, Results, Rows
from alphafair.figures import look


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
    made.globals |= {"facts": facts, "look": look, "obstacle": obstacle, "verdict": verdict, "words": words}
    made.filters |= {word: getattr(words, word) for word in ("number", "percent", "fixed", "listed", "capital")}
    made.filters |= {
        "counted": lambda count: f"{count:,}",
        "general": lambda value: f"{value:g}",
        "scientific": lambda value: f"{value:.1e}",
        "band": with_band,
        "side": lambda lead: f"{words.number(abs(lead), 3)} {'above' if lead > 0.0 else 'below'}",
        "settings": settings,
    }
    return made


def render(template: str, drawings: Mapping[str, str], **values: Any) -> str:
    """A whole page. `drawings` are the pictures by name, as inline SVG."""
    inline = {name: Markup(svg) for name, svg in drawings.items()}
    return environment().get_template(template).render(drawings=inline, **values)


def html(results: Results, drawings: Mapping[str, str]) -> str:
    """The page of the report."""
    values = {"results": results, "experiments": results.experiments, "pictures": PICTURES, "paper": paper}
    return render("page.html", drawings, **values)


def with_band(found: Band, digits: int = 4) -> str:
    """A mean, with its interval if it has one."""
    text = words.number(found.mean, digits)
    if found.random:
        text += f" (95%: {words.number(found.low, digits)} to {words.number(found.high, digits)})"
    return text


def settings(given: Mapping[str, Any] | Rows) -> str:
    """Settings as they were given; those that are None say nothing."""
    pairs = sorted((vars(given) if isinstance(given, Rows) else given).items())
    said = {key: value for key, value in pairs if value is not None}
    text = ", ".join(f"{key} = {value if isinstance(value, str) else json.dumps(value)}" for key, value in said.items())
    return text or words.DASH
