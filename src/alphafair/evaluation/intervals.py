"""How sure an estimate is: a bootstrap over groups of rounds, and from it an interval for every number.

Each replicate draws the groups anew, every one Poisson(1) times, and the estimate is made of what was drawn. Sums and
averages of rewards are smooth, and what the bootstrap says about their error on the scale of logarithms is turned
around. Jain's index and the least share are not, where arms earn nearly alike:

- Jain is 1/(1 + x), x = |d|^2/n with d_i = R_i/mean(R) - 1. Noise of covariance V adds tr V to |d|^2: that is taken
  off, and the interval has every x from which the estimate is no farther than z standard errors *at that x*, as
  Wilson's has for a binomial: (x - est)^2 <= z^2 (4 x v/n + 2 tr V^2/n^2), v the variance along d.
- The least share s is below every arm's, so s <= min_i (s_i + k se_i) with a k that holds for all arms together which
  may be the least; and min_i (s_i - z se_i) is below it as soon as that holds for the least arm alone (Chernozhukov,
  Lee and Rosen, Intersection Bounds, Econometrica 81, 2013). The greatest share is the same upside down.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from alphafair import metrics
from alphafair.evaluation.batches import Advance, silent
from alphafair.evaluation.scores import Scores
from alphafair.values import Interval as Interval
from alphafair.values import Matrix, Vector

BLOCK = 64  # replicates at once
MOST_LOG = math.log(1e300)  # of an upper end: where next to nothing is known, that is as good as infinite


def plain(value: Any) -> Any:
    """As JSON can hold it: named tuples by name, arrays as lists, and None for a number that nobody knows."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(each) for each in (value.tolist() if isinstance(value, np.ndarray) else value)]
    return value


class Level(NamedTuple):
    """How surely an interval shall hold, and of how many degrees of freedom the spread is that it goes by."""

    confidence: float
    freedom: int

    @property
    def tail(self) -> float:
        return 0.5 + self.confidence / 2.0

    @property
    def t(self) -> float:
        """Student's quantile: how many standard errors."""
        return metrics.student_quantile(self.tail, self.freedom)

    @property
    def wider(self) -> float:
        """By which errors of the bootstrap are multiplied, since they are of a spread that is itself a guess."""
        return self.t / NormalDist().inv_cdf(self.tail)


def replicates(scores: Scores, n_replicates: int, seed: int, advance: Advance = silent) -> Matrix:
    """R of every replicate, (n_replicates, n_arms)."""
    generator, found = np.random.default_rng(seed), []
    for first in range(0, n_replicates, BLOCK):
        shape = (min(BLOCK, n_replicates - first), len(scores.shares))
        found.append(scores.accounts(generator.poisson(1.0, shape).astype(np.float64)))
        advance(shape[0])
    return np.concatenate(found)


def quantile(errors: Matrix, side: float) -> Any:
    """Of R replicates the one at place (R + 1) side: among R + 1 draws alike, any is as likely to be beyond it."""
    return np.quantile(errors, side, axis=0, method="weibull")


def smooth(value: float, drawn: Vector, level: Level, *, corrected: bool = False) -> Interval:
    """The bootstrap's error of log(value), turned around; corrected for bias where that is half a standard error."""
    errors = np.log(drawn) - np.log(value)
    above, below = (level.wider * quantile(errors, side) for side in (level.tail, 1.0 - level.tail))
    low, high = (np.exp(min(np.log(value) - side, MOST_LOG)) for side in (above, below))
    bias = float(errors.mean())
    if corrected and abs(bias) > 0.5 * errors.std():
        value = float(np.clip(value * np.exp(-bias), low, high))
    return Interval(value, min(float(low), value), max(float(high), value))


def jain(earned: Vector, drawn: Matrix, level: Level) -> Interval:
    """Jain's index, with the spread that is nothing but noise taken off where it is half a standard error."""
    n, z = len(earned), level.t
    plain = float(metrics.jain_index(earned))
    if n == 1:
        return Interval(plain, plain, plain)
    d = earned / earned.mean() - 1.0
    covariance = np.atleast_2d(np.cov((drawn / drawn.mean(axis=1, keepdims=True) - 1.0).T))
    squared, noise = float(d @ d) / n, float(np.trace(covariance)) / n
    along = float(d @ covariance @ d) / (n * max(float(d @ d), 1e-300))
    pure = 2.0 * float((covariance**2).sum()) / n**2
    centre = squared - noise + 2.0 * z * z * along
    root = np.sqrt(max(0.0, centre**2 - (squared - noise) ** 2 + z * z * pure))
    low, high = 1.0 / (1.0 + max(0.0, centre + root)), 1.0 / (1.0 + max(0.0, centre - root))
    spread = np.sqrt(4.0 * max(0.0, squared - noise) * along + pure)
    value = 1.0 / (1.0 + max(0.0, squared - noise)) if noise > 0.5 * spread else plain
    return Interval(float(np.clip(value, low, high)), float(low), float(high))


def least_share(earned: Vector, drawn: Matrix, level: Level) -> Interval:
    """The share of the arm that gets least, whichever it is."""
    shares = metrics.shares(earned)
    low, high = _least(np.sqrt(shares), np.sqrt(metrics.shares(drawn)), level)
    least = float(shares.min())
    return Interval(least, min(max(low, 0.0) ** 2, least), min(max(high**2, least), 1.0))


def greatest_share(earned: Vector, drawn: Matrix, level: Level) -> Interval:
    """The share of the arm that gets most, whichever it is."""
    shares = metrics.shares(earned)
    low, high = _least(-np.sqrt(shares), -np.sqrt(metrics.shares(drawn)), level)
    most = float(shares.max())
    return Interval(most, min(min(high, 0.0) ** 2, most), min(max(low**2, most), 1.0))


def _least(values: Vector, drawn: Matrix, level: Level) -> tuple[float, float]:
    """Between which two the least of several true values lies; roots of shares err alike, large or small."""
    errors = level.wider * (drawn - values)
    spread = np.maximum(errors.std(axis=0), 1e-300)
    low = float((values - quantile(errors, level.tail)).min())
    far = quantile(np.abs(errors / spread).max(axis=1), level.tail)  # no arm errs by more, as surely
    candidates = values - far * spread <= (values + far * spread).min()
    most = quantile((-errors[:, candidates] / spread[candidates]).max(axis=1), level.tail)
    return low, float((values + most * spread).min())
