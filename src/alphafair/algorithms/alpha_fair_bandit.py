"""alpha-FairCB with bandit feedback (Algorithm 2): one scale-free learner per context, one shared account R.

Round t, context c, arm I drawn, reward r:   feed learner c the loss -phi'(R_I) r ;   R_I += r

From alpha = 1 on the loss is -(W/R_I)^alpha r, with W the welfare of all accounts: N times the gradient of W. The rate
of the learner adapts to losses down to a size of about 1 only, and R^-alpha r would soon be far below.

The sign matters: with the gain itself as a loss, a learner prefers the worst arm. With groups R is R_G/s_G of the
group; with floors the distribution is raised to them: see `alphafair.math.floors`. The learner is in
`alphafair.math.log_barrier`.
"""

import math
from typing import Any, ClassVar

from alphafair import validate
from alphafair.groups import Groups, Labels
from alphafair.jit import kernel
from alphafair.math import log_barrier
from alphafair.math.distributions import draw_arm
from alphafair.math.floors import R, earn_one, keep_floors, least_drawn, mask_and_keep_floors
from alphafair.math.log_barrier import ADAPTIVE, absorb, explore, least_propensity
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
    traits = Traits(style=("#56B4E9", "s"), variants=variants)
    algorithm = Algorithm(
        Layout(
            settings=S,
            arms=A,
            context_scalars=log_barrier.NUMBERS,
            contexts=log_barrier.ROWS,
            scratch=log_barrier.SCRATCH,
            only_with_groups="earned",
        ),
        draw,
        learn,
        start,
        start_contexts,
        admit,
        mask=mask_and_keep_floors,
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
