"""Whether a file and the state in memory are what the event log leads to.

`check_rows` proves that rows belong together: every position has one event, every event its decision or experiment, and
every decision the context, label and id that it was made with. `check_states` repeats the log and compares every
propensity, snapshot and state, and the books of every closed period.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final

from alphafair.engine.experiment import CODE, Experiment
from alphafair.engine.ledger import SOURCES, Change, Ledger
from alphafair.engine.replay import ACCOUNTS, Replay, compare_books, compare_state, without_decision
from alphafair.errors import Mismatch, PolicyFailed, RequestError

STRETCH: Final = 1 << 20  # positions checked together


def checksum(experiment: int, context: int, label: str, id: str) -> int:
    """Return what ties a decision to its context, label and id; labels and ids have no control characters."""
    return zlib.crc32(f"{experiment}\0{context}\0{label}\0{id}".encode())


def check_rows(store: Ledger, in_memory: Mapping[int, Mapping[str, int]] | None = None) -> None:
    """Raise `Mismatch` for the first rows that do not belong together, or labels that differ in memory.

    `in_memory` has the number of every label, by experiment.
    """
    last = store.position
    _check_positions(store, last)
    changes = store.changes(last)
    created = {
        change.experiment: json.loads(change.body)["name"]
        for change in changes
        if change.kind == "create" and change.seq == _first_of(store, change.experiment)
    }
    in_file = _check_contexts(store, created, changes)
    _check_decisions(store, created, changes)
    _check_order(store)
    if in_memory is not None:
        for key, name in created.items():
            _check_memory(name, in_file[key], in_memory.get(key, {}))


def _first_of(store: Ledger, key: int) -> int:
    """Return the position of the change that creates an experiment."""
    return key if store.key is None else 1


def _check_positions(store: Ledger, last: int) -> None:
    """Every position up to the last has one event, and there are no others."""
    for start in range(0, last, STRETCH):
        found = store.events_per_position(start, min(start + STRETCH, last))
        for wrong in (found != 1).nonzero()[0][:1].tolist():
            n_events = f"{found[wrong]} events" if found[wrong] else "no event"
            raise Mismatch(f"position {start + wrong + 1} has {n_events} in the log.")
    if (outside := store.event_outside(last)) is not None:
        table, seq = outside
        raise Mismatch(f"{table} {seq} is outside of the positions 1 to {last}.")


def _check_contexts(store: Ledger, created: Mapping[int, str], changes: list[Change]) -> dict[int, dict[str, int]]:
    """Contexts are numbered without gaps, and have a label unless erased. Return the number of every label."""
    erased = {(c.experiment, json.loads(c.body)["context"]): c.seq for c in changes if c.kind == "erase"}
    in_file: dict[int, dict[str, int]] = {key: {} for key in created}
    n_contexts = dict.fromkeys(created, 0)
    for key, found, label in store.contexts():
        if key not in created:
            raise Mismatch(f"context {found} belongs to experiment {key}, which was not created.")
        number = n_contexts[key]
        if found != number:
            raise Mismatch(f"{created[key]}: context {number} has no row.")
        n_contexts[key] += 1
        if (label is None) != ((key, number) in erased):
            how = "was not erased, but has no label"
            if label is not None:
                how = f"was erased at position {erased[key, number]}, but has a label"
            raise Mismatch(f"{created[key]}: context {number} {how}.")
        if label is not None:
            in_file[key][label] = number
    for change in changes:
        key = change.experiment
        if change.kind == "create" and key in created and n_contexts[key] < json.loads(change.body)["n_contexts"]:
            raise Mismatch(f"{created[key]}: context {n_contexts[key]} has no row.")
    return in_file


def _check_decisions(store: Ledger, created: Mapping[int, str], changes: list[Change]) -> None:
    """A decision has a context with a row, and the label and id that it was made with."""
    versions: dict[int, list[int]] = {key: [] for key in created}
    for change in changes:
        versions.setdefault(change.experiment, []).append(change.seq)
    have_checksums = False
    for seq, id, key, context, state_version, policy_version, found, has_row, label in store.labelled_decisions():
        if key not in created or _first_of(store, key) >= seq:
            raise Mismatch(f"decision {seq} ({id!r}) belongs to experiment {key}, which was not created before it.")
        which = f"{created[key]}: decision {seq} ({id!r})"
        if not has_row:
            raise Mismatch(f"{which} belongs to context {context}, which has no row.")
        if label is None:
            if found is not None or not id.startswith("erased-"):
                raise Mismatch(f"{which} belongs to context {context}, which was erased, but has an id or a checksum.")
        elif found is not None:
            have_checksums = True
            if found != checksum(key, context, label, id):
                raise Mismatch(f"{which} was not made for context {context}, which is {label!r}, or not under this id.")
        elif have_checksums:  # only decisions before the first checksum were made by an older version
            raise Mismatch(f"{which} has no checksum.")
        if not _first_of(store, key) <= state_version < seq:
            raise Mismatch(f"{which} was drawn at position {state_version}, which is not before it.")
        last = versions[key][bisect_right(versions[key], state_version) - 1]
        if policy_version != last:
            raise Mismatch(f"{which} was drawn under version {policy_version}; the last change before it was {last}.")


def _check_order(store: Ledger) -> None:
    """Activations, rewards and late rewards follow a decision that could have them."""
    if (orphan := store.without_decision()) is not None:
        raise without_decision(*orphan)
    if (unknown := store.unknown_source()) is not None:
        seq, source = unknown
        raise Mismatch(f"reward {seq} has the source {source!r}, which is none of {', '.join(SOURCES)}.")
    if (description := store.out_of_order()) is not None:
        raise Mismatch(f"{description}.")


def _check_books(store: Ledger, changes: list[Change]) -> None:
    """The books of every closed period have the rewards and draws in the log; boundaries are those of the calendar."""
    periodic = {change.experiment for change in changes if change.kind == "new_period"}
    created = [change for change in changes if change.kind == "create" and change.experiment in periodic]
    experiments = {change.experiment: Experiment(change) for change in created}
    counted = dict.fromkeys(periodic, 0)
    for change in changes:
        if change.kind == "create" or change.experiment not in periodic:
            continue
        experiment = experiments[change.experiment]
        if change.kind == "new_period":
            for arm, reward in store.earned(experiment.key, change.seq, after=counted[experiment.key]):
                experiment.tally.earned[arm] += reward
            for arm, n_decisions in store.pulls(experiment.key, change.seq, after=counted[experiment.key]):
                experiment.tally.pulls[arm] += n_decisions
            counted[experiment.key] = change.seq
            body, due = json.loads(change.body), experiment.next_boundary
            by_calendar = due is not None and due <= body["at"]
            expected = experiment.period_change(*((change.at,) if by_calendar else (body["at"], body["carry"])))
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
    store: Ledger,
    position: int,
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
    replay = Replay(store, position, check=True).from_upgrades()
    repeated, unproved = replay.run(progress or (lambda events: None)), list[PolicyFailed]()
    _check_books(store, replay.changes)
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
