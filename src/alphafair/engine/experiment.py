"""One experiment as it stands in memory: labels, settings, the policy, and what a change makes of them."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import operator
import random
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from alphafair import validate
from alphafair.algorithms import POLICIES, BasePolicy, load_policy
from alphafair.engine.events import Change
from alphafair.errors import InvalidArgument, PolicyFailed, RequestError
from alphafair.groups import Groups
from alphafair.jit import fingerprint
from alphafair.values import Feedback, State, Vector

CODE = fingerprint()  # of the kernels: with other ones the same log may lead to other bits
LONGEST_LABEL, LONGEST_REASON = 200, 300
CHECKED = 1 << 20  # numbers looked at in one step
DRAWING, SAVING, REPORTING = "drawing an arm", "saving its state", "reporting"  # what a policy may fail at and go on
LOG = logging.getLogger("alphafair.engine")
NOT_SETTINGS = ("n_contexts", "n_arms", "seed")  # among a policy's arguments: the engine's own affair
GROUP_FIELDS = frozenset(field.name for field in fields(Groups))
COUNTED_AS = {  # by the source of a settlement, the field of `Tally`; in the order of `chunks.SETTLED`
    "client": "rewards",
    "default": "defaulted",
    "expired": "expired",
    "lapsed": "lapsed",
    "rollback": "rolled_back",
}
Saved = TypeVar("Saved")
UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class GroupStatus:
    """Whom an experiment is fair to, by label; None where nothing was said."""

    labels: dict[str, str] | None  # the group of every arm
    entitlements: dict[str, float] | None  # of every group, or of every arm where there are no groups
    pull_floor: float | dict[str, float] | None  # of every arm alike, or by group, or by arm


def is_label(value: str) -> bool:
    plain = value.isascii() and value.isprintable()  # nearly all are, and a pattern takes longer
    return 0 < len(value) <= LONGEST_LABEL and (plain or not UNPRINTABLE.search(value))


def checked_label(argument: str, value: Any) -> str:
    """A name that can be stored, printed and put into a URL."""
    if isinstance(value, str) and is_label(value):
        return str(value)  # a plain one, whatever library it comes from
    shown = value[:40] if isinstance(value, str) else value
    allowed = f"a string of 1 to {LONGEST_LABEL} characters, none of them a control character"
    raise RequestError("bad_label", argument, allowed, shown, "Use a short name, such as the id in your own database.")


@dataclass
class Tally:
    """What has been counted so far: kept with every snapshot, because counting again would take long."""

    decisions: int = 0
    rewards: int = 0  # that were sent
    defaulted: int = 0  # decisions that got the default reward when their waiting time ended
    expired: int = 0  # decisions closed without a reward when it ended
    lapsed: int = 0  # deferred decisions that were not activated before it ended
    rolled_back: int = 0  # decisions closed by a rollback
    pending: int = 0  # decisions that still wait for their reward, or to be activated
    settled_to: int = 0  # where the search for overdue decisions goes on
    pulls: list[int] = field(default_factory=list)
    earned: list[float] = field(default_factory=list)  # by arm: rewards sent and default ones, summed up in their order

    def make_room(self, n_arms: int) -> None:
        """Count for so many arms, if not for more already."""
        self.pulls += [0] * (n_arms - len(self.pulls))
        self.earned += [0.0] * (n_arms - len(self.earned))

    def settle(self, sources: Mapping[str, int]) -> None:
        """Count decisions that wait no longer, by what settled them."""
        for source, n in sources.items():
            field = COUNTED_AS[source]
            setattr(self, field, getattr(self, field) + n)
            self.pending -= n

    def to_json(self) -> str:
        return json.dumps(vars(self))


class Experiment:
    """Built by folding changes; `apply` is the only thing that alters how it runs.

    A policy that fails takes nothing else with it. One that failed while it drew, or while its state was saved, stays.
    One that failed while it learned, or was made or changed, is not what the log leads to any more: the experiment is
    without a policy then, and whatever needs one is refused.
    """

    def __init__(self, created: Change) -> None:
        body = json.loads(created.body)
        self.key: int = created.seq
        self.name: str = body["name"]
        self.arms: list[str] = list(body["arms"])
        self.arm_numbers = {arm: number for number, arm in enumerate(self.arms)}
        self._playable: NDArray[np.bool_] | None = None  # by arm: neither retired nor masked; None: to be made
        self.retired: set[int] = set()
        self.masked: set[int] = set()
        self.paused = False
        self.erased: set[int] = set()
        self.low, self.high = body["reward_range"]
        self.reward_wait: float | None = body["reward_wait"]
        self.wait = None if self.reward_wait is None else int(self.reward_wait * 1e6)  # microseconds
        self.default_reward: float | None = body["default_reward"]
        self.version = created.seq
        self.code: str = body["code"]
        self.changes: list[Change] = [created]
        self.unsaved, self.snapshot_every = 0, 0  # events since the last snapshot, and how many to wait for
        self.contexts: dict[str, int] = {}
        self.n_contexts: int = body["n_contexts"]
        self.tally = Tally()
        self.tally.make_room(len(self.arms))
        self.policy_name: str = body["policy"]
        self.alpha: float | None = body["settings"].get("alpha")
        self.full, self.only_draws = False, False
        self.problems: dict[str, str] = {}  # what the policy failed at, and why
        self._failed_in: int | None = None  # the context that could not be drawn in
        self._policy: BasePolicy | None = None

    # its policy

    @property
    def policy(self) -> BasePolicy:
        if self._policy is None:
            raise PolicyFailed(self.name, self.unhealthy or "it was not made")
        return self._policy

    @policy.setter
    def policy(self, policy: BasePolicy) -> None:
        """From here on all is well again."""
        self._policy = policy
        self.problems.clear()
        self.full = policy.feedback is Feedback.FULL
        self.only_draws = not self.full and type(policy).choose is BasePolicy.choose  # `draw` is enough for it

    @property
    def has_policy(self) -> bool:
        return self._policy is not None

    @property
    def unhealthy(self) -> str | None:
        """What is wrong with the policy; None while all is well."""
        return "; ".join(self.problems.values()) or None

    def first_policy(self) -> BasePolicy:
        """What the experiment was created with."""
        created = self.changes[0]
        body = json.loads(created.body)
        if created.state is not None:
            return load_policy(State.from_bytes(created.state))
        if self.policy_name not in POLICIES:
            repair = "Import the module that registers it before the file is opened."
            raise InvalidArgument("policy", "registered in this process", self.policy_name, repair)
        settings = body["settings"]
        if "groups" in settings:
            settings["groups"] = Groups(**settings["groups"])
        policy = POLICIES[self.policy_name](1, len(body["arms"]), **settings)
        if body["n_contexts"] > 1:
            policy.grow(n_contexts=body["n_contexts"])
        return policy

    def failed(self, doing: str, problem: BaseException | str) -> PolicyFailed:
        """Note what the policy failed at, and log it once; the error to answer with."""
        what = problem if isinstance(problem, str) else f"{type(problem).__name__}: {problem}"
        reason = f"{doing}: {what[:LONGEST_REASON].rstrip('.')}"
        if doing not in self.problems:
            raised = problem if isinstance(problem, BaseException) else None
            LOG.error("The policy of %s failed while %s", self.name, reason, exc_info=raised)
        self.problems[doing] = reason
        return PolicyFailed(self.name, reason)

    def drop_policy(self, doing: str, problem: BaseException | str) -> None:
        """Go on without a policy: what it has learned is not what the log leads to.

        Memory that was lacking is no fault of the policy's: all is loaded again then.
        """
        if isinstance(problem, MemoryError):
            raise problem
        self._policy = None
        self.failed(doing, problem)

    def draw(
        self, policy: BasePolicy, context: int, rng: random.Random, mask: NDArray[np.bool_] | None
    ) -> tuple[int, float, Vector | None]:
        """An arm, its propensity and under full information the distribution; whatever else comes is a failure."""
        probabilities: Any = None
        try:
            if mask is None and self.only_draws:
                arm, propensity = policy._draw_arm(context, rng.random())
            else:
                _, arm, propensity, probabilities = policy.choose(context, rng=rng, available=mask)
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

    def saved_state(self) -> bytes | None:
        """The policy as bytes that can be read again; None while it is unhealthy, or cannot be saved."""
        return self._while_saving(state_of)

    @property
    def state_bytes(self) -> int:
        """About how many bytes the state of the policy has."""
        return 0 if self._policy is None else self._policy.n_contexts * self._policy._bytes_per_context

    def copied_state(self) -> State | None:
        """What the policy has learned up to now, to be written later; None while it is unhealthy, or says nothing."""
        return self._while_saving(lambda policy: policy.snapshot())

    def _while_saving(self, use: Callable[[BasePolicy], Saved]) -> Saved | None:
        if not self.has_policy or self.problems.keys() - {SAVING, REPORTING}:
            return None
        try:
            return use(self.policy)
        except Exception as problem:
            self.failed(SAVING, problem)
            return None

    def saved(self, n_events: int) -> None:
        """A snapshot is on the disk; the next is due after so many events, or more."""
        self.snapshot_every = n_events
        self.problems.pop(SAVING, None)

    # what is asked of it

    @property
    def live_arms(self) -> list[str]:
        return [arm for number, arm in enumerate(self.arms) if number not in self.retired]

    def about_policy(self) -> dict[str, Any]:
        """The fields of `Status` that the policy is asked for; empty where there is none, or it fails to answer."""
        feedback = Feedback.FULL if self.full else Feedback.BANDIT
        about: dict[str, Any] = {"feedback": feedback.value, "alpha": self.alpha, "groups": None, "accounts": {}}
        if self.has_policy:
            try:
                accounts = self.accounts
                if not np.isfinite([*accounts.values()]).all():
                    raise ValueError(f"accounts {reprlib.repr(accounts)} are not all numbers")
                about |= {"alpha": self.policy.alpha, "groups": self.groups, "accounts": accounts}
                self.problems.pop(REPORTING, None)
            except Exception as problem:
                self.failed(REPORTING, problem)
        return about

    @property
    def groups(self) -> GroupStatus | None:
        """Whom the policy is fair to; None where every arm is on its own, with equal rights and no floor."""
        groups = self.policy.groups
        if groups is None or groups.is_default:
            return None
        floors = groups.group_floors
        return GroupStatus(
            self.group_of or None,
            None if groups.equally_entitled else self.per_group(groups.entitlements),
            self.per_group(floors) if floors.any() else groups.arm_floor or None,
        )

    @property
    def group_of(self) -> dict[str, str]:
        """Every arm's group; empty where arms are on their own."""
        groups = self.policy.groups
        if groups is None or not groups.named:
            return {}
        return {arm: groups.labels[g] for arm, g in zip(self.arms, groups.of_arms, strict=True)}

    def per_group(self, values: Any) -> dict[str, float]:
        """Numbers by group, or by arm where those are on their own."""
        groups = self.policy.groups
        labels = self.arms if groups is None or not groups.named else groups.labels
        return dict(zip(map(str, labels), values.tolist(), strict=True))

    @property
    def accounts(self) -> dict[str, float]:
        """R of every group, or arm: what fairness is about. Empty where the policy keeps none, or one per context."""
        accounts = self.policy.accounts
        return {} if accounts is None or np.ndim(accounts) == 2 else self.per_group(accounts)

    def number_of(self, arm: Any, argument: str = "arm") -> int:
        number = self.arm_numbers.get(arm) if isinstance(arm, str) else None
        if number is None:
            repair = f"{self.name} has {validate.listed(self.arms)}."
            raise RequestError("unknown_arm", argument, f"an arm of {self.name}", arm, repair)
        return number

    def checked_arrival(self, arm: Any, account: Any, group: Any, entitlement: Any) -> dict[str, Any]:
        """What is to be written down about a new arm."""
        checked_label("arm", arm)
        validate.account(account)
        groups = self.group_of
        if arm in self.arm_numbers:
            raise RequestError("arm_exists", "arm", "new", arm, "Choose another name: arms that left keep theirs.")
        if bool(groups) == (group is None):
            allowed = "named: every arm of this experiment has one" if groups else "left out: arms have none here"
            raise RequestError("bad_request", "group", allowed, group, "See the experiment's groups.")
        if group is not None:
            checked_label("group", group)
        if entitlement is not None and group in groups.values():
            repair = "It keeps what it is entitled to."
            raise RequestError("bad_request", "entitlement", "that of a new group", entitlement, repair)
        said = {"arm": arm, "account": account, "group": group, "entitlement": entitlement}
        return {key: value for key, value in said.items() if value is not None}

    def mask(self, available: Iterable[str] | None) -> NDArray[np.bool_] | None:
        """Which arms can be played now, or None where all can that are live."""
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
            repair = "Leave the decision out when nothing can be played."
            raise RequestError("no_arm_available", "available", "at least one arm that can be played", [], repair)
        return mask

    def _numbers_of(self, available: Iterable[str]) -> list[int]:
        try:
            names = None if isinstance(available, str) else list(available)
        except Exception:  # whatever an iterator of the caller's raises
            names = None
        if names is None:
            raise RequestError("bad_request", "available", "a list of arms", available, "Put them into a list.")
        try:
            return [self.arm_numbers[name] for name in names]
        except (KeyError, TypeError):  # say which
            return [self.number_of(name, "available") for name in names]

    def to_unit(self, reward: Any) -> Any:
        """From the reward range to what the policy learns from."""
        if self.policy.traits.reward_range != (0.0, 1.0):
            return reward
        return (reward - self.low) / (self.high - self.low)

    def checked_reward(self, value: Any, n_arms: int) -> tuple[float | None, bytes | None]:
        """One number, or under full information one for each of the `n_arms` of then: by label or in their order."""
        allowed = f"in [{self.low:g}, {self.high:g}]"
        if n_arms:
            if isinstance(value, Mapping):
                arms = self.arms[:n_arms]
                missing = [arm for number, arm in enumerate(arms) if number not in self.retired and arm not in value]
                unknown = [arm for arm in value if self.arm_numbers.get(arm, n_arms) >= n_arms]
                if missing or unknown:
                    some = (
                        f"Missing: {validate.listed(missing) or 'none'}; unknown: {validate.listed(unknown) or 'none'}."
                    )
                    raise RequestError("bad_reward", "reward", "a value for every arm", f"{len(value)} values", some)
                value = [value.get(arm, self.low) for arm in arms]
            try:
                rewards = validate.floats("reward", "a value per arm", value, "Give a number per arm, or one by label.")
            except InvalidArgument as refused:
                raise RequestError("bad_reward", *refused.args) from None
            if rewards.shape != (n_arms,) or not ((rewards >= self.low) & (rewards <= self.high)).all():
                repair = "Give one per arm, in the order of the experiment's arms."
                raise RequestError("bad_reward", "reward", f"{n_arms} numbers {allowed}", value, repair)
            return None, rewards.astype("<f8").tobytes()
        try:
            is_number = not isinstance(value, str | bytes | bool) and not getattr(value, "ndim", 0)
            number = float(value) if is_number and not np.ma.is_masked(value) else np.nan
        except Exception:  # it has no float, or one that is too large
            number = np.nan
        if not self.low <= number <= self.high:
            repair = f"Rewards of {self.name} lie in that range: say another reward_range when you create it."
            raise RequestError("bad_reward", "reward", f"a number {allowed}", value, repair)
        return number, None

    # what happens to it

    def policy_for(self, context: int) -> BasePolicy:
        """The policy with room for a context that may be new; a copy, where more room changes what others play."""
        policy = self.policy
        try:
            if context >= policy.n_contexts:
                policy = policy if policy.traits.contexts_apart else copy.deepcopy(policy)
                policy.grow(n_contexts=context + 1)
        except InvalidArgument:  # it takes no more
            raise
        except Exception as problem:
            self._failed_in = context
            raise self.failed(DRAWING, problem) from problem
        return policy

    def add_context(self, label: str, number: int, policy: BasePolicy) -> None:
        """Know a context from here on, with the policy that has room for it."""
        self.contexts[label] = number
        self.n_contexts, self._policy = number + 1, policy

    def apply(self, change: Change, policy: BasePolicy | None = None) -> None:
        """Run differently from here on, with the policy that the change has been tried on, if it has been.

        What becomes of a policy at a rollback, and the closing of decisions, are the fold's affair.
        """
        self.note(change)
        if policy is not None:
            self._policy = policy
        elif self._policy is not None:
            try:
                change_policy(self._policy, change)
            except Exception as problem:
                self.drop_policy(f"changing at position {change.seq}", problem)

    def note(self, change: Change) -> None:
        """All of a change but what the policy makes of it."""
        body = json.loads(change.body)
        self._playable = None
        if change.kind == "add_arm":
            self.arm_numbers[body["arm"]] = len(self.arms)
            self.arms.append(body["arm"])
            self.tally.make_room(len(self.arms))
        elif change.kind == "retire_arm":
            self.retired.add(body["arm"])
        elif change.kind == "mask_arm":
            self.masked.add(body["arm"])
        elif change.kind == "unmask_arm":
            self.masked.discard(body["arm"])
        elif change.kind == "set_alpha":
            self.alpha = body["alpha"]
        elif change.kind in ("pause", "resume"):
            self.paused = change.kind == "pause"
        elif change.kind == "erase":
            self.erased.add(body["context"])
        elif change.kind == "upgrade":
            self.code = body["code"]
        self.version = change.seq
        self.changes.append(change)

    def rollbacks(self) -> list[tuple[int, int]]:
        """Every rollback that was made: its position, and that of the last decision that it closed."""
        made = [change for change in self.changes if change.kind == "rollback"]
        return [(change.seq, change.seq + json.loads(change.body)["closed"]) for change in made]

    def catch_up(self, policy: BasePolicy, position: int) -> None:
        """Bring a policy of an earlier position to the contexts, arms and alpha of now; what it has learned stays."""
        policy.grow(n_contexts=max(self.n_contexts, policy.n_contexts))
        for change in self.changes:
            if change.seq > position:
                change_policy(policy, change)


def state_of(policy: BasePolicy) -> bytes:
    """What a policy has learned, to be written down; refused where it could not be read again."""
    state = policy.snapshot()
    for _ in checks_of(state):
        pass
    return state.to_bytes()


def checks_of(state: State) -> Iterator[None]:
    """Refuse a state with a value that is not a number; in short steps, as there may be many."""
    for name, array in state.arrays.items():
        if array.dtype.kind == "f":
            values = array.reshape(-1)
            for first in range(0, len(values), CHECKED):
                if np.isnan(values[first : first + CHECKED]).any():
                    raise ValueError(f"{name!r} in its state has a value that is not a number")
                yield


def change_policy(policy: BasePolicy, change: Change) -> None:
    """What a change makes of a policy, if anything."""
    if change.kind in ("add_arm", "retire_arm", "set_alpha"):
        body = json.loads(change.body)
        if change.kind == "add_arm":
            grow_by_one(policy, body)
        elif change.kind == "retire_arm":
            policy.retire(body["arm"])
        else:
            policy.set_alpha(body["alpha"])


def check_distribution(probabilities: Vector, n_arms: int, arm: int, propensity: float) -> None:
    """Refuse what is no distribution, or does not draw the arm with its propensity."""
    sums_to_one = probabilities.shape == (n_arms,) and abs(float(probabilities.sum()) - 1.0) <= 1e-6
    if not sums_to_one or probabilities.min() < 0.0 or probabilities[arm] != propensity:
        shown = reprlib.repr(probabilities.tolist())
        raise ValueError(f"{shown} is not a distribution that draws arm {arm} with propensity {propensity!r}")


def grow_by_one(policy: BasePolicy, body: Mapping[str, Any]) -> None:
    """One more arm, in the group that it was said to belong to."""
    group, entitlement = ([body[key]] if body.get(key) is not None else None for key in ("group", "entitlement"))
    said: dict[str, Any] = {} if group is entitlement is None else {"groups": Groups(group, entitlement)}
    policy.grow(n_arms=policy.n_arms + 1, account=body["account"], **said)


def same_state(first: State, second: State) -> bool:
    """Whether two policies have learned the same, to the last bit; random numbers are not part of it."""
    return (
        (first.policy, first.version, dict(first.settings)) == (second.policy, second.version, dict(second.settings))
        and first.arrays.keys() == second.arrays.keys()
        and all(_same_bits(first.arrays[key], second.arrays[key]) for key in first.arrays)
    )


def _same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def checked_groups(value: Any, arms: Sequence[str]) -> Groups:
    """Groups as a policy takes them, where arms have numbers: in the order of arms, or of groups."""
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
    """The group of every arm, from a list in the order of arms or a mapping from arm to group; None without groups."""
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


def checked_settings(policy: Any, arms: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a registered policy is made with; refused where it would not be."""
    kind = POLICIES[validate.choice("policy", policy, POLICIES)]
    return dict(_made(kind, 1, arms, settings).settings)


def checked_start(
    start: Any, policy: Any, arms: Sequence[str], contexts: Sequence[str], settings: Mapping[str, Any]
) -> BasePolicy:
    """The policy that an experiment goes on with; refused where the other arguments contradict it."""
    ready = load_policy(start)
    contradicts = "Leave it out, or change the policy before you take its snapshot."
    if policy is not None and policy != ready.name:
        validate.choice("policy", policy, POLICIES)
        raise RequestError("bad_request", "policy", f"left out, or {ready.name!r} as in start", policy, contradicts)
    if (ready.n_arms, len(ready.live_arms)) != (len(arms), len(arms)) or ready.n_contexts != len(contexts):
        allowed = f"of {len(arms)} live arms and {len(contexts)} contexts"
        repair = "Name as many arms and contexts as the policy knows."
        raise RequestError("bad_request", "start", allowed, [ready.n_arms, ready.n_contexts], repair)
    made = _made(type(ready), ready.n_contexts, arms, {**ready.settings, **settings})
    for name in settings:
        if made.settings.get(name) != ready.settings.get(name):
            allowed = f"left out, or {ready.settings.get(name)!r} as in start"
            raise RequestError("bad_request", name, allowed, settings[name], contradicts)
    return ready


def _made(kind: type[BasePolicy], n_contexts: int, arms: Sequence[str], settings: Mapping[str, Any]) -> BasePolicy:
    """A policy with these settings, all of which it takes and which are all that it needs."""
    arguments = {name: value for name, value in settings.items() if value is not None}
    if "groups" in arguments:
        arguments["groups"] = checked_groups(arguments["groups"], arms)
    known = [name for name in inspect.signature(kind).parameters if name not in NOT_SETTINGS]
    for name in settings:
        if name not in known:
            allowed = f"left out: {kind.name} takes {', '.join(known) or 'no settings'}"
            repair = "Leave it out, or choose a policy that takes it."
            raise RequestError("bad_request", name, allowed, settings[name], repair)
    for name, parameter in inspect.signature(kind).parameters.items():
        if parameter.default is parameter.empty and name not in (*NOT_SETTINGS, *arguments):
            raise RequestError(
                "bad_request", name, f"said: {kind.name} cannot do without", None, "Give it with the settings."
            )
    _refuse_features(arguments.get("n_features"))  # before the policy takes memory for them
    made: BasePolicy = kind(n_contexts, len(arms), **arguments)
    _refuse_features(made.n_features)
    return made


def _refuse_features(n_features: Any) -> None:
    if n_features:
        repair = "Turn features into context labels first: see alphafair.preprocessing.cluster."
        raise RequestError("bad_request", "n_features", "left out: the log keeps no features", n_features, repair)
