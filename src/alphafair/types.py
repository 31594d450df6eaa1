"""Every value that travels between rooms: plain, frozen, and checked where it is made."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Indices = NDArray[np.int32]


class Feedback(StrEnum):
    """What a policy is shown after a round."""

    FULL = "full"  # the rewards of all arms, as a vector
    BANDIT = "bandit"  # the reward of the pulled arm, as a float


class Decision(NamedTuple):
    """One choice and all that is needed to learn from it later: hand it back to `update` with its reward."""

    context: int
    arm: int
    propensity: float
    probabilities: Vector


class UniformSource(Protocol):
    """Anything with a `random()` in [0, 1): `numpy.random.Generator`, `random.Random`, your own replay."""

    def random(self) -> float: ...


@runtime_checkable
class Policy(Protocol):
    """What every policy can do. Derive from `alphafair.policies.BasePolicy` or write it all yourself."""

    n_contexts: int
    n_arms: int

    @property
    def name(self) -> str: ...
    @property
    def feedback(self) -> Feedback: ...
    def probabilities(self, context: int, *, available: ArrayLike | None = None) -> Vector: ...
    def choose(
        self,
        context: int,
        *,
        rng: UniformSource | None = None,
        available: ArrayLike | None = None,
    ) -> Decision: ...
    def update(self, decision: Decision, reward: Any) -> None: ...
    def grow(self, n_contexts: int) -> None: ...
    def snapshot(self) -> State: ...
    def restore(self, state: State) -> None: ...
    def fresh(self) -> Self: ...


@dataclass(frozen=True, eq=False)
class State:
    """A policy's memory at one moment: its name, its settings and its arrays. No pickle anywhere.

    `to_bytes` writes an uncompressed NumPy `.npz` archive whose entry `meta` is JSON text; any language that
    reads zip and npy can read it.
    """

    policy: str
    version: int
    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    def to_bytes(self) -> bytes:
        meta = {"policy": self.policy, "version": self.version, "settings": dict(self.settings)}
        buffer = io.BytesIO()
        text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), dtype=np.uint8)
        np.savez(buffer, allow_pickle=False, meta=text, **dict(self.arrays))
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        try:
            with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            meta = json.loads(arrays.pop("meta").tobytes())
            return cls(meta["policy"], meta["version"], meta["settings"], arrays)
        except Exception as problem:  # zipfile, npy header, JSON and key errors all mean the same thing here
            repair = "It is cut off, damaged, or was not made by State.to_bytes."
            raise validate.Refusal("blob", "the bytes of a State", blob[:16], repair) from problem

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls.from_bytes(Path(path).read_bytes())


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view


@dataclass(frozen=True, eq=False)
class Stream:
    """Contexts and rewards, round by round: round t shows context `contexts[t]` and `reward_table[items[t]]`.

    Many rounds share few rows of rewards (every rating of one movie does), so 25 million rounds over 62,000
    items take two int32 arrays and one small table. `Stream.from_arrays` takes one row of rewards a round.
    """

    contexts: Indices
    items: Indices
    reward_table: Matrix
    context_labels: tuple[str, ...] | None = None
    arm_labels: tuple[str, ...] | None = None
    n_contexts: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        table = validate.reward_table("reward_table", self.reward_table)
        contexts = validate.indices("contexts", self.contexts, None)
        items = validate.indices("items", self.items, table.shape[0], n_entries=len(contexts))
        seen = int(contexts.max()) + 1
        for name, labels, least in (
            ("context_labels", self.context_labels, seen),
            ("arm_labels", self.arm_labels, table.shape[1]),
        ):
            if labels is not None:
                object.__setattr__(self, name, validate.labels(name, labels, least))
        announced = self.n_contexts or len(self.context_labels or ()) or seen
        validate.integer("n_contexts", announced, low=seen)
        if self.arm_labels is not None and len(self.arm_labels) != table.shape[1]:
            raise validate.Refusal(
                "arm_labels", f"{table.shape[1]} names", len(self.arm_labels), "Give one name an arm."
            )
        object.__setattr__(self, "n_contexts", announced)
        object.__setattr__(self, "contexts", _frozen(contexts))
        object.__setattr__(self, "items", _frozen(items))
        object.__setattr__(self, "reward_table", _frozen(table))

    @classmethod
    def from_arrays(
        cls,
        contexts: ArrayLike,
        rewards: ArrayLike,
        *,
        context_labels: Sequence[str] | None = None,
        arm_labels: Sequence[str] | None = None,
        n_contexts: int = 0,
    ) -> Self:
        """A stream from one context and one row of rewards (n_arms) a round."""
        repair = "Give one row a round and one column an arm."
        table = np.atleast_1d(validate.floats("rewards", "a table of numbers", rewards, repair))
        return cls(
            contexts,  # type: ignore[arg-type]
            np.arange(len(table), dtype=np.int32),
            table,
            None if context_labels is None else tuple(context_labels),
            None if arm_labels is None else tuple(arm_labels),
            n_contexts=n_contexts,
        )

    @property
    def n_rounds(self) -> int:
        return len(self.contexts)

    @property
    def n_arms(self) -> int:
        return int(self.reward_table.shape[1])

    def rewards(self, t: int) -> Vector:
        """Rewards of all arms in round t, counted from 0; read-only."""
        row: Vector = self.reward_table[self.items[t]]
        return row

    def head(self, n_rounds: int) -> Self:
        """The first rounds, sharing memory with this stream; labels and number of contexts stay."""
        validate.integer("n_rounds", n_rounds, low=1, high=self.n_rounds)
        return type(self)(
            self.contexts[:n_rounds],
            self.items[:n_rounds],
            self.reward_table,
            self.context_labels,
            self.arm_labels,
            n_contexts=self.n_contexts,
        )


@dataclass(frozen=True, eq=False)
class Log:
    """Decisions that somebody made, one entry each, in the order of time; all arrays are read-only.

    The reward of the shown arm is known and no other, so this is no `Stream`.
    """

    contexts: Indices
    arms: Indices
    rewards: Vector
    propensities: Vector  # of the shown arm, in (0, 1]
    positions: Indices  # on the page, as in the file: 1 is the first
    timestamps: NDArray[np.datetime64]  # UTC, microseconds
    context_labels: tuple[str, ...]
    arm_labels: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("contexts", "arms", "rewards", "propensities", "positions", "timestamps"):
            column = getattr(self, name)
            if len(column) != len(self.contexts):
                raise validate.Refusal(name, f"{len(self.contexts)} entries", len(column), "Give one entry a round.")
            object.__setattr__(self, name, _frozen(column))

    @property
    def n_rounds(self) -> int:
        return len(self.contexts)

    @property
    def n_contexts(self) -> int:
        return len(self.context_labels)

    @property
    def n_arms(self) -> int:
        return len(self.arm_labels)


@dataclass(frozen=True, eq=False)
class Trace:
    """What a run left behind: R at the recorded rounds (initial 1 included) and how often each arm was pulled."""

    policy: str
    feedback: Feedback
    seed: int | None
    rounds: NDArray[np.int64]
    cumulative_rewards: Matrix
    pulls: NDArray[np.int64]

    @property
    def final(self) -> Vector:
        """Cumulative rewards after the last round."""
        last: Vector = self.cumulative_rewards[-1]
        return last
