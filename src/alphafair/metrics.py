"""Metrics of efficiency and fairness: alpha-performance, welfare, Jain's index, shares, regrets, and certificates.

All take `accounts`, R with its initial 1: one vector (n_arms), many (..., n_arms), or the `Trace` of a run, for its
recorded rounds. One vector gives a float, many give an array. The optimum comes from `alphafair.offline_optimum` or
`alphafair.offline_curve`. With `groups=`, a `Groups` or a label per arm, a metric is that of groups; accounts may then
be those of all arms, or of groups, as in `policy.accounts`.

alpha is any number from 0 to inf. The alpha-performance is a sum of utilities: logarithms at alpha = 1, negative above,
undefined at inf. The welfare is the same order in units of reward, for every alpha; compare runs by their welfare. The
factor c_alpha exists only below 1, and measures that contain it refuse other alphas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from functools import cache, partial
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.formatting import ALPHA, amount, capital, fixed
from alphafair.groups import ArmGroups, Groups, GroupsLike, arm_groups
from alphafair.math.utility import played_alpha
from alphafair.math.welfare import ln_alpha
from alphafair.values import Interval, Policy, Trace

Floats = NDArray[np.float64]
Number = Any  # a float for one run, an array for many
Bound = Any  # a float, or None where it does not exist
Accounts = ArrayLike | Trace
LEAST_ACCOUNT, MOST_ACCOUNT = 1e-150, 1e250  # of R: everything computed from it then fits in a float
MOST_WORTH = 1e150  # of an optimum, in absolute value
LEAST_GAP = 0.005  # of the rewards of uniform play: below it there is no gap to close
LEAST_RATIO = 1e-300  # of an optimum to what was achieved: its logarithm exists
EPSILON = float(np.finfo(np.float64).eps)
MANY_DEGREES = 100_000  # of freedom, above which Student's t is expanded around the normal
FAR = 20.0  # in the tail of Student's t
ROUNDING = 1e-9  # of a share times a number of rounds, and of a mean
ROUNDS_REPAIR = "Pass the rounds of one run, in order."
VALUE_REPAIR = "Pass the value of an offline_optimum, or the values of an offline_curve at the recorded rounds."
WELFARE_REPAIR = "Pass the welfare of an offline_optimum, or an offline_welfare_curve at the recorded rounds."


def utility(x: Accounts, alpha: float) -> Number:
    """phi(x) = x^(1-alpha)/(1-alpha), and log x at alpha = 1.

    The additive constant matters to c_alpha-regret, so this is not (x^(1-alpha) - 1)/(1-alpha).
    """
    return _number(_utility(_checked("x", x), _finite(alpha)))


def marginal_utility(x: Accounts, alpha: float) -> Number:
    """phi'(x) = x^(-alpha)."""
    with np.errstate(over="ignore", under="ignore"):
        return _number(np.power(_checked("x", x), -_finite(alpha)))


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
    by_arm = np.atleast_1d(_checked("accounts", accounts))
    return _checked("accounts", arm_groups(groups, by_arm.shape[-1]).accounts(by_arm))


def alpha_performance(accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """sum_i phi(R_i), the objective itself; with groups, sum_G s_G^alpha phi(R_G). alpha must be finite.

    >>> alpha_performance([4.0, 9.0], 0.5)
    10.0
    """
    return _number(_performance("accounts", accounts, _finite(alpha), groups))


def welfare(accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """The power mean of accounts: the equal account of all arms that is worth as much as these.

    W = (sum_i R_i^(1-alpha)/n)^(1/(1-alpha)): the arithmetic mean at alpha = 0, the geometric at 1, the harmonic at 2,
    the least account at inf. With groups, the mean of R_G/s_G with weights s_G. It ranks accounts as
    `alpha_performance` does, in units of reward: twice the rewards have twice the welfare.

    >>> [round(welfare([1.0, 4.0, 9.0], alpha), 4) for alpha in (0, 0.5, 1, 2, float("inf"))]
    [4.6667, 4.0, 3.3019, 2.2041, 1.0]
    """
    return _number(_welfare("accounts", accounts, validate.alpha(alpha), groups))


def welfare_ratio(optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None) -> Number:
    """The welfare of the optimum over that of the accounts: 1 is optimal, 1.1 leaves 10% more reward for every arm.

    `optimum` is the `welfare` of an `offline_optimum`, or the result of an `offline_welfare_curve`.

    >>> welfare_ratio(8.0, [4.0, 4.0], alpha=2.0)
    2.0
    """
    achieved = _welfare("accounts", accounts, validate.alpha(alpha), groups)
    return _number(_optimum(optimum, achieved, WELFARE_REPAIR) / achieved)


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


def least_share(accounts: Accounts, *, groups: GroupsLike | None = None) -> Number:
    """min R / sum R: the share of the arm, or group, that earned least.

    >>> least_share([3.0, 1.0])
    0.25
    """
    return _number(shares(accounts, groups=groups).min(axis=-1))


def greatest_share(accounts: Accounts, *, groups: GroupsLike | None = None) -> Number:
    """max R / sum R: the share of the arm, or group, that earned most."""
    return _number(shares(accounts, groups=groups).max(axis=-1))


def standard_regret(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT - sum_i phi(R_i). No online policy can keep it small against every adversary; see `approximate_regret`."""
    achieved = _performance("accounts", accounts, _finite(alpha), groups)
    return _number(_optimum(optimum, achieved) - achieved)


def approximate_regret(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT - c_alpha sum_i phi(R_i), which the theorem bounds, for alpha < 1; from 1 on see `welfare_ratio`.

    Read it with standard_regret and performance_ratio.
    """
    achieved = approximation_factor(alpha) * _performance("accounts", accounts, validate.alpha(alpha), groups)
    return _number(_optimum(optimum, achieved) - achieved)


def performance_ratio(
    optimum: ArrayLike, accounts: Accounts, alpha: float, *, groups: GroupsLike | None = None
) -> Number:
    """OPT / ALG for alpha < 1: 1 is optimal; at most c_alpha in the long run, against any adversary."""
    alpha = validate.alpha_below_one(alpha, "a ratio of alpha-performances")
    achieved = _performance("accounts", accounts, alpha, groups)
    return _number(_optimum(optimum, achieved) / achieved)


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
    return _number((achieved - floor) / gap)


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
    earned, resolved = _by_group("uniform", uniform, groups)
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
    return _number(np.divide(gap, slope, out=np.zeros(gap.shape), where=slope > 0.0))


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


# what published notions of fairness ask for


def envy(values: ArrayLike) -> float:
    """max over i and k of (1 + V_ik)/(1 + V_ii) - 1: how much better off some arm would be in the rounds of another.

    V_ik = sum_t p_tk r_ti is what arm i would have earned with the probabilities of arm k, and V_ii what it earned
    with its own; see `exchange_values`. 0: nobody envies anybody, as at the optimum of alpha = 1.

    >>> envy([[4.0, 9.0], [1.0, 3.0]])
    1.0
    """
    v = _exchange(values)
    return float(((1.0 + v) / (1.0 + np.diag(v))[:, None]).max()) - 1.0


def proportional_share(values: ArrayLike) -> float:
    """min over i of (1 + V_ii)/(1 + sum_k V_ik/n): what the worst-off arm has of an n-th of all that it could earn.

    At least 1: every arm is at least as well off as under uniform play.

    >>> proportional_share([[4.0, 8.0], [1.0, 3.0]])
    0.7142857142857143
    """
    v = _exchange(values)
    return float(((1.0 + np.diag(v)) / (1.0 + v.mean(axis=1))).min())


def exchange_values(probabilities: ArrayLike, rewards: ArrayLike) -> Floats:
    """V_ik = sum_t p_tk r_ti, what arm i would have earned with the probabilities of arm k; both (n_rounds, n_arms).

    >>> exchange_values([[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [1.0, 2.0]]).tolist()
    [[1.5, 0.5], [1.0, 1.0]]
    """
    p = _rows("probabilities", probabilities, low=0.0, high=1.0)
    r = _rows("rewards", rewards, low=-MOST_ACCOUNT, high=MOST_ACCOUNT)
    if p.shape != r.shape:
        raise InvalidArgument("rewards", f"of shape {p.shape}, as probabilities", f"shape {r.shape}", ROUNDS_REPAIR)
    return np.asarray(r.T @ p)


def pull_lapse(arms: ArrayLike, shares: ArrayLike) -> float:
    """max over t and i of floor(v_i t) - N_i(t), in pulls: how far some arm ever was behind a share of the pulls.

    `arms` are the arms played, in order, `shares` one number per arm. At most 0: the shares were kept at every time.

    >>> pull_lapse([0, 0, 0, 0, 1], [0.25, 0.5])
    2.0
    """
    v = _per_arm("shares", shares, high=1.0)
    played = validate.indices("arms", arms, len(v))
    lapse, rounds = -math.inf, np.arange(1.0, len(played) + 1.0)
    for arm, share in enumerate(v):
        lapse = max(lapse, float((np.floor(share * rounds + ROUNDING) - np.cumsum(played == arm)).max()))
    return lapse


def rate_shortfall(rewards: ArrayLike, rates: ArrayLike, n_rounds: int) -> float:
    """max over i of (1 - S_i/(lambda_i T))+: the part of a promised reward that some arm did not get.

    `rewards` are S, what every arm earned, and `rates` lambda, what it was promised per round.

    >>> rate_shortfall([30.0, 9.0], [0.25, 0.125], 100)
    0.28
    """
    promised = _per_arm("rates", rates, high=MOST_ACCOUNT) * validate.integer("n_rounds", n_rounds, low=1)
    earned = validate.floats("rewards", f"{len(promised)} finite numbers", rewards, ROUNDS_REPAIR)
    if earned.shape != promised.shape or not np.isfinite(earned).all():
        raise InvalidArgument("rewards", f"{len(promised)} finite numbers, one per arm", earned, ROUNDS_REPAIR)
    owed = promised > 0.0
    return float(np.maximum(0.0, 1.0 - earned[owed] / promised[owed]).max(initial=0.0))


def longest_wait(arms: ArrayLike, n_arms: int) -> int:
    """The most rounds in a row in which some arm is not played; the whole run if an arm is never played.

    >>> longest_wait([0, 1, 1, 0, 1], n_arms=2), longest_wait([0, 0, 0], n_arms=2)
    (2, 3)
    """
    n_arms = validate.integer("n_arms", n_arms, low=1)
    played = validate.indices("arms", arms, n_arms)
    ends = (np.concatenate([[-1], np.flatnonzero(played == arm), [len(played)]]) for arm in range(n_arms))
    return max(int(np.diff(end).max()) - 1 for end in ends)


def merit_distance(probabilities: ArrayLike, merits: ArrayLike) -> float:
    """mean over t of (1/2) sum_i abs(p_ti - f_ti/sum_k f_tk): how far exposure is from being in proportion to merit.

    `merits` are f > 0 of every arm: in every round, (n_rounds, n_arms), or the same in all, (n_arms).

    >>> merit_distance([[0.5, 0.5], [0.75, 0.25]], [3.0, 1.0])
    0.125
    """
    p = _rows("probabilities", probabilities, low=0.0, high=1.0)
    f = _as_rows("merits", merits, p, low=1.0 / MOST_ACCOUNT)
    return float(0.5 * np.abs(p - f / f.sum(axis=1, keepdims=True)).sum(axis=1).mean())


def favoring(probabilities: ArrayLike, means: ArrayLike) -> float:
    """mean over t of max (p_ti - p_tk)+ over pairs with mu_ti < mu_tk: how much a worse arm is favored over a better.

    `means` are mu of every arm: in every round, (n_rounds, n_arms), or the same in all, (n_arms). Differences of up to
    1e-9 are none.

    >>> favoring([[0.75, 0.25], [0.25, 0.75]], [0.1, 0.2])
    0.25
    """
    p = _rows("probabilities", probabilities, low=0.0, high=1.0)
    mu = _as_rows("means", means, p, low=-MOST_ACCOUNT)
    most = np.zeros(len(p))
    for i in range(p.shape[1]):
        better = mu > mu[:, i : i + 1] + ROUNDING
        most = np.maximum(most, np.where(better, p[:, i : i + 1] - p, 0.0).max(axis=1))
    return float(most.mean())


def _exchange(values: ArrayLike) -> Floats:
    repair = "Pass exchange_values(probabilities, rewards)."
    allowed = f"a square of numbers in [0, {MOST_ACCOUNT:g}]"
    v = validate.floats("values", allowed, values, repair)
    if v.ndim != 2 or v.shape[0] != v.shape[1] or not v.size or not ((v >= 0.0) & (v <= MOST_ACCOUNT)).all():
        raise InvalidArgument("values", allowed, v, repair)
    return v


def _rows(argument: str, values: ArrayLike, *, low: float, high: float) -> Floats:
    allowed = f"numbers in [{low:g}, {high:g}], one row per round and one column per arm"
    rows = validate.floats(argument, allowed, values, ROUNDS_REPAIR)
    if rows.ndim != 2 or not rows.size or not ((rows >= low) & (rows <= high)).all():
        raise InvalidArgument(argument, allowed, rows, ROUNDS_REPAIR)
    return rows


def _as_rows(argument: str, values: ArrayLike, like: Floats, *, low: float) -> Floats:
    """Return one row per round, of one row per round or one for all."""
    rows = _rows(argument, np.atleast_2d(np.asarray(values)), low=low, high=MOST_ACCOUNT)
    if rows.shape not in (like.shape, (1, like.shape[1])):
        allowed = f"one row of {like.shape[1]} numbers, or one per round ({len(like)})"
        raise InvalidArgument(argument, allowed, f"shape {rows.shape}", ROUNDS_REPAIR)
    return np.broadcast_to(rows, like.shape)


def _per_arm(argument: str, values: ArrayLike, *, high: float) -> Floats:
    allowed = f"numbers in [0, {high:g}], one per arm"
    found = validate.floats(argument, allowed, values, "Pass a list with one number per arm.")
    if found.ndim != 1 or not found.size or not ((found >= 0.0) & (found <= high)).all():
        raise InvalidArgument(argument, allowed, found, "Pass a list with one number per arm.")
    return found


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
    which arms entered: see docs/howto/add_and_retire_arms.md. With groups, n is the sum of their s^alpha; with floors,
    OPT keeps them.

    >>> from alphafair import AlphaFair
    >>> policy = AlphaFair(1, 2, alpha=0.5)
    >>> policy.update(policy.choose(0), [1.0, 1.0])
    >>> round(regret_certificate(policy), 6)
    4.828427
    """
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

    >>> from alphafair import AlphaFair
    >>> policy = AlphaFair(1, 2, alpha=0.5)
    >>> policy.update(policy.choose(0), [1.0, 1.0])
    >>> round(welfare_certificate(policy), 6)
    2.338204
    """
    bound, alpha = _surrogate_bound(policy)
    played = played_alpha(alpha)
    budget, earned, s = _budget(policy, bound, played)
    levels = earned / s
    return float(budget * _power_mean(levels, s, played) / _power_mean(levels, s, alpha))


def expected_welfare_budget(policy: Policy) -> float:
    """A bound in expectation of sum_i w_i R*_i / sum_i w_i R_i times sum_i w_i R_i, with bandit feedback.

    With w_i = R_i^-alpha at the end of the run, E[sum_i w_i R*_i] <= E[this number] over the draws of the policy, for
    every fixed policy: this is n + sum_i ln_alpha R_i + the `expected_surrogate_regret_bound`. At alpha = 1 it gives
    E[ln(W*/W)] <= ln(E[this]/n): average it over seeds before taking the logarithm. It is not a certificate of one run.

    >>> from alphafair import AlphaFairAdaptive, simulate, streams
    >>> policy = AlphaFairAdaptive(3, 4, alpha=0.5)
    >>> trace = simulate(policy, streams.ratings(n_rounds=1_000, n_contexts=3, n_arms=4, seed=0))
    >>> bool(expected_welfare_budget(policy) > alpha_performance(trace.final, 0.5) / 2)
    True
    """
    bound, alpha = _expected_bound(policy)
    played = played_alpha(alpha)
    budget, earned, s = _budget(policy, bound, played)
    return float(budget * s.sum() * _power_mean(earned / s, s, played) ** (1.0 - played))


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

    The first four are in alpha-performance. From alpha = 1 on only the standard regret exists, and at inf none of them:
    they are None. The last three are in welfare.
    """

    optimum: Bound
    approximate_regret: Bound
    standard_regret: Bound
    performance_ratio: Bound
    vacuous: bool  # the bounds are uninformative: above the performance of any split of all rewards
    welfare: float  # of the best fixed policy
    welfare_ratio: float  # the same over the welfare of the accounts
    boxed_welfare_ratio: float  # a bound that also uses what each account can be at most; never weaker


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
    from alphafair.offline.slates import Rows, checked_k

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
    first = checked_initial(initial, resolved.n_groups)
    priced = by_group if prices is None else _by_group("prices", prices, resolved)[0]
    if priced.shape != by_group.shape:
        raise InvalidArgument("prices", "one number per arm or group", f"shape {priced.shape}", repair)
    reach: Reach
    if (checked_k(k, len(totals)) > 1).any():
        reach = OfSlates(np.ascontiguousarray(totals), first, resolved, Rows.of(k, totals.shape, resolved, there))
    else:
        reach = OfSingleArms(first, *reduction.merge(np.ascontiguousarray(totals), first))
    with np.errstate(under="ignore"):
        bound, boxed, rounding = _most_reachable(priced, first, reach, totals.shape, resolved.entitlements, alpha)
    achieved = float(_welfare("accounts", by_group, alpha, resolved))
    in_welfare = bound, bound / achieved, boxed / achieved
    total = float(first.sum()) + reach.above_first(np.ones(len(first)))
    if alpha >= 1.0:
        standard = None
        if alpha < math.inf:
            standard = _money(achieved, resolved, alpha) * ln_alpha(bound / achieved, alpha)
            standard = math.nextafter(standard * (1.0 + alpha * rounding), math.inf)  # it may underflow
        vacuous = bound > (1.0 + 1e-9) * most_welfare(total, n_arms, groups=resolved)
        return Certificates(None, None, standard, None, vacuous, *in_welfare)
    performance = float(_performance("accounts", by_group, alpha, resolved))
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

    def above_first(self, w: Floats) -> float:
        return float(((self.base - self.first) * w).sum() + (self.merged * w).max(axis=1).sum())

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
    bound = worth * float(_power_mean(y / s, s, alpha) / (w * y).sum())
    inside = _filled(y, first, highest, w, above_first + 4.0 * EPSILON * float((first * w).sum()))
    boxed = float(_power_mean(inside / s, s, alpha))
    return bound * (1.0 + rounding), min(bound, boxed) * (1.0 + rounding), rounding


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
    unit = float(_power_mean(entry / s, s, alpha))
    now, then = earned / s / unit, entry / s / unit
    with np.errstate(over="ignore", under="ignore"):
        gained = s * then ** (1.0 - alpha) * [ln_alpha(ratio, alpha) for ratio in now / then]
        slopes = (at_once * then**-alpha + (entry - at_once) * now**-alpha) / unit
        linear = bound * np.float64(unit) ** (alpha - 1.0) if bound > 0.0 else bound
        budget = float((gained + slopes).sum() + linear) / float((s * now ** (1.0 - alpha)).sum())
    return budget * (1.0 + (1.0 + alpha) * _rounding(s.shape, now, then)), earned, s


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
        return lambda argument, accounts, groups: _welfare(argument, accounts, alpha, groups), WELFARE_REPAIR
    alpha = _finite(alpha)
    return lambda argument, accounts, groups: _performance(argument, accounts, alpha, groups), VALUE_REPAIR


def _number(values: ArrayLike) -> Number:
    """Return a float for a single value, else the array."""
    found = np.asarray(values, dtype=np.float64)
    return found if found.ndim else found.item()


def _utility(x: Floats, alpha: float) -> Floats:
    if alpha == 1.0:
        return np.asarray(np.log(x))
    with np.errstate(over="ignore", under="ignore"):  # at a large alpha
        return np.asarray(np.power(x, 1.0 - alpha) / (1.0 - alpha))


def _performance(argument: str, accounts: Accounts, alpha: float, groups: GroupsLike | None) -> Floats:
    earned, resolved = _by_group(argument, accounts, groups)
    if resolved is not None and alpha > 1.0:  # s^alpha would overflow
        worth = _utility(earned / resolved.entitlements, alpha) * resolved.entitlements
    else:
        worth = _utility(earned, alpha)
        if resolved is not None:
            worth = worth * resolved.factors(alpha)
    return np.asarray(worth.sum(axis=-1))


def _welfare(argument: str, accounts: Accounts, alpha: float, groups: GroupsLike | None) -> Floats:
    earned, resolved = _by_group(argument, accounts, groups)
    earned = np.atleast_1d(earned)
    s = np.ones(earned.shape[-1]) if resolved is None else resolved.entitlements
    return _power_mean(earned / s, s, alpha)


def _power_mean(levels: Floats, weights: Floats, alpha: float) -> Floats:
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


def _money(welfare: float, groups: ArmGroups, alpha: float) -> float:
    """Return sum_i w_i R_i = S W^(1-alpha)."""
    with np.errstate(over="ignore"):
        return float(groups.entitlements.sum() * np.float64(welfare) ** (1.0 - alpha))


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
