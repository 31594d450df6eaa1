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

A learner is two rows with a column per arm, `p` and `losses` (L), and six numbers: `rate` (eta), `exploration` (gamma),
`rounds` (t), `level` (lambda of the leader, where the next search begins), `stability_sum`, `exploration_sum`.
"""

import math

import numpy as np

from alphafair.jit import kernel, repeated
from alphafair.math.distributions import draw_arm
from alphafair.values.arrays import positions

ADAPTIVE, SQRT = 0, 1  # how gamma is set
ROWS = positions("p", "losses")
NUMBERS = positions("rate", "exploration", "rounds", "level", "stability_sum", "exploration_sum")
SCRATCH = positions("v", "w")


def start(rows: np.ndarray, numbers: np.ndarray) -> None:
    """Start one or many learners: uniform, eta = n, gamma = 1/2, level n since every eta L_k is 0."""
    n = rows.shape[-1]
    rows[..., ROWS.p, :] = 1.0 / n
    rows[..., ROWS.losses, :] = 0.0
    numbers[...] = 0.0
    numbers[..., NUMBERS.rate], numbers[..., NUMBERS.exploration], numbers[..., NUMBERS.level] = n, 0.5, n


def check_memory(rows: np.ndarray, numbers: np.ndarray) -> str | None:
    """Check that probabilities, rates and sums of learners are positive and finite."""
    positive = rows[..., ROWS.p, :].min() > 0.0 and numbers[..., NUMBERS.rate].min() > 0.0
    finite = np.isfinite(rows).all() and np.isfinite(numbers).all()
    return None if positive and finite and numbers.min() >= 0.0 else "with positive probabilities, rates and sums"


@kernel
def power_sums(w):
    """Sums of w, w^2 and w^3; four partial sums each, for instruction-level parallelism."""
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

    Newton on f = 1/sum - 1, which is concave and nearly straight: from the left it increases to the root without
    overshooting, and from the right its first step lands on the left. `bend`, f f''/(2 f'^2), is how far f is from
    straight: where it is small the step is corrected for it (Halley). The relative error left is about the cube of the
    tolerance.
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
    """Return the logarithm of a product of positive numbers, with one `log` for many factors."""
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
def follow(rows, numbers, option, scratch):
    """Compute eta, gamma and p of a learner from its losses and its two sums."""
    p, losses, v, w = rows[ROWS.p], rows[ROWS.losses], scratch[SCRATCH.v], scratch[SCRATCH.w]
    n = p.shape[0]
    eta = n / (1.0 + numbers[NUMBERS.stability_sum])
    m0 = m1 = losses[0]
    for i in range(1, n - 1, 2):
        m0 = min(m0, losses[i])
        m1 = min(m1, losses[i + 1])
    smallest = min(min(m0, m1), losses[n - 1])
    for i in range(n):
        v[i] = eta * (losses[i] - smallest)
    mu = level(v, numbers[NUMBERS.level], 1e-5, w)
    for i in range(n):
        w[i] = 1.0 / (mu + v[i])
    total, _, _ = power_sums(w)
    for i in range(n):
        p[i] = w[i] / total
    numbers[NUMBERS.rate], numbers[NUMBERS.level] = eta, mu
    numbers[NUMBERS.exploration] = exploration(numbers[NUMBERS.exploration_sum], numbers[NUMBERS.rounds], n, option)


@kernel
def absorb(rows, numbers, arm, propensity, loss, option, scratch):
    """Learn from the loss of an arm that was drawn with this propensity."""
    p, losses = rows[ROWS.p], rows[ROWS.losses]
    estimate = loss / propensity
    moved = stability(p, numbers[NUMBERS.rate], arm, estimate, scratch[SCRATCH.v], scratch[SCRATCH.w])
    numbers[NUMBERS.stability_sum] += moved
    numbers[NUMBERS.exploration_sum] += numbers[NUMBERS.exploration] * abs(estimate)
    numbers[NUMBERS.rounds] += 1.0
    losses[arm] += estimate
    follow(rows, numbers, option, scratch)


@kernel
def explore(rows, numbers, uniform, out):
    """Write p' = (1 - gamma) p + gamma/n to `out` and draw an arm from it."""
    n = out.shape[0]
    p, gamma = rows[ROWS.p], numbers[NUMBERS.exploration]
    for i in range(n):
        out[i] = (1.0 - gamma) * p[i] + gamma / n
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def least_propensity(numbers, most_arms, option):
    """Return gamma/n with the largest number of arms so far: a lower bound of all propensities."""
    rounds = max(numbers[NUMBERS.rounds], 1.0)
    return exploration(numbers[NUMBERS.exploration_sum], rounds, most_arms, option) / most_arms


def admit(rows: np.ndarray, numbers: np.ndarray, n_kept: int, option: int) -> None:
    """Give new arms, after the first `n_kept`, an equal share of p; the others keep their proportions.

    For many learners: `rows` are (learner, row, arm).
    """
    n, scratch = rows.shape[2], np.empty((SCRATCH.size, rows.shape[2]))
    find_level, update = repeated(level, len(rows)), repeated(follow, len(rows))
    share = n_kept / n  # of the remaining arms together
    for learner, own in zip(rows, numbers, strict=True):
        if own[NUMBERS.rounds] == 0.0:
            start(learner, own)
            continue
        losses = learner[ROWS.losses]
        eta = n / (1.0 + own[NUMBERS.stability_sum])
        smallest = losses[:n_kept].min()
        # sum_k 1/(mu + eta L_k) = share over the remaining arms, and 1/(mu + eta L_new) = 1/n
        mu = find_level(share * eta * (losses[:n_kept] - smallest), 1.0, 1e-5, scratch[SCRATCH.w, :n_kept]) / share
        losses[n_kept:] = smallest + (n - mu) / eta
        update(learner, own, option, scratch)
