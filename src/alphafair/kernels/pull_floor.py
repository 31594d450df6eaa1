"""FairCB: exponential weights in every context, under a floor on how often each arm is pulled overall.

    P = argmin sum_j <p^j, L^j> + (1/eta) sum_ji p^j_i ln p^j_i   over   sum_j q_j p^j_i >= nu for every arm i

Only the n floors couple the contexts, so the dual has n variables d >= 0 (d = eta c in the paper's terms):

    p^j_i proportional to exp(-eta L^j_i + q_j d_i) ;   maximise  D(d) = nu sum d - sum_j log sum_i exp(...)
    gradient  nu - sum_j q_j p^j_i ;   Hessian  -sum_j q_j^2 (diag p^j - p^j p^j')

by projected Newton from the last d. Unknown q: epochs of length 1, 2, 4, ...; each starts afresh with the
frequencies counted so far and a floor lowered by what they may be wrong.

    shared (1, 2, max(n + 2, 8)):  d | floor, eta, updates, next epoch (inf: q is known), nu, horizon, kind
    learners (M, 2, n + 2):        P, then q, visits | L, then the log of the normaliser of P
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm

BANDIT, FULL = 0, 1
FLOOR, RATE, UPDATES, NEXT_EPOCH, PULL_FLOOR, HORIZON, KIND = 0, 1, 2, 3, 4, 5, 6
TOLERANCE = 1e-13  # of a marginal
MOST_STEPS = 200
LONGEST_REACH = 30.0


def learning_rate(n_contexts: int, n_arms: int, n_rounds: float, kind: int) -> float:
    """sqrt(M ln N/(T N)) with bandit feedback, sqrt(2 M ln N/T) with full information."""
    per_round = 2.0 if kind == FULL else 1.0 / n_arms
    return math.sqrt(per_round * n_contexts * math.log(n_arms) / n_rounds)


def first_shared(
    n_contexts: int, n_arms: int, pull_floor: float, horizon: int, kind: int, weights_known: bool
) -> np.ndarray:
    """Known weights: the floor and the rate of the whole run. Unknown: one uniform round, then epochs."""
    shared = np.zeros((1, 2, max(n_arms + 2, 8)))
    settings = shared[0, 1]
    settings[PULL_FLOOR], settings[HORIZON], settings[KIND] = pull_floor, horizon, kind
    settings[NEXT_EPOCH] = np.inf if weights_known else 1.0
    if weights_known:
        settings[FLOOR] = pull_floor
        settings[RATE] = learning_rate(n_contexts, n_arms, horizon, kind)
    return shared


def first_learner(n_arms: int) -> np.ndarray:
    """Uniform, of weight 0."""
    learner = np.zeros((2, n_arms + 2))
    learner[0, :n_arms] = 1.0 / n_arms
    learner[1, n_arms] = math.log(n_arms)
    return learner


@kernel
def _weigh(learners, context, rate, dual):
    """P of one context, and the log of its normaliser."""
    n = dual.shape[0]
    weight = learners[context, 0, n]
    largest = -np.inf
    for i in range(n):
        exponent = weight * dual[i] - rate * learners[context, 1, i]
        learners[context, 0, i] = exponent
        largest = max(largest, exponent)
    total = 0.0
    for i in range(n):
        learners[context, 0, i] = math.exp(learners[context, 0, i] - largest)
        total += learners[context, 0, i]
    for i in range(n):
        learners[context, 0, i] /= total
    learners[context, 1, n] = largest + math.log(total)


@kernel
def _tally(learners, floor, dual, gradient):
    """D(d), and its gradient nu - sum_j q_j p^j, from P and the normalisers."""
    n = dual.shape[0]
    value = 0.0
    for i in range(n):
        gradient[i] = floor
        value += floor * dual[i]
    for j in range(learners.shape[0]):
        weight = learners[j, 0, n]
        value -= learners[j, 1, n]
        if weight > 0.0:
            for i in range(n):
                gradient[i] -= weight * learners[j, 0, i]
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
            learners[j, 1, n] -= learners[j, 0, n] * smallest
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
        square = learners[j, 0, n] * learners[j, 0, n]
        if square > 0.0:
            fixed = 0.0
            for a in range(n):
                fixed += learners[j, 0, a] if free[a] == 0.0 else 0.0
            for a in range(n):
                if free[a] > 0.0:
                    p = square * learners[j, 0, a]
                    links[a, a] += p * fixed
                    for b in range(a):
                        links[a, b] += p * learners[j, 0, b] if free[b] > 0.0 else 0.0


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
        if learners[j, 0, n] > 0.0:
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
        heaviest = max(heaviest, learners[j, 0, n])
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
    while not (_climb(learners, scale * rate, floor, dual) or afar) or scale < 1.0:
        if not afar:
            spread, afar = 1.0, True
            for j in range(learners.shape[0]):
                smallest = largest = learners[j, 1, 0]
                for i in range(1, n):
                    smallest, largest = min(smallest, learners[j, 1, i]), max(largest, learners[j, 1, i])
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
def draw(shared, learners, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    for i in range(out.shape[0]):
        out[i] = learners[context, 0, i]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def _start_epoch(shared, learners):
    """Forget the losses, keep the frequencies; epoch k begins with update 2^(k-1) and lasts as many."""
    n = learners.shape[2] - 2
    n_contexts = learners.shape[0]
    updates = shared[0, 1, UPDATES]
    length = updates + 1.0
    logarithm = n_contexts * math.log(shared[0, 1, HORIZON] * n_contexts)
    slack = 4.0 * math.sqrt(logarithm / updates) + 2.0 * logarithm / updates
    per_round = 2.0 if shared[0, 1, KIND] == FULL else 1.0 / n
    shared[0, 1, RATE] = math.sqrt(per_round * n_contexts * math.log(n) / length)
    shared[0, 1, FLOOR] = max(0.0, shared[0, 1, PULL_FLOOR] - slack)
    shared[0, 1, NEXT_EPOCH] = updates + length
    for i in range(n):
        shared[0, 0, i] = 0.0
    for j in range(n_contexts):
        learners[j, 0, n] = learners[j, 0, n + 1] / updates
        learners[j, 1, n] = math.log(n)
        for i in range(n):
            learners[j, 0, i] = 1.0 / n
            learners[j, 1, i] = 0.0


@kernel
def _follow(shared, learners, context):
    """After a loss of one context: count the visit, start an epoch where one is due, and solve again."""
    n = learners.shape[2] - 2
    dual = shared[0, 0, :n]
    learners[context, 0, n + 1] += 1.0
    shared[0, 1, UPDATES] += 1.0
    if shared[0, 1, UPDATES] == shared[0, 1, NEXT_EPOCH]:
        _start_epoch(shared, learners)
    _weigh(learners, context, shared[0, 1, RATE], dual)
    if shared[0, 1, FLOOR] > 0.0:
        solve(learners, shared[0, 1, RATE], shared[0, 1, FLOOR], dual)


@kernel
def learn_bandit(shared, learners, context, arm, propensity, reward):
    """L += (1 - r)/p on the pulled arm."""
    learners[context, 1, arm] += (1.0 - reward) / propensity
    _follow(shared, learners, context)


@kernel
def learn_full(shared, learners, context, probabilities, rewards):
    """L += 1 - r on every arm."""
    for i in range(rewards.shape[0]):
        learners[context, 1, i] += 1.0 - rewards[i]
    _follow(shared, learners, context)
