"""Every value that travels between modules: plain, frozen, and checked where it is made."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from alphafair import validate
from alphafair.arrays import Indices as Indices
from alphafair.arrays import Matrix as Matrix
from alphafair.arrays import Vector as Vector
from alphafair.arrays import frozen as frozen
from alphafair.decision import ChosenDecision as ChosenDecision
from alphafair.decision import Decision as Decision
from alphafair.decision import DescribedDecision as DescribedDecision
from alphafair.log import Log as Log

if TYPE_CHECKING:
    from alphafair.groups import ArmGroups


class Feedback(StrEnum):
    """What a policy is shown after a round."""

    FULL = "full"  # the rewards of all arms, as a vector
    BANDIT = "bandit"  # the reward of the pulled arm, as a float


class UniformSource(Protocol):
    """Anything with a `random()` in [0, 1): `numpy.random.Generator`, `random.Random`, your own replay."""

    def random(self) -> float: ...


Account = Literal["least", "fresh"] | float  # what a new arm is taken to have earned


@dataclass(frozen=True, eq=False)
class Traits:
    """What is true of a kind of policy: what checks, tables, pictures and the engine need to know about a class.

    `variants` are the settings that it is worth checking in, by name, for so many contexts and arms; "" is the plain
    one.
    """

    reward_range: tuple[float, float] = (0.0, 1.0)
    learns: bool = True  # False for one that plays the same whatever it is told
    feedbacks: tuple[Feedback, ...] = ()  # those to choose from, where the constructor takes a `feedback`
    contexts_apart: bool = True  # False: what a context plays depends on how many others there are
    look: tuple[str, str] | None = None  # colour and marker in pictures; None: some of its own
    variants: Callable[[int, int], dict[str, dict[str, Any]]] = lambda n_contexts, n_arms: {"": {}}


@runtime_checkable
class Policy(Protocol):
    """What every policy can do. Derive from `alphafair.extend.PlainPolicy`, or `alphafair.BasePolicy` for machine code.

    Or derive from this, and write everything yourself. It is made as `Policy(n_contexts, n_arms, seed=None, ...)`. What
    it promises, and `alphafair check` looks for:

    - `probabilities` is a distribution over all arms, to 1e-12, whatever rewards in `traits.reward_range` have come.
    - `probabilities` and `choose` are questions: they change nothing but the policy's own random numbers.
    - `choose` draws one uniform number, from `rng` or its own (one seed, one path), and the decision holds the
      distribution, read-only, and the arm's true probability. An arm that is not `available`, or retired, is never
      drawn.
    - `update` is called once per decision that has a reward, at any time and in any order, also after arms came and
      went: all that it needs of the past is in the decision. Our policies refuse a decision of `choose` the second
      time; they cannot recognise one that was rebuilt from a log. Under full information `update` is given as many
      rewards as there were arms when the decision was made. What was not shown does not matter; arms that pay more
      are, in the end, pulled more often, unless `traits.learns` is False.
    - Numbers are names: rename arms or contexts, and the answer is renamed, but for ties.
    - `grow` leaves old contexts as they are; accounts, for a policy that keeps them, are "least", "fresh" or a number.
      A retired arm keeps its number and has probability 0; rewards of it that come late are welcome. To retire it once
      more, or to make nothing but it available, is bad input.
    - `snapshot`, then `restore` into a policy of the same kind and settings, and play goes on as if nothing had
      happened, with the contexts and arms of then. What is learned later does not change a snapshot. `fresh` has
      learned nothing, and starts its seed over.
    - Bad input is refused with a ValueError (a TypeError, for what is no number at all), and changes nothing.
    - Many threads may use it: every call is done as a whole. One that has `cumulative_rewards` books every reward once.
    - One with kernels: whole runs equal single steps to the last bit, and its memory does not grow.

    How it starts, what it makes of a mask, and how close to certainty it comes are its own affair.
    """

    name: ClassVar[str]
    feedback: Feedback
    n_contexts: int
    n_arms: int
    n_features: int = 0  # more than 0: it is asked with `features=`, which have the shape `feature_shape`
    feature_shape: tuple[int, ...] = ()
    traits: ClassVar[Traits] = Traits()
    alpha: float | None = None  # how fair it is, for one that is
    groups: ArmGroups | None = None  # whom it is fair to, where that is not every arm by itself
    accounts: Vector | Matrix | None = None  # R, for one that keeps accounts: 1 and what arms, or groups, have earned
    cumulative_rewards: Vector | Matrix | None = None  # what arms have earned, for one that keeps accounts
    surrogate_regret_bound: float | None = None  # for `metrics.regret_certificate`
    expected_surrogate_regret_bound: float | None = None  # for `metrics.bound_in_expectation`

    def probabilities(self, context: int, *, available: ArrayLike | None = None) -> Vector: ...
    def choose(
        self,
        context: int,
        *,
        rng: UniformSource | None = None,
        available: ArrayLike | None = None,
    ) -> Decision: ...
    def update(self, decision: Decision, reward: Any) -> None: ...

    def expect(self, decision: Decision) -> None:
        """A reward for this decision is on its way; `update` or `forgo` ends the wait. Nothing, by default."""
        return

    def forgo(self, decision: Decision) -> None:
        """No reward will come for a decision that was expected to have one. Nothing, by default."""
        return

    def grow(self, n_contexts: int | None = None, n_arms: int | None = None, account: Account = "least") -> None: ...
    def retire(self, arm: int) -> None: ...
    def snapshot(self) -> State: ...
    def restore(self, state: State) -> None: ...
    def fresh(self) -> Self: ...


class _Written:
    """Where an archive is written to, piece by piece; it cannot be read or gone back in."""

    def __init__(self) -> None:
        self.waiting = bytearray()

    def write(self, data: bytes, /) -> int:
        self.waiting += data
        return len(data)

    def flush(self) -> None:
        """Nothing to do; archives call it, and so they do `close`."""

    close = flush

    def take(self) -> bytes:
        """What was written since the last time."""
        taken, self.waiting = bytes(self.waiting), bytearray()
        return taken


@dataclass(frozen=True, eq=False)
class State:
    """A policy at one moment: its name, the version of its memory's layout, settings, random numbers, memory.

    Every fact has one place. No pickle anywhere: `to_bytes` writes an uncompressed NumPy `.npz` archive whose entry
    `meta` is JSON text; any language that reads zip and npy can read it.
    """

    policy: str
    version: int
    settings: Mapping[str, Any]
    rng: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]

    def to_bytes(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self, size: int = 1 << 20) -> Iterator[bytes]:
        """The same bytes, in pieces of about that size: a large state can be written without another copy of it."""
        meta = {
            "policy": self.policy,
            "version": self.version,
            "settings": dict(self.settings),
            "rng": dict(self.rng),
        }
        text = np.frombuffer(json.dumps(meta, sort_keys=True).encode(), dtype=np.uint8)
        written = _Written()
        with zipfile.ZipFile(written, "w") as archive:
            for name, values in {"meta": text, **self.arrays}.items():
                array = np.asarray(values, order="C")
                if array.dtype.hasobject:
                    raise ValueError(f"{name!r} in the state holds Python objects, which are not written")
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as entry:
                    np.lib.format.write_array_header_1_0(entry, np.lib.format.header_data_from_array_1_0(array))
                    raw = array.reshape(-1).view(np.uint8)
                    for first in range(0, len(raw), size):
                        entry.write(raw[first : first + size].data)
                        if len(written.waiting) >= size:
                            yield written.take()
        yield written.take()

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        if not isinstance(blob, bytes | bytearray | memoryview):
            raise validate.Refusal("blob", "the bytes of a State", blob, "Pass what State.to_bytes returned.")
        try:
            _refuse_growing(blob)
            with np.load(io.BytesIO(blob), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            meta = json.loads(arrays.pop("meta").tobytes())
            return cls(meta["policy"], meta["version"], meta["settings"], meta.get("rng", {}), arrays)
        except MemoryError:
            raise
        except Exception as problem:  # zipfile, npy header, JSON and key errors all mean the same thing here
            repair = "It is cut off, damaged, or was not made by State.to_bytes."
            raise validate.Refusal("blob", "the bytes of a State", blob[:16], repair) from problem

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        return cls.from_bytes(Path(path).read_bytes())


def _refuse_growing(blob: bytes) -> None:
    """An archive whose entries take more room than it has itself: `to_bytes` compresses nothing and repeats nothing."""
    with zipfile.ZipFile(io.BytesIO(blob)) as archive:
        compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist())
        sizes = [entry.file_size for entry in archive.infolist()]
        if compressed or sum(sizes) > len(blob):
            raise ValueError("the archive grows when it is read")
        np.empty(sum(sizes), dtype=np.uint8)  # where memory is too short for all of them, none is read
        for entry in archive.infolist():
            with archive.open(entry) as file:
                shape, _, dtype = _header(file)
                if math.prod(shape) * dtype.itemsize + file.tell() != entry.file_size:
                    raise ValueError(f"{entry.filename} has not the size that it claims")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and kind of an array in NumPy's format, which has a version 2 for headers of 64 KB and more."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    return read[np.lib.format.read_magic(file)](file)


@dataclass(frozen=True, eq=False)
class Stream:
    """Contexts and rewards, round by round: round t shows context `contexts[t]` and `reward_table[items[t]]`.

    Many rounds share few rows of rewards (every rating of one movie does), so 25 million rounds over 62,000
    items take two int32 arrays and one small table. `Stream.from_arrays` takes one row of rewards per round.

    Arms may come and go: arm i takes part in the rounds `arrivals[i] <= t < departures[i]`, counted from 0. Arms are
    numbered in the order in which they arrive, the first ones before round 0; what the table says about an arm that is
    not there does not matter.

    Rounds may come with `features`: of their context, (n_rounds, n_features), or of every arm in it, (n_rounds, n_arms,
    n_features). Policies that were made for them are shown them.
    """

    contexts: Indices
    items: Indices
    reward_table: Matrix
    context_labels: tuple[str, ...] | None = None
    arm_labels: tuple[str, ...] | None = None
    n_contexts: int = field(default=0, kw_only=True)
    arrivals: Indices | None = field(default=None, kw_only=True)
    departures: Indices | None = field(default=None, kw_only=True)
    features: NDArray[np.float64] | None = field(default=None, kw_only=True)

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
            repair = "Give one name per arm."
            raise validate.Refusal("arm_labels", f"{table.shape[1]} names", len(self.arm_labels), repair)
        object.__setattr__(self, "n_contexts", announced)
        columns: dict[str, NDArray[Any]] = {"contexts": contexts, "items": items, "reward_table": table}
        if self.arrivals is not None or self.departures is not None:
            sizes = {"n_arms": table.shape[1], "n_rounds": len(contexts)}
            columns["arrivals"], columns["departures"] = validate.presence(self.arrivals, self.departures, **sizes)
        if self.features is not None:
            columns["features"] = validate.feature_rows(self.features, len(contexts), table.shape[1])
        for name, column in columns.items():
            object.__setattr__(self, name, frozen(column))

    @classmethod
    def from_arrays(
        cls,
        contexts: ArrayLike,
        rewards: ArrayLike,
        *,
        context_labels: Sequence[str] | None = None,
        arm_labels: Sequence[str] | None = None,
        n_contexts: int = 0,
        arrivals: ArrayLike | None = None,
        departures: ArrayLike | None = None,
        features: ArrayLike | None = None,
    ) -> Self:
        """A stream from one context and one row of rewards (n_arms) per round."""
        repair = "Give one row per round and one column per arm."
        table = np.atleast_1d(validate.floats("rewards", "a table of numbers", rewards, repair))
        return cls(
            contexts,  # type: ignore[arg-type]
            np.arange(len(table), dtype=np.int32),
            table,
            None if context_labels is None else tuple(context_labels),
            None if arm_labels is None else tuple(arm_labels),
            n_contexts=n_contexts,
            arrivals=arrivals,  # type: ignore[arg-type]
            departures=departures,  # type: ignore[arg-type]
            features=features,  # type: ignore[arg-type]
        )

    @property
    def n_rounds(self) -> int:
        return len(self.contexts)

    @property
    def n_arms(self) -> int:
        """All arms that ever take part."""
        return int(self.reward_table.shape[1])

    @property
    def n_first_arms(self) -> int:
        """The arms that are there in the first round: what a policy for this stream is made with."""
        return self.n_arms if self.arrivals is None else int((self.arrivals == 0).sum())

    def present(self, t: int) -> NDArray[np.bool_]:
        """Which arms take part in round t, counted from 0."""
        if self.arrivals is None or self.departures is None:
            return np.ones(self.n_arms, dtype=np.bool_)
        return (self.arrivals <= t) & (t < self.departures)

    @property
    def epochs(self) -> list[int]:
        """The rounds at which arms come or go, after the first round: between two of them all arms stay."""
        if self.arrivals is None or self.departures is None:
            return []
        changes = np.unique(np.concatenate([self.arrivals, self.departures]))
        return [int(t) for t in changes if 0 < t < self.n_rounds]

    def rewards(self, t: int) -> Vector:
        """Rewards of all arms in round t, counted from 0; read-only."""
        row: Vector = self.reward_table[self.items[t]]
        return row

    def head(self, n_rounds: int) -> Self:
        """The first rounds, sharing memory with this stream; labels and number of contexts stay."""
        validate.integer("n_rounds", n_rounds, low=1, high=self.n_rounds)
        features = None if self.features is None else self.features[:n_rounds]
        return replace(self, contexts=self.contexts[:n_rounds], items=self.items[:n_rounds], features=features)


ADVERSARIES = ("settled", "largest", "halving")


@dataclass(frozen=True, eq=False)
class Adversary:
    """One that sees the distribution of every round before it says what arms pay: see `streams.adversary`.

    `stream` has the contexts, and what arms would pay in each of them were nobody lowered: item j is context j.
    """

    kind: str
    stream: Stream

    def __post_init__(self) -> None:
        validate.choice("kind", self.kind, ADVERSARIES)
        validate.stream("stream", self.stream)
        if len(self.stream.reward_table) != self.stream.n_contexts:
            allowed = f"a row for each of {self.stream.n_contexts} contexts"
            raise validate.Refusal("stream.reward_table", allowed, len(self.stream.reward_table), "Give one row each.")


@dataclass(frozen=True, eq=False)
class Trace:
    """What a run left behind: R at the recorded rounds (initial 1 included) and how often each arm was pulled.

    `log` has every decision with the reward of its arm, if the run was asked to keep them.
    """

    policy: str
    feedback: Feedback
    seed: int | None
    rounds: NDArray[np.int64]
    accounts: Matrix
    pulls: NDArray[np.int64]
    log: Log | None = None

    @property
    def final(self) -> Vector:
        """Accounts after the last round."""
        last: Vector = self.accounts[-1]
        return last
