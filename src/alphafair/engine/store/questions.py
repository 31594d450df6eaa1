"""What is asked of a store: every question once, for both kinds. The words in braces are those of `dialect`.

Questions about one experiment take its key and positions: after one and up to another. Those about events take the
first and the last one, and may be about several experiments.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.store.ledger import (
    EVENT_TABLES,
    EVENTS,
    N_ORIGINS,
    PARTLY,
    SOURCES,
    TABLES,
    Change,
    Context,
    EventColumns,
    FoundDecision,
    FoundRow,
    LogSearch,
    OpenDecision,
    SavedState,
    Span,
    Statement,
    Store,
    split_state,
)
from alphafair.engine.store.slates import Rewards, Slate, SlateEvent, joined, rewards_of
from alphafair.errors import Mismatch

LATEST: Final = 1 << 62  # above every position
SOURCE_NUMBER: Final = "case source " + " ".join(f"when '{name}' then {k}" for k, name in enumerate(SOURCES)) + " end"
LABEL: Final = "coalesce(c.label, 'erased-' || d.context)"
WITH_LABEL: Final = "left join context c on c.experiment = d.experiment and c.number = d.context"
WITH_REWARD: Final = "left join reward r on r.decision = d.event"
WITH_ACTIVATION: Final = "left join activation a on a.decision = d.event"
WITH_LATE: Final = "left join late_reward l on l.decision = d.event"
WITH_END: Final = "left join slate_reward s on s.decision = d.event and s.remaining = 0"  # of slates
NO_END: Final = """not (d.slate is not null and exists (select 1 from slate_reward s where s.decision = d.event
    and s.remaining = 0))"""
OPEN: Final = ", ".join(f"d.{name}" for name in OpenDecision._fields[4:-1]) + ", d.position"
SINCE_DECIDED: Final = f"""select d.event, d.at, 1 - d.deferred, d.position, {OPEN}
    from decision d where {{within d}} and not exists (select 1 from reward r where r.decision = d.event)
    and {NO_END} and not (d.deferred = 1 and exists (select 1 from activation a where a.decision = d.event))
    order by d.event"""
SINCE_ACTIVATED: Final = f"""select a.event, a.at, 1, a.position, {OPEN}
    from activation a join decision d on d.event = a.decision
    where {{within a}} and not exists (select 1 from reward r where r.decision = a.decision) and {NO_END}
    order by a.event"""
LOG_ROW: Final = f"""select d.position, d.id, d.at, d.context, {LABEL}, d.arm, d.propensity, d.deferred, a.at,
    r.reward, r.rewards, coalesce(r.source, s.source), coalesce(r.at, s.at), d.available, d.probabilities,
    d.state_version, d.policy_version, l.reward, l.rewards, l.at, d.decided_by, d.features, d.bucket, d.slate,
    d.event
    from decision d {WITH_ACTIVATION} {WITH_REWARD} {WITH_END} {WITH_LATE} {WITH_LABEL}"""
STATES: Final = {  # of decisions that wait; all others have the source that settled them
    "pending": "r.event is null and s.event is null and (d.deferred = 0 or a.event is not null)",
    "deferred": "r.event is null and s.event is null and d.deferred = 1 and a.event is null",
}
OUT_OF_ORDER: Final = (  # the first event of each kind that could not have been written at its position, and why
    ("activation", "join decision d on d.event = e.decision", "d.deferred = 0", "which was not deferred"),
    *(
        (
            table,
            """join decision d on d.event = e.decision
            left join activation a on a.decision = d.event and a.event < e.event""",
            "d.deferred = 1 and a.event is null and e.source in ('client', 'default', 'expired')",
            "which was not activated before it",
        )
        for table in ("reward", "slate_reward")
    ),
    (
        "reward",
        "join decision d on d.event = e.decision",
        "d.slate is not null and d.probabilities is null",
        "which shows several arms",
    ),
    (
        "slate_reward",
        "join decision d on d.event = e.decision",
        "d.slate is null or d.probabilities is not null",
        "which has one reward",
    ),
    (
        "slate_reward",
        """join decision d on d.event = e.decision
        left join slate_reward s on s.decision = e.decision and s.event < e.event and s.remaining = 0""",
        "s.event is not null",
        "which was settled before it",
    ),
    (
        "late_reward",
        """join decision d on d.event = e.decision
        left join reward r on r.decision = e.decision and r.event < e.event and r.source <> 'client'
        left join slate_reward s on s.decision = e.decision and s.event < e.event and s.source <> 'client'""",
        "r.event is null and s.event is null",
        "which was not closed before it",
    ),
)


def between(store: Store, key: int, after: int, until: int) -> dict[str, int]:
    """Return the values of `{within d}`: the positions after one and up to another."""
    low, high = store.span(key, after, until)
    return {"experiment": key, "after": after, "until": until, "low": low, "high": high}


def stretches(store: Store, positions: Mapping[int, tuple[int, int]], size: int) -> list[Span]:
    """Return events to be read together, which have all positions after one and up to another of some experiments.

    In a file the events of experiments lie between one another, so they are read once, not once per experiment.
    """
    found = sorted(store.span(key, *each) for key, each in positions.items() if each[0] < each[1])
    joined = list[Span]()
    for span in found:
        if joined and span.low <= joined[-1].high + 1:
            joined[-1] = Span(joined[-1].low, max(joined[-1].high, span.high))
        else:
            joined.append(span)
    return [
        Span(low, min(low + size - 1, span.high)) for span in joined for low in range(span.low, span.high + 1, size)
    ]


# changes and contexts


def changes(store: Store, key: int, until: int, after: int = 0) -> list[Change]:
    """Return the changes of an experiment, in their order."""
    columns = ", ".join(f"c.{name}" for name in Change._fields)
    found = store.rows(
        f"select {columns} from change c where {{within c}} order by c.event", **between(store, key, after, until)
    )
    return [Change(*row) for row in found]


def contexts(store: Store, key: int, first: int = 0) -> Iterator[Context]:
    """Yield the contexts of an experiment from a number on; the label of an erased one is None."""
    question = "select {} from context where experiment = :key and number >= :first order by number"
    for row in store.each(question.format(", ".join(Context._fields)), key=key, first=first):
        yield Context(*row)


def labels(store: Store, key: int) -> list[str]:
    """Return the labels of contexts in order; an erased one is called `erased-<number>`."""
    return [f"erased-{number}" if label is None else label for _, number, label in contexts(store, key)]


# events of any experiments, for a replay


def columns(store: Store, low: int, high: int, sources: Sequence[str], *, slates: bool) -> EventColumns:
    """Return decisions, activations and settlements as columns of numbers; events are counted from `low`.

    `sources` are those of all decisions, see `sources`. Settlements of `slates` are among them, if there are any; their
    rewards are not.
    """
    names = {f"source_{k}": source for k, source in enumerate(sources)}
    decided_by = " ".join(f"when :{name} then {k + 1}" for k, name in enumerate(names))
    number = f"{N_ORIGINS} * case d.decided_by {decided_by} else 0 end + " if names else ""
    origin = f"{number}case when d.bucket between 0 and {N_ORIGINS - 2} then d.bucket + 1 else 0 end"
    earlier = f"""select r.event - :low, d.context, d.arm, d.propensity, {origin}, d.position{{}} from {{}} r
        join decision d on d.event = r.decision and d.experiment = r.experiment
        {{}} where r.event between :low and :high and r.decision < :low order by r.event"""
    own = "select event - :low, experiment, position, {} from {} d where event between :low and :high order by event"
    values = {"low": low, "high": high}
    with_names = {**values, **names}
    source = f"coalesce({SOURCE_NUMBER}, 4)"
    settled = store.columns(own.format(f"decision - :low, at, coalesce(reward, 0), {source}", "reward"), 7, **values)
    before = store.columns(earlier.format(", coalesce(a.at, d.at)", "reward", WITH_ACTIVATION), 7, **with_names)
    if slates:
        ends = f"decision - :low, at, 0, case when remaining > 0 then {PARTLY} else {source} end"
        settled = _in_order(settled, store.columns(own.format(ends, "slate_reward"), 7, **values))
        of_slates = earlier.format(", coalesce(a.at, d.at)", "slate_reward", WITH_ACTIVATION)
        before = _in_order(before, store.columns(of_slates, 7, **with_names))
    drawn = f"context, arm, propensity, {origin}, at, deferred, state_version"
    return EventColumns(
        store.columns(own.format(drawn, "decision"), 10, **with_names),
        store.columns(own.format("decision - :low, at", "activation"), 5, **values),
        settled,
        store.columns(earlier.format("", "activation", ""), 6, **with_names),
        before,
    )


def _in_order(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the rows of both, in the order of their events."""
    rows = np.concatenate([one, other])
    return rows[np.argsort(rows[:, 0], kind="stable")]


def sources(store: Store) -> list[str]:
    """Return who else has decided, in any experiment, without going through all decisions."""
    question = """with recursive found(source) as (
        select min(decided_by) from decision where decided_by is not null
        union all select (select min(d.decided_by) from decision d where d.decided_by > found.source) from found
        where found.source is not null)
        select source from found where source is not null order by source"""
    return [source for (source,) in store.rows(question)]


def least_state_versions(store: Store, low: int, high: int) -> dict[int, int]:
    """Return by experiment the least position that a decision among these events was drawn at."""
    question = """select experiment, min(state_version) from decision where event between :low and :high
        group by experiment"""
    return dict(store.rows(question, low=low, high=high))


def masks(store: Store, low: int, high: int) -> dict[int, dict[int, bytes]]:
    """Return, by experiment and position, the arms that decisions were drawn among, where not all were available."""
    question = """select experiment, position, available from decision
        where event between :low and :high and available is not null"""
    found: dict[int, dict[int, bytes]] = {}
    for key, position, among in store.rows(question, low=low, high=high):
        found.setdefault(key, {})[position] = among
    return found


def full_rewards(store: Store, low: int, high: int) -> dict[int, dict[int, tuple[bytes, bytes]]]:
    """Return, by experiment and position of the reward, the distribution and the rewards of all arms."""
    question = """select r.experiment, r.position, d.probabilities, r.rewards from reward r
        join decision d on d.event = r.decision
        where r.event between :low and :high and r.rewards is not null"""
    found: dict[int, dict[int, tuple[bytes, bytes]]] = {}
    for key, position, used, rewards in store.rows(question, low=low, high=high):
        found.setdefault(key, {})[position] = used, rewards
    return found


def features(store: Store, low: int, high: int, *, draws: bool) -> dict[int, dict[int, bytes]]:
    """Return, by experiment and position, the features of the decisions that events are about.

    That is of rewards, and with `draws` of the decisions themselves.
    """
    later = """select e.experiment, e.position, d.features from {} e join decision d on d.event = e.decision
        where e.event between :low and :high and d.features is not null"""
    questions = [later.format("reward"), later.format("slate_reward")]
    if draws:
        questions.append("""select experiment, position, features from decision
            where event between :low and :high and features is not null""")
    found: dict[int, dict[int, bytes]] = {}
    for question in questions:
        for key, position, blob in store.rows(question, low=low, high=high):
            found.setdefault(key, {})[position] = blob
    return found


def has_slates(store: Store) -> bool:
    """Return whether any decision shows several arms."""
    return bool(store.rows("select 1 from decision d where d.slate is not null limit 1"))


def slates(store: Store, low: int, high: int) -> dict[int, dict[int, SlateEvent]]:
    """Return, by experiment and position, what events did to slates."""
    values = {"low": low, "high": high}
    found: dict[int, dict[int, SlateEvent]] = {}
    made = """select d.experiment, d.position, d.slate from decision d
        where d.slate is not null and d.event between :low and :high"""
    later = """select e.experiment, e.position, d.slate from {} e join decision d on d.event = e.decision
        where d.slate is not null and e.event between :low and :high"""
    for question in (made, later.format("activation"), later.format("reward")):
        for key, position, slate in store.rows(question, **values):
            found.setdefault(key, {})[position] = SlateEvent(Slate.from_bytes(slate))
    arrived: dict[int, Rewards] = {}  # by decision
    settled = """select e.experiment, e.position, e.event, e.decision, e.rewards, e.remaining, d.slate
        from slate_reward e join decision d on d.event = e.decision
        where e.event <= :high and e.decision in (select s.decision from slate_reward s
        where s.event between :low and :high) order by e.event"""
    for key, position, event, decision, rewards, remaining, blob in store.rows(settled, **values):
        if blob is None:
            raise Mismatch(f"experiment {key}: slate_reward {position} belongs to a decision of one arm.")
        slate = Slate.from_bytes(blob)
        before, new = arrived.get(decision, slate.without_rewards), rewards_of(slate, rewards)
        arrived[decision] = joined(before, new)
        n_left = int(np.isnan(arrived[decision]).sum())
        again = (~np.isnan(before) & ~np.isnan(new)).any()
        if again or remaining != (0 if rewards is None else n_left) or (rewards is not None and np.isnan(new).all()):
            raise Mismatch(f"experiment {key}: slate_reward {position} does not follow from those before it.")
        if event >= low:
            found.setdefault(key, {})[position] = SlateEvent(slate, new, before)
    return found


def _rewards_by_slot(store: Store, ids: Sequence[str]) -> dict[int, list[tuple[str, bytes | None, int]]]:
    """Return, by the event of decisions that have these ids, source, rewards and what remained of their settlements."""
    question = """select s.decision, s.source, s.rewards, s.remaining
        from {found d} join slate_reward s on s.decision = d.event order by s.event"""
    found: dict[int, list[tuple[str, bytes | None, int]]] = defaultdict(list)
    for decision, *settled in store.rows(question, ids=[*dict.fromkeys(ids)]) if ids else []:
        found[decision].append(tuple(settled))
    return found


def _arrived(slate: Slate, settled: Iterable[tuple[str, bytes | None, int]], *, of: Sequence[str] = SOURCES) -> Rewards:
    """Return the rewards of a slate that came from some sources."""
    arrived = slate.without_rewards
    for source, rewards, _ in settled:
        if source in of:
            arrived = joined(arrived, rewards_of(slate, rewards))
    return arrived


# counts


def has_full_information(store: Store, key: int) -> bool:
    """Return whether the decisions of an experiment have their distribution with them."""
    question = """select case when d.probabilities is null then 0 else 1 end from decision d
        where {within d} and d.decided_by is null limit 1"""
    found = store.rows(question, **between(store, key, 0, LATEST))
    return bool(found and found[0][0])


def earned(store: Store, key: int, until: int, after: int = 0) -> Iterator[tuple[int, float]]:
    """Yield arm and reward of every own decision that was paid, in the order of rewards; every arm of a slate."""
    question = """select r.event, d.arm, r.reward, r.rewards, d.slate
        from reward r join decision d on d.event = r.decision
        where {within r} and r.source in ('client', 'default') and d.decided_by is null order by r.event"""
    of_slates = """select s.event, d.slate, s.rewards from slate_reward s join decision d on d.event = s.decision
        where {within s} and s.rewards is not null order by s.event"""
    values = between(store, key, after, until)
    slates = [(event, Slate.from_bytes(slate), rewards) for event, slate, rewards in store.rows(of_slates, **values)]
    paid_together = ((event, SlateEvent(slate, rewards_of(slate, blob)).paid) for event, slate, blob in slates)
    for _, paid in heapq.merge(_paid(store.each(question, **values)), paid_together, key=lambda found: found[0]):
        yield from paid


def _paid(rows: Iterable[Any]) -> Iterator[tuple[int, list[tuple[int, float]]]]:
    for event, arm, reward, rewards, slate in rows:
        if rewards is None:
            yield event, [(arm, reward)]
        else:
            values = np.frombuffer(rewards, dtype="<f8")
            shown_arms = [arm] if slate is None else Slate.from_bytes(slate).arms
            yield event, [(each, float(values[each])) for each in shown_arms]


def pulls(store: Store, key: int, until: int, after: int = 0) -> list[tuple[int, int]]:
    """Return arms and how many decisions of the policy showed them."""
    question = """select d.arm, count(*) from decision d where {within d} and d.slate is null and d.decided_by is null
        group by d.arm order by d.arm"""
    of_slates = "select d.slate from decision d where {within d} and d.slate is not null"
    values = between(store, key, after, until)
    counted = defaultdict(int, store.rows(question, **values))
    for (slate,) in store.rows(of_slates, **values):
        for arm in Slate.from_bytes(slate).arms:
            counted[arm] += 1
    return sorted(counted.items())


# decisions


def find(store: Store, ids: Sequence[str]) -> list[FoundDecision]:
    """Return the decisions that have these ids, of all experiments."""
    question = f"""select d.event, d.experiment, d.position, d.id, d.context, c.label, d.arm, d.propensity,
        case when d.deferred = 0 or a.event is not null then 1 else 0 end, coalesce(a.at, d.at), d.probabilities,
        case when r.event is null then 0 else 1 end, r.reward, r.source, r.rewards,
        case when l.event is null then 0 else 1 end, d.decided_by, d.features, d.bucket, d.slate
        from {{found d}} {WITH_ACTIVATION} {WITH_REWARD} {WITH_LATE} {WITH_LABEL}"""
    wanted = [*dict.fromkeys(ids)]
    found = [FoundDecision(*row) for row in store.rows(question, ids=wanted)] if wanted else []
    if any(each.slate is not None for each in found):
        settled = _rewards_by_slot(store, [each.id for each in found if each.slate is not None])
        found = [each if each.slate is None else _with_slate(each, settled[each.event]) for each in found]
    return found


def _with_slate(found: FoundDecision, settled: Sequence[tuple[str, bytes | None, int]]) -> FoundDecision:
    slate = Slate.from_bytes(found.slate)  # type: ignore[arg-type]
    if settled and settled[-1][2] == 0:
        found = found._replace(is_settled=1, source=settled[-1][0])
    return found._replace(slate=slate, arrived=_arrived(slate, settled, of=("client",)))


def rewards_by_slot(store: Store, decision: int, slate: Slate) -> Rewards:
    """Return the rewards that a slate has got so far."""
    question = (
        "select s.source, s.rewards, s.remaining from slate_reward s where s.decision = :decision order by s.event"
    )
    return _arrived(slate, store.rows(question, decision=decision))


def waiting(store: Store, key: int, low: int, high: int) -> tuple[Generator[Any], Generator[Any]]:
    """Yield the fields of `OpenDecision` in order: decisions that wait since they were made, or were activated.

    Only these events are searched. The caller closes both generators.
    """
    values = {"experiment": key, "after": 0, "until": LATEST, "low": low, "high": high}
    return store.each(SINCE_DECIDED, **values), store.each(SINCE_ACTIVATED, **values)


def open_after(store: Store, key: int, position: int) -> list[str]:
    """Return the ids of decisions without a reward that were made, or activated, after a position."""
    question = f"""select d.id from decision d {WITH_ACTIVATION} {WITH_REWARD}
        where {{within d}} and (d.position > :position or a.position > :position) and r.event is null and {NO_END}
        order by d.event"""
    return [id for (id,) in store.rows(question, position=position, **between(store, key, 0, LATEST))]


def settled_between(store: Store, key: int, position: int, end: int) -> list[tuple[int, int, int, float]]:
    """Return position, context, arm and propensity of own decisions open at `position` and settled before `end`."""
    question = f"""select d.position, d.context, d.arm, d.propensity from decision d {WITH_ACTIVATION}
        join reward r on r.decision = d.event
        where {{within d}} and (d.deferred = 0 or a.position <= :position) and r.position > :position
        and r.position < :end and d.decided_by is null order by d.event"""
    return store.rows(question, position=position, end=end, **between(store, key, 0, position))


def slates_settled_between(store: Store, key: int, position: int, end: int) -> list[tuple[int, int, SlateEvent]]:
    """Return position and context of slates, of which arms that were open at `position` were settled before `end`.

    In each the arms that were settled since are those without a reward before.
    """
    if not has_slates(store):
        return []
    question = f"""select d.event, d.position, d.context, d.slate, s.position, s.rewards
        from decision d {WITH_ACTIVATION} join slate_reward s on s.decision = d.event
        where {{within d}} and (d.deferred = 0 or a.position <= :position) and s.position < :end
        order by d.event, s.event"""
    slates: dict[int, tuple[int, int, Slate]] = {}
    open_then: dict[int, Rewards] = {}
    since: dict[int, Rewards] = {}
    for event, made, context, blob, at, rewards in store.rows(
        question, position=position, end=end, **between(store, key, 0, position)
    ):
        slate = Slate.from_bytes(blob)
        slates[event] = made, context, slate
        before = open_then.setdefault(event, slate.without_rewards)
        if at <= position:
            open_then[event] = before if rewards is None else joined(before, rewards_of(slate, rewards))
            if rewards is None:  # closed
                open_then[event] = np.zeros(len(slate.arms))
        else:
            new = np.zeros(len(slate.arms)) if rewards is None else rewards_of(slate, rewards)
            since[event] = joined(since.get(event, slate.without_rewards), new)
    found = []
    for event, new in since.items():
        made, context, slate = slates[event]
        gone = np.isnan(open_then[event]) & ~np.isnan(new)
        if gone.any():
            found.append((made, context, SlateEvent(slate, None, np.where(gone, np.nan, 0.0))))
    return found


def erasure(store: Store, key: int, context: int, new_id: Callable[[], str]) -> list[Statement]:
    """Return the statements that remove a context's label and its decisions' ids; pass them to `commit`."""
    question = "select d.event from decision d where {within d} and d.context = :context"
    events = [event for (event,) in store.rows(question, context=context, **between(store, key, 0, LATEST))]
    remembered: list[Statement] = [("insert into erasure values (null)", [{}])] if store.opened.together else []
    return [
        *remembered,
        (
            "update context set label = null where experiment = :key and number = :context",
            [{"key": key, "context": context}],
        ),
        (
            "update decision set id = :id, checksum = null where event = :event",
            [{"id": f"erased-{new_id()}", "event": event} for event in events],
        ),
    ]


def exported(store: Store, key: int, after: int, until: int, limit: int) -> list[tuple[Any, ...]]:
    """Return the next decisions after a position, with their rewards up to `until`, for an export.

    The rewards of slates are `settlements`.
    """
    question = f"""select d.position, d.id, {LABEL}, d.arm, d.propensity, r.reward, r.rewards, r.source, d.at, r.at,
        r.position, d.policy_version, d.available, d.slate, d.event
        from decision d {WITH_REWARD} and r.position <= :end {WITH_LABEL}
        where {{within d}} order by d.event limit :limit"""
    return store.rows(question, end=until, limit=limit, **between(store, key, after, until))


def decided_by(store: Store, key: int, after: int, until: int) -> dict[int, tuple[str | None, int | None]]:
    """Return who made decisions and their buckets, by position; only where either is known."""
    question = """select d.position, d.decided_by, d.bucket from decision d
        where {within d} and (d.decided_by is not null or d.bucket is not null)"""
    return {
        position: (source, bucket)
        for position, source, bucket in store.rows(question, **between(store, key, after, until))
    }


def decided_features(store: Store, key: int, after: int, until: int) -> dict[int, bytes]:
    """Return the features of decisions after one position and up to another, by position."""
    question = "select d.position, d.features from decision d where {within d} and d.features is not null"
    return dict(store.rows(question, **between(store, key, after, until)))


class Settlement(NamedTuple):
    """One event of a slate: the rewards it brought, or its end without the others."""

    rewards: Rewards
    source: str
    at: int
    position: int


def settlements(store: Store, key: int, after: int, until: int, end: int) -> dict[int, list[Settlement]]:
    """Return the settlements up to `end` of slates between two positions, by the event of their decision."""
    question = """select d.event, d.slate, s.rewards, s.source, s.at, s.position
        from decision d join slate_reward s on s.decision = d.event
        where {within d} and d.slate is not null and s.position <= :end order by s.event"""
    found: dict[int, list[Settlement]] = defaultdict(list)
    for event, slate, rewards, *rest in store.rows(question, end=end, **between(store, key, after, until)):
        found[event].append(Settlement(rewards_of(Slate.from_bytes(slate), rewards), *rest))
    return found


def log_rows(store: Store, key: int, wanted: LogSearch) -> list[FoundRow]:
    """Return decisions of an experiment, the newest first."""
    after, until, limit, context, arm, state = wanted
    conditions = {
        "d.context = :context": context,
        "(d.arm = :arm or d.slate is not null)": arm,
        STATES.get(state or "", "coalesce(r.source, s.source) = :state"): state,
    }
    filters = "".join(f" and {condition}" for condition, value in conditions.items() if value is not None)
    question = f"{LOG_ROW} where {{within d}}{filters} order by d.event desc limit :limit"
    values = {"context": context, "arm": arm, "state": state, "limit": limit}
    found: list[FoundRow] = []
    while len(found) < limit:
        rows = store.rows(question, **values, **between(store, key, after, until))
        read = [_log_row(store, row) for row in rows]
        found += [row for row in read if arm is None or arm == row.arm or (row.slate and arm in row.slate.arms)]
        if len(rows) < limit:
            break
        until = read[-1].position - 1  # slates without the arm may have been among them
    return found[:limit]


def _log_row(store: Store, row: tuple[Any, ...]) -> FoundRow:
    *columns, blob, decision = row
    found = FoundRow(*columns)
    if blob is None:
        return found
    slate = Slate.from_bytes(blob)
    return found._replace(slate=slate, arrived=rewards_by_slot(store, decision, slate))


def log_row(store: Store, key: int, id: str) -> FoundRow | None:
    """Return the decision of an experiment that has an id."""
    for row in store.rows(f"{LOG_ROW} where d.id = :id and d.experiment = :key", id=id, key=key):
        return _log_row(store, row)
    return None


def decision_time(store: Store, key: int, position: int) -> int | None:
    """Return when the last decision up to a position was made; None if there was none. Times never fall."""
    question = "select d.at from decision d where {within d} order by d.event desc limit 1"
    for (at,) in store.rows(question, **between(store, key, 0, position)):
        return int(at)
    return None


def n_rewarded(store: Store, key: int, source: str, most: int) -> int:
    """Return how many decisions of a source have a reward, at most so many."""
    question = """select count(*) from (select 1 from decision d join reward r on r.decision = d.event
        where {within d} and r.reward is not null and d.decided_by = :source limit :most) found"""
    ((counted,),) = store.rows(question, source=source, most=most, **between(store, key, 0, LATEST))
    return int(counted)


def rewarded(store: Store, key: int, latest: int | None = None, source: str | None = None) -> list[tuple[Any, ...]]:
    """Return what `read_log` takes of the decisions that have a reward: with `latest`, only of so many, the last ones.

    They are those of the policy, or of another `source`.

    That is context, arm, reward, rewards, propensity, at, policy_version, available, features, bucket, slate and event.
    Rewards are those of all arms as bytes under full information, and those by slot as an array of other slates.
    """
    decided_by = "d.decided_by is null" if source is None else "d.decided_by = :source"
    told = "d.propensity, d.at, d.policy_version, d.available, d.features, d.bucket, d.slate, d.event"
    fields = f"d.context, d.arm, {{}}, {told}"
    question = f"""select {fields.format("r.reward, r.rewards")} from decision d join reward r on r.decision = d.event
        where {{within d}} and (r.reward is not null or r.rewards is not null) and {decided_by}
        order by d.event desc limit :limit"""
    of_slates = f"""select {fields.format("null, null")} from decision d where {{within d}} and d.slate is not null
        and exists (select 1 from slate_reward s where s.decision = d.event and s.rewards is not null)
        order by d.event desc limit :limit"""
    limit, values = LATEST if latest is None else latest, between(store, key, 0, LATEST)
    named = {} if source is None else {"source": source}
    found = store.rows(question, limit=limit, **values, **named)
    if slates := store.rows(of_slates, limit=limit, **values) if source is None and has_slates(store) else []:
        settled = settlements(store, key, 0, LATEST, LATEST)
        for row in slates:
            slate = Slate.from_bytes(row[-2])
            rewards = slate.without_rewards
            for each in settled[row[-1]]:
                rewards = joined(rewards, each.rewards)
            found.append((*row[:3], rewards, *row[4:]))
        found = heapq.nlargest(min(limit, len(found)), found, key=lambda row: row[-1])
    found.reverse()
    return found


# saved states


def states(store: Store, key: int, until: int) -> Iterator[SavedState]:
    """Yield everything that was saved up to a position, the latest first."""
    question = """select position, 1 from snapshot where experiment = :experiment and position <= :until
        union all select c.position, 0 from change c where {within c} and c.kind in ('rollback', 'upgrade')
        order by 1 desc"""
    for position, is_snapshot in store.rows(question, **between(store, key, 0, until)):
        if is_snapshot:
            yield from _snapshots(store, key, position)
        else:
            for change in changes(store, key, position, position - 1):
                body = json.loads(change.body)
                yield SavedState(position, body["tally"], *split_state(change.state or b"", body.get("summary")))


def _snapshots(store: Store, key: int, position: int) -> Iterator[SavedState]:
    """Yield the snapshot at a position; none if it was removed meanwhile."""
    question = "select tally, state, summary, node from snapshot where experiment = :key and position = :position"
    pieces = """select bytes from snapshot_piece where experiment = :key and position = :position and node = :node
        order by number"""
    for tally, last, n_summary, node in store.rows(question, key=key, position=position):
        before = [piece for (piece,) in store.each(pieces, key=key, position=position, node=node)]
        yield SavedState(position, tally, *split_state(b"".join([*before, last]), n_summary))


def snapshot_positions(store: Store, key: int, until: int = LATEST) -> list[int]:
    """Return the position of every snapshot up to a position, in order."""
    question = "select position from snapshot where experiment = :key and position <= :until order by position"
    return [position for (position,) in store.rows(question, key=key, until=until)]


def snapshot_state(store: Store, key: int, position: int) -> bytes | memoryview:
    """Return the state of one snapshot."""
    (found,) = _snapshots(store, key, position)
    return found.state


# questions for `verify`


def places(store: Store, low: int, high: int) -> NDArray[np.int64]:
    """Return event (counted from `low`), experiment and position of every row, in the order of events."""
    question = "select event - :low, experiment, position from {} where event between :low and :high order by event"
    found = [store.columns(question.format(table), 3, low=low, high=high) for table in EVENT_TABLES]
    rows = np.concatenate(found).astype(np.int64)
    return rows[np.argsort(rows[:, 0], kind="stable")]


def event_outside(store: Store) -> tuple[str, int, int] | None:
    """Return table, experiment and position of an event that no experiment has, if there is one."""
    for table in EVENT_TABLES:
        question = f"""select e.experiment, e.position from {table} e left join experiment x on x.key = e.experiment
            where x.key is null or e.position < 1 or e.position > x.position limit 1"""
        for key, position in store.rows(question):
            return table, key, position
    return None


def n_events(store: Store) -> dict[int, int]:
    """Return how many rows the events of every experiment have."""
    counted: dict[int, int] = {}
    for table in EVENT_TABLES:
        for key, n in store.rows(f"select experiment, count(*) from {table} group by experiment"):
            counted[key] = counted.get(key, 0) + int(n)
    return counted


def context_outside(store: Store) -> tuple[int, int] | None:
    """Return number and experiment of a context of an experiment that was not created, if there is one."""
    question = """select c.number, c.experiment from context c left join experiment x on x.key = c.experiment
        where x.key is null limit 1"""
    for number, key in store.rows(question):
        return number, key
    return None


def time_of(store: Store, key: int, position: int) -> int | None:
    """Return the time of an event."""
    for table in EVENT_TABLES:
        question = f"select e.at from {table} e where {{within e}}"
        for (at,) in store.rows(question, **between(store, key, position - 1, position)):
            return int(at)
    return None


def labeled_decisions(store: Store, low: int, high: int) -> list[tuple[Any, ...]]:
    """Return what ties every decision to its row, and whether its context has a row: see `verify`."""
    question = f"""select d.position, d.id, d.experiment, d.context, d.state_version, d.policy_version, d.checksum,
        case when c.number is null then 0 else 1 end, c.label, d.decided_by, d.arm, d.propensity, d.features, d.bucket
        from decision d {WITH_LABEL}
        where d.event between :low and :high order by d.event"""
    return store.rows(question, low=low, high=high)


def without_decision(store: Store) -> tuple[str, int, int] | None:
    """Return table, experiment and position of the first event whose decision is not before it, if there is one."""
    for table in [TABLES[kind] for kind in EVENTS if "decision" in kind._fields]:
        question = f"""select e.experiment, e.position from {table} e left join decision d
            on d.event = e.decision and d.experiment = e.experiment and d.event < e.event
            where d.event is null order by e.event limit 1"""
        for key, position in store.rows(question):
            return table, key, position
    return None


def unknown_source(store: Store) -> tuple[str, int, int, str] | None:
    """Return table, experiment, position and source of a reward whose source is none of `SOURCES`, if there is one."""
    known = ", ".join(f"'{source}'" for source in SOURCES)
    for table in ("reward", "slate_reward"):
        question = f"select experiment, position, source from {table} where source not in ({known}) limit 1"
        for key, position, source in store.rows(question):
            return table, key, position, source
    return None


def out_of_order(store: Store) -> tuple[str, int, int, int, str] | None:
    """Return an event that could not have been written there: table, experiment, position, decision, and why."""
    for table, joins, condition, why in OUT_OF_ORDER:
        question = f"""select e.experiment, e.position, d.position from {table} e {joins} where {condition}
            order by e.event limit 1"""
        for key, position, decision in store.rows(question):
            return table, key, position, decision, why
    return None


def marks(store: Store, key: int, low: int, high: int) -> list[tuple[int, int]] | None:
    """Return the marks of an experiment in a file, as numbers of blocks and events; a database has none."""
    if not store.opened.together:
        return None
    question = "select block, event from mark where experiment = :key and event between :low and :high order by event"
    return store.rows(question, key=key, low=low, high=high)


# for copies


def moments(store: Store, low: int, high: int) -> NDArray[np.int64]:
    """Return experiment, position and time of every event."""
    question = "select event - :low, experiment, position, at from {} where event between :low and :high order by event"
    found = [store.columns(question.format(table), 4, low=low, high=high) for table in EVENT_TABLES]
    rows = np.concatenate(found).astype(np.int64)
    return rows[np.argsort(rows[:, 0], kind="stable"), 1:]


def copied(store: Store, kind: Any, low: int, high: int) -> list[Any]:
    """Return rows of one type as they are, each with the position of its decision, which others do not have."""
    columns = ", ".join(f"e.{name}" for name in kind._fields)
    if "decision" in kind._fields:
        table = f"{TABLES[kind]} e join decision d on d.event = e.decision"
        found = store.rows(
            f"select {columns}, d.position from {table} where e.event between :low and :high order by e.event",
            low=low,
            high=high,
        )
    else:
        question = f"select {columns}, 0 from {TABLES[kind]} e where e.event between :low and :high order by e.event"
        found = store.rows(question, low=low, high=high)
    return found


def n_erasures(store: Store) -> int:
    """Return the number of erasures whose old bytes may be left in the file."""
    return 0 if not store.opened.together else int(store.rows("select count(*) from erasure")[0][0])
