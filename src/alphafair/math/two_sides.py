"""Fair to arms and to contexts at once: prices of the joint objective.

With W the welfare of the arms' accounts, U_j = 1 + the rewards of context j and a context weight theta in [0, 1),

    W_2 = W^(1-theta) prod_j U_j^(theta q_j),   q_j the part of context j in all rounds so far, or a fixed weight

A reward of arm i in context j raises R_i and U_j, so the arm has, in place of its slope w_i = (rho_i/unit)^-alpha,

    price_i = (1-theta) w_i + theta money q_j/U_j ,   money = sum_G s_G rho_G w_G

and price_i W_2/money is the derivative of W_2. The first visit of a context counts as made: q_j = 1/(t+1) before it.

The promise `context_share`, sigma, is that every context gets the part sigma of the rewards of its best arm. Its debt
is D_j = sigma max_i V_ji - C_j, V_ji the rewards of arm i in its rounds and C_j its own. While D_j > 0, an *excursion*,
the context is served by

    q proportional to 1/(2N) (1+eta)^G_i + 1/2 (1+eta)^G_A a_i ,   ln(1+eta)/eta = sigma/keep

with G_i the rewards of arm i in the excursion, a uniform on the arms with the largest prediction, G_A its rewards, and
keep what floors leave. Then D_j <= sigma + keep ln(2N)/eta in every round, whatever the rewards are.

    U_j `context_account` · `context_entry` U_j at the start of the period · n_j `context_rounds`
    fixed q_j `context_part` · t `weighed` · sum_j n_j ln U_j, or sum_j q_j ln U_j, `context_logs`
    C_j is U_j minus `context_base` · V_ji `context_totals` · G_i `excursion_gains` · G_A `adviser_gain`
    `in_excursion` · `shortfall`: D_j at a change within the excursion, and what it lost by late and masked decisions
"""

import math
from typing import Any

import numpy as np

from alphafair.jit import kernel
from alphafair.math.floors import TIE, F, R
from alphafair.math.utility import ACCOUNT
from alphafair.math.utility import SETTINGS as OF_ACCOUNT
from alphafair.math.welfare import STEEP, current_welfare
from alphafair.values.arrays import positions

GROUPS = True  # False in machine code for policies without groups and floors

# sided: there is a second side; on_welfare: gains are in units of the welfare, as from alpha = 1 on
SETTINGS = positions(OF_ACCOUNT, "on_welfare", "sided", "context_weight", "fixed_weights", "context_share")
TOTALS = positions("weighed", "context_logs")  # behind the other scalars of an algorithm
OWN = positions("context_account", "context_entry", "context_rounds", "context_part")  # behind those of a context
PROMISED = positions(OWN, "context_base")  # with a promise
IN_DEBT = positions(PROMISED, "adviser_gain", "in_excursion", "shortfall")  # and full information
MOST_EXPONENT = 600.0  # arms that are further behind have the same, positive, weight


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
        log_welfare = math.log(money / (unit * groups.numbers[F.total_weight])) / (1.0 - alpha)
        log_welfare += math.log(unit) if unit != 1.0 else 0.0
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
    """Count a round of a context that was paid `amount`, with the sum of logarithms."""
    before, rounds = own[OWN.context_account], own[OWN.context_rounds]
    log_of_growth = math.log((before + amount) / before)
    if settings[SETTINGS.fixed_weights] > 0.0:
        totals[TOTALS.context_logs] += own[OWN.context_part] * log_of_growth
    else:
        totals[TOTALS.context_logs] += math.log(before) + (rounds + 1.0) * log_of_growth
    count_round(totals, own, amount)


@kernel
def count_round(totals, own, amount):
    """Count a round of a context that was paid `amount`."""
    own[OWN.context_account] += amount
    own[OWN.context_rounds] += 1.0
    totals[TOTALS.weighed] += 1.0


@kernel
def debt_of(settings, own, totals_of_arms):
    """D_j."""
    best = 0.0
    for i in range(totals_of_arms.shape[0]):
        best = max(best, totals_of_arms[i])
    return settings[SETTINGS.context_share] * best - (own[OWN.context_account] - own[PROMISED.context_base])


@kernel
def write_favorites(predicted, favorites):
    """Write a, uniform on the arms with the largest prediction."""
    n, best, ties = predicted.shape[0], 0.0, 0.0
    for i in range(n):
        best = max(best, predicted[i])
    for i in range(n):
        ties += 1.0 if predicted[i] >= TIE * best else 0.0
    for i in range(n):
        favorites[i] = 1.0 / ties if predicted[i] >= TIE * best else 0.0


@kernel
def write_excursion(rate, own, gains, favorites, out):
    """Write q, from the gains so far: none before the first round of an excursion."""
    n, started, total = out.shape[0], own[IN_DEBT.in_excursion], 0.0
    log_base = math.log1p(rate) * started
    adviser = own[IN_DEBT.adviser_gain]
    most = adviser
    for i in range(n):
        most = max(most, gains[i])
    of_adviser = 0.5 * math.exp(max(-MOST_EXPONENT, log_base * (adviser - most)))
    for i in range(n):
        out[i] = math.exp(max(-MOST_EXPONENT, log_base * (gains[i] - most))) / (2.0 * n) + of_adviser * favorites[i]
        total += out[i]
    for i in range(n):
        out[i] /= total


@kernel
def keep_accounts_of_promise(settings, own, totals_of_arms, gains, favorites, served, probabilities, rewards):
    """Start or end an excursion, and add a round to its gains and to V; `served` is q with floors."""
    n, adviser, lost = rewards.shape[0], 0.0, 0.0
    owing = debt_of(settings, own, totals_of_arms) > 0.0
    if owing and own[IN_DEBT.in_excursion] == 0.0:
        for i in range(n):
            gains[i] = 0.0
        own[IN_DEBT.adviser_gain] = own[IN_DEBT.shortfall] = 0.0
    own[IN_DEBT.in_excursion] = 1.0 if owing else 0.0
    if owing:
        for i in range(n):
            adviser += favorites[i] * rewards[i]
            lost += (served[i] - probabilities[i]) * rewards[i]
            gains[i] += rewards[i]
        own[IN_DEBT.adviser_gain] += adviser
        own[IN_DEBT.shortfall] += lost
    else:
        own[IN_DEBT.shortfall] = 0.0
    for i in range(n):
        totals_of_arms[i] += rewards[i]


def rate_of(part: float) -> float:
    """Return eta > 0 with ln(1 + eta)/eta = `part`, in (0, 1)."""
    low, high = -45.0, 700.0  # logarithms
    for _ in range(120):
        middle = 0.5 * (low + high)
        eta = math.exp(middle)
        low, high = (middle, high) if math.log1p(eta) > part * eta else (low, middle)
    return math.exp(0.5 * (low + high))


def debts(settings: Any, own: Any, totals_of_arms: Any) -> np.ndarray:
    """Return D of every context."""
    given = own[:, OWN.context_account] - own[:, PROMISED.context_base]
    found: np.ndarray = settings[SETTINGS.context_share] * totals_of_arms.max(axis=1) - given
    return found


def restart_excursions(settings: Any, own: Any, totals_of_arms: Any, gains: Any) -> None:
    """After a change of arms, of floors or of the promise: excursions begin anew, from the debts of now."""
    owed = np.maximum(debts(settings, own, totals_of_arms), 0.0)
    gains[:] = 0.0
    own[:, IN_DEBT.adviser_gain] = 0.0
    own[:, IN_DEBT.in_excursion], own[:, IN_DEBT.shortfall] = owed > 0.0, owed


def carry_promise(own: Any, rows: Any, carry: float) -> None:
    """At the start of a period V, C and gains count `carry`; `rows` is (context, name, arm)."""
    own[:, PROMISED.context_base] = 1.0 + carry * (own[:, PROMISED.context_base] - 1.0)
    if own.shape[1] > PROMISED.size:
        own[:, [IN_DEBT.adviser_gain, IN_DEBT.shortfall]] *= carry
    rows *= carry


def start_sides(own: Any) -> None:
    """Open accounts of 1; `own` is (context, name)."""
    own[:, [OWN.context_account, OWN.context_entry]] = 1.0
    if own.shape[1] > OWN.size:
        own[:, PROMISED.context_base] = 1.0


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
    sound = (own[:, [OWN.context_account, OWN.context_entry]] >= 1.0).all() and (own[:, : OWN.size] >= 0.0).all()
    if own.shape[1] > OWN.size:
        sound &= (own[:, PROMISED.context_base] >= 1.0).all()
        sound &= (own[:, OWN.context_account] >= own[:, PROMISED.context_base]).all()
    sound &= abs(totals[TOTALS.weighed] - counts) <= 1e-9 * (1.0 + counts)
    return None if sound else "with accounts of contexts of at least 1, and their rounds"
