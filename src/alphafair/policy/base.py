"""`BasePolicy`: the arguments of all policies, checked, and decisions that are used once.

A policy is an `Algorithm` with settings and memory. Its class names the algorithm and validates the settings; the rest
is here, with `stepper` for steps on what was learned, `arms` for changes of it, and `archive` for snapshots.
"""

from __future__ import annotations

import copy
import os
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import jit, validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, Groups, Labels
from alphafair.memory_limit import memory_limit
from alphafair.policy import archive, arms, slates
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.group_accounts import GroupAccounts
from alphafair.policy.memory import DAMAGED, LearnedState, Memory
from alphafair.policy.random_numbers import RandomNumbers
from alphafair.policy.regressors import Regressors
from alphafair.policy.stepper import Stepper, damaged
from alphafair.values import (
    Account,
    ChosenDecision,
    Decision,
    Feedback,
    Log,
    Policy,
    SlateDecision,
    State,
    UniformSource,
)
from alphafair.values.arrays import Matrix, Vector

_new_decision = tuple.__new__  # twice as fast as the constructor of a NamedTuple
SMALL = 1 << 26  # bytes: any process may have so much
ROWS_PER_ARM = 24  # numbers per arm outside the layout: accounts, groups, labels


class _Markers(NamedTuple):
    """Marks that a policy leaves on a decision of `choose` when it uses it, so that it uses it once."""

    learned: object
    expected: object
    forgone: object


EXPECT, FORGO = 1, 2  # positions of markers
_ALLOWED = ("", "a decision that is not expected yet", "a decision whose reward may still come")


class _HeldAtFork:
    """The lock of a policy that another thread was using when this process was forked: every call raises."""

    def acquire(self) -> None:
        raise RuntimeError(
            "Another thread was using this policy when the process was forked, so its state here may be incomplete. "
            "Create the policy in each child, or load a snapshot there."
        )

    def release(self) -> None:
        """Nothing is held."""

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exception: object) -> None:
        """Nothing is held."""


_policies: weakref.WeakSet[BasePolicy] = weakref.WeakSet()  # of this process


def _check_locks_after_fork() -> None:
    """In a forked process: let no call wait for a thread that is not there."""
    for policy in _policies:
        if policy._lock.acquire(blocking=False):
            policy._lock.release()
        else:
            policy._use_lock(_HeldAtFork())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_check_locks_after_fork)


class BasePolicy(Policy):
    """Base class of policies: set `algorithm`, validate the settings in `__init__`, return them in `_numbers`.

    Many threads may share a policy: calls are atomic. Whole runs release the GIL; other calls of the same policy wait.
    """

    _version: ClassVar[int] = 4  # of snapshots; increase it when names or shapes of arrays change
    algorithm: ClassVar[Algorithm | Mapping[Feedback, Algorithm]]
    welfare_algorithm: ClassVar[Algorithm | Mapping[Feedback, Algorithm] | None] = (
        None  # for alpha >= 1; None: the same
    )

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        *,
        settings: Mapping[str, Any],
        seed: int | None,
        groups: Groups | Labels | None = None,
        regressor: Any = None,
    ) -> None:
        self.n_contexts = validate.integer("n_contexts", n_contexts, low=1)
        self.n_arms = validate.integer("n_arms", n_arms, low=1)
        self.settings = dict(settings)
        self._check_size(self.n_contexts, self.n_arms)
        self._random_numbers = RandomNumbers(seed)
        parts: dict[str, Any] = {}  # of what is learned
        if self._keeps_group_accounts():
            known = Groups.of(groups).for_arms(self.n_arms)
            parts["groups"] = GroupAccounts(known, self._own_algorithm())
            arguments = known.settings()
            self.settings |= {"groups": arguments} if arguments else {}
        if regressor is not None:
            regressors = Regressors(regressor, self.n_arms, of_arms=len(self.feature_shape) == 2)
            parts["regressors"], self.settings["regressor"] = regressors, regressors.blank
        self._start(np.ones(self.n_arms, dtype=np.bool_), **parts)

    # for subclasses to override

    def _numbers(self) -> Mapping[str, Any]:
        """Return the settings as numbers, by the names of the algorithm's layout."""
        return {}

    def _check_n_live(self, n_live: int) -> None:
        """Raise if the settings do not allow `n_live` live arms."""
        if self.groups is not None:
            self.groups.check_floor(n_live)

    def _arms_added(self, first: int) -> None:
        """Initialize the columns of new arms, from `first` on, in other ways than the algorithm."""

    def _check_size(self, n_contexts: int, n_arms: int) -> None:
        """Raise for more features, arms or contexts than fit into memory."""
        layout, of_arms = self._own_algorithm().layout, len(self.feature_shape) == 2
        per_arm = int(layout.arms.size + layout.scratch.size + ROWS_PER_ARM)
        per_context, cells_per_arm = int(layout.context_scalars.size), int(layout.contexts.size)

        def n_bytes(sizes: list[int]) -> int:
            d, n_arms, n_contexts = sizes
            cells = n_arms * (per_arm + (d if of_arms else d * d)) + 2 * d * d
            return 8 * cells + n_contexts * max(1, 8 * (per_context + cells_per_arm * n_arms))

        names, sizes = ("n_features", "n_arms", "n_contexts"), [self.n_features, n_arms, n_contexts]
        if n_bytes(sizes) <= SMALL:
            return
        fitting, limit = [0, 1, 1], memory_limit()
        for k, (argument, size) in enumerate(zip(names, sizes, strict=True)):
            if n_bytes([*sizes[: k + 1], *fitting[k + 1 :]]) > limit:
                tried = range(min(size, limit))
                tail = fitting[k + 1 :]
                most = bisect_right(tried, limit, key=lambda size: n_bytes([*sizes[:k], size, *tail])) - 1
                others = "".join(f" with {n_arms} arms" for name in names[:k] if name == "n_arms")
                allowed = f"at most {max(most, 1)}{others}, which fit into memory"
                raise InvalidArgument(argument, allowed, size, f"Choose {argument} inside that range.")

    @classmethod
    def _of_this_version(cls, state: State) -> State:
        """Return a snapshot of an older version as this one would have written it, where that is possible."""
        return state

    @classmethod
    def _settings_of_this_version(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings that an older version wrote as this one takes them, where that is possible."""
        return dict(settings)

    def _settings_for(self, n_contexts: int) -> dict[str, Any]:
        """Return the settings for `n_contexts` contexts."""
        return self.settings

    # attributes

    def _own_algorithm(self) -> Algorithm:
        chosen = type(self).algorithm
        if self._on_welfare():
            chosen = type(self).welfare_algorithm or chosen
        return chosen if isinstance(chosen, Algorithm) else chosen[self.feedback]

    def _on_welfare(self) -> bool:
        """Whether the algorithm is that of alpha >= 1."""
        return self.alpha is not None and self.alpha >= 1.0

    def _sided(self) -> bool:
        """Whether the policy is fair to contexts too."""
        return False

    def _keeps_group_accounts(self) -> bool:
        algorithm = self._own_algorithm()
        return algorithm.accounts == "account" and "account" in algorithm.layout.arms._fields

    def __repr__(self) -> str:
        shown = {key: Groups(**value) if key == "groups" else value for key, value in self.settings.items()}
        settings = "".join(f", {key}={value!r}" for key, value in shown.items())
        return f"{type(self).__name__}({self.n_contexts}, {self.n_arms}{settings})"

    @property
    def seed(self) -> int | None:
        """The seed of `choose` without `rng`."""
        return self._random_numbers.seed

    @property
    def live_arms(self) -> NDArray[np.int64]:
        """The arms that are not retired."""
        return self._learned.live_arms.copy()

    @property
    def groups(self) -> ArmGroups | None:  # type: ignore[override]
        """The groups, if the policy supports them; by default every arm is its own group."""
        return None if self._learned.groups is None else self._learned.groups.groups

    @property
    def _memory(self) -> Memory:
        """What kernels read and write."""
        return self._learned.memory

    @property
    def accounts(self) -> Vector | Matrix | None:  # type: ignore[override]
        """R: 1 + the rewards of every arm so far, or of every group; None if the policy keeps no accounts.

        Rewards are expected ones with full information, realized ones with bandit feedback. A policy with accounts per
        context has a row for each.
        """
        with self._lock:
            if self._learned.accounts_in is None:
                return None
            if self._learned.groups is not None and self._learned.pooled:
                return self._learned.groups.accounts(self._learned)
            found = self._learned.accounts_of_all
            return found if self._learned.accounts_per_context else np.array(found[0])

    @property
    def cumulative_rewards(self) -> Vector | Matrix | None:  # type: ignore[override]
        """The rewards of every arm so far, in all periods; None if the policy keeps no accounts."""
        with self._lock:
            return self._one_row(self._learned.closed_rewards + self._learned.rewards_of_all)

    @property
    def period(self) -> int:  # type: ignore[override]
        """The number of the current period, from 0; `new_period` starts the next one."""
        return self._learned.period

    @property
    def period_rewards(self) -> Vector | Matrix | None:  # type: ignore[override]
        """The rewards of every arm in this period; None if the policy keeps no accounts."""
        with self._lock:
            return self._one_row(self._learned.rewards_of_all)

    @property
    def entry_accounts(self) -> Vector | Matrix | None:  # type: ignore[override]
        """The accounts of arms, or of groups, at the start of this period; of later ones, when they entered."""
        with self._lock:
            if self._learned.pooled:
                return self._learned.group_entry.copy()
            return self._one_row(self._learned.entry_accounts.copy())

    def _one_row(self, found: Matrix) -> Vector | Matrix | None:
        """Return a row per context if there are accounts per context; else the only row, or None without accounts."""
        if self._learned.accounts_in is None:
            return None
        return found if self._learned.accounts_per_context else np.array(found[0])

    # parts

    def _start(
        self, live: NDArray[np.bool_], groups: GroupAccounts | None = None, regressors: Regressors | None = None
    ) -> None:
        """Begin with nothing learned and these arms, some of which may be retired."""
        self.n_arms = len(live)
        self._learned = LearnedState(
            self._own_algorithm(),
            self.n_contexts,
            live,
            self._numbers(),
            groups=groups,
            regressors=regressors,
            n_features=self.n_features,
            features_of_arms=len(self.feature_shape) == 2,
        )
        self._bandit, self._reward_range = self.feedback is Feedback.BANDIT, self.traits.reward_range
        self._set_lock()
        self._make_stepper()

    def _make_stepper(self) -> None:
        """Set the stepper, after a change of arms or of the algorithm."""
        kind, groups = type(self), self.groups
        plain = groups is None or groups.is_default
        known = {"GROUPS": not plain, "FEATURES": self.n_features > 0, "WELFARE": self._on_welfare()}
        known |= {"SIDES": self._sided(), "OTHERS": bool(self._learned.memory.others)}
        if self._sided():  # without this test of a setting loops are vectorized: half a round
            known["ONE_SIDE"] = False
        flags = {name: known[name] for name in self._learned.algorithm.flags if name in known}
        kernels = jit.Kernels.needed(self.name, self.feedback.value, flags)
        ours = kind.__module__.startswith("alphafair.")
        bundle = jit.Bundle.of(f"{kind.__module__}.{kind.__qualname__}", kernels if ours else None)
        own_steps = kind.choose is not BasePolicy.choose or kind.update is not BasePolicy.update
        whole_runs = self._learned.regressors is None and not own_steps
        self.stepper = self._stepper_of(flags, bundle, whole_runs)

    def _stepper_of(self, flags: Mapping[str, bool], bundle: jit.Bundle, whole_runs: bool) -> Stepper:
        slates = None
        if self._learned.algorithm.draw_slate is not None and bundle.kernels is not None:
            kernels = bundle.kernels._replace(flags=bundle.kernels.flags | {"slates"})
            slates = jit.Bundle.of(f"{type(self).__module__}.{type(self).__qualname__}", kernels)
        return Stepper(
            self._learned,
            self.feedback,
            flags,
            bundle,
            self._lock,
            whole_runs=whole_runs,
            slate_bundle=slates,
        )

    # choosing

    def probabilities(
        self,
        context: int,
        *,
        k: int | None = None,
        available: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Vector:
        """Return the distribution that `choose` draws from; changes nothing.

        With `k` the probability of every arm to be in a slate of k arms; they sum to the number of shown arms.
        """
        if k is not None:
            return slates.probabilities(self, context, k, available, features)
        with self._lock:
            context = validate.context(context, self.n_contexts)
            mask = None if available is None else self._mask(available)
            if features is not None or self.n_features:
                self.stepper.show(validate.features(features, self.feature_shape))
            out = np.empty(self.n_arms)
            self.stepper.draw_among(context, 0.0, out, mask)
            if not self.stepper.is_distribution(out):
                raise damaged(context, out)
        out.setflags(write=False)
        return out

    @overload
    def choose(
        self,
        context: int,
        *,
        k: None = None,
        rng: UniformSource | None = None,
        available: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Decision: ...
    @overload
    def choose(
        self,
        context: int,
        *,
        k: int,
        rng: UniformSource | None = None,
        available: ArrayLike | None = None,
        features: ArrayLike | None = None,
        exposures: Sequence[float] | None = None,
    ) -> SlateDecision: ...
    def choose(
        self,
        context: int,
        *,
        k: int | None = None,
        rng: UniformSource | None = None,
        available: ArrayLike | None = None,
        features: ArrayLike | None = None,
        exposures: Sequence[float] | None = None,
    ) -> Decision | SlateDecision:
        """Draw an arm with one uniform number; changes nothing but the random numbers.

        With `k` draw a slate of k different arms, or of all that are available if they are fewer, which are all shown
        and all rewarded. Any k may follow any other. The slots of a slate are shuffled, unless `exposures` says how
        much each is looked at, such as (1, 0.6, 0.4): then the best arm is first, and `update` divides rewards by the
        exposure of their slot before it learns from them; accounts get them as they are.
        """
        if k is not None:
            return slates.choose(self, context, k, rng, available, features, exposures)
        if exposures is not None:
            raise InvalidArgument("exposures", "left out without k", exposures, "Pass k, the number of slots.")
        try:  # `with self._lock`, at half the cost
            self._acquire()
            if type(context) is not int or not 0 <= context < self.n_contexts:
                context = validate.context(context, self.n_contexts)
            mask = None if available is None else self._mask(available)
            stepper = self.stepper
            shown = None
            if features is not None or self.n_features:
                shown = validate.features(features, self.feature_shape)
                stepper.show(shown)
            if rng is None:
                block = self._random_numbers.block
                uniform = block.pop() if block else self._random_numbers.random()
            else:
                uniform = validate.uniform(rng)
            if not stepper.rows:
                stepper.add_rows()
            out, probabilities = stepper.rows.pop()
            learned = self._learned
            if learned.all_live:  # `stepper.draw_among`, without its calls
                arm, propensity = stepper.draw(learned.memory, context, uniform, out)
                stepper.drawn, stepper.drawn_at = context, learned.version
                if mask is not None:
                    arm, propensity = stepper.mask(learned.memory, out, mask, uniform)
            else:
                arm, propensity = stepper.draw_among(context, uniform, out, mask)
            if not propensity > 0.0:
                raise damaged(context, out)
        finally:
            self._release()
        decision = _new_decision(ChosenDecision, (context, arm, propensity, probabilities))
        if shown is not None:
            decision._features = shown
        return decision

    def _mask(self, available: ArrayLike) -> NDArray[np.bool_]:
        mask = validate.available(available, self.n_arms)
        if not self._learned.all_live and not mask[self._learned.live_arms].any():
            repair = "Skip the decision when no arm can be played."
            raise InvalidArgument("available", "true for at least one arm that is not retired", mask, repair)
        return mask

    # learning

    def update(self, decision: Decision | SlateDecision, reward: Any) -> None:
        """Learn from a decision and its reward (the rewards of all arms under full information): once, at any time.

        Of a slate under bandit feedback pass one reward per shown arm, in the order of `decision.arms`, or a mapping
        from some of these arms to their rewards; the others may follow later, each once.

        The same decision of `choose` is refused a second time. A decision that the caller has rebuilt, for example from
        a log, is not recognized: the caller must pass it once. Under bandit feedback its probabilities may be None; the
        propensity is enough.

        An error changes nothing, and the update can be repeated (a `learn` of your own should keep to this). After an
        interrupt in the middle of a step, or an error of a regressor, the decision counts as learned, although a part
        of what was to be learned may be missing.
        """
        used_for = None
        try:
            self._acquire()
            n_arms = self.n_arms
            if type(decision) is ChosenDecision:  # valid in itself; it must still fit this policy
                used_for = decision._used
                if used_for and self._markers[0] in used_for:
                    self._raise_used("a decision that this policy has not learned from", decision)
                decision._used = (*self._learned_from, *used_for) if used_for else self._learned_from
                context, arm, propensity, probabilities = decision
                fits = context < self.n_contexts and len(probabilities) == n_arms and propensity <= 1.0
            elif isinstance(decision, SlateDecision):
                slates.update(self, decision, reward)
                return
            else:
                fits = False
            if not fits:
                context, arm, propensity, probabilities = validate.decision(decision, self.n_contexts, n_arms)
            low, high = self._reward_range
            if self._bandit:
                if type(reward) is not float or not low <= reward <= high:
                    reward = validate.reward(reward, low, high)
                learned, stepper = self._learned, self.stepper
                if learned.all_live and not self.n_features:
                    if stepper.drawn != context or stepper.drawn_at != learned.version:
                        stepper.prepare(learned.memory, context)
                    learned.version += 1
                    if stepper.learn(learned.memory, context, arm, propensity, reward) is False:
                        raise stepper.impossible(context, propensity)
                else:
                    self._learn_one(decision, context, arm, propensity, reward)
            else:
                rewards, used = _copied(reward, n_arms), _copied(probabilities, n_arms)
                if rewards is None or not self.stepper.all_within(rewards, low, high):
                    rewards = validate.rewards(reward, n_arms, n_arms if probabilities is None else len(decision[3]))
                if used is None or not self.stepper.is_distribution(used):
                    used = validate.decision_probabilities(probabilities, n_arms)
                if self._learned.all_live and not self.n_features:
                    self.stepper.learn_late(context, used, rewards)
                else:
                    self._learn_all(decision, context, used, rewards)
        except Exception as problem:
            changed = self._learned.regressors is not None and not isinstance(problem, InvalidArgument)
            if used_for is not None and not changed:
                decision._used = used_for  # type: ignore[union-attr]
            raise
        finally:
            self._release()

    def _learn_one(self, decision: Decision, context: int, arm: int, propensity: float, reward: float) -> None:
        """Learn from the reward of the pulled arm, if arms are retired or rounds have features."""
        learned, stepper = self._learned, self.stepper
        column, features = learned.column(arm), self._show_again(decision)
        if column < 0:  # a retired arm: only its account changes
            learned.book_late(np.array([context]), np.array([arm]), np.array([reward]))
        elif stepper.learn_late(context, column, propensity, reward) is False:
            raise stepper.impossible(context, propensity)
        elif features is not None:
            stepper.fit(features, column, reward)

    def _learn_all(self, decision: Decision, context: int, used: Vector, rewards: Vector) -> None:
        """Learn from the rewards of all arms; `used` is the distribution of the decision."""
        learned, features = self._learned, self._show_again(decision)
        if not learned.all_live:
            with np.errstate(all="ignore"):
                earned = used * rewards
            learned.book_retired([context], earned[None])
            used, rewards = used[learned.live_arms], rewards[learned.live_arms]
        self.stepper.learn_late(context, used, rewards)
        if features is not None:
            for column, each in enumerate(rewards.tolist()):
                self.stepper.fit(features, column, each)

    def _show_again(self, decision: Decision | SlateDecision) -> NDArray[np.float64] | None:
        """Write the features of a decision to memory and return them; None for policies without features."""
        if not self.n_features:
            return None
        features = validate.features(getattr(decision, "features", None), self.feature_shape)
        self.stepper.show(features)
        return features

    @staticmethod
    def _raise_used(allowed: str, decision: Decision | SlateDecision) -> None:
        kind = "SlateDecision" if isinstance(decision, SlateDecision) else "Decision"
        repair = f"Pass each decision once. To learn from it again on purpose, pass {kind}(*decision)."
        raise InvalidArgument("decision", allowed, decision, repair)

    def expect(self, decision: Decision | SlateDecision) -> None:
        """Announce a reward that will come later; some policies count it in advance, until `update` or `forgo`."""
        with self._lock:
            self._notify(self.stepper.expect, decision, EXPECT)

    def forgo(self, decision: Decision | SlateDecision) -> None:
        """Announce that an expected reward will never come."""
        with self._lock:
            self._notify(self.stepper.forgo, decision, FORGO)

    def _notify(
        self, kernel: Callable[[Memory, int, int], None], decision: Decision | SlateDecision, kind: int
    ) -> None:
        if isinstance(decision, SlateDecision):
            slates.notify(self, decision, kernel, kind, _ALLOWED[kind])
            return
        fits, used = False, None
        if type(decision) is ChosenDecision:  # see `update`
            used = decision._used
            if used and (self._markers[kind] in used or self._markers[0] in used):
                self._raise_used(_ALLOWED[kind], decision)
            context, arm, propensity, probabilities = decision
            fits = context < self.n_contexts and len(probabilities) == self.n_arms and propensity <= 1.0
        if not fits:
            context, arm, _, _ = validate.decision(decision, self.n_contexts, self.n_arms)
        if used is not None:
            decision._used = (*used, self._markers[kind])  # type: ignore[attr-defined]
        learned = self._learned
        column = arm if learned.all_live else learned.column(arm)
        if column >= 0:
            learned.version += 1
            kernel(learned.memory, context, column)

    # decisions of others

    @property
    def learns_from_others(self) -> bool:  # type: ignore[override]
        """Whether `observe` teaches it anything: with a predictor of rewards, under bandit feedback."""
        return self._learned.algorithm.observe is not None and self._learned.regressors is None

    def observe(self, context: int, arm: int, reward: Any, features: ArrayLike | None = None) -> bool:
        """Learn from the reward of a decision that somebody else made; return whether anything was learned.

        No propensity is needed. Accounts, rounds and bounds are those of the policy's own decisions, and do not change.
        Nothing is learned, and nothing changes, where `learns_from_others` is False, or from a retired arm.
        """
        with self._lock:
            context = validate.context(context, self.n_contexts)
            arm = validate.integer("arm", arm, low=0, high=self.n_arms - 1)
            reward = validate.reward(reward, *self._reward_range)
            shown = None
            if features is not None or self.n_features:
                shown = validate.features(features, self.feature_shape)
            learned = self._learned
            column = learned.column(arm)
            if column < 0 or not self.learns_from_others:
                return False
            if not learned.memory.others:
                self._begin_others()
            if shown is not None:
                self.stepper.show(shown)
            learned.version += 1
            self.stepper.observe(learned.memory, context, column, reward)
            return True

    def observe_log(self, log: Log) -> bool:
        """Learn from every row of a log of somebody else, in its order; return whether anything was learned.

        One call of `observe` per row, and compiled: what a log says is believed as far as it predicts the policy's own
        rewards, so a wrong one does little harm. `alphafair.evaluation.warm_start` believes every row. Propensities and
        available arms play no part; a decision that showed several arms counts as one row per arm.
        """
        with self._lock:
            return archive.observe_log(self, log)

    def _begin_others(self) -> None:
        """Make the predictor that learns from decisions of others too, and run kernels with it from now on."""
        self._learned.begin_others()
        self._make_stepper()

    @property
    def trust(self) -> float | None:  # type: ignore[override]
        """The weight, at most 0.97, of predictions that count decisions of others too; None before the first."""
        with self._lock:
            algorithm, memory = self._learned.algorithm, self._learned.memory
            return float(algorithm.trust(memory)) if memory.others and algorithm.trust is not None else None

    # changes while it runs

    def set_alpha(self, alpha: float) -> None:
        """Change alpha.

        Accounts and everything learned stay. After the change, certificates cover only later rounds, starting from the
        current accounts. Across 1, and from there on, norms, mixing weights and bandit learners start anew, because
        gains change their scale.
        """
        if "alpha" not in self.settings:
            raise InvalidArgument("alpha", f"left unset: {self.name} has no alpha", alpha, "Use a policy with alpha.")
        alpha = validate.alpha(alpha)
        with self._lock, np.errstate(all="ignore"):
            before = self._on_welfare()
            self.alpha, self.settings = alpha, {**self.settings, "alpha": alpha}
            crosses_one = self._on_welfare() != before
            arms.set_alpha(self._learned, self._own_algorithm(), self._numbers(), crosses_one=crosses_one)
            self._make_stepper()

    def set_groups(self, groups: Groups | Labels | None) -> None:
        """Change groups, entitlements and floors; `groups` has the labels of all arms, retired ones included.

        What was learned about rewards stays. An arm that changes its group takes with it what it has earned in this
        period, and what it brought into the group before; what the group carried over stays with it, and goes with its
        last arm. A new group opens at 1 plus what its arms bring. Without labels every arm is its own group. With other
        entitlements s, R stays and R/s changes. So changing back gives the same accounts.

        After the change certificates cover only later rounds, as after `set_alpha`, against policies that keep the new
        floors.
        """
        if self._learned.groups is None:
            repair = "Use AlphaFair, AlphaFairBandit or AlphaFairAdaptive."
            raise InvalidArgument("groups", f"left as they are: {self.name} does not support groups", groups, repair)
        with self._lock, np.errstate(all="ignore"):
            known = Groups.of(groups).for_arms(self.n_arms, n_live=len(self._learned.live_arms))
            accounts = GroupAccounts(known, self._own_algorithm())
            arms.set_groups(self._learned, accounts, self._numbers())
            arguments = known.settings()
            kept = {name: value for name, value in self.settings.items() if name != "groups"}
            self.settings = {**kept, "groups": arguments} if arguments else kept
            self._make_stepper()

    def new_period(self, carry: float = 0.5) -> None:
        """Start a period: every account R becomes 1 + carry (R - 1), and fairness counts from there.

        What was learned about rewards stays; bounds and certificates cover the new period. `carry` is in [0, 1]: 0
        forgets what arms have earned, 1 keeps it. Rewards that arrive later count in the new period. Retired arms and
        groups carry their accounts too. Policies without accounts only count the period.
        """
        carry = validate.number("carry", carry, low=0.0, high=1.0)
        with self._lock, np.errstate(all="ignore"):
            arms.new_period(self._learned, carry)

    def grow(
        self,
        n_contexts: int | None = None,
        n_arms: int | None = None,
        account: Account = "least",
        *,
        groups: Groups | Labels | None = None,
    ) -> None:
        """Add contexts and arms.

        `n_contexts` and `n_arms` are the new totals, as in the constructor; they cannot fall. None: as many as now.

        New contexts start uniform, or with what was learned about arms in other contexts. The account of a new arm is
        the least account of the live arms (`account="least"`), the initial 1 (`"fresh"`), or a number of at least 1. In
        policies without accounts a new arm starts with an equal share of the probability.

        `groups` has the labels of the new arms and, as a `Groups`, the entitlements of new groups. An arm that joins a
        group shares its account; a new group enters with the least R/s of the live groups, the initial 1, or a given R.
        Without `groups` every new arm is its own group. Floors cannot be added later.
        """
        with self._lock, np.errstate(all="ignore"):
            if n_contexts is not None:
                n_contexts = validate.integer("n_contexts", n_contexts, low=self.n_contexts)
            if n_arms is not None:
                n_arms = validate.integer("n_arms", n_arms, low=self.n_arms)
            entry = validate.account(account)
            n_live = len(self._learned.live_arms) + (n_arms or self.n_arms) - self.n_arms
            self._check_size(n_contexts or self.n_contexts, n_live)
            if groups is not None and (n_arms is None or n_arms == self.n_arms):
                repair = f"Pass n_arms above {self.n_arms} to add arms."
                raise InvalidArgument("groups", "None if no arm is added", groups, repair)
            if n_arms is not None and n_arms > self.n_arms:
                self._check_n_live(n_live)
                self._admit(n_arms - self.n_arms, entry, Groups.of(groups))
            if n_contexts is not None:
                arms.add_contexts(self._learned, n_contexts, self._numbers())
                self.n_contexts, self.settings = n_contexts, self._settings_for(n_contexts)

    def _admit(self, n_new: int, entry: float, arriving: Groups) -> None:
        learned, entries, n_groups = self._learned, np.full(n_new, entry), len(self._learned.group_entry)
        if arriving.pull_floor is not None:
            repair = "Pass all floors to the constructor."
            raise InvalidArgument("groups.pull_floor", "None for new arms", arriving.pull_floor, repair)
        if learned.groups is not None:
            grown = learned.groups.groups.grown(n_new, arriving.labels, arriving.entitlements)
            entries = learned.groups.entries(grown, learned, n_new, entry, arriving.entitlements)
            learned.groups.grow(grown, learned, n_new)
            arguments = grown.settings()
            self.settings = {**self.settings, **({"groups": arguments} if arguments else {})}
        elif arriving.labels is not None or arriving.entitlements is not None:
            repair = "Use AlphaFair, AlphaFairBandit or AlphaFairAdaptive."
            raise InvalidArgument("groups", f"None: {self.name} does not support groups", arriving, repair)
        self._change_arms(np.arange(len(learned.live_arms)), entries)
        if learned.groups is not None and learned.pooled:
            learned.groups.note_entries(learned, n_groups)

    def retire(self, arm: int) -> None:
        """Never draw an arm again. It keeps its number and its account; its late rewards still count."""
        with self._lock, np.errstate(all="ignore"):
            arm, live = validate.integer("arm", arm, low=0, high=self.n_arms - 1), self._learned.live_arms
            if arm not in live:
                allowed = f"one of the live arms {live.tolist()}"
                raise InvalidArgument("arm", allowed, arm, "It is already retired.")
            if len(live) == 1:
                raise InvalidArgument("arm", "one of at least two live arms", arm, "Add another with grow first.")
            self._change_arms(np.flatnonzero(live != arm), np.empty(0))

    def _change_arms(self, kept: NDArray[np.int64], entries: Vector) -> None:
        """Keep the columns `kept`, and add an arm per entry of `entries`: its account, NaN for the least."""
        self.n_arms += len(entries)  # settings may depend on it
        arms.change(self._learned, kept, entries, self._numbers())
        self._make_stepper()
        if len(entries):
            self._arms_added(len(kept))

    # copies and snapshots

    def _set_lock(self) -> None:
        self._use_lock(threading.RLock())  # only its owner can release it, even if a signal interrupts the wait
        _policies.add(self)
        self._mark_with(_Markers(object(), object(), object()))

    def _use_lock(self, lock: Any) -> None:
        self._lock, self._acquire, self._release = lock, lock.acquire, lock.release
        if (stepper := getattr(self, "stepper", None)) is not None:
            stepper.lock = lock

    def _mark_with(self, markers: _Markers) -> None:
        self._markers, self._learned_from = markers, (markers.learned,)

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`: a consistent copy, without spare rows, lock and code."""
        with self._lock:
            return copy.deepcopy(self._shareable())

    def _shareable(self) -> dict[str, Any]:
        """Return the attributes that another policy can take over."""
        own = {"stepper", "_lock", "_acquire", "_release", "_markers", "_learned_from"}
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_attributes(state)
        self._set_lock()
        self._make_stepper()

    def _set_attributes(self, state: dict[str, Any]) -> None:
        """Set attributes that were copied or pickled, and restore the references to the algorithm."""
        self.__dict__.update(state)
        self._learned.algorithm = self._own_algorithm()
        if self._learned.groups is not None:
            self._learned.groups.algorithm = self._learned.algorithm

    def fresh(self) -> Self:
        """Return the same policy with nothing learned and its seed started over; retired arms stay retired."""
        with self._lock:
            settings = self._settings_for(self.n_contexts)
            made: Self = archive.build(
                type(self), self.n_contexts, self._learned.live, settings, self._random_numbers.seed
            )
            return made

    def snapshot(self) -> State:
        """Return everything that is needed to continue from here, random numbers included."""
        with self._lock:
            return archive.snapshot(self)

    def restore(self, state: State) -> None:
        """Continue from a snapshot of a policy of the same class and settings."""
        made = archive.restored(self, state)
        with self._lock:
            self.__dict__.update(made._shareable())  # `made` is discarded
            self._make_stepper()
            self._mark_with(made._markers)  # decisions learned after the snapshot may be learned again

    def _check(self) -> None:
        """Raise for a memory that no sequence of rounds can produce."""
        learned = self._learned
        archive.check_accounts(learned)
        if learned.groups is not None and learned.pooled:
            learned.groups.check(learned)
        wrong = learned.algorithm.check(learned.memory)
        if wrong is not None:
            raise InvalidArgument("state.arrays", wrong, "others", DAMAGED)
        out = np.empty(len(learned.live_arms))
        for context in range(self.n_contexts):
            self.stepper.draw_live(context, 0.0, out)
            if not self.stepper.is_distribution(out):
                raise InvalidArgument(f"state: distribution {context}", "one that sums to 1", out, DAMAGED)


def _copied(value: Any, n_arms: int) -> Vector | None:
    """Return a copy of a float64 array of the right shape, so that kernels see one type only; else None."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.shape == (n_arms,):
        return value.copy()
    return None
