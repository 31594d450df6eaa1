"""Metrics of accounts: alpha-performance, welfare, shares, regrets, and how commands and pages write them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.formatting import ALPHA, amount, capital, fixed
from alphafair.groups import ArmGroups, Groups, GroupsLike, arm_groups
from alphafair.values import Trace

Floats = NDArray[np.float64]
Number = Any  # a float for one run, an array for many
Accounts = ArrayLike | Trace
LEAST_ACCOUNT, MOST_ACCOUNT = 1e-150, 1e250  # of R: everything computed from it then fits in a float
MOST_WORTH = 1e150  # of an optimum, in absolute value
LEAST_GAP = 0.005  # of the rewards of uniform play: below it there is no gap to close
VALUE_REPAIR = "Pass the value of an offline_optimum, or the values of an offline_curve at the recorded rounds."
WELFARE_REPAIR = "Pass the welfare of an offline_optimum, or an offline_welfare_curve at the recorded rounds."


def utility(x: Accounts, alpha: float) -> Number:
    """phi(x) = x^(1-alpha)/(1-alpha), and log x at alpha = 1.

    The additive constant matters to c_alpha-regret, so this is not (x^(1-alpha) - 1)/(1-alpha).
    """
    return number(_utility(checked_accounts("x", x), _finite(alpha)))


def marginal_utility(x: Accounts, alpha: float) -> Number:
    """phi'(x) = x^(-alpha)."""
    with np.errstate(over="ignore", under="ignore"):
        return number(np.power(checked_accounts("x", x), -_finite(alpha)))


def approximation_factor(alpha: float) -> float:
    """c_alpha = (1-alpha)^(-(1-alpha)) for alpha < 1: at most e^(1/e) < 1.445, and 1 at both ends.

    No online policy can have a smaller factor for all numbers of arms (docs/background/theory.md, Theorem D).

    >>> round(approximation_factor(0.5), 6)
    1.414214
    """
    alpha = validate.alpha_below_one(alpha)
    return float((1.0 - alpha) ** -(1.0 - alpha))


def group_accounts(accounts: Accounts, groups: GroupsLike) -> Floats:
    """R_G = 1 + sum over its arms of (R_i - 1), for groups in the order of their first arms.

    >>> group_accounts([3.0, 2.0, 5.0], ["ada", "ben", "ada"]).tolist()
    [7.0, 2.0]
    """
    by_arm = np.atleast_1d(checked_accounts("accounts", accounts))
    return checked_accounts("accounts", arm_groups(groups, by_arm.shape[-1]).accounts(by_arm))


def alpha_performance(accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """sum_i phi(R_i), the objective itself; with groups, sum_G s_G^alpha phi(R_G). alpha must be finite.

    >>> alpha_performance([4.0, 9.0], 0.5)
    10.0
    """
    return number(performance_of("accounts", accounts, _finite(alpha), groups))


def welfare(accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """The power mean of accounts: the equal account of all arms that is worth as much as these.

    W = (sum_i R_i^(1-alpha)/n)^(1/(1-alpha)): the arithmetic mean at alpha = 0, the geometric at 1, the harmonic at 2,
    the least account at inf. With groups, the mean of R_G/s_G with weights s_G. It ranks accounts as
    `alpha_performance` does, in units of reward: twice the rewards have twice the welfare.

    >>> [round(welfare([1.0, 4.0, 9.0], alpha), 4) for alpha in (0, 0.5, 1, 2, float("inf"))]
    [4.6667, 4.0, 3.3019, 2.2041, 1.0]
    """
    return number(welfare_of("accounts", accounts, validate.alpha(alpha), groups))


def welfare_ratio(optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """The welfare of the optimum over that of the accounts: 1 is optimal, 1.1 leaves 10% more reward for every arm.

    `optimum` is the `welfare` of an `offline_optimum`, or the result of an `offline_welfare_curve`.

    >>> welfare_ratio(8.0, [4.0, 4.0], alpha=2.0)
    2.0
    """
    achieved = welfare_of("accounts", accounts, validate.alpha(alpha), groups)
    return number(_optimum(optimum, achieved, WELFARE_REPAIR) / achieved)


def jain_index(accounts: Accounts, *, groups: GroupsLike | None = None) -> Number:
    """(sum R)^2 / (n sum R^2): 1 if all arms earned the same, 1/n if one earned everything; with groups, of R_G/s_G.

    >>> jain_index([3.0, 3.0, 3.0]), round(jain_index([1.0, 3.0]), 6)
    (1.0, 0.8)
    >>> from alphafair import Groups
    >>> jain_index([1.0, 3.0], groups=Groups(entitlements=[1, 3]))
    1.0
    """
    earned, resolved = by_group("accounts", accounts, groups)
    if resolved is not None:
        earned = earned / resolved.entitlements
    scaled = earned / earned.max(axis=-1, keepdims=True)  # squares of huge or tiny rewards stay finite
    n = earned.shape[-1]
    found = scaled.sum(axis=-1) ** 2 / (n * (scaled**2).sum(axis=-1))
    return number(np.clip(found, 1.0 / n, 1.0))  # despite rounding


def average_reward(accounts: Accounts, *, groups: GroupsLike | None = None) -> Number:
    """sum R / n: efficiency."""
    return number(by_group("accounts", accounts, groups)[0].mean(axis=-1))


def shares(accounts: Accounts, *, groups: GroupsLike | None = None) -> Floats:
    """R / sum R: the share of every arm, or group."""
    earned, _ = by_group("accounts", accounts, groups)
    return np.asarray(earned / earned.sum(axis=-1, keepdims=True))


def least_share(accounts: Accounts, *, groups: GroupsLike | None = None) -> Number:
    """min R / sum R: the share of the arm, or group, that earned least.

    >>> least_share([3.0, 1.0])
    0.25
    """
    return number(shares(accounts, groups=groups).min(axis=-1))


def greatest_share(accounts: Accounts, *, groups: GroupsLike | None = None) -> Number:
    """max R / sum R: the share of the arm, or group, that earned most."""
    return number(shares(accounts, groups=groups).max(axis=-1))


def standard_regret(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT - sum_i phi(R_i). No online policy can keep it small against every adversary; see `approximate_regret`."""
    achieved = performance_of("accounts", accounts, _finite(alpha), groups)
    return number(_optimum(optimum, achieved) - achieved)


def approximate_regret(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT - c_alpha sum_i phi(R_i), which the theorem bounds, for alpha < 1; from 1 on see `welfare_ratio`.

    Read it with standard_regret and performance_ratio.
    """
    achieved = approximation_factor(alpha) * performance_of("accounts", accounts, validate.alpha(alpha), groups)
    return number(_optimum(optimum, achieved) - achieved)


def performance_ratio(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT / ALG for alpha < 1: 1 is optimal; at most c_alpha in the long run, against any adversary."""
    alpha = validate.alpha_below_one(alpha, "a ratio of alpha-performances")
    achieved = performance_of("accounts", accounts, alpha, groups)
    return number(_optimum(optimum, achieved) / achieved)


def gap_closed(
    optimum: ArrayLike,
    uniform: Accounts,
    accounts: Accounts,
    alpha: float,
    *,
    groups: GroupsLike | None = None,
    in_welfare: bool | None = None,
) -> Number:
    """The share of the gap between uniform play and the optimum: 0 is uniform play, 1 the optimum, below 0 worse.

    (ALG - UNI) / (OPT - UNI), in alpha-performance below alpha = 1 and in welfare from 1 on, unless `in_welfare` says
    otherwise; `optimum` is the value or the welfare accordingly. `uniform` is R of uniform play on the same rounds. If
    the optimum is hardly above uniform play, this can be any number: call `has_gap` first.

    >>> gap_closed(10.0, [2.0, 2.0], [3.0, 4.0], alpha=0.0)
    0.5
    >>> gap_closed(4.0, [2.0, 2.0], [3.0, 4.0], alpha=float("inf"))
    0.5
    """
    measure, repair = _measure(alpha, in_welfare)
    achieved = measure("accounts", accounts, groups)
    floor = measure("uniform", uniform, groups)
    _each("uniform", floor, achieved, "Record both runs at the same rounds.")
    gap = _optimum(optimum, achieved, repair) - floor
    if not (gap > 0.0).all():
        repair = "Check has_gap first: here uniform play is optimal."
        raise InvalidArgument("optimum", "above the performance of uniform play", optimum, repair)
    return number((achieved - floor) / gap)


def gap_to_close(
    optimum: ArrayLike,
    uniform: Accounts,
    alpha: float,
    *,
    groups: GroupsLike | None = None,
    in_welfare: bool | None = None,
) -> Number:
    """How much can be learned, relative to the rewards of uniform play: 0.01 is 1% more reward for every arm.

    (OPT - UNI) / sum_i R_i^-alpha (R_i - 1), with R of uniform play: the growth of all its rewards that has the value
    of the optimum, to first order. In welfare, which is the default from alpha = 1 on as for `gap_closed`, dW/dR_i
    stands in place of R_i^-alpha. `has_gap` tests whether it is at least half a percent.

    >>> gap_to_close(12.0, [6.0, 4.0], alpha=0.0)
    0.25
    """
    measure, repair = _measure(alpha, in_welfare)
    alpha = validate.alpha(alpha)
    earned, resolved = by_group("uniform", uniform, groups)
    floor = measure("uniform", uniform, groups)
    grown = np.maximum(0.0, earned - 1.0)
    if _uses_welfare(alpha, in_welfare):
        s: Any = 1.0 if resolved is None else resolved.entitlements
        levels, total = earned / s, (np.ones(earned.shape[-1]) * s).sum()
        if alpha == math.inf:  # all rewards grow: so does the poorest account, and among ties the one with least reward
            poorest = levels == floor[..., None]
            slope = np.where(poorest, grown / s, np.inf).min(axis=-1)
        else:
            slope = ((floor[..., None] / levels) ** alpha / total * grown).sum(axis=-1)
    else:
        factors: Any = 1.0 if resolved is None else resolved.factors(alpha)
        slope = (factors * earned**-alpha * grown).sum(axis=-1)
    gap = _optimum(optimum, floor, repair) - floor
    return number(np.divide(gap, slope, out=np.zeros(gap.shape), where=slope > 0.0))


def has_gap(
    optimum: float,
    uniform: Accounts,
    alpha: float,
    *,
    certified: float = 0.0,
    groups: GroupsLike | None = None,
    in_welfare: bool | None = None,
) -> bool:
    """Whether the best fixed policy beats uniform play by at least the value of half a percent more reward.

    `certified` is the gap of the `offline_optimum`, or `welfare * welfare_gap` in welfare; it is subtracted, and so is
    rounding.
    """
    sure = optimum - certified - 1e-9 * abs(optimum)
    return bool(np.all(gap_to_close(sure, uniform, alpha, groups=groups, in_welfare=in_welfare) >= LEAST_GAP))


class Metric(NamedTuple):
    """A metric of a run, and how commands, figures and pages write it."""

    function: Callable[..., Number]  # of accounts; the rest by name
    title: str
    meaning: str  # what it shows, behind the title of a figure
    unit: str
    sign: int  # 1: more is better; -1: less is better
    text: Callable[[float], str]  # a value in a table
    needs: tuple[str, ...] = ()  # beyond accounts: alpha, uniform, and the optimum or best_welfare

    def measure(self, accounts: Accounts, known: Mapping[str, Any], groups: GroupsLike | None = None) -> Number:
        """The metric of these accounts; `known` has at least what the metric needs."""
        return self.function(accounts=accounts, groups=groups, **{name: known[name] for name in self.needs})

    @property
    def label(self) -> str:
        """The title with a Greek letter."""
        return self.title.replace("alpha", ALPHA)

    @property
    def heading(self) -> str:
        """The title on two lines, for the column of a table.

        >>> METRICS["jain_index"].heading, METRICS["welfare"].heading
        ("Jain's\\nindex", '\\nwelfare')
        """
        first, _, second = self.title.replace("-", " ").rpartition(" ")
        return f"{first}\n{second}"

    def axis(self, noun: str = "arm") -> str:
        """The title with the unit, for arms or groups."""
        return f"{self.label} ({self.unit})".replace("arm", noun)

    def headline(self, noun: str = "arm") -> str:
        """The title with what it shows, for arms or groups."""
        return f"{capital(self.label)}: {self.meaning}".replace("arm", noun)


def _welfare_ratio(best_welfare: ArrayLike, **rest: Any) -> Number:
    return welfare_ratio(best_welfare, **rest)


_UTILITY, _INDEX, _RATIO = (partial(fixed, decimals=decimals) for decimals in (2, 3, 4))
_PERCENT, _WHOLE_PERCENT = "{:.2%}".format, "{:.0%}".format
_ALIKE, _BELOW = "what each arm would earn if all earned alike", "how far below the optimum"
_POOREST, _RICHEST = "what the arm that earned least has", "what the arm that earned most has"
_PART, _LEARNED = "against a part of the optimum", "how much was learned"
_ALPHA, _VALUE, _WELFARE = ("alpha",), ("optimum", "alpha"), ("best_welfare", "alpha")
_GAP = ("optimum", "uniform", "alpha")
METRICS: Mapping[str, Metric] = {  # by their names in results
    "alpha_performance": Metric(
        alpha_performance, "alpha-performance", "how much, weighed fairly", "utility", 1, _UTILITY, _ALPHA
    ),
    "welfare": Metric(welfare, "welfare", _ALIKE, "reward", 1, amount, _ALPHA),
    "gap_closed": Metric(gap_closed, "gap closed", _LEARNED, "of the gap", 1, _WHOLE_PERCENT, _GAP),
    "jain_index": Metric(jain_index, "Jain's index", "how equally", "1: all arms alike", 1, _INDEX),
    "average_reward": Metric(average_reward, "average reward", "how much", "reward", 1, amount),
    "least_share": Metric(least_share, "least share", _POOREST, "of all reward", 1, _PERCENT),
    "greatest_share": Metric(greatest_share, "greatest share", _RICHEST, "of all reward", -1, _PERCENT),
    "standard_regret": Metric(standard_regret, "standard regret", _BELOW, "utility", -1, _UTILITY, _VALUE),
    "approximate_regret": Metric(approximate_regret, "approximate regret", _PART, "utility", -1, _UTILITY, _VALUE),
    "ratio": Metric(performance_ratio, "OPT/ALG", _BELOW, "1: optimal", -1, _RATIO, _VALUE),
    "welfare_ratio": Metric(_welfare_ratio, "welfare ratio", _BELOW, "1: optimal", -1, _RATIO, _WELFARE),
}


def _finite(alpha: float) -> float:
    """Check an exponent of utilities."""
    found = validate.alpha(alpha)
    if found == math.inf:
        raise InvalidArgument("alpha", "finite for a sum of utilities", alpha, "Use metrics.welfare.")
    return found


def _uses_welfare(alpha: float, in_welfare: bool | None) -> bool:
    return alpha >= 1.0 if in_welfare is None else in_welfare


def _measure(alpha: float, in_welfare: bool | None) -> tuple[Callable[[str, Accounts, GroupsLike | None], Floats], str]:
    """Return the measure of gaps, alpha-performance or welfare, and the repair of a wrong optimum."""
    alpha = validate.alpha(alpha)
    if _uses_welfare(alpha, in_welfare):
        return lambda argument, accounts, groups: welfare_of(argument, accounts, alpha, groups), WELFARE_REPAIR
    alpha = _finite(alpha)
    return lambda argument, accounts, groups: performance_of(argument, accounts, alpha, groups), VALUE_REPAIR


def number(values: ArrayLike) -> Number:
    """Return a float for a single value, else the array."""
    found = np.asarray(values, dtype=np.float64)
    return found if found.ndim else found.item()


def _utility(x: Floats, alpha: float) -> Floats:
    if alpha == 1.0:
        return np.asarray(np.log(x))
    with np.errstate(over="ignore", under="ignore"):  # at a large alpha
        return np.asarray(np.power(x, 1.0 - alpha) / (1.0 - alpha))


def performance_of(argument: str, accounts: Accounts, alpha: float, groups: GroupsLike | None) -> Floats:
    earned, resolved = by_group(argument, accounts, groups)
    if resolved is not None and alpha > 1.0:  # s^alpha would overflow
        worth = _utility(earned / resolved.entitlements, alpha) * resolved.entitlements
    else:
        worth = _utility(earned, alpha)
        if resolved is not None:
            worth = worth * resolved.factors(alpha)
    return np.asarray(worth.sum(axis=-1))


def welfare_of(argument: str, accounts: Accounts, alpha: float, groups: GroupsLike | None) -> Floats:
    earned, resolved = by_group(argument, accounts, groups)
    earned = np.atleast_1d(earned)
    s = np.ones(earned.shape[-1]) if resolved is None else resolved.entitlements
    return power_mean(earned / s, s, alpha)


def power_mean(levels: Floats, weights: Floats, alpha: float) -> Floats:
    """The welfare along the last axis; `alphafair.math.welfare` explains the formula."""
    least, most = levels.min(axis=-1, keepdims=True), levels.max(axis=-1, keepdims=True)
    if alpha == math.inf:
        return np.asarray(least[..., 0])
    m, power, shares = (most if alpha < 1.0 else least), 1.0 - alpha, weights / weights.sum()
    logs = np.log(levels) - np.log(m) if (least < 1e-290 * most).any() else np.log(levels / m)
    if alpha == 1.0:
        log_mean = (shares * logs).sum(axis=-1)
    else:
        less = (shares * np.expm1(power * logs)).sum(axis=-1)  # the mean less 1
        direct = np.log((shares * np.exp(power * logs)).sum(axis=-1))
        log_mean = np.where(less > -0.5, np.log1p(np.maximum(less, -0.5)), direct) / power
    return np.asarray(m[..., 0] * np.exp(log_mean))


def money_of(welfare: float, groups: ArmGroups, alpha: float) -> float:
    """Return sum_i w_i R_i = S W^(1-alpha)."""
    with np.errstate(over="ignore"):
        return float(groups.entitlements.sum() * np.float64(welfare) ** (1.0 - alpha))


def by_group(argument: str, accounts: Accounts, groups: GroupsLike | None) -> tuple[Floats, ArmGroups | None]:
    """Return R by group, from R by arm or by group, and the groups; without groups R itself and None."""
    earned = checked_accounts(argument, accounts)
    if groups is None:
        return earned, None
    n = earned.shape[-1] if earned.ndim else 1
    resolved = arm_groups(groups, _arm_count(groups, n))
    if n == resolved.n_arms:
        return checked_accounts(argument, resolved.accounts(earned)), resolved
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


def checked_accounts(argument: str, accounts: Accounts) -> Floats:
    repair = "Accounts start at 1: add it if it is missing."
    allowed = f"numbers in [{LEAST_ACCOUNT:g}, {MOST_ACCOUNT:g}]"
    array = validate.floats(argument, allowed, accounts.accounts if isinstance(accounts, Trace) else accounts, repair)
    if array.size == 0 or not ((array >= LEAST_ACCOUNT) & (array <= MOST_ACCOUNT)).all():
        raise InvalidArgument(argument, allowed, array, repair)
    return array


def _optimum(value: ArrayLike, achieved: Floats, repair: str = VALUE_REPAIR) -> Floats:
    """Check one number, or one for each alpha-performance or welfare."""
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
