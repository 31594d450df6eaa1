"""Least squares, learned online: what features say that an arm will pay.

With z = (1, features) and y = r - om, what was paid over the mean reward, in a round in which some arms are seen

    A = .999 A + sum z z' ;   b = .999 b + sum z y ;   theta = (A + diag(rho))^-1 b ;   f = theta.z

rho_k is 5 times the mean of z_k^2 over the vectors seen in which it is not 0, so that features may have any scale.
Where that is less than LEAST_RIDGE it is 1: squares of such features have no digits left, and they count as zeros.

Either the features are the context's, and every arm has its own A, b and theta: in its column. Or every arm has its own
features, and A, b and theta are one for all, so that a new arm starts with what its features say: in head SHARED.

    memory:  THETA, of N_TERMS rows, heads SQUARES and NONZERO as well | MOMENT, b, as many | GRAM, the lower half of A
    scratch: SHOWN, z, of N_TERMS rows, a column per arm or the first alone | LOWER, row k of Cholesky's factor in row k
"""

import math

from alphafair.jit import kernel
from alphafair.kernels.memory import ARMS

N_TERMS, OF_ARMS = 8, 9  # among the settings: the length of z, and whether arms have features of their own
SHARED, SQUARES, NONZERO = 0, 1, 2  # heads
KEEP = 0.999  # of A and b, in a round that adds to them
RIDGE = 5.0  # times the mean of z_k^2
LEAST_RIDGE = 1e-290


def memory_rows(n_features: int) -> int:
    """How many rows theta, b and A take; none without features."""
    n_terms = n_features + 1
    return 2 * n_terms + n_terms * (n_terms + 1) // 2 if n_features else 0


@kernel
def say(settings, memory, shown, out):
    """f of every arm into `out`."""
    n_terms, own = int(settings[N_TERMS]), settings[OF_ARMS] > 0.0
    for i in range(out.shape[0]):
        out[i] = 0.0
    for k in range(n_terms):
        z, theta = shown[k], memory[k]
        if own:
            for i in range(out.shape[0]):
                out[i] += theta[SHARED] * z[i]
        else:
            for i in range(out.shape[0]):
                out[i] += theta[ARMS + i] * z[0]


@kernel
def add(settings, memory, shown, arm, y, keep):
    """One more reward of an arm into A and b, of which so much is kept; the column that they are in."""
    n_terms, own = int(settings[N_TERMS]), settings[OF_ARMS] > 0.0
    place, column = (arm, SHARED) if own else (0, ARMS + arm)
    row = 2 * n_terms
    for k in range(n_terms):
        z = shown[k, place]
        for j in range(k + 1):
            memory[row + j, column] = keep * memory[row + j, column] + z * shown[j, place]
        row += k + 1
        memory[n_terms + k, column] = keep * memory[n_terms + k, column] + z * y
        if z != 0.0:
            memory[k, SQUARES] += z * z
            memory[k, NONZERO] += 1.0
    return column


@kernel
def solve(n_terms, memory, column, lower):
    """theta = (A + diag(rho))^-1 b, by Cholesky; 0 for a term that has always been 0.

    No pivot is below its rho, whatever A is; one that rounding has lowered to less than half of it is raised to that.
    """
    row = 2 * n_terms
    for k in range(n_terms):
        ridge = RIDGE * memory[k, SQUARES] / memory[k, NONZERO] if memory[k, NONZERO] > 0.0 else 0.0
        ridge = ridge if ridge >= LEAST_RIDGE else 1.0
        for j in range(k + 1):
            rest = memory[row + j, column]
            if j == k:
                rest += ridge
            for r in range(j):
                rest -= lower[k, r] * lower[j, r]
            lower[k, j] = math.sqrt(max(rest, 0.5 * ridge)) if j == k else rest / lower[j, j]
        row += k + 1
        theta = memory[n_terms + k, column]
        for r in range(k):
            theta -= lower[k, r] * memory[r, column]
        memory[k, column] = theta / lower[k, k]
    for k in range(n_terms - 1, -1, -1):
        theta = memory[k, column]
        for r in range(k + 1, n_terms):
            theta -= lower[r, k] * memory[r, column]
        memory[k, column] = theta / lower[k, k]
