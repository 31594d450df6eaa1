"""BanditQ: a rate of reward for every arm, by virtual queues in the gains of a scale-free bandit.

the learner of the context gets the gain (Q_i + V) r/p of the arm played, V = sqrt(T)
Q_i <- max(0, Q_i + lambda_i - r [i played])

lambda `reward_rate` · Q `queue`; the learners are those of `alphafair.math.log_barrier`, gamma = min(1/2, sqrt(N/t_j))
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.jit import kernel
from alphafair.math import log_barrier
from alphafair.math.log_barrier import SQRT, absorb, explore, least_propensity
from alphafair.notions._counts import PerArm, PerArmPolicy, per_arm
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

S = positions("efficiency", "queue_first", "most_arms")  # V; most_arms includes retired ones
A = positions("reward_rate", "queue")


@kernel
def draw(memory, context, uniform, out):
    """Write the distribution of the context's learner to `out` and draw an arm from it."""
    return explore(memory.contexts[context], memory.context_scalars[context], uniform, out)


@kernel
def learn(memory, context, arm, propensity, reward):
    """Move the queues, and pass the gain to the learner; False for an impossible propensity."""
    settings, rows, numbers = memory.settings, memory.contexts[context], memory.context_scalars[context]
    queue, rate = memory.arms[A.queue], memory.arms[A.reward_rate]
    if propensity < least_propensity(numbers, settings[S.most_arms], SQRT) * (1.0 - 1e-9):
        return False
    before = queue[arm]
    for i in range(queue.shape[0]):
        paid = reward if i == arm else 0.0
        queue[i] = max(0.0, queue[i] + rate[i] - paid)
    owed = queue[arm] if settings[S.queue_first] == 1.0 else before
    absorb(rows, numbers, arm, propensity, -(owed + settings[S.efficiency]) * reward, SQRT, memory.scratch)
    return True


def start_contexts(memory: Any) -> None:
    """Start every learner uniform."""
    log_barrier.start(memory.contexts, memory.context_scalars)


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an equal share of the probability in every context; their queues are empty."""
    log_barrier.admit(memory.contexts, memory.context_scalars, n_kept, SQRT)


def variants(_n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    given = {"rates": 0.05 / n_arms, "horizon": 20_000}
    return {"": given, "queue-first": {**given, "queue_first": True}}


class BanditQ(PerArmPolicy):
    """Promise every arm a rate of reward over the horizon, without a model of rewards: BanditQ.

    The promise is $\\sum_t r_i(t) \\ge \\lambda_i T - O(T^{3/4})$ for every arm, for rates that can be paid. Every arm
    has a queue $Q_i$ of the reward that it is owed, and the scale-free learner of each context maximizes $\\sum (Q_i +
    V) r$ with $V = \\sqrt T$.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    rates
        The promised rewards per round, in [0, 1]: one number, a list with one per arm, or a mapping from arm to rate,
        in which others have 0. Arms that are added later have the one number, the rate that a mapping names, or 0, from
        their entry.
    horizon
        The expected number of rounds T.
    queue_first
        Whether the gain uses the queue after this round, as the public code does, or before it, as the paper does.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    The paper has no contexts: one queue per arm for all contexts, and one learner per context, are our extension. V is
    in units of reward, so rewards must lie in [0, 1]. Queues count rewards, at `update` and in any order: while rewards
    are late every arm looks owed. A mask is renormalized; queues go on growing meanwhile. Every propensity is at least
    $\\min(1/2, \\sqrt{N/t_j})/N$, so the log of this policy can be used to evaluate others.

    Examples
    --------
    >>> from alphafair import simulate, streams
    >>> from alphafair.notions import BanditQ
    >>> stream = streams.ratings(n_rounds=5000, n_contexts=2, n_arms=4)
    >>> trace = simulate(BanditQ(2, 4, rates=0.1, horizon=5000), stream, seed=0)
    >>> int(trace.final.min())  # 500 are promised
    521

    References
    ----------
    Sinha, BanditQ: Fair Bandits with Guaranteed Rewards, UAI 2024, arXiv 2304.05219; for the learner, Putta and
    Agrawal, Scale-Free Adversarial Multi-Armed Bandits, PMLR 167, 2022.
    """

    name: ClassVar[str] = "bandit-q"
    feedback = Feedback.BANDIT
    per_arm = "rates"
    row = A.reward_rate
    traits = Traits(variants=variants)
    algorithm = Algorithm(
        Layout(
            settings=S,
            arms=A,
            context_scalars=log_barrier.NUMBERS,
            contexts=log_barrier.ROWS,
            scratch=log_barrier.SCRATCH,
        ),
        draw,
        learn,
        start_contexts=start_contexts,
        admit=admit,
        check=lambda memory: log_barrier.check_memory(memory.contexts, memory.context_scalars),
        least_propensity=lambda memory, context: float(
            least_propensity(memory.context_scalars[context], memory.settings[S.most_arms], SQRT)
        ),
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        rates: PerArm,
        horizon: int,
        queue_first: bool = False,
        seed: int | None = None,
    ) -> None:
        n_arms = validate.integer("n_arms", n_arms, low=1)
        settings = {
            "rates": per_arm("rates", rates, n_arms),
            "horizon": validate.horizon(horizon),
            "queue_first": validate.choice("queue_first", queue_first, (False, True)),
        }
        vars(self).update(settings)
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        efficiency, first = math.sqrt(self.settings["horizon"]), float(self.settings["queue_first"])
        return {"efficiency": efficiency, "queue_first": first, "most_arms": self.n_arms}
