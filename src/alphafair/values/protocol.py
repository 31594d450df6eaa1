"""The protocol that every policy keeps, and what is true of a kind of policy."""

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
    """What a policy is shown after a round."""

    FULL = "full"  # the rewards of all arms, as a vector
    BANDIT = "bandit"  # the reward of the pulled arm, as a float


class UniformSource(Protocol):
    """Anything with a `random()` in [0, 1): `numpy.random.Generator`, `random.Random`, your own replay."""

    def random(self) -> float: ...


Account = Literal["least", "fresh"] | float  # what a new arm is taken to have earned


@dataclass(frozen=True, eq=False)
class Traits:
    """What is true of a kind of policy: what checks, tables, pictures and the engine need to know about a class.

    `variants` are the settings that it is worth checking in, by name, for so many contexts and arms; "" is the plain
    one.
    """

    reward_range: tuple[float, float] = (0.0, 1.0)
    learns: bool = True  # False for one that plays the same whatever it is told
    feedbacks: tuple[Feedback, ...] = ()  # those to choose from, where the constructor takes a `feedback`
    contexts_apart: bool = True  # False: what a context plays depends on how many others there are
    style: tuple[str, str] | None = None  # colour and marker in figures; None: chosen automatically
    variants: Callable[[int, int], dict[str, dict[str, Any]]] = lambda n_contexts, n_arms: {"": {}}


@runtime_checkable
class Policy(Protocol):
    """What every policy can do. Derive from `alphafair.extend.PlainPolicy`, or `alphafair.BasePolicy` for machine code.

    Or derive from this, and write everything yourself. It is made as `Policy(n_contexts, n_arms, seed=None, ...)`. What
    it promises, and `alphafair check` looks for:

    - `probabilities` is a distribution over all arms, to 1e-12, whatever rewards in `traits.reward_range` have come.
    - `probabilities` and `choose` are questions: they change nothing but the policy's own random numbers.
    - `choose` draws one uniform number, from `rng` or its own (one seed, one path), and the decision holds the
      distribution, read-only, and the arm's true probability. An arm that is not `available`, or retired, is never
      drawn.
    - `update` is called once per decision that has a reward, at any time and in any order, also after arms came and
      went: all that it needs of the past is in the decision. Our policies refuse a decision of `choose` the second
      time; they cannot recognise one that was rebuilt from a log. Under full information `update` is given as many
      rewards as there were arms when the decision was made. What was not shown does not matter; arms that pay more
      are, in the end, pulled more often, unless `traits.learns` is False.
    - Numbers are names: rename arms or contexts, and the answer is renamed, but for ties.
    - `grow` leaves old contexts as they are; accounts, for a policy that keeps them, are "least", "fresh" or a number.
      A retired arm keeps its number and has probability 0; rewards of it that come late are welcome. To retire it once
      more, or to make nothing but it available, is bad input.
    - `snapshot`, then `restore` into a policy of the same kind and settings, and play goes on as if nothing had
      happened, with the contexts and arms of then. What is learned later does not change a snapshot. `fresh` has
      learned nothing, and starts its seed over.
    - Bad input is refused with a ValueError (a TypeError, for what is no number at all), and changes nothing.
    - Many threads may use it: every call is done as a whole. One that has `cumulative_rewards` books every reward once.
    - One with kernels: whole runs equal single steps to the last bit, and its memory does not grow.

    How it starts, what it makes of a mask, and how close to certainty it comes are its own affair.
    """

    name: ClassVar[str]
    feedback: Feedback
    n_contexts: int
    n_arms: int
    n_features: int = 0  # more than 0: it is asked with `features=`, which have the shape `feature_shape`
    feature_shape: tuple[int, ...] = ()
    traits: ClassVar[Traits] = Traits()
    alpha: float | None = None  # how fair it is, for one that is
    groups: ArmGroups | None = None  # whom it is fair to, where that is not every arm by itself
    accounts: Vector | Matrix | None = None  # R, for one that keeps accounts: 1 and what arms, or groups, have earned
    cumulative_rewards: Vector | Matrix | None = None  # what arms have earned, for one that keeps accounts
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
        """A reward for this decision is on its way; `update` or `forgo` ends the wait. Nothing, by default."""
        return

    def forgo(self, decision: Decision) -> None:
        """No reward will come for a decision that was expected to have one. Nothing, by default."""
        return

    def grow(self, n_contexts: int | None = None, n_arms: int | None = None, account: Account = "least") -> None: ...
    def retire(self, arm: int) -> None: ...
    def snapshot(self) -> State: ...
    def restore(self, state: State) -> None: ...
    def fresh(self) -> Self: ...
