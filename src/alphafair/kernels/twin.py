"""Full information that learns fast and keeps a certificate: the index's favourite mixed with Algorithm 1.

With w = R^-alpha before the round, a uniform on the largest w m of the index, x^j of `gradient_ascent` and g = w r:

    p = (1-h) a + h x^j ;   d = <x^j - a, g> ;   SPREAD += d^2 ;   h <- clip(h + d/sqrt(2 SPREAD), 0, 1), h = 1 first
    S_j += ||g||^2 ;   x^j <- projection of x^j + g/sqrt(S_j) ;   then the index learns, and R += p r

A d that is nothing but rounding, or too small to be squared, takes no step, and is added to DRIFT instead, with <g, p
held - p used>, which late and masked decisions cost. With groups R is R_G/s_G, with floors p keeps them: see
`gradient_ascent`; a then plays the best arm of every group as well. On every run, whatever happens,

    OPT - c_alpha sum phi(R) <= (1-alpha)^alpha (2 sum_j sqrt(S_j) + sqrt(2 SPREAD) + DRIFT).

    shared, learners:  see `index`; BASE holds x^j, NORMS is S_j, LEVEL is S_j as its last epoch closed, SHARE is h
"""

import math

from alphafair.jit import kernel
from alphafair.kernels import index as of_index
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.gradient_ascent import ascend_on_floors, new_epoch
from alphafair.kernels.groups import ARM_FLOOR, GROUP_FLOORED, UNPROMISED, at_stake, earn_together
from alphafair.kernels.index import (
    BASE,
    CLOSED_ROOTS,
    DESCRIBED,
    DESCRIBED_PRIOR,
    DRIFT,
    FREE_ROW,
    INDEX,
    LARGEST,
    LEAST_REWARD,
    LEVEL,
    NORMS,
    NUMBERS,
    OWN_PREDICTORS,
    PREDICTED,
    PREDICTORS,
    PRIOR,
    READY,
    REWARD_SUM,
    ROUNDS,
    SAID,
    SEEN,
    SHARE,
    SPREAD,
    TIE,
    VISITS,
    count,
    fade,
    forget,
    gather,
    learn_features_of_all,
    octave,
    predict,
    regress_all,
    remember,
    scatter,
    solve,
)
from alphafair.kernels.index_in_groups import favourites_of_groups
from alphafair.kernels.memory import ARMS, SETTINGS
from alphafair.kernels.utility import SLOPE

ROUNDING = 1e-12
STEP = FREE_ROW  # scratch


@kernel
def favourite(work, shared, learners, context, n):
    """a, uniform on the largest w m, into INDEX, with `numbers` gathered; unless it is there already."""
    if work[NUMBERS, READY] == context + 1.0:
        return
    work[NUMBERS, READY] = context + 1.0
    predicted, index, slope = work[PREDICTED, :n], work[INDEX, :n], shared[0, SLOPE, ARMS:]
    gather(shared, work[NUMBERS])
    predict(shared, learners, context, work, n)
    best, ties = 0.0, 0.0
    for i in range(n):
        index[i] = slope[i] * predicted[i]
        best = max(best, index[i])
    for i in range(n):
        ties += 1.0 if index[i] >= TIE * best else 0.0
    if work[SETTINGS, GROUP_FLOORED] > 0.0:
        favourites_of_groups(work, index, best, ties)
        return
    for i in range(n):
        index[i] = 1.0 / ties if index[i] >= TIE * best else 0.0


@kernel
def held_back(work):
    """nu and 1 - n nu; where groups have floors, a and x keep them themselves."""
    if work[SETTINGS, GROUP_FLOORED] > 0.0:
        return 0.0, 1.0
    return work[SETTINGS, ARM_FLOOR], work[SETTINGS, UNPROMISED]


@kernel
def draw(work, shared, learners, context, uniform, out):
    """Write p = (1 - h) a + h x to `out` and draw an arm from it."""
    n = out.shape[0]
    favourite(work, shared, learners, context, n)
    index, x, share = work[INDEX, :n], learners[context, BASE, ARMS:], work[NUMBERS, SHARE]
    floor, keep = held_back(work)
    for i in range(n):
        out[i] = floor + keep * ((1.0 - share) * index[i] + share * x[i])
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(work, shared, learners, context, probabilities, rewards):
    """Teach the mixture, Algorithm 1 and the index, then earn."""
    n = rewards.shape[0]
    favourite(work, shared, learners, context, n)
    numbers, index, slope = work[NUMBERS], work[INDEX, :n], shared[0, SLOPE, ARMS:]
    described = work[SETTINGS, DESCRIBED] > 0.0
    head, x = learners[context, BASE, :ARMS], learners[context, BASE, ARMS:]
    share, ahead, both, drift = numbers[SHARE], 0.0, 0.0, 0.0
    part, (floor, keep) = at_stake(work), held_back(work)
    for i in range(n):
        gain = slope[i] * (part * rewards[i])
        ahead += (x[i] - index[i]) * gain
        both += (x[i] + index[i]) * gain
        held = floor + keep * ((1.0 - share) * index[i] + share * x[i])
        drift += (held - probabilities[i]) * (slope[i] * rewards[i])
    numbers[DRIFT] += drift
    # the first step has full length whatever its size: never from rounding alone, nor from what cannot be squared
    if abs(ahead) > max(ROUNDING * both, LEAST_REWARD):
        numbers[SPREAD] += ahead * ahead
        numbers[SHARE] = min(1.0, max(0.0, share + ahead / math.sqrt(2.0 * numbers[SPREAD])))
    else:
        numbers[DRIFT] += abs(ahead)
    head[NORMS] = ascend_on_floors(work, slope, x, head[NORMS], rewards, work[STEP, :n], x)
    if numbers[LARGEST] >= LEAST_REWARD:
        forget(numbers)
        if described:
            regress_all(work, rewards, PREDICTORS)
        else:
            regress_all(work, rewards, OWN_PREDICTORS)
    numbers[ROUNDS] += 1.0
    for i in range(n):
        count(numbers, rewards[i])
    fade(learners, context)
    mean, age = numbers[REWARD_SUM] / numbers[SEEN], octave(head[VISITS])
    if described:
        solve(work, PREDICTORS, DESCRIBED_PRIOR)
        for i in range(n):
            remember(shared, learners, context, age, i, rewards[i] - mean - work[SAID, i])
        learn_features_of_all(work, shared, rewards)
    else:
        solve(work, OWN_PREDICTORS, PRIOR)
        for i in range(n):
            remember(shared, learners, context, age, i, rewards[i] - mean)
    head[VISITS] += 1.0
    numbers[READY] = 0.0
    scatter(numbers, shared)
    earn_together(work, shared, probabilities, rewards)


def change_arms(work, shared, learners, kept, entries):
    """A new epoch, as in `gradient_ascent`: x is projected on the arms that stay and 0 for those that come."""
    some_left = shared.shape[2] - ARMS > len(kept)
    shared, learners = of_index.change_arms(work, shared, learners, kept, entries)
    for learner in learners:
        new_epoch(learner[BASE], NORMS, CLOSED_ROOTS, LEVEL, len(kept), some_left)
    return shared, learners
