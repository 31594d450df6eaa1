"""Counts of an experiment: decisions, rewards, and what every arm has earned."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from alphafair.engine.state.steps import CLIENT, DECIDED, DEFAULT, DEFERRED, N_KINDS, PAID_PARTLY, Steps
from alphafair.engine.store.ledger import SOURCES

COUNTERS = ("rewards", "defaulted", "expired", "lapsed", "rolled_back")  # in the order of SOURCES


@dataclass(eq=False)
class Tally:
    """Counts of the policy's own decisions, saved with every snapshot because counting again would take long."""

    decisions: int = 0
    slates: int = 0  # decisions of several arms, among them
    rewards: int = 0  # sent by clients
    defaulted: int = 0  # decisions that got the default reward when their waiting time ended
    expired: int = 0  # decisions closed without a reward when it ended
    lapsed: int = 0  # deferred decisions that were not activated before it ended
    rolled_back: int = 0  # decisions closed by a rollback
    pending: int = 0  # decisions that wait for their reward, or to be activated
    settled_to: int = 0  # the position from which the search for overdue decisions continues
    sources: list[str] = field(default_factory=list)  # who else decided, in the order of first appearance
    pulls: Any = ()  # by arm; an array
    earned: Any = ()  # by arm: client and default rewards, added in their order; an array

    def __post_init__(self) -> None:
        self.pulls, self.earned = np.array(self.pulls, dtype=np.int64), np.array(self.earned, dtype=np.float64)

    def add_arms(self, n_arms: int) -> None:
        """Count for at least `n_arms` arms."""
        self.pulls = np.append(self.pulls, np.zeros(max(0, n_arms - len(self.pulls)), dtype=np.int64))
        self.earned = np.append(self.earned, np.zeros(max(0, n_arms - len(self.earned))))

    def with_own_numbers(self, steps: Steps, sources: Sequence[str]) -> Steps:
        """Number who decided in the order of first appearance; in `steps` it is the place in `sources`, from 1 on."""
        if not steps.decided_by.any():
            return steps
        of_all, first = np.unique(steps.decided_by, return_index=True)
        numbers = np.zeros(len(sources) + 1, dtype=np.int8)
        for number in of_all[np.argsort(first)].tolist():
            if number > 0:
                source = sources[number - 1]
                if source not in self.sources:
                    self.sources.append(source)
                numbers[number] = self.sources.index(source) + 1
        return replace(steps, decided_by=numbers[steps.decided_by])

    def count(self, steps: Steps) -> None:
        """Count steps. Rewards are added one after the other, so the sums do not depend on the size of commits."""
        steps = steps.own
        n_kinds = np.bincount(steps.kind, minlength=N_KINDS).tolist()
        n_decided = n_kinds[DECIDED] + n_kinds[DEFERRED]
        self.decisions += n_decided
        self.pending += n_decided - sum(n_kinds[: len(SOURCES)])
        for counter, n in zip(COUNTERS, n_kinds, strict=False):
            if n:
                setattr(self, counter, getattr(self, counter) + n)
        if n_decided:
            np.add.at(self.pulls, steps.shown, 1)
        if n_kinds[CLIENT] or n_kinds[DEFAULT] or n_kinds[PAID_PARTLY]:
            np.add.at(self.earned, *steps.paid)
        if steps.slates:
            decided = (steps.kind == DECIDED) | (steps.kind == DEFERRED)
            self.slates += int(np.count_nonzero(decided[steps.of_slates]))

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "pulls": self.pulls.tolist(), "earned": self.earned.tolist()}

    def to_json(self) -> str:
        return json.dumps(self.to_dict())
