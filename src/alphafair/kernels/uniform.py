"""Every arm alike, whatever happens; the memory is empty."""

from alphafair.jit import kernel
from alphafair.kernels.draw import draw_arm
from alphafair.kernels.memory import rearranged


@kernel
def draw(work, shared, learners, context, uniform, out):
    """Write 1/n to `out` and draw an arm from it."""
    for i in range(out.shape[0]):
        out[i] = 1.0 / out.shape[0]
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def learn_full(work, shared, learners, context, probabilities, rewards):
    """Nothing."""


@kernel
def learn_bandit(work, shared, learners, context, arm, propensity, reward):
    """Nothing."""
    return True


def change_arms(work, shared, learners, kept, entries):
    """Nothing but the room for them."""
    return rearranged(shared, kept, len(entries)), learners
