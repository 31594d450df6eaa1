"""Whether the rows of a file belong together: every position has one event, every event a decision or an experiment.

Replaying proves what was drawn and learned. It speaks of numbers: that a decision's context, label and id belong
together is proved here, by a checksum that every decision carries.
"""

from __future__ import annotations

import json
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final

import numpy as np

from alphafair.engine.ledger import Ledger
from alphafair.errors import Mismatch

STRETCH: Final = 1 << 20  # positions looked at together
EVENTS: Final = ("change", "decision", "activation", "reward", "late_reward")  # tables whose rows have a position
SOURCES: Final = ("client", "default", "expired", "lapsed", "rollback")

DECISIONS = """select d.seq, d.id, d.experiment, d.context, d.state_version, d.policy_version, d.checksum,
    c.number is not null, c.label from decision d
    left join context c on c.experiment = d.experiment and c.number = d.context order by d.seq"""
BETWEEN = "select seq from {table} where seq > ? and seq <= ?"
OUTSIDE = "select seq from {table} where seq <= 0 or seq > ? limit 1"
OTHER_SOURCE = "select seq, source from reward where source not in (select value from json_each(?)) limit 1"
WITHOUT_DECISION = """select e.seq, e.decision from {table} e
    left join decision d on d.seq = e.decision and d.seq < e.seq where d.seq is null order by e.seq limit 1"""
OUT_OF_ORDER = {  # the first event of each kind that could not have been written then
    "activation {} is of decision {}, which was not deferred": """select a.seq, a.decision from activation a
        join decision d on d.seq = a.decision where not d.deferred order by a.seq limit 1""",
    "reward {} is of decision {}, which was not activated before it": """select r.seq, r.decision from reward r
        join decision d on d.seq = r.decision left join activation a on a.decision = d.seq and a.seq < r.seq
        where d.deferred and a.seq is null and r.source in ('client', 'default', 'expired') order by r.seq limit 1""",
    "late_reward {} is of decision {}, which was not closed before it": """select l.seq, l.decision from late_reward l
        left join reward r on r.decision = l.decision and r.seq < l.seq and r.source <> 'client'
        where r.seq is null order by l.seq limit 1""",
}


def checksum(experiment: int, context: int, label: str, id: str) -> int:
    """What ties a decision to its context's label and to its id; labels and ids have no control characters."""
    return zlib.crc32(f"{experiment}\0{context}\0{label}\0{id}".encode())


def check_rows(ledger: Ledger, in_memory: Mapping[int, Mapping[str, int]] | None = None) -> None:
    """Raise `Mismatch` with the first rows that do not belong together, or labels that are others in memory."""
    _check_positions(ledger)
    created = dict(
        ledger.rows("select seq, json_extract(body, '$.name') from change where kind = 'create' and seq = experiment")
    )
    _check_contexts(ledger, created)
    _check_decisions(ledger, created)
    _check_order(ledger)
    if in_memory is not None:
        for key, name in created.items():
            _check_memory(ledger, key, name, in_memory.get(key, {}))


def impossible_number(seq: int) -> Mismatch:
    return Mismatch(f"event {seq} has a context or arm that cannot be.")


def without_decision(table: str, seq: int, decision: int) -> Mismatch:
    return Mismatch(f"{table} {seq} is of {decision}, and there is no decision before it with that position.")


def _check_positions(ledger: Ledger) -> None:
    """Every position up to the last has one event, and there are no others."""
    last = ledger.position
    for start in range(0, last, STRETCH):
        end = min(start + STRETCH, last)
        found = np.zeros(end - start, dtype=np.int64)
        for table in EVENTS:
            seqs = ledger.numbers(BETWEEN.format(table=table), 1, (start, end))[:, 0]
            found += np.bincount(seqs.astype(np.int64) - start - 1, minlength=end - start)
        for wrong in np.flatnonzero(found != 1)[:1].tolist():
            n_events = f"{found[wrong]} events" if found[wrong] else "no event"
            raise Mismatch(f"position {start + wrong + 1} has {n_events} in the log.")
    for table in EVENTS:
        for (seq,) in ledger.rows(OUTSIDE.format(table=table), (last,)):
            raise Mismatch(f"{table} {seq} is at no position up to the last, {last}.")


def _check_contexts(ledger: Ledger, created: Mapping[int, str]) -> None:
    """The contexts of an experiment are numbered without gaps, and have labels unless they were erased."""
    erased = {
        (key, number): seq
        for seq, key, number in ledger.rows(
            "select seq, experiment, json_extract(body, '$.context') from change where kind = 'erase'"
        )
    }
    before, number = None, -1
    for key, found, label in ledger.each("select experiment, number, label from context order by experiment, number"):
        if key not in created:
            raise Mismatch(f"context {found} is of experiment {key}, which was not created.")
        number = number + 1 if key == before else 0
        if found != number:
            raise Mismatch(f"{created[key]}: context {number} has no row.")
        if (label is None) != ((key, number) in erased):
            how = "was not erased, and has no label"
            if label is not None:
                how = f"was erased at position {erased[key, number]}, and has a label"
            raise Mismatch(f"{created[key]}: context {number} {how}.")
        before = key
    count = "select count(*) from context where experiment = ?"
    for key, body in ledger.rows("select seq, body from change where kind = 'create'"):
        ((n_contexts,),) = ledger.rows(count, (key,))
        if n_contexts < json.loads(body)["n_contexts"]:
            raise Mismatch(f"{created[key]}: context {n_contexts} has no row.")


def _check_decisions(ledger: Ledger, created: Mapping[int, str]) -> None:
    """A decision is of a context that is there, with the label and the id that it was made with."""
    versions: dict[int, list[int]] = {key: [] for key in created}
    for key, seq in ledger.rows("select experiment, seq from change order by seq"):
        versions.setdefault(key, []).append(seq)
    have_checksums = False
    for seq, id, key, context, drawn_at, version, found, is_there, label in ledger.each(DECISIONS):
        if key not in created or key >= seq:
            raise Mismatch(f"decision {seq} ({id!r}) is of experiment {key}, which was not created before it.")
        which = f"{created[key]}: decision {seq} ({id!r})"
        if not is_there:
            raise Mismatch(f"{which} is of context {context}, which has no row.")
        if label is None:
            if found is not None or not id.startswith("erased-"):
                raise Mismatch(f"{which} is of context {context}, which was erased, and has an id or a checksum.")
        elif found is not None:
            have_checksums = True
            if found != checksum(key, context, label, id):
                raise Mismatch(
                    f"{which} was made for another context than {context}, which is {label!r}, or under another id."
                )
        elif have_checksums:  # those before it were made by an older version
            raise Mismatch(f"{which} has no checksum.")
        if not key <= drawn_at < seq:
            raise Mismatch(f"{which} was drawn at position {drawn_at}, which was not before it.")
        changes = versions[key]
        last = changes[bisect_right(changes, drawn_at) - 1]
        if version != last:
            raise Mismatch(f"{which} was drawn under version {version}; the last change before it was {last}.")


def _check_order(ledger: Ledger) -> None:
    """Rewards, late ones and activations are of decisions that were there, and could have them."""
    for table in ("activation", "reward", "late_reward"):
        for seq, decision in ledger.rows(WITHOUT_DECISION.format(table=table)):
            raise without_decision(table, seq, decision)
    for seq, source in ledger.rows(OTHER_SOURCE, (json.dumps(SOURCES),)):
        raise Mismatch(f"reward {seq} has the source {source!r}, which is none of {', '.join(SOURCES)}.")
    for what, query in OUT_OF_ORDER.items():
        for row in ledger.rows(query):
            raise Mismatch(f"{what.format(*row)}.")


def _check_memory(ledger: Ledger, key: int, name: str, contexts: Mapping[str, int]) -> None:
    rows = ledger.rows("select label, number from context where experiment = ? and label is not null", (key,))
    in_file = dict(rows)
    if in_file == contexts:
        return
    for label, number in sorted(contexts.items() - in_file.items()):
        there = f"{in_file[label]} in the file" if label in in_file else "has no row"
        raise Mismatch(f"{name}: {label!r} is context {number} in memory, and {there}.")
    for label, number in sorted(in_file.items() - contexts.items()):
        raise Mismatch(f"{name}: {label!r} is context {number} in the file, and unknown in memory.")
