"""The log as columns, a chunk of events at a time; the next one is read while this one is folded.

Steps are sorted by the position at which they took effect: a reward by its own, a draw by the position that had been
folded when it was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from alphafair.engine.integrity import impossible_number, without_decision
from alphafair.engine.ledger import Ledger
from alphafair.policy.loops import DRAW, EXPECT, FORGO, LEARN

CHUNK = 100_000  # events read at a time
LARGEST = 2**31 - 1  # number of a context or an arm
NOTHING = -1  # a step that teaches nothing
DECIDED, OTHER = -2, -1  # what a step comes from, where it is not a settlement: see SETTLED
TEACHES = np.array([LEARN, LEARN, FORGO, NOTHING, NOTHING], dtype=np.int8)  # by source
WHERE = [("seq", "i8"), ("order", "i8"), ("experiment", "i8"), ("step", "i1"), ("source", "i1")]
WHAT = [("context", "i4"), ("arm", "i4"), ("propensity", "f8"), ("reward", "f8")]
STEP = np.dtype([*WHERE, *WHAT])

DECISIONS = """select seq, experiment, context, arm, propensity, deferred from decision
    where seq > ? and seq <= ? order by seq"""
FOLDED = "select state_version from decision where seq > ? and seq <= ? order by seq"
ACTIVATIONS = "select seq, decision from activation where seq > ? and seq <= ? order by seq"
SETTLED = """select seq, decision, ifnull(reward, 0),
    case source when 'client' then 0 when 'default' then 1 when 'expired' then 2 when 'lapsed' then 3 else 4 end
    from reward where seq > ? and seq <= ? order by seq"""
EARLIER = """select r.seq, d.experiment, d.context, d.arm, d.propensity
    from {table} r join decision d on d.seq = r.decision
    where r.seq > ? and r.seq <= ? and r.decision <= ? order by r.seq"""
MASKS = "select seq, available from decision where seq > ? and seq <= ? and available is not null"
FULL = """select r.seq, d.probabilities, r.rewards from reward r join decision d on d.seq = r.decision
    where r.seq > ? and r.seq <= ? and r.rewards is not null"""

Item = TypeVar("Item")


class Chunk(NamedTuple):
    """Steps up to a position, in their order; by `seq`, the arms that a draw was among and all that a reward said."""

    end: int
    steps: NDArray[Any]
    masks: dict[int, bytes]
    full: dict[int, tuple[bytes, bytes]]


def chunks(ledger: Ledger, start: int, until: int, *, draws: bool, full: bool) -> Iterator[Chunk]:
    """The log between two positions; with the draws again, and the rewards of all arms, where they are asked for."""
    return _one_ahead(_chunks(ledger, start, until, draws, full))


def _one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items, each made by another thread while the one before is in use."""
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = other.submit(next, items, None)
            yield item


def _chunks(ledger: Ledger, start: int, until: int, draws: bool, full: bool) -> Iterator[Chunk]:
    while start < until:
        end = min(start + CHUNK, until)
        if draws:  # no draw of a later chunk may reach behind
            ((least,),) = ledger.rows(
                "select min(state_version) from decision where seq > ? and seq <= ?", (end, end + CHUNK)
            )
            if least is not None and start < least < end:
                end = int(least)
        masks = dict(ledger.rows(MASKS, (start, end))) if draws else {}
        seen = {seq: (used, rewards) for seq, used, rewards in ledger.rows(FULL, (start, end))} if full else {}
        yield Chunk(end, _steps(ledger, start, end, draws), masks, seen)
        start = end


def _check_found(table: str, events: NDArray[np.float64], found: NDArray[np.bool_]) -> None:
    for seq, decision in events[~found, :2][:1].tolist():
        raise without_decision(table, int(seq), int(decision))


def _steps(ledger: Ledger, start: int, end: int, draws: bool) -> NDArray[Any]:
    """Every decision, activation and settlement, and every draw once more where it took place."""
    decided = ledger.numbers(DECISIONS, 6, (start, end))
    activated = ledger.numbers(ACTIVATIONS, 2, (start, end))
    settled = ledger.numbers(SETTLED, 4, (start, end))
    possible = ((decided[:, 2:4] >= 0) & (decided[:, 2:4] <= LARGEST)).all(axis=1)
    for seq in decided[~possible, 0][:1].tolist():
        raise impossible_number(int(seq))
    n = len(decided)
    ends = np.cumsum([n, len(activated), len(settled), n if draws else 0])
    steps = np.zeros(ends[-1], dtype=STEP)
    own, activations, settlements, drawn = np.split(steps, ends[:-1])
    for part in (own, drawn) if draws else (own,):
        part["seq"], part["experiment"], part["context"], part["arm"], part["propensity"] = decided[:, :5].T
    own["source"], own["step"] = DECIDED, np.where(decided[:, 5] == 0, EXPECT, NOTHING)
    for part, events, table in ((activations, activated, "activation"), (settlements, settled, "reward")):
        part["seq"], part["source"], part["step"] = events[:, 0], OTHER, EXPECT
        here = events[:, 1] > start
        at = np.searchsorted(decided[:, 0], events[here, 1])
        earlier = ledger.numbers(EARLIER.format(table=table), 5, (start, end, start))
        _check_found(table, events[here], np.append(decided[:, 0], np.nan)[at] == events[here, 1])
        _check_found(table, events[~here], np.isin(events[~here, 0], earlier[:, 0]))
        for column, field in enumerate(("experiment", "context", "arm", "propensity"), start=1):
            part[field][here] = decided[at, column]
            part[field][~here] = earlier[:, column]
    settlements["reward"], settlements["source"] = settled[:, 2], settled[:, 3]
    settlements["step"] = TEACHES[settlements["source"]]
    steps["order"] = 2 * steps["seq"]
    if draws:
        drawn["step"], drawn["source"] = DRAW, OTHER
        drawn["order"] = 2 * ledger.numbers(FOLDED, 1, (start, end))[:, 0] + 1
    in_order: NDArray[Any] = steps[np.argsort(steps["order"], kind="stable")]
    return in_order
