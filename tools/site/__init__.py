"""What the documentation site is made with: extensions of Sphinx, and the parts of pages that programs write."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
DATA = DOCS / "background" / "data"  # results of runs that take long
