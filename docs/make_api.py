"""Write docs/api.md from the docstrings: `python docs/make_api.py`.

tests/test_docs.py makes it again, and fails while docs/api.md holds something else.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import alphafair
from alphafair import (
    checks,
    contexts,
    drive,
    engine,
    figures,
    metrics,
    offline,
    policies,
    rewards,
    simulation,
    streams,
    types,
    validate,
)
from alphafair.service import client

PAGE = Path(__file__).with_name("api.md")
OF_METRICS = [value for value in vars(metrics).values() if getattr(value, "__module__", "") == metrics.__name__]
SECTIONS: dict[str, tuple[str, list[Any]]] = {
    "Policies": ("", [*policies.POLICIES.values(), policies.load_policy, policies.register]),
    "What all policies share": ("", [policies.BasePolicy, types.Policy]),
    "Values": (
        "",
        [
            types.Decision,
            types.DescribedDecision,
            types.Feedback,
            types.State,
            types.Stream,
            types.Log,
            types.Trace,
            types.Adversary,
        ],
    ),
    "Running": ("", [simulation.simulate, simulation.simulate_against, drive.over_log, drive.over_full_log]),
    "Hindsight": ("", [offline.offline_optimum, offline.offline_curve, offline.context_reward_totals]),
    "Metrics": ("metrics.", OF_METRICS),
    "Streams": ("streams.", [getattr(streams, name) for name in streams.__all__ if name != "Log"]),
    "Contexts from features": ("contexts.", [contexts.cluster, contexts.Clusters]),
    "The engine": ("", [engine.Engine]),
    "What an engine is asked, and answers": (
        "engine.",
        [engine.Status, engine.restore, engine.Decide, engine.Reward, engine.Activate, engine.Receipt, engine.Outcome],
    ),
    "Clients of the service": ("", [client.Client, client.AsyncClient, client.Drawn, client.ServiceError]),
    "Rewards, errors": ("", [rewards.rescale_rewards, validate.Refusal]),
    "Errors of the engine": ("engine.", [engine.Refused, engine.Unavailable, engine.Mismatch]),
    "Checks and pictures": ("", [checks.run_checks, figures.overview, figures.save]),
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
        "Made from the docstrings by `python docs/make_api.py`. Names without a module are in `alphafair` itself or in "
        f"the module beside them. Version {alphafair.__version__}.\n",
    ]
    for title, (prefix, things) in SECTIONS.items():
        parts.append(f"## {title}\n")
        public = [thing for thing in things if not getattr(thing, "__name__", "_").startswith("_")]
        parts += [entry(thing, prefix) for thing in public]
    return "\n".join(parts)


def entry(thing: Any, prefix: str) -> str:
    """One class or function: its name, how it is called, what its docstring says; and a class's own public methods."""
    name = f"{prefix}{thing.__name__}"
    text = f"### `{name}`\n\n```python\n{name}{signature(thing)}\n```\n\n{rendered(thing)}\n"
    if thing in (policies.BasePolicy, types.Stream, types.State, contexts.Clusters, engine.Engine, client.Client):
        names = METHODS if thing is policies.BasePolicy else [key for key in vars(thing) if not key.startswith("_")]
        for key in names:
            method = inspect.getattr_static(thing, key, None)
            method = getattr(method, "__func__", method)
            if inspect.isfunction(method) and inspect.getdoc(method):
                text += f"\n- **`{key}{signature(method)}`** {first_paragraph(method)}\n"
    return text


def signature(thing: Any) -> str:
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    parameters = [parameter for parameter in found.parameters.values() if parameter.name != "self"]
    plain = [parameter.replace(annotation=parameter.empty) for parameter in parameters]
    return re.sub(r"<[^<>]*>", "...", str(found.replace(parameters=plain, return_annotation=found.empty)))


def first_paragraph(thing: Any) -> str:
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def rendered(thing: Any) -> str:
    """A docstring as Markdown: headings in bold, parameters as a list, examples fenced."""
    lines = (inspect.getdoc(thing) or "").splitlines()
    out: list[str] = []
    section, in_code = "", False
    for number, line in enumerate(lines):
        after = lines[number + 1] if number + 1 < len(lines) else ""
        if set(line) == {"-"} and len(line) > 2:
            continue
        if set(after) == {"-"} and len(after) > 2:
            section = line
            out += [f"**{line}**", ""]
            continue
        is_code = line.startswith((">>> ", "... ")) or (in_code and bool(line.strip()))
        if is_code != in_code:
            out.append("```" if in_code else "```pycon")
            in_code = is_code
        if section == "Parameters" and line and not line.startswith(" "):
            out.append(f"- `{line}`:")
        else:
            out.append(line if in_code or section != "Parameters" else line.replace("    ", "  ", 1))
    return "\n".join([*out, "```"] if in_code else out)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{len(page()):,} characters  {PAGE}")
