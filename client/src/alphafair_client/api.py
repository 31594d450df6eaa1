"""The HTTP API: its messages as types, and the table of endpoints. The clients, routing and OpenAPI follow from them.

msgspec checks bodies and answers against the types. `Receipt` and `Outcome` are the engine's own values; msgspec writes
named tuples as arrays, so `JSON_FORMS` has the JSON object for each. What an endpoint does is in the service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal, get_args, get_type_hints

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from alphafair_client.answers import (
    LONGEST_LABEL,
    GroupStatus,
    Interval,
    Outcome,
    PeriodStatus,
    Receipt,
    SideStatus,
    SlateReceipt,
)

Role = Literal["metrics", "read", "write", "log", "admin"]
MOST_BATCH, MOST_ARMS, MOST_NAMES = 1000, 1000, 100
MOST_SHOWN: Final = 1000  # arms of one decision

Label = Annotated[str, Meta(min_length=1, max_length=LONGEST_LABEL)]
Name = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Letters, digits, dots, dashes and underscores: it is part of a path.",
    ),
]
Arms = Annotated[list[Label], Meta(min_length=1, max_length=MOST_ARMS)]
AnyAlpha = Annotated[float, Meta(ge=0.0)] | Literal["inf"]
Alpha = Annotated[
    AnyAlpha,
    Meta(description="0: the largest sum of rewards; 1: proportional fairness; the string inf: the largest minimum."),
]
OwnId = Annotated[Label, Meta(description="Your own id: the same id again returns the same decision.")]
DecisionId = Annotated[Label, Meta(description="The id of the decision.")]
Available = Annotated[Arms, Meta(description="The arms that can be drawn now. Default: all.")]
Position = Annotated[int, Meta(ge=1, description="Forget what was learned after this position of the event log.")]
Wait = Annotated[float, Meta(gt=0.0, description="Seconds to wait for a reward.")]
DefaultReward = Annotated[float, Meta(description="The reward of a decision whose waiting time has ended.")]
Range = Annotated[list[float], Meta(min_length=2, max_length=2, description="The smallest and the largest reward.")]
GroupLabels = Annotated[list[Label], Meta(min_length=1, max_length=MOST_ARMS, description="The group of every arm.")]
PeriodLength = Annotated[
    float | str, Meta(description="Fairness counts per period of so many seconds, or of a duration such as 7d.")
]
PeriodStart = Annotated[str, Meta(description="When a period starts, in ISO 8601. Default: the creation.")]
Carry = Annotated[
    float, Meta(ge=0.0, le=1.0, description="The part of what was earned that counts in the next period. Default: 0.5.")
]
NextPeriod = Annotated[
    float | str,
    Meta(description="Later periods, in seconds or as 7d. null: they end by new_period alone."),
]
NextPeriodStart = Annotated[
    str, Meta(description="When a period starts, in ISO 8601. Default: as before if the length stays, else now.")
]
NextCarry = Annotated[float, Meta(ge=0.0, le=1.0, description="The carry of later periods, or of this new_period.")]
Mode = Annotated[
    Literal["live", "watch", "share"],
    Meta(description="Who decides: the policy, the incumbent, or the policy for a share of the units."),
]
Share = Annotated[float, Meta(gt=0.0, lt=1.0, description="The part of units that the policy decides for.")]
Salt = Annotated[Label, Meta(description="Of the hash that divides units. Default: the name.")]
Setting = bool | int | float | str
FeatureType = str | list[Label]
Features = Annotated[
    dict[Label, FeatureType],
    Meta(
        description='Features of every decision by name: "number", "number?" if it may be missing, or a list of '
        'labels, in which "*" stands for all others.',
        examples=[{"age": "number", "segment": ["new", "loyal", "*"]}],
    ),
]


class Body(Struct, forbid_unknown_fields=True):
    """A request body. Unknown fields are errors."""


class DecisionRequest(Body):
    """A decision to make: the context, and which arms can be drawn."""

    context: Annotated[Label, Meta(description="Who or what it is for.", examples=["visitor-7"])]
    id: OwnId | None = None
    available: Available | None = None
    deferred: Annotated[bool, Meta(description="The decision counts only after it is activated.")] = False
    k: (
        Annotated[
            int, Meta(ge=1, le=MOST_SHOWN, description="Show so many different arms. Left out: one arm, as `arm`.")
        ]
        | None
    ) = None
    features: (
        Annotated[
            dict[str, Any],
            Meta(description="A value per declared feature: a number, a boolean or a label; null where it is missing."),
        ]
        | None
    ) = None
    incumbent: Annotated[Label, Meta(description="The arm that you would show without the experiment.")] | None = None
    incumbent_propensity: (
        Annotated[float, Meta(gt=0.0, le=1.0, description="Its probability, if the incumbent knows it.")] | None
    ) = None
    unit: Annotated[Label, Meta(description="Whom it is for, such as a visitor. Default: the context.")] | None = None


class RewardRequest(Body):
    """The reward of a decision."""

    id: DecisionId
    reward: Annotated[
        float | dict[Label, float],
        Meta(
            description="A number; under full information, one for every arm; of a slate, some or all of its arms.",
            examples=[0.8],
        ),
    ]


class ActivationRequest(Body):
    """A deferred decision that was carried out."""

    id: DecisionId


class DecisionBatch(Body):
    """Decisions, made in this order."""

    items: Annotated[list[DecisionRequest], Meta(min_length=1, max_length=MOST_BATCH)]


class ObservationRequest(Body):
    """A decision that somebody else made."""

    context: Annotated[Label, Meta(description="Who or what it was for.", examples=["visitor-7"])]
    arm: Annotated[Label, Meta(description="The arm that was shown.", examples=["ada"])]
    id: OwnId | None = None
    reward: Annotated[float, Meta(description="Its reward. Left out: it may be sent later.")] | None = None
    propensity: (
        Annotated[float, Meta(gt=0.0, le=1.0, description="The probability of the arm, if the source knows it.")] | None
    ) = None
    source: Annotated[Label, Meta(description="Who decided: at most eight in an experiment.")] = "incumbent"
    features: Annotated[dict[str, Any], Meta(description="Features of the decision.")] | None = None
    unit: Annotated[Label, Meta(description="Whom it was made for. Default: the context.")] | None = None
    instead_of: (
        Annotated[Label, Meta(description="The id of a decision that was not carried out because of this one.")] | None
    ) = None


class ObservationBatch(Body):
    """Decisions of others, recorded in this order."""

    items: Annotated[list[ObservationRequest], Meta(min_length=1, max_length=MOST_BATCH)]


class RewardBatch(Body):
    """Rewards, applied in this order."""

    items: Annotated[list[RewardRequest], Meta(min_length=1, max_length=MOST_BATCH)]


class GroupsOfArms(Body):
    """The groups to be fair to. Without `labels`, every arm is a group of its own."""

    labels: (
        Annotated[
            list[Label] | dict[Label, Label],
            Meta(description="The group of every arm: a list in the order of arms, or an object from arm to group."),
        ]
        | None
    ) = None
    entitlements: (
        Annotated[dict[Label, float], Meta(description="What each group is entitled to. Default: 1 each.")] | None
    ) = None
    pull_floor: (
        Annotated[
            float | dict[Label, float],
            Meta(description="The least probability: one number for each arm, or one per group."),
        ]
        | None
    ) = None


class NewExperiment(Body):
    """The arguments of `Engine.create`; `settings` are passed to the policy."""

    name: Annotated[Name, Meta(examples=["home"])]
    arms: Annotated[Arms, Meta(description="The labels of the arms.", examples=[["ada", "ben"]])]
    policy: Annotated[str, Meta(description="The name of a policy.")] = "alpha-fair-adaptive"
    alpha: Alpha | UnsetType = UNSET
    groups: GroupLabels | GroupsOfArms | UnsetType = UNSET
    reward_range: Range = msgspec.field(default_factory=lambda: [0.0, 1.0])
    reward_wait: Wait | None = None
    default_reward: DefaultReward | None = None
    period: PeriodLength | UnsetType = UNSET
    period_start: PeriodStart | UnsetType = UNSET
    carry: Carry | UnsetType = UNSET
    features: Features | UnsetType = UNSET
    arm_features: Features | UnsetType = UNSET
    mode: Mode = "live"
    share: Share | None = None
    salt: Salt | None = None
    settings: Annotated[dict[str, Setting], Meta(description="Settings of the policy.")] = {}


class ChangedTerms(Body):
    """Terms to change, all at once. What is left out stays; null returns to the default."""

    groups: (
        Annotated[
            dict[Label, Label],
            Meta(description="The group of arms; those left out stay. At first all of them. null: each by itself."),
        ]
        | UnsetType
        | None
    ) = UNSET
    entitlements: (
        Annotated[dict[Label, float], Meta(description="Of groups, or of arms without groups; others stay.")]
        | UnsetType
        | None
    ) = UNSET
    pull_floor: (
        Annotated[
            float | dict[Label, float],
            Meta(description="The least probability: one number for each arm, or one per group."),
        ]
        | UnsetType
        | None
    ) = UNSET
    mode: Mode | UnsetType | None = UNSET
    share: Share | UnsetType | None = UNSET
    salt: Salt | UnsetType | None = UNSET
    context_weight: (
        Annotated[float, Meta(ge=0.0, lt=1.0, description="The weight of contexts beside arms. null: 0.")]
        | UnsetType
        | None
    ) = UNSET
    context_share: (
        Annotated[float, Meta(ge=0.0, lt=1.0, description="The part of its best arm promised to contexts. null: 0.")]
        | UnsetType
        | None
    ) = UNSET
    reward_wait: Wait | UnsetType | None = UNSET
    default_reward: DefaultReward | UnsetType | None = UNSET
    arm_features: (
        Annotated[dict[Label, dict[str, Any]], Meta(description="Features by arm and name; other arms stay.")]
        | UnsetType
        | None
    ) = UNSET


class ChangeRequest(Body):
    """One change of a running experiment: exactly one field.

    But `group`, `entitlement` and `features` go with `add_arm`, `period_start` with `period`, and `carry` with `period`
    or `new_period`.
    """

    alpha: Alpha | UnsetType = UNSET
    add_arm: Annotated[Label, Meta(description="Add this arm.")] | UnsetType = UNSET
    group: Annotated[Label, Meta(description="The group of the added arm.")] | UnsetType = UNSET
    entitlement: Annotated[float, Meta(description="What a new group is entitled to.")] | UnsetType = UNSET
    features: Annotated[dict[str, Any], Meta(description="The features of the added arm.")] | UnsetType = UNSET
    retire_arm: Annotated[Label, Meta(description="Never draw this arm again.")] | UnsetType = UNSET
    mask_arm: Annotated[Label, Meta(description="Do not draw this arm until it is unmasked.")] | UnsetType = UNSET
    unmask_arm: Annotated[Label, Meta(description="Draw this arm again.")] | UnsetType = UNSET
    paused: Annotated[bool, Meta(description="Reject decisions, or accept them again.")] | UnsetType = UNSET
    rollback: Position | UnsetType = UNSET
    new_period: Annotated[bool, Meta(description="True: start a period now.")] | UnsetType = UNSET
    period: NextPeriod | UnsetType | None = UNSET
    period_start: NextPeriodStart | UnsetType = UNSET
    carry: NextCarry | UnsetType = UNSET
    terms: ChangedTerms | UnsetType = UNSET


class NewKey(Body):
    """A key to create: its role, its owner, and optional limits."""

    role: Role
    name: Annotated[str, Meta(min_length=1, max_length=100, description="The key's owner.", examples=["the shop"])]
    experiments: (
        Annotated[list[Name], Meta(min_length=1, max_length=MOST_NAMES, description="Default: all.")] | None
    ) = None
    expires_in: Annotated[float, Meta(ge=1.0, le=1e9, description="Seconds. Default: until it is revoked.")] | None = (
        None
    )


class Rotation(Body):
    """How long the old key stays valid beside the new one."""

    grace: Annotated[float, Meta(ge=0.0, le=1e9, description="Seconds.")] = 0.0


class ContextQuery(Struct):
    """The query of a request that erases a context."""

    label: Annotated[str, Meta(description="The context to erase.")]


class LogQuery(Struct):
    """The query of a request for a log."""

    format: Annotated[Literal["parquet", "csv", "jsonl"], Meta(description="The file format.")] = "parquet"


class Problem(Struct, omit_defaults=True):
    """What went wrong, with which argument, and how to repair it."""

    code: str
    message: str
    argument: str | None = None
    repair: str | None = None


class ErrorAnswer(Struct, omit_defaults=True):
    """Every answer that is not a success; `outcome` only for rewards and activations without effect."""

    error: Problem
    outcome: str | None = None


Outcomes = Literal["applied", "activated", "repeated", "conflict", "unknown", "expired", "rolled_back"]


def _json_form(kind: type, doc: str, **exact: Any) -> type[Struct]:
    """A struct with the fields of a named tuple, some of them with more exact types."""
    defaults = getattr(kind, "_field_defaults", {})
    fields: list[Any] = [
        (name, exact.get(name, hint), *([defaults[name]] if name in defaults else []))
        for name, hint in get_type_hints(kind).items()
    ]
    return msgspec.defstruct(kind.__name__, fields, namespace={"__doc__": doc}, omit_defaults=True)


JSON_FORMS: dict[type, type[Struct]] = {
    Receipt: _json_form(
        Receipt,
        "The arm, and its probability. `source` is left out where the policy drew it; else it is who decided.",
        propensity=Annotated[float, Meta(gt=0.0, le=1.0)] | None,
    ),
    SlateReceipt: _json_form(
        SlateReceipt,
        "The arms that are shown, in the order of slots, and the probability of each to be among them.",
        arms=list[str],
        propensities=list[Annotated[float, Meta(gt=0.0, le=1.0)]],
    ),
    Outcome: _json_form(Outcome, "What became of a reward or an activation.", outcome=Outcomes),
}


class DecisionItem(Struct, omit_defaults=True):
    """The fields of a receipt, of one arm or of several, or an error."""

    id: str | None = None
    arm: str | None = None
    propensity: float | UnsetType | None = UNSET  # null: the source of the decision told none
    context: str | None = None
    arms: list[str] | None = None
    propensities: list[float] | None = None
    source: str | None = None
    error: Problem | None = None


class RewardItem(Struct, omit_defaults=True):
    """An outcome, an error, or both."""

    outcome: Outcomes | None = None
    error: Problem | None = None


class ObservationItem(Struct, omit_defaults=True):
    """The id of the decision with an outcome, an error, or both."""

    id: str | None = None
    outcome: Literal["recorded", "repeated", "conflict", "expired", "rolled_back"] | None = None
    error: Problem | None = None


class DecisionAnswers(Struct):
    """One answer per item, in order."""

    items: list[DecisionItem]


class ObservationAnswers(Struct):
    """One answer per item, in order."""

    items: list[ObservationItem]


class RewardAnswers(Struct):
    """One answer per item, in order."""

    items: list[RewardItem]


class ExperimentAnswer(Struct):
    """The current state of an experiment.

    `decisions` is the sum of `rewards` (received), `defaulted` (got the default reward when their waiting time ended),
    `expired` (closed without a reward then), `lapsed` (deferred, and not activated before then), `rolled_back` (closed
    by a rollback) and `pending` (waiting for a reward or an activation).

    `position` is that of its last event, which a rollback takes. `cumulative_rewards` is the sum of each arm's
    rewards in the units of `reward_range`. `accounts` is 1 plus the rewards mapped to [0, 1], for every group or
    arm; fairness is measured on it. `welfare` is the power mean of the accounts, which `alpha` maximizes. Without
    accounts `jain_index` is that of `cumulative_rewards`. `alpha` is a number or the string "inf".
    `mode` says who decides. `sides`
    compares the policy's decisions with those of others since the last change of mode, share or salt; it is null before
    the first mode or observation. `share_seen` is the policy's part of the decisions in mode `share`.
    `alpha_performance` is null where it is not finite, as for "inf". `groups` is null if every arm is a group of
    its own. `unhealthy` is null, or why the policy failed. `period` is in seconds; `periods` has the books of every
    period, the current one last, and is empty if there was never more than one. `features` are those of every
    decision, as declared, or null. `arm_features` are those of arms, and `features_by_arm` their values, null for an
    arm that lacks a required one. With a `context_share` every context is promised that part of the rewards of its
    best arm: `largest_context_debt` is what is missing, and at most `context_share_bound` with full information. With
    bandit feedback the promise is a target: the debt is computed from predictions, and the bound is null.
    """

    name: str
    policy: str
    feedback: Literal["bandit", "full"]
    alpha: AnyAlpha | None
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
    position: int
    pulls: dict[str, int]
    cumulative_rewards: dict[str, float]
    accounts: dict[str, float]
    groups: GroupStatus | None
    context_weight: float
    context_share: float
    largest_context_debt: float | None
    context_share_bound: float | None
    welfare: float | None
    jain_index: float | None
    alpha_performance: float | None
    period: float | None
    period_ends: datetime | None
    carry: float
    periods: list[PeriodStatus]
    features: dict[str, str | list[str]] | None
    arm_features: dict[str, str | list[str]] | None
    features_by_arm: dict[str, dict[str, float | str | None] | None] | None
    mode: Literal["live", "watch", "share"]
    share: float | None
    sides: list[SideStatus] | None
    share_seen: Interval | None
    unhealthy: str | None


class EvaluationQuery(Struct):
    """The query of an evaluation."""

    source: Annotated[str, Meta(description="Whose decisions: incumbent, for example. Default: the policy's.")] = ""


class Band(Struct):
    """An estimate with its band, a value per alpha; null where the log says nothing."""

    value: list[float | None]
    low: list[float | None]
    high: list[float | None]


class PresentPoint(Struct):
    """Where the experiment itself is, from its own counts."""

    alpha: AnyAlpha | None
    average_reward: float | None  # per rewarded decision, in the units of the experiment
    jain_index: float | None  # of the sums of rewards of arms, or groups, as in `Curve`
    least_share: float | None  # of all reward, of the arm or group that got least


class Curve(Struct):
    """The price of fairness: the best fixed policy at every alpha, estimated from the log."""

    alphas: list[AnyAlpha]
    average_reward: Band  # per decision, in the units of the experiment
    jain_index: Band
    least_share: Band  # of all reward, of the arm or group that gets least
    confidence: float  # of the bands, such as 0.95
    verdict: Literal["trustworthy", "thin", "do not use"]
    reasons: list[str]  # why not trustworthy: the worst of each kind, as a sentence that begins with its alpha
    rounds: int  # rewarded decisions that were used: the latest ones
    position: int  # of the event log when they were read
    computed_at: float
    seconds: float  # that it took


class WhatIfAnswer(Struct):
    """The curve, or why there is none yet."""

    status: Literal["computing", "ready", "failed", "too few", "no propensities"]
    sentence: str  # the status in words
    rewards: int  # rewarded decisions now
    present: PresentPoint
    curve: Curve | None  # while "computing" or "failed", the one before, if there is one
    source: str | None = None  # whose decisions these are; null: the policy's


class ChangeItem(Struct):
    """A change of an experiment; `by` is null if it was not recorded."""

    position: int
    at: datetime
    kind: str
    by: str | None
    details: dict[str, Any]


class History(Struct):
    """All changes, oldest first."""

    items: list[ChangeItem]


class KeyAnswer(Struct):
    """A key without its secret. A time is null if the event has not happened or never will."""

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
    """All keys, valid or not."""

    items: list[KeyAnswer]


class Experiments(Struct):
    """The names of experiments."""

    experiments: list[str]


class Health(Struct):
    """The process answers."""

    status: Literal["ok"]
    version: str


class Readiness(Struct, omit_defaults=True):
    """Whether decisions are made now. Callers with a key also get the reason and the state of the clock.

    `unhealthy` maps experiments whose policies fail, or that cannot be described, to the reason; the others are served.
    """

    ready: bool
    reason: str | None = None
    clock_behind_seconds: float | None = None
    unhealthy: dict[str, str] = {}


STATUSES: Final = {  # by error code; every other code of a request that was understood has 422
    "unknown_experiment": 404,
    "unknown_arm": 404,
    "unknown_context": 404,
    "unknown_key": 404,
    "unknown_decision": 404,
    "unknown_group": 404,
    "experiment_exists": 409,
    "arm_exists": 409,
    "paused": 409,
    "too_many_contexts": 409,
    "too_many_sources": 409,
    "id_taken": 409,
    "not_activated": 409,
    "conflict_decision": 409,
    "expired_decision": 410,
    "rolled_back_decision": 410,
    "policy_failed": 503,
}


def status_of(code: str) -> int:
    """The HTTP status of an error code; clients need it for items of batches, which have no status of their own."""
    return STATUSES.get(code, 422)


# endpoints

PARAMETERS: Final = {
    "name": "The name of an experiment.",
    "id": "The id of a key: the part after af_.",
    "file": "A path.",
}


@dataclass(frozen=True, eq=False)
class Endpoint:
    """A method and a path: who may use it, its messages, and how to send it. What it does is up to the service."""

    method: str
    path: str
    role: Role | None  # None: open to everybody
    group: str  # the heading on /docs
    summary: str
    answer: Any  # a message, a union of messages, or a media type
    body: type[Struct] | None = None
    example: Mapping[str, Any] | None = None  # of the body
    query: type[Struct] | None = None
    status: int = 200
    other_answers: Mapping[int, type] = field(default_factory=dict)  # besides those in `errors`
    repeatable: bool = True  # whether sending it twice has the effect of sending it once
    busy: bool = False  # whether it is used all the time, so that the service logs only its failures
    in_api: bool = True  # whether programs may want it: described by OpenAPI
    view: str | None = None  # what the page shows at this address

    @property
    def answers(self) -> tuple[type, ...]:
        """The messages that a success may have; none where it is of another media type."""
        return () if isinstance(self.answer, str) else get_args(self.answer) or (self.answer,)

    @property
    def parameters(self) -> list[str]:
        """The names in braces in the path."""
        return [part.strip("{}.") for part in self.path.split("/") if part.startswith("{")]

    @property
    def errors(self) -> list[int]:
        """The statuses of `ErrorAnswer`."""
        named = [404, 422] if self.parameters or self.body else []
        written = [] if self.repeatable else [504]
        return sorted([400, 401, 403, 429, 500, 503, *named, *written, *([409, 413, 415] if self.body else [])])


# fmt: off
_EXPERIMENTS, _DECISIONS, _KEYS, _SERVICE = "experiments", "decisions and rewards", "keys", "the service"

LIST = Endpoint("GET", "/v1/experiments", "read", _EXPERIMENTS,
    "List the names of the experiments that the key may see.", Experiments)
CREATE = Endpoint("POST", "/v1/experiments", "admin", _EXPERIMENTS,
    "Create an experiment; the key must not be limited.", ExperimentAnswer,
    NewExperiment, {"name": "home", "arms": ["ada", "ben"], "alpha": 0.9}, status=201, repeatable=False)
SHOW = Endpoint("GET", "/v1/experiments/{name}", "read", _EXPERIMENTS,
    "Show the current state of an experiment.", ExperimentAnswer)
CHANGE = Endpoint("PATCH", "/v1/experiments/{name}", "admin", _EXPERIMENTS,
    "Change a running experiment: exactly one change per request.", ExperimentAnswer,
    ChangeRequest, {"alpha": 0.5}, repeatable=False)
ERASE = Endpoint("DELETE", "/v1/experiments/{name}/contexts", "admin", _EXPERIMENTS,
    "Erase a context's label and the ids of its decisions permanently; the numbers stay.", ExperimentAnswer,
    query=ContextQuery, repeatable=False)
HISTORY = Endpoint("GET", "/v1/experiments/{name}/history", "read", _EXPERIMENTS,
    "List every change of an experiment: when, what, and by which key.", History)
EVALUATE = Endpoint("GET", "/v1/experiments/{name}/evaluation", "read", _EXPERIMENTS,
    "Estimate from the log what fair policies would have earned, in the background: ask again while it computes.",
    WhatIfAnswer, query=EvaluationQuery, busy=True)
LOG = Endpoint("GET", "/v1/experiments/{name}/log", "log", _EXPERIMENTS,
    "Download the log: context, arm, propensity and reward of every decision. One download per key, two in all.",
    "application/octet-stream", query=LogQuery)

DECIDE = Endpoint("POST", "/v1/experiments/{name}/decisions", "write", _DECISIONS,
    "Draw an arm for a context, or `k` of them. The same id again returns the same decision.", Receipt | SlateReceipt,
    DecisionRequest, {"context": "visitor-7"}, busy=True)
REWARD = Endpoint("POST", "/v1/experiments/{name}/rewards", "write", _DECISIONS,
    "Report the reward of a decision. The same reward again has no effect; another one is a conflict.", Outcome,
    RewardRequest, {"id": "order-1", "reward": 0.8}, other_answers={410: ErrorAnswer}, busy=True)
ACTIVATE = Endpoint("POST", "/v1/experiments/{name}/activations", "write", _DECISIONS,
    "Report that a deferred decision was carried out: from then on it counts.", Outcome,
    ActivationRequest, {"id": "order-1"}, other_answers={410: ErrorAnswer}, busy=True)
DECIDE_MANY = Endpoint("POST", "/v1/experiments/{name}/decisions/batch", "write", _DECISIONS,
    "Make up to 1,000 decisions: one answer per item, in order. An item with an error does not affect the others.",
    DecisionAnswers, DecisionBatch, {"items": [{"context": "visitor-7"}, {"context": "visitor-8"}]}, busy=True)
REWARD_MANY = Endpoint("POST", "/v1/experiments/{name}/rewards/batch", "write", _DECISIONS,
    "Report up to 1,000 rewards: one answer per item, in order.", RewardAnswers,
    RewardBatch, {"items": [{"id": "order-1", "reward": 0.8}]}, busy=True)
OBSERVE_MANY = Endpoint("POST", "/v1/experiments/{name}/observations", "write", _DECISIONS,
    "Record up to 1,000 decisions that others made, with or without rewards: one answer per item, in order.",
    ObservationAnswers, ObservationBatch, {"items": [{"context": "visitor-7", "arm": "ada", "reward": 0.8}]}, busy=True)

CREATE_KEY = Endpoint("POST", "/v1/keys", "admin", _KEYS,
    "Create a key. Only this answer shows it. The first one must be an admin key without limits.", CreatedKey,
    NewKey, {"role": "write", "name": "the shop"}, status=201, repeatable=False)
LIST_KEYS = Endpoint("GET", "/v1/keys", "admin", _KEYS,
    "List all keys without their secrets.", Keys)
ROTATE_KEY = Endpoint("POST", "/v1/keys/{id}/rotations", "admin", _KEYS,
    "Replace a key by a new one of the same name, role and limits; the old one expires after `grace` seconds.",
    CreatedKey, Rotation, {"grace": 3600.0}, status=201, repeatable=False)
REVOKE_KEY = Endpoint("DELETE", "/v1/keys/{id}", "admin", _KEYS,
    "Revoke a key.", KeyAnswer)

HEALTH = Endpoint("GET", "/health", None, _SERVICE,
    "Report that the process is running.", Health, busy=True)
READY = Endpoint("GET", "/ready", None, _SERVICE,
    "Report whether decisions are made now; with a key, also why not.", Readiness,
    other_answers={503: Readiness}, busy=True)
METRICS = Endpoint("GET", "/metrics", "metrics", _SERVICE,
    "Show counts and times for Prometheus.", "text/plain; charset=utf-8", busy=True)
OPENAPI = Endpoint("GET", "/openapi.json", "read", _SERVICE,
    "Describe the routes for programs.", dict)
DOCS = Endpoint("GET", "/docs", "read", _SERVICE,
    "Describe the routes for people.", "text/html; charset=utf-8", in_api=False)
# fmt: on

ENDPOINTS: Final = tuple(each for each in list(vars().values()) if isinstance(each, Endpoint))  # in this order
