"""One group of events: written together, then folded into the policies."""

from __future__ import annotations

import numpy as np

from alphafair.drive import Steps, follow
from alphafair.engine.events import Activated, Decided, Event, Late, Settled
from alphafair.engine.experiment import Experiment
from alphafair.engine.requests import Known
from alphafair.kernels.loops import EXPECT, FORGO, LEARN

STEP_OF = {"client": LEARN, "default": LEARN, "expired": FORGO}


class Fold:
    """Events after `start`, and what each of them teaches."""

    def __init__(self, start: int, at: int) -> None:
        self.start = self.last = start
        self.at = at
        self.events: list[Event] = []
        self._steps: dict[int, list[tuple[int, Known, Settled | None]]] = {}
        self._experiments: dict[int, Experiment] = {}

    def next(self) -> int:
        self.last += 1
        return self.last

    def _add(self, step: int, known: Known, settled: Settled | None = None) -> None:
        key = known.experiment.key
        self._experiments[key] = known.experiment
        self._steps.setdefault(key, []).append((step, known, settled))

    def _append(self, event: Event, known: Known) -> None:
        self.events.append(event)
        known.experiment.unsaved += 1

    def decided(self, event: Decided, known: Known) -> None:
        self._append(event, known)
        tally = known.experiment.tally
        tally.decisions += 1
        tally.pending += 1
        tally.pulls[known.arm] += 1
        if known.active:
            self._add(EXPECT, known)

    def activated(self, event: Activated, known: Known) -> None:
        self._append(event, known)
        self._add(EXPECT, known)

    def settled(self, event: Settled, known: Known) -> None:
        self._append(event, known)
        known.settled = (event.reward, event.source, event.rewards)
        tally = known.experiment.tally
        tally.pending -= 1
        if event.source == "client":
            tally.rewards += 1
        elif event.source != "rollback":
            tally.expired += 1
        if event.source in STEP_OF:
            self._add(STEP_OF[event.source], known, event)

    def late(self, known: Known, reward: float | None, rewards: bytes | None) -> None:
        """Write down the first reward that came too late; more of them say nothing new."""
        if known.settled is not None and known.settled[1] != "late":
            self._append(Late(self.next(), known.seq, reward, rewards, self.at), known)
            known.settled = (known.settled[0], "late", known.settled[2])

    def apply(self) -> None:
        """Teach the policies what was written."""
        for key, steps in self._steps.items():
            experiment = self._experiments[key]
            settled = [event for _, _, event in steps]
            full = {
                t: (np.frombuffer(known.probabilities or b"", dtype="<f8"), experiment.stored_rewards(event.rewards))
                for t, (_, known, event) in enumerate(steps)
                if event is not None and event.rewards is not None
            }
            rewards = np.array([0.0 if event is None else event.reward or 0.0 for event in settled])
            follow(
                experiment.policy,
                Steps(
                    np.array([step for step, _, _ in steps], dtype=np.int8),
                    np.array([known.context for _, known, _ in steps], dtype=np.int32),
                    np.array([known.arm for _, known, _ in steps], dtype=np.int32),
                    np.array([known.propensity for _, known, _ in steps]),
                    experiment.to_unit(rewards),
                    full=full,
                ),
            )
