"""Sentences that the page says before something is sent, and the documentation too; see `keys.ROLES` for the roles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from alphafair.engine import Status
from alphafair.engine.changes import CHANGES
from alphafair.engine.jobs import WhatIfJob
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


# evaluations

A_SHARE: Final = "A share of 5% will tell."
NO_PROPENSITIES: Final = (  # nothing that divides by them can be computed
    "No propensities were sent with these decisions, so what another policy would have earned cannot be said; its "
    f"learning has begun. {A_SHARE}"
)


def evaluated(found: Mapping[str, Any], job: WhatIfJob) -> str:
    """Return what a price of fairness was computed from, and what it cannot say."""
    if found["curve"] is None:
        return NO_PROPENSITIES
    used, without = found["curve"]["rounds"], found["without"]
    latest = "" if used + without >= job.rewards else "latest "
    whose = "of this experiment" if job.source is None else f"of {job.source}"
    sentence = f"From the {latest}{used:,} rewarded decisions {whose}."
    if without:
        sentence += f" {without:,} others came without propensities, and are left out."
    if job.source is not None and found["curve"]["verdict"] == "do not use":
        sentence += f" {A_SHARE}"
    return sentence


# contexts

ROUNDING: Final = 1e-6  # of tenths
AS_COUNTED: Final = "Counted since it was made: the least reward as 0, the largest as 1."
A_TARGET: Final = "Nothing is proved with bandit feedback; it is kept where the best arm of a context can be learned."


def promised(status: Status) -> str:
    """Return what every context is promised, and what is missing; the bound is rounded up."""
    share, debt, bound = status.context_share, status.largest_context_debt or 0.0, status.context_share_bound
    missing = f"the largest debt now is {debt:,.1f}" if debt > 0.0 else "no context has a debt now"
    if bound is not None:
        most = math.ceil(10.0 * bound - ROUNDING) / 10.0
        return f"Every context gets {100.0 * share:.3g}% of its best, but for at most {most:,.1f} rewards; {missing}."
    return (
        f"Every context should get {100.0 * share:.3g}% of its best. This is a target: what the best arm would have "
        f"earned is predicted. By predictions {missing}."
    )
