"""`alphafair check`: run the conformance checks on your own policy."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from alphafair.errors import InvalidArgument

if TYPE_CHECKING:
    from rich.console import Console

    from alphafair.checks import CheckResult

EXAMPLE = "Pass, for example, my_policies:MyPolicy."


def command(
    policy: Annotated[
        str, typer.Argument(metavar="PACKAGE:POLICY", help="Module and class, such as my_policies:MyPolicy.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting for the constructor; repeat for several."),
    ] = None,
) -> None:
    """Run the conformance checks on your own policy.

    The class is imported from the current folder or the installed packages. Exit code 0: all checks passed; 1: some
    failed; 2: the class was not found or cannot be constructed.
    """
    kind = find_policy(policy)
    wanted = read_settings(kind, settings or [])
    make(kind, 3, 4, wanted)  # fail early for a missing or invalid setting

    from rich.console import Console

    from alphafair.checks import run_checks

    console = Console(highlight=False, markup=False)
    console.print(f"Checking {policy}\n")
    results = []
    with console.status("") as status:
        for result in run_checks(kind, wanted, on_start=lambda name: status.update(f"{_words(name)} ...")):
            results.append(result)
            _print(console, result)
    failed = sum(not result.passed for result in results)
    skipped = sum(_does_not_apply(result) for result in results)
    seconds = sum(result.seconds for result in results)
    passed = len(results) - failed - skipped
    console.print(f"\n{passed} passed, {failed} failed, {skipped} did not apply; {seconds:.1f} s")
    if failed:
        raise typer.Exit(1)


def find_policy(spec: str) -> type[Any]:
    """Import the class `package.module:Class`, also from the current folder."""

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module_name, colon, class_name = spec.partition(":")
    if not (module_name and colon and class_name):
        raise InvalidArgument("PACKAGE:POLICY", "MODULE:CLASS", spec, EXAMPLE)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module_name}.".startswith(f"{problem.name}."):
            repair = f"Install {problem.name}, which it imports."
            raise InvalidArgument("PACKAGE", "a module that can be imported", module_name, repair) from None
        repair = f"Run this in the folder that holds {problem.name}, or install it."
        raise InvalidArgument("PACKAGE", "a module that can be found", module_name, repair) from None
    except Exception as problem:  # report any exception of the user's module in one line
        repair = f"{_raised(problem)}."
        raise InvalidArgument("PACKAGE", "a module that can be imported", module_name, repair) from None
    kind = getattr(module, class_name, None)
    if kind is None:
        found = {name: getattr(module, name, None) for name in dir(module)}
        policies = [name for name, value in found.items() if inspect.isclass(value) and not _missing(value)]
        repair = f"Its policies: {', '.join(policies)}." if policies else "It has no class that is a policy."
        raise InvalidArgument("POLICY", f"a class in {module_name}", class_name, repair)
    if not inspect.isclass(kind):
        raise InvalidArgument("POLICY", "a class", kind, "Name the class itself, not what it makes.")
    if missing := _missing(kind):
        lacking = f"It lacks {', '.join(missing)}"
        repair = f"{lacking}: derive from alphafair.Policy, which has some of them, and write the rest."
        raise InvalidArgument("POLICY", "a policy", class_name, repair)
    return kind


def _missing(kind: type[Any]) -> list[str]:
    """Return the members of the protocol that a class lacks; sizes and feedback may be set on instances."""
    from alphafair.values import Policy

    methods = [name for name, value in vars(Policy).items() if inspect.isfunction(value) and not name.startswith("_")]
    settings = ["name", "traits", "surrogate_regret_bound"]
    return [name for name in methods if not callable(getattr(kind, name, None))] + [
        name for name in settings if not hasattr(kind, name)
    ]


def _raised(problem: Exception) -> str:
    """Describe an exception of the user's code, with its line."""
    text = f"It raised {type(problem).__name__}: {problem}"
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if "importlib" not in frame.filename]
    if isinstance(problem, SyntaxError) or not frames:  # the message of a syntax error has the line
        return text
    return f"{text} ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})"


def read_settings(kind: type[Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Parse KEY=VALUE; values are Python literals, or else strings."""
    from alphafair import validate

    parameters = inspect.signature(kind).parameters
    known = [name for name in parameters if name not in ("n_contexts", "n_arms", "seed")]
    settings: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not (key and equals):
            raise InvalidArgument("--set", "KEY=VALUE", assignment, "Pass, for example, --set alpha=0.5.")
        validate.choice("--set KEY", key, known)
        try:
            settings[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            settings[key] = value
    return settings


def make(kind: type[Any], n_contexts: int, n_arms: int, settings: dict[str, Any]) -> Any:
    """Construct a policy; a missing or invalid setting raises an InvalidArgument."""

    for name, parameter in inspect.signature(kind).parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        given = name in ("n_contexts", "n_arms", "seed") or name in settings
        if parameter.default is parameter.empty and not variadic and not given:
            allowed = f"set for {name}, which {kind.__name__} requires"
            raise InvalidArgument("--set", allowed, settings, f"Add --set {name}=VALUE.")
    try:
        return kind(n_contexts, n_arms, **settings, seed=0)
    except InvalidArgument:
        raise
    except Exception as problem:  # report any exception of the user's constructor in one line
        allowed = "a class with the constructor Policy(n_contexts, n_arms, seed=...)"
        raise InvalidArgument("POLICY", allowed, kind.__name__, f"{_raised(problem)}.") from None


def _does_not_apply(result: CheckResult) -> bool:
    return result.passed and result.message.startswith("does not apply")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _print(console: Console, result: CheckResult) -> None:
    """Print one line per check, and the message below it."""
    from rich.padding import Padding
    from rich.text import Text

    mark, color = ("pass", "green") if result.passed else ("FAIL", "bold red")
    if _does_not_apply(result):
        mark, color = "skip", "dim"
    line = Text.assemble((mark, color), f"  {_words(result.name):<36}", (f"{result.seconds:7.2f} s", "dim"))
    console.print(line)
    if result.message:
        console.print(Padding(Text(result.message, style="dim" if result.passed else ""), (0, 0, 0, 6)))
