"""Who changed an experiment, when, and how."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from alphafair.engine.experiment import Experiment
from alphafair.engine.ledger import Ledger

INTERNAL = ("code", "tally")  # of no use to a reader


class ChangeRecord(NamedTuple):
    """One change: `position` is its place in the log, `by` who made it (None: not recorded)."""

    position: int
    at: datetime
    kind: str
    by: str | None
    details: dict[str, Any]


def of(ledger: Ledger, experiment: Experiment) -> list[ChangeRecord]:
    """All changes of an experiment, oldest first; arms by their labels."""
    rows = ledger.rows(
        "select seq, at, kind, by, body from change where experiment = ? order by seq", (experiment.key,)
    )
    return [
        ChangeRecord(seq, datetime.fromtimestamp(at / 1e6, UTC), kind, by, _details(experiment, json.loads(body)))
        for seq, at, kind, by, body in rows
    ]


def _details(experiment: Experiment, body: dict[str, Any]) -> dict[str, Any]:
    details = {key: value for key, value in body.items() if key not in INTERNAL}
    if isinstance(details.get("arm"), int):
        details["arm"] = experiment.arms[details["arm"]]
    return details
