"""`BasePolicy`: choosing, learning, adding and retiring arms, snapshots and whole runs of all policies.

A policy is an `Algorithm` with settings and memory. Its class names the algorithm and validates the settings; the rest
is here.
"""

from __future__ import annotations

import copy
import os
import threading
import time
import weakref
from bisect import bisect_right
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
from alphafair.memory_limit import memory_limit
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
    check_state,
    checked_state,
    settings_vector,
)
from alphafair.values import Account, ChosenDecision, Decision, Feedback, Policy, State, UniformSource
from alphafair.values.arrays import Indices, Matrix, Vector, frozen

_new_decision = tuple.__new__  # twice as fast as the constructor of a NamedTuple
_NOT_PREPARED = -1
SMALL = 1 << 26  # bytes: any process may have so much
ROWS_PER_ARM = 24  # numbers per arm outside the layout: accounts, groups, labels
MOST_ROUNDS = 1 << 16  # per call: progress bars and other threads get their turn between calls


class _Markers(NamedTuple):
    """Marks that a policy leaves on a decision of `choose` when it uses it, so that it uses it once."""

    learned: object
    expected: object
    forgone: object


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
        self._check_size(self.n_contexts, self.n_arms)
        self.settings = dict(settings)
        self._random_numbers = RandomNumbers(seed)
        self._groups: GroupAccounts | None = None
        if self._keeps_group_accounts():
            self._groups = GroupAccounts(Groups.of(groups).for_arms(self.n_arms), self._own_algorithm())
            arguments = self._groups.groups.settings()
            self.settings |= {"groups": arguments} if arguments else {}
        self._regressors: Regressors | None = None
        if regressor is not None:
            self._regressors = Regressors(regressor, self.n_arms, of_arms=len(self.feature_shape) == 2)
            self.settings["regressor"] = self._regressors.blank
        self._reset_memory(np.ones(self.n_arms, dtype=np.bool_))

    # for subclasses to override

    def _numbers(self) -> Mapping[str, Any]:
        """Return the settings as numbers, by the names of the algorithm's layout."""
        return {}

    def _flags(self) -> dict[str, bool]:
        """Return the flags of the algorithm: the branches that machine code must include."""
        plain = self._groups is None or self._groups.groups.is_default
        known = {"GROUPS": not plain, "FEATURES": self.n_features > 0, "WELFARE": self._on_welfare()}
        return {name: known[name] for name in self._algorithm.flags if name in known}

    def _check_n_live(self, n_live: int) -> None:
        """Raise if the settings do not allow `n_live` live arms."""
        if self._groups is not None:
            self._groups.groups.check_floor(n_live)

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
        """The memory of one context."""
        return self._learned.bytes_per_context

    @property
    def groups(self) -> ArmGroups | None:  # type: ignore[override]
        """The groups, if the policy supports them; by default every arm is its own group."""
        return None if self._groups is None else self._groups.groups

    @property
    def accounts(self) -> Vector | Matrix | None:  # type: ignore[override]
        """R: 1 + the rewards of every arm so far, or of every group; None if the policy keeps no accounts.

        Rewards are expected ones with full information, realised ones with bandit feedback. A policy with accounts per
        context has a row for each.
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
            if self._groups is not None and self._groups.pooled:
                return self._learned.group_entry.copy()
            return self._one_row(self._learned.entry_accounts.copy())

    def _one_row(self, found: Matrix) -> Vector | Matrix | None:
        """Return a row per context if there are accounts per context; else the only row, or None without accounts."""
        if self._learned.accounts_in is None:
            return None
        return found if self._learned.accounts_per_context else np.array(found[0])

    # memory

    def _blank(self, n_contexts: int, n_live: int) -> Memory:
        """Return the initial memory."""
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
        """Return the memory with the current settings."""
        groups = memory.groups if self._groups is None else self._groups.memory(self.n_arms)
        return memory._replace(
            settings=settings_vector(self._algorithm.layout.settings, self._numbers()), groups=groups
        )

    def _reset_memory(self, live: NDArray[np.bool_]) -> None:
        """Start with the initial memory for these arms, some of which may be retired."""
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
            self._learned.group_entry = np.ones(self._groups.groups.n_groups)
        self._set_lock()
        self._memory_changed()

    def _memory_changed(self) -> None:
        """Refresh everything that refers to the memory, after a change of arms, contexts or settings."""
        self._memory = self._learned.memory
        self._bandit, self._reward_range = self.feedback is Feedback.BANDIT, self.traits.reward_range
        self._prepared = _NOT_PREPARED
        self._rows: list[tuple[Vector, Vector]] = []
        if "_draw" not in self.__dict__:
            self._start_interpreted()

    # interpreted at first, machine code later: see `alphafair.jit`

    def _start_interpreted(self) -> None:
        own, kind = weakref.proxy(self), type(self)  # without a reference cycle, so that the policy is freed at once
        ours = kind.__module__.startswith("alphafair.")
        self._bundle = jit.Bundle.of(f"{kind.__module__}.{kind.__qualname__}", jit.Kernels.of(self) if ours else None)
        self._draw: Callable[..., tuple[int, float]] = partial(kind._draw_interpreted, own)
        self._learn: Callable[..., bool | None] = partial(kind._learn_interpreted, own)
        self._prepare: Callable[..., None] = partial(kind._prepare_interpreted, own)
        self._all_within, self._is_distribution = all_within, is_distribution

    def _use_machine_code(self) -> None:
        """Switch to machine code. Later calls must pass arguments of exactly these types, which are not checked."""
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
        with np.errstate(all="ignore"):
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
        with np.errstate(all="ignore"):
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
        with np.errstate(all="ignore"):
            self._algorithm.prepare(*arguments)
        self._bundle.spend(time.perf_counter() - started, 0.0)

    # choosing

    def probabilities(
        self, context: int, *, available: ArrayLike | None = None, features: ArrayLike | None = None
    ) -> Vector:
        """Return the distribution that `choose` draws from; changes nothing."""
        with self._lock, np.errstate(all="ignore"):
            context = validate.context(context, self.n_contexts)
            mask = None if available is None else self._mask(available)
            if features is not None or self.n_features:
                self._set_features(features)
            out = np.empty(self.n_arms)
            self._draw_among(context, 0.0, out, mask)
            if not self._is_distribution(out):
                self._raise_damaged(context, out)
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
        """Draw an arm with one uniform number; changes nothing but the random numbers."""
        try:  # `with self._lock`, at half the cost
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
                self._raise_damaged(context, out)
        finally:
            self._release()
        decision = _new_decision(ChosenDecision, (context, arm, propensity, probabilities))
        if shown is not None:
            decision._features = shown
        return decision

    def _draw_arm(self, context: int, uniform: float) -> tuple[int, float]:
        """Return the arm and propensity that `choose` draws with this uniform number, without validation."""
        with self._lock:
            out = np.empty(self.n_arms)
            if self._learned.all_live:
                arm, propensity = self._draw(self._memory, context, uniform, out)
                self._prepared = context
            else:
                arm, propensity = self._draw_among(context, uniform, out, None)
            if not propensity > 0.0:
                self._raise_damaged(context, out)
            return arm, propensity

    @staticmethod
    def _raise_damaged(context: int, probabilities: Vector) -> None:
        """Raise for probabilities that no valid memory can produce."""
        repair = "The memory of the policy is damaged: restore a snapshot, or learn from the log again."
        raise InvalidArgument(f"the distribution of context {context}", "one that sums to 1", probabilities, repair)

    def _set_features(self, features: Any) -> NDArray[np.float64]:
        """Write the features of a round to memory, and return a copy of them."""
        shown = validate.features(features, self.feature_shape)
        live = self._learned.live_arms
        if self._regressors is not None:
            self._seen = shown if shown.ndim == 1 else shown[live]
            row = self._algorithm.layout.scratch.from_features
            self._memory.scratch[row] = self._regressors.predict(self._seen)
            self._prepared = _NOT_PREPARED
        elif self._algorithm.show is not None:
            with np.errstate(all="ignore"):
                changed = self._algorithm.show(self._memory, feature_table(shown[None], live), 0)
            if changed:
                self._prepared = _NOT_PREPARED
        return shown

    def _mask(self, available: ArrayLike) -> NDArray[np.bool_]:
        mask = validate.available(available, self.n_arms)
        if not mask[self._learned.live_arms].any():
            repair = "Skip the decision when no arm can be played."
            raise InvalidArgument("available", "true for at least one arm that is not retired", mask, repair)
        return mask

    def _draw_among(
        self, context: int, uniform: float, out: Vector, mask: NDArray[np.bool_] | None
    ) -> tuple[int, float]:
        """Draw an arm if some are retired or masked."""
        learned = self._learned
        live = out if learned.all_live else np.empty(len(learned.live_arms))
        arm, propensity = self._draw(self._memory, context, uniform, live)
        self._prepared = context
        if mask is not None:
            renormalise = self._algorithm.mask or mask_alone
            with np.errstate(all="ignore"):
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
        """Learn from a decision and its reward (the rewards of all arms under full information): once, at any time.

        The same decision of `choose` is refused a second time. A decision that the caller has rebuilt, for example from
        a log, is not recognised: the caller must pass it once. Under bandit feedback its probabilities may be None; the
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
                if used_for and self._markers.learned in used_for:
                    self._raise_used("a decision that this policy has not learned from", decision)
                decision._used = (self._markers.learned, *used_for) if used_for else self._used_once
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
                        self._raise_propensity(context, propensity)
                else:
                    self._learn_one(decision, context, arm, propensity, reward)
            else:
                rewards, used = _copied(reward, n_arms), _copied(probabilities, n_arms)
                if rewards is None or not self._all_within(rewards, low, high):
                    rewards = validate.rewards(reward, n_arms, n_arms if probabilities is None else len(decision[3]))
                if used is None or not self._is_distribution(used):
                    used = validate.decision_probabilities(probabilities, n_arms)
                self._learn_all(decision, context, used, rewards)
        except Exception as problem:
            changed = self._regressors is not None and not isinstance(problem, InvalidArgument)
            if used_for is not None and not changed:
                decision._used = used_for  # type: ignore[attr-defined]
            raise
        finally:
            self._release()

    def _learn_one(self, decision: Decision, context: int, arm: int, propensity: float, reward: float) -> None:
        """Learn from the reward of the pulled arm, if arms are retired or rounds have features."""
        learned = self._learned
        column = arm if learned.all_live else learned.column(arm)
        if self.n_features:
            self._set_features(getattr(decision, "features", None))
        if column < 0:  # a retired arm: only its account changes
            with np.errstate(all="ignore"):
                learned.book_late(np.array([context]), np.array([arm]), np.array([reward]))
                self._retired_earned(np.array([arm]), np.array([reward]))
            return
        if self._prepared != context:
            self._prepare(self._memory, context)
        self._prepared = _NOT_PREPARED
        if self._learn(self._memory, context, column, propensity, reward) is False:
            self._raise_propensity(context, propensity)
        if self._regressors is not None:
            self._fit_regressor(column, reward)

    def _learn_all(self, decision: Decision, context: int, used: Vector, rewards: Vector) -> None:
        """Learn from the rewards of all arms; `used` is the distribution of the decision."""
        if self.n_features:
            self._set_features(getattr(decision, "features", None))
        if not self._learned.all_live:
            with np.errstate(all="ignore"):
                self._book_retired([context], (used * rewards)[None])
            used, rewards = used[self._learned.live_arms], rewards[self._learned.live_arms]
        if self._prepared != context:
            self._prepare(self._memory, context)
        self._prepared = _NOT_PREPARED
        self._learn(self._memory, context, used, rewards)
        if self._regressors is not None:
            for column, each in enumerate(rewards.tolist()):
                self._fit_regressor(column, each)

    def _fit_regressor(self, column: int, reward: float) -> None:
        """Fit the regressor of an arm, or the shared one, to its reward minus the mean reward."""
        assert self._regressors is not None
        names, numbers = self._algorithm.layout.scalars, self._memory.scalars
        with np.errstate(all="ignore"):
            mean = numbers[names.reward_sum] / numbers[names.seen]
        self._regressors.fit(column, self._seen, float(reward - mean))

    @staticmethod
    def _raise_used(allowed: str, decision: Decision) -> None:
        repair = "Pass each decision once. To learn from it again on purpose, pass Decision(*decision)."
        raise InvalidArgument("decision", allowed, decision, repair)

    def _raise_propensity(self, context: int, propensity: float, entry: int | None = None) -> None:
        """Raise for a propensity of a decision, or of an entry of a log, that the policy cannot have used."""
        least = self._least_propensity(context)
        raise InvalidArgument(
            "decision.propensity" if entry is None else f"log.propensities[{entry}]",
            f"at least {least:.3g}, the smallest propensity of this policy in context {context}",
            propensity,
            "It may come from the log of another policy, or from a decision made after the restored snapshot. "
            "To learn from it anyway, raise it to that number.",
        )

    def _least_propensity(self, context: int) -> float:
        """Return the smallest probability with which this policy can ever have drawn an arm in this context."""
        least = self._algorithm.least_propensity(self._memory, context)
        return least if self._groups is None else self._groups.least_drawn(self._memory, least)

    def expect(self, decision: Decision) -> None:
        """Announce a reward that will come later; some policies count it in advance, until `update` or `forgo`."""
        self._notify(self._algorithm.expect, decision, self._markers.expected, "a decision that is not expected yet")

    def forgo(self, decision: Decision) -> None:
        """Announce that an expected reward will never come."""
        self._notify(self._algorithm.forgo, decision, self._markers.forgone, "a decision whose reward may still come")

    def _notify(self, kernel: Callable[..., None] | None, decision: Decision, marker: object, allowed: str) -> None:
        with self._lock, np.errstate(all="ignore"):
            chosen = decision if isinstance(decision, ChosenDecision) else None
            if chosen is not None and not {marker, self._markers.learned}.isdisjoint(chosen._used):
                self._raise_used(allowed, decision)
            context, arm, _, _ = validate.decision(decision, self.n_contexts, self.n_arms)
            column = self._learned.column(arm)
            if chosen is not None:
                chosen._used += (marker,)
            if kernel is not None and column >= 0:
                self._prepared = _NOT_PREPARED
                kernel(self._memory, context, column)

    def _book_retired(self, contexts: Any, earned: Matrix) -> None:
        """Add the rewards of retired arms to their accounts."""
        learned = self._learned
        if not learned.all_live:
            learned.book_retired(contexts, earned)
            gone = np.flatnonzero(~learned.live)
            self._retired_earned(gone, earned[:, gone].sum(axis=0))

    def _retired_earned(self, arms: NDArray[Any], amounts: Vector) -> None:
        if self._groups is not None and self._groups.pooled:
            self._groups.retired_earned(self._learned, arms, amounts)
            self._prepared = _NOT_PREPARED

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
            if self._on_welfare() != before:
                self._change_algorithm()
            else:
                self._learned.memory = self._with_settings(self._learned.memory)
                if self._algorithm.alpha_changed is not None:
                    self._algorithm.alpha_changed(self._learned.memory)
            self._memory_changed()

    def _change_algorithm(self) -> None:
        """Move what was learned to the algorithm of the current alpha, which is on the other side of 1."""
        self._algorithm = self._own_algorithm()
        if self._groups is not None:
            self._groups.algorithm = self._algorithm
        self._learned.change_layout(self._algorithm.layout, self._blank(self.n_contexts, len(self._learned.live_arms)))
        if self._algorithm.new_period is not None:
            self._algorithm.new_period(self._learned.memory)
        self._learned.count_rounds()
        for name in ("_draw", "_learn", "_prepare"):  # other branches
            del self.__dict__[name]

    def new_period(self, carry: float = 0.5) -> None:
        """Start a period: every account R becomes 1 + carry (R - 1), and fairness counts from there.

        What was learned about rewards stays; bounds and certificates cover the new period. `carry` is in [0, 1]: 0
        forgets what arms have earned, 1 keeps it. Rewards that arrive later count in the new period. Retired arms and
        groups carry their accounts too. Policies without accounts only count the period.
        """
        carry = validate.number("carry", carry, low=0.0, high=1.0)
        with self._lock, np.errstate(all="ignore"):
            learned, algorithm = self._learned, self._algorithm
            if algorithm.before_arms_change is not None:
                algorithm.before_arms_change(learned.memory)
            if self._groups is not None and self._groups.pooled:
                self._groups.new_period(learned, carry)
            else:
                learned.new_period(carry)
            if algorithm.new_period is not None:
                algorithm.new_period(learned.memory)
            elif algorithm.reopen is not None:
                algorithm.reopen(learned.memory, np.arange(len(learned.live_arms)))
            self._memory_changed()

    def grow(
        self,
        n_contexts: int | None = None,
        n_arms: int | None = None,
        account: Account = "least",
        *,
        groups: Groups | Labels | None = None,
    ) -> None:
        """Add contexts and arms; the arguments are the new totals.

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
                self._learned.add_contexts(self._blank(1, len(self._learned.live_arms)), n_contexts)
                self.n_contexts, self.settings = n_contexts, self._settings_for(n_contexts)
                self._memory_changed()

    def _admit(self, n_new: int, entry: float, arriving: Groups) -> None:
        entries, n_groups = np.full(n_new, entry), len(self._learned.group_entry)
        if arriving.pull_floor is not None:
            repair = "Pass all floors to the constructor."
            raise InvalidArgument("groups.pull_floor", "None for new arms", arriving.pull_floor, repair)
        if self._groups is not None:
            grown = self._groups.groups.grown(n_new, arriving.labels, arriving.entitlements)
            entries = self._groups.entries(grown, self._learned, n_new, entry, arriving.entitlements)
            self._groups.grow(grown, self._learned, n_new)
            arguments = grown.settings()
            self.settings = {**self.settings, **({"groups": arguments} if arguments else {})}
        elif arriving.labels is not None or arriving.entitlements is not None:
            repair = "Use AlphaFair, AlphaFairBandit or AlphaFairAdaptive."
            raise InvalidArgument("groups", f"None: {self.name} does not support groups", arriving, repair)
        self._change_arms(np.arange(len(self._learned.live_arms)), entries)
        if self._groups is not None and self._groups.pooled:
            self._groups.note_entries(self._learned, n_groups)

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
            learned.accounts[:, len(kept) :] = 1.0  # the arms' own accounts
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
        self._use_lock(threading.RLock())  # only its owner can release it, even if a signal interrupts the wait
        _policies.add(self)
        self._mark_with(_Markers(object(), object(), object()))

    def _use_lock(self, lock: Any) -> None:
        self._lock, self._acquire, self._release = lock, lock.acquire, lock.release

    def _mark_with(self, markers: _Markers) -> None:
        self._markers, self._used_once = markers, (markers.learned,)

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`: a consistent copy, without spare rows, lock and code."""
        with self._lock:
            return copy.deepcopy(self._shareable())

    def _shareable(self) -> dict[str, Any]:
        """Return the attributes that another policy can take over."""
        own = {"_rows", "_lock", "_acquire", "_release", "_markers", "_used_once", "_draw", "_learn", "_prepare"}
        own |= {"_memory", "_bundle", "_all_within", "_is_distribution", "_algorithm"}
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_attributes(state)
        self._set_lock()
        self._memory_changed()

    def _set_attributes(self, state: dict[str, Any]) -> None:
        """Set attributes that were copied or pickled, and restore the references to the algorithm."""
        self.__dict__.update(state)
        self._algorithm = self._own_algorithm()
        self._learned.layout = self._algorithm.layout
        if self._groups is not None:
            self._groups.algorithm = self._algorithm

    @classmethod
    def _build(cls, n_contexts: int, live: NDArray[np.bool_], settings: Mapping[str, Any], seed: int | None) -> Self:
        """Construct a policy of which some arms are retired."""
        settings = dict(settings)
        arguments = settings.pop("groups", None)
        if arguments is None:
            policy = cls(n_contexts, int(live.sum()), **settings, seed=seed)
            if policy._groups is not None:
                policy._groups.groups = Groups().for_arms(len(live), n_live=int(live.sum()))
        else:
            groups = _groups_from_snapshot(arguments).for_arms(len(live), n_live=int(live.sum()))
            few = Groups(**groups.among(np.flatnonzero(live)).settings())
            policy = cls(n_contexts, int(live.sum()), groups=few, **settings, seed=seed)
            assert policy._groups is not None
            policy._groups.groups, policy.settings = groups, {**policy.settings, "groups": groups.settings()}
        if not live.all():
            policy._reset_memory(live)
        return policy

    def fresh(self) -> Self:
        """Return the same policy with nothing learned and its seed started over; retired arms stay retired."""
        with self._lock:
            settings = self._settings_for(self.n_contexts)
            return self._build(self.n_contexts, self._learned.live, settings, self._random_numbers.seed)

    def snapshot(self) -> State:
        """Return everything that is needed to continue from here, random numbers included."""
        with self._lock:
            if self._regressors is not None:
                repair = "Learn from the log again, or use copy.deepcopy."
                raise InvalidArgument("regressor", "None for a snapshot", self.settings["regressor"], repair)
            settings = {"n_contexts": self.n_contexts, "n_arms": self.n_arms, **self.settings}
            return State(self.name, self._version, settings, self._random_numbers.state(), self._learned.arrays())

    def restore(self, state: State) -> None:
        """Continue from a snapshot of a policy of the same class and settings."""
        check_state(state)
        state = self._of_this_version(state)
        check_kind(state, self.name, self._version)
        n_contexts, live = checked_state(state, self.settings)
        self._learned.check_names(state, n_contexts)
        expected = dict(self._settings_for(n_contexts))
        if "groups" in expected:
            arguments = state.settings["groups"]
            groups = _groups_from_snapshot(arguments).for_arms(int(state.settings["n_arms"]), n_live=1)
            assert self.groups is not None
            if not self.groups.agree_with(groups):
                repair = "Build a matching policy with alphafair.load_policy(state)."
                raise InvalidArgument("state.settings", f"with groups {self.groups.settings()}", arguments, repair)
            expected["groups"] = arguments
        for key, wanted in expected.items():
            if state.settings.get(key) != wanted:
                repair = "Build a matching policy with alphafair.load_policy(state)."
                raise InvalidArgument(f"state.settings[{key!r}]", repr(wanted), state.settings.get(key), repair)
        made = self._build(n_contexts, live, expected, None)
        made._learned.read(state)
        made._random_numbers = RandomNumbers.at(state.rng)
        made._check()
        with self._lock, np.errstate(all="ignore"):
            self.__dict__.update(made._shareable())  # `made` is discarded
            self._memory_changed()
            self._mark_with(made._markers)  # decisions learned after the snapshot may be learned again

    def _continue_as(self, other: Self) -> None:
        """Take over the state of a copy."""
        with self._lock:
            self._set_attributes(other.__getstate__())
            self._memory_changed()

    def _check(self) -> None:
        """Raise for a memory that no sequence of rounds can produce."""
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

    # whole runs and logs in one call; `alphafair.run` validates the arguments

    def _plays_whole_runs(self) -> bool:
        """Whether its rounds consist of kernels alone: no regressor, and no `choose` or `update` of its own."""
        kind = type(self)
        own_steps = kind.choose is not BasePolicy.choose or kind.update is not BasePolicy.update
        return self._regressors is None and not own_steps

    def _run(self, live: NDArray[np.int64], job: str, n_rounds: int, *arguments: Any, in_order: bool = False) -> Any:
        """Play `n_rounds` rounds in one call; arms are numbered among the `live` ones."""
        with self._lock:
            if not np.array_equal(live, self._learned.live_arms):
                allowed = f"a policy with the live arms {live.tolist()} during the whole run"
                raise InvalidArgument("policy", allowed, self, "Change arms before or after a run.")
            self._prepared = _NOT_PREPARED
            run = loop(job, self.feedback.value, self._algorithm, in_order)
            return self._call_loop(run, n_rounds, self._memory, *arguments)

    def _rounds_per_call(self, n_rounds: int) -> int:
        """Return how many of the next rounds to play in one call: few while interpreted."""
        return min(self._bundle.rounds_per_call(n_rounds), n_rounds, MOST_ROUNDS)

    def _calls(self, n_rounds: int) -> Iterator[tuple[int, int]]:
        """Yield the first round of each call and the one after its last."""
        start = 0
        while start < n_rounds:
            stop = start + self._rounds_per_call(n_rounds - start)
            yield start, stop
            start = stop

    def _call_loop(self, run: Any, n_rounds: int, *arguments: Any) -> Any:
        """Run a loop over rounds, compiled or interpreted."""
        if self._bundle.use_machine_code():
            return jit.compiled(run, **self._flags())(*arguments)
        started = time.perf_counter()
        with np.errstate(all="ignore"):
            answer = run.function(*arguments)
        self._bundle.spend(time.perf_counter() - started, n_rounds)
        return answer

    def _fold_log(self, log: LogSteps) -> None:
        """Learn from a log under bandit feedback, in its order: from all of it, or nothing."""
        with self._lock:
            before = self._learned.copied_arrays()
            refused = self._fold(log)
            if refused >= 0:
                self._learned.put_back(before)
                self._raise_propensity(int(log.contexts[refused]), float(log.propensities[refused]), refused)

    def _follow(self, log: LogSteps) -> None:
        """Repeat the steps of a log. An invalid propensity raises; the steps before it stay learned."""
        with self._lock:
            refused = self._fold(log)
            if refused >= 0:
                self._raise_propensity(int(log.contexts[refused]), float(log.propensities[refused]), refused)

    def _fold(self, log: LogSteps) -> int:
        """Take the steps of a log; return the first one that was refused, or -1."""
        learned, arms = self._learned, log.arms
        self._prepared = _NOT_PREPARED
        fold = loop("fold", "bandit", self._algorithm, False)

        def follow(part: LogSteps) -> int:
            columns = {name: frozen(value) for name, value in part._asdict().items() if name != "drawn"}
            steps = part._replace(**columns)  # read-only columns have one type, so the loop is compiled once
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
        """Learn from a log under full information, in its order."""
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


def _groups_from_snapshot(arguments: Any) -> Groups:
    """Check and convert the groups in the settings of a snapshot."""
    if not isinstance(arguments, Mapping) or {*arguments} != {"labels", "entitlements", "pull_floor"}:
        raise InvalidArgument("state.settings['groups']", "labels, entitlements and pull_floor", arguments, DAMAGED)
    return Groups(**arguments)


def _copied(value: Any, n_arms: int) -> Vector | None:
    """Return a copy of a float64 array of the right shape, so that kernels see one type only; else None."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.shape == (n_arms,):
        return value.copy()
    return None


def _blank_rows(n_arms: int) -> list[tuple[Vector, Vector]]:
    """Allocate a block of rows for the distributions of decisions, each with a read-only view for the decision."""
    block = np.empty((max(1, min(64, 4096 // n_arms)), n_arms))
    views = frozen(block)
    return list(zip(block, views, strict=True))


def feature_table(features: NDArray[np.float64] | None, live: NDArray[np.int64]) -> Matrix:
    """Return features as kernels take them: a row per round, live arms side by side; an empty table without any."""
    if features is None:
        return frozen(np.empty((0, 0)))
    if features.ndim == 3 and len(live) < features.shape[1]:
        features = features[:, live]
    return frozen(np.ascontiguousarray(features).reshape(len(features), -1))
