"""The directive `{generated} WHAT`: a part of a page that is written from the code or from results, as Markdown."""

from __future__ import annotations

from collections.abc import Callable

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from alphafair.engine.store.dialect import SQLITE
from alphafair.service.page.sentences import SIGNING_OUT
from tools.site import (
    arena,
    benchmarks,
    commands,
    errors,
    metrics,
    names,
    notions,
    outside,
    policies,
    routes,
    snapshots,
)

PARTS: dict[str, Callable[[str], str]] = {  # by the first word: what the others make of it
    "arena": lambda what: arena.block(arena.results(), what),
    "benchmarks": lambda _: benchmarks.tables(),
    "commands": lambda _: commands.help_pages(),
    "errors": lambda _: errors.table(),
    "fields": lambda _: routes.fields_table(),
    "file": outside.page,
    "guarantees": lambda _: routes.guarantees_table(),
    "help": commands.help_of,
    "metrics": lambda _: metrics.table(),
    "names": lambda _: names.index(),
    "notions": notions.block,
    "output": commands.output_of,
    "policies": lambda _: policies.table(),
    "schema": lambda _: f"```sql\n{SQLITE.schema}```\n",
    "roles": lambda _: routes.roles_table(),
    "routes": lambda _: routes.routes(),
    "signing-out": lambda _: SIGNING_OUT,
    "snapshots": snapshots.block,
}


def markdown(what: str) -> str:
    """The text that stands for `{generated} WHAT`; the first word chooses, and the others say more."""
    first, _, rest = what.partition(" ")
    if first not in PARTS:
        raise ValueError(f"there is no generated part {first!r}; there are {', '.join(sorted(PARTS))}")
    return PARTS[first](rest)


class Generated(SphinxDirective):
    """Put a generated part where the directive stands."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        try:
            text = markdown(self.arguments[0])
        except ValueError as problem:
            raise self.error(str(problem)) from None
        self.env.note_dependency(self.config.code_stamp)
        found = nodes.Element()
        found.document = self.state.document
        self.state.nested_parse(StringList(text.splitlines(), source="generated"), self.content_offset, found, True)
        return found.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("generated", Generated)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
