"""Every arm alike, whatever happens; both arrays stay empty."""

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm


@kernel
def draw(shared, learners, context, uniform, out):
    """Write 1/n to `out` and draw an arm from it."""
    for i in range(out.shape[0]):
        out[i] = 1.0 / out.shape[0]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn_full(shared, learners, context, probabilities, rewards):
    """Nothing."""


@kernel
def learn_bandit(shared, learners, context, arm, propensity, reward):
    """Nothing."""
