"""The alpha-fair utility phi(x) = x^(1-alpha)/(1-alpha) and its slope phi'(x) = x^(-alpha).

A fair policy needs phi'(R_i) of every arm in every round, and a power costs ten times a multiplication.
R_i moves little between two rounds, so each arm keeps an anchor A_i with phi'(A_i), and

    phi'(R) = phi'(A) (1 + z)^(-alpha),   z = (R - A)/A,   (1 + z)^(-alpha) = sum_k binom(-alpha, k) z^k.

Seven terms are exact to double precision for z <= 1/256; beyond that the arm gets a new anchor by a true power. Errors
do not accumulate, because every value is computed from its anchor.
"""

import math
from typing import Any

import numpy as np

from alphafair.jit import kernel
from alphafair.values.arrays import positions

TERMS = 7
REACH = 1.0 / 256.0
# rows, a column per arm: R, phi'(R), A, 1/A, phi'(A); first in the memory of every algorithm that keeps accounts
ACCOUNT = positions("account", "slope", "anchor", "inverse_anchor", "anchor_slope")
SETTINGS = positions("alpha", "series[6]")  # alpha, and binom(-alpha, k) for k = 1 .. 6
MOST_PLAYED = 64.0  # a larger alpha, inf included, is played as PLAYED_ABOVE: the poorest account is better off
PLAYED_ABOVE = 16.0


def played_alpha(alpha: float) -> float:
    """Return the exponent that policies play with: alpha itself up to 64, else 16.

    The largest exponents follow the poorest account so closely that they serve it worse: measured, 16 leaves the least
    account as high as any exponent, and 100 lower.
    """
    return alpha if alpha <= MOST_PLAYED else PLAYED_ABOVE


def account_settings(alpha: float) -> dict[str, float | list[float]]:
    """Return alpha and the coefficients of the series, by the names of `SETTINGS`."""
    coefficients = [1.0]
    for k in range(1, TERMS):
        coefficients.append(coefficients[k - 1] * (-alpha - k + 1) / k)
    return {"alpha": alpha, "series": coefficients[1:]}


def open_accounts(rows: np.ndarray, accounts: float | np.ndarray, alpha: float) -> None:
    """Set accounts, with anchors at their values; the last axis of `rows` are arms."""
    slopes = np.asarray(accounts, dtype=np.float64) ** -alpha
    rows[ACCOUNT.account] = rows[ACCOUNT.anchor] = accounts
    rows[ACCOUNT.inverse_anchor] = 1.0 / np.asarray(accounts, dtype=np.float64)
    rows[ACCOUNT.slope] = rows[ACCOUNT.anchor_slope] = slopes


def entry_accounts(accounts: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Return the accounts of new arms: `entries`, or the least of the others where they are NaN."""
    return np.where(np.isnan(entries), accounts.min(), entries)


def admit_accounts(rows: np.ndarray, n_kept: int, entries: np.ndarray, alpha: float) -> None:
    """Open the accounts of arms after the first `n_kept`, which are new."""
    open_accounts(rows[:, n_kept:], entry_accounts(rows[ACCOUNT.account, :n_kept], entries), alpha)


def reopen_accounts(memory: Any, columns: np.ndarray) -> None:
    """Recompute the slopes and anchors of accounts that were changed outside the kernels, or after a change of alpha.

    For algorithms whose `arms` begin with `ACCOUNT` and whose settings begin with `SETTINGS`.
    """
    opened = memory.arms[:, columns]
    open_accounts(opened, opened[ACCOUNT.account].copy(), memory.settings[SETTINGS.alpha])
    memory.arms[:, columns] = opened


def check_slopes(accounts: np.ndarray, slopes: np.ndarray, alpha: float) -> str | None:
    """Return an error for slopes that do not belong to the accounts (of another alpha, or damaged); else None."""
    if (accounts > 0.0).all() and np.allclose(slopes, accounts**-alpha, rtol=1e-9, atol=0.0):
        return None
    return f"accounts with the slopes of alpha {alpha}"


@kernel
def utility(x, alpha):
    """phi(x) = x^(1-alpha)/(1-alpha)."""
    return math.pow(x, 1.0 - alpha) / (1.0 - alpha)


@kernel
def marginal_utility(x, alpha):
    """phi'(x) = x^(-alpha)."""
    return math.pow(x, -alpha)


@kernel
def earn(rows, settings, probabilities, rewards):
    """R += x r, and phi'(R) with it; `rows` begin with those of an account."""
    account, slope, anchor = rows[ACCOUNT.account], rows[ACCOUNT.slope], rows[ACCOUNT.anchor]
    inverse_anchor, anchor_slope = rows[ACCOUNT.inverse_anchor], rows[ACCOUNT.anchor_slope]
    first = SETTINGS.series
    c1, c2, c3 = settings[first], settings[first + 1], settings[first + 2]
    c4, c5, c6 = settings[first + 3], settings[first + 4], settings[first + 5]
    n_far = 0
    for i in range(rewards.shape[0]):
        account[i] += probabilities[i] * rewards[i]
        z = (account[i] - anchor[i]) * inverse_anchor[i]
        growth = 1.0 + z * (c1 + z * (c2 + z * (c3 + z * (c4 + z * (c5 + z * c6)))))
        slope[i] = anchor_slope[i] * growth
        n_far += 1 if z > REACH else 0
    if n_far > 0:
        for i in range(rewards.shape[0]):
            if (account[i] - anchor[i]) * inverse_anchor[i] > REACH:
                anchor[i] = account[i]
                inverse_anchor[i] = 1.0 / account[i]
                anchor_slope[i] = marginal_utility(account[i], settings[SETTINGS.alpha])
                slope[i] = anchor_slope[i]
