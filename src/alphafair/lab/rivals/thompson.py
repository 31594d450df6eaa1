"""Fair Thompson sampling: the arm of the largest w_i theta_i, theta_i normal around m_ji.

    theta_i ~ N(m_ji, scale^2/(n_ji + 1))

w and m are those of `_scores` with k = 2. The probability that an arm is the largest is computed rather than sampled,
so that the policy knows its propensities: with v = w m, s = w scale/sqrt(n + 1) and the normal distribution function
F_i of v_i and s_i,

    p_i = integral of prod_{l != i} F_l dF_i,

by the trapezoidal rule on 32 equal cells between the largest v - 3.5 s and the largest v + 3.5 s, then normalized. Arms
whose v + 3.5 s is below the first cell have p = 0. F is an approximation without exponentials, exact to 2e-7
(Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.28).
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.algorithms import BasePolicy
from alphafair.jit import kernel
from alphafair.lab.rivals import _scores
from alphafair.lab.rivals._scores import A, C, N, admit, estimate, learn, start, weigh
from alphafair.math.distributions import draw_arm
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
def draw(memory, context, uniform, out):
    """Write the distribution to `out`, and draw an arm."""
    scratch, settings, counts = memory.scratch, memory.settings, memory.contexts[context, C.counts]
    weights, means, spreads = scratch[T.weights], scratch[T.means], scratch[T.spreads]
    weigh(memory.arms[A.total], settings[S.alpha], weights)
    estimate(memory, context, PRIOR, means)
    for i in range(out.shape[0]):
        means[i] *= weights[i]
        spreads[i] = max(weights[i], LEAST_WEIGHT) * settings[S.scale] / math.sqrt(counts[i] + 1.0)
    largest(means, spreads, scratch[T.work :], out)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


class FairThompson(BasePolicy):
    """Play each arm with the probability that $R_i^{-\\alpha} \\theta_i$ is the largest, theta normal around the means.

    The standard deviation of theta is `scale` over the root of 1 + the number of rewards in the context.
    """

    name: ClassVar[str] = "fair-thompson"
    feedback = Feedback.BANDIT
    alpha: float
    traits = Traits(style=("#aa4499", "d"))
    algorithm = Algorithm(Layout(S, N, A, contexts=C, scratch=T), draw, learn, start, admit=admit, accounts="total")

    def __init__(
        self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, scale: float = 0.1, seed: int | None = None
    ) -> None:
        self.alpha = validate.alpha(alpha)
        self.scale = validate.number("scale", scale, low=0.0, high=100.0, low_open=True)
        super().__init__(n_contexts, n_arms, settings={"alpha": self.alpha, "scale": self.scale}, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return {**self.settings, "alpha": played_alpha(self.alpha)}
