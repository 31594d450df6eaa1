"""What all policies share: the door, the drawing of arms, learning, arms that come and go, snapshots, whole runs.

A policy is a few kernels (see `alphafair.kernels`), its memory and its settings. A subclass says which; everything
else is here, once.
"""

import copy
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.jit import machine_code
from alphafair.kernels import Kernels
from alphafair.kernels.draw import all_within, draw_arm, is_distribution, mask_distribution
from alphafair.policies.memory import DAMAGED, Memory, Row, blank_rows, check_kind, checked_state, copied
from alphafair.policies.random_numbers import RandomNumbers
from alphafair.policies.whole_runs import WholeRuns, feature_table
from alphafair.types import Account, ChosenDecision, Decision, Feedback, Matrix, Policy, State, UniformSource, Vector

_new_decision = tuple.__new__  # a NamedTuple's own constructor takes twice as long


class Markers(NamedTuple):
    """Left on a decision of `choose` by the policy that used it, so that it does so once; a copy has its own."""

    learned: object
    expected: object
    forgone: object


class BasePolicy(WholeRuns, Policy):
    """Derive from it, name the kernels, and pass the settings and the first shared memory to `__init__`.

    One policy may be used from many threads: every call is done as a whole before the next one begins. Whole runs give
    up Python's lock while they calculate, and calls for the same policy wait for them.
    """

    version: ClassVar[int] = 2  # of the memory's layout; raise it when the layout changes
    kernels: Kernels
    contexts_apart: ClassVar[bool] = True  # False: what a context plays depends on how many others there are
    compiles: bool = True  # False for one that does more in a round than its kernels
    _accounts_in: Row | None = None  # where the memory has what arms have earned

    def __init__(
        self, n_contexts: int, n_arms: int, seed: int | None, settings: dict[str, Any], shared: Matrix
    ) -> None:
        self.n_contexts, self.n_arms = n_contexts, n_arms
        self.settings = settings
        self._bandit, self._reward_range = self.feedback is Feedback.BANDIT, self.reward_range  # quicker than the class
        self._random_numbers = RandomNumbers(seed)
        learners = np.stack([self._first_learner(n_arms)] * n_contexts)
        self._memory = Memory(shared, learners, np.ones(n_arms, dtype=np.bool_), self._accounts_in)
        self._set_lock()
        self._arms_changed()

    # what a subclass may say

    def _make_work(self, n_live: int) -> Matrix:
        """The settings as numbers and scratch rows, for so many live arms."""
        return np.zeros((1, 1))

    def _first_learner(self, n_live: int) -> Matrix:
        """What a context starts with; by default nothing is kept per context."""
        return np.empty((0, 0))

    def _check_memory(self) -> None:
        """Refuse a memory that contradicts itself or the settings."""

    def _check_room(self, n_live: int) -> None:
        """Refuse so many live arms, where the settings leave no room for them."""

    def _settings_for(self, n_contexts: int) -> dict[str, Any]:
        """The settings with so many contexts."""
        return self.settings

    def _settings_then(self, state: State, n_contexts: int) -> dict[str, Any]:
        """The settings that a snapshot must have."""
        return self._settings_for(n_contexts)

    def _alpha_changed(self) -> None:
        """Bring what the memory derives from alpha up to date, and begin the certificate anew."""

    def _retired_earned(self, arms: NDArray[Any], amounts: Vector) -> None:
        """Retired arms, whose own accounts have them already, have earned so much."""

    # choosing and learning

    @staticmethod
    def _sizes(n_contexts: Any, n_arms: Any) -> tuple[int, int]:
        return validate.integer("n_contexts", n_contexts, low=1), validate.integer("n_arms", n_arms, low=1)

    def __repr__(self) -> str:
        settings = "".join(f", {key}={value!r}" for key, value in self.settings.items())
        return f"{type(self).__name__}({self.n_contexts}, {self.n_arms}{settings})"

    @property
    def live_arms(self) -> NDArray[np.int64]:
        """The arms that are not retired."""
        return self._memory.live_arms.copy()

    @property
    def bytes_per_context(self) -> int:
        """How much memory a context takes."""
        return self._memory.bytes_per_context

    def probabilities(
        self, context: int, *, available: ArrayLike | None = None, features: ArrayLike | None = None
    ) -> Vector:
        """The distribution that `choose` would draw from; a question that changes nothing."""
        with self._lock:
            context = validate.context(context, self.n_contexts)
            mask = None if available is None else self._mask(available)
            if features is not None or self.n_features:
                self._show(features)
            out = np.empty(self.n_arms)
            self._draw_among(context, 0.0, out, mask)
            if not is_distribution(out):
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
            shown = self._show(features) if features is not None or self.n_features else None
            if rng is None:
                block = self._random_numbers.block
                uniform = block.pop() if block else self._random_numbers.random()
            else:
                uniform = validate.uniform(rng)
            rows, memory = self._rows, self._memory
            if not rows:
                rows.extend(blank_rows(self.n_arms))
            out, probabilities = rows.pop()
            if mask is None and memory.all_live:
                arm, propensity = self._draw(self._work, memory.shared, memory.learners, context, uniform, out)
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

    def draw(self, context: int, uniform: float) -> tuple[int, float]:
        """The arm that `choose` draws with this uniform number, and its propensity; nothing is asked, nothing kept."""
        with self._lock:
            out, memory = np.empty(self.n_arms), self._memory
            if memory.all_live:
                arm, propensity = self._draw(self._work, memory.shared, memory.learners, context, uniform, out)
            else:
                arm, propensity = self._draw_among(context, uniform, out, None)
            if not propensity > 0.0:
                self._refuse_drawn(context, out)
            return arm, propensity

    @staticmethod
    def _refuse_drawn(context: int, probabilities: Vector) -> None:
        """No memory that rounds can have left makes such probabilities."""
        repair = "The policy's memory is damaged: restore a snapshot, or start afresh and learn from the log."
        raise validate.Refusal(f"the distribution of context {context}", "one that sums to 1", probabilities, repair)

    def _show(self, features: Any) -> NDArray[np.float64]:
        """Have the features of a round in scratch; a copy of them."""
        shown = validate.features(features, self.feature_shape)
        if self.kernels.show is not None:
            live = self._memory.live_arms
            self.kernels.show(self._work, feature_table(shown[None], live), 0)
        return shown

    def _mask(self, available: ArrayLike) -> NDArray[np.bool_]:
        mask = validate.available(available, self.n_arms)
        if not mask[self._memory.live_arms].any():
            repair = "Leave the decision out when nothing can be played."
            raise validate.Refusal("available", "true for at least one arm that is not retired", mask, repair)
        return mask

    def _draw_among(
        self, context: int, uniform: float, out: Vector, mask: NDArray[np.bool_] | None
    ) -> tuple[int, float]:
        """Draw where some arms are retired or masked."""
        memory = self._memory
        live = out if memory.all_live else np.empty(len(memory.live_arms))
        arm, propensity = self._draw(self._work, memory.shared, memory.learners, context, uniform, live)
        if mask is not None:
            renormalise = self.kernels.mask or mask_distribution
            renormalise(self._work, live, mask if memory.all_live else mask[memory.live_arms])
            arm = int(draw_arm(live, uniform))
            propensity = float(live[arm])
        if not memory.all_live:
            out[:] = 0.0
            out[memory.live_arms] = live
            arm = int(memory.live_arms[arm])
        return arm, propensity

    def update(self, decision: Decision, reward: Any) -> None:
        """Learn from a decision and its reward (all arms' rewards under full information): once, at any time.

        A decision of `choose` is taken once, and refused the second time. One that the caller has rebuilt, from a log
        say, cannot be recognised: taking it once is then the caller's task. Under bandit feedback a log that kept
        propensities alone is enough: probabilities may be None.
        """
        try:
            self._acquire()
            used_for = decision._used if type(decision) is ChosenDecision else None
            if used_for and self._markers.learned in used_for:
                self._refuse_again("one that this policy has not learned from yet", decision)
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
            memory = self._memory
            if self._bandit:
                if type(reward) is not float or not low <= reward <= high:
                    reward = validate.reward(reward, low, high)
                column = arm if memory.all_live else memory.column(arm)
                if self.n_features:
                    self._show(getattr(decision, "features", None))
                if column < 0:  # a retired arm: there is nothing to learn any more
                    memory.book_late(np.array([context]), np.array([arm]), np.array([reward]))
                    self._retired_earned(np.array([arm]), np.array([reward]))
                elif not self._learn(self._work, memory.shared, memory.learners, context, column, propensity, reward):
                    self._refuse_propensity(context, propensity)
            else:
                rewards, used = copied(reward, self.n_arms), copied(probabilities, self.n_arms)
                if rewards is None or not all_within(rewards, low, high):
                    n_then = self.n_arms if probabilities is None else len(decision[3])
                    rewards = validate.rewards(reward, self.n_arms, n_then)
                if used is None or not is_distribution(used):
                    used = validate.decision_probabilities(probabilities, self.n_arms)
                if self.n_features:
                    self._show(getattr(decision, "features", None))
                if not memory.all_live:
                    self._book_retired([context], (used * rewards)[None])
                    used, rewards = used[memory.live_arms], rewards[memory.live_arms]
                self._learn(self._work, memory.shared, memory.learners, context, used, rewards)
            if used_for is not None:
                decision._used = (self._markers.learned, *used_for) if used_for else self._learned  # type: ignore[attr-defined]
        finally:
            self._release()

    @staticmethod
    def _refuse_again(allowed: str, decision: Decision) -> None:
        repair = "Pass each decision once. To learn from one again on purpose, rebuild it: Decision(*decision)."
        raise validate.Refusal("decision", allowed, decision, repair)

    def expect(self, decision: Decision) -> None:
        """A reward for this decision is on its way: policies that care count it in until `update` or `forgo`."""
        self._tell(self.kernels.expect, decision, self._markers.expected, "one that is not expected yet")

    def forgo(self, decision: Decision) -> None:
        """No reward will come for a decision that was expected to have one."""
        self._tell(self.kernels.forgo, decision, self._markers.forgone, "one whose reward may still come")

    def _tell(self, kernel: Callable[..., None] | None, decision: Decision, marker: object, allowed: str) -> None:
        with self._lock:
            chosen = decision if isinstance(decision, ChosenDecision) else None
            if chosen is not None and not {marker, self._markers.learned}.isdisjoint(chosen._used):
                self._refuse_again(allowed, decision)
            context, arm, _, _ = validate.decision(decision, self.n_contexts, self.n_arms)
            column = self._memory.column(arm)
            if kernel is not None and column >= 0:
                kernel(self._work, self._memory.shared, self._memory.learners, context, column)
            if chosen is not None:
                chosen._used += (marker,)

    # what changes while it runs

    def set_alpha(self, alpha: float) -> None:
        """Be fair by another alpha from here on.

        Accounts and what was learned stay. A certificate then speaks of the time since, from the accounts of now.
        """
        if "alpha" not in self.settings:
            raise validate.Refusal("alpha", f"left alone: {self.name} has none", alpha, "Choose a fair policy.")
        alpha = validate.alpha(alpha)
        with self._lock:
            self.alpha, self.settings = alpha, {**self.settings, "alpha": alpha}
            self._arms_changed()
            self._alpha_changed()

    def grow(self, n_contexts: int | None = None, n_arms: int | None = None, account: Account = "least") -> None:
        """Make room for contexts and arms that nobody announced: so many in all from now on.

        New contexts start uniform, or with what was learned about arms elsewhere. New arms are taken to have earned the
        least that any live arm has (`account="least"`), nothing but the initial 1 (`"fresh"`), or a given number of at
        least 1. A policy that keeps no accounts gives them an equal share of the probability.
        """
        with self._lock:
            self._grow(n_contexts, n_arms, account)

    def _grow(self, n_contexts: int | None, n_arms: int | None, account: Account, **said: Any) -> None:
        if n_contexts is not None:
            n_contexts = validate.integer("n_contexts", n_contexts, low=self.n_contexts)
        if n_arms is not None:
            n_arms = validate.integer("n_arms", n_arms, low=self.n_arms)
        entry = validate.account(account)
        if n_arms is not None and n_arms > self.n_arms:
            n_new = n_arms - self.n_arms
            self._check_room(len(self._memory.live_arms) + n_new)
            self._admit(n_new, entry, **said)
        if n_contexts is not None:
            self._memory.add_contexts(n_contexts, self._first_learner(len(self._memory.live_arms)))
            self.n_contexts, self.settings = n_contexts, self._settings_for(n_contexts)

    def _admit(self, n_new: int, entry: float) -> None:
        self._change_arms(np.arange(len(self._memory.live_arms)), np.full(n_new, entry))

    def retire(self, arm: int) -> None:
        """Never draw an arm again. It keeps its number and its account; late rewards of it are still booked."""
        with self._lock:
            arm, live = validate.integer("arm", arm, low=0, high=self.n_arms - 1), self._memory.live_arms
            if arm not in live:
                allowed = f"one of the live arms {live.tolist()}"
                raise validate.Refusal("arm", allowed, arm, "It is retired already.")
            if len(live) == 1:
                raise validate.Refusal("arm", "one of at least two live arms", arm, "Add another with grow first.")
            self._change_arms(np.flatnonzero(live != arm), np.empty(0))

    def _change_arms(self, kept: NDArray[np.int64], entries: Vector) -> None:
        memory = self._memory
        changed = self.kernels.change_arms(self._work, memory.shared, memory.learners, kept, entries)
        memory.change_arms(*changed, kept, len(entries))
        self.n_arms = memory.n_arms
        self._arms_changed()

    def _arms_changed(self) -> None:
        """All that depends on which arms there are."""
        if "_draw" not in self.__dict__:  # machine code is the same for any number of arms
            own, kind = weakref.proxy(self), type(self)  # a policy that nobody has any more is gone at once
            self._draw: Callable[..., tuple[int, float]] = partial(kind._first_draw, own)
            self._learn: Callable[..., bool | None] = partial(kind._first_learn, own)
        self._rows: list[tuple[Vector, Vector]] = []
        self._work = self._make_work(len(self._memory.live_arms))

    def _first_draw(self, *arguments: Any) -> tuple[int, float]:
        """The first call compiles; from then on machine code is called without asking what its arguments are."""
        kernel = self.kernels.draw
        arm, propensity = kernel(*arguments)
        compiled = machine_code(kernel)
        self._draw = _with_python_numbers(kernel) if compiled is kernel else compiled
        return int(arm), float(propensity)

    def _first_learn(self, *arguments: Any) -> bool | None:
        answer = self.kernels.learn(*arguments)
        self._learn = machine_code(self.kernels.learn)
        return answer

    # copies and snapshots

    def _set_lock(self) -> None:
        self._lock = threading.RLock()  # one that nobody else can release, should a signal end the wait for it
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._mark_with(Markers(object(), object(), object()))

    def _mark_with(self, markers: Markers) -> None:
        self._markers, self._learned = markers, (markers.learned,)

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`: a copy of one moment; spare rows, the lock and machine code are nobody else's."""
        with self._lock:
            return copy.deepcopy(self._shareable())

    def _shareable(self) -> dict[str, Any]:
        """Its attributes, but for those that another policy cannot use."""
        own = ("_rows", "_lock", "_acquire", "_release", "_markers", "_learned", "_draw", "_learn", "_work")
        return {key: value for key, value in vars(self).items() if key not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_lock()
        self._arms_changed()

    @classmethod
    def _made(cls, n_contexts: int, live: NDArray[np.bool_], settings: dict[str, Any], seed: int | None) -> Self:
        """A policy of which some arms are retired."""
        policy = cls(n_contexts, int(live.sum()), **settings, seed=seed)
        policy._become(live)
        return policy

    def _become(self, live: NDArray[np.bool_]) -> None:
        """Take the arms there are for the live ones of these."""
        self._memory = Memory(self._memory.shared, self._memory.learners, live, self._accounts_in)
        self.n_arms = len(live)
        self._arms_changed()

    def fresh(self) -> Self:
        """The same policy with nothing learned and its seed started over; retired arms stay retired."""
        with self._lock:
            settings = self._settings_for(self.n_contexts)
            return self._made(self.n_contexts, self._memory.live, settings, self._random_numbers.seed)

    def snapshot(self) -> State:
        """All that is needed to go on from here, random numbers included."""
        with self._lock:
            settings = {"n_contexts": self.n_contexts, "n_arms": self.n_arms, **self.settings}
            return State(self.name, self.version, settings, self._random_numbers.state(), self._memory.arrays())

    def restore(self, state: State) -> None:
        """Go on from a snapshot of the same kind of policy with the same settings."""
        check_kind(state, self.name, self.version)
        n_contexts, live = checked_state(state, self.settings)
        then = self._settings_then(state, n_contexts)
        for key, wanted in then.items():
            if state.settings.get(key) != wanted:
                repair = "Use alphafair.load_policy(state) to build the policy that it belongs to."
                raise validate.Refusal(f"state.settings[{key!r}]", repr(wanted), state.settings.get(key), repair)
        twin = self._made(n_contexts, live, then, None)
        twin._memory.read(state)
        twin._random_numbers = RandomNumbers.at(state.rng)
        twin._check_distributions()
        twin._check_memory()
        with self._lock:
            self.__dict__.update(twin._shareable())  # nobody else has it
            self._arms_changed()
            self._mark_with(twin._markers)  # what was learned since the snapshot may be learned again

    def go_on_as(self, twin: Self) -> None:
        """Go on from where a copy is."""
        with self._lock:
            self.__dict__.update(twin.__getstate__())
            self._arms_changed()

    def _check_distributions(self) -> None:
        memory = self._memory
        memory.check_accounts()
        out = np.empty(len(memory.live_arms))
        for context in range(self.n_contexts):
            self._draw(self._work, memory.shared, memory.learners, context, 0.0, out)
            if not is_distribution(out):
                raise validate.Refusal(f"state: distribution {context}", "one that sums to 1", out, DAMAGED)


def _with_python_numbers(draw: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[int, float]]:
    """A kernel that is not machine code, as with the JIT off, returns NumPy's numbers: callers get Python's."""

    def drawn(*arguments: Any) -> tuple[int, float]:
        arm, propensity = draw(*arguments)
        return int(arm), float(propensity)

    return drawn
