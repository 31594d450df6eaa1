"""alpha-FairCB with bandit feedback as in the code published with the paper: the gain is fed as a loss.

Only for showing what that does; the layout is that of `fair_bandit`.
"""

from alphafair.jit import kernel
from alphafair.kernels.log_barrier import ADAPTIVE, absorb
from alphafair.kernels.utility import marginal_utility


@kernel
def learn(shared, learners, context, arm, propensity, reward):
    """Feed the context's learner the loss +phi'(R) r, then earn r."""
    n = shared.shape[2] - 2
    gain = marginal_utility(shared[0, 0, arm], shared[0, 0, n]) * reward
    absorb(learners, context, arm, propensity, gain, ADAPTIVE, shared[0, 1, :n], shared[0, 2, :n])
    shared[0, 0, arm] += reward
