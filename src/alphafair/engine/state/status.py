"""What an experiment is at one moment: its status, the accounts of arms or groups, and how fair they are."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from alphafair import metrics
from alphafair.engine.dates import date_of
from alphafair.engine.state import sides
from alphafair.engine.state.steps import OWN
from alphafair.engine.state.summary import Fairness, unknown
from alphafair.groups import Groups
from alphafair.values import Feedback, Policy
from alphafair.values.arrays import Matrix, Vector
from alphafair_client.answers import AgainstPolicy, GroupStatus, Interval, SideStatus, Status

if TYPE_CHECKING:
    from alphafair.engine.state.experiment import Experiment

REPORTING: Final = "reporting"  # a failure that a policy survives


def status_of(experiment: Experiment, max_contexts: int) -> Status:
    """Return the status of an experiment, which may have so many contexts."""
    tally, arms, settings, periods = experiment.tally, experiment.arms, experiment.settings, experiment.periods
    return Status(
        name=experiment.name,
        policy=settings.policy,
        arms=tuple(experiment.live_arms),
        retired_arms=tuple(arms[number] for number in sorted(experiment.retired)),
        masked_arms=tuple(arms[number] for number in sorted(experiment.masked)),
        paused=experiment.paused,
        reward_range=settings.reward_range,
        reward_wait=settings.reward_wait,
        default_reward=settings.default_reward,
        policy_version=experiment.version,
        position=experiment.position,
        contexts=experiment.n_contexts,
        max_contexts=max_contexts,
        decisions=tally.decisions,
        rewards=tally.rewards,
        defaulted=tally.defaulted,
        expired=tally.expired,
        lapsed=tally.lapsed,
        rolled_back=tally.rolled_back,
        pending=tally.pending,
        pulls=dict(zip(arms, tally.pulls.tolist(), strict=True)),
        cumulative_rewards=dict(zip(arms, tally.earned.tolist(), strict=True)),
        **_of_policy(experiment),
        period=None if periods.length is None else periods.length / 1e6,
        period_ends=None if periods.next_boundary is None else date_of(periods.next_boundary),
        carry=periods.carry,
        periods=periods.all(experiment),
        features=None if experiment.schema is None else experiment.schema.as_json,
        **_of_arms(experiment),
        mode=settings.mode,
        share=settings.share,
        **_of_sides(experiment),
        unhealthy=experiment.unhealthy,
    )


def _of_arms(experiment: Experiment) -> dict[str, Any]:
    """Return the declared features of arms, and their values by arm; None where arms have none."""
    known = experiment.arm_values
    if known is None:
        return {"arm_features": None, "features_by_arm": None}
    values = {arm: known.values(number) for arm, number in experiment.arm_numbers.items()}
    return {"arm_features": known.schema.as_json, "features_by_arm": values}


def _of_policy(experiment: Experiment) -> dict[str, Any]:
    """Return the fields of `Status` that come from the policy; defaults where there is none, or it fails."""
    feedback = Feedback.FULL if experiment.full else Feedback.BANDIT
    status: dict[str, Any] = {"feedback": feedback.value, "alpha": experiment.alpha}
    status |= {"groups": None, "accounts": {}, "welfare": None}
    status |= {"context_weight": 0.0, "context_share": 0.0, "largest_context_debt": None, "context_share_bound": None}
    if experiment.has_policy:
        try:
            accounts = accounts_of(experiment)
            if not np.isfinite([*accounts.values()]).all():
                raise ValueError(f"accounts {reprlib.repr(accounts)} are not all finite")
            status |= {"alpha": experiment.policy.alpha, "groups": groups_of(experiment), "accounts": accounts}
            status["welfare"] = _welfare(experiment, accounts)
            status |= _second_side(experiment.policy)
            experiment.problems.pop(REPORTING, None)
        except Exception as problem:
            experiment.failed(REPORTING, problem)
    return status


def _of_sides(experiment: Experiment) -> dict[str, Any]:
    """Return the fields of `Status` that compare sides."""
    if not experiment.has_sides:
        return {"sides": None, "share_seen": None}
    tables = experiment.summary.sides_now().tables
    of_arms, entitlements = _fair_to(experiment, tables.values())
    grouped = {side: sides.by_group(table, of_arms, len(entitlements)) for side, table in tables.items()}
    names, incumbent = ["policy", *experiment.tally.sources], None
    pair = [side for side, name in enumerate(names) if side in grouped and name in ("policy", "incumbent")]
    traffic = sum(float(grouped[side][:, -2].sum()) for side in pair)
    if len(pair) == 2:
        incumbent = pair[1]
    measured = {
        side: sides.measure(table, traffic if side in pair else table[:, -2].sum(), entitlements, _alpha(experiment))
        for side, table in grouped.items()
        if table[:, -2].any()
    }
    found = [
        _side(experiment, name, grouped.get(side), entitlements, measured, side, side == incumbent)
        for side, name in enumerate(names)
    ]
    seen = None
    if experiment.settings.mode == "share" and incumbent is not None:
        ours, theirs = (grouped[side][:, -1] for side in pair)
        share, half = sides.seen_share(ours, theirs)
        known = min(np.count_nonzero(ours), np.count_nonzero(theirs)) >= sides.LEAST_BUCKETS
        seen = Interval(share, max(0.0, share - half), min(1.0, share + half)) if known else Interval(share, None, None)
    return {"sides": tuple(found), "share_seen": seen}


def _fair_to(experiment: Experiment, tables: Iterable[Matrix]) -> tuple[NDArray[np.int64], Vector]:
    """Return the group of every arm and the entitlements, of those that can still earn or have earned something."""
    groups = experiment.policy.groups if experiment.has_policy else None
    n_arms = len(experiment.arms)
    of_arms = np.arange(n_arms) if groups is None else groups.of_arms
    entitlements = np.ones(n_arms) if groups is None else groups.entitlements
    counts = np.array([number not in experiment.retired for number in range(n_arms)])
    for table in tables:
        counts |= table[:, :n_arms].any(axis=0)
    kept = np.unique(of_arms[counts])
    place = np.zeros(len(entitlements), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    return place[of_arms], entitlements[kept]


def _alpha(experiment: Experiment) -> float:
    alpha = experiment.alpha
    return 0.0 if alpha is None else alpha


def _side(
    experiment: Experiment,
    name: str,
    table: Matrix | None,
    entitlements: Vector,
    measured: Mapping[int, sides.Measured],
    side: int,
    is_incumbent: bool,
) -> SideStatus:
    """Return what one side earned."""
    found = measured.get(side)
    counts = (0, 0) if table is None else (int(table[:, -1].sum()), int(table[:, -2].sum()))
    if table is None or found is None:
        return SideStatus(name, *counts, None, None, None, None, None)
    settings = experiment.settings
    known, low, scale = found.buckets >= sides.LEAST_BUCKETS, settings.low, settings.high - settings.low
    half = sides.half_width(found.variances, found.rewarded)
    mean, log_welfare, jain = (_interval(found.values[k], half[k], known) for k in range(3))
    earned = table[:, :-2].sum(axis=0)
    least = float((earned / entitlements).min() / earned.sum()) if earned.any() else None
    against = _against(experiment, measured[OWN], found) if is_incumbent and OWN in measured else None
    welfare = None if experiment.alpha is None else _scaled(log_welfare, math.exp)
    mean = _scaled(mean, lambda x: low + scale * x)
    jain = _scaled(jain, lambda x: min(1.0, max(0.0, x)))  # the interval may reach beyond what is possible
    return SideStatus(name, *counts, mean, welfare, jain, least, against)


def _against(experiment: Experiment, ours: sides.Measured, theirs: sides.Measured) -> AgainstPolicy:
    """Return what the incumbent's side has more than the policy's."""
    more, half = sides.difference(theirs, ours)
    known = min(ours.buckets, theirs.buckets) >= sides.LEAST_BUCKETS
    mean, log_ratio, jain = (_interval(more[k], half[k], known) for k in range(3))
    scale = experiment.settings.high - experiment.settings.low
    ratio = None if experiment.alpha is None else _scaled(log_ratio, math.exp)
    return AgainstPolicy(_scaled(mean, lambda x: scale * x), ratio, jain)


def _interval(value: Any, half: Any, known: bool) -> Interval:
    return (
        Interval(float(value), float(value - half), float(value + half))
        if known
        else Interval(float(value), None, None)
    )


def _scaled(interval: Interval, to: Callable[[float], float]) -> Interval:
    """Return an interval on another, rising scale."""
    value, low, high = (None if each is None else to(each) for each in (interval.value, interval.low, interval.high))
    return Interval(value, low, high)  # type: ignore[arg-type]


def _second_side(policy: Policy) -> dict[str, Any]:
    """Return what a policy is to contexts."""
    debts = policy.context_debts
    return {
        "context_weight": policy.context_weight,
        "context_share": policy.context_share,
        "largest_context_debt": None if debts is None else float(debts.max()),
        "context_share_bound": policy.context_share_bound,
    }


def summary_at(experiment: Experiment, at: int) -> bytes:
    """Return the summary as a change at this time finds it."""
    summary = experiment.summary.copy()
    summary.advance(at, experiment.fairness)
    return summary.to_bytes()


# accounts


def accounts_of(experiment: Experiment) -> dict[str, float]:
    """Return R of every group, or arm. Empty where the policy keeps none, or one per context."""
    accounts = experiment.policy.accounts
    return {} if accounts is None or np.ndim(accounts) == 2 else by_group(experiment, accounts)


def _welfare(experiment: Experiment, accounts: dict[str, float]) -> float | None:
    """Return the welfare of accounts, weighted by entitlements; None without accounts or alpha."""
    alpha = experiment.policy.alpha
    if not accounts or alpha is None:
        return None
    return float(metrics.welfare([*accounts.values()], alpha, groups=_entitled(experiment)))


def fairness_of(experiment: Experiment) -> Fairness:
    """Return Jain's index and the welfare of the accounts; nan where the policy keeps none, or fails."""
    try:
        accounts = accounts_of(experiment) if experiment.has_policy else {}
        welfare = _welfare(experiment, accounts)
        return unknown() if welfare is None else (_jain_index(experiment, accounts), welfare)
    except Exception:  # `status_of` tells what is wrong
        return unknown()


def _jain_index(experiment: Experiment, accounts: dict[str, float]) -> float:
    return float(metrics.jain_index([*accounts.values()], groups=_entitled(experiment)))


def _entitled(experiment: Experiment) -> Groups | None:
    """Return the entitlements of the accounts; None where they are equal."""
    groups = experiment.policy.groups
    return None if groups is None or groups.equally_entitled else Groups(entitlements=groups.entitlements)


# groups


def groups_of(experiment: Experiment) -> GroupStatus | None:
    """Return the policy's groups; None where every arm is on its own, with equal entitlements and no floor."""
    groups = experiment.policy.groups
    if groups is None or groups.is_default:
        return None
    floors = groups.group_floors
    return GroupStatus(
        group_of(experiment) or None,
        None if groups.equally_entitled else by_group(experiment, groups.entitlements),
        by_group(experiment, floors) if floors.any() else groups.arm_floor or None,
    )


def group_of(experiment: Experiment) -> dict[str, str]:
    """Return the group of every arm; empty where arms are on their own."""
    groups = experiment.policy.groups
    if groups is None or not groups.named:
        return {}
    return {arm: groups.labels[g] for arm, g in zip(experiment.arms, groups.of_arms, strict=True)}


def by_group(experiment: Experiment, values: Any) -> dict[str, float]:
    """Return numbers by group, or by arm where arms are on their own."""
    groups = experiment.policy.groups
    labels = experiment.arms if groups is None or not groups.named else groups.labels
    return dict(zip(map(str, labels), values.tolist(), strict=True))
