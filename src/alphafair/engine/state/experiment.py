"""One experiment in memory: its arms, contexts and counts, its policy, and what that has failed at."""

from __future__ import annotations

import copy
import json
import logging
import operator
import random
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.algorithms import BasePolicy
from alphafair.engine import changes
from alphafair.engine.changes import alpha_of
from alphafair.engine.state.arm_features import ArmValues
from alphafair.engine.state.periods import Periods
from alphafair.engine.state.settings import Settings
from alphafair.engine.state.status import REPORTING, fairness_of
from alphafair.engine.state.steps import Steps, follow
from alphafair.engine.state.summary import Fairness, Summary
from alphafair.engine.state.tally import Tally
from alphafair.engine.store.ledger import Change
from alphafair.engine.store.slates import Slate
from alphafair.errors import InvalidArgument, PolicyFailed, RequestError, encodable
from alphafair.jit import OF_STATES, fingerprint
from alphafair.policy.slates import checked_k
from alphafair.values import Feedback, State, Vector

CODE = fingerprint(OF_STATES)  # with other code the same log may lead to other bits
LONGEST_REASON: Final = 300
CHECKED = 1 << 20  # numbers of a state that are checked in one step
DRAWING, SAVING = "drawing an arm", "saving its state"  # failures that a policy survives, as REPORTING
LOG = logging.getLogger("alphafair.engine")
Saved = TypeVar("Saved")


class Experiment:
    """The state of one experiment; `apply` makes a change, `learn` takes in decisions and rewards.

    The failure of a policy concerns its own experiment only. A policy that fails to draw, or to save its state, is
    kept. One that fails to learn, to be created or to be changed is dropped, because its state is no longer what the
    log leads to: requests that need a policy are then refused.
    """

    def __init__(self, created: Change) -> None:
        settings = self.settings = Settings.from_json(created.body)
        self.key, self.name = created.experiment, settings.name
        self.schema = settings.schema  # of the features of every decision
        self.arm_values: ArmValues | None = None
        if settings.features_of_arms is not None:
            self.arm_values = ArmValues(settings.features_of_arms, len(settings.arms))
        self.has_features = settings.features is not None or self.arm_values is not None
        self.arms = list(settings.arms)
        self.arm_numbers = {arm: number for number, arm in enumerate(self.arms)}
        self._playable: NDArray[np.bool_] | None = None  # by arm: neither retired nor masked; None: to be computed
        self.playable_since = [created.at] * len(self.arms)  # when each arm was added or last unmasked
        self.added_at = [created.at] * len(self.arms)
        self.retired: dict[int, int] = {}  # when, by arm
        self.masked: set[int] = set()
        self.paused = False
        self.periods: Periods = Periods(settings.calendar, created.position, created.at)
        self.position = self.version = created.position
        self.code: str = json.loads(created.body)["code"]
        self.changes: list[Change] = [created]
        self.unsaved, self.snapshot_every = 0, 0  # events since the last snapshot, and the least between two snapshots
        self.contexts: dict[str, int] = {}
        self.n_contexts = settings.n_contexts
        self.tally = Tally()
        self.tally.add_arms(len(self.arms))
        self.summary = Summary(created.at, len(self.arms), settings.reward_range)
        self.alpha = alpha_of(settings.of_policy)
        self.full, self._only_draws = False, False
        self.problems: dict[str, str] = {}  # what the policy failed at, and why
        self._failed_in: int | None = None  # the context whose draw failed
        self._policy: BasePolicy | None = None
        self._has_modes = False
        if settings.mode != "live":
            self.compare_sides(created.position)

    # sides

    @property
    def salt(self) -> str:
        """What the hash of units is keyed with: sides and buckets of experiments are independent."""
        return self.settings.salt or self.name

    @property
    def has_sides(self) -> bool:
        """Whether decisions are counted by the bucket of their unit: from the first mode or observation on."""
        return self._has_modes or bool(self.tally.sources)

    def compare_sides(self, position: int) -> None:
        """Count the decisions of every side from here on: who decides has changed."""
        self._has_modes = True
        self.summary.compare_sides(position)

    # its policy

    @property
    def policy(self) -> BasePolicy:
        if self._policy is None:
            raise PolicyFailed(self.name, self.unhealthy or "it was not created")
        return self._policy

    @policy.setter
    def policy(self, policy: BasePolicy) -> None:
        """Set a working policy, and forget earlier failures."""
        self._policy = policy
        self.problems.clear()
        self.full = policy.feedback is Feedback.FULL
        self._only_draws = not self.full and type(policy).choose is BasePolicy.choose  # `_draw_arm` is enough

    @property
    def has_policy(self) -> bool:
        return self._policy is not None

    @property
    def unhealthy(self) -> str | None:
        """What is wrong with the policy; None while it works."""
        return "; ".join(self.problems.values()) or None

    def failed(self, doing: str, problem: BaseException | str) -> PolicyFailed:
        """Record what the policy failed at, log it once, and return the error to answer with."""
        what = problem if isinstance(problem, str) else f"{type(problem).__name__}: {problem}"
        reason = f"{doing}: {encodable(what[:LONGEST_REASON]).rstrip('.')}"
        if doing not in self.problems:
            raised = problem if isinstance(problem, BaseException) else None
            LOG.error("The policy of %s failed while %s", self.name, reason, exc_info=raised)
        self.problems[doing] = reason
        return PolicyFailed(self.name, reason)

    def drop_policy(self, doing: str, problem: BaseException | str) -> None:
        """Continue without a policy, whose state is no longer what the log leads to.

        A lack of memory is not a failure of the policy: the error is raised again, and everything is reloaded.
        """
        if isinstance(problem, MemoryError):
            raise problem
        self._policy = None
        self.failed(doing, problem)

    def policy_for(self, policy: BasePolicy, context: int) -> BasePolicy:
        """Return a policy with memory for a new context; a copy where more contexts change what others play."""
        try:
            if context >= policy.n_contexts:
                policy = policy if policy.traits.contexts_apart else copy.deepcopy(policy)
                policy.grow(n_contexts=context + 1)
        except InvalidArgument:  # it accepts no more contexts
            raise
        except Exception as problem:
            self._failed_in = context
            raise self.failed(DRAWING, problem) from problem
        return policy

    def draw(
        self,
        policy: BasePolicy,
        context: int,
        rng: random.Random,
        mask: NDArray[np.bool_] | None,
        features: NDArray[np.float64] | None = None,
    ) -> tuple[int, float, Vector | None]:
        """Return an arm, its propensity and, under full information, the distribution; anything else is a failure."""
        probabilities: Any = None
        try:
            if mask is None and features is None and self._only_draws:
                arm, propensity = policy.stepper.draw_alone(context, rng.random())
            else:
                shown: dict[str, Any] = {} if features is None else {"features": features}
                _, arm, propensity, probabilities = policy.choose(context, rng=rng, available=mask, **shown)
            if type(arm) is not int or type(propensity) is not float:
                arm, propensity = operator.index(arm), float(propensity)
            if (
                not 0 <= arm < len(self.arms)
                or not 0.0 < propensity <= 1.0
                or (self.retired and arm in self.retired)
                or (mask is not None and not mask[arm])
            ):
                raise ValueError(f"arm {arm} cannot be drawn with propensity {propensity!r}")
            if self.full:
                probabilities = np.array(probabilities, dtype=np.float64)
                check_distribution(probabilities, len(self.arms), arm, propensity)
            else:
                probabilities = None
        except Exception as problem:
            self._failed_in = context
            raise self.failed(DRAWING, problem) from problem
        if self._failed_in is not None and self._failed_in == context:
            self._failed_in = None
            self.problems.pop(DRAWING, None)
        return arm, propensity, probabilities

    def draw_slate(
        self,
        policy: BasePolicy,
        context: int,
        k: Any,
        rng: random.Random,
        mask: NDArray[np.bool_] | None,
        features: NDArray[np.float64] | None = None,
    ) -> tuple[Slate, Vector | None]:
        """Return a slate and, under full information, the probabilities of all arms; anything else is a failure."""
        asked, probabilities = checked_k(policy, k), None
        try:
            shown: dict[str, Any] = {} if features is None else {"features": features}
            _, arms, propensities, used = policy.choose(context, k=asked, rng=rng, available=mask, **shown)
            slate = Slate(asked, tuple(map(operator.index, arms)), tuple(map(float, propensities)))
            self._check_slate(slate, mask)
            if self.full:
                probabilities = np.array(used, dtype=np.float64)
                check_inclusion(probabilities, len(self.arms), slate)
        except Exception as problem:
            self._failed_in = context
            raise self.failed(DRAWING, problem) from problem
        if self._failed_in is not None and self._failed_in == context:
            self._failed_in = None
            self.problems.pop(DRAWING, None)
        return slate, probabilities

    def _check_slate(self, slate: Slate, mask: NDArray[np.bool_] | None) -> None:
        asked, arms, propensities = slate
        playable = np.ones(len(self.arms), dtype=np.bool_) if mask is None else mask.copy()
        playable[[*self.retired]] = False
        if (
            len({*arms}) != min(asked, int(playable.sum()))
            or len(propensities) != len(arms)
            or not all(0 <= arm < len(self.arms) and playable[arm] for arm in arms)
            or not all(0.0 < propensity <= 1.0 for propensity in propensities)
        ):
            raise ValueError(f"arms {[*arms]} cannot be drawn with propensities {[*propensities]}")

    def learn(self, steps: Steps, doing: str) -> None:
        """Let the policy learn from steps; `doing` describes them in case it fails."""
        if self.has_policy:
            try:
                follow(self.policy, self.with_arm_features(steps.for_policy), self.to_unit)
            except Exception as problem:  # the events are on the disk, and other experiments have theirs to learn from
                self.drop_policy(doing, problem)

    def to_unit(self, reward: Any) -> Any:
        """Map rewards from the reward range to the range that the policy learns from."""
        if self.policy.traits.reward_range != (0.0, 1.0):
            return reward
        return (reward - self.settings.low) / (self.settings.high - self.settings.low)

    # saving

    def saved_state(self) -> bytes | None:
        """Return the policy's state as bytes that can be loaded; None while it is unhealthy, or cannot be saved."""
        return self._while_saving(state_bytes)

    def copied_state(self) -> State | None:
        """Return a copy of the policy's state, to be written later; None while it is unhealthy, or cannot be saved."""
        return self._while_saving(lambda policy: policy.snapshot())

    def _while_saving(self, use: Callable[[BasePolicy], Saved]) -> Saved | None:
        if not self.has_policy or self.problems.keys() - {SAVING, REPORTING}:
            return None
        try:
            return use(self.policy)
        except Exception as problem:
            self.failed(SAVING, problem)
            return None

    # features

    def described(self, values: Any) -> tuple[bytes | None, NDArray[np.float64]]:
        """Return the features of a decision as the log keeps them, and as the policy gets them.

        The log keeps none with a decision if they are those of arms.
        """
        if self.arm_values is not None and values is None:
            return None, self.arm_values.present({self.arm_numbers[arm]: arm for arm in self.live_arms})
        if self.schema is None:
            repair = "Declare them when you create an experiment; those of arms are terms."
            raise RequestError("bad_features", "features", "left out: none are declared", values, repair)
        try:
            stored = self.schema.stored(values)
        except InvalidArgument as refused:
            raise RequestError("bad_features", *refused.args) from None
        return stored.astype("<f8").tobytes(), self.schema.encoded(stored)

    def encoded_features(self, stored: bytes) -> NDArray[np.float64] | None:
        """Return what the policy gets, a row per decision, from the features of decisions as the log has them."""
        if not stored or self.schema is None:
            return None
        return self.schema.encoded(np.frombuffer(stored, dtype="<f8").reshape(-1, len(self.schema.names)))

    def with_arm_features(self, steps: Steps) -> Steps:
        """Return steps with the features of arms that their decisions were made with, if there are any."""
        if self.arm_values is None:
            return steps
        return replace(steps, features=self.arm_values.of_steps(steps.decision))

    # changes

    def add_contexts(self, numbers: Mapping[str, int], policy: BasePolicy) -> None:
        """Add contexts, and continue with the policy that has memory for them."""
        self.contexts.update(numbers)
        self.n_contexts, self._policy = self.n_contexts + len(numbers), policy

    def apply(self, change: Change, policy: BasePolicy | None = None) -> None:
        """Make a change; `policy` has been changed already, if it is passed."""
        self.note(change)
        if policy is not None:
            self._policy = policy
        elif self._policy is not None:
            try:
                changes.apply_to_policy(self._policy, change)
            except Exception as problem:
                self.drop_policy(f"changing at position {change.position}", problem)

    def note(self, change: Change) -> None:
        """Make a change, except for what it does to the policy."""
        self._playable = None
        self.summary.advance(change.at, self.fairness)
        changes.apply_to_experiment(self, change)
        self.version = change.position
        self.changes.append(change)

    # arms

    @property
    def live_arms(self) -> list[str]:
        return [arm for number, arm in enumerate(self.arms) if number not in self.retired]

    @property
    def has_slates(self) -> bool:
        """Whether decisions have shown several arms."""
        return self.tally.slates > 0

    @property
    def has_sources(self) -> bool:
        """Whether others have decided, too."""
        return bool(self.tally.sources)

    def fairness(self) -> Fairness:
        """Return Jain's index and the welfare of the accounts; nan where the policy keeps none, or fails."""
        return fairness_of(self)

    def number_of(self, arm: Any, argument: str = "arm") -> int:
        number = self.arm_numbers.get(arm) if isinstance(arm, str) else None
        if number is None:
            repair = f"{self.name} has {validate.listed(self.arms)}."
            raise RequestError("unknown_arm", argument, f"an arm of {self.name}", arm, repair)
        return number

    def mask(self, available: Iterable[str] | None) -> NDArray[np.bool_] | None:
        """Return which arms can be played now, or None where all live arms can."""
        if available is None and not self.masked:
            return None
        if self._playable is None:
            self._playable = np.ones(len(self.arms), dtype=np.bool_)
            self._playable[[*self.masked, *self.retired]] = False
        mask = self._playable.copy()
        if available is not None:
            mask[:] = False
            mask[self._numbers_of(available)] = True
            mask &= self._playable
        if not mask.any():
            repair = "Do not ask for a decision when no arm can be played."
            raise RequestError("no_arm_available", "available", "at least one arm that can be played", [], repair)
        return mask

    def _numbers_of(self, available: Iterable[str]) -> list[int]:
        try:
            names = None if isinstance(available, str) else list(available)
        except Exception:  # whatever the caller's iterator raises
            names = None
        if names is None:
            raise RequestError("bad_request", "available", "a list of arms", available, "Put them into a list.")
        try:
            return [self.arm_numbers[name] for name in names]
        except (KeyError, TypeError):  # name the one that is wrong
            return [self.number_of(name, "available") for name in names]


# policies and their states


def state_bytes(policy: BasePolicy) -> bytes:
    """Return the state of a policy as bytes; refused where it could not be loaded again."""
    state = policy.snapshot()
    for _ in checks_of(state):
        pass
    return state.to_bytes()


def checks_of(state: State) -> Iterator[None]:
    """Refuse a state with NaN; yields between short steps, as there may be many numbers."""
    for name, array in state.arrays.items():
        if array.dtype.kind == "f":
            values = array.reshape(-1)
            for first in range(0, len(values), CHECKED):
                if np.isnan(values[first : first + CHECKED]).any():
                    raise ValueError(f"{name!r} in its state has a value that is not a number")
                yield


def same_state(first: State, second: State) -> bool:
    """Return whether two states are equal to the last bit, apart from their random numbers."""
    return (
        (first.policy, first.version, dict(first.settings)) == (second.policy, second.version, dict(second.settings))
        and first.arrays.keys() == second.arrays.keys()
        and all(_same_bits(first.arrays[key], second.arrays[key]) for key in first.arrays)
    )


def _same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def check_distribution(probabilities: Vector, n_arms: int, arm: int, propensity: float) -> None:
    """Refuse what is not a distribution, or does not draw the arm with its propensity."""
    sums_to_one = probabilities.shape == (n_arms,) and abs(float(probabilities.sum()) - 1.0) <= 1e-6
    if not sums_to_one or probabilities.min() < 0.0 or probabilities[arm] != propensity:
        shown = reprlib.repr(probabilities.tolist())
        raise ValueError(f"{shown} is not a distribution that draws arm {arm} with propensity {propensity!r}")


def check_inclusion(probabilities: Vector, n_arms: int, slate: Slate) -> None:
    """Refuse what does not sum to the number of shown arms, or does not show them with their propensities."""
    k = len(slate.arms)
    sums_to_k = probabilities.shape == (n_arms,) and abs(float(probabilities.sum()) - k) <= 1e-6 * k
    if not sums_to_k or probabilities.min() < 0.0 or probabilities[[*slate.arms]].tolist() != [*slate.propensities]:
        shown = reprlib.repr(probabilities.tolist())
        raise ValueError(f"{shown} are not probabilities that show {k} arms with propensities {slate.propensities}")
