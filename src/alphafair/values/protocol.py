"""The protocol of policies, and the traits of a policy class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

from numpy.typing import ArrayLike

from alphafair.values.arrays import Matrix, Vector
from alphafair.values.decision import Decision
from alphafair.values.state import State

if TYPE_CHECKING:
    from alphafair.groups import ArmGroups


class Feedback(StrEnum):
    """What a policy observes after a round."""

    FULL = "full"  # the rewards of all arms, as a vector
    BANDIT = "bandit"  # the reward of the pulled arm, as a float


class UniformSource(Protocol):
    """Any object whose `random()` is in [0, 1): `numpy.random.Generator`, `random.Random`, a recorded sequence."""

    def random(self) -> float: ...


Account = Literal["least", "fresh"] | float  # the account of a new arm


@dataclass(frozen=True, eq=False)
class Traits:
    """Facts about a policy class for checks, tables, figures and the engine.

    `variants(n_contexts, n_arms)` returns the settings to test, by name; "" is the default one.
    """

    reward_range: tuple[float, float] = (0.0, 1.0)
    learns: bool = True  # False if rewards never change its distribution
    feedbacks: tuple[Feedback, ...] = ()  # the allowed values, if the constructor takes a `feedback`
    slates: bool = False  # True if `choose` and `probabilities` take `k`, the number of arms to show
    contexts_apart: bool = True  # False: the distribution of a context depends on the number of contexts
    style: tuple[str, str] | None = None  # color and marker in figures; None: chosen automatically
    variants: Callable[[int, int], dict[str, dict[str, Any]]] = lambda n_contexts, n_arms: {"": {}}


@runtime_checkable
class Policy(Protocol):
    """The protocol of all policies. Derive from `alphafair.extend.PlainPolicy`, or `alphafair.BasePolicy` for kernels.

    Or derive from this class and implement every method. A policy is constructed as `Policy(n_contexts, n_arms,
    seed=None, ...)`. `alphafair check` tests that:

    - `probabilities` is a distribution over all arms, to 1e-12, after any rewards in `traits.reward_range`.
    - `probabilities` and `choose` change nothing but the policy's own random numbers.
    - `choose` draws one uniform number, from `rng` or from its own generator (one seed, one path). The decision holds
      the distribution, read-only, and the true probability of the arm. An arm that is not `available`, or is retired,
      is never drawn.
    - `update` is called once per rewarded decision, at any time and in any order, also after arms were added or
      retired: everything it needs from the past is in the decision. Policies of this package refuse the same decision
      of `choose` a second time; they cannot recognize one that was rebuilt from a log. Under full information `update`
      takes as many rewards as there were arms at the time of the decision. Unobserved rewards have no effect. Arms
      with higher rewards are eventually pulled more often, unless `traits.learns` is False.
    - Renaming arms or contexts renames the answers, except for ties.
    - `grow` takes the new totals and does not change existing contexts; the account of a new arm is "least", "fresh" or
      a number. A retired arm keeps its number and has probability 0; late rewards of it are accepted. Retiring it
      again, or making only it available, is invalid.
    - `restore` of a `snapshot` into a policy of the same class and settings continues exactly as the original, with the
      contexts and arms of the snapshot. Later updates do not change a snapshot. `fresh` has learned nothing and starts
      its seed over.
    - Invalid input raises ValueError (TypeError for values that are not numbers) and changes nothing.
    - Many threads may share it: calls are atomic. If it has `cumulative_rewards`, every reward is counted once.
    - With kernels, whole runs equal single steps to the last bit, and its memory does not grow.

    - If `traits.slates`: with `k`, `choose` returns a `SlateDecision` of min(k, available live arms) different arms,
      from the same single uniform number, and `probabilities` those of being in the slate, which sum to that number.
      `update` then takes one reward per shown arm, or a mapping from some of the arms to their rewards, each once.

    The initial distribution, the effect of a mask, and how close to certainty it comes are up to the policy.
    """

    name: ClassVar[str]
    feedback: Feedback
    n_contexts: int
    n_arms: int
    n_features: int = 0  # above 0: `choose` needs `features=` of shape `feature_shape`
    feature_shape: tuple[int, ...] = ()
    traits: ClassVar[Traits] = Traits()
    alpha: float | None = None  # the fairness exponent, if it has one
    groups: ArmGroups | None = None  # its groups, if it supports them
    accounts: Vector | Matrix | None = None  # R, if it keeps accounts: 1 + the rewards of arms, or of groups
    cumulative_rewards: Vector | Matrix | None = None  # the rewards of arms, if it keeps accounts
    period: int = 0  # the number of times that `new_period` was called
    period_rewards: Vector | Matrix | None = None  # the rewards of arms in this period, if it keeps accounts
    entry_accounts: Vector | Matrix | None = None  # R at the start of this period, if it keeps accounts
    most_shown: int = 1  # the largest number of arms of a decision that it has learned from
    learns_from_others: bool = False  # whether `observe` can teach it anything
    trust: float | None = None  # the weight of predictions that also count the rewards of others; None before the first
    context_weight: float = 0.0  # the weight of contexts beside arms in its objective; 0: it is fair to arms alone
    context_weights: list[float] | None = None  # fixed weights of contexts, if it has them
    context_share: float = 0.0  # the part of the rewards of its best arm that every context is promised
    context_debts: Vector | None = None  # what every context is owed, with a promise
    context_share_bound: float | None = None  # an upper bound of every debt, where it is known
    context_accounts: Vector | None = None  # 1 + the rewards in every context, if it is fair to contexts too
    context_entry_accounts: Vector | None = None  # the same at the start of this period
    surrogate_regret_bound: float | None = None  # for `metrics.regret_certificate`
    expected_surrogate_regret_bound: float | None = None  # for `metrics.bound_in_expectation`

    def probabilities(self, context: int, *, available: ArrayLike | None = None) -> Vector: ...
    def choose(
        self,
        context: int,
        *,
        rng: UniformSource | None = None,
        available: ArrayLike | None = None,
    ) -> Decision: ...
    def update(self, decision: Decision, reward: Any) -> None: ...

    def expect(self, decision: Decision) -> None:
        """Announce a reward that will come later, with `update` or never (`forgo`). Does nothing by default."""
        return

    def forgo(self, decision: Decision) -> None:
        """Announce that an expected reward will never come. Does nothing by default."""
        return

    def observe(self, context: int, arm: int, reward: Any, features: ArrayLike | None = None) -> bool:
        """Take note of a decision that somebody else made, and of its reward; return whether it was learned from.

        Nobody's account, and no count of rounds, changes. Does nothing by default.
        """
        return False

    def new_period(self, carry: float = 0.5) -> None:
        """Start a period with accounts of 1 + carry (R - 1). Does nothing by default."""
        return

    def grow(self, n_contexts: int | None = None, n_arms: int | None = None, account: Account = "least") -> None: ...
    def retire(self, arm: int) -> None: ...
    def snapshot(self) -> State: ...
    def restore(self, state: State) -> None: ...
    def fresh(self) -> Self: ...
