"""The JSON of the page: one struct per address, which the page reads and programs may read too.

Times are seconds since 1970 as numbers, unless a field says that it is a date. Numbers that are not known are null.
Every label is an arbitrary string of up to 200 characters.

| address | answer | role |
|---|---|---|
| /session.json | `SessionAnswer` | none |
| POST /session, DELETE /session | `SessionAnswer` | none |
| /keys.json | `Keys`, as GET /v1/keys answers | admin |
| /policies.json | `PoliciesAnswer` | read |
| /index.json | `IndexAnswer` | read |
| /events | events `state` and `update`, each an `IndexAnswer` | read |
| /experiments/{name}/live.json | `LiveAnswer` | read |
| /experiments/{name}/events | events `state` and `update`, each a `LiveAnswer` | read |
| /experiments/{name}/contexts.json?search=&limit=&offset= | `ContextsAnswer` | log |
| /experiments/{name}/what-if.json?renew=true | `WhatIfAnswer` | read |
| /experiments/{name}/log.json?context=&arm=&state=&since=&until=&before=&limit= | `LogAnswer` | log |
| /experiments/{name}/decision.json?id= | `DecisionAnswer` | log |

Server-sent events have the position of the event log as their `id`. A new connection, and one that reconnects, starts
with `state`, unless its `Last-Event-ID` is the present position; a reader that was too slow for an `update` gets
`state` again. So a reader that replaces what it has with every `state` and applies every `update` misses nothing. A
comment is sent every few seconds while nothing happens. The event `closed` precedes the end of a stream whose key is no
longer valid; its data is an `ErrorAnswer`.

Requests that change something and are made with the cookie must send the header `X-Alphafair-CSRF` with the `csrf` of
`SessionAnswer`; those made with `Authorization: Bearer` need no such header.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from alphafair_client.api import AnyAlpha, Body, ChangeItem, ExperimentAnswer, Role

MOST_CONTEXTS, MOST_LOG_ROWS = 200, 500
Time = Annotated[float, Meta(ge=0.0, le=1e11)]  # seconds since 1970
DecisionState = Literal["pending", "deferred", "rewarded", "defaulted", "expired", "lapsed", "rolled_back"]


# signing in


class SignIn(Body):
    """The body of POST /session."""

    key: Annotated[str, Meta(min_length=1, max_length=200, description="A key of this service.")]


class SessionAnswer(Struct):
    """Who the caller is, and what it may do."""

    signed_in: bool  # false: sign in with a key; true for everybody while no keys exist
    needs_key: bool  # whether keys exist, so that requests need one
    name: str | None  # of the key, or "anybody on this machine"; null: not signed in
    key_id: str | None  # the id of the key; null without keys
    role: Role | None  # of the key
    roles: list[Role]  # all roles that it includes: "admin" is in it where the page may offer actions
    experiments: list[str] | None  # the experiments that the key is limited to; null: all
    csrf: str | None  # send it as X-Alphafair-CSRF with requests that change something; null: not needed
    expires_at: float | None  # when the session ends; null: it does not, or there is none
    version: str  # of alphafair


# creating an experiment


class PolicyGuarantee(Struct):
    """What is proved about the welfare that a policy reaches with one kind of feedback."""

    feedback: Literal["bandit", "full"]
    holds: Literal["every run", "on average"] | None  # null: no bound that can be computed during the run


class PolicyItem(Struct):
    """A policy that experiments can be created with."""

    name: str
    summary: str  # what it does
    guarantees: list[PolicyGuarantee]  # one for each feedback that it can have; the first is what the page proposes
    takes: list[str]  # the settings that it accepts, such as alpha, feedback, groups
    needs: list[str]  # those of them that have no default


class PoliciesAnswer(Struct):
    """All registered policies, the default one first."""

    items: list[PolicyItem]


# all experiments


class Mark(Struct):
    """Something that needs attention."""

    code: str  # see docs/howto/watch_the_page.md
    sentence: str  # what is wrong, with numbers
    severity: Literal["info", "warning", "critical"]


class Sparkline(Struct):
    """The recent past of an experiment in about 60 parts of equal length; the last one ends now."""

    start: float  # of the first part
    width: float  # seconds per part
    decisions: list[int]  # made in each part
    reward_per_decision: list[float | None]  # sum of rewards that arrived in a part over its rewards; null: none did


class IndexItem(Struct):
    """An experiment at a glance."""

    name: str
    policy: str  # its name
    feedback: Literal["bandit", "full"]
    alpha: AnyAlpha | None  # a number or "inf"; null where the policy has none
    paused: bool
    arms: int  # live arms
    contexts: int
    decisions: int  # ever
    rewards: int  # received from clients, ever
    pending: int  # decisions that wait for a reward
    decisions_per_second: float  # over the last minute
    welfare: float | None  # null: no reward yet, or the policy keeps no accounts
    jain_index: float | None  # of the accounts, or where there are none of the sums of rewards; null: no reward yet
    last_event: float | None  # the time of the last event
    sparkline: Sparkline
    marks: list[Mark]  # the most severe first


class IndexAnswer(Struct):
    """All experiments that the caller sees, and the state of the service."""

    at: float  # when this was computed
    position: int  # of the event log
    items: list[IndexItem]  # in the order of creation
    marks: list[Mark]  # of the service: starting, not_ready, slow_disk, node_behind
    left_out: list[str] = []  # experiments that cannot be described; /ready has the reasons


# one experiment


class Series(Struct):
    """What happened over time, in at most 512 buckets of equal width; as columns, a value per bucket.

    When there would be more, neighbors are merged and the width doubles. Bucket k starts at start + k * width.
    """

    start: float
    width: float  # seconds: 1, 2, 4, ...
    first: int  # the number of the first bucket below: 0, and in an `update` the first that changed
    decisions: list[int]  # made
    rewards: list[int]  # received from clients, and default rewards
    reward_sums: list[float]  # of those rewards, in the units of the experiment
    expired: list[int]  # decisions closed without a reward when their waiting time ended
    jain_index: list[float | None]  # at the end of the bucket (now, for the last); null: no event in it, no reward yet
    welfare: list[float | None]
    arms: list[str]  # all arms that there ever were, retired ones included
    arm_decisions: list[list[int]]  # by arm, then by bucket
    arm_reward_sums: list[list[float]]  # by arm, then by bucket
    sources: list[str]  # who else has decided and was rewarded
    source_rewards: list[list[int]]  # of those decisions, by source, then by bucket
    source_reward_sums: list[list[float]]


class ShareItem(Struct):
    """A group, or an arm where arms have no groups: what it got and what it is entitled to.

    Shares are parts of the sum over all groups, in [0, 1]. In `LiveAnswer.shares` decisions and rewards count since the
    experiment was created, in `period_shares` since the current period began.
    """

    label: str
    arms: list[str]  # the live and retired arms of the group
    live: bool  # false: all its arms are retired
    masked: bool  # all its live arms are masked
    entitled: float  # its entitlement over the sum of entitlements of live groups; 0 for a retired one
    entitlement: float  # its entitlement, before it is divided by that sum
    live_spans: list[tuple[float, float | None]]  # when it had a live arm: from, until; null: it still has one
    decisions: float | None  # its share of all decisions; null: the log of an older version does not tell
    rewards: float | None  # its share of the sum of all rewards; null while that sum is not positive
    account: float | None  # what fairness is measured on
    n_decisions: int | None
    reward_sum: float


class DelayCounts(Struct):
    """How long rewards took: a histogram with log-spaced bounds."""

    edges: list[float | None]  # seconds, increasing, one more than counts; null at the end: no upper bound
    counts: list[int]  # delays over an edge, up to the next one
    total: float  # the sum of all delays, in seconds


class Certificate(Struct):
    """What is proved about a run with full information; null fields where the policy proves no such bound."""

    welfare_ratio: float | None  # the best fixed policy has at most so many times the present welfare
    regret: float | None  # upper bound of OPT - c_alpha * alpha-performance; below alpha = 1 only
    sentence: str  # both in words


class LeastContext(Struct):
    """What the current accounts say about contexts: how little of its best one may get from the best fixed policy."""

    share: float  # of the most that one arm would give it; every context has at least this
    sentence: str
    note: str  # what it holds for


class ContextPromise(Struct):
    """What the experiment's `context_share` means; its numbers are fields of `experiment`."""

    sentence: str
    note: str  # what is proved, and how it is counted


class BookItem(Struct):
    """What each group, or arm, earned in a period."""

    number: int
    started: float
    ended: float | None  # null: the current one
    rewards: dict[str, float]  # by group, or by arm where arms have no groups
    jain_index: float | None  # of the accounts at its end, or without accounts of these rewards; null: no reward in it


class LiveAnswer(Struct):
    """One experiment now: what GET /v1/experiments/{name} answers, and what happened over time.

    In an `update`, `series` has the buckets from `series.first` on: replace those, keep the ones before. Its `start`,
    `width` and `arms` are the same as before: after a merge of buckets, or a new arm, the stream sends `state` instead.
    `changes` has new changes only. All other fields are whole.
    """

    at: float  # when this was computed
    position: int  # of the event log; the `id` of the event
    experiment: ExperimentAnswer  # with `periods`, the books of past periods
    decisions_per_second: float  # over the last minute
    last_event: float | None
    series: Series
    changes: list[ChangeItem]  # the history, to be marked on the time line; oldest first; `at` is a date
    shares: list[ShareItem]  # in the order of arms, or of groups
    period_shares: list[ShareItem] | None  # of the current period; null where there was never more than one
    period_pulls: dict[str, int] | None  # decisions by arm in it; null: the log of an older version does not tell
    books: list[BookItem]  # of all periods, the current one last; empty where there was never more than one
    delays: DelayCounts
    certificate: Certificate | None  # null under bandit feedback, and where the policy has none
    least_context: LeastContext | None  # null without accounts or rewards, and where it would say nothing
    context_promise: ContextPromise | None  # null without a context_share
    marks: list[Mark]


class ContextsQuery(Struct):
    """The query of contexts.json."""

    search: Annotated[str, Meta(description="Part of a label, in any case. Default: all contexts.")] = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_CONTEXTS, description="How many to return.")] = 40
    offset: Annotated[int, Meta(ge=0, description="How many to skip.")] = 0


class ContextRow(Struct):
    """A context and the current probabilities of the arms in it."""

    label: str  # "erased-<number>" once it is erased
    decisions: int  # made in it
    probabilities: list[float | None]  # in the order of `ContextsAnswer.arms`; null: the policy cannot tell


class ContextsAnswer(Struct):
    """Contexts, those with the most decisions first."""

    arms: list[str]  # live arms, masked ones included, whose probability is 0
    total: int  # contexts that match
    items: list[ContextRow]


# what if


class WhatIfQuery(Struct):
    """The query of what-if.json."""

    renew: Annotated[bool, Meta(description="Compute the curve again even if the log has hardly grown.")] = False
    source: Annotated[str, Meta(description="Whose decisions. Default: the policy's.")] = ""


# the log


class LogPageQuery(Struct):
    """The query of log.json: filters, and where the page ends."""

    context: Annotated[str, Meta(description="The label of a context.")] = ""
    arm: Annotated[str, Meta(description="The label of an arm.")] = ""
    state: Annotated[DecisionState | Literal[""], Meta(description="What has become of the decision.")] = ""
    since: Annotated[Time | None, Meta(description="Decided at or after this time, in seconds since 1970.")] = None
    until: Annotated[Time | None, Meta(description="Decided before this time.")] = None
    before: Annotated[int | None, Meta(description="Older than this position: `next` of the page before.")] = None
    limit: Annotated[int, Meta(ge=1, le=MOST_LOG_ROWS, description="How many to return.")] = 50


class ShownArm(Struct):
    """An arm of a slate, a decision of several arms."""

    arm: str
    propensity: float  # the probability that it is among the shown arms
    reward: float | None


class LogRow(Struct):
    """A decision."""

    position: int
    id: str
    at: float
    context: str  # "erased-<number>" once it is erased
    arm: str
    propensity: float | None  # null: another source decided, and has not told it
    state: DecisionState
    reward: float | None  # under full information, that of the drawn arm; null: none
    rewarded_at: float | None  # when it was settled, with or without a reward
    slate: list[ShownArm] | None = None  # in the order of slots, of which `arm` is the first; null: it shows one arm
    decided_by: str | None = None  # the source; null: the policy


class LogAnswer(Struct):
    """Decisions, the newest first."""

    items: list[LogRow]
    next: int | None  # pass it as `before` for the next page; null: there are no older ones
    searched_to: int  # the position to which the log was searched: a page may have fewer rows than `limit`, and `next`


class DecisionQuery(Struct):
    """The query of decision.json."""

    id: Annotated[str, Meta(description="The id of a decision.")]


class ArmProbability(Struct):
    """An arm at the moment of a decision."""

    arm: str
    available: bool  # neither masked nor left out by the request
    probability: float | None  # null while it is not known
    drawn: bool
    reward: float | None  # what it earned, or under full information would have earned


class EarlierSettings(Struct):
    """The settings of an experiment at the moment of a decision."""

    alpha: AnyAlpha | None
    arms: list[str]  # live arms
    masked_arms: list[str]
    policy: str
    period: int  # the number of the period
    version: int  # the position of the last change before the decision


class DecisionAnswer(Struct):
    """The story of one decision."""

    row: LogRow
    source: str | None  # what settled it: client, default, expired, lapsed, rollback; null: nothing yet
    deferred: bool  # it counts from its activation on
    activated_at: float | None
    late_reward: float | None  # a reward that arrived after the decision was closed; no policy learned from it
    late_reward_at: float | None
    features: dict[str, float | str | None] | None  # by name; null where decisions have none
    probabilities_status: Literal["stored", "recomputed", "computing", "unavailable"]
    probabilities_sentence: str  # the status in words
    arms: list[ArmProbability]  # live arms at that moment
    settings: EarlierSettings
    state_version: int  # the position of the log that the policy had learned from
    changes_since: list[ChangeItem]  # of the experiment, after the decision
    events_since: int  # events in the log after the decision


def event(kind: str, position: int, data: bytes) -> bytes:
    """A server-sent event; `data` is JSON, which has no line breaks."""
    return b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), position, data)
