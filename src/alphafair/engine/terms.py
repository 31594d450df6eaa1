"""Terms that may change while an experiment runs, a row each: what is checked, what the policy does, and what holds.

A change of terms is one event of the kind `terms`, whose body is `{"set": {term: value}}` with values as JSON; the
latest value of a term holds. Terms that the engine itself follows are fields of `Settings`, the others are known to the
policy. A new term is a row here, and a field of `ChangedTerms` in `alphafair_client.api`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from alphafair import validate
from alphafair.engine.state import settings
from alphafair.engine.state.settings import checked_label
from alphafair.errors import InvalidArgument, RequestError
from alphafair.groups import MOST_ENTITLED, ArmGroups, Groups
from alphafair.policy.base import BasePolicy
from alphafair.policy.two_sides import TwoSided

if TYPE_CHECKING:
    from alphafair.engine.state.experiment import Experiment
    from alphafair.engine.store.ledger import Change

Fields = dict[str, Any]
OF_SIDES: Final = ("mode", "share", "salt")  # after a change of these the sides are counted anew


def _as_given(experiment: Experiment, value: Any, new: Fields) -> Any:
    return value


def _as_written(experiment: Experiment, value: Any) -> Any:
    return value


@dataclass(frozen=True, kw_only=True)
class Term:
    """One term; None as an argument stands for its default."""

    check: Callable[[Experiment, Any, Fields], Any] = _as_given
    """Return the value as JSON, from the argument and the new terms above it; `Settings` checks its own fields."""
    policy: Callable[[BasePolicy, Fields], object] | None = None
    """What the policy does, given all new terms; once, where several terms have the same."""
    details: Callable[[Experiment, Any], Any] = _as_written
    """Return the value for readers."""
    guarantee: str
    """What holds afterwards."""


# groups, entitlements, floors


def _groups(experiment: Experiment, value: Any, new: Fields) -> list[str] | None:
    """Return the group of every arm, in their order; arms that are left out stay where they are."""
    now = _present(experiment)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        repair = 'Pass, for example, {"ada": "north"}: arms that are left out stay in their group.'
        raise RequestError("bad_request", "groups", "a mapping from arm to label", value, repair)
    labels: list[Any] = [now.labels[g] if now.named else None for g in now.of_arms]
    for arm, label in value.items():
        labels[experiment.number_of(arm, "groups")] = checked_label("groups", label)
    missing = [arm for arm, label in zip(experiment.arms, labels, strict=True) if label is None]
    if missing:
        allowed = "a label for every arm, retired ones included, as there are no groups yet"
        raise RequestError("bad_request", "groups", allowed, value, f"Add {validate.listed(missing)}.")
    return labels


def _entitlements(experiment: Experiment, value: Any, new: Fields) -> Any:
    """Return the entitlements of all groups by label, or of all arms in their order; those left out stay."""
    now, labels = _present(experiment), _labels_of(experiment, new)
    if value is None:
        return None
    known = dict.fromkeys(labels, 1.0) | (_entitled(now) or {} if now.named else {})
    if not now.named:
        known |= dict(zip(experiment.arms, now.entitlements.tolist(), strict=True))
    least = 1.0 / MOST_ENTITLED
    for label, number in _by_group("entitlements", value, labels).items():
        known[label] = validate.number("entitlements", number, low=least, high=MOST_ENTITLED)
    return _in_form(experiment, {label: known[label] for label in labels}, new)


def _pull_floor(experiment: Experiment, value: Any, new: Fields) -> Any:
    """Return one floor for all arms, or floors of groups by label, or of arms in their order; None for 0."""
    _present(experiment)
    if value is None or not isinstance(value, Mapping):
        return None if value is None else validate.number("pull_floor", value, low=0.0, high=1.0)
    labels = _labels_of(experiment, new)
    floors = dict.fromkeys(labels, 0.0)
    for label, number in _by_group("pull_floor", value, labels).items():
        floors[label] = validate.number("pull_floor", number, low=0.0, high=1.0)
    return _in_form(experiment, floors, new)


def _present(experiment: Experiment) -> ArmGroups:
    """Return the groups of the policy."""
    groups = experiment.policy.groups
    if groups is None:
        allowed = f"left as they are: {experiment.settings.policy} does not support groups"
        repair = "Create an experiment with alpha-fair-adaptive, for example."
        raise RequestError("bad_request", "groups", allowed, None, repair)
    return groups


def _labels_of(experiment: Experiment, new: Fields) -> list[Any]:
    """Return the labels of the groups after the change; of arms, where these are on their own."""
    now = _present(experiment)
    of_arms = new["groups"] if "groups" in new else [now.labels[g] for g in now.of_arms] if now.named else None
    return list(experiment.arms if of_arms is None else dict.fromkeys(of_arms))


def _by_group(argument: str, value: Any, labels: list[Any]) -> Mapping[Any, Any]:
    """Check that a value is by group."""
    if not isinstance(value, Mapping):
        repair = f'Pass, for example, {{"{labels[0]}": 1}}.'
        raise RequestError("bad_request", argument, "a mapping from group, or arm, to number", value, repair)
    for label in value:
        if label not in labels:
            repair = f"There are {validate.listed(labels)}."
            raise RequestError("unknown_group", argument, "by group, or by arm without groups", label, repair)
    return value


def _in_form(experiment: Experiment, numbers: Mapping[Any, float], new: Fields) -> Any:
    """Return numbers by label, or of arms in their order where these are on their own."""
    named = new["groups"] is not None if "groups" in new else _present(experiment).named
    return dict(numbers) if named else [numbers[arm] for arm in experiment.arms]


def _entitled(groups: ArmGroups) -> dict[Any, float] | None:
    return dict(zip(groups.labels, groups.entitlements.tolist(), strict=True)) if groups.entitled else None


def _floors(groups: ArmGroups) -> dict[Any, float] | float:
    return dict(zip(groups.labels, groups.group_floors.tolist(), strict=True)) if groups.floored else groups.arm_floor


def _set_groups(policy: BasePolicy, new: Fields) -> None:
    """Change what is new of groups, entitlements and floors; the rest stays."""
    now = policy.groups
    if now is None:
        raise ValueError("a policy without groups")
    labels = [now.labels[g] for g in now.of_arms]
    of_arms = new.get("groups", labels if now.named else None)
    stays = {"entitlements": _entitled(now), "pull_floor": _floors(now)}
    numbers = {name: new.get(name, value) for name, value in stays.items()}
    for name, value in stays.items():
        if name in new or not isinstance(value, dict):
            continue
        if now.named != (of_arms is not None):
            repair = "Pass it with groups, or null for none: those of arms are not those of groups."
            raise InvalidArgument(name, "passed as well", None, repair)
        numbers[name] = {label: number for label, number in value.items() if label in (of_arms or labels)}
    policy.set_groups(Groups(of_arms, numbers["entitlements"], numbers["pull_floor"]))


# features of arms


def _arm_features(experiment: Experiment, value: Any, new: Fields) -> dict[str, Any] | None:
    """Return the features of some arms by label and name."""
    known = experiment.arm_values
    if known is None:
        repair = "Declare arm_features when you create an experiment."
        raise RequestError("bad_features", "arm_features", "left out: none are declared", value, repair)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        repair = f'Pass, for example, {{"{experiment.arms[0]}": {{"{known.schema.names[0]}": ...}}}}.'
        raise RequestError("bad_features", "arm_features", "a mapping from arm to its features", value, repair)
    numbers = [experiment.number_of(arm, "arm_features") for arm in value]
    return {experiment.arms[k]: known.schema.values(known.stored(value[experiment.arms[k]])) for k in numbers}


def _arms_by_label(experiment: Experiment, value: Any) -> Any:
    """Return a list in the order of arms as a mapping by arm."""
    return dict(zip(experiment.arms, value, strict=False)) if isinstance(value, list) else value


# contexts


def _side(name: str, check: Callable[[Any], float]) -> Callable[[Experiment, Any, Fields], float]:
    """Return the check of a number of the second side; None for 0."""

    def checked(experiment: Experiment, value: Any, new: Fields) -> float:
        if not isinstance(experiment.policy, TwoSided):
            allowed = f"left as it is: {experiment.settings.policy} is fair to arms alone"
            repair = "Create an experiment with alpha-fair-adaptive, for example."
            raise RequestError("bad_request", name, allowed, value, repair)
        return 0.0 if value is None else check(value)

    return checked


def _set_sides(policy: BasePolicy, new: Fields) -> None:
    """Change what is new of the weight of contexts and of the promise to them; the rest stays."""
    if isinstance(policy, TwoSided):  # pragma: no branch - `_side` has refused all others
        policy.set_sides(**{name: new[name] for name in ("context_weight", "context_share") if name in new})


_EPOCH: Final = "A new epoch starts from the accounts after the change: certificates cover later rounds only."
_OWN: Final = "Unchanged for decisions of this policy, which alone count in its accounts."
TERMS: Final = {  # checked in this order
    "groups": Term(
        check=_groups,
        policy=_set_groups,
        details=_arms_by_label,
        guarantee=f"{_EPOCH} An arm that changes its group takes with it what it has earned in this period.",
    ),
    "entitlements": Term(
        check=_entitlements,
        policy=_set_groups,
        details=_arms_by_label,
        guarantee=f"{_EPOCH} Accounts stay; from here on they are compared by what each group is entitled to.",
    ),
    "pull_floor": Term(
        check=_pull_floor,
        policy=_set_groups,
        details=_arms_by_label,
        guarantee=f"{_EPOCH} It is compared with policies that keep these floors. Under bandit feedback there is no "
        "bound with floors for groups.",
    ),
    "context_weight": Term(
        check=_side("context_weight", validate.context_weight),
        policy=_set_sides,
        guarantee="No bound is stated with a context weight: contexts are weighed by their rounds, which change. It is "
        "good for the average visitor; no context is promised anything.",
    ),
    "context_share": Term(
        check=_side("context_share", validate.context_share),
        policy=_set_sides,
        guarantee="With full information every context is owed at most context_share_bound from here on, whatever the "
        "rewards are. With bandit feedback it is a target: debts are computed from predictions, without a bound.",
    ),
    "reward_wait": Term(
        guarantee="As after late rewards. Decisions that wait already are settled by the new time, a shorter one many "
        "at once.",
    ),
    "arm_features": Term(
        check=_arm_features,
        guarantee="Unchanged: features are known before the draw. They hold from the next decision on.",
    ),
    "default_reward": Term(guarantee="As after rewards: the default is one. It holds for decisions that wait already."),
    "mode": Term(guarantee=f"{_OWN} The report of sides counts decisions from here on."),
    "share": Term(
        guarantee=f"{_OWN} A larger share moves visitors to this policy alone, a smaller one back alone. The report of "
        "sides counts decisions from here on.",
    ),
    "salt": Term(guarantee=f"{_OWN} Visitors are divided anew, and the report of sides starts again."),
}


# the change


def checked(experiment: Experiment, now: int, given: Mapping[str, Any]) -> Fields:
    """Return the body of a change of terms."""
    unknown = next((name for name in given if name not in TERMS), None)
    if unknown is not None or not given:
        repair = validate.did_you_mean(unknown, TERMS, "Other settings are those of the creation.")
        raise RequestError("bad_request", "terms", f"some of {', '.join(TERMS)}", unknown, repair)
    new: Fields = {}
    for name, term in TERMS.items():
        if name in given:
            new[name] = term.check(experiment, given[name], new)
    of_settings = {name: new[name] for name in new if name in settings.TERMS}
    if of_settings:
        new |= experiment.settings.with_terms(of_settings).terms_unlike(experiment.settings, of_settings)
    return {"set": new}


def follow(experiment: Experiment, change: Change, body: Fields) -> None:
    """Let an experiment follow its new terms, apart from its policy."""
    of_settings = {name: value for name, value in body["set"].items() if name in settings.TERMS}
    experiment.settings = replace(experiment.settings, **of_settings)
    if experiment.arm_values is not None and "arm_features" in body["set"]:
        given = body["set"]["arm_features"]
        values = None if given is None else {experiment.arm_numbers[arm]: each for arm, each in given.items()}
        experiment.arm_values.set(change.position, values)
    if of_settings.keys() & {*OF_SIDES}:
        experiment.compare_sides(change.position)


def works_on_policy(body: Fields) -> bool:
    """Return whether a change of terms concerns the policy."""
    return any(TERMS[name].policy is not None for name in body["set"] if name in TERMS)


def change_policy(policy: BasePolicy, body: Fields) -> None:
    """Do to a policy what the new terms ask of it."""
    works = [TERMS[name].policy for name in body["set"] if name in TERMS]
    for work in dict.fromkeys(works):
        if work is not None:
            work(policy, body["set"])


def details(experiment: Experiment, body: Fields) -> Fields:
    """Return the body for readers."""
    known = {name: TERMS[name].details(experiment, value) for name, value in body["set"].items() if name in TERMS}
    return {"set": {**body["set"], **known}}
