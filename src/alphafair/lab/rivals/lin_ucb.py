"""Fair LinUCB, for rounds with features of the context: the arm of the largest w_i U_i.

With z = (1, features) and a ridge of 1,

    A_i = I + sum z z' ;   b_i = sum z r ;   U_i = max(0, z'A_i^-1 b_i + width sqrt(z'A_i^-1 z))

over the rounds in which arm i was played (Li and others, A Contextual-Bandit Approach to Personalized News Article
Recommendation, WWW 2010). The contexts themselves are ignored. Weights w are those of `_scores`; ties are broken
uniformly. A^-1 is updated by the formula of Sherman and Morrison:

    u = A^-1 z ;   A^-1 -= u u'/(1 + z'u) ;   theta = A^-1 b

    A^-1 `gram`, row by row of its lower half, b `moment` and theta of `least_squares.FeatureMemory`
"""

import math
from typing import Any, ClassVar

import numpy as np

from alphafair import validate
from alphafair.algorithms import BasePolicy
from alphafair.jit import kernel
from alphafair.lab.rivals import _scores
from alphafair.lab.rivals._scores import play_largest, weigh
from alphafair.math.distributions import draw_arm
from alphafair.math.least_squares import show as show_features
from alphafair.math.utility import played_alpha
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

FEATURES = True  # always: it has nothing else to learn from
S = positions("alpha", "width")
A = positions("total")
T = positions("weights")


@kernel
def apply_inverse(features, arm, out):
    """out = A^-1 z of an arm; return z'A^-1 z."""
    inverse, z, n = features.gram, features.z, features.z.shape[0]
    for k in range(n):
        out[k] = 0.0
    row = 0
    for k in range(n):
        for j in range(k):
            out[k] += inverse[row + j, arm] * z[j, 0]
            out[j] += inverse[row + j, arm] * z[k, 0]
        out[k] += inverse[row + k, arm] * z[k, 0]
        row += k + 1
    square = 0.0
    for k in range(n):
        square += z[k, 0] * out[k]
    return square


@kernel
def draw(memory, context, uniform, out):
    """Draw uniformly from the arms with the largest w U."""
    features, weights, width = memory.features, memory.scratch[T.weights], memory.settings[S.width]
    theta, z, work = features.theta, features.z, features.lower[0]
    weigh(memory.arms[A.total], memory.settings[S.alpha], weights)
    for i in range(out.shape[0]):
        square, mean = apply_inverse(features, i, work), 0.0
        for k in range(z.shape[0]):
            mean += theta[k, i] * z[k, 0]
        out[i] = weights[i] * max(0.0, mean + width * math.sqrt(max(square, 0.0)))
    play_largest(out, 1.0)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn(memory, context, arm, propensity, reward):
    """Update A^-1, b and theta of the arm, and its account."""
    features = memory.features
    inverse, moment, theta, z, work = features.gram, features.moment, features.theta, features.z, features.lower[0]
    n, scale, row = z.shape[0], 1.0 / (1.0 + apply_inverse(features, arm, work)), 0
    for k in range(n):
        for j in range(k + 1):
            inverse[row + j, arm] -= scale * work[k] * work[j]
        row += k + 1
        moment[k, arm] += z[k, 0] * reward
        theta[k, arm] = 0.0
    row = 0
    for k in range(n):
        for j in range(k):
            theta[k, arm] += inverse[row + j, arm] * moment[j, arm]
            theta[j, arm] += inverse[row + j, arm] * moment[k, arm]
        theta[k, arm] += inverse[row + k, arm] * moment[k, arm]
        row += k + 1
    memory.arms[A.total, arm] += reward
    return True


@kernel
def show(memory, features, t):
    """Write the features of round t to memory; return whether they changed."""
    return show_features(memory.features.z, features, t)


def start(memory: Any) -> None:
    """Set R = 1 and A = I."""
    _scores.start(memory)
    open_columns(memory, 0)


def open_columns(memory: Any, first: int) -> None:
    """Set A = I for the arms from `first` on."""
    diagonal = np.cumsum(np.arange(1, len(memory.features.z) + 1)) - 1
    memory.features.gram[diagonal, first:] = 1.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an account, and A = I."""
    _scores.admit(memory, n_kept, some_left, entries)
    open_columns(memory, n_kept)


class FairLinUCB(BasePolicy):
    """Play the arm of the largest $R_i^{-\\alpha} U_i$, U an upper confidence bound that is linear in features."""

    name: ClassVar[str] = "fair-lin-ucb"
    feedback = Feedback.BANDIT
    alpha: float
    traits = Traits(style=("#dd7700", "P"))
    algorithm = Algorithm(
        Layout(S, arms=A, scratch=T), draw, learn, start, admit=admit, show=show, accounts="total", flags=("FEATURES",)
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        n_features: int,
        alpha: float = 0.9,
        width: float = 0.2,
        seed: int | None = None,
    ) -> None:
        self.alpha = validate.alpha(alpha)
        self.n_features = validate.integer("n_features", n_features, low=1)
        self.feature_shape = (self.n_features,)
        self.width = validate.number("width", width, low=0.0, high=100.0)
        settings = {"alpha": self.alpha, "n_features": self.n_features, "width": self.width}
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return {"alpha": played_alpha(self.alpha), "width": self.width}
