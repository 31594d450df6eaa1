"""The welfare W, the power mean of accounts, for any alpha in [0, inf], and its gradient.

With y_i = R_i/s_i the level of an account, s_i its entitlement and S = sum_i s_i,

    W = (sum_i (s_i/S) y_i^(1-alpha))^(1/(1-alpha))        geometric mean at alpha = 1, least y at inf
    p_i = dW/dR_i = (W/y_i)^alpha / S                      the prices; w_i = y_i^-alpha = u p_i with u = S W^-alpha
    ln_alpha(x) = (x^(1-alpha) - 1)/(1-alpha)              log x at alpha = 1

W is in units of reward, rises in every R_i, is concave and scales with R. Both formulas lose all digits near alpha = 1
and leave the range of numbers for large alpha, so W is computed from L_i = log(y_i/m), m the largest level for
alpha < 1 and the least above: then no term of the sum is above 1, and

    W = m exp(log1p(sum_i (s_i/S) expm1((1-alpha) L_i))/(1-alpha)),   m exp(sum_i (s_i/S) L_i) at alpha = 1

is right to the last digits at every alpha, and continuous at 1. Where that sum is near -1, the logarithm of
sum_i (s_i/S) exp((1-alpha) L_i) takes its place.

Slopes w leave the range of numbers too: at alpha = 64 an account of 10^5 has one of 10^-320. `relative_slopes` are
those over the poorest account's, (y_i/min y)^-alpha; a rich account may have 0.

Kernels take `levels` and `weights`, one of each per column. Where several columns share one account, as the arms of a
group do, their weights add up to its entitlement.
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.math.log_barrier import log_product

LEAST_RATIO = 1e-300  # below it a ratio has lost digits, or is 0
MOST_EXPONENT = 709.0  # above it exp leaves the range of numbers
STEEP = 1.05  # from here on slopes alone tell the welfare


@kernel
def ln_alpha(x, alpha):
    """(x^(1-alpha) - 1)/(1-alpha), the integral of u^-alpha from 1 to x > 0; log x at alpha = 1."""
    if alpha == 1.0:
        return math.log(x)
    power = 1.0 - alpha
    exponent = power * math.log(x)
    return math.expm1(exponent) / power if exponent < MOST_EXPONENT else math.copysign(np.inf, power)


@kernel
def log_ratio(y, m):
    """log(y/m) for positive numbers, however far apart."""
    ratio = min(y, m) / max(y, m)
    if ratio < LEAST_RATIO:
        return math.log(y) - math.log(m)
    return math.log(ratio) if y < m else -math.log(ratio)


@kernel
def welfare(levels, weights, alpha):
    """W = (sum_i (s_i/S) y_i^(1-alpha))^(1/(1-alpha)), from positive levels y and weights s."""
    n = levels.shape[0]
    least = most = levels[0]
    total = 0.0
    for i in range(n):
        least, most = min(least, levels[i]), max(most, levels[i])
        total += weights[i]
    if alpha == np.inf or least == most:
        return least
    if alpha == 1.0:
        mean = 0.0
        for i in range(n):
            mean += weights[i] / total * log_ratio(levels[i], least)
        return least * math.exp(mean)
    power, m = 1.0 - alpha, most if alpha < 1.0 else least
    less = 0.0  # the sum less 1
    for i in range(n):
        less += weights[i] / total * math.expm1(power * log_ratio(levels[i], m))
    if less > -0.5:
        return m * math.exp(math.log1p(less) / power)
    mean = 0.0
    for i in range(n):
        mean += weights[i] / total * math.exp(power * log_ratio(levels[i], m))
    return m * math.exp(math.log(mean) / power)


@kernel
def welfare_of_slopes(levels, weights, slopes, unit, alpha):
    """The same from slopes (y_i/unit)^-alpha that are known already, with one power: for alpha of at least STEEP.

    sum_i (s_i/S) (y_i/unit)^(1-alpha) is the sum of (s_i/S) (y_i/unit) times the slope. Nearer to 1 the root
    1/(1-alpha) would magnify its rounding.
    """
    total = mean = 0.0
    for i in range(levels.shape[0]):
        total += weights[i]
        mean += weights[i] * (levels[i] / unit) * slopes[i]
    return unit * math.pow(mean / total, 1.0 / (1.0 - alpha))


@kernel
def current_welfare(levels, weights, slopes, unit, alpha, equal):
    """The same by the fastest way for alpha >= 1; `equal`: all weights are 1."""
    if alpha >= STEEP:
        return welfare_of_slopes(levels, weights, slopes, unit, alpha)
    if alpha == 1.0 and equal:
        return unit * math.exp(-log_product(slopes) / levels.shape[0])
    return welfare(levels, weights, alpha)


@kernel
def relative_slopes(levels, alpha, out):
    """Write (y_i/min y)^-alpha = exp(-alpha (log y_i - log min y)) to `out`; the least level."""
    n, least = levels.shape[0], levels[0]
    for i in range(n):
        least = min(least, levels[i])
    for i in range(n):
        out[i] = math.pow(levels[i] / least, -alpha)
    return least


@kernel
def prices(levels, weights, alpha, out):
    """Write p_i = (W/y_i)^alpha/S, the gradient of W in R_i, to `out`; W.

    For alpha > 1 no price is above n^(1/(alpha-1)) where every weight is 1. At inf it is 1/S for the poorest and 0 for
    the others.
    """
    total, mean = 0.0, welfare(levels, weights, alpha)
    for i in range(levels.shape[0]):
        total += weights[i]
    for i in range(levels.shape[0]):
        out[i] = math.pow(mean / levels[i], alpha) / total
    return mean
