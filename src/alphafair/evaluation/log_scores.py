"""What a policy pi would have earned, from a log of another: one pass over its rows, summed within groups of rows.

Row t showed arm a in context c with propensity p and paid r. With w = pi(a|c)/p and a model m of the rewards, what the
row says about arm i is

    s_i = pi(i|c) m(c, i) + 1{i = a} v (r - m(c, a)),      v = w if w <= threshold, else beyond

and the sum over all rows, with an initial 1, is the estimate of what arm i earns. m = 0 is inverse propensity, a finite
threshold with beyond = threshold is clipping, with beyond = 0 switching. For the shown arm the model leaves the row
itself out, so that it cannot know the reward that it is corrected by:

    m(c, a) = (S_ca - r + k (S_a - r)/(n_a - 1)) / (n_ca - 1 + k)

with n and S how often and with how much reward in all the arm was shown, in the context and everywhere. For all other
arms the row has no part in the model as it is.

Where not all arms were available, pi is restricted to those that were: renormalised over them, as policies do with
masks, or the others merely cut off.

Each group of rows belongs to a fold, and each fold has a policy of its own, so that a policy learned from some rows is
scored on the others.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from alphafair.jit import kernel, long_kernel
from alphafair.math.distributions import mask_distribution


class Rows(NamedTuple):
    """Rows of a log, the group of each, and the arms that were available."""

    contexts: Any
    arms: Any
    rewards: Any
    propensities: Any
    groups: Any
    of_sets: Any  # the row of `sets` that holds; -1 where every arm was available
    sets: Any  # (n_sets, n_arms)


class Model(NamedTuple):
    """Mean rewards of contexts and arms, and all that is needed to leave one row out of them."""

    means: Any  # (n_contexts, n_arms)
    counts: Any  # times shown, (n_contexts, n_arms)
    sums: Any  # rewards in all, (n_contexts, n_arms)
    arm_counts: Any
    arm_sums: Any
    shrinkage: float  # k, in rows; infinite: nothing but the arm's mean


class Tally(NamedTuple):
    """What the pass adds up."""

    scores: Any  # (n_groups, n_arms): s, summed within groups
    rounds: Any  # rows per group
    weights: Any  # w per group
    visits: Any  # rows per fold and context in which every arm was available
    expected: Any  # pi of all other rows, by context and arm
    available: Any  # as many other rows had the arm, by context and arm
    arm_weights: Any  # (N_ARM_WEIGHTS, n_arms)
    cut: Any  # per arm: by how much w was cut


WEIGHT, SQUARE, WORTH, WORTH_SQUARE, GREATEST = range(5)  # per arm: sums of w, w^2, w r, (w r)^2; the greatest w
PAID_WEIGHT, PAID_SQUARE, PAID, LOG, LOG_SQUARE = range(5, 10)  # where r > 0: sums of w, w^2, 1, log r, (log r)^2
N_ARM_WEIGHTS = 10


@long_kernel
def add_cells(rows, counts, sums, squares, inverses, worths, missing):
    """n, S, the sums of r^2, 1/p and r/p, and the rows without the arm, of every context and arm."""
    for t in range(rows.contexts.shape[0]):
        context, arm, reward, propensity = rows.contexts[t], rows.arms[t], rows.rewards[t], rows.propensities[t]
        counts[context, arm] += 1.0
        sums[context, arm] += reward
        squares[context, arm] += reward * reward
        inverses[context, arm] += 1.0 / propensity
        worths[context, arm] += reward / propensity
        if rows.of_sets[t] >= 0:
            for i in range(missing.shape[1]):
                missing[context, i] += 0.0 if rows.sets[rows.of_sets[t], i] else 1.0


@kernel
def left_out(model, context, arm, reward):
    """The model's mean without one row; 0 for an arm that was shown in no other."""
    n, k, others = model.counts[context, arm] - 1.0, model.shrinkage, model.arm_counts[arm] - 1.0
    if others == 0.0:
        return 0.0
    target = (model.arm_sums[arm] - reward) / others
    if n == 0.0 or k > 1e12:
        return target
    return (model.sums[context, arm] - reward + k * target) / (n + k)


@kernel
def add_weight(sums, arm, weight, reward):
    """What a verdict needs to know."""
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
def restrict(p, available, renormalise):
    """Leave the available arms; in place."""
    if renormalise:
        mask_distribution(p, available)
    else:
        for i in range(p.shape[0]):
            p[i] = p[i] if available[i] else 0.0


@long_kernel
def add_rows(rows, policies, folds, model, with_model, threshold, beyond, renormalise, tally):
    """Add what the rows say about every arm to their groups; `folds` has the fold of every group."""
    n = policies.shape[2]
    p = np.empty(n)
    for t in range(rows.contexts.shape[0]):
        context, arm, group, reward = rows.contexts[t], rows.arms[t], rows.groups[t], rows.rewards[t]
        fold = folds[group]
        first, last = (0, n) if with_model or rows.of_sets[t] >= 0 else (arm, arm + 1)
        for i in range(first, last):
            p[i] = policies[fold, context, i]
        if rows.of_sets[t] >= 0:
            restrict(p, rows.sets[rows.of_sets[t]], renormalise)
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
                tally.scores[group, i] += p[i] * model.means[context, i]
            mean = left_out(model, context, arm, reward)
            own += p[arm] * (mean - model.means[context, arm]) - kept * mean
        tally.scores[group, arm] += own
        tally.rounds[group] += 1.0
        tally.weights[group] += weight
        tally.cut[arm] += weight - kept
        add_weight(tally.arm_weights, arm, weight, reward)
