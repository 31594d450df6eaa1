"""Write docs/api.md from the docstrings: `python docs/make_api.py`.

tests/project/test_docs.py makes it again, and fails while docs/api.md holds something else.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import alphafair
import alphafair_client
from alphafair import (
    algorithms,
    checks,
    data,
    engine,
    errors,
    evaluation,
    executors,
    figures,
    groups,
    metrics,
    offline,
    preprocessing,
    run,
    streams,
    values,
)

PAGE = Path(__file__).with_name("api.md")


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
    "Clients of the service": [(alphafair_client, ["Client", "AsyncClient", "ServiceError"])],
    "Errors": [(errors, ["InvalidArgument", *names_of(errors)])],
    "Checks and pictures": [(checks, names_of(checks)), (figures, names_of(figures))],
    "Policies of your own": [
        (alphafair.extend, ["PlainPolicy", "Array", "Number", "Accounts"]),
        (alphafair.extend, ["Algorithm", "Layout", "Memory", "positions"]),
        (alphafair.extend, ["kernel", "compiled", "repeated"]),
        (alphafair.extend, ["draw_arm", "draw_from", "mask_distribution"]),
    ],
}
METHODS = (
    "probabilities",
    "choose",
    "update",
    "expect",
    "forgo",
    "grow",
    "retire",
    "set_alpha",
    "snapshot",
    "restore",
    "fresh",
)


def page() -> str:
    """The whole page."""
    parts = [
        "# Every name\n",
        "Made from the docstrings by `python docs/make_api.py`. Names without a module are in `alphafair` itself, the "
        f"others in the module before them. Version {alphafair.__version__}.\n",
    ]
    for title, modules in SECTIONS.items():
        parts.append(f"## {title}\n")
        parts += [entry(qualified(module, name), getattr(module, name)) for module, names in modules for name in names]
    return "\n".join(parts)


def qualified(module: ModuleType, name: str) -> str:
    """A name as users of `alphafair` write it."""
    here = getattr(alphafair, name, None) is getattr(module, name)
    return name if here else f"{module.__name__.removeprefix('alphafair.')}.{name}"


def entry(name: str, thing: Any) -> str:
    """How a class or function is called, what its docstring says, a class's methods; of a collection its members."""
    if not callable(thing):
        return f"### `{name}`\n\n{', '.join(f'`{member!r}`' for member in thing)}\n"
    text = f"### `{name}`\n\n```python\n{name}{signature(thing)}\n```\n\n{rendered(inspect.getdoc(thing) or '')}\n"
    if thing is algorithms.BasePolicy or (inspect.isclass(thing) and not issubclass(thing, algorithms.BasePolicy)):
        names = METHODS if thing is algorithms.BasePolicy else [key for key in vars(thing) if not key.startswith("_")]
        for key in names:
            method = inspect.getattr_static(thing, key, None)
            method = getattr(method, "__func__", method)
            if inspect.isfunction(method) and inspect.getdoc(method):
                text += f"\n- **`{key}{signature(method)}`** {first_paragraph(method)}\n"
            elif isinstance(method, property) and inspect.getdoc(method):
                text += f"\n- **`{key}`** {first_paragraph(method)}\n"
    return text


def signature(thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [parameter for parameter in found.parameters.values() if parameter.name != "self"]
    plain = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    return re.sub(r"<(?:[^<>]|<[^<>]*>)*>", "...", str(found.replace(parameters=plain, return_annotation=found.empty)))


def first_paragraph(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def rendered(docstring: str) -> str:
    """A docstring as Markdown: headings in bold, parameters as a list, examples fenced."""
    lines = docstring.splitlines()
    out: list[str] = []
    in_parameters = in_code = False
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if set(line) == {"-"} and len(line) > 2:
            continue
        if set(after) == {"-"} and len(after) > 2:
            in_parameters = line == "Parameters"
            out.append(f"**{line}**\n")
            continue
        is_code = line.startswith(">>> ") or (in_code and bool(line.strip()))
        if is_code != in_code:
            out.append("```" if in_code else "```pycon")
            in_code = is_code
        if in_parameters and not in_code and line and not line.startswith(" "):
            in_parameters = after.startswith("    ")  # a paragraph below the parameters is none of them
            out.append(f"- `{line}`:" if in_parameters else line)
        else:
            out.append(line if in_code or not in_parameters else line.replace("    ", "  ", 1))
    return "\n".join([*out, "```"] if in_code else out)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{len(page()):,} characters  {PAGE}")
