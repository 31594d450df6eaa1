"""Steps: what the event log says was done, in the one form that is counted and learned from.

A commit makes its steps from the events that it wrote, recovery and `verify` read theirs from the file; both count them
with `Tally.count` and repeat them with `follow`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.store.ledger import SOURCES
from alphafair.engine.store.slates import SlateEvent
from alphafair.policy import archive, slates
from alphafair.policy.base import BasePolicy
from alphafair.policy.loops import DRAW, EXPECT, FORGO, LEARN, OBSERVE, LogSteps
from alphafair.policy.slate_loops import SlateSteps
from alphafair.run import has_whole_runs
from alphafair.values import (
    Decision,
    DescribedDecision,
    DescribedSlate,
    Feedback,
    Indices,
    Matrix,
    SlateDecision,
    Vector,
)
from alphafair.values.available import unpacked

# kinds of steps: what settled a decision, by its place in SOURCES, and what else can happen to one
CLIENT, DEFAULT, EXPIRED, LAPSED, ROLLBACK = range(len(SOURCES))
DECIDED, DEFERRED, ACTIVATED, DRAWN, PAID_PARTLY = range(
    len(SOURCES), len(SOURCES) + 5
)  # the last: some arms of a slate
MOST_NUMBERS = 1 << 22  # of the features of all arms that are in memory at once
NOTHING = -1  # the action of a step that a policy does not learn from
ACTIONS = np.array(  # by kind: of the policy's own decisions, and of others
    [
        [LEARN, LEARN, FORGO, NOTHING, NOTHING, EXPECT, NOTHING, EXPECT, DRAW, LEARN],
        [OBSERVE, OBSERVE] + [NOTHING] * 8,
    ],
    dtype=np.int8,
)
N_KINDS = ACTIONS.shape[1]
OWN = 0  # the number of the policy among those who decide
NO_BUCKET = -1
Row = tuple[int, int, int, int, float, float, int, int, int]  # the columns of `Steps` but times, in their order
SOURCE_KINDS = {source: kind for kind, source in enumerate(SOURCES)}


@dataclass(frozen=True)
class ArmFeatures:
    """The features of all arms at every step: some matrices, and the number of one of them per step."""

    matrices: Sequence[Matrix]
    of_steps: NDArray[np.int64]

    def __getitem__(self, which: Any) -> ArmFeatures:
        return ArmFeatures(self.matrices, self.of_steps[which])

    def table(self, n_arms: int) -> NDArray[np.float64]:
        """Return a matrix per step; arms that joined later have zeros."""
        used, numbers = np.unique(self.of_steps, return_inverse=True)
        found = np.zeros((len(used), n_arms, self.matrices[0].shape[1]))
        for matrix, number in zip(found, used.tolist(), strict=True):
            matrix[: len(self.matrices[number])] = self.matrices[number]
        return found[numbers]


@dataclass(slots=True, eq=False)
class Steps:
    """Steps of one experiment as columns, in the order in which they took effect.

    `reward` is in the units of the experiment; under full information it is the reward of the drawn arm. `at` is the
    time of the event, `since` the time from which the decision of a reward has waited, both in microseconds. By
    position, `masks` has the available arms of a draw where not all were, `full` the distribution and the rewards of
    all arms, `slates` what became of a slate, whose `arm` and `propensity` are those of slot 1. `features` has a row
    per step, as the policy gets them, where decisions have features. A decision appears as
    DECIDED (or DEFERRED), and once more as DRAWN, with no time, where its propensity is to be recomputed.

    `decided_by` is `OWN`, or the number of another source, from 1 in the order of first appearance; `propensity` is
    then 0 if it is unknown. `bucket` is that of the decision's unit, or `NO_BUCKET`, and `decision` its position.
    """

    position: NDArray[np.int64]
    kind: NDArray[np.int8]
    context: Indices
    arm: Indices
    propensity: Vector
    reward: Vector
    decided_by: NDArray[np.int8]
    bucket: NDArray[np.int8]
    decision: NDArray[np.int64]
    at: NDArray[np.int64]
    since: NDArray[np.int64]
    masks: Mapping[int, bytes] = field(default_factory=dict)
    full: Mapping[int, tuple[bytes, bytes]] = field(default_factory=dict)
    slates: Mapping[int, SlateEvent] = field(default_factory=dict)
    features: NDArray[np.float64] | ArmFeatures | None = None

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        full: Mapping[int, tuple[bytes, bytes]],
        at: int = 0,
        since: Sequence[int] = (),
        slates: Mapping[int, SlateEvent] | None = None,
        features: NDArray[np.float64] | None = None,
    ) -> Self:
        """Make steps from rows, all of one time; `since` has a time per reward of a client."""
        position, kind, context, arm, propensity, reward, decided_by, bucket, decision = zip(*rows, strict=True)
        kinds, times = np.array(kind, dtype=np.int8), np.full(len(rows), at)
        waits = times
        if since:
            waits = times.copy()
            waits[(kinds == CLIENT) | (kinds == PAID_PARTLY)] = since
        return cls(
            np.array(position),
            kinds,
            np.array(context, dtype=np.int32),
            np.array(arm, dtype=np.int32),
            np.array(propensity),
            np.array(reward),
            np.array(decided_by, dtype=np.int8),
            np.array(bucket, dtype=np.int8),
            np.array(decision),
            times,
            waits,
            full=full,
            slates=slates or {},
            features=features,
        )

    @classmethod
    def joined(cls, parts: Sequence[Steps]) -> Self:
        """Make steps from consecutive parts, to be counted: without masks or features; all rewards only of slates."""
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in COLUMNS}
        slates = {position: event for part in parts for position, event in part.slates.items()}
        full = {position: part.full[position] for part in parts if part.slates for position in part.full}
        return cls(**columns, slates=slates, full=full)

    def __len__(self) -> int:
        return len(self.position)

    def __getitem__(self, which: slice | NDArray[Any]) -> Steps:
        columns: dict[str, Any] = {name: getattr(self, name)[which] for name in COLUMNS}
        features = None if self.features is None else self.features[which]
        return Steps(**columns, masks=self.masks, full=self.full, slates=self.slates, features=features)

    @property
    def own(self) -> Steps:
        """The steps of the policy's own decisions: what is counted, and what accounts and periods are about."""
        own = self.decided_by == OWN
        return self if own.all() else self[own]

    @property
    def actions(self) -> NDArray[np.int8]:
        """What a policy does at every step: LEARN, EXPECT, FORGO, DRAW, OBSERVE or NOTHING."""
        return ACTIONS[np.minimum(self.decided_by, 1), self.kind]

    @property
    def of_slates(self) -> list[int]:
        """The numbers of the steps of slates."""
        if not self.slates:
            return []
        return [t for t, position in enumerate(self.position.tolist()) if position in self.slates]

    @property
    def shown(self) -> Indices:
        """The arms that decisions showed."""
        decided = (self.kind == DECIDED) | (self.kind == DEFERRED)
        more = [arm for t in self.of_slates if decided[t] for arm in self.slates[int(self.position[t])].slate.arms[1:]]
        return np.append(self.arm[decided], np.array(more, dtype=np.int32)) if more else self.arm[decided]

    @property
    def paid(self) -> tuple[Indices, Vector]:
        """The arms that got a reward, and their rewards, in their order."""
        paid = (self.kind <= DEFAULT) | (self.kind == PAID_PARTLY)
        if not self.slates:
            return self.arm[paid], self.reward[paid]
        rewards: list[tuple[int, float]] = []
        numbers = np.flatnonzero(paid)
        rows = zip(
            self.position[numbers].tolist(), self.arm[numbers].tolist(), self.reward[numbers].tolist(), strict=True
        )
        for position, arm, reward in rows:
            event = self.slates.get(position)
            if event is None:
                rewards.append((arm, reward))
            elif position in self.full:
                values = np.frombuffer(self.full[position][1], dtype="<f8")
                rewards += [(each, float(values[each])) for each in event.slate.arms]
            else:
                rewards += event.paid
        arms, amounts = [arm for arm, _ in rewards], [reward for _, reward in rewards]
        return np.array(arms, dtype=np.int32), np.array(amounts, dtype=np.float64)

    @property
    def for_policy(self) -> Steps:
        """Those steps that a policy takes part in."""
        takes_part = self.actions != NOTHING
        return self if takes_part.all() else self[takes_part]


COLUMNS = tuple(each.name for each in fields(Steps) if each.name not in ("masks", "full", "slates", "features"))


def follow(
    policy: BasePolicy, steps: Steps, to_unit: Callable[[Vector], Vector], drawn: Vector | None = None
) -> Vector:
    """Repeat steps with a policy, adding contexts as they appear; return the probabilities of DRAWN arms.

    `to_unit` maps rewards to the range that the policy learns from. Steps must have an action. The result has a number
    per step; if the policy raises, a `drawn` that was passed has those of the steps before.
    """
    drawn = np.zeros(len(steps)) if drawn is None else drawn
    if not len(steps):
        return drawn
    if isinstance(steps.features, ArmFeatures):  # a matrix per step may be large: some steps at a time
        size = max(1, MOST_NUMBERS // (policy.n_arms * policy.n_features))
        for first in range(0, len(steps), size):
            part = steps[first : first + size]
            features = steps.features[first : first + size].table(policy.n_arms)
            follow(policy, replace(part, features=features), to_unit, drawn[first : first + size])
        return drawn
    if of_slates := steps.of_slates:
        first, others, actions = 0, replace(steps, slates={}), steps.actions
        for numbers in np.split(of_slates, np.flatnonzero(np.diff(of_slates) > 1) + 1):
            start, stop = int(numbers[0]), int(numbers[-1]) + 1
            if start > first:
                follow(policy, others[first:start], to_unit, drawn[first:start])
            if not _fold_slates(policy, steps, start, stop, actions, to_unit, drawn):
                for t in range(start, stop):
                    _follow_slate(policy, steps, t, int(actions[t]), to_unit, drawn)
            first = stop
        follow(policy, others[first:], to_unit, drawn[first:])
        return drawn
    actions, rewards = steps.actions, to_unit(steps.reward)
    masks = {t: unpacked(steps.masks[position], policy.n_arms) for t, position in _found(steps, DRAW, steps.masks)}
    if policy.feedback is Feedback.BANDIT and policy.traits.contexts_apart and has_whole_runs(policy):
        if (n_contexts := int(steps.context.max()) + 1) > policy.n_contexts:
            policy.grow(n_contexts=n_contexts)
        log = LogSteps.learning(steps.context, steps.arm, steps.propensity, rewards, steps.features)
        log = log._replace(steps=actions, drawn=drawn)
        if masks:
            log.mask_of[list(masks)] = np.arange(len(masks))
            log = log._replace(masks=np.stack(list(masks.values())))
        archive.follow(policy, log)
        return drawn
    full = dict(_found(steps, LEARN, steps.full))
    rows = zip(actions.tolist(), steps.context.tolist(), steps.arm.tolist(), steps.propensity.tolist(), strict=True)
    for t, (action, context, arm, propensity) in enumerate(rows):
        if context >= policy.n_contexts:
            policy.grow(n_contexts=context + 1)
        decision, described = Decision(context, arm, propensity, cast(Vector, None)), {}
        if steps.features is not None:
            described = {"features": steps.features[t]}
            decision = DescribedDecision(*decision, **described)
        if action == DRAW:
            drawn[t] = policy.probabilities(context, available=masks.get(t), **described)[arm]
        elif action == EXPECT:
            policy.expect(decision)
        elif action == FORGO:
            policy.forgo(decision)
        elif action == OBSERVE:
            policy.observe(context, arm, float(rewards[t]), **described)
        elif t in full:
            used, values = (np.frombuffer(blob, dtype="<f8") for blob in steps.full[full[t]])
            policy.update(decision._replace(probabilities=used), to_unit(values))
        else:
            policy.update(decision, float(rewards[t]))
    return drawn


def _fold_slates(
    policy: BasePolicy,
    steps: Steps,
    start: int,
    stop: int,
    actions: NDArray[np.int8],
    to_unit: Callable[[Vector], Vector],
    drawn: Vector,
) -> bool:
    """Repeat the steps of slates from `start` up to `stop` in one compiled call; return whether that was possible.

    It is not with features, retired arms or full information, and not for numbers that no policy logs: those are
    repeated one by one, with all checks.
    """
    if steps.features is not None or not archive.folds_slates(policy):
        return False
    events = [steps.slates[position] for position in steps.position[start:stop].tolist()]
    some = actions[start:stop]
    rows: list[tuple[int, float, float]] = []
    starts = [0]
    for event, action in zip(events, some.tolist(), strict=True):
        rows += event.about(paid=action == LEARN, unpaid=action == FORGO)
        starts.append(len(rows))
    arms, propensities, rewards = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    rewards, lengths = to_unit(rewards), np.diff(starts)
    low, high = policy.traits.reward_range
    learned = np.repeat(some == LEARN, lengths)
    sound = ((propensities > 0.0) & (propensities <= 1.0)).all() and not (lengths[some == LEARN] == 0).any()
    sound &= bool(((rewards[learned] >= low) & (rewards[learned] <= high)).all())
    if not sound or any(len({*event.slate.arms}) < len(event.slate.arms) for event in events):
        return False
    contexts = steps.context[start:stop]
    if (n_contexts := int(contexts.max()) + 1) > policy.n_contexts:
        policy.grow(n_contexts=n_contexts)
    mask_of, masks = np.full(stop - start, -1, dtype=np.int32), list[NDArray[np.bool_]]()
    for t, position in enumerate(steps.position[start:stop].tolist()):
        if some[t] == DRAW and position in steps.masks:
            mask_of[t] = len(masks)
            masks.append(unpacked(steps.masks[position], policy.n_arms))
    log = SlateSteps(
        some,
        contexts,
        np.array([event.slate.asked for event in events]),
        np.array([len(event.slate.arms) for event in events]),
        np.array([event.is_first for event in events]),
        np.array(starts),
        arms.astype(np.int64),
        np.ascontiguousarray(propensities),
        np.ascontiguousarray(rewards),
        mask_of,
        np.stack(masks) if masks else np.empty((0, 0), dtype=np.bool_),
        np.zeros(stop - start),
    )
    try:
        archive.follow_slates(policy, log)
    finally:
        drawn[start:stop] = log.drawn
    return True


def _follow_slate(
    policy: BasePolicy, steps: Steps, t: int, action: int, to_unit: Callable[[Any], Any], drawn: Vector
) -> None:
    """Repeat one step of a slate; a DRAWN one has its own propensity if all are the same, otherwise -1."""
    position, context = int(steps.position[t]), int(steps.context[t])
    event = steps.slates[position]
    asked, arms, propensities = event.slate
    decision = SlateDecision(context, arms, propensities, cast(Vector, None))
    described: dict[str, Any] = {}
    if steps.features is not None:
        described = {"features": steps.features[t]}
        decision = DescribedSlate(*decision, **described)
    if context >= policy.n_contexts:
        policy.grow(n_contexts=context + 1)
    if action == DRAW:
        among = unpacked(steps.masks[position], policy.n_arms) if position in steps.masks else None
        found = policy.probabilities(context, k=asked, available=among, **described)
        same = found[list(arms)].tolist() == [*propensities] and abs(found.sum() - len(arms)) <= 1e-6 * len(arms)
        drawn[t] = steps.propensity[t] if same and len({*arms}) == len(arms) else -1.0
    elif action == EXPECT:
        policy.expect(decision)
    elif position in steps.full:
        used, values = (np.frombuffer(blob, dtype="<f8") for blob in steps.full[position])
        policy.update(decision._replace(probabilities=used), to_unit(values))
    elif action == FORGO:
        left = event.unpaid
        if left:
            some = decision._replace(
                arms=tuple(arms[slot] for slot in left), propensities=tuple(propensities[slot] for slot in left)
            )
            policy.forgo(some)
    else:
        slates.learn(policy, decision, {arm: to_unit(reward) for arm, reward in event.paid}, first=event.is_first)


def _found(steps: Steps, action: int, by_position: Mapping[int, Any]) -> list[tuple[int, int]]:
    """Return the number and position of the steps with an action that a mapping has something for."""
    if not by_position:
        return []
    numbers = np.flatnonzero(steps.actions == action)
    return [(t, s) for t, s in zip(numbers.tolist(), steps.position[numbers].tolist(), strict=True) if s in by_position]
