"""`AlphaFairAdaptive` with bandit feedback and slates: k of the n arms are shown, and every shown arm is rewarded.

The formulas are those of `adaptive_bandit` on distributions with the cap of `alphafair.math.capped`: a, B and Bt are
all at most `top`, and p = min(1, nu + keep ((1-q) a + q Bt)). What differs:

    gamma = min(1/2, .3 sqrt(n/(t + k)))  with t rewards before      c is `most_shown` times as large in Y and in 16 c
    a: arms above the bar, the m-th largest v with m = ceil(1/top), get `top`; those at it share what is left
    m' = max(m, c - keep ((1-q) a/top + q (1-gamma))/(2 eta s))

For rewards of m of the k shown arms that arrive together, with z and r' as there,

    d = keep [(m/k) <a - Bt, w m> + sum_i (Bt_i - a_i) w_i (m_i - r'_i)/p_i]/W
    L_j -= (m/k) s m' ;   for each of them   L_j[i] += z_i ;   V_j += (B_i z_i)^2

A context ages, and the regression forgets, once per decision, with the first of its rewards. J of `adaptive_others`
learns from all shown arms as P does, and each of their rewards weighs the two. With one arm per decision
this is `adaptive_bandit`, which policies then run.
"""

from dataclasses import replace
from typing import Any

from alphafair.algorithms import adaptive_bandit
from alphafair.algorithms.adaptive_bandit import (
    KAPPA,
    LATE_TAIL,
    TAIL,
    A,
    C,
    K,
    N,
    P,
    S,
    T,
    add_roots,
    count_shown,
    deviation,
    exploration,
    explore_and_lift,
    forgo,
    peak_for_bound,
    refresh,
    score,
    set_distances,
    start_equal,
)
from alphafair.algorithms.adaptive_others import consult, mix, weigh
from alphafair.jit import kernel
from alphafair.math.capped import bar, capped_barrier, frame, full_count, inclusion
from alphafair.math.floors import TIE, F, earn_one
from alphafair.math.predictor import (
    LEAST_REWARD,
    add_seen,
    count,
    fade,
    forget,
    learn_features,
    octave,
    remember,
    reward_size,
    solve,
)
from alphafair.math.slates import draw_slate as draw_from
from alphafair.math.slates import least_shown

FEATURES = True  # False in machine code for policies without features
WELFARE = True  # False in machine code for policies with alpha < 1
OTHERS = True  # False in machine code for policies that have not observed decisions of others


@kernel
def prepare_slate(memory, context, k):
    """Compute everything before the draw of k arms, in scratch."""
    numbers, n = memory.scalars, memory.scratch.shape[1]
    keep, top, _ = frame(n, k, memory.groups.numbers[F.arm_floor])
    score(memory, context, numbers[N.rounds] + (k - 1.0))
    if numbers[N.largest] >= LEAST_REWARD:
        concentrate(memory, memory.scratch[T.scores], top)
        if OTHERS and len(memory.others) > 0:
            consult(memory, context, memory.arms[A.slope])
            concentrate(memory, memory.others.scratch[T.scores], top)
            mix(memory)
        set_distances(memory, context, max(numbers[N.most_shown], k), keep, top)
        distances, guaranteed = memory.scratch[T.distances], memory.scratch[T.guaranteed]
        start = memory.context_scalars[context, K.level]
        memory.parts[P.new_level] = capped_barrier(distances, top, start, guaranteed)
    else:
        start_equal(memory, context)
        if OTHERS and len(memory.others) > 0:
            consult(memory, context, memory.arms[A.slope])
    explore_and_lift(memory)


@kernel
def concentrate(memory, scores, top):
    """Replace v = w m in `scores` by a."""
    slope, pending = memory.arms[A.slope], memory.arms[A.pending]
    limit = bar(scores, min(full_count(top), scores.shape[0]), memory.scratch[T.distances])
    n, best_slope, all_pending, n_above, n_at = scores.shape[0], 0.0, 0.0, 0, 0
    for i in range(n):
        all_pending += pending[i]
        if TIE * scores[i] > limit:
            n_above += 1
        elif scores[i] >= TIE * limit:
            n_at += 1
            best_slope = max(best_slope, slope[i])
    scale = (TAIL if all_pending == 0.0 else LATE_TAIL) * n / (best_slope * deviation(memory.scalars))
    rest = 1.0 - n_above * top
    part = min(rest, top)
    for i in range(n):
        if TIE * scores[i] > limit:
            scores[i] = top
        elif scores[i] >= TIE * limit:
            scores[i] = -1.0
        else:
            scores[i] = part / (n + scale * (limit - scores[i]))
            rest -= scores[i]
    for i in range(n):
        if scores[i] < 0.0:
            scores[i] = rest / n_at


@kernel
def probability(memory, arm, k, keep):
    """Return p of one arm, from the results of `prepare_slate` in scratch."""
    safe, floor = memory.parts[P.safe_share], memory.groups.numbers[F.arm_floor]
    y = (1.0 - safe) * memory.scratch[T.scores, arm] + safe * memory.scratch[T.played, arm]
    return inclusion(memory.scratch.shape[1], k, floor, keep, y)


@kernel
def draw_slate(memory, context, k, uniform, out, slate):
    """Write p to `out`, draw k arms to `slate`, and return how many there are."""
    prepare_slate(memory, context, k)
    keep, _, _ = frame(out.shape[0], k, memory.groups.numbers[F.arm_floor])
    for i in range(out.shape[0]):
        out[i] = probability(memory, i, k, keep)
    return draw_from(out, k, uniform, slate)


@kernel
def add_up(memory, k, keep, arms, propensities, rewards):
    """Add to the sums of the bound, and to `outside` if these rewards are outside the theorem."""
    numbers, gamma, largest = memory.scalars, memory.parts[P.exploration], memory.scalars[N.largest]
    peak, most, m, highest = peak_for_bound(memory), numbers[N.mixing_peak], arms.shape[0], 0.0
    if WELFARE and memory.settings[S.alpha] >= 1.0:
        most *= 1.0 + 1e-9  # units and powers round
    outside = m < k or (numbers[N.mixing_peak] > 0.0 and peak > most)
    for a in range(m):
        outside |= propensities[a] != probability(memory, arms[a], k, keep)
        highest = max(highest, rewards[a])
    numbers[N.outside] += 1.0 if outside else 0.0
    count_shown(numbers, k)
    if k > numbers[N.most_shown]:
        numbers[N.head_start] += peak * largest * (k - numbers[N.most_shown])
        numbers[N.most_shown] = k
    numbers[N.peaks] += m / k * peak * largest
    numbers[N.explored] += m / k * peak * gamma * largest
    numbers[N.head_start] += peak * numbers[N.most_shown] * max(0.0, highest - largest)
    if highest > largest:
        least = 1.0
        for i in range(memory.scratch.shape[1]):
            least = min(least, probability(memory, i, k, keep))
        numbers[N.explored] += peak * (highest - largest) / least


@kernel
def update_learners(memory, context, k, keep, arms, propensities, rewards):
    """Update the mixing weight and the guaranteed learner with the doubly robust losses of these arms, over W."""
    numbers, parts, scratch, own = memory.scalars, memory.parts, memory.scratch, memory.context_scalars[context]
    scores, guaranteed, played = scratch[T.scores], scratch[T.guaranteed], scratch[T.played]
    predicted, raised, largest = scratch[T.predicted], scratch[T.raised], numbers[N.largest]
    slope, losses = memory.arms[A.slope], memory.contexts[context, C.losses]
    peak, share, gamma, seen = parts[P.peak], parts[P.share], parts[P.exploration], arms.shape[0] / k
    ahead = 0.0
    for i in range(scores.shape[0]):
        ahead += (scores[i] - played[i]) * slope[i] * predicted[i]
        losses[i] -= seen * ((1.0 - gamma) * slope[i] / peak * raised[i])
    ahead *= seen
    for a in range(arms.shape[0]):
        arm, known = arms[a], min(rewards[a], largest)
        chance = max(propensities[a], probability(memory, arm, k, keep))  # in order, the propensity itself
        ahead += (played[arm] - scores[arm]) * slope[arm] * (predicted[arm] - known) / chance
        surprise = (1.0 - gamma) * slope[arm] / peak * (raised[arm] - known) / chance
        losses[arm] += surprise
        own[K.variation] += (guaranteed[arm] * surprise) * (guaranteed[arm] * surprise)
    ahead *= keep / peak
    move = share * (1.0 - share) * ahead
    numbers[N.lead] += ahead
    numbers[N.spread] += move * move
    add_roots(memory, context)


@kernel
def least_inclusion(memory, k):
    """Return a lower bound of all propensities of decisions that showed k arms so far."""
    numbers, most_arms = memory.scalars, memory.settings[S.most_arms]
    least = KAPPA * exploration(numbers[N.rounds] + (k - 1.0), most_arms) / most_arms
    return least_shown(memory.groups, k, least)


@kernel
def teach_slate(memory, context, arms, rewards, first):
    """Teach a predictor the rewards of some of the arms of a decision, as `teach` does that of one arm."""
    numbers, own, rows = memory.scalars, memory.context_scalars[context], memory.contexts[context]
    if numbers[N.largest] >= LEAST_REWARD:
        if first:
            forget(numbers)
        for a in range(arms.shape[0]):
            add_seen(memory, arms[a], rewards[a])
    for a in range(arms.shape[0]):
        numbers[N.squared_rewards] += rewards[a] * rewards[a]
        count(memory, rewards[a])
    mean, age = numbers[N.reward_sum] / numbers[N.seen], octave(own[K.visits])
    if first:
        fade(rows)
        own[K.visits] += 1.0
    solve(memory, reward_size(numbers))
    for a in range(arms.shape[0]):
        arm, y = arms[a], rewards[a] - mean
        if FEATURES and memory.settings[S.described] > 0.0:
            remember(memory.arms, rows, age, arm, y - memory.scratch[T.from_features, arm])
            learn_features(memory, arm, rewards[a])
        else:
            remember(memory.arms, rows, age, arm, y)


@kernel
def learn_slate(memory, context, k, arms, propensities, rewards, first):
    """Learn from rewards of some of the k arms of a decision, `first` if none of them came before.

    Returns False, and changes nothing, for an impossible propensity.
    """
    numbers, own = memory.scalars, memory.context_scalars[context]
    least, waited = least_inclusion(memory, k), False
    for a in range(arms.shape[0]):
        if propensities[a] < least * (1.0 - 1e-9):
            return False
    for a in range(arms.shape[0]):
        if memory.arms[A.pending, arms[a]] > 0.0:
            forgo(memory, context, arms[a])
            waited = True
    if waited:
        prepare_slate(memory, context, k)
    keep, _, _ = frame(memory.scratch.shape[1], k, memory.groups.numbers[F.arm_floor])
    add_up(memory, k, keep, arms, propensities, rewards)
    if numbers[N.largest] >= LEAST_REWARD:
        update_learners(memory, context, k, keep, arms, propensities, rewards)
        own[K.level] = memory.parts[P.new_level]
        if OTHERS and len(memory.others) > 0:
            sigma = deviation(numbers)
            for a in range(arms.shape[0]):
                weigh(memory, arms[a], rewards[a], sigma)
    for a in range(arms.shape[0]):
        missed = rewards[a] - memory.scratch[T.predicted, arms[a]]
        numbers[N.squared_misses] += missed * missed
        numbers[N.rounds] += 1.0
    teach_slate(memory, context, arms, rewards, first)
    if OTHERS and len(memory.others) > 0:
        teach_slate(memory.others, context, arms, rewards, first)
    for a in range(arms.shape[0]):
        earn_one(memory.groups, memory.arms, A.earned, arms[a], rewards[a])
        refresh(memory, arms[a])
    return True


def worth(memory: Any) -> Any:
    """Return v = w m of every arm, which `prepare_slate` has left in scratch."""
    return memory.arms[A.slope] * memory.scratch[T.predicted]


def earn_less(memory: Any, arm: int, amount: float) -> None:
    """Lower the account of an arm whose reward was learned as that of a better slot; Theorem 1 does not cover that."""
    memory.scalars[N.outside] += 1.0
    earn_one(memory.groups, memory.arms, A.earned, arm, -amount)
    refresh(memory, arm)


SLATES: dict[str, Any] = {
    "draw_slate": draw_slate,
    "prepare_slate": prepare_slate,
    "learn_slate": learn_slate,
    "worth": worth,
    "earn_less": earn_less,
    "least_shown": lambda memory, context, k: float(least_inclusion(memory, k)),
}
ALGORITHM = replace(adaptive_bandit.ALGORITHM, **SLATES)
ON_WELFARE = replace(adaptive_bandit.ON_WELFARE, **SLATES)
TWO_SIDED = replace(adaptive_bandit.TWO_SIDED, **SLATES)  # of one arm
PROMISE = replace(adaptive_bandit.PROMISE, **SLATES)
