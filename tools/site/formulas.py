"""Formulas drawn by KaTeX in the browser, which comes with the site and is loaded by pages that have formulas."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

SCRIPTS = ("katex/katex.min.js", "formulas.js")


def inline(self: Any, node: nodes.math) -> None:
    self.body.append(self.starttag(node, "span", "", CLASS="math") + self.encode(node.astext()) + "</span>")
    raise nodes.SkipNode


def block(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", "", CLASS="math") + self.encode(node.astext()) + "</div>\n")
    raise nodes.SkipNode


def add_scripts(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: nodes.document | None) -> None:
    if tree is not None and next(tree.findall(lambda node: isinstance(node, nodes.math | nodes.math_block)), None):
        app.add_css_file("katex/katex.min.css")
        for script in SCRIPTS:
            app.add_js_file(script, defer="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("katex", (inline, None), (block, None))
    app.config.html_math_renderer = "katex"
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
