"""Sides: which visitors our policy serves, what every side earned, how fair that was, and how sure it is.

A unit (a visitor, say) has a hash h of 64 bits, in which its side and its bucket are fixed:

    u = (h >> 11)/2^53        ours if u < share        bucket b = h mod 64

So a larger share moves units to us alone, and nothing is stored per unit. A table S of one side has a row per bucket:
sums of rewards in [0, 1] by arm or group, the rewarded decisions, and all decisions. With totals x by group g, d
rewarded decisions of the side, D those of both sides, so that accounts are compared at the same traffic:

    R_g = 1 + D x_g/d         q = R/s         psi_bg = (D/d)(S_bg - S_bd x_g/d)
    mean    sum x/d                                  psi_b = (sum_g S_bg - mean S_bd)/d
    log W   ln(sum s q^(1-alpha)/sum s)/(1-alpha)  psi_b = sum_g psi_bg q_g^-alpha/sum s q^(1-alpha)
    J       Q^2/(n P), Q = sum q, P = sum q^2        psi_b = sum_g psi_bg (2 Q/(n P) - 2 q_g Q^2/(n P^2))/s_g

Buckets are independent, so V = (64/63) sum_b psi_b^2 is a variance that allows for units with many decisions. Around
a value lies sqrt(V (1 + rho)/rho (ln(1 + rho) + 2 ln 20)) with rho = 8 d/10000: the mixture boundary of Robbins, valid
at all looks at once with probability 0.95. It needs rewards above the least possible one in 30 buckets of each side:
clicks that are fewer made Jain's index of a share of 5% miss in a quarter of A/A runs.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from alphafair import metrics
from alphafair.engine.state.steps import DECIDED, DEFAULT, DEFERRED, PAID_PARTLY, Steps
from alphafair.groups import Groups
from alphafair.values.arrays import Matrix, Vector

N_BUCKETS: Final = 64
LEAST_BUCKETS: Final = 30  # of a side, in which something was earned: with fewer there is no interval
WORTH: Final = 8.0 / 10_000.0  # rho of one decision: the sequence is narrowest around 10,000 of them
CONFIDENCE: Final = 0.95
SALT_BYTES: Final = 64  # the longest key of BLAKE2b
MEASURES: Final = ("mean_reward", "welfare", "jain_index")


# units


class Place(NamedTuple):
    """Where a unit belongs: to us if `u` is below the share, and to one of 64 buckets."""

    u: float
    bucket: int


def place_of(unit: str, salt: str) -> Place:
    """Return the place of a unit, the same in every process and every language.

    >>> place_of("visitor-7", "home")
    Place(u=0.09438789751008192, bucket=45)
    """
    digest = hashlib.blake2b(unit.encode(), digest_size=8, key=salt.encode()[:SALT_BYTES]).digest()
    h = int.from_bytes(digest, "big")
    return Place((h >> 11) / 2.0**53, h % N_BUCKETS)


# what is counted


class SideTables:
    """S of every side that has decided since the last change of mode, share or salt, at position `since`.

    Sides have the numbers of `Steps.decided_by`. A table is 8·64·(arms + 2) bytes, and a function of the event log.
    """

    def __init__(self, n_arms: int, low: float, high: float) -> None:
        self.low, self.high = low, high  # of rewards
        self.n_arms = n_arms
        self.since = 0
        self.tables: dict[int, Matrix] = {}

    @classmethod
    def of(cls, numbers: dict[str, Any], n_arms: int, low: float, high: float) -> Self:
        """Return tables of zeros with these `numbers`."""
        made = cls(n_arms, low, high)
        made.since = numbers["since"]
        made.tables = {side: np.zeros((N_BUCKETS, n_arms + 2)) for side in numbers["sides"]}
        return made

    @property
    def numbers(self) -> dict[str, Any]:
        """What tells how many tables there are, and of what."""
        return {"since": self.since, "sides": [*self.tables]}

    def restart(self, position: int) -> None:
        """Forget decisions up to a position."""
        self.since, self.tables = position, {}

    def add_arm(self) -> None:
        """Count for one more arm."""
        self.tables = {side: np.insert(table, self.n_arms, 0.0, axis=1) for side, table in self.tables.items()}
        self.n_arms += 1

    def count(self, steps: Steps) -> None:
        """Count decisions that have a bucket, and their rewards one after the other."""
        counted = (steps.bucket >= 0) & (steps.decision > self.since)
        if not counted.any():
            return
        steps = steps[counted]
        for side in dict.fromkeys(steps.decided_by.tolist()):
            if side not in self.tables:
                self.tables[side] = np.zeros((N_BUCKETS, self.n_arms + 2))
                self.tables = dict(sorted(self.tables.items()))
            self._count(self.tables[side], steps[steps.decided_by == side])

    def _count(self, table: Matrix, steps: Steps) -> None:
        decided, rewarded = (steps.kind == DECIDED) | (steps.kind == DEFERRED), steps.kind <= DEFAULT
        np.add.at(table[:, self.n_arms + 1], steps.bucket[decided], 1.0)
        np.add.at(table[:, self.n_arms], steps.bucket[rewarded], 1.0)
        if not steps.slates:
            np.add.at(table, (steps.bucket[rewarded], steps.arm[rewarded]), self._in_unit(steps.reward[rewarded]))
            return
        for t in np.flatnonzero(rewarded | (steps.kind == PAID_PARTLY)).tolist():
            arms, rewards = steps[t : t + 1].paid
            np.add.at(table[steps.bucket[t]], arms, self._in_unit(rewards))

    def _in_unit(self, rewards: Vector) -> Vector:
        return (rewards - self.low) / (self.high - self.low)

    def copy(self) -> SideTables:
        """Return a copy, for readers."""
        copied = SideTables.of(self.numbers, self.n_arms, self.low, self.high)
        copied.tables = {side: table.copy() for side, table in self.tables.items()}
        return copied

    def same(self, other: SideTables) -> bool:
        """Return whether both are equal to the last bit."""
        return self.numbers == other.numbers and all(
            np.array_equal(table, other.tables[side]) for side, table in self.tables.items()
        )


# one side


class Measured(NamedTuple):
    """Mean reward, log welfare and Jain's index of a side, their variances, and its rewarded decisions.

    The last axis of `values` and `variances` has the three measures; `rewarded` and `buckets` have the axes before.
    """

    values: Matrix
    variances: Matrix
    rewarded: Any
    buckets: Any  # how many have earned something


def by_group(table: Matrix, of_arms: NDArray[np.int64], n_groups: int) -> Matrix:
    """Return a table with a column per group, from one with a column per arm; the two counts stay.

    >>> by_group(np.array([[1.0, 2.0, 4.0, 9.0, 10.0]]), np.array([0, 1, 0]), 2).tolist()
    [[5.0, 2.0, 9.0, 10.0]]
    """
    sums = np.zeros((*table.shape[:-1], n_groups + 2))
    np.add.at(sums.T, of_arms, table[..., : len(of_arms)].T)
    sums[..., n_groups:] = table[..., len(of_arms) :]
    return sums


def measure(table: Matrix, traffic: Any, entitlements: Vector, alpha: float) -> Measured:
    """Measure one side, which has rewarded decisions, as if it had as many of them as `traffic`, those of both sides.

    `table` may have axes before those of buckets and columns: it is then measured for each of them.
    """
    n, s = len(entitlements), np.asarray(entitlements, dtype=np.float64)
    rewards, per_bucket = table[..., :n], table[..., n]
    d = per_bucket.sum(axis=-1)
    x, scale = rewards.sum(axis=-2) / d[..., None], np.asarray(traffic) / d
    q = (1.0 + np.asarray(traffic)[..., None] * x) / s
    psi = scale[..., None, None] * (rewards - per_bucket[..., None] * x[..., None, :])
    mean = x.sum(axis=-1)
    of_mean = (rewards.sum(axis=-1) - mean[..., None] * per_bucket) / d[..., None]
    log_welfare, slopes = _log_welfare(q, s, alpha)
    total, squares = q.sum(axis=-1, keepdims=True), (q * q).sum(axis=-1, keepdims=True)
    jain = total[..., 0] ** 2 / (n * squares[..., 0])
    of_jain = (2.0 * total / (n * squares) - 2.0 * q * total**2 / (n * squares**2)) / s
    influence = np.stack(
        [of_mean, (psi * slopes[..., None, :]).sum(axis=-1), (psi * of_jain[..., None, :]).sum(axis=-1)], axis=-1
    )
    variances = N_BUCKETS / (N_BUCKETS - 1) * (influence**2).sum(axis=-2)
    return Measured(
        np.stack([mean, log_welfare, jain], axis=-1), variances, d, np.count_nonzero(rewards.sum(axis=-1), axis=-1)
    )


def _log_welfare(q: Matrix, s: Vector, alpha: float) -> tuple[Any, Matrix]:
    """Return ln W of q = R/s, and its derivative by every R; scaled by the least q, so that powers stay finite."""
    least = q.min(axis=-1, keepdims=True)
    log_welfare = np.log(metrics.welfare(q * s, alpha, groups=Groups(entitlements=s)))
    if math.isinf(alpha):
        first = np.arange(len(s)) == q.argmin(axis=-1)[..., None]
        return log_welfare, first / (s * least)
    ratio = q / least
    total = (s * ratio ** (1.0 - alpha)).sum(axis=-1, keepdims=True)
    return log_welfare, ratio**-alpha / (least * total)


# intervals


def half_width(variance: Any, decisions: Any) -> Any:
    """Return half of the width of the sequence after so many decisions: those of the side, or of the smaller one."""
    rho = WORTH * np.asarray(decisions)[..., None]
    return np.sqrt(variance * (1.0 + rho) / rho * (np.log1p(rho) + 2.0 * math.log(1.0 / (1.0 - CONFIDENCE))))


def difference(one: Measured, other: Measured) -> tuple[Matrix, Matrix]:
    """Return what `one` has more than `other`, by measure, and half of the width of its sequence."""
    smaller = np.minimum(one.rewarded, other.rewarded)
    return one.values - other.values, half_width(one.variances + other.variances, smaller)


def seen_share(ours: Vector, theirs: Vector) -> tuple[float, float]:
    """Return our part of the decisions by bucket of both sides, and half of the width of its sequence.

    If the share that was set lies outside, decisions of one side are lost, or its visitors come more often.
    """
    both = ours + theirs
    n = both.sum()
    share = ours.sum() / n
    variance = N_BUCKETS / (N_BUCKETS - 1) * (((ours - share * both) / n) ** 2).sum()
    return float(share), float(half_width(variance, min(ours.sum(), theirs.sum()))[0])
