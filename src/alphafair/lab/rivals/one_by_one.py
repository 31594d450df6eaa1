"""Slates from a policy of single arms, drawn one by one: what its users did before policies showed slates.

Each of the k arms is drawn from the policy's distribution among the arms that are left, and each is learned as a round
of its own, with the probability of that draw. This is k draws without replacement: the slate is filled with arms that
the policy would avoid, since it can have its favorites only once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from alphafair.algorithms import AlphaFairAdaptive, adaptive_bandit
from alphafair.values import Feedback, Policy, Stream, Trace


def variants(n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name: those with bandit feedback and one side."""
    every = AlphaFairAdaptive.traits.variants(n_contexts, n_arms)
    sides = {"context_weight", "context_share"}
    return {name: each for name, each in every.items() if each["feedback"] == "bandit" and not sides & {*each}}


class AdaptiveOneByOne(AlphaFairAdaptive):
    """`AlphaFairAdaptive` under bandit feedback without its slates."""

    name: ClassVar[str] = "adaptive-one-by-one"
    feedback = Feedback.BANDIT
    traits = replace(
        AlphaFairAdaptive.traits, feedbacks=(Feedback.BANDIT,), slates=False, style=("#332288", "p"), variants=variants
    )
    algorithm: ClassVar = {Feedback.BANDIT: adaptive_bandit.ALGORITHM}
    sides_algorithm: ClassVar = None
    promise_algorithm: ClassVar = None
    welfare_algorithm: ClassVar = {Feedback.BANDIT: adaptive_bandit.ON_WELFARE}

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        feedback: Literal["bandit"] = "bandit",
        seed: int | None = None,
    ) -> None:
        super().__init__(n_contexts, n_arms, alpha=alpha, feedback=feedback, seed=seed)


def simulate_one_by_one(policy: Policy, stream: Stream, k: int, *, seed: int = 0) -> Trace:
    """Play all rounds of a stream with slates of k arms that are drawn one by one.

    >>> from alphafair import streams
    >>> stream = streams.ratings(n_rounds=200, n_contexts=3, n_arms=5, seed=0)
    >>> int(simulate_one_by_one(AdaptiveOneByOne(3, 5), stream, 2).pulls.sum())
    400
    """
    rng, pulls, earned = np.random.default_rng(seed), np.zeros(stream.n_arms, dtype=np.int64), np.ones(stream.n_arms)
    for t, context in enumerate(stream.contexts.tolist()):
        left, drawn, rewards = np.ones(stream.n_arms, dtype=bool), [], stream.rewards(t)
        for _ in range(min(k, stream.n_arms)):
            drawn.append(policy.choose(context, rng=rng, available=left))
            left[drawn[-1].arm] = False
        for decision in drawn:
            policy.update(decision, float(rewards[decision.arm]))
            earned[decision.arm] += rewards[decision.arm]
            pulls[decision.arm] += 1
    return Trace(policy.name, policy.feedback, seed, np.array([stream.n_rounds]), earned[None], pulls, None, ())
