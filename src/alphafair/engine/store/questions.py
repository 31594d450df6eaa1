"""What is asked of a store: every question once, for both kinds. The words in braces are those of `dialect`.

Questions about one experiment take its key and positions: after one and up to another. Those about events take the
first and the last one, and may be about several experiments.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.store.ledger import (
    EVENT_TABLES,
    EVENTS,
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

LATEST: Final = 1 << 62  # above every position
SOURCE_NUMBER: Final = "case source " + " ".join(f"when '{name}' then {k}" for k, name in enumerate(SOURCES)) + " end"
LABEL: Final = "coalesce(c.label, 'erased-' || d.context)"
WITH_LABEL: Final = "left join context c on c.experiment = d.experiment and c.number = d.context"
WITH_REWARD: Final = "left join reward r on r.decision = d.event"
WITH_ACTIVATION: Final = "left join activation a on a.decision = d.event"
WITH_LATE: Final = "left join late_reward l on l.decision = d.event"
OPEN: Final = ", ".join(f"d.{name}" for name in OpenDecision._fields[4:])
SINCE_DECIDED: Final = f"""select d.event, d.at, 1 - d.deferred, d.position, {OPEN}
    from decision d where {{within d}} and not exists (select 1 from reward r where r.decision = d.event)
    and not (d.deferred = 1 and exists (select 1 from activation a where a.decision = d.event)) order by d.event"""
SINCE_ACTIVATED: Final = f"""select a.event, a.at, 1, a.position, {OPEN}
    from activation a join decision d on d.event = a.decision
    where {{within a}} and not exists (select 1 from reward r where r.decision = a.decision) order by a.event"""
LOG_ROW: Final = f"""select d.position, d.id, d.at, d.context, {LABEL}, d.arm, d.propensity, d.deferred, a.at,
    r.reward, r.rewards, r.source, r.at, d.available, d.probabilities, d.state_version, d.policy_version, l.reward,
    l.rewards, l.at
    from decision d {WITH_ACTIVATION} {WITH_REWARD} {WITH_LATE} {WITH_LABEL}"""
STATES: Final = {  # of decisions that wait; all others have the source that settled them
    "pending": "r.event is null and (d.deferred = 0 or a.event is not null)",
    "deferred": "r.event is null and d.deferred = 1 and a.event is null",
}
OUT_OF_ORDER: Final = {  # the first event of each kind that could not have been written at its position
    "which was not deferred": (
        "activation",
        "join decision d on d.event = e.decision",
        "d.deferred = 0",
    ),
    "which was not activated before it": (
        "reward",
        """join decision d on d.event = e.decision
        left join activation a on a.decision = d.event and a.event < e.event""",
        "d.deferred = 1 and a.event is null and e.source in ('client', 'default', 'expired')",
    ),
    "which was not closed before it": (
        "late_reward",
        """join decision d on d.event = e.decision
        left join reward r on r.decision = e.decision and r.event < e.event and r.source <> 'client'""",
        "r.event is null",
    ),
}


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


def columns(store: Store, low: int, high: int) -> EventColumns:
    """Return decisions, activations and settlements as columns of numbers; events are counted from `low`."""
    earlier = """select r.event - :low, d.context, d.arm, d.propensity{} from {} r
        join decision d on d.event = r.decision and d.experiment = r.experiment
        {} where r.event between :low and :high and r.decision < :low order by r.event"""
    own = "select event - :low, experiment, position, {} from {} where event between :low and :high order by event"
    values = {"low": low, "high": high}
    return EventColumns(
        store.columns(own.format("context, arm, propensity, at, deferred, state_version", "decision"), 9, **values),
        store.columns(own.format("decision - :low, at", "activation"), 5, **values),
        store.columns(
            own.format(f"decision - :low, at, coalesce(reward, 0), coalesce({SOURCE_NUMBER}, 4)", "reward"),
            7,
            **values,
        ),
        store.columns(earlier.format("", "activation", ""), 4, **values),
        store.columns(earlier.format(", coalesce(a.at, d.at)", "reward", WITH_ACTIVATION), 5, **values),
    )


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


# counts


def has_full_information(store: Store, key: int) -> bool:
    """Return whether the decisions of an experiment have their distribution with them."""
    question = "select case when d.probabilities is null then 0 else 1 end from decision d where {within d} limit 1"
    found = store.rows(question, **between(store, key, 0, LATEST))
    return bool(found and found[0][0])


def earned(store: Store, key: int, until: int, after: int = 0) -> Iterator[tuple[int, float]]:
    """Yield the arm and the reward of every decision that was paid, in the order of rewards."""
    question = """select d.arm, r.reward, r.rewards from reward r join decision d on d.event = r.decision
        where {within r} and r.source in ('client', 'default') order by r.event"""
    for arm, reward, rewards in store.each(question, **between(store, key, after, until)):
        yield arm, reward if rewards is None else float(np.frombuffer(rewards, dtype="<f8")[arm])


def pulls(store: Store, key: int, until: int, after: int = 0) -> list[tuple[int, int]]:
    """Return arms and how many decisions drew them."""
    question = "select d.arm, count(*) from decision d where {within d} group by d.arm order by d.arm"
    return store.rows(question, **between(store, key, after, until))


# decisions


def find(store: Store, ids: Sequence[str]) -> list[FoundDecision]:
    """Return the decisions that have these ids, of all experiments."""
    question = f"""select d.event, d.experiment, d.position, d.id, d.context, c.label, d.arm, d.propensity,
        case when d.deferred = 0 or a.event is not null then 1 else 0 end, coalesce(a.at, d.at), d.probabilities,
        case when r.event is null then 0 else 1 end, r.reward, r.source, r.rewards,
        case when l.event is null then 0 else 1 end
        from {{found d}} {WITH_ACTIVATION} {WITH_REWARD} {WITH_LATE} {WITH_LABEL}"""
    wanted = [*dict.fromkeys(ids)]
    return [FoundDecision(*row) for row in store.rows(question, ids=wanted)] if wanted else []


def waiting(store: Store, key: int, low: int, high: int) -> tuple[Generator[Any], Generator[Any]]:
    """Yield the fields of `OpenDecision` in order: decisions that wait since they were made, or were activated.

    Only these events are searched. The caller closes both generators.
    """
    values = {"experiment": key, "after": 0, "until": LATEST, "low": low, "high": high}
    return store.each(SINCE_DECIDED, **values), store.each(SINCE_ACTIVATED, **values)


def open_after(store: Store, key: int, position: int) -> list[str]:
    """Return the ids of decisions without a reward that were made, or activated, after a position."""
    question = f"""select d.id from decision d {WITH_ACTIVATION} {WITH_REWARD}
        where {{within d}} and (d.position > :position or a.position > :position) and r.event is null
        order by d.event"""
    return [id for (id,) in store.rows(question, position=position, **between(store, key, 0, LATEST))]


def settled_between(store: Store, key: int, position: int, end: int) -> list[tuple[int, int, int, float]]:
    """Return position, context, arm and propensity of decisions open at `position` and settled before `end`."""
    question = f"""select d.position, d.context, d.arm, d.propensity from decision d {WITH_ACTIVATION}
        join reward r on r.decision = d.event
        where {{within d}} and (d.deferred = 0 or a.position <= :position) and r.position > :position
        and r.position < :end order by d.event"""
    return store.rows(question, position=position, end=end, **between(store, key, 0, position))


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
    """Return the next decisions after a position, with their rewards up to `until`, for an export."""
    question = f"""select d.position, d.id, {LABEL}, d.arm, d.propensity, r.reward, r.rewards, r.source, d.at, r.at,
        r.position, d.policy_version, d.available from decision d {WITH_REWARD} and r.position <= :end {WITH_LABEL}
        where {{within d}} order by d.event limit :limit"""
    return store.rows(question, end=until, limit=limit, **between(store, key, after, until))


def log_rows(store: Store, key: int, wanted: LogSearch) -> list[FoundRow]:
    """Return decisions of an experiment, the newest first."""
    after, until, limit, context, arm, state = wanted
    conditions = {
        "d.context = :context": context,
        "d.arm = :arm": arm,
        STATES.get(state or "", "r.source = :state"): state,
    }
    filters = "".join(f" and {condition}" for condition, value in conditions.items() if value is not None)
    question = f"{LOG_ROW} where {{within d}}{filters} order by d.event desc limit :limit"
    values = {"context": context, "arm": arm, "state": state, "limit": limit}
    return [FoundRow(*row) for row in store.rows(question, **values, **between(store, key, after, until))]


def log_row(store: Store, key: int, id: str) -> FoundRow | None:
    """Return the decision of an experiment that has an id."""
    for row in store.rows(f"{LOG_ROW} where d.id = :id and d.experiment = :key", id=id, key=key):
        return FoundRow(*row)
    return None


def decision_time(store: Store, key: int, position: int) -> int | None:
    """Return when the last decision up to a position was made; None if there was none. Times never fall."""
    question = "select d.at from decision d where {within d} order by d.event desc limit 1"
    for (at,) in store.rows(question, **between(store, key, 0, position)):
        return int(at)
    return None


def rewarded(store: Store, key: int, latest: int | None = None) -> list[tuple[Any, ...]]:
    """Return context, arm, reward, rewards, propensity, at, policy_version and available of rewarded decisions.

    With `latest`, only of so many, the last ones.
    """
    question = """select d.context, d.arm, r.reward, r.rewards, d.propensity, d.at, d.policy_version, d.available
        from decision d join reward r on r.decision = d.event
        where {within d} and (r.reward is not null or r.rewards is not null) order by d.event desc limit :limit"""
    values = between(store, key, 0, LATEST)
    return store.rows(question, limit=LATEST if latest is None else latest, **values)[::-1]


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
    """Return position, id, experiment, context, both versions, checksum, whether the context has a row, its label."""
    question = f"""select d.position, d.id, d.experiment, d.context, d.state_version, d.policy_version, d.checksum,
        case when c.number is null then 0 else 1 end, c.label from decision d {WITH_LABEL}
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


def unknown_source(store: Store) -> tuple[int, int, str] | None:
    """Return experiment, position and source of a reward whose source is none of `SOURCES`, if there is one."""
    known = ", ".join(f"'{source}'" for source in SOURCES)
    for found in store.rows(f"select experiment, position, source from reward where source not in ({known}) limit 1"):
        return tuple(found)
    return None


def out_of_order(store: Store) -> tuple[str, int, int, int, str] | None:
    """Return an event that could not have been written there: table, experiment, position, decision, and why."""
    for why, (table, joins, condition) in OUT_OF_ORDER.items():
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
