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
def stability(learners, k, arm, estimate, v, w):
    """M(eta) for the loss estimate of one arm, p and eta those of learner k; `v` and `w` are scratch (n)."""
    n = v.shape[0]
    eta = learners[k, 0, n]
    p = learners[k, 0, arm]
    move = eta * estimate
    for i in range(n):
        v[i] = 1.0 / learners[k, 0, i]
    v[arm] += move
    q0 = q1 = 0.0
    m0 = m1 = v[0]
    for i in range(0, n - 1, 2):
        p0, p1 = learners[k, 0, i], learners[k, 0, i + 1]
        q0 += p0 * p0
        q1 += p1 * p1
        m0 = min(m0, v[i])
        m1 = min(m1, v[i + 1])
    if n % 2 == 1:
        q0 += learners[k, 0, n - 1] * learners[k, 0, n - 1]
        m0 = min(m0, v[n - 1])
    squares, smallest = q0 + q1, min(m0, m1)
    for i in range(n):
        v[i] -= smallest
    mu = level(v, smallest - move * p * p / squares, 1e-3, w)
    lam = mu - smallest
    for i in range(n):
        w[i] = learners[k, 0, i] * (mu + v[i])  # 1 + a_i
    total = lam + move * p  # sum of the a_i
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
def absorb(learners, k, arm, propensity, loss, option, v, w):
    """One round of learner k: take in the loss of an arm that was drawn with that probability."""
    n = v.shape[0]
    estimate = loss / propensity
    learners[k, 1, n + 1] += stability(learners, k, arm, estimate, v, w)
    learners[k, 1, n + 2] += learners[k, 0, n + 1] * abs(estimate)
    learners[k, 0, n + 2] += 1.0
    learners[k, 1, arm] += estimate
    eta = n / (1.0 + learners[k, 1, n + 1])
    if option == ADAPTIVE:
        gamma = n / (2.0 * n + learners[k, 1, n + 2])
    else:
        gamma = min(0.5, math.sqrt(n / learners[k, 0, n + 2]))
    m0 = m1 = learners[k, 1, 0]
    for i in range(1, n - 1, 2):
        m0 = min(m0, learners[k, 1, i])
        m1 = min(m1, learners[k, 1, i + 1])
    smallest = min(min(m0, m1), learners[k, 1, n - 1])
    for i in range(n):
        v[i] = eta * (learners[k, 1, i] - smallest)
    mu = level(v, learners[k, 1, n], 1e-5, w)
    for i in range(n):
        w[i] = 1.0 / (mu + v[i])
    total, _, _ = power_sums(w)
    for i in range(n):
        learners[k, 0, i] = w[i] / total
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
