"""alpha-FairCB with full information (Algorithm 1): adaptive gradient ascent per context, one shared account R.

Round t, context j, distribution x used, rewards r, g = phi'(R_*) r:

    S_j += ||g||^2 ;   x^j <- projection of  x^j + g/sqrt(S_j) ;   R += x r

R_* is R before the round (as in the lemmas), after it, or at the next round of the context (as in the pseudo-code of
the paper). With groups and entitlements R is R_G/s_G of the group; with floors the distribution used keeps them: see
`alphafair.math.floors`.

    R `account` (with its slope phi'(R): `alphafair.math.utility`) · x^j `x` · S_j `squared_norms`
    `drift` is the sum of <g, x held - x used>: zero if rewards arrive in order and no arm is masked. With it the regret
    certificate holds for late and masked decisions too. `waiting` are the rewards of a step that is postponed to the
    next round of the context. `closed_roots`, `closed_norms`: see `alphafair.math.gradient_ascent`.

From alpha = 1 on, g is the gradient of the welfare, and `bound`, `unit`, `first_welfare` and `reopened` take the place
of `closed_roots` and `closed_norms`: see `alphafair.math.gradient_ascent`.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from alphafair import validate
from alphafair.groups import Groups, Labels
from alphafair.jit import kernel, repeated
from alphafair.math.distributions import draw_arm
from alphafair.math.floors import F, R, earn_together, keep_floors, mask_and_keep_floors, pool, price_units
from alphafair.math.gradient_ascent import (
    added_bound,
    ascend_on_floors,
    close_epoch,
    in_slopes,
    reopen_on_welfare,
    restart,
    restart_certificate,
    start_on_welfare,
)
from alphafair.math.utility import (
    ACCOUNT,
    SETTINGS,
    account_settings,
    admit_accounts,
    check_slopes,
    marginal_utility,
    open_accounts,
    played_alpha,
    reopen_accounts,
    set_entry_accounts,
)
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Matrix, Vector, positions

GROUPS = True  # False in machine code for policies without groups and floors
READINGS = True  # False in machine code for policies that evaluate phi' before the round
WELFARE = True  # False in machine code for policies with alpha < 1
BEFORE, NEXT_VISIT, AFTER = 0, 1, 2
MARGINALS = {"before": BEFORE, "next_visit": NEXT_VISIT, "after": AFTER}

S = positions(SETTINGS, "reading")
N = positions("drift")
N1 = positions(N, "bound", "unit", "first_welfare")  # for alpha >= 1
A = positions(ACCOUNT, "earned")
K = positions("squared_norms", "closed_roots", "closed_norms")  # of a context
K1 = positions("squared_norms", "reopened")  # for alpha >= 1
C = positions("x", "waiting")  # of a context, by arm
T = positions("step", "held")  # scratch


@kernel
def ascend(memory, context, rewards, out):
    """Write x after the ascent step to `out`; return S after it, and what it adds to `bound` for alpha >= 1."""
    x, slope, own = memory.contexts[context, C.x], memory.arms[A.slope], memory.context_scalars[context]
    alpha, before, step = memory.settings[S.alpha], own[K.squared_norms], memory.scratch[T.step]
    if WELFARE and alpha >= 1.0:
        unit, first = memory.scalars[N1.unit], memory.scalars[N1.first_welfare]
        scale, u = price_units(memory.groups, memory.arms, unit, first, alpha)
        after = ascend_on_floors(memory.groups, slope, scale, x, before, rewards, step, out)
        return after, added_bound(u, before, after, own[K1.reopened])
    return ascend_on_floors(memory.groups, slope, 1.0, x, before, rewards, step, out), 0.0


@kernel
def draw(memory, context, uniform, out):
    """Write the context's distribution, with floors, to `out` and draw an arm from it."""
    if READINGS and memory.settings[S.reading] == NEXT_VISIT:
        ascend(memory, context, memory.contexts[context, C.waiting], out)
    else:
        x = memory.contexts[context, C.x]
        for i in range(out.shape[0]):
            out[i] = x[i]
    if GROUPS and memory.groups.numbers[F.arm_floor] > 0.0:
        keep_floors(memory.groups, out)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def take_step(memory, context, rewards):
    """Take the ascent step."""
    own = memory.context_scalars[context]
    after, more = ascend(memory, context, rewards, memory.contexts[context, C.x])
    if WELFARE and memory.settings[S.alpha] >= 1.0 and after > own[K.squared_norms]:
        memory.scalars[N1.bound] += more
        own[K1.reopened] = 0.0
    own[K.squared_norms] = after


@kernel
def earn_round(memory, probabilities, rewards):
    """Add x r to the accounts."""
    if WELFARE and memory.settings[S.alpha] >= 1.0:
        memory.scalars[N1.unit] = earn_together(
            memory.groups, memory.arms, A.earned, memory.settings, memory.scalars[N1.unit], probabilities, rewards
        )
    else:
        earn_together(memory.groups, memory.arms, A.earned, memory.settings, 1.0, probabilities, rewards)


@kernel
def learn_in_order(memory, context, probabilities, rewards):
    """Take the ascent step and add x r to the accounts, in the order of the reading."""
    reading = memory.settings[S.reading] if READINGS else BEFORE
    if READINGS and reading == AFTER:
        earn_round(memory, probabilities, rewards)
    read = memory.contexts[context, C.waiting] if READINGS and reading == NEXT_VISIT else rewards
    take_step(memory, context, read)
    if READINGS and reading == NEXT_VISIT:
        for i in range(rewards.shape[0]):
            read[i] = rewards[i]
    if not READINGS or reading != AFTER:
        earn_round(memory, probabilities, rewards)


@kernel
def learn(memory, context, probabilities, rewards):
    """Learn from a decision that may be late or masked: add the drift first, which is zero if it is neither."""
    held, account, slopes = memory.scratch[T.held], memory.arms[A.account], memory.arms[A.slope]
    reading, alpha = memory.settings[S.reading] if READINGS else BEFORE, memory.settings[S.alpha]
    pooled = GROUPS and memory.groups.numbers[F.pooled] > 0.0
    unit, size = 1.0, 1.0
    if WELFARE and alpha >= 1.0:
        unit = memory.scalars[N1.unit]
        size = math.pow(memory.scalars[N1.first_welfare] / unit, alpha)
    draw(memory, context, 0.0, held)
    if READINGS and GROUPS and pooled and reading == AFTER:
        pool(memory.groups, probabilities, rewards)
    for i in range(rewards.shape[0]):
        ahead = held[i] - probabilities[i]
        slope = slopes[i]
        if READINGS and reading == AFTER and ahead != 0.0:
            more = probabilities[i] * rewards[i]
            if GROUPS and pooled:
                more = memory.groups.rows[R.increment, i]
            slope = marginal_utility((account[i] + more) / unit, alpha)
        if READINGS and reading == NEXT_VISIT:  # g is evaluated later and can only be smaller: an upper bound
            ahead = max(ahead, 0.0)
        memory.scalars[N.drift] += size * slope * rewards[i] * ahead
    learn_in_order(memory, context, probabilities, rewards)


def start(memory: Any) -> None:
    """Open accounts of 1."""
    open_accounts(memory.arms, 1.0, memory.settings[S.alpha])


def start_contexts(memory: Any) -> None:
    """Start uniform."""
    memory.contexts[:, C.x] = 1.0 / memory.contexts.shape[2]


def take_waiting_steps(memory: Any) -> None:
    """Take postponed steps now."""
    if memory.settings[S.reading] == NEXT_VISIT:
        take_one = repeated(take_step, len(memory.contexts))
        for context, rows in enumerate(memory.contexts):
            take_one(memory, context, rows[C.waiting])
            rows[C.waiting] = 0.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Start a new epoch: project on the remaining arms; new arms enter with probability 0 and an account."""
    admit_accounts(memory.arms, n_kept, entries, memory.settings[S.alpha])
    close_epoch(memory.contexts[:, C.x], memory.context_scalars, K, n_kept, some_left)


def admit_on_welfare(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """The same for alpha >= 1."""
    set_entry_accounts(memory.arms, n_kept, entries)
    reopen_on_welfare(memory, N1)
    close_epoch(memory.contexts[:, C.x], memory.context_scalars, K1, n_kept, some_left)


def check_memory(memory: Any) -> str | None:
    """Check the slopes of accounts."""
    return check_slopes(memory.arms[A.account], memory.arms[A.slope], memory.settings[S.alpha])


def check_on_welfare(memory: Any) -> str | None:
    """The same for alpha >= 1."""
    return check_slopes(memory.arms[A.account], memory.arms[A.slope], memory.settings[S.alpha], memory.scalars[N1.unit])


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    alone = {"": {"alpha": 0.9}, "half": {"alpha": 0.5}}
    alone |= {"nash": {"alpha": 1.0}, "two": {"alpha": 2.0}, "max-min": {"alpha": math.inf}}
    return alone | {marginal: {"marginal": marginal} for marginal in MARGINALS if marginal != "before"}


class AlphaFair(BasePolicy):
    """Maximise the alpha-fair utility of the rewards of every arm over the whole run, with full information.

    The utility is linearised at the current accounts: in round t, context j, the gain of arm i is
    $g_i = R_i^{-\\alpha} r_i(t)$, so an arm with few rewards has more weight. Each context runs its own gradient ascent
    on the simplex, with a step that adapts to its gradients,

    $$S_j \\mathrel{+}= \\|g\\|^2, \\qquad x^j \\leftarrow \\Pi_\\Delta\\big(x^j + g/\\sqrt{S_j}\\big), \\qquad
    R \\mathrel{+}= x^j \\odot r,$$

    and contexts are coupled only through the shared R. Against any adversary, on every run,
    $OPT - c_\\alpha \\sum_i \\phi(R_i)$ is at most `metrics.regret_certificate`.

    From alpha = 1 on, $g$ is the gradient of the welfare $W$, the power mean of all accounts:
    $g_i = (W/R_i)^\\alpha r_i(t)/N$. It does not shrink as $R$ grows, so the ascent goes on learning. This is an
    extension of the paper; see docs/theory.md.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    alpha
        Fairness, 0 to inf: 0 maximises the sum of rewards, 1 the Nash welfare (proportional fairness), inf the poorest
        account. Above 64, inf included, it is played as 16, which serves the poorest account better.
    marginal
        When the slope of the utility is evaluated: `"before"` the reward of the round is added, as in the theorem;
        `"after"` it; or at the `"next_visit"` of the context, as in the pseudo-code of the paper. The guarantee holds
        for all three.
    groups
        A `Groups`, or a label per arm. See docs/groups.md.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    Rewards must lie in [0, 1]; the constants of the guarantee assume a positive floor: see
    `alphafair.rescale_rewards`. The paper does not specify when R is evaluated in $\\phi'(R)$, and its step size lacks
    the root of the lemma it cites; here both are as the proof needs them. Pass the reward that a masked arm would have
    had, so that the policy does not learn from its absence.

    Examples
    --------
    >>> from alphafair import AlphaFair
    >>> policy = AlphaFair(n_contexts=2, n_arms=3, alpha=0.5, seed=1)
    >>> decision = policy.choose(0)
    >>> policy.update(decision, [1.0, 0.2, 0.6])
    >>> policy.probabilities(0).round(6).tolist()
    [0.669031, 0.0, 0.330969]

    References
    ----------
    Chaudhary and Sinha, alpha-Fair Contextual Bandits, arXiv 2310.14164, Algorithm 1.
    """

    name: ClassVar[str] = "alpha-fair"
    feedback = Feedback.FULL
    alpha: float
    traits = Traits(style=("#0072B2", "o"), variants=variants)
    algorithm = Algorithm(
        Layout(S, N, A, K, C, T, only_with_groups="earned"),
        draw,
        learn,
        start,
        start_contexts,
        admit,
        learn_in_order=learn_in_order,
        mask=mask_and_keep_floors,
        accounts="account",
        simplex_rows="x",
        before_arms_change=take_waiting_steps,
        reopen=reopen_accounts,
        alpha_changed=lambda memory: restart_certificate(memory, N, K),
        check=check_memory,
        new_period=lambda memory: restart(memory, N, K),
        flags=("GROUPS", "READINGS", "WELFARE"),
    )
    welfare_algorithm = replace(
        algorithm,
        layout=Layout(S, N1, A, K1, C, T, only_with_groups="earned"),
        start=lambda memory: start_on_welfare(memory, N1),
        admit=admit_on_welfare,
        reopen=lambda memory, columns: reopen_on_welfare(memory, N1),
        alpha_changed=lambda memory: restart(memory, N1, K1),
        check=check_on_welfare,
        new_period=lambda memory: restart(memory, N1, K1),
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        marginal: Literal["before", "next_visit", "after"] = "before",
        groups: Groups | Labels | None = None,
        seed: int | None = None,
    ) -> None:
        self.alpha = validate.alpha(alpha)
        self.marginal = validate.choice("marginal", marginal, MARGINALS)
        settings = {"alpha": self.alpha, "marginal": self.marginal}
        super().__init__(n_contexts, n_arms, settings=settings, seed=seed, groups=groups)

    def _numbers(self) -> dict[str, Any]:
        return {**account_settings(played_alpha(self.alpha)), "reading": MARGINALS[self.marginal]}

    def _flags(self) -> dict[str, bool]:
        return {**super()._flags(), "READINGS": self.marginal != "before"}

    @property
    def distributions(self) -> Matrix:
        """The distribution held by every context (n_contexts, n_arms)."""
        with self._lock:
            return self._learned.per_arm(self._memory.contexts[:, C.x])

    @property
    def squared_gradient_norms(self) -> Vector:
        """S_j of every context, including postponed gradients; from alpha = 1 on, of the gradient of the welfare."""
        with self._lock:
            norms = self._memory.context_scalars[:, K.squared_norms].copy()
            for context, (after, _) in enumerate(self._postponed()):
                norms[context] = after
            return norms

    def _postponed(self) -> Iterator[tuple[float, float]]:
        """S and the growth of the bound of every context after its postponed step, if steps are postponed."""
        if self.marginal == "next_visit":
            ascend_one, out = repeated(ascend, self.n_contexts), np.empty(len(self._learned.live_arms))
            for context, rows in enumerate(self._memory.contexts):
                yield ascend_one(self._memory, context, rows[C.waiting], out)

    @property
    def drift(self) -> float:
        """The term of the certificate for late and masked decisions; 0 without any."""
        return float(self._memory.scalars[N.drift])

    @property
    def surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """An upper bound of the regret in sum_t <g, x> against any policy that is fixed within each epoch.

        Per context $\\sqrt{S_j}$ now, and $\\sqrt{S_j}$ at the end of every epoch, this one included; plus the drift.
        From alpha = 1 on the sum of these in every step, times $S W^{-\\alpha}$ of that step.
        """
        with self._lock:
            if self.alpha >= 1.0:
                waiting = sum(more for _, more in self._postponed())
                return in_slopes(self._memory.scalars, N1, played_alpha(self.alpha), waiting)
            norms, closed = self.squared_gradient_norms, self._memory.context_scalars[:, K.closed_roots].sum()
            return float(2.0 * np.sqrt(norms).sum() + closed + self._memory.scalars[N.drift])
