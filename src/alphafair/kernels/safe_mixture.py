"""Bandit feedback that learns fast and keeps a guarantee: the index mixed with a scale-free learner.

Before the draw of round t, w = (R + what is on its way)^-alpha, W = max w, m and a from the index:

    gamma = min(1/2, .3 sqrt(n/t)) ;   zeta = 2/sqrt(16 c^2 + 2 SPREAD) ;   h = argmin h zeta LEAD - ln h - ln(1-h)
    q = kappa + (1-kappa) h ;   eta = n/sqrt(c^2 + n V_j) ;   s = (1-gamma) w/W
    m' = max(m, c - ((1-q) a + q (1-gamma))/(2 eta s))             so that a surprise never leaves the barrier's reach;
                                                                   with floors that much less that they take
    B = argmin <B, L_j - s m'> - (1/eta) sum ln B                  optimistic: the hint is what m' says of this round
    p = (1-q) a + q Bt,   Bt = (1-gamma) B + gamma/n

With groups R is R_G/s_G (see `groups`). With a floor under every arm, p above is nu + (1 - n nu) times as much, and so
is D without nu; with floors under groups, a and Bt are raised to them, and a gives what it must to the best arms of
every group.

a puts 1/(n + 400 n (v_b - v_i)/(w_b sqrt(om c))) on arms below the best v = w m, the rest on the best. Then, for the
arm I drawn with probability p_I and the reward r, r' = min(r, c):

    D = [<a - Bt, w m> + (Bt_I - a_I) w_I (m_I - r')/p_I]/W ;   LEAD += D ;   SPREAD += (h (1-h) D)^2
    z = s_I (m'_I - r')/p_I ;   L_j -= s m' ;   L_j[I] += z ;   V_j += (B_I z)^2 ;   then the index learns, and R_I += r

`learn` needs everything before the draw again: in order it is still in scratch. Late, it is made anew, and only the
propensity is the decision's own; the larger of it and p_I as made anew keeps every ratio within what the proof
allows, and in order both are the same number. docs/theory.md has the theorem and its proof; what its bound adds up is
added up here, with U = sqrt(c^2 + n V_j), sqrt(n) times that of the page, and Y = sqrt(16 c^2 + 2 SPREAD):

    ROOTS = sum W (change of U) ;   MASTER_ROOTS = sum W (change of Y) ;   PEAKS = sum W c
    EXPLORED = sum W (gamma c + (rise of c)/min p) ;   OUTSIDE counts what the theorem does not allow

    shared, learners:  see `index`; BASE holds the losses L_j, NORMS is V_j, LEVEL where Newton's method begins
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels import index as of_index
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.groups import (
    ARM_FLOOR,
    GROUP,
    GROUP_FLOORED,
    INVERSE,
    POOLED,
    UNPROMISED,
    at_stake,
    earn_one,
    least_drawn,
    lift_groups,
)
from alphafair.kernels.index import (
    ARM_COUNT,
    ARM_SUM,
    BASE,
    DESCRIBED,
    DESCRIBED_PRIOR,
    EXPLORED,
    FREE_ROW,
    INDEX,
    LARGEST,
    LEAD,
    LEAST_REWARD,
    LEVEL,
    LONG_SUM,
    MASTER_PEAK,
    MASTER_ROOT,
    MASTER_ROOTS,
    MOST_ARMS,
    NORMS,
    NUMBERS,
    OUTSIDE,
    OWN_PREDICTORS,
    PEAK_THEN,
    PEAKS,
    PENDING,
    PREDICTED,
    PREDICTORS,
    PRIOR,
    READY,
    REWARD_SUM,
    ROOT,
    ROOTS,
    ROUNDS,
    SAID,
    SEEN,
    SPREAD,
    TIE,
    VISITS,
    count,
    fade,
    forget,
    gather,
    learn_features,
    octave,
    predict,
    regress,
    remember,
    scatter,
    solve,
)
from alphafair.kernels.index_in_groups import tails_in_groups
from alphafair.kernels.log_barrier import level, power_sums
from alphafair.kernels.memory import ARMS, SETTINGS
from alphafair.kernels.utility import ALPHA, SLOPE, TOTAL, marginal_utility

KAPPA = 0.02  # the guaranteed learner's least share
EXPLORE = 0.3
TAIL = 400.0  # the index's own exploration is one over it
MOST_CREDIT = 3.0  # times c, of a reward on its way
MASTER_START = 16.0  # c^2 times it under the root of the master's rate
GUARANTEED, RAISED, SCORES, PARTS, PLAYED = range(FREE_ROW, FREE_ROW + 5)  # scratch: B, m', for B, see below, Bt
PEAK, MIX, SAFE, EXPLORATION, RATE, MU, U, Y = range(8)  # entries of PARTS: W, h, q, gamma, eta, the level of B, roots


@kernel
def exploration(rounds, n):
    """gamma of the round that comes."""
    return min(0.5, EXPLORE * math.sqrt(n / (rounds + 1.0)))


@kernel
def least_propensity(rounds, most_arms):
    """kappa gamma/n now, with as many arms as there ever were: no decision was drawn with less."""
    return KAPPA * exploration(rounds, most_arms) / most_arms


@kernel
def mix(work, shared, learners, context, n):
    """Everything before the draw, into scratch. READY says for which context it is there already, counted from 1."""
    numbers, parts = work[NUMBERS], work[PARTS]
    if numbers[READY] == context + 1.0:
        return
    numbers[READY] = context + 1.0
    predicted, index, slope = work[PREDICTED, :n], work[INDEX, :n], shared[0, SLOPE, ARMS:]
    gather(shared, numbers)
    predict(shared, learners, context, work, n)
    peak = best = 0.0
    for i in range(n):
        index[i] = slope[i] * predicted[i]
        peak = max(peak, slope[i])
        best = max(best, index[i])
    parts[PEAK], parts[EXPLORATION] = peak, exploration(numbers[ROUNDS], n)
    if numbers[LARGEST] >= LEAST_REWARD:
        concentrate(work, shared, n, best)
        guarantee(work, shared, learners, context, n)
    else:  # nothing has paid yet
        for i in range(n):
            index[i] = work[GUARANTEED, i] = 1.0 / n
            work[RAISED, i] = 0.0
        if work[SETTINGS, GROUP_FLOORED] > 0.0:
            lift_groups(work, index)
        parts[MIX], parts[SAFE], parts[RATE] = 0.5, KAPPA + (1.0 - KAPPA) * 0.5, 0.0
        parts[MU] = learners[context, BASE, LEVEL]
    explore_and_lift(work, n)


@kernel
def concentrate(work, shared, n, best):
    """a, from v = w m in INDEX, of which `best` is the largest."""
    numbers, index, slope, best_slope = work[NUMBERS], work[INDEX, :n], shared[0, SLOPE, ARMS:], 0.0
    for i in range(n):
        if index[i] >= TIE * best:
            best_slope = max(best_slope, slope[i])
    scale = TAIL * n / (best_slope * math.sqrt(numbers[REWARD_SUM] / numbers[SEEN] * numbers[LARGEST]))
    if work[SETTINGS, GROUP_FLOORED] > 0.0:
        tails_in_groups(work, index, best, scale, work[SCORES])
        return
    rest, ties = 1.0, 0.0
    for i in range(n):
        if index[i] >= TIE * best:
            index[i] = -1.0
            ties += 1.0
        else:
            index[i] = 1.0 / (n + scale * (best - index[i]))
            rest -= index[i]
    for i in range(n):
        if index[i] < 0.0:
            index[i] = rest / ties


@kernel
def guarantee(work, shared, learners, context, n):
    """h and q of the master, and B, with the rate and the hints that it was found with."""
    numbers, parts, predicted, index = work[NUMBERS], work[PARTS], work[PREDICTED, :n], work[INDEX, :n]
    guaranteed, raised, scores = work[GUARANTEED, :n], work[RAISED, :n], work[SCORES, :n]
    slope, head, losses = shared[0, SLOPE, ARMS:], learners[context, BASE, :ARMS], learners[context, BASE, ARMS:]
    peak, gamma, largest = parts[PEAK], parts[EXPLORATION], numbers[LARGEST]
    parts[Y] = math.sqrt(MASTER_START * largest * largest + 2.0 * numbers[SPREAD])
    parts[U] = math.sqrt(largest * largest + n * head[NORMS])
    behind = 2.0 / parts[Y] * numbers[LEAD]
    share = 2.0 / (abs(behind) + 2.0 + math.sqrt(behind * behind + 4.0))
    share = share if behind >= 0.0 else 1.0 - share
    safe = KAPPA + (1.0 - KAPPA) * share
    rate = n / parts[U]
    smallest = np.inf
    for i in range(n):
        s = (1.0 - gamma) * slope[i] / peak
        reach = work[SETTINGS, UNPROMISED] * ((1.0 - safe) * index[i] + safe * (1.0 - gamma)) / (2.0 * rate * s)
        raised[i] = max(predicted[i], largest - reach)
        scores[i] = losses[i] - s * raised[i]
        smallest = min(smallest, scores[i])
    for i in range(n):
        scores[i] = rate * (scores[i] - smallest)
    mu = level(scores, head[LEVEL], 1e-5, guaranteed)
    for i in range(n):
        guaranteed[i] = 1.0 / (mu + scores[i])
    total, _, _ = power_sums(guaranteed)
    for i in range(n):
        guaranteed[i] /= total
    parts[MIX], parts[SAFE], parts[RATE], parts[MU] = share, safe, rate, mu


@kernel
def explore_and_lift(work, n):
    """Bt = (1 - gamma) B + gamma/n, raised to the groups' floors, into PLAYED."""
    guaranteed, played, gamma = work[GUARANTEED, :n], work[PLAYED, :n], work[PARTS, EXPLORATION]
    for i in range(n):
        played[i] = (1.0 - gamma) * guaranteed[i] + gamma / n
    if work[SETTINGS, GROUP_FLOORED] > 0.0:
        lift_groups(work, played)


@kernel
def probability(work, arm):
    """p of one arm, from what `mix` left in scratch."""
    safe, floor, keep = work[PARTS, SAFE], work[SETTINGS, ARM_FLOOR], work[SETTINGS, UNPROMISED]
    y = (1.0 - safe) * work[INDEX, arm] + safe * work[PLAYED, arm]
    return floor + keep * y if floor > 0.0 else y


@kernel
def draw(work, shared, learners, context, uniform, out):
    """Write p = (1 - q) a + q ((1 - gamma) B + gamma/n), above the floor, to `out` and draw an arm from it."""
    n = out.shape[0]
    mix(work, shared, learners, context, n)
    for i in range(n):
        out[i] = probability(work, i)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def add_up(work, shared, learners, context, arm, propensity, reward, n):
    """EXPLORED and PEAKS of a round that comes, and whether it is one that the theorem allows."""
    numbers, parts = work[NUMBERS], work[PARTS]
    peak, gamma, largest = parts[PEAK], parts[EXPLORATION], numbers[LARGEST]
    if propensity != probability(work, arm) or (numbers[MASTER_PEAK] > 0.0 and peak > numbers[MASTER_PEAK]):
        numbers[OUTSIDE] += 1.0
    numbers[PEAKS] += peak * largest
    numbers[EXPLORED] += peak * gamma * largest
    if reward > largest and work[SETTINGS, GROUP_FLOORED] == 0.0:  # under those an arm may have 0, and no bound holds
        least = 1.0
        for i in range(n):
            least = min(least, probability(work, i))
        numbers[EXPLORED] += peak * (reward - largest) / least


@kernel
def blame(work, shared, learners, context, arm, propensity, reward, n):
    """The doubly robust losses of this round, over W, for the master and the guaranteed learner."""
    numbers, parts = work[NUMBERS], work[PARTS]
    index, guaranteed, played = work[INDEX, :n], work[GUARANTEED, :n], work[PLAYED, :n]
    predicted, raised = work[PREDICTED, :n], work[RAISED, :n]
    slope, head, losses = shared[0, SLOPE, ARMS:], learners[context, BASE, :ARMS], learners[context, BASE, ARMS:]
    peak, share, gamma = parts[PEAK], parts[MIX], parts[EXPLORATION]
    chance = max(propensity, probability(work, arm))  # in order: the propensity itself
    expected = 0.0
    for i in range(n):
        expected += (index[i] - played[i]) * slope[i] * predicted[i]
        losses[i] -= (1.0 - gamma) * slope[i] / peak * raised[i]
    ahead = (expected + (played[arm] - index[arm]) * slope[arm] * (predicted[arm] - reward) / chance) / peak
    ahead *= at_stake(work)
    move = share * (1.0 - share) * ahead
    numbers[LEAD] += ahead
    numbers[SPREAD] += move * move
    surprise = (1.0 - gamma) * slope[arm] / peak * (raised[arm] - reward) / chance
    losses[arm] += surprise
    head[NORMS] += (guaranteed[arm] * surprise) * (guaranteed[arm] * surprise)
    then, square = learners[context, LONG_SUM, :ARMS], numbers[LARGEST] * numbers[LARGEST]
    u_peak = then[PEAK_THEN] if then[PEAK_THEN] > 0.0 else peak
    y_peak = numbers[MASTER_PEAK] if numbers[MASTER_PEAK] > 0.0 else peak
    u, y = math.sqrt(square + n * head[NORMS]), math.sqrt(MASTER_START * square + 2.0 * numbers[SPREAD])
    numbers[ROOTS] += u_peak * (parts[U] - then[ROOT]) + peak * (u - parts[U])
    numbers[MASTER_ROOTS] += y_peak * (parts[Y] - numbers[MASTER_ROOT]) + peak * (y - parts[Y])
    then[ROOT], then[PEAK_THEN], numbers[MASTER_ROOT], numbers[MASTER_PEAK] = u, peak, y, peak


@kernel
def learn(work, shared, learners, context, arm, propensity, reward):
    """Teach master, guaranteed learner and index, then earn; False if no such propensity was ever drawn from."""
    n, head = shared.shape[2] - ARMS, learners[context, BASE, :ARMS]
    numbers, described = work[NUMBERS], work[SETTINGS, DESCRIBED] > 0.0
    gather(shared, numbers)
    least = least_propensity(numbers[ROUNDS], work[SETTINGS, MOST_ARMS])
    if propensity < least_drawn(work, arm, least) * (1.0 - 1e-9):
        return False
    if shared[0, PENDING, ARMS + arm] > 0.0:
        forgo(work, shared, learners, context, arm)
    mix(work, shared, learners, context, n)
    add_up(work, shared, learners, context, arm, propensity, reward, n)
    if numbers[LARGEST] >= LEAST_REWARD:
        blame(work, shared, learners, context, arm, propensity, min(reward, numbers[LARGEST]), n)
        head[LEVEL] = work[PARTS, MU]
        forget(numbers)
        if described:
            regress(work, arm, reward, PREDICTORS)
        else:
            regress(work, arm, reward, OWN_PREDICTORS)
    numbers[ROUNDS] += 1.0
    count(numbers, reward)
    y = reward - numbers[REWARD_SUM] / numbers[SEEN]
    fade(learners, context)
    if described:
        solve(work, PREDICTORS, DESCRIBED_PRIOR)
        remember(shared, learners, context, octave(head[VISITS]), arm, y - work[SAID, arm])
        learn_features(work, shared, arm, reward)
    else:
        solve(work, OWN_PREDICTORS, PRIOR)
        remember(shared, learners, context, octave(head[VISITS]), arm, y)
    head[VISITS] += 1.0
    earn_one(work, shared, TOTAL, arm, reward)
    scatter(numbers, shared)
    refresh(work, shared, arm)
    return True


@kernel
def refresh(work, shared, arm):
    """phi' of R and of what is on its way: R + pending times the arm's mean reward; of the group, where it has one."""
    numbers = work[NUMBERS]
    numbers[READY] = 0.0
    gather(shared, numbers)
    if work[SETTINGS, POOLED] == 0.0:
        owed = shared[0, TOTAL, ARMS + arm] + credit(numbers, shared, arm)
        shared[0, SLOPE, ARMS + arm] = marginal_utility(owed, work[SETTINGS, ALPHA])
        return
    n, group, owed = shared.shape[2] - ARMS, work[GROUP], 0.0
    for i in range(n):
        if group[i] == group[arm]:
            owed += credit(numbers, shared, i)
    owed = shared[0, TOTAL, ARMS + arm] + owed * work[INVERSE, arm]
    slope = marginal_utility(owed, work[SETTINGS, ALPHA])
    for i in range(n):
        if group[i] == group[arm]:
            shared[0, SLOPE, ARMS + i] = slope


@kernel
def credit(numbers, shared, arm):
    """What is on its way to an arm: so many rewards of its mean, which y in [-2 c, 2 c] keeps below 3 c."""
    pending, column = shared[0, PENDING, ARMS + arm], ARMS + arm
    if pending > 0.0 and numbers[SEEN] > 0.0:
        mean = numbers[REWARD_SUM] / numbers[SEEN]
        of_arm = mean + shared[0, ARM_SUM, column] / (shared[0, ARM_COUNT, column] + 1.0)
        return pending * min(max(0.0, of_arm), MOST_CREDIT * numbers[LARGEST])
    return 0.0


@kernel
def expect(work, shared, learners, context, arm):
    """A reward of this arm is on its way."""
    shared[0, PENDING, ARMS + arm] += 1.0
    refresh(work, shared, arm)


@kernel
def forgo(work, shared, learners, context, arm):
    """It has come, or never will."""
    shared[0, PENDING, ARMS + arm] = max(0.0, shared[0, PENDING, ARMS + arm] - 1.0)
    refresh(work, shared, arm)


def change_arms(work, shared, learners, kept, entries):
    """New arms enter with an account and, in every context, with the mean loss of the others."""
    shared, learners = of_index.change_arms(work, shared, learners, kept, entries)
    shared[0, OUTSIDE // ARMS, OUTSIDE % ARMS] += 1.0
    losses = learners[:, BASE, ARMS:]
    losses[:, len(kept) :] = losses[:, : len(kept)].mean(axis=1, keepdims=True)
    learners[:, BASE, LEVEL] = losses.shape[1]
    return shared, learners
