"""Online least squares: predict the reward of an arm from features.

With z = (1, features) and y = r - om, the reward minus the mean reward, in a round with the rewards of some arms

    A = .999 A + sum z z' ;   b = .999 b + sum z y ;   theta = (A + diag(rho))^-1 b ;   f = theta.z

rho_k is 5 times the mean of z_k^2 over the vectors in which it is not 0, so that features may have any scale. If that
is less than LEAST_RIDGE it is 1: squares of such features underflow, and they count as zeros.

Either the features belong to the context, and every arm has its own A, b and theta: a column each. Or every arm has its
own features, and A, b and theta are shared, in a single column, so that they apply to new arms too.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from alphafair.jit import kernel

KEEP = 0.999  # factor of A and b per round
RIDGE = 5.0  # times the mean of z_k^2
LEAST_RIDGE = 1e-290


class FeatureMemory(NamedTuple):
    """What is learned about features, and work space; all empty without features.

    The first five are learned: theta and b (`moment`) have a row per term, A (`gram`) one per entry of its lower half,
    row by row; `squares` and `nonzero` are, by term, the sum of z_k^2 and the number of vectors in which it is not 0.
    `z` has the features of the round, a row per term, a column per arm or one for all; `lower` is a Cholesky factor.
    """

    theta: Any
    moment: Any
    gram: Any
    squares: Any
    nonzero: Any
    z: Any
    lower: Any


LEARNED = FeatureMemory._fields[:5]
PER_ARM = LEARNED[:3]  # a column per arm, for features of the context


def feature_memory(n_features: int, n_arms: int, *, of_arms: bool) -> FeatureMemory:
    """Return the initial memory; `n_features` may be 0."""
    n_terms = n_features + 1 if n_features else 0
    columns = 1 if of_arms else n_arms
    pairs = n_terms * (n_terms + 1) // 2
    z = np.zeros((n_terms, n_arms if of_arms else 1))
    z[:1] = 1.0
    by_term = np.zeros((n_terms, columns)), np.zeros((n_terms, columns)), np.zeros((pairs, columns))
    return FeatureMemory(*by_term, np.zeros(n_terms), np.zeros(n_terms), z, np.zeros((n_terms, n_terms)))


@kernel
def show(z, features, t):
    """Write the features of round t to z; return whether they changed."""
    n_features, changed = z.shape[0] - 1, False
    if n_features > 0:
        for i in range(z.shape[1]):
            for k in range(n_features):
                value = features[t, i * n_features + k]
                if z[1 + k, i] != value:
                    z[1 + k, i] = value
                    changed = True
    return changed


@kernel
def predict(features, of_arms, out):
    """Write f of every arm to `out`."""
    for i in range(out.shape[0]):
        out[i] = 0.0
    for k in range(features.theta.shape[0]):
        z, theta = features.z[k], features.theta[k]
        if of_arms:
            for i in range(out.shape[0]):
                out[i] += theta[0] * z[i]
        else:
            for i in range(out.shape[0]):
                out[i] += theta[i] * z[0]


@kernel
def add(features, of_arms, arm, y, keep):
    """Add a reward of an arm to A and b, scaled by `keep` first; return their column."""
    gram, moment, z = features.gram, features.moment, features.z
    place, column = (arm, 0) if of_arms else (0, arm)
    row = 0
    for k in range(z.shape[0]):
        value = z[k, place]
        for j in range(k + 1):
            gram[row + j, column] = keep * gram[row + j, column] + value * z[j, place]
        row += k + 1
        moment[k, column] = keep * moment[k, column] + value * y
        if value != 0.0:
            features.squares[k] += value * value
            features.nonzero[k] += 1.0
    return column


@kernel
def solve(features, column):
    """theta = (A + diag(rho))^-1 b, by Cholesky; 0 for a term that has always been 0.

    In exact arithmetic no pivot is below its rho; one that rounding lowers to less than half of it is raised to that.
    """
    theta, moment, gram, lower = features.theta, features.moment, features.gram, features.lower
    row = 0
    for k in range(theta.shape[0]):
        ridge = RIDGE * features.squares[k] / features.nonzero[k] if features.nonzero[k] > 0.0 else 0.0
        ridge = ridge if ridge >= LEAST_RIDGE else 1.0
        for j in range(k + 1):
            rest = gram[row + j, column]
            if j == k:
                rest += ridge
            for r in range(j):
                rest -= lower[k, r] * lower[j, r]
            lower[k, j] = math.sqrt(max(rest, 0.5 * ridge)) if j == k else rest / lower[j, j]
        row += k + 1
        value = moment[k, column]
        for r in range(k):
            value -= lower[k, r] * theta[r, column]
        theta[k, column] = value / lower[k, k]
    for k in range(theta.shape[0] - 1, -1, -1):
        value = theta[k, column]
        for r in range(k + 1, theta.shape[0]):
            value -= lower[r, k] * theta[r, column]
        theta[k, column] = value / lower[k, k]
