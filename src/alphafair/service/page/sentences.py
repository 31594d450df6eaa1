"""Sentences that the page says before something is sent, and the documentation too; see `keys.ROLES` for the roles."""

from __future__ import annotations

from typing import Final

from alphafair.service.keys import ROLES

SIGNING_OUT: Final = (
    "Signing out ends the sessions of every browser that has signed in with the same key: at once in the process that "
    "is asked, and within a second in the others. The key stays valid."
)
GUARANTEES: Final = {  # by kind of change: what holds afterwards
    "add_arm": "A new epoch starts from the present accounts. The arm enters with the least account, so that it "
    "catches up without a claim to the past.",
    "retire_arm": "A new epoch starts from the present accounts of the arms that stay.",
    "mask_arm": "Under full information certificates include masked rounds. Under bandit feedback the theorem holds "
    "for rounds without masks.",
    "unmask_arm": "Unchanged from here on: rounds without masks are covered again.",
    "set_alpha": "It starts again from the present accounts: certificates cover only rounds after the change. What was "
    "learned about rewards stays.",
    "new_period": "That of the new period alone, starting from the accounts that are carried over.",
    "set_period": "Unchanged until the next boundary; then that of each period alone, starting from the accounts that "
    "are carried over.",
    "pause": "Unchanged: rounds that do not happen do not count.",
    "resume": "Unchanged.",
    "rollback": "That of the target position. Rewards since then were paid to arms but no longer count.",
    "erase": "Unchanged: what was learned stays.",
    "key": "Unchanged.",
}


def embedded() -> dict[str, object]:
    """What the HTML of every view has of this."""
    roles = {role: row.may for role, row in ROLES.items()}
    return {"roles": roles, "guarantees": GUARANTEES, "signing_out": SIGNING_OUT}
