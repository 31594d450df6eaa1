"""What contexts have of a run: the share of their best, and the welfare of both sides.

C_j are the rewards in context j, U_j = 1 + C_j its account, V_ji the sum of arm i's rewards over its rounds, and
B_j = max_i V_ji the most that it could have with one arm. Its share is C_j/B_j.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import GroupsLike
from alphafair.metrics.accounts import (
    MOST_ACCOUNT,
    Accounts,
    Floats,
    Number,
    by_group,
    checked_accounts,
    number,
    welfare_of,
)

TOTALS_REPAIR = "Pass context_reward_totals(stream)."
WHOLE = 1.0 - 1e-12  # of a part of the rounds, despite rounding


def context_shares(context_rewards: ArrayLike, context_reward_totals: ArrayLike) -> Floats:
    """C_j/B_j of every context, 1 where no arm earns anything: what it got of what its best arm would have given it.

    `context_rewards` are C, one number per context, and `context_reward_totals` V (n_contexts, n_arms). A policy that
    plays different arms in the rounds of a context can have a share above 1.

    >>> context_shares([4.0, 6.0, 0.0], [[5.0, 0.0], [9.0, 6.0], [0.0, 0.0]]).round(3).tolist()
    [0.8, 0.667, 1.0]
    """
    allowed = f"numbers in [0, {MOST_ACCOUNT:g}], one row per context and one column per arm"
    totals = validate.floats("context_reward_totals", allowed, context_reward_totals, TOTALS_REPAIR)
    if totals.ndim != 2 or not totals.size or not ((totals >= 0.0) & (totals <= MOST_ACCOUNT)).all():
        raise InvalidArgument("context_reward_totals", allowed, totals, TOTALS_REPAIR)
    earned = _per_context("context_rewards", context_rewards, len(totals))
    best = totals.max(axis=1)
    return np.asarray(np.divide(earned, best, out=np.ones(len(best)), where=best > 0.0))


def context_share_at(shares: ArrayLike, rounds: ArrayLike, part: float = 0.1) -> float:
    """The share below which contexts with less than this part of the rounds are; the worst at 0.

    In order of share, the first context at which the rounds so far reach the part: a small context alone does not
    decide it.

    >>> shares, rounds = [0.8, 0.5, 1.0], [60, 5, 35]
    >>> context_share_at(shares, rounds), context_share_at(shares, rounds, part=0.0)
    (0.8, 0.5)
    """
    count = np.shape(shares)[0] if np.ndim(shares) == 1 else 0
    found, n = _per_context("shares", shares, count), _per_context("rounds", rounds, count)
    part = validate.number("part", part, low=0.0, high=1.0)
    if not n.any():
        raise InvalidArgument("rounds", "at least one round", rounds, "Pass np.bincount(stream.contexts).")
    order = np.argsort(found, kind="stable")
    reached = np.cumsum(n[order])
    return float(found[order][np.argmax(reached >= WHOLE * part * reached[-1])])


def least_context_share(accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """(min R/max R)^alpha: the share of its best that every context has at a fair optimum with these accounts.

    There an arm is played only if its reward times R_i^(-alpha) is largest, which no arm exceeds that earns less than
    this part of the best. With groups, of R_G/s_G. It speaks of the best fixed policy; a run also explores.

    >>> least_context_share([4.0, 8.0, 16.0], alpha=0.5)
    0.5
    """
    alpha = validate.alpha(alpha)
    earned, resolved = by_group("accounts", accounts, groups)
    levels = np.atleast_1d(earned if resolved is None else earned / resolved.entitlements)
    ratio = levels.min(axis=-1) / levels.max(axis=-1)
    with np.errstate(under="ignore"):
        return number(np.where(ratio == 1.0, 1.0, ratio**alpha))


def two_sided_welfare(
    accounts: Accounts,
    context_accounts: ArrayLike,
    alpha: float,
    context_weight: float,
    context_weights: ArrayLike,
    *,
    groups: GroupsLike | None = None,
) -> Number:
    """W_2 = W_alpha(R)^(1-theta) W_1(U)^theta: the welfare of arms and the geometric mean of contexts' accounts.

    `context_weight` is theta, and `context_weights` are the weights of contexts in the mean, in any unit: positive,
    or 0 where a context has no reward.

    >>> round(two_sided_welfare([4.0, 9.0], [8.0, 2.0], 1.0, context_weight=0.5, context_weights=[1, 1]), 4)
    4.899
    """
    theta = validate.context_weight(context_weight)
    paid = checked_accounts("context_accounts", context_accounts)
    if paid.ndim != 1:
        repair = "Pass policy.context_accounts, or 1 + the rewards of every context."
        raise InvalidArgument("context_accounts", "one number per context", f"shape {paid.shape}", repair)
    weights = validate.context_weights(context_weights, len(paid), paid == 1.0)
    of_arms = welfare_of("accounts", accounts, validate.alpha(alpha), groups)
    mean = float(np.exp((weights / weights.sum()) @ np.log(paid)))
    return number(of_arms ** (1.0 - theta) * mean**theta)


def _per_context(argument: str, values: ArrayLike, count: int) -> Floats:
    allowed = f"numbers in [0, {MOST_ACCOUNT:g}], one per context" + (f" ({count})" if count else "")
    repair = "Pass one number for every context."
    found = validate.floats(argument, allowed, values, repair)
    if not count or found.shape != (count,):
        raise InvalidArgument(argument, allowed, f"shape {found.shape}", repair)
    if not ((found >= 0.0) & (found <= MOST_ACCOUNT)).all():
        raise InvalidArgument(argument, allowed, found, repair)
    return found
