"""A policy in plain Python: epsilon-greedy, with the mean reward of every arm in every context.

Run, in this folder:

    alphafair check epsilon_greedy:EpsilonGreedy
    alphafair simulate --policy epsilon_greedy:EpsilonGreedy --policy alpha-fair-bandit

After `alphafair.register(EpsilonGreedy)` engines know it by its name: `engine.create(..., policy="epsilon-greedy")`.
"""

import numpy as np

from alphafair.extend import Array, Feedback, PlainPolicy, validate


class EpsilonGreedy(PlainPolicy):
    """Play the arm with the highest mean so far, of equal ones the first; with probability epsilon any arm."""

    name = "epsilon-greedy"
    feedback = Feedback.BANDIT
    sums = Array("contexts", "arms")  # of rewards
    counts = Array("contexts", "arms")

    def __init__(self, n_contexts: int, n_arms: int, *, epsilon: float = 0.1, seed: int | None = None) -> None:
        self.epsilon = validate.number("epsilon", epsilon, low=0.0, high=1.0)
        super().__init__(n_contexts, n_arms, settings={"epsilon": self.epsilon}, seed=seed)

    def distribution(self, context: int) -> np.ndarray:
        means = self.sums[context] / np.maximum(self.counts[context], 1.0)
        p = np.full(len(means), self.epsilon / len(means))
        p[means.argmax()] += 1.0 - self.epsilon
        return p

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        self.sums[context, arm] += reward
        self.counts[context, arm] += 1.0
