"""alpha-FairCB with full information (Algorithm 1): adaptive gradient ascent per context, one shared account R.

Round t, context j, distribution x used, rewards r, g = phi'(R_*) r:

    S_j += ||g||^2 ;   x^j <- projection of  x^j + g/sqrt(S_j) ;   R += x r

R_* is R before the round, as in the lemmas. With groups and entitlements R is R_G/s_G of the group; with floors the
distribution used keeps them: see `alphafair.math.floors`.

    R `account` (with its slope phi'(R): `alphafair.math.utility`) · x^j `x` · S_j `squared_norms`
    `drift` is the sum of <g, x held - x used>: zero if rewards arrive in order and no arm is masked. With it the regret
    certificate holds for late and masked decisions too. `closed_roots`, `closed_norms`: see
    `alphafair.math.gradient_ascent`.

From alpha = 1 on, g is the gradient of the welfare, and `bound`, `unit`, `first_welfare` and `reopened` take the place
of `closed_roots` and `closed_norms`: see `alphafair.math.gradient_ascent`.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import Groups, Labels
from alphafair.jit import kernel
from alphafair.math import two_sides
from alphafair.math.capped import frame, inclusion
from alphafair.math.distributions import draw_arm
from alphafair.math.floors import F, earn_together, keep_floors, mask_and_keep_floors, price_units
from alphafair.math.gradient_ascent import (
    added_bound,
    ascend_capped,
    ascend_on_floors,
    bound_on_joint_welfare,
    close_epoch,
    count_shown,
    in_slopes,
    of_single_arms,
    reopen_on_welfare,
    restart,
    restart_certificate,
    start_on_welfare,
    within_cap,
)
from alphafair.math.slates import draw_slate as draw_from
from alphafair.math.two_sides import (
    carry_sides,
    check_sides,
    joint_welfare,
    pay_context,
    start_sides,
    sum_logs,
    write_prices,
)
from alphafair.math.utility import (
    ACCOUNT,
    account_settings,
    admit_accounts,
    check_slopes,
    open_accounts,
    played_alpha,
    reopen_accounts,
    reopen_relative,
    set_entry_accounts,
)
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.memory import Layout
from alphafair.policy.two_sides import TwoSided, side_settings
from alphafair.values import Feedback, State, Traits
from alphafair.values.arrays import Matrix, Vector, positions

GROUPS = True  # False in machine code for policies without groups and floors
WELFARE = True  # False in machine code for policies with alpha < 1 and without a context weight
SIDES = True  # False in machine code for policies without a context weight
ONE_SIDE = True  # False in machine code for policies with a second side

S = two_sides.SETTINGS
N = positions("drift", "outside")
N1 = positions(N, "bound", "unit", "first_welfare")  # for alpha >= 1
A = positions(ACCOUNT, "earned")
K = positions("squared_norms", "shown", "reach", "closed_roots", "closed_norms")  # of a context
K1 = positions("squared_norms", "shown", "reach", "reopened")  # for alpha >= 1
C = positions("x")  # of a context, by arm
T = positions("step", "held")  # scratch
N2 = positions(N1, *two_sides.TOTALS._fields)  # with a context weight, for every alpha
K2 = positions(K1, *two_sides.OWN._fields)
T2 = positions(T, "price")


@kernel
def draw(memory, context, uniform, out):
    """Write the context's distribution, with floors, to `out` and draw an arm from it."""
    x = memory.contexts[context, C.x]
    for i in range(out.shape[0]):
        out[i] = x[i]
    if GROUPS and memory.groups.numbers[F.arm_floor] > 0.0:
        keep_floors(memory.groups, out)
    arm = draw_arm(out, uniform)
    return arm, out[arm]


@kernel
def prices(memory, context):
    """Return the factor that makes gains of slopes, and u (see `gradient_ascent`); with a context weight, write prices.

    Prices then take the place of slopes.
    """
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        totals, own = memory.scalars[N2.weighed :], memory.context_scalars[context, K2.context_account :]
        unit, price = memory.scalars[N1.unit], memory.scratch[T2.price]
        money = write_prices(memory.groups, memory.arms, memory.settings, totals, own, price)
        welfare = joint_welfare(memory.groups, memory.arms, memory.settings, unit, totals, own, money)
        return welfare / money, 1.0 / welfare
    if WELFARE and memory.settings[S.on_welfare] > 0.0:
        unit, first = memory.scalars[N1.unit], memory.scalars[N1.first_welfare]
        return price_units(memory.groups, memory.arms, unit, first, memory.settings[S.alpha])
    return 1.0, 1.0


@kernel
def take_step(memory, context, rewards):
    """S_j += ||g||^2 ;  x^j <- projection of x^j + g/sqrt(S_j)."""
    x, own = memory.contexts[context, C.x], memory.context_scalars[context]
    before, step = own[K.squared_norms], memory.scratch[T.step]
    scale, u = prices(memory, context)
    slope = memory.arms[A.slope]
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        slope = memory.scratch[T2.price]
    after = ascend_on_floors(memory.groups, slope, scale, x, before, rewards, step, x)
    if WELFARE and memory.settings[S.on_welfare] > 0.0 and after > before:
        memory.scalars[N1.bound] += added_bound(u, before, after, own[K1.reopened])
        own[K1.reopened] = 0.0
    own[K.squared_norms] = after


@kernel
def earn_round(memory, context, probabilities, rewards):
    """R += x r, and U_j += <x, r>."""
    if WELFARE and memory.settings[S.on_welfare] > 0.0:
        memory.scalars[N1.unit] = earn_together(
            memory.groups, memory.arms, A.earned, memory.settings, memory.scalars[N1.unit], probabilities, rewards
        )
        if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
            paid = 0.0
            for i in range(rewards.shape[0]):
                paid += probabilities[i] * rewards[i]
            totals, own = memory.scalars[N2.weighed :], memory.context_scalars[context, K2.context_account :]
            pay_context(memory.settings, totals, own, paid)
    else:
        earn_together(memory.groups, memory.arms, A.earned, memory.settings, 1.0, probabilities, rewards)


@kernel
def learn_in_order(memory, context, probabilities, rewards):
    """Take the ascent step, then add x r to the accounts."""
    count_shown(memory.scalars, N.outside, memory.context_scalars[context], K.shown, 1)
    take_step(memory, context, rewards)
    earn_round(memory, context, probabilities, rewards)


@kernel
def learn(memory, context, probabilities, rewards):
    """Learn from a decision that may be late or masked: add the drift first, which is zero if it is neither."""
    held, slope = memory.scratch[T.held], memory.arms[A.slope]
    size = 1.0
    if SIDES and (memory.settings[S.sided] > 0.0 or not ONE_SIDE):
        scale, u = prices(memory, context)
        slope, size = memory.scratch[T2.price], scale * u
    elif WELFARE and memory.settings[S.on_welfare] > 0.0:
        size = math.pow(memory.scalars[N1.first_welfare] / memory.scalars[N1.unit], memory.settings[S.alpha])
    draw(memory, context, 0.0, held)
    for i in range(rewards.shape[0]):
        memory.scalars[N.drift] += size * slope[i] * rewards[i] * (held[i] - probabilities[i])
    learn_in_order(memory, context, probabilities, rewards)


@kernel
def draw_slate(memory, context, k, uniform, out, slate):
    """Write the probabilities of inclusion to `out`, draw k arms to `slate`, and return how many there are."""
    n, floor = out.shape[0], memory.groups.numbers[F.arm_floor]
    keep, top, _ = frame(n, k, floor)
    within_cap(memory.contexts[context, C.x], top, out)
    for i in range(n):
        out[i] = inclusion(n, k, floor, keep, out[i])
    return draw_from(out, k, uniform, slate)


@kernel
def learn_slate(memory, context, k, probabilities, rewards):
    """Learn from a slate of k arms: drift, ascent step from x within the cap, accounts."""
    n, floor, slope, numbers = (
        rewards.shape[0],
        memory.groups.numbers[F.arm_floor],
        memory.arms[A.slope],
        memory.scalars,
    )
    own, x, held, alpha = (
        memory.context_scalars[context],
        memory.contexts[context, C.x],
        memory.scratch[T.held],
        memory.settings[S.alpha],
    )
    keep, top, reach = frame(n, k, floor)
    scale, u, size = 1.0, 1.0, 1.0
    if WELFARE and alpha >= 1.0:  # a context weight does not go with slates
        scale, u = price_units(memory.groups, memory.arms, numbers[N1.unit], numbers[N1.first_welfare], alpha)
        size = math.pow(numbers[N1.first_welfare] / numbers[N1.unit], alpha)
    within_cap(x, top, held)
    for i in range(n):
        used = probabilities[i]
        numbers[N.drift] += size * slope[i] * rewards[i] * (inclusion(n, k, floor, keep, held[i]) - used)
    count_shown(numbers, N.outside, own, K.shown, k)
    before = own[K.squared_norms]
    after = ascend_capped(slope, keep * scale, held, before, rewards, top, reach, memory.scratch[T.step], x)
    if WELFARE and alpha >= 1.0 and after > before:
        numbers[N1.bound] += added_bound(u * reach, before, after, own[K1.reopened])
        own[K1.reopened] = 0.0
    own[K.squared_norms], own[K.reach] = after, reach
    earn_round(memory, context, probabilities, rewards)


def start(memory: Any) -> None:
    """Open accounts of 1."""
    open_accounts(memory.arms, 1.0, memory.settings[S.alpha])


def start_contexts(memory: Any) -> None:
    """Start uniform."""
    memory.contexts[:, C.x] = 1.0 / memory.contexts.shape[2]
    memory.context_scalars[:, K.reach] = 1.0


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Start a new epoch: project on the remaining arms; new arms enter with probability 0 and an account."""
    admit_accounts(memory.arms, n_kept, entries, memory.settings[S.alpha])
    close_epoch(memory.contexts[:, C.x], memory.context_scalars, K, n_kept, some_left)


def admit_on_welfare(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """The same for alpha >= 1."""
    set_entry_accounts(memory.arms, n_kept, entries)
    reopen_on_welfare(memory, N1)
    close_epoch(memory.contexts[:, C.x], memory.context_scalars, K1, n_kept, some_left)


def of_sides(memory: Any) -> tuple[Any, Any, Any]:
    """Return the settings, the totals of all contexts, and the accounts and rounds of each, for `two_sides`."""
    return memory.settings, memory.scalars[N2.weighed :], memory.context_scalars[:, K2.context_account :]


def start_two_sided_contexts(memory: Any) -> None:
    """Start uniform, with accounts of 1."""
    start_contexts(memory)
    start_sides(of_sides(memory)[2])


def change_two_sided(memory: Any) -> None:
    """After a change of alpha, of the context weight or of weights: the bound starts anew."""
    restart(memory, N2, K2)
    sum_logs(*of_sides(memory))


def admit_two_sided(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Admit arms as for alpha >= 1; norms and the bound start anew, because W_2 may have fallen."""
    admit_on_welfare(memory, n_kept, some_left, entries)
    restart(memory, N2, K2)


def check_two_sided(memory: Any) -> str | None:
    """Check the slopes of accounts, and the accounts of contexts."""
    return check_on_welfare(memory) or check_sides(*of_sides(memory)[1:])


def check_memory(memory: Any) -> str | None:
    """Check the slopes of accounts."""
    return check_slopes(memory.arms[A.account], memory.arms[A.slope], memory.settings[S.alpha])


def check_on_welfare(memory: Any) -> str | None:
    """The same for alpha >= 1."""
    return check_slopes(memory.arms[A.account], memory.arms[A.slope], memory.settings[S.alpha], memory.scalars[N1.unit])


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name; weights of contexts, which fit one number of them, are tested apart."""
    alone: dict[str, dict[str, Any]] = {"": {"alpha": 0.9}, "half": {"alpha": 0.5}, "nash": {"alpha": 1.0}}
    alone |= {"two": {"alpha": 2.0}, "max-min": {"alpha": math.inf}}
    return alone | {"two-sided": {"alpha": 1.0, "context_weight": 0.25}}


class AlphaFair(TwoSided):
    """Maximize the alpha-fair utility of the rewards of every arm over the whole run, with full information.

    The utility is linearized at the current accounts: in round t, context j, the gain of arm i is
    $g_i = R_i^{-\\alpha} r_i(t)$, so an arm with few rewards has more weight. Each context runs its own gradient ascent
    on the simplex, with a step that adapts to its gradients,

    $$S_j \\mathrel{+}= \\|g\\|^2, \\qquad x^j \\leftarrow \\Pi_\\Delta\\big(x^j + g/\\sqrt{S_j}\\big), \\qquad
    R \\mathrel{+}= x^j \\odot r,$$

    and contexts are coupled only through the shared R. Against any adversary, on every run,
    $OPT - c_\\alpha \\sum_i \\phi(R_i)$ is at most `metrics.regret_certificate`.

    From alpha = 1 on, $g$ is the gradient of the welfare $W$, the power mean of all accounts:
    $g_i = (W/R_i)^\\alpha r_i(t)/N$. It does not shrink as $R$ grows, so the ascent goes on learning. This is an
    extension of the paper; see docs/background/theory.md.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    alpha
        Fairness, 0 to inf: 0 maximizes the sum of rewards, 1 the Nash welfare (proportional fairness), inf the poorest
        account. Above 64, inf included, it is played as 16, which serves the poorest account better.
    groups
        A `Groups`, or a label per arm. See docs/howto/groups_and_entitlements.md.
    context_weight
        The weight of contexts, in [0, 1): 0 is fair to arms alone, and near 1 every context is served its best. The
        objective is $W_\\alpha(R)^{1-\\theta} \\prod_j U_j^{\\theta q_j}$ with $U_j$ the rewards in context j, plus 1.
        Slates are then not possible.
    context_weights
        Positive weights of contexts, with which bounds hold. None: the part of all rounds so far.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    Rewards must lie in [0, 1]; the constants of the guarantee assume a positive floor: see
    `alphafair.rescale_rewards`. The paper does not specify when R is evaluated in $\\phi'(R)$, and its step size lacks
    the root of the lemma it cites; here both are as the proof needs them: R is read before the round. Other readings
    are `alphafair.lab.rivals.readings`. Pass the reward that a masked arm would have
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

    _version: ClassVar[int] = 6
    name: ClassVar[str] = "alpha-fair"
    feedback = Feedback.FULL
    alpha: float
    traits = Traits(slates=True, style=("#0072B2", "o"), variants=variants)
    algorithm = Algorithm(
        Layout(S, N, A, K, C, T, only_with_groups="earned"),
        draw,
        learn,
        start,
        start_contexts,
        admit,
        learn_in_order=learn_in_order,
        mask=mask_and_keep_floors,
        draw_slate=draw_slate,
        learn_slate=learn_slate,
        accounts="account",
        simplex_rows="x",
        reopen=reopen_accounts,
        alpha_changed=lambda memory: restart_certificate(memory, N, K),
        check=check_memory,
        new_period=lambda memory: restart(memory, N, K),
        flags=("GROUPS", "WELFARE", "SIDES", "ONE_SIDE"),
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
    sides_algorithm: ClassVar[Any] = replace(
        welfare_algorithm,
        layout=Layout(S, N2, A, K2, C, T2, only_with_groups="earned"),
        start_contexts=start_two_sided_contexts,
        admit=admit_two_sided,
        reopen=lambda memory, columns: reopen_relative(memory, N2.unit),
        alpha_changed=change_two_sided,
        check=check_two_sided,
        new_period=lambda memory: restart(memory, N2, K2),
        of_sides=of_sides,
        carry=lambda memory, carry: carry_sides(*of_sides(memory), carry),
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        alpha: float = 0.9,
        groups: Groups | Labels | None = None,
        context_weight: float = 0.0,
        context_weights: ArrayLike | None = None,
        seed: int | None = None,
    ) -> None:
        self.alpha = validate.alpha(alpha)
        sides = side_settings(n_contexts, context_weight, context_weights)
        super().__init__(n_contexts, n_arms, settings={"alpha": self.alpha, **sides}, seed=seed, groups=groups)

    def _numbers(self) -> dict[str, Any]:
        return {**account_settings(played_alpha(self.alpha)), **self._numbers_of_sides()}

    @classmethod
    def _settings_of_this_version(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out which reading of the slope version 0.1 was set to; other readings than this one are refused."""
        if (marginal := settings.get("marginal", "before")) != "before":
            repair = "This version reads the slope before each round only: use alphafair 0.1."
            raise InvalidArgument("settings['marginal']", "'before'", marginal, repair)
        return {name: value for name, value in settings.items() if name != "marginal"}

    @classmethod
    def _of_this_version(cls, state: State) -> State:
        """Leave out what version 4 kept for other readings of the slope, and add what slates need since version 6."""
        if state.policy != cls.name or state.version not in (4, 5):
            return state
        settings, arrays = state.settings, dict(state.arrays)
        if state.version == 4:
            settings = cls._settings_of_this_version(settings)
            arrays.pop("waiting", None)
        return replace(state, version=6, settings=settings, arrays={**arrays, **of_single_arms(state)})

    @property
    def distributions(self) -> Matrix:
        """The distribution held by every context (n_contexts, n_arms)."""
        with self._lock:
            return self._learned.per_arm(self._memory.contexts[:, C.x])

    @property
    def squared_gradient_norms(self) -> Vector:
        """S_j of every context; from alpha = 1 on, of the gradient of the welfare."""
        with self._lock:
            return self._memory.context_scalars[:, K.squared_norms].copy()

    @property
    def most_shown(self) -> int:  # type: ignore[override]
        """The largest number of arms that a context shows."""
        return max(1, int(self._memory.context_scalars[:, K.shown].max()))

    @property
    def drift(self) -> float:
        """The term of the certificate for late and masked decisions; 0 without any."""
        return float(self._memory.scalars[N.drift])

    @property
    def surrogate_regret_bound(self) -> float | None:  # type: ignore[override]
        """An upper bound of the regret in sum_t <g, x> against any policy that is fixed within each epoch.

        Per context $\\sqrt{S_j}$ now, and $\\sqrt{S_j}$ at the end of every epoch, this one included; plus the drift.
        From alpha = 1 on the sum of these in every step, times $S W^{-\\alpha}$ of that step. With slates every root is
        scaled by the size of their set. None if a context has shown different numbers of arms. With a context weight
        the gains are those of ln W_2, and there is no bound without fixed `context_weights`.
        """
        with self._lock:
            if self._memory.scalars[N.outside] > 0.0:
                return None
            if self.context_weight > 0.0:
                return bound_on_joint_welfare(self._memory.scalars, N1) if self.context_weights is not None else None
            if self.alpha >= 1.0:
                return in_slopes(self._memory.scalars, N1, played_alpha(self.alpha))
            own = self._memory.context_scalars
            roots, closed = own[:, K.reach] * np.sqrt(self.squared_gradient_norms), own[:, K.closed_roots].sum()
            return float(2.0 * roots.sum() + closed + self._memory.scalars[N.drift])
