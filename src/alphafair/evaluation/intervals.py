"""Confidence intervals: a bootstrap over clusters of rounds, and from it an interval for every metric.

Each replicate draws every cluster Poisson(1) times, and the estimate is made from the clusters drawn. For sums and
averages of rewards, which are smooth, the bootstrap's error on the logarithmic scale is inverted. Jain's index and the
least share are not smooth where arms earn nearly the same:

- Jain is 1/(1 + x), x = |d|^2/n with d_i = R_i/mean(R) - 1. Noise of covariance V adds tr V to |d|^2: that is
  subtracted, and the interval is every x for which the estimate is within z standard errors *at that x*, as in Wilson's
  interval for a binomial: (x - est)^2 <= z^2 (4 x v/n + 2 tr V^2/n^2), v the variance along d.
- The least share s is below every arm's, so s <= min_i (s_i + k se_i) with a k that holds for all arms together that
  may be the least; and min_i (s_i - z se_i) is below it if that holds for the least arm alone (Chernozhukov,
  Lee and Rosen, Intersection Bounds, Econometrica 81, 2013). The greatest share is treated in the same way, and
  so is the welfare at alpha = inf, the least account.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from alphafair import metrics
from alphafair.evaluation.estimators import Scores
from alphafair.evaluation.log_rows import Advance, silent
from alphafair.values import Interval, Matrix, Vector

BLOCK = 64  # replicates at once
MOST_LOG = math.log(1e300)  # of an upper end, to keep it finite where the spread is huge


class Level(NamedTuple):
    """A confidence level, and the degrees of freedom of the spread."""

    confidence: float
    freedom: int

    @property
    def tail(self) -> float:
        return 0.5 + self.confidence / 2.0

    @property
    def t(self) -> float:
        """Student's quantile: the number of standard errors."""
        return metrics.student_quantile(self.tail, self.freedom)

    @property
    def wider(self) -> float:
        """The factor for errors of the bootstrap, since their spread is itself an estimate."""
        return self.t / NormalDist().inv_cdf(self.tail)


def replicates(scores: Sequence[Scores], n_replicates: int, seed: int, advance: Advance = silent) -> list[Matrix]:
    """R of every replicate, (n_replicates, n_arms), for each of the scores, which have the same clusters."""
    generator = np.random.default_rng(seed)
    found: list[list[Matrix]] = [[] for _ in scores]
    for first in range(0, n_replicates, BLOCK) if scores else ():
        shape = (min(BLOCK, n_replicates - first), len(scores[0].shares))
        weights = generator.poisson(1.0, shape).astype(np.float64)
        for own, each in zip(found, scores, strict=True):
            own.append(each.accounts(weights))
        advance(shape[0])
    return [np.concatenate(own) for own in found]


def quantile(errors: Matrix, side: float) -> Any:
    """The quantile at place (R + 1) side of R replicates, which is unbiased for exchangeable draws."""
    return np.quantile(errors, side, axis=0, method="weibull")


def smooth(value: float, drawn: Vector, level: Level, *, corrected: bool = False) -> Interval:
    """The bootstrap's error of log(value), inverted; corrected for bias where that exceeds half a standard error."""
    errors = np.log(drawn) - np.log(value)
    above, below = (level.wider * quantile(errors, side) for side in (level.tail, 1.0 - level.tail))
    low, high = (np.exp(min(np.log(value) - side, MOST_LOG)) for side in (above, below))
    bias = float(errors.mean())
    if corrected and abs(bias) > 0.5 * errors.std():
        value = float(np.clip(value * np.exp(-bias), low, high))
    return Interval(value, min(float(low), value), max(float(high), value))


def jain(earned: Vector, drawn: Matrix, level: Level) -> Interval:
    """Jain's index, without the spread that is noise where that exceeds half a standard error."""
    n, z = len(earned), level.t
    plain = float(metrics.jain_index(earned))
    if n == 1:
        return Interval.exact(plain)
    d = earned / earned.mean() - 1.0
    covariance = np.atleast_2d(np.cov((drawn / drawn.mean(axis=1, keepdims=True) - 1.0).T))
    squared, noise = float(d @ d) / n, float(np.trace(covariance)) / n
    along = float(d @ covariance @ d) / (n * max(float(d @ d), 1e-300))
    pure = 2.0 * float((covariance**2).sum()) / n**2
    center = squared - noise + 2.0 * z * z * along
    root = np.sqrt(max(0.0, center**2 - (squared - noise) ** 2 + z * z * pure))
    low, high = 1.0 / (1.0 + max(0.0, center + root)), 1.0 / (1.0 + max(0.0, center - root))
    spread = np.sqrt(4.0 * max(0.0, squared - noise) * along + pure)
    value = 1.0 / (1.0 + max(0.0, squared - noise)) if noise > 0.5 * spread else plain
    return Interval(float(np.clip(value, low, high)), float(low), float(high))


def least_level(levels: Vector, drawn: Matrix, level: Level, value: float) -> Interval:
    """The least of several accounts, or a welfare near it, whichever account that is."""
    low, high = _least(np.sqrt(levels), np.sqrt(drawn), level)
    return Interval(value, min(max(low, 0.0) ** 2, value), max(high**2, value))


def least_share(earned: Vector, drawn: Matrix, level: Level) -> Interval:
    """The share of the arm with the least reward, whichever it is."""
    shares = metrics.shares(earned)
    low, high = _least(np.sqrt(shares), np.sqrt(metrics.shares(drawn)), level)
    least = float(shares.min())
    return Interval(least, min(max(low, 0.0) ** 2, least), min(max(high**2, least), 1.0))


def greatest_share(earned: Vector, drawn: Matrix, level: Level) -> Interval:
    """The share of the arm with the greatest reward, whichever it is."""
    shares = metrics.shares(earned)
    low, high = _least(-np.sqrt(shares), -np.sqrt(metrics.shares(drawn)), level)
    most = float(shares.max())
    return Interval(most, min(min(high, 0.0) ** 2, most), min(max(low**2, most), 1.0))


def _least(values: Vector, drawn: Matrix, level: Level) -> tuple[float, float]:
    """The interval of the least of several true values; errors of roots of shares hardly depend on their size."""
    errors = level.wider * (drawn - values)
    spread = np.maximum(errors.std(axis=0), 1e-300)
    low = float((values - quantile(errors, level.tail)).min())
    far = quantile(np.abs(errors / spread).max(axis=1), level.tail)  # simultaneous for all arms
    candidates = values - far * spread <= (values + far * spread).min()
    most = quantile((-errors[:, candidates] / spread[candidates]).max(axis=1), level.tail)
    return low, float((values + most * spread).min())
