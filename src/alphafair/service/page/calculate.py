"""Calculations for the page: `alphafair.jobs` runs them in a process of their own.

They read the file beside the service, at a lower priority, and take none of the interpreter's time that answers
requests.
"""

from __future__ import annotations

import math
import time
from typing import Any, Final

import numpy as np

from alphafair import metrics
from alphafair.algorithms import load_policy
from alphafair.engine.addresses import open_store
from alphafair.engine.export import ExperimentRecord, read_log
from alphafair.engine.jobs import ProbabilitiesJob, WhatIfJob
from alphafair.engine.state.replay import Replay
from alphafair.engine.store import questions
from alphafair.evaluation import frontier
from alphafair.formatting import json_alpha
from alphafair.groups import Groups, arm_groups
from alphafair.values import Interval, Log, State

ALPHAS: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.5, 2.0, 3.0, 5.0, math.inf)
CONFIDENCE, N_REPLICATES = 0.95, 200


def what_if(job: WhatIfJob) -> dict[str, Any]:
    """The price of fairness, from the latest rewarded decisions of an experiment."""
    began = time.perf_counter()
    with open_store(job.address, read_only=True) as store:
        changes = questions.changes(store, job.experiment, job.position)
        record = ExperimentRecord(job.experiment, job.name, job.full, changes, questions.has_slates(store))
        log = read_log(store, record, latest=job.rounds, source=job.source)
    told = ~np.isnan(log.propensities)
    n_all = log.n_rounds
    if not told.any():
        return {"curve": None, "present": _present(log, job), "without": n_all}
    low, high = job.reward_range
    scaled = Log(
        log.contexts[told],
        log.arms[told],
        ((log.rewards - low) / (high - low))[told],
        log.propensities[told],
        n_contexts=log.n_contexts,
        n_arms=log.n_arms,
        arm_labels=log.arm_labels,
        available=log.available,
        decisions=log.decisions,
        users=None if log.users is None else log.users[told],
    )
    given = None if job.groups is None else Groups(**job.groups)
    groups = arm_groups(given, log.n_arms)
    found = frontier(
        scaled,
        ALPHAS,
        groups=given,
        confidence=CONFIDENCE,
        n_replicates=N_REPLICATES,
    )
    n_groups, n_rounds = groups.n_groups, scaled.n_rounds

    def in_units(side: Any) -> Any:  # every reward is in the range, so its average is too
        return np.clip(low + (high - low) * n_groups * (side - 1.0) / n_rounds, low, high)

    average = Interval(*(in_units(side) for side in found.average_reward))
    return {
        "curve": {
            "alphas": [json_alpha(alpha) for alpha in ALPHAS],
            "average_reward": _band(average),
            "jain_index": _band(found.jain_index),
            "least_share": _band(found.least_share),
            "confidence": CONFIDENCE,
            "verdict": found.verdict,
            "reasons": [f"at alpha = {alpha:g} {reason}" for alpha, reason in found.worst_reasons()],
            "rounds": n_rounds,
            "position": job.position,
            "computed_at": time.time(),
            "seconds": time.perf_counter() - began,
        },
        "present": _present(log, job),
        "without": n_all - n_rounds,
    }


def _present(log: Log, job: WhatIfJob) -> dict[str, float]:
    """Where the source of the decisions is itself."""
    groups = arm_groups(None if job.groups is None else Groups(**job.groups), log.n_arms)
    low, high = job.reward_range
    unit = (log.rewards - low) / (high - low)
    accounts = 1.0 + np.bincount(groups.of_arms[log.arms], weights=unit, minlength=groups.n_groups)
    return {
        "average_reward": float(log.rewards.mean()),
        "jain_index": float(metrics.jain_index(accounts, groups=groups)),
        "least_share": float(metrics.shares(accounts).min()),
    }


def _band(found: Interval) -> dict[str, list[float | None]]:
    return {
        name: [_finite(each) for each in np.ravel(side)] for name, side in zip(Interval._fields, found, strict=True)
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def probabilities(job: ProbabilitiesJob) -> dict[str, Any]:
    """The distribution that a decision was drawn from, recomputed from the log before it."""
    with open_store(job.address, read_only=True) as store:
        experiment = Replay(store, {job.experiment: job.position}).from_snapshots().run()[job.experiment]
    policy = experiment.policy
    if job.context >= policy.n_contexts:
        policy = load_policy(State.from_bytes(policy.snapshot().to_bytes()))
        policy.grow(n_contexts=job.context + 1)
    described: dict[str, Any] = {} if job.features is None else {"features": job.features}
    found = policy.probabilities(job.context, k=job.k, available=job.available, **described)
    return {"probabilities": found.tolist()}
