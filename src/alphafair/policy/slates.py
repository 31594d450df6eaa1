"""Decisions of several arms: `choose`, `probabilities`, `update`, `expect` and `forgo` with slates, for `BasePolicy`.

Every function holds the lock of the policy. A decision of one arm, k = 1, runs the kernels of single arms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.errors import InvalidArgument, shown
from alphafair.policy.memory import Memory
from alphafair.policy.stepper import damaged
from alphafair.values import ChosenSlate, SlateDecision, UniformSource
from alphafair.values.arrays import Vector, frozen

if TYPE_CHECKING:
    from alphafair.policy.base import BasePolicy

ONE_ARM = "Leave it out to show one arm."
UNCHANGED = "Pass a decision of choose unchanged, or one with the same fields."
POLICIES = "AlphaFairAdaptive, AlphaFair, AlphaFairBandit or Uniform"


def checked_k(policy: BasePolicy, k: Any) -> int:
    """Check the number of arms to show."""
    try:
        number = validate.integer("k", k, low=1)
    except (TypeError, ValueError):
        raise InvalidArgument("k", "an integer of at least 1", k, ONE_ARM) from None
    if policy.stepper.algorithm.draw_slate is None:
        raise InvalidArgument("k", f"left out: {policy.name} shows one arm per decision", k, f"Use {POLICIES}.")
    if number > 1 and policy.groups is not None and policy.groups.floored:
        raise InvalidArgument("k", "1 with a pull_floor by group", k, "Pass one pull_floor for all arms.")
    if number > 1 and policy._sided():
        raise InvalidArgument("k", "1 for a policy that is fair to contexts too", k, ONE_ARM)
    return number


def checked_exposures(policy: BasePolicy, exposures: Any, k: int) -> tuple[float, ...]:
    """Check how much each of k slots is looked at."""
    if policy.stepper.algorithm.worth is None:
        allowed = f"left out: {policy.name} shuffles the slots"
        raise InvalidArgument("exposures", allowed, exposures, 'Use AlphaFairAdaptive with feedback="bandit".')
    try:
        given = [float(each) for each in exposures]
    except (TypeError, ValueError):
        given = []
    falls = all(validate.LEAST_EXPOSURE <= after <= before for before, after in pairwise(given))
    if len(given) != k or given[0] != 1.0 or not falls:
        allowed = f"{k} numbers from 1 down to at least {validate.LEAST_EXPOSURE:g}, one per slot"
        raise InvalidArgument("exposures", allowed, exposures, "Divide them by that of the first slot.")
    return tuple(given)


class Request(NamedTuple):
    """What is asked of a draw, checked: k of the live arms, among those of a mask if there is one."""

    context: int
    k: int
    mask: NDArray[np.bool_] | None
    features: NDArray[np.float64] | None

    @classmethod
    def of(
        cls, policy: BasePolicy, context: Any, k: Any, available: ArrayLike | None, features: ArrayLike | None
    ) -> Request:
        context, number, described = validate.context(context, policy.n_contexts), checked_k(policy, k), None
        mask = None if available is None else policy._mask(available)
        if features is not None or policy.n_features:
            described = validate.features(features, policy.feature_shape)
        return cls(context, number, mask, described)


def draw(policy: BasePolicy, request: Request, uniform: float) -> tuple[NDArray[np.int64], Vector]:
    """Return the shown arms, and the probabilities of all arms to be shown."""
    context, number, mask, described = request
    if described is not None:
        policy.stepper.show(described)
    out = np.empty(policy.n_arms)
    live = policy._learned.live_arms
    most = len(live) if mask is None else int(mask[live].sum())
    arms = policy.stepper.draw_slate_among(context, min(number, len(live)), uniform, out, mask)
    if len(arms) != min(number, most) or not abs(out.sum() - len(arms)) <= 1e-6:
        raise damaged(context, out)
    return arms, out


def choose(
    policy: BasePolicy,
    context: Any,
    k: Any,
    rng: UniformSource | None,
    available: ArrayLike | None,
    features: ArrayLike | None,
    exposures: Any,
) -> SlateDecision:
    """Draw a slate with one uniform number; with `exposures` the arms of the largest w m get the first slots."""
    with policy._lock:
        request = Request.of(policy, context, k, available, features)
        looked_at = None if exposures is None else checked_exposures(policy, exposures, request.k)
        uniform = policy._random_numbers.next() if rng is None else validate.uniform(rng)
        arms, out = draw(policy, request, uniform)
        if looked_at is not None and len(arms) > 1:
            arms = best_first(policy, arms)
    decision = ChosenSlate(request.context, tuple(arms.tolist()), tuple(out[arms].tolist()), frozen(out))
    if request.features is not None:
        decision._features = request.features
    if looked_at is not None:
        decision._exposures = looked_at[: len(arms)]
    return decision


def best_first(policy: BasePolicy, arms: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort the arms of the slate that was just drawn by what they are worth; equal ones stay as they were drawn."""
    learned, worth = policy._learned, policy.stepper.algorithm.worth
    with np.errstate(all="ignore"):
        values = worth(learned.memory)  # type: ignore[misc]
    columns = [learned.column(arm) for arm in arms.tolist()]
    return arms[np.argsort(-values[columns], kind="stable")]


def probabilities(
    policy: BasePolicy, context: Any, k: Any, available: ArrayLike | None, features: ArrayLike | None
) -> Vector:
    """Return the probabilities of all arms to be in a slate of k; changes nothing."""
    with policy._lock:
        _, out = draw(policy, Request.of(policy, context, k, available, features), 0.0)
    return frozen(out)


# learning


def update(policy: BasePolicy, decision: SlateDecision, rewards: Any) -> None:
    """Learn from rewards of a slate: of some or all shown arms, or of all arms under full information."""
    context, arms, propensities, probabilities = checked(decision, policy.n_contexts, policy.n_arms)
    before = rewarded(policy, decision)
    if not policy._bandit:
        if before:
            policy._raise_used("a decision that this policy has not learned from", decision)
        of_all = validate.rewards(rewards, policy.n_arms, policy.n_arms if probabilities is None else len(decision[3]))
        used = inclusion(probabilities, policy.n_arms, len(arms))
        note(policy, decision, frozenset(arms))
        _learn_all(policy, decision, context, len(arms), used, of_all)
        return
    given = by_arm(arms, before, rewards, *policy._reward_range)
    note(policy, decision, before | {*given})
    try:
        _learn_some(policy, decision, context, arms, propensities, given, first=not before)
    except InvalidArgument:
        note(policy, decision, before)
        raise


def learn(policy: BasePolicy, decision: SlateDecision, rewards: Mapping[int, float], *, first: bool) -> None:
    """Learn from the rewards of some arms of a slate of a log; `first` if none of its rewards came before."""
    with policy._lock:
        context, arms, propensities, _ = checked(decision, policy.n_contexts, policy.n_arms)
        given = by_arm(arms, frozenset(), rewards, *policy._reward_range)
        _learn_some(policy, decision, context, arms, propensities, given, first=first)


def _learn_some(
    policy: BasePolicy,
    decision: SlateDecision,
    context: int,
    arms: Sequence[int],
    propensities: Sequence[float],
    given: Mapping[int, float],
    *,
    first: bool,
) -> None:
    learned, stepper = policy._learned, policy.stepper
    exposures = exposures_of(policy, decision, arms)
    features = policy._show_again(decision)
    kept = [(arm, p) for arm, p in zip(arms, propensities, strict=True) if arm in given and learned.column(arm) >= 0]
    gone = [arm for arm in arms if arm in given and learned.column(arm) < 0]
    if kept:
        columns = np.array([learned.column(arm) for arm, _ in kept], dtype=np.int64)
        used = np.array([p for _, p in kept])
        earned = np.array([given[arm] for arm, _ in kept])
        values = earned / np.array([exposures[arm] for arm, _ in kept])  # as rewards of the first slot
        if stepper.learn_slate_late(context, len(arms), columns, used, values, first) is False:
            raise stepper.impossible_slate(context, len(arms), float(used.min()))
        for column, less in zip(columns.tolist(), (values - earned).tolist(), strict=True):
            if less > 0.0:
                stepper.earn_less(column, less)
        if features is not None:
            for column, value in zip(columns.tolist(), values.tolist(), strict=True):
                stepper.fit(features, column, value)
    if gone:  # retired arms: only their accounts change
        learned.book_late(np.full(len(gone), context), np.array(gone), np.array([given[arm] for arm in gone]))


def _learn_all(
    policy: BasePolicy, decision: SlateDecision, context: int, k: int, used: Vector, rewards: Vector
) -> None:
    learned = policy._learned
    features = policy._show_again(decision)
    if not learned.all_live:
        with np.errstate(all="ignore"):
            earned = used * rewards
        learned.book_retired([context], earned[None])
        used, rewards = used[learned.live_arms], rewards[learned.live_arms]
    policy.stepper.learn_slate_late(context, k, used, rewards)
    if features is not None:
        for column, each in enumerate(rewards.tolist()):
            policy.stepper.fit(features, column, each)


def notify(
    policy: BasePolicy,
    decision: SlateDecision,
    kernel: Callable[[Memory, int, int], None],
    kind: int,
    allowed: str,
) -> None:
    """Expect or forgo the rewards of the shown arms that have none yet."""
    context, arms, _, _ = checked(decision, policy.n_contexts, policy.n_arms)
    before, learned = rewarded(policy, decision), policy._learned
    left = [arm for arm in arms if arm not in before]
    if isinstance(decision, ChosenSlate):
        if policy._markers[kind] in decision._used or not left:
            policy._raise_used(allowed, decision)
        decision._used = (*decision._used, policy._markers[kind])
    for arm in left:
        column = learned.column(arm)
        if column >= 0:
            learned.version += 1
            kernel(learned.memory, context, column)


def rewarded(policy: BasePolicy, decision: SlateDecision) -> frozenset[int]:
    """Return the arms of a decision of `choose` whose rewards this policy has learned from."""
    if not isinstance(decision, ChosenSlate):
        return frozenset()
    return decision._rewarded.get(policy._markers.learned, frozenset())


def note(policy: BasePolicy, decision: SlateDecision, after: frozenset[int]) -> None:
    """Record that this policy has learned from the rewards of these arms."""
    if isinstance(decision, ChosenSlate):
        decision._rewarded = {**decision._rewarded, policy._markers.learned: after}


def by_arm(arms: Sequence[int], before: frozenset[int], rewards: Any, low: float, high: float) -> dict[int, float]:
    """Check one reward per shown arm, in the order of their slots, or a mapping from some of them to their rewards."""
    if isinstance(rewards, Mapping):
        for arm in rewards:
            if arm not in arms:
                allowed = f"of shown arms, [{validate.listed(arms)}]"
                raise InvalidArgument("rewards", allowed, arm, "Pass a reward per shown arm.")
        given = {arm: rewards[arm] for arm in arms if arm in rewards}
        values = list(given.values())
    else:
        given, values = dict.fromkeys(arms), _values(rewards, len(arms))
    if not given or len(values) != len(given):
        allowed = f"{len(arms)} numbers in [{low:g}, {high:g}], one per shown arm, or an object from arm to reward"
        raise InvalidArgument("rewards", allowed, rewards, "Pass them in the order of decision.arms.")
    for arm in given:
        if arm in before:
            left = [each for each in arms if each not in before]
            allowed = f"of arms without a reward yet, [{validate.listed(left)}]"
            raise InvalidArgument("rewards", allowed, arm, "Pass each reward once.")
    return {arm: validate.reward(value, low, high) for arm, value in zip(given, values, strict=True)}


def _values(rewards: Any, k: int) -> list[Any]:
    """Return the entries of a sequence of numbers; nothing for anything else."""
    if isinstance(rewards, str | bytes) or not isinstance(rewards, Sequence | np.ndarray) or np.ndim(rewards) != 1:
        return []
    return list(rewards) if len(rewards) == k else []


# decisions that the caller may have made


def exposures_of(policy: BasePolicy, decision: SlateDecision, arms: Sequence[int]) -> dict[int, float]:
    """Return how much the slot of each shown arm is looked at; 1 without exposures."""
    given = getattr(decision, "exposures", None)
    if given is None:
        return dict.fromkeys(arms, 1.0)
    if not isinstance(decision, ChosenSlate):
        given = checked_exposures(policy, given, len(arms))
    return dict(zip(arms, given, strict=True))


def checked(decision: SlateDecision, n_contexts: int, n_arms: int) -> tuple[int, list[int], list[float], Any]:
    """Check the fields of a slate; its probabilities may be None."""
    try:
        context, shown_arms, chances, probabilities = decision
        arms, propensities = list(shown_arms), list(chances)
    except (TypeError, ValueError):
        raise InvalidArgument("decision", "a SlateDecision", decision, UNCHANGED) from None
    context = validate.context(context, n_contexts)
    columns = [validate.integer(f"decision.arms[{slot}]", arm, low=0, high=n_arms - 1) for slot, arm in enumerate(arms)]
    if not columns or len({*columns}) < len(columns):
        raise InvalidArgument("decision.arms", "different arms, at least one", columns, UNCHANGED)
    if len(propensities) != len(columns):
        allowed = f"{len(columns)} numbers, one per shown arm"
        raise InvalidArgument("decision.propensities", allowed, propensities, UNCHANGED)
    used = [
        validate.number(f"decision.propensities[{slot}]", p, low=0.0, high=1.0, low_open=True)
        for slot, p in enumerate(propensities)
    ]
    if probabilities is not None:
        probabilities = inclusion(probabilities, n_arms, len(columns))
        for slot, (arm, p) in enumerate(zip(columns, used, strict=True)):
            if abs(probabilities[arm] - p) > 1e-6 * p:
                allowed = f"decision.probabilities[{arm}], {float(probabilities[arm])!r}"
                raise InvalidArgument(f"decision.propensities[{slot}]", allowed, p, UNCHANGED)
    return context, columns, used, probabilities


def inclusion(value: Any, n_arms: int, k: int) -> Vector:
    """Check the probabilities of all arms to be in a slate of k, padded with 0 for arms that were added later."""
    n_before = min(n_arms, len(value)) if isinstance(value, Sequence | np.ndarray) and np.ndim(value) == 1 else n_arms
    array = validate.unit_vector("decision.probabilities", value, n_before or n_arms, "per arm", UNCHANGED)
    total = float(array.sum())
    if abs(total - k) > 1e-6 * k:
        allowed = f"probabilities that sum to {shown(k)}, the number of shown arms"
        raise InvalidArgument("decision.probabilities", allowed, total, UNCHANGED)
    return validate.padded(array, n_arms)
