"""alpha-FairCB in every context separately: as `alpha_fair`, with accounts per context.

S_j += ||g||^2 ;   x^j <- projection of  x^j + g/sqrt(S_j) ;   R^j += x r ,   g = phi'(R^j) r

From alpha = 1 on, g is the gradient of the welfare of the context's own accounts, and `unit` is that of their slopes.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar

from alphafair import validate
from alphafair.jit import kernel
from alphafair.math.distributions import draw_from
from alphafair.math.gradient_ascent import ascend, close_epoch
from alphafair.math.utility import (
    ACCOUNT,
    account_settings,
    admit_accounts,
    check_slopes,
    earn,
    open_accounts,
    played_alpha,
    relative_units,
    set_entry_accounts,
)
from alphafair.math.utility import (
    SETTINGS as S,
)
from alphafair.math.welfare import current_welfare
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

WELFARE = True  # False in machine code for policies with alpha < 1
K = positions("squared_norms", "closed_roots", "closed_norms")
K1 = positions(K, "unit")  # for alpha >= 1
C = positions(ACCOUNT, "x")
T = positions("step", "weights")  # scratch


@kernel
def draw(memory, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    return draw_from(memory.contexts[context, C.x], uniform, out)


@kernel
def learn(memory, context, probabilities, rewards):
    """Take the ascent step and add x r to the accounts."""
    rows, own, alpha = memory.contexts[context], memory.context_scalars[context], memory.settings[S.alpha]
    unit = scale = 1.0
    if WELFARE and alpha >= 1.0:
        unit, weights = own[K1.unit], memory.scratch[T.weights]
        for i in range(rewards.shape[0]):
            weights[i] = 1.0
        welfare = current_welfare(rows[C.account], weights, rows[C.slope], unit, alpha, True)
        scale = math.pow(welfare / unit, alpha) / rewards.shape[0]
    step, before = memory.scratch[T.step], own[K.squared_norms]
    own[K.squared_norms] = ascend(rows[C.slope], scale, rows[C.x], before, rewards, step)
    unit = earn(rows, memory.settings, unit, probabilities, rewards)
    if WELFARE and alpha >= 1.0:
        own[K1.unit] = unit


def start_contexts(memory: Any) -> None:
    """Start uniform, with accounts of 1."""
    memory.contexts[:, C.x] = 1.0 / memory.contexts.shape[2]
    open_accounts(memory.contexts.swapaxes(0, 1), 1.0, memory.settings[S.alpha])


def admit(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Start a new epoch in every context."""
    for rows in memory.contexts:
        admit_accounts(rows, n_kept, entries, memory.settings[S.alpha])
    close_epoch(memory.contexts[:, C.x], memory.context_scalars, K, n_kept, some_left)


def alpha_changed(memory: Any) -> None:
    """Recompute slopes and anchors."""
    open_accounts(memory.contexts.swapaxes(0, 1), memory.contexts[:, C.account].copy(), memory.settings[S.alpha])


def new_period(memory: Any) -> None:
    """Start the norms anew, and recompute slopes and anchors."""
    memory.context_scalars[...] = 0.0
    alpha_changed(memory)


def start_contexts_on_welfare(memory: Any) -> None:
    """Start uniform, with accounts of 1, for alpha >= 1."""
    start_contexts(memory)
    memory.context_scalars[:, K1.unit] = 1.0


def admit_on_welfare(memory: Any, n_kept: int, some_left: bool, entries: Vector) -> None:
    """Start a new epoch in every context, for alpha >= 1."""
    for rows in memory.contexts:
        set_entry_accounts(rows, n_kept, entries)
    reopen_on_welfare(memory)
    close_epoch(memory.contexts[:, C.x], memory.context_scalars, K1, n_kept, some_left)


def reopen_on_welfare(memory: Any) -> None:
    """Recompute units, slopes and anchors for alpha >= 1."""
    accounts = memory.contexts[:, C.account].copy()
    units = memory.context_scalars[:, K1.unit] = relative_units(accounts)
    open_accounts(memory.contexts.swapaxes(0, 1), accounts, memory.settings[S.alpha], units[:, None])


def restart_on_welfare(memory: Any) -> None:
    """Start the norms anew, and recompute units, slopes and anchors."""
    memory.context_scalars[...] = 0.0
    reopen_on_welfare(memory)


def check_on_welfare(memory: Any) -> str | None:
    """Check the slopes of accounts for alpha >= 1."""
    rows, units = memory.contexts, memory.context_scalars[:, [K1.unit]]
    return check_slopes(rows[:, C.account], rows[:, C.slope], memory.settings[S.alpha], units)


def check_memory(memory: Any) -> str | None:
    """Check the slopes of accounts."""
    return check_slopes(memory.contexts[:, C.account], memory.contexts[:, C.slope], memory.settings[S.alpha])


def variants(_n_contexts: int, _n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    return {"": {"alpha": 0.9}, "nash": {"alpha": 1.0}, "two": {"alpha": 2.0}, "max-min": {"alpha": math.inf}}


class IndependentAlphaFair(BasePolicy):
    """Be fair within every context instead of across contexts: the baseline for the coupling of `AlphaFair`.

    Context j has its own accounts $R^j$ and takes the same steps on $g_i = (R^j_i)^{-\\alpha} r_i(t)$. An arm that
    is worst in a context is then favored there too, which fairness over the whole run does not require. From
    alpha = 1 on, $g$ is the gradient of the welfare of the context's accounts, $g_i = (W^j/R^j_i)^\\alpha r_i(t)/N$.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    alpha
        Fairness, 0 to inf, within every context; above 64, inf included, it is played as 16, as in `AlphaFair`.
    seed
        Seed of `choose` without `rng`.

    Examples
    --------
    >>> from alphafair import IndependentAlphaFair
    >>> policy = IndependentAlphaFair(n_contexts=2, n_arms=3, alpha=0.5, seed=1)
    >>> policy.update(policy.choose(0), [1.0, 0.2, 0.6])
    >>> policy.accounts.round(4).tolist()
    [[1.3333, 1.0667, 1.2], [1.0, 1.0, 1.0]]
    """

    name: ClassVar[str] = "independent-alpha-fair"
    feedback = Feedback.FULL
    alpha: float
    traits = Traits(style=("#009E73", "^"), variants=variants)
    algorithm = Algorithm(
        Layout(settings=S, context_scalars=K, contexts=C, scratch=T),
        draw,
        learn,
        start_contexts=start_contexts,
        admit=admit,
        accounts="account",
        alpha_changed=alpha_changed,
        new_period=new_period,
        check=check_memory,
        flags=("WELFARE",),
    )

    welfare_algorithm = replace(
        algorithm,
        layout=Layout(settings=S, context_scalars=K1, contexts=C, scratch=T),
        start_contexts=start_contexts_on_welfare,
        admit=admit_on_welfare,
        alpha_changed=restart_on_welfare,
        new_period=restart_on_welfare,
        check=check_on_welfare,
    )

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, seed: int | None = None) -> None:
        self.alpha = validate.alpha(alpha)
        super().__init__(n_contexts, n_arms, settings={"alpha": self.alpha}, seed=seed)

    def _numbers(self) -> dict[str, Any]:
        return account_settings(played_alpha(self.alpha))
