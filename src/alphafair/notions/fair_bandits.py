"""FairBandits: play arms alike until one is better than another with high confidence.

interval of an arm: [0, 1] at first, m -+ sqrt(ln((pi (t_j + 1))^2/(3 delta_j))/(2 n)) after each of its pulls
active arms: linked by overlapping intervals, directly or through others, to that of the largest upper end
play all active arms with equal probability; the others have left for ever

delta_j = delta/M · `low`, `high`: the interval · `active`: 1 or 0
"""

import math
from typing import Any, ClassVar

import numpy as np

from alphafair import validate
from alphafair.jit import kernel
from alphafair.math.distributions import draw_arm
from alphafair.notions._counts import C as COUNTS
from alphafair.notions._counts import K, add_reward
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

S = positions("delta")
C = positions(COUNTS, "low", "high", "active")


@kernel
def draw(memory, context, uniform, out):
    """Draw one of the active arms."""
    active, n_active = memory.contexts[context, C.active], 0.0
    for i in range(out.shape[0]):
        n_active += active[i]
    for i in range(out.shape[0]):
        out[i] = active[i] / n_active
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def leave(rows):
    """Let the active arms leave that nothing links to the one of the largest upper end."""
    n, reach, top = rows.shape[1], math.inf, -math.inf
    for i in range(n):
        if rows[C.active, i] == 1.0 and rows[C.high, i] > top:
            top, reach = rows[C.high, i], rows[C.low, i]
    spreading = True
    while spreading:
        spreading = False
        for i in range(n):
            if rows[C.active, i] == 1.0 and rows[C.high, i] >= reach and rows[C.low, i] < reach:
                reach, spreading = rows[C.low, i], True
    for i in range(n):
        if rows[C.high, i] < reach:
            rows[C.active, i] = 0.0


@kernel
def learn(memory, context, arm, propensity, reward):
    """Move the interval of the arm, and let arms leave."""
    add_reward(memory, context, arm, reward)
    rows, n_contexts = memory.contexts[context], memory.contexts.shape[0]
    n, t = rows[C.counts, arm], memory.context_scalars[context, K.visits]
    log_odds = 2.0 * math.log(math.pi * (t + 1.0)) - math.log(3.0 * memory.settings[S.delta] / n_contexts)
    radius, mean = math.sqrt(log_odds / (2.0 * n)), rows[C.sums, arm] / n
    rows[C.low, arm], rows[C.high, arm] = mean - radius, mean + radius
    leave(rows)
    return True


def start_contexts(memory: Any) -> None:
    """Every arm is active, with the interval [0, 1]."""
    memory.contexts[:, C.high] = memory.contexts[:, C.active] = 1.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """New arms are active. Where all active arms have retired, the others are active again."""
    rows = memory.contexts
    rows[:, C.high, n_kept:] = rows[:, C.active, n_kept:] = 1.0
    rows[np.flatnonzero(rows[:, C.active].sum(axis=1) == 0.0), C.active] = 1.0


def check(memory: Any) -> str | None:
    """Check that every context has an active arm."""
    active = memory.contexts[:, C.active]
    sound = np.isin(active, (0.0, 1.0)).all() and active.any(axis=1).all()
    return None if sound else "with an active arm in every context"


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {}, "bold": {"delta": 0.9}}


class FairBandits(BasePolicy):
    """Never favor a worse arm: FairBandits, not to be confused with `AlphaFairBandit`.

    The promise is that with probability $1 - \\delta$, in all rounds, $p_i > p_k$ only if $\\mu_i > \\mu_k$ in the
    context. Arms whose confidence intervals are linked to the one of the largest upper end, directly or through others,
    are played with equal probability; the others have left for ever.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    delta
        The probability, in (0, 1), with which the promise may be broken; each context has delta/n_contexts.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    Each context has its own intervals, which the paper, without contexts, has once. The promise is for rewards that are
    independent with constant means in a context: under drift an arm that left does not return. Contexts that are added
    make later intervals wider and leave earlier ones as they are, so the promise then covers fewer errors than it
    allows for. Late rewards are learned from in the order of their arrival and only delay a separation; a mask is
    renormalized. Where all active arms of a context retire, the others are played again.

    The price is uniform play for a long time: with 167 pulls per context and arm, intervals are 0.27 wide on each side.
    While no arm has left the log of this policy can be used to evaluate others; later only those that play the active
    arms.

    Examples
    --------
    >>> from alphafair.notions import FairBandits
    >>> policy = FairBandits(1, 2, seed=0)
    >>> for _ in range(100):
    ...     decision = policy.choose(0)
    ...     policy.update(decision, 0.9 if decision.arm == 1 else 0.1)
    >>> policy.probabilities(0).tolist()
    [0.0, 1.0]

    References
    ----------
    Joseph, Kearns, Morgenstern and Roth, Fairness in Learning: Classic and Contextual Bandits, NeurIPS 2016.
    """

    name: ClassVar[str] = "fair-bandits"
    feedback = Feedback.BANDIT
    traits = Traits(variants=variants, contexts_apart=False)
    algorithm = Algorithm(
        Layout(settings=S, context_scalars=K, contexts=C),
        draw,
        learn,
        start_contexts=start_contexts,
        admit=admit,
        check=check,
    )

    def __init__(self, n_contexts: int, n_arms: int, *, delta: float = 0.05, seed: int | None = None) -> None:
        delta = validate.number("delta", delta, low=0.0, high=1.0, low_open=True, high_open=True)
        self.delta = delta
        super().__init__(n_contexts, n_arms, settings={"delta": delta}, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return self.settings
