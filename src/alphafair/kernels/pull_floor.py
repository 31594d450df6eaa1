"""FairCB: exponential weights in every context, under a floor on how often each arm is pulled overall.

    P = argmin sum_j <p^j, L^j> + (1/eta) sum_ji p^j_i ln p^j_i   over   sum_j q_j p^j_i >= nu for every arm i

Only the n floors couple the contexts, so the dual has n variables d >= 0 (d = eta c in the paper's terms):

    p^j_i proportional to exp(-eta L^j_i + q_j d_i) ;   maximise  D(d) = nu sum d - sum_j log sum_i exp(...)
    gradient  nu - sum_j q_j p^j_i ;   Hessian  -sum_j q_j^2 (diag p^j - p^j p^j')

by projected Newton from the last d. Unknown q: epochs of length 1, 2, 4, ...; each starts afresh with the
frequencies counted so far and a floor lowered by what they may be wrong.

    shared:    DUAL (d), heads FLOOR (in force), RATE (eta), UPDATES, NEXT_EPOCH (infinite: q is known)
    learners:  P, heads WEIGHT (q), VISITS | LOSS (L), head LOG_NORMALISER (of P)
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.exponential_weights import equal_share
from alphafair.kernels.memory import ARMS, SETTINGS, blank, blank_work, rearranged

BANDIT, FULL = 0, 1
DUAL = 0
FLOOR, RATE, UPDATES, NEXT_EPOCH = 0, 1, 2, 3  # heads of DUAL
P, LOSS = 0, 1  # rows of a learner
WEIGHT, VISITS = 0, 1  # heads of P
LOG_NORMALISER = 0  # head of LOSS
PULL_FLOOR, HORIZON, KIND = 0, 1, 2  # among the settings
TOLERANCE = 1e-13  # of a marginal
MOST_STEPS = 200
LONGEST_REACH = 30.0
LEAST_PROPENSITY = 1e-9  # a loss over less outweighs all others: exponents of that size keep too few digits for floors


def learning_rate(n_contexts: int, n_arms: int, n_rounds: float, kind: int) -> float:
    """sqrt(M ln N/(T N)) with bandit feedback, sqrt(2 M ln N/T) with full information."""
    per_round = 2.0 if kind == FULL else 1.0 / n_arms
    return math.sqrt(per_round * n_contexts * math.log(n_arms) / n_rounds)


def make_work(n_arms: int, pull_floor: float, horizon: int, kind: int) -> np.ndarray:
    return blank_work(0, n_arms, pull_floor, horizon, kind)


def first_shared(
    n_contexts: int, n_arms: int, pull_floor: float, horizon: int, kind: int, weights_known: bool
) -> np.ndarray:
    """Known weights: the floor and the rate of the whole run. Unknown: one uniform round, then epochs."""
    dual = blank(1, n_arms)
    dual[DUAL, NEXT_EPOCH] = np.inf if weights_known else 1.0
    if weights_known:
        dual[DUAL, FLOOR] = pull_floor
        dual[DUAL, RATE] = learning_rate(n_contexts, n_arms, horizon, kind)
    return dual[None]


def first_learner(n_arms: int) -> np.ndarray:
    """Uniform, of weight 0."""
    learner = blank(2, n_arms)
    learner[P, ARMS:] = 1.0 / n_arms
    learner[LOSS, LOG_NORMALISER] = math.log(n_arms)
    return learner


@kernel
def _weigh(learners, context, rate, dual):
    """P of one context, and the log of its normaliser."""
    n = dual.shape[0]
    weight, p, losses = learners[context, P, WEIGHT], learners[context, P, ARMS:], learners[context, LOSS, ARMS:]
    largest = -np.inf
    for i in range(n):
        exponent = weight * dual[i] - rate * losses[i]
        p[i] = exponent
        largest = max(largest, exponent)
    total = 0.0
    for i in range(n):
        p[i] = math.exp(p[i] - largest)
        total += p[i]
    for i in range(n):
        p[i] /= total
    learners[context, LOSS, LOG_NORMALISER] = largest + math.log(total)


@kernel
def _tally(learners, floor, dual, gradient):
    """D(d), and its gradient nu - sum_j q_j p^j, from P and the normalisers."""
    n = dual.shape[0]
    value = 0.0
    for i in range(n):
        gradient[i] = floor
        value += floor * dual[i]
    for j in range(learners.shape[0]):
        weight, p = learners[j, P, WEIGHT], learners[j, P, ARMS:]
        value -= learners[j, LOSS, LOG_NORMALISER]
        if weight > 0.0:
            for i in range(n):
                gradient[i] -= weight * p[i]
    return value


@kernel
def _violation(dual, gradient):
    """How far from optimal: floors missed, and slack where the multiplier is positive."""
    worst = 0.0
    for i in range(dual.shape[0]):
        worst = max(worst, abs(gradient[i]) if dual[i] > 0.0 else gradient[i])
    return worst


@kernel
def _free_arms(learners, dual, gradient, free):
    """Mark the arms whose multiplier may move: positive, or below its floor; never all of them. How many.

    P does not change when all multipliers move together, so the smallest is always 0, and if every arm could move
    the one with most to spare stays.
    """
    n = dual.shape[0]
    smallest = dual[0]
    for i in range(1, n):
        smallest = min(smallest, dual[i])
    if smallest > 0.0:
        for i in range(n):
            dual[i] -= smallest
        for j in range(learners.shape[0]):
            learners[j, LOSS, LOG_NORMALISER] -= learners[j, P, WEIGHT] * smallest
    n_free = 0
    rest = -1
    for i in range(n):
        free[i] = 1.0 if dual[i] > 0.0 or gradient[i] > 0.0 else 0.0
        n_free += 1 if free[i] > 0.0 else 0
        if dual[i] == 0.0 and (rest < 0 or gradient[i] < gradient[rest]):
            rest = i
    if n_free == n:
        free[rest] = 0.0
        n_free -= 1
    return n_free


@kernel
def _curvature(learners, damping, free, links):
    """The Hessian as a network of positive links, so that nothing is lost to differences of nearly equal numbers.

    Off the diagonal, lower half: sum_j q_j^2 p^j_a p^j_b of two free arms. On it: what links an arm with all that are
    not free, and the damping.
    """
    n = free.shape[0]
    for a in range(n):
        for b in range(a):
            links[a, b] = 0.0
        links[a, a] = damping
    for j in range(learners.shape[0]):
        weight, p = learners[j, P, WEIGHT], learners[j, P, ARMS:]
        square = weight * weight
        if square > 0.0:
            fixed = 0.0
            for a in range(n):
                fixed += p[a] if free[a] == 0.0 else 0.0
            for a in range(n):
                if free[a] > 0.0:
                    share = square * p[a]
                    links[a, a] += share * fixed
                    for b in range(a):
                        links[a, b] += share * p[b] if free[b] > 0.0 else 0.0


@kernel
def _newton_direction(links, gradient, dual, free, work, direction):
    """Solve (Hessian + damping) direction = gradient on the free arms; an arm that would fall below 0 goes to 0.

    Arms leave the network one by one, the last first: what linked a with b and c from then on links b with c. Only
    positive numbers are added (Grassmann, Taksar and Heyman), so links of any size come out to the last digits.
    """
    n = gradient.shape[0]
    for i in range(n):
        direction[i] = 0.0
    n_fallen = 1
    while n_fallen > 0:
        for a in range(n):
            if free[a] > 0.0:
                direction[a] = gradient[a]
                work[a, a] = links[a, a]
                for b in range(n):
                    link = links[max(a, b), min(a, b)]
                    if free[b] == 0.0:  # an arm sent to 0; the others that are not free have no links
                        work[a, a] += link
                        direction[a] += link * direction[b]
                    elif b < a:
                        work[a, b] = link
        for a in range(n - 1, -1, -1):
            if free[a] > 0.0:
                ground = work[a, a]
                for b in range(a):
                    work[a, a] += work[a, b] if free[b] > 0.0 else 0.0
                for b in range(a):
                    if free[b] > 0.0:
                        share = work[a, b] / work[a, a]
                        work[b, b] += share * ground
                        direction[b] += share * direction[a]
                        for c in range(b):
                            work[b, c] += share * work[a, c] if free[c] > 0.0 else 0.0
        for a in range(n):
            if free[a] > 0.0:
                for b in range(a):
                    direction[a] += work[a, b] * direction[b] if free[b] > 0.0 else 0.0
                direction[a] /= work[a, a]
        n_fallen = 0
        for a in range(n):
            if free[a] > 0.0 and dual[a] + direction[a] < 0.0:
                free[a] = 0.0
                direction[a] = -dual[a]
                n_fallen += 1


@kernel
def _move(learners, rate, dual, start, direction, length):
    """dual = start + length direction, and P with it."""
    n = dual.shape[0]
    for i in range(n):
        dual[i] = max(0.0, start[i] + length * direction[i])
    for j in range(learners.shape[0]):
        if learners[j, P, WEIGHT] > 0.0:
            _weigh(learners, j, rate, dual)


@kernel
def _climb(learners, rate, floor, dual):
    """Raise `dual` from where it stands, with P up to date for it, to the optimum; whether it got there.

    Newton steps damped by |gradient|: where P is 0 or 1 to many digits there is hardly a slope, an undamped step would
    go anywhere, and the arms that it sends to 0 would bend it. This one changes no weight by more than e^reach, and
    the reach follows what the last step could use.
    """
    n = dual.shape[0]
    gradient = np.empty(n)
    value = _tally(learners, floor, dual, gradient)
    violation = _violation(dual, gradient)
    if violation <= TOLERANCE:
        return True
    heaviest = 0.0
    for j in range(learners.shape[0]):
        heaviest = max(heaviest, learners[j, P, WEIGHT])
    start, direction, free = np.empty(n), np.empty(n), np.empty(n)
    links, work = np.empty((n, n)), np.empty((n, n))
    reach = LONGEST_REACH
    for _ in range(MOST_STEPS):
        _free_arms(learners, dual, gradient, free)
        square = 0.0
        for i in range(n):
            square += gradient[i] * gradient[i] if free[i] > 0.0 else 0.0
        damping = math.sqrt(square) * heaviest / reach
        _curvature(learners, damping, free, links)
        _newton_direction(links, gradient, dual, free, work, direction)
        promise = 0.0
        for i in range(n):
            promise += gradient[i] * direction[i]
        if promise <= 0.0:  # not uphill, after arms were sent to 0: go along the gradient
            promise = 0.0
            for i in range(n):
                direction[i] = max(gradient[i] / damping, -dual[i])
                promise += gradient[i] * direction[i]
        value = _tally(learners, floor, dual, gradient)
        for i in range(n):
            start[i] = dual[i]
        length = 2.0
        risen, left = -np.inf, np.inf
        while risen < 1e-4 * length * promise and left > 0.5 * violation and length >= 1e-12:
            length *= 0.5
            _move(learners, rate, dual, start, direction, length)
            risen = _tally(learners, floor, dual, gradient) - value
            left = _violation(dual, gradient)
        if left <= TOLERANCE:
            return True
        if violation <= 1e-10 and left >= violation:  # rounding lets it no further: take the step back
            _move(learners, rate, dual, start, direction, 0.0)
            return True
        violation = left
        reach = min(LONGEST_REACH, 2.0 * length * reach)
    return False


@kernel
def solve(learners, rate, floor, dual):
    """The optimal `dual`, and P with it; P must be up to date for the `dual` given.

    From a neighbouring problem that is a step or two. From far away every weight may be 0 or 1 to the last digit and
    show no slope; then start with losses scaled down until they differ by less than 1, and double them step by step.
    """
    n = dual.shape[0]
    scale, afar = 1.0, False
    while True:  # one call of `_climb` in the source is one in the machine code; a condition would be there twice
        reached = _climb(learners, scale * rate, floor, dual)
        if (reached or afar) and scale >= 1.0:
            return
        if not afar:
            spread, afar = 1.0, True
            for j in range(learners.shape[0]):
                losses = learners[j, LOSS, ARMS:]
                smallest = largest = losses[0]
                for i in range(1, n):
                    smallest, largest = min(smallest, losses[i]), max(largest, losses[i])
                spread = max(spread, rate * (largest - smallest))
            scale = 0.5 * 2.0 ** -math.ceil(math.log2(spread))
            for i in range(n):
                dual[i] = 0.0
        scale *= 2.0
        for i in range(n):
            dual[i] *= 2.0
        for j in range(learners.shape[0]):
            _weigh(learners, j, scale * rate, dual)


@kernel
def draw(work, shared, learners, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    p = learners[context, P, ARMS:]
    for i in range(out.shape[0]):
        out[i] = p[i]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def _start_epoch(settings, shared, learners):
    """Forget the losses, keep the frequencies; epoch k begins with update 2^(k-1) and lasts as many."""
    head, dual = shared[0, DUAL, :ARMS], shared[0, DUAL, ARMS:]
    n, n_contexts = dual.shape[0], learners.shape[0]
    updates = head[UPDATES]
    length = updates + 1.0
    logarithm = n_contexts * math.log(settings[HORIZON] * n_contexts)
    slack = 4.0 * math.sqrt(logarithm / updates) + 2.0 * logarithm / updates
    per_round = 2.0 if settings[KIND] == FULL else 1.0 / n
    head[RATE] = math.sqrt(per_round * n_contexts * math.log(n) / length)
    head[FLOOR] = max(0.0, settings[PULL_FLOOR] - slack)
    head[NEXT_EPOCH] = updates + length
    for i in range(n):
        dual[i] = 0.0
    for j in range(n_contexts):
        learners[j, P, WEIGHT] = learners[j, P, VISITS] / updates
        learners[j, LOSS, LOG_NORMALISER] = math.log(n)
        for i in range(n):
            learners[j, P, ARMS + i] = 1.0 / n
            learners[j, LOSS, ARMS + i] = 0.0


@kernel
def _follow(work, shared, learners, context):
    """After a loss of one context: count the visit, start an epoch where one is due, and solve again."""
    head, dual = shared[0, DUAL, :ARMS], shared[0, DUAL, ARMS:]
    learners[context, P, VISITS] += 1.0
    head[UPDATES] += 1.0
    if head[UPDATES] == head[NEXT_EPOCH]:
        _start_epoch(work[SETTINGS], shared, learners)
    _weigh(learners, context, head[RATE], dual)
    if head[FLOOR] > 0.0:
        solve(learners, head[RATE], head[FLOOR], dual)


@kernel
def learn_bandit(work, shared, learners, context, arm, propensity, reward):
    """L += (1 - r)/p on the pulled arm; False if p is too small, unless it is what this round was drawn with."""
    losses = learners[context, LOSS, ARMS:]
    if propensity < LEAST_PROPENSITY and propensity != learners[context, P, ARMS + arm]:
        return False
    losses[arm] += (1.0 - reward) / max(propensity, LEAST_PROPENSITY)
    _follow(work, shared, learners, context)
    return True


@kernel
def learn_full(work, shared, learners, context, probabilities, rewards):
    """L += 1 - r on every arm."""
    losses = learners[context, LOSS, ARMS:]
    for i in range(rewards.shape[0]):
        losses[i] += 1.0 - rewards[i]
    _follow(work, shared, learners, context)


def change_arms(work, shared, learners, kept, entries):
    """New arms enter with an equal share of every context's probability; the rate is that of the new number of arms."""
    shared, learners = rearranged(shared, kept, len(entries)), rearranged(learners, kept, len(entries))
    head, dual = shared[0, DUAL, :ARMS], shared[0, DUAL, ARMS:]
    settings = work[SETTINGS]
    for learner in learners:
        losses = learner[LOSS, ARMS:]
        losses[len(kept) :] = -equal_share(-losses[: len(kept)], head[RATE])
    if head[UPDATES] > 0.0 or head[NEXT_EPOCH] == np.inf:
        epoch = settings[HORIZON] if head[NEXT_EPOCH] == np.inf else (head[NEXT_EPOCH] + 1.0) / 2.0
        head[RATE] = learning_rate(len(learners), len(dual), epoch, int(settings[KIND]))
    for context in range(len(learners)):
        _weigh(learners, context, head[RATE], dual)
    if head[FLOOR] > 0.0:
        solve(learners, head[RATE], head[FLOOR], dual)
    return shared, learners
