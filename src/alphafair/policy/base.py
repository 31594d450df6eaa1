"""`BasePolicy`: what all policies share. Choosing, learning, arms that come and go, snapshots, whole runs.

A policy is an `Algorithm` with settings and memory. Its class names the algorithm and checks the settings; everything
else is here.
"""

from __future__ import annotations

import copy
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import jit, validate
from alphafair.errors import InvalidArgument
from alphafair.groups import ArmGroups, Groups, Labels
from alphafair.math.distributions import all_within, draw_arm, is_distribution, mask_alone
from alphafair.math.least_squares import feature_memory
from alphafair.math.utility import ACCOUNT
from alphafair.policy.algorithm import Algorithm
from alphafair.policy.group_accounts import GroupAccounts
from alphafair.policy.loops import LEARN, PER_STEP, LogSteps, loop
from alphafair.policy.memory import (
    DAMAGED,
    Learned,
    Memory,
    RandomNumbers,
    Regressors,
    check_kind,
    checked_state,
    settings_vector,
)
from alphafair.values import Account, ChosenDecision, Decision, Feedback, Policy, State, UniformSource
from alphafair.values.arrays import Indices, Matrix, Vector, frozen

_new_decision = tuple.__new__  # a NamedTuple's own constructor takes twice as long
_NOT_PREPARED = -1
MOST_ROUNDS = 1 << 16  # in one call: a bar moves between two, and other threads have their turn


class _Markers(NamedTuple):
    """Left on a decision of `choose` by the policy that used it, so that it does so once; a copy has its own."""

    learned: object
    expected: object
    forgone: object


class BasePolicy(Policy):
    """Derive from it, name the `algorithm`, check settings in `__init__`, and return them as numbers in `_numbers`.

    One policy may be used from many threads: every call is done as a whole before the next one begins. Whole runs give
    up Python's lock while they calculate, and calls for the same policy wait for them.
    """

    _version: ClassVar[int] = 4  # of what a snapshot holds; raise it when the names or shapes of its arrays change
    algorithm: ClassVar[Algorithm | Mapping[Feedback, Algorithm]]

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
        self._random_numbers = RandomNumbers(seed)
        self._groups: GroupAccounts | None = None
        if self._keeps_group_accounts():
            self._groups = GroupAccounts(Groups.of(groups).for_arms(self.n_arms), self._own_algorithm())
            said = self._groups.groups.settings()
            self.settings |= {"groups": said} if said else {}
        self._regressors: Regressors | None = None
        if regressor is not None:
            self._regressors = Regressors(regressor, self.n_arms, of_arms=len(self.feature_shape) == 2)
            self.settings["regressor"] = self._regressors.blank
        self._reset_memory(np.ones(self.n_arms, dtype=np.bool_))

    # what a subclass may say

    def _numbers(self) -> Mapping[str, Any]:
        """The settings as numbers, by the names of the algorithm's layout."""
        return {}

    def _flags(self) -> dict[str, bool]:
        """What machine code must be able to do, by the names of the algorithm's flags."""
        plain = self._groups is None or self._groups.groups.is_default
        known = {"GROUPS": not plain, "FEATURES": self.n_features > 0}
        return {name: known[name] for name in self._algorithm.flags if name in known}

    def _check_n_live(self, n_live: int) -> None:
        """Refuse so many live arms, where the settings leave no room for them."""
        if self._groups is not None:
            self._groups.groups.check_floor(n_live)

    def _settings_for(self, n_contexts: int) -> dict[str, Any]:
        """The settings with so many contexts."""
        return self.settings

    # what there is

    def _own_algorithm(self) -> Algorithm:
        chosen = type(self).algorithm
        return chosen if isinstance(chosen, Algorithm) else chosen[self.feedback]

    def _keeps_group_accounts(self) -> bool:
        algorithm = self._own_algorithm()
        return algorithm.accounts == "account" and "account" in algorithm.layout.arms._fields

    def __repr__(self) -> str:
        shown = {key: Groups(**value) if key == "groups" else value for key, value in self.settings.items()}
        settings = "".join(f", {key}={value!r}" for key, value in shown.items())
        return f"{type(self).__name__}({self.n_contexts}, {self.n_arms}{settings})"

    @property
    def live_arms(self) -> NDArray[np.int64]:
        """The arms that are not retired."""
        return self._learned.live_arms.copy()

    @property
    def _bytes_per_context(self) -> int:
        """How much memory a context takes."""
        return self._learned.bytes_per_context

    @property
    def groups(self) -> ArmGroups | None:  # type: ignore[override]
        """Whom it is fair to, where it can be fair to groups: without any said, every arm is a group of its own."""
        return None if self._groups is None else self._groups.groups

    @property
    def accounts(self) -> Vector | Matrix | None:  # type: ignore[override]
        """R: 1 and what every arm has earned so far, of groups where there are any; None if it keeps no accounts.

        Expected rewards with full information, realised ones with bandit feedback. Where contexts are fair on their
        own, a row for each.
        """
        with self._lock:
            if self._learned.accounts_in is None:
                return None
            if self._groups is not None and self._groups.pooled:
                return self._groups.accounts(self._learned)
            found = self._learned.accounts_of_all
            return found if self._learned.accounts_per_context else np.array(found[0])

    @property
    def cumulative_rewards(self) -> Vector | Matrix | None:  # type: ignore[override]
        """What every arm has earned so far; None if it keeps no accounts."""
        with self._lock:
            if self._learned.accounts_in is None:
                return None
            found = self._learned.rewards_of_all
            return found if self._learned.accounts_per_context else np.array(found[0])

    # memory

    def _blank(self, n_contexts: int, n_live: int) -> Memory:
        """What so many contexts and live arms start with."""
        layout, groups = self._algorithm.layout, self._groups
        features: Any = ()
        if "FEATURES" in self._algorithm.flags:
            fits = self.n_features if self._regressors is None else 0
            features = feature_memory(fits, n_live, of_arms=len(self.feature_shape) == 2)
        pooled = groups is not None and groups.pooled
        memory = layout.blank(n_contexts, n_live, pooled=pooled, features=features)
        memory = self._with_settings(memory)
        self._algorithm.start(memory)
        self._algorithm.start_contexts(memory)
        if groups is not None:
            if pooled:
                groups.start(memory, layout.arms.size - 1)
            groups.project(memory)
        return memory

    def _with_settings(self, memory: Memory) -> Memory:
        """The same memory with the settings of now."""
        groups = memory.groups if self._groups is None else self._groups.memory(self.n_arms)
        return memory._replace(
            settings=settings_vector(self._algorithm.layout.settings, self._numbers()), groups=groups
        )

    def _reset_memory(self, live: NDArray[np.bool_]) -> None:
        """Nothing learned, of these arms, some of which may be retired."""
        self._algorithm, self.n_arms = self._own_algorithm(), len(live)
        if self._groups is not None:
            self._groups.live_groups = self._groups.groups.among(np.flatnonzero(live))
        memory = self._blank(self.n_contexts, int(live.sum()))
        accounts = self._algorithm.accounts
        if self._groups is not None and self._groups.pooled:
            accounts = self._algorithm.layout.only_with_groups
        self._learned = Learned(self._algorithm.layout, memory, live, accounts)
        if self._groups is not None and not self._groups.groups.is_default:
            self._learned.group_accounts = np.zeros(self._groups.groups.n_groups)
        self._set_lock()
        self._memory_changed()

    def _memory_changed(self) -> None:
        """The memory is another one: of other arms, contexts or settings."""
        self._memory = self._learned.memory
        self._bandit, self._reward_range = self.feedback is Feedback.BANDIT, self.traits.reward_range
        self._prepared = _NOT_PREPARED
        self._rows: list[tuple[Vector, Vector]] = []
        if "_draw" not in self.__dict__:
            self._start_interpreted()

    # interpreted first, machine code later: see `alphafair.jit`

    def _start_interpreted(self) -> None:
        own, kind = weakref.proxy(self), type(self)  # a policy that nobody has any more is gone at once
        self._bundle = jit.Bundle.of(f"{kind.__module__}.{kind.__qualname__}", self._compile_name())
        self._draw: Callable[..., tuple[int, float]] = partial(kind._draw_interpreted, own)
        self._learn: Callable[..., bool | None] = partial(kind._learn_interpreted, own)
        self._prepare: Callable[..., None] = partial(kind._prepare_interpreted, own)
        self._all_within, self._is_distribution = all_within, is_distribution

    def _compile_name(self) -> str | None:
        """How `alphafair compile` knows kernels like these; None for policies of other packages."""
        if not type(self).__module__.startswith("alphafair."):
            return None
        flags = "-".join(name.lower() for name, flag in self._flags().items() if flag)
        return "+".join(filter(None, [self.name, self.feedback.value, flags]))

    def _use_machine_code(self) -> None:
        """From now on; called with arguments of just these types, so that machine code need not ask what they are."""
        flags, arms = self._flags(), self._memory.arms.shape[1] if len(self._memory.arms) else len(self.live_arms)
        out = np.empty(arms)
        draw = jit.compiled(self._algorithm.draw, **flags)
        draw(self._memory, 0, 0.0, out)
        self._draw = jit.entry_point(draw)
        self._prepared = _NOT_PREPARED
        if self._algorithm.prepare is not None:
            prepare = jit.compiled(self._algorithm.prepare, **flags)
            prepare(self._memory, 0)
            self._prepare = jit.entry_point(prepare)
        for name, check, arguments in (
            ("_all_within", all_within, (out, 0.0, 1.0)),
            ("_is_distribution", is_distribution, (out,)),
        ):
            found = jit.compiled(check)
            found(*arguments)
            setattr(self, name, jit.entry_point(found))

    def _draw_interpreted(self, *arguments: Any) -> tuple[int, float]:
        if self._bundle.use_machine_code():
            self._use_machine_code()
            return self._draw(*arguments)
        started = time.perf_counter()
        arm, propensity = self._algorithm.draw(*arguments)
        self._bundle.spend(time.perf_counter() - started, 0.5)
        return int(arm), float(propensity)

    def _learn_interpreted(self, *arguments: Any) -> bool | None:
        if self._bundle.use_machine_code():
            learn = jit.compiled(self._algorithm.learn, **self._flags())
            answer = learn(*arguments)
            self._learn = jit.entry_point(learn)
            return bool(answer) if answer is not None else None
        started = time.perf_counter()
        answer = self._algorithm.learn(*arguments)
        self._bundle.spend(time.perf_counter() - started, 0.5)
        return None if answer is None else bool(answer)

    def _prepare_interpreted(self, *arguments: Any) -> None:
        if self._algorithm.prepare is None:
            return
        if self._bundle.use_machine_code():
            self._use_machine_code()
            self._prepare(*arguments)
            return
        started = time.perf_counter()
        self._algorithm.prepare(*arguments)
        self._bundle.spend(time.perf_counter() - started, 0.0)

    # choosing

    def probabilities(
        self, context: int, *, available: ArrayLike | None = None, features: ArrayLike | None = None
    ) -> Vector:
        """The distribution that `choose` would draw from; a question that changes nothing."""
        with self._lock:
            context = validate.context(context, self.n_contexts)
            mask = None if available is None else self._mask(available)
            if features is not None or self.n_features:
                self._set_features(features)
            out = np.empty(self.n_arms)
            self._draw_among(context, 0.0, out, mask)
            if not self._is_distribution(out):
                self._refuse_drawn(context, out)
        out.setflags(write=False)
        return out

    def choose(
        self,
        context: int,
        *,
        rng: UniformSource | None = None,
        available: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Decision:
        """Draw an arm with one uniform number; learns nothing."""
        try:  # as `with self._lock`, in half the time
            self._acquire()
            if type(context) is not int or not 0 <= context < self.n_contexts:
                context = validate.context(context, self.n_contexts)
            mask = None if available is None else self._mask(available)
            shown = self._set_features(features) if features is not None or self.n_features else None
            if rng is None:
                block = self._random_numbers.block
                uniform = block.pop() if block else self._random_numbers.random()
            else:
                uniform = validate.uniform(rng)
            rows = self._rows
            if not rows:
                rows.extend(_blank_rows(self.n_arms))
            out, probabilities = rows.pop()
            if mask is None and self._learned.all_live:
                arm, propensity = self._draw(self._memory, context, uniform, out)
                self._prepared = context
            else:
                arm, propensity = self._draw_among(context, uniform, out, mask)
            if not propensity > 0.0:
                self._refuse_drawn(context, out)
        finally:
            self._release()
        decision = _new_decision(ChosenDecision, (context, arm, propensity, probabilities))
        if shown is not None:
            decision._features = shown
        return decision

    def _draw_arm(self, context: int, uniform: float) -> tuple[int, float]:
        """The arm that `choose` draws with this uniform number, and its propensity, without checks or a decision."""
        with self._lock:
            out = np.empty(self.n_arms)
            if self._learned.all_live:
                arm, propensity = self._draw(self._memory, context, uniform, out)
                self._prepared = context
            else:
                arm, propensity = self._draw_among(context, uniform, out, None)
            if not propensity > 0.0:
                self._refuse_drawn(context, out)
            return arm, propensity

    @staticmethod
    def _refuse_drawn(context: int, probabilities: Vector) -> None:
        """No memory that rounds can have left makes such probabilities."""
        repair = "The policy's memory is damaged: restore a snapshot, or start afresh and learn from the log."
        raise InvalidArgument(f"the distribution of context {context}", "one that sums to 1", probabilities, repair)

    def _set_features(self, features: Any) -> NDArray[np.float64]:
        """Have the features of a round in memory; a copy of them."""
        shown = validate.features(features, self.feature_shape)
        live = self._learned.live_arms
        if self._regressors is not None:
            self._seen = shown if shown.ndim == 1 else shown[live]
            row = self._algorithm.layout.scratch.from_features
            self._memory.scratch[row] = self._regressors.predict(self._seen)
            self._prepared = _NOT_PREPARED
        elif self._algorithm.show is not None and self._algorithm.show(
            self._memory, feature_table(shown[None], live), 0
        ):
            self._prepared = _NOT_PREPARED
        return shown

    def _mask(self, available: ArrayLike) -> NDArray[np.bool_]:
        mask = validate.available(available, self.n_arms)
        if not mask[self._learned.live_arms].any():
            repair = "Leave the decision out when nothing can be played."
            raise InvalidArgument("available", "true for at least one arm that is not retired", mask, repair)
        return mask

    def _draw_among(
        self, context: int, uniform: float, out: Vector, mask: NDArray[np.bool_] | None
    ) -> tuple[int, float]:
        """Draw where some arms are retired or masked."""
        learned = self._learned
        live = out if learned.all_live else np.empty(len(learned.live_arms))
        arm, propensity = self._draw(self._memory, context, uniform, live)
        self._prepared = context
        if mask is not None:
            renormalise = self._algorithm.mask or mask_alone
            renormalise(self._memory, live, mask if learned.all_live else mask[learned.live_arms])
            arm = int(draw_arm(live, uniform))
            propensity = float(live[arm])
        if not learned.all_live:
            out[:] = 0.0
            out[learned.live_arms] = live
            arm = int(learned.live_arms[arm])
        return arm, propensity

    # learning

    def update(self, decision: Decision, reward: Any) -> None:
        """Learn from a decision and its reward (all arms' rewards under full information): once, at any time.

        A decision of `choose` is taken once, and refused the second time. One that the caller has rebuilt, from a log
        say, cannot be recognised: taking it once is then the caller's task. Under bandit feedback a log that kept
        propensities alone is enough: probabilities may be None.
        """
        try:
            self._acquire()
            n_arms, used_for = self.n_arms, None
            if type(decision) is ChosenDecision:  # as some policy made it: sound in itself, but it must fit this one
                used_for = decision._used
                if used_for and self._markers.learned in used_for:
                    self._refuse_again("one that this policy has not learned from yet", decision)
                context, arm, propensity, probabilities = decision
                fits = context < self.n_contexts and len(probabilities) == n_arms and propensity <= 1.0
            else:
                fits = False
            if not fits:
                context, arm, propensity, probabilities = validate.decision(decision, self.n_contexts, n_arms)
            low, high = self._reward_range
            if self._bandit:
                if type(reward) is not float or not low <= reward <= high:
                    reward = validate.reward(reward, low, high)
                if self._learned.all_live and not self.n_features:
                    if self._prepared != context:
                        self._prepare(self._memory, context)
                    self._prepared = _NOT_PREPARED
                    if self._learn(self._memory, context, arm, propensity, reward) is False:
                        self._refuse_propensity(context, propensity)
                else:
                    self._learn_one(decision, context, arm, propensity, reward)
            else:
                rewards, used = _copied(reward, n_arms), _copied(probabilities, n_arms)
                if rewards is None or not self._all_within(rewards, low, high):
                    rewards = validate.rewards(reward, n_arms, n_arms if probabilities is None else len(decision[3]))
                if used is None or not self._is_distribution(used):
                    used = validate.decision_probabilities(probabilities, n_arms)
                self._learn_all(decision, context, used, rewards)
            if used_for is not None:
                decision._used = (self._markers.learned, *used_for) if used_for else self._used_once  # type: ignore[attr-defined]
        finally:
            self._release()

    def _learn_one(self, decision: Decision, context: int, arm: int, propensity: float, reward: float) -> None:
        """From the reward of the arm that was played, where arms are retired or rounds have features."""
        learned = self._learned
        column = arm if learned.all_live else learned.column(arm)
        if self.n_features:
            self._set_features(getattr(decision, "features", None))
        if column < 0:  # a retired arm: there is nothing to learn any more
            learned.book_late(np.array([context]), np.array([arm]), np.array([reward]))
            self._retired_earned(np.array([arm]), np.array([reward]))
            return
        if self._prepared != context:
            self._prepare(self._memory, context)
        self._prepared = _NOT_PREPARED
        if self._learn(self._memory, context, column, propensity, reward) is False:
            self._refuse_propensity(context, propensity)
        if self._regressors is not None:
            self._teach_regressors(column, reward)

    def _learn_all(self, decision: Decision, context: int, used: Vector, rewards: Vector) -> None:
        """From the rewards of all arms, drawn with the distribution `used`."""
        if self.n_features:
            self._set_features(getattr(decision, "features", None))
        if not self._learned.all_live:
            self._book_retired([context], (used * rewards)[None])
            used, rewards = used[self._learned.live_arms], rewards[self._learned.live_arms]
        if self._prepared != context:
            self._prepare(self._memory, context)
        self._prepared = _NOT_PREPARED
        self._learn(self._memory, context, used, rewards)
        if self._regressors is not None:
            for column, each in enumerate(rewards.tolist()):
                self._teach_regressors(column, each)

    def _teach_regressors(self, column: int, reward: float) -> None:
        """What an arm has paid over the mean reward, to its own regressor or to the one of all arms."""
        assert self._regressors is not None
        names, numbers = self._algorithm.layout.scalars, self._memory.scalars
        mean = numbers[names.reward_sum] / numbers[names.seen]
        self._regressors.fit(column, self._seen, float(reward - mean))

    @staticmethod
    def _refuse_again(allowed: str, decision: Decision) -> None:
        repair = "Pass each decision once. To learn from one again on purpose, rebuild it: Decision(*decision)."
        raise InvalidArgument("decision", allowed, decision, repair)

    def _refuse_propensity(self, context: int, propensity: float, entry: int | None = None) -> None:
        """Of a decision, or of an entry of a log."""
        least = self._least_propensity(context)
        raise InvalidArgument(
            "decision.propensity" if entry is None else f"log.propensities[{entry}]",
            f"at least {least:.3g}, the least this policy can have drawn with in context {context}",
            propensity,
            "Look for its source: other policies' logs, or decisions made after the snapshot that was restored. "
            "To learn from it all the same, raise it to that number.",
        )

    def _least_propensity(self, context: int) -> float:
        """The least probability that this policy can ever have drawn an arm with, in this context."""
        least = self._algorithm.least_propensity(self._memory, context)
        return least if self._groups is None else self._groups.least_drawn(self._memory, least)

    def expect(self, decision: Decision) -> None:
        """A reward for this decision is on its way: policies that care count it in until `update` or `forgo`."""
        self._notify(self._algorithm.expect, decision, self._markers.expected, "one that is not expected yet")

    def forgo(self, decision: Decision) -> None:
        """No reward will come for a decision that was expected to have one."""
        self._notify(self._algorithm.forgo, decision, self._markers.forgone, "one whose reward may still come")

    def _notify(self, kernel: Callable[..., None] | None, decision: Decision, marker: object, allowed: str) -> None:
        with self._lock:
            chosen = decision if isinstance(decision, ChosenDecision) else None
            if chosen is not None and not {marker, self._markers.learned}.isdisjoint(chosen._used):
                self._refuse_again(allowed, decision)
            context, arm, _, _ = validate.decision(decision, self.n_contexts, self.n_arms)
            column = self._learned.column(arm)
            if kernel is not None and column >= 0:
                kernel(self._memory, context, column)
                self._prepared = _NOT_PREPARED
            if chosen is not None:
                chosen._used += (marker,)

    def _book_retired(self, contexts: Any, earned: Matrix) -> None:
        """What retired arms have earned in some rounds."""
        learned = self._learned
        if not learned.all_live:
            learned.book_retired(contexts, earned)
            gone = np.flatnonzero(~learned.live)
            self._retired_earned(gone, earned[:, gone].sum(axis=0))

    def _retired_earned(self, arms: NDArray[Any], amounts: Vector) -> None:
        if self._groups is not None and self._groups.pooled:
            self._groups.retired_earned(self._learned, arms, amounts)
            self._prepared = _NOT_PREPARED

    # what changes while it runs

    def set_alpha(self, alpha: float) -> None:
        """Be fair by another alpha from here on.

        Accounts and what was learned stay. After the change, certificates cover only later rounds, starting from the
        current accounts.
        """
        if "alpha" not in self.settings:
            raise InvalidArgument("alpha", f"left alone: {self.name} has none", alpha, "Choose a fair policy.")
        alpha = validate.alpha(alpha)
        with self._lock:
            self.alpha, self.settings = alpha, {**self.settings, "alpha": alpha}
            self._learned.memory = self._with_settings(self._learned.memory)
            if self._algorithm.alpha_changed is not None:
                self._algorithm.alpha_changed(self._learned.memory)
            self._memory_changed()

    def grow(
        self,
        n_contexts: int | None = None,
        n_arms: int | None = None,
        account: Account = "least",
        *,
        groups: Groups | Labels | None = None,
    ) -> None:
        """Make room for contexts and arms that nobody announced: so many in all from now on.

        New contexts start uniform, or with what was learned about arms elsewhere. New arms are taken to have earned the
        least that any live arm has (`account="least"`), nothing but the initial 1 (`"fresh"`), or a given number of at
        least 1. A policy that keeps no accounts gives them an equal share of the probability.

        `groups` has the labels of the new arms and, as a `Groups`, what new groups are entitled to. An arm that
        joins a group shares its account; a new group enters with the least R/s of the live ones, the initial 1, or a
        given R; without `groups` new arms are groups of their own. A floor cannot be promised later.
        """
        with self._lock:
            if n_contexts is not None:
                n_contexts = validate.integer("n_contexts", n_contexts, low=self.n_contexts)
            if n_arms is not None:
                n_arms = validate.integer("n_arms", n_arms, low=self.n_arms)
            entry = validate.account(account)
            if groups is not None and (n_arms is None or n_arms == self.n_arms):
                repair = "Pass n_arms, more than there are, to add arms."
                raise InvalidArgument("groups", "None where no arm is added", groups, repair)
            if n_arms is not None and n_arms > self.n_arms:
                self._check_n_live(len(self._learned.live_arms) + n_arms - self.n_arms)
                self._admit(n_arms - self.n_arms, entry, Groups.of(groups))
            if n_contexts is not None:
                self._learned.add_contexts(self._blank(1, len(self._learned.live_arms)), n_contexts)
                self.n_contexts, self.settings = n_contexts, self._settings_for(n_contexts)
                self._memory_changed()

    def _admit(self, n_new: int, entry: float, arriving: Groups) -> None:
        entries = np.full(n_new, entry)
        if arriving.pull_floor is not None:
            repair = "Make the policy with all floors that are promised."
            raise InvalidArgument("groups.pull_floor", "None for arms that come later", arriving.pull_floor, repair)
        if self._groups is not None:
            grown = self._groups.groups.grown(n_new, arriving.labels, arriving.entitlements)
            entries = self._groups.entries(grown, self._learned, n_new, entry, arriving.entitlements)
            self._groups.grow(grown, self._learned, n_new)
            said = grown.settings()
            self.settings = {**self.settings, **({"groups": said} if said else {})}
        elif arriving.labels is not None or arriving.entitlements is not None:
            repair = "Policies that can be are AlphaFair, AlphaFairBandit and AlphaFairAdaptive."
            raise InvalidArgument("groups", f"left out: {self.name} is not fair to groups", arriving, repair)
        self._change_arms(np.arange(len(self._learned.live_arms)), entries)

    def retire(self, arm: int) -> None:
        """Never draw an arm again. It keeps its number and its account; late rewards of it are still booked."""
        with self._lock:
            arm, live = validate.integer("arm", arm, low=0, high=self.n_arms - 1), self._learned.live_arms
            if arm not in live:
                allowed = f"one of the live arms {live.tolist()}"
                raise InvalidArgument("arm", allowed, arm, "It is retired already.")
            if len(live) == 1:
                raise InvalidArgument("arm", "one of at least two live arms", arm, "Add another with grow first.")
            self._change_arms(np.flatnonzero(live != arm), np.empty(0))

    def _change_arms(self, kept: NDArray[np.int64], entries: Vector) -> None:
        """Only the columns `kept` stay; as many arms come as there are `entries`: their accounts, NaN for the least."""
        learned, groups, algorithm = self._learned, self._groups, self._algorithm
        if algorithm.before_arms_change is not None:
            algorithm.before_arms_change(learned.memory)
        pooled = groups is not None and groups.pooled
        if pooled:
            before, rho = groups.groups.of_arms[learned.live_arms], learned.memory.arms[ACCOUNT.account].copy()  # type: ignore[union-attr]
        some_left = len(kept) < len(learned.live_arms)
        learned.change_arms(kept, len(entries), features_of_arms=len(self.feature_shape) == 2)
        self.n_arms = learned.n_arms
        if groups is not None:
            groups.live_groups = groups.groups.among(learned.live_arms)
        learned.memory = self._with_settings(learned.memory)
        algorithm.admit(learned.memory, len(kept), some_left, entries)
        if groups is not None and pooled:
            learned.accounts[:, len(kept) :] = 1.0  # what new arms have earned themselves
            groups.keep_accounts_of_absent(learned, before, rho)
            if algorithm.groups_changed is not None:
                algorithm.groups_changed(learned.memory)
        learned.note_entries(len(kept))
        if groups is not None:
            groups.project(learned.memory)
        if self._regressors is not None:
            self._regressors.change_arms(kept, len(entries))
        self._memory_changed()

    # copies and snapshots

    def _set_lock(self) -> None:
        self._lock = threading.RLock()  # one that nobody else can release, should a signal end the wait for it
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._mark_with(_Markers(object(), object(), object()))

    def _mark_with(self, markers: _Markers) -> None:
        self._markers, self._used_once = markers, (markers.learned,)

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`: a copy of one moment; spare rows, the lock and code are nobody else's."""
        with self._lock:
            return copy.deepcopy(self._shareable())

    def _shareable(self) -> dict[str, Any]:
        """Its attributes, but for those that another policy cannot use."""
        own = {"_rows", "_lock", "_acquire", "_release", "_markers", "_used_once", "_draw", "_learn", "_prepare"}
        own |= {"_memory", "_bundle", "_all_within", "_is_distribution", "_algorithm"}
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_attributes(state)
        self._set_lock()
        self._memory_changed()

    def _set_attributes(self, state: dict[str, Any]) -> None:
        """Attributes that were copied or pickled: they have no code."""
        self.__dict__.update(state)
        self._algorithm = self._own_algorithm()
        self._learned.layout = self._algorithm.layout
        if self._groups is not None:
            self._groups.algorithm = self._algorithm

    @classmethod
    def _made(cls, n_contexts: int, live: NDArray[np.bool_], settings: Mapping[str, Any], seed: int | None) -> Self:
        """A policy of which some arms are retired."""
        settings = dict(settings)
        said = settings.pop("groups", None)
        if said is None:
            policy = cls(n_contexts, int(live.sum()), **settings, seed=seed)
            if policy._groups is not None:
                policy._groups.groups = Groups().for_arms(len(live), n_live=int(live.sum()))
        else:
            groups = _groups_from_snapshot(said).for_arms(len(live), n_live=int(live.sum()))
            few = Groups(**groups.among(np.flatnonzero(live)).settings())
            policy = cls(n_contexts, int(live.sum()), groups=few, **settings, seed=seed)
            assert policy._groups is not None
            policy._groups.groups, policy.settings = groups, {**policy.settings, "groups": groups.settings()}
        if not live.all():
            policy._reset_memory(live)
        return policy

    def fresh(self) -> Self:
        """The same policy with nothing learned and its seed started over; retired arms stay retired."""
        with self._lock:
            settings = self._settings_for(self.n_contexts)
            return self._made(self.n_contexts, self._learned.live, settings, self._random_numbers.seed)

    def snapshot(self) -> State:
        """All that is needed to go on from here, random numbers included."""
        with self._lock:
            if self._regressors is not None:
                repair = "Keep the log and learn from it again, or use copy.deepcopy."
                raise InvalidArgument("regressor", "None for a snapshot", self.settings["regressor"], repair)
            settings = {"n_contexts": self.n_contexts, "n_arms": self.n_arms, **self.settings}
            return State(self.name, self._version, settings, self._random_numbers.state(), self._learned.arrays())

    def restore(self, state: State) -> None:
        """Go on from a snapshot of the same kind of policy with the same settings."""
        check_kind(state, self.name, self._version)
        n_contexts, live = checked_state(state, self.settings)
        self._learned.check_names(state, n_contexts)
        then = dict(self._settings_for(n_contexts))
        if "groups" in then:
            said = state.settings["groups"]
            groups = _groups_from_snapshot(said).for_arms(int(state.settings["n_arms"]), n_live=1)
            assert self.groups is not None
            if not self.groups.agree_with(groups):
                repair = "Use alphafair.load_policy(state) to build the policy that it belongs to."
                raise InvalidArgument("state.settings", f"of groups as {self.groups.settings()}", said, repair)
            then["groups"] = said
        for key, wanted in then.items():
            if state.settings.get(key) != wanted:
                repair = "Use alphafair.load_policy(state) to build the policy that it belongs to."
                raise InvalidArgument(f"state.settings[{key!r}]", repr(wanted), state.settings.get(key), repair)
        made = self._made(n_contexts, live, then, None)
        made._learned.read(state)
        made._random_numbers = RandomNumbers.at(state.rng)
        made._check()
        with self._lock:
            self.__dict__.update(made._shareable())  # nobody else has it
            self._memory_changed()
            self._mark_with(made._markers)  # what was learned since the snapshot may be learned again

    def _continue_as(self, other: Self) -> None:
        """Go on from where a copy is."""
        with self._lock:
            self._set_attributes(other.__getstate__())
            self._memory_changed()

    def _check(self) -> None:
        """Refuse a memory that no rounds can have left."""
        learned = self._learned
        learned.check_accounts()
        if self._groups is not None and self._groups.pooled:
            self._groups.check(learned)
        wrong = self._algorithm.check(learned.memory)
        if wrong is not None:
            raise InvalidArgument("state.arrays", wrong, "others", DAMAGED)
        out = np.empty(len(learned.live_arms))
        for context in range(self.n_contexts):
            self._draw(self._memory, context, 0.0, out)
            if not self._is_distribution(out):
                raise InvalidArgument(f"state: distribution {context}", "one that sums to 1", out, DAMAGED)

    # whole runs and logs in one call; `alphafair.run` checks what they are given

    def _plays_whole_runs(self) -> bool:
        """Not one that does more in a round than its kernels, or has its own way to choose or to learn."""
        kind = type(self)
        own_steps = kind.choose is not BasePolicy.choose or kind.update is not BasePolicy.update
        return self._regressors is None and not own_steps

    def _run(self, live: NDArray[np.int64], job: str, n_rounds: int, *arguments: Any, in_order: bool = False) -> Any:
        """So many rounds in one call, as `_rounds_per_call` has said; arms are columns of `live` ones here."""
        with self._lock:
            if not np.array_equal(live, self._learned.live_arms):
                allowed = f"one that keeps its arms {live.tolist()} while it plays"
                raise InvalidArgument("policy", allowed, self, "Change arms from other threads before or after a run.")
            self._prepared = _NOT_PREPARED
            run = loop(job, self.feedback.value, self._algorithm, in_order)
            return self._call_loop(run, n_rounds, self._memory, *arguments)

    def _rounds_per_call(self, n_rounds: int) -> int:
        """How many of so many rounds to come should be played in one call: few while they are interpreted."""
        return min(self._bundle.rounds_per_call(n_rounds), n_rounds, MOST_ROUNDS)

    def _calls(self, n_rounds: int) -> Iterator[tuple[int, int]]:
        """The first of each call and the one after its last, for so many rounds."""
        start = 0
        while start < n_rounds:
            stop = start + self._rounds_per_call(n_rounds - start)
            yield start, stop
            start = stop

    def _call_loop(self, run: Any, n_rounds: int, *arguments: Any) -> Any:
        """A loop over so many rounds, in machine code or interpreted."""
        if self._bundle.use_machine_code():
            return jit.compiled(run, **self._flags())(*arguments)
        started = time.perf_counter()
        answer = run.function(*arguments)
        self._bundle.spend(time.perf_counter() - started, n_rounds)
        return answer

    def _fold_log(self, log: LogSteps) -> None:
        """Learn from decisions under bandit feedback, in their order: from all of them, or none."""
        with self._lock:
            before = self._learned.copied_arrays()
            refused = self._fold(log)
            if refused >= 0:
                self._learned.put_back(before)
                self._refuse_propensity(int(log.contexts[refused]), float(log.propensities[refused]), refused)

    def _follow(self, log: LogSteps) -> None:
        """Do again what a log says. A propensity that is refused ends it there, with what came before learned."""
        with self._lock:
            refused = self._fold(log)
            if refused >= 0:
                self._refuse_propensity(int(log.contexts[refused]), float(log.propensities[refused]), refused)

    def _fold(self, log: LogSteps) -> int:
        """Take the steps of a log; the first one refused, or -1. Where arms share accounts, retired ones interrupt."""
        learned, arms = self._learned, log.arms
        self._prepared = _NOT_PREPARED
        fold = loop("fold", "bandit", self._algorithm, False)

        def follow(part: LogSteps) -> int:
            columns = {name: frozen(value) for name, value in part._asdict().items() if name != "drawn"}
            steps = part._replace(**columns)  # read-only columns are of one type, so compiled once
            out = np.empty(len(learned.live_arms))
            for start, stop in self._calls(len(steps.steps)):
                some = steps._replace(**{name: getattr(steps, name)[start:stop] for name in PER_STEP})
                if len(steps.features):
                    some = some._replace(features=steps.features[start:stop])
                refused = int(self._call_loop(fold, stop - start, self._memory, some, out))
                if refused >= 0:
                    return start + refused
            return -1

        log = log._replace(features=feature_table(log.features, learned.live_arms))
        if learned.all_live:
            return follow(log._replace(arms=arms.astype(np.int64)))
        is_live = learned.live[arms]
        masks = np.ascontiguousarray(log.masks[:, learned.live_arms]) if len(log.masks) else log.masks
        log = log._replace(arms=np.searchsorted(learned.live_arms, arms), masks=masks[:0])
        late, rows = ~is_live & (log.steps == LEARN), np.arange(len(arms))
        pooled = self._groups is not None and self._groups.pooled
        for piece in np.split(rows, np.flatnonzero(late)) if pooled else [rows]:
            gone, kept = piece[late[piece]], piece[is_live[piece]]
            learned.book_late(log.contexts[gone], arms[gone], log.rewards[gone])
            self._retired_earned(arms[gone], log.rewards[gone])
            part = LogSteps(*(column[kept] if len(column) else column for column in log))._replace(masks=masks)
            refused = follow(part)
            log.drawn[kept] = part.drawn
            if refused >= 0:
                return int(kept[refused])
        return -1

    def _fold_full_log(
        self, contexts: Indices, probabilities: Matrix, rewards: Matrix, features: NDArray[np.float64] | None = None
    ) -> None:
        """Learn from decisions under full information, in their order."""
        with self._lock:
            learned = self._learned
            self._prepared = _NOT_PREPARED
            used, seen = (np.ascontiguousarray(table[:, learned.live_arms]) for table in (probabilities, rewards))
            fold = loop("fold", "full", self._algorithm, False)
            table = feature_table(features, learned.live_arms)
            gone = np.where(learned.live, 0.0, probabilities * rewards)
            pooled = self._groups is not None and self._groups.pooled
            cuts = np.flatnonzero(gone.any(axis=1) & pooled).tolist()
            for first, last in pairwise([0, *cuts, len(contexts)]):
                self._book_retired(contexts[first:last], gone[first:last])
                for start, stop in self._calls(last - first):
                    part = slice(first + start, first + stop)
                    shown = table[part] if len(table) else table
                    self._call_loop(fold, stop - start, self._memory, shown, contexts[part], used[part], seen[part])


def _groups_from_snapshot(said: Any) -> Groups:
    """The groups that a snapshot says."""
    if not isinstance(said, Mapping) or {*said} != {"labels", "entitlements", "pull_floor"}:
        raise InvalidArgument("state.settings['groups']", "labels, entitlements and pull_floor", said, DAMAGED)
    return Groups(**said)


def _copied(value: Any, n_arms: int) -> Vector | None:
    """A copy of an array that is already of the right kind, so that kernels meet one type only; else None."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.shape == (n_arms,):
        return value.copy()
    return None


def _blank_rows(n_arms: int) -> list[tuple[Vector, Vector]]:
    """Room for the distributions of decisions: cut from one block, each with a read-only face for the decision."""
    block = np.empty((max(1, min(64, 4096 // n_arms)), n_arms))
    face = block.view()
    face.setflags(write=False)
    return list(zip(block, face, strict=True))


def feature_table(features: NDArray[np.float64] | None, live: NDArray[np.int64]) -> Matrix:
    """Features as kernels have them: a row per round, those of live arms side by side; without any, an empty table."""
    if features is None:
        return frozen(np.empty((0, 0)))
    if features.ndim == 3 and len(live) < features.shape[1]:
        features = features[:, live]
    return frozen(np.ascontiguousarray(features).reshape(len(features), -1))
