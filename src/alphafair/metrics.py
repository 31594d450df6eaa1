"""Metrics of efficiency and fairness: alpha-performance, Jain's index, shares, regrets, and certificates.

All take `accounts`, R with its initial 1: one vector (n_arms), many (..., n_arms), or the `Trace` of a run, for its
recorded rounds. One vector gives a float, many give an array. The optimum comes from `alphafair.offline_optimum` or
`alphafair.offline_curve`. With `groups=`, a `Groups` or a label per arm, a metric is that of groups; accounts may then
be those of all arms, or of groups, as in `policy.accounts`.
"""

from __future__ import annotations

import math
from collections.abc import Sized
from functools import cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, Groups, GroupsLike, arm_groups
from alphafair.values import Interval, Policy, Trace

Floats = NDArray[np.float64]
Number = Any  # a float for one run, an array for many
Accounts = ArrayLike | Trace
LEAST_ACCOUNT, MOST_ACCOUNT = 1e-150, 1e250  # of R: everything computed from it then fits in a float
MOST_WORTH = 1e150  # of an optimum, in absolute value
LEAST_GAP = 0.005  # of the rewards of uniform play: below it there is no gap to close
MANY_DEGREES = 100_000  # of freedom, above which Student's t is expanded around the normal
FAR = 20.0  # in the tail of Student's t


def utility(x: Accounts, alpha: float) -> Number:
    """phi(x) = x^(1-alpha)/(1-alpha).

    The additive constant matters to c_alpha-regret, so this is not (x^(1-alpha) - 1)/(1-alpha).
    """
    return _number(_utility(_checked("x", x), validate.alpha(alpha)))


def marginal_utility(x: Accounts, alpha: float) -> Number:
    """phi'(x) = x^(-alpha)."""
    return _number(np.power(_checked("x", x), -validate.alpha(alpha)))


def approximation_factor(alpha: float) -> float:
    """c_alpha = (1-alpha)^(-(1-alpha)): at most e^(1/e) < 1.445, and 1 at both ends.

    >>> round(approximation_factor(0.5), 6)
    1.414214
    """
    alpha = validate.alpha(alpha)
    return float((1.0 - alpha) ** -(1.0 - alpha))


def group_accounts(accounts: Accounts, groups: GroupsLike) -> Floats:
    """R_G = 1 + sum over its arms of (R_i - 1), for groups in the order of their first arms.

    >>> group_accounts([3.0, 2.0, 5.0], ["ada", "ben", "ada"]).tolist()
    [7.0, 2.0]
    """
    by_arm = np.atleast_1d(_checked("accounts", accounts))
    return _checked("accounts", arm_groups(groups, by_arm.shape[-1]).accounts(by_arm))


def alpha_performance(accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """sum_i phi(R_i), the objective itself; with groups, sum_G s_G^alpha phi(R_G).

    >>> alpha_performance([4.0, 9.0], 0.5)
    10.0
    """
    return _number(_performance("accounts", accounts, validate.alpha(alpha), groups))


def jain_index(accounts: Accounts, *, groups: GroupsLike | None = None) -> Number:
    """(sum R)^2 / (n sum R^2): 1 if all arms earned the same, 1/n if one earned everything; with groups, of R_G/s_G.

    >>> jain_index([3.0, 3.0, 3.0]), round(jain_index([1.0, 3.0]), 6)
    (1.0, 0.8)
    >>> from alphafair import Groups
    >>> jain_index([1.0, 3.0], groups=Groups(entitlements=[1, 3]))
    1.0
    """
    earned, resolved = _by_group("accounts", accounts, groups)
    if resolved is not None:
        earned = earned / resolved.entitlements
    scaled = earned / earned.max(axis=-1, keepdims=True)  # squares of huge or tiny rewards stay finite
    n = earned.shape[-1]
    found = scaled.sum(axis=-1) ** 2 / (n * (scaled**2).sum(axis=-1))
    return _number(np.clip(found, 1.0 / n, 1.0))  # despite rounding


def average_reward(accounts: Accounts, *, groups: GroupsLike | None = None) -> Number:
    """sum R / n: efficiency."""
    return _number(_by_group("accounts", accounts, groups)[0].mean(axis=-1))


def shares(accounts: Accounts, *, groups: GroupsLike | None = None) -> Floats:
    """R / sum R: the share of every arm, or group."""
    earned, _ = _by_group("accounts", accounts, groups)
    return np.asarray(earned / earned.sum(axis=-1, keepdims=True))


def standard_regret(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT - sum_i phi(R_i). No online policy can keep it small against every adversary; see `approximate_regret`."""
    achieved = _performance("accounts", accounts, validate.alpha(alpha), groups)
    return _number(_optimum(optimum, achieved) - achieved)


def approximate_regret(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT - c_alpha sum_i phi(R_i), which the theorem bounds. Read it with standard_regret and performance_ratio."""
    achieved = approximation_factor(alpha) * _performance("accounts", accounts, validate.alpha(alpha), groups)
    return _number(_optimum(optimum, achieved) - achieved)


def performance_ratio(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT / ALG: 1 is optimal; at most c_alpha in the long run, against any adversary."""
    achieved = _performance("accounts", accounts, validate.alpha(alpha), groups)
    return _number(_optimum(optimum, achieved) / achieved)


def gap_closed(
    optimum: ArrayLike, uniform: Accounts, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """The share of the gap between uniform play and the optimum: 0 is uniform play, 1 the optimum, below 0 worse.

    (ALG - UNI) / (OPT - UNI), in alpha-performance; `uniform` is R of uniform play on the same rounds. If the optimum
    is hardly above uniform play, this can be any number: call `has_gap` first.

    >>> gap_closed(10.0, [2.0, 2.0], [3.0, 4.0], alpha=0.0)
    0.5
    """
    alpha = validate.alpha(alpha)
    achieved = _performance("accounts", accounts, alpha, groups)
    floor = _performance("uniform", uniform, alpha, groups)
    _each("uniform", floor, achieved, "Record both runs at the same rounds.")
    gap = _optimum(optimum, achieved) - floor
    if not (gap > 0.0).all():
        repair = "Check has_gap first: here uniform play is optimal."
        raise InvalidArgument("optimum", "above the performance of uniform play", optimum, repair)
    return _number((achieved - floor) / gap)


def gap_to_close(optimum: ArrayLike, uniform: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """How much can be learned, relative to the rewards of uniform play: 0.01 is 1% more reward for every arm.

    (OPT - UNI) / sum_i R_i^-alpha (R_i - 1), with R of uniform play: the growth of all its rewards that has the value
    of the optimum, to first order. `has_gap` tests whether it is at least half a per cent.

    >>> gap_to_close(12.0, [6.0, 4.0], alpha=0.0)
    0.25
    """
    alpha = validate.alpha(alpha)
    earned, resolved = _by_group("uniform", uniform, groups)
    factors: Any = 1.0 if resolved is None else resolved.factors(alpha)
    floor = _performance("uniform", uniform, alpha, groups)
    slope = (factors * earned**-alpha * np.maximum(0.0, earned - 1.0)).sum(axis=-1)
    gap = _optimum(optimum, floor) - floor
    return _number(np.divide(gap, slope, out=np.zeros(gap.shape), where=slope > 0.0))


def has_gap(
    optimum: float, uniform: Accounts, alpha: float, *, certified: float = 0.0, groups: GroupsLike | None = None
) -> bool:
    """Whether the best fixed policy beats uniform play by at least the value of half a per cent more reward.

    `certified` is the gap of the `offline_optimum`; it is subtracted, and so is rounding.
    """
    sure = optimum - certified - 1e-9 * abs(optimum)
    return bool(np.all(gap_to_close(sure, uniform, alpha, groups=groups) >= LEAST_GAP))


def average_over_seeds(
    samples: ArrayLike, *, level: float = 0.95, within: tuple[float, float] = (-math.inf, math.inf)
) -> Interval:
    """The mean over the first axis, with a Student-t confidence interval of its expectation.

    Regret with bandit feedback is an expectation over the policy's draws, so average it over several seeds. With one
    seed the interval has no width. `within` is the range in which the expectation must lie, and cuts the interval off.

    >>> found = average_over_seeds([[1.0], [2.0], [3.0]])
    >>> found.value.tolist(), found.high.round(3).tolist()
    ([2.0], [4.484])
    """
    repair = "Pass at least one seed."
    allowed = f"numbers in [{-MOST_ACCOUNT:g}, {MOST_ACCOUNT:g}], one row per seed"
    values = validate.floats("samples", allowed, samples, repair)
    level = validate.number("level", level, low=0.0, high=1.0, low_open=True, high_open=True)
    if values.ndim == 0 or values.size == 0 or not (np.abs(values) <= MOST_ACCOUNT).all():
        raise InvalidArgument("samples", allowed, values, repair)
    mean = values.mean(axis=0)
    if len(values) == 1:
        return Interval(*3 * (_number(mean),))
    unit = float(2.0 ** np.frexp(np.abs(values).max())[1])  # a scale in which squares neither overflow nor underflow
    spread = unit * (values / unit).std(axis=0, ddof=1) / math.sqrt(len(values))
    half = -student_quantile((1.0 - level) / 2.0, len(values) - 1) * spread
    sides = (mean, np.maximum(mean - half, within[0]), np.minimum(mean + half, within[1]))
    return Interval(*map(_number, sides))


_legendre = cache(np.polynomial.legendre.leggauss)


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """Return a quantile of Student's t, by Newton on the logarithm of the tail; accurate for small probabilities.

    With t = sqrt(d) sinh(s), P(T > t) = P(T < -t) is k times the integral of cosh(y)^(-d) over y > s. Its logarithm
    is concave in s, so after the first step Newton converges from one side. For very many degrees k loses digits, and
    the expansion around the normal quantile (Abramowitz and Stegun, 26.7.5) is used.

    >>> round(student_quantile(0.975, 29), 6)
    2.04523
    """
    probability = validate.number("probability", probability, low=1e-300, high=1.0, high_open=True)
    degrees = validate.integer("degrees", degrees, low=1)
    if probability > 0.5:
        return -student_quantile(1.0 - probability, degrees)
    if degrees > MANY_DEGREES:
        z, part = NormalDist().inv_cdf(probability), 1 / degrees
        first, second = (z**3 + z) / 4.0, (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0
        third = (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0
        return z + part * (first + part * (second + part * third))
    nodes, weights = _legendre(80)
    log_k = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(math.pi)
    s = 0.0
    for _ in range(40):
        if s < FAR:
            log_cosh = math.log(math.cosh(s))
            reach = math.acosh(math.exp(40.0 / degrees) * math.cosh(s)) - s  # beyond it the integrand is below e^-40
            fall = np.cosh(s + 0.5 * reach * (nodes + 1.0)) / math.cosh(s)
        else:  # cosh(s) is e^s/2, to the last digit
            log_cosh, reach = s - math.log(2.0), 40.0 / degrees
            fall = np.exp(0.5 * reach * (nodes + 1.0))
        integral = 0.5 * reach * float(weights @ fall**-degrees)  # over cosh(s)^(-d)
        log_tail = log_k - degrees * log_cosh + math.log(integral)
        s += (log_tail - math.log(probability)) * integral
    return -math.sqrt(degrees) * math.sinh(s)


def regret_certificate(policy: Policy) -> float:
    """An upper bound of OPT - c_alpha sum_i phi(R_i) for the run so far, whatever the rewards were:

    (1-alpha)^alpha (sum_j 2 sqrt(S_j) + drift) + c_alpha n.

    It holds on every run, without probability or unknown constants: S_j is the sum of squared gradients of context j,
    and drift the cost of late and masked decisions (0 without any). After arms were added or retired, every earlier
    epoch adds sqrt(S_j) at its end, and OPT is the best fixed policy per context and epoch, from the accounts with
    which arms entered: see docs/arms.md. With groups, n is the sum of their s^alpha; with floors, OPT keeps them.

    >>> from alphafair import AlphaFair
    >>> policy = AlphaFair(1, 2, alpha=0.5)
    >>> policy.update(policy.choose(0), [1.0, 1.0])
    >>> round(regret_certificate(policy), 6)
    4.828427
    """
    bound, alpha = policy.surrogate_regret_bound, policy.alpha
    if bound is None or alpha is None:
        repair = "Use AlphaFair; with bandit feedback regret is an expectation, so average it over seeds."
        raise InvalidArgument("policy", "a policy with a surrogate_regret_bound", policy, repair)
    linear, groups = float((1.0 - alpha) ** alpha * bound), policy.groups
    at_start = policy.n_arms if groups is None else float(groups.factors(alpha).sum())
    return linear + approximation_factor(alpha) * at_start


def bound_in_expectation(policy: Policy) -> float:
    """A bound in expectation of OPT - c_alpha sum_i phi(R_i), with bandit feedback.

    The bound is random, like the regret: E[regret] <= E[bound] over the draws of the policy (Theorem 1 of
    docs/theory.md). It is not a certificate of a single run. It is known during the run, if rewards come in order, no
    arm is masked, and arms and alpha do not change. It is wide: use it for the growth of the regret, and test with
    `is_vacuous` whether it is informative.

    >>> from alphafair import AlphaFairAdaptive, simulate, streams
    >>> policy = AlphaFairAdaptive(3, 4, alpha=0.5)
    >>> trace = simulate(policy, streams.ratings(n_rounds=100_000, n_contexts=3, n_arms=4, seed=0))
    >>> bool(bound_in_expectation(policy) < alpha_performance(trace.final, 0.5))
    True
    """
    bound, alpha = policy.expected_surrogate_regret_bound, policy.alpha
    if bound is None or alpha is None:
        repair = "Use AlphaFairAdaptive with bandit feedback, rewards in order and a fixed set of arms."
        raise InvalidArgument("policy", "a policy with an expected_surrogate_regret_bound", policy, repair)
    return float((1.0 - alpha) ** alpha * bound)


def is_vacuous(
    regret_bound: float, optimum: float, n_arms: int, alpha: float, *, groups: GroupsLike | None = None
) -> bool:
    """Whether a bound of OPT - c_alpha sum_i phi(R_i) is uninformative, because no run can exceed it.

    R starts at 1 and never decreases, so this regret is at most OPT - c_alpha sum_i phi(1) for every policy. Early in a
    run most bounds are above that.

    >>> is_vacuous(422.0, optimum=242.0, n_arms=19, alpha=0.9), is_vacuous(44.0, 377.5, 19, 0.9)
    (True, False)
    """
    start = alpha_performance(np.ones(n_arms), alpha, groups=groups)
    return bool(regret_bound >= optimum - approximation_factor(alpha) * start)


def most_worth(total: float, n_arms: int, alpha: float, *, groups: GroupsLike | None = None) -> float:
    """The largest alpha-performance of accounts with this sum: shared in proportion to the entitlements.

    (sum_i s_i)^alpha total^(1-alpha) / (1-alpha), by Hoelder's inequality. No optimum is above it.

    >>> most_worth(18.0, 2, 0.5) == alpha_performance([9.0, 9.0], 0.5)
    True
    """
    alpha, entitled = validate.alpha(alpha), arm_groups(groups, n_arms).entitlements
    return float(entitled.sum() ** alpha * total ** (1.0 - alpha) / (1.0 - alpha))


class Certificates(NamedTuple):
    """Upper bounds for a run, computed from its rewards alone."""

    optimum: float
    approximate_regret: float
    standard_regret: float
    performance_ratio: float
    vacuous: bool = False  # the bounds are uninformative: above the performance of any split of all rewards


def certificates(
    context_reward_totals: ArrayLike,
    accounts: Accounts,
    alpha: float,
    *,
    initial: ArrayLike = 1.0,
    groups: GroupsLike | None = None,
    present: ArrayLike | None = None,
) -> Certificates:
    """Upper bounds of OPT, OPT - c_alpha ALG, OPT - ALG and OPT/ALG for any run, without a solver.

    With w_i = R_i^(-alpha), ALG = sum_i phi(R_i) and A = sum_i w_i + sum_j max_i V_ji w_i, the most that a policy can
    earn at the prices w,

    OPT <= (A / ((1-alpha) ALG))^(1-alpha) ALG.

    It holds for every R, and is never weaker than the regret of the linear problem: docs/theory.md proves both. With
    groups, w_G = (R_G/s_G)^(-alpha), ALG = sum_G s_G^alpha phi(R_G), and A is for policies that keep the floors.

    Parameters
    ----------
    context_reward_totals
        V (n_contexts, n_arms): the sum of every arm's rewards over each context's rounds; see
        `alphafair.context_reward_totals` for a stream.
    accounts
        R, one number per arm, or per group; or a `Trace`, for its last record.
    alpha
        Fairness, in [0, 1), of the comparison; the policy may have another alpha.
    initial
        Accounts before the first reward, instead of 1: one number, or one per group.
    groups, present
        As for `alphafair.offline_optimum`.

    >>> from alphafair import AlphaFair, context_reward_totals, offline_optimum, simulate, streams
    >>> stream = streams.ratings(n_rounds=20_000, n_contexts=3, n_arms=4, seed=0)
    >>> totals, trace = context_reward_totals(stream), simulate(AlphaFair(3, 4, alpha=0.5), stream)
    >>> bounds = certificates(totals, trace, alpha=0.5)
    >>> print(f"OPT is {offline_optimum(totals, 0.5).value:.1f}, at most {bounds.optimum:.1f}: "
    ...       f"{bounds.performance_ratio:.4f} times what was achieved")
    OPT is 484.7, at most 485.7: 1.0042 times what was achieved
    """
    # imported here: no other metric needs kernels
    from alphafair.offline.reduction import MOST_REWARD, Reduction, checked_initial, checked_presence

    alpha = validate.alpha(alpha)
    earned = _checked("accounts", accounts)
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
    by_group, _ = _by_group("accounts", earned, resolved)
    _, merged, base = reduction.merge(np.ascontiguousarray(totals), checked_initial(initial, resolved.n_groups))
    prices = resolved.factors(alpha) * by_group**-alpha
    achieved, most = float(_performance("accounts", by_group, alpha, resolved)), float(prices.max())
    prices /= most  # so that relevant products do not underflow
    worth = float((base * prices).sum() + (merged * prices).max(axis=1).sum())
    log_ratio = (1.0 - alpha) * (math.log(worth) + math.log(most) - math.log((1.0 - alpha) * achieved))
    ratio, above = math.exp(log_ratio), math.expm1(log_ratio)
    factor = approximation_factor(alpha)
    total = float(base.sum() + merged.max(axis=1).sum())
    vacuous = ratio * achieved > (1.0 + 1e-9) * most_worth(total, n_arms, alpha, groups=resolved)
    return Certificates(ratio * achieved, (ratio - factor) * achieved, above * achieved, ratio, vacuous)


def _number(values: ArrayLike) -> Number:
    """Return a float for a single value, else the array."""
    found = np.asarray(values, dtype=np.float64)
    return found if found.ndim else found.item()


def _utility(x: Floats, alpha: float) -> Floats:
    return np.asarray(np.power(x, 1.0 - alpha) / (1.0 - alpha))


def _performance(argument: str, accounts: Accounts, alpha: float, groups: GroupsLike | None) -> Floats:
    earned, resolved = _by_group(argument, accounts, groups)
    worth = _utility(earned, alpha)
    if resolved is not None:
        worth = worth * resolved.factors(alpha)
    return np.asarray(worth.sum(axis=-1))


def _by_group(argument: str, accounts: Accounts, groups: GroupsLike | None) -> tuple[Floats, ArmGroups | None]:
    """Return R by group, from R by arm or by group, and the groups; without groups R itself and None."""
    earned = _checked(argument, accounts)
    if groups is None:
        return earned, None
    n = earned.shape[-1] if earned.ndim else 1
    resolved = arm_groups(groups, _arm_count(groups, n))
    if n == resolved.n_arms:
        return _checked(argument, resolved.accounts(earned)), resolved
    if n == resolved.n_groups:
        return earned, resolved
    allowed = f"one number for each of {resolved.n_arms} arms, or of {resolved.n_groups} groups"
    raise InvalidArgument(argument, allowed, f"shape {earned.shape}", "Pass a label for every arm.")


def _arm_count(groups: GroupsLike, otherwise: int) -> int:
    """Return the number of labels, if there are labels."""
    if isinstance(groups, ArmGroups):
        return groups.n_arms
    labels = Groups.of(groups).labels
    return len(labels) if isinstance(labels, Sized) else otherwise


def _checked(argument: str, accounts: Accounts) -> Floats:
    repair = "Accounts start at 1: add it if it is missing."
    allowed = f"numbers in [{LEAST_ACCOUNT:g}, {MOST_ACCOUNT:g}]"
    array = validate.floats(argument, allowed, accounts.accounts if isinstance(accounts, Trace) else accounts, repair)
    if array.size == 0 or not ((array >= LEAST_ACCOUNT) & (array <= MOST_ACCOUNT)).all():
        raise InvalidArgument(argument, allowed, array, repair)
    return array


def _optimum(value: ArrayLike, achieved: Floats) -> Floats:
    """Check one number, or one for each alpha-performance."""
    repair = "Pass the value of an offline_optimum, or the values of an offline_curve at the recorded rounds."
    optimum = validate.floats("optimum", "one number, or one per record", value, repair)
    if not (np.abs(optimum) <= MOST_WORTH).all():
        raise InvalidArgument("optimum", f"numbers in [{-MOST_WORTH:g}, {MOST_WORTH:g}]", optimum, repair)
    _each("optimum", optimum, achieved, repair)
    return optimum


def _each(argument: str, values: Floats, achieved: Floats, repair: str) -> None:
    """Check that there is one value, or one per record."""
    if values.shape != achieved.shape[achieved.ndim - values.ndim :]:
        allowed = f"one number, or as many as the records, shape {achieved.shape}"
        raise InvalidArgument(argument, allowed, f"shape {values.shape}", repair)
