"""Upper bounds of regret and of the optimum: from a policy during its run, and from the rewards of any run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, GroupsLike, arm_groups
from alphafair.math.utility import played_alpha
from alphafair.math.welfare import ln_alpha
from alphafair.metrics.accounts import (
    Accounts,
    Floats,
    alpha_performance,
    approximation_factor,
    by_group,
    checked_accounts,
    money_of,
    performance_of,
    power_mean,
    welfare_of,
)
from alphafair.values import Policy, Trace

if TYPE_CHECKING:
    from alphafair.offline.sides import Joint, Promise

Bound = Any  # a float, or None where it does not exist
LEAST_RATIO = 1e-300  # of an optimum to what was achieved: its logarithm exists
EPSILON = float(np.finfo(np.float64).eps)


def regret_certificate(policy: Policy) -> float:
    """An upper bound of OPT - c_alpha sum_i phi(R_i) for the run so far, whatever the rewards were:

    (1-alpha)^alpha (sum_j 2 sqrt(S_j) + drift) + c_alpha n.

    It holds on every run, without probability or unknown constants: S_j is the sum of squared gradients of context j,
    and drift the cost of late and masked decisions (0 without any). After arms were added or retired, every earlier
    epoch adds sqrt(S_j) at its end, and OPT is the best fixed policy per context and epoch, from the accounts with
    which arms entered: see docs/howto/add_and_retire_arms.md. With groups, n is the sum of their s^alpha; with floors,
    OPT keeps them.

    >>> from alphafair import AlphaFair
    >>> policy = AlphaFair(1, 2, alpha=0.5)
    >>> policy.update(policy.choose(0), [1.0, 1.0])
    >>> round(regret_certificate(policy), 6)
    4.828427
    """
    _check_one_side(policy, "metrics.welfare_certificate")
    bound, alpha = _surrogate_bound(policy)
    validate.alpha_below_one(alpha, instead="metrics.welfare_certificate")
    linear, groups = float((1.0 - alpha) ** alpha * bound), policy.groups
    at_start = policy.n_arms if groups is None else float(groups.factors(alpha).sum())
    together = 0.0 if groups is None else _earned_together(policy, groups, alpha)
    return linear + together + approximation_factor(alpha) * at_start


def _earned_together(policy: Policy, groups: ArmGroups, alpha: float) -> float:
    """What several arms of a group in one slate, which can earn more than 1 in a round, add to the bound."""
    excess = np.maximum(0.0, _most_at_once(policy, groups) - 1.0 / (1.0 - alpha))
    return float((1.0 - alpha) ** alpha * (groups.factors(alpha) * excess).sum())


def bound_in_expectation(policy: Policy) -> float:
    """A bound in expectation of OPT - c_alpha sum_i phi(R_i), with bandit feedback.

    The bound is random, like the regret: E[regret] <= E[bound] over the draws of the policy (Theorem 1 of
    docs/background/theory.md). It is not a certificate of a single run. It is known during the run, if rewards come in
    order, no arm is masked, and arms and alpha do not change. It is wide: use it for the growth of the regret, and test
    with `is_vacuous` whether it is informative.

    >>> from alphafair import AlphaFairAdaptive, simulate, streams
    >>> policy = AlphaFairAdaptive(3, 4, alpha=0.5)
    >>> trace = simulate(policy, streams.ratings(n_rounds=100_000, n_contexts=3, n_arms=4, seed=0))
    >>> bool(bound_in_expectation(policy) < alpha_performance(trace.final, 0.5))
    True
    """
    _check_one_side(policy, "metrics.expected_welfare_budget")
    bound, alpha = _expected_bound(policy)
    validate.alpha_below_one(alpha, instead="metrics.expected_welfare_budget")
    return float((1.0 - alpha) ** alpha * bound)


def welfare_certificate(policy: Policy) -> float:
    """An upper bound of the welfare of the best fixed policy over that of the policy's accounts, for the run so far.

    W(R*) <= W^alpha (1 + ln_alpha W + Reg/n) for every alpha, whatever the rewards were (Theorem C of
    docs/background/theory.md), where Reg is the `surrogate_regret_bound` of the policy; with groups, entry accounts and
    entitlements take the place of 1. It needs nothing but the policy. `certificates`, which needs the rewards too, is
    never weaker.

    Above alpha = 64 policies play 16, and W_alpha(R*) <= W_16(R*) is bounded.

    With a context weight and fixed weights of contexts, for alpha of at most 1, the same of the joint objective W_2:
    with accounts of 1 at first the bound is 1 + ln W_2 + Reg.

    >>> from alphafair import AlphaFair
    >>> policy = AlphaFair(1, 2, alpha=0.5)
    >>> policy.update(policy.choose(0), [1.0, 1.0])
    >>> round(welfare_certificate(policy), 6)
    2.338204
    """
    if policy.context_weight > 0.0:
        return _joint_budget(policy, policy.surrogate_regret_bound)
    bound, alpha = _surrogate_bound(policy)
    played = played_alpha(alpha)
    budget, earned, s = _budget(policy, bound, played)
    levels = earned / s
    return float(budget * power_mean(levels, s, played) / power_mean(levels, s, alpha))


def expected_welfare_budget(policy: Policy) -> float:
    """A bound in expectation of sum_i w_i R*_i / sum_i w_i R_i times sum_i w_i R_i, with bandit feedback.

    With w_i = R_i^-alpha at the end of the run, E[sum_i w_i R*_i] <= E[this number] over the draws of the policy, for
    every fixed policy: this is n + sum_i ln_alpha R_i + the `expected_surrogate_regret_bound`. At alpha = 1 it gives
    E[ln(W*/W)] <= ln(E[this]/n): average it over seeds before taking the logarithm. It is not a certificate of one run.
    With a context weight and fixed weights it is 1 + ln W_2 + the bound, and E[ln(W_2*/W_2)] <= ln(E[this]).

    >>> from alphafair import AlphaFairAdaptive, simulate, streams
    >>> policy = AlphaFairAdaptive(3, 4, alpha=0.5)
    >>> trace = simulate(policy, streams.ratings(n_rounds=1_000, n_contexts=3, n_arms=4, seed=0))
    >>> bool(expected_welfare_budget(policy) > alpha_performance(trace.final, 0.5) / 2)
    True
    """
    if policy.context_weight > 0.0:
        return _joint_budget(policy, policy.expected_surrogate_regret_bound)
    bound, alpha = _expected_bound(policy)
    played = played_alpha(alpha)
    budget, earned, s = _budget(policy, bound, played)
    return float(budget * s.sum() * power_mean(earned / s, s, played) ** (1.0 - played))


def is_vacuous(
    regret_bound: float, optimum: float, n_arms: int, alpha: float, *, groups: GroupsLike | None = None
) -> bool:
    """Whether a bound of OPT - c_alpha sum_i phi(R_i) is uninformative, because no run can exceed it.

    R starts at 1 and never decreases, so this regret is at most OPT - c_alpha sum_i phi(1) for every policy. Early in a
    run most bounds are above that.

    >>> is_vacuous(422.0, optimum=242.0, n_arms=19, alpha=0.9), is_vacuous(44.0, 377.5, 19, 0.9)
    (True, False)
    """
    factor = approximation_factor(alpha)
    return bool(regret_bound >= optimum - factor * alpha_performance(np.ones(n_arms), alpha, groups=groups))


def most_worth(total: float, n_arms: int, alpha: float, *, groups: GroupsLike | None = None) -> float:
    """The largest alpha-performance of accounts with this sum: shared in proportion to the entitlements.

    (sum_i s_i)^alpha total^(1-alpha) / (1-alpha), by Hoelder's inequality. No optimum is above it.

    >>> most_worth(18.0, 2, 0.5) == alpha_performance([9.0, 9.0], 0.5)
    True
    """
    alpha = validate.alpha_below_one(alpha, "positive utilities", "metrics.most_welfare")
    entitled = arm_groups(groups, n_arms).entitlements
    return float(entitled.sum() ** alpha * total ** (1.0 - alpha) / (1.0 - alpha))


def most_welfare(total: float, n_arms: int, *, groups: GroupsLike | None = None) -> float:
    """The largest welfare of accounts with this sum, for every alpha: their mean, or total / sum_i s_i.

    >>> most_welfare(18.0, 2)
    9.0
    """
    return float(total / arm_groups(groups, n_arms).entitlements.sum())


class Certificates(NamedTuple):
    """Upper bounds for a run, computed from its rewards alone.

    With a `context_weight` only the last exists, and the others are None.

    The first four are in alpha-performance. From alpha = 1 on only the standard regret exists, and at inf none of them:
    they are None. The last three are in welfare.
    """

    optimum: Bound
    approximate_regret: Bound
    standard_regret: Bound
    performance_ratio: Bound
    vacuous: Bound  # the bounds are uninformative: above the performance of any split of all rewards
    welfare: Bound  # of the best fixed policy
    welfare_ratio: Bound  # the same over the welfare of the accounts
    boxed_welfare_ratio: Bound  # a bound that also uses what each account can be at most; never weaker
    two_sided_welfare_ratio: Bound = None  # of the best fixed policy over that of the accounts of arms and contexts


def certificates(
    context_reward_totals: ArrayLike,
    accounts: Accounts,
    alpha: float,
    *,
    initial: ArrayLike = 1.0,
    groups: GroupsLike | None = None,
    present: ArrayLike | None = None,
    prices: ArrayLike | None = None,
    k: ArrayLike = 1,
    context_share: float = 0.0,
    context_weight: float = 0.0,
    context_weights: ArrayLike | None = None,
    context_accounts: ArrayLike | None = None,
) -> Certificates:
    """Upper bounds of OPT, OPT - c_alpha ALG, OPT - ALG and OPT/ALG for any run, and of the welfare, without a solver.

    With w_i = R_i^(-alpha), ALG = sum_i phi(R_i) and A = sum_i w_i + sum_j max_i V_ji w_i, the most that a policy can
    earn at the prices w,

    OPT <= (A / ((1-alpha) ALG))^(1-alpha) ALG.

    It holds for every R, and is never weaker than the regret of the linear problem: docs/background/theory.md proves
    both. With groups, w_G = (R_G/s_G)^(-alpha), ALG = sum_G s_G^alpha phi(R_G), and A is for policies that keep the
    floors. In welfare, for every alpha, W(R*) <= (A / sum_i w_i R_i) W(R): Theorem B.

    Parameters
    ----------
    context_reward_totals
        V (n_contexts, n_arms): the sum of every arm's rewards over each context's rounds; see
        `alphafair.context_reward_totals` for a stream.
    accounts
        R, one number per arm, or per group; or a `Trace`, for its last record.
    alpha
        Fairness, 0 to inf, of the comparison; the policy may have another alpha.
    initial
        Accounts before the first reward, instead of 1: one number, or one per group.
    groups, present
        As for `alphafair.offline_optimum`.
    prices
        Accounts whose w is used instead of that of `accounts`, by arm or group. Every choice gives a valid bound; the
        accounts that a policy played with, `policy.accounts`, usually give the best. Above alpha = 64 the exponent of
        w is 16, as in policies.
    k
        Number of arms that a decision shows: as for `alphafair.offline_optimum`.
    context_share
        Compare with the policies that give every context at least this share of its best. A run that does not may be
        better than all of them: ratios below 1 are possible.
    context_weight, context_weights
        As for `alphafair.offline_optimum`: bound W_2(R*, U*) / W_2(R, U).
    context_accounts
        With a context weight, U of the run: 1 + the rewards in each context, or `policy.context_accounts`.

    >>> from alphafair import AlphaFair, context_reward_totals, offline_optimum, simulate, streams
    >>> stream = streams.ratings(n_rounds=20_000, n_contexts=3, n_arms=4, seed=0)
    >>> totals, trace = context_reward_totals(stream), simulate(AlphaFair(3, 4, alpha=0.5), stream)
    >>> bounds = certificates(totals, trace, alpha=0.5)
    >>> print(f"OPT is {offline_optimum(totals, 0.5).value:.1f}, at most {bounds.optimum:.1f}: "
    ...       f"{bounds.performance_ratio:.4f} times what was achieved")
    OPT is 484.7, at most 485.7: 1.0042 times what was achieved
    >>> print(f"welfare ratio at most {bounds.welfare_ratio:.4f}")
    welfare ratio at most 1.0084
    """
    # imported here: no other metric needs kernels
    from alphafair.offline.reduction import MOST_REWARD, Reduction, checked_initial, checked_presence
    from alphafair.offline.sides import Joint, Promise, Sides, side_of
    from alphafair.offline.slates import Rows, checked_k

    alpha = validate.alpha(alpha)
    earned = checked_accounts("accounts", accounts)
    if isinstance(accounts, Trace):
        earned = earned[-1]
    repair = "Pass context_reward_totals(stream), and the accounts of one run."
    totals = validate.floats("context_reward_totals", "finite, (n_contexts, n_arms)", context_reward_totals, repair)
    if earned.ndim != 1:
        raise InvalidArgument("accounts", "one number per arm", f"shape {earned.shape}", repair)
    n_arms = len(earned) if groups is None or totals.ndim != 2 else totals.shape[1]  # R may be by group
    if totals.ndim != 2 or totals.shape[1] != n_arms or not ((totals >= 0.0) & (totals <= MOST_REWARD)).all():
        allowed = f"numbers in [0, {MOST_REWARD:g}], one row per context, {n_arms} columns"
        raise InvalidArgument("context_reward_totals", allowed, totals, repair)
    there = None if present is None else checked_presence(present, totals)
    reduction = Reduction.of(n_arms, groups, there)
    resolved = reduction.groups
    paid, _ = by_group("accounts", earned, resolved)
    first = checked_initial(initial, resolved.n_groups)
    priced = paid if prices is None else by_group("prices", prices, resolved)[0]
    if priced.shape != paid.shape:
        raise InvalidArgument("prices", "one number per arm or group", f"shape {priced.shape}", repair)
    sides = Sides.of(totals, context_share, context_weight, context_weights, present, k)
    repair = "Pass a context_weight as well."
    if context_accounts is not None and (sides is None or sides.weight == 0.0):
        raise InvalidArgument("context_accounts", "None without a context_weight", context_accounts, repair)
    reach: Reach
    if (checked_k(k, len(totals)) > 1).any():
        reach = OfSlates(np.ascontiguousarray(totals), first, resolved, Rows.of(k, totals.shape, resolved, there))
    else:
        best, merged, base = reduction.merge(np.ascontiguousarray(totals), first)
        side = None if sides is None else side_of(sides, reduction, totals, best, merged)
        reach = OfSingleArms(first, best, merged, base, side if isinstance(side, Promise) else None)
        if isinstance(side, Joint):
            found = _two_sided(paid, first, reach, side, resolved, alpha, prices, context_accounts)
            return Certificates(*7 * (None,), None, two_sided_welfare_ratio=found)
    with np.errstate(under="ignore"):
        bound, boxed, rounding = _most_reachable(priced, first, reach, totals.shape, resolved.entitlements, alpha)
    achieved = float(welfare_of("accounts", paid, alpha, resolved))
    in_welfare = bound, bound / achieved, boxed / achieved
    total = float(first.sum()) + reach.above_first(np.ones(len(first)))
    if alpha >= 1.0:
        standard = None
        if alpha < math.inf:
            standard = money_of(achieved, resolved, alpha) * ln_alpha(bound / achieved, alpha)
            standard = math.nextafter(standard * (1.0 + alpha * rounding), math.inf)  # it may underflow
        vacuous = bound > (1.0 + 1e-9) * most_welfare(total, n_arms, groups=resolved)
        return Certificates(None, None, standard, None, vacuous, *in_welfare)
    performance = float(performance_of("accounts", paid, alpha, resolved))
    log_ratio = (1.0 - alpha) * math.log(max(bound / achieved, LEAST_RATIO))
    ratio, above = math.exp(log_ratio) * (1.0 + rounding), math.expm1(log_ratio) * performance
    factor = approximation_factor(alpha)
    vacuous = ratio * performance > (1.0 + 1e-9) * most_worth(total, n_arms, alpha, groups=resolved)
    regrets = (ratio - factor) * performance, above + rounding * abs(above)
    return Certificates(ratio * performance, *regrets, ratio, vacuous, *in_welfare)


class Reach(Protocol):
    """What fixed policies can earn above the first accounts: at prices w together, and every group at most."""

    def above_first(self, w: Floats) -> float: ...
    def highest(self) -> Floats: ...


@dataclass(frozen=True)
class OfSingleArms:
    """Of one arm per decision: the parts of `alphafair.offline.reduction`."""

    first: Floats
    best: Floats
    merged: Floats
    base: Floats
    promise: Promise | None = None

    def above_first(self, w: Floats) -> float:
        worth, given = self.merged * w, float(((self.base - self.first) * w).sum())
        if self.promise is not None:
            p = self.promise.prices(worth, 1.0, self.merged)
            worth, given = worth + self.merged * p[:, None], given + self.promise.beside(p)
        return given + float(worth.max(axis=1).sum())

    def highest(self) -> Floats:
        return np.asarray(self.first + self.best.sum(axis=0))


@dataclass(frozen=True)
class OfSlates:
    """Of several arms per decision: floors, and the topmost arms of every row of totals."""

    totals: Floats
    first: Floats
    groups: ArmGroups
    rows: Any

    def above_first(self, w: Floats) -> float:
        of_arms = w[self.groups.of_arms]
        return float(self.rows.promised(self.totals) @ of_arms + self.rows.most(self.totals, of_arms))

    def highest(self) -> Floats:
        g, promised = np.arange(self.groups.n_groups), self.rows.promised(self.totals)
        own = [self.rows.most(self.totals, (self.groups.of_arms == each).astype(np.float64)) for each in g]
        return np.asarray(self.first + np.bincount(self.groups.of_arms, promised, len(g)) + own)


def _most_reachable(
    priced: Floats, first: Floats, reach: Reach, shape: tuple[int, ...], s: Floats, alpha: float
) -> tuple[float, float, float]:
    """Return two upper bounds of the welfare of any fixed policy, by Theorem B: at the prices alone, and boxed.

    At prices w no policy earns more than A(w). Among accounts worth A, the welfare is largest at a multiple of
    y = s w^(-1/alpha); in the boxes [a_i, a_i + sum_j max_{i in G} V_ji], at such a multiple clipped to them. Both are
    raised by what rounding may have lost, relative to them, which is the third number.
    """
    levels, played = priced / s, played_alpha(alpha)
    w = (levels / levels.min()) ** -played
    y = priced if played == alpha else s * (levels / levels.min()) ** (played / alpha)
    highest = reach.highest()
    rounding = _rounding(shape, levels, first / s, highest / s)
    above_first = reach.above_first(w) * (1.0 + rounding)
    worth = float((first * w).sum()) + above_first
    bound = worth * float(power_mean(y / s, s, alpha) / (w * y).sum())
    inside = _filled(y, first, highest, w, above_first + 4.0 * EPSILON * float((first * w).sum()))
    boxed = float(power_mean(inside / s, s, alpha))
    return bound * (1.0 + rounding), min(bound, boxed) * (1.0 + rounding), rounding


def _two_sided(
    paid: Floats,
    first: Floats,
    reach: OfSingleArms,
    side: Joint,
    groups: ArmGroups,
    alpha: float,
    prices: ArrayLike | None,
    context_accounts: ArrayLike | None,
) -> float:
    """Return A = sum_k p_k Y_k(0) + sum_j max_i V_ji (p_i + p_j) at the derivatives p of ln W_2 at the accounts.

    No fixed policy has a W_2 above A times that of the accounts, because W_2 is concave and scales with them. Above
    alpha = 64, W_alpha(R*) <= W_16(R*) is bounded.
    """
    if prices is not None:
        raise InvalidArgument(
            "prices", "left out with a context_weight", f"shape {np.shape(prices)}", "Leave them out."
        )
    count = len(side.parts)
    repair = "Pass policy.context_accounts, or 1 + the rewards of every context."
    if context_accounts is None:
        raise InvalidArgument("context_accounts", "given with a context_weight", None, repair)
    u = checked_accounts("context_accounts", context_accounts)
    if u.shape != (count,):
        raise InvalidArgument("context_accounts", f"one number per context ({count})", f"shape {u.shape}", repair)
    s, played = groups.entitlements, played_alpha(alpha)
    levels, arms_own = paid / s, 1.0 / (1.0 + float(side.parts.sum()))
    w = (levels / levels.min()) ** -played
    w *= arms_own / float(w @ paid)
    p = arms_own * side.parts / u
    most = float(w @ reach.base) + side.beside(p) + float((reach.merged * (w + p[:, None])).max(axis=1).sum())
    steeper = float(power_mean(levels, s, played) / power_mean(levels, s, alpha))
    rounding = _rounding(reach.merged.shape, levels, u, np.ones(1))
    return float(most * steeper**arms_own * (1.0 + 2.0 * rounding))


def _rounding(shape: tuple[int, ...], *levels: Floats) -> float:
    """Bound the relative error of sums of this many positive terms, and of power means of levels in this range."""
    least, most = min(each.min() for each in levels), max(each.max() for each in levels)
    return float(4.0 * EPSILON * (sum(shape) + 8.0 + np.log(most) - np.log(least)))


def _filled(y: Floats, low: Floats, high: Floats, w: Floats, slack: float) -> Floats:
    """Return clip(mu y, low, high) with the mu at which it is worth `slack` more than `low` at prices w, or `high`.

    Only gains over `low` are compared: an arm with a small price can hold much of `slack`,
    though its worth is below the last digit of that of all arms. Rounding makes mu too large rather than too small.
    """

    def gain(mu: float) -> float:
        with np.errstate(over="ignore"):
            return float((w * (np.clip(mu * y, low, high) - low)).sum())

    if float((w * (high - low)).sum()) <= slack:
        return high
    marks = np.sort(np.concatenate([low / y, high / y]))  # between two of them the gain is linear in mu
    below, above = 0, len(marks) - 1
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if gain(marks[middle]) <= slack else (below, middle)
    with np.errstate(over="ignore"):  # and is clipped
        between = 0.5 * (marks[below] + marks[above]) * y
        rate = float((w * y)[(between > low) & (between < high)].sum())
        step = max(0.0, slack - gain(marks[below])) / rate if rate > 0.0 else math.inf
        return np.asarray(np.clip(min(marks[above], marks[below] + step) * y, low, high))


def _budget(policy: Policy, bound: float, alpha: float) -> tuple[float, Floats, Floats]:
    """Return the bound (A3) of sum_i w_i R*_i over sum_i w_i R_i, from a bound of the linear regret; R, and s.

    sum_i {s_i^alpha [phi(R_i) - phi(a_i)] + m_i phi'(a_i/s_i) + (a_i - m_i) w_i} + bound, all in units of the entry
    accounts a, so that large accounts at a large alpha neither overflow nor underflow. m is the most that an account
    can earn in a round: 1, or the number of arms of the group that a slate can show.
    """
    earned = np.asarray(policy.accounts, dtype=np.float64)
    s = np.ones(len(earned)) if policy.groups is None else policy.groups.entitlements
    entered = policy.entry_accounts
    entry = np.ones(len(earned)) if entered is None else np.asarray(entered, dtype=np.float64)
    at_once = np.ones(len(earned)) if policy.groups is None else _most_at_once(policy, policy.groups)
    unit = float(power_mean(entry / s, s, alpha))
    now, then = earned / s / unit, entry / s / unit
    with np.errstate(over="ignore", under="ignore"):
        gained = s * then ** (1.0 - alpha) * [ln_alpha(ratio, alpha) for ratio in now / then]
        slopes = (at_once * then**-alpha + (entry - at_once) * now**-alpha) / unit
        linear = bound * np.float64(unit) ** (alpha - 1.0) if bound > 0.0 else bound
        budget = float((gained + slopes).sum() + linear) / float((s * now ** (1.0 - alpha)).sum())
    return budget * (1.0 + (1.0 + alpha) * _rounding(s.shape, now, then)), earned, s


def _check_one_side(policy: Policy, instead: str) -> None:
    """Raise for policies whose bounds are those of the joint objective."""
    if policy.context_weight > 0.0:
        raise InvalidArgument("policy", "one without a context_weight", policy, f"Use {instead}.")


def _joint_budget(policy: Policy, bound: float | None) -> float:
    """Return the right-hand side of Lemma 1 of docs/background/theory.md, for the joint objective:

    ln W_2(Y) - ln W_2(Y_0) + sum_k p0_k + sum_k (Y0_k - 1) p_k + Reg, from the entry accounts Y_0 of arms and contexts.
    """
    alpha, theta = policy.alpha, policy.context_weight
    if alpha is None or alpha > 1.0:
        repair = "Use metrics.certificates, which needs the rewards."
        raise InvalidArgument("alpha", "at most 1 with a context_weight", alpha, repair)
    if policy.context_weights is None or bound is None:
        repair = "Pass context_weights, or use metrics.certificates."
        raise InvalidArgument("policy", "one with fixed context_weights", policy.name, repair)
    arms = np.asarray(policy.entry_accounts, dtype=np.float64)
    s = np.ones(len(arms)) if policy.groups is None else policy.groups.entitlements
    parts = np.array(policy.context_weights) / sum(policy.context_weights)

    def at(accounts: Any, of_contexts: Any) -> tuple[float, Floats, Floats]:
        """Return ln W_2, and its derivatives."""
        earned, paid = (np.asarray(each, dtype=np.float64) for each in (accounts, of_contexts))
        slopes = (earned / s) ** -alpha
        value = (1.0 - theta) * math.log(power_mean(earned / s, s, alpha)) + theta * float(parts @ np.log(paid))
        return value, (1.0 - theta) * slopes / float(slopes @ earned), theta * parts / paid

    contexts = np.asarray(policy.context_entry_accounts, dtype=np.float64)
    now, then = at(policy.accounts, policy.context_accounts), at(arms, contexts)
    entered = float((arms - 1.0) @ now[1]) + float((contexts - 1.0) @ now[2])
    return now[0] - then[0] + float(then[1].sum() + then[2].sum()) + entered + bound


def _most_at_once(policy: Policy, groups: ArmGroups) -> Floats:
    """Return how many arms of every group one decision may have shown."""
    return np.minimum(policy.most_shown, np.bincount(groups.of_arms, minlength=groups.n_groups)).astype(np.float64)


def _surrogate_bound(policy: Policy) -> tuple[float, float]:
    if policy.surrogate_regret_bound is None or policy.alpha is None:
        repair = "Use AlphaFair; with bandit feedback regret is an expectation, so average it over seeds."
        raise InvalidArgument("policy", "a policy with a surrogate_regret_bound", policy, repair)
    return policy.surrogate_regret_bound, policy.alpha


def _expected_bound(policy: Policy) -> tuple[float, float]:
    if policy.expected_surrogate_regret_bound is None or policy.alpha is None:
        repair = "Use AlphaFairAdaptive with bandit feedback, rewards in order and a fixed set of arms."
        raise InvalidArgument("policy", "a policy with an expected_surrogate_regret_bound", policy, repair)
    return policy.expected_surrogate_regret_bound, policy.alpha
