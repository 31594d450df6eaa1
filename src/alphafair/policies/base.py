"""What all policies share: the door, the drawing of arms, the memory and its snapshots, arms that come and go.

A policy is a few kernels (see `alphafair.kernels`), two arrays of memory and its settings. A subclass says which;
everything else is here, once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.jit import machine_code
from alphafair.kernels import Kernels
from alphafair.kernels.draw import all_within, draw_arm, is_distribution, mask_distribution
from alphafair.kernels.loops import loop
from alphafair.policies.random_numbers import RandomNumbers
from alphafair.types import Account, Decision, Feedback, Indices, Matrix, Policy, State, UniformSource, Vector

_new_decision = tuple.__new__  # a NamedTuple's own constructor takes twice as long
LIVE, RETIRED_ACCOUNTS = "live", "retired_accounts"  # arrays of a State beside the memory


class BasePolicy(Policy):
    """Derive from it, name the kernels, and pass the settings and the first memory to `__init__`.

    One policy may be used from many threads: every call is done as a whole before the next one begins. Whole runs give
    up Python's lock while they calculate, and calls for the same policy wait for them.

    The memory has one column per live arm; `live_arms` says which. A retired arm keeps its number and what it earned.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 2  # of the memory's layout; raise it when the layout changes
    feedback: Feedback
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    learns: ClassVar[bool] = True
    kernels: Kernels

    def __init__(
        self,
        n_contexts: int,
        n_arms: int,
        seed: int | None,
        settings: dict[str, Any],
        shared: Vector,
    ) -> None:
        self.n_contexts, self.n_arms = n_contexts, n_arms
        self.settings = settings
        self.live_arms = np.arange(n_arms)  # the live ones
        self._bandit, self._reward_range = self.feedback is Feedback.BANDIT, self.reward_range  # quicker than the class
        self._random_numbers = RandomNumbers(seed)
        self._set_lock()
        self._shared = shared
        self._storage = self._learners = np.empty((0, *self._first_learner(n_arms).shape))
        self._allot(n_contexts)
        self._retired_accounts = np.zeros((len(self._accounts()), n_arms))
        self._arms_changed()

    # --- what a subclass may say

    def _make_work(self, n_live: int) -> Vector:
        """The settings as numbers and scratch rows, for so many live arms."""
        return np.zeros((1, 1))

    def _accounts(self) -> Matrix:
        """What live arms have earned, a view: one row, one per context, or none."""
        return np.empty((0, len(self.live_arms)))

    def _least_propensity(self, context: int) -> float:
        """The least probability that this policy can ever have drawn an arm with, in this context."""
        return 0.0

    def _first_learner(self, n_live: int) -> Matrix:
        """What a context starts with; by default nothing is kept per context."""
        return np.empty((0, 0))

    def _check_memory(self) -> None:
        """Refuse a memory that contradicts itself or the settings."""

    # --- choosing and learning

    @staticmethod
    def _sizes(n_contexts: Any, n_arms: Any) -> tuple[int, int]:
        return validate.integer("n_contexts", n_contexts, low=1), validate.integer("n_arms", n_arms, low=1)

    def __repr__(self) -> str:
        settings = "".join(f", {key}={value!r}" for key, value in self.settings.items())
        return f"{type(self).__name__}({self.n_contexts}, {self.n_arms}{settings})"

    def probabilities(self, context: int, *, available: ArrayLike | None = None) -> Vector:
        """The distribution that `choose` would draw from; a question that changes nothing."""
        with self._lock:
            context = validate.context(context, self.n_contexts)
            mask = None if available is None else self._mask(available)
            out = np.empty(self.n_arms)
            self._draw_among(context, 0.0, out, mask)
        out.setflags(write=False)
        return out

    def choose(
        self,
        context: int,
        *,
        rng: UniformSource | None = None,
        available: ArrayLike | None = None,
    ) -> Decision:
        """Draw an arm with one uniform number; learns nothing."""
        self._acquire()  # as `with self._lock`, in half the time
        try:
            if type(context) is not int or not 0 <= context < self.n_contexts:
                context = validate.context(context, self.n_contexts)
            mask = None if available is None else self._mask(available)
            if rng is None:
                block = self._random_numbers.block
                uniform = block.pop() if block else self._random_numbers.random()
            else:
                uniform = validate.uniform(rng)
            rows = self._rows
            if not rows:
                rows.extend(_blank_rows(self.n_arms))
            out, probabilities = rows.pop()
            if mask is None and self._all_live:
                arm, propensity = self._draw(self._work, self._shared, self._learners, context, uniform, out)
            else:
                arm, propensity = self._draw_among(context, uniform, out, mask)
        finally:
            self._release()
        return _new_decision(Decision, (context, arm, propensity, probabilities))

    def _mask(self, available: ArrayLike) -> NDArray[np.bool_]:
        mask = validate.available(available, self.n_arms)
        if not mask[self.live_arms].any():
            repair = "Leave the decision out when nothing can be played."
            raise validate.Refusal("available", "true for at least one arm that is not retired", mask, repair)
        return mask

    def _draw_among(
        self, context: int, uniform: float, out: Vector, mask: NDArray[np.bool_] | None
    ) -> tuple[int, float]:
        """Draw where some arms are retired or masked."""
        live = out if self._all_live else np.empty(len(self.live_arms))
        arm, propensity = self._draw(self._work, self._shared, self._learners, context, uniform, live)
        if mask is not None:
            mask_distribution(live, mask if self._all_live else mask[self.live_arms])
            arm = int(draw_arm(live, uniform))
            propensity = float(live[arm])
        if not self._all_live:
            out[:] = 0.0
            out[self.live_arms] = live
            arm = int(self.live_arms[arm])
        return arm, propensity

    def update(self, decision: Decision, reward: Any) -> None:
        """Learn from a decision and its reward (all arms' rewards under full information): once, at any time.

        Under bandit feedback a log that kept propensities alone is enough: probabilities may be None.
        """
        self._acquire()
        try:
            try:
                context, arm, propensity, probabilities = decision
                if not (
                    type(context) is int
                    and 0 <= context < self.n_contexts
                    and type(arm) is int
                    and 0 <= arm < self.n_arms == len(probabilities)
                    and probabilities.ndim == 1
                    and type(propensity) is float
                    and 0.0 < propensity <= 1.0
                    and probabilities.item(arm) == propensity
                ):
                    raise TypeError("not what `choose` made")
            except (TypeError, ValueError, AttributeError):
                context, arm, propensity, probabilities = validate.decision(decision, self.n_contexts, self.n_arms)
            low, high = self._reward_range
            if self._bandit:
                if type(reward) is not float or not low <= reward <= high:
                    reward = validate.reward(reward, low, high)
                if self._all_live:
                    learned = self._learn(self._work, self._shared, self._learners, context, arm, propensity, reward)
                else:
                    learned = self._learn_one_of_live(context, arm, propensity, reward)
                if not learned:
                    self._refuse_propensity(context, propensity)
            else:
                rewards, used = _copy(reward, self.n_arms), _copy(probabilities, self.n_arms)
                if rewards is None or not all_within(rewards, low, high):
                    n_then = self.n_arms if probabilities is None else len(decision[3])
                    rewards = validate.rewards(reward, self.n_arms, n_then)
                if used is None or not is_distribution(used):
                    used = validate.decision_probabilities(probabilities, self.n_arms)
                if not self._all_live:
                    used, rewards = self._of_live_arms(context, used, rewards)
                self._learn(self._work, self._shared, self._learners, context, used, rewards)
        finally:
            self._release()

    def _learn_one_of_live(self, context: int, arm: int, propensity: float, reward: float) -> bool | None:
        """Learn where some arms are retired; what a retired one still earns is booked, and teaches nothing."""
        column = int(np.searchsorted(self.live_arms, arm))
        if column < len(self.live_arms) and self.live_arms[column] == arm:
            return self._learn(self._work, self._shared, self._learners, context, column, propensity, reward)
        self._book_retired(context, np.eye(1, self.n_arms, arm)[0] * reward)
        return True

    def _of_live_arms(self, context: int, used: Vector, rewards: Vector) -> tuple[Vector, Vector]:
        """The columns of live arms; what retired ones still earn is booked."""
        earned = used * rewards
        earned[self.live_arms] = 0.0
        self._book_retired(context, earned)
        return used[self.live_arms], rewards[self.live_arms]

    def _book_retired(self, context: int, earned: Vector) -> None:
        if len(self._retired_accounts):  # one row for all contexts, or one for each
            self._retired_accounts[min(context, len(self._retired_accounts) - 1)] += earned

    def _refuse_propensity(self, context: int, propensity: float, argument: str = "decision.propensity") -> None:
        least = self._least_propensity(context)
        raise validate.Refusal(
            argument,
            f"at least {least:.3g}, the least this policy can have drawn with in context {context}",
            propensity,
            "Look for its source: other policies' logs, or decisions made after the snapshot that was restored. "
            "To learn from it all the same, raise it to that number.",
        )

    # --- contexts and arms that come and go

    def grow(self, n_contexts: int | None = None, n_arms: int | None = None, account: Account = "least") -> None:
        """Make room for contexts and arms that nobody announced: so many in all from now on.

        New contexts start uniform. New arms are taken to have earned the least that any live arm has
        (`account="least"`), nothing but the initial 1 (`"fresh"`), or a given number of at least 1. A policy that keeps
        no accounts gives them an equal share of the probability.
        """
        with self._lock:
            if n_contexts is not None:
                n_contexts = validate.integer("n_contexts", n_contexts, low=self.n_contexts)
            if n_arms is not None:
                n_arms = validate.integer("n_arms", n_arms, low=self.n_arms)
            entry = validate.account(account)
            if n_arms is not None and n_arms > self.n_arms:
                n_new = n_arms - self.n_arms
                self._change_arms(np.arange(len(self.live_arms)), np.full(n_new, entry))
            if n_contexts is not None:
                self._allot(n_contexts)
                n_more = len(self._accounts()) - len(self._retired_accounts)
                untouched = np.where(self._live(), 0.0, 1.0)  # where retired arms never took part
                self._retired_accounts = np.vstack([self._retired_accounts, np.tile(untouched, (n_more, 1))])

    def retire(self, arm: int) -> None:
        """Never draw an arm again. It keeps its number and its account; late rewards of it are still booked."""
        with self._lock:
            arm = validate.integer("arm", arm, low=0, high=self.n_arms - 1)
            if arm not in self.live_arms:
                raise validate.Refusal(
                    "arm", f"one of the live arms {self.live_arms.tolist()}", arm, "It is retired already."
                )
            if len(self.live_arms) == 1:
                raise validate.Refusal("arm", "one of at least two live arms", arm, "Add another with grow first.")
            self._change_arms(np.flatnonzero(self.live_arms != arm), np.empty(0))

    def _change_arms(self, kept: NDArray[np.int64], entries: Vector) -> None:
        gone, n_new = np.delete(self.live_arms, kept), len(entries)
        last_words = np.delete(self._accounts(), kept, axis=1)
        shared, learners = self.kernels.change_arms(self._work, self._shared, self._learners, kept, entries)
        self._retired_accounts[:, gone] = last_words
        self._retired_accounts = np.pad(self._retired_accounts, ((0, 0), (0, n_new)))
        self.live_arms = np.concatenate([self.live_arms[kept], self.n_arms + np.arange(n_new)])
        self.n_arms += n_new
        self._shared, self._storage, self._learners = shared, learners, learners
        self._arms_changed()

    def _arms_changed(self) -> None:
        """All that depends on which arms there are."""
        self._draw: Callable[..., tuple[int, float]]
        self._learn: Callable[..., bool | None]
        self._all_live = len(self.live_arms) == self.n_arms
        self._rows: list[tuple[Vector, Vector]] = []
        self._draw, self._learn = self._first_draw, self._first_learn
        self._work = self._make_work(len(self.live_arms))

    def _first_draw(self, *arguments: Any) -> tuple[int, float]:
        """The first call compiles; from then on machine code is called without asking what its arguments are."""
        answer = self.kernels.draw(*arguments)
        self._draw = machine_code(self.kernels.draw)
        return answer

    def _first_learn(self, *arguments: Any) -> bool | None:
        answer = self.kernels.learn(*arguments)
        self._learn = machine_code(self.kernels.learn)
        return answer

    def _allot(self, n_contexts: int) -> None:
        """Rows for so many contexts; doubling, so that growing one by one costs no more than growing at once."""
        known, first = len(self._learners), self._first_learner(len(self.live_arms))
        if n_contexts > len(self._storage):
            storage = np.empty((max(n_contexts, 2 * known), *first.shape))
            storage[:known] = self._learners
            self._storage = storage
        self._storage[known:n_contexts] = first
        self._learners = self._storage[:n_contexts]
        self.n_contexts = n_contexts

    def _per_arm(self, live: Matrix) -> Matrix:
        """One column per arm, from those of the live ones; retired arms have none of it."""
        out = np.zeros((*live.shape[:-1], self.n_arms))
        out[..., self.live_arms] = live
        return out

    def _earned(self) -> Matrix:
        """What every arm has earned, retired ones included."""
        with self._lock:
            return self._per_arm(self._accounts()) + self._retired_accounts

    # --- copies, snapshots, whole runs

    def _set_lock(self) -> None:
        self._lock = threading.Lock()
        self._acquire, self._release = self._lock.acquire, self._lock.release

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`: settings and memory; spare rows, the lock and machine code are nobody else's."""
        own = ("_rows", "_lock", "_acquire", "_release", "_draw", "_learn", "_work")
        with self._lock:
            return {key: value for key, value in vars(self).items() if key not in own} | {"_storage": self._learners}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_lock()
        self._arms_changed()

    def _another(self, n_contexts: int, live: NDArray[np.bool_], seed: int | None) -> Self:
        """A policy with the same settings and these arms that has learned nothing."""
        settings = self._settings_for(n_contexts)
        policy = type(self)(n_contexts, int(live.sum()), **settings, seed=seed)
        policy.live_arms, policy.n_arms = np.flatnonzero(live), len(live)
        policy._retired_accounts = np.zeros((len(policy._accounts()), len(live)))
        policy._arms_changed()
        return policy

    def _live(self) -> NDArray[np.bool_]:
        live = np.zeros(self.n_arms, dtype=np.bool_)
        live[self.live_arms] = True
        return live

    def fresh(self) -> Self:
        """The same policy with nothing learned and its seed started over; retired arms stay retired."""
        return self._another(self.n_contexts, self._live(), self._random_numbers.seed)

    def snapshot(self) -> State:
        """All that is needed to go on from here, random numbers included."""
        with self._lock:
            settings = {"n_contexts": self.n_contexts, "n_arms": self.n_arms, **self.settings}
            arrays = {
                "shared": self._shared.copy(),
                "learners": self._learners.copy(),
                LIVE: self._live(),
                RETIRED_ACCOUNTS: self._retired_accounts.copy(),
            }
            return State(self.name, self.version, settings, self._random_numbers.state(), arrays)

    @classmethod
    def check_kind(cls, state: State) -> None:
        """Refuse a snapshot of another policy, or of another version of this one."""
        if state.policy != cls.name:
            repair = "Restore it into a policy of its own kind."
            raise validate.Refusal("state.policy", repr(cls.name), state.policy, repair)
        if state.version != cls.version:
            older = isinstance(state.version, int) and state.version < cls.version
            repair = (
                "Its memory is laid out as in an older alphafair: start afresh, or load it there."
                if older
                else "It was written by a newer alphafair: update this one."
            )
            raise validate.Refusal("state.version", str(cls.version), state.version, repair)

    def restore(self, state: State) -> None:
        """Go on from a snapshot of the same kind of policy with the same settings."""
        self.check_kind(state)
        n_contexts = validate.integer("state.settings['n_contexts']", state.settings.get("n_contexts"), low=1)
        n_arms = validate.integer("state.settings['n_arms']", state.settings.get("n_arms"), low=1)
        for key, wanted in self._settings_for(n_contexts).items():
            if state.settings.get(key) != wanted:
                raise validate.Refusal(
                    f"state.settings[{key!r}]",
                    repr(wanted),
                    state.settings.get(key),
                    "Use alphafair.load_policy(state) to build the policy that it belongs to.",
                )
        live = _array(state, LIVE, np.bool_, (n_arms,))
        if not live.any():
            raise validate.Refusal("state.arrays['live']", "true for some arm", live, "The snapshot is damaged.")
        random_numbers = RandomNumbers.at(state.rng)
        twin = self._another(n_contexts, live, None)
        twin._random_numbers = random_numbers
        twin._shared = _array(state, "shared", np.float64, twin._shared.shape)
        twin._storage = twin._learners = _array(state, "learners", np.float64, twin._learners.shape)
        twin._retired_accounts = _array(state, RETIRED_ACCOUNTS, np.float64, twin._retired_accounts.shape)
        twin._check_distributions()
        twin._check_memory()
        with self._lock:
            self.__dict__.update(twin.__getstate__())
            self._arms_changed()

    def _check_distributions(self) -> None:
        out = np.empty(len(self.live_arms))
        for context in range(self.n_contexts):
            self._draw(self._work, self._shared, self._learners, context, 0.0, out)
            if not is_distribution(out):
                where = f"state: the distribution of context {context}"
                raise validate.Refusal(where, "one that sums to 1", out, "The snapshot is damaged.")

    def _settings_for(self, n_contexts: int) -> dict[str, Any]:
        """The settings with so many contexts."""
        return self.settings

    def run(self, job: str, *arguments: Any, in_order: bool = False) -> None:
        """A whole run in one compiled call, made of this policy's own kernels; `alphafair.drive` knows the jobs.

        Arms are columns of live ones here.
        """
        learn = (self.kernels.learn_in_order if in_order else None) or self.kernels.learn
        with self._lock:
            run = loop(job, self.feedback.value, self.kernels.draw, learn)
            run(self._work, self._shared, self._learners, *arguments)

    def fold_log(self, contexts: Indices, arms: Indices, propensities: Vector, rewards: Vector) -> None:
        """Learn from decisions under bandit feedback, in their order: from all of them, or none."""
        with self._lock:
            is_live = self._live()[arms]
            columns = contexts, np.searchsorted(self.live_arms, arms), propensities, rewards
            refused = self._fold(*(np.ascontiguousarray(column[is_live]) for column in columns))
            if refused >= 0:
                entry = int(np.flatnonzero(is_live)[refused])
                self._refuse_propensity(int(contexts[entry]), float(propensities[entry]), f"log.propensities[{entry}]")
            gone = ~is_live
            for row in range(len(self._retired_accounts)):
                here = gone & (contexts == row) if len(self._retired_accounts) > 1 else gone
                self._retired_accounts[row] += np.bincount(arms[here], rewards[here], minlength=self.n_arms)

    def fold_full_log(self, contexts: Indices, probabilities: Matrix, rewards: Matrix) -> None:
        """Learn from decisions under full information, in their order."""
        with self._lock:
            live = self.live_arms
            self._fold(contexts, np.ascontiguousarray(probabilities[:, live]), np.ascontiguousarray(rewards[:, live]))
            earned = probabilities * rewards
            earned[:, live] = 0.0
            if len(self._retired_accounts):
                np.add.at(self._retired_accounts, np.minimum(contexts, len(self._retired_accounts) - 1), earned)

    def _fold(self, *columns: NDArray[Any]) -> int:
        """The first entry that was refused, with the memory as it was before; or -1."""
        shared, learners = self._shared.copy(), self._learners.copy()
        fold = loop("fold", self.feedback.value, self.kernels.draw, self.kernels.learn)
        refused = int(fold(self._work, shared, learners, *columns))
        if refused < 0:
            self._shared[...], self._learners[...] = shared, learners
        return refused


def _copy(value: Any, n_arms: int) -> Vector | None:
    """A copy of an array that is already of the right kind, so that kernels meet one type only; else None."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.shape == (n_arms,):
        return value.copy()
    return None


def _array(state: State, key: str, kind: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    array = state.arrays.get(key)
    got = None if array is None else f"{array.dtype} of shape {array.shape}"
    if array is None or array.shape != shape or array.dtype != kind or np.isnan(array).any():
        allowed = f"{np.dtype(kind)} of shape {shape} without NaN"
        raise validate.Refusal(f"state.arrays[{key!r}]", allowed, got, "The snapshot is damaged.")
    return np.array(array, order="C")


def _blank_rows(n_arms: int) -> list[tuple[Vector, Vector]]:
    """Room for the distributions of decisions: cut from one block, each with a read-only face for the decision."""
    block = np.empty((max(1, min(64, 4096 // n_arms)), n_arms))
    face = block.view()
    face.setflags(write=False)
    return list(zip(block, face, strict=True))
