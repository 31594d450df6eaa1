"""What an experiment is created with: the checks of arguments, and the JSON that the log keeps."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final, Self

import numpy as np

from alphafair import validate
from alphafair.algorithms import POLICIES, BasePolicy, load_policy
from alphafair.engine.dates import date_of, microseconds
from alphafair.errors import InvalidArgument, RequestError
from alphafair.formatting import json_alpha
from alphafair.groups import Groups
from alphafair.policy.two_sides import TwoSided
from alphafair.values import FeatureSchema, State

DEFAULT_POLICY: Final = "alpha-fair-adaptive"
NOT_SETTINGS = (  # arguments of a policy that the engine sets itself, or that no log can lead to
    *("n_contexts", "n_arms", "seed", "n_features", "features_of", "regressor"),
)
GROUP_FIELDS = frozenset(field.name for field in fields(Groups))
DEFAULT_CARRY: Final = 0.5
SHORTEST_PERIOD: Final = 60.0  # seconds
MODES: Final = ("live", "watch", "share")  # our policy decides for all units, for none, or for a part of them
A_DATE: Final = "Pass, for example, 2024-01-01T00:00Z."


# labels


def checked_label(argument: str, value: Any) -> str:
    """Return a label that can be stored, printed and put into a URL, as a built-in string."""
    if isinstance(value, str) and validate.is_label(value):
        return str(value)
    shown = value[:40] if isinstance(value, str) else value
    allowed = f"a string of {validate.LABELS}"
    raise RequestError("bad_label", argument, allowed, shown, "Use a short name, such as the id in your own database.")


# settings


@dataclass(frozen=True)
class Settings:
    """What an experiment is created with. What later changes can change begins as it is here."""

    name: str
    arms: tuple[str, ...]
    policy: str
    of_policy: Mapping[str, Any]  # its own settings, such as alpha, as JSON
    reward_range: tuple[float, float]
    reward_wait: float | None  # seconds
    default_reward: float | None
    n_contexts: int
    calendar: Mapping[str, Any]  # period, period_start and carry, as far as they were passed
    features: Mapping[str, Any] | None = None  # of every decision, by name: see `FeatureSchema`
    features_of_arms: Mapping[str, Any] | None = None  # the same of arms, whose values are terms
    mode: str = "live"  # who decides: see `MODES`
    share: float | None = None  # the part of units that the policy decides for, in mode "share"
    salt: str | None = None  # of the hash of units; None: the name

    @classmethod
    def checked(
        cls,
        name: Any,
        arms: Any,
        contexts: Any,
        terms: Mapping[str, Any],
        calendar: tuple[Any, Any, Any],
        policy: Any,
        of_policy: Mapping[str, Any],
        start: State | None,
    ) -> tuple[Self, list[str]]:
        """Return the settings that arguments of `Engine.create` lead to, and the labels of contexts.

        `terms` has a value for every name in `TERMS`.
        """
        checked_label("name", name)
        labels = [checked_label("arms", arm) for arm in validate.labels("arms", arms, 1)]
        named = [checked_label("contexts", label) for label in validate.labels("contexts", contexts, 0)]
        agreed = _agreed(terms)
        fields, described = checked_period(*calendar), _feature_arguments(agreed)
        if start is not None:
            ready = checked_start(start, policy, labels, named, of_policy, described)
            policy, found = ready.name, dict(ready.settings)
        else:
            policy = DEFAULT_POLICY if policy is None else policy
            found = checked_settings(policy, labels, of_policy, described)
        if "alpha" in found:
            found["alpha"] = json_alpha(found["alpha"])
        settings = cls(
            name=name,
            arms=tuple(labels),
            policy=policy,
            of_policy=found,
            n_contexts=len(named),
            calendar=fields,
            **agreed,
        )
        return settings, named

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the body of the change that created an experiment."""
        body = json.loads(text)
        if "code" not in body:
            repair = "Export its log with the version that made it."
            raise InvalidArgument("path", "a file of alphafair 0.1.0 or later", "one of an unreleased version", repair)
        calendar = {name: body[name] for name in ("period", "period_start", "carry") if name in body}
        terms = {term: body[term] for term in TERMS if term in body}  # later versions have more of them
        terms["reward_range"] = tuple(terms["reward_range"])
        return cls(
            name=body["name"],
            arms=tuple(body["arms"]),
            policy=body["policy"],
            of_policy=body["settings"],
            n_contexts=body["n_contexts"],
            calendar=calendar,
            **terms,
        )

    def to_json(self, code: str) -> str:
        """Return the body of the change that creates the experiment with these kernels."""
        body = {
            "code": code,
            "name": self.name,
            "arms": self.arms,
            "policy": self.policy,
            "settings": self.of_policy,
            **{term: getattr(self, term) for term in TERMS},
            "n_contexts": self.n_contexts,
            **self.calendar,
        }
        return json.dumps(body)

    def with_terms(self, terms: Mapping[str, Any]) -> Self:
        """Return the settings with other values of some terms; refused where they do not agree with the rest."""
        values = {term: getattr(self, term) for term in TERMS} | dict(terms)
        if values["mode"] != "share" and "share" not in terms:
            values["share"] = None
        return replace(self, **_agreed(values))

    def terms_unlike(self, other: Settings, named: Collection[str]) -> dict[str, Any]:
        """Return the terms that are named, and all others that differ."""
        values = {term: getattr(self, term) for term in TERMS}
        return {term: value for term, value in values.items() if term in named or value != getattr(other, term)}

    def is_ours(self, u: float) -> bool:
        """Return whether the policy decides for a unit at this place of the hash."""
        return self.mode == "live" or (self.share is not None and u < self.share)

    @cached_property
    def low(self) -> float:
        """The least reward."""
        return self.reward_range[0]

    @cached_property
    def high(self) -> float:
        """The largest reward."""
        return self.reward_range[1]

    @cached_property
    def wait(self) -> int | None:
        """The waiting time in microseconds."""
        return None if self.reward_wait is None else int(self.reward_wait * 1e6)

    @cached_property
    def schema(self) -> FeatureSchema | None:
        """The features of every decision, if there are any."""
        return None if self.features is None else FeatureSchema(self.features)

    def first_policy(self, state: bytes | None) -> BasePolicy:
        """Return the policy that the experiment was created with, from the state of `start` if there was one."""
        if state is not None:
            return load_policy(State.from_bytes(state))
        if self.policy not in POLICIES:
            repair = "Import the module that registers it before you open the file."
            raise InvalidArgument("policy", "registered in this process", self.policy, repair)
        kind = POLICIES[self.policy]
        settings = kind._settings_of_this_version(self.of_policy)
        if "groups" in settings:
            settings["groups"] = Groups(**settings["groups"])
        policy = kind(1, len(self.arms), **settings)
        if self.n_contexts > 1:
            policy.grow(n_contexts=self.n_contexts)
        return policy


# terms: settings that the engine itself uses


def _range(value: Any, agreed: Mapping[str, Any]) -> tuple[float, float]:
    least, most = validate.ANY_REWARD
    low = validate.number("reward_range[0]", value[0], low=least, high=most, high_open=True)
    return low, validate.number("reward_range[1]", value[1], low=low, high=most, low_open=True)


def _wait(value: Any, agreed: Mapping[str, Any]) -> float | None:
    return None if value is None else validate.number("reward_wait", value, low=0.0, high=1e9, low_open=True)


def _default(value: Any, agreed: Mapping[str, Any]) -> float | None:
    if value is None:
        return None
    low, high = agreed["reward_range"]
    reward = validate.number("default_reward", value, low=low, high=high)
    if agreed["reward_wait"] is None:
        repair = "Pass reward_wait as well: the seconds after which it is applied."
        raise RequestError("bad_request", "default_reward", "passed with reward_wait", reward, repair)
    return reward


def _features(value: Any, agreed: Mapping[str, Any]) -> dict[str, Any] | None:
    return None if value is None else FeatureSchema.of(value).as_json


def _mode(value: Any, agreed: Mapping[str, Any]) -> str:
    return "live" if value is None else validate.choice("mode", value, MODES)


def _share(value: Any, agreed: Mapping[str, Any]) -> float | None:
    if agreed["mode"] != "share":
        if value is not None:
            allowed = f"left out in mode {agreed['mode']!r}"
            raise RequestError("bad_request", "share", allowed, value, "Pass mode='share' with it.")
        return None
    if value is None:
        allowed = "a number in (0, 1), passed with mode 'share'"
        raise RequestError("bad_request", "share", allowed, value, "Pass share=0.05, for example.")
    try:
        return validate.number("share", value, low=0.0, high=1.0, low_open=True, high_open=True)
    except InvalidArgument as refused:
        repair = "Pass 0.05 for 5%; mode='live' decides for everybody, mode='watch' for nobody."
        raise InvalidArgument("share", refused.allowed, value, repair) from None


def _salt(value: Any, agreed: Mapping[str, Any]) -> str | None:
    return None if value is None else checked_label("salt", value)


def _features_of_arms(value: Any, agreed: Mapping[str, Any]) -> dict[str, Any] | None:
    if value is None:
        return None
    if agreed["features"] is not None:
        repair = "Leave out one of the two: an experiment has features of contexts or of arms."
        raise RequestError("bad_request", "arm_features", "left out: there are features of contexts", value, repair)
    declared = value if isinstance(value, FeatureSchema) else FeatureSchema(value, argument="arm_features")
    return declared.as_json


def _feature_arguments(agreed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a policy that follow from the declared features."""
    for name, kind in {"features": "context", "features_of_arms": "arms"}.items():
        if agreed[name] is not None:
            return {"n_features": len(FeatureSchema(agreed[name]).columns), "features_of": kind}
    return {}


def _agreed(terms: Mapping[str, Any]) -> dict[str, Any]:
    """Check a value for every term."""
    agreed: dict[str, Any] = {}
    for term, check in TERMS.items():
        agreed[term] = check(terms[term], agreed)
    return agreed


TERMS: Final[dict[str, Callable[[Any, Mapping[str, Any]], Any]]] = {  # by field: its check, given those before it
    "reward_range": _range,
    "reward_wait": _wait,
    "default_reward": _default,
    "features": _features,
    "features_of_arms": _features_of_arms,
    "mode": _mode,
    "share": _share,
    "salt": _salt,
}


# periods and policies


def checked_period(period: Any, start: Any, carry: Any) -> dict[str, Any]:
    """Return the fields of a change that sets a period; without a period only a carry that is not the default."""
    carry = validate.number("carry", carry, low=0.0, high=1.0)
    if period is None:
        if start is not None:
            repair = "Pass period as well, such as 7d."
            raise RequestError("bad_request", "period_start", "passed with period", start, repair)
        return {} if carry == DEFAULT_CARRY else {"carry": carry}
    seconds = validate.duration("period", period)
    if seconds < SHORTEST_PERIOD:
        repair = "Pass, for example, 24h or 7d."
        raise InvalidArgument("period", f"at least {SHORTEST_PERIOD:g} seconds", period, repair)
    fields: dict[str, Any] = {"period": int(seconds * 1e6), "carry": carry}
    if start is not None:
        try:
            at = microseconds(start if isinstance(start, datetime) else datetime.fromisoformat(start))
        except (OverflowError, TypeError, ValueError):
            raise InvalidArgument("period_start", "a date, with a time or without", start, A_DATE) from None
        if any(microseconds(date_of(each)) != each for each in (at, at + fields["period"])):
            allowed = "a date whose first period begins and ends in the years 1 to 9999, in UTC"
            raise InvalidArgument("period_start", allowed, start, A_DATE)
        fields["period_start"] = at
    return fields


def checked_settings(
    policy: Any, arms: Sequence[str], settings: Mapping[str, Any], features: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of a registered policy, defaults included; refused where it cannot be created with them."""
    kind = POLICIES[validate.choice("policy", policy, POLICIES)]
    created = _created(kind, 1, arms, settings, features)
    _check_weights(created)
    return dict(created.settings)


def checked_start(
    start: Any,
    policy: Any,
    arms: Sequence[str],
    contexts: Sequence[str],
    settings: Mapping[str, Any],
    features: Mapping[str, Any],
) -> BasePolicy:
    """Return the policy of a state; refused where it passes no check of a new policy, or other arguments differ.

    The state decides the policy and its settings. Arguments beside it would be dropped, so each must be left out or
    have the same value.
    """
    ready = load_policy(start)
    _check_weights(ready)
    if policy is not None:
        validate.choice("policy", policy, POLICIES)
    if (ready.n_arms, len(ready.live_arms)) != (len(arms), len(arms)) or ready.n_contexts != len(contexts):
        allowed = f"a state with {len(arms)} arms, none of them retired, and {len(contexts)} contexts"
        got = {"arms": ready.n_arms, "live": len(ready.live_arms), "contexts": ready.n_contexts}
        raise RequestError("bad_request", "start", allowed, got, "Name every arm and context of the state, in order.")
    expected = start.arrays.get("pending")
    if expected is not None and np.any(expected):
        repair = "Update the policy with the rewards that it expects, or give them up with forgo, before its snapshot."
        raise RequestError("bad_request", "start", "a state without pending rewards", float(np.sum(expected)), repair)
    differing = {} if policy in (None, ready.name) else {"policy": policy}
    if not differing:  # settings of another policy would be checked against the wrong names
        own = {name: value for name, value in ready.settings.items() if name not in NOT_SETTINGS}
        created = _created(type(ready), ready.n_contexts, arms, {**own, **settings}, features)
        if (created.n_features, created.feature_shape) != (ready.n_features, ready.feature_shape):
            allowed = f"a state with features of shape {created.feature_shape}"
            repair = "Declare those that it was made with: see alphafair.values.FeatureSchema."
            raise RequestError("bad_request", "start", allowed, f"shape {ready.feature_shape}", repair)
        differing = {
            name: value for name, value in settings.items() if created.settings.get(name) != ready.settings.get(name)
        }
    if differing:
        in_start = {"policy": ready.name, **ready.settings}
        same = ", ".join(f"{name}={in_start.get(name)!r}" for name in differing)
        repair = "Leave it out, or change the policy before you take its snapshot."
        allowed = f"left out, or the same as in start ({same})"
        raise RequestError("bad_request", ", ".join(differing), allowed, _one_or_all(differing), repair)
    return ready


def _one_or_all(values: Mapping[str, Any]) -> Any:
    return next(iter(values.values())) if len(values) == 1 else dict(values)


def _check_weights(policy: BasePolicy) -> None:
    """Refuse fixed weights of contexts: an experiment adds contexts as they come."""
    if isinstance(policy, TwoSided) and policy.context_weights is not None:
        repair = "Contexts are weighed by their rounds."
        raise RequestError("bad_request", "context_weights", "left out", policy.context_weights, repair)


def _created(
    kind: type[BasePolicy],
    n_contexts: int,
    arms: Sequence[str],
    settings: Mapping[str, Any],
    features: Mapping[str, Any],
) -> BasePolicy:
    """Create a policy; refused where it does not accept a setting, needs another one, or takes no features."""
    arguments = {name: value for name, value in settings.items() if value is not None}
    if "groups" in arguments:
        arguments["groups"] = checked_groups(arguments["groups"], arms)
    parameters = inspect.signature(kind).parameters
    accepted = [name for name in parameters if name not in NOT_SETTINGS]
    for name in settings:
        if name not in accepted:
            allowed = f"left out: {kind.name} accepts {', '.join(accepted) or 'no settings'}"
            repair = "Leave it out, or choose a policy that accepts it."
            if name == "n_features":
                repair = "Pass features by name and type; their columns are counted."
            raise RequestError("bad_request", name, allowed, settings[name], repair)
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in (*NOT_SETTINGS, *arguments):
            raise RequestError("bad_request", name, f"passed: {kind.name} requires it", None, f"Pass {name}=....")
    if features:
        _check_takes_features(kind)
        arguments |= {name: value for name, value in features.items() if name in parameters}
    elif "n_features" in parameters and parameters["n_features"].default is inspect.Parameter.empty:
        example = 'Pass, for example, features={"age": "number"}.'
        raise RequestError("bad_request", "features", f"passed: {kind.name} requires them", None, example)
    created: BasePolicy = kind(n_contexts, len(arms), **arguments)
    shape = 2 if features.get("features_of") == "arms" else 1
    if created.n_features != features.get("n_features", 0) or (features and len(created.feature_shape) != shape):
        repair = "Choose another policy."
        raise RequestError("bad_request", "policy", "one with the declared features", kind.name, repair)
    return created


def _check_takes_features(kind: type[BasePolicy]) -> None:
    """Refuse a policy without features."""
    taking = [name for name, each in POLICIES.items() if "n_features" in inspect.signature(each).parameters]
    if "n_features" not in inspect.signature(kind).parameters:
        repair = "Choose it, or turn features into context labels: see alphafair.preprocessing.cluster."
        raise RequestError("bad_request", "policy", f"one with features ({', '.join(taking)})", kind.name, repair)


def checked_groups(value: Any, arms: Sequence[str]) -> Groups:
    """Return groups as a policy takes them, where arms have numbers: in the order of arms, or of groups."""
    groups = value
    if isinstance(value, Mapping) and {*value} <= GROUP_FIELDS:
        groups = Groups(**value)
    elif isinstance(value, list | tuple | np.ndarray):
        groups = Groups(value)
    if not isinstance(groups, Groups):
        allowed = "a list of labels, one per arm, or a Groups(labels, entitlements, pull_floor)"
        raise RequestError(
            "bad_request", "groups", allowed, value, "Name the group of every arm, in the order of arms."
        )
    labels = _checked_group_labels(groups.labels, arms)
    numbers = {"entitlements": (groups.entitlements, 1.0), "pull_floor": (groups.pull_floor, 0.0)}
    if labels is None:
        for name, (by_arm, missing) in numbers.items():
            if isinstance(by_arm, Mapping):
                unknown = sorted({*by_arm} - {*arms}, key=str)
                if unknown:
                    raise RequestError(
                        "bad_request", name, "by arm", unknown[0], "Name arms, or pass labels of groups."
                    )
                numbers[name] = [by_arm.get(arm, missing) for arm in arms], missing
    return Groups(labels, **{name: given for name, (given, _) in numbers.items()})


def _checked_group_labels(labels: Any, arms: Sequence[str]) -> list[str] | None:
    """Return the group of every arm, from a list in the order of arms or a mapping by arm; None without groups."""
    if labels is None:
        return None
    if isinstance(labels, Mapping):
        if {*labels} != {*arms}:
            odd = sorted({*labels} ^ {*arms}, key=str)[:5]
            raise RequestError("bad_request", "groups", "a group for every arm", odd, "Name each arm once.")
        labels = [labels[arm] for arm in arms]
    if not isinstance(labels, list | tuple | np.ndarray):
        repair = "Name the group of every arm, in the order of arms."
        raise RequestError("bad_request", "groups", "a list of labels, or a mapping from arm to label", labels, repair)
    return [checked_label("groups", label) for label in labels]
