"""A promise of pulls or of rewards around any policy, paid where it costs least.

    D_i = rate_i (t - t_i) - (pulls or rewards of arm i since its entry t_i) ;   l_i = max m - m_i
    m_i = (S_ji + 10 A_i)/(n_ji + 10),   A_i = (S_i + mean of all rewards)/(n_i + 1)

    max D > tolerance:  only the arms that are furthest behind are available
    else, among arms with D > 0, the largest D_i/tolerance - l_i (pulls) or (D_i/tolerance) m_i - l_i (rewards), if it
    is above 0:         only that arm is available
    else:               the policy plays

Maxima are taken over the arms that may be played, and ties are differences of at most 1e-9.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, Groups, GroupsLike, Labels
from alphafair.math.distributions import draw_arm
from alphafair.notions._counts import PerArm, default_share, of_arms, per_arm, refuse_too_many
from alphafair.policy import archive
from alphafair.policy.base import BasePolicy
from alphafair.policy.memory import DAMAGED
from alphafair.policy.plain import Array, Number, PlainPolicy, _PlainStepper
from alphafair.values import Account, Decision, DescribedDecision, Feedback, State, Traits
from alphafair.values.arrays import Matrix, Vector

PRIOR = 10.0  # the weight of an arm's mean in its means by context
TIE = 1e-9
INSIDE = "inside_"  # before the names of arrays of the policy inside, in snapshots
EFFICIENT = {"policy": "alpha-fair-adaptive", "alpha": 0.0}


class _PromisedStepper(_PlainStepper):
    """Steps that need the mask, the features and announcements too, and pass them on to the policy inside."""

    policy: Promised
    shown: NDArray[np.float64] | None = None

    def mask(self, *arguments: Any) -> tuple[int, float]:
        _, out, available, uniform = arguments
        out[:] = self.policy._among(cast(int, self.drawn), available)
        arm = draw_arm(out, uniform)
        return arm, float(out[arm])

    def show(self, features: NDArray[np.float64]) -> None:
        self.shown = features

    def expect(self, *arguments: Any) -> None:
        self.policy._announce(arguments[1], arguments[2], 1.0)

    def forgo(self, *arguments: Any) -> None:
        self.policy._announce(arguments[1], arguments[2], -1.0)

    @property
    def bytes_per_context(self) -> int:
        return super().bytes_per_context + self.policy.policy.stepper.bytes_per_context


def variants(_n_contexts: int, n_arms: int) -> dict[str, dict[str, Any]]:
    """Return the settings to test, by name."""
    share = 0.5 / n_arms
    bandit = {"policy": "alpha-fair-bandit", "alpha": 0.5}
    return {
        "": {},
        "reward": {"inside": bandit, "of": "reward", "rates": 0.05 * share, "tolerance": 3.0},
        "strict": {"inside": {"policy": "fair-cb", "horizon": 5000, "pull_share": 0.1 * share}, "tolerance": 0.0},
    }


class Promised(PlainPolicy):
    """Promise every arm pulls or rewards, and leave everything else to any policy.

    The promise on pulls is $\\lfloor r_i t \\rfloor - N_i(t) \\le$ `tolerance` for every arm and every round t since it
    entered. That on rewards is $\\sum r_i \\ge \\lambda_i t$ up to the tolerance, for rates that can be paid: a reward
    cannot be promised in a round, only sought. Once an arm is behind by more than the tolerance, only the arms that are
    furthest behind are available to the policy inside. Before, what an arm is behind is a price: a debt is paid in a
    context where the arm earns nearly as much as the best one, and the longer it is owed the less that matters.

    Parameters
    ----------
    n_contexts
        A policy with bandit feedback, which is copied; or the number of contexts, with `n_arms` and `inside` in place
        of a policy.
    n_arms
        The number of arms, if no policy is passed.
    inside
        The name and the settings of the policy, if none is passed. Default: `{"policy": "alpha-fair-adaptive",
        "alpha": 0.0}`.
    of
        What is promised: `"pulls"` or `"reward"`.
    rates
        Pulls or reward per round, in [0, 1]: one number, a list with one per arm, or a mapping from arm to rate, in
        which others have 0. Default for pulls: half an equal share. Arms that are added later have the one number, the
        rate that a mapping names, or 0. Pulls have a sum of at most 1.
    tolerance
        How much an arm may be behind, in pulls or in units of reward, at least 0. With 0 only the first rule is left.
    groups
        The groups of the policy inside, if none is passed.
    seed
        Seed of `choose` without `rng`.

    Notes
    -----
    Ours; with tolerance 0 the rule for pulls is that of Fair-Learn, and the rule for rewards the baseline of Baudry and
    others, around any learner. The policy inside learns from forced rounds too, at propensity 1 over the number of
    ties, so nothing in it changes; its masks, groups, features and accounts are those of this policy. Pulls count at
    `expect`, if rewards come late, and at `update` otherwise; `forgo` takes one back. So the promise on pulls holds for
    rewards in order, and for late ones that are expected; the one on rewards counts rounds and rewards at `update`. A
    mask can break either for as long as an arm that is behind is absent. Forced rounds have no overlap: the log of this
    policy cannot be used to evaluate another.

    Examples
    --------
    >>> from alphafair import AlphaFairAdaptive, simulate, streams
    >>> from alphafair.notions import Promised
    >>> stream = streams.ratings(n_rounds=2000, n_contexts=2, n_arms=4)
    >>> policy = Promised(AlphaFairAdaptive(2, 4, alpha=0), rates=0.2, tolerance=10)
    >>> int(simulate(policy, stream, seed=0).pulls.min())  # at least 400 - 10
    397
    """

    name: ClassVar[str] = "promised"
    feedback = Feedback.BANDIT
    traits = Traits(variants=variants, contexts_apart=False)
    rate = Array("arms")
    waiting = Array("arms")  # pulls counted and not learned from yet
    entry = Array("arms")
    arm_counts = Array("arms")
    arm_sums = Array("arms")
    counts = Array("contexts", "arms")
    sums = Array("contexts", "arms")
    rounds = Number()
    seen = Number()
    reward_sum = Number()

    def __init__(
        self,
        n_contexts: BasePolicy | int,
        n_arms: int | None = None,
        *,
        inside: Mapping[str, Any] | None = None,
        of: Literal["pulls", "reward"] = "pulls",
        rates: PerArm | None = None,
        tolerance: float = 10.0,
        groups: Groups | Labels | None = None,
        seed: int | None = None,
    ) -> None:
        if isinstance(n_contexts, BasePolicy):
            for argument, value in (("n_arms", n_arms), ("inside", inside), ("groups", groups)):
                if value is not None:
                    raise InvalidArgument(argument, "None beside a policy", value, "The policy has its own.")
            _kind(n_contexts.name)
            self._inside: BasePolicy = copy.deepcopy(n_contexts)
        else:
            self._inside = _made(n_contexts, n_arms, EFFICIENT if inside is None else inside, groups)
        if self._inside.feedback is not Feedback.BANDIT:
            repair = "Pass feedback='bandit' to it, or choose another."
            raise InvalidArgument("policy", "one with bandit feedback", self._inside, repair)
        self.n_features, live = self._inside.n_features, self._inside._learned.live
        n_live = int(live.sum())
        of = validate.choice("of", of, ("pulls", "reward"))
        if rates is None and of == "reward":
            repair = "Pass rates=, such as half of what uniform play gives an arm per round."
            raise InvalidArgument("rates", "numbers in [0, 1] for rewards", rates, repair)
        given = per_arm("rates", default_share(n_live) if rates is None else rates, len(live))
        own = {"inside": self._settings_inside(), "of": of, "rates": given}
        own["tolerance"] = validate.number("tolerance", tolerance, low=0.0, high=float("inf"))
        if "groups" in self._inside.settings:
            own["groups"] = self._inside.settings["groups"]
        total = sum(given.values()) if isinstance(given, dict) else given * n_live
        if of == "pulls" and total > 1.0 + 1e-12:
            allowed = f"numbers in [0, 1] with a sum of at most 1 over {n_live} arms"
            raise InvalidArgument("rates", allowed, rates, "Lower them.")
        self.inside = own["inside"] if inside is None else dict(inside)
        self.of, self.rates, self.tolerance = of, given, own["tolerance"]
        super().__init__(self._inside.n_contexts, len(live), settings=own, seed=seed)
        if not live.all():
            self._start(live)

    # the rule

    def distribution(self, context: int) -> Vector:
        return self._among(context, np.ones(len(self._learned.live_arms), dtype=np.bool_))

    def _among(self, context: int, available: NDArray[np.bool_]) -> Vector:
        """Return the probabilities of live arms, of which only some are available."""
        learned = self._learned
        mask = np.zeros(self.n_arms, dtype=np.bool_)
        mask[learned.live_arms] = self._owed(context, available)
        features = {"features": self.stepper.shown} if self.n_features else {}  # type: ignore[attr-defined]
        all_live = mask.sum() == len(learned.live_arms)
        p = self._inside.probabilities(context, available=None if all_live else mask, **features)
        return p[learned.live_arms]

    def behind(self) -> Vector:
        """Return D of every live arm: what it is behind, in pulls or in reward."""
        with self._lock:
            since = self.arm_sums if self.settings["of"] == "reward" else self.arm_counts + self.waiting
            return self.rate * (self.rounds - self.entry) - since

    def _owed(self, context: int, available: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the arms that the policy may choose from."""
        debts, tolerance = self.behind(), self.settings["tolerance"]
        most = debts[available].max()
        if most > tolerance:
            return available & (debts >= most - TIE)
        candidates = available & (debts > 0.0)
        if tolerance == 0.0 or not candidates.any():
            return available
        means = self._means(context)
        loss = means[available].max() - means
        worth = debts / tolerance * (means if self.settings["of"] == "reward" else 1.0) - loss
        largest = worth[candidates].max()
        return candidates & (worth >= largest - TIE) if largest > 0.0 else available

    def _means(self, context: int) -> Vector:
        """m: means of the context, drawn towards those of the arms, and these towards the mean of all rewards."""
        overall = self.reward_sum / self.seen if self.seen > 0.0 else 0.0
        of_arm = (self.arm_sums + overall) / (self.arm_counts + 1.0)
        means: Vector = (self.sums[context] + PRIOR * of_arm) / (self.counts[context] + PRIOR)
        return means

    # learning

    def learn(self, context: int, arm: int, propensity: float, reward: float) -> None:
        decision = Decision(context, int(self._learned.live_arms[arm]), propensity, None)  # type: ignore[arg-type]
        self._inside.update(decision, reward)
        self._book(context, arm, reward)

    def _learn_one(self, decision: Decision, context: int, arm: int, propensity: float, reward: float) -> None:
        """The same with features, or with retired arms, whose rewards only the policy inside counts."""
        passed = DescribedDecision(context, arm, propensity, None, getattr(decision, "features", None))  # type: ignore[arg-type]
        self._inside.update(passed, reward)
        self._learned.version += 1
        column = self._learned.column(arm)
        if column >= 0:
            self._book(context, column, reward)

    def _book(self, context: int, arm: int, reward: float) -> None:
        if self.waiting[arm] > 0.0:
            self.waiting[arm] -= 1.0
        else:
            self.rounds += 1.0
        self.seen += 1.0
        self.reward_sum += reward
        self.arm_counts[arm] += 1.0
        self.arm_sums[arm] += reward
        self.counts[context, arm] += 1.0
        self.sums[context, arm] += reward

    def _announce(self, context: int, arm: int, pulls: float) -> None:
        """Count a pull in advance (1) or take it back (-1), here and inside; rounds of rewards count when learned."""
        decision = Decision(context, int(self._learned.live_arms[arm]), 1.0, None)  # type: ignore[arg-type]
        (self._inside.expect if pulls > 0.0 else self._inside.forgo)(decision)
        if self.settings["of"] == "pulls" and (pulls > 0.0 or self.waiting[arm] > 0.0):
            self.waiting[arm] += pulls
            self.rounds += pulls

    # what belongs to the policy inside

    @property
    def policy(self) -> BasePolicy:
        """The policy inside: change it only by the methods of this one."""
        return self._inside

    @property
    def alpha(self) -> float | None:  # type: ignore[override]
        """The fairness exponent of the policy inside."""
        return self._inside.alpha

    @property
    def feature_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """The shape of `features`, as of the policy inside."""
        return self._inside.feature_shape

    @property
    def groups(self) -> ArmGroups | None:  # type: ignore[override]
        """The groups of the policy inside."""
        return self._inside.groups

    @property
    def accounts(self) -> Vector | Matrix | None:  # type: ignore[override]
        """The accounts of the policy inside."""
        return self._inside.accounts

    @property
    def cumulative_rewards(self) -> Vector | Matrix | None:  # type: ignore[override]
        """The rewards that the policy inside has counted."""
        return self._inside.cumulative_rewards

    @property
    def period_rewards(self) -> Vector | Matrix | None:  # type: ignore[override]
        """The rewards of this period that the policy inside has counted."""
        return self._inside.period_rewards

    @property
    def entry_accounts(self) -> Vector | Matrix | None:  # type: ignore[override]
        """The accounts of the policy inside at the start of this period."""
        return self._inside.entry_accounts

    def set_alpha(self, alpha: float) -> None:
        """Change alpha of the policy inside."""
        with self._lock:
            self._inside.set_alpha(alpha)
            self.inside = self._settings_inside()
            self.settings = {**self.settings, "inside": self.inside}

    def set_groups(self, groups: Groups | Labels | None) -> None:
        """Change the groups of the policy inside."""
        with self._lock:
            self._inside.set_groups(groups)
            self.settings = {name: value for name, value in self.settings.items() if name != "groups"}
            self.settings = self._settings_for(self.n_contexts)

    def new_period(self, carry: float = 0.5) -> None:
        """Start a period of the policy inside; promises go on."""
        with self._lock:
            self._inside.new_period(carry)
            super().new_period(carry)

    def grow(
        self,
        n_contexts: int | None = None,
        n_arms: int | None = None,
        account: Account = "least",
        *,
        groups: Groups | Labels | None = None,
    ) -> None:
        """Add contexts and arms, here and inside: see `BasePolicy.grow`. New arms are owed nothing at their entry."""
        with self._lock:
            grown = copy.deepcopy(self._inside)
            grown.grow(n_contexts, n_arms, account, groups=groups)
            kept, self._inside = self._inside, grown
            try:
                super().grow(n_contexts, n_arms, account)
            except BaseException:
                self._inside = kept
                raise
            self.settings = self._settings_for(self.n_contexts)

    def retire(self, arm: int) -> None:
        """Never draw an arm again; its late rewards still count inside."""
        with self._lock:
            super().retire(arm)
            self._inside.retire(int(arm))

    def arms_added(self, first: int) -> None:
        self.rate[first:] = of_arms(self.settings["rates"], self._learned.live_arms[first:])
        self.entry[first:] = self.rounds

    # copies and snapshots

    def fresh(self) -> Self:
        """Return the same policy with nothing learned and its seed started over; retired arms stay retired."""
        with self._lock:
            made = super().fresh()
            made._inside = self._inside.fresh()
            return made

    def snapshot(self) -> State:
        """Return everything that is needed to continue from here, with that of the policy inside."""
        with self._lock:
            own, inside = super().snapshot(), self._inside.snapshot()
            arrays = {f"{INSIDE}{name}": array for name, array in inside.arrays.items()}
            version = {f"{INSIDE}version": np.array(inside.version)}
            return replace(own, arrays={**own.arrays, **arrays, **version})

    def restore(self, state: State) -> None:
        """Continue from a snapshot of the same class and settings, with the same policy inside."""
        archive.check_state(state)
        mine = {name: array for name, array in state.arrays.items() if not name.startswith(INSIDE)}
        arrays = {name.removeprefix(INSIDE): each for name, each in state.arrays.items() if name not in mine}
        own = replace(state, arrays=mine)
        archive.check_kind(own, self.name, self._version)
        version = int(archive.array_of(state, f"{INSIDE}version", np.int64, ()))
        arrays.pop("version")
        n_contexts = validate.integer("state.settings['n_contexts']", state.settings.get("n_contexts"), low=1)
        settings = dict(self._inside._settings_for(n_contexts))
        shared = ("groups", "n_contexts", "n_arms")
        settings |= {name: state.settings[name] for name in shared if name in state.settings}
        made = copy.deepcopy(self._inside)
        made.restore(State(made.name, version, settings, state.rng, arrays))
        with self._lock:
            super().restore(own)
            self._inside = made

    def _start(self, live: NDArray[np.bool_], *parts: Any, **named: Any) -> None:
        super()._start(live, *parts, **named)
        self.rate = of_arms(self.settings["rates"], self._learned.live_arms)
        if not np.array_equal(self._inside._learned.live, live):  # built with the number of live arms
            settings = {name: value for name, value in self._settings_inside().items() if name != "policy"}
            settings |= {name: value for name, value in self.settings.items() if name == "groups"}
            self._inside = archive.build(type(self._inside), self.n_contexts, live, settings, None)

    def _check(self) -> None:
        super()._check()
        expected = of_arms(self.settings["rates"], self._learned.live_arms)
        if not np.array_equal(self.rate, expected):
            raise InvalidArgument("state: rates", f"those of its settings, {expected}", self.rate, DAMAGED)

    def _settings_inside(self, n_contexts: int | None = None) -> dict[str, Any]:
        """Return the name and the settings of the policy inside, but for its groups, which are settings of this one."""
        inside = self._inside
        settings = inside._settings_for(inside.n_contexts if n_contexts is None else n_contexts)
        return {"policy": inside.name, **{name: value for name, value in settings.items() if name != "groups"}}

    def _settings_for(self, n_contexts: int) -> dict[str, Any]:
        groups = {name: value for name, value in self._inside.settings.items() if name == "groups"}
        return {**self.settings, "inside": self._settings_inside(n_contexts), **groups}

    def _check_n_live(self, n_live: int) -> None:
        if self.settings["of"] == "pulls":
            refuse_too_many("rates", self.settings["rates"], n_live, open_end=False)

    def _stepper_of(self, *arguments: Any) -> Any:
        flags, bundle, _ = arguments
        stepper = _PromisedStepper(self._learned, self.feedback, flags, bundle, self._lock, whole_runs=False)
        stepper.policy = weakref.proxy(self)
        return stepper


def _kind(name: Any) -> type[BasePolicy]:
    """Return the class of a policy by its name."""
    from alphafair.notions import find  # which imports this module

    return find(name, "inside['policy']")


def _made(n_contexts: Any, n_arms: Any, inside: Any, groups: GroupsLike | None) -> BasePolicy:
    """Return the policy of a name and settings."""
    repair = 'Pass, for example, inside={"policy": "alpha-fair-adaptive", "alpha": 0.0}.'
    if not isinstance(inside, Mapping) or "policy" not in inside:
        raise InvalidArgument("inside", "a mapping with a policy and its settings", inside, repair)
    settings = dict(inside)
    kind: Any = _kind(settings.pop("policy"))
    settings |= {} if groups is None else {"groups": groups}
    n_arms = validate.integer("n_arms", n_arms, low=1)
    try:
        made: BasePolicy = kind(n_contexts, n_arms, **settings)
    except TypeError as problem:
        raise InvalidArgument("inside", f"settings of {kind.__name__}", inside, f"{problem}.") from None
    return made
