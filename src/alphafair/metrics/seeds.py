"""Means over seeds, with their confidence intervals."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.metrics.accounts import MOST_ACCOUNT, number
from alphafair.values import Interval

MANY_DEGREES = 100_000  # of freedom, above which Student's t is expanded around the normal
FAR = 20.0  # in the tail of Student's t


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
        return Interval(*3 * (number(mean),))
    unit = float(2.0 ** np.frexp(np.abs(values).max())[1])  # a scale in which squares neither overflow nor underflow
    spread = unit * (values / unit).std(axis=0, ddof=1) / math.sqrt(len(values))
    half = -student_quantile((1.0 - level) / 2.0, len(values) - 1) * spread
    sides = (mean, np.maximum(mean - half, within[0]), np.minimum(mean + half, within[1]))
    return Interval(*map(number, sides))


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
