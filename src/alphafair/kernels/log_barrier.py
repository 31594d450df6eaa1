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

    learner (2, n + 3):   p | eta, gamma, t      first row
                          L | level, stability_sum, exploration_sum      second row
"""

import math

import numpy as np

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm

ADAPTIVE, SQRT = 0, 1


def first_learner(n_arms: int) -> np.ndarray:
    """Uniform; eta = n, gamma = 1/2; the leader's level is n, since every eta L_k is 0."""
    learner = np.zeros((2, n_arms + 3))
    learner[0, :n_arms] = 1.0 / n_arms
    learner[0, n_arms : n_arms + 2] = n_arms, 0.5
    learner[1, n_arms] = n_arms
    return learner


@kernel
def level(v, guess, tolerance):
    """mu >= 1 with sum_k 1/(mu + v_k) = 1, for v >= 0 with smallest entry 0.

    Newton on 1/sum, which is concave and nearly straight: from the left it rises to the root without passing
    it, and from the right its first step lands on the left. The relative error left is below the square of
    the last relative step.
    """
    n = v.shape[0]
    mu = min(max(guess, 1.0), float(n))
    step = mu
    while abs(step) > tolerance * mu:
        s0 = s1 = q0 = q1 = 0.0  # sums of 1/(mu + v) and of its square, two side by side
        for i in range(0, n - 1, 2):
            a, b = 1.0 / (mu + v[i]), 1.0 / (mu + v[i + 1])
            s0 += a
            s1 += b
            q0 += a * a
            q1 += b * b
        if n % 2 == 1:
            a = 1.0 / (mu + v[n - 1])
            s0 += a
            q0 += a * a
        total = s0 + s1
        step = max(1.0 - mu, total * (total - 1.0) / (q0 + q1))
        mu += step
    return mu


@kernel
def stability(learners, k, arm, estimate, v):
    """M(eta) for the loss estimate of one arm, p and eta those of learner k; `v` is scratch (n)."""
    n = v.shape[0]
    eta = learners[k, 0, n]
    p = learners[k, 0, arm]
    move = eta * estimate
    squares = 0.0
    smallest = 1.0 / p + move
    for i in range(n):
        v[i] = 1.0 / learners[k, 0, i]
        squares += learners[k, 0, i] * learners[k, 0, i]
        if i != arm:
            smallest = min(smallest, v[i])
    v[arm] = 1.0 / p + move
    for i in range(n):
        v[i] -= smallest
    mu = level(v, smallest - move * p * p / squares, 1e-7)
    lam = mu - smallest
    product = 1.0
    logarithm = 0.0
    for i in range(n):
        product *= learners[k, 0, i] * (mu + v[i])  # 1 + a_i
        if not 1e-100 < product < 1e100:
            logarithm += math.log(product)
            product = 1.0
    total = lam + move * p  # sum of the a_i
    return max(0.0, (total - (logarithm + math.log(product))) / eta)


@kernel
def absorb(learners, k, arm, propensity, loss, option, v):
    """One round of learner k: take in the loss of an arm that was drawn with that probability."""
    n = v.shape[0]
    estimate = loss / propensity
    learners[k, 1, n + 1] += stability(learners, k, arm, estimate, v)
    learners[k, 1, n + 2] += learners[k, 0, n + 1] * abs(estimate)
    learners[k, 0, n + 2] += 1.0
    learners[k, 1, arm] += estimate
    eta = n / (1.0 + learners[k, 1, n + 1])
    if option == ADAPTIVE:
        gamma = n / (2.0 * n + learners[k, 1, n + 2])
    else:
        gamma = min(0.5, math.sqrt(n / learners[k, 0, n + 2]))
    smallest = learners[k, 1, 0]
    for i in range(1, n):
        smallest = min(smallest, learners[k, 1, i])
    for i in range(n):
        v[i] = eta * (learners[k, 1, i] - smallest)
    mu = level(v, learners[k, 1, n], 1e-8)
    total = 0.0
    for i in range(n):
        v[i] = 1.0 / (mu + v[i])
        total += v[i]
    for i in range(n):
        learners[k, 0, i] = v[i] / total
    learners[k, 0, n], learners[k, 0, n + 1], learners[k, 1, n] = eta, gamma, mu


@kernel
def explore(learners, k, uniform, out):
    """Write p' = (1 - gamma) p + gamma/n to `out` and draw an arm from it."""
    n = out.shape[0]
    gamma = learners[k, 0, n + 1]
    for i in range(n):
        out[i] = (1.0 - gamma) * learners[k, 0, i] + gamma / n
    arm = draw_arm(out, uniform)
    return arm, out[arm]
