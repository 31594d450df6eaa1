"""Copies from one kind of store to the other: the same events, ids, positions and keys.

Only the numbers of rows differ: in a database they follow from the positions, in a file from the order of times over
all experiments. Snapshots are not copied but taken anew, after the copy was verified.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.addresses import Address, is_url, keys_of, open_store, shown, with_schema
from alphafair.engine.backup import copy_database, new_database, temporary_copy
from alphafair.engine.engine import Engine
from alphafair.engine.state.experiment import LOG
from alphafair.engine.store import questions
from alphafair.engine.store.ledger import EVENTS, MARKED, Context, Part, Span, Store
from alphafair.engine.store.sqlite import needs_migration
from alphafair.errors import InvalidArgument, PolicyFailed

CHUNK: Final = 20_000  # events read, and written, at a time
MOST_KEYS: Final = 1 << 27  # keys of a database are smaller


def copy(source: Address, target: Address, *, keep_keys: bool = True) -> int:
    """Copy a file or database, which may be in use, to a new one; return its number of events.

    The copy is verified before it gets its name, and nothing is left of one that fails.
    """
    if is_url(target):
        return _copy_to_database(source, str(target), keep_keys)

    def proved(part: Path) -> None:
        prove(part, keep_keys=keep_keys)

    def fill(part: Path) -> None:
        with _opened(source) as store, contextlib.closing(open_store(part)) as made:
            _fill(store, made)
        _copy_keys(source, part)

    if is_url(source):
        return new_database(target, fill, proved, shown(source))
    return copy_database(source, target, proved)


def backup(source: Address, path: str | os.PathLike[str]) -> int:
    """Copy a file or database, which may be in use, into a new file, with its keys; return its number of events."""
    if is_url(path):
        repair = "Use `copy` for a copy in another database."
        raise InvalidArgument("path", "the path of a file", shown(path), repair)
    return copy(source, path) if is_url(source) else copy_database(source, path)


def restore(backup: Address, target: Address, *, keep_keys: bool = False) -> int:
    """Make a new file or database from a backup; return its number of events.

    The copy is migrated where the backup is of an older version, and verified before it takes its name. Keys of the
    service are removed unless `keep_keys` is true: some may have been revoked since the backup.
    """
    return copy(backup, target, keep_keys=keep_keys)


@contextlib.contextmanager
def for_verification(address: Address) -> Iterator[tuple[Engine, bool]]:
    """Open a file or database, which may be in use, to verify it; also return whether it is a migrated copy.

    A file of an older version is left as it is: a copy beside it is migrated, and removed at the end.
    """
    if is_url(address) or not needs_migration(Path(address)):
        with Engine.open(address, read_only=True) as engine:
            yield engine, False
    else:
        with temporary_copy(Path(address)) as part, Engine.open(part, create=False) as engine:
            yield engine, True


def prove(address: Address, *, keep_keys: bool) -> int:
    """Verify a copy, remove keys that are not to be kept, and save snapshots; return the number of events."""
    with Engine.open(address, create=False) as engine:
        if not keep_keys:
            with contextlib.closing(keys_of(address)) as keys:
                keys.clear()
        try:
            engine.verify()
        except PolicyFailed as failed:  # everything else was proved
            LOG.warning("%s cannot be verified. %s", failed.value, failed)
        for each in engine.writers.all():
            for experiment in each.memory.by_key.values():
                if not questions.snapshot_positions(each.store, experiment.key):
                    experiment.unsaved = max(1, experiment.unsaved)
        return engine.position


def _copy_to_database(source: Address, target: str, keep_keys: bool) -> int:
    """Fill a schema of another name, and rename it when it was verified."""
    from alphafair.engine.store.postgres import PostgresStore, check_unused

    with _opened(source) as store:
        schema = check_unused(target)
        part = with_schema(target, f"{schema[:40]}_copy_{secrets.token_hex(6)}")
        made = PostgresStore(part)
        try:
            _fill(store, made)
            _copy_keys(source, part)
            n_events = prove(part, keep_keys=keep_keys)
            made.take_name(schema)
        except BaseException:
            with contextlib.suppress(OSError):
                made.drop()
            raise
        finally:
            made.close()
    return n_events


def _copy_keys(source: Address, target: Address) -> None:
    with contextlib.closing(keys_of(source)) as old, contextlib.closing(keys_of(target)) as new:
        for key in old.all():
            new.add(key)


def _opened(source: Address) -> contextlib.closing[Store]:
    return contextlib.closing(open_store(source, read_only=True))


def _fill(store: Store, target: Store) -> None:
    """Write all events of a store into an empty one, table by table."""
    with store.at_one_moment():
        heads = {head.key: head for head in store.heads()}
        together = target.opened.together
        for key in [] if together else heads:
            if key >= MOST_KEYS:
                allowed = f"with experiments whose keys are below {MOST_KEYS:,}"
                raise InvalidArgument("source", allowed, key, "Copy it to a file: a database has no larger keys.")
        spans = questions.stretches(store, {key: (0, head.position) for key, head in heads.items()}, CHUNK)
        events = _events(store, spans) if together else {}
        numbers = target.numbers()

        def event(key: int, position: int) -> int:
            return int(events[key][position - 1]) if together else numbers.next(key, position)

        for key, head in heads.items():
            part = Part(head._replace(position=0), numbers, head.at)
            part.position = head.position
            part.rows[Context] = list(questions.contexts(store, key))
            marked = [1, *range(MARKED, head.position + 1, MARKED)]
            part.marks = [(position // MARKED, event(key, position)) for position in marked]
            target.commit([part])
        for kind in EVENTS:
            for low, high in spans:
                parts: dict[int, Part] = {}
                for (_, key, position, *rest), decision in (
                    (row[:-1], row[-1]) for row in questions.copied(store, kind, low, high)
                ):
                    if decision:
                        rest[0] = event(key, decision)
                    part = parts.setdefault(key, Part(heads[key], numbers, heads[key].at))
                    part.rows[kind].append((event(key, position), key, position, *rest))
                for part in parts.values():
                    target.commit([part])


def _events(store: Store, spans: Sequence[Span]) -> dict[int, NDArray[np.int64]]:
    """Return the events of a file for the positions of every experiment: in the order of their times."""
    found = [questions.moments(store, *span) for span in spans] or [np.zeros((0, 3), dtype=np.int64)]
    rows = np.concatenate(found)
    for key in np.unique(rows[:, 0]):
        mine = rows[:, 0] == key
        rows[mine, 2] = np.maximum.accumulate(rows[mine, 2])
    events = np.empty(len(rows), dtype=np.int64)
    events[np.lexsort((rows[:, 1], rows[:, 0], rows[:, 2]))] = np.arange(1, len(rows) + 1)
    return {int(key): events[rows[:, 0] == key] for key in np.unique(rows[:, 0])}
