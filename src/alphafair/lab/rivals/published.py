"""The policies of the code published with the paper, which differ from its text."""

import math
from dataclasses import replace
from typing import ClassVar

from alphafair.algorithms.alpha_fair import A as ASCENT_ARMS
from alphafair.algorithms.alpha_fair import AlphaFair, K, T
from alphafair.algorithms.alpha_fair import C as ASCENT_CONTEXTS
from alphafair.algorithms.alpha_fair_bandit import A as BANDIT_ARMS
from alphafair.algorithms.alpha_fair_bandit import AlphaFairBandit
from alphafair.algorithms.alpha_fair_bandit import S as BANDIT_SETTINGS
from alphafair.jit import kernel
from alphafair.math.log_barrier import ADAPTIVE, absorb
from alphafair.math.simplex import project
from alphafair.math.utility import earn, marginal_utility


@kernel
def learn_with_published_sign(memory, context, arm, propensity, reward):
    """Feed the context's learner the loss +phi'(R) r (the published sign error), then earn r."""
    account = memory.arms[BANDIT_ARMS.account]
    gain = marginal_utility(account[arm], memory.settings[BANDIT_SETTINGS.alpha]) * reward
    numbers = memory.context_scalars[context]
    absorb(memory.contexts[context], numbers, arm, propensity, gain, ADAPTIVE, memory.scratch)
    account[arm] += reward
    return True


@kernel
def learn_with_published_step(memory, context, probabilities, rewards):
    """S_j += ||g|| (published, instead of its square); x^j <- projection of x^j + g/sqrt(S_j); R += x r."""
    n, x, own = rewards.shape[0], memory.contexts[context, ASCENT_CONTEXTS.x], memory.context_scalars[context]
    slope, step = memory.arms[ASCENT_ARMS.slope], memory.scratch[T.step]
    squared_norm = 0.0
    for i in range(n):
        step[i] = slope[i] * rewards[i]
        squared_norm += step[i] * step[i]
    if squared_norm > 0.0:
        own[K.squared_norms] += math.sqrt(squared_norm)
        step_size = 1.0 / math.sqrt(own[K.squared_norms])
        for i in range(n):
            step[i] = x[i] + step_size * step[i]
        project(step, x)
    earn(memory.arms, memory.settings, 1.0, probabilities, rewards)


class PublishedSign(AlphaFairBandit):
    """`AlphaFairBandit` with the sign of the code published with the paper."""

    name: ClassVar[str] = "published-sign"
    algorithm = replace(AlphaFairBandit.algorithm, learn=learn_with_published_sign)
    traits = replace(AlphaFairBandit.traits, style=("#661100", "*"))


class PublishedStep(AlphaFair):
    """`AlphaFair` with the step size of the code published with the paper; it has no certificate."""

    name: ClassVar[str] = "published-step"
    algorithm = replace(AlphaFair.algorithm, learn=learn_with_published_step, learn_in_order=None)
    traits = replace(AlphaFair.traits, style=("#661100", "*"))
    surrogate_regret_bound = None
