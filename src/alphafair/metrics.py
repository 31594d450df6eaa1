"""How good and how fair: alpha-performance, Jain's index, shares, regrets, and the live certificate.

All take R, the cumulative rewards with their initial 1: one vector (n_arms), many (..., n_arms), or the `Trace` of a
run, for its recorded rounds. The optimum comes from `alphafair.offline_optimum` or `alphafair.offline_curve`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.types import Policy, Trace

Floats = NDArray[np.float64]
Rewards = ArrayLike | Trace


def utility(x: Rewards, alpha: float) -> Floats:
    """phi(x) = x^(1-alpha)/(1-alpha).

    The additive constant matters to c_alpha-regret, so this is not (x^(1-alpha) - 1)/(1-alpha).
    """
    alpha = validate.alpha(alpha)
    return np.asarray(np.power(_earned("x", x), 1.0 - alpha) / (1.0 - alpha))


def marginal_utility(x: Rewards, alpha: float) -> Floats:
    """phi'(x) = x^(-alpha)."""
    return np.asarray(np.power(_earned("x", x), -validate.alpha(alpha)))


def approximation_factor(alpha: float) -> float:
    """c_alpha = (1-alpha)^(-(1-alpha)): at most e^(1/e) < 1.445, and 1 at both ends.

    >>> round(approximation_factor(0.5), 6)
    1.414214
    """
    alpha = validate.alpha(alpha)
    return float((1.0 - alpha) ** -(1.0 - alpha))


def alpha_performance(cumulative_rewards: Rewards, alpha: float) -> Floats:
    """sum_i phi(R_i), the objective itself."""
    return np.asarray(utility(cumulative_rewards, alpha).sum(axis=-1))


def jain_index(cumulative_rewards: Rewards) -> Floats:
    """(sum R)^2 / (n sum R^2): 1 when all arms earned alike, 1/n when one took everything.

    >>> float(jain_index([3.0, 3.0, 3.0])), round(float(jain_index([1.0, 3.0])), 6)
    (1.0, 0.8)
    """
    earned = _earned("cumulative_rewards", cumulative_rewards)
    scaled = earned / earned.max(axis=-1, keepdims=True)  # squares of huge or tiny rewards stay finite
    return np.asarray(scaled.sum(axis=-1) ** 2 / (earned.shape[-1] * (scaled**2).sum(axis=-1)))


def average_reward(cumulative_rewards: Rewards) -> Floats:
    """sum R / n: efficiency, the price side of fairness."""
    return np.asarray(_earned("cumulative_rewards", cumulative_rewards).mean(axis=-1))


def shares(cumulative_rewards: Rewards) -> Floats:
    """R / sum R: who got what."""
    earned = _earned("cumulative_rewards", cumulative_rewards)
    return np.asarray(earned / earned.sum(axis=-1, keepdims=True))


def standard_regret(optimum: ArrayLike, cumulative_rewards: Rewards, alpha: float) -> Floats:
    """OPT - sum_i phi(R_i). No online policy keeps it small against every adversary; see `approximate_regret`."""
    achieved = alpha_performance(cumulative_rewards, alpha)
    return np.asarray(_optimum(optimum, achieved) - achieved)


def approximate_regret(optimum: ArrayLike, cumulative_rewards: Rewards, alpha: float) -> Floats:
    """OPT - c_alpha sum_i phi(R_i): what the theorem bounds. Read it beside the two around it."""
    achieved = approximation_factor(alpha) * alpha_performance(cumulative_rewards, alpha)
    return np.asarray(_optimum(optimum, achieved) - achieved)


def performance_ratio(optimum: ArrayLike, cumulative_rewards: Rewards, alpha: float) -> Floats:
    """OPT / ALG: 1 is perfect; at most c_alpha in the long run, whatever the adversary does."""
    achieved = alpha_performance(cumulative_rewards, alpha)
    return np.asarray(_optimum(optimum, achieved) / achieved)


def gap_closed(optimum: ArrayLike, uniform: Rewards, cumulative_rewards: Rewards, alpha: float) -> Floats:
    """How much of what can be learned was: 0 is as good as uniform play, 1 as good as the optimum, below 0 worse.

    (ALG - UNI) / (OPT - UNI), in alpha-performance; `uniform` is R of uniform play on the same rounds.

    >>> float(gap_closed(10.0, [2.0, 2.0], [3.0, 4.0], alpha=0.0))
    0.5
    """
    achieved, floor = alpha_performance(cumulative_rewards, alpha), alpha_performance(uniform, alpha)
    _each("uniform", floor, achieved, "Record both runs at the same rounds.")
    room = _optimum(optimum, achieved) - floor
    if not (room > 0.0).all():
        repair = "Where nothing can be learned no share of it can be."
        raise validate.Refusal("optimum", "above uniform play", optimum, repair)
    return np.asarray((achieved - floor) / room)


class Band(NamedTuple):
    """A mean over seeds and its confidence band."""

    mean: Floats
    low: Floats
    high: Floats


def average_over_seeds(samples: ArrayLike, *, level: float = 0.95) -> Band:
    """Mean over the first axis with a Student-t confidence band: what an expectation over the policy's draws may be.

    Regret with bandit feedback is such an expectation, so one run shows little. One seed has no band: low, mean and
    high are then the same.

    >>> band = average_over_seeds([[1.0], [2.0], [3.0]])
    >>> band.mean.tolist(), band.high.round(3).tolist()
    ([2.0], [4.484])
    """
    repair = "Give at least one seed."
    values = validate.floats("samples", "finite numbers, one row per seed", samples, repair)
    level = validate.number("level", level, low=0.0, high=1.0, low_open=True, high_open=True)
    if values.ndim == 0 or len(values) == 0 or not np.isfinite(values).all():
        raise validate.Refusal("samples", "finite numbers, one row per seed", values, repair)
    mean = values.mean(axis=0)
    if len(values) == 1:
        return Band(mean, mean, mean)
    spread = values.std(axis=0, ddof=1) / math.sqrt(len(values))
    half = -student_quantile((1.0 - level) / 2.0, len(values) - 1) * spread
    return Band(mean, mean - half, mean + half)


@cache
def student_quantile(probability: float, degrees: int) -> float:
    """The quantile of Student's t, by Newton on the logarithm of the tail; small probabilities keep all their digits.

    With t = sqrt(d) sinh(s), P(T > t) = P(T < -t) is k times the integral of cosh(y)^(-d) over y > s. Its logarithm
    is concave in s, so after the first step Newton comes from one side and cannot miss.

    >>> round(student_quantile(0.975, 29), 6)
    2.04523
    """
    if probability > 0.5:
        return -student_quantile(1.0 - probability, degrees)
    nodes, weights = np.polynomial.legendre.leggauss(80)
    log_k = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(math.pi)
    s = 0.0
    for _ in range(40):
        reach = math.acosh(math.exp(40.0 / degrees) * math.cosh(s)) - s  # beyond it the integrand is below e^-40
        fall = np.cosh(s + 0.5 * reach * (nodes + 1.0)) / math.cosh(s)
        integral = 0.5 * reach * float(weights @ fall**-degrees)  # over cosh(s)^(-d)
        log_tail = log_k - degrees * math.log(math.cosh(s)) + math.log(integral)
        s += (log_tail - math.log(probability)) * integral
    return -math.sqrt(degrees) * math.sinh(s)


def regret_certificate(policy: Policy) -> float:
    """An upper bound of OPT - c_alpha sum_i phi(R_i) for the run so far, whatever the rewards were:

    (1-alpha)^alpha (sum_j 2 sqrt(S_j) + drift) + c_alpha n.

    Nothing about the future, no probability, no unknown constant: S_j adds up the squared gradients that context j
    has met, and drift is what late and masked decisions cost (0 if there were none). Where arms came or went, every
    epoch before the present one adds sqrt(S_j) as it was at its end, and OPT is the best that could be done with a
    choice per context and epoch, from the accounts with which arms entered: see docs/certificate.md.

    >>> from alphafair import AlphaFair
    >>> policy = AlphaFair(1, 2, alpha=0.5)
    >>> policy.update(policy.choose(0), [1.0, 1.0])
    >>> round(regret_certificate(policy), 6)
    4.828427
    """
    bound, alpha = policy.surrogate_regret_bound, getattr(policy, "alpha", None)
    if bound is None or alpha is None:
        repair = "AlphaFair does; with bandit feedback regret is an expectation, so average it over seeds."
        raise validate.Refusal("policy", "one that bounds its own regret", policy, repair)
    linear = float((1.0 - alpha) ** alpha * bound)
    return linear + approximation_factor(alpha) * policy.n_arms


def _earned(argument: str, values: Rewards) -> Floats:
    repair = "Cumulative rewards start at 1: add it if it is missing."
    rewards = values.cumulative_rewards if isinstance(values, Trace) else values
    array = validate.floats(argument, "positive and finite", rewards, repair)
    if array.size == 0 or not (array > 0.0).all() or not np.isfinite(array).all():
        raise validate.Refusal(argument, "positive and finite", array, repair)
    return array


def _optimum(value: ArrayLike, achieved: Floats) -> Floats:
    """One number, or one for each alpha-performance that it is compared with."""
    repair = "Pass the value of an offline_optimum, or the values of an offline_curve at the recorded rounds."
    optimum = validate.floats("optimum", "one number, or one per record", value, repair)
    if not np.isfinite(optimum).all():
        raise validate.Refusal("optimum", "finite", optimum, repair)
    _each("optimum", optimum, achieved, repair)
    return optimum


def _each(argument: str, values: Floats, achieved: Floats, repair: str) -> None:
    """As many values as there are records, the same for all seeds or not; or one for all."""
    if values.shape != achieved.shape[achieved.ndim - values.ndim :]:
        allowed = f"one number, or as many as the records, shape {achieved.shape}"
        raise validate.Refusal(argument, allowed, f"shape {values.shape}", repair)
