"""Paste the table of policies into README.md: `python docs/paste_policies.py`.

Every row is a class of `alphafair.algorithms`: its name, its feedback and the first line of its docstring.
tests/project/test_docs.py runs this too, and fails while the page says something else than the classes.
"""

from __future__ import annotations

import re
from pathlib import Path

from alphafair.algorithms import CLASSES

PAGE = Path(__file__).parents[1] / "README.md"
TABLE = re.compile(r"(?<=<!-- paste: policies -->\n).*?(?=\n\n)", re.DOTALL)


def table() -> str:
    """One row per policy, in the order of `alphafair.algorithms`."""
    rows = ["| policy | feedback | what it does |", "|---|---|---|"]
    for name, kind in CLASSES.items():
        feedback = "either" if kind.traits.feedbacks else kind.feedback
        what = (kind.__doc__ or "").splitlines()[0]
        rows.append(f"| `{name}` | {feedback} | {what} |")
    return "\n".join(rows)


def refreshed(page: str) -> str:
    """The page with the table as the classes say now."""
    return TABLE.sub(lambda _: table(), page)


if __name__ == "__main__":
    PAGE.write_text(refreshed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
