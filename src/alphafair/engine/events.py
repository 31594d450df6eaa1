"""What can happen, one value per kind: its fields are the columns of its table, so a log is a list of them."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """An experiment is created, or run differently from here on."""

    seq: int
    experiment: int
    kind: str
    body: str
    state: bytes | None
    at: int
    by: str | None = None  # whose change it is: see `Engine.acting_as`


class Context(NamedTuple):
    """A context that was not known before; it has no place of its own in the order of events."""

    experiment: int
    number: int
    label: str


class Decided(NamedTuple):
    """An arm was drawn."""

    seq: int
    id: str
    experiment: int
    context: int
    arm: int
    propensity: float
    state_version: int
    policy_version: int
    deferred: int
    available: bytes | None
    probabilities: bytes | None
    at: int
    checksum: int


class Activated(NamedTuple):
    """A deferred decision counts from here on."""

    seq: int
    decision: int
    at: int


class Settled(NamedTuple):
    """A decision has its reward, or will have none."""

    seq: int
    decision: int
    reward: float | None
    source: str
    rewards: bytes | None
    at: int


class Late(NamedTuple):
    """A reward that came after its decision was settled by the clock; it teaches nothing."""

    seq: int
    decision: int
    reward: float | None
    rewards: bytes | None
    at: int


class SnapshotPiece(NamedTuple):
    """A part of a state that is too large for one transaction, written before its `Snapshot`."""

    experiment: int
    seq: int
    number: int
    bytes: bytes


class Snapshot(NamedTuple):
    """The state of a policy at some position, or the last piece of it."""

    experiment: int
    seq: int
    code_version: str
    tally: str
    state: bytes


Event = Change | Context | Decided | Activated | Settled | Late | SnapshotPiece | Snapshot
TABLES: dict[type, str] = {
    Change: "change",
    Context: "context",
    Decided: "decision",
    Activated: "activation",
    Settled: "reward",
    Late: "late_reward",
    SnapshotPiece: "snapshot_piece",
    Snapshot: "snapshot",
}
NUMBERS: dict[type, tuple[str, str]] = {  # what is a number, and what float64s of all arms
    Decided: ("propensity", "probabilities"),
    Settled: ("reward", "rewards"),
    Late: ("reward", "rewards"),
}
