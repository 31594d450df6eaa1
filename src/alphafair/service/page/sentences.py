"""Sentences that the page says before something is sent, and the documentation too; see `keys.ROLES` for the roles."""

from __future__ import annotations

from typing import Final

from alphafair.engine.changes import CHANGES
from alphafair.engine.terms import TERMS
from alphafair.service.keys import ROLES

SIGNING_OUT: Final = (
    "Signing out ends the sessions of every browser that has signed in with the same key: at once in the process that "
    "is asked, and within a second in the others. The key stays valid."
)
GUARANTEES: Final = {  # by what is changed: what holds afterwards
    **{kind: row.guarantee for kind, row in CHANGES.items() if row.guarantee is not None},
    **{name: term.guarantee for name, term in TERMS.items()},
    "key": "Unchanged.",
}


def embedded() -> dict[str, object]:
    """What the HTML of every view has of this."""
    roles = {role: row.may for role, row in ROLES.items()}
    return {"roles": roles, "guarantees": GUARANTEES, "signing_out": SIGNING_OUT}
