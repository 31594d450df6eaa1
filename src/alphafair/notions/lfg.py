"""Learning with fairness guarantee: virtual queues of what each arm is owed, as prices in a confidence bound.

play the largest Q_i + eta min(1, m_ji + width sqrt(ln t_j/n_ji)) ;   Q_i <- max(0, Q_i + r_i - [i played])

r `share` · Q `queue` · `waiting`: pulls that the queue has seen and that are not learned from yet
"""

from typing import Any, ClassVar

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.jit import kernel
from alphafair.notions._counts import (
    C,
    K,
    PerArm,
    PerArmPolicy,
    add_reward,
    default_share,
    draw_largest,
    per_arm,
    refuse_too_many,
    upper_bounds,
)
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import positions

S = positions("eta", "width")
A = positions("share", "queue", "waiting")


@kernel
def draw(memory, context, uniform, out):
    """Draw the arm with the largest queue plus eta times its bound."""
    settings, queue = memory.settings, memory.arms[A.queue]
    upper_bounds(memory.contexts[context], memory.context_scalars[context, K.visits], settings[S.width], out)
    for i in range(out.shape[0]):
        out[i] = queue[i] + settings[S.eta] * min(1.0, out[i])
    return draw_largest(out, uniform)


@kernel
def move_queues(memory, arm, rounds):
    """Q <- max(0, Q + r - [i played]) for a round that is counted (1) or taken back (-1)."""
    queue, share = memory.arms[A.queue], memory.arms[A.share]
    for i in range(queue.shape[0]):
        played = 1.0 if i == arm else 0.0
        queue[i] = max(0.0, queue[i] + rounds * (share[i] - played))


@kernel
def learn(memory, context, arm, propensity, reward):
    """Move the queues, unless `expect` has, and add the reward."""
    if memory.arms[A.waiting, arm] > 0.0:
        memory.arms[A.waiting, arm] -= 1.0
    else:
        move_queues(memory, arm, 1.0)
    add_reward(memory, context, arm, reward)
    return True


@kernel
def expect(memory, context, arm):
    """Move the queues before the reward arrives."""
    memory.arms[A.waiting, arm] += 1.0
    move_queues(memory, arm, 1.0)


@kernel
def forgo(memory, context, arm):
    """Move the queues back, for a reward that will never come."""
    if memory.arms[A.waiting, arm] > 0.0:
        memory.arms[A.waiting, arm] -= 1.0
        move_queues(memory, arm, -1.0)


def variants(_n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {}, "patient": {"shares": 0.25 / n_arms, "eta": 100.0, "width": 0.1}}


class LFG(PerArmPolicy):
    """Guarantee every arm a share of the pulls in the long run: virtual queues as prices.

    The promise is $\\liminf N_i(t)/t \\ge r_i$, and that no arm is behind by much more than `eta` pulls. Every arm has
    a queue of the pulls that it is owed, and each round goes to the largest
    $Q_i + \\eta \\min(1, m_{ji} + w \\sqrt{\\ln t_j / n_{ji}})$. So a debt is paid where its arm loses little.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    shares
        The promised shares of the pulls, in [0, 1], with a sum of at most 1: one number, a list with one per arm, or a
        mapping from arm to share, in which others have 0. Default: half an equal share. Arms that are added later have
        the one number, the share that a mapping names, or 0.
    eta
        The weight of rewards, above 0: a larger one earns more, and lets arms fall behind for longer.
    width
        w, in [0, 100]; sqrt(3/2) in the paper.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    The paper plays several arms per round, some of which sleep, and has no contexts: here one arm is played, masks take
    the place of sleep, there is one queue per arm for all contexts, and means are those of the context. A queue grows
    while its arm is absent, as in the paper. It moves at `expect`, if rewards come late, and at `update` otherwise;
    `forgo` moves it back. So the promise holds for rewards in order, and for late ones that are expected. Arms are
    drawn with probability 1: the log of this policy cannot be used to evaluate another.

    Examples
    --------
    >>> from alphafair import simulate, streams
    >>> from alphafair.notions import LFG
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=2, n_arms=4)
    >>> trace = simulate(LFG(2, 4, shares=0.2), stream, seed=0)
    >>> int(trace.pulls.min())  # 400 are promised, in the long run
    419

    References
    ----------
    Li, Liu and Ji, Combinatorial Sleeping Bandits with Fairness Constraints, INFOCOM 2019 and IEEE TNSE 7, 2020.
    """

    name: ClassVar[str] = "lfg"
    feedback = Feedback.BANDIT
    per_arm = "shares"
    row = A.share
    traits = Traits(variants=variants)
    algorithm = Algorithm(
        Layout(settings=S, arms=A, context_scalars=K, contexts=C), draw, learn, expect=expect, forgo=forgo
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        shares: PerArm | None = None,
        eta: float = 10.0,
        width: float = 1.5**0.5,
        seed: int | None = None,
    ) -> None:
        given = per_arm("shares", default_share(n_arms) if shares is None else shares, n_arms)
        total = sum(given.values()) if isinstance(given, dict) else given * n_arms
        if total > 1.0 + 1e-12:
            allowed = f"numbers in [0, 1] with a sum of at most 1 over {n_arms} arms"
            raise InvalidArgument("shares", allowed, shares, "Lower them.")
        settings = {
            "shares": given,
            "eta": validate.number("eta", eta, low=0.0, high=float("inf"), low_open=True),
            "width": validate.number("width", width, low=0.0, high=100.0),
        }
        vars(self).update(settings)
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return {name: self.settings[name] for name in S._fields}

    def _check_n_live(self, n_live: int) -> None:
        refuse_too_many("shares", self.settings["shares"], n_live, open_end=False)
