"""One group of events: written together, then folded into the policies."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from alphafair.engine.events import TABLES, Activated, Change, Decided, Event, Late, Settled
from alphafair.engine.experiment import Experiment
from alphafair.engine.follow import Steps, follow
from alphafair.engine.known import Known
from alphafair.policy.loops import EXPECT, FORGO, LEARN
from alphafair.values import Vector

STEP_OF = {"client": LEARN, "default": LEARN, "expired": FORGO}  # by source; the others teach nothing


class Lessons:
    """What a group has for one experiment: counts, and steps for its policy."""

    def __init__(self) -> None:
        self.drawn: list[int] = []  # arms
        self.sources: list[str] = []  # of what was settled
        self.n_events = 0
        self.steps: list[tuple[int, int, int, float, float]] = []  # each with context, arm, propensity, reward
        self.full: dict[int, tuple[Vector, Vector]] = {}  # distribution and rewards, by the number of the step

    def log(self, experiment: Experiment) -> Steps:
        """The steps as a policy is taught them."""
        steps, contexts, arms, propensities, rewards = zip(*self.steps, strict=True)
        return Steps(
            np.array(steps, dtype=np.int8),
            np.array(contexts, dtype=np.int32),
            np.array(arms, dtype=np.int32),
            np.array(propensities),
            experiment.to_unit(np.array(rewards)),
            full={t: (used, experiment.to_unit(values)) for t, (used, values) in self.full.items()},
        )


class Fold:
    """Events after `start`, by their tables, and what they teach."""

    def __init__(self, start: int, at: int) -> None:
        self.start = self.last = start
        self.at = at
        self.rows: dict[type, list[Any]] = {kind: [] for kind in TABLES}  # tuples with the fields of their kind
        self.delays: list[float] = []  # seconds from decisions to rewards that were sent
        self._lessons: dict[Experiment, Lessons] = {}

    def next(self) -> int:
        self.last += 1
        return self.last

    def add(self, event: Event) -> None:
        self.rows[type(event)].append(event)

    def _of(self, experiment: Experiment) -> Lessons:
        lessons = self._lessons.get(experiment)
        if lessons is None:
            lessons = self._lessons[experiment] = Lessons()
        lessons.n_events += 1
        return lessons

    def changed(self, experiment: Experiment, change: Change) -> None:
        self.rows[Change].append(change)
        self._of(experiment)

    def decided(self, row: tuple[Any, ...], known: Known) -> None:
        """`row` has the fields of `Decided`."""
        self.rows[Decided].append(row)
        lessons, arm = self._of(known.experiment), known.arm
        lessons.drawn.append(arm)
        if known.active:
            lessons.steps.append((EXPECT, known.context, arm, known.propensity, 0.0))

    def activated(self, known: Known) -> None:
        known.active, known.since = True, self.at
        self.rows[Activated].append((self.next(), known.seq, self.at))
        self._of(known.experiment).steps.append((EXPECT, known.context, known.arm, known.propensity, 0.0))

    def settled(self, known: Known, reward: float | None, source: str, rewards: bytes | None = None) -> None:
        known.settled = (reward, source, rewards)
        self.last = seq = self.last + 1
        self.rows[Settled].append((seq, known.seq, reward, source, rewards, self.at))
        lessons = self._of(known.experiment)
        lessons.sources.append(source)
        if rewards is not None:
            used, values = np.frombuffer(known.probabilities or b"", dtype="<f8"), np.frombuffer(rewards, dtype="<f8")
            lessons.full[len(lessons.steps)] = used, values
            reward = float(values[known.arm])
        if source in STEP_OF:
            lessons.steps.append((STEP_OF[source], known.context, known.arm, known.propensity, reward or 0.0))

    def late(self, known: Known, reward: float | None, rewards: bytes | None) -> None:
        """Write down the first reward that came too late; more of them say nothing new."""
        if not known.late:
            known.late = True
            self.rows[Late].append((self.next(), known.seq, reward, rewards, self.at))
            self._of(known.experiment)

    def apply(self) -> None:
        """Count, and teach the policies."""
        for experiment, lessons in self._lessons.items():
            experiment.unsaved += lessons.n_events
            tally = experiment.tally
            tally.decisions += len(lessons.drawn)
            tally.pending += len(lessons.drawn)
            tally.settle(Counter(lessons.sources))
            for arm in lessons.drawn:
                tally.pulls[arm] += 1
            if lessons.sources:  # else there are only draws
                for step, _, arm, _, reward in lessons.steps:
                    if step == LEARN:
                        tally.earned[arm] += reward
            if lessons.steps and experiment.has_policy:
                try:
                    follow(experiment.policy, lessons.log(experiment))
                except Exception as problem:  # the events are on the disk, and neighbours have theirs to learn
                    experiment.drop_policy(f"learning from events {self.start + 1} to {self.last}", problem)
