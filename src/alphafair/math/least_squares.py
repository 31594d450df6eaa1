"""Least squares, learned online: what features say that an arm will pay.

With z = (1, features) and y = r - om, what was paid over the mean reward, in a round in which some arms are seen

    A = .999 A + sum z z' ;   b = .999 b + sum z y ;   theta = (A + diag(rho))^-1 b ;   f = theta.z

rho_k is 5 times the mean of z_k^2 over the vectors seen in which it is not 0, so that features may have any scale.
Where that is less than LEAST_RIDGE it is 1: squares of such features have no digits left, and they count as zeros.

Either the features are the context's, and every arm has its own A, b and theta: a column each. Or every arm has its own
features, and A, b and theta are one for all, in a single column, so that a new arm starts with what its features say.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from alphafair.jit import kernel

KEEP = 0.999  # of A and b, in a round that adds to them
RIDGE = 5.0  # times the mean of z_k^2
LEAST_RIDGE = 1e-290


class FeatureMemory(NamedTuple):
    """What is learned about features, and room to calculate in; all empty where there are none.

    The first five are learned: theta and b (`moment`) have a row per term, A (`gram`) one per entry of its lower half,
    row by row; `squares` and `nonzero` are, by term, the sum of z_k^2 and the number of vectors in which it is not 0.
    `z` has the round's features, a row per term, a column per arm or one for all; `lower` is Cholesky's factor.
    """

    theta: Any
    moment: Any
    gram: Any
    squares: Any
    nonzero: Any
    z: Any
    lower: Any


LEARNED = FeatureMemory._fields[:5]
PER_ARM = LEARNED[:3]  # a column per arm, where features are the context's


def feature_memory(n_features: int, n_arms: int, *, of_arms: bool) -> FeatureMemory:
    """Nothing learned; so many features, 0 for none."""
    n_terms = n_features + 1 if n_features else 0
    columns = 1 if of_arms else n_arms
    pairs = n_terms * (n_terms + 1) // 2
    z = np.zeros((n_terms, n_arms if of_arms else 1))
    z[:1] = 1.0
    by_term = np.zeros((n_terms, columns)), np.zeros((n_terms, columns)), np.zeros((pairs, columns))
    return FeatureMemory(*by_term, np.zeros(n_terms), np.zeros(n_terms), z, np.zeros((n_terms, n_terms)))


@kernel
def show(z, features, t):
    """The features of round t into z; whether they are others than those that were there."""
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
    """f of every arm into `out`."""
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
    """One more reward of an arm into A and b, of which so much is kept; the column that they are in."""
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

    No pivot is below its rho, whatever A is; one that rounding has lowered to less than half of it is raised to that.
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
