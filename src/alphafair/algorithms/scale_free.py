"""The scale-free adversarial bandit of Putta and Agrawal: one learner for all contexts, with the loss -r.

The learner is in `alphafair.math.log_barrier`.
"""

from typing import Any, ClassVar, Literal

from alphafair import validate
from alphafair.jit import kernel
from alphafair.math import log_barrier
from alphafair.math.log_barrier import absorb, explore, least_propensity
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

EXPLORATIONS = {"adaptive": log_barrier.ADAPTIVE, "sqrt": log_barrier.SQRT}
S = positions("option", "most_arms")


@kernel
def draw(memory, context, uniform, out):
    """Write the learner's distribution to `out` and draw an arm from it."""
    return explore(memory.arms, memory.scalars, uniform, out)


@kernel
def learn(memory, context, arm, propensity, reward):
    """Pass the loss -r to the learner; return False for an impossible propensity."""
    settings, numbers = memory.settings, memory.scalars
    if propensity < least_propensity(numbers, settings[S.most_arms], settings[S.option]) * (1.0 - 1e-9):
        return False
    absorb(memory.arms, numbers, arm, propensity, -reward, settings[S.option], memory.scratch)
    return True


def start(memory: Any) -> None:
    log_barrier.start(memory.arms, memory.scalars)


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an equal share of the probability."""
    log_barrier.admit(memory.arms[None], memory.scalars[None], n_kept, int(memory.settings[S.option]))


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {}, "sqrt": {"exploration": "sqrt"}}


class ScaleFree(BasePolicy):
    """Maximize the sum of rewards of any size and sign, with bandit feedback; ignores contexts.

    Follow the leader with a log barrier,
    $p = \\arg\\min_p \\langle p, L \\rangle - \\frac1\\eta \\sum_k \\log p_k$, on importance-weighted losses
    $\\tilde l = -r/p'_i$, at a rate $\\eta = n/(1 + \\sum M)$ that falls with the learner's own stability, and
    plays $p' = (1-\\gamma) p + \\gamma/n$. It needs no range of rewards.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; contexts are ignored.
    exploration
        `"adaptive"`: $\\gamma = n/(2n + \\sum \\gamma |l|/p')$, as in the paper's experiments; `"sqrt"`:
        $\\gamma = \\min(1/2, \\sqrt{n/t})$.
    seed
        Seed of `choose` without `rng`.

    Examples
    --------
    >>> from alphafair import ScaleFree
    >>> policy = ScaleFree(n_contexts=1, n_arms=2, seed=3)
    >>> for _ in range(300):
    ...     decision = policy.choose(0)
    ...     policy.update(decision, 5000.0 if decision.arm == 1 else -2000.0)
    >>> bool(policy.probabilities(0)[1] > 0.9)
    True

    References
    ----------
    Putta and Agrawal, Scale-Free Adversarial Multi-Armed Bandits, PMLR 167, 2022, Algorithm 1.
    """

    name: ClassVar[str] = "scale-free"
    feedback = Feedback.BANDIT
    traits = Traits(reward_range=validate.ANY_REWARD, style=("#E69F00", "v"), variants=variants)
    algorithm = Algorithm(
        Layout(S, log_barrier.NUMBERS, log_barrier.ROWS, scratch=log_barrier.SCRATCH),
        draw,
        learn,
        start,
        admit=admit,
        check=lambda memory: log_barrier.check_memory(memory.arms, memory.scalars),
        least_propensity=lambda memory, context: float(
            least_propensity(memory.scalars, memory.settings[S.most_arms], memory.settings[S.option])
        ),
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        exploration: Literal["adaptive", "sqrt"] = "adaptive",
        seed: int | None = None,
    ) -> None:
        validate.choice("exploration", exploration, EXPLORATIONS)
        super().__init__(n_contexts, n_arms, settings={"exploration": exploration}, seed=seed)

    @property
    def exploration(self) -> str:
        """How the exploration falls: "adaptive" or "sqrt"."""
        return self.settings["exploration"]

    def _numbers(self) -> dict[str, Any]:
        return {"option": EXPLORATIONS[self.settings["exploration"]], "most_arms": self.n_arms}
