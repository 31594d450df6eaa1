"""Decisions that were made, by their id: the latest ones in memory, all others read from the disk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from alphafair.engine.experiment import Experiment, is_label
from alphafair.engine.ledger import Ledger
from alphafair.errors import RequestError

RECENT = 10_000  # decisions remembered, twice as many for a while, so that their rewards need not be looked up
FIND = """select d.id, d.seq, d.experiment, d.context, c.label, d.arm, d.propensity,
    d.deferred = 0 or a.seq is not null, ifnull(a.at, d.at), d.probabilities, r.seq is not null, r.reward,
    r.source, r.rewards, l.seq is not null from decision d
    left join activation a on a.decision = d.seq left join reward r on r.decision = d.seq
    left join late_reward l on l.decision = d.seq
    left join context c on c.experiment = d.experiment and c.number = d.context
    where d.id in (select value from json_each(?))"""


class Known:
    """A decision that is on the disk, or will be once its group is: what its reward needs."""

    __slots__ = (
        "active",
        "arm",
        "context",
        "experiment",
        "label",
        "late",
        "probabilities",
        "propensity",
        "seq",
        "settled",
        "since",
    )

    def __init__(
        self,
        seq: int,
        experiment: Experiment,
        context: int,
        label: str | None,
        arm: int,
        propensity: float,
        active: bool,
        since: int,
        probabilities: bytes | None,
        settled: tuple[float | None, str, bytes | None] | None,
        late: bool = False,
    ) -> None:
        self.seq, self.experiment, self.context, self.label = seq, experiment, context, label
        self.arm, self.propensity, self.active, self.since = arm, propensity, active, since
        self.probabilities, self.settled = probabilities, settled
        self.late = late  # a reward came when it was settled without one


class KnownDecisions:
    """Finds decisions; what is in it is on the disk, or will be once its group is."""

    def __init__(self, ledger: Ledger, experiments: Mapping[int, Experiment]) -> None:
        self._ledger, self._experiments = ledger, experiments
        self.forget()

    def forget(self) -> None:
        """What the disk says may have changed."""
        self.recent: dict[str, Known] = {}
        self._older: dict[str, Known] = {}
        self.absent: set[str] = set()  # sound ids that nobody had used before this group

    def begin_group(self, ids: Iterable[Any]) -> None:
        """Read all that a group asks for with one question. Only here is anything dropped: a group finds its own."""
        if len(self.recent) > RECENT:
            self.recent, self._older = {}, self.recent
        self.absent = set()
        self._look_up(ids)

    def cached(self, id: str) -> Known | None:
        """A decision that is in memory."""
        return self.recent.get(id) or self._older.get(id)

    def find(self, id: Any) -> Known | None:
        if not isinstance(id, str):
            raise RequestError("bad_request", "id", "the id of a decision", id, "Pass receipt.id.")
        known = self.recent.get(id) or self._older.get(id)
        if known is None and id not in self.absent:
            self._look_up([id])
            known = self.recent.get(id)
        return known

    def _look_up(self, ids: Iterable[Any]) -> None:
        recent, older = self.recent, self._older
        asked = [id for id in ids if isinstance(id, str) and not (id in recent or id in older) and is_label(id)]
        for row in self._ledger.rows(FIND, (json.dumps(asked),)) if asked else ():
            id, seq, key, context, label, arm, propensity, active, since, used, is_settled, *settled, late = row
            first = tuple(settled) if is_settled else None
            experiment = self._experiments[key]
            about = (seq, experiment, context, label, arm, propensity, bool(active), since, used)
            recent[id] = Known(*about, first, bool(late))
        self.absent.update(id for id in asked if id not in recent)
