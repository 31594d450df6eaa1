"""The scale-free bandit of Putta and Agrawal: follow the leader with a log barrier, at a rate it tunes itself.

It works on losses of any sign and size. Round t, arm i drawn with probability p'_i, loss l:

    lt = l/p'_i on arm i, 0 elsewhere ;   L += lt
    exploration_sum += gamma |l|/p'_i ;   gamma = n/(2n + exploration_sum)   or   min(1/2, sqrt(n/t))
    stability_sum += M(eta) ;             eta = n/(1 + stability_sum)
    p = argmin <p, L> - (1/eta) sum log p_k ;    p' = (1 - gamma) p + gamma/n

    M(eta) = max_q <lt, p - q> - (1/eta) sum_k (q_k/p_k - 1 - log(q_k/p_k))

Both extrema are 1/(lambda + v_k) for the right lambda: v = eta L for the leader, v = 1/p + eta lt for M. At
the optimum M = (1/eta) sum_k (a_k - log(1 + a_k)) with a_k = p_k (lambda + eta lt_k): no difference of large
numbers, never negative. lambda is stationary there, so half the digits of lambda give all digits of M.

    a learner:  P (p), heads RATE (eta), EXPLORATION (gamma), ROUNDS (t)
                LOSS (L), heads LEVEL (of the leader), STABILITY_SUM, EXPLORATION_SUM
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.memory import ARMS, blank, rearranged

ADAPTIVE, SQRT = 0, 1
P, LOSS = 0, 1  # rows of a learner
RATE, EXPLORATION, ROUNDS = 0, 1, 2  # heads of P
LEVEL, STABILITY_SUM, EXPLORATION_SUM = 0, 1, 2  # heads of LOSS
MOST_ARMS = 0  # among the settings: how many arms there ever were
V, W = 1, 2  # scratch


def first_learner(n_arms: int) -> np.ndarray:
    """Uniform; eta = n, gamma = 1/2; the leader's level is n, since every eta L_k is 0."""
    learner = blank(2, n_arms)
    learner[P, ARMS:] = 1.0 / n_arms
    learner[P, RATE], learner[P, EXPLORATION] = n_arms, 0.5
    learner[LOSS, LEVEL] = n_arms
    return learner


def are_sound(learners: np.ndarray) -> bool:
    """Whether rounds can have left them so: losses have any sign, sums and rates do not, and p is positive."""
    positive = learners[:, P, ARMS:].min() > 0.0 and learners[:, P, RATE].min() > 0.0
    return bool(positive and learners[..., :ARMS].min() >= 0.0 and np.isfinite(learners).all())


@kernel
def power_sums(w):
    """Sums of w, w^2 and w^3; four of each side by side, because one waits for itself."""
    s0 = s1 = s2 = s3 = q0 = q1 = q2 = q3 = c0 = c1 = c2 = c3 = 0.0
    n = w.shape[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        w0, w1, w2, w3 = w[i], w[i + 1], w[i + 2], w[i + 3]
        s0 += w0
        s1 += w1
        s2 += w2
        s3 += w3
        q0 += w0 * w0
        q1 += w1 * w1
        q2 += w2 * w2
        q3 += w3 * w3
        c0 += w0 * w0 * w0
        c1 += w1 * w1 * w1
        c2 += w2 * w2 * w2
        c3 += w3 * w3 * w3
    for i in range(whole, n):
        s0 += w[i]
        q0 += w[i] * w[i]
        c0 += w[i] * w[i] * w[i]
    return (s0 + s1) + (s2 + s3), (q0 + q1) + (q2 + q3), (c0 + c1) + (c2 + c3)


@kernel
def level(v, guess, tolerance, w):
    """mu >= 1 with sum_k 1/(mu + v_k) = 1, for v >= 0 with smallest entry 0; `w` is scratch (n).

    Newton on f = 1/sum - 1, which is concave and nearly straight: from the left it rises to the root without passing
    it, and from the right its first step lands on the left. `bend`, f f''/(2 f'^2), is how far f is from straight:
    where it is small the step is corrected for it (Halley). The relative error left is about the cube of the tolerance.
    """
    n = v.shape[0]
    mu = min(max(guess, 1.0), float(n))
    step, bend = mu, 1.0
    while max(abs(step), abs(bend) * mu) > tolerance * mu:
        for i in range(n):
            w[i] = 1.0 / (mu + v[i])
        total, squares, cubes = power_sums(w)
        step = total * (total - 1.0) / squares
        bend = (total - 1.0) * (cubes * total / (squares * squares) - 1.0)
        if abs(bend) < 0.5:
            step /= 1.0 - bend
        step = max(1.0 - mu, step)
        mu += step
    return mu


@kernel
def stability(p, eta, arm, estimate, v, w):
    """M(eta) for the loss estimate of one arm; `v` and `w` are scratch (n)."""
    n = v.shape[0]
    move = eta * estimate
    for i in range(n):
        v[i] = 1.0 / p[i]
    v[arm] += move
    q0 = q1 = 0.0
    m0 = m1 = v[0]
    for i in range(0, n - 1, 2):
        p0, p1 = p[i], p[i + 1]
        q0 += p0 * p0
        q1 += p1 * p1
        m0 = min(m0, v[i])
        m1 = min(m1, v[i + 1])
    if n % 2 == 1:
        q0 += p[n - 1] * p[n - 1]
        m0 = min(m0, v[n - 1])
    squares, smallest = q0 + q1, min(m0, m1)
    for i in range(n):
        v[i] -= smallest
    mu = level(v, smallest - move * p[arm] * p[arm] / squares, 1e-3, w)
    lam = mu - smallest
    for i in range(n):
        w[i] = p[i] * (mu + v[i])  # 1 + a_i
    total = lam + move * p[arm]  # sum of the a_i
    return max(0.0, (total - log_product(w)) / eta)


@kernel
def log_product(w):
    """The logarithm of a product of positive numbers: one `log` for many factors, while they stay in range."""
    n = w.shape[0]
    logarithm = 0.0
    product = 1.0
    whole = n - n % 4
    for i in range(0, whole, 4):
        four = (w[i] * w[i + 1]) * (w[i + 2] * w[i + 3])
        if 1e-100 < product * four < 1e100:
            product *= four
        else:
            logarithm += math.log(w[i]) + math.log(w[i + 1]) + math.log(w[i + 2]) + math.log(w[i + 3])
    for i in range(whole, n):
        if 1e-100 < product * w[i] < 1e100:
            product *= w[i]
        else:
            logarithm += math.log(w[i])
    return logarithm + math.log(product)


@kernel
def exploration(exploration_sum, rounds, n, option):
    """gamma = n/(2n + exploration_sum), or min(1/2, sqrt(n/t))."""
    if option == ADAPTIVE:
        return n / (2.0 * n + exploration_sum)
    return min(0.5, math.sqrt(n / rounds))


@kernel
def follow(learners, k, option, v, w):
    """eta, gamma and p of learner k from its losses and its two sums."""
    n = v.shape[0]
    p_head, p = learners[k, P, :ARMS], learners[k, P, ARMS:]
    loss_head, losses = learners[k, LOSS, :ARMS], learners[k, LOSS, ARMS:]
    eta = n / (1.0 + loss_head[STABILITY_SUM])
    m0 = m1 = losses[0]
    for i in range(1, n - 1, 2):
        m0 = min(m0, losses[i])
        m1 = min(m1, losses[i + 1])
    smallest = min(min(m0, m1), losses[n - 1])
    for i in range(n):
        v[i] = eta * (losses[i] - smallest)
    mu = level(v, loss_head[LEVEL], 1e-5, w)
    for i in range(n):
        w[i] = 1.0 / (mu + v[i])
    total, _, _ = power_sums(w)
    for i in range(n):
        p[i] = w[i] / total
    p_head[RATE], loss_head[LEVEL] = eta, mu
    p_head[EXPLORATION] = exploration(loss_head[EXPLORATION_SUM], p_head[ROUNDS], n, option)


@kernel
def absorb(learners, k, arm, propensity, loss, option, v, w):
    """One round of learner k: take in the loss of an arm that was drawn with that probability."""
    p_head, p = learners[k, P, :ARMS], learners[k, P, ARMS:]
    loss_head, losses = learners[k, LOSS, :ARMS], learners[k, LOSS, ARMS:]
    estimate = loss / propensity
    loss_head[STABILITY_SUM] += stability(p, p_head[RATE], arm, estimate, v, w)
    loss_head[EXPLORATION_SUM] += p_head[EXPLORATION] * abs(estimate)
    p_head[ROUNDS] += 1.0
    losses[arm] += estimate
    follow(learners, k, option, v, w)


@kernel
def explore(learners, k, uniform, out):
    """Write p' = (1 - gamma) p + gamma/n to `out` and draw an arm from it."""
    n = out.shape[0]
    p, gamma = learners[k, P, ARMS:], learners[k, P, EXPLORATION]
    for i in range(n):
        out[i] = (1.0 - gamma) * p[i] + gamma / n
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def least_propensity(learners, k, most_arms, option):
    """gamma/n now, with as many arms as there ever were: no decision of learner k was drawn with less."""
    exploration_sum, rounds = learners[k, LOSS, EXPLORATION_SUM], learners[k, P, ROUNDS]
    return exploration(exploration_sum, max(rounds, 1.0), most_arms, option) / most_arms


@kernel
def is_possible(learners, k, propensity, most_arms, option):
    """Whether learner k can have drawn an arm with that probability, up to rounding."""
    return propensity >= least_propensity(learners, k, most_arms, option) * (1.0 - 1e-9)


def change_arms(learners, kept, n_new, option):
    """New arms enter with an equal share of p, the others share the rest as before; so far as they are there."""
    learners = rearranged(learners, kept, n_new)
    n, n_kept = learners.shape[2] - ARMS, len(kept)
    v, w = np.empty(n), np.empty(n)
    share = n_kept / n  # of the arms that stay, together
    for k, learner in enumerate(learners):
        if learner[P, ROUNDS] == 0.0:
            learners[k] = first_learner(n)
            continue
        losses = learner[LOSS, ARMS:]
        eta = n / (1.0 + learner[LOSS, STABILITY_SUM])
        smallest = losses[:n_kept].min()
        # sum_k 1/(mu + eta L_k) = share over those that stay, and 1/(mu + eta L_new) = 1/n
        mu = level(share * eta * (losses[:n_kept] - smallest), 1.0, 1e-5, w[:n_kept]) / share
        losses[n_kept:] = smallest + (n - mu) / eta
        follow(learners, k, option, v, w)
    return learners
