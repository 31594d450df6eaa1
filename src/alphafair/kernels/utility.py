"""The alpha-fair utility phi(x) = x^(1-alpha)/(1-alpha) and its slope phi'(x) = x^(-alpha).

A fair policy needs phi'(R_i) of every arm in every round, and a power costs ten times a multiplication.
R_i moves little between two rounds, so each arm keeps an anchor A_i with phi'(A_i), and

    phi'(R) = phi'(A) (1 + z)^(-alpha),   z = (R - A)/A,   (1 + z)^(-alpha) = sum_k binom(-alpha, k) z^k.

Seven terms are exact to double precision for z <= 1/256; past that the arm gets a new anchor by a true power.
Errors do not pile up, because every value starts from its anchor and not from the value before it.

An account is five rows: TOTAL (R), SLOPE (phi'(R)), ANCHOR (A), INVERSE (1/A), ANCHOR_SLOPE (phi'(A)).
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.memory import ARMS

TERMS = 7
REACH = 1.0 / 256.0
TOTAL, SLOPE, ANCHOR, INVERSE, ANCHOR_SLOPE, ACCOUNT_ROWS = 0, 1, 2, 3, 4, 5
ALPHA, SERIES = 0, 1  # among the settings: alpha, then binom(-alpha, k) for k = 1 .. 6


def account_settings(alpha: float) -> list[float]:
    """alpha and the coefficients binom(-alpha, k) for k = 1 .. TERMS - 1."""
    coefficients = [1.0]
    for k in range(1, TERMS):
        coefficients.append(coefficients[k - 1] * (-alpha - k + 1) / k)
    return [alpha, *coefficients[1:]]


def open_accounts(rows: np.ndarray, totals: float | np.ndarray, alpha: float) -> None:
    """Arms that have earned so much, with anchors of their own; `rows` are the account's, without heads."""
    slopes = np.asarray(totals, dtype=np.float64) ** -alpha
    rows[TOTAL] = rows[ANCHOR] = totals
    rows[INVERSE] = 1.0 / np.asarray(totals, dtype=np.float64)
    rows[SLOPE] = rows[ANCHOR_SLOPE] = slopes


def admit(rows: np.ndarray, entries: np.ndarray, alpha: float) -> None:
    """Accounts for the last arms, which are new: as `entries` say, or where they are NaN the least of the others."""
    n_old = rows.shape[1] - len(entries)
    least = rows[TOTAL, :n_old].min()
    open_accounts(rows[:, n_old:], np.where(np.isnan(entries), least, entries), alpha)


@kernel
def utility(x, alpha):
    """phi(x) = x^(1-alpha)/(1-alpha)."""
    return math.pow(x, 1.0 - alpha) / (1.0 - alpha)


@kernel
def marginal_utility(x, alpha):
    """phi'(x) = x^(-alpha)."""
    return math.pow(x, -alpha)


@kernel
def earn(blocks, k, first, settings, probabilities, rewards):
    """R += x r, and phi'(R) with it, in the account that begins at row `first` of block k."""
    total, slope = blocks[k, first + TOTAL, ARMS:], blocks[k, first + SLOPE, ARMS:]
    anchor, inverse = blocks[k, first + ANCHOR, ARMS:], blocks[k, first + INVERSE, ARMS:]
    anchor_slope = blocks[k, first + ANCHOR_SLOPE, ARMS:]
    c1, c2, c3 = settings[SERIES], settings[SERIES + 1], settings[SERIES + 2]
    c4, c5, c6 = settings[SERIES + 3], settings[SERIES + 4], settings[SERIES + 5]
    n_far = 0
    for i in range(rewards.shape[0]):
        total[i] += probabilities[i] * rewards[i]
        z = (total[i] - anchor[i]) * inverse[i]
        growth = 1.0 + z * (c1 + z * (c2 + z * (c3 + z * (c4 + z * (c5 + z * c6)))))
        slope[i] = anchor_slope[i] * growth
        n_far += 1 if z > REACH else 0
    if n_far > 0:
        for i in range(rewards.shape[0]):
            if (total[i] - anchor[i]) * inverse[i] > REACH:
                anchor[i] = total[i]
                inverse[i] = 1.0 / total[i]
                anchor_slope[i] = marginal_utility(total[i], settings[ALPHA])
                slope[i] = anchor_slope[i]
