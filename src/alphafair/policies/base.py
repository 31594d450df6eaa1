"""What all policies share: the door, the drawing of arms, the memory and its snapshots.

A policy is two kernels (`draw` and `learn`, see `alphafair.kernels`), two arrays and its settings. A subclass
says which; everything else is here, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.kernels.draw import all_within, draw_arm, is_distribution, mask_distribution
from alphafair.kernels.horizon import horizon
from alphafair.types import Decision, Feedback, State, Stream, UniformSource, Vector

_new_decision = tuple.__new__  # a NamedTuple's own constructor takes twice as long


class BasePolicy:
    """Derive from it, name the kernels, and pass the settings and the first memory to `__init__`."""

    name: ClassVar[str]
    version: ClassVar[int] = 1  # of the memory's layout; raise it when the layout changes
    feedback: Feedback
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    learns: ClassVar[bool] = True

    _draw: Callable[..., tuple[int, float]]
    _learn: Callable[..., None]
    _learn_in_order: Callable[..., None] | None = None  # for whole runs, where nothing is late or masked

    def __init__(
        self, n_contexts: int, n_arms: int, seed: int | None, settings: dict[str, Any], shared: Vector, learner: Vector
    ) -> None:
        self.n_contexts = n_contexts
        self.n_arms = n_arms
        self.settings = settings
        self._bandit, self._reward_range = self.feedback is Feedback.BANDIT, self.reward_range  # quicker than the class
        self._seed = seed
        self._uniforms = _Uniforms(validate.random_generator("seed", seed))
        self._rows: list[tuple[Vector, Vector]] = []
        self._shared = shared
        self._first_learner = learner
        self._storage = np.empty((0, *learner.shape))
        self._learners = self._storage
        self._allot(n_contexts)

    @staticmethod
    def _sizes(n_contexts: Any, n_arms: Any) -> tuple[int, int]:
        return validate.integer("n_contexts", n_contexts, low=1), validate.integer("n_arms", n_arms, low=1)

    def _allot(self, n_contexts: int) -> None:
        """Rows for so many contexts; doubling, so that growing one by one costs no more than growing at once."""
        known = len(self._learners)
        if n_contexts > len(self._storage):
            storage = np.empty((max(n_contexts, 2 * known), *self._first_learner.shape))
            storage[:known] = self._learners
            self._storage = storage
        self._storage[known:n_contexts] = self._first_learner
        self._learners = self._storage[:n_contexts]
        self.n_contexts = n_contexts

    def __repr__(self) -> str:
        settings = "".join(f", {key}={value!r}" for key, value in self.settings.items())
        return f"{type(self).__name__}({self.n_contexts}, {self.n_arms}{settings})"

    def probabilities(self, context: int, *, available: ArrayLike | None = None) -> Vector:
        """The distribution that `choose` would draw from; a question that changes nothing."""
        out = np.empty(self.n_arms)
        self._draw(self._shared, self._learners, validate.context(context, self.n_contexts), 0.0, out)
        if available is not None:
            mask_distribution(out, validate.available(available, self.n_arms))
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
        if type(context) is not int or not 0 <= context < self.n_contexts:
            context = validate.context(context, self.n_contexts)
        if available is not None:
            mask = validate.available(available, self.n_arms)
        uniform = self._uniforms.random() if rng is None else validate.uniform(rng)
        rows = self._rows
        if not rows:
            rows.extend(_blank_rows(self.n_arms))
        out, probabilities = rows.pop()
        arm, propensity = self._draw(self._shared, self._learners, context, uniform, out)
        if available is not None:
            mask_distribution(out, mask)
            arm = int(draw_arm(out, uniform))
            propensity = float(out[arm])
        return _new_decision(Decision, (context, arm, propensity, probabilities))

    def update(self, decision: Decision, reward: Any) -> None:
        """Learn from a decision and its reward (all arms' rewards under full information): once, at any time.

        Under bandit feedback a log that kept propensities alone is enough: probabilities may be None.
        """
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
            self._learn(self._shared, self._learners, context, arm, propensity, reward)
        else:
            rewards, used = _copy(reward, self.n_arms), _copy(probabilities, self.n_arms)
            if rewards is None or not all_within(rewards, low, high):
                rewards = validate.rewards(reward, self.n_arms)
            if used is None or not is_distribution(used):
                used = validate.decision_probabilities(probabilities, self.n_arms)
            self._learn(self._shared, self._learners, context, used, rewards)

    def grow(self, n_contexts: int) -> None:
        """Make room for contexts nobody announced; they start uniform."""
        self._allot(validate.integer("n_contexts", n_contexts, low=self.n_contexts))

    def __getstate__(self) -> dict[str, Any]:
        """For `copy` and `pickle`, which would cut arrays loose from their views: without spare rows."""
        return {**vars(self), "_rows": [], "_storage": self._learners}

    def fresh(self) -> Self:
        """The same policy with nothing learned and its seed started over."""
        return type(self)(self.n_contexts, self.n_arms, **self.settings, seed=self._seed)

    def snapshot(self) -> State:
        """All that is needed to go on from here, random numbers included."""
        settings = {"n_contexts": self.n_contexts, "n_arms": self.n_arms, **self.settings}
        arrays = {"shared": self._shared.copy(), "learners": self._learners.copy()}
        return State(self.name, self.version, {**settings, "uniforms": self._uniforms.state()}, arrays)

    def restore(self, state: State) -> None:
        """Go on from a snapshot of the same kind of policy with the same settings."""
        for key, wanted in (("policy", self.name), ("version", self.version)):
            if getattr(state, key) != wanted:
                raise validate.Refusal(
                    f"state.{key}", repr(wanted), getattr(state, key), "Restore it into a policy of its own kind."
                )
        n_contexts = validate.integer("state.settings['n_contexts']", state.settings.get("n_contexts"), low=1)
        expected = {"n_arms": self.n_arms, **self._comparable_settings(n_contexts)}
        for key, wanted in expected.items():
            if state.settings.get(key) != wanted:
                raise validate.Refusal(
                    f"state.settings[{key!r}]",
                    repr(wanted),
                    state.settings.get(key),
                    "Use alphafair.load_policy(state) to build the policy that it belongs to.",
                )
        arrays = {
            "shared": _memory(state, "shared", self._shared.shape),
            "learners": _memory(state, "learners", (n_contexts, *self._first_learner.shape)),
        }
        uniforms = _Uniforms.at(state.settings.get("uniforms"))
        out = np.empty(self.n_arms)
        for context in range(n_contexts):
            self._draw(arrays["shared"], arrays["learners"], context, 0.0, out)
            if not is_distribution(out):
                raise validate.Refusal(
                    f"state: the distribution of context {context}",
                    "one that sums to 1",
                    out,
                    "The snapshot is damaged.",
                )
        self._uniforms = uniforms
        self._shared = arrays["shared"]
        self._storage = self._learners = arrays["learners"]
        self.n_contexts = n_contexts

    def _comparable_settings(self, n_contexts: int) -> dict[str, Any]:
        return self.settings

    def play(self, stream: Stream, start: int, stop: int, uniforms: Vector, **ledger: Any) -> None:
        """Play rounds [start, stop) of a stream in one compiled call; `alphafair.simulate` fills the ledger."""
        learn = self._learn_in_order or self._learn
        run = horizon(self.feedback.value, type(self)._draw, learn)
        rounds = slice(start, stop)
        run(
            self._shared,
            self._learners,
            stream.contexts[rounds],
            stream.items[rounds],
            stream.reward_table,
            uniforms,
            ledger["earned"],
            ledger["pulls"],
            ledger["first_record"],
            ledger["record_every"],
            ledger["records"],
        )


def _copy(value: Any, n_arms: int) -> Vector | None:
    """A copy of an array that is already of the right kind, so that kernels meet one type only; else None."""
    if type(value) is np.ndarray and value.dtype == np.float64 and value.shape == (n_arms,):
        return value.copy()
    return None


def _memory(state: State, key: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = state.arrays.get(key)
    got = None if array is None else f"{array.dtype} of shape {array.shape}"
    if array is None or array.shape != shape or array.dtype != np.float64 or np.isnan(array).any():
        raise validate.Refusal(
            f"state.arrays[{key!r}]", f"float64 of shape {shape} without NaN", got, "The snapshot is damaged."
        )
    return np.array(array, order="C")


class _Uniforms:
    """The policy's own random numbers: `generator.random()` one by one, drawn a block at a time for speed."""

    BLOCK = 256

    def __init__(self, generator: np.random.Generator, skip: int = 0) -> None:
        self._generator = generator
        self._refill()
        del self._block[len(self._block) - skip :]

    def _refill(self) -> None:
        self._start = self._generator.bit_generator.state
        self._block: list[float] = self._generator.random(self.BLOCK)[::-1].tolist()

    def random(self) -> float:
        if not self._block:
            self._refill()
        return self._block.pop()

    def state(self) -> dict[str, Any]:
        return {"generator": self._start, "used": self.BLOCK - len(self._block)}

    @classmethod
    def at(cls, state: Any) -> Self:
        try:
            generator = np.random.default_rng(0)
            generator.bit_generator.state = state["generator"]
            return cls(generator, validate.integer("used", state["used"], low=0, high=cls.BLOCK))
        except (TypeError, KeyError, ValueError) as problem:
            raise validate.Refusal(
                "state.settings['uniforms']", "the state of a PCG64 generator", state, "The snapshot is damaged."
            ) from problem


def _blank_rows(n_arms: int) -> list[tuple[Vector, Vector]]:
    """Room for the distributions of decisions: cut from one block, each with a read-only face for the decision."""
    block = np.empty((max(1, min(64, 4096 // n_arms)), n_arms))
    face = block.view()
    face.setflags(write=False)
    return list(zip(block, face, strict=True))
