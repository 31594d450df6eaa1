"""Whether a file and the state in memory are what the event log leads to.

`check_store` and `check_rows` prove that rows belong together: every position of an experiment has one event, every
event its decision and experiment, and every decision the context, label and id that it was made with. `check_states`
repeats the log and compares every propensity, snapshot and state, and the books of every closed period.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from alphafair.engine.state.experiment import CODE, Experiment
from alphafair.engine.state.replay import ACCOUNTS, Replay, compare_books, compare_state, without_decision
from alphafair.engine.state.settings import TERMS, Settings
from alphafair.engine.state.sides import N_BUCKETS, place_of
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import MARKED, SOURCES, Change, Head, Store
from alphafair.errors import Mismatch, PolicyFailed, RequestError

STRETCH: Final = 1 << 20  # events checked together
PAGE: Final = 50_000  # events whose decisions are read together


def checksum(
    experiment: int,
    context: int,
    label: str,
    id: str,
    features: bytes | None = None,
    bucket: int | None = None,
    unit: str | None = None,
) -> int:
    """Return what ties a decision to its context, label, id and features; labels and ids have no control characters.

    With a bucket also to this, and to whether its unit was another one than the label, which is not stored.
    """
    told = f"{experiment}\0{context}\0{label}\0{id}"
    if bucket is not None:
        told += f"\0{bucket}\0{int(unit is not None)}"
    return zlib.crc32(told.encode() + (b"" if features is None else b"\0" + features))


def checksum_of_others(
    experiment: int,
    context: int,
    label: str,
    id: str,
    source: str,
    arm: int,
    propensity: float,
    features: bytes | None,
    bucket: int | None,
) -> int:
    """Return what ties the decision of another source to all that was told: it is not drawn again from a state."""
    told = f"{experiment}\0{context}\0{label}\0{id}\0{source}\0{arm}\0{propensity!r}\0{bucket}\0".encode()
    return zlib.crc32(told + (features or b""))


def check_rows(store: Store, keys: Collection[int], in_memory: Mapping[int, Mapping[str, int]] | None = None) -> None:
    """Raise `Mismatch` for the first rows of some experiments that do not belong together.

    `in_memory` has the number of every label that memory has, by experiment.
    """
    heads = {head.key: head for head in store.heads() if head.key in keys}
    _check_positions(store, heads)
    changes = {key: questions.changes(store, key, head.position) for key, head in heads.items()}
    for key, head in heads.items():
        created = changes[key][0] if changes[key] else None
        if created is None or (created.position, created.kind) != (1, "create"):
            raise Mismatch(f"{head.name}: position 1 does not create it.")
        if json.loads(created.body)["name"] != head.name:
            raise Mismatch(f"{head.name}: it was created under another name.")
        if questions.time_of(store, key, head.position) != head.at:
            raise Mismatch(f"{head.name}: position {head.position}, the last, has another time.")
    names = {key: head.name for key, head in heads.items()}
    in_file = {key: _check_contexts(store, key, name, changes[key]) for key, name in names.items()}
    _check_decisions(store, heads, changes)
    if in_memory is not None:
        for key, name in names.items():
            _check_memory(name, in_file[key], in_memory.get(key, {}))


def check_store(store: Store) -> None:
    """Raise `Mismatch` for the first row of no experiment, or one that does not follow from those before it."""
    heads = {head.key: head for head in store.heads()}
    if (outside := questions.event_outside(store)) is not None:
        table, key, position = outside
        whose = f"experiment {key}, which was not created"
        if key in heads:
            whose = f"{heads[key].name}, which ends at position {heads[key].position}"
        raise Mismatch(f"{table} {position} belongs to {whose}.")
    if (context := questions.context_outside(store)) is not None:
        number, key = context
        raise Mismatch(f"context {number} belongs to experiment {key}, which was not created.")
    counted = questions.n_events(store)
    for head in heads.values():
        if counted.get(head.key, 0) != head.position:
            n_events = counted.get(head.key, 0)
            raise Mismatch(f"{head.name} has {n_events} events in the log, but {head.position} positions.")
    if (orphan := questions.without_decision(store)) is not None:
        table, key, position = orphan
        raise without_decision(table, heads[key].name, position)
    if (unknown := questions.unknown_source(store)) is not None:
        table, key, position, source = unknown
        which = f"{heads[key].name}: {table} {position} has the source {source!r}"
        raise Mismatch(f"{which}, which is none of {', '.join(SOURCES)}.")
    if (found := questions.out_of_order(store)) is not None:
        table, key, position, decision, why = found
        raise Mismatch(f"{heads[key].name}: {table} {position} belongs to decision {decision}, {why}.")


def _check_positions(store: Store, heads: Mapping[int, Head]) -> None:
    """The events of every experiment are in the order of its positions, and each position has one event."""
    reached = dict.fromkeys(heads, 0)
    positions = {key: (0, head.position) for key, head in heads.items()}
    for low, high in questions.stretches(store, positions, STRETCH):
        rows = questions.places(store, low, high)
        twice = (np.diff(rows[:, 0]) == 0).nonzero()[0]
        for _, key, position in rows[twice][:1].tolist():
            name = heads[key].name if key in heads else f"experiment {key}"
            raise Mismatch(f"{name}: position {position} has 2 events in the log.")
        for key in np.unique(rows[:, 1]).tolist():
            if key not in heads:
                continue
            mine = rows[rows[:, 1] == key]
            expected = np.arange(reached[key] + 1, reached[key] + 1 + len(mine))
            for number in (mine[:, 2] != expected).nonzero()[0][:1].tolist():
                raise Mismatch(f"{heads[key].name}: position {expected[number]} has no event in the log.")
            reached[key] += len(mine)
            marks = questions.marks(store, key, low, high)
            if marks is not None:
                marked = (mine[:, 2] % MARKED == 0) | (mine[:, 2] == 1)
                if marks != [(position // MARKED, low + event) for event, _, position in mine[marked].tolist()]:
                    raise Mismatch(f"{heads[key].name}: its marks are not those of its positions.")
    for key, head in heads.items():
        if reached[key] < head.position:
            raise Mismatch(f"{head.name}: position {reached[key] + 1} has no event in the log.")
        if reached[key] > head.position:
            raise Mismatch(f"{head.name}: position {head.position + 1} is after the last.")


def _check_contexts(store: Store, key: int, name: str, changes: list[Change]) -> dict[str, int]:
    """Contexts are numbered without gaps, and have a label unless erased. Return the number of every label."""
    erased = {json.loads(change.body)["context"]: change.position for change in changes if change.kind == "erase"}
    in_file: dict[str, int] = {}
    n_contexts = 0
    for _, found, label in questions.contexts(store, key):
        number = n_contexts
        if found != number:
            raise Mismatch(f"{name}: context {number} has no row.")
        n_contexts += 1
        if (label is None) != (number in erased):
            how = "was not erased, but has no label"
            if label is not None:
                how = f"was erased at position {erased[number]}, but has a label"
            raise Mismatch(f"{name}: context {number} {how}.")
        if label is not None:
            in_file[label] = number
    if n_contexts < json.loads(changes[0].body)["n_contexts"]:
        raise Mismatch(f"{name}: context {n_contexts} has no row.")
    return in_file


def _check_decisions(store: Store, heads: Mapping[int, Head], changes: Mapping[int, list[Change]]) -> None:
    """A decision has a context with a row, and the label and id that it was made with."""
    versions = {key: [change.position for change in found] for key, found in changes.items()}
    terms = {key: _settings_at(found) for key, found in changes.items()}
    positions = {key: (0, head.position) for key, head in heads.items()}
    have_checksums = False
    found = (
        row
        for span in questions.stretches(store, positions, PAGE)
        for row in questions.labeled_decisions(store, *span)
        if row[2] in heads
    )
    for position, id, key, context, state_version, policy_version, tie, has_row, label, source, *told in found:
        which = f"{heads[key].name}: decision {position} ({id!r})"
        if not has_row:
            raise Mismatch(f"{which} belongs to context {context}, which has no row.")
        if label is None:
            if tie is not None or not id.startswith("erased-"):
                raise Mismatch(f"{which} belongs to context {context}, which was erased, but has an id or a checksum.")
        elif tie is not None:
            have_checksums = True
            if source is not None and tie != checksum_of_others(key, context, label, id, source, *told):
                raise Mismatch(f"{which} of {source!r} is not what was told, or not of context {context}, {label!r}.")
            features, bucket = told[2:]
            if source is None and tie not in (
                checksum(key, context, label, id, features, bucket, unit) for unit in (None, "")
            ):
                made = "under this id" if features is None else "under this id and with these features"
                raise Mismatch(f"{which} was not made for context {context}, which is {label!r}, or not {made}.")
        elif have_checksums:  # only decisions before the first checksum were made by an older version
            raise Mismatch(f"{which} has no checksum.")
        if told[-1] is not None and not 0 <= told[-1] < N_BUCKETS:
            raise Mismatch(f"{which} has bucket {told[-1]}, which is none of {N_BUCKETS}.")
        if source is None:
            settings = terms[key][max(0, bisect_right(versions[key], policy_version) - 1)]
            of_label = label is not None and tie == checksum(key, context, label, id, *told[2:])
            _check_side(which, settings, label if of_label else None, told[-1])
        if not 1 <= state_version < position:
            raise Mismatch(f"{which} was drawn at position {state_version}, which is not before it.")
        last = versions[key][bisect_right(versions[key], state_version) - 1]
        if policy_version != last:
            raise Mismatch(f"{which} was drawn under version {policy_version}; the last change before it was {last}.")


def _settings_at(changes: list[Change]) -> list[Settings]:
    """Return the settings after every change."""
    created, *later = changes
    settings = [Settings.from_json(created.body)]
    for change in later:
        new = json.loads(change.body)["set"] if change.kind == "terms" else {}
        settings.append(replace(settings[-1], **{name: new[name] for name in new if name in TERMS}))
    return settings


def _check_side(which: str, settings: Settings, unit: str | None, bucket: int | None) -> None:
    """A decision of the policy was made in a mode and for a unit that are the policy's, as far as the unit is known."""
    if settings.mode == "watch":
        raise Mismatch(f"{which} is the policy's, but in mode 'watch' the incumbent decides.")
    if bucket is None or unit is None:
        if bucket is None and settings.mode == "share":
            raise Mismatch(f"{which} has no bucket, but was made in mode 'share'.")
        return
    place = place_of(unit, settings.salt or settings.name)
    if place.bucket != bucket:
        raise Mismatch(f"{which} has bucket {bucket}, but its unit {unit!r} has {place.bucket}.")
    if not settings.is_ours(place.u):
        raise Mismatch(f"{which} is the policy's, but a share of {settings.share} leaves {unit!r} to the incumbent.")


def _check_books(store: Store, changes: list[Change]) -> None:
    """The books of every closed period have the rewards and draws in the log; boundaries are those of the calendar."""
    if not any(change.kind == "new_period" for change in changes):
        return
    created, *later = changes
    experiment, counted = Experiment(created), 0
    for change in later:
        if change.kind == "new_period":
            for arm, reward in questions.earned(store, experiment.key, change.position, after=counted):
                experiment.tally.earned[arm] += reward
            for arm, n_decisions in questions.pulls(store, experiment.key, change.position, after=counted):
                experiment.tally.pulls[arm] += n_decisions
            counted = change.position
            body, due = json.loads(change.body), experiment.periods.next_boundary
            by_calendar = due is not None and due <= body["at"]
            moment = (change.at,) if by_calendar else (body["at"], body["carry"])
            expected = experiment.periods.new_period(experiment, *moment)
            books = {name: value for name, value in expected.pop("books").items() if name not in ACCOUNTS}
            compare_books(experiment, change, {**expected, **books})
        experiment.note(change)


def _check_memory(name: str, in_file: Mapping[str, int], in_memory: Mapping[str, int]) -> None:
    for label, number in sorted(in_memory.items() - in_file.items()):
        there = f"{in_file[label]} in the log" if label in in_file else "has no row"
        raise Mismatch(f"{name}: {label!r} is context {number} in memory, but {there}.")
    for label, number in sorted(in_file.items() - in_memory.items()):
        raise Mismatch(f"{name}: {label!r} is context {number} in the log, but unknown in memory.")


def check_states(
    store: Store,
    experiments: Mapping[int, Experiment],
    progress: Callable[[int], None] | None = None,
) -> None:
    """Repeat the log and compare every propensity, every snapshot, and the experiments in memory, bit by bit.

    Raises `Mismatch` at the first difference, and `PolicyFailed` for an experiment whose policy cannot repeat its log,
    after everything else was proved.
    """
    for experiment in experiments.values():
        if experiment.code != CODE and experiment.has_policy:
            repair = "Open it for writing once, which records the upgrade, or verify with the older version."
            raise RequestError("other_code", "experiment", "written by this version", experiment.name, repair)
    until = {key: experiment.position for key, experiment in experiments.items()}
    replay = Replay(store, until, check=True).from_upgrades()
    repeated, unproved = replay.run(progress or (lambda events: None)), list[PolicyFailed]()
    for changes in replay.changes.values():
        _check_books(store, changes)
    for key, experiment in experiments.items():
        again = repeated[key]
        again.tally.settled_to = experiment.tally.settled_to
        counted, expected = experiment.tally.to_dict(), again.tally.to_dict()
        if counted != expected:
            raise Mismatch(f"{experiment.name}: counted {counted}, but the log leads to {expected}.")
        if not experiment.summary.same_counts(again.summary):
            raise Mismatch(f"{experiment.name}: its summary over time is not what the log leads to.")
        if key not in replay.unproved and experiment.has_policy and again.has_policy:
            compare_state(again, experiment.policy.snapshot(), "the state in memory")
        else:
            reason = experiment.unhealthy or again.unhealthy or "it failed while its log was repeated"
            unproved.append(PolicyFailed(experiment.name, reason))
    if unproved:
        raise unproved[0]
