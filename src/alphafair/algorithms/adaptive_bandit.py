"""`AlphaFairAdaptive` with bandit feedback: the predictor's scores mixed with a scale-free learner, on one account.

Before the draw of round t, w = (R + what is on its way)^-alpha, W = max w, m and c from the predictor:

    gamma = min(1/2, .3 sqrt(n/t)) ;   zeta = 2/sqrt(16 c^2 + 2 D) ;   h = argmin h zeta E - ln h - ln(1-h)
    q = kappa + (1-kappa) h ;   eta = n/sqrt(c^2 + n V_j) ;   s = (1-gamma) w/W
    m' = max(m, c - ((1-q) a + q (1-gamma))/(2 eta s))             so that a surprise never leaves the barrier's reach;
                                                                   with floors that much less that they take
    B = argmin <B, L_j - s m'> - (1/eta) sum ln B                  optimistic: the hint is what m' says of this round
    p = (1-q) a + q Bt,   Bt = (1-gamma) B + gamma/n

With groups R is R_G/s_G (see `alphafair.math.floors`). With a floor under every arm, p above is nu + (1 - n nu) times
as much, and so is d without nu; with floors under groups, a and Bt are raised to them, and a gives what it must to the
best arms of every group.

a puts 1/(n + 400 n (v_b - v_i)/(w_b sqrt(om c))) on arms below the best v = w m, the rest on the best. Then, for the
arm I drawn with probability p_I and the reward r, r' = min(r, c):

    d = [<a - Bt, w m> + (Bt_I - a_I) w_I (m_I - r')/p_I]/W ;   E += d ;   D += (h (1-h) d)^2
    z = s_I (m'_I - r')/p_I ;   L_j -= s m' ;   L_j[I] += z ;   V_j += (B_I z)^2
    then the predictor learns, and R_I += r

`learn` needs everything before the draw again: in order it is still in scratch. Late, `prepare` makes it anew, and only
the propensity is the decision's own; the larger of it and p_I as made anew keeps every ratio within what the proof
allows, and in order both are the same number. docs/theory.md has the theorem and its proof; what its bound adds up is
added up here, with U = sqrt(c^2 + n V_j), sqrt(n) times that of the page, and Y = sqrt(16 c^2 + 2 D):

    `learner_roots` = sum W (change of U) ;   `mixing_roots` = sum W (change of Y) ;   `peaks` = sum W c
    `explored` = sum W (gamma c + (rise of c)/min p) ;   `outside` counts what the theorem does not allow

    R `account`, w `slope` · W `peak` · m `predicted` · a `scores` · m' `raised` · B `guaranteed` · Bt `played`
    E `lead` · D `spread` · h `share` · q `safe_share` · gamma `exploration` · eta `rate` · L_j `losses`
    V_j `variation` · `level` is where Newton's method for B begins · `pending` counts rewards on their way
    U `learner_root`, Y `mixing_root`, with the W of then: `learner_peak`, `mixing_peak`
"""

import math
from typing import Any

import numpy as np

from alphafair.jit import kernel
from alphafair.math import predictor
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
    DESCRIBED_PRIOR,
    LEAST_REWARD,
    PRIOR,
    count,
    fade,
    learn_features,
    octave,
    predict,
    regress,
    remember,
    show_features,
    solve,
)
from alphafair.math.utility import admit_accounts, check_slopes, marginal_utility, open_accounts, reopen_accounts
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values.arrays import Vector, positions

GROUPS = True  # False in the machine code of policies without groups and floors
FEATURES = True  # False in the machine code of policies without features

KAPPA = 0.02  # the guaranteed learner's least share
EXPLORE = 0.3
TAIL = 400.0  # the predictor's own exploration is one over it
MOST_CREDIT = 3.0  # times c, of a reward on its way
MIXING_START = 16.0  # c^2 times it under the root of the mixing weight's rate

S = predictor.SETTINGS
N = positions(
    predictor.SCALARS,
    "lead",
    "spread",
    "learner_roots",
    "mixing_roots",
    "explored",
    "peaks",
    "mixing_root",
    "mixing_peak",
    "outside",
)
A = positions(predictor.ARMS, "pending", "earned")
K = positions(predictor.CONTEXT_SCALARS, "variation", "level", "learner_root", "learner_peak")
C = positions(predictor.CONTEXTS, "losses")
T = positions(predictor.SCRATCH, "guaranteed", "raised", "distances", "played")
P = positions(
    predictor.PARTS, "peak", "share", "safe_share", "exploration", "rate", "new_level", "before_u", "before_y"
)


@kernel
def exploration(rounds, n):
    """gamma of the round that comes."""
    return min(0.5, EXPLORE * math.sqrt(n / (rounds + 1.0)))


@kernel
def least_propensity(rounds, most_arms):
    """kappa gamma/n now, with as many arms as there ever were: no decision was drawn with less."""
    return KAPPA * exploration(rounds, most_arms) / most_arms


@kernel
def prepare(memory, context):
    """Everything before the draw, into scratch."""
    predict(memory, context)
    numbers, parts, scratch, slope = memory.scalars, memory.parts, memory.scratch, memory.arms[A.slope]
    predicted, scores, guaranteed, raised = (
        scratch[T.predicted],
        scratch[T.scores],
        scratch[T.guaranteed],
        scratch[T.raised],
    )
    n = scores.shape[0]
    peak = best = 0.0
    for i in range(n):
        scores[i] = slope[i] * predicted[i]
        peak = max(peak, slope[i])
        best = max(best, scores[i])
    parts[P.peak], parts[P.exploration] = peak, exploration(numbers[N.rounds], n)
    if numbers[N.largest] >= LEAST_REWARD:
        concentrate(memory, best)
        guarantee(memory, context)
    else:  # nothing has paid yet
        for i in range(n):
            scores[i] = guaranteed[i] = 1.0 / n
            raised[i] = 0.0
        if GROUPS and memory.groups.numbers[F.group_floored] > 0.0:
            lift_groups(memory.groups, scores)
        parts[P.share], parts[P.safe_share], parts[P.rate] = 0.5, KAPPA + (1.0 - KAPPA) * 0.5, 0.0
        parts[P.new_level] = memory.context_scalars[context, K.level]
    explore_and_lift(memory)


@kernel
def concentrate(memory, best):
    """a, from v = w m in `scores`, of which `best` is the largest."""
    numbers, scores, slope, best_slope = memory.scalars, memory.scratch[T.scores], memory.arms[A.slope], 0.0
    n = scores.shape[0]
    for i in range(n):
        if scores[i] >= TIE * best:
            best_slope = max(best_slope, slope[i])
    mean = numbers[N.reward_sum] / numbers[N.seen]
    scale = TAIL * n / (best_slope * math.sqrt(mean * numbers[N.largest]))
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
    """h and q of the mixture, and B, with the rate and the hints that it was found with."""
    numbers, parts, scratch, own = memory.scalars, memory.parts, memory.scratch, memory.context_scalars[context]
    predicted, scores, guaranteed = scratch[T.predicted], scratch[T.scores], scratch[T.guaranteed]
    raised, distances = scratch[T.raised], scratch[T.distances]
    slope, losses = memory.arms[A.slope], memory.contexts[context, C.losses]
    n, peak, gamma, largest = scores.shape[0], parts[P.peak], parts[P.exploration], numbers[N.largest]
    parts[P.before_y] = math.sqrt(MIXING_START * largest * largest + 2.0 * numbers[N.spread])
    parts[P.before_u] = math.sqrt(largest * largest + n * own[K.variation])
    behind = 2.0 / parts[P.before_y] * numbers[N.lead]
    share = 2.0 / (abs(behind) + 2.0 + math.sqrt(behind * behind + 4.0))
    share = share if behind >= 0.0 else 1.0 - share
    safe = KAPPA + (1.0 - KAPPA) * share
    rate = n / parts[P.before_u]
    smallest = np.inf
    for i in range(n):
        s = (1.0 - gamma) * slope[i] / peak
        reach = (
            memory.groups.numbers[F.unpromised] * ((1.0 - safe) * scores[i] + safe * (1.0 - gamma)) / (2.0 * rate * s)
        )
        raised[i] = max(predicted[i], largest - reach)
        distances[i] = losses[i] - s * raised[i]
        smallest = min(smallest, distances[i])
    for i in range(n):
        distances[i] = rate * (distances[i] - smallest)
    mu = level(distances, own[K.level], 1e-5, guaranteed)
    for i in range(n):
        guaranteed[i] = 1.0 / (mu + distances[i])
    total, _, _ = power_sums(guaranteed)
    for i in range(n):
        guaranteed[i] /= total
    parts[P.share], parts[P.safe_share], parts[P.rate], parts[P.new_level] = share, safe, rate, mu


@kernel
def explore_and_lift(memory):
    """Bt = (1 - gamma) B + gamma/n, raised to the groups' floors, into `played`."""
    guaranteed, played, gamma = memory.scratch[T.guaranteed], memory.scratch[T.played], memory.parts[P.exploration]
    n = played.shape[0]
    for i in range(n):
        played[i] = (1.0 - gamma) * guaranteed[i] + gamma / n
    if GROUPS and memory.groups.numbers[F.group_floored] > 0.0:
        lift_groups(memory.groups, played)


@kernel
def probability(memory, arm):
    """p of one arm, from what `prepare` left in scratch."""
    safe, floor = memory.parts[P.safe_share], memory.groups.numbers[F.arm_floor]
    y = (1.0 - safe) * memory.scratch[T.scores, arm] + safe * memory.scratch[T.played, arm]
    return floor + memory.groups.numbers[F.unpromised] * y if floor > 0.0 else y


@kernel
def draw(memory, context, uniform, out):
    """Write p = (1 - q) a + q ((1 - gamma) B + gamma/n), above the floor, to `out` and draw an arm from it."""
    prepare(memory, context)
    for i in range(out.shape[0]):
        out[i] = probability(memory, i)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def add_up(memory, arm, propensity, reward):
    """`explored` and `peaks` of a round that comes, and whether it is one that the theorem allows."""
    numbers, parts = memory.scalars, memory.parts
    peak, gamma, largest = parts[P.peak], parts[P.exploration], numbers[N.largest]
    if propensity != probability(memory, arm) or (numbers[N.mixing_peak] > 0.0 and peak > numbers[N.mixing_peak]):
        numbers[N.outside] += 1.0
    numbers[N.peaks] += peak * largest
    numbers[N.explored] += peak * gamma * largest
    if reward > largest and memory.groups.numbers[F.group_floored] == 0.0:  # else an arm may have 0, and no bound holds
        least = 1.0
        for i in range(memory.scratch.shape[1]):
            least = min(least, probability(memory, i))
        numbers[N.explored] += peak * (reward - largest) / least


@kernel
def update_learners(memory, context, arm, propensity, reward):
    """The doubly robust losses of this round, over W, for the mixing weight and the guaranteed learner."""
    numbers, parts, scratch, own = memory.scalars, memory.parts, memory.scratch, memory.context_scalars[context]
    scores, guaranteed, played = scratch[T.scores], scratch[T.guaranteed], scratch[T.played]
    predicted, raised = scratch[T.predicted], scratch[T.raised]
    slope, losses = memory.arms[A.slope], memory.contexts[context, C.losses]
    n, peak, share, gamma = scores.shape[0], parts[P.peak], parts[P.share], parts[P.exploration]
    chance = max(propensity, probability(memory, arm))  # in order: the propensity itself
    expected = 0.0
    for i in range(n):
        expected += (scores[i] - played[i]) * slope[i] * predicted[i]
        losses[i] -= (1.0 - gamma) * slope[i] / peak * raised[i]
    ahead = (expected + (played[arm] - scores[arm]) * slope[arm] * (predicted[arm] - reward) / chance) / peak
    ahead *= at_stake(memory.groups)
    move = share * (1.0 - share) * ahead
    numbers[N.lead] += ahead
    numbers[N.spread] += move * move
    surprise = (1.0 - gamma) * slope[arm] / peak * (raised[arm] - reward) / chance
    losses[arm] += surprise
    own[K.variation] += (guaranteed[arm] * surprise) * (guaranteed[arm] * surprise)
    square = numbers[N.largest] * numbers[N.largest]
    u_peak = own[K.learner_peak] if own[K.learner_peak] > 0.0 else peak
    y_peak = numbers[N.mixing_peak] if numbers[N.mixing_peak] > 0.0 else peak
    u, y = math.sqrt(square + n * own[K.variation]), math.sqrt(MIXING_START * square + 2.0 * numbers[N.spread])
    before_u, before_y = parts[P.before_u], parts[P.before_y]
    numbers[N.learner_roots] += u_peak * (before_u - own[K.learner_root]) + peak * (u - before_u)
    numbers[N.mixing_roots] += y_peak * (before_y - numbers[N.mixing_root]) + peak * (y - before_y)
    own[K.learner_root], own[K.learner_peak], numbers[N.mixing_root], numbers[N.mixing_peak] = u, peak, y, peak


@kernel
def learn(memory, context, arm, propensity, reward):
    """Teach mixture, guaranteed learner and predictor, then earn; False if no such propensity was ever drawn from."""
    numbers, own, rows = memory.scalars, memory.context_scalars[context], memory.contexts[context]
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
        regress(memory, arm, reward)
    numbers[N.rounds] += 1.0
    count(memory, reward)
    y = reward - numbers[N.reward_sum] / numbers[N.seen]
    fade(rows)
    solve(memory)
    if FEATURES and memory.settings[S.described] > 0.0:
        remember(memory.arms, rows, octave(own[K.visits]), arm, y - memory.scratch[T.from_features, arm])
        learn_features(memory, arm, reward)
    else:
        remember(memory.arms, rows, octave(own[K.visits]), arm, y)
    own[K.visits] += 1.0
    earn_one(memory.groups, memory.arms, A.earned, arm, reward)
    refresh(memory, arm)
    return True


@kernel
def refresh(memory, arm):
    """phi' of R and of what is on its way: R + pending times the arm's mean reward; of the group, where it has one."""
    account, slope, alpha = memory.arms[A.account], memory.arms[A.slope], memory.settings[S.alpha]
    if not GROUPS or memory.groups.numbers[F.pooled] == 0.0:
        slope[arm] = marginal_utility(account[arm] + credit(memory, arm), alpha)
        return
    group, on_its_way = memory.groups.rows[R.group], 0.0
    for i in range(account.shape[0]):
        if group[i] == group[arm]:
            on_its_way += credit(memory, i)
    shared = marginal_utility(account[arm] + on_its_way * memory.groups.rows[R.inverse_entitlement, arm], alpha)
    for i in range(account.shape[0]):
        if group[i] == group[arm]:
            slope[i] = shared


@kernel
def credit(memory, arm):
    """What is on its way to an arm: so many rewards of its mean, which y in [-2 c, 2 c] keeps below 3 c."""
    numbers, arms = memory.scalars, memory.arms
    pending = arms[A.pending, arm]
    if pending > 0.0 and numbers[N.seen] > 0.0:
        mean = numbers[N.reward_sum] / numbers[N.seen]
        of_arm = mean + arms[A.arm_sum, arm] / (arms[A.arm_count, arm] + 1.0)
        return pending * min(max(0.0, of_arm), MOST_CREDIT * numbers[N.largest])
    return 0.0


@kernel
def expect(memory, context, arm):
    """A reward of this arm is on its way."""
    memory.arms[A.pending, arm] += 1.0
    refresh(memory, arm)


@kernel
def forgo(memory, context, arm):
    """It has come, or never will."""
    memory.arms[A.pending, arm] = max(0.0, memory.arms[A.pending, arm] - 1.0)
    refresh(memory, arm)


def start(memory: Any) -> None:
    """Nothing earned, nothing seen."""
    open_accounts(memory.arms, 1.0, memory.settings[S.alpha])
    prior = DESCRIBED_PRIOR if memory.settings[S.described] > 0.0 else PRIOR
    memory.scalars[N.coefficients : N.coefficients + len(prior)] = prior


def start_contexts(memory: Any) -> None:
    """No visit; where every loss is the same, the level is n."""
    memory.context_scalars[:, K.level] = memory.contexts.shape[2]


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """New arms enter with an account and, in every context, with the mean loss of the others."""
    admit_accounts(memory.arms, n_kept, entries, memory.settings[S.alpha])
    memory.scalars[N.outside] += 1.0
    losses = memory.contexts[:, C.losses]
    losses[:, n_kept:] = losses[:, :n_kept].mean(axis=1, keepdims=True)
    memory.context_scalars[:, K.level] = losses.shape[1]


def refresh_all(memory: Any) -> None:
    """Rewards on their way to arms that left, and to the groups that others join."""
    for column in range(memory.arms.shape[1]):
        refresh(memory, column)


def reopen(memory: Any, columns: Any) -> None:
    """Slopes and anchors of accounts that have changed from outside."""
    reopen_accounts(memory, columns)
    for column in columns:
        refresh(memory, column)


def alpha_changed(memory: Any) -> None:
    """New slopes; the theorem speaks of one alpha."""
    reopen(memory, np.arange(memory.arms.shape[1]))
    memory.scalars[N.outside] += 1.0


def check_memory(memory: Any) -> str | None:
    """Slopes that are not those of accounts and what is on its way, or counts that cannot be."""
    account, slope, pending = memory.arms[A.account], memory.arms[A.slope], memory.arms[A.pending]
    alpha, groups = memory.settings[S.alpha], memory.groups
    if groups.numbers[F.pooled] > 0.0:
        of_arm = groups.rows[R.group].astype(np.int64)
        pending = np.bincount(of_arm, pending)[of_arm] * groups.rows[R.inverse_entitlement]
    settled = pending == 0.0
    wrong = check_slopes(account[settled], slope[settled], alpha)
    most = account + 3.0 * pending  # rewards on their way count into the slope
    if ((slope > account**-alpha * (1 + 1e-9)) | (slope < most**-alpha * (1 - 1e-9))).any():
        wrong = f"slopes of alpha {alpha}"
    counts = memory.scalars[[N.rounds, N.reward_sum, N.seen, N.largest, N.spread]]
    if not np.isfinite(memory.scalars).all() or min(counts.min(), memory.context_scalars.min()) < 0.0:
        wrong = "finite, counts not negative"
    return wrong


ALGORITHM = Algorithm(
    Layout(S, N, A, K, C, T, P, only_with_groups="earned"),
    draw,
    learn,
    start,
    start_contexts,
    admit,
    prepare=prepare,
    expect=expect,
    forgo=forgo,
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
    flags=("GROUPS", "FEATURES"),
)


def expected_surrogate_regret_bound(memory: Any) -> float | None:
    """What Theorem 1 of docs/theory.md adds up; its mean over draws bounds the mean regret.

    None where the theorem does not speak: fewer than two rounds or arms, rewards that came late or for masked
    decisions, arms that came or went, another alpha than at first, or floors under groups.
    """
    numbers, n = memory.scalars, memory.arms.shape[1]
    n_rounds = numbers[N.rounds]
    if numbers[N.outside] > 0.0 or memory.groups.numbers[F.group_floored] > 0.0 or min(n_rounds, n) < 2:
        return None
    log, left = math.log(n_rounds), float(memory.groups.numbers[F.unpromised])  # 1, or 1 - n nu
    learners = (log + 1.0 + math.sqrt((n + 1) / n)) * numbers[N.learner_roots]
    mixing = (0.5 * log + 2.4) * numbers[N.mixing_roots]
    return float(left * (learners + numbers[N.explored] + 2.0 * numbers[N.peaks] / n_rounds) + mixing)
