"""Upper confidence bounds from the relative entropy of two coins.

    kl(m, q) = m ln(m/q) + (1 - m) ln((1 - m)/(1 - q)) ;   U = the q in [m, 1] with kl(m, q) = level

In y = -ln(1 - q) the equation is convex and almost straight far out, so Newton's method goes down to the root from any
y above it without a bisection. A step from any q above m, on either side of U, ends above it. Without a q from before,
`kl_ceiling` is a start: the least that these give,

    kl(m, q) >= 2 (q - m)^2 ;   kl(m, q) >= (q - m)^2/(2 q) ;   kl(m, q) >= (q - m)^2/(2 m (1 - m)) for m >= 1/2
"""

import math

from alphafair.jit import kernel

PRECISION = 1e-16  # of q
SMALL = 0.01  # a step, relative to y
MOST_STEPS = 64  # never needed


@kernel
def kl(mean, q):
    """The relative entropy of coins that show heads with probabilities `mean` and `q`, 0 <= mean <= q <= 1."""
    found = 0.0
    if mean > 0.0:
        found += mean * math.log(mean / q)
    if mean < 1.0:
        found += (1.0 - mean) * (math.log1p(-mean) - math.log1p(-q)) if q < 1.0 else math.inf
    return found


@kernel
def kl_entropy(mean):
    """-m ln m - (1 - m) ln(1 - m)."""
    found = 0.0
    if 0.0 < mean < 1.0:
        found = -mean * math.log(mean) - (1.0 - mean) * math.log1p(-mean)
    return found


@kernel
def kl_ceiling(mean, level):
    """A number from U to 1, by a square root."""
    if mean >= 0.5:
        return min(1.0, mean + math.sqrt(2.0 * mean * max(0.0, 1.0 - mean) * level))
    return min(1.0, min(mean + math.sqrt(0.5 * level), mean + level + math.sqrt(level * (level + 2.0 * mean))))


@kernel
def kl_upper(mean, level):
    """U, the largest q with kl(mean, q) <= level, to the last digits."""
    if mean >= 1.0 or level == math.inf:
        return 1.0
    if level <= 0.0:
        return mean
    if mean <= 0.0:
        return -math.expm1(-level)
    y, ceiling = (level + kl_entropy(mean)) / (1.0 - mean), kl_ceiling(mean, level)  # kl >= (1 - mean) y - entropy
    if ceiling < 1.0:
        y = min(y, -math.log1p(-ceiling))
    return kl_root(mean, level, y)


@kernel
def kl_root(mean, level, y):
    """U of a mean inside (0, 1), from a y above that of U."""
    entropy, q = kl_entropy(mean), -math.expm1(-y)
    for _ in range(MOST_STEPS):  # pragma: no branch - it converges
        odds = (1.0 - q) / q
        slope = (1.0 - mean) - mean * odds
        excess = (1.0 - mean) * y - entropy - mean * math.log(q) - level
        if not (excess > 0.0 and slope > 0.0):
            break
        step = excess / slope
        left = mean * odds * step * step / (q * slope)  # after a small step, about twice the next one
        y -= step
        q = -math.expm1(-y)
        if step <= SMALL * y and left * (1.0 - q) <= PRECISION * q:
            break
    return min(1.0, max(mean, q))
