"""Fair to arms and to contexts at once: prices of the joint objective.

With W the welfare of the arms' accounts, U_j = 1 + the rewards of context j and a context weight theta in [0, 1),

    W_2 = W^(1-theta) prod_j U_j^(theta q_j),   q_j the part of context j in all rounds so far, or a fixed weight

A reward of arm i in context j raises R_i and U_j, so the arm has, in place of its slope w_i = (rho_i/unit)^-alpha,

    price_i = (1-theta) w_i + theta money q_j/U_j ,   money = sum_G s_G rho_G w_G

and price_i W_2/money is the derivative of W_2. The first visit of a context counts as made: q_j = 1/(t+1) before it.

    U_j `context_account` · `context_entry` U_j at the start of the period · n_j `context_rounds`
    fixed q_j `context_part` · t `weighed` · sum_j n_j ln U_j, or sum_j q_j ln U_j, `context_logs`
"""

import math
from typing import Any

import numpy as np

from alphafair.jit import kernel
from alphafair.math.floors import F, R
from alphafair.math.utility import ACCOUNT
from alphafair.math.utility import SETTINGS as OF_ACCOUNT
from alphafair.math.welfare import STEEP, current_welfare
from alphafair.values.arrays import positions

GROUPS = True  # False in machine code for policies without groups and floors

# sided: there is a second side; on_welfare: gains are in units of the welfare, as from alpha = 1 on
SETTINGS = positions(OF_ACCOUNT, "on_welfare", "sided", "context_weight", "fixed_weights")
TOTALS = positions("weighed", "context_logs")  # behind the other scalars of an algorithm
OWN = positions("context_account", "context_entry", "context_rounds", "context_part")  # behind those of a context
NOTHING = {"sided": False, "context_weight": 0.0, "fixed_weights": False}


@kernel
def part_of_context(settings, totals, own):
    """q_j."""
    if settings[SETTINGS.fixed_weights] > 0.0:
        return own[OWN.context_part]
    if own[OWN.context_rounds] > 0.0:
        return own[OWN.context_rounds] / totals[TOTALS.weighed]
    return 1.0 / (totals[TOTALS.weighed] + 1.0)


@kernel
def write_prices(groups, arms, settings, totals, own, price):
    """Write price_i of a context to `price`; return money."""
    account, slope, weight = arms[ACCOUNT.account], arms[ACCOUNT.slope], groups.rows[R.weight]
    theta, money = settings[SETTINGS.context_weight], 0.0
    for i in range(price.shape[0]):
        money += weight[i] * account[i] * slope[i]
    of_context = theta * money * part_of_context(settings, totals, own) / own[OWN.context_account]
    for i in range(price.shape[0]):
        price[i] = (1.0 - theta) * slope[i] + of_context
    return money


@kernel
def joint_welfare(groups, arms, settings, unit, totals, own, money):
    """W_2."""
    alpha, theta, logs = settings[SETTINGS.alpha], settings[SETTINGS.context_weight], totals[TOTALS.context_logs]
    if abs(alpha - 1.0) >= STEEP - 1.0:  # money tells the welfare; nearer to 1 its rounding would be magnified
        log_welfare = math.log(unit) + math.log(money / (unit * groups.numbers[F.total_weight])) / (1.0 - alpha)
    else:
        equal = not GROUPS or groups.numbers[F.pooled] == 0.0
        weights = groups.rows[R.weight]
        log_welfare = math.log(current_welfare(arms[ACCOUNT.account], weights, arms[ACCOUNT.slope], unit, alpha, equal))
    if settings[SETTINGS.fixed_weights] == 0.0:
        rounds = totals[TOTALS.weighed]
        logs /= rounds if own[OWN.context_rounds] > 0.0 else rounds + 1.0
    return math.exp((1.0 - theta) * log_welfare + theta * logs)


@kernel
def pay_context(settings, totals, own, amount):
    """Count a round of a context that was paid `amount`."""
    before, rounds = own[OWN.context_account], own[OWN.context_rounds]
    after = before + amount
    if settings[SETTINGS.fixed_weights] > 0.0:
        totals[TOTALS.context_logs] += own[OWN.context_part] * math.log(after / before)
    else:
        totals[TOTALS.context_logs] += (rounds + 1.0) * math.log(after) - rounds * math.log(before)
    own[OWN.context_account], own[OWN.context_rounds] = after, rounds + 1.0
    totals[TOTALS.weighed] += 1.0


def start_sides(own: Any) -> None:
    """Open accounts of 1; `own` is (context, name)."""
    own[:, [OWN.context_account, OWN.context_entry]] = 1.0


def sum_logs(settings: Any, totals: Any, own: Any) -> None:
    """Compute the sum of logarithms anew, after a change of accounts or weights."""
    fixed = settings[SETTINGS.fixed_weights] > 0.0
    parts = own[:, OWN.context_part if fixed else OWN.context_rounds]
    totals[TOTALS.context_logs] = (parts * np.log(own[:, OWN.context_account])).sum()


def add_late(settings: Any, totals: Any, own: Any, contexts: Any, amounts: Any) -> None:
    """Pay what retired arms earned in these contexts; only `pay_context` counts rounds."""
    fixed = settings[SETTINGS.fixed_weights] > 0.0
    for context, amount in zip(contexts, amounts, strict=True):
        before = own[context, OWN.context_account]
        part = own[context, OWN.context_part if fixed else OWN.context_rounds]
        own[context, OWN.context_account] += amount
        totals[TOTALS.context_logs] += part * math.log((before + amount) / before)


def carry_sides(settings: Any, totals: Any, own: Any, carry: float) -> None:
    """At the start of a period: U becomes 1 + carry (U - 1), and rounds count `carry`."""
    own[:, OWN.context_account] = 1.0 + carry * (own[:, OWN.context_account] - 1.0)
    own[:, OWN.context_entry] = own[:, OWN.context_account]
    own[:, OWN.context_rounds] *= carry
    totals[TOTALS.weighed] *= carry
    sum_logs(settings, totals, own)


def check_sides(totals: Any, own: Any) -> str | None:
    """Return what accounts and rounds of contexts must be, if they are not."""
    counts = own[:, OWN.context_rounds].sum()
    sound = (own[:, [OWN.context_account, OWN.context_entry]] >= 1.0).all() and (own >= 0.0).all()
    sound &= abs(totals[TOTALS.weighed] - counts) <= 1e-9 * (1.0 + counts)
    return None if sound else "with accounts of contexts of at least 1, and their rounds"
