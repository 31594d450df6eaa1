"""Every question to a store, on both, against what plain Python finds in the rows of its tables."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from alphafair.engine import Engine
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import (
    EVENTS,
    N_ORIGINS,
    PARTLY,
    SOURCES,
    TABLES,
    Activated,
    Change,
    Context,
    Decided,
    FoundDecision,
    FoundRow,
    Head,
    Late,
    LogSearch,
    OpenDecision,
    Settled,
    SlateSettled,
    Span,
)
from alphafair.engine.store.slates import Slate, SlateEvent
from alphafair.errors import RequestError
from alphafair_client.answers import Receipt
from tests.make_version_11_ledger import Clock, play
from tests.stores import both_stores, is_postgres, open_store, rows_of

pytestmark = both_stores
NAMES = ["plain", "waiting", "closing", "full", "adaptive-full", "weekly", "fairest", "hedge", "shelf", "shelf-full"]


class Tables(NamedTuple):
    """All rows of a store, as lists."""

    store: Any
    heads: list[Head]
    events: dict[Any, list[Any]]
    contexts: list[Context]

    def of(self, kind: Any, key: int, after: int = 0, until: int = 10**9) -> list[Any]:
        return [row for row in self.events[kind] if row.experiment == key and after < row.position <= until]

    def one(self, kind: Any, decision: Any) -> Any:
        return next((row for row in self.events[kind] if row.decision == decision.event), None)

    def settled(self, d: Any, until: int = 10**9) -> list[Any]:
        return [s for s in self.events[SlateSettled] if s.decision == d.event and s.position <= until]

    def end(self, d: Any) -> Any:
        """What settled a decision at last, of one arm or of several."""
        return self.one(Settled, d) or next((s for s in self.settled(d) if s.remaining == 0), None)

    def decision(self, row: Any) -> Any:
        return next(each for each in self.events[Decided] if each.event == row.decision)

    def label(self, decision: Any) -> str | None:
        return next(
            each.label
            for each in self.contexts
            if (each.experiment, each.number) == (decision.experiment, decision.context)
        )


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory, _store_of_run: None) -> Iterator[Tables]:
    """What the fixtures of version 11 were made with: every kind of event, in several experiments."""
    path, clock = tmp_path_factory.mktemp("questions") / "shop.db", Clock()
    with Engine(open_store(path), seed=5, clock=clock) as engine:
        play(engine, clock, NAMES[:-2], 450, 5)
        play_slates(engine, clock)
        play_observations(engine, clock)
    with open_store(path, read_only=True) as store:
        events = {}
        for kind in EVENTS:
            query = f"select {', '.join(kind._fields)} from {TABLES[kind]} order by event"
            events[kind] = [kind(*row) for row in rows_of(store, query)]
        contexts = [Context(*row) for row in rows_of(store, "select experiment, number, label from context")]
        heads = [Head(*row) for row in rows_of(store, "select key, name, position, at from experiment order by key")]
        assert all(len(rows) > 4 for rows in events.values())
        yield Tables(store, heads, events, sorted(contexts, key=lambda each: each[:2]))


def play_slates(engine: Engine, clock: Clock) -> None:
    """Decisions of one arm and of several, rewarded arm by arm or not at all; late rewards, too."""
    arms, rng = ["ada", "ben", "cyd", "dov"], random.Random(8)
    engine.create("shelf", arms=arms, reward_wait=40.0)
    engine.create("shelf-full", arms=arms, feedback="full")
    receipts = []
    for turn in range(90):
        clock.now += rng.randrange(10**9)
        receipts.append(
            engine.decide("shelf", f"visitor-{turn % 3}", k=rng.choice([None, 2, 3]), deferred=turn % 5 == 0)
        )
        for receipt in rng.sample(receipts, min(2, len(receipts))):
            with contextlib.suppress(RequestError):
                if isinstance(receipt, Receipt):
                    engine.reward(receipt.id, rng.random())
                else:
                    engine.reward(receipt.id, dict.fromkeys(rng.sample(receipt.arms, rng.randint(1, 2)), rng.random()))
            if rng.random() < 0.1:
                engine.activate(receipt.id)
        receipt = engine.decide("shelf-full", "visitor", k=rng.choice([None, 2]))
        if turn % 2:
            engine.reward(receipt.id, [rng.random() for _ in arms])


def play_observations(engine: Engine, clock: Clock) -> None:
    """Own decisions beside those of three sources, some with a reward at once, some later, some never."""
    rng = random.Random(9)
    engine.create("beside", arms=["ada", "ben"], reward_wait=40.0)
    engine.create("beside-full", arms=["ada", "ben"], feedback="full")
    for turn in range(60):
        clock.now += rng.randrange(5)
        name, context = rng.choice(["beside", "beside-full"]), f"visitor-{turn % 4}"
        source, reward = rng.choice(["incumbent", "history", "Zo"]), rng.choice([None, 0.25])
        told = {"propensity": rng.choice([None, 0.3]), "source": source}
        engine.observe(name, context, rng.choice(["ada", "ben"]), reward, f"seen-{turn}", **told)
        engine.decide("beside", context, id=f"own-{turn}", deferred=turn % 7 == 0)
        for id in rng.sample(range(turn + 1), 1):
            with contextlib.suppress(RequestError):
                engine.activate(f"own-{id}", "beside")
                engine.reward(f"own-{id}", 0.5, "beside")
            with contextlib.suppress(RequestError):
                engine.reward(f"seen-{id}", 0.75)


def source_of(d: Decided) -> list[str]:
    return [] if d.decided_by is None else [d.decided_by]


def origin(sources: list[str], d: Decided) -> int:
    number = 0 if d.decided_by is None else sources.index(d.decided_by) + 1
    return N_ORIGINS * number + (0 if d.bucket is None else d.bucket + 1)


def shown_arms(d: Decided) -> list[int]:
    return [d.arm] if d.slate is None else [*Slate.from_bytes(d.slate).arms]


def by_slot(tables: Tables, d: Decided, until: int = 10**9, only: str | None = None) -> Any:
    """The rewards of a slate up to a position: nan where there is none; None for a decision of one reward."""
    if d.slate is None or d.probabilities is not None:
        return None
    found = np.full(len(shown_arms(d)), np.nan)
    for s in tables.settled(d, until):
        if s.rewards is not None and only in (None, s.source):
            new = np.frombuffer(s.rewards)
            found[~np.isnan(new)] = new[~np.isnan(new)]
    return found


def same(one: Any, other: Any) -> bool:
    """Whether rows are equal, with nan equal to nan."""
    return repr(one) == repr(other)


def parts(head: Head) -> Iterator[tuple[int, int]]:
    """Everything, and some parts of the positions."""
    rng = random.Random(head.key)
    yield 0, head.position
    for _ in range(4):
        after = rng.randrange(head.position)
        yield after, rng.randrange(after, head.position + 1)


def test_heads(tables: Tables) -> None:
    assert tables.store.heads() == tables.heads
    for head in tables.heads:
        assert tables.store.heads(head.key) == [head]
        rows = [row for kind in EVENTS for row in tables.of(kind, head.key)]
        assert sorted(row.position for row in rows) == list(range(1, head.position + 1))
        assert questions.time_of(tables.store, head.key, head.position) == head.at == max(row.at for row in rows)
    assert tables.store.heads(99) == []


def test_changes_contexts_and_labels(tables: Tables) -> None:
    store = tables.store
    for head in tables.heads:
        for after, until in parts(head):
            assert questions.changes(store, head.key, until, after) == tables.of(Change, head.key, after, until)
        contexts = [each for each in tables.contexts if each.experiment == head.key]
        for first in (0, 3):
            assert list(questions.contexts(store, head.key, first)) == contexts[first:]
        assert questions.labels(store, head.key) == [each.label or f"erased-{each.number}" for each in contexts]


def test_events_of_any_experiments(tables: Tables) -> None:
    store, decided = tables.store, tables.events[Decided]
    sources = questions.sources(store)
    assert sources == sorted({source for d in decided for source in source_of(d)}) == ["Zo", "history", "incumbent"]
    everything = sorted(row.event for kind in EVENTS for row in tables.events[kind])
    rng = random.Random(1)
    some = [tuple(sorted(rng.sample(everything, 2))) for _ in range(6)]
    if is_postgres():  # where a pass is of one experiment
        some = [(head.key << 36 | a, head.key << 36 | b) for head in tables.heads for a, b in ((1, 30), (20, 40))]
    for low, high in some:

        def among(kind: Any, low: int = low, high: int = high) -> list[Any]:
            return [row for row in tables.events[kind] if low <= row.event <= high]

        def place(row: Any, low: int = low) -> tuple[int, int, int]:
            return row.event - low, row.experiment, row.position

        found = questions.columns(store, low, high, sources, slates=True)
        settlements = sorted([*among(Settled), *among(SlateSettled)], key=lambda r: r.event)
        assert found.decided.tolist() == [
            [*place(d), d.context, d.arm, d.propensity, origin(sources, d), d.at, d.deferred, d.state_version]
            for d in among(Decided)
        ]
        assert found.activated.tolist() == [[*place(a), a.decision - low, a.at] for a in among(Activated)]
        assert found.settled.tolist() == [
            [*place(r), r.decision - low, r.at, r.reward or 0.0, SOURCES.index(r.source)]
            if isinstance(r, Settled)
            else [*place(r), r.decision - low, r.at, 0.0, PARTLY if r.remaining else SOURCES.index(r.source)]
            for r in settlements
        ]
        assert questions.columns(store, low, high, sources, slates=False).settled.tolist() == [
            row for row, r in zip(found.settled.tolist(), settlements, strict=True) if isinstance(r, Settled)
        ]
        earlier = [(a, tables.decision(a)) for a in among(Activated) if a.decision < low]
        assert found.activated_earlier.tolist() == [
            [a.event - low, d.context, d.arm, d.propensity, origin(sources, d), d.position] for a, d in earlier
        ]
        earlier = [(r, tables.decision(r)) for r in settlements if r.decision < low]
        assert found.settled_earlier.tolist() == [
            [
                *(r.event - low, d.context, d.arm, d.propensity, origin(sources, d), d.position),
                getattr(tables.one(Activated, d), "at", d.at),
            ]
            for r, d in earlier
        ]
        least: dict[int, int] = {}
        masks: dict[int, dict[int, bytes]] = {}
        for d in among(Decided):
            least[d.experiment] = min(least.get(d.experiment, d.state_version), d.state_version)
            if d.available is not None:
                masks.setdefault(d.experiment, {})[d.position] = d.available
        assert questions.least_state_versions(store, low, high) == least
        assert questions.masks(store, low, high) == masks
        full: dict[int, dict[int, Any]] = {}
        for r in among(Settled):
            if r.rewards is not None:
                full.setdefault(r.experiment, {})[r.position] = (tables.decision(r).probabilities, r.rewards)
        assert questions.full_rewards(store, low, high) == full
        slates: dict[int, dict[int, SlateEvent]] = {}
        for row in (*among(Decided), *among(Activated), *settlements):
            d = row if isinstance(row, Decided) else tables.decision(row)
            if d.slate is None:
                continue
            event = SlateEvent(slate := Slate.from_bytes(d.slate))
            if isinstance(row, SlateSettled):
                new = slate.without_rewards if row.rewards is None else np.frombuffer(row.rewards)
                event = SlateEvent(slate, new, by_slot(tables, d, row.position - 1))
            slates.setdefault(row.experiment, {})[row.position] = event
        of_slates = questions.slates(store, low, high)
        assert {key: {*each} for key, each in of_slates.items()} == {key: {*each} for key, each in slates.items()}
        assert all(same(of_slates[key][at], event) for key, each in slates.items() for at, event in each.items())
        rows = sorted((row for kind in EVENTS for row in among(kind)), key=lambda row: row.event)
        assert questions.places(store, low, high).tolist() == [[*place(row)] for row in rows]
        assert questions.moments(store, low, high).tolist() == [[r.experiment, r.position, r.at] for r in rows]
        for kind in EVENTS:
            copied = questions.copied(store, kind, low, high)
            decisions = {d.event: d.position for d in decided}
            assert copied == [(*row, decisions.get(getattr(row, "decision", 0), 0)) for row in among(kind)]
        assert questions.labeled_decisions(store, low, high) == [
            (
                d.position,
                d.id,
                d.experiment,
                d.context,
                d.state_version,
                d.policy_version,
                d.checksum,
                1,
                tables.label(d),
                *(d.decided_by, d.arm, d.propensity, d.features, d.bucket),
            )
            for d in among(Decided)
        ]


def test_counts(tables: Tables) -> None:
    store = tables.store
    for head in tables.heads:
        first = next((d for d in tables.of(Decided, head.key) if d.decided_by is None), None)
        assert questions.has_full_information(store, head.key) == (
            first is not None and first.probabilities is not None
        )
        for after, until in parts(head):
            earned = []
            paid = [*tables.of(Settled, head.key, after, until), *tables.of(SlateSettled, head.key, after, until)]
            for r in sorted(paid, key=lambda r: r.event):
                if r.source in ("client", "default"):
                    d = tables.decision(r)
                    for slot, arm in enumerate([] if d.decided_by else shown_arms(d)):
                        values = None if r.rewards is None else np.frombuffer(r.rewards)
                        of_slate = isinstance(r, SlateSettled)
                        reward = r.reward if values is None else values[slot if of_slate else arm]
                        earned += [] if np.isnan(reward) else [(arm, reward)]
            assert list(questions.earned(store, head.key, until, after)) == earned
            pulls: dict[int, int] = {}
            for d in tables.of(Decided, head.key, after, until):
                for arm in [] if d.decided_by else shown_arms(d):
                    pulls[arm] = pulls.get(arm, 0) + 1
            assert questions.pulls(store, head.key, until, after) == sorted(pulls.items())


def found(tables: Tables, d: Any) -> FoundDecision:
    a, r, late = (tables.one(kind, d) for kind in (Activated, Settled, Late))
    end = tables.end(d)
    if r is None and end is not None:
        r = Settled(end.event, end.experiment, end.position, end.decision, None, end.source, None, end.at)
    return FoundDecision(
        *(d.event, d.experiment, d.position, d.id, d.context, tables.label(d), d.arm, d.propensity),
        int(not d.deferred or a is not None),
        d.at if a is None else a.at,
        d.probabilities,
        int(r is not None),
        *((None,) * 3 if r is None else (r.reward, r.source, r.rewards)),
        int(late is not None),
        *(d.decided_by, d.features, d.bucket),
        None if d.slate is None else Slate.from_bytes(d.slate),
        np.full(len(shown_arms(d)), np.nan) if d.slate and d.probabilities else by_slot(tables, d, only="client"),
    )


def test_decisions_by_id(tables: Tables) -> None:
    ids = [d.id for d in tables.events[Decided]]
    for wanted in ([], ["nobody"], ids[::7], [*ids, *ids, "nobody"]):
        expected = [found(tables, d) for d in tables.events[Decided] if d.id in wanted]
        assert same(sorted(questions.find(tables.store, wanted)), sorted(expected))
    assert len(set(ids)) < len(ids), "some belong to several experiments"


def test_decisions_that_wait(tables: Tables) -> None:
    store = tables.store
    for head in tables.heads:
        opened = [d for d in tables.of(Decided, head.key) if tables.end(d) is None]
        for after, until in parts(head):
            low, high = store.span(head.key, after, until)
            since = [(d, tables.one(Activated, d) if d.deferred else None) for d in opened]
            expected = [
                OpenDecision(
                    *((e := a or d).event, e.at), int(not d.deferred or a is not None), e.position, d.event, *rest
                )
                for d, a in since
                for drawn in [(d.id, d.context, d.arm, d.propensity, d.probabilities, d.slate)]
                for rest in [(*drawn, d.decided_by, d.features, d.bucket, d.position)]
                if low <= (a or d).event <= high
            ]
            waiting = [OpenDecision(*row) for rows in questions.waiting(store, head.key, low, high) for row in rows]
            assert sorted(waiting) == sorted(expected)
            later = [d.id for d, a in since if max(d.position, a.position if a else 0) > after]
            assert questions.open_after(store, head.key, after) == later
            settled = []
            for d in tables.of(Decided, head.key, 0, after):
                a, r = tables.one(Activated, d), tables.one(Settled, d)
                active = not d.deferred or (a and a.position <= after)
                if r and after < r.position < until and active and d.decided_by is None:
                    settled.append((d.position, d.context, d.arm, d.propensity))
            assert questions.settled_between(store, head.key, after, until) == settled
            gone = []
            for d in tables.of(Decided, head.key, 0, after):
                a = tables.one(Activated, d)
                if not tables.settled(d) or (d.deferred and (a is None or a.position > after)):
                    continue
                ended = [s for s in tables.settled(d) if s.rewards is None]
                before, then = by_slot(tables, d, after), by_slot(tables, d, until - 1)
                open_before = np.isnan(before) & (not any(s.position <= after for s in ended))
                open_then = np.isnan(then) & (not any(s.position < until for s in ended))
                slots = np.flatnonzero(open_before & ~open_then).tolist()
                gone += [(d.position, d.context, slots)] if slots else []
            found_slates = questions.slates_settled_between(store, head.key, after, until)
            assert [(made, context, event.unpaid) for made, context, event in found_slates] == gone


def test_spans_have_their_positions(tables: Tables) -> None:
    for head in tables.heads:
        rows = {row.position: row.event for kind in EVENTS for row in tables.of(kind, head.key)}
        for after, until in parts(head):
            low, high = tables.store.span(head.key, after, until)
            assert all(low <= rows[position] <= high for position in range(after + 1, until + 1))
    positions = {head.key: (head.position // 3, head.position // 2) for head in tables.heads}
    spans = questions.stretches(tables.store, positions, 17)
    assert all(isinstance(span, Span) and 0 <= span.high - span.low < 17 for span in spans)
    assert all(one.high < other.low for one, other in itertools.pairwise(spans))
    for key, (after, until) in positions.items():
        for row in (row for kind in EVENTS for row in tables.of(kind, key, after, until)):
            assert any(low <= row.event <= high for low, high in spans)


def test_exports_and_the_log(tables: Tables) -> None:
    store = tables.store
    for head in tables.heads:
        decisions = tables.of(Decided, head.key)
        for after, until in parts(head):
            rows = []
            for d in tables.of(Decided, head.key, after, until):
                r = tables.one(Settled, d)
                r = None if r is None or r.position > until else r
                settled = (None,) * 3 if r is None else (r.reward, r.rewards, r.source)
                times = (d.at, *((None,) * 2 if r is None else (r.at, r.position)))
                label = tables.label(d) or f"erased-{d.context}"
                rows.append(
                    (
                        *(d.position, d.id, label, d.arm, d.propensity, *settled, *times),
                        *(d.policy_version, d.available, d.slate, d.event),
                    )
                )
            ended = {
                d.event: [
                    (
                        np.full(len(shown_arms(d)), np.nan) if s.rewards is None else np.frombuffer(s.rewards),
                        s.source,
                        s.at,
                        s.position,
                    )
                    for s in tables.settled(d, until)
                ]
                for d in tables.of(Decided, head.key, after, until)
                if tables.settled(d, until)
            }
            found_ends = questions.settlements(store, head.key, after, until, until)
            found_rows = {event: [tuple(each) for each in some] for event, some in sorted(found_ends.items())}
            assert same(found_rows, ended)
            assert questions.exported(store, head.key, after, until, 9) == rows[:9]
            assert questions.exported(store, head.key, after, until, 10**6) == rows
        shown = [log_row(tables, d) for d in decisions]
        for d, row in zip(decisions, shown, strict=True):
            assert same(questions.log_row(store, head.key, d.id), row)
        for state in (None, "pending", "deferred", *SOURCES):
            for context, arm in ((None, None), (1, None), (None, 1)):
                wanted = [
                    row
                    for row in shown
                    if (state is None or state_of(row) == state)
                    and (context is None or row.context == context)
                    and (arm is None or arm in (row.slate.arms if row.slate else [row.arm]))
                    and 5 < row.position <= head.position - 5
                ]
                search = LogSearch(5, head.position - 5, 8, context, arm, state)
                assert same(questions.log_rows(store, head.key, search), wanted[::-1][:8])
        for position in range(0, head.position + 1, 7):
            before = [d.at for d in decisions if d.position <= position]
            assert questions.decision_time(store, head.key, position) == (before[-1] if before else None)
        rewarded: list[Any] = []
        of_others: dict[str, list[Any]] = {}
        for d in decisions:
            r = tables.one(Settled, d)
            slots = by_slot(tables, d)
            if (r and (r.reward is not None or r.rewards is not None)) or any(s.rewards for s in tables.settled(d)):
                rewards = (None, slots) if r is None else (r.reward, r.rewards)
                of_decision = (
                    d.propensity,
                    d.at,
                    d.policy_version,
                    d.available,
                    d.features,
                    d.bucket,
                    d.slate,
                    d.event,
                )
                mine = rewarded if d.decided_by is None else of_others.setdefault(d.decided_by, [])
                mine.append((d.context, d.arm, *rewards, *of_decision))
        assert same(questions.rewarded(store, head.key), rewarded)
        assert same(questions.rewarded(store, head.key, 5), rewarded[-5:])
        for source in ("nobody", *of_others):
            assert same(questions.rewarded(store, head.key, source=source), of_others.get(source, []))
        for after, until in parts(head):
            made_by = {
                d.position: (d.decided_by, d.bucket)
                for d in tables.of(Decided, head.key, after, until)
                if d.decided_by is not None or d.bucket is not None
            }
            assert questions.decided_by(store, head.key, after, until) == made_by


def log_row(tables: Tables, d: Any) -> FoundRow:
    a, r, late = (tables.one(kind, d) for kind in (Activated, Settled, Late))
    slots = np.full(len(shown_arms(d)), np.nan) if d.slate and d.probabilities else by_slot(tables, d)
    if r is None and (end := tables.end(d)) is not None:
        r = Settled(end.event, end.experiment, end.position, end.decision, None, end.source, None, end.at)
    return FoundRow(
        *(d.position, d.id, d.at, d.context, tables.label(d) or f"erased-{d.context}", d.arm, d.propensity, d.deferred),
        None if a is None else a.at,
        *((None,) * 4 if r is None else (r.reward, r.rewards, r.source, r.at)),
        *(d.available, d.probabilities, d.state_version, d.policy_version),
        *((None,) * 3 if late is None else (late.reward, late.rewards, late.at)),
        *(d.decided_by, d.features, d.bucket),
        None if d.slate is None else Slate.from_bytes(d.slate),
        slots,
    )


def state_of(row: FoundRow) -> str:
    if row.source is not None:
        return row.source
    return "deferred" if row.deferred and row.activated_at is None else "pending"


def test_saved_states(tables: Tables) -> None:
    store, saved = tables.store, {}
    for key, position, tally, state, summary in rows_of(
        store, "select experiment, position, tally, state, summary from snapshot"
    ):
        saved[key, position] = (tally, bytes(state), summary)
    assert not rows_of(store, "select * from snapshot_piece")
    assert saved
    for head in tables.heads:
        for change in tables.of(Change, head.key):
            if change.kind in ("rollback", "upgrade"):
                body = json.loads(change.body)
                saved[head.key, change.position] = (body["tally"], bytes(change.state), body["summary"])
        mine = sorted((position for key, position in saved if key == head.key), reverse=True)
        states = list(questions.states(store, head.key, head.position))
        assert [each.position for each in states] == mine
        for each in states:
            tally, blob, n = saved[head.key, each.position]
            assert (each.tally, bytes(each.state), bytes(each.summary or b"")) == (tally, blob[:-n], blob[-n:])
        positions = questions.snapshot_positions(store, head.key)
        changed = {change.position for change in tables.of(Change, head.key) if change.kind in ("rollback", "upgrade")}
        assert positions == sorted({*mine} - changed)
        for position in positions:
            tally, blob, n = saved[head.key, position]
            assert bytes(questions.snapshot_state(store, head.key, position)) == blob[:-n]


def test_nothing_is_wrong(tables: Tables) -> None:
    store = tables.store
    assert questions.n_events(store) == {head.key: head.position for head in tables.heads}
    assert questions.event_outside(store) is None
    assert questions.context_outside(store) is None
    assert questions.without_decision(store) is None
    assert questions.unknown_source(store) is None
    assert questions.out_of_order(store) is None
    erased = [change for change in tables.events[Change] if change.kind == "erase"]
    assert erased
    assert questions.n_erasures(store) in (0, len(erased))
    for head in tables.heads:
        low, high = store.span(head.key, 0, head.position)
        rows = {row.position: row.event for kind in EVENTS for row in tables.of(kind, head.key)}
        marks = [(p // 256, e) for p, e in sorted(rows.items()) if p == 1 or p % 256 == 0]
        assert questions.marks(store, head.key, low, high) == (None if is_postgres() else marks)
