"""alpha-FairCB with bandit feedback as in the code published with the paper: the gain is fed as a loss.

Only for showing what that does; the layout is that of `fair_bandit`.
"""

from alphafair.jit import kernel
from alphafair.kernels.fair_bandit import ALPHA, TOTAL
from alphafair.kernels.log_barrier import ADAPTIVE, V, W, absorb
from alphafair.kernels.memory import ARMS, SETTINGS
from alphafair.kernels.utility import marginal_utility


@kernel
def learn(work, shared, learners, context, arm, propensity, reward):
    """Feed the context's learner the loss +phi'(R) r, then earn r."""
    total = shared[0, TOTAL, ARMS:]
    n = total.shape[0]
    gain = marginal_utility(total[arm], work[SETTINGS, ALPHA]) * reward
    absorb(learners, context, arm, propensity, gain, ADAPTIVE, work[V, :n], work[W, :n])
    total[arm] += reward
    return True
