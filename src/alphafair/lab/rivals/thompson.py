"""Fair Thompson sampling: the arm of the largest w_i theta_i, theta_i normal around m_ji.

    theta_i ~ N(m_ji, scale^2/(n_ji + 1))

w and m are those of `_scores` with a prior of 2. The probability that an arm is the largest is computed, not sampled,
so that the policy knows its propensities: with v = w m, s = w scale/sqrt(n + 1) and the normal distribution function
F_i of v_i and s_i,

    p_i = integral of prod_{l != i} F_l dF_i,

by the trapezoidal rule on 32 equal cells between the largest v - 3.5 s and the largest v + 3.5 s, then normalized. Arms
whose v + 3.5 s is below the first cell have p = 0. A slate of k holds arm i with the probability that it is among the k
largest, which is the integral over dF_i of the probability that fewer than k others are above. F is an approximation
without exponentials, exact to 2e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.28).
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.algorithms import BasePolicy
from alphafair.jit import kernel
from alphafair.lab.rivals import _scores
from alphafair.lab.rivals._scores import A, C, N, admit, estimate, learn, learn_slate, start, weigh
from alphafair.math.capped import bar
from alphafair.math.distributions import draw_arm
from alphafair.math.slates import draw_slate as draw_from
from alphafair.math.utility import played_alpha
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

S = positions("alpha", "scale")
W = positions("arm", "center", "inverse_spread", "below", "before", "rest_before", "p")
T = positions(_scores.T, "spreads", f"work[{W.size}]")
PRIOR = 2.0
CELLS = 32
ROOT_HALF = math.sqrt(0.5)
REACH = 3.5  # standard deviations
LEAST_WEIGHT = 1e-150  # so that no standard deviation is 0


@kernel
def normal_below(z):
    """The normal distribution function."""
    x = abs(z) * ROOT_HALF
    q = 1.0 + x * (
        0.0705230784
        + x * (0.0422820123 + x * (0.0092705272 + x * (0.0001520143 + x * (0.0002765672 + x * 0.0000430638))))
    )
    q *= q
    q *= q
    q *= q
    tail = 0.5 / (q * q)
    return tail if z < 0.0 else 1.0 - tail


@kernel
def largest(centers, spreads, work, out):
    """Write the probability that each of these normal numbers is the largest to `out`.

    In `work`, by arms that can be the largest: their numbers, v and 1/s, F at both ends of a cell, the product of the
    others' F at both, and p. No F is 0, since the first cell starts above v - 3.5 s of every arm.
    """
    low, high = centers[0] - REACH * spreads[0], centers[0] + REACH * spreads[0]
    for i in range(1, out.shape[0]):
        low = max(low, centers[i] - REACH * spreads[i])
        high = max(high, centers[i] + REACH * spreads[i])
    n = 0
    for i in range(out.shape[0]):
        out[i] = 0.0
        if centers[i] + REACH * spreads[i] >= low:
            work[W.arm, n], work[W.center, n], work[W.inverse_spread, n] = i, centers[i], 1.0 / spreads[i]
            n += 1
    center, inverse_spread = work[W.center, :n], work[W.inverse_spread, :n]
    below, before, rest_before, p = work[W.below, :n], work[W.before, :n], work[W.rest_before, :n], work[W.p, :n]
    total = 0.0
    for k in range(CELLS + 1):
        x, product = low + k * (high - low) / CELLS, 1.0
        for i in range(n):
            below[i] = normal_below((x - center[i]) * inverse_spread[i])
        for i in range(n):
            product *= below[i]
        for i in range(n):
            rest = product / below[i]
            p[i] = 0.0 if k == 0 else p[i] + (below[i] - before[i]) * (rest + rest_before[i])
            before[i], rest_before[i] = below[i], rest
    for i in range(n):
        total += p[i]
    for i in range(n):
        out[int(work[W.arm, i])] = p[i] / total


@kernel
def among_largest(centers, spreads, k, work, out):
    """Write the probability that each of these normal numbers is among the k largest to `out`; k is below their number.

    Cells lie between the k-th largest v - 3.5 s and the k-th largest v + 3.5 s: below them k others are above, and
    above them fewer. In `work`, by arms: F at the end of a cell and at its start, the probability that fewer than k
    others are above at its start; and the probability that so many others are above, for 0 to k-1.
    """
    n = out.shape[0]
    below, before, fewer_before, above = work[W.below], work[W.before], work[W.rest_before], work[W.p]
    for i in range(n):
        before[i], below[i] = centers[i] - REACH * spreads[i], centers[i] + REACH * spreads[i]
        out[i] = 0.0
    low, high = bar(before, k, above), bar(below, k, above)
    for cell in range(CELLS + 1):
        x = low + cell * (high - low) / CELLS
        for i in range(n):
            below[i] = normal_below((x - centers[i]) / spreads[i])
        for i in range(n):
            for s in range(k):
                above[s] = 1.0 if s == 0 else 0.0
            for j in range(n):
                if j != i:
                    for s in range(k - 1, 0, -1):
                        above[s] = above[s] * below[j] + above[s - 1] * (1.0 - below[j])
                    above[0] *= below[j]
            fewer = 0.0
            for s in range(k):
                fewer += above[s]
            if cell > 0:
                out[i] += 0.5 * (below[i] - before[i]) * (fewer + fewer_before[i])
            fewer_before[i] = fewer
        for i in range(n):
            before[i] = below[i]
    for i in range(n):
        out[i] += 1.0 - before[i]
    settle_on(out, k)


@kernel
def settle_on(p, k):
    """Scale probabilities to the sum k, or what they are short of 1, so that none rises above it."""
    total, n = 0.0, p.shape[0]
    for i in range(n):
        p[i] = min(1.0, max(0.0, p[i]))
        total += p[i]
    for i in range(n):
        p[i] = p[i] * (k / total) if total > k else 1.0 - (1.0 - p[i]) * ((n - k) / (n - total))


@kernel
def score(memory, context):
    """Write v and s to scratch."""
    scratch, settings, counts = memory.scratch, memory.settings, memory.contexts[context, C.counts]
    weights, means, spreads = scratch[T.weights], scratch[T.means], scratch[T.spreads]
    weigh(memory.arms[A.total], settings[S.alpha], weights)
    estimate(memory, context, PRIOR, means)
    for i in range(means.shape[0]):
        means[i] *= weights[i]
        spreads[i] = max(weights[i], LEAST_WEIGHT) * settings[S.scale] / math.sqrt(counts[i] + 1.0)


@kernel
def draw(memory, context, uniform, out):
    """Write the distribution to `out`, and draw an arm."""
    score(memory, context)
    largest(memory.scratch[T.means], memory.scratch[T.spreads], memory.scratch[T.work :], out)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def draw_slate(memory, context, k, uniform, out, slate):
    """Write the probabilities of all arms to be in the slate to `out`, and draw it."""
    if k == out.shape[0]:
        for i in range(k):
            out[i] = 1.0
    else:
        score(memory, context)
        among_largest(memory.scratch[T.means], memory.scratch[T.spreads], k, memory.scratch[T.work :], out)
    return draw_from(out, k, uniform, slate)


class FairThompson(BasePolicy):
    """Play each arm with the probability that $R_i^{-\\alpha} \\theta_i$ is the largest, theta normal around the means.

    The standard deviation of theta is `scale` over the root of 1 + the number of rewards in the context.
    """

    name: ClassVar[str] = "fair-thompson"
    feedback = Feedback.BANDIT
    alpha: float
    traits = Traits(slates=True, style=("#aa4499", "d"))
    algorithm = Algorithm(
        Layout(S, N, A, contexts=C, scratch=T),
        draw,
        learn,
        start,
        admit=admit,
        draw_slate=draw_slate,
        learn_slate=learn_slate,
        accounts="total",
    )

    def __init__(
        self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, scale: float = 0.1, seed: int | None = None
    ) -> None:
        self.alpha = validate.alpha(alpha)
        self.scale = validate.number("scale", scale, low=0.0, high=100.0, low_open=True)
        super().__init__(n_contexts, n_arms, settings={"alpha": self.alpha, "scale": self.scale}, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return {**self.settings, "alpha": played_alpha(self.alpha)}
