"""The estimators: what the rows of a log say about each arm's reward under another policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.evaluation.batches import Advance, AnyLog, arm_names, batches, group_count, reward_unit, silent
from alphafair.evaluation.log_scores import N_ARM_WEIGHTS, Model, Rows, Tally, add_rows
from alphafair.evaluation.model import Cells, divided, fit
from alphafair.groups import ArmGroups
from alphafair.values import Matrix, Vector

NO_CHANCE = 1e-6
MOST_FREEDOM = 1000  # of Student's t: as good as normal


class Estimator(NamedTuple):
    """How a row is weighed; see `alphafair.evaluation.log_scores`. Weights are large from the root of the rows on."""

    with_model: bool = False
    normalised: bool = False  # divided by the sum of weights in place of the number of rounds
    limited: bool = False  # large weights
    beyond: float = 0.0  # what is left of a large weight, as a part of the limit

    def limits(self, n_rounds: int) -> tuple[float, float]:
        threshold = math.sqrt(n_rounds) if self.limited else math.inf
        return threshold, self.beyond * threshold if self.limited else 0.0


ESTIMATORS = {
    "ips": Estimator(),
    "snips": Estimator(normalised=True),
    "dr": Estimator(with_model=True),
    "clipped": Estimator(limited=True, beyond=1.0),
    "switch": Estimator(with_model=True, limited=True),
}


class Scores(NamedTuple):
    """What groups of rows say: sums of scores, and what they are divided by; empty groups are left out."""

    n_rounds: int
    n_contexts: int  # that came
    arm_labels: Sequence[str]
    sums: Matrix  # (n_groups of rows, n_arms, or groups of arms), rewards in `unit`
    shares: Vector  # (n_groups,): rows, or weights, of each group
    expected: Vector  # how often the policy would show each arm
    arm_weights: Matrix
    unseen: Vector  # how often the policy would show each arm where the log never did, which is no chance
    cut: Vector  # of each arm's weights, by how much in all they were cut
    unit: float = 1.0  # see `batches.reward_unit`

    def accounts(self, weights: Matrix | None = None) -> Matrix:
        """R of every arm, the initial 1 included, and never below it; for groups drawn `weights` times, by rows."""
        return 1.0 + self.cumulative_rewards(weights)

    def cumulative_rewards(self, weights: Matrix | None = None) -> Matrix:
        """What every arm earns, never below 0; for groups drawn `weights` times, by rows."""
        weights = np.ones((1, len(self.shares))) if weights is None else weights
        drawn, whole = weights @ self.sums, (weights @ self.shares)[:, None]
        means = divided(drawn, np.broadcast_to(whole, drawn.shape), np.zeros_like(drawn))  # 0 where nothing was drawn
        return np.asarray(np.maximum(0.0, self.unit * (self.n_rounds * means)))

    def pooled(self, groups: ArmGroups) -> Scores:
        """The same with a column per group of arms: R is then that of groups."""
        if not groups.named:
            return self
        sums = np.zeros((len(self.sums), groups.n_groups))
        np.add.at(sums.T, groups.of_arms, self.sums.T)
        return self._replace(sums=sums)

    def freedom(self, direction: Vector) -> int:
        """How many degrees of freedom the spread of `direction` . R has, at least 1: few where few groups make it up.

        With x what each of G groups adds, 2 (sum x^2)^2 / (sum x^4 - (sum x^2)^2/G) (Satterthwaite, 1946): as many as
        groups where x is normal, twice as many as there are rewards where only few groups have one.
        """
        mean = self.sums.sum(axis=0) / max(float(self.shares.sum()), 1e-300)
        added = self.sums @ direction - self.shares * float(mean @ direction)
        most = float(np.abs(added).max())
        if most == 0.0:
            return MOST_FREEDOM
        added /= most  # whose fourth powers stay finite
        squares = float((added**2).sum())
        spare = float((added**4).sum()) - squares**2 / len(added)
        return int(np.clip(2.0 * squares**2 / spare, 1.0, MOST_FREEDOM)) if spare > 0.0 else MOST_FREEDOM


def count_cells(log: AnyLog, advance: Advance = silent) -> Cells:
    """A pass over the log: the cells of all rows."""
    cells = Cells.blank(log.n_contexts, log.n_arms, reward_unit(log))
    for rows in batches(log):
        cells.add(rows)
        advance(len(rows.contexts))
    return cells


def count_halves(log: AnyLog, folds: NDArray[np.int64], advance: Advance) -> list[Cells]:
    """A pass over the log: the cells of every fold."""
    found = [Cells.blank(log.n_contexts, log.n_arms, reward_unit(log)) for _ in range(int(folds.max()) + 1)]
    for rows in batches(log):
        for fold, cells in enumerate(found):
            inside = folds[rows.groups] == fold
            cells.add(Rows._make([*(column[inside] for column in rows[:-1]), rows.sets]))
        advance(len(rows.contexts))
    return found


def score(
    log: AnyLog,
    policies: Matrix,
    estimator: Estimator,
    advance: Advance = silent,
    *,
    folds: NDArray[np.int64] | None = None,
    model: Model | None = None,
    renormalise: bool = True,
) -> Scores:
    """A pass over the log (two, if the estimator needs a model that is not there): scores by group.

    `policies` is (n_folds, n_contexts, n_arms); groups of fold f are scored under policies[f]. Where not all arms were
    available, they are renormalised over those that were, or else cut off.
    """
    n_groups, n_arms = group_count(log), log.n_arms
    if model is None:
        model = fit(count_cells(log, advance) if estimator.with_model else Cells.blank(1, n_arms))
    tally = Tally(
        np.zeros((n_groups, n_arms)),
        np.zeros(n_groups),
        np.zeros(n_groups),
        np.zeros(policies.shape[:2]),
        np.zeros((log.n_contexts, n_arms)),
        np.zeros((log.n_contexts, n_arms)),
        np.zeros((N_ARM_WEIGHTS, n_arms)),
        np.zeros(n_arms),
    )
    of_groups = np.zeros(n_groups, dtype=np.int64) if folds is None else folds
    limits, counts = estimator.limits(log.n_rounds), np.zeros(log.n_contexts * n_arms)
    for rows in batches(log):
        counts += np.bincount(rows.contexts.astype(np.int64) * n_arms + rows.arms, minlength=len(counts))
        add_rows(rows, policies, of_groups, model, estimator.with_model, *limits, renormalise, tally)
        advance(len(rows.contexts))
    used, shown = tally.rounds > 0.0, counts.reshape(-1, n_arms)
    expected = np.einsum("fc,fca->ca", tally.visits, policies) + tally.expected
    available = tally.visits.sum(axis=0)[:, None] + tally.available
    shares = tally.weights if estimator.normalised else tally.rounds
    unseen = (expected * improbable(shown, available)).sum(axis=0)
    sums, about_arms = (tally.scores[used], shares[used]), (expected.sum(axis=0), tally.arm_weights, unseen, tally.cut)
    n_contexts = int(shown.any(axis=1).sum())
    return Scores(log.n_rounds, n_contexts, arm_names(log), *sums, *about_arms, reward_unit(log))


def improbable(shown: Matrix, available: Matrix) -> Matrix:
    """1 where an arm was never shown in a context, though it would have been at the rate that it has elsewhere.

    With q the arm's part of the rounds in which it was available, a context with n of them misses it with probability
    (1 - q)^n.
    """
    rates = shown.sum(axis=0) / np.maximum(1.0, available.sum(axis=0))
    missed = (1.0 - rates) ** available
    return np.asarray((shown == 0.0) & (missed < NO_CHANCE), dtype=np.float64)


def n_passes(estimator: Estimator) -> int:
    return 2 if estimator.with_model else 1


def checked_distributions(value: object, log: AnyLog) -> Matrix:
    """One distribution over arms per context."""
    repair = "Give one row per context and one column per arm; rows sum to 1."
    table = validate.reward_table("distributions", value)
    if table.shape != (log.n_contexts, log.n_arms):
        raise InvalidArgument("distributions", f"of shape {(log.n_contexts, log.n_arms)}", table.shape, repair)
    validate.every("distributions", table, (table >= 0.0) & (table <= 1.0 + 1e-9), "a number in [0, 1]", repair)
    totals = table.sum(axis=1)
    validate.every("distributions: sum of row ", totals, np.abs(totals - 1.0) <= 1e-6, "1", repair)
    return table
