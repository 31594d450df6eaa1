"""Copies from one kind of store to the other: the same events, ids and keys, at the positions of the other store.

In a file all experiments share one order, in a database each has its own. So events are read in the order of their
times and numbered again, and everything that refers to a position is translated: the state that a decision was drawn
from, the version of its policy, the target of a rollback. Nothing is lost in either direction, because no event of an
experiment depends on those of another. Snapshots are not copied but taken anew, after the copy was verified.
"""

from __future__ import annotations

import contextlib
import heapq
import json
import os
import secrets
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

from alphafair.engine.addresses import Address, is_url, keys_of, open_store, shown, with_schema
from alphafair.engine.backup import copy_database, new_database, temporary_copy
from alphafair.engine.engine import Engine
from alphafair.engine.experiment import LOG
from alphafair.engine.ledger import EVENTS, Change, Context, Decided, Ledger, Store
from alphafair.engine.sqlite_store import needs_migration
from alphafair.engine.verify import checksum
from alphafair.errors import InvalidArgument, Mismatch, PolicyFailed

CHUNK: Final = 20_000  # events read, and written, at a time
FIELDS: Final = {kind: {name: k for k, name in enumerate(kind._fields)} for kind in EVENTS}


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
            engine._store.remove_keys()
        try:
            engine.verify()
        except PolicyFailed as failed:  # everything else was proved
            LOG.warning("%s cannot be verified. %s", failed.value, failed)
        for each in engine._all_writers():
            for experiment in each.memory.by_key.values():
                if not each.store.last_snapshot(experiment.key):
                    experiment.unsaved = max(1, experiment.unsaved)
        return engine.position


def _copy_to_database(source: Address, target: str, keep_keys: bool) -> int:
    """Fill a schema of another name, and rename it when it was verified."""
    from alphafair.engine.postgres_schema import check_unused
    from alphafair.engine.postgres_store import PostgresStore

    with _opened(source) as store:
        schema = check_unused(target)
        part = with_schema(target, f"{schema[:40]}_copy_{secrets.token_hex(6)}")
        made = PostgresStore(part)
        try:
            _fill(store, made)
            _copy_keys(source, part)
            n_events = prove(part, keep_keys=keep_keys)
            made.rename(schema)
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
    """Append all events of a store to an empty one."""
    with contextlib.ExitStack() as stack:
        if hasattr(store, "all_at_one_moment"):
            ledgers: list[Ledger] = stack.enter_context(store.all_at_one_moment())
        else:
            ledgers = [cast(Ledger, store)]
            stack.enter_context(ledgers[0].at_one_moment())
        Translation(ledgers, target).run()


class Translation:
    """Events of some ledgers, numbered again for the ledgers of another store."""

    def __init__(self, ledgers: list[Ledger], target: Store) -> None:
        self.ledgers, self.target = ledgers, target
        self.experiments: dict[int, Copied] = {}  # by their key in the source
        self.only = None if hasattr(target, "positions") else Writing(cast(Ledger, target))

    def run(self) -> None:
        in_order = heapq.merge(*(self._events(ledger) for ledger in self.ledgers), key=lambda each: each[:3])
        for _, _, seq, kind, (key, row) in in_order:
            if kind is Change and row[FIELDS[Change]["kind"]] == "create":
                self._create(key, row)
            self.experiments[key].add(seq, kind, row)
        for each in self.experiments.values():
            each.writing.flush()

    def _events(self, ledger: Ledger) -> Iterator[tuple[int, int, int, Any, Any]]:
        """Yield time, key of the ledger, seq, type and (experiment, row) of all events, in the order of the ledger."""
        owners: dict[int, int] = {}  # of decisions, where experiments share a ledger
        latest = 0
        for start in range(0, ledger.position, CHUNK):
            found = ledger.events(start, start + CHUNK)
            rows = sorted(((row[0], kind, row) for kind in EVENTS for row in found[kind]), key=lambda each: each[0])
            for seq, kind, row in rows:
                fields = FIELDS[kind]
                if ledger.key is not None:
                    key = ledger.key
                elif "experiment" in fields:
                    key = row[fields["experiment"]]
                else:
                    key = owners.get(row[fields["decision"]], 0)
                    if not key:
                        raise Mismatch(f"{ledger.path}: event {seq} belongs to no decision.")
                if kind is Decided and ledger.key is None:
                    owners[seq] = key
                latest = max(latest, row[fields["at"]])
                yield latest, ledger.key or 0, seq, kind, (key, row)

    def _create(self, key: int, row: Any) -> None:
        name = json.loads(row[FIELDS[Change]["body"]])["name"]
        source = next(each for each in self.ledgers if each.key in (None, key))
        writing = self.only or Writing(cast(Any, self.target).ledger(name))
        labels = {number: label for _, number, label in source.contexts(key)}
        self.experiments[key] = Copied(writing, labels)


class Writing:
    """Rows for one ledger of the target, appended some thousands at a time."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.written = self.last = 0
        self._clear()

    def _clear(self) -> None:
        self.rows: dict[type, list[Any]] = {kind: [] for kind in (*EVENTS, Context)}

    def next(self) -> int:
        if self.last - self.written >= CHUNK:
            self.flush()
        self.last += 1
        return self.last

    def flush(self) -> None:
        if self.last > self.written:
            self.ledger.append(self.written, self.last, self.rows)
            self.written = self.last
            self._clear()


class Copied:
    """One experiment: where its events were, and where they are in the copy."""

    def __init__(self, writing: Writing, labels: Mapping[int, str | None]) -> None:
        self.writing, self.labels = writing, labels
        self.key = 0
        self.before, self.after = array("q"), array("q")  # positions of its events in the source, and in the copy

    def translated(self, position: int) -> int:
        """Return where the last event up to a position of the source is in the copy."""
        return self.after[max(0, bisect_right(self.before, position) - 1)]

    def add(self, seq: int, kind: Any, row: Any) -> None:
        new = self.writing.next()
        if not self.before:
            own = self.writing.ledger.key
            self.key = new if own is None else own
            self.writing.rows[Context] += [(self.key, number, label) for number, label in self.labels.items()]
        self.before.append(seq)
        self.after.append(new)
        fields = dict(zip(kind._fields, row, strict=True))
        fields["seq"] = new
        if "experiment" in fields:
            fields["experiment"] = self.key
        if "decision" in fields:
            fields["decision"] = self.translated(fields["decision"])
        if kind is Decided:
            for name in ("state_version", "policy_version"):
                fields[name] = self.translated(fields[name])
            label = self.labels.get(fields["context"])
            if fields["checksum"] is not None and label is not None:
                fields["checksum"] = checksum(self.key, fields["context"], label, fields["id"])
        elif kind is Change and fields["kind"] in ("rollback", "upgrade"):
            fields["body"] = self._body(json.loads(fields["body"]))
        self.writing.rows[kind].append(tuple(fields.values()))

    def _body(self, body: dict[str, Any]) -> str:
        if "position" in body:
            body["position"] = self.translated(body["position"])
        tally = json.loads(body["tally"])
        tally["settled_to"] = self.translated(tally.get("settled_to", 0))
        return json.dumps({**body, "tally": json.dumps(tally)})
