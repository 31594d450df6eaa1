"""The documentation site: `make docs` builds it in docs/_build/html. What is made for it is in tools/site."""

from __future__ import annotations

import sys
from pathlib import Path

import alphafair

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # for tools

project = "alphafair"
author = "the alphafair developers"
copyright = author
version = release = alphafair.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "tools.site.changes",
    "tools.site.formulas",
    "tools.site.generated",
    "tools.site.names",
    "tools.site.outside",
    "tools.site.pictures",
]
exclude_patterns = ["_build", "gallery", "examples/*.ipynb"]
suppress_warnings = ["misc.highlighting_failure"]  # words in braces in our SQL

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 120

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "abort_on_example_error": True,
    "within_subsection_order": "tools.site.gallery.Order",
    "capture_repr": (),
    "image_srcset": ["2x"],
    "min_reported_time": 60,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,  # its pages load scripts from other hosts
}

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = {"ArrayLike": "ArrayLike"}
autodoc_typehints = "description"
default_role = "code"
napoleon_google_docstring = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "alphafair"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}  # else the theme reports an error on the console
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "footer_end": [],
    "footer_start": ["copyright"],
    "logo": {"text": "alphafair"},
    "navbar_end": ["theme-switcher"],
    "show_prev_next": False,
}
