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

Each group of rows belongs to a fold, and each fold has a policy of its own, so that a policy learned from some rows is
scored on the others.
"""

import math
from typing import Any, NamedTuple

from alphafair.jit import kernel, long_kernel


class Rows(NamedTuple):
    """Rows of a log, and the group of each."""

    contexts: Any
    arms: Any
    rewards: Any
    propensities: Any
    groups: Any


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
    visits: Any  # rows per fold and context
    arm_weights: Any  # (N_ARM_WEIGHTS, n_arms)


WEIGHT, SQUARE, WORTH, WORTH_SQUARE, GREATEST = range(5)  # per arm: sums of w, w^2, w r, (w r)^2; the greatest w
PAID_WEIGHT, PAID_SQUARE, PAID, LOG, LOG_SQUARE = range(5, 10)  # where r > 0: sums of w, w^2, 1, log r, (log r)^2
N_ARM_WEIGHTS = 10


@long_kernel
def add_cells(rows, counts, sums, squares, inverses, worths):
    """n, S and the sums of r^2, 1/p and r/p of every context and arm."""
    for t in range(rows.contexts.shape[0]):
        context, arm, reward, propensity = rows.contexts[t], rows.arms[t], rows.rewards[t], rows.propensities[t]
        counts[context, arm] += 1.0
        sums[context, arm] += reward
        squares[context, arm] += reward * reward
        inverses[context, arm] += 1.0 / propensity
        worths[context, arm] += reward / propensity


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


@long_kernel
def add_rows(rows, policies, folds, model, with_model, threshold, beyond, tally):
    """Add what the rows say about every arm to their groups; `folds` has the fold of every group."""
    n = policies.shape[2]
    for t in range(rows.contexts.shape[0]):
        context, arm, group, reward = rows.contexts[t], rows.arms[t], rows.groups[t], rows.rewards[t]
        fold = folds[group]
        weight = policies[fold, context, arm] / rows.propensities[t]
        kept = weight if weight <= threshold else beyond
        own = kept * reward
        if with_model:
            for i in range(n):
                tally.scores[group, i] += policies[fold, context, i] * model.means[context, i]
            mean = left_out(model, context, arm, reward)
            own += policies[fold, context, arm] * (mean - model.means[context, arm]) - kept * mean
        tally.scores[group, arm] += own
        tally.rounds[group] += 1.0
        tally.weights[group] += weight
        tally.visits[fold, context] += 1.0
        add_weight(tally.arm_weights, arm, weight, reward)
