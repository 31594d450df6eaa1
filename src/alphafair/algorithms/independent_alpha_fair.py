"""alpha-FairCB in every context separately: as `alpha_fair`, with accounts per context.

S_j += ||g||^2 ;   x^j <- projection of  x^j + g/sqrt(S_j) ;   R^j += x r ,   g = phi'(R^j) r
"""

from typing import Any, ClassVar

from alphafair import validate
from alphafair.errors import InvalidArgument
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
)
from alphafair.math.utility import (
    SETTINGS as S,
)
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import Layout
from alphafair.values import Feedback, Traits
from alphafair.values.arrays import Vector, positions

K = positions("squared_norms", "closed_roots", "closed_norms")
C = positions(ACCOUNT, "x")
T = positions("step")


@kernel
def draw(memory, context, uniform, out):
    """Write the context's distribution to `out` and draw an arm from it."""
    return draw_from(memory.contexts[context, C.x], uniform, out)


@kernel
def learn(memory, context, probabilities, rewards):
    """Take the ascent step and add x r to the accounts."""
    rows, own = memory.contexts[context], memory.context_scalars[context]
    own[K.squared_norms] = ascend(rows[C.slope], rows[C.x], own[K.squared_norms], rewards, memory.scratch[T.step])
    earn(rows, memory.settings, 1.0, probabilities, rewards)


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


def check_memory(memory: Any) -> str | None:
    """Check the slopes of accounts."""
    return check_slopes(memory.contexts[:, C.account], memory.contexts[:, C.slope], memory.settings[S.alpha])


class IndependentAlphaFair(BasePolicy):
    """Be fair within every context instead of across contexts: the baseline for the coupling of `AlphaFair`.

    Context j has its own accounts $R^j$ and takes the same steps on $g_i = (R^j_i)^{-\\alpha} r_i(t)$. An arm that
    is worst in a context is then favoured there too, which fairness over the whole run does not require.

    Parameters
    ----------
    n_contexts, n_arms
        Numbers of contexts and arms; `grow` and `retire` change them later.
    alpha
        Fairness, in [0, 1): this baseline has no form for larger exponents.
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
    traits = Traits(style=("#009E73", "^"))
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
    )

    def __init__(self, n_contexts: int, n_arms: int, *, alpha: float = 0.9, seed: int | None = None) -> None:
        self.alpha = self._checked_alpha(alpha)
        super().__init__(n_contexts, n_arms, settings={"alpha": self.alpha}, seed=seed)

    def _checked_alpha(self, alpha: Any) -> float:
        if validate.alpha(alpha) >= 1.0:
            repair = "Use AlphaFair, whose fairness across contexts has any alpha."
            raise InvalidArgument("alpha", f"below 1 for {self.name}", alpha, repair)
        return validate.alpha(alpha)

    def _numbers(self) -> dict[str, Any]:
        return account_settings(self.alpha)
