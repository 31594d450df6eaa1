"""The table of policies: the classes of `alphafair.algorithms`, their feedback, the first lines of their docstrings."""

from __future__ import annotations

from alphafair.algorithms import CLASSES


def table() -> str:
    """One row per policy, in the order of `alphafair.algorithms`."""
    rows = ["| policy | feedback | what it does |", "|---|---|---|"]
    for name, kind in CLASSES.items():
        feedback = "either" if kind.traits.feedbacks else kind.feedback
        what = (kind.__doc__ or "").splitlines()[0]
        rows.append(f"| `{name}` | {feedback} | {what} |")
    return "\n".join(rows)
