"""The steps of a log done again by a policy: compiled where it can be, one by one where it cannot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from alphafair.policy.base import BasePolicy
from alphafair.policy.loops import DRAW, EXPECT, FORGO, LogSteps
from alphafair.run import has_whole_runs
from alphafair.values import Decision, Feedback, Indices, Vector


@dataclass(frozen=True, eq=False)
class Steps:
    """What was done, in order: `steps` are those of `alphafair.policy.loops`, each with its decision and reward.

    `masks` has the arms that could be played, by the number of the step, where not all could; `full` the distribution
    used and the rewards of all arms, where they were seen.
    """

    steps: NDArray[np.int8]
    contexts: Indices
    arms: Indices
    propensities: Vector
    rewards: Vector
    masks: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    full: Mapping[int, tuple[Vector, Vector]] = field(default_factory=dict)


def follow(policy: BasePolicy, log: Steps, drawn: Vector | None = None) -> Vector:
    """Do the steps again, contexts growing as they come; for DRAW, the probability that the arm is drawn with now.

    Where a policy raises on the way, the `drawn` that was passed has what came before.
    """
    columns = log.contexts, log.arms, log.propensities
    drawn = np.zeros(len(log.steps)) if drawn is None else drawn
    steps = LogSteps.learning(*columns, log.rewards)._replace(steps=log.steps, drawn=drawn)
    if not len(drawn):
        return drawn
    if policy.feedback is Feedback.BANDIT and policy.traits.contexts_apart and has_whole_runs(policy):
        if (n_contexts := int(log.contexts.max()) + 1) > policy.n_contexts:
            policy.grow(n_contexts=n_contexts)
        if log.masks:
            steps.mask_of[list(log.masks)] = np.arange(len(log.masks))
            steps = steps._replace(masks=np.stack(list(log.masks.values())))
        policy._follow(steps)
        return drawn
    rows = zip(log.steps.tolist(), *(column.tolist() for column in columns), strict=True)
    for t, (step, context, arm, propensity) in enumerate(rows):
        if context >= policy.n_contexts:
            policy.grow(n_contexts=context + 1)
        decision = Decision(context, arm, propensity, cast(Vector, None))
        if step == DRAW:
            drawn[t] = policy.probabilities(context, available=log.masks.get(t))[arm]
        elif step == EXPECT:
            policy.expect(decision)
        elif step == FORGO:
            policy.forgo(decision)
        elif t in log.full:
            policy.update(decision._replace(probabilities=log.full[t][0]), log.full[t][1])
        else:
            policy.update(decision, float(log.rewards[t]))
    return drawn
