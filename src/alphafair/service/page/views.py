"""What the page shows of experiments: overviews of the engine in, messages out."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from alphafair import metrics
from alphafair.algorithms import POLICIES, BasePolicy
from alphafair.engine import Status
from alphafair.engine.reports import Bounds, DecisionStory, LogExcerpt, Overview, state_of
from alphafair.engine.state.settings import DEFAULT_POLICY, NOT_SETTINGS
from alphafair.engine.state.summary import DELAY_BOUNDS, SECOND, Summary
from alphafair.engine.store.ledger import FoundRow
from alphafair.engine.store.slates import SlateEvent
from alphafair.formatting import json_alpha
from alphafair.service.api.handlers import by_group, described, fairness, jain_index
from alphafair.service.page import sentences
from alphafair.service.page.marks import marks_of
from alphafair.service.page.messages import (
    ArmProbability,
    BookItem,
    Certificate,
    ContextPromise,
    DecisionAnswer,
    DelayCounts,
    EarlierSettings,
    IndexItem,
    LeastContext,
    LiveAnswer,
    LogAnswer,
    LogRow,
    PolicyGuarantee,
    PolicyItem,
    Series,
    ShareItem,
    ShownArm,
    Sparkline,
)
from alphafair.values import Feedback
from alphafair_client.api import ChangeItem

MINUTE: Final = 60.0  # seconds that a rate is measured over
LEAST_SHOWN: Final = 0.005  # of a share: below it, or below what is promised, a sentence would say nothing
PARTS, MOST_JOINED = 60, 4  # parts of a sparkline, and the most buckets in one of them


def seconds(at: int | None) -> float | None:
    """A time of the log as seconds since 1970; None for 0, which stands for never."""
    return at / SECOND if at else None


def rate(found: Overview) -> float:
    """Decisions per second over the last minute."""
    recent = found.summary.recent(found.at, MINUTE)
    return float(recent.decisions.sum() / recent.seconds)


def shown_alpha(alpha: float | None) -> Any:
    """An alpha as JSON has it: a number, "inf", or null."""
    return None if alpha is None else json_alpha(alpha)


def _known(values: NDArray[np.float64]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values.tolist()]


# creating an experiment


def policy_items() -> list[PolicyItem]:
    """The registered policies; the policy and the feedback that are used by default come first."""
    kinds = sorted(POLICIES.values(), key=lambda kind: kind.name != DEFAULT_POLICY)
    return [_policy_item(kind) for kind in kinds]


def _policy_item(kind: type[BasePolicy]) -> PolicyItem:
    parameters = {name: each for name, each in inspect.signature(kind).parameters.items() if name not in NOT_SETTINGS}
    feedbacks = kind.traits.feedbacks
    if not feedbacks:
        feedbacks = (kind(1, 2, **next(iter(kind.traits.variants(1, 2).values()))).feedback,)
    return PolicyItem(
        name=kind.name,
        summary=(kind.__doc__ or "").partition("\n")[0],
        guarantees=[_guarantee(kind, feedback) for feedback in sorted(feedbacks)],  # bandit first
        takes=list(parameters),
        needs=[name for name, each in parameters.items() if each.default is each.empty],
    )


def _guarantee(kind: type[BasePolicy], feedback: Feedback) -> PolicyGuarantee:
    if feedback is Feedback.FULL:
        return PolicyGuarantee("full", None if kind.surrogate_regret_bound is None else "every run")
    return PolicyGuarantee("bandit", None if kind.expected_surrogate_regret_bound is None else "on average")


# all experiments


def earned_fairness(status: Status) -> dict[str, float | None]:
    """Return the fairness of an experiment; None before the first reward, when all accounts are equal."""
    found = fairness(status)
    return found if status.rewards + status.defaulted else dict.fromkeys(found)


def index_item(found: Overview) -> IndexItem:
    """An experiment at a glance."""
    status, summary = found.status, found.summary
    measured = earned_fairness(status)
    return IndexItem(
        name=status.name,
        policy=status.policy,
        feedback=status.feedback,  # type: ignore[arg-type]
        alpha=shown_alpha(status.alpha),
        paused=status.paused,
        arms=len(status.arms),
        contexts=status.contexts,
        decisions=status.decisions,
        rewards=status.rewards,
        pending=status.pending,
        decisions_per_second=rate(found),
        welfare=measured["welfare"],
        jain_index=measured["jain_index"],
        last_event=seconds(summary.last_event),
        sparkline=sparkline(summary, found.at),
        marks=marks_of(found),
    )


def sparkline(summary: Summary, now: int) -> Sparkline:
    """Decisions and mean rewards of the last buckets, some of them joined; the last part is that of `now`."""
    last = max(summary.bucket, (now - summary.start) // summary.width)
    joined = min(MOST_JOINED, last // PARTS + 1)
    n_parts = min(PARTS, last // joined + 1)
    first = last + 1 - joined * n_parts
    decisions = summary.arm_decisions[max(0, first) : summary.n_buckets].sum(axis=1)
    earned = summary.arm_rewards[max(0, first) : summary.n_buckets].sum(axis=1)
    rewards = summary.rewards[max(0, first) : summary.n_buckets]
    columns = [_in_parts(column, max(0, -first), joined * n_parts, joined) for column in (decisions, rewards, earned)]
    return Sparkline(
        start=(summary.start + first * summary.width) / SECOND,
        width=joined * summary.width / SECOND,
        decisions=columns[0].tolist(),
        reward_per_decision=[
            earned / count if count else None
            for count, earned in zip(columns[1].tolist(), columns[2].tolist(), strict=True)
        ],
    )


def _in_parts(values: NDArray[Any], before: int, n: int, joined: int) -> NDArray[Any]:
    """The sums of parts of `joined` values, after some zeros before and behind."""
    padded = np.zeros(n, dtype=values.dtype)
    padded[before : before + len(values)] = values
    return np.asarray(padded.reshape(-1, joined).sum(axis=1))


# one experiment


def series(found: Overview, first: int = 0) -> Series:
    """What happened over time, from a bucket on; the fairness of the last bucket is the current one."""
    summary, end = found.summary, found.summary.n_buckets
    measured = summary.fairness[:end].copy()
    measured[-1:] = found.fairness
    if not found.status.accounts:
        measured[:, 0] = _jain_of_rewards(found)
    measured[np.cumsum(summary.rewards[:end]) == 0] = np.nan  # all are equal before the first reward
    measured = measured[first:]
    decisions, earned = summary.arm_decisions[first:end], summary.arm_rewards[first:end]
    return Series(
        start=summary.start / SECOND,
        width=summary.width / SECOND,
        first=first,
        decisions=decisions.sum(axis=1).tolist(),
        rewards=summary.rewards[first:end].tolist(),
        reward_sums=earned.sum(axis=1).tolist(),
        expired=summary.expired[first:end].tolist(),
        jain_index=_known(measured[:, 0]),
        welfare=_known(measured[:, 1]),
        arms=list(found.status.pulls),
        arm_decisions=decisions.T.tolist(),
        arm_reward_sums=earned.T.tolist(),
        sources=[side.source for side in (found.status.sides or ())[1:]][: summary.source_sums.shape[1]],
        source_rewards=summary.source_rewards[first:end].T.tolist(),
        source_reward_sums=summary.source_sums[first:end].T.tolist(),
    )


def _members(found: Overview) -> dict[str, list[int]]:
    """The numbers of the arms of every group, retired ones included; or of every arm where arms are on their own."""
    members: dict[str, list[int]] = {}
    for number, arm in enumerate(found.status.pulls):
        members.setdefault(found.group_of.get(arm, arm), []).append(number)
    return members


def _entitlements(found: Overview) -> dict[str, float]:
    given = (found.status.groups.entitlements if found.status.groups is not None else None) or {}
    return {label: given.get(label, 1.0) for label in _members(found)}


def _spans(found: Overview, numbers: Sequence[int]) -> list[tuple[int, int | None]]:
    """When at least one of some arms was live: from, until."""
    spans: list[tuple[int, int | None]] = []
    for since, until in sorted((found.lifetimes[number] for number in numbers), key=itemgetter(0)):
        if spans and (spans[-1][1] is None or since <= spans[-1][1]):
            last = spans.pop()
            ends = [last[1], until]
            spans.append((last[0], None if None in ends else max(last[1] or 0, until or 0)))
        else:
            spans.append((since, until))
    return spans


def _jain_of_rewards(found: Overview) -> NDArray[np.float64]:
    """Jain's index of the sums of rewards at the end of every bucket, over those that were live then."""
    summary, end = found.summary, found.summary.n_buckets
    earned = summary.arm_rewards[:end].cumsum(axis=0)
    ends = summary.start + summary.width * np.arange(1, end + 1)
    total, squares, n, negative = np.zeros(end), np.zeros(end), np.zeros(end), np.zeros(end, dtype=np.bool_)
    entitlements = _entitlements(found)
    for label, numbers in _members(found).items():
        live = np.zeros(end, dtype=np.bool_)
        for since, until in _spans(found, numbers):
            live |= (since < ends) & (until is None or until >= ends)
        value = np.where(live, earned[:, numbers].sum(axis=1) / entitlements[label], 0.0)
        total, squares, n, negative = total + value, squares + value**2, n + live, negative | (value < 0.0)
    known = (squares > 0.0) & ~negative
    return np.asarray(np.divide(total**2, n * squares, out=np.full(end, np.nan), where=known))


def shares(found: Overview) -> list[ShareItem]:
    """What every group, or arm, got since the start, and what it is entitled to."""
    return _shares(found, found.status.pulls, found.status.cumulative_rewards)


def period_shares(found: Overview) -> list[ShareItem] | None:
    """What every group, or arm, got in the current period; None where there was never more than one."""
    periods = found.status.periods
    return _shares(found, found.period_pulls, periods[-1].rewards) if periods else None


def _shares(found: Overview, pulls: Mapping[str, int] | None, earned: Mapping[str, float]) -> list[ShareItem]:
    status, every = found.status, list(found.status.pulls)
    live, masked = set(status.arms), set(status.masked_arms)
    members = {label: [every[number] for number in numbers] for label, numbers in _members(found).items()}
    weights = _entitlements(found)
    entitled = {label: weights[label] for label, arms in members.items() if live & set(arms)}
    all_entitled = sum(entitled.values()) or 1.0
    all_rewards, all_pulls = sum(earned.values()), max(1, sum((pulls or {}).values()))
    n_decisions = {label: None if pulls is None else sum(pulls[arm] for arm in arms) for label, arms in members.items()}
    rewards = {label: sum(earned.get(arm, 0.0) for arm in arms) for label, arms in members.items()}
    spans = {label: _spans(found, numbers) for label, numbers in _members(found).items()}
    return [
        ShareItem(
            label=label,
            arms=arms,
            live=label in entitled,
            masked=label in entitled and live & set(arms) <= masked,
            entitled=entitled.get(label, 0.0) / all_entitled,
            entitlement=weights[label],
            live_spans=[(since / SECOND, seconds(until)) for since, until in spans[label]],
            decisions=None if (n := n_decisions[label]) is None else n / all_pulls,
            rewards=rewards[label] / all_rewards if all_rewards > 0.0 else None,
            account=status.accounts.get(label),
            n_decisions=n,
            reward_sum=rewards[label],
        )
        for label, arms in members.items()
    ]


def books(found: Overview) -> list[BookItem]:
    """What every group, or arm, earned in each period, and how evenly."""
    rows = []
    for period in found.status.periods:
        rewards = by_group(found.status, period.rewards, period.rewards)
        jain = jain_index(found.status, period.accounts or rewards) if any(rewards.values()) else None
        ended = None if period.ended is None else period.ended.timestamp()
        rows.append(BookItem(period.number, period.started.timestamp(), ended, rewards, jain))
    return rows


def delays(summary: Summary) -> DelayCounts:
    """How long rewards took, without the empty ends of the histogram."""
    used = np.flatnonzero(summary.delays)
    first, last = (int(used[0]), int(used[-1])) if len(used) else (0, 0)
    edges = [0.0, *(bound / SECOND for bound in DELAY_BOUNDS), None]
    return DelayCounts(edges[first : last + 2], summary.delays[first : last + 1].tolist(), summary.delay_sum / SECOND)


def certificate(found: Bounds | None) -> Certificate | None:
    """The bounds of a run with full information, in words."""
    if found is None:
        return None
    parts = []
    if found.welfare_ratio is not None:
        parts.append(
            f"No fixed policy would have more than {found.welfare_ratio:.4g} times the present welfare, "
            "whatever the rewards were."
        )
    if found.regret is not None:
        parts.append(f"The regret is at most {found.regret:.6g}.")
    return Certificate(found.welfare_ratio, found.regret, " ".join(parts))


def least_context(status: Status) -> LeastContext | None:
    """The least share of its best that a context has at the optimum with the current accounts, in words."""
    if not status.accounts or status.alpha is None or not status.rewards + status.defaulted:
        return None
    groups, left = status.groups, 1.0
    entitlements = (groups.entitlements if groups is not None else None) or {}
    if groups is not None and groups.pull_floor is not None:  # what floors take is not chosen by prices
        floors = groups.pull_floor
        left = 1.0 - (sum(floors.values()) if isinstance(floors, dict) else floors * len(status.arms))
    levels = [account / entitlements.get(label, 1.0) for label, account in status.accounts.items()]
    if not metrics.LEAST_ACCOUNT <= min(levels) <= max(levels) <= metrics.MOST_ACCOUNT:  # of a policy from elsewhere
        return None
    share = max(0.0, left) * float(metrics.least_context_share(levels, status.alpha))
    if share < max(LEAST_SHOWN, status.context_share):
        return None
    sentence = f"No context has to be served below {share:.0%} of its best."
    return LeastContext(share, sentence, "True of the best fixed policy; a run also explores.")


def context_promise(status: Status) -> ContextPromise | None:
    """What every context is promised, in words."""
    if status.context_share == 0.0:
        return None
    note = sentences.AS_COUNTED if status.context_share_bound is not None else sentences.A_TARGET
    return ContextPromise(sentences.promised(status), note)


def live_answer(found: Overview, first: int = 0) -> LiveAnswer:
    """Everything about one experiment; for an update, the buckets from `first` on and the changes that `found` has."""
    parts: dict[str, Any] = {
        "at": found.at / SECOND,
        "position": found.position,
        "experiment": structs.replace(described(found.status), **earned_fairness(found.status)),
        "decisions_per_second": rate(found),
        "last_event": seconds(found.summary.last_event),
        "series": series(found, first),
        "changes": [ChangeItem(*change) for change in found.changes],
        "shares": shares(found),
        "period_shares": period_shares(found),
        "period_pulls": found.period_pulls,
        "books": books(found),
        "delays": delays(found.summary),
        "certificate": certificate(found.bounds),
        "least_context": least_context(found.status),
        "context_promise": context_promise(found.status),
        "marks": marks_of(found),
    }
    return LiveAnswer(**parts)


# the log


def log_row(row: FoundRow, arms: Sequence[str]) -> LogRow:
    """A decision as the log shows it; the reward of a slate is the sum of those that its arms have."""
    reward, slate = row.reward, None
    if row.rewards is not None:
        reward = float(np.frombuffer(row.rewards, dtype="<f8")[row.arm])
    if row.slate is not None:
        earned = rewards_of_slate(row)
        shown = zip(row.slate.arms, row.slate.propensities, strict=True)
        slate = [ShownArm(arms[arm], propensity, earned.get(arm)) for arm, propensity in shown]
        reward = sum(earned.values()) if earned else None
    return LogRow(
        position=row.position,
        id=row.id,
        at=row.at / SECOND,
        context=row.label,
        arm=arms[row.arm],
        propensity=row.propensity or None,
        state=state_of(row),  # type: ignore[arg-type]
        reward=reward,
        rewarded_at=seconds(row.settled_at),
        slate=slate,
        decided_by=row.decided_by,
    )


def rewards_of_slate(row: FoundRow) -> dict[int, float]:
    """The rewards of the shown arms of a slate that have one."""
    if row.slate is None or row.arrived is None:
        return {}
    if row.rewards is not None:
        of_all = np.frombuffer(row.rewards, dtype="<f8")
        return {arm: float(of_all[arm]) for arm in row.slate.arms}
    return dict(SlateEvent(row.slate, row.arrived).paid)


def log_answer(page: LogExcerpt) -> LogAnswer:
    """A page of the log."""
    next = None if page.ended else page.searched_to + 1
    return LogAnswer([log_row(row, page.arms) for row in page.rows], next, page.searched_to)


def decision_answer(
    story: DecisionStory, status: str, sentence: str, probabilities: Sequence[float] | None
) -> DecisionAnswer:
    """The story of a decision; `probabilities` has a number for every arm of that time, if they are known."""
    row, then = story.row, story.at_that_time
    arms = []
    for number, arm in enumerate(then.arms):
        if number in then.retired:
            continue
        drawn = number == row.arm if row.slate is None else number in row.slate.arms
        reward = None
        if story.rewards is not None and number < len(story.rewards):
            reward = float(story.rewards[number])
        elif row.slate is not None:
            reward = rewards_of_slate(row).get(number)
        elif drawn:
            reward = row.reward
        probability = None if probabilities is None else float(probabilities[number])
        if probability is None and drawn:
            probability = row.propensity or None
            if row.slate is not None:
                probability = row.slate.propensities[row.slate.arms.index(number)]
        if not story.available[number]:
            probability = 0.0
        arms.append(ArmProbability(arm, bool(story.available[number]), probability, drawn, reward))
    late = row.late_reward
    if row.late_rewards is not None:
        values = np.frombuffer(row.late_rewards, dtype="<f8")
        late = float(np.nansum(values) if row.slate is not None and row.probabilities is None else values[row.arm])
    return DecisionAnswer(
        row=log_row(row, then.arms),
        source=row.source,
        deferred=bool(row.deferred),
        activated_at=seconds(row.activated_at),
        late_reward=late,
        late_reward_at=seconds(row.late_at),
        features=story.features,
        probabilities_status=status,  # type: ignore[arg-type]
        probabilities_sentence=sentence,
        arms=arms,
        settings=EarlierSettings(
            alpha=shown_alpha(then.alpha),
            arms=then.live_arms,
            masked_arms=[then.arms[number] for number in sorted(then.masked)],
            policy=then.settings.policy,
            period=then.periods.number,
            version=row.policy_version,
        ),
        state_version=row.state_version,
        changes_since=[ChangeItem(*change) for change in story.changes_since],
        events_since=story.position - row.position,
    )
