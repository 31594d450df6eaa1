"""Estimators: the rewards of a policy pi, from a log of another, in one pass over its rows.

Row t showed arm a in context c with propensity p and paid r. With w = pi(a|c)/p and a model m of the rewards, the score
of the row for arm i is

    s_i = pi(i|c) m(c, i) + 1{i = a} v (r - m(c, a)),      v = w if w <= threshold, else beyond

and the sum over all rows, plus an initial 1, estimates the account of arm i. m = 0 is inverse propensity scoring, a
finite threshold with beyond = threshold is clipping, with beyond = 0 switching. For the shown arm the model leaves the
row itself out, so that its reward is not used to correct itself:

    m(c, a) = (S_ca - r + k (S_a - r)/(n_a - 1)) / (n_ca - 1 + k)

with n the number of rows and S the sum of rewards of the arm, in the context and everywhere. For all other arms the row
has no part in the model as it is.

Where not all arms were available, pi is restricted to those that were: renormalized over them, as policies do with
masks, or set to 0 for the others.

Scores are summed within clusters of rows. Each cluster belongs to a fold, and each fold has a policy of its own, so
that a policy learned from some rows is scored on the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.evaluation.log_rows import (
    Advance,
    AnyLog,
    Rows,
    add_up,
    arm_names,
    cluster_count,
    reward_unit,
    silent,
)
from alphafair.evaluation.reward_model import Model, divide, left_out
from alphafair.groups import ArmGroups
from alphafair.jit import kernel, long_kernel
from alphafair.math.distributions import mask_distribution
from alphafair.values import Matrix, Vector

UNLIKELY = 1e-6
MOST_FREEDOM = 1000  # of Student's t, which is nearly normal then


class Estimator(NamedTuple):
    """How a row is weighted; see the formula above. A weight is large if it exceeds the root of the number of rows.

    A model has no use for normalized weights, so `mean` is one of three: scores per round, per weight, or of what the
    model leaves over.
    """

    mean: Literal["per round", "per weight", "with model"]
    large: Literal["kept", "cut to the threshold", "dropped"] = "kept"

    @property
    def with_model(self) -> bool:
        return self.mean == "with model"

    def limits(self, n_rounds: int) -> tuple[float, float]:
        """The threshold, and the weight beyond it."""
        if self.large == "kept":
            return math.inf, 0.0
        threshold = math.sqrt(n_rounds)
        return threshold, threshold if self.large == "cut to the threshold" else 0.0


ESTIMATORS = {
    "ips": Estimator("per round"),
    "snips": Estimator("per weight"),
    "dr": Estimator("with model"),
    "clipped": Estimator("per round", "cut to the threshold"),
    "switch": Estimator("with model", "dropped"),
}


class PolicySums(NamedTuple):
    """The sums of one policy's pass over the rows."""

    scores: Any  # (n_clusters, n_arms): s, summed within clusters
    rounds: Any  # rows per cluster
    weights: Any  # w per cluster
    visits: Any  # rows per fold and context in which every arm was available
    expected: Any  # pi of all other rows, by context and arm
    available: Any  # other rows in which the arm was available, by context and arm
    shown: Any  # rows by context and arm
    arm_weights: Any  # (N_ARM_WEIGHTS, n_arms)
    cut: Any  # per arm: the part of w beyond the threshold that was removed


WEIGHT, SQUARE, WORTH, WORTH_SQUARE, GREATEST = range(5)  # per arm: sums of w, w^2, w r, (w r)^2; the greatest w
PAID_WEIGHT, PAID_SQUARE, PAID, LOG, LOG_SQUARE = range(5, 10)  # where r > 0: sums of w, w^2, 1, log r, (log r)^2
N_ARM_WEIGHTS = 10


@kernel
def add_weight(sums, arm, weight, reward):
    """The sums that a verdict needs."""
    sums[WEIGHT, arm] += weight
    sums[SQUARE, arm] += weight * weight
    sums[GREATEST, arm] = max(sums[GREATEST, arm], weight)
    if reward > 0.0:
        size = math.log(reward)
        sums[WORTH, arm] += weight * reward
        sums[WORTH_SQUARE, arm] += weight * reward * weight * reward
        sums[PAID_WEIGHT, arm] += weight
        sums[PAID_SQUARE, arm] += weight * weight
        sums[PAID, arm] += 1.0
        sums[LOG, arm] += size
        sums[LOG_SQUARE, arm] += size * size


@kernel
def restrict(p, available, renormalize):
    """Restrict a distribution to the available arms, in place."""
    if renormalize:
        mask_distribution(p, available)
    else:
        for i in range(p.shape[0]):
            p[i] = p[i] if available[i] else 0.0


@long_kernel
def add_rows(rows, policies, folds, model, with_model, threshold, beyond, renormalize, tally):
    """Add the scores of the rows to their clusters; `folds` has the fold of every cluster."""
    n = policies.shape[2]
    p = np.empty(n)
    for t in range(rows.contexts.shape[0]):
        context, arm, cluster, reward = rows.contexts[t], rows.arms[t], rows.clusters[t], rows.rewards[t]
        fold = folds[cluster]
        first, last = (0, n) if with_model or rows.of_sets[t] >= 0 else (arm, arm + 1)
        for i in range(first, last):
            p[i] = policies[fold, context, i]
        if rows.of_sets[t] >= 0:
            restrict(p, rows.sets[rows.of_sets[t]], renormalize)
            for i in range(n):
                tally.expected[context, i] += p[i]
                tally.available[context, i] += 1.0 if rows.sets[rows.of_sets[t], i] else 0.0
        else:
            tally.visits[fold, context] += 1.0
        weight = p[arm] / rows.propensities[t]
        kept = weight if weight <= threshold else beyond
        own = kept * reward
        if with_model:
            for i in range(n):
                tally.scores[cluster, i] += p[i] * model.means[context, i]
            mean = left_out(model, context, arm, reward)
            own += p[arm] * (mean - model.means[context, arm]) - kept * mean
        tally.scores[cluster, arm] += own
        tally.rounds[cluster] += 1.0
        tally.weights[cluster] += weight
        tally.shown[context, arm] += 1.0
        tally.cut[arm] += weight - kept
        add_weight(tally.arm_weights, arm, weight, reward)


class Scoring(NamedTuple):
    """A policy to be scored: `policies` is (n_folds, n_contexts, n_arms), clusters of fold f under policies[f]."""

    policies: Matrix
    estimator: Estimator
    model: Model | None = None  # for estimators with one
    folds: NDArray[np.int64] | None = None  # of clusters; None for a single fold
    renormalize: bool = True  # over the available arms, or else set to 0 for the others


class ScoreSums:
    """The tally of a policy, added up over rows."""

    def __init__(self, scoring: Scoring, log: AnyLog) -> None:
        n_clusters, n_arms = cluster_count(log), log.n_arms
        self.scoring, self._limits = scoring, scoring.estimator.limits(log.n_rounds)
        self._folds = np.zeros(n_clusters, dtype=np.int64) if scoring.folds is None else scoring.folds
        self._model = Model.zero(n_arms) if scoring.model is None else scoring.model
        of_clusters, of_cells, of_arms = (n_clusters, n_arms), (log.n_contexts, n_arms), (N_ARM_WEIGHTS, n_arms)
        shapes = (of_clusters, n_clusters, n_clusters, scoring.policies.shape[:2], *[of_cells] * 3, of_arms, n_arms)
        self.tally = PolicySums._make(np.zeros(shape) for shape in shapes)

    def add(self, rows: Rows) -> None:
        policies, estimator = self.scoring.policies, self.scoring.estimator
        settings = (self._folds, self._model, estimator.with_model, *self._limits, self.scoring.renormalize)
        add_rows(rows, policies, *settings, self.tally)

    @property
    def sums(self) -> PolicySums:
        return self.tally

    def merge(self, later: PolicySums) -> None:
        greatest = np.maximum(self.tally.arm_weights[GREATEST], later.arm_weights[GREATEST])
        for own, other in zip(self.tally, later, strict=True):
            own += other
        self.tally.arm_weights[GREATEST] = greatest

    def scores(self, log: AnyLog) -> Scores:
        tally, scoring = self.tally, self.scoring
        used = tally.rounds > 0.0
        expected = np.einsum("fc,fca->ca", tally.visits, scoring.policies) + tally.expected
        available = tally.visits.sum(axis=0)[:, None] + tally.available
        shares = tally.weights if scoring.estimator.mean == "per weight" else tally.rounds
        return Scores(
            n_rounds=log.n_rounds,
            n_contexts=int(tally.shown.any(axis=1).sum()),
            arm_labels=arm_names(log),
            sums=tally.scores[used],
            shares=shares[used],
            expected=expected.sum(axis=0),
            arm_weights=tally.arm_weights,
            unseen=(expected * unlikely(tally.shown, available)).sum(axis=0),
            cut=tally.cut,
            unit=reward_unit(log),
        )


@dataclass(frozen=True, eq=False)
class _SumsOf:
    """Makes the empty sums of some policies."""

    scorings: Sequence[Scoring]

    def __call__(self, log: AnyLog) -> list[ScoreSums]:
        return [ScoreSums(each, log) for each in self.scorings]


def score(
    log: AnyLog, scorings: Sequence[Scoring], advance: Advance = silent, executor: Executor | None = None
) -> list[Scores]:
    """One pass over the log: the scores of all policies."""
    return [each.scores(log) for each in add_up(log, _SumsOf(scorings), advance, executor)]


class Scores(NamedTuple):
    """The sums of scores by cluster, and the numbers that they are divided by; empty clusters are left out."""

    n_rounds: int
    n_contexts: int  # with rows
    arm_labels: Sequence[str]
    sums: Matrix  # (n_clusters, n_arms, or groups of arms), rewards in `unit`
    shares: Vector  # (n_clusters,): rows, or weights, of each cluster
    expected: Vector  # the number of rounds in which the policy shows each arm
    arm_weights: Matrix
    unseen: Vector  # the part of `expected` in contexts where the log never showed the arm, and not by chance
    cut: Vector  # per arm: the sum of weights that was cut off
    unit: float = 1.0  # see `log_rows.reward_unit`

    def accounts(self, weights: Matrix | None = None) -> Matrix:
        """R of every arm, including the initial 1, and never below it; with weights for clusters, one row each."""
        return 1.0 + self.cumulative_rewards(weights)

    def cumulative_rewards(self, weights: Matrix | None = None) -> Matrix:
        """The reward of every arm, never below 0; with weights for clusters, one row each."""
        weights = np.ones((1, len(self.shares))) if weights is None else weights
        drawn, whole = weights @ self.sums, (weights @ self.shares)[:, None]
        means = divide(drawn, np.broadcast_to(whole, drawn.shape), np.zeros_like(drawn))  # 0 where nothing was drawn
        return np.asarray(np.maximum(0.0, self.unit * (self.n_rounds * means)))

    def pooled(self, groups: ArmGroups) -> Scores:
        """The same with a column per group of arms, so that R is that of groups."""
        if not groups.named:
            return self
        sums = np.zeros((len(self.sums), groups.n_groups))
        np.add.at(sums.T, groups.of_arms, self.sums.T)
        return self._replace(sums=sums)

    def freedom(self, direction: Vector) -> int:
        """The degrees of freedom of the spread of `direction` . R, at least 1: few where few clusters contribute.

        With x the contribution of each of G clusters, 2 (sum x^2)^2 / (sum x^4 - (sum x^2)^2/G) (Satterthwaite, 1946):
        the number of clusters where x is normal, twice the number of rewards where only few clusters have one.
        """
        mean = self.sums.sum(axis=0) / max(float(self.shares.sum()), 1e-300)
        added = self.sums @ direction - self.shares * float(mean @ direction)
        most = float(np.abs(added).max())
        if most == 0.0:
            return MOST_FREEDOM
        added /= most  # so that fourth powers are finite
        squares = float((added**2).sum())
        spare = float((added**4).sum()) - squares**2 / len(added)
        return int(np.clip(2.0 * squares**2 / spare, 1.0, MOST_FREEDOM)) if spare > 0.0 else MOST_FREEDOM


def unlikely(shown: Matrix, available: Matrix) -> Matrix:
    """1 where an arm was never shown in a context, which is unlikely at the rate at which it was shown elsewhere.

    With q the fraction of the rounds with the arm available in which it was shown, a context with n of them does not
    show it with probability (1 - q)^n.
    """
    rates = shown.sum(axis=0) / np.maximum(1.0, available.sum(axis=0))
    missed = (1.0 - rates) ** available
    return np.asarray((shown == 0.0) & (missed < UNLIKELY), dtype=np.float64)


def check_distributions(value: object, log: AnyLog) -> Matrix:
    """Check that there is one distribution over arms per context."""
    repair = "Pass one row per context and one column per arm; rows sum to 1."
    table = validate.reward_table("distributions", value)
    if table.shape != (log.n_contexts, log.n_arms):
        raise InvalidArgument("distributions", f"of shape {(log.n_contexts, log.n_arms)}", table.shape, repair)
    validate.every("distributions", table, (table >= 0.0) & (table <= 1.0 + 1e-9), "a number in [0, 1]", repair)
    totals = table.sum(axis=1)
    validate.every("distributions: sum of row ", totals, np.abs(totals - 1.0) <= 1e-6, "1", repair)
    return table
