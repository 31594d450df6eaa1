"""`AlphaFairAdaptive` with bandit feedback: the predictor's scores mixed with a scale-free learner, on one account.

Before the draw of round t, w = (R + pending rewards)^-alpha, W = max w, m and c from the predictor:

    gamma = min(1/2, .3 sqrt(n/t)) ;   zeta = 2/sqrt(16 c^2 + 2 D) ;   h = argmin h zeta (E + 16 c) - ln h - ln(1-h)
    q = kappa + (1-kappa) h ;   eta = n/sqrt(c^2 + n V_j) ;   s = (1-gamma) w/W
    m' = max(m, c - ((1-q) a + q (1-gamma))/(2 eta s))             so that no loss leaves the barrier's range;
                                                                   scaled by 1 - floors
    B = argmin <B, L_j - s m'> - (1/eta) sum ln B                  optimistic: the hint is m' of this round
    p = (1-q) a + q Bt,   Bt = (1-gamma) B + gamma/n

With groups R is R_G/s_G (see `alphafair.math.floors`). With a floor nu for every arm, p is nu + (1 - n nu) times the
p above, and d is scaled by 1 - n nu; with floors for groups, a and Bt are raised to them, and a gives the floor of a
group to its best arms.

a puts 1/(n + 1000 n (v_b - v_i)/(w_b sigma)) on arms below the best v = w m, the rest on the best, with 200 in place
of 1000 while a reward is pending. sigma is how far predictions are off, sigma^2 = (Q + 20 q2)/(count + 20) with
Q = sum (r - m_I)^2 over all rewards and q2 the mean of r^2; q2/om is the size of rewards that the predictor takes.
16 c is the head start of a: without it, short runs pay for evidence that a is the better one. Then, for the arm I drawn
with probability p_I and the reward r, r' = min(r, c):

    d = [<a - Bt, w m> + (Bt_I - a_I) w_I (m_I - r')/p_I]/W ;   E += d ;   D += (h (1-h) d)^2
    z = s_I (m'_I - r')/p_I ;   L_j -= s m' ;   L_j[I] += z ;   V_j += (B_I z)^2
    then the predictor learns, and R_I += r

`learn` needs everything before the draw: in order it is still in scratch; for late rewards `prepare` recomputes it, and
only the propensity is that of the decision. The larger of it and the recomputed p_I keeps every ratio within the limits
of the proof; in order both are equal. docs/background/theory.md has the theorem and its proof. The terms of its bound
are summed here, with U = sqrt(c^2 + n V_j), sqrt(n) times the U of that page, and Y = sqrt(16 c^2 + 2 D):

    `learner_roots` = sum W (change of U) ;   `mixing_roots` = sum W (change of Y) ;   `peaks` = sum W c
    `explored` = sum W (gamma c + (rise of c)/min p) ;   `head_start` = sum W (rise of c)
    `outside` counts events outside the theorem
    `shown` is the number of arms per decision in the theorem (0 before the first), `most_shown` its largest so far

    R `account`, w `slope` · W `peak` · m `predicted` · a `scores` · m' `raised` · B `guaranteed` · Bt `played`
    E `lead` · D `spread` · h `share` · q `safe_share` · gamma `exploration` · eta `rate` · L_j `losses`
    Q `squared_misses` · q2 `squared_rewards`/`seen` · V_j `variation` · `level` is the start of Newton's method for B
    U `learner_root`, Y `mixing_root`, with W at that time: `learner_peak`, `mixing_peak`
    `pending` counts pending rewards

From alpha = 1 on, slopes are relative to `unit`, a power of two below the least R + pending rewards; only w/W enters
the play. The sums of the bound have W in units of its value at `first_unit`, the unit at the start.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from alphafair.algorithms.adaptive_others import LAYOUT as OTHERS_LAYOUT
from alphafair.algorithms.adaptive_others import check_others, consult, mix, observe, trust, weigh
from alphafair.jit import kernel
from alphafair.math import predictor, two_sides
from alphafair.math.distributions import draw_arm
from alphafair.math.floors import (
    TIE,
    F,
    R,
    at_stake,
    earn_one,
    least_drawn,
    lift_groups,
    mask_and_keep_floors,
    tails_in_groups,
)
from alphafair.math.log_barrier import level, power_sums
from alphafair.math.predictor import (
    LEAST_REWARD,
    check_sums,
    predict,
    reward_size,
    show_features,
    start_predictor,
    teach,
)
from alphafair.math.two_sides import (
    carry_promise,
    carry_sides,
    check_sides,
    count_round,
    debt_of,
    start_sides,
    sum_logs,
    write_prices,
)
from alphafair.math.utility import (
    admit_accounts,
    check_slopes,
    marginal_utility,
    open_accounts,
    reopen_accounts,
    set_entry_accounts,
)
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values.arrays import Vector, positions

GROUPS = True  # False in machine code for policies without groups and floors
FEATURES = True  # False in machine code for policies without features
WELFARE = True  # False in machine code for policies with alpha < 1 and without a second side
SIDES = True  # False in machine code for policies without a second side
ONE_SIDE = True  # False in machine code for policies with a second side
OTHERS = True  # False in machine code for policies that have not observed decisions of others

KAPPA = 0.005  # the least share of the guaranteed learner
EXPLORE = 0.3
TAIL = 1000.0  # inverse of the predictor's own exploration
LATE_TAIL = 200.0  # the same while rewards are pending: draws in a row cannot correct each other
PRIOR_MISSES = 20.0  # rewards that a prediction of 0 is taken to have missed before the first one
HEAD_START = 16.0  # rewards of size c by which a is taken to be ahead at first
MOST_CREDIT = 3.0  # upper bound of a pending reward, times c
MIXING_START = 16.0  # factor of c^2 in Y

S = predictor.SETTINGS
N = positions(
    predictor.OF_BANDITS,
    "squared_misses",
    "most_shown",
    "lead",
    "spread",
    "learner_roots",
    "mixing_roots",
    "explored",
    "peaks",
    "head_start",
    "mixing_root",
    "mixing_peak",
    "outside",
    "shown",
)
N1 = positions(N, "unit", "first_unit")  # for alpha >= 1
A = positions(predictor.ARMS, "pending", "earned")
K = positions(predictor.CONTEXT_SCALARS, "variation", "level", "learner_root", "learner_peak")
C = positions(predictor.CONTEXTS, "losses")
T = positions(predictor.SCRATCH, "guaranteed", "raised", "distances", "played")
P = positions(
    predictor.PARTS, "peak", "share", "safe_share", "exploration", "rate", "new_level", "before_u", "before_y"
)
N2 = positions(N1, *two_sides.TOTALS._fields, "scarcest")  # with a second side, for every alpha
K2 = positions(K, *two_sides.OWN._fields)
T2 = positions(T, "price")
P2 = positions(P, "money", "joint_peak")
K3 = positions(K2, "context_base")  # with a promise
C3 = positions(C, "context_totals")


@kernel
def exploration(rounds, n):
    """Return gamma of the next round."""
    return min(0.5, EXPLORE * math.sqrt(n / (rounds + 1.0)))


@kernel
def least_propensity(rounds, most_arms):
    """Return kappa gamma/n with the largest number of arms so far: a lower bound of all propensities."""
    return KAPPA * exploration(rounds, most_arms) / most_arms


@kernel
def prepare(memory, context):
    """Compute everything before the draw, in scratch."""
    numbers = memory.scalars
    best = score(memory, context, numbers[N.rounds])
    if numbers[N.largest] >= LEAST_REWARD:
        concentrate(memory, memory.scratch[T.scores], best)
        if OTHERS and len(memory.others) > 0:
            best = consult_others(memory, context)
            concentrate(memory, memory.others.scratch[T.scores], best)
            mix(memory)
        guarantee(memory, context)
    else:
        start_equal(memory, context)
        if OTHERS and len(memory.others) > 0:
            consult_others(memory, context)
    explore_and_lift(memory)


@kernel
def score(memory, context, rounds):
    """Write m, v = w m, W and gamma; return the largest v."""
    predict(memory, context, reward_size(memory.scalars))
    parts, slope, scores = memory.parts, memory.arms[A.slope], memory.scratch[T.scores]
    predicted = memory.scratch[T.predicted]
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        write_joint_prices(memory, context)
        slope = memory.scratch[T2.price]
        if memory.settings[S.context_share] > 0.0:
            serve_debt(memory, context)
    n = scores.shape[0]
    peak = best = 0.0
    for i in range(n):
        scores[i] = slope[i] * predicted[i]
        peak = max(peak, slope[i])
        best = max(best, scores[i])
    parts[P.peak], parts[P.exploration] = peak, exploration(rounds, n)
    return best


@kernel
def consult_others(memory, context):
    """Write m_J and v = w m_J of what all decisions taught; return the largest v."""
    slope = memory.arms[A.slope]
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        slope = memory.scratch[T2.price]
    return consult(memory, context, slope)


@kernel
def write_joint_prices(memory, context):
    """Write the prices of arms in this context, money, and the largest price in any context."""
    settings, slope, peak = memory.settings, memory.arms[A.slope], 0.0
    totals, own = memory.scalars[N2.weighed :], memory.context_scalars[context, K2.context_account :]
    money = write_prices(memory.groups, memory.arms, settings, totals, own, memory.scratch[T2.price])
    memory.parts[P2.money] = memory.parts[P2.joint_peak] = money
    if settings[S.fixed_weights] > 0.0:
        for i in range(slope.shape[0]):
            peak = max(peak, slope[i])
        scarcest, theta = memory.context_scalars[int(memory.scalars[N2.scarcest])], settings[S.context_weight]
        of_context = scarcest[K2.context_part] / scarcest[K2.context_account]
        memory.parts[P2.joint_peak] = (1.0 - theta) * peak + theta * money * of_context


@kernel
def serve_debt(memory, context):
    """Let all prices be the largest one in a context that is owed something: the play of alpha = 0."""
    own, price, peak = memory.context_scalars[context, K2.context_account :], memory.scratch[T2.price], 0.0
    if debt_of(memory.settings, own, memory.contexts[context, C3.context_totals]) > 0.0:
        for i in range(price.shape[0]):
            peak = max(peak, price[i])
        for i in range(price.shape[0]):
            price[i] = peak


@kernel
def find_scarcest(memory):
    """Find the context with the largest q_l/U_l."""
    of_contexts, best = memory.context_scalars, -1.0
    for j in range(of_contexts.shape[0]):
        ratio = of_contexts[j, K2.context_part] / of_contexts[j, K2.context_account]
        if ratio > best:
            best = ratio
            memory.scalars[N2.scarcest] = j


@kernel
def start_equal(memory, context):
    """Write what is played before the first reward."""
    parts, scratch = memory.parts, memory.scratch
    scores, guaranteed, raised = scratch[T.scores], scratch[T.guaranteed], scratch[T.raised]
    n = scores.shape[0]
    for i in range(n):
        scores[i] = guaranteed[i] = 1.0 / n
        raised[i] = 0.0
    if GROUPS and memory.groups.numbers[F.group_floored] > 0.0:
        lift_groups(memory.groups, scores)
    parts[P.share], parts[P.safe_share], parts[P.rate] = 0.5, KAPPA + (1.0 - KAPPA) * 0.5, 0.0
    parts[P.new_level] = memory.context_scalars[context, K.level]


@kernel
def deviation(numbers):
    """Return sigma, how far predictions are off."""
    of_prior = PRIOR_MISSES * numbers[N.squared_rewards] / numbers[N.seen]
    return math.sqrt((numbers[N.squared_misses] + of_prior) / (numbers[N.seen] + PRIOR_MISSES))


@kernel
def concentrate(memory, scores, best):
    """Replace v = w m in `scores`, with maximum `best`, by a."""
    slope, pending = memory.arms[A.slope], memory.arms[A.pending]
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        slope = memory.scratch[T2.price]
    n, best_slope, all_pending = scores.shape[0], 0.0, 0.0
    for i in range(n):
        all_pending += pending[i]
        if scores[i] >= TIE * best:
            best_slope = max(best_slope, slope[i])
    scale = (TAIL if all_pending == 0.0 else LATE_TAIL) * n / (best_slope * deviation(memory.scalars))
    if GROUPS and memory.groups.numbers[F.group_floored] > 0.0:
        tails_in_groups(memory.groups, scores, best, scale, memory.scratch[T.distances])
        return
    rest, ties = 1.0, 0.0
    for i in range(n):
        if scores[i] >= TIE * best:
            scores[i] = -1.0
            ties += 1.0
        else:
            scores[i] = 1.0 / (n + scale * (best - scores[i]))
            rest -= scores[i]
    for i in range(n):
        if scores[i] < 0.0:
            scores[i] = rest / ties


@kernel
def guarantee(memory, context):
    """Compute h and q of the mixture, and B with its rate and hints."""
    guaranteed, distances = memory.scratch[T.guaranteed], memory.scratch[T.distances]
    set_distances(memory, context, memory.scalars[N.most_shown], memory.groups.numbers[F.unpromised], 1.0)
    mu = level(distances, memory.context_scalars[context, K.level], 1e-5, guaranteed)
    for i in range(guaranteed.shape[0]):
        guaranteed[i] = 1.0 / (mu + distances[i])
    total, _, _ = power_sums(guaranteed)
    for i in range(guaranteed.shape[0]):
        guaranteed[i] /= total
    memory.parts[P.new_level] = mu


@kernel
def set_distances(memory, context, most, keep, top):
    """Compute h and q, the rate and the hints m' of B, and write eta (L_j - s m'), less the smallest, to `distances`.

    `most` arms are shown at most, this time with `keep` and `top` of `alphafair.math.capped`.
    """
    numbers, parts, scratch, own = memory.scalars, memory.parts, memory.scratch, memory.context_scalars[context]
    predicted, scores, raised, distances = (
        scratch[T.predicted],
        scratch[T.scores],
        scratch[T.raised],
        scratch[T.distances],
    )
    slope, losses = memory.arms[A.slope], memory.contexts[context, C.losses]
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        slope = memory.scratch[T2.price]
    n, peak, gamma, largest = scores.shape[0], parts[P.peak], parts[P.exploration], numbers[N.largest]
    size = most * largest
    parts[P.before_y] = math.sqrt(MIXING_START * size * size + 2.0 * numbers[N.spread])
    parts[P.before_u] = math.sqrt(largest * largest + n * own[K.variation])
    behind = 2.0 / parts[P.before_y] * (numbers[N.lead] + HEAD_START * size)
    share = 2.0 / (abs(behind) + 2.0 + math.sqrt(behind * behind + 4.0))
    share = share if behind >= 0.0 else 1.0 - share
    safe = KAPPA + (1.0 - KAPPA) * share
    rate = n / parts[P.before_u]
    risky, smallest = (1.0 - safe) / top, np.inf
    for i in range(n):
        s = (1.0 - gamma) * slope[i] / peak
        raised[i] = predicted[i]
        if not WELFARE or s > 0.0:  # a relative slope may be 0, and then no loss leaves the range
            reach = keep * (risky * scores[i] + safe * (1.0 - gamma))
            raised[i] = max(predicted[i], largest - reach / (2.0 * rate * s))
        distances[i] = losses[i] - s * raised[i]
        smallest = min(smallest, distances[i])
    for i in range(n):
        distances[i] = rate * (distances[i] - smallest)
    parts[P.share], parts[P.safe_share], parts[P.rate] = share, safe, rate


@kernel
def explore_and_lift(memory):
    """Write Bt = (1 - gamma) B + gamma/n, raised to the floors of groups, to `played`."""
    guaranteed, played, gamma = memory.scratch[T.guaranteed], memory.scratch[T.played], memory.parts[P.exploration]
    n = played.shape[0]
    for i in range(n):
        played[i] = (1.0 - gamma) * guaranteed[i] + gamma / n
    if GROUPS and memory.groups.numbers[F.group_floored] > 0.0:
        lift_groups(memory.groups, played)


@kernel
def probability(memory, arm):
    """Return p of one arm, from the results of `prepare` in scratch."""
    safe, floor = memory.parts[P.safe_share], memory.groups.numbers[F.arm_floor]
    y = (1.0 - safe) * memory.scratch[T.scores, arm] + safe * memory.scratch[T.played, arm]
    return floor + memory.groups.numbers[F.unpromised] * y if floor > 0.0 else y


@kernel
def draw(memory, context, uniform, out):
    """Write p = (1 - q) a + q ((1 - gamma) B + gamma/n), with the floor, to `out` and draw an arm from it."""
    prepare(memory, context)
    for i in range(out.shape[0]):
        out[i] = probability(memory, i)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def peaks_for_bound(memory):
    """Return W as the learners' sums of the bound take it, and as the master's do: the same without a context weight.

    With one both are over money; the master's is that of all contexts, since its own would rise between them.
    """
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        money = memory.parts[P2.money]
        return memory.parts[P.peak] / money, memory.parts[P2.joint_peak] / money
    peak = peak_for_bound(memory)
    return peak, peak


@kernel
def peak_for_bound(memory):
    """Return W as the sums of the bound take it: for alpha >= 1 in units of its value at `first_unit`."""
    peak, numbers, alpha = memory.parts[P.peak], memory.scalars, memory.settings[S.alpha]
    if WELFARE and alpha >= 1.0:  # a larger ratio is outside the theorem
        return peak * math.pow(min(1.0, numbers[N1.first_unit] / numbers[N1.unit]), alpha)
    return peak


@kernel
def add_up(memory, arm, propensity, reward):
    """Add to `explored`, `peaks` and `head_start`, and to `outside` if the round is outside the theorem."""
    numbers, gamma, largest = memory.scalars, memory.parts[P.exploration], memory.scalars[N.largest]
    (peak, of_master), most = peaks_for_bound(memory), numbers[N.mixing_peak]
    if WELFARE and (memory.settings[S.alpha] >= 1.0 or memory.settings[S.sided] > 0.0):
        most *= 1.0 + 1e-9  # units and powers round
    if propensity != probability(memory, arm) or (numbers[N.mixing_peak] > 0.0 and of_master > most):
        numbers[N.outside] += 1.0
    count_shown(numbers, 1)
    numbers[N.peaks] += peak * largest
    numbers[N.explored] += peak * gamma * largest
    numbers[N.head_start] += of_master * numbers[N.most_shown] * max(0.0, reward - largest)
    if reward > largest and memory.groups.numbers[F.group_floored] == 0.0:  # else an arm may have probability 0
        least = 1.0
        for i in range(memory.scratch.shape[1]):
            least = min(least, probability(memory, i))
        numbers[N.explored] += peak * (reward - largest) / least


@kernel
def count_shown(numbers, k):
    """Note how many arms a decision showed: decisions of a different number are outside the theorem."""
    if numbers[N.shown] != k:
        numbers[N.outside] += 1.0 if numbers[N.shown] > 0.0 else 0.0
        numbers[N.shown] = k


@kernel
def update_learners(memory, context, arm, propensity, reward):
    """Update the mixing weight and the guaranteed learner with the doubly robust losses of this round, over W."""
    numbers, parts, scratch, own = memory.scalars, memory.parts, memory.scratch, memory.context_scalars[context]
    scores, guaranteed, played = scratch[T.scores], scratch[T.guaranteed], scratch[T.played]
    predicted, raised = scratch[T.predicted], scratch[T.raised]
    slope, losses = memory.arms[A.slope], memory.contexts[context, C.losses]
    n, peak, share, gamma = scores.shape[0], parts[P.peak], parts[P.share], parts[P.exploration]
    of_master = peak
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        slope = memory.scratch[T2.price]
        if memory.settings[S.fixed_weights] > 0.0:
            of_master = parts[P2.joint_peak]
    chance = max(propensity, probability(memory, arm))  # in order, the propensity itself
    expected = 0.0
    for i in range(n):
        expected += (scores[i] - played[i]) * slope[i] * predicted[i]
        losses[i] -= (1.0 - gamma) * slope[i] / peak * raised[i]
    ahead = (expected + (played[arm] - scores[arm]) * slope[arm] * (predicted[arm] - reward) / chance) / of_master
    ahead *= at_stake(memory.groups)
    move = share * (1.0 - share) * ahead
    numbers[N.lead] += ahead
    numbers[N.spread] += move * move
    surprise = (1.0 - gamma) * slope[arm] / peak * (raised[arm] - reward) / chance
    losses[arm] += surprise
    own[K.variation] += (guaranteed[arm] * surprise) * (guaranteed[arm] * surprise)
    add_roots(memory, context)


@kernel
def add_roots(memory, context):
    """Add the changes of U and Y to the sums of the bound."""
    numbers, parts, own = memory.scalars, memory.parts, memory.context_scalars[context]
    (peak, of_master), n, largest = peaks_for_bound(memory), memory.scratch.shape[1], numbers[N.largest]
    size = numbers[N.most_shown] * largest
    u_peak = own[K.learner_peak] if own[K.learner_peak] > 0.0 else peak
    y_peak = numbers[N.mixing_peak] if numbers[N.mixing_peak] > 0.0 else of_master
    u = math.sqrt(largest * largest + n * own[K.variation])
    y = math.sqrt(MIXING_START * (size * size) + 2.0 * numbers[N.spread])
    before_u, before_y = parts[P.before_u], parts[P.before_y]
    numbers[N.learner_roots] += u_peak * (before_u - own[K.learner_root]) + peak * (u - before_u)
    numbers[N.mixing_roots] += y_peak * (before_y - numbers[N.mixing_root]) + of_master * (y - before_y)
    own[K.learner_root], own[K.learner_peak] = u, peak
    numbers[N.mixing_root], numbers[N.mixing_peak] = y, of_master


@kernel
def learn(memory, context, arm, propensity, reward):
    """Update mixture, learner, predictor and accounts; return False for an impossible propensity."""
    numbers, own = memory.scalars, memory.context_scalars[context]
    least = least_propensity(numbers[N.rounds], memory.settings[S.most_arms])
    if propensity < least_drawn(memory.groups, arm, least) * (1.0 - 1e-9):
        return False
    if memory.arms[A.pending, arm] > 0.0:
        forgo(memory, context, arm)
        prepare(memory, context)
    add_up(memory, arm, propensity, reward)
    if numbers[N.largest] >= LEAST_REWARD:
        update_learners(memory, context, arm, propensity, min(reward, numbers[N.largest]))
        own[K.level] = memory.parts[P.new_level]
        if OTHERS and len(memory.others) > 0:
            weigh(memory, arm, reward, deviation(numbers))
    missed = reward - memory.scratch[T.predicted, arm]
    numbers[N.squared_misses] += missed * missed
    numbers[N.rounds] += 1.0
    teach(memory, context, arm, reward)
    if OTHERS and len(memory.others) > 0:
        teach(memory.others, context, arm, reward)
    earn_one(memory.groups, memory.arms, A.earned, arm, reward)
    refresh(memory, arm)
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        if memory.settings[S.context_share] > 0.0:
            for i in range(memory.scratch.shape[1]):
                memory.contexts[context, C3.context_totals, i] += memory.scratch[T.predicted, i]
        count_round(numbers[N2.weighed :], own[K2.context_account :], reward)
        if memory.settings[S.fixed_weights] > 0.0 and context == int(numbers[N2.scarcest]):
            find_scarcest(memory)
    return True


@kernel
def refresh(memory, arm):
    """Compute the slope phi'(R + pending rewards) of an arm, or of its group."""
    alpha = memory.settings[S.alpha]
    if WELFARE and alpha >= 1.0:
        refresh_relative(memory, arm)
    else:
        set_slope(memory, arm, marginal_utility(with_pending(memory, arm), alpha))


@kernel
def with_pending(memory, arm):
    """Return R + pending rewards of an arm, or of its group."""
    account = memory.arms[A.account]
    if not GROUPS or memory.groups.numbers[F.pooled] == 0.0:
        return account[arm] + credit(memory, arm)
    group, pending = memory.groups.rows[R.group], 0.0
    for i in range(account.shape[0]):
        if group[i] == group[arm]:
            pending += credit(memory, i)
    return account[arm] + pending * memory.groups.rows[R.inverse_entitlement, arm]


@kernel
def set_slope(memory, arm, value):
    """Set the slope of an arm, or of all arms of its group."""
    slope = memory.arms[A.slope]
    slope[arm] = value
    if GROUPS and memory.groups.numbers[F.pooled] > 0.0:
        group = memory.groups.rows[R.group]
        for i in range(slope.shape[0]):
            if group[i] == group[arm]:
                slope[i] = value


@kernel
def refresh_relative(memory, arm):
    """The same for alpha >= 1. Change the unit, and all slopes, if it is not within a factor 2 of the least level."""
    alpha, unit, slope = memory.settings[S.alpha], memory.scalars[N1.unit], memory.arms[A.slope]
    level_of_arm = with_pending(memory, arm)
    if level_of_arm >= unit:
        set_slope(memory, arm, marginal_utility(level_of_arm / unit, alpha))
        peak = 0.0
        for i in range(slope.shape[0]):
            peak = max(peak, slope[i])
        if peak > marginal_utility(2.0, alpha):  # the least level is below 2 unit
            return
    reopen_unit(memory)


@kernel
def reopen_unit(memory):
    """Set the unit to the largest power of two below all levels, and recompute all slopes."""
    alpha, unit, slope = memory.settings[S.alpha], memory.scalars[N1.unit], memory.arms[A.slope]
    write_levels(memory, slope)
    least = np.inf
    for i in range(slope.shape[0]):
        least = min(least, slope[i])
    while least >= 2.0 * unit:
        unit *= 2.0
    while least < unit:
        unit *= 0.5
    memory.scalars[N1.unit] = unit
    for i in range(slope.shape[0]):
        slope[i] = marginal_utility(slope[i] / unit, alpha)


@kernel
def write_levels(memory, out):
    """Write `with_pending` of every arm to `out`, in one pass over the arms."""
    account = memory.arms[A.account]
    if not GROUPS or memory.groups.numbers[F.pooled] == 0.0:
        for i in range(account.shape[0]):
            out[i] = account[i] + credit(memory, i)
        return
    group, pending = memory.groups.rows[R.group], memory.groups.rows[R.pool]
    inverse = memory.groups.rows[R.inverse_entitlement]
    for i in range(account.shape[0]):
        pending[i] = 0.0
    for i in range(account.shape[0]):
        pending[np.uint32(group[i])] += credit(memory, i)
    for i in range(account.shape[0]):
        out[i] = account[i] + pending[np.uint32(group[i])] * inverse[i]


@kernel
def credit(memory, arm):
    """Return the expected sum of the pending rewards of an arm; each is below 3 c, since y is in [-2 c, 2 c]."""
    numbers, arms = memory.scalars, memory.arms
    pending = arms[A.pending, arm]
    if pending > 0.0 and numbers[N.seen] > 0.0:
        mean = numbers[N.reward_sum] / numbers[N.seen]
        of_arm = mean + arms[A.arm_sum, arm] / (arms[A.arm_count, arm] + 1.0)
        return pending * min(max(0.0, of_arm), MOST_CREDIT * numbers[N.largest])
    return 0.0


@kernel
def expect(memory, context, arm):
    """Count a pending reward of an arm."""
    memory.arms[A.pending, arm] += 1.0
    refresh(memory, arm)


@kernel
def forgo(memory, context, arm):
    """Remove a pending reward of an arm: it has arrived, or never will."""
    memory.arms[A.pending, arm] = max(0.0, memory.arms[A.pending, arm] - 1.0)
    refresh(memory, arm)


def start(memory: Any) -> None:
    """Open accounts of 1, and set the prior of the predictor."""
    open_accounts(memory.arms, 1.0, memory.settings[S.alpha])
    start_predictor(memory)
    memory.scalars[N.most_shown] = 1.0
    if memory.settings[S.alpha] >= 1.0:
        memory.scalars[[N1.unit, N1.first_unit]] = 1.0


def start_contexts(memory: Any) -> None:
    """Start with equal losses, for which the level is n."""
    memory.context_scalars[:, K.level] = memory.contexts.shape[2]


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an account and, in every context, the mean loss of the others."""
    if memory.settings[S.alpha] >= 1.0:
        set_entry_accounts(memory.arms, n_kept, entries)
        reopen_unit(memory)
    else:
        admit_accounts(memory.arms, n_kept, entries, memory.settings[S.alpha])
    memory.scalars[N.outside] += 1.0
    losses = memory.contexts[:, C.losses]
    losses[:, n_kept:] = losses[:, :n_kept].mean(axis=1, keepdims=True)
    memory.context_scalars[:, K.level] = losses.shape[1]


def refresh_all(memory: Any) -> None:
    """Recompute the slopes of all arms, after a change of arms or accounts."""
    if memory.settings[S.alpha] >= 1.0:
        reopen_unit(memory)
        return
    slope = memory.arms[A.slope]
    write_levels(memory, slope)
    for i in range(len(slope)):
        slope[i] = marginal_utility(slope[i], memory.settings[S.alpha])


def reopen(memory: Any, columns: Any) -> None:
    """Recompute slopes and anchors of accounts that were changed outside the kernels: all, or those of one group."""
    alpha, n = memory.settings[S.alpha], memory.arms.shape[1]
    if alpha < 1.0:
        reopen_accounts(memory, columns)
    if alpha < 1.0 and len(columns) < n:
        refresh(memory, columns[0])
        return
    refresh_all(memory)
    if alpha >= 1.0 and memory.scalars[N.peaks] == 0.0:  # nothing is in units of the first one yet
        memory.scalars[N1.first_unit] = memory.scalars[N1.unit]


def alpha_changed(memory: Any) -> None:
    """Recompute slopes; the theorem requires a constant alpha."""
    reopen(memory, np.arange(memory.arms.shape[1]))
    memory.scalars[N.outside] += 1.0


def new_period(memory: Any) -> None:
    """Start the learners, the mixing weight and the bound anew; the predictor and the clock of exploration go on."""
    memory.contexts[:, C.losses] = 0.0
    memory.context_scalars[:, [K.variation, K.learner_root, K.learner_peak]] = 0.0
    memory.context_scalars[:, K.level] = memory.contexts.shape[2]
    memory.scalars[N.lead : N.size] = 0.0
    reopen(memory, np.arange(memory.arms.shape[1]))
    size = memory.scalars[N.most_shown] * memory.scalars[N.largest]
    memory.scalars[N.head_start] = memory.arms[A.slope].max() * size


def of_sides(memory: Any) -> tuple[Any, Any, Any]:
    """Return the settings, the totals of all contexts, and the accounts and rounds of each, for `two_sides`."""
    return memory.settings, memory.scalars[N2.weighed :], memory.context_scalars[:, K2.context_account :]


def start_two_sided_contexts(memory: Any) -> None:
    """Start with equal losses, and accounts of 1."""
    start_contexts(memory)
    start_sides(of_sides(memory)[2])


def change_two_sided(memory: Any) -> None:
    """After a change of alpha, of a context weight or of weights."""
    alpha_changed(memory)
    sum_logs(*of_sides(memory))
    find_scarcest(memory)


def new_two_sided_period(memory: Any) -> None:
    """The same with a second side: rewards count from the largest price in any context, over money."""
    new_period(memory)
    find_scarcest(memory)
    write_joint_prices(memory, int(memory.scalars[N2.scarcest]))
    size = memory.scalars[N.most_shown] * memory.scalars[N.largest]
    memory.scalars[N.head_start] = size * memory.parts[P2.joint_peak] / memory.parts[P2.money]


def carry_with_promise(memory: Any, carry: float) -> None:
    """Start a period: what contexts were given, and what they were promised, count `carry`."""
    carry_promise(of_sides(memory)[2], memory.contexts[:, C3.context_totals : C3.context_totals + 1], carry)
    carry_sides(*of_sides(memory), carry)


def check_two_sided(memory: Any) -> str | None:
    """Check the same, and the accounts of contexts."""
    totals, own = of_sides(memory)[1:]
    if not 0.0 <= memory.scalars[N2.scarcest] < len(own):
        return "with the number of a context"
    return check_memory(memory) or check_sides(totals, own)


def check_memory(memory: Any) -> str | None:
    """Check the slopes of accounts with pending rewards, and that counts are finite and not negative."""
    account, slope, pending = memory.arms[A.account], memory.arms[A.slope], memory.arms[A.pending]
    alpha, groups = memory.settings[S.alpha], memory.groups
    if groups.numbers[F.pooled] > 0.0:
        of_arm = groups.rows[R.group].astype(np.int64)
        pending = np.bincount(of_arm, pending)[of_arm] * groups.rows[R.inverse_entitlement]
    settled, unit = pending == 0.0, memory.scalars[N1.unit] if alpha >= 1.0 else 1.0
    if not unit > 0.0:
        return "with a positive unit"
    wrong = check_slopes(account[settled], slope[settled], alpha, unit)
    least, most = account / unit, (account + 3.0 * pending) / unit  # pending rewards are part of the slope
    if alpha >= 1.0:
        least = np.maximum(least, 1.0)
    if ((slope > least**-alpha * (1 + 1e-9)) | (slope < most**-alpha * (1 - 1e-9) - 1e-300 * (alpha >= 1.0))).any():
        wrong = f"slopes of alpha {alpha}"
    counts = memory.scalars[[N.rounds, N.squared_misses, N.spread]]
    if not np.isfinite(memory.scalars).all() or min(counts.min(), memory.context_scalars.min()) < 0.0:
        wrong = "finite, with counts of at least 0"
    if memory.scalars[N.most_shown] < 1.0:
        wrong = "with a largest slate of at least 1 arm"
    largest, squares = memory.scalars[[N.largest, N.squared_rewards]].tolist()
    if largest * largest > squares * (1.0 + predictor.ROUNDING):
        wrong = wrong or predictor.PART
    return wrong or check_sums(memory) or (check_others(memory.others) if memory.others else None)


ALGORITHM = Algorithm(
    Layout(S, N, A, K, C, T, P, only_with_groups="earned", others=OTHERS_LAYOUT),
    draw,
    learn,
    start,
    start_contexts,
    admit,
    prepare=prepare,
    expect=expect,
    forgo=forgo,
    observe=observe,
    trust=trust,
    show=show_features,
    mask=mask_and_keep_floors,
    accounts="account",
    reopen=reopen,
    groups_changed=refresh_all,
    alpha_changed=alpha_changed,
    check=check_memory,
    least_propensity=lambda memory, context: float(
        least_propensity(memory.scalars[N.rounds], memory.settings[S.most_arms])
    ),
    new_period=new_period,
    flags=("GROUPS", "FEATURES", "WELFARE", "SIDES", "ONE_SIDE", "OTHERS"),
)
ON_WELFARE = replace(ALGORITHM, layout=replace(ALGORITHM.layout, scalars=N1))
TWO_SIDED = replace(
    ON_WELFARE,
    layout=replace(ALGORITHM.layout, scalars=N2, context_scalars=K2, scratch=T2, parts=P2),
    start_contexts=start_two_sided_contexts,
    alpha_changed=change_two_sided,
    new_period=new_two_sided_period,
    check=check_two_sided,
    of_sides=of_sides,
    carry=lambda memory, carry: carry_sides(*of_sides(memory), carry),
    sides_changed=find_scarcest,
)
PROMISE = replace(
    TWO_SIDED, layout=replace(TWO_SIDED.layout, context_scalars=K3, contexts=C3), carry=carry_with_promise
)


def expected_surrogate_regret_bound(memory: Any, first_round: int = 0) -> float | None:
    """Return the bound of Theorem 1 of docs/background/theory.md; its mean over draws bounds the mean regret.

    `first_round` is the number of rounds before the current period.

    None outside the theorem: fewer than two rounds or arms, rewards that came late or for masked decisions, a change of
    arms, of alpha or of the number of shown arms, or floors for groups. With a context weight the bound is in units of
    ln W_2, and there is none without fixed weights of contexts, above alpha = 1, or with a promise.
    """
    numbers, n, sided = memory.scalars, memory.arms.shape[1], memory.settings[S.sided] > 0.0
    if sided and (memory.settings[S.fixed_weights] == 0.0 or memory.settings[S.alpha] > 1.0):
        return None
    if memory.settings[S.context_share] > 0.0:
        return None
    n_rounds = numbers[N.rounds] - first_round
    if numbers[N.outside] > 0.0 or memory.groups.numbers[F.group_floored] > 0.0 or min(n_rounds, n) < 2:
        return None
    k = min(max(1, int(numbers[N.shown])), n)
    log, keep = math.log(n_rounds), float(k - 1 + memory.groups.numbers[F.unpromised])  # k - n nu
    learners = (log + 1.0 + math.sqrt((n + k) / n)) * numbers[N.learner_roots]
    mixing = (0.5 * log + 2.4) * numbers[N.mixing_roots] + HEAD_START * numbers[N.head_start]
    bound = float(keep * (learners + numbers[N.explored] + 2.0 * numbers[N.peaks] / n_rounds) + mixing)
    if memory.settings[S.alpha] < 1.0 or sided:
        return bound
    with np.errstate(over="ignore"):
        return bound * float(numbers[N1.first_unit] ** -memory.settings[S.alpha])
