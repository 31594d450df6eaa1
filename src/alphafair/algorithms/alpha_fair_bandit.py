"""alpha-FairCB with bandit feedback (Algorithm 2): one scale-free learner per context, one shared account R.

Round t, context c, arm I drawn, reward r:   feed learner c the loss -phi'(R_I) r ;   R_I += r

From alpha = 1 on the loss is -(W/R_I)^alpha r, with W the welfare of all accounts: N times the gradient of W. The rate
of the learner adapts to losses down to a size of about 1 only, and R^-alpha r would soon be far below.

Slates: y is the leader of the learner's losses with the cap of `alphafair.math.capped`, and the losses of all shown
arms are added together. p = nu + keep ((1-gamma) y + gamma/n). Only sums are kept, so any k may follow any other.

The sign matters: with the gain itself as a loss, a learner prefers the worst arm. With groups R is R_G/s_G of the
group; with floors the distribution is raised to them: see `alphafair.math.floors`. The learner is in
`alphafair.math.log_barrier`.
"""

import math
from typing import Any, ClassVar

import numpy as np

from alphafair import validate
from alphafair.groups import Groups, Labels
from alphafair.jit import kernel
from alphafair.math import log_barrier
from alphafair.math.capped import capped_barrier, frame, inclusion, stability_capped
from alphafair.math.distributions import draw_arm
from alphafair.math.floors import F, R, earn_one, keep_floors, least_drawn, mask_and_keep_floors
from alphafair.math.log_barrier import ADAPTIVE, NUMBERS, ROWS, absorb, explore, follow, least_propensity
from alphafair.math.slates import draw_slate as draw_from
from alphafair.math.slates import least_shown
from alphafair.math.utility import entry_accounts, marginal_utility, played_alpha
from alphafair.math.welfare import welfare
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

WELFARE = True  # False in machine code for policies with alpha < 1

S = positions("alpha", "most_arms")  # most_arms: the number of arms, including retired ones
A = positions("account", "earned")
T = positions(log_barrier.SCRATCH, "y", "estimates")


@kernel
def draw(memory, context, uniform, out):
    """Write the context's distribution, raised to the floors, to `out` and draw an arm from it."""
    arm, propensity = explore(memory.contexts[context], memory.context_scalars[context], uniform, out)
    if keep_floors(memory.groups, out):
        arm = draw_arm(out, uniform)
        propensity = out[arm]
    return arm, propensity


@kernel
def learn(memory, context, arm, propensity, reward):
    """Pass the loss -phi'(R) r to the learner, and add r to the account; False for an impossible propensity."""
    settings, rows, numbers = memory.settings, memory.contexts[context], memory.context_scalars[context]
    least = least_propensity(numbers, settings[S.most_arms], ADAPTIVE)
    if propensity < least_drawn(memory.groups, arm, least) * (1.0 - 1e-9):
        return False
    account, size = memory.arms[A.account], 1.0
    if WELFARE and settings[S.alpha] >= 1.0:
        size = welfare(account, memory.groups.rows[R.weight], settings[S.alpha])
    gain = marginal_utility(account[arm] / size, settings[S.alpha]) * reward
    absorb(rows, numbers, arm, propensity, -gain, ADAPTIVE, memory.scratch)
    earn_one(memory.groups, memory.arms, A.earned, arm, reward)
    return True


@kernel
def prepare_slate(memory, context, k):
    """Write y, the leader with the cap, to scratch."""
    losses, numbers = memory.contexts[context, ROWS.losses], memory.context_scalars[context]
    distances, y, smallest = memory.scratch[T.v], memory.scratch[T.y], np.inf
    _, top, _ = frame(losses.shape[0], k, memory.groups.numbers[F.arm_floor])
    for i in range(losses.shape[0]):
        smallest = min(smallest, losses[i])
    for i in range(losses.shape[0]):
        distances[i] = numbers[NUMBERS.rate] * (losses[i] - smallest)
    capped_barrier(distances, top, numbers[NUMBERS.level], y)


@kernel
def draw_slate(memory, context, k, uniform, out, slate):
    """Write the probabilities of inclusion to `out`, draw k arms to `slate`, and return how many there are."""
    prepare_slate(memory, context, k)
    n, floor, y = out.shape[0], memory.groups.numbers[F.arm_floor], memory.scratch[T.y]
    keep, _, _ = frame(n, k, floor)
    gamma = memory.context_scalars[context, NUMBERS.exploration]
    for i in range(n):
        out[i] = inclusion(n, k, floor, keep, (1.0 - gamma) * y[i] + gamma / n)
    return draw_from(out, k, uniform, slate)


@kernel
def learn_slate(memory, context, k, arms, propensities, rewards, first):
    """Learn from rewards of some of the k arms of a decision; False for an impossible propensity."""
    settings, rows, numbers = memory.settings, memory.contexts[context], memory.context_scalars[context]
    losses, estimates, account = rows[ROWS.losses], memory.scratch[T.estimates], memory.arms[A.account]
    n, m, alpha, size = losses.shape[0], arms.shape[0], settings[S.alpha], 1.0
    least = least_shown(memory.groups, k, least_propensity(numbers, settings[S.most_arms], ADAPTIVE))
    for a in range(m):
        if propensities[a] < least * (1.0 - 1e-9):
            return False
    if WELFARE and alpha >= 1.0:
        size = welfare(account, memory.groups.rows[R.weight], alpha)
    for i in range(n):
        estimates[i] = 0.0
    for a in range(m):
        arm = arms[a]
        estimates[arm] = -marginal_utility(account[arm] / size, alpha) * rewards[a] / propensities[a]
    _, top, _ = frame(n, k, memory.groups.numbers[F.arm_floor])
    y, distances, q = memory.scratch[T.y], memory.scratch[T.v], memory.scratch[T.w]
    numbers[NUMBERS.stability_sum] += stability_capped(y, top, numbers[NUMBERS.rate], estimates, distances, q)
    for a in range(m):
        numbers[NUMBERS.exploration_sum] += numbers[NUMBERS.exploration] * abs(estimates[arms[a]])
        numbers[NUMBERS.rounds] += 1.0
        losses[arms[a]] += estimates[arms[a]]
    follow(rows, numbers, ADAPTIVE, memory.scratch)
    for a in range(m):
        earn_one(memory.groups, memory.arms, A.earned, arms[a], rewards[a])
    return True


def least_in_slate(memory: Any, context: int, k: int) -> float:
    """Return a lower bound of all propensities of slates of k arms."""
    least = least_propensity(memory.context_scalars[context], memory.settings[S.most_arms], ADAPTIVE)
    return float(least_shown(memory.groups, k, least))


def start(memory: Any) -> None:
    """R = 1 for every arm."""
    memory.arms[A.account] = 1.0


def start_contexts(memory: Any) -> None:
    log_barrier.start(memory.contexts, memory.context_scalars)


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Give new arms an account and, in every context, an equal share of the probability."""
    account = memory.arms[A.account]
    account[n_kept:] = entry_accounts(account[:n_kept], entries)
    log_barrier.admit(memory.contexts, memory.context_scalars, n_kept, ADAPTIVE)


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    steep = {"nash": {"alpha": 1.0}, "two": {"alpha": 2.0}, "max-min": {"alpha": math.inf}}
    return {"": {}, "efficient": {"alpha": 0.0}} | steep


class AlphaFairBandit(BasePolicy):
    """Maximize the alpha-fair utility of the rewards of every arm, with bandit feedback.

    One scale-free bandit per context, one shared R. Pulling arm I in context c with reward r has the gain
    $g = R_I^{-\\alpha} r$; the learner of the context gets the loss $-g$, importance-weighted by the propensity of the
    decision, and then $R_I \\mathrel{+}= r$. Gains shrink as R grows, so the learner must adapt to their size: a
    plain $\\sqrt T$ bound is empty for $\\alpha \\ge 1/2$. From alpha = 1 on they shrink too fast even for it, and the
    gain is $g = (W/R_I)^\\alpha r$ with $W$ the welfare of all accounts, without a theorem against adversaries.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    alpha
        Fairness, 0 to inf: 0 maximizes the sum of rewards, 1 the Nash welfare (proportional fairness), inf the poorest
        account. Above 64, inf included, it is played as 16, which serves the poorest account better.
    groups
        A `Groups`, or a label per arm. See docs/howto/groups_and_entitlements.md.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    Rewards must lie in [0, 1]. The loss is $-g$: with $+g$, as in the code published with the paper, the learner
    prefers the worst arm; with $1 - g$, it loses its rate. With rewards in order this is the algorithm of the paper;
    for late rewards it is an extension without a theorem (the propensity of the decision, and everything else at the
    time of the update).

    Examples
    --------
    >>> from alphafair import AlphaFairBandit
    >>> policy = AlphaFairBandit(n_contexts=2, n_arms=3, alpha=0.5, seed=1)
    >>> for _ in range(200):
    ...     decision = policy.choose(0)
    ...     policy.update(decision, 1.0 if decision.arm == 2 else 0.1)
    >>> int(policy.probabilities(0).argmax())
    2

    References
    ----------
    Chaudhary and Sinha, arXiv 2310.14164, Algorithm 2; Putta and Agrawal, Scale-Free Adversarial Multi-Armed
    Bandits, PMLR 167, 2022, Algorithm 1.
    """

    name: ClassVar[str] = "alpha-fair-bandit"
    feedback = Feedback.BANDIT
    alpha: float
    traits = Traits(slates=True, style=("#56B4E9", "s"), variants=variants)
    algorithm = Algorithm(
        Layout(
            settings=S,
            arms=A,
            context_scalars=log_barrier.NUMBERS,
            contexts=log_barrier.ROWS,
            scratch=T,
            only_with_groups="earned",
        ),
        draw,
        learn,
        start,
        start_contexts,
        admit,
        mask=mask_and_keep_floors,
        draw_slate=draw_slate,
        prepare_slate=prepare_slate,
        learn_slate=learn_slate,
        least_shown=least_in_slate,
        accounts="account",
        check=lambda memory: log_barrier.check_memory(memory.contexts, memory.context_scalars),
        least_propensity=lambda memory, context: float(
            least_propensity(memory.context_scalars[context], memory.settings[S.most_arms], ADAPTIVE)
        ),
        new_period=start_contexts,
        flags=("GROUPS", "WELFARE"),
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        groups: Groups | Labels | None = None,
        seed: int | None = None,
    ) -> None:
        self.alpha = validate.alpha(alpha)
        super().__init__(n_contexts, n_arms, settings={"alpha": self.alpha}, seed=seed, groups=groups)

    def _numbers(self) -> dict[str, Any]:
        return {"alpha": played_alpha(self.alpha), "most_arms": self.n_arms}
