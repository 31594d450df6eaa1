"""The public names, and a page of the reference for each: what autodoc makes of docstrings, types and comments."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from sphinx.application import Sphinx

import alphafair
from alphafair import (
    algorithms,
    checks,
    data,
    engine,
    errors,
    evaluation,
    executors,
    extend,
    figures,
    groups,
    metrics,
    offline,
    preprocessing,
    run,
    streams,
    values,
)

FOLDER = "reference/names"  # of the pages, inside docs/


def names_of(module: ModuleType) -> list[str]:
    """A module's public names: those that it lists, or else the classes and functions that are made in it."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if name != "Log"]  # of `alphafair` itself
    home = module.__name__
    made = [
        name
        for name, value in vars(module).items()
        if callable(value) and f"{getattr(value, '__module__', '')}.".startswith(f"{home}.")
    ]
    return [name for name in made if not name.startswith("_")]


SECTIONS: dict[str, list[tuple[ModuleType, list[str]]]] = {
    "Policies": [(algorithms, [*algorithms.CLASSES, "POLICIES", "load_policy", "register"])],
    "What all policies share": [(algorithms, ["BasePolicy"]), (values, ["Policy"])],
    "Whom to be fair to": [(groups, ["Groups"])],
    "Values": [(values, [name for name in names_of(values) if name != "Policy"])],
    "Running": [(run, names_of(run))],
    "Workers": [(executors, names_of(executors))],
    "Hindsight": [(offline, names_of(offline))],
    "Metrics": [(metrics, names_of(metrics))],
    "From logs": [(evaluation, names_of(evaluation))],
    "Streams": [(streams, names_of(streams))],
    "Data sets": [(data, names_of(data))],
    "Preparing data": [(preprocessing, names_of(preprocessing))],
    "The engine": [(engine, names_of(engine))],
    "Clients of the service": [(alphafair, ["Client", "AsyncClient", "ServiceError"])],
    "Errors": [(errors, ["InvalidArgument", *names_of(errors)])],
    "Checks": [(checks, names_of(checks))],
    "Pictures": [(figures, names_of(figures))],
    "Policies of your own": [
        (extend, ["PlainPolicy", "Array", "Number", "Accounts"]),
        (extend, ["Algorithm", "Layout", "Memory", "positions"]),
        (extend, ["kernel", "compiled", "repeated"]),
        (extend, ["draw_arm", "draw_from", "mask_distribution"]),
    ],
}


class Name(NamedTuple):
    """A public name as users write it, after `alphafair.`; and what it stands for."""

    name: str
    value: Any

    @property
    def page(self) -> str:
        """The page's file name without `.md`; file systems that ignore case keep `frontier` and `Frontier` apart."""
        name = next(each.name for each in all_names() if each.value is self.value)  # of several, the first
        taken = name.lower() in lower_case_names() and name != name.lower()
        return f"{name}_class" if taken else name

    @property
    def summary(self) -> str:
        """The first sentence of the docstring; of a collection its members."""
        if not callable(self.value):
            return ", ".join(f"`{member!r}`" for member in self.value)
        paragraph = " ".join((inspect.getdoc(self.value) or "").split("\n\n")[0].split())
        return re.split(r"(?<=[.;])\s", paragraph)[0].rstrip(";")


@cache
def sections() -> dict[str, list[Name]]:
    """Every public name once, by section."""
    found: dict[str, list[Name]] = {}
    for title, modules in SECTIONS.items():
        pairs = [(module, name) for module, names in modules for name in names]
        named = {qualified(module, name): getattr(module, name) for module, name in pairs}
        found[title] = [Name(name, value) for name, value in named.items()]
    return found


@cache
def lower_case_names() -> set[str]:
    return {each.name for each in all_names() if each.name == each.name.lower()}


def all_names() -> Iterator[Name]:
    for names in sections().values():
        yield from names


def pages_of_names() -> list[Name]:
    """The names that have a page; others are second names of the same thing."""
    first = {id(each.value): each for each in reversed([*all_names()])}
    return [each for each in all_names() if first[id(each.value)] is each]


def qualified(module: ModuleType, name: str) -> str:
    """A name as users of `alphafair` write it."""
    here = getattr(alphafair, name, None) is getattr(module, name)
    return name if here else f"{module.__name__.removeprefix('alphafair.')}.{name}"


def index() -> str:
    """A table of names per section, with links."""
    parts = []
    for title, names in sections().items():
        rows = "\n".join(f"| [{each.name}](names/{each.page}.md) | {each.summary} |" for each in names)
        pages = "\n".join(f"{each.name} <names/{each.page}>" for each in names if each in pages_of_names())
        parts.append(f"## {title}\n\n| name | |\n|---|---|\n{rows}\n\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n")
    return "\n".join(parts)


def page(each: Name) -> str:
    """The page of one name: its title, and autodoc's directive."""
    return f"# {each.name}\n\n```{{eval-rst}}\n{directive(each)}\n```\n{inherited(each)}"


def directive(each: Name) -> str:
    if not callable(each.value):
        members = ", ".join(f"``{member!r}``" for member in each.value)
        return f".. py:data:: alphafair.{each.name}\n\n   By name: {members}."
    if not inspect.isclass(each.value):
        return f".. autofunction:: alphafair.{each.name}"
    what = "exception" if issubclass(each.value, BaseException) else "class"
    return f".. auto{what}:: alphafair.{each.name}\n   :members:\n   :undoc-members:"


def inherited(each: Name) -> str:
    """Where the rest of a policy's methods are documented."""
    base = algorithms.BasePolicy
    if not inspect.isclass(each.value) or not issubclass(each.value, base) or each.value is base:
        return ""
    names = [name for name in vars(base) if not name.startswith("_") and name not in vars(each.value)]
    documented = [name for name in names if inspect.getdoc(inspect.getattr_static(base, name))]
    links = ", ".join(f"{{py:obj}}`~alphafair.BasePolicy.{name}`" for name in documented)
    return f"\nAs every policy it also has, from {{py:obj}}`~alphafair.BasePolicy`: {links}.\n"


def write_pages(app: Sphinx) -> None:
    """Write what has changed, and remove pages of names that are no more."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    pages = {folder / f"{each.page}.md": page(each) for each in pages_of_names()}
    for path in {*folder.glob("*.md")} - {*pages}:
        path.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


# docstrings as autodoc reads them


@cache
def comments(kind: type) -> dict[str, str]:
    """What stands behind the fields of a class, as `name: type  # this`."""
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return {}
    lines, (tree,) = source.splitlines(), ast.parse(source).body
    found = {}
    for node in getattr(tree, "body", ()):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = (node.end_lineno or node.lineno) - 1
            _, mark, comment = lines[last][node.end_col_offset :].partition("# ")
            if mark and not comment.startswith(("type:", "noqa")):
                first, _, rest = comment.partition(" ")
                sentence = f"{first.capitalize() if first.islower() and first.isalpha() else first} {rest}"
                found[node.target.id] = f"{sentence.rstrip('. ')}."
    return found


def of_field(owner: str, name: str) -> str:
    """The comment of a field, of the class or of one that it inherits from."""
    kind: Any = alphafair
    for part in owner.removeprefix("alphafair.").split("."):
        kind = getattr(kind, part, None)
    if not inspect.isclass(kind):
        return ""
    return next((text for each in kind.__mro__ if (text := comments(each).get(name))), "")


def prepare(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Give fields their comments, formulas their roles, and pages their links."""
    owner, _, last = name.rpartition(".")
    no_text = not any(lines) or lines[0].startswith("Alias for field number")
    if what in ("attribute", "property") and no_text:
        lines[:] = [of_field(owner, last)]
    if what in ("attribute", "property"):
        lines[0] = f": {lines[0]}"  # else napoleon takes what stands before a colon for the type
    lines[:] = with_formulas("\n".join(with_parameters_closed(lines))).split("\n")
    root = Path(app.srcdir)

    def link(match: re.Match[str]) -> str:
        return f":doc:`/{match[1]}`" if (root / f"{match[1]}.md").exists() and "/" in match[1] else match[0]

    lines[:] = [re.sub(r"\bdocs/([\w/]+)\.md", link, line) for line in lines]


def with_parameters_closed(lines: list[str]) -> list[str]:
    """A docstring with two empty lines where a paragraph follows its parameters, which is how napoleon finds the end.

    >>> with_parameters_closed(["Parameters", "----------", "x", "    A number.", "", "It is cheap."])[-3:]
    ['', '', 'It is cheap.']
    """
    found: list[str] = []
    in_parameters = False
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line == "Parameters" or after.startswith("---"):
            in_parameters = line == "Parameters"
        elif in_parameters and line[:1].strip("- ") and not after.startswith("    "):
            found.append("")
            in_parameters = False
        found.append(line)
    return found


def with_formulas(text: str) -> str:
    r"""A docstring whose `$...$` and `$$...$$` are reStructuredText's mathematics.

    >>> print(with_formulas("the account $R_i$"))
    the account :math:`R_i`
    """

    def block(match: re.Match[str]) -> str:
        indent, formula = match[1], " ".join(match[2].split())
        return f"\n{indent}.. math:: {formula}\n"

    text = re.sub(r"^( *)\$\$(.+?)\$\$$", block, text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(
        r"(?<![\w\\])\$([^$\n](?:[^$]*?[^$\s])?)\$(?!\w)", lambda match: f":math:`{' '.join(match[1].split())}`", text
    )


INTERNAL = {"traits", "algorithm", "welfare_algorithm", "regressor"}  # how a policy is made, for `alphafair.extend`


def skip(app: Sphinx, what: str, name: str, thing: Any, skipped: bool, options: Any) -> bool | None:
    """Leave out what is undocumented and callable, and the parts that policies are made of."""
    if name in INTERNAL or name.startswith("_"):
        return True
    function = getattr(thing, "__func__", thing)
    if inspect.isfunction(function) and not function.__doc__:
        return True
    return None


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", prepare, priority=400)  # before napoleon
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
