"""AdaHedge for two: the share h of one learner against another, from gains d of the first over the second.

With D the sum of all d and Delta that of all mixability gaps, both 0 at first,

    eta = ln2/Delta ;   h = 1/(1 + exp(-eta D)),  1/2 while Delta = 0
    m = log((1-h) + h exp(eta d))/eta,  max(d, 0) while Delta = 0 ;   Delta += max(0, m - h d) ;   D += d

At every prefix neither learner alone is ahead of the mixture by more than 2 Delta, whatever the scale of d: multiplying
all d by a power of two changes no share. (de Rooij, van Erven, Grünwald and Koolen, Follow the Leader If You Can, Hedge
If You Must, JMLR 15, 2014.)

    D `ahead` · Delta `gaps`
"""

import math

from alphafair.jit import kernel

LOG_2 = math.log(2.0)
MOST_ODDS = 700.0  # beyond it the smaller share is 0 to more digits than there are


@kernel
def log_odds(ahead, gaps):
    """eta D, kept in [-700, 700]; 0 while Delta = 0."""
    if gaps == 0.0:
        return 0.0
    return min(max(LOG_2 * (ahead / gaps), -MOST_ODDS), MOST_ODDS)


@kernel
def share(ahead, gaps):
    """h = 1/(1 + exp(-eta D))."""
    return 1.0 / (1.0 + math.exp(-log_odds(ahead, gaps)))


@kernel
def add_gap(ahead, gaps, d):
    """Delta after one more gain d, before D has it."""
    odds = log_odds(ahead, gaps)
    mixed = max(d, 0.0)
    if gaps > 0.0:
        eta = LOG_2 / gaps
        second = -log_1p_exp(odds)  # log(1 - h)
        first = -log_1p_exp(-odds) + eta * d  # log(h) + eta d
        mixed = (max(first, second) + math.log1p(math.exp(-abs(first - second)))) / eta
    return gaps + max(0.0, mixed - d / (1.0 + math.exp(-odds)))


@kernel
def log_1p_exp(x):
    """log(1 + exp(x)), however large x is."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))
