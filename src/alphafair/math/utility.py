"""The alpha-fair utility phi(x) = x^(1-alpha)/(1-alpha) and its slope phi'(x) = x^(-alpha).

A fair policy needs phi'(R_i) of every arm in every round, and a power costs ten times a multiplication.
R_i moves little between two rounds, so each arm keeps an anchor A_i with phi'(A_i), and

    phi'(R) = phi'(A) (1 + z)^(-alpha),   z = (R - A)/A,   (1 + z)^(-alpha) = sum_k binom(-alpha, k) z^k.

Seven terms are exact to double precision for z <= 1/(256 max(1, alpha)); beyond that the arm gets a new anchor by a
true power. Errors do not accumulate, because every value is computed from its anchor.

From alpha = 1 on slopes are relative, (R/unit)^(-alpha), because R^(-alpha) leaves the range of numbers. The unit is a
power of two with unit <= least R < 2 unit, and doubles when the least account has doubled; below 1 it is 1.
"""

import math
from typing import Any

import numpy as np

from alphafair.jit import kernel
from alphafair.values.arrays import positions

WELFARE = True  # False in machine code for policies with alpha < 1
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


def relative_unit(accounts: np.ndarray) -> float:
    """Return the largest power of two that is at most every account."""
    return float(relative_units(accounts))


def relative_units(accounts: np.ndarray) -> np.ndarray:
    """The same for every row of accounts."""
    return np.ldexp(1.0, np.frexp(accounts.min(axis=-1))[1] - 1)


def open_accounts(rows: np.ndarray, accounts: float | np.ndarray, alpha: float, unit: float | np.ndarray = 1.0) -> None:
    """Set accounts, with anchors at their values; the last axis of `rows` are arms. A unit for all, or one per row."""
    slopes = (np.asarray(accounts, dtype=np.float64) / unit) ** -alpha
    rows[ACCOUNT.account] = rows[ACCOUNT.anchor] = accounts
    rows[ACCOUNT.inverse_anchor] = 1.0 / np.asarray(accounts, dtype=np.float64)
    rows[ACCOUNT.slope] = rows[ACCOUNT.anchor_slope] = slopes


def entry_accounts(accounts: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Return the accounts of new arms: `entries`, or the least of the others where they are NaN."""
    return np.where(np.isnan(entries), accounts.min(), entries)


def admit_accounts(rows: np.ndarray, n_kept: int, entries: np.ndarray, alpha: float) -> None:
    """Open the accounts of arms after the first `n_kept`, which are new."""
    open_accounts(rows[:, n_kept:], entry_accounts(rows[ACCOUNT.account, :n_kept], entries), alpha)


def set_entry_accounts(rows: np.ndarray, n_kept: int, entries: np.ndarray) -> None:
    """The same without slopes."""
    rows[ACCOUNT.account, n_kept:] = entry_accounts(rows[ACCOUNT.account, :n_kept], entries)


def reopen_accounts(memory: Any, columns: np.ndarray) -> None:
    """Recompute the slopes and anchors of accounts that were changed outside the kernels, or after a change of alpha.

    For algorithms whose `arms` begin with `ACCOUNT` and whose settings begin with `SETTINGS`.
    """
    opened = memory.arms[:, columns]
    open_accounts(opened, opened[ACCOUNT.account].copy(), memory.settings[SETTINGS.alpha])
    memory.arms[:, columns] = opened


def reopen_relative(memory: Any, unit: int) -> None:
    """The same for relative slopes, of all accounts; from alpha = 1 on the unit, in this cell, may change."""
    accounts, alpha = memory.arms[ACCOUNT.account].copy(), memory.settings[SETTINGS.alpha]
    memory.scalars[unit] = relative_unit(accounts) if alpha >= 1.0 else 1.0
    open_accounts(memory.arms, accounts, alpha, memory.scalars[unit])


def check_slopes(accounts: np.ndarray, slopes: np.ndarray, alpha: float, unit: float | np.ndarray = 1.0) -> str | None:
    """Return an error for slopes that do not belong to the accounts (of another alpha, or damaged); else None."""
    least = 0.0 if np.all(unit == 1.0) else 1e-300  # a rich account may have a relative slope of 0
    sound = (accounts > 0.0).all() and np.all(unit > 0.0)
    if sound and np.allclose(slopes, (accounts / unit) ** -alpha, rtol=1e-9, atol=least):
        return None
    return f"accounts with the slopes of alpha {alpha}"


@kernel
def utility(x, alpha):
    """phi(x) = x^(1-alpha)/(1-alpha), log x at alpha = 1."""
    if alpha == 1.0:
        return math.log(x)
    return math.pow(x, 1.0 - alpha) / (1.0 - alpha)


@kernel
def marginal_utility(x, alpha):
    """phi'(x) = x^(-alpha)."""
    return math.pow(x, -alpha)


@kernel
def earn(rows, settings, unit, probabilities, rewards):
    """R += x r, and (R/unit)^(-alpha) with it; return the unit. `rows` begin with those of an account."""
    account, slope, anchor = rows[ACCOUNT.account], rows[ACCOUNT.slope], rows[ACCOUNT.anchor]
    inverse_anchor, anchor_slope = rows[ACCOUNT.inverse_anchor], rows[ACCOUNT.anchor_slope]
    alpha, first = settings[SETTINGS.alpha], SETTINGS.series
    c1, c2, c3 = settings[first], settings[first + 1], settings[first + 2]
    c4, c5, c6 = settings[first + 3], settings[first + 4], settings[first + 5]
    reach = REACH / max(1.0, alpha) if WELFARE else REACH
    n_far = 0
    for i in range(rewards.shape[0]):
        account[i] += probabilities[i] * rewards[i]
        z = (account[i] - anchor[i]) * inverse_anchor[i]
        growth = 1.0 + z * (c1 + z * (c2 + z * (c3 + z * (c4 + z * (c5 + z * c6)))))
        slope[i] = anchor_slope[i] * growth
        n_far += 1 if z > reach else 0
    if n_far == 0:
        return unit
    for i in range(rewards.shape[0]):
        if (account[i] - anchor[i]) * inverse_anchor[i] > reach:
            anchor[i] = account[i]
            inverse_anchor[i] = 1.0 / account[i]
            # alpha is read here: known before the loop, it makes the loop vectorized, and twice as slow
            anchor_slope[i] = marginal_utility(account[i] / unit, settings[SETTINGS.alpha])
            slope[i] = anchor_slope[i]
    if WELFARE and alpha >= 1.0:
        return raise_unit(rows, alpha, unit)
    return unit


@kernel
def raise_unit(rows, alpha, unit):
    """Double the unit while every account is at least twice the unit, with new anchors for all; return it."""
    account, n = rows[ACCOUNT.account], rows.shape[1]
    least = account[0]
    for i in range(n):
        least = min(least, account[i])
    if least < 2.0 * unit:
        return unit
    while least >= 2.0 * unit:
        unit *= 2.0
    for i in range(n):
        rows[ACCOUNT.anchor, i] = account[i]
        rows[ACCOUNT.inverse_anchor, i] = 1.0 / account[i]
        rows[ACCOUNT.slope, i] = rows[ACCOUNT.anchor_slope, i] = marginal_utility(account[i] / unit, alpha)
    return unit
