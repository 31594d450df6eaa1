"""A policy that begins with what a log has to teach."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from alphafair import run, validate
from alphafair.evaluation.batches import in_memory, some_rows
from alphafair.values import Log, Policy

Kind = TypeVar("Kind", bound=Policy)


def warm_start(log: Log, kind: type[Kind], *, weight: float = 1.0, seed: int | None = None, **settings: Any) -> Kind:
    """A new policy that has learned from a log, as if it had made those decisions itself.

    Parameters
    ----------
    log
        Decisions with rewards in the policy's range, in the order of time.
    kind
        A class of policies with bandit feedback, such as `AlphaFairAdaptive`.
    weight
        How much the past counts, in [0, 1]: every round of the log at 1, evenly chosen rounds of it below, none at 0.
        Both what is learned and what arms are taken to have earned go by it.
    seed, settings
        For the policy: `alpha=0.9`, say.

    The same log, class, settings and weight give the same state. No reward counts for more than 2n of its size,
    whatever the propensity that it was logged with: smaller ones than 1/(2n), n arms, are raised to that. A decision
    that another policy hardly ever made would otherwise outweigh thousands of the policy's own.

    >>> from alphafair import AlphaFairAdaptive, Log
    >>> log = Log([0, 0, 0, 0], [1, 0, 1, 2], [1.0, 0.0, 1.0, 0.2], [0.001, 0.4, 0.3, 0.3])
    >>> policy = warm_start(log, AlphaFairAdaptive, alpha=0.5, weight=0.5)
    >>> policy.accounts.tolist()
    [1.0, 1.0, 1.2]
    """
    in_memory(log)
    weight = validate.number("weight", weight, low=0.0, high=1.0)
    policy = kind(log.n_contexts, log.n_arms, **settings, seed=seed)  # type: ignore[call-arg]
    validate.learnable(log.rewards, policy.traits.reward_range)  # also those that do not count
    places = np.floor(np.arange(log.n_rounds + 1) * weight)
    rows = np.flatnonzero(np.diff(places))
    if len(rows):
        run.over_log(policy, some_rows(log, rows, least=0.5 / log.n_arms))
    return policy
