"""Merits of arms, and the most favorable ones inside a box: what FairX needs.

Exposure in proportion to merit f earns V(mu) = sum_i f(mu_i) mu_i / sum_i f(mu_i). Over a box low <= mu <= high its
largest value solves  max_mu sum_i f(mu_i) (mu_i - V) = 0  (Dinkelbach), and for f exponential or affine f(mu) (mu - V)
is quasi-convex in mu, so that every arm is at one end of its interval: steps need no search, and there are few.
"""

import math

from alphafair.jit import kernel


@kernel
def merits(values, slope, out):
    """f(mu) = exp(slope mu) of every arm."""
    for i in range(values.shape[0]):
        out[i] = math.exp(slope * values[i])


@kernel
def optimistic_merit(low, high, merit_low, merit_high, out):
    """Maximize V over the box: write 1 to `out` for arms at the upper end of their interval, else 0; return V.

    `merit_low` and `merit_high` are f at both ends. V rises with every step and ends where it stays, from all arms at
    their upper ends on.
    """
    n, value, rising = low.shape[0], -math.inf, True
    for i in range(n):
        out[i] = 1.0
    while rising:
        earned, total = 0.0, 0.0
        for i in range(n):
            f, mu = (merit_high[i], high[i]) if out[i] == 1.0 else (merit_low[i], low[i])
            earned += f * mu
            total += f
        rising = earned / total > value
        value = max(value, earned / total)
        for i in range(n):
            above = merit_high[i] * (high[i] - value) >= merit_low[i] * (low[i] - value)
            out[i] = 1.0 if above else 0.0
    return value
