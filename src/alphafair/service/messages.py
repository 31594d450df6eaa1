"""What travels over HTTP, as types: bodies are checked while they are read, and the OpenAPI page is made from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from alphafair.engine import LONGEST_LABEL, GroupStatus

MOST_BATCH, MOST_ARMS, MOST_NAMES = 1000, 1000, 100

Label = Annotated[str, Meta(min_length=1, max_length=LONGEST_LABEL)]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Letters, digits, dots, dashes: it is part of an address.",
    ),
]
Arms = Annotated[list[Label], Meta(min_length=1, max_length=MOST_ARMS)]
Alpha = Annotated[float, Meta(ge=0.0, lt=1.0)]
OwnId = Annotated[Label, Meta(description="Your own name for it: the same id again gives the same arm again.")]
Available = Annotated[Arms, Meta(description="The arms that can be had now; all, if left out.")]
Position = Annotated[int, Meta(ge=1, description="Forget what was learned after this event of the log.")]
Seconds = Annotated[float, Meta(gt=0.0, description="Seconds until a reward is no longer waited for.")]
Range = Annotated[list[float], Meta(min_length=2, max_length=2, description="The least and the greatest reward.")]
GroupLabels = Annotated[list[Label], Meta(min_length=1, max_length=MOST_ARMS, description="The group of every arm.")]
Role = Literal["metrics", "read", "write", "log", "admin"]
Setting = bool | int | float | str


class Body(Struct, forbid_unknown_fields=True):
    """What a client sends: a field that nobody knows is a mistake, not a wish."""


class DecisionRequest(Body):
    """Who is there, and what may be shown."""

    context: Annotated[Label, Meta(examples=["visitor-7"])]
    id: (
        Annotated[Label, Meta(description="Your own name for it: the same id again gives the same arm again.")] | None
    ) = None
    available: Annotated[Arms, Meta(description="The arms that can be had now; all, if left out.")] | None = None
    deferred: Annotated[bool, Meta(description="It counts only once it is activated.")] = False


class RewardRequest(Body):
    """What came of a decision: a number, or under full information one for every arm."""

    id: Label
    reward: Annotated[float | dict[Label, float], Meta(examples=[0.8])]


class ActivationRequest(Body):
    """A deferred decision was shown after all."""

    id: Label


class DecisionBatch(Body):
    """Many decisions, made in this order."""

    items: Annotated[list[DecisionRequest], Meta(min_length=1, max_length=MOST_BATCH)]


class RewardBatch(Body):
    """Many rewards, applied in this order."""

    items: Annotated[list[RewardRequest], Meta(min_length=1, max_length=MOST_BATCH)]


class GroupsOfArms(Body):
    """Whom to be fair to. Without `labels` every arm is on its own, and the numbers are those of arms."""

    labels: (
        Annotated[
            list[Label] | dict[Label, Label],
            Meta(description="The group of every arm, in the order of arms or by arm."),
        ]
        | None
    ) = None
    entitlements: (
        Annotated[dict[Label, float], Meta(description="What groups are entitled to; those left out to 1.")] | None
    ) = None
    pull_floor: (
        Annotated[float | dict[Label, float], Meta(description="Least share of every draw: of each arm, or by group.")]
        | None
    ) = None


class NewExperiment(Body):
    """The arguments of `Engine.create`; `settings` go to the policy."""

    name: Annotated[Name, Meta(examples=["home"])]
    arms: Annotated[Arms, Meta(examples=[["ada", "ben"]])]
    policy: str = "alpha-fair-adaptive"
    alpha: Alpha | UnsetType = UNSET
    groups: GroupLabels | GroupsOfArms | UnsetType = UNSET
    reward_range: Range = msgspec.field(default_factory=lambda: [0.0, 1.0])
    reward_wait: (
        Annotated[float, Meta(gt=0.0, description="Seconds until a reward is no longer waited for.")] | None
    ) = None
    default_reward: Annotated[float, Meta(description="What is then taken as the reward.")] | None = None
    settings: dict[str, Setting] = {}


class Change(Body):
    """One change of an experiment that runs; exactly one field, but `group` and `entitlement` go with `add_arm`."""

    alpha: Alpha | UnsetType = UNSET
    add_arm: Label | UnsetType = UNSET
    group: Label | UnsetType = UNSET
    entitlement: float | UnsetType = UNSET
    retire_arm: Label | UnsetType = UNSET
    mask_arm: Label | UnsetType = UNSET
    unmask_arm: Label | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    rollback: Position | UnsetType = UNSET


class NewKey(Body):
    """Who gets a key, for what and for how long."""

    role: Role
    name: Annotated[str, Meta(min_length=1, max_length=100, description="Whose key it is.", examples=["the shop"])]
    experiments: Annotated[list[Name], Meta(min_length=1, max_length=MOST_NAMES)] | None = None
    expires_in: Annotated[float, Meta(ge=1.0, le=1e9, description="Seconds; null: until it is revoked.")] | None = None


class Rotation(Body):
    """How long the old key stays valid beside the new one."""

    grace: Annotated[float, Meta(ge=0.0, le=1e9, description="Seconds.")] = 0.0


class Problem(Struct, omit_defaults=True):
    """What went wrong, in the one form used everywhere."""

    code: str
    message: str
    argument: str | None = None
    repair: str | None = None


class ErrorAnswer(Struct, omit_defaults=True):
    """Every answer that is no success; `outcome` where a reward or an activation came to nothing."""

    error: Problem
    outcome: str | None = None


class DecisionAnswer(Struct):
    """The arm to show, and the probability with which it was drawn."""

    id: str
    arm: str
    propensity: Annotated[float, Meta(gt=0.0, le=1.0)]
    context: str


class RewardAnswer(Struct):
    """The reward was booked, now or before."""

    outcome: Literal["applied", "repeated"]


class ActivationAnswer(Struct):
    """The decision counts, from now on or already."""

    outcome: Literal["activated", "repeated"]


class DecisionItem(Struct, omit_defaults=True):
    """A decision, or an error and nothing else."""

    id: str | None = None
    arm: str | None = None
    propensity: float | None = None
    context: str | None = None
    error: Problem | None = None


class RewardItem(Struct, omit_defaults=True):
    """An outcome, an error, or both."""

    outcome: Literal["applied", "repeated", "conflict", "unknown", "expired", "rolled_back"] | None = None
    error: Problem | None = None


class DecisionAnswers(Struct):
    """One answer per item, in order."""

    items: list[DecisionItem]


class RewardAnswers(Struct):
    """One answer per item, in order."""

    items: list[RewardItem]


class ExperimentAnswer(Struct):
    """An experiment as it stands: totals, and per arm what it has earned and how often it was drawn.

    `decisions` is the sum of `rewards` (sent and booked), `defaulted` (got the default reward when their waiting time
    ended), `expired` (closed without a reward then), `lapsed` (deferred and not activated before then), `rolled_back`
    (closed by a rollback) and `pending` (wait for a reward, or to be activated).

    `cumulative_rewards` has the sum of each arm's rewards, in the units of `reward_range`; `accounts` what fairness is
    about: 1, and rewards mapped onto [0, 1], of every group, or arm. `groups` says whom it is fair to; null where every
    arm is on its own. `unhealthy` says what the policy has failed at, and why; null while all is well.
    """

    name: str
    policy: str
    feedback: Literal["bandit", "full"]
    alpha: float | None
    arms: list[str]
    retired_arms: list[str]
    masked_arms: list[str]
    paused: bool
    reward_range: Range
    reward_wait: float | None
    default_reward: float | None
    contexts: int
    max_contexts: int
    decisions: int
    rewards: int
    defaulted: int
    expired: int
    lapsed: int
    rolled_back: int
    pending: int
    pulls: dict[str, int]
    cumulative_rewards: dict[str, float]
    accounts: dict[str, float]
    groups: GroupStatus | None
    jain_index: float | None
    alpha_performance: float | None
    unhealthy: str | None


class ChangeItem(Struct):
    """A change of an experiment: its place in the log, when, what, by whom (null: not recorded), and how."""

    position: int
    at: datetime
    kind: str
    by: str | None
    details: dict[str, Any]


class History(Struct):
    """Oldest first."""

    items: list[ChangeItem]


class KeyAnswer(Struct):
    """What is known of a key, but for its secret. Times are null where something never happened or will."""

    id: str
    name: str
    role: Role
    experiments: list[str] | None
    valid: bool
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class CreatedKey(Struct):
    """A new key. It is not shown again."""

    id: str
    key: str


class Keys(Struct):
    """All keys that were ever made."""

    items: list[KeyAnswer]


class Experiments(Struct):
    experiments: list[str]


class Health(Struct):
    status: Literal["ok"]
    version: str


class Readiness(Struct, omit_defaults=True):
    """Whether decisions are made now; to those who have a key also why not, and how far the clock is behind the log.

    `unhealthy` has the experiments whose policies fail, and at what: all others are served meanwhile.
    """

    ready: bool
    reason: str | None = None
    clock_behind_seconds: float | None = None
    unhealthy: dict[str, str] = {}
