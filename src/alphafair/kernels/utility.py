"""The alpha-fair utility phi(x) = x^(1-alpha)/(1-alpha) and its slope phi'(x) = x^(-alpha).

A fair policy needs phi'(R_i) of every arm in every round, and a power costs ten times a multiplication.
R_i moves little between two rounds, so each arm keeps an anchor A_i with phi'(A_i), and

    phi'(R) = phi'(A) (1 + z)^(-alpha),   z = (R - A)/A,   (1 + z)^(-alpha) = sum_k binom(-alpha, k) z^k.

Seven terms are exact to double precision for z <= 1/256; past that the arm gets a new anchor by a true power.
Errors do not pile up, because every value starts from its anchor and not from the value before it.
"""

import math

import numpy as np

from alphafair.jit import kernel

TERMS = 7
REACH = 1.0 / 256.0
TOTAL, SLOPE, ANCHOR, INVERSE, ANCHOR_SLOPE = 1, 2, 3, 4, 5  # the rows of an account; row 0 is its owner's


def binomial_series(alpha: float) -> np.ndarray:
    """Coefficients binom(-alpha, k) for k = 0 .. TERMS - 1."""
    coefficients = np.ones(TERMS)
    for k in range(1, TERMS):
        coefficients[k] = coefficients[k - 1] * (-alpha - k + 1) / k
    return coefficients


def first_account(n_arms: int, alpha: float) -> np.ndarray:
    """Rows R, phi'(R), A, 1/A, phi'(A) of arms that have earned nothing; columns n, n + 1: alpha and the series."""
    account = np.zeros((6, n_arms + 2))
    account[TOTAL:, :n_arms] = 1.0
    account[TOTAL, n_arms] = alpha
    series = binomial_series(alpha)
    account[SLOPE:, n_arms] = series[1:5]
    account[SLOPE : SLOPE + 2, n_arms + 1] = series[5:]
    return account


@kernel
def utility(x, alpha):
    """phi(x) = x^(1-alpha)/(1-alpha)."""
    return math.pow(x, 1.0 - alpha) / (1.0 - alpha)


@kernel
def marginal_utility(x, alpha):
    """phi'(x) = x^(-alpha)."""
    return math.pow(x, -alpha)


@kernel
def earn(table, k, probabilities, rewards):
    """R += x r in account k of the table, and phi'(R) with it."""
    n = rewards.shape[0]
    c1, c2, c3, c4 = table[k, SLOPE, n], table[k, ANCHOR, n], table[k, INVERSE, n], table[k, ANCHOR_SLOPE, n]
    c5, c6 = table[k, SLOPE, n + 1], table[k, ANCHOR, n + 1]
    n_far = 0
    for i in range(n):
        total = table[k, TOTAL, i] + probabilities[i] * rewards[i]
        table[k, TOTAL, i] = total
        z = (total - table[k, ANCHOR, i]) * table[k, INVERSE, i]
        growth = 1.0 + z * (c1 + z * (c2 + z * (c3 + z * (c4 + z * (c5 + z * c6)))))
        table[k, SLOPE, i] = table[k, ANCHOR_SLOPE, i] * growth
        n_far += 1 if z > REACH else 0
    if n_far > 0:
        for i in range(n):
            total = table[k, TOTAL, i]
            if (total - table[k, ANCHOR, i]) * table[k, INVERSE, i] > REACH:
                table[k, ANCHOR, i] = total
                table[k, INVERSE, i] = 1.0 / total
                table[k, ANCHOR_SLOPE, i] = marginal_utility(total, table[k, TOTAL, n])
                table[k, SLOPE, i] = table[k, ANCHOR_SLOPE, i]
